"""The branch by pixels, relabelling, and debiasing, on painted clips with known truth."""

from __future__ import annotations

import numpy as np
import pytest

from tests.painted import CAMERA, PERMUTATION, POINTS, ROTATIONS, ListFrames, PaintedModel, Reading, make_scene
from tests.synthetic import cross_mesh
from vid2phys.engine.render.rasterizer import rasterize_camera, shade
from vid2phys.engine.systems import get
from vid2phys.risp.branch import relabelled
from vid2phys.risp.error_model import Calibration
from vid2phys.risp.geometry import pose_modes, project_points
from vid2phys.risp.photometric import backdrop, branch_evidence
from vid2phys.rotations import matrix_from_rotvec, quat_from_matrix
from vid2phys.solvers.debias import Scene, debiased
from vid2phys.solvers.problem import Problem
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
    pictures = []
    for r, t in zip(rotation, translation, strict=True):
        raster = rasterize_camera(mesh.vertices @ r.T + t, mesh.faces, CAMERA, 3)
        picture = shade(raster, mesh, colors, down)
        front, cover = 255.0 * picture[..., :3] ** (1 / 2.2), picture[..., 3:]
        noisy = cover * front + (1.0 - cover) * wall + rng.normal(0.0, 4.0, wall.shape)
        pictures.append(np.clip(noisy, 0, 255).astype(np.uint8))
    return Clip(ListFrames(pictures), np.arange(len(pictures)) / 30.0, CAMERA.width, CAMERA.height, "photographed")


def test_pixels_tell_the_branch_from_imperfect_poses() -> None:
    mesh, rng, count = cross_mesh(0.06), np.random.default_rng(0), 12
    scene = make_scene(wander(count))
    clip = photographed(mesh, scene.rotation, scene.translation)
    seen = scene.rotation @ matrix_from_rotvec(np.radians(1.5) * rng.normal(size=(count, 3)))
    for wrong in range(4):
        evidence = branch_evidence(
            clip, CAMERA, mesh, seen @ QUARTERS[wrong], scene.translation, np.arange(count), QUARTERS, divisor=1.0
        )
        assert int(np.argmax(evidence)) == wrong
        assert np.sort(evidence)[-2] < -20.0


def test_backdrop_shows_what_was_behind() -> None:
    truth = np.random.default_rng(0).integers(0, 255, (40, 50, 3)).astype(np.uint8)
    frames, masks = np.repeat(truth[None], 6, axis=0), np.zeros((6, 40, 50), dtype=bool)
    for i in range(6):
        masks[i, 10:20, 6 * i : 6 * i + 14] = True
    frames[masks] = 255
    np.testing.assert_array_equal(backdrop(frames, masks), truth)


@pytest.mark.parametrize("element", range(4))
def test_relabelled_points_belong_to_the_turned_body(element: int) -> None:
    scene = make_scene(wander(3))
    bearings = project_points(scene.rotation, scene.translation, POINTS)
    covariance = np.broadcast_to(np.eye(2), (3, 8, 2, 2))
    basis = pose_modes(scene.rotation, scene.translation, POINTS)
    seen = Observation(np.arange(3.0), bearings, covariance, basis, np.ones(6), np.ones((3, 8), bool), POINTS)
    turned = project_points(scene.rotation @ ROTATIONS[element].T, scene.translation, POINTS)
    np.testing.assert_allclose(relabelled(seen, PERMUTATION[element]).bearings, turned, atol=1e-12)


class Magnifier(PaintedModel):
    """Sees everything three per cent too large, in every picture; knows colours in the shade too."""

    radius_m = 0.06

    def _colors(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bright, colored = image.max(-1, keepdims=True), np.ptp(image, axis=-1)[..., None] > 80
        lit = np.where(colored, 255.0 * image / np.maximum(bright, 1), 0.0)
        return super()._colors(lit)

    def read(self, images: np.ndarray) -> Reading:
        reading = super().read(images)
        middle = 0.5 * (self.view_size - 1)
        return Reading(
            middle + 1.03 * (reading.points_px - middle), reading.covariance_px, reading.peak, reading.front_logprob
        )


def spheres() -> Mesh:
    """The painted body as a mesh: one small sphere a point, each a part."""
    import trimesh

    pieces = [trimesh.creation.icosphere(2, 0.006).apply_translation(point) for point in POINTS]
    offsets = np.cumsum([0] + [len(piece.vertices) for piece in pieces])
    faces = np.concatenate([piece.faces + offset for piece, offset in zip(pieces, offsets, strict=False)])
    part = np.repeat(np.arange(8), [len(piece.faces) for piece in pieces])
    return Mesh(np.concatenate([p.vertices for p in pieces]), faces, part, tuple(f"disc {k}" for k in range(8)))


def test_a_bias_that_shows_in_the_render_is_taken_off() -> None:
    count, system = 20, get("quadrotor")
    scene = make_scene(wander(count))
    exact = project_points(scene.rotation, scene.translation, POINTS)
    center = (scene.translation[:, :2] / scene.translation[:, 2:])[:, None]
    basis = pose_modes(scene.rotation, scene.translation, POINTS) * np.array([0.02, 0.02, 0.02, 1e-3, 1e-3, 0.03])
    seen = Observation(
        scene.clip.times_s, center + 1.03 * (exact - center),
        np.broadcast_to(np.eye(2) * 1e-7, (count, 8, 2, 2)).copy(), basis, np.full(6, 0.2),
        np.ones((count, 8), bool), POINTS,
    )  # fmt: skip
    states = np.zeros((count, 13))
    pose = CAMERA.camera_to_world
    states[:, :3] = scene.translation @ pose[:3, :3].T + pose[:3, 3]
    states[:, 3:7] = quat_from_matrix(pose[:3, :3] @ scene.rotation)
    problem = Problem(system, system.parameters(), seen, pose)
    model = Magnifier(random_labels=True)
    corrected = debiased(Scene(scene.clip, CAMERA, spheres(), model, Calibration()), problem, states)  # type: ignore[arg-type]
    before = np.linalg.norm(seen.bearings - exact, axis=-1).mean()
    after = np.linalg.norm(corrected.bearings - exact, axis=-1).mean()
    assert after < 0.35 * before
