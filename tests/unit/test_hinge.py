"""A body on a hinge: its poses and steps beside closed forms, a start from a track with false tilts, surfaces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from benchmarks.coverage.cases import box
from tests.swinging_bar import CAMERA, LENGTH_M, PIVOT, images, in_camera, mesh_of, swing
from vid2phys.engine.movable.hinged import Hanging, HingedBody, as_hung
from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.surfaces import Backdrop, PoseModel, Textured, pose_model
from vid2phys.tracking.hinge import (
    DEFAULTS,
    SIZE,
    Hinge,
    HingeStart,
    _distinct,
    _Images,
    _proposals,
    adjusted,
    axes_apart,
    hinge_starts,
    perpendicular,
    principal_axes,
    rolled_starts,
    snapped,
)
from vid2phys.tracking.hinge_config import DEFAULTS as TRACKER
from vid2phys.tracking.hinge_tracker import Candidate, HingeImages
from vid2phys.types import Mesh


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    return mesh_of(tmp_path_factory.mktemp("bar") / "bar.obj")


def hinge() -> Hinge:
    motion = swing(2)
    return Hinge(in_camera(motion)[0], np.array([0.0, 1.0, 0.0]), np.array([-LENGTH_M, 0.0, 0.0]))


def test_poses_turn_about_the_axis() -> None:
    motion = swing(30)
    poses, truth = hinge().poses(motion.angles - motion.angles[0]), in_camera(motion)
    np.testing.assert_allclose(poses.rotation, truth.rotation, atol=1e-9)
    np.testing.assert_allclose(poses.translation, truth.translation, atol=1e-9)


def test_slopes_are_those_of_differences() -> None:
    body, angles, step = hinge(), np.array([0.2, -0.7]), 1e-4
    slopes = body.slopes(angles)
    rng = np.random.default_rng(1)
    way = rng.normal(size=SIZE + 1)
    moved = body.retract(step * way[:SIZE]).poses(angles + step * way[SIZE])
    np.testing.assert_allclose(body.poses(angles).step_to(moved) / step, slopes @ way, atol=2e-3)


def test_steps_lead_to_the_hinge_that_all_poses_share() -> None:
    motion, truth = swing(25), hinge()
    poses, angles = in_camera(motion), motion.angles - motion.angles[0]
    at, guess = truth.retract(np.random.default_rng(2).normal(0.0, 0.02, SIZE)), angles + 0.02
    for _ in range(20):
        off = at.poses(guess).step_to(poses)
        found = adjusted(at, guess, np.tile(np.eye(6), (25, 1, 1)), off)
        at, guess = found.hinge, found.angles
    np.testing.assert_allclose(at.poses(guess).translation, poses.translation, atol=1e-6)
    assert found.moved < 1e-6
    pivot = at.poses(guess).apply(at.point[None])[:, 0]
    np.testing.assert_allclose(pivot, np.tile(pivot[:1], (25, 1)), atol=1e-9)


def test_a_frame_with_the_body_behind_the_camera_states_nothing() -> None:
    body = hinge()
    nearer = body.place.inverse().apply(0.45 * body.place.translation[None])[0]
    far = replace(body, axis=body.place.rotation[1], point=nearer)  # upright before the camera
    angles = np.linspace(0.0, 2.0 * np.pi, 24)
    behind = far.poses(angles).translation[:, 2] <= 0.0
    assert behind.any()
    assert not behind.all()
    found = adjusted(far, angles, np.tile(np.eye(6), (24, 1, 1)), np.full((24, 6), 1e-3), most=0.1)
    assert np.isfinite(found.hinge.place.translation).all()
    np.testing.assert_array_equal(found.angles[behind], angles[behind])


def test_a_longer_step_goes_the_same_way() -> None:
    body, angles = hinge(), np.array([0.2, -0.7, 0.4])
    pull = 1e-4 * np.random.default_rng(4).normal(size=(3, 6))
    found = adjusted(body, angles, np.tile(np.eye(6), (3, 1, 1)), pull)
    twice, turned = found.longer(2.0)
    np.testing.assert_allclose(turned - angles, 2.0 * (found.angles - angles), atol=1e-12)
    np.testing.assert_allclose(twice.point - body.point, 2.0 * (found.hinge.point - body.point), atol=1e-7)


def test_an_axis_is_moved_to_that_of_the_body() -> None:
    body, known = hinge(), np.eye(3)
    tilted = body.retract(np.array([0.0] * 6 + [0.1, -0.05, 0.0, 0.0]))
    for found in snapped(tilted, known, np.zeros(3), DEFAULTS):
        np.testing.assert_allclose(found.axis, [0.0, 1.0, 0.0], atol=1e-12)
    _, moved = snapped(tilted, known, np.zeros(3), DEFAULTS)
    np.testing.assert_allclose(moved.place.rotation @ moved.axis, tilted.place.rotation @ tilted.axis, atol=1e-9)
    oblique = replace(body, axis=np.full(3, 3.0**-0.5))
    assert snapped(oblique, known, np.zeros(3), DEFAULTS) == []


def test_a_start_is_found_where_the_tilt_of_most_poses_is_false(mesh: Mesh) -> None:
    motion, rng = swing(60), np.random.default_rng(3)
    truth = in_camera(motion)
    tilt = rng.normal(0.0, 0.15, 60)[:, None] * np.array([0.7, 0.7, 0.0])
    poses = Pose(matrix_from_rotvec(tilt) @ truth.rotation, truth.translation * (1.0 + 0.02 * rng.normal(size=(60, 1))))
    best = hinge_starts(poses, shape_of(mesh, "pendulum"), mesh.radius_m, principal_axes(mesh))[0]
    axis = best.hinge.place.rotation @ best.hinge.axis
    known = np.asarray(CAMERA.camera_to_world)[:3, :3].T @ motion.axis
    assert np.degrees(np.arccos(abs(axis @ known))) < 12.0
    assert best.agreement > 0.8


def test_a_rolled_hinge_is_the_same_before_the_camera(mesh: Mesh) -> None:
    body, angles, shape = hinge(), np.array([0.2, -0.7]), shape_of(mesh, "pendulum")
    (rolled,) = rolled_starts(HingeStart(body, angles, 1.0), shape, mesh.vertices)  # half a rotation is a symmetry
    points = mesh.vertices @ np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    for k, moved in enumerate(rolled.hinge.poses(angles).apply(mesh.vertices)):
        apart = np.linalg.norm(moved[:, None] - body.poses(angles)[k].apply(points)[None], axis=-1)
        np.testing.assert_allclose(apart.min(axis=1), 0.0, atol=1e-9)
    before, after = (each.place.rotation @ each.axis for each in (body, rolled.hinge))
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_hanging_measures_length_tilt_and_angle() -> None:
    motion = swing(10, tilt_rad=0.3)
    for k in (0, 9):
        at = Hanging.of(motion.poses.translation[k], PIVOT + 0.05 * motion.axis, motion.axis)
        np.testing.assert_allclose(at.world_from_swing.translation, PIVOT, atol=1e-12)
        assert (at.length, at.tilt, at.angle) == pytest.approx((LENGTH_M, 0.3, motion.angles[k]))
    with pytest.raises(ValueError, match="vertical"):
        Hanging.of(np.ones(3), np.zeros(3), np.array([0.0, 0.0, 1.0]))


def test_a_hinged_body_is_where_its_poses_are(mesh: Mesh) -> None:
    motion = swing(10, tilt_rad=0.2)
    at = Hanging.of(motion.poses.translation[4], PIVOT, motion.axis)
    vertices = as_hung(mesh.vertices, motion.poses[4], at)
    system = Pendulum().placed(at.world_from_swing)
    body = HingedBody(system, Mesh(vertices, mesh.faces, "bar"), vertices)
    for k in (0, 4, 9):
        shown = body.vertices(motion.angles[k : k + 1])
        np.testing.assert_allclose(shown, motion.poses[k].apply(mesh.vertices), atol=1e-9)
    some, step = np.array([0, 3]), 1e-6
    ahead, behind = (body.vertices(np.array([0.4 + s * step]))[some] for s in (1, -1))
    slope = (ahead - behind) / (2.0 * step)
    np.testing.assert_allclose(body.jacobian(np.array([0.4]), some)[..., 0], slope, atol=1e-6)
    position, quat = system.body_pose(np.array([0.4, 0.0]))
    turned = at.world_from_swing.rotation @ Rotation.from_rotvec([0.0, 0.4, 0.0]).as_matrix()
    np.testing.assert_allclose(Rotation.from_quat(quat[[1, 2, 3, 0]]).as_matrix(), turned, atol=1e-9)
    np.testing.assert_allclose(position, PIVOT, atol=1e-12)


def test_surfaces_lead_to_the_pose(mesh: Mesh, tmp_path: Path) -> None:
    motion = swing(24)
    frames, poses, solid = images(motion, mesh), in_camera(motion), Solid.of(mesh)
    nowhere = [np.zeros(frame.shape[:2], bool) for frame in frames]
    backdrop = Backdrop.of(frames, nowhere, CAMERA, mesh, poses, 2)
    assert backdrop.known.mean() > 0.95
    false = np.array([0.02, -0.02, 0.01, 0.001, -0.001, 0.01])
    pose = poses[10].retract(false)
    first = pose_model(frames[10], backdrop, CAMERA, Textured.of(solid), pose)
    assert first is not None
    found = first
    for _ in range(12):
        pose = pose.retract(np.linalg.solve(found.information, found.pull))
        again = pose_model(frames[10], backdrop, CAMERA, Textured.of(solid), pose)
        assert again is not None
        found = again
    assert found.gain > first.gain
    quick = pose_model(frames[10], backdrop, CAMERA, Textured.of(solid), pose, gain_only=True)
    assert quick is not None
    assert quick.gain == pytest.approx(found.gain, rel=0.02)  # that of the step before
    off = poses[10].step_to(pose)
    assert (np.abs(off) < np.array([0.02, 0.02, 0.002, 3e-4, 3e-4, 4e-3])).all(), off


def test_a_joint_that_is_no_hinge_explains_few_frames(mesh: Mesh) -> None:
    motion = swing(60)
    truth, shape = in_camera(motion), shape_of(mesh, "pendulum")
    assert hinge_starts(truth, shape, mesh.radius_m, principal_axes(mesh))[0].agreement == 1.0
    times = motion.times_s
    aside = np.stack([0.06 * np.sin(9.0 * times), 0.05 * np.cos(13.0 * times), np.zeros(60)], axis=1)
    loose = Pose(truth.rotation, truth.translation + aside)
    assert hinge_starts(loose, shape, mesh.radius_m, principal_axes(mesh))[0].agreement < 0.85


def test_angles_of_all_frames_follow_those_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of ten rounds adds 0.01 rad a frame; frames between those that are compared are interpolated."""
    config = replace(TRACKER, reaches=(8.0, 4.0, 2.0), start_rounds=7)
    tracked = object.__new__(HingeImages)
    vars(tracked).update(frames=range(21), config=config)
    rows, start = np.array([0, 10, 20]), HingeStart(hinge(), np.sin(np.arange(21.0)), 1.0)
    stepped = lambda _, at, angles, rows, cue, most: SimpleNamespace(hinge=at, angles=angles + 0.01 * rows)  # noqa: E731
    monkeypatch.setattr(HingeImages, "_stepped", stepped)
    monkeypatch.setattr(HingeImages, "finer", lambda _, found, rows: Candidate(found, 0.0))
    found = tracked.by_edges(start, rows).start
    np.testing.assert_allclose(found.angles, start.angles + 0.1 * np.arange(21))


