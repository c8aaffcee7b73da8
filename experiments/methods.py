"""The networks that tables compare: trained by recipe on the same images, kept under the recipe's hash.

Weights lie in the work folder, where an interrupted training goes on. Only `ours` may come from a model that was
trained by the default command (`model_folder`). Limits: no weights are shipped with the tables.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.body_adapter import BodyAdapter, RenderPlan
from experiments.table import Setting
from vid2phys.io.files import sha256, write_text
from vid2phys.risp.appearance.randomisation import Randomisation

if TYPE_CHECKING:
    from torch import nn

    from vid2phys.risp.heads import Head
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.recipes import TrainingData
    from vid2phys.risp.training.train import Schedule, Validate

FLAT = 0.03  # a validation curve is flat when its last quarter brings no more than this share
_CHECKOUT = Path(__file__).resolve().parents[1]
MODEL_PLACES = (_CHECKOUT / "models", _CHECKOUT / "work/models")
RENDERS, QUICK_RENDERS = 12_000, 192  # of a body, which all of its methods share
RATES, RATE_EPOCHS = (1e-2, 1e-3), 2  # RISP's own learning rate and a smaller one, tried for so many epochs
GRADIENT_EVERY = 5
_LEAST_EPOCHS, _LEAST_IMAGES = 8, 100_000  # with fewer a curve is flat because nothing was learnt yet
_GRADIENT_BATCH = 8
_SAME = 1e-3  # distance of signatures
_STEP_MS = {0: (8.2, 36.4), 8: (2.5, 9.0), 16: (5.2, 18.8), 32: (12.2, 41.2), 64: (36.9, 118.6)}  # of a 96 px image
_DEVELOP_MS = (5.5, 18.5)  # without and with derivatives; keys above: widths of the state head, 0: the keypoint head
RENDER_MS = 71.0


def digest_of(facts: dict[str, Any]) -> str:
    """Return twelve hexadecimal digits that name what follows from such facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Recipe:
    """Everything that weights depend on.

    Attributes:
        head: Name of the head, see `risp.heads`.
        loss: Name of the penalty, see `risp.penalties`.
        gamma: Weight of the penalty.
        samples: How many renders are used.
        epochs: Number of epochs.
        appearances: How many appearances there are; 0: each image has a new one (see `RenderOptions`).
        view_size: V px, 0 for the body's own.
        learning_rate: 0 for our schedule's own, and for RISP's the better of RATES (`with_learning_rate`).
        seed: Seed of the training.
        version: A number to raise when trainings change.
        without: What is not randomised (names of `Randomisation`).
    """

    head: str
    loss: str
    gamma: float
    samples: int
    epochs: int
    appearances: int = 0
    view_size: int = 0
    learning_rate: float = 0.0
    seed: int = 0
    version: int = 2
    without: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """Return what hashes are made of; ablations came later, and so did the optimiser of our heads."""
        ours = {} if self.is_paper else {"optimizer": "muon"}
        return {name: value for name, value in self.as_dict().items() if value != ()} | ours

    def as_dict(self) -> dict[str, Any]:
        """Return the fields under the names that files and hashes have."""
        return {"looks" if name == "appearances" else name: value for name, value in asdict(self).items()}

    @property
    def digest(self) -> str:
        """Return the digest that names the folder of the weights."""
        return digest_of(self.facts)

    @property
    def is_paper(self) -> bool:
        """Return whether RISP's own schedule is followed."""
        return self.head.startswith("state")

    def trial(self, rate: float, samples: int) -> Recipe:
        """Return a short training without gradients that a learning rate is chosen by."""
        return replace(self, gamma=0.0, epochs=RATE_EPOCHS, samples=samples, appearances=0, learning_rate=rate)

    def network(self, adapter: BodyAdapter) -> str:
        """Return the network in words."""
        return f"{self.head}, {self.view_size or adapter.view_size} px"

    def schedule(self, workers: int) -> Schedule:
        """Return how it is trained."""
        from vid2phys.risp.recipes import paper_schedule
        from vid2phys.risp.training.train import Schedule

        schedule = paper_schedule(self.epochs, workers) if self.is_paper else Schedule(self.epochs, workers=workers)
        return replace(schedule, learning_rate=self.learning_rate) if self.learning_rate else schedule


