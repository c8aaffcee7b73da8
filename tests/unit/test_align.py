"""Aligning to pixels, the branch by pixels, relabelling, and refining readings, on painted clips with known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.painted import CAMERA, PERMUTATION, POINTS, ROTATIONS, Scene, make_scene
from tests.synthetic import cross_mesh
from vid2phys.engine.observe import project
from vid2phys.engine.pose_geometry import pose_modes, project_points
from vid2phys.engine.render.rasterizer import rasterize_camera, shade
from vid2phys.error_model import Calibration
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.cues.background_image import backdrop
from vid2phys.tracking.cues.photometric import Alignment, Stage, align, stage_of
from vid2phys.tracking.hypotheses import relabelled
from vid2phys.tracking.measured import with_poses
from vid2phys.tracking.photometric_evidence import branch_evidence
from vid2phys.tracking.photometric_refinement import refined
from vid2phys.tracking.uncertainty.alignment_errors import RefinementErrors, fit
from vid2phys.types import Clip, Mesh, Observation

QUARTERS = np.stack([matrix_from_rotvec(np.array([0.0, 0.0, g * np.pi / 2])) for g in range(4)])


def wander(count: int) -> np.ndarray:
    """Camera positions [count, 3] m of a body that moves slowly."""
    t = np.arange(count)[:, None] / 30.0
    return np.array([-0.2, 0.1, 1.9]) + t * np.array([0.5, -0.3, 0.2])


def photographed(mesh: Mesh, rotation: np.ndarray, translation: np.ndarray) -> Clip:
    """Frames of a mesh with a red frame and a blue box before a rough grey wall."""
    rng = np.random.default_rng(3)
    wall = rng.uniform(60, 180, (CAMERA.height // 8, CAMERA.width // 8, 3)).repeat(8, 0).repeat(8, 1)
    colors, down = np.array([[0.5, 0.05, 0.05], [0.05, 0.1, 0.6]]), np.array([0.2, 0.9, 0.3])
    images = []
    for r, t in zip(rotation, translation, strict=True):
        raster = rasterize_camera(mesh.vertices @ r.T + t, mesh.faces, CAMERA, 3)
        image = shade(raster, mesh, colors, down)
        light, cover = image[..., :3], image[..., 3:]
        light = cover * light + (1.0 - cover) * (wall / 255.0) ** 2.2
        display = 255.0 * light ** (1 / 2.2) + rng.normal(0.0, 4.0, wall.shape)
        images.append(np.clip(display, 0, 255).astype(np.uint8))
    return Clip(
        ArrayFrames(np.stack(images)), np.arange(len(images)) / 30.0, CAMERA.width, CAMERA.height, "photographed"
    )


def test_pixels_tell_the_branch_from_imperfect_poses() -> None:
    mesh, rng, count = cross_mesh(0.06), np.random.default_rng(0), 12
    scene = make_scene(wander(count))
    clip = photographed(mesh, scene.rotation, scene.translation)
    seen = scene.rotation @ matrix_from_rotvec(np.radians(1.5) * rng.normal(size=(count, 3)))
    for wrong in range(4):
        evidence = branch_evidence(
            clip, stage(mesh, clip, scene), Pose(seen @ QUARTERS[wrong], scene.translation), np.arange(count), QUARTERS
        )
        assert int(np.argmax(evidence)) == wrong
        assert np.sort(evidence)[-2] < -5.0


def test_backdrop_shows_what_was_behind() -> None:
    truth = np.random.default_rng(0).integers(0, 255, (40, 50, 3)).astype(np.uint8)
    frames, masks = np.repeat(truth[None], 6, axis=0), np.zeros((6, 40, 50), dtype=bool)
    for i in range(6):
        masks[i, 10:20, 6 * i : 6 * i + 14] = True
    frames[masks] = 255
    seen = backdrop(frames, masks)
    np.testing.assert_array_equal(seen.image, truth)
    assert seen.known.all()


@pytest.mark.parametrize("element", range(4))
def test_relabelled_points_belong_to_the_turned_body(element: int) -> None:
    scene = make_scene(wander(3))
    bearings = project_points(Pose(scene.rotation, scene.translation), POINTS)
    covariance = np.broadcast_to(np.eye(2), (3, 8, 2, 2))
    basis = pose_modes(Pose(scene.rotation, scene.translation), POINTS)
    seen = Observation(np.arange(3.0), bearings, covariance, basis, np.ones(6), np.ones((3, 8), bool), POINTS)
    turned = project_points(Pose(scene.rotation @ ROTATIONS[element].T, scene.translation), POINTS)
    pose = Pose(scene.rotation, scene.translation)
    seen = with_poses(seen, np.arange(3), pose, np.tile(0.01 * np.eye(6), (3, 1, 1)), np.ones(6), "contour")
    other = relabelled(seen, PERMUTATION[element], ROTATIONS[element], np.zeros(3))
    assert other.configuration is not None
    np.testing.assert_allclose(other.bearings, turned, atol=1e-12)
    np.testing.assert_allclose(project_points(other.configuration.pose, POINTS), turned, atol=1e-12)
    np.testing.assert_allclose(other.configuration.shared_basis, seen.configuration.shared_basis, atol=1e-8)


def stage(mesh: Mesh, clip: Clip, scene: Scene) -> Stage:
    return stage_of(clip, CAMERA, mesh, Pose(scene.rotation, scene.translation))


def aligned(clip: Clip, mesh: Mesh, scene: Scene, start: np.ndarray) -> tuple[Alignment, np.ndarray]:
    """Alignment of every frame from poses that are off by `start`, and the errors [N, 6] that are left."""
    here, looks = stage(mesh, clip, scene), []
    for i in range(len(scene.translation)):
        look = here.frame_at(next(clip.frames.at([i])), Pose(scene.rotation[i], scene.translation[i]).retract(start))
        assert look is not None
        looks.append(look)
    found = align(looks)
    poses = [look.pose.retract(step) for look, step in zip(looks, found.steps, strict=True)]
    return found, Pose(scene.rotation, scene.translation).step_to(Pose.stack(poses))


def test_poses_snap_to_the_pixels() -> None:
    mesh, scene = cross_mesh(0.06), make_scene(wander(12))
    clip = photographed(mesh, scene.rotation, scene.translation)
    found, error = aligned(clip, mesh, scene, np.array([0.03, -0.02, 0.03, 1e-3, -5e-4, 0.03]))
    assert found.usable.all()
    assert np.abs(error[:, :3]).mean() < 0.008
    assert np.abs(error[:, 3:5]).mean() * CAMERA.K[0, 0] < 0.1, "sideways, in pixels"
    assert np.abs(error[:, 5]).mean() < 0.004
    assert np.abs(error.mean(axis=0))[5] < 0.002, "no bias of the range"


def test_a_body_that_is_partly_hidden_still_aligns() -> None:
    mesh, scene = cross_mesh(0.06), make_scene(wander(12))
    clip = photographed(mesh, scene.rotation, scene.translation)
    hidden = []
    for frame, place in zip(clip.frames, project(CAMERA, scene.translation), strict=True):
        covered = frame.copy()
        u, v = np.round(place + np.array([18.0, 0.0])).astype(int)
        covered[v - 6 : v + 7, u - 5 : u + 6] = (20, 160, 40)
        hidden.append(covered)
    _, error = aligned(replace(clip, frames=ArrayFrames(np.stack(hidden))), mesh, scene, np.full(6, 1e-3))
    assert np.abs(error[:, 5]).mean() < 0.02
    assert np.abs(error[:, :3]).mean() < 0.03


def test_where_the_background_is_not_known_it_does_not_count() -> None:
    mesh, count = cross_mesh(0.06), 4
    scene = make_scene(np.repeat(wander(1), count, axis=0))
    clip = photographed(mesh, scene.rotation, scene.translation)
    here = stage(mesh, clip, scene)
    assert not here.backdrop.known.all()
    look = here.frame_at(next(clip.frames.at([0])), Pose(scene.rotation[0], scene.translation[0]))
    assert look is not None
    known = here.backdrop.known[look.patch.rows, look.patch.columns]
    assert (look.patch.weight[~known] == 0.0).all()


def test_stated_errors_are_scaled_to_those_found() -> None:
    rng, looks, frames = np.random.default_rng(0), 300, 16
    decay, noise = np.exp(-1.0 / 30.0 / 0.2), rng.normal(size=(looks, frames, 6))
    process = noise.copy()
    for k in range(1, frames):
        process[:, k] = decay * process[:, k - 1] + np.sqrt(1.0 - decay**2) * noise[:, k]
    std = np.exp(rng.normal(0.0, 0.3, (looks, frames, 6)))
    true = np.array([0.5, 1.0, 1.0, 2.0, 3.0, 1.5])
    process[:2, :, 0] = 50.0  # gross errors do not spoil the scale
    look, time_s = np.repeat(np.arange(looks), frames), np.tile(np.arange(frames) / 30.0, looks)
    errors = RefinementErrors((process * std * true).reshape(-1, 6), std.reshape(-1, 6), look, time_s)
    scale, correlation_s = fit(errors)
    np.testing.assert_allclose(scale, true, rtol=0.06)
    np.testing.assert_allclose(correlation_s, 0.2, rtol=0.25)


def test_refining_takes_the_bias_off_readings() -> None:
    mesh, count = cross_mesh(0.06), 20
    scene = make_scene(wander(count))
    clip = photographed(mesh, scene.rotation, scene.translation)
    exact = project_points(Pose(scene.rotation, scene.translation), POINTS)
    farther = scene.translation * 1.03  # readings say so, and so does the fit to them
    basis = pose_modes(Pose(scene.rotation, farther), POINTS) * np.array([0.02, 0.02, 0.02, 1e-3, 1e-3, 0.03])
    seen = Observation(
        clip.times_s, project_points(Pose(scene.rotation, farther), POINTS),
        np.broadcast_to(np.eye(2) * 1e-7, (count, 8, 2, 2)).copy(), basis, np.full(6, 0.2),
        np.ones((count, 8), bool), POINTS,
    )  # fmt: skip
    better = refined(clip, stage(mesh, clip, scene), Calibration(), seen, Pose(scene.rotation, farther))
    assert better is not None
    assert better.configuration is not None
    before = np.linalg.norm(seen.bearings - exact, axis=-1).mean()
    after = np.linalg.norm(project_points(better.configuration.pose, POINTS) - exact, axis=-1).mean()
    assert after < 0.2 * before
    np.testing.assert_array_equal(better.bearings, seen.bearings, "keypoints stay as detected")
    std = np.diagonal(better.configuration.shared_basis, axis1=1, axis2=2)
    assert (std <= 1.01 * np.array([0.02, 0.02, 0.02, 1e-3, 1e-3, 0.03])).mean() > 0.95, "and is surer of them"


def test_a_large_body_aligns_in_a_smaller_image() -> None:
    mesh, scene = cross_mesh(0.06), make_scene(np.array([0.0, 0.0, 0.36]) + (wander(12) - wander(1)) * 0.7)
    clip = photographed(mesh, scene.rotation, scene.translation)
    assert stage(mesh, clip, scene).reduction >= 2
    found, error = aligned(clip, mesh, scene, np.array([0.03, -0.02, 0.03, 1e-3, -5e-4, 0.03]))
    std = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    assert found.usable.all()
    assert np.abs(error[:, :3]).mean() < 0.004
    assert np.abs(error[:, 5]).mean() < 0.002
    assert (np.abs(error / std).mean(axis=0) < 2.5).all()


def test_between_aligned_frames_readings_are_only_as_sure_as_errors_are_correlated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vid2phys.tracking.photometric_refinement._MOST_FRAMES", 5)
    mesh, count = cross_mesh(0.06), 17
    scene = make_scene(wander(count))
    clip = photographed(mesh, scene.rotation, scene.translation)
    std = np.array([0.02, 0.02, 0.02, 1e-3, 1e-3, 0.03])
    basis = pose_modes(Pose(scene.rotation, scene.translation), POINTS) * std
    left = {}
    for correlation_s in (0.001, 100.0):
        seen = Observation(
            clip.times_s, project_points(Pose(scene.rotation, scene.translation), POINTS),
            np.broadcast_to(np.eye(2) * 1e-7, (count, 8, 2, 2)).copy(), basis, np.full(6, correlation_s),
            np.ones((count, 8), bool), POINTS,
        )  # fmt: skip
        better = refined(clip, stage(mesh, clip, scene), Calibration(), seen, Pose(scene.rotation, scene.translation))
        assert better is not None
        assert better.configuration is not None
        left[correlation_s] = np.diagonal(better.configuration.shared_basis, axis1=1, axis2=2) / std
    assert (left[0.001][::4] < 0.7).all(), "aligned frames"
    np.testing.assert_allclose(left[0.001][2::4], 1.0, rtol=1e-6)
    assert (left[100.0][2::4] < 0.7).all()
