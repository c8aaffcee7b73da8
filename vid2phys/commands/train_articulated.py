"""`train-risp` for bodies on a known base (`risp.networks.articulated_bodies`).

It renders configurations, trains the network, calibrates its error model and writes its scores.

No locator is trained: base and camera say where to look.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.commands.model_card import make_card
from vid2phys.commands.training import (
    CALIBRATION,
    DATA,
    TrainingOptions,
    held_out,
    held_out_clips,
    share_cores,
    train_state_head,
    training_renders,
    training_score,
)
from vid2phys.risp.appearance.randomisation import ALL, Randomisation

if TYPE_CHECKING:
    from collections.abc import Callable

    from vid2phys.commands.training_progress import TrainingProgress
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.engine.system import System
    from vid2phys.risp.networks.model import Model, Shape
    from vid2phys.risp.networks.state_model import StateModel
    from vid2phys.risp.recipes import TrainingData
    from vid2phys.risp.renders.dataset import RenderSet
    from vid2phys.types import Array

VIEW_SIZE = 128


def train_articulated(
    system: System, out: Path, work: Path, options: TrainingOptions, progress: TrainingProgress
) -> Model | StateModel | None:
    """Train a model of `system`'s own body in folder `out`; `work` is gone on with. None in processes that only
    help."""
    from vid2phys.risp.heads.keypoint import KeypointHead
    from vid2phys.risp.networks.articulated_bodies import body_for_training
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.network import KeypointNetwork
    from vid2phys.risp.recipes import PenaltyOptions, TrainingRun, head_of, train_head
    from vid2phys.risp.renders.stream import ImageStream
    from vid2phys.risp.shape.configuration_encoding import configuration_encoding
    from vid2phys.risp.training import distributed
    from vid2phys.risp.training.features import Features
    from vid2phys.risp.training.train import Schedule
    from vid2phys.tracking.uncertainty.articulated_validation import ConfigurationValidation
    from vid2phys.tracking.uncertainty.single_images import EvaluatedModel

    began = time.monotonic()
    progress.note(f"preparing the configurations of {system.name}")
    body = distributed.main_process_first(lambda: body_for_training(system, work, options.seed))
    data, configurations = training_data(
        *(body, work / DATA),
        samples=options.samples,
        seed=options.seed,
        progress=progress,
        varied=options.varied,
        ray=options.ray,
    )
    rendered = time.monotonic()
    workers = share_cores(options.device)
    if options.head.startswith("state"):
        return train_state_head(
            *(system.name, data, rendered - began, out, work, options, workers, progress),
            codes=configuration_encoding(body),
        )
    begin = Features.load(options.start) if options.start else None
    run = TrainingRun(work, options.device, progress, options.resume, begin)
    validation = ConfigurationValidation.prepare(
        ImageStream(data.stream, jitter=False), data.validation, body, configurations
    )
    head = head_of(data, options.head)
    assert isinstance(head, KeypointHead)
    fine = train_head(
        data,
        head,
        Schedule(options.epochs, workers=workers),
        run,
        PenaltyOptions(options.gamma, options.loss),
        seed=options.seed,
        validation=validation,
    )
    if not distributed.is_main_process():
        return None
    assert isinstance(fine.network, KeypointNetwork)
    model = Model(model_shape(body), fine.network, None, data.stream.view_size, {"fine": head.size})
    seconds = {"rendering": rendered - began, "fine": fine.seconds}
    score = training_score(options, data, seconds, {"fine": fine.history})
    _save(model, body, out, score)  # usable already, should calibration be interrupted
    began = time.monotonic()
    clips = calibration_configurations(body, work / CALIBRATION, options.seed, progress)
    model = _calibrated(Model.load(out), body, clips, options, progress)
    score["seconds"]["calibration"] = round(time.monotonic() - began, 1)
    assert model.calibration is not None
    score["validation"]["calibration"] = model.calibration["normalised"]
    _save(model, body, out, score)
    model = Model.load(out)
    make_card(out, EvaluatedModel(model, body.mesh, body), clips, options.seed, progress, given=options.given)
    return model


def training_data(
    body: ArticulatedBody,
    folder: Path,
    *,
    samples: int,
    seed: int,
    progress: TrainingProgress,
    varied: Randomisation = ALL,
    appearances: int = 0,
    ray: str | None = None,
) -> tuple[TrainingData, Array]:
    """Render what is missing and return what the images show; also the configurations [N, D] of all renders.

    varied, appearances: see `RenderOptions`.
    """
    import numpy as np

    from vid2phys.risp.networks.validate import Body
    from vid2phys.risp.recipes import TrainingData
    from vid2phys.risp.renders.articulated_viewpoints import VIEW_PX
    from vid2phys.risp.renders.stream import StreamSettings
    from vid2phys.risp.shape.configuration_encoding import configuration_encoding, configuration_vectors

    renders = training_renders(
        *(body.mesh, body.system, folder, progress),
        samples=samples,
        seed=seed,
        size=VIEW_SIZE,
        articulated=body,
        varied=varied,
        appearances=appearances,
        ray=ray,
    )
    configurations = renders.configurations()
    points = body.points(configurations)
    images = StreamSettings(
        folder,
        points,
        body.reach_m,
        view_size=VIEW_SIZE,
        seed=seed,
        states=configuration_encoding(body).encode(configuration_vectors(body, configurations)),
        view_px=VIEW_PX,
        varied=varied,
    )
    known = Body(body.points_body, np.arange(points.shape[1])[None], np.eye(3)[None], None)
    data = TrainingData(images, known, len(renders), renders.gradient_indices, held_out(len(renders)))
    return data, configurations


def model_shape(body: ArticulatedBody) -> Shape:
    """What a model of the body is for."""
    import numpy as np

    from vid2phys.io.mesh import geometry_signature
    from vid2phys.risp.networks.articulated_bodies import configuration_kind
    from vid2phys.risp.networks.model import Shape

    points = body.points_body
    return Shape(
        body.system.name,
        geometry_signature(body.mesh),
        points,
        np.eye(3)[None],
        np.arange(len(points))[None],
        None,
        body.system.name,
        kind=configuration_kind(body.system),
        cameras=body.cameras,
    )


def _save(model: Model, body: ArticulatedBody, out: Path, score: dict[str, Any]) -> None:
    from vid2phys.engine.movable.modes import ModalBody
    from vid2phys.risp.networks.articulated_bodies import MODES_FILE

    out.mkdir(parents=True, exist_ok=True)
    if isinstance(body, ModalBody):
        body.motions.save(out / MODES_FILE)
    model.save(out, score)


def calibration_configurations(body: ArticulatedBody, folder: Path, seed: int, progress: TrainingProgress) -> RenderSet:
    """`held_out_clips` of a body on a known base."""
    return held_out_clips(body.mesh, body.system, folder, seed, progress, articulated=body, size=VIEW_SIZE)


def _calibrated(
    model: Model, body: ArticulatedBody, renders: RenderSet, options: TrainingOptions, progress: TrainingProgress
) -> Model:
    """The model with its error model."""
    from vid2phys.tracking.uncertainty.articulated import calibrate_configurations, calibrate_edges

    def share_of(what: str) -> Callable[[float], None]:
        return lambda share: progress.step(what, round(100 * share), 100)

    calibration = calibrate_configurations(model, body, renders, options.seed, share_of("calibration"))
    calibration = calibrate_edges(calibration, model, body, renders, options.seed, share_of("fitting edges"))
    progress.note("calibration: " + ", ".join(f"{k} {v:.3g}" for k, v in calibration.normalised.items()))
    return model.with_calibration(calibration.to_dict())
