"""What all ways of training a model share: options, cores, and the score that is written beside the weights."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.commands.training_effort import COARSE_EPOCHS, REFINED
from vid2phys.errors import UsageError
from vid2phys.risp.appearance.randomisation import Randomisation

if TYPE_CHECKING:
    from vid2phys.commands.training_progress import TrainingProgress
    from vid2phys.engine.system import System
    from vid2phys.risp.networks.state_model import StateModel
    from vid2phys.risp.recipes import TrainingData
    from vid2phys.risp.renders.dataset import RenderSet
    from vid2phys.risp.shape.configuration_encoding import ConfigurationEncoding
    from vid2phys.types import Mesh

CALIBRATION_SAMPLES = 960  # frames in sequences of 16, looks that training never sees
CALIBRATION_SEED = 1_000_003  # beyond the training's
DATA, CALIBRATION = "data", "calibration"  # folders of renders
WORK = Path("runs/train-risp")
_HELD_OUT_SHARE, _HELD_OUT_MOST = 0.1, 384


@dataclass(frozen=True)
class TrainingOptions:
    """What was asked for, resolved. Attributes from `samples` on that stand in `Effort` are described there."""

    samples: int
    epochs: int
    gamma: float
    device: str
    resume: bool
    seed: int
    start: Path | None
    varied: Randomisation
    command: str
    given: str = ""  # the options that name the body's files
    head: str = "keypoint"
    loss: str = "error-gradient"
    ray: str | None = None
    coarse_epochs: int = COARSE_EPOCHS
    refined: int = REFINED


def held_out(renders: int) -> int:
    """How many of the renders are never trained on."""
    return min(_HELD_OUT_MOST, max(8, round(_HELD_OUT_SHARE * renders)))


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


def cores() -> int:
    """Those that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def share_cores(device: str) -> int:
    """Number of processes that develop images; the other cores train."""
    import torch

    from vid2phys.risp.training import distributed

    count = max(1, cores() // distributed.local_processes())
    if device != "cpu":
        return max(1, count - 1)
    workers = max(1, count // 2)
    torch.set_num_threads(max(1, count - workers))
    return workers


def training_renders(
    mesh: Mesh, system: System, folder: Path, progress: TrainingProgress, *, ray: str | None = None, **more: Any
) -> RenderSet:
    """The renders of a training, those that are missing made by the first process. more: arguments of
    `RenderOptions`. ray: see `make_dataset`."""
    from vid2phys.risp.renders.make_dataset import RenderOptions, make_dataset
    from vid2phys.risp.training import distributed

    def make() -> RenderSet:
        def report(done: int, total: int) -> None:
            progress.step("rendering", done, total)

        return make_dataset(mesh, system, folder, RenderOptions(**more), workers=cores(), ray=ray, progress=report)

    return distributed.main_process_first(make)


def held_out_clips(
    mesh: Mesh, system: System, folder: Path, seed: int, progress: TrainingProgress, **more: Any
) -> RenderSet:
    """Short clips of looks that a training with this seed has not seen; those that are there are not made again.

    more: arguments of `RenderOptions`.
    """
    from vid2phys.risp.renders.make_dataset import RenderOptions, make_dataset

    options = RenderOptions(CALIBRATION_SAMPLES, seed + CALIBRATION_SEED, gradient_share=0.0, sequences=True, **more)
    return make_dataset(
        mesh,
        system,
        folder,
        options,
        workers=cores(),
        progress=lambda done, total: progress.step("rendering for calibration", done, total),
    )


def train_state_head(
    system: str,
    data: TrainingData,
    rendering_s: float,
    out: Path,
    work: Path,
    options: TrainingOptions,
    workers: int,
    progress: TrainingProgress,
    *,
    codes: ConfigurationEncoding | None = None,
) -> StateModel | None:
    """RISP's own network by its own recipe, on the same images. codes: what its numbers mean; the head's own unless
    given. None in processes that only help (`together`)."""
    from vid2phys.risp.heads.state import StateHead
    from vid2phys.risp.networks.state_model import StateModel
    from vid2phys.risp.recipes import PenaltyOptions, TrainingRun, head_of, paper_schedule, train_head
    from vid2phys.risp.training import distributed

    head = head_of(data, options.head)
    assert isinstance(head, StateHead)
    run, schedule = TrainingRun(work, options.device, progress, options.resume), paper_schedule(options.epochs, workers)
    trained = train_head(data, head, schedule, run, PenaltyOptions(options.gamma, options.loss), seed=options.seed)
    model = StateModel(
        system, head.codes if codes is None else codes, head.size["width"], trained.network, data.stream.view_size
    )
    seconds = {"rendering": rendering_s, "fine": trained.seconds}
    if not distributed.is_main_process():
        return None
    model.save(out, training_score(options, data, seconds, {"fine": trained.history}))
    return StateModel.load(out)


def training_score(
    options: TrainingOptions,
    data: TrainingData,
    seconds: dict[str, float],
    history: dict[str, list[dict[str, float]]],
    **more: Any,
) -> dict[str, Any]:
    """How a model was trained and how good it is, for score.json.

    seconds: what each stage took. history: figures after each epoch of each network. more: said of the training, too.
    """
    return {
        "command": options.command,
        "seed": options.seed,
        "data": {
            "renders": data.renders,
            "with_gradients": len(data.gradient_indices),
            "held_out": data.held_out,
            "render_size_px": data.stream.view_size,
        },
        "training": {
            "epochs": options.epochs,
            **more,
            "gamma": options.gamma,
            "without": list(options.varied.off),
            "started_from": options.start and options.start.name,
        },
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "machine": _machine(options.device),
        "validation": {name: epochs[-1] for name, epochs in history.items()},
        "history": history,
    }


def _machine(device: str) -> str:
    """What trained it."""
    import torch

    gpu = torch.cuda.get_device_name(0) if device == "cuda" else None
    return f"{cores()} cores, {platform.machine()}, {gpu or 'no GPU'}, torch {torch.__version__}"
