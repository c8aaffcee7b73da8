"""Colours of sides, and a texture that only the clip shows, refine poses, in drawn images of boxes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from tests.drawn_clip import images
from vid2phys.geometry import Pose
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.silhouette_fit import FrameForeground
from vid2phys.tracking.surface_refinement import (
    DEFAULTS,
    RefinedPoses,
    SurfaceRefinementConfig,
    _different,
    refine_by_surfaces,
    surface_evidence,
)
from vid2phys.types import Camera, Mesh

COUNT, WIDTH, HEIGHT = 16, 240, 160
CAMERA = Camera(
    np.array([[400.0, 0.0, 120.0], [0.0, 400.0, 80.0], [0.0, 0.0, 1.0]]), WIDTH, HEIGHT, camera_to_world=np.eye(4)
)


TIMES_S = np.arange(COUNT) / 60.0


def box() -> Mesh:
    made = trimesh.creation.box((0.1, 0.08, 0.06))
    faces = np.asarray(made.faces, np.int64)
    return Mesh(np.asarray(made.vertices), faces, np.zeros(len(faces), dtype=np.int64), name="box")


def motion() -> Pose:
    """Return poses of a box that rotates and crosses the frame."""
    at = np.arange(COUNT)[:, None]
    rotation = Rotation.from_rotvec(0.12 * at * [0.5, 0.6, 0.62] + [0.4, 0.3, 0.1]).as_matrix()
    return Pose(rotation, np.concatenate([-0.1 + 0.014 * at, 0.0 * at, 0.7 + 0.0 * at], axis=1))


def film(printed: bool, shaded: bool = False) -> FrameStore:
    """Return images of the box; a print of random squares, one colour a side, or one colour."""
    mesh = box()
    small = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).subdivide().subdivide()
    faces = np.asarray(small.faces, np.int64)
    colors = np.tile([0.5, 0.4, 0.3], (len(faces), 1))
    if printed:
        colors = np.random.default_rng(5).uniform(0.1, 0.9, (len(faces) // 4, 3)).repeat(4, axis=0)
    if shaded:
        light = np.array([[0.9, 0.5, 0.2, 0.7, 0.35, 1.1]]).T * [0.5, 0.4, 0.3]
        side = np.argmax(small.face_normals @ np.vstack([np.eye(3), -np.eye(3)]).T, axis=1)
        colors = light[side]
    drawn = images((pose.apply(np.asarray(small.vertices)) for pose in motion()), faces, colors, CAMERA)
    return FrameStore(ArrayFrames(np.stack(drawn)), WIDTH, HEIGHT)


def refined(frames: FrameStore, given: Pose, config: SurfaceRefinementConfig = DEFAULTS) -> RefinedPoses | None:
    mesh, masks = box(), {}
    foreground = Foreground.of(frames)
    for i in foreground.rows.tolist():
        drawing = draw(given[i].apply(mesh.vertices), mesh.faces)
        mask = None if drawing is None else drawing.in_frame(CAMERA)
        if mask is not None:
            masks[i] = mask
    tracked, solid, learned = {i: given[i] for i in range(COUNT)}, Solid.of(mesh), foreground.learned(masks)

    def seen(i: int) -> FrameForeground:
        return FrameForeground(frames[i], learned.log_ratio(frames[i]), CAMERA, solid)

    return refine_by_surfaces(
        frames, CAMERA, solid, learned, tracked, TIMES_S, seen, shape_of(mesh, "rigid_contact"), config
    )


def test_a_print_refines_poses_that_err_one_by_one() -> None:
    true = motion()
    errors = np.random.default_rng(3).normal(size=(COUNT, 6)) * [0.05, 0.05, 0.05, 0.002, 0.002, 0.01]
    found = refined(film(printed=True), true.retract(errors))
    assert found is not None
    assert found.is_textured
    assert list(found.poses) == list(range(COUNT))
    left = np.array([true[i].step_to(found.poses[i]) for i in range(COUNT)])
    rotation_before, rotation = (np.median(np.linalg.norm(each[:, :3], axis=1)) for each in (errors, left))
    aside_before, aside = (np.median(np.linalg.norm(each[:, 3:5], axis=1)) for each in (errors, left))
    assert rotation < 0.5 * rotation_before
    assert aside < 0.5 * aside_before


def test_a_print_leads_over_wrong_poses() -> None:
    """Six frames are 26 deg off, which is too far for steps of a pose."""
    true, wrong = motion(), np.zeros((COUNT, 6))
    wrong[5:11, :3] = [0.3, -0.3, 0.15]
    found = refined(film(printed=True), true.retract(wrong))
    assert found is not None
    assert found.is_textured
    left = np.array([true[i].step_to(found.poses[i]) for i in range(COUNT)])
    assert np.linalg.norm(left[:, :3], axis=1).max() < 0.06
    assert np.abs(left[:, 3:5]).max() < 0.005


def test_a_print_joins_parts_of_a_track_that_differ_by_a_symmetry() -> None:
    """The last five frames show the box turned by 180 degrees about its longest axis: its silhouette is the same."""
    true = motion()
    half_turn = np.zeros((COUNT, 6))
    half_turn[11:, 0] = np.pi
    found = refined(film(printed=True), true.retract(half_turn))
    assert found is not None
    left = np.array([true[i].step_to(found.poses[i]) for i in range(COUNT)])
    assert np.linalg.norm(left[:, :3], axis=1).max() < 0.06


@pytest.mark.parametrize("shaded", [True, False])
def test_right_poses_of_a_plain_box_stay(shaded: bool) -> None:
    assert refined(film(printed=False, shaded=shaded), motion()) is None


def test_sides_of_a_plain_box_refine_poses() -> None:
    true = motion()
    errors = np.random.default_rng(3).normal(size=(COUNT, 6)) * [0.08, 0.08, 0.08, 0.002, 0.002, 0.01]
    found = refined(film(printed=False, shaded=True), true.retract(errors))
    assert found is not None
    assert not found.is_textured
    left = np.array([true[i].step_to(found.poses[i]) for i in range(COUNT)])
    before, after = (np.median(np.linalg.norm(each[:, :3], axis=1)) for each in (errors, left))
    assert after < 0.4 * before
    assert np.median(np.abs(left[:, 5])) < np.median(np.abs(errors[:, 5])), "the distance is no worse"


def test_the_evidence_of_a_box_with_other_sides_is_less() -> None:
    frames, poses = film(printed=False, shaded=True), {i: motion()[i] for i in (1, 6, 11)}
    foreground = Foreground.of(frames, list(poses))
    found = surface_evidence(frames, CAMERA, Solid.of(box()), foreground, poses)
    longer = replace(box(), vertices=box().vertices * [1.1, 0.95, 0.95])
    other = surface_evidence(frames, CAMERA, Solid.of(longer), foreground, poses)
    assert found is not None
    assert other is not None
    assert (found > other + 5.0).all()
    ball = trimesh.creation.icosphere(3, 0.05)
    round_body = Mesh(np.asarray(ball.vertices), np.asarray(ball.faces, np.int64), np.zeros(len(ball.faces), np.int64))
    assert surface_evidence(frames, CAMERA, Solid.of(round_body), foreground, poses) is None


@pytest.mark.parametrize("rest", [0, 40])
def test_frames_at_rest_count_about_once(rest: int) -> None:
    rotates = 0.1 * np.arange(20.0)
    angles = np.concatenate([rotates, np.full(rest, rotates[-1])])
    rotation = Rotation.from_rotvec(angles[:, None] * [0.0, 0.0, 1.0]).as_matrix()
    chosen = _different(Pose(rotation, np.zeros((len(angles), 3))), np.arange(len(angles)) / 60.0, 10)
    assert chosen[0] == 0
    assert (chosen < 22).sum() >= 7


def test_sides_of_a_small_box_refine_nothing() -> None:
    errors = np.random.default_rng(3).normal(size=(COUNT, 6)) * [0.08, 0.08, 0.08, 0.002, 0.002, 0.01]
    frames, given = film(printed=False, shaded=True), motion().retract(errors)
    assert refined(frames, given) is not None
    small = SurfaceRefinementConfig(plain_px=100.0)  # the box is 81 px in diameter
    assert refined(frames, given, small) is None
