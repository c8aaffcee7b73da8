"""The networks of tables 2 to 4: those of table 1, trained where they are missing, and for `ours` the project's model.

Limits: a model of another shape is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from experiments.bodies import Entry
from experiments.body_adapter import BodyAdapter
from experiments.convergence import NETWORK_OF
from experiments.identification import COMMAND
from experiments.methods import (
    RATES,
    RENDERS,
    Learnt,
    Recipe,
    model_in,
    train,
    training_seconds,
    with_learning_rate,
)
from experiments.result_cache import model_of_command, own_model
from experiments.risp_table1 import recipes
from experiments.table import Setting
from vid2phys.io.files import sha256
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.state_model import StateModel


@dataclass(frozen=True)
class Source:
    """Where a method's network comes from. recipe: of table 1, or None for a method without a network. folder: of a
    model that is taken instead. training_s: about how long its training takes on two cores, 0 if it is there."""

    recipe: Recipe | None
    folder: Path | None = None
    training_s: float = 0.0

    @property
    def digest(self) -> str | None:
        """Return the digest that names the weights, as far as it is known before they are loaded."""
        if self.folder is not None:
            return sha256(self.folder / "fine.safetensors")
        return None if self.recipe is None else self.recipe.digest


def source_of(method: str, entry: Entry, setting: Setting) -> Source:
    """Return the source of a method's network."""
    name = NETWORK_OF.get(method, method)
    recipe = recipes(setting.quick).get(name)
    if recipe is None or setting.quick:
        return Source(recipe)
    folder = own_model(entry) if name == "ours" else None
    if folder is not None:
        return Source(recipe, folder)
    there = _is_trained(recipe, setting.work / entry.name)
    return Source(recipe, training_s=0.0 if there else training_seconds(recipe, entry.view_size))


def source_of_command(entry: Entry) -> Source:
    """Return the model that the user's command takes, if any."""
    return Source(None, model_of_command(entry))


def source_for(method: str, entry: Entry, setting: Setting) -> Source:
    """Return the source of a method's network, of the user's command too."""
    return source_of_command(entry) if method == COMMAND else source_of(method, entry, setting)


def _is_trained(recipe: Recipe, folder: Path) -> bool:
    """Return whether the weights of a recipe are there, those included that its learning rate was chosen by."""

    def done(each: Recipe) -> bool:
        return (folder / each.digest / "recipe.json").is_file()  # written when a training is over

    if not recipe.is_paper or recipe.learning_rate:
        return done(recipe)
    trials = [recipe.trial(rate, RENDERS) for rate in RATES]
    return all(done(trial) for trial in trials) and any(done(replace(recipe, learning_rate=rate)) for rate in RATES)


def load(source: Source, adapter: BodyAdapter, setting: Setting) -> Model | StateModel | None:
    """Return the network, trained if it is not there. Raises InputError for a model of another shape."""
    if source.folder is not None:
        return model_in(source.folder, adapter)
    if source.recipe is None:
        return None
    recipe, _ = with_learning_rate(adapter, source.recipe, setting)
    learnt = train(adapter, recipe, setting)
    return state_model(adapter, learnt) if recipe.is_paper else adapter.model(learnt)


def state_model(adapter: BodyAdapter, learnt: Learnt) -> StateModel:
    """Return RISP's own network, trained, as a model."""
    from vid2phys.risp.heads.state import StateHead

    assert isinstance(learnt.head, StateHead)
    width = int(learnt.head.size["width"])
    return StateModel(adapter.name, learnt.head.codes, width, learnt.network, learnt.view_size)
