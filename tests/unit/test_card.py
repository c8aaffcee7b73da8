"""The model card: what is measured on held-out looks, and what is written of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.risp_synthetic import square_body, write_renders
from vid2phys.commands.card import make_card, read_score
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.io.mesh import geometry_signature
from vid2phys.report import card as report
from vid2phys.report.card import CARD, USUAL, WORST
from vid2phys.risp.appearance.develop import develop
from vid2phys.risp.appearance.randomisation import Randomisation
from vid2phys.risp.networks.model import KeypointPrediction, Model, Shape
from vid2phys.risp.networks.network import KeypointNetwork, LocatorNetwork
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.tracking.uncertainty.single_images import EvaluatedModel, ImageEvaluation, evaluate_images
from vid2phys.types import Mesh

SIZE = {"width": 8, "features": 16, "depth": 2}


@pytest.fixture(scope="module")
def renders(tmp_path_factory: pytest.TempPathFactory) -> RenderSet:
    torch.set_num_threads(1)
    return RenderSet(write_renders(tmp_path_factory.mktemp("renders"), square_body(), 24, size=48))


def mesh() -> Mesh:
    points = square_body().points
    faces = np.array([[0, 1, 4], [1, 2, 5], [2, 3, 6], [3, 0, 7], [0, 2, 1], [0, 3, 2]])
    return Mesh(points, faces, np.zeros(len(faces), dtype=np.int64), name="square")


def model() -> Model:
    body = square_body()
    torch.manual_seed(0)
    shape = Shape(
        "quadrotor", geometry_signature(mesh()), body.points, body.rotations, body.permutation, body.front, "square"
    )
    sizes = {"fine": SIZE, "coarse": SIZE}
    return Model(shape, KeypointNetwork(8, **SIZE).eval(), LocatorNetwork(**SIZE).eval(), 48, sizes)


@dataclass(frozen=True)
class Seer(Model):
    """Says `truth` [N, K, 2], its points named by element `named` of the group."""

    truth: Any = None
    named: int = 0

    def predict(self, images: Any, places_px: Any = None, batch: int = 32) -> KeypointPrediction:
        points = self.truth[:, self.permutation[self.named]]
        spread = np.broadcast_to(0.01 * np.eye(2), (*points.shape[:2], 2, 2))
        return KeypointPrediction(points, spread, np.ones(points.shape[:2]), np.zeros((len(points), 12, 12)))


def seen(renders: RenderSet, turn_rad: float, named: int = 0) -> tuple[ImageEvaluation, ImageEvaluation]:
    """What a network that reads poses wrong by a turn of the body about its own z would be told, and a blind one."""
    blind, indices = model(), np.arange(12)
    plain = evaluate_images(EvaluatedModel(blind, mesh()), renders, indices)
    turned = blind.points_body @ matrix_from_rotvec(np.array([0.0, 0.0, turn_rad])).T
    camera = np.einsum("nij,kj->nki", plain.truth_pose[:, :3, :3], turned) + plain.truth_pose[:, None, :3, 3]
    pixels = np.einsum("nij,nkj->nki", plain.K, camera)
    given = {f: getattr(blind, f) for f in ("shape", "fine", "coarse", "view_size", "sizes")}
    seer = Seer(**given, truth=pixels[..., :2] / pixels[..., 2:], named=named)
    return evaluate_images(EvaluatedModel(seer, mesh()), renders, indices), plain


@pytest.mark.parametrize("named", [0, 3])
def test_errors_are_those_of_the_reading_up_to_symmetry(renders: RenderSet, named: int) -> None:
    right, blind = seen(renders, 0.0, named)
    assert np.nanmax(right.errors["px"]) < 1e-6
    assert right.errors["rotation_deg"].max() < 0.01
    assert np.median(blind.errors["rotation_deg"]) > 5.0
    off, _ = seen(renders, np.radians(12.0), named)
    assert np.allclose(off.errors["rotation_deg"], 12.0, atol=0.01)
    quarter, _ = seen(renders, np.radians(90.0 - 12.0), named)  # nearer to the next of the equivalent poses
    assert np.allclose(quarter.errors["rotation_deg"], 12.0, atol=0.01)


def test_the_same_seed_gives_the_same_images_but_for_what_is_left_out(renders: RenderSet) -> None:
    subject, indices = EvaluatedModel(model(), mesh()), np.arange(24)
    whole, again = evaluate_images(subject, renders, indices), evaluate_images(subject, renders, indices)
    assert np.array_equal(whole.images, again.images)
    open_ = evaluate_images(subject, renders, indices, varied=Randomisation.without(("occlusion",)))
    differ = (whole.images != open_.images).any(axis=(1, 2, 3))
    assert 0 < differ.sum() < 20  # three in ten are covered
    assert whole.hidden_share.sum() > open_.hidden_share.sum()
    assert np.array_equal(whole.diameter_px, open_.diameter_px)
    assert (whole.diameter_px >= 20.0).all()
    assert (whole.diameter_px <= 100.5).all()


def test_contrast_and_what_the_body_hides(renders: RenderSet, monkeypatch: pytest.MonkeyPatch) -> None:
    from vid2phys.tracking.uncertainty import single_images as module

    def flat(render: Any, points: Any, rng: Any, options: Any) -> Any:
        shown = develop(render, points, rng, options)
        image = np.full_like(shown.image, 40)
        pose = shown.view_from_body
        corner = mesh().vertices @ pose[:3, :3].T + pose[:3, 3]
        from vid2phys.engine.render.rasterizer import rasterize

        image[rasterize(corner, mesh().faces, shown.K, 48, 48).mask] = 140
        return replace(shown, image=image)

    monkeypatch.setattr(module, "develop", flat)
    judged = evaluate_images(EvaluatedModel(model(), mesh()), renders, np.arange(8))
    assert np.allclose(judged.contrast, 100.0)
    assert judged.hidden.any()  # points behind the square's face
    assert not judged.hidden.all()


def test_the_card_says_what_was_measured_and_shows_it(renders: RenderSet, tmp_path: Path) -> None:
    import cv2

    folder = tmp_path / "square"
    score = {
        "command": "vid2phys train-risp --mesh square.obj --seed 7",
        "seed": 7,
        "data": {"renders": 24, "with_gradients": 6, "held_out": 4},
        "training": {"without": ["noise"], "started_from": None},
        "seconds": {"fine": 120.0},
        "validation": {"calibration": {"rotation_x": 1.25}},
    }
    trained = model()
    trained.save(folder, score)
    lines: list[str] = []
    progress = TrainingProgress(quiet=True)
    progress.note = lines.append  # type: ignore[method-assign]
    card = make_card(
        folder, EvaluatedModel(Model.load(folder), mesh()), renders, 7, progress, given="--mesh square.obj"
    )
    text = card.read_text()
    assert card == folder / CARD
    for words in ("# square", "4 orientations look the same, distinguished", "--seed 7", "| switched off | noise |"):
        assert words in text
    assert "| rotation x | 1.25 |" in text
    assert "Made by `vid2phys card models/square --mesh square.obj`" in text
    judged = evaluate_images(EvaluatedModel(trained, mesh()), renders, np.arange(24), seed=7)
    median = next(line for line in text.splitlines() if line.startswith("| all | 24 |")).split(" | ")
    assert float(median[3]) == pytest.approx(np.median(judged.errors["rotation_deg"]), rel=0.01)
    for name in (WORST, USUAL):
        image = cv2.imread(str(folder / name))
        assert image.std() > 10.0
    assert sum(path.stat().st_size for path in folder.iterdir() if path.suffix == ".jpg") < 300_000


def test_a_model_without_score_or_calibration_has_a_card(
    renders: RenderSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "LEFT_OUT", ("occlusion",))
    folder = tmp_path / "square"
    model().save(folder)
    assert read_score(folder) == {}
    card = make_card(folder, EvaluatedModel(Model.load(folder), mesh()), renders, 0, TrainingProgress(quiet=True))
    assert "its intervals are guesses" in card.read_text()
