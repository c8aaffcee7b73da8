"""Random looks, environments and viewpoints stay within what they promise."""

import numpy as np
import pytest

from vid2phys.engine.systems import get
from vid2phys.risp.appearance import environments
from vid2phys.risp.appearance.materials import mesh_parts, random_surface
from vid2phys.risp.appearance.random_appearance import PSI_NAMES, directions, render_appearance, sample_appearance
from vid2phys.risp.renders import viewpoints
from vid2phys.types import Mesh

RADIUS_M = 0.1


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    """Two loose tetrahedra in one group, one in another."""
    corners = np.array([[0, 0, 0], [0.05, 0, 0], [0, 0.05, 0], [0, 0, 0.05]])
    faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    vertices = np.concatenate([corners, corners + 0.04, corners - 0.06])
    part = np.repeat([4, 4, 7], 4)  # numbers of groups may have gaps
    return Mesh(vertices, np.concatenate([faces, faces + 4, faces + 8]), part, tuple("abcdefgh"))


def test_parts_are_groups_and_loose_pieces(mesh: Mesh) -> None:
    parts = mesh_parts(mesh)
    np.testing.assert_array_equal(parts.group, np.repeat([0, 0, 1], 4))
    assert len(np.unique(parts.component)) == 3
    assert parts.face_area.sum() == pytest.approx(3 * 0.05**2 * (1.5 + np.sqrt(3) / 2))


def test_materials_are_varied_and_physical(mesh: Mesh) -> None:
    parts = mesh_parts(mesh)
    surfaces = [random_surface(np.random.default_rng(i), parts) for i in range(400)]
    for surface in surfaces:
        assert surface.color.min() > 0.0
        assert surface.color.max() < 1.0
        assert 0.1 <= surface.roughness.min() <= surface.roughness.max() <= 0.95
    metal = np.mean([s.metallic.mean() > 0.5 for s in surfaces])
    assert 0.15 < metal < 0.35  # about a quarter of the looks
    albedo = np.array([s.albedo(parts) for s in surfaces])
    assert (albedo < 0.1).mean() > 0.08
    assert (albedo > 0.5).mean() > 0.08
    one = np.mean([np.ptp(s.roughness) == 0 for s in surfaces])
    assert 0.1 < one < 0.5


@pytest.mark.parametrize("structured", [True, False])
def test_environments_have_unit_mean(structured: bool) -> None:
    flat = 0
    for seed in range(40):
        image = environments.random_environment(np.random.default_rng(seed), structured=structured)
        assert image.shape == (32, 64, 3)
        assert image.min() >= 0.0
        assert environments.mean_luminance(image) == pytest.approx(1.0)
        flat += np.ptp(image @ environments.LUMINANCE) < 1e-6
    assert flat == 0 if structured else flat < 10


