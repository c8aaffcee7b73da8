"""Which configuration an image decides on, how keypoints and a weak prior are joined, and how points follow a body."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.tracking.articulated import contour
from vid2phys.tracking.articulated.config import DEFAULTS
from vid2phys.tracking.articulated.contour import PlacedBody, downweighted, fit_configuration, refine_from, refine_near
from vid2phys.tracking.articulated.detector import Window, agreement
from vid2phys.tracking.articulated.kinematic_fit import Configurations
from vid2phys.types import Array

ANY: Any = None
POSE = make_transform(matrix_from_rotvec(np.array([[0.3, -0.2, 0.4]]))[0], np.array([0.1, 0.05, 1.5]))
WAYS = np.random.default_rng(0).normal(0.0, 0.2, (40, 3, 2))
PLACES = np.random.default_rng(1).normal(0.0, 0.3, (40, 3))


class Body:
    """A body of places that move along straight lines; both coordinates have limits at 0.5."""

    prior_mean, prior_std = np.array([0.1, -0.2]), np.array([0.5, 0.25])
    lower, upper = np.array([-0.5, -0.5]), np.array([0.5, 0.5])
    bends = False

    def surface(self, at: Array) -> Array:
        return np.asarray(PLACES + WAYS @ at)

    vertices = surface

    def points(self, at: Array) -> Array:
        return np.asarray(PLACES[:4] + np.einsum("kid,...d->...ki", WAYS[:4], at))

    def surface_jacobian(self, at: Array, some: Any) -> Array:
        return WAYS[some]

    def retract(self, at: Array, step: Array) -> Array:
        return np.clip(at + step, self.lower, self.upper)


def body(**values: Any) -> Any:
    one: Any = Body()
    vars(one).update(values)
    return one


def test_points_on_edges_move_as_the_nearest_places_do() -> None:
    """Beside differences of pixels along normals, with a camera of focal lengths that differ."""
    at = np.array([0.2, -0.1])
    placed = PlacedBody(body(), POSE, at)
    some = np.array([3, 17, 8])
    vertices = placed.vertices()
    np.testing.assert_allclose(vertices, (PLACES + WAYS @ at) @ POSE[:3, :3].T + POSE[:3, 3])
    along = np.array([[400.0, 0.0], [0.0, -300.0], [240.0, 180.0]])
    found = placed.slopes(vertices[some] + 1e-4, along)
    for d in range(2):
        step = 1e-6 * np.eye(2)[d]
        ahead, behind = (PlacedBody(body(), POSE, at + way).vertices()[some] for way in (step, -step))
        bearings = ahead[:, :2] / ahead[:, 2:] - behind[:, :2] / behind[:, 2:]
        np.testing.assert_allclose(found[:, d], (along * bearings).sum(axis=1) / 2e-6, rtol=1e-2, atol=0.1)
    after, moved = placed.moved(np.array([0.1, -0.9]))
    np.testing.assert_allclose(after.configuration, [0.3, -0.5])
    np.testing.assert_allclose(moved, [0.1, -0.4])


def test_keypoints_of_which_less_is_believed_are_joined_with_the_prior() -> None:
    information, pull = np.array([[40.0, 6.0], [6.0, 90.0]]), np.array([10.0, -12.0])
    found, known = downweighted(body(), pull, information, 8.0)
    weak = np.diag([4.0, 16.0])
    np.testing.assert_allclose(known, information / 8.0 + weak)
    np.testing.assert_allclose(known @ found, pull / 8.0 + weak @ Body.prior_mean)
    beyond, _ = downweighted(body(), 100.0 * pull, information, 8.0)
    np.testing.assert_allclose(beyond, [0.5, -0.5])


def test_edges_count_less_than_they_state_beside_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    stated, prior, asked = np.array([[900.0, 50.0], [50.0, 400.0]]), np.diag([7.0, 9.0]), list[Any]()

    def fit(frame: Any, camera: Any, solid: Any, start: Any, prior: Any, most: Any, shared_px: float) -> Any:
        asked.append((start.configuration, most, shared_px))
        return PlacedBody(ANY, ANY, np.array([0.3, 0.4])), stated

    monkeypatch.setattr(contour, "fit_edges", fit)
    window: Any = SimpleNamespace(camera=None, camera_from_base=POSE)
    for bends, shared_px in ((False, 0.0), (True, DEFAULTS.contour_shared_px)):
        found = refine_from(ANY, window, body(bends=bends), ANY, np.array([0.2, 0.1]), prior)
        assert found is not None
        np.testing.assert_allclose(found[0], [0.3, 0.4])
        np.testing.assert_allclose(np.linalg.inv(found[1]), stated / contour.CONTOUR.overconfidence + prior)
        start, most, shared = asked[-1]
        np.testing.assert_allclose(start, [0.2, 0.1])
        np.testing.assert_allclose(most, DEFAULTS.contour_max_step * Body.prior_std)
        assert shared == shared_px
    monkeypatch.setattr(contour, "fit_edges", lambda *_: None)
    assert refine_from(ANY, window, body(), ANY, np.zeros(2), prior) is None


@pytest.mark.parametrize("kept", [0.0, 0.3, 1.0])
def test_of_the_prior_near_a_start_a_share_is_kept(kept: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges that state a place with an information, beside so much of the prior about the start."""
    edges, stated, start = np.array([[50.0, 8.0], [8.0, 30.0]]), np.array([0.3, -0.1]), np.array([0.1, 0.2])

    def refine(frame: Any, window: Any, body: Any, solid: Any, at: Array, prior: Array, config: Any) -> Any:
        np.testing.assert_allclose(prior, np.diag([4.0, 16.0]))
        return np.linalg.solve(edges + prior, edges @ stated + prior @ at), np.linalg.inv(edges + prior)

    monkeypatch.setattr(contour, "refine_from", refine)
    found = refine_near(ANY, ANY, body(), ANY, start, kept)
    assert found is not None
    prior = kept * np.diag([4.0, 16.0])
    np.testing.assert_allclose(found[0], np.linalg.solve(edges + prior, edges @ stated + prior @ start))
    np.testing.assert_allclose(found[1], np.linalg.inv(edges + prior))
    monkeypatch.setattr(contour, "refine_from", lambda *_: None)
    assert refine_near(ANY, ANY, body(), ANY, start, kept) is None


