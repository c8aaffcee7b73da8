"""What frames state of a body's proportions, and what they state together: closed forms, dense systems, differences."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.engine.observe import to_bearings
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking import proportions as module
from vid2phys.tracking.proportions import (
    Proportions,
    ProportionsConfig,
    _agreement,
    _Deformed,
    _joint,
    _of_frame,
    _symmetric,
    proportions,
)
from vid2phys.types import Array, Camera, Mesh

RNG = np.random.default_rng(8)
SIDES = np.array([0.10, 0.07, 0.05])
MIDDLE = np.array([0.3, -0.2, 0.1])
CORNERS = MIDDLE + 0.5 * SIDES * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
BOX = Mesh(CORNERS, np.array([[0, 1, 3], [0, 3, 2]]), np.zeros(2, dtype=np.int64), name="box")
CAMERA = Camera(np.diag([500.0, 510.0, 1.0]), 240, 200, camera_to_world=np.eye(4))
POSE = Pose(matrix_from_rotvec(np.array([0.4, -0.3, 0.8])), np.array([0.1, -0.2, 1.5]))
ON_AXIS = Pose(POSE.rotation, np.array([0.0, 0.0, 1.5]))  # where `Pose.step_to` is exact


def random_information(size: int) -> Array:
    parts = RNG.normal(size=(size, size))
    return np.asarray(parts @ parts.T + 0.1 * np.eye(size))


def test_slopes_are_differences_of_places_in_the_frame() -> None:
    deformation = np.eye(3) + 0.1 * RNG.normal(size=(3, 3))
    start = _Deformed(BOX, MIDDLE, POSE, deformation)
    along = RNG.normal(size=(8, 2)) * 300.0
    slopes, small = start.slopes(start.vertices(), along), 1e-6
    assert slopes.shape == (8, 12)
    for k, unit in enumerate(np.eye(12)):
        ahead, back = (to_bearings(start.moved(s * small * unit)[0].vertices()) for s in (1.0, -1.0))
        np.testing.assert_allclose(slopes[:, k], (along * (ahead - back)).sum(axis=1) / (2.0 * small), atol=1e-3)


def test_a_body_is_deformed_about_its_middle() -> None:
    """It becomes longer along x by a tenth, and then along y by a fifth; its middle stays."""
    first, taken = _Deformed(BOX, MIDDLE, POSE, np.eye(3)).moved(0.1 * np.eye(12)[6])
    second, _ = first.moved(0.2 * np.eye(12)[7])
    np.testing.assert_array_equal(taken, 0.1 * np.eye(12)[6])
    longer = MIDDLE + (CORNERS - MIDDLE) * [1.1, 1.2, 1.0]
    np.testing.assert_allclose(second.vertices(), POSE.apply(longer), atol=1e-12)


def test_six_entries_are_the_diagonal_and_then_the_others() -> None:
    expected = [[1.0, 6.0, 5.0], [6.0, 2.0, 4.0], [5.0, 4.0, 3.0]]
    np.testing.assert_array_equal(_symmetric(np.arange(1.0, 7.0)), expected)


def test_a_frame_states_the_deformation_with_its_pose_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges have their best coordinates; a fit stops where priors balance them. The pose is then integrated out."""
    config = ProportionsConfig(pose_std=(0.1, 0.2, 0.3, 0.01, 0.02, 0.05), deformation_std=0.2)
    edges, best = random_information(12) * 400.0, 0.02 * RNG.normal(size=12)
    prior = np.diag(np.append(config.pose_std, [0.2] * 6) ** -2.0)
    value: Array = np.linalg.solve(edges + prior, edges @ best).astype(np.float64)
    twist = np.array([[0.0, 0.03, -0.02], [-0.03, 0.0, 0.01], [0.02, -0.01, 0.0]])  # a rotation says nothing of lengths
    given = list[Any]()

    def fit_edges(*args: Any, config: Any) -> Any:
        given.extend([*args, config])
        start = args[3]
        deformation = np.eye(3) + _symmetric(value[6:]) + twist
        moved = replace(start, pose=start.pose.retract(value[:6]), deformation=deformation)
        return moved, edges * config.overconfidence

    monkeypatch.setattr(module, "fit_edges", fit_edges)
    frame: Any = "frame"
    solid: Any = SimpleNamespace(mesh=BOX)
    found = _of_frame(frame, CAMERA, solid, ON_AXIS, config)
    assert found is not None
    np.testing.assert_allclose(given[4], prior)
    np.testing.assert_allclose(given[5], np.append(config.pose_std, [0.2] * 6))
    np.testing.assert_allclose(given[3].vertices(), ON_AXIS.apply(CORNERS), atol=1e-12)
    of_pose = prior.copy()
    of_pose[6:, 6:] = 0.0
    covariance = np.linalg.inv(edges + of_pose)
    information = np.linalg.inv(covariance[6:, 6:])
    np.testing.assert_allclose(found[0], information, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], information @ (covariance @ (edges @ best))[6:], rtol=1e-6, atol=1e-6)
    monkeypatch.setattr(module, "fit_edges", lambda *args, config: None)
    assert _of_frame(frame, CAMERA, solid, ON_AXIS, config) is None