def test_a_hinge_explains_frames_as_well_within_a_share_and_where_something_shows() -> None:
    tracked = object.__new__(HingeImages)
    vars(tracked).update(config=replace(TRACKER, start_frames=5, worse_share=0.1))
    gains = [[10.0, 5.0, None, None, -1.0], [10.5, 10.0, None, 3.0, -2.0]]  # on the hinge, and free
    on, free = (Pose(np.tile(np.eye(3), (5, 1, 1)), np.full((5, 3), float(k))) for k in (0, 1))

    def cue(frame: int, pose: Pose, *, gain_only: bool) -> PoseModel | None:
        assert gain_only
        gain = gains[int(pose.translation[0])][frame]
        return None if gain is None else PoseModel(np.zeros((6, 6)), np.zeros(6), gain)

    track: Any = SimpleNamespace(tracked=np.ones(5, dtype=bool), poses=SimpleNamespace(pose=free))
    assert tracked._as_well(on, track, cue) == 2 / 5


def test_axes_of_a_body_are_those_of_its_surface(mesh: Mesh) -> None:
    turned = replace(mesh, vertices=mesh.vertices @ Rotation.from_rotvec([0.3, -0.2, 0.5]).as_matrix().T + 0.7)
    for each, expected in ((mesh, np.eye(3)), (turned, Rotation.from_rotvec([0.3, -0.2, 0.5]).as_matrix().T)):
        np.testing.assert_allclose(np.abs(principal_axes(each) @ expected.T), np.eye(3)[::-1], atol=1e-9)


