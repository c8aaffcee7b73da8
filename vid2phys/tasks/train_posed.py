"""`train-risp` for bodies on a known base (`risp.posed`): renders postures, trains the network, calibrates, scores.

No locator is trained: base and camera say where to look.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.errors import UsageError
from vid2phys.tasks.training import (
    CALIBRATION,
    CALIBRATION_SAMPLES,
    CALIBRATION_SEED,
    DATA,
    TrainingOptions,
    cores,
    held_out,
    share_cores,
    training_score,
)

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.posed.body import PosedBody
    from vid2phys.risp.renders.dataset import RenderSet
    from vid2phys.risp.training.recipes import TrainingData
    from vid2phys.tasks.training_progress import TrainingProgress

VIEW_SIZE = 128


def train_posed(system: System, out: Path, work: Path, options: TrainingOptions, progress: TrainingProgress) -> Model:
    """Trains a model of `system`'s own body in folder `out`; `work` is gone on with. Raises UsageError for a head."""
    from vid2phys.risp.calibration.judge import Subject
    from vid2phys.risp.heads.keypoint import KeypointHead
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.network import KeypointNetwork
    from vid2phys.risp.posed.bodies import body_for_training
    from vid2phys.risp.posed.validate import PostureValidation
    from vid2phys.risp.renders.stream import PictureStream
    from vid2phys.risp.training.recipes import Sitting, head_of, train_head
    from vid2phys.risp.training.train import Schedule
    from vid2phys.tasks.card import make_card

    if options.head != "keypoint":
        raise UsageError(f"--head {options.head} for '{system.name}'", "keypoint", "leave --head out")
    began = time.monotonic()
    progress.note(f"preparing the postures of {system.name}")
    body = body_for_training(system, work, options.seed)
    data, renders = _data(body, work / DATA, options, progress)
    rendered = time.monotonic()
    workers = share_cores(options.device)
    begin = Model.load(options.start) if options.start else None
    sitting = Sitting(work, options.device, progress, options.resume, begin)
    validation = PostureValidation.prepare(
        PictureStream(data.pictures, jitter=False), data.validation, body, renders.postures()
    )
    head = head_of(data, "keypoint")
    assert isinstance(head, KeypointHead)
    fine = train_head(
        data,
        head,
        Schedule(options.epochs, workers=workers),
        sitting,
        gamma=options.gamma,
        seed=options.seed,
        loss=options.loss,
        validation=validation,
    )
    assert isinstance(fine.network, KeypointNetwork)
    model = Model(_shape(body), fine.network, None, data.pictures.view_size, {"fine": head.size})
    seconds = {"rendering": rendered - began, "fine": fine.seconds}
    score = training_score(options, data, seconds, {"fine": fine.history})
    _save(model, body, out, score)  # usable already, should calibration be interrupted
    began = time.monotonic()
    unseen = calibration_postures(body, work / CALIBRATION, options.seed, progress)
    model = _calibrated(Model.load(out), body, unseen, options, progress)
    score["seconds"]["calibration"] = round(time.monotonic() - began, 1)
    assert model.calibration is not None
    score["validation"]["calibration"] = model.calibration["normalised"]
    _save(model, body, out, score)
    model = Model.load(out)
    make_card(out, Subject(model, body.mesh, body), unseen, options.seed, progress, given=options.given)
    return model


def _data(
    body: PosedBody, folder: Path, options: TrainingOptions, progress: TrainingProgress
) -> tuple[TrainingData, RenderSet]:
    """Renders what is missing and says what the pictures show."""
    import numpy as np

    from vid2phys.risp.posed.views import VIEW_PX
    from vid2phys.risp.renders.dataset import make_dataset
    from vid2phys.risp.renders.stream import StreamSettings
    from vid2phys.risp.training.recipes import TrainingData
    from vid2phys.risp.training.validate import Body

    renders = make_dataset(
        body.mesh,
        body.system,
        folder,
        samples=options.samples,
        seed=options.seed,
        size=VIEW_SIZE,
        workers=cores(),
        posed=body,
        varied=options.varied,
        progress=lambda done, total: progress.step("rendering", done, total),
    )
    points = body.points(renders.postures())
    pictures = StreamSettings(
        folder,
        points,
        body.reach_m,
        view_size=VIEW_SIZE,
        seed=options.seed,
        view_px=VIEW_PX,
        varied=options.varied,
    )
    known = Body(body.points_body, np.arange(points.shape[1])[None], np.eye(3)[None], None)
    return TrainingData(pictures, known, len(renders), renders.gradient_indices, held_out(len(renders))), renders


def _shape(body: PosedBody) -> Any:
    import numpy as np

    from vid2phys.io.mesh import geometry_signature
    from vid2phys.risp.networks.model import Shape
    from vid2phys.risp.posed.bodies import posed_kind

    points = body.points_body
    return Shape(
        body.system.name,
        geometry_signature(body.mesh),
        points,
        np.eye(3)[None],
        np.arange(len(points))[None],
        None,
        body.system.name,
        kind=posed_kind(body.system),
        cameras=body.cameras,
    )


def _save(model: Model, body: PosedBody, out: Path, score: dict[str, Any]) -> None:
    from vid2phys.risp.posed.bodies import MODES_FILE
    from vid2phys.risp.posed.modes import PosedModes

    out.mkdir(parents=True, exist_ok=True)
    if isinstance(body, PosedModes):
        body.motions.save(out / MODES_FILE)
    model.save(out, score)


def calibration_postures(body: PosedBody, folder: Path, seed: int, progress: TrainingProgress) -> RenderSet:
    """Short clips of looks that a training with this seed has not seen; those that are there are not made again."""
    from vid2phys.risp.renders.dataset import make_dataset

    return make_dataset(
        body.mesh,
        body.system,
        folder,
        samples=CALIBRATION_SAMPLES,
        seed=seed + CALIBRATION_SEED,
        gradient_share=0.0,
        size=VIEW_SIZE,
        workers=cores(),
        sequences=True,
        posed=body,
        progress=lambda done, total: progress.step("rendering for calibration", done, total),
    )


def _calibrated(
    model: Model, body: PosedBody, renders: RenderSet, options: TrainingOptions, progress: TrainingProgress
) -> Model:
    """The model with its error model."""
    from vid2phys.risp.posed.calibrate import calibrate_postures

    calibration = calibrate_postures(
        model, body, renders, options.seed, lambda share: progress.step("calibration", round(100 * share), 100)
    )
    progress.note("calibration: " + ", ".join(f"{k} {v:.3g}" for k, v in calibration.normalised.items()))
    return model.with_calibration(calibration.to_dict())