@dataclass(frozen=True)
class Learnt:
    """A trained network. images: images it has seen, the same ones again counted again. sha256: of the weights."""

    recipe: Recipe
    head: Head
    network: nn.Module
    view_size: int
    history: list[dict[str, float]]
    seconds: float
    images: int
    sha256: str


def effort(adapter: BodyAdapter, learnt: Learnt) -> dict[str, Any]:
    """Return what every row of a method says of its training."""
    return {
        "network": learnt.recipe.network(adapter),
        "images_seen": learnt.images,
        "seconds": round(learnt.seconds, 1),
        "converged": is_converged(learnt.history, learnt.images),
        "recipe": learnt.recipe.digest,
        "weights_sha256": learnt.sha256,
    }


def is_converged(history: list[dict[str, float]], images: int, metric: str = "") -> bool:
    """Return whether the validation curve is flat at its end, after a training worth the name. metric: that of RISP's
    if none is given.
    """
    metric = metric or ("state_error" if "state_error" in history[-1] else "px")  # as models of `train-risp` have it
    return images >= _LEAST_IMAGES and is_flat([entry[metric] for entry in history])


def is_flat(curve: list[float]) -> bool:
    """Return whether the last quarter of a curve brings at most 3 % more than was reached before; never of a few
    epochs.
    """
    if len(curve) < _LEAST_EPOCHS:
        return False
    begin = len(curve) - len(curve) // 4
    return min(curve[begin:]) > (1.0 - FLAT) * min(curve[:begin])


def render_plan(adapter: BodyAdapter, setting: Setting, recipe: Recipe) -> RenderPlan:
    """Return the renders of a recipe. Renders of ever new appearances are made once for all methods; each is the same
    in any set, so that a smaller set is made where the shared one is not there.
    """
    plan = RenderPlan(
        *(
            folder_of(adapter, setting),
            _shared(setting),
            recipe.samples,
            recipe.appearances,
            setting.seed,
            recipe.view_size,
        ),
        by_color=recipe.is_paper,
        varied=Randomisation.without(recipe.without),
    )
    return plan if plan.data.exists() and not recipe.appearances else replace(plan, made=recipe.samples)


def _shared(setting: Setting) -> int:
    """Return how many renders the methods of a body share."""
    return QUICK_RENDERS if setting.quick else RENDERS


def training_data(adapter: BodyAdapter, setting: Setting, recipe: Recipe) -> TrainingData:
    """Return the first `samples` of a body's renders."""
    from vid2phys.commands.training import held_out

    plan = render_plan(adapter, setting, recipe)
    data = adapter.training_data(plan, setting.progress)
    return replace(data, renders=plan.samples, held_out=held_out(plan.samples))


def folder_of(adapter: BodyAdapter, setting: Setting) -> Path:
    """Return what is kept for a body."""
    return setting.work / adapter.name


def train(
    adapter: BodyAdapter,
    recipe: Recipe,
    setting: Setting,
    validation: Validate | None = None,
    data: TrainingData | None = None,
) -> Learnt:
    """Return network of a recipe, trained or taken from the work folder. validation, data: None for the body's own."""
    from vid2phys.commands.training import share_cores
    from vid2phys.risp.recipes import PenaltyOptions, TrainingRun, head_of, train_head

    data = data or training_data(adapter, setting, recipe)
    schedule, head = recipe.schedule(share_cores(setting.device)), head_of(data, recipe.head)
    folder = folder_of(adapter, setting) / recipe.digest
    folder.mkdir(parents=True, exist_ok=True)
    trained = train_head(
        data,
        head,
        schedule,
        TrainingRun(folder, setting.device, setting.progress),
        PenaltyOptions(recipe.gamma, recipe.loss, GRADIENT_EVERY),
        seed=recipe.seed,
        validation=validation or adapter.validation(data, head),
    )
    digest = sha256(next(folder.glob("*.checkpoint.safetensors")))
    write_text(folder / "recipe.json", json.dumps({**recipe.as_dict(), "sha256": digest}, indent=1) + "\n")
    images = recipe.epochs * sum(images_an_epoch(recipe, len(data.training), schedule.batch))
    return Learnt(
        *(recipe, head, trained.network.cpu(), data.stream.view_size),
        *(trained.history, trained.seconds, images, digest),
    )