def test_frames_that_agree_count_half_each_beside_the_prior() -> None:
    """Their misfits are all the same, so that each has a weight of 1 / (1 + 1)."""
    config, stated = ProportionsConfig(deformation_std=0.2), np.array([0.1, -0.05, 0.0, 0.02, 0.0, 0.07])
    information, pull = np.tile(30.0 * np.eye(6), (4, 1, 1)), np.tile(30.0 * stated, (4, 1))
    mean, covariance, left = _joint(information, pull, config)
    total = 0.5 * 4 * 30.0
    np.testing.assert_allclose(mean, stated * total / (total + 25.0))
    np.testing.assert_allclose(covariance, np.eye(6) / (total + 25.0), atol=1e-15)
    np.testing.assert_allclose(left, np.tile(0.5 * 30.0 * (stated - mean), (4, 1)))


def test_frames_that_disagree_count_less() -> None:
    """The misfit of each frame is compared with the median; what is left balances the prior."""
    config = ProportionsConfig(rounds=400, deformation_std=0.3)
    information = np.stack([random_information(6) * 50.0 for _ in range(7)])
    stated = 0.1 * RNG.normal(size=6) + 0.02 * RNG.normal(size=(7, 6))
    stated[2] += 0.6
    pull = np.stack([a @ b for a, b in zip(information, stated, strict=True)])
    mean, covariance, left = _joint(information, pull, config)
    weak = np.eye(6) / 0.3**2
    apart = [b - a @ mean for a, b in zip(information, pull, strict=True)]
    misfits = [float(b @ np.linalg.inv(a + weak) @ b) for a, b in zip(information, apart, strict=True)]
    weights = [1.0 / (1.0 + misfit / sorted(misfits)[3]) for misfit in misfits]
    np.testing.assert_allclose(left, [w * b for w, b in zip(weights, apart, strict=True)], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(left.sum(axis=0), weak @ mean, rtol=1e-4, atol=1e-6)
    total = sum(w * a for w, a in zip(weights, information, strict=True)) + weak
    np.testing.assert_allclose(covariance @ total, np.eye(6), atol=1e-4)
    assert np.argmin(weights) == 2


@dataclass
class Stated:
    """Frames that state deformations by themselves, each with the same information, and which pixels were asked."""

    monkeypatch: pytest.MonkeyPatch
    entries: Array
    scatter: Array = field(default_factory=lambda: np.zeros(6))
    asked: list[dict[int, Pose]] = field(default_factory=list)
    fitted: list[int] = field(default_factory=list)
    lost: int = -1

    def measure(self, count: int = 8, camera: Camera = CAMERA, **config: Any) -> Proportions | None:
        self.monkeypatch.setattr(module, "_of_frame", self._of_frame)
        self.monkeypatch.setattr(module, "_agreement", self._agreement)
        self.monkeypatch.setattr(module.Solid, "of", lambda mesh: None)
        frames: Any = range(count + 2)
        distance_m = np.array([1.0, 9.0, *np.linspace(1.5, 2.5, count)])
        poses = Pose(np.tile(np.eye(3), (count + 2, 1, 1)), distance_m[:, None] * np.array([0.0, 0.6, 0.8]))
        poses.translation[1] = np.nan
        return proportions(poses, np.arange(count + 2) > 0, frames, camera, BOX, None, ProportionsConfig(**config))

    def _of_frame(self, frame: int, camera: Camera, solid: Any, pose: Pose, config: Any, path_px: Any) -> Any:
        assert path_px == (0.0, 0.0)
        self.fitted.append(frame)
        if frame == self.lost:
            return None
        entries = self.entries + self.scatter * (1.0 if frame % 2 else -1.0)
        return 1e12 * np.eye(6), 1e12 * entries

    def _agreement(self, frames: Any, camera: Camera, solid: Any, deformation: Array, tracked: Any) -> float:
        self.asked.append(tracked)
        np.testing.assert_allclose(deformation, _symmetric(self.entries), atol=1e-6)
        return 0.75


def test_the_ratio_is_that_of_the_longest_and_the_shortest_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is longer along x and shorter along z: no corner is off by more than by both together."""
    found = Stated(monkeypatch, np.array([0.25, 0.10, -0.05, 0.0, 0.0, 0.0])).measure()
    assert found is not None
    assert found.ratio == pytest.approx(np.exp(0.30))
    off_m = np.hypot(0.15 * 0.5 * SIDES[0], 0.15 * 0.5 * SIDES[2])  # beside the mean of 0.1, which is the distance
    assert found.off_px == pytest.approx(off_m * 500.0 / 2.0)
    assert found.agreement == 0.75
    assert found.std == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("entry", "slope"), [(0, 1.0), (2, 1.0), (1, 0.0), (4, 0.0), (5, 0.0)])
def test_the_error_is_the_scatter_between_frames(entry: int, slope: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of n values that scatter by s is known to s / sqrt(n)."""
    scatter = 0.003 * np.eye(6)[entry]
    found = Stated(monkeypatch, np.array([0.2, 0.0, -0.1, 0.0, 0.0, 0.0]), scatter).measure()
    assert found is not None
    assert found.std == pytest.approx(slope * 0.003 / np.sqrt(8.0), abs=1e-6)


def test_the_error_of_axes_between_those_of_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shear by b has the axes b and -b: their difference changes twice as much as b."""
    found = Stated(monkeypatch, 0.2 * np.eye(6)[3], 0.003 * np.eye(6)[3]).measure()
    assert found is not None
    assert found.ratio == pytest.approx(np.exp(0.4))
    assert found.std == pytest.approx(2.0 * 0.003 / np.sqrt(8.0), abs=1e-6)


@pytest.mark.parametrize(("stretch", "moves", "asks"), [
    (1.07, False, True),
    (1.05, False, False),
    (1.07, True, False),
])  # fmt: skip
def test_pixels_are_asked_of_other_proportions_before_a_static_camera(
    stretch: float, moves: bool, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    poses = np.tile(np.eye(4), (10, 1, 1)) if moves else np.eye(4)
    stated = Stated(monkeypatch, np.log(stretch) * np.eye(6)[1])
    found = stated.measure(camera=replace(CAMERA, camera_to_world=poses), judged_ratio=1.06, judged_frames=3)
    assert found is not None
    assert (found.agreement is not None) == asks
    assert [list(tracked) for tracked in stated.asked] == ([[2, 5, 9]] if asks else [])


@pytest.mark.parametrize(("count", "lost", "measures"), [(4, -1, True), (3, -1, False), (4, 3, False), (5, 3, True)])
def test_four_frames_are_enough(count: int, lost: int, measures: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = Stated(monkeypatch, np.zeros(6), lost=lost)
    assert (stated.measure(count, least_frames=4) is not None) == measures
    assert sorted(stated.fitted) == list(range(2, count + 2))  # not the frame that is lost, nor that without a pose


def test_some_frames_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = Stated(monkeypatch, np.zeros(6))
    stated.measure(9, frames=5)
    assert sorted(stated.fitted) == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(("mesh_nats", "other_nats", "share"), [
    ([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 3.0], 0.25),
    (None, [1.0], None),
    ([1.0], None, None),
])  # fmt: skip
def test_the_agreement_is_the_share_of_frames_that_the_deformed_mesh_explains_better(
    mesh_nats: Any, other_nats: Any, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies, answers = list[Any](), iter((mesh_nats, other_nats))

    def evidence(frames: Any, camera: Any, body: Any, foreground: Any, tracked: Any) -> Array | None:
        bodies.append(body)
        nats = next(answers)
        return None if nats is None else np.array(nats)

    monkeypatch.setattr(module, "surface_evidence", evidence)
    monkeypatch.setattr(module.Solid, "of", lambda mesh: SimpleNamespace(mesh=mesh))
    monkeypatch.setattr(module.Foreground, "of", lambda frames, rows: None)
    nothing: Any = None
    solid: Any = SimpleNamespace(mesh=BOX)
    assert _agreement(nothing, CAMERA, solid, np.diag([0.1, 0.0, -0.2]), {4: POSE}) == share
    assert bodies[0] is solid
    np.testing.assert_allclose(bodies[1].mesh.vertices, MIDDLE + (CORNERS - MIDDLE) * [1.1, 1.0, 0.8])
