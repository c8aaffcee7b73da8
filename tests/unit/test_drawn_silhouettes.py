"""Drawn silhouettes of balls in closed form, crops of ramps, and which orientations are proposed for a region."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import trimesh
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from vid2phys.tracking.detectors import silhouette
from vid2phys.tracking.detectors.silhouette import DEFAULTS, Silhouettes, _crop, _of_region, propose_poses, regions
from vid2phys.types import Array, Camera, Mesh

FEW = replace(DEFAULTS, orientations=64)
FX, FY = 500.0, 400.0
CAMERA = Camera(np.array([[FX, 0.0, 160.0], [0.0, FY, 120.0], [0.0, 0.0, 1.0]]), 320, 240)
BALL_M, OFF = 0.05, np.array([0.03, -0.02, 0.04])


def ball(center: Array) -> Mesh:
    made = trimesh.creation.icosphere(3, BALL_M)
    faces = np.asarray(made.faces, np.int64)
    return Mesh(np.asarray(made.vertices) + center, faces, np.zeros(len(faces), np.int64), "ball")


def test_a_ball_has_the_silhouette_of_its_cone_of_sight() -> None:
    """From ten radii away a ball about the origin is seen in a cone of sine 0.1."""
    drawn = Silhouettes.of(ball(np.zeros(3)), config=FEW)
    count = len(drawn.rotations)
    assert drawn.masks.shape == (count, DEFAULTS.size**2)
    assert drawn.distance_m == pytest.approx(10.0 * BALL_M, rel=1e-3)
    np.testing.assert_allclose(drawn.side, np.sqrt(np.pi) * np.tan(np.arcsin(0.1)), rtol=0.02)
    np.testing.assert_allclose(drawn.offset, 0.0, atol=0.002)
    np.testing.assert_allclose(drawn.masks.sum(axis=1), DEFAULTS.side**2, rtol=1e-4)
    disc = drawn.masks[0].reshape(DEFAULTS.size, DEFAULTS.size)
    v, u = np.mgrid[: DEFAULTS.size, : DEFAULTS.size] - 0.5 * (DEFAULTS.size - 1)
    radius = DEFAULTS.side / np.sqrt(np.pi)
    assert disc[np.hypot(u, v) < radius - 1.5].min() > 0.9
    assert disc[np.hypot(u, v) > radius + 1.5].max() < 0.1


def test_a_ball_beside_the_origin_is_seen_beside_it() -> None:
    mesh = ball(OFF)
    drawn = Silhouettes.of(mesh, config=FEW)
    for rotation, offset, side, mask in zip(drawn.rotations, drawn.offset, drawn.side, drawn.masks, strict=True):
        place = rotation @ OFF + [0.0, 0.0, drawn.distance_m]
        np.testing.assert_allclose(offset, place[:2] / place[2], atol=0.003)
        assert side == pytest.approx(np.sqrt(np.pi) * BALL_M / place[2], rel=0.03)
        shown = mask.reshape(DEFAULTS.size, DEFAULTS.size)
        v, u = np.mgrid[: DEFAULTS.size, : DEFAULTS.size]
        middle = [float((shown * each).sum() / shown.sum()) for each in (u, v)]
        np.testing.assert_allclose(middle, 0.5 * (DEFAULTS.size - 1), atol=0.3)


def test_of_orientations_that_look_the_same_one_is_drawn() -> None:
    mesh, half = ball(np.zeros(3)), Rotation.from_rotvec([0.0, 0.0, np.pi]).as_matrix()
    every = Silhouettes.of(mesh, config=FEW).rotations
    drawn = Silhouettes.of(mesh, np.stack([np.eye(3), half]), FEW).rotations
    assert 0.3 * len(every) < len(drawn) < 0.7 * len(every)
    for rotation in drawn:
        assert np.trace(rotation) >= np.trace(half.T @ rotation), "the one nearest to no rotation"
    everyone = {tuple(np.round(each, 9).ravel()) for each in every}
    assert {tuple(np.round(each, 9).ravel()) for each in drawn} <= everyone


@pytest.mark.parametrize("middle", [(160.0, 120.0), (250.0, 60.0), (40.0, 200.0)])
def test_a_silhouette_is_posed_where_it_has_a_place_and_an_area(middle: tuple[float, float]) -> None:
    """A ball beside the origin, seen with pixels that are no squares: its middle's bearing and its angle are known."""
    drawn, side_px = Silhouettes.of(ball(OFF), config=FEW), 40.0
    for n in (3, 30):
        pose = drawn.pose(n, CAMERA, np.array(middle), side_px)
        center = pose.apply(OFF[None])[0]
        bearing = (np.array(middle) - [160.0, 120.0]) / [FX, FY]
        np.testing.assert_allclose(center[:2] / center[2], bearing, atol=0.004)
        sine = BALL_M / float(np.linalg.norm(center))
        area = FX * FY * np.pi * sine**2 * (1.0 + bearing @ bearing) ** 1.5  # of a small cone, beside the axis
        assert np.sqrt(area) == pytest.approx(side_px, rel=0.04)
        if middle == (160.0, 120.0):
            np.testing.assert_allclose(pose.rotation, drawn.rotations[n], atol=1e-9)


