"""`train-risp` for rigid bodies: renders a mesh, trains the fine and the coarse network, calibrates, scores."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from vid2phys.commands.training_benefit import doubt_of, expected_benefit
from vid2phys.risp.appearance.randomisation import ALL, Randomisation

if TYPE_CHECKING:
    from vid2phys.commands.training_progress import TrainingProgress
    from vid2phys.engine.system import System
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.state_model import StateModel
    from vid2phys.risp.recipes import TrainingData
    from vid2phys.risp.renders.dataset import RenderSet
    from vid2phys.risp.shape.symmetry import Symmetry
    from vid2phys.types import Mesh


def train_rigid(
    body: Mesh, system: System, out: Path, work: Path, options: TrainingOptions, progress: TrainingProgress
) -> Model | StateModel | None:
    """Train a model of the mesh `body` in folder `out`; `work` is gone on with. None in processes that only help."""
    from vid2phys.risp.heads.keypoint import KeypointHead
    from vid2phys.risp.networks.mesh_shape import shape_of
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.network import KeypointNetwork, LocatorNetwork
    from vid2phys.risp.recipes import COARSE_SIZE, PenaltyOptions, TrainingRun, head_of, train_head, train_locator
    from vid2phys.risp.training import distributed
    from vid2phys.risp.training.features import Features
    from vid2phys.risp.training.train import Schedule
    from vid2phys.tracking.uncertainty.single_images import EvaluatedModel

    start = time.monotonic()
    progress.note(expected_benefit(body))
    data = training_data(
        *(body, system, work / DATA),
        samples=options.samples,
        seed=options.seed,
        progress=progress,
        varied=options.varied,
        ray=options.ray,
    )
    rendered = time.monotonic()
    workers = share_cores(options.device)
    if options.head.startswith("state"):
        return train_state_head(system.name, data, rendered - start, out, work, options, workers, progress)
    begin = Features.load(options.start) if options.start else None
    run = TrainingRun(work, options.device, progress, options.resume, begin)
    schedule = Schedule(options.epochs, workers=workers)
    head = head_of(data, options.head)
    assert isinstance(head, KeypointHead)
    fine = train_head(data, head, schedule, run, PenaltyOptions(options.gamma, options.loss), seed=options.seed)
    coarse = train_locator(data, Schedule(options.coarse_epochs, workers=workers), run, seed=options.seed)
    if not distributed.is_main_process():
        return None
    assert isinstance(fine.network, KeypointNetwork)
    assert isinstance(coarse.network, LocatorNetwork)
    shape = shape_of(body, system.name, data.body)
    sizes = {"fine": head.size, "coarse": COARSE_SIZE}
    model = Model(shape, fine.network, coarse.network, data.stream.view_size, sizes)
    seconds = {"rendering": rendered - start, "fine": fine.seconds, "coarse": coarse.seconds}
    history = {"fine": fine.history, "coarse": coarse.history}
    score = training_score(options, data, seconds, history, coarse_epochs=options.coarse_epochs)
    model.save(out, score)  # usable already, should calibration be interrupted
    began = time.monotonic()
    renders = held_out_clips(body, system, work / CALIBRATION, options.seed, progress)
    model = _calibrated(Model.load(out), body, renders, options, progress)
    score["seconds"]["calibration"] = round(time.monotonic() - began, 1)
    assert model.calibration is not None
    score["validation"]["calibration"] = model.calibration["normalised"]
    model.save(out, score)
    model = Model.load(out)
    make_card(out, EvaluatedModel(model, body), renders, options.seed, progress, given=options.given)
    doubt = doubt_of(fine.history[-1])
    if doubt is not None:
        progress.note(f"note: {doubt}")
    return model


def _calibrated(
    model: Model, body: Mesh, renders: RenderSet, options: TrainingOptions, progress: TrainingProgress
) -> Model:
    """The model with its error model."""
    from vid2phys.tracking.uncertainty.calibrate import calibrate, calibrate_aligning, calibrate_contour
    from vid2phys.tracking.uncertainty.config import DEFAULTS

    config = replace(DEFAULTS, max_refined_appearances=options.refined)
    calibration = calibrate(
        model, renders, options.seed, lambda share: progress.step("calibration", round(100 * share), 100)
    )
    calibration = calibrate_aligning(
        *(calibration, body, renders, options.seed),
        lambda share: progress.step("aligning", round(100 * share), 100),
        config,
    )
    calibration = calibrate_contour(
        *(calibration, body, model, renders, options.seed),
        lambda share: progress.step("fitting contours", round(100 * share), 100),
        config,
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
    appearances: int = 0,
    ray: str | None = None,
) -> TrainingData:
    """Render what is missing and return what the images show. varied, appearances: see `RenderOptions`."""
    from vid2phys.risp.networks.mesh_shape import body_of
    from vid2phys.risp.recipes import TrainingData
    from vid2phys.risp.renders.stream import StreamSettings
    from vid2phys.risp.shape.symmetry import find_symmetry

    renders = training_renders(
        *(body, system, folder, progress), samples=samples, seed=seed, varied=varied, appearances=appearances, ray=ray
    )
    symmetry = find_symmetry(replace(body, texture=None))  # `cues.texture` distinguishes its elements
    known = body_of(body, symmetry)
    progress.note(_symmetry_note(symmetry, len(known.points)))
    images = StreamSettings(folder, known.points, renders.settings.radius_m, seed=seed, varied=varied)
    return TrainingData(images, known, len(renders), renders.gradient_indices, held_out(len(renders)))


def _symmetry_note(symmetry: Symmetry, points: int) -> str:
    if symmetry.order == 1:
        return f"no symmetry; {points} keypoints"
    kind = "exact" if symmetry.exact else f"within {symmetry.exactness.max():.1%} of its radius"
    return f"the body looks the same in {symmetry.order} orientations ({kind}); {points} keypoints"
