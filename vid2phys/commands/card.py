"""`card`: a model's card, from its score and from held-out renders that are read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.commands.training import CALIBRATION, unseen_clips
from vid2phys.commands.training_progress import TrainingProgress, show_training
from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from vid2phys.risp.renders.dataset import RenderSet
    from vid2phys.tracking.uncertainty.single_images import EvaluatedModel

_MOST, _MOST_EASIER = 384, 256  # images that are judged, and with one thing left out


def card(
    model: str | Path,
    *,
    mesh: str | Path | None = None,
    body: str | Path | None = None,
    mesh_units: str = "m",
    mesh_move: str | None = None,
    work: str | Path | None = None,
    quiet: bool = False,
) -> Path:
    """Writes card.md and its images into the folder `model` and returns the card.

    mesh: that it was trained for; none for a body on a known base (a hand, a rod, or the robot in the file `body`).
    work: folder of the training, whose renders for calibration are shown (default: runs/train-risp/NAME); they are
    rendered again from the seed where they are gone. Raises InputError for a bad model or mesh, UsageError for a mesh
    too many or missing.
    """
    from vid2phys.commands.train_risp import WORK
    from vid2phys.engine.systems import from_file, get
    from vid2phys.io.files import disk_errors
    from vid2phys.io.mesh import load_mesh
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.articulated_bodies import body_of_model
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.model_lookup import find_model
    from vid2phys.tracking.uncertainty.single_images import EvaluatedModel

    folder = Path(model)
    found, score = Model.load(folder), read_score(folder)
    name = found.shape.system
    physics = from_file(name, body) if body is not None else get(name)
    renders_in = Path(work) if work is not None else WORK / folder.name
    seed = int(score.get("seed", 0))
    with show_training(quiet) as progress, disk_errors(renders_in):
        if found.shape.kind == "rigid":
            if mesh is None:
                raise UsageError(f"no --mesh for '{folder}'", "the mesh that it was trained for", "give --mesh")
            shape = simplified(load_mesh(mesh, mesh_units, move=mesh_move))
            found = find_model(shape, folder, mesh_path=mesh, units=mesh_units, move=mesh_move, system=name)
            subject = EvaluatedModel(found, shape)
            renders = unseen_clips(shape, physics, renders_in / CALIBRATION, seed, progress)
        else:
            from vid2phys.commands.train_articulated import calibration_configurations

            posed = body_of_model(found, physics)
            subject = EvaluatedModel(found, posed.mesh, posed)
            renders = calibration_configurations(posed, renders_in / CALIBRATION, seed, progress)
        given = f"--mesh {Path(mesh).name}" if mesh is not None else f"--body {Path(body).name}" if body else ""
        return make_card(folder, subject, renders, seed, progress, given=given)


def make_card(
    folder: Path,
    subject: EvaluatedModel,
    renders: RenderSet,
    seed: int,
    progress: TrainingProgress,
    *,
    given: str = "",
) -> Path:
    """The card of a trained model, from the renders that it was calibrated on. given: options that name its files."""
    from vid2phys.indices import evenly
    from vid2phys.report.card import LEFT_OUT, Easier, write_card
    from vid2phys.risp.appearance.randomisation import Randomisation
    from vid2phys.tracking.uncertainty.single_images import evaluate_images

    chosen = evenly(len(renders), _MOST)
    rows = evenly(len(chosen), _MOST_EASIER)
    stages, done = 1 + len(LEFT_OUT), 0

    def step(share: float) -> None:
        progress.step("the model's card", round(100 * (done + share)), 100 * stages)

    judged = evaluate_images(subject, renders, chosen, seed=seed, progress=step)
    easier = []
    for name in LEFT_OUT:
        done += 1
        varied = Randomisation.without((name,))
        easier.append(
            Easier(name, rows, evaluate_images(subject, renders, chosen[rows], seed=seed, varied=varied, progress=step))
        )
    command = f"vid2phys card models/{folder.name} {given}".strip()
    return write_card(folder, subject, judged, easier, read_score(folder), command)


def read_score(folder: Path) -> dict[str, Any]:
    """score.json of a model folder, empty where there is none. Raises InputError for one that cannot be read."""
    from vid2phys.report.card import training_facts

    path = folder / "score.json"
    if not path.is_file():
        return {}
    try:
        score = json.loads(path.read_text(encoding="utf-8"))
        training_facts(score)
        int(score.get("seed", 0))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"'{path}' is broken", "the score of a training", "remove it, or train again") from error
    return dict(score)
