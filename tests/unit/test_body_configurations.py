"""Configurations of modal and articulated bodies: limits, priors, drawn motions and keypoints, beside closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vid2phys.engine.movable.body import CameraRange, bounding_sphere
from vid2phys.engine.movable.joints import JointBody, _between, _cross, _lever, _tip
from vid2phys.engine.movable.modes import ModalBody, Motions, spine_points, turned_about_vertical
from vid2phys.engine.movable.moved_base import MovedBase
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rod import Rod
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Array, Mesh

ROD = Rod((4, 1, 1), elements="linear")
STEP_S = 0.1
SCALES = np.array([0.2, 0.5])  # of the modes: y and z per metre along the rod


def amplitudes() -> Array:
    """Two motions whose amplitudes grow steadily: 1 + t and 2 (1 + t), and three times as much."""
    growing = 1.0 + STEP_S * np.arange(11)
    return np.stack([np.outer(growing, [1.0, 2.0]), np.outer(3.0 * growing, [1.0, 2.0])])


@pytest.fixture(scope="module")
def rod() -> ModalBody:
    """A rod whose modes are linear along it, so that elements interpolate them exactly."""
    along = ROD.rest_m[:, 0] - ROD.rest_m[:, 0].min()
    modes = np.zeros((2, len(ROD.rest_m), 3))
    modes[0, :, 1], modes[1, :, 2] = SCALES[0] * along, SCALES[1] * along
    return ModalBody(ROD, Motions(ROD.rest_m, ROD.elements, modes, amplitudes(), STEP_S, 0.0))


@pytest.fixture(scope="module")
def arm() -> JointBody:
    return JointBody(get("articulated"))


def moved(points: Array, configuration: Array) -> Array:
    """Points of the rod that its two modes move."""
    along = points[:, 0] - ROD.rest_m[:, 0].min()
    return points + np.stack([0.0 * along, *(SCALES * configuration)[:, None] * along], axis=1)


def test_modes_move_vertices_and_points(rod: ModalBody) -> None:
    configuration, rates = np.array([0.3, -0.4]), np.array([1.0, 2.0])
    np.testing.assert_allclose(rod.points(configuration), moved(rod.points_body, configuration), atol=1e-9)
    np.testing.assert_allclose(rod.vertices(configuration), moved(ROD.rest_m, configuration), atol=1e-9)
    both = np.stack([configuration, 2.0 * configuration])
    assert rod.points(both).shape == (2, len(rod.points_body), 3)
    slopes = rod.points_jacobian(both)
    np.testing.assert_allclose(slopes[1] @ configuration, rod.points(both)[1] - rod.points(both)[0], atol=1e-9)
    own = rod.jacobian(configuration, np.array([3, 5]))
    np.testing.assert_allclose(own @ configuration, (rod.vertices(both[1]) - rod.vertices(both[0]))[[3, 5]], atol=1e-9)
    state = rod.states(configuration, rates)
    np.testing.assert_allclose(ROD.positions(state), rod.vertices(configuration), atol=1e-9)
    np.testing.assert_allclose(ROD.velocities(state), moved(ROD.rest_m, rates) - ROD.rest_m, atol=1e-9)
    np.testing.assert_allclose(rod.configurations(np.stack([state, state])), [configuration] * 2, atol=1e-9)


def test_limits_and_prior_are_those_of_the_simulated_motions(rod: ModalBody) -> None:
    largest = np.abs(amplitudes()).max(axis=(0, 1))
    np.testing.assert_allclose([rod.upper, -rod.lower], 1.5 * np.stack([largest] * 2))
    np.testing.assert_allclose(rod.prior_std, 2.0 * np.sqrt((amplitudes() ** 2).mean(axis=(0, 1))))
    assert not rod.rest.any()
    assert not rod.prior_mean.any()
    reached = np.stack([rod.vertices(each) for each in amplitudes().reshape(-1, 2)])
    assert (np.linalg.norm(reached - rod.center_m, axis=-1) <= rod.radius_m + 1e-9).all()


def test_drawn_configurations_are_near_those_of_motions(rod: ModalBody) -> None:
    """All have twice as much of the second mode, but for a twentieth of the prior; 0.4 to 1.15 times as large."""
    rng = np.random.default_rng(0)
    drawn = np.array([rod.sample(rng) for _ in range(2000)])
    off = drawn[:, 1] - 2.0 * drawn[:, 0]
    expected = 0.05 * np.hypot(rod.prior_std[1], 2.0 * rod.prior_std[0])
    assert off.std() == pytest.approx(expected, rel=0.1)
    assert abs(off.mean()) < 4.0 * expected / np.sqrt(2000.0)
    mean = amplitudes()[..., 0].mean() * 0.5 * (0.4 + 1.15)
    assert drawn[:, 0].mean() == pytest.approx(mean, rel=0.05)
    assert drawn[:, 0].max() < 1.15 * 6.0 + 5.0 * 0.05 * rod.prior_std[0]


def test_drawn_motions_are_pieces_of_those_simulated(rod: ModalBody) -> None:
    """A piece of 0.4 s of 1 s, 0.6 to 1.1 times as large; the clock of a clip may begin anywhere."""
    rng, times = np.random.default_rng(1), 7.0 + np.linspace(0.0, 0.4, 9)
    begins, scales = [], []
    for _ in range(200):
        found = rod.sample_motion(rng, times)
        np.testing.assert_allclose(found[:, 1], 2.0 * found[:, 0])
        np.testing.assert_allclose(np.diff(found[:, 0], 2), 0.0, atol=1e-9)
        slope = (found[-1, 0] - found[0, 0]) / 0.4
        scale = slope if slope < 1.5 else slope / 3.0
        begins.append(found[0, 0] / slope - 1.0)
        scales.append(scale)
    assert 0.0 <= min(begins) < 0.05
    assert 0.55 < max(begins) <= 0.6 + 1e-9
    assert 0.6 <= min(scales) < 0.63
    assert 1.07 < max(scales) <= 1.1
    long = rod.sample_motion(rng, np.linspace(0.0, 5.0, 51))
    np.testing.assert_allclose(long[11:], long[[10]].repeat(40, axis=0), err_msg="longer than the motion: its end")


def test_a_rod_has_keypoints_along_its_axis_and_edges(rod: ModalBody) -> None:
    points = spine_points(ROD)
    assert len(points) == 10 + 4 * 4
    np.testing.assert_array_equal(points[:10], ROD.spine_m)
    for four in points[10:].reshape(4, 4, 3):
        middle = four.mean(axis=0)
        assert np.linalg.norm(ROD.spine_m - middle, axis=1).min() == pytest.approx(0.0, abs=1e-12)
        np.testing.assert_allclose(np.abs(four - middle), [[0.0, *0.5 * np.asarray(ROD.size_m)[1:]]] * 4, atol=1e-12)
        assert len({tuple(np.sign(np.round(row, 9))) for row in four - middle}) == 4
    assert rod.half_turn is not None
    flipped = points * [-1.0, -1.0, 1.0]
    np.testing.assert_allclose(points[rod.half_turn], flipped, atol=1e-9)


def test_points_without_the_symmetry_are_refused() -> None:
    with pytest.raises(ValueError, match="180 degrees"):
        turned_about_vertical(np.array([[0.1, 0.0, 0.0], [-0.1, 0.0, 0.1]]))
    np.testing.assert_array_equal(turned_about_vertical(np.array([[0.1, 0.2, 0.3], [-0.1, -0.2, 0.3]])), [1, 0])


def test_joints_have_a_flat_prior_within_their_limits(arm: JointBody) -> None:
    robot = arm.system.robot
    half = 0.5 * (robot.upper - robot.lower)
    limited = np.isfinite(half)
    np.testing.assert_allclose(arm.prior_mean[limited], (0.5 * (robot.upper + robot.lower))[limited])
    np.testing.assert_allclose(arm.prior_std[limited], half[limited] / np.sqrt(3.0))
    soft = 0.03 * 2.0 * half[limited]
    np.testing.assert_allclose(arm.upper[limited], robot.upper[limited] + soft)
    np.testing.assert_allclose(arm.lower[limited], robot.lower[limited] - soft)
    assert np.isinf(arm.upper[~limited]).all()
    assert np.isinf(arm.lower[~limited]).all()


def test_drawn_joints_stay_within_their_limits_and_use_them(arm: JointBody) -> None:
    rng = np.random.default_rng(2)
    drawn = np.array([arm.sample(rng) for _ in range(600)])
    assert (drawn >= arm.lower).all()
    assert (drawn <= arm.upper).all()
    half = np.sqrt(3.0) * arm.prior_std
    shares = (drawn - arm.prior_mean) / half
    assert (shares.min(axis=0) < -0.8).all()
    assert (shares.max(axis=0) > 0.8).all()
    times = np.linspace(0.0, 2.0, 201)
    for _ in range(10):
        motion = arm.sample_motion(rng, times)
        assert (motion >= arm.lower).all()
        assert (motion <= arm.upper).all()
        assert np.ptp(motion, axis=0).max() > 0.0
        fastest = 3.0 * 0.25 * half * 2.0 * np.pi * 2.5  # three sines of a quarter of the range and 2.5 Hz at most
        assert (np.abs(np.diff(motion, axis=0)) / 0.01 <= fastest + 1e-9).all()


def test_two_keypoints_of_a_link_are_apart(arm: JointBody) -> None:
    """Each joint moves the first point of its link by a share of what it moves any vertex."""
    mesh, system = arm.mesh, arm.system
    rotated, placed = system.frames(system.drawn_state())
    links = [n for n in range(1, len(system.robot.parents)) if (mesh.part == n).any()]
    assert len(arm.points_body) == 2 * len(links)
    for link, (first, second) in zip(links, arm.points_body.reshape(-1, 2, 3), strict=True):
        vertices = mesh.vertices[np.unique(mesh.faces[mesh.part == link])]
        axis = rotated[link] @ system.robot.axes[link]
        lever = np.linalg.norm(np.cross(vertices - placed[link], axis), axis=1).max()
        assert np.linalg.norm(np.cross(first - placed[link], axis)) >= 0.5 * lever - 1e-12
        away = np.linalg.norm(vertices - first, axis=1).max()
        assert np.linalg.norm(second - first) > 0.35 * away


def test_large_faces_have_places_between_their_corners() -> None:
    """A triangle with legs of 1, at a distance of 0.5: thirds of its edges and its middle. A small one has none."""
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [5, 0, 0], [5.1, 0, 0], [5, 0.1, 0]])
    mesh = Mesh(vertices, np.array([[3, 4, 5], [0, 1, 2]]), np.zeros(2, dtype=np.int64), ("body",), np.ones((2, 3)))
    places, of = _between(mesh, 0.5)
    np.testing.assert_array_equal(of, [1] * 10)
    expected = sorted((i / 3.0, j / 3.0, 0.0) for i in range(4) for j in range(4 - i))
    np.testing.assert_allclose(sorted(map(tuple, places)), expected, atol=1e-12)
    assert len(_between(mesh, 2.0)[0]) == 0
    many, _ = _between(mesh, 1e-3)
    assert len(many) == 2 * 41 * 42 // 2, "forty steps at most"


def test_levers_crosses_and_tips() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 5, 3))
    np.testing.assert_allclose(_cross(a, b), np.cross(a, b))
    at = _lever(np.array([[3.0, 4.0, 7.0]]), np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(at, [5.0])
    box = np.array([[x, y, z] for x in (0.0, 0.95, 1.0) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
    np.testing.assert_allclose(_tip(box, np.zeros(3)), [0.975, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(_tip(box, np.array([2.0, 0.0, 0.0])), [0.0, 0.0, 0.0], atol=1e-12)


def test_a_moved_base_carries_its_body(arm: JointBody) -> None:
    """It is shifted, and rotates about the pivot, which stays where the shift has it."""
    pivot = np.array([0.1, 0.2, 0.3])
    base = MovedBase(arm, pivot, 0.05, 0.02)
    own = arm.sample(np.random.default_rng(4))
    at = np.concatenate([[0.01, -0.02, 0.03], [0.01, 0.015, -0.02], own])
    rotation = matrix_from_rotvec(at[3:6])
    expected = (arm.points(own) - pivot) @ rotation.T + pivot + at[:3]
    np.testing.assert_allclose(base.points(at), expected, atol=1e-12)
    np.testing.assert_allclose(base.all_vertices(at[None])[0], base.vertices(at), atol=1e-12)
    assert base.is_angle.tolist() == [False] * 3 + [True] * 3 + arm.is_angle.tolist()
    np.testing.assert_allclose(base.upper[:6], [0.05] * 3 + [0.02] * 3)
    np.testing.assert_allclose(base.lower[:6], -base.upper[:6])
    np.testing.assert_allclose(base.prior_std[:6], base.upper[:6] / np.sqrt(3.0))
    motion = base.sample_motion(np.random.default_rng(5), np.linspace(0.0, 1.0, 4))
    np.testing.assert_array_equal(motion[:, :6], motion[[0]].repeat(4, axis=0)[:, :6])
    assert (np.abs(motion[:, :6]) <= base.upper[:6]).all()
    state = base.states(at, 0.0 * at)
    np.testing.assert_array_equal(base.configurations(state), [0.0] * 6 + own.tolist())
    shifted = MovedBase(arm, pivot, 0.05)
    assert shifted.names[:3] == ("base_move_x", "base_move_y", "base_move_z")
    np.testing.assert_allclose(
        shifted.points(np.append([0.0, 0.0, 0.02], own)), arm.points(own) + np.array([0, 0, 0.02])
    )


def test_steps_go_the_shorter_way_round(arm: JointBody) -> None:
    free = replace_limits(arm)
    step = free.difference(np.full(len(arm.names), 3.0), np.full(len(arm.names), -3.0))
    round_about = free.is_angle & np.isinf(free.upper)
    np.testing.assert_allclose(step[round_about], 2.0 * np.pi - 6.0)
    np.testing.assert_allclose(step[~round_about], -6.0)
    np.testing.assert_allclose(free.periods, np.where(round_about, 2.0 * np.pi, 0.0))
    np.testing.assert_allclose(arm.retract(arm.upper, np.ones(len(arm.names))), arm.upper)


def replace_limits(arm: JointBody) -> JointBody:
    """The same arm with a first joint without limits."""
    free = JointBody.__new__(JointBody)
    free.__dict__.update(arm.__dict__)
    free.lower, free.upper = arm.lower.copy(), arm.upper.copy()
    free.lower[0], free.upper[0] = -np.inf, np.inf
    return free


def test_a_sphere_holds_all_points() -> None:
    center, radius = bounding_sphere(np.array([[[0.0, 0, 0], [2, 0, 0]], [[0, 4, 0], [0, 0, 0]]]))
    np.testing.assert_array_equal(center, [1.0, 2.0, 0.0])
    assert radius == pytest.approx(np.sqrt(5.0))


def test_cameras_look_from_within_their_range() -> None:
    """Azimuths of 170 to 190 degrees cross the half of the circle."""
    cameras = CameraRange(azimuth=(180.0, 10.0), elevation=(0.0, 30.0))

    def towards(azimuth: float, elevation: float) -> Array:
        a, e = np.radians([azimuth, elevation])
        return 3.0 * np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), np.sin(e)])

    for azimuth, elevation, inside in (
        (-175.0, 15.0, True), (175.0, 15.0, True), (-171.0, 15.0, True), (-169.0, 15.0, False), (168.0, 15.0, False),
        (180.0, -1.0, False), (180.0, 31.0, False), (180.0, 29.0, True),
    ):  # fmt: skip
        assert cameras.contains(towards(azimuth, elevation), margin=0.0) is inside, (azimuth, elevation)
    assert cameras.contains(towards(-163.0, 37.0))
    assert not cameras.contains(towards(-161.0, 15.0))
    assert CameraRange.from_json(cameras.to_json()) == replace(cameras)