def test_two_vectors_across_an_axis_are_at_right_angles() -> None:
    for axis in (np.array([0.0, 0.0, 1.0]), np.array([0.6, 0.0, -0.8]), np.full(3, 3.0**-0.5)):
        np.testing.assert_allclose(
            np.column_stack([perpendicular(axis), axis]).T @ perpendicular(axis), np.eye(3)[:, :2], atol=1e-12
        )


def test_the_angle_between_axes_has_no_direction() -> None:
    body = hinge()
    for angle in (0.0, 0.3, 1.2):
        other = replace(
            body,
            place=Pose(
                matrix_from_rotvec(np.array([[angle, 0.0, 0.0]]))[0] @ body.place.rotation, body.place.translation
            ),
        )
        direction = body.place.rotation @ body.axis
        expected = np.arccos(min(1.0, abs(direction @ (other.place.rotation @ other.axis))))
        assert axes_apart(body, other) == pytest.approx(expected, abs=1e-7)
        assert axes_apart(body, replace(other, axis=-other.axis)) == pytest.approx(expected, abs=1e-7)


def test_starts_agree_nearly_as_often_as_the_best_one(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [HingeStart(hinge(), np.zeros(3), agreement) for agreement in (0.9, 0.55, 0.53)]
    on_axes, asked = [HingeStart(hinge(), np.zeros(3), 0.2)], list[tuple[int, bool]]()

    def best(hinges: list[Hinge], rows: object, most: int, fixed: bool) -> list[HingeStart]:
        asked.append((most, fixed))
        return on_axes if fixed else free

    monkeypatch.setattr(_Images, "of", lambda *_: SimpleNamespace(best=best))
    monkeypatch.setattr("vid2phys.tracking.hinge._proposals", lambda *_: [])
    found = hinge_starts(in_camera(swing(12)), shape_of(mesh, "pendulum"), mesh.radius_m, np.eye(3))
    assert found == [*free[:2], *on_axes], "six tenths"
    assert asked == [(3, False), (3, True)]


def test_proposals_with_different_axes_are_refined() -> None:
    body = hinge()
    tilted = [body.retract(np.array([angle, *[0.0] * 9])) for angle in np.repeat(0.11 * np.arange(14), 2)]
    scored = [((float(k), np.zeros(1)), each) for k, each in enumerate(tilted)]
    kept = [round(cost) for (cost, _), _ in _distinct(scored, DEFAULTS)]
    assert kept == list(range(0, 24, 2)), "the better of each two, twelve at most"


def test_pairs_of_frames_propose_the_hinge(mesh: Mesh) -> None:
    motion = swing(40)
    shape = replace(shape_of(mesh, "pendulum"), rotations=np.eye(3)[None])
    found = _proposals(in_camera(motion), shape, replace(DEFAULTS, pairs=30))
    assert len(found) == 30
    pivot = in_camera(motion)[0].apply(np.array([[-LENGTH_M, 0.0, 0.0]]))[0]
    for each in found:
        assert axes_apart(each, hinge()) < 1e-5
        np.testing.assert_allclose(each.point, [-LENGTH_M, 0.0, 0.0], atol=1e-6)
        np.testing.assert_allclose(each.place.apply(each.point[None])[0], pivot, atol=1e-6)
        assert abs(each.axis @ each.point) < 1e-9, "the point next to the origin"
    still = Pose.stack([in_camera(motion)[0]] * 5)
    assert _proposals(still, shape, DEFAULTS) == []


def test_a_hinge_is_scored_by_where_it_has_the_body_in_the_images(mesh: Mesh) -> None:
    motion, rows = swing(20), np.array([0, 7, 19])
    seen = _Images.of(in_camera(motion), shape_of(mesh, "pendulum"), mesh.radius_m, DEFAULTS)
    cost, angles = seen.scored(hinge(), rows)
    np.testing.assert_allclose(angles, (motion.angles - motion.angles[0])[rows], atol=np.pi / 90)
    assert cost < 0.2
    np.testing.assert_allclose(seen.cost(np.array([0.0, 0.06**2, 3.0 * 0.06**2])), [0.0, 0.5, 0.75])
    far, _ = seen.scored(replace(hinge(), point=hinge().point + 0.1 * np.eye(3)[0]), rows)
    assert far > cost + 0.1
    off = seen.off(in_camera(motion)[rows], rows)
    np.testing.assert_allclose(off, 0.0, atol=1e-9)
    refined_cost, start = seen.refined(hinge().retract(np.full(10, 0.01)), angles, rows)
    assert refined_cost < 0.2
    assert start.agreement == 1.0
    poses = start.hinge.poses(start.angles)
    np.testing.assert_allclose(seen.off(poses, np.arange(20)), 0.0, atol=5e-3)
    turned = seen._turned(hinge(), motion.angles - motion.angles[0] + 0.02, np.arange(20))
    np.testing.assert_allclose(turned, -0.02, atol=2e-3)
    np.testing.assert_allclose(
        np.abs(seen._turned(hinge(), motion.angles - motion.angles[0] + 0.9, np.arange(20))).max(), 0.2
    )


@pytest.mark.parametrize(
    ("point", "axis", "beside_m"),
    [
        ((-0.05, 9.0, 0.004), (0.0, 1.0, 0.0), 0.0),
        ((0.0, 0.0, 0.0), (0.3, 1.0, -0.2), 0.0),
        ((-0.111, 0.0, 0.0), (0.0, 1.0, 0.0), 0.011),
        ((0.103, 0.5, 0.014), (0.0, -1.0, 0.0), 0.005),
        ((9.0, 0.0, 0.03), (1.0, 0.0, 0.0), 0.02),
    ],
)
def test_an_axis_passes_through_a_body_or_beside_it(
    point: tuple[float, ...], axis: tuple[float, ...], beside_m: float
) -> None:
    """A bar of 200 x 40 x 20 mm: beside its end, beside an edge of it, and below it."""
    bar = box(np.array([0.2, 0.04, 0.02]))
    unit = np.array(axis) / np.linalg.norm(axis)
    found = Hinge(Pose(np.eye(3), np.array([0.0, 0.0, 1.0])), unit, np.array(point)).beside_m(bar)
    assert found == pytest.approx(beside_m, abs=1e-9)


def test_an_axis_in_the_plane_of_a_flat_mesh_passes_beside_its_edge() -> None:
    corners = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.1, 0.2, 0.0], [0.0, 0.2, 0.0]])
    sheet = Mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]), np.zeros(2, dtype=np.int64))
    axis = Hinge(Pose(np.eye(3), np.array([0.0, 0.0, 1.0])), np.array([0.0, 1.0, 0.0]), np.array([0.13, 0.0, 0.0]))
    assert axis.beside_m(sheet) == pytest.approx(0.03, abs=1e-9)


def test_an_axis_may_pass_through_a_hollow() -> None:
    """An L of two bars: its inner corner is within the hull, the point across from it is not."""
    long, short = box(np.array([0.2, 0.04, 0.02])), box(np.array([0.02, 0.04, 0.1]))
    vertices = np.concatenate([long.vertices, short.vertices + np.array([-0.09, 0.0, 0.06])])
    faces = np.concatenate([long.faces, short.faces + len(long.vertices)])
    bracket = Mesh(vertices, faces, np.zeros(len(faces), dtype=np.int64))
    across = np.array([0.0, 1.0, 0.0])
    place = Pose(np.eye(3), np.array([0.0, 0.0, 1.0]))
    assert Hinge(place, across, np.array([-0.05, 0.0, 0.04])).beside_m(bracket) == 0.0
    assert Hinge(place, across, np.array([0.05, 0.0, 0.09])).beside_m(bracket) > 0.01
