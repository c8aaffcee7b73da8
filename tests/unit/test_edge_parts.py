"""The compiled parts of the contour cue beside slow sums: lines, colours, places of edges and their worth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr

from tests.moving_box import CAMERA, box_mesh
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.contour import _RigidBody
from vid2phys.tracking.cues.contour_config import DEFAULTS
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.edge_likelihood import cover_lines, posterior, sample_lines, side_colors, side_ratio
from vid2phys.tracking.cues.edge_lines import (
    _noise,
    _steps,
    contour_evidence,
    crease_evidence,
    crease_reach_px,
    find_creases,
    find_edges,
)
from vid2phys.tracking.cues.edge_steps import point_slopes, slopes, variance_level
from vid2phys.tracking.cues.foreground_edges import edge_places
from vid2phys.tracking.cues.occluding_contour import OccludingContour, occluding_contour
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.tracking.refine import _lines, fit_edges
from vid2phys.types import Array

MESH = box_mesh()
SOLID = Solid.of(MESH)
POSE = Pose(matrix_from_rotvec(np.array([0.5, -0.4, 0.3])), np.array([0.05, -0.03, 1.0]))
RNG = np.random.default_rng


def bilinear(image: Array, x: float, y: float) -> Array:
    left, top = int(x), int(y)
    u, v = x - left, y - top
    upper, lower = ((1 - u) * image[row, left] + u * image[row, left + 1] for row in (top, top + 1))
    return np.asarray((1 - v) * upper + v * lower)


def test_light_is_the_mean_of_samples_along_a_line() -> None:
    frame = RNG(0).integers(0, 256, (30, 40, 3)).astype(np.uint8)
    table = (np.arange(256) / 255.0) ** 2.2
    start, direction = np.array([[5.3, 7.1], [30.2, 20.4]]), np.array([[0.6, 0.8], [-0.8, -0.6]])
    found, inside = sample_lines(frame, table, start, direction, 2.5, 6, 3)
    assert inside.all()
    light = table[frame]
    for i in range(2):
        for r in range(6):
            at = [start[i] + 2.5 * (r + (q + 0.5) / 3.0 - 0.5) * direction[i] for q in range(3)]
            expected = np.mean([bilinear(light, *each) for each in at], axis=0)
            np.testing.assert_allclose(found[i, r], expected, rtol=1e-9)
    last = np.array([[39.0, 29.0], [39.01, 3.0], [3.0, -0.01]])
    found, inside = sample_lines(frame, table, last, np.array([[1.0, 0.0]] * 3), 1.0, 1, 1)
    assert inside.tolist() == [True, False, False]
    np.testing.assert_allclose(found[0, 0], light[29, 39])


@pytest.mark.parametrize("smooth", [0, 3])
def test_coverage_is_averaged_over_steps_and_zero_beside_the_drawing(smooth: int) -> None:
    drawing = RNG(1).random((12, 14)).astype(np.float32)
    start, step = np.array([[2.0, 3.0], [9.0, 4.0]]), np.array([[0.4, 0.3], [0.7, -0.2]])
    found = cover_lines(drawing, start, step, 8, smooth)

    def value(x: float, y: float) -> float:
        return float(bilinear(drawing, x, y)) if 0.0 <= x < 13 and 0.0 <= y < 11 else 0.0

    for i in range(2):
        for k in range(8):
            at = [start[i] + (k + j - 0.5 * smooth) * step[i] for j in range(smooth + 1)]
            assert found[i, k] == pytest.approx(np.mean([value(*each) for each in at]), abs=1e-6)


def test_colours_of_a_side_vary_between_lines_and_within_them() -> None:
    seen, pure = RNG(2).random((5, 7, 3)), RNG(3).random((5, 7)) < 0.6
    pure[4] = False
    mean, spread, texture = side_colors(seen, pure, 0.01)
    own = [seen[i][pure[i]] for i in range(4)]
    every = np.concatenate(own)
    np.testing.assert_allclose(mean, every.mean(axis=0))
    between = sum(len(part) * ((part.mean(axis=0) - every.mean(axis=0)) ** 2).mean() for part in own) / len(every)
    assert spread == pytest.approx(between + 0.01**2)
    squares = np.array([((part - part.mean(axis=0)) ** 2).sum() / 3.0 for part in own] + [0.0])
    freedom = np.array([len(part) - 1.0 for part in own] + [0.0])
    np.testing.assert_allclose(texture, (squares + 2.0 * squares.sum() / freedom.sum()) / (freedom + 2.0))
    nothing = side_colors(seen, np.zeros_like(pure), 0.01)
    assert (nothing[0].tolist(), nothing[1], nothing[2].tolist()) == ([0.3] * 3, 0.1, [0.01] * 5)


def test_a_wide_posterior_has_its_moments_and_a_narrow_one_its_peak() -> None:
    step, within = 0.5, 2.0
    places = step * (np.arange(41) - 20)
    wide = -0.5 * ((places - 1.4) / 1.1) ** 2
    narrow = -0.5 * ((places - 1.4) / 0.2) ** 2
    flat = -0.5 * (places / 20.0) ** 2
    mean, variance = posterior(np.stack([wide, narrow, flat]), step, within, 0.2)
    np.testing.assert_allclose(mean[:2], 1.4, atol=1e-3)
    np.testing.assert_allclose(variance[:2], [1.1**2, 0.2**2], rtol=2e-3)
    assert variance[2] == np.inf
    uneven = RNG(4).normal(0.0, 2.0, 41)
    mean, variance = posterior(uneven[None], step, within, 0.0)
    weight = np.exp(uneven - 0.5 * (places / within) ** 2 - logsumexp(uneven - 0.5 * (places / within) ** 2))
    m = float((weight * places).sum())
    v = float((weight * places**2).sum()) - m**2
    gained = 1.0 / v - 1.0 / within**2
    if gained > 0.0:
        assert variance[0] == pytest.approx(1.0 / gained)
        assert mean[0] == pytest.approx(m / (v * gained))
    for share, counts in ((0.19, False), (0.21, True)):
        std = within / np.sqrt(share)
        less = posterior((-0.5 * (places / std) ** 2)[None], step, within, 0.2)[1][0]
        assert bool(np.isfinite(less)) is counts, "a fifth of the prior's information"


def test_the_ratio_of_a_line_to_its_sides() -> None:
    seen = RNG(5).random((3, 9, 3))
    cover = np.tile([1.0, 1.0, 0.9, 0.86, 0.5, 0.14, 0.1, 0.0, 0.0], (3, 1))
    cover[2, :2] = 0.5
    ratio, shown = side_ratio(seen, cover, 0.15, 3, 0.02)
    assert shown.tolist() == [True, True, False], "two pixels of a side are too few"
    sides = seen[0, :4], seen[0, 5:]
    whole = np.concatenate(sides)
    within = sum(((side - side.mean(axis=0)) ** 2).sum() for side in sides) / whole.size
    assert ratio[0] == pytest.approx(0.5 * np.log((whole.var(axis=0).mean() + 4e-4) / (within + 4e-4)))


def half_plane(at: float, width: int = 60) -> NDArray[np.uint8]:
    """A vertical edge at a column, through a lens of 0.85 px that mixes light of gamma 1.5: 0.6 left, 0.1 right."""
    share = ndtr((at - np.arange(width)) / 0.85)[None, :, None]
    light = np.broadcast_to(0.1 + 0.5 * share, (40, width, 3))
    noise = RNG(6).normal(0.0, 1.0, light.shape)
    return np.asarray(np.clip(np.rint(255.0 * light ** (1.0 / 1.5) + noise), 0, 255), dtype=np.uint8)


def drawn_at(column: float) -> OccludingContour:
    """The contour of a body that is drawn left of a column, in frame pixels, with lines to the right."""
    rows = np.arange(12.0, 28.0)
    pixels = np.stack([np.full(len(rows), column), rows], axis=-1)
    right = np.tile([1.0, 0.0], (len(rows), 1))
    silhouette = np.zeros((80, 120), np.float32)
    silhouette[:, : round(column) + 31] = 1.0
    drawn = pixels + np.array([30.5 + round(column) - column, 20.0])
    return OccludingContour(np.zeros((len(rows), 3)), pixels, right, right, silhouette, 0.85, drawn, right, np.zeros(2))


@pytest.mark.parametrize("off", [-1.3, 0.0, 0.8])
@pytest.mark.parametrize("within", [1.0, 4.0])
def test_an_edge_is_found_where_it_is(off: float, within: float) -> None:
    frame = half_plane(30.0 + off)
    found = find_edges(frame, drawn_at(30.0), within)
    sound = np.isfinite(found.variance)
    assert sound.all()
    np.testing.assert_allclose(found.mean, off, atol=0.2)
    lines: Any = drawn_at(30.0)
    short = find_creases(frame, lines, within).mean  # has some of the other side's colour where an edge is far off
    np.testing.assert_allclose(short, off, atol=0.2 if within == 1.0 else 0.1 + 0.5 * abs(off))
    empty = find_edges(np.full_like(frame, 120), drawn_at(30.0), within)
    assert np.isinf(empty.variance).all()
    beside = find_edges(frame, drawn_at(52.0), within)
    assert np.isinf(beside.variance).all(), "lines that leave the frame"


def test_lines_take_steps_of_half_a_deviation_and_a_pixel_at_least() -> None:
    assert _steps(1.0, DEFAULTS) == (1.0, 3)
    assert _steps(6.0, DEFAULTS) == (3.0, 5)
    assert crease_reach_px(6.0) == 27.0
    assert crease_reach_px(1.0) == 7.0


def test_noise_of_display_values_grows_in_light() -> None:
    light = np.full((2, 5, 3), 0.3)
    light[1] = 0.05
    slope = 1.5 * (np.array([0.3, 0.05]) + 0.02) ** (1.0 - 1.0 / 1.5)
    np.testing.assert_allclose(_noise(light, DEFAULTS), (0.004 * slope) ** 2)


def test_an_edge_that_shows_is_worth_three_nats_a_pixel_and_none_two_and_a_half_less() -> None:
    contour = drawn_at(30.0)
    count = len(contour.pixels)
    assert contour_evidence(half_plane(30.0), contour) == pytest.approx(3.0 * count)
    lines: Any = contour
    assert crease_evidence(half_plane(30.0), lines) == pytest.approx(3.0 * count)
    noise = RNG(7).integers(80, 160, (40, 60, 3)).astype(np.uint8)
    for evidence, even in ((contour_evidence, 0.65), (crease_evidence, 0.45)):
        found = evidence(noise, lines) / count
        cover = np.where(np.arange(-5, 6) == 0, 0.5, np.arange(-5, 6) < 0)
        seen, _ = sample_lines(noise, np.arange(256) / 255.0, contour.pixels - [5.0, 0.0], contour.normals, 1.0, 11, 1)
        if evidence is crease_evidence:
            ratio, _ = side_ratio(seen, np.tile(cover, (count, 1)), 0.15, 3, 0.012)
            assert found == pytest.approx(np.clip(4.4 * (ratio - even), -2.5, 3.0).mean())
        assert -2.5 <= found < -1.5
    sparse = SimpleNamespace(pixels=contour.pixels[::3], normals=contour.normals[::3])
    thin: Any = sparse
    assert crease_evidence(half_plane(30.0), thin) == pytest.approx(3.0 * 3.0 * len(sparse.pixels)), "three pixels each"
    far: Any = SimpleNamespace(pixels=contour.pixels + np.array([27.0, 0.0]), normals=contour.normals)
    assert crease_evidence(half_plane(30.0), far) == 0.0, "beside the frame nothing is known"


def test_a_region_has_its_edge_where_likely_pixels_end() -> None:
    """Pixels left of 30.5 show the body with one nat each, others the scene; a prior of half the reach."""
    ratio = np.where(np.arange(60) < 31, 1.0, -1.0).astype(np.float32)[None].repeat(20, 0)
    for start in (28.0, 33.0):
        pixels, right = np.array([[start, 9.0]]), np.array([[1.0, 0.0]])
        mean, variance = edge_places(ratio, pixels, right, 8.0, 16, 1.0)
        at = 0.5 * (np.arange(34) - 0.5 - 16)
        value = np.array([float(np.interp(start + 0.5 * (k - 16), np.arange(60), ratio[9])) for k in range(33)])
        logs = np.append(0.0, np.cumsum(0.5 * value)) - 2.0 * (at / 8.0) ** 2
        weight = np.exp(logs - logsumexp(logs))
        m = float((weight * at).sum())
        assert mean[0] == pytest.approx(m, rel=1e-4)
        assert start + m == pytest.approx(30.5, abs=0.4)
        assert variance[0] == pytest.approx(float((weight * at**2).sum()) - m**2 + 0.025 + 0.05, rel=1e-3)
        less = edge_places(ratio, pixels, right, 8.0, 16, 4.0)[1]
        assert less[0] > 1.5 * variance[0], "pixels that count as one say less"


def test_variances_are_scaled_to_residuals_and_adjacent_lines_count_once() -> None:
    rng = RNG(8)
    normal = rng.normal(size=4000)
    level, same = variance_level(3.0 * normal, np.full(4000, 4.0), 0.02, 30)
    assert level == pytest.approx(2.25, rel=0.1)
    assert same == pytest.approx(1.0, abs=0.2)
    for k in range(1, 4000):
        normal[k] = 0.6 * normal[k - 1] + 0.8 * normal[k]
    assert variance_level(normal, np.ones(4000), 0.02, 30)[1] == pytest.approx(1.6 / 0.4, rel=0.2)
    assert variance_level(1e-6 * normal, np.ones(4000), 0.02, 30)[0] == 0.02


def test_slopes_by_points_are_those_of_differences() -> None:
    points, along = RNG(9).uniform(0.5, 1.0, (6, 3)), RNG(10).normal(size=(6, 2))
    found = point_slopes(points, along)
    by_pose = slopes(points, along, np.array([0.3, 0.2, 0.8]))
    for k, step in enumerate(1e-6 * np.eye(3)):
        moved = [(points + s * step)[:, :2] / (points + s * step)[:, 2:] for s in (1.0, -1.0)]
        np.testing.assert_allclose(found[:, k], (along * (moved[0] - moved[1])).sum(axis=1) / 2e-6, rtol=1e-6)
    size = np.linalg.norm([0.3, 0.2, 0.8])
    np.testing.assert_allclose(by_pose[:, 3], found[:, 0] * size)
    np.testing.assert_allclose(by_pose[:, 5], found @ [0.3, 0.2, 0.8])


def shown(pose: Pose, brightness: Array) -> NDArray[np.uint8]:
    """A box whose six sides have lights of their own before a bright wall, through a lens."""
    import cv2

    raster = rasterize_camera(pose.apply(MESH.vertices), MESH.faces, CAMERA, 4)
    light = np.where(raster.face_id >= 0, brightness[raster.face_id // 2], 0.8)
    light = cv2.resize(light, (CAMERA.width, CAMERA.height), interpolation=cv2.INTER_AREA)
    light = cv2.GaussianBlur(light, (0, 0), 0.7)
    noise = RNG(11).normal(0.0, 1.0, (*light.shape, 3))
    return np.asarray(np.clip(np.rint(255.0 * light[..., None] ** (1 / 2.2) + noise), 0, 255), dtype=np.uint8)


SIDES = np.array([0.05, 0.3, 0.1, 0.2, 0.15, 0.4])


def test_lines_have_errors_that_are_common_to_all() -> None:
    """A wider contour moves its own lines alone, and creases not; a shift moves each by its normal."""
    frame, body = shown(POSE, SIDES), _RigidBody(MESH, POSE)
    alone = _lines(frame, CAMERA, SOLID, body, 0.02, 0.0, DEFAULTS)
    found = _lines(frame, CAMERA, SOLID, body, 0.02, 0.5, DEFAULTS)
    assert found is not None
    assert alone is not None
    drawing = draw(body.vertices(), MESH.faces)
    assert drawing is not None
    contour = occluding_contour(drawing, CAMERA)
    assert contour is not None
    within = 0.02 * contour.size_px
    assert found.within_px == pytest.approx(within)
    np.testing.assert_array_equal(found.slopes[:, :6], alone.slopes)
    edges = find_edges(frame, contour, within)
    used = np.isfinite(edges.variance)
    lines = int(used.sum())
    assert lines < len(found.mean), "creases are seen, too"
    np.testing.assert_allclose(found.slopes[:, 6], 0.5 * (np.arange(len(found.mean)) < lines))
    np.testing.assert_allclose(found.slopes[:lines, 7:], 0.5 * contour.normals[used])
    np.testing.assert_allclose(np.linalg.norm(found.slopes[:, 7:], axis=1), 0.5)
    np.testing.assert_allclose(found.variance[:lines], edges.variance[used] + (0.2 * within) ** 2)
    np.testing.assert_array_equal(found.mean[:lines], edges.mean[used])
    assert np.abs(found.mean).mean() < 0.2
    near = _lines(frame, CAMERA, SOLID, body, 1e-4, 0.0, DEFAULTS)
    assert near is not None
    assert near.within_px == 0.6
    behind = _RigidBody(MESH, Pose(POSE.rotation, -POSE.translation))
    assert _lines(frame, CAMERA, SOLID, behind, 0.02, 0.0, DEFAULTS) is None
    plain = np.full_like(frame, 128)
    assert _lines(plain, CAMERA, SOLID, body, 0.02, 0.0, DEFAULTS) is None


def test_errors_that_all_edges_share_widen_the_pose_by_as_much() -> None:
    """A contour that may look wider says less about the distance; edges that may be shifted less about the place."""
    frame = shown(POSE, SIDES)
    start = _RigidBody(MESH, POSE.retract(np.array([0.01, -0.01, 0.01, 2e-3, -1e-3, 0.01])))
    std = np.array([0.2, 0.2, 0.2, 0.02, 0.02, 0.2])
    prior, most = np.diag(std**-2), 2.0 * std
    sharp, free = (fit_edges(frame, CAMERA, SOLID, start, prior, most, px) for px in (0.0, 2.0))
    assert sharp is not None
    assert free is not None
    for fit in (sharp, free):
        error = POSE.step_to(fit[0].pose)
        assert np.abs(error[:3]).max() < 0.02
        assert np.abs(error[3:5]).max() < 5e-4
        assert abs(error[5]) < 0.01
    lost = [np.linalg.inv(fit[1]) for fit in (sharp, free)]
    added = 9.0 * (lost[1] - lost[0])
    shift = 2.0 / CAMERA.K[0, 0]
    assert added[3, 3] == pytest.approx(shift**2, rel=0.2)
    assert added[4, 4] == pytest.approx(shift**2, rel=0.2)
    pinned = fit_edges(frame, CAMERA, SOLID, start, 1e12 * prior, most)
    assert pinned is not None
    assert np.abs(start.pose.step_to(pinned[0].pose)).max() < 1e-5
    short = fit_edges(frame, CAMERA, SOLID, start, prior, 1e-7 * most)
    assert short is not None
    assert 1e-8 < np.abs(start.pose.step_to(short[0].pose)[3:]).max() < 3e-6