def test_lights_stand_still_in_the_world(mesh: Mesh) -> None:
    """Seen from a body that turned and moved, lights are where the world has them."""
    from vid2phys.geometry import matrix_from_rotvec

    look = sample_appearance(np.random.default_rng(4), mesh_parts(mesh))
    start = render_appearance(look, np.eye(3), np.zeros(3), RADIUS_M)
    turn, way = matrix_from_rotvec(np.array([0.3, -0.2, 0.9])), np.array([0.1, -0.3, 0.05])
    later = render_appearance(look, turn.T, way, RADIUS_M)
    np.testing.assert_allclose(later.light_positions @ turn.T + way, start.light_positions, atol=1e-12)
    np.testing.assert_allclose(later.light_intensities, start.light_intensities)
    up = np.array([0.0, 0.0, 1.0])
    np.testing.assert_allclose(start.environment_from_body @ up, [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(later.environment_from_body @ turn.T @ up, [0, 1, 0], atol=1e-12)


def test_directions_are_derivatives_of_the_appearance(mesh: Mesh) -> None:
    look = sample_appearance(np.random.default_rng(5), mesh_parts(mesh))
    seen = (look, np.eye(3), np.zeros(3), RADIUS_M)
    here, moves = render_appearance(*seen), directions(*seen)
    assert len(moves) == len(PSI_NAMES)
    step = 1e-5
    for k, move in enumerate(moves):
        there = render_appearance(*seen, psi=look.psi + step * np.eye(len(PSI_NAMES))[k])
        for name in ("face_color", "face_roughness", "light_positions", "light_intensities", "ambient", "specular"):
            change = (np.asarray(getattr(there, name)) - getattr(here, name)) / step
            np.testing.assert_allclose(getattr(move, name), change, atol=1e-3 * (1e-9 + np.abs(change).max()) + 1e-9)
        assert not np.any(move.environment)
        assert not np.any(move.face_metallic)


def test_views_are_upright_centred_and_filled() -> None:
    rng, size = np.random.default_rng(6), 96
    views = [viewpoints.sample_single(rng, get("quadrotor"), RADIUS_M, size) for _ in range(300)]
    center = np.array([(v.K @ v.view_from_body[:3, 3])[:2] / v.view_from_body[2, 3] for v in views])
    assert np.abs(center - 47.5).max() <= 0.12 * size + 1e-9
    distance = np.array([np.linalg.norm(v.view_from_body[:3, 3]) for v in views]) / RADIUS_M
    assert distance.min() >= 6.0
    assert distance.max() <= 80.0
    fill = np.array([v.K[0, 0] for v in views]) * np.tan(np.arcsin(1.0 / distance)) * 2.0 / size
    assert fill.min() >= 2.0 / 3.0 * 0.8 - 1e-9
    assert fill.max() <= 2.0 / 3.0 * 1.25 + 1e-9
    up = np.array([v.view_from_body[:3, :3] @ v.body_from_world[:, 2] for v in views])
    roll = np.rad2deg(np.arctan2(up[:, 0], -up[:, 1]))
    level = np.hypot(up[:, 0], up[:, 1]) > 0.7
    assert np.abs(roll[level]).max() < 12.0
    tilt = np.rad2deg(np.arccos([v.body_from_world[2, 2] for v in views]))
    assert np.median(tilt) < 30.0
    for view in views[:10]:
        np.testing.assert_allclose(view.view_from_body[:3, :3] @ view.view_from_body[:3, :3].T, np.eye(3), atol=1e-12)
        assert np.linalg.det(view.view_from_body[:3, :3]) == pytest.approx(1.0)


def test_a_sequence_keeps_the_object_in_view() -> None:
    rng, size = np.random.default_rng(7), 96
    for _ in range(10):
        frames = viewpoints.sample_sequence(rng, get("quadrotor"), RADIUS_M, size)
        assert len(frames) == viewpoints.FRAMES_PER_SEQUENCE
        np.testing.assert_array_equal(frames[0].moved_m, 0.0)
        for frame in frames:
            center = (frame.K @ frame.view_from_body[:3, 3])[:2] / frame.view_from_body[2, 3]
            assert np.abs(center - 47.5).max() < 0.2 * size
        moved = np.array([f.moved_m for f in frames])
        assert np.linalg.norm(np.diff(moved, axis=0), axis=1).max() * 30.0 < 4.0


def test_half_of_the_textured_bodies_wear_their_texture(tmp_path) -> None:
    """The others mix it with random materials or go without; a mesh without one draws what it always drew."""
    from dataclasses import replace

    from tests.painted_mesh import write_obj
    from vid2phys.io.mesh import load_mesh

    mesh = load_mesh(write_obj(tmp_path))
    parts, bare = mesh_parts(mesh), mesh_parts(replace(mesh, texture=None))
    surfaces = [random_surface(np.random.default_rng(i), parts) for i in range(400)]
    plain = [random_surface(np.random.default_rng(i), bare) for i in range(400)]
    share = np.array([surface.texture_share.mean() for surface in surfaces])
    assert 0.43 < (share == 1.0).mean() < 0.57
    assert 0.18 < ((share > 0.0) & (share < 1.0)).mean() < 0.32
    worn = [surface for surface, s in zip(surfaces, share, strict=True) if s > 0.0]
    assert not any(surface.metallic.any() for surface in worn)
    assert np.std([surface.roughness[0] for surface in worn]) > 0.15
    assert np.std([surface.texture_brightness for surface in worn], axis=0).min() > 0.2
    np.testing.assert_array_equal([s.color for s in surfaces], [s.color for s in plain])
    assert not any(surface.texture_share.size for surface in plain)


def test_brightness_of_the_texture_moves_with_psi(tmp_path) -> None:
    """The law for the texture is that for the faces' colours."""
    from tests.painted_mesh import write_obj
    from vid2phys.io.mesh import load_mesh

    look = sample_appearance(np.random.default_rng(4), mesh_parts(load_mesh(write_obj(tmp_path))))
    seen = look, np.eye(3), np.zeros(3), 0.25
    psi = np.zeros(len(PSI_NAMES))
    psi[PSI_NAMES.index("base_warmth")] = 1.0
    moved = render_appearance(*seen, psi).texture_brightness - render_appearance(*seen, 0.0 * psi).texture_brightness
    np.testing.assert_allclose(moved, [0.2, 0.0, -0.2])
    direction = directions(*seen)[PSI_NAMES.index("base_warmth")]
    np.testing.assert_allclose(direction.texture_brightness, [0.2, 0.0, -0.2], atol=1e-9)
    assert not direction.texture_share.any()