def test_a_crop_is_centred_and_scaled_and_zero_beside_the_frame() -> None:
    """Of a ramp: blur leaves it as it is."""
    v, u = np.mgrid[:200, :300].astype(np.float32)
    half = 0.5 * (DEFAULTS.size - 1)
    rows, columns = np.mgrid[: DEFAULTS.size, : DEFAULTS.size] - half
    for side in (6.5, 26.0, 39.0):
        crop = _crop(2.0 * u - v, np.array([150.3, 99.6]), side, DEFAULTS).reshape(DEFAULTS.size, DEFAULTS.size)
        scale = side / DEFAULTS.side
        expected = 2.0 * (150.3 + scale * columns) - (99.6 + scale * rows)
        np.testing.assert_allclose(crop, expected, atol=0.2)
    border = _crop(np.ones((200, 300), np.float32), np.array([0.0, 100.0]), 13.0, DEFAULTS)
    border = border.reshape(DEFAULTS.size, DEFAULTS.size)
    assert not border[:, :19].any()
    np.testing.assert_allclose(border[:, 21:], 1.0)


def test_fine_noise_is_averaged_before_pixels_are_skipped() -> None:
    checks = (np.indices((200, 200)).sum(axis=0) % 2 * 2.0 - 1.0).astype(np.float32)
    assert np.abs(_crop(checks, np.array([100.0, 100.0]), 65.0, DEFAULTS)).max() < 0.1


class Posed(Silhouettes):
    """Silhouettes that tell which one was posed where."""

    def pose(self, n: int, camera: Camera, middle_px: Array, side_px: float) -> Any:
        return n, tuple(np.round(middle_px, 6)), round(side_px, 6)


def shapes(rotations: Array, masks: NDArray[np.float32]) -> Posed:
    count = len(rotations)
    flat = masks.reshape(count, -1).astype(np.float32)
    return Posed(flat, rotations, np.ones(count), np.zeros((count, 2)), 1.0, DEFAULTS)


