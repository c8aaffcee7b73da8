"""The generator of Cycles clips, without the renderer: bodies, motions, and the files against OpenCV."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation
from scipy.special import ellipk

from benchmarks.clips import check, files
from benchmarks.clips.appearance import Surface
from benchmarks.clips.bodies import SHAPES, Body, Solid, build
from benchmarks.clips.motion import Motion, Pendulum, Release, Throw
from benchmarks.clips.table import CLIPS

_PLAIN = (Surface(),)
_BOX = Body("box", (0.12, 0.08, 0.05), _PLAIN, 0.25)


def _lowest(solid: Solid, motion: Motion) -> float:
    rotations = Rotation.from_quat(motion.orientation[::20], scalar_first=True).as_matrix()
    heights = np.einsum("tj,vj->tv", rotations[:, 2], solid.hull) + motion.position[::20, 2:]
    return float(heights.min())


def test_mass_properties_of_a_box() -> None:
    solid = build(_BOX)
    x, y, z = _BOX.size_m
    expected = _BOX.mass_kg / 12.0 * np.diag([y**2 + z**2, x**2 + z**2, x**2 + y**2])
    np.testing.assert_allclose(solid.inertia, expected, atol=1e-12)


@pytest.mark.parametrize("spec", CLIPS.values(), ids=CLIPS)
def test_each_body_has_closed_parts_about_its_centre_of_mass(spec) -> None:
    parts = [mesh for mesh, _ in SHAPES[spec.body.shape](*spec.body.size_m)]
    assert all(mesh.is_watertight and mesh.volume > 0.0 for mesh in parts)
    solid = build(spec.body)
    assert np.all(np.linalg.eigvalsh(solid.inertia) > 0.0)
    assert np.all(solid.vertices.min(axis=0) < 0.0)
    assert np.all(solid.vertices.max(axis=0) > 0.0)


def test_free_flight_keeps_energy_and_angular_momentum() -> None:
    solid = build(_BOX)
    throw = Throw((0.0, 0.0, 3.0), (1.0, 0.0, 2.0), (0.3, 0.1, 0.2), (5.0, -6.0, 3.0))
    motion = throw.solve(solid, 0.5)
    t = motion.times_s[-1]
    np.testing.assert_allclose(motion.position[-1], [t, 0.0, 3.0 + 2.0 * t - 0.5 * 9.81 * t**2], atol=1e-9)
    momentum = []
    for i in (0, len(motion.times_s) - 2):
        _, quats = motion.at(motion.times_s[i : i + 2])
        first, second = (Rotation.from_quat(q, scalar_first=True) for q in quats)
        spin = (second * first.inv()).as_rotvec() / (motion.times_s[1] - motion.times_s[0])
        matrix = first.as_matrix()
        momentum.append(matrix @ solid.inertia @ matrix.T @ spin)
    np.testing.assert_allclose(momentum[1], momentum[0], rtol=2e-3)


def test_air_slows_a_fall_to_the_closed_form() -> None:
    """From rest the speed is v tanh(g t / v), where at v the drag weighs as much as the body."""
    drag, duration_s = 0.4, 0.6
    motion = Throw((0.0, 0.0, 3.0), (0.0, 0.0, 0.0), air_drag_1_m=drag).solve(build(_BOX), duration_s)
    fallen = np.log(np.cosh(np.sqrt(drag * 9.81) * motion.times_s)) / drag
    np.testing.assert_allclose(motion.position[:, 2], 3.0 - fallen, atol=1e-4)
    assert fallen[-1] < 0.5 * 9.81 * duration_s**2 - 0.1


def test_ball_bounces_to_the_height_of_its_restitution() -> None:
    ball = Body("ball", (0.066,), _PLAIN, 0.06)
    motion = Throw((0.0, 0.0, 0.533), (0.0, 0.0, 0.0), restitution=0.7).solve(build(ball), 0.9)
    first, second = (impact["t"] for impact in motion.facts["impacts_over_0p25_m_s"][:2])
    assert first == pytest.approx(np.sqrt(2.0 * 0.5 / 9.81), abs=2e-4)
    assert second - first == pytest.approx(2.0 * 0.7 * first, abs=4e-4)
    between = motion.position[(motion.times_s > first) & (motion.times_s < second), 2]
    assert between.max() - 0.033 == pytest.approx(0.49 * 0.5, abs=1e-3)


@pytest.mark.slow
def test_box_slides_to_rest_by_friction_and_stays_on_the_floor() -> None:
    solid = build(_BOX)
    motion = Throw((0.0, 0.0, 0.025), (1.0, 0.0, 0.0), friction=0.25).solve(solid, 0.6)
    assert motion.position[-1, 0] == pytest.approx(1.0 / (2.0 * 0.25 * 9.81), rel=0.01)
    assert _lowest(solid, motion) > -5e-4


@pytest.mark.slow
def test_a_thrown_box_loses_energy_at_each_impact_and_comes_to_rest() -> None:
    solid = build(_BOX)
    motion = Throw((0.0, 0.0, 0.3), (0.8, 0.0, 1.0), (0.5, -0.2, 0.8), (5.0, -6.0, 3.0)).solve(solid, 2.5)
    assert _lowest(solid, motion) > -1e-3
    assert np.ptp(motion.position[-2000:], axis=0).max() < 1e-3
    assert motion.position[-1, 2] == pytest.approx(0.025, abs=1e-3)


def test_pendulum_swings_with_the_period_of_the_elliptic_integral() -> None:
    bar = Body("box", (0.3, 0.02, 0.035), _PLAIN, 0.2)
    motion = Pendulum((0.0, 0.0, 0.5), (-0.13, 0.0, 0.0), 70.0, damping=0.0).solve(build(bar), 3.0)
    small = motion.facts["hinge"]["small_angle_period_s"]
    period = small * 2.0 / np.pi * ellipk(np.sin(np.radians(35.0)) ** 2)
    side = motion.position[:, 0]
    falls = motion.times_s[1:][(side[1:] <= 0.0) != (side[:-1] <= 0.0)]
    assert falls[2] - falls[0] == pytest.approx(period, abs=3e-3)
    np.testing.assert_allclose(np.linalg.norm(motion.position - [0.0, 0.0, 0.5], axis=1), 0.13, atol=1e-9)


def test_the_hand_lets_the_body_go_without_a_jump() -> None:
    throw = Throw((0.0, 0.0, 0.4), (1.0, 0.0, 1.0), spin_rad_s=(0.0, 4.0, 0.0))
    motion = Release((-0.1, 0.0, 0.3), 0.2, throw).solve(build(_BOX), 0.4)
    speed = np.diff(motion.position, axis=0) / np.diff(motion.times_s)[:, None]
    assert np.abs(np.diff(speed, axis=0)).max() < 0.02
    np.testing.assert_allclose(motion.position[0], [-0.1, 0.0, 0.3])


def test_written_camera_and_poses_project_as_opencv_does(tmp_path: Path) -> None:
    spec = CLIPS["box_plain"]
    solid = build(spec.body)
    motion = replace(spec.moves, restitution=0.4).solve(solid, 0.2)
    files.write_mesh(tmp_path / "mesh.obj", solid)
    files.write_camera(tmp_path / "camera.yaml", spec.name, spec.lens)
    files.write_mocap(tmp_path / "mocap.csv", spec.name, motion, 0.1)
    camera = yaml.safe_load((tmp_path / "camera.yaml").read_text())
    K = np.array(camera["camera_matrix"]["data"]).reshape(3, 3)
    to_camera = np.linalg.inv(np.array(camera["camera_to_world"]["data"]).reshape(4, 4))
    point = motion.position[:1]
    pixel = cv2.projectPoints(point, cv2.Rodrigues(to_camera[:3, :3])[0], to_camera[:3, 3], K, None)[0][0, 0]
    np.testing.assert_allclose(pixel, spec.lens.project(point)[0][0], atol=1e-4)
    mask = check.silhouette(tmp_path, 0.0)
    y, x = np.indices(mask.shape)
    middle = np.array([(x * mask).sum(), (y * mask).sum()]) / mask.sum()
    assert np.linalg.norm(middle - pixel) < 2.0
    aside = cv2.warpAffine(mask, np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.0]]), mask.shape[::-1])
    assert check.compare(mask, mask)["edge"] == 0.0
    assert check.compare(mask, aside)["edge"] == pytest.approx(0.3, abs=0.05)


def test_every_clip_of_the_table_has_its_own_seed_and_split() -> None:
    assert {spec.split for spec in CLIPS.values()} <= {"development", "held_out", "distractors"}
    assert len({spec.seed for spec in CLIPS.values()}) == len(CLIPS)
    assert len({spec.room.seed for spec in CLIPS.values()}) == len(CLIPS)