def with_learning_rate(
    adapter: BodyAdapter, recipe: Recipe, setting: Setting, data: TrainingData | None = None
) -> tuple[Recipe, dict[str, Any]]:
    """Return a recipe with its learning rate, and what its rows say of that. data: None for the body's own.

    RISP's network gets the rate that is better on held-out looks after a short training without gradients; its own
    is 1e-2, for trainings several times as long.
    """
    if not recipe.is_paper or recipe.learning_rate:
        return recipe, {}
    errors = {}
    for rate in RATES:
        short = recipe.trial(rate, data.renders if data else _shared(setting))
        setting.progress.note(f"{adapter.name}: {recipe.head} with a learning rate of {rate:g}")
        errors[rate] = round(train(adapter, short, setting, data=data).history[-1]["state_error"], 5)
    best = min(errors, key=lambda rate: errors[rate])
    reported = {"learning_rate": best, "rates_tried": {f"{rate:g}": error for rate, error in errors.items()}}
    return replace(recipe, learning_rate=best), reported


def images_an_epoch(recipe: Recipe, renders: int, batch: int) -> tuple[int, int]:
    """Return how many images a network is shown in an epoch without and with rendering derivatives."""
    steps = renders // batch
    return steps * batch, _GRADIENT_BATCH * (steps // GRADIENT_EVERY) if recipe.gamma > 0.0 else 0


def model_folder(name: str, training_command: str) -> Path | None:
    """Return the model called `name` in the places of models, if it was trained by this command."""
    for folder in (place / name for place in MODEL_PLACES):
        score = _score(folder)
        if score.get("command") == training_command and score["training"]["started_from"] is None:
            return folder
    return None


def model_in(folder: Path, adapter: BodyAdapter) -> Model:
    """Return a model of `train-risp`. Raises InputError when it is another body's."""
    from vid2phys.errors import InputError
    from vid2phys.io.geometry import geometry_signature, signature_distance
    from vid2phys.risp.networks.model import Model

    model = Model.load(folder)
    distance = signature_distance(model.shape.signature, geometry_signature(adapter.mesh))
    if distance > _SAME:
        raise InputError(
            f"the model '{folder}' was trained on another shape than '{adapter.name}'",
            f"`{adapter.training_command}` with the mesh of the table",
            "move it away",
        )
    return model


def load_model(adapter: BodyAdapter, folder: Path, recipe: Recipe) -> tuple[Model, dict[str, Any]]:
    """Return a model of `train-risp`, and its effort. Raises InputError when it is another body's."""
    model, score = model_in(folder, adapter), _score(folder)
    shown = score["data"]["renders"] - score["data"]["held_out"]
    images = score["training"]["epochs"] * sum(images_an_epoch(recipe, shown, recipe.schedule(1).batch))
    history = score["history"]["fine"]
    return model, {
        "network": recipe.network(adapter),
        "images_seen": images,
        "seconds": score["seconds"]["fine"],
        "converged": is_converged(history, images),
        "recipe": score["command"],
        "weights_sha256": sha256(folder / "fine.safetensors"),
    }


def _score(folder: Path) -> dict[str, Any]:
    """Return score.json of a model, empty if it has none that can be read."""
    try:
        score = json.loads((folder / "score.json").read_text(encoding="utf-8"))
        return score if {"command", "training", "data", "history", "seconds"} <= set(score) else {}
    except (OSError, ValueError, TypeError):
        return {}


def training_seconds(recipe: Recipe, view_size: int) -> float:
    """Return about how long a training takes on two cores, from times per image measured on such a machine."""
    width = int(recipe.head.partition("@w")[2] or 64) if recipe.is_paper else 0
    shares = ((recipe.view_size or view_size) / 96) ** 2
    plain, gradient = images_an_epoch(recipe, recipe.samples, recipe.schedule(1).batch)
    trained, developed = _STEP_MS[width], _DEVELOP_MS
    network = shares * (plain * trained[0] + gradient * trained[1])  # on one core, beside the other's developing
    seconds = 1e-3 * recipe.epochs * max(network, plain * developed[0] + gradient * developed[1])
    if recipe.is_paper and not recipe.learning_rate:
        trial = replace(recipe, gamma=0.0, epochs=RATE_EPOCHS, appearances=0, learning_rate=RATES[0])
        seconds += len(RATES) * training_seconds(trial, view_size)  # shared by the recipes of a body
    return seconds
