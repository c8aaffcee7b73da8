"""`train-risp`: from a mesh to a model folder. Renders, trains the fine and the coarse network, calibrates, scores.

Everything that takes long resumes: finished shards of renders and finished epochs are kept in the work folder.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.commands.configs import GAMMA, TrainConfig
from vid2phys.commands.options import taking
from vid2phys.commands.system_choice import AUTO, require_mesh, system_of_body
from vid2phys.commands.train_articulated import train_articulated
from vid2phys.commands.train_rigid import train_rigid
from vid2phys.commands.training import CALIBRATION, DATA, WORK, TrainingOptions, choose_device
from vid2phys.commands.training_effort import EPOCHS, SAMPLES, Effort, effort_of
from vid2phys.commands.training_progress import show_training
from vid2phys.errors import UsageError
from vid2phys.risp.appearance.randomisation import Randomisation

if TYPE_CHECKING:
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.state_model import StateModel

STATE_EPOCHS = 100


@taking(TrainConfig, "mesh", "system", "out")
def train_risp(config: TrainConfig) -> Model | StateModel:
    """Train a model for `mesh` and write it, and its card, to `out` (default: models/NAME of the mesh).

    The options are those of `TrainConfig`: a config, or its fields as arguments. A primitive `body` stands in place of
    a mesh. A system on a known base (a hand, a rod, an arm from the file `body`) needs no mesh: it has its own, and the
    network detects the shape of that (`train_articulated`); the default of `out` is then models/SYSTEM. With `resume`
    the folder `work` is continued, else emptied. `start` is a model folder whose features the networks begin with, a
    packaged one unless given (`training_start`), or "none". `minutes` chooses samples and epochs (`training_effort`).
    `without` names what is not randomised in training (names of
    `Randomisation`), for ablations: validation's developing and calibration stay as they are. Under torchrun several
    processes train together (`risp/training/distributed`).

    Raises:
        UsageError: for options out of range or a device that is not there.
        InputError: for a bad mesh.
        MissingDependencyError: without LLVM.
    """
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.engine.systems import from_file, get
    from vid2phys.io.files import disk_errors, exclusive_lock
    from vid2phys.io.primitives import load_body
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.state_model import StateModel
    from vid2phys.risp.training import distributed

    config = replace(config, system=system_of_body(config.body)) if config.system == AUTO else config
    robot = config.robot
    physics = from_file(config.system, robot) if robot is not None else get(config.system)
    own = require_mesh(physics, "train-risp", given=config.shape is not None)
    options = _resolved(config, own)
    distributed.initialise(options.device)
    out = config.out or default_folder(config)
    given = config.mesh, config.primitive, config.mesh_units, config.mesh_move
    shape, notes = listen(lambda: None if own else simplified(load_body(*given)))
    work = config.work or WORK / out.name
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            if distributed.is_main_process():
                stack.enter_context(exclusive_lock(work / ".lock", "training"))
                if not config.resume:
                    _empty(work)
            progress = stack.enter_context(show_training(config.quiet or not distributed.is_main_process()))
            for note in notes:
                progress.note(f"note: {note}")
            if own:
                model = train_articulated(physics, out, work, options, progress)
            else:
                assert shape is not None
                model = train_rigid(shape, physics, out, work, options, progress)
            distributed.shut_down()
        return model if model is not None else (Model if config.head == "keypoint" else StateModel).load(out)


def default_folder(config: TrainConfig) -> Path:
    """Return the folder of the model where none was asked for."""
    from vid2phys.io.primitives import parse_primitive

    if config.mesh is None and config.primitive is not None:
        name = parse_primitive(config.primitive).name
    else:
        name = Path(config.mesh or config.robot or config.system).stem
    return Path("models") / (name if config.head == "keypoint" else f"{name}-{config.head}")


def _resolved(config: TrainConfig, own: bool) -> TrainingOptions:
    """Return the options with what follows from them, checked. own: whether the system has a body of its own."""
    from vid2phys.commands.training_start import start_of

    effort, given = _effort(config, own), _given_files(config)
    options = TrainingOptions(
        *(effort.samples, effort.epochs, config.gamma, choose_device(config.device), config.resume, config.seed),
        start_of(config.start, None if own or config.head != "keypoint" else config.system),
        *(Randomisation.without(config.without), _command(config, effort, given), given, config.head, config.loss),
        *(config.ray, effort.coarse_epochs, effort.refined),
    )
    _check(options)
    return options


def _given_files(config: TrainConfig) -> str:
    """Return the options that name the body's files."""
    files = (("mesh", config.mesh), ("body", config.body))
    given = "".join(f"--{name} {Path(path).name} " for name, path in files if path is not None)
    given += f"--mesh-units {config.mesh_units} " if config.mesh_units != "m" else ""
    return given + (f"--mesh-move {config.mesh_move} " if config.mesh_move is not None else "")


def _command(config: TrainConfig, effort: Effort, given: str) -> str:
    """Return the command that trains this model again. given: options that name the body's files."""
    length = f"--samples {effort.samples} --epochs {effort.epochs}"
    length = length if config.minutes is None else f"--minutes {config.minutes:g}"
    command = f"vid2phys train-risp {given}--system {config.system} {length} --gamma {config.gamma:g}"
    command += f" --start {config.start}" if config.start is not None else ""
    command += f" --seed {config.seed}"
    if (config.head, config.loss) != ("keypoint", "error-gradient"):
        command += f" --head {config.head} --loss {config.loss}"
    return command + (f" --without {','.join(config.without)}" if config.without else "")


def _effort(config: TrainConfig, own: bool) -> Effort:
    """Return the number of renders and passes. Raises UsageError for options that contradict each other."""
    if config.minutes is None:
        epochs = STATE_EPOCHS if config.head.startswith("state") else EPOCHS
        given = SAMPLES if config.samples is None else config.samples
        return Effort(given, epochs if config.epochs is None else config.epochs)
    if config.samples is not None or config.epochs is not None:
        raise UsageError("--minutes beside --samples or --epochs", "one of them", "leave --minutes out")
    if own or config.head != "keypoint":
        got = "--minutes for a body that is not rigid, or another head"
        raise UsageError(got, "a rigid body and --head keypoint", "give --samples and --epochs")
    return effort_of(config.minutes)


def _check(options: TrainingOptions) -> None:
    from vid2phys.risp import heads, penalties
    from vid2phys.risp.training.features import Features

    if options.samples < 64:
        raise UsageError(f"--samples {options.samples}", "at least 64", f"the default is {SAMPLES}")
    if options.epochs < 1:
        raise UsageError(f"--epochs {options.epochs}", "at least 1", f"the default is {EPOCHS}")
    name, _ = heads.parse(options.head)
    penalties.get(options.loss)
    if options.start is not None and name != "keypoint":
        raise UsageError(f"--start with --head {options.head}", "--head keypoint", "leave --start out")
    if options.start is not None:
        Features.load(options.start)  # before anything is rendered
    if not 0.0 <= options.gamma < float("inf"):
        raise UsageError(f"--gamma {options.gamma}", "0 (no rendering gradients) or more", f"the default is {GAMMA}")


def _empty(work: Path) -> None:
    """Remove what an earlier run of ours left, and nothing else."""
    for name in (DATA, CALIBRATION):
        if (work / name / "dataset.json").is_file():
            shutil.rmtree(work / name)
    for path in work.glob("*.checkpoint.safetensors"):
        path.unlink()
