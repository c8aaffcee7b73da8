"""`vid2phys card`: write a model's card again."""

from __future__ import annotations

from pathlib import Path

from vid2phys.commands.model_card import make_card, read_score
from vid2phys.commands.train_articulated import calibration_configurations
from vid2phys.commands.training import CALIBRATION, WORK, held_out_clips
from vid2phys.commands.training_progress import show_training
from vid2phys.errors import UsageError


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
    """Write card.md and its images into the folder `model` and return the card.

    mesh: that it was trained for, or the primitive `body`; none for a body on a known base (a hand, a rod, or the robot
    in the file `body`). work: folder of the training, whose renders for calibration are shown (default:
    runs/train-risp/NAME); they are rendered again from the seed where they are gone. Raises InputError for a bad model
    or mesh, UsageError for a mesh too many or missing.
    """
    from vid2phys.engine.systems import from_file, get
    from vid2phys.io.files import disk_errors
    from vid2phys.io.primitives import is_primitive, load_body
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.articulated_bodies import body_of_model
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.model_lookup import find_model
    from vid2phys.tracking.uncertainty.single_images import EvaluatedModel

    folder = Path(model)
    found, score = Model.load(folder), read_score(folder)
    name = found.shape.system
    primitive = str(body) if is_primitive(body) else None
    physics = from_file(name, body) if body is not None and primitive is None else get(name)
    renders_in = Path(work) if work is not None else WORK / folder.name
    seed = int(score.get("seed", 0))
    with show_training(quiet) as progress, disk_errors(renders_in):
        if found.shape.kind == "rigid":
            source = primitive if mesh is None else mesh
            if source is None:
                raise UsageError(f"no --mesh for '{folder}'", "the mesh that it was trained for", "give --mesh")
            shape = simplified(load_body(mesh, primitive, mesh_units, mesh_move))
            found = find_model(shape, folder, mesh_path=source, units=mesh_units, move=mesh_move, system=name)
            evaluated = EvaluatedModel(found, shape)
            renders = held_out_clips(shape, physics, renders_in / CALIBRATION, seed, progress)
        else:
            own = body_of_model(found, physics)
            evaluated = EvaluatedModel(found, own.mesh, own)
            renders = calibration_configurations(own, renders_in / CALIBRATION, seed, progress)
        given = f"--mesh {Path(mesh).name}" if mesh is not None else f"--body {Path(body).name}" if body else ""
        return make_card(folder, evaluated, renders, seed, progress, given=given)
