"""`train-risp`: from a mesh to a model folder. Renders, trains the fine and the coarse network, calibrates, scores.

Everything that takes long resumes: finished shards of renders and finished epochs are kept in the work folder.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.commands.system_choice import DEFAULT_SYSTEM, require_mesh
from vid2phys.commands.train_articulated import train_articulated
from vid2phys.commands.train_rigid import train_rigid
from vid2phys.commands.training import CALIBRATION, DATA, TrainingOptions, choose_device
from vid2phys.commands.training_progress import show_training
from vid2phys.errors import UsageError
from vid2phys.risp.appearance.randomisation import Randomisation

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.state_model import StateModel

SAMPLES, EPOCHS, GAMMA = 12_000, 12, 1.0
STATE_EPOCHS = 100
WORK = Path("runs/train-risp")


def train_risp(
    mesh: str | Path | None = None,
    system: str = DEFAULT_SYSTEM,
    out: str | Path | None = None,
    *,
    body: str | Path | None = None,
    mesh_units: str = "m",
    mesh_move: str | None = None,
    samples: int = SAMPLES,
    epochs: int | None = None,
    gamma: float = GAMMA,
    head: str = "keypoint",
    loss: str = "error-gradient",
    device: str = "auto",
    resume: bool = True,
    seed: int = 0,
    work: str | Path | None = None,
    ray: str | None = None,
    start: str | Path | None = None,
    without: tuple[str, ...] = (),
    quiet: bool = False,
) -> Model | StateModel:
    """Trains a model for `mesh` and writes it, and its card, to `out` (default: models/NAME of the mesh).

    A system on a known base (a hand, a rod, an arm from the file `body`) needs no mesh: it has its own, and the shape
    of that is what the model reads (`train_articulated`); the default of `out` is then models/SYSTEM. samples: images
    to render. epochs: passes of the fine network over them (default: 12; 100, RISP's own, for the state head). gamma:
    weight of the rendering gradient (0: eq. 8). head: keypoint, or state for RISP's own network and training
    (state@w32: half as wide), which serves to compare. loss: see `risp/penalties`. device: auto, cpu or cuda. work:
    folder for renders and checkpoints (default: runs/train-risp/NAME of out); with `resume` it is continued, else
    emptied. ray: address of a cluster that renders the images. start: a model folder whose features the networks begin
    with, which saves half of the epochs on a body of the same kind. without: what is not randomised in training (names
    of `Randomisation`), for ablations: validation's developing and calibration stay as they are. Under torchrun several
    processes train together (`risp/training/distributed`). Raises UsageError for options out of range or a device that
    is not there, InputError for a bad mesh, MissingDependencyError without LLVM.
    """
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.engine.systems import from_file, get
    from vid2phys.io.files import disk_errors, exclusive_lock
    from vid2phys.io.mesh import load_mesh
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.state_model import StateModel
    from vid2phys.risp.training import distributed

    begin = Path(start) if start is not None else None
    varied = Randomisation.without(without)
    epochs = epochs if epochs is not None else STATE_EPOCHS if head.startswith("state") else EPOCHS
    given = "".join(
        f"--{name} {Path(path).name} " for name, path in (("mesh", mesh), ("body", body)) if path is not None
    )
    given += f"--mesh-units {mesh_units} " if mesh_units != "m" else ""
    given += f"--mesh-move {mesh_move} " if mesh_move is not None else ""
    command = f"vid2phys train-risp {given}--system {system} --samples {samples} --epochs {epochs}"
    command += f" --gamma {gamma:g}" + (f" --start {start}" if start is not None else "") + f" --seed {seed}"
    if (head, loss) != ("keypoint", "error-gradient"):
        command += f" --head {head} --loss {loss}"
    command += f" --without {','.join(without)}" if without else ""
    where = choose_device(device)
    options = TrainingOptions(
        samples, epochs, gamma, where, resume, seed, begin, varied, command, given, head, loss, ray
    )
    _check(options)
    distributed.initialise(where)
    physics = from_file(system, body) if body is not None else get(system)
    name = Path(mesh or body or system).stem
    if out is None:
        out = Path("models") / (name if head == "keypoint" else f"{name}-{head}")
    out = Path(out)
    own = require_mesh(physics, "train-risp", given=mesh is not None)
    shape, notes = listen(lambda: simplified(load_mesh(mesh, mesh_units, move=mesh_move)) if mesh is not None else None)
    work = Path(work) if work is not None else WORK / out.name
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            if distributed.is_main_process():
                held.enter_context(exclusive_lock(work / ".lock", "training"))
                if not resume:
                    _empty(work)
            progress = held.enter_context(show_training(quiet or not distributed.is_main_process()))
            for note in notes:
                progress.note(f"note: {note}")
            if own:
                model = train_articulated(physics, out, work, options, progress)
            else:
                assert shape is not None
                model = train_rigid(shape, physics, out, work, options, progress)
            distributed.shut_down()
        return model if model is not None else (Model if head == "keypoint" else StateModel).load(out)


def _check(options: TrainingOptions) -> None:
    from vid2phys.risp import heads, penalties

    if options.samples < 64:
        raise UsageError(f"--samples {options.samples}", "at least 64", f"the default is {SAMPLES}")
    if options.epochs < 1:
        raise UsageError(f"--epochs {options.epochs}", "at least 1", f"the default is {EPOCHS}")
    name, _ = heads.parse(options.head)
    penalties.get(options.loss)
    if options.start is not None and name != "keypoint":
        raise UsageError(f"--start with --head {options.head}", "--head keypoint", "leave --start out")
    if not 0.0 <= options.gamma < float("inf"):
        raise UsageError(f"--gamma {options.gamma}", "0 (no rendering gradients) or more", f"the default is {GAMMA}")


def _empty(work: Path) -> None:
    """Removes what an earlier run of ours left, and nothing else."""
    for name in (DATA, CALIBRATION):
        if (work / name / "dataset.json").is_file():
            shutil.rmtree(work / name)
    for path in work.glob("*.checkpoint.safetensors"):
        path.unlink()
