"""`train-risp`: from a mesh to a model folder. Renders, trains the fine and the coarse network, calibrates, scores.

Everything that takes long resumes: finished shards of renders and finished epochs are kept in the work folder.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.errors import UsageError
from vid2phys.risp.randomisation import ALL, Randomisation
from vid2phys.tasks.training_progress import TrainingProgress, show_training

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.risp.model import Model
    from vid2phys.risp.recipes import TrainingData
    from vid2phys.risp.state_model import StateModel
    from vid2phys.risp.symmetry import Symmetry
    from vid2phys.types import Mesh

SAMPLES, EPOCHS, COARSE_EPOCHS, GAMMA = 12_000, 12, 3, 1.0
STATE_EPOCHS = 100
_HELD_OUT_SHARE, _HELD_OUT_MOST = 0.1, 384
CALIBRATION_SAMPLES = 960  # frames in sequences of 16, looks that training never sees
_CALIBRATION_SEED = 1_000_003
_DATA, _CALIBRATION, _WORK = "data", "calibration", Path("runs/train-risp")


@dataclass(frozen=True)
class _Options:
    """What was asked for, resolved."""

    samples: int
    epochs: int
    gamma: float
    device: str
    resume: bool
    seed: int
    start: Path | None
    varied: Randomisation
    command: str
    head: str = "keypoint"
    loss: str = "error-gradient"


def train_risp(
    mesh: str | Path | None = None,
    system: str = "quadrotor",
    out: str | Path | None = None,
    *,
    body: str | Path | None = None,
    mesh_units: str = "m",
    samples: int = SAMPLES,
    epochs: int | None = None,
    gamma: float = GAMMA,
    head: str = "keypoint",
    loss: str = "error-gradient",
    device: str = "auto",
    resume: bool = True,
    seed: int = 0,
    work: str | Path | None = None,
    start: str | Path | None = None,
    without: tuple[str, ...] = (),
    quiet: bool = False,
) -> Model | StateModel:
    """Trains a model for `mesh` and writes it to `out` (default: models/NAME of the mesh).

    A system on a known base (a hand, a rod, an arm from the file `body`) needs no mesh: it has its own, and the shape
    of that is what the model reads (`train_posed`); the default of `out` is then models/SYSTEM. samples: pictures to
    render. epochs: passes of the fine network over them (default: 12; 100, RISP's own, for the state head). gamma:
    weight of the rendering gradient (0: eq. 8). head: keypoint, or state for RISP's own network and training
    (state@w32: half as wide), which serves to compare. loss: see `risp/penalties`. device: auto, cpu or cuda. work:
    folder for renders and checkpoints (default: runs/train-risp/NAME of out); with `resume` it is continued, else
    emptied. start: a model folder whose features the networks begin with, which saves half of the epochs on a body of
    the same kind. without: what is not randomised in training (names of `Randomisation`), for ablations: validation's
    developing and calibration stay as they are. Raises UsageError for options out of range or a device that is not
    there, InputError for a bad mesh, MissingDependencyError without LLVM.
    """
    from vid2phys.engine.systems import from_file, get
    from vid2phys.io.files import disk_errors
    from vid2phys.io.mesh import load_mesh
    from vid2phys.io.simplify import simplified
    from vid2phys.tasks.known_values import listen

    begin = Path(start) if start is not None else None
    varied = Randomisation.without(without)
    epochs = epochs if epochs is not None else STATE_EPOCHS if head.startswith("state") else EPOCHS
    given = "".join(
        f"--{name} {Path(path).name} " for name, path in (("mesh", mesh), ("body", body)) if path is not None
    )
    command = f"vid2phys train-risp {given}--system {system} --samples {samples} --epochs {epochs}"
    command += f" --gamma {gamma:g} --seed {seed}"
    if (head, loss) != ("keypoint", "error-gradient"):
        command += f" --head {head} --loss {loss}"
    command += f" --without {','.join(without)}" if without else ""
    where = choose_device(device)
    options = _Options(samples, epochs, gamma, where, resume, seed, begin, varied, command, head, loss)
    _check(options)
    physics = from_file(system, body) if body is not None else get(system)
    name = Path(mesh or body or system).stem
    if out is None:
        out = Path("models") / (name if head == "keypoint" else f"{name}-{head}")
    out = Path(out)
    posed = _is_posed(physics, mesh)
    shape, notes = listen(lambda: simplified(load_mesh(mesh, mesh_units)) if mesh is not None else None)
    work = Path(work) if work is not None else _WORK / out.name
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        if not resume:
            _empty(work)
        with show_training(quiet) as progress:
            for note in notes:
                progress.note(f"note: {note}")
            if posed:
                return _train_posed(physics, out, work, options, progress)
            assert shape is not None
            return _train(shape, physics, out, work, options, progress)


def _is_posed(system: System, mesh: str | Path | None) -> bool:
    """Whether it is the system's own body on a known base. Raises UsageError for a mesh too many or missing."""
    from vid2phys.risp.posed_bodies import posed_kind

    if posed_kind(system) == "rigid":
        if mesh is None:
            raise UsageError(f"no --mesh for '{system.name}'", "a mesh to train for", "give the mesh of the body")
        return False
    if mesh is not None:
        raise UsageError(
            f"--mesh for '{system.name}', which has a mesh of its own",
            "no mesh",
            "leave --mesh out; a robot's file is --body",
        )
    return True


def _train_posed(system: System, out: Path, work: Path, options: _Options, progress: TrainingProgress) -> Model:
    from dataclasses import fields

    from vid2phys.tasks.train_posed import PosedTraining, train_posed

    if options.head != "keypoint":
        raise UsageError(f"--head {options.head} for '{system.name}'", "keypoint", "leave --head out")
    asked = {field.name: getattr(options, field.name) for field in fields(options) if field.name != "head"}
    training = PosedTraining(**asked, cores=_cores(), share_cores=lambda: share_cores(options.device))
    return train_posed(system, out, work, training, _machine(options.device), progress)


def _train(
    body: Mesh, system: System, out: Path, work: Path, options: _Options, progress: TrainingProgress
) -> Model | StateModel:
    from vid2phys.io.mesh import geometry_signature
    from vid2phys.risp.heads.keypoint import KeypointHead
    from vid2phys.risp.model import Model, Shape
    from vid2phys.risp.network import KeypointNetwork, LocatorNetwork
    from vid2phys.risp.recipes import COARSE_SIZE, Sitting, head_of, train_head, train_locator
    from vid2phys.risp.train import Schedule

    start = time.monotonic()
    data = training_data(
        *(body, system, work / _DATA),
        samples=options.samples,
        seed=options.seed,
        progress=progress,
        varied=options.varied,
    )
    rendered = time.monotonic()
    workers = share_cores(options.device)
    if options.head.startswith("state"):
        return _train_state(system, data, rendered - start, out, work, options, workers, progress)
    begin = Model.load(options.start) if options.start else None
    sitting = Sitting(work, options.device, progress, options.resume, begin)
    schedule = Schedule(options.epochs, workers=workers)
    head = head_of(data, options.head)
    assert isinstance(head, KeypointHead)
    fine = train_head(data, head, schedule, sitting, gamma=options.gamma, seed=options.seed, loss=options.loss)
    coarse = train_locator(data, Schedule(COARSE_EPOCHS, workers=workers), sitting, seed=options.seed)
    assert isinstance(fine.network, KeypointNetwork)
    assert isinstance(coarse.network, LocatorNetwork)
    known = data.body
    shape = Shape(
        system.name,
        geometry_signature(body),
        known.points,
        known.rotations,
        known.permutation,
        known.front,
        body.name,
        known.center,
    )
    sizes = {"fine": head.size, "coarse": COARSE_SIZE}
    model = Model(shape, fine.network, coarse.network, data.pictures.view_size, sizes)
    seconds = {"rendering": rendered - start, "fine": fine.seconds, "coarse": coarse.seconds}
    score = _score(options, data, seconds, fine.history, coarse.history)
    model.save(out, score)  # usable already, should calibration be interrupted
    began = time.monotonic()
    model = _calibrated(Model.load(out), body, system, work / _CALIBRATION, options, progress)
    score["seconds"]["calibration"] = round(time.monotonic() - began, 1)
    assert model.calibration is not None
    score["validation"]["calibration"] = model.calibration["normalised"]
    model.save(out, score)
    return Model.load(out)


def _train_state(
    system: System,
    data: TrainingData,
    rendering_s: float,
    out: Path,
    work: Path,
    options: _Options,
    workers: int,
    progress: TrainingProgress,
) -> StateModel:
    """RISP's own network by its own recipe, on the same pictures."""
    from vid2phys.risp.heads.state import StateHead
    from vid2phys.risp.recipes import Sitting, head_of, paper_schedule, train_head
    from vid2phys.risp.state_model import StateModel

    head = head_of(data, options.head)
    assert isinstance(head, StateHead)
    sitting, schedule = Sitting(work, options.device, progress, options.resume), paper_schedule(options.epochs, workers)
    trained = train_head(data, head, schedule, sitting, gamma=options.gamma, seed=options.seed, loss=options.loss)
    model = StateModel(system.name, head.codes, head.size["width"], trained.network)
    seconds = {"rendering": rendering_s, "fine": trained.seconds}
    model.save(out, _score(options, data, seconds, trained.history, []))
    return StateModel.load(out)


def _calibrated(
    model: Model, body: Mesh, system: System, folder: Path, options: _Options, progress: TrainingProgress
) -> Model:
    """The model with its error model, from short clips of looks that it has not seen."""
    from vid2phys.risp.calibrate import calibrate, calibrate_aligning
    from vid2phys.risp.dataset import make_dataset

    renders = make_dataset(
        body,
        system,
        folder,
        samples=CALIBRATION_SAMPLES,
        seed=options.seed + _CALIBRATION_SEED,
        gradient_share=0.0,
        workers=_cores(),
        sequences=True,
        progress=lambda done, total: progress.step("rendering for calibration", done, total),
    )
    calibration = calibrate(
        model, renders, options.seed, lambda share: progress.step("calibration", round(100 * share), 100)
    )
    calibration = calibrate_aligning(
        calibration, body, renders, options.seed, lambda share: progress.step("aligning", round(100 * share), 100)
    )
    progress.note("calibration: " + ", ".join(f"{k} {v:.3g}" for k, v in calibration.normalised.items()))
    return model.with_calibration(calibration.to_dict())


def training_data(
    body: Mesh,
    system: System,
    folder: Path,
    *,
    samples: int,
    seed: int,
    progress: TrainingProgress,
    varied: Randomisation = ALL,
    looks: int = 0,
) -> TrainingData:
    """Renders what is missing and says what the pictures show. varied, looks: see `make_dataset`."""
    from vid2phys.risp.dataset import make_dataset
    from vid2phys.risp.recipes import TrainingData, body_of
    from vid2phys.risp.stream import StreamSettings
    from vid2phys.risp.symmetry import find_symmetry

    renders = make_dataset(
        body,
        system,
        folder,
        samples=samples,
        seed=seed,
        workers=_cores(),
        varied=varied,
        looks=looks,
        progress=lambda done, total: progress.step("rendering", done, total),
    )
    symmetry = find_symmetry(body)
    known = body_of(body, symmetry)
    progress.note(_symmetry_note(symmetry, len(known.points)))
    pictures = StreamSettings(folder, known.points, renders.settings.radius_m, seed=seed, varied=varied)
    held_out = min(_HELD_OUT_MOST, max(8, round(_HELD_OUT_SHARE * len(renders))))
    return TrainingData(pictures, known, len(renders), renders.gradient_indices, held_out)


def _symmetry_note(symmetry: Symmetry, points: int) -> str:
    if symmetry.order == 1:
        return f"no symmetry; {points} keypoints"
    kind = "exact" if symmetry.exact else f"within {symmetry.exactness.max():.1%} of its radius"
    return f"the body looks the same in {symmetry.order} orientations ({kind}); {points} keypoints"


def _check(options: _Options) -> None:
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


def choose_device(name: str) -> str:
    """The name that torch has for auto, cpu or cuda. Raises UsageError for others, and for a GPU that is not there."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {name}", "auto, cpu or cuda", "leave it out to use a GPU where there is one")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "--device cuda, but PyTorch finds no GPU", "a CUDA device", "use --device cpu; see `vid2phys doctor`"
        )
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def share_cores(device: str) -> int:
    """Number of processes that develop pictures; the other cores train."""
    import torch

    cores = _cores()
    if device != "cpu":
        return max(1, cores - 1)
    workers = max(1, cores // 2)
    torch.set_num_threads(max(1, cores - workers))
    return workers


def _empty(work: Path) -> None:
    """Removes what an earlier run of ours left, and nothing else."""
    for name in (_DATA, _CALIBRATION):
        if (work / name / "dataset.json").is_file():
            shutil.rmtree(work / name)
    for path in work.glob("*.checkpoint.safetensors"):
        path.unlink()


def _score(
    options: _Options,
    data: TrainingData,
    seconds: dict[str, float],
    fine: list[dict[str, float]],
    coarse: list[dict[str, float]],
) -> dict[str, Any]:
    """How the model was trained and how good it is, for score.json."""
    return {
        "command": options.command,
        "seed": options.seed,
        "data": {
            "renders": data.renders,
            "with_gradients": len(data.gradient_indices),
            "held_out": data.held_out,
            "render_size_px": data.pictures.view_size,
        },
        "training": {
            "epochs": options.epochs,
            "coarse_epochs": COARSE_EPOCHS,
            "gamma": options.gamma,
            "without": list(options.varied.off),
            "started_from": options.start and options.start.name,
        },
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "machine": _machine(options.device),
        "validation": {"fine": fine[-1]} | ({"coarse": coarse[-1]} if coarse else {}),
        "history": {"fine": fine, "coarse": coarse},
    }


def _machine(device: str) -> str:
    """What trained it."""
    import torch

    gpu = torch.cuda.get_device_name(0) if device == "cuda" else None
    return f"{_cores()} cores, {platform.machine()}, {gpu or 'no GPU'}, torch {torch.__version__}"
