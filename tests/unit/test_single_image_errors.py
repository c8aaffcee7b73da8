"""What an evaluation makes of developed images: sizes, bearings with covariances, labels, errors and what is hidden.

Stand-ins take the parts of the pipeline of images and of the network, so that all of their numbers are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vid2phys.error_model import Calibration
from vid2phys.geometry import make_transform, matrix_from_rotvec
from vid2phys.risp.appearance import develop as developing
from vid2phys.risp.renders import articulated_viewpoints
from vid2phys.tracking.uncertainty import single_images
from vid2phys.tracking.uncertainty.config import DEFAULTS
from vid2phys.tracking.uncertainty.single_images import (
    EvaluatedModel,
    ImageEvaluation,
    _behind,
    _contrast,
    _developed,
    _estimate,
    _labelled_as,
    _median,
    _Truth,
    evaluate_images,
    projected,
)
from vid2phys.types import Array, Mesh

SIZE, RADIUS_M = 64, 0.15
CENTER = np.array([0.03, -0.02, 0.05])
HALF = np.stack([np.eye(3), matrix_from_rotvec(np.array([0.0, 0.0, np.pi]))])
# the second half of the points are the first after half a turn about the axis through the centre
ONE = np.array([[0.1, 0.02, 0.0], [0.03, 0.09, 0.08], [-0.02, 0.05, -0.06]])
POINTS = np.concatenate([ONE, (ONE - CENTER) @ HALF[1].T + CENTER])
PERMUTATION = np.array([[0, 1, 2, 3, 4, 5], [3, 4, 5, 0, 1, 2]])
CALIBRATION = Calibration(point_scale=0.7, point_floor_px=0.4, point_exponent=0.5)
SQUARE = Mesh(
    np.array([[-0.1, -0.1, 0.0], [0.1, -0.1, 0.0], [0.1, 0.1, 0.0], [-0.1, 0.1, 0.0]]),
    np.array([[0, 2, 1], [0, 3, 2]]), np.zeros(2, np.int64),
)  # fmt: skip


class Network:
    """Finds keypoints at given places with given covariances."""

    view_size, radius_m, points_body, center = SIZE, RADIUS_M, POINTS, CENTER
    rotations, permutation = HALF, PERMUTATION
    calibration = CALIBRATION.to_dict()

    def __init__(self, points_px: Array, covariance_px: Array, kind: str = "rigid") -> None:
        self._found = SimpleNamespace(points_px=points_px, covariance_px=covariance_px)
        self.shape, self.seen = SimpleNamespace(kind=kind), list[Array]()

    def predict(self, images: Array) -> Any:
        self.seen.append(images)
        return self._found


class Arm:
    """A body of two coordinates: how far all points are along x, and how much they are spread."""

    radius_m = 0.4

    def points(self, configurations: Array) -> Array:
        return np.asarray(ONE * configurations[..., None, 1:] + configurations[..., None, :1] * np.eye(3)[0])

    def vertices(self, configuration: Array) -> Array:
        return np.asarray(SQUARE.vertices + configuration[0] * np.eye(3)[0])


def subject(model: Any = None, body: Any = None) -> EvaluatedModel:
    unused: Any = Network(np.zeros(0), np.zeros(0))
    return EvaluatedModel(model if model is not None else unused, SQUARE, body)


def camera(n: int) -> Array:
    """A camera [3, 3] of image n, with its own focal lengths and middle, and with a skew."""
    k = n % 10
    return np.array([[80.0 + 5.0 * k, 2.0, 30.0 + 0.5 * k], [0.0, 90.0 - 3.0 * k, 33.0 - 0.4 * k], [0.0, 0.0, 1.0]])


def pose_of(n: int) -> Array:
    rng = np.random.default_rng(n)
    rotation = matrix_from_rotvec(rng.normal(0.0, 0.4, (1, 3)))[0]
    return make_transform(rotation, np.array([0.05, -0.03, 1.0]) + 0.05 * rng.normal(size=3))


def pixels(K: Array, pose: Array, points: Array) -> Array:
    """Return pixels [N, K, 2], point by point."""
    found = np.zeros((*points.shape[:2], 2))
    for n in range(len(points)):
        for k, point in enumerate(points[n]):
            place = K[n] @ (pose[n, :3, :3] @ point + pose[n, :3, 3])
            found[n, k] = place[:2] / place[2]
    return found


def spread(count: int, points: int) -> Array:
    root = np.random.default_rng(5).normal(size=(count, points, 2, 2))
    return np.asarray(root @ np.swapaxes(root, -1, -2))


def truth_of(count: int, *, configurations: Array | None = None) -> _Truth:
    K, pose = (np.stack([make(n) for n in range(count)]) for make in (camera, pose_of))
    points = np.tile(POINTS, (count, 1, 1)) if configurations is None else Arm().points(configurations)
    return _Truth(
        np.arange(count, dtype=np.uint8)[:, None, None, None] * np.ones((SIZE, SIZE, 3), np.uint8),
        K, pose, pixels(K, pose, points), np.ones(points.shape[:2], dtype=bool), points, configurations,
        np.linspace(20.0, 90.0, count),
    )  # fmt: skip


def assert_bearings(truth: _Truth, given: list[Any], found_px: Array, covariance_px: Array) -> None:
    """Assert that bearings and their covariances are those of the pixels, point by point."""
    bearings, covariance = given
    for n in range(len(found_px)):
        inverse, size = np.linalg.inv(truth.K[n]), truth.diameter_px[n]
        for k in range(found_px.shape[1]):
            ray = inverse @ [*found_px[n, k], 1.0]
            np.testing.assert_allclose(bearings[n, k], ray[:2] / ray[2], rtol=1e-9, atol=1e-12)
            own = (0.7**2 * covariance_px[n, k] + 0.4**2 * np.eye(2)) * (40.0 / size) ** (2.0 * 0.5)
            slope = inverse[:2, :2]
            np.testing.assert_allclose(covariance[n, k], slope @ own @ slope.T, rtol=1e-9)


def test_poses_are_solved_from_bearings_and_judged_up_to_the_symmetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network has the other labels in the second image; the pose is off by known steps from an equal one."""
    count = 3
    truth, given = truth_of(count), list[Any]()
    off = np.array([[0.5, -0.3], [-0.2, 0.4], [0.1, 0.6]])[:, None]
    found_px = truth.px + off
    found_px[1] = found_px[1, PERMUTATION[1]]
    covariance = spread(count, len(POINTS))
    model = Network(found_px, covariance)
    about = make_transform(HALF[1], CENTER - HALF[1] @ CENTER)
    turn = make_transform(matrix_from_rotvec(np.radians([0.0, 0.0, 7.0])), np.zeros(3))
    best = truth.pose.copy()
    best[1] = truth.pose[1] @ about
    best[2] = truth.pose[2] @ turn
    best[0, :3, 3] *= 1.03

    def solve(bearings: Array, covariance: Array, points_body: Array) -> Any:
        np.testing.assert_array_equal(points_body, POINTS)
        given.extend([bearings, covariance])
        wrong = np.tile(np.eye(4), (count, 1, 1))
        both = np.stack([best, wrong], axis=1)
        return SimpleNamespace(rotation=both[..., :3, :3], translation=both[..., :3, 3])

    monkeypatch.setattr(single_images, "solve_poses", solve)
    found = _estimate(subject(model), truth, DEFAULTS)
    assert model.seen[0] is truth.images
    assert_bearings(truth, given, found_px, covariance)
    np.testing.assert_allclose(found.pose, best)
    np.testing.assert_allclose(found.px, truth.px + off, atol=1e-9)
    assert found.configuration is None
    assert found.points_mm is None
    np.testing.assert_allclose(found.errors["rotation_deg"], [0.0, 0.0, 7.0], atol=1e-5)
    np.testing.assert_allclose(found.errors["depth_percent"], [3.0, 0.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(found.errors["sideways_mm"], 0.0, atol=1e-9)


@pytest.mark.parametrize(("size", "truth_wins"), [(0.9, True), (1.1, False)])
def test_points_far_off_count_as_a_tenth_of_the_image_for_the_labels(
    size: float, truth_wins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the true labels two points are off by `size` of the limit together; by the others one more is far off."""
    truth, step = truth_of(1), np.array([0.0, size * 0.1 * SIZE / 4.0])
    monkeypatch.setattr(
        single_images, "solve_poses",
        lambda *_: SimpleNamespace(rotation=truth.pose[:, None, :3, :3], translation=truth.pose[:, None, :3, 3]),
    )  # fmt: skip
    pair = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
    line = np.array([[0.0, 0.0], [100.0, 0.0], [200.0, 0.0], [200.0, 0.0]])
    line[3] += 2.0 * step
    seen = line[[0, 1, 3, 2]]
    seen[0] = [0.0, 700.0]  # far under each label; the second is right by the truth and far by the pair
    model = Network(seen[None], spread(1, 4))
    monkeypatch.setattr(model, "permutation", pair, raising=False)
    got = _estimate(subject(model), replace(truth, px=line[None]), DEFAULTS).px[0]
    np.testing.assert_array_equal(got, seen if truth_wins else seen[[1, 0, 3, 2]])


def test_labels_of_a_cycle_are_found_in_its_direction() -> None:
    """Found point k is the true point perm[k]: its values go to where the truth has them."""
    truth = np.array([[[0.0, 0.0], [10.0, 0.0], [0.0, 20.0]]])
    cycle = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    for order in cycle:
        off = np.array([[0.1, 0.2], [0.3, 0.1], [-0.2, 0.4]])
        found = (truth[0] + off)[order][None]
        np.testing.assert_allclose(_labelled_as(truth, found, cycle, 5.0)[0], truth[0] + off)


@pytest.mark.parametrize(("kind", "name", "unit"), [
    ("joints", "configuration_deg", 180.0 / np.pi), ("modes", "configuration_mm", 1e3)
])  # fmt: skip
def test_configurations_are_fitted_with_the_true_base_and_err_in_points(
    kind: str, name: str, unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    configurations = np.array([[0.1, 1.0], [-0.2, 0.5]])
    truth, body, given = truth_of(2, configurations=configurations), Arm(), list[Any]()
    found_px, covariance = truth.px + np.array([0.4, -0.3]), spread(2, len(ONE))
    step = np.array([[0.03, -0.2], [-0.01, 0.1]])

    def fit(one: Any, base: Array, bearings: Array, covariance: Array) -> Any:
        assert one is body
        np.testing.assert_array_equal(base, truth.pose)
        given.extend([bearings, covariance])
        return SimpleNamespace(configuration=configurations + step)

    monkeypatch.setattr(single_images, "fit_configurations", fit)
    found = _estimate(subject(Network(found_px, covariance, kind), body), truth, DEFAULTS)
    assert_bearings(truth, given, found_px, covariance)
    np.testing.assert_array_equal(found.px, found_px)
    np.testing.assert_array_equal(found.pose, truth.pose)
    assert found.configuration is not None
    assert found.points_mm is not None
    np.testing.assert_allclose(found.configuration, configurations + step)
    away = np.zeros((2, 3))
    for n in range(2):
        for k in range(3):
            away[n, k] = 1e3 * np.linalg.norm(step[n, 0] * np.eye(3)[0] + step[n, 1] * ONE[k])
    np.testing.assert_allclose(found.points_mm, away)
    assert set(found.errors) == {"points_mm", name}
    np.testing.assert_allclose(found.errors["points_mm"], away.mean(axis=1))
    np.testing.assert_allclose(found.errors[name], unit * np.array([0.115, 0.055]))


class Renders:
    """Renders that are numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def sample(self, index: int) -> int:
        return index

    def appearance_id(self) -> NDArray[np.int64]:
        return 100 + np.arange(self.count)

    def configurations(self) -> Array:
        return 0.01 * np.arange(self.count)[:, None] * [1.0, 0.0] + [0.0, 1.0]


def stand_in(asked: list[Any]) -> Callable[..., Any]:
    """A stand-in for `develop`, which notes what it is given; all of its numbers are those of the render."""

    def shown(render: int, points: Array, rng: np.random.Generator, options: Any) -> Any:
        asked.append((render, points, rng.uniform(), options))
        K, pose = camera(render), pose_of(render)
        image = (np.random.default_rng(render).random((SIZE, SIZE, 3)) * [200.0, 100.0, 50.0]).astype(np.uint8)
        image[0, 0] = render % 200
        visible = np.ones(len(points), dtype=bool)
        visible[: render % 3] = False
        px = pixels(K[None], pose[None], np.asarray(points)[None])[0]
        return SimpleNamespace(image=image, points_px=px, visible=visible, K=K, view_from_body=pose)

    return shown


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    noted, banks = list[Any](), list[Any]()
    monkeypatch.setattr(single_images, "develop", stand_in(noted))
    monkeypatch.setattr(single_images, "photographs", lambda: "photographs")

    def bank(given: str, *, count: int, seed: int) -> Any:
        banks.append((given, count, seed))
        return banks[-1]

    monkeypatch.setattr(single_images, "make_bank", bank)
    return noted


@pytest.mark.parametrize("articulated", [False, True])
def test_images_have_sizes_as_in_training_with_equal_logarithms(articulated: bool, asked: list[Any]) -> None:
    body = Arm() if articulated else None
    low, _, high = articulated_viewpoints.VIEW_PX if articulated else developing.VIEW_PX
    renders: Any = Renders(401)
    indices, shares, varied = np.arange(1, 401), list[float](), object()
    seen = subject(body=body)
    unused: Any = varied
    truth = _developed(seen, renders, indices, 3, unused, shares.append, DEFAULTS)
    widths = np.array([options.view_px[0] for _, _, _, options in asked])
    assert seen.view_px == (low, high)
    assert low <= widths.min() < low * 1.02
    assert high * 0.98 < widths.max() <= high
    share = np.log(widths / low) / np.log(high / low)
    assert share.mean() == pytest.approx(0.5, abs=0.05)
    assert share.std() == pytest.approx(1.0 / np.sqrt(12.0), abs=0.02)
    np.testing.assert_allclose(truth.diameter_px, widths * (1.0 if articulated else 2.0 / 3.0))
    for width, (_, _, _, options) in zip(widths, asked, strict=True):
        assert width < options.view_px[1] < options.view_px[2] <= 1.0011 * width
        assert options.bank == ("photographs", 64, 4)
        assert (options.size, options.jitter, options.absent) == (SIZE, False, False)
        assert options.varied is varied
    np.testing.assert_allclose(shares, np.arange(1, 401) / 400)
    assert [render for render, *_ in asked] == indices.tolist()
    for row in (0, 7):
        expected = Arm().points(np.array([0.01 * indices[row], 1.0])) if articulated else POINTS
        np.testing.assert_allclose(asked[row][1], expected)
        np.testing.assert_allclose(truth.points[row], expected)
        np.testing.assert_array_equal(truth.K[row], camera(int(indices[row])))
        np.testing.assert_array_equal(truth.pose[row], pose_of(int(indices[row])))
        assert truth.images[row, 0, 0, 0] == indices[row]
        assert truth.visible[row].sum() == len(expected) - indices[row] % 3
    assert (truth.configurations is not None) is articulated


def test_an_image_depends_on_its_render_and_the_seed_alone(asked: list[Any]) -> None:
    renders, unused = Renders(20), single_images.ALL
    given: Any = renders
    first = _developed(subject(), given, np.array([3, 8, 5]), 1, unused, None, DEFAULTS)
    again = _developed(subject(), given, np.array([5, 3]), 1, unused, None, DEFAULTS)
    other = _developed(subject(), given, np.array([5, 3]), 2, unused, None, DEFAULTS)
    np.testing.assert_array_equal(again.diameter_px, first.diameter_px[[2, 0]])
    assert [each[2] for each in asked[3:5]] == [asked[2][2], asked[0][2]]
    assert len(set(first.diameter_px)) == 3
    assert not set(other.diameter_px) & set(first.diameter_px)


def evaluated(
    monkeypatch: pytest.MonkeyPatch, indices: NDArray[np.int64], off: Array, body: Any = None
) -> tuple[EvaluatedModel, ImageEvaluation]:
    """Evaluate a network that is off by `off` [N, K, 2] px, with the true poses and configurations."""
    K, pose = (np.stack([make(int(i)) for i in indices]) for make in (camera, pose_of))
    renders: Any = Renders(20)
    configurations = renders.configurations()[indices]
    points = np.tile(POINTS, (len(indices), 1, 1)) if body is None else body.points(configurations)
    model = Network(pixels(K, pose, points) + off, spread(len(indices), points.shape[1]), "modes")
    monkeypatch.setattr(
        single_images, "solve_poses",
        lambda *_: SimpleNamespace(rotation=pose[:, None, :3, :3], translation=pose[:, None, :3, 3]),
    )  # fmt: skip
    near = SimpleNamespace(configuration=configurations + np.array([0.02, 0.0]))
    monkeypatch.setattr(single_images, "fit_configurations", lambda *_: near)
    one = subject(model, body)
    return one, evaluate_images(one, renders, indices, seed=3)


@pytest.mark.parametrize("articulated", [False, True])
def test_an_evaluation_has_errors_of_visible_points_and_what_is_hidden(
    articulated: bool, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The surface is flat: points behind it by more than a tenth of the radius are hidden, and those left out too."""
    indices, count = np.array([4, 2, 9]), 3 if articulated else 6
    body = Arm() if articulated else None
    off = np.zeros((3, count, 2))
    off[..., 0] = 0.1 * np.arange(1, count + 1) ** 2 / count
    one, found = evaluated(monkeypatch, indices, off, body)
    np.testing.assert_array_equal(found.appearance, 100 + indices)
    np.testing.assert_allclose(found.estimated_px - found.truth_px, off, atol=1e-9)
    np.testing.assert_allclose(found.estimated_pose, found.truth_pose)
    for n, index in enumerate(indices):
        gone = index % 3
        assert found.errors["px"][n] == pytest.approx(np.median(off[n, gone:, 0]))
        assert found.hidden_share[n] == pytest.approx(gone / count)
        configuration = None if body is None else np.array([0.01 * index, 1.0])
        surface = single_images._surface(one, configuration, found.truth_pose[n], found.K[n])
        points = POINTS if configuration is None else Arm().points(configuration)
        for k, point in enumerate(points):
            depth = (found.truth_pose[n, :3, :3] @ point + found.truth_pose[n, :3, 3])[2]
            u, v = np.clip(np.round(found.truth_px[n, k]), 0, SIZE - 1).astype(int)
            behind = depth - surface[v, u] > 0.1 * (0.4 if articulated else RADIUS_M)
            assert found.hidden[n, k] == (behind or k < gone)
        expected = _contrast(found.images[n], np.isfinite(surface), 0.06)
        assert found.contrast[n] == pytest.approx(expected)
        assert expected > 0.1
        size = asked[n][3].view_px[0] * one.fill
        assert found.diameter_px[n] == pytest.approx(size)
    assert found.hidden.any()
    assert not found.hidden.all()
    if articulated:
        assert set(found.errors) == {"px", "points_mm", "configuration_mm"}
        assert found.points_mm is not None
        np.testing.assert_allclose(found.points_mm, 20.0)
        np.testing.assert_allclose(found.errors["configuration_mm"], 10.0)
        assert found.estimated_configuration is not None
        assert found.truth_configuration is not None
        off = found.estimated_configuration - found.truth_configuration
        np.testing.assert_allclose(off, [[0.02, 0.0]] * 3, atol=1e-12)
    else:
        assert set(found.errors) == {"px", "rotation_deg", "sideways_mm", "depth_percent"}
        assert found.truth_configuration is found.estimated_configuration is found.points_mm is None


def test_only_configurations_of_articulated_bodies_move_points() -> None:
    rigid, posable, configuration = subject(), subject(body=Arm()), np.array([0.3, 2.0])
    np.testing.assert_allclose(posable.vertices(configuration), SQUARE.vertices + np.array([0.3, 0.0, 0.0]))
    np.testing.assert_allclose(posable.points(configuration[None], 1), [2.0 * ONE + [0.3, 0.0, 0.0]])
    for one, given in ((rigid, None), (rigid, configuration), (posable, None)):
        np.testing.assert_array_equal(one.vertices(given), SQUARE.vertices)
        np.testing.assert_array_equal(one.points(given if given is None else given[None], 2), [POINTS, POINTS])
    assert (rigid.main_error, posable.main_error) == ("rotation_deg", "points_mm")
    assert (rigid.across, posable.across) == ("body", "workspace")
    assert (rigid.radius_m, posable.radius_m) == (RADIUS_M, 0.4)


def test_vertices_are_projected_with_their_depths() -> None:
    for one, configuration, way in ((subject(), None, 0.0), (subject(body=Arm()), np.array([0.3, 2.0]), 0.3)):
        for n in range(3):
            vertices = SQUARE.vertices + way * np.eye(3)[0]
            got, depth = projected(one, pose_of(n), configuration, camera(n))
            np.testing.assert_allclose(got, pixels(camera(n)[None], pose_of(n)[None], vertices[None])[0])
            expected = [(pose_of(n)[:3, :3] @ vertex + pose_of(n)[:3, 3])[2] for vertex in vertices]
            np.testing.assert_allclose(depth, expected)
    assert _contrast(np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8), dtype=bool), 0.1) == 0.0


def test_points_beside_the_image_are_compared_with_its_border() -> None:
    """Surfaces that differ from cell to cell; pixels are rounded, and those outside count as the last ones."""
    surface = 1.0 + np.arange(16.0).reshape(4, 4)
    points = np.array([[1.4, 2.6], [1.6, 2.4], [-3.0, 0.0], [9.0, 3.0], [0.0, -7.0], [3.0, 8.0]])
    at = np.array([surface[3, 1], surface[2, 2], surface[0, 0], surface[3, 3], surface[0, 0], surface[3, 3]])
    for step, hidden in ((0.5, False), (0.76, True), (0.74, False), (-2.0, False)):
        np.testing.assert_array_equal(_behind(surface, points, at + step, 0.75), hidden)
    assert not _behind(surface, points, at + 0.75, 0.75).any(), "more than the least"


def test_contrast_is_taken_from_a_square_ring_of_a_share_of_the_image() -> None:
    """A ring of the share of the width: what lies one pixel farther does not count."""
    image, body = np.zeros((100, 100, 3), np.uint8), np.zeros((100, 100), dtype=bool)
    body[40:60, 40:60] = True
    image[body] = 200
    image[33, :] = 255  # seven pixels above
    assert _contrast(image, body, 0.06) == pytest.approx(200.0)
    ring = 34 * 34 - 20 * 20
    assert _contrast(image, body, 0.07) == pytest.approx(200.0 - 255.0 * 34.0 / ring)
    image[body] = np.stack([np.full(400, 10), np.full(400, 20), np.full(400, 30)], axis=1)
    assert _contrast(image, body, 0.06) == pytest.approx(np.sqrt((10.0**2 + 20.0**2 + 30.0**2) / 3.0))
    assert _median(np.array([4.0])) == 4.0