def minima(*places: float, costs: tuple[float, ...]) -> Configurations:
    count = len(places)
    at = np.stack([np.array(places), np.full(count, 0.1)], axis=1)
    covariance = np.tile(np.diag([0.001, 0.002]), (count, 1, 1))
    return Configurations(at, covariance, np.array(costs), np.zeros(count), np.ones((count, 4), bool))


@pytest.mark.parametrize("bends", [False, True])
@pytest.mark.parametrize(("nats", "chosen"), [((5.0, 4.0), 0), ((5.0, 5.3), 0), ((5.0, 5.5), 1), ((5.0, 6.1), 1)])
def test_the_reading_that_explains_the_image_is_taken(
    nats: tuple[float, float], chosen: int, bends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs of two readings differ by four tenths of a nat that counts; edges move each, and shading."""
    factor = DEFAULTS.point_overconfidence_shaded if bends else DEFAULTS.point_overconfidence
    some, starts = minima(0.3, -0.3, 0.301, costs=(1.0, 1.0 + 0.4 * factor, 9.0)), list[Array]()
    window: Any = SimpleNamespace(camera=None, camera_from_base=POSE)

    def refine(frame: Any, window: Any, body: Any, solid: Any, start: Array, prior: Array, config: Any) -> Any:
        own = np.linalg.inv(np.diag([0.001, 0.002])) - np.diag([4.0, 16.0])  # of keypoints without the prior
        np.testing.assert_allclose(prior, own / factor + np.diag([4.0, 16.0]))
        starts.append(start)
        return start + 0.01, np.eye(2)

    def shade(frames: Any, index: Any, window: Any, body: Any, solid: Any, at: Array, known: Array, config: Any) -> Any:
        assert (len(frames), index, at.shape, known.shape) == (1, [0], (1, 2), (1, 2, 2))
        return at + 0.02, None

    def likelihood(shown: Any, window: Any, body: Any, at: Array) -> float:
        assert shown == "evidence"
        return nats[0] if at[0] > 0.1 else nats[1]

    monkeypatch.setattr(contour, "refine_from", refine)
    monkeypatch.setattr(contour, "fit_shading", shade)
    monkeypatch.setattr(contour, "image_evidence", lambda *_: "evidence")
    monkeypatch.setattr(contour, "log_likelihood", likelihood)
    found = fit_configuration(ANY, window, body(bends=bends), ANY, some)
    assert len(starts) == 2, "those that are nearly one are one"
    np.testing.assert_allclose(found, starts[chosen] + (0.03 if bends else 0.01))
    own = np.diag([1000.0, 500.0])
    for start, at in zip(starts, ([0.3, 0.1], [-0.3, 0.1]), strict=True):
        weak = np.diag([4.0, 16.0])
        pull = (own @ at - weak @ Body.prior_mean) / factor + weak @ Body.prior_mean
        np.testing.assert_allclose(start, np.linalg.solve((own - weak) / factor + weak, pull))
    monkeypatch.setattr(contour, "refine_from", lambda *_: None)
    np.testing.assert_allclose(fit_configuration(ANY, window, body(bends=bends), ANY, some[:1]), starts[0])


def test_points_agree_as_far_as_they_are_near_in_the_virtual_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pixels wide, so that three pixels are a deviation."""
    monkeypatch.setattr("vid2phys.tracking.articulated.detector.bearings_to_view", lambda view, at: 50.0 + 200.0 * at)
    window = Window(ANY, POSE, SimpleNamespace(size=100), 80.0)  # type: ignore[arg-type]
    at = np.array([[0.1, 0.2], [-0.3, 0.0]])
    found: Any = SimpleNamespace(configuration=at)
    inside = Body().points(at) @ POSE[:3, :3].T + POSE[:3, 3]
    predicted = inside[..., :2] / inside[..., 2:]
    off_px = np.array(
        [[[0.0, 0.0], [3.0, 0.0], [0.0, -6.0], [99.0, 0.0]], [[1.8, 2.4], [0.0, 0.0], [0.0, 0.0], [0.0, 3.0]]]
    )
    peak = np.array([[1.0, 0.8, 0.6, 1.0], [0.5, 0.0, 0.4, 1.0]])
    quality = agreement(body(), window, found, predicted + off_px / 200.0, peak)
    near = np.exp(-0.5)
    expected = [(1.0 + 0.8 * near + 0.6 * near**4) / 4.0, (0.5 * near + 0.4 + near) / 4.0]
    np.testing.assert_allclose(quality, expected, rtol=1e-6)