def rectangle(wide: int, high: int) -> NDArray[np.float32]:
    mask = np.zeros((DEFAULTS.size, DEFAULTS.size), np.float32)
    mask[20 - high // 2 : 20 + high // 2, 20 - wide // 2 : 20 + wide // 2] = 1.0
    return np.asarray(mask * DEFAULTS.side**2 / mask.sum(), np.float32)


def about_x(*degrees: float) -> Array:
    return Rotation.from_euler("x", np.array(degrees)[:, None], degrees=True).as_matrix()


@pytest.mark.parametrize(
    ("dx", "dy", "scale"), [(0.0, 0.0, 1.0), (0.12, -0.12, 1.0), (0.0, 0.12, 1.18), (-0.12, 0.0, 0.85)]
)
def test_the_most_alike_silhouette_is_proposed_where_it_fits_best(dx: float, dy: float, scale: float) -> None:
    """A bar across, one upright and a square; the region's middle and size are off by as much as is tried."""
    masks = np.stack([rectangle(10, 16), rectangle(22, 8), rectangle(12, 12)])
    some = shapes(about_x(0.0, 60.0, 120.0), masks)
    v, u = np.mgrid[:240, :320]
    side = 52.0
    wide, high = 22.0 / 13.0 * side, 8.0 / 13.0 * side
    place = np.array([160.0, 120.0])
    ratio = np.where((abs(u - place[0]) < 0.5 * wide) & (abs(v - place[1]) < 0.5 * high), 2.0, -2.0).astype(np.float32)
    true_side = side * np.sqrt(22.0 * 8.0) / 13.0
    seen_side = side / scale
    middle = place - seen_side * np.array([dx, dy])
    found: Any = _of_region(some, ratio, CAMERA, middle, seen_side)
    assert found[0][0] == 1
    assert true_side == pytest.approx(side, rel=0.03)
    np.testing.assert_allclose(found[0][1], middle + seen_side * np.array([dx, dy]), atol=1e-4)
    assert found[0][2] == pytest.approx(seen_side * scale)


def test_proposals_of_a_region_are_twenty_degrees_apart_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal silhouettes with less and less evidence: of 19.9 degrees apart one stays, of 20.1 both do."""
    weights = np.linspace(1.0, 0.9, 4)[:, None, None]
    some = shapes(about_x(0.0, 19.9, 40.1, 90.0), weights * rectangle(12, 12))
    ratio = np.full((240, 320), 1.0, np.float32)
    found: Any = _of_region(some, ratio, CAMERA, np.array([160.0, 120.0]), 20.0)
    assert [each[0] for each in found] == [0, 2, 3]
    many = shapes(np.array(about_x(*np.linspace(0.0, 357.0, 144))), np.tile(rectangle(12, 12), (144, 1, 1)))
    wide = replace(DEFAULTS, apart_rad=0.01)
    found = _of_region(replace(many, config=wide), ratio, CAMERA, np.array([160.0, 120.0]), 20.0)
    assert len(found) == 22, "ten, and the root of 144"


def test_each_region_has_its_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silhouette, "_of_region", lambda some, ratio, camera, middle, side: (middle.tolist(), side))
    ratio = np.full((60, 80), -1.0, np.float32)
    ratio[10:20, 10:20], ratio[30:38, 50:58] = 2.0, 3.0
    given: Any = shapes(np.eye(3)[None], np.zeros((1, 40, 40)))
    assert propose_poses(given, ratio, CAMERA) == [([14.5, 14.5], 10.0), ([53.5, 33.5], 8.0)]


def test_parts_with_a_small_gap_are_a_region_of_their_own_pixels() -> None:
    """Two halves with a gap of four pixels: both, and each alone; those with a wide gap stay apart."""
    ratio = np.full((120, 160), -1.0, np.float32)
    ratio[20:60, 20:40] = ratio[20:60, 44:64] = 1.0
    found = regions(ratio)
    np.testing.assert_allclose([middle for middle, _ in found], [[41.5, 39.5], [29.5, 39.5], [53.5, 39.5]])
    np.testing.assert_allclose([side for _, side in found], [40.0, np.sqrt(800.0), np.sqrt(800.0)])
    ratio[:, 52:] = -1.0
    ratio[20:60, 49:69] = 1.0
    assert len(regions(ratio)) == 3
    apart = np.full((120, 160), -1.0, np.float32)
    apart[20:60, 20:40] = apart[20:60, 50:70] = 1.0
    assert len(regions(apart)) == 2


def test_three_likely_regions_of_thirty_pixels_count() -> None:
    def found(*squares: tuple[int, float]) -> int:
        ratio = np.full((60, 300), -1.0, np.float32)
        for k, (side, nats) in enumerate(squares):
            ratio[10 : 10 + side, 40 * k : 40 * k + side] = nats
        return len(regions(ratio))

    assert found((10, 1.0), (10, 1.0), (10, 1.0), (10, 1.0)) == 3
    assert (found((5, 4.0)), found((6, 4.0))) == (0, 1)
    assert (found((10, 1.0), (10, 0.39)), found((10, 1.0), (10, 0.41))) == (1, 2)
