"""The parts of the alignment to pixels: shadows, boxes, flow, colours and one step, beside sums of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from tests.moving_box import CAMERA, box_mesh
from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.tracking.cues.background_image import Backdrop
from vid2phys.tracking.cues.photometric import (
    DEFAULTS,
    PRIOR_STD,
    Alignment,
    Patch,
    PoseInFrame,
    Stage,
    _flow,
    _gauss_newton,
    _jacobian,
    _log_likelihood,
    _overlap,
    _predict,
    _residual,
    _solve_colors,
    stage_of,
)
from vid2phys.types import Array, Clip

MESH = box_mesh()
POSE = Pose(matrix_from_rotvec(np.array([0.5, -0.4, 0.3])), np.array([0.05, -0.03, 1.0]))
PLAIN = np.array([[0.6, 0.3, 0.2], [0.0] * 3, [0.0] * 3, [0.0] * 3])  # a colour that no normal changes
LIT = np.array([[0.4, 0.3, 0.2], [0.1, 0.05, 0.02], [-0.05, 0.1, 0.1], [-0.15, -0.1, 0.05]])


def grey(value: int) -> NDArray[np.uint8]:
    return np.full((CAMERA.height, CAMERA.width, 3), value, np.uint8)


def scene() -> NDArray[np.uint8]:
    """A background whose blotches have different colours."""
    noise = np.random.default_rng(5).normal(size=(CAMERA.height, CAMERA.width, 3))
    soft = np.stack([gaussian_filter(noise[..., c], 4.0) for c in range(3)], axis=-1)
    return np.asarray(np.clip(110.0 + 900.0 * soft, 20.0, 230.0), dtype=np.uint8)


def stage(behind: NDArray[np.uint8], supersample: int = 3) -> Stage:
    known = np.ones(behind.shape[:2], dtype=bool)
    return Stage(MESH, CAMERA, Backdrop(behind, known), 1, replace(DEFAULTS, supersample=supersample))


def drawn(colors: Array, pose: Pose = POSE, supersample: int = 3) -> PoseInFrame:
    """A frame that colours explain without rest."""
    found = stage(scene(), supersample).frame_at(scene(), pose)
    assert found is not None
    found = found.at(np.zeros(6))
    found = replace(found, patch=replace(found.patch, behind=found.patch.frame))  # what the frame showed before
    body = _predict(found, colors)
    light = body[..., :3] + (1.0 - body[..., 3:4]) * found.patch.behind
    return replace(found, patch=replace(found.patch, frame=light))


def test_the_box_of_a_frame_is_the_body_and_seven_pixels_where_the_background_is_known() -> None:
    behind = grey(60)
    known = np.ones(behind.shape[:2], dtype=bool)
    known[:, :170] = False
    found = Stage(MESH, CAMERA, Backdrop(behind, known)).frame_at(grey(180), POSE)
    assert found is not None
    rows, columns = np.nonzero(rasterize_camera(POSE.apply(MESH.vertices), MESH.faces, CAMERA).mask)
    assert (found.patch.rows.start, found.patch.rows.stop) == (rows.min() - 7, rows.max() + 8)
    assert (found.patch.columns.start, found.patch.columns.stop) == (columns.min() - 7, columns.max() + 8)
    counts = found.patch.weight > 0.0
    left = 170 - found.patch.columns.start
    assert not counts[:, :left].any()
    assert counts[rows - found.patch.rows.start, columns - found.patch.columns.start][columns >= 170].all()
    assert not counts[0, -1], "a corner of the box is further away"
    linear = [(value / 255.0) ** 2.2 for value in (180, 60)]
    np.testing.assert_allclose(found.patch.frame, linear[0], rtol=1e-5)
    np.testing.assert_allclose(found.patch.behind, linear[1], rtol=1e-5)
    slope = (np.mean(linear) + 0.02) ** (1.0 / 2.2 - 1.0) / 2.2
    np.testing.assert_allclose(found.patch.weight[counts], slope, rtol=1e-5)
    away = Pose(POSE.rotation, POSE.translation + np.array([5.0, 0.0, 0.0]))
    assert Stage(MESH, CAMERA, Backdrop(behind, known)).frame_at(grey(180), away) is None


def filmed(codes: Array, width: int, height: int) -> Clip:
    """Frames of one grey level each, of a clip that states another size."""
    frames = np.repeat(codes[:, None, None, None], 3, axis=-1).astype(np.uint8)
    frames = np.broadcast_to(frames, (len(codes), CAMERA.height, CAMERA.width, 3))
    return Clip(ArrayFrames(frames), np.arange(len(codes)) / 30.0, width, height)


@pytest.mark.parametrize(("width", "height", "count"), [(320, 240, 24), (4000, 2500, 10), (8000, 5000, 9)])
def test_frames_of_the_background_fit_the_memory(width: int, height: int, count: int) -> None:
    lost = np.array([0, 7, 45])
    known = np.setdiff1d(np.arange(46), lost)
    codes = np.zeros(46)
    codes[known[np.linspace(0, len(known) - 1, count).astype(int)]] = 200
    pose = Pose.stack([POSE] * 46)
    pose.translation[lost] = np.nan
    found = stage_of(filmed(codes, width, height), CAMERA, MESH, pose)
    assert (found.backdrop.image[5, 5] == 200).all(), "all chosen frames are bright, all others dark"
    assert not found.backdrop.known[121, 157 + 21]
    assert found.reduction == 1


@pytest.mark.parametrize(("side_px", "reduction"), [(118.0, 1), (126.0, 2), (236.0, 2), (244.0, 3)])
def test_a_body_is_compared_at_120_pixels_at_most(side_px: float, reduction: int) -> None:
    facing = Pose.stack([Pose(np.eye(3), np.array([0.0, 0.0, 0.025 + 420.0 * 0.12 / side_px]))] * 3)
    facing.translation[2] *= 3.0  # one that is smaller
    found = stage_of(filmed(np.full(3, 90.0), 320, 240), CAMERA, MESH, facing)
    assert found.reduction == reduction
    assert (found.camera.width, found.camera.height) == (320 // reduction, 240 // reduction)
    frame = found.frame_at(grey(90), facing[0])
    assert frame is not None
    assert frame.patch.columns.stop - frame.patch.columns.start == pytest.approx(side_px / reduction + 15.0, abs=1.5)


def shadowed(gain: float, near: float, near_px: int = 2, covered: float = 1.0) -> NDArray[np.float32]:
    """The gain of the background by a shadow; near: of pixels up to `near_px` from the body, which is `covered`."""
    rng = np.random.default_rng(2)
    behind = rng.uniform(0.2, 0.8, (60, 60, 3)).astype(np.float32)
    body, weight = np.zeros((60, 60), np.float32), np.ones((60, 60), np.float32)
    body[24:36, 24:36] = covered
    frame = gain * behind
    for rows, columns in ((24 - near_px, 24), (24, 24 - near_px)):
        part = slice(rows, 60 - rows), slice(columns, 60 - columns)
        frame[part] = near * behind[part]
    frame[:, :4], weight[:, :4] = 50.0, 0.0  # pixels that do not count
    found = Patch(slice(0, 60), slice(0, 60), frame, behind, weight).with_shadow(body, DEFAULTS)
    ratio = found.behind / behind
    np.testing.assert_allclose(ratio, ratio[..., :1] * np.ones(3), rtol=1e-4)
    np.testing.assert_array_equal(found.frame, frame)
    return ratio[..., 0]


def test_the_background_is_as_bright_behind_the_body_as_around_it() -> None:
    np.testing.assert_allclose(shadowed(0.5, 0.5)[5:55, 5:55], 0.5, atol=0.02)
    np.testing.assert_allclose(shadowed(0.5, 9.0)[22:38, 24:36], 0.5, atol=0.02)
    assert shadowed(0.5, 9.0, 3)[21:39, 24:36].min() > 0.7, "pixels three away count"
    np.testing.assert_allclose(shadowed(0.05, 0.05)[15:45, 15:45], 0.2, atol=1e-6)
    np.testing.assert_allclose(shadowed(3.0, 3.0)[15:45, 15:45], 1.3, atol=1e-6)
    assert shadowed(0.5, 1.2, covered=9e-4)[30, 30] > 1.0, "less than a thousandth of a pixel is no body"
    assert shadowed(0.5, 1.2, covered=1.1e-3)[30, 30] < 0.6


def test_shadows_change_over_four_pixels() -> None:
    behind = np.full((9, 101, 3), 0.5, np.float32)
    frame = behind * np.where(np.arange(101) < 50, 0.5, 1.0)[None, :, None].astype(np.float32)
    patch = Patch(slice(0, 9), slice(0, 101), frame, behind, np.ones((9, 101), np.float32))
    found = patch.with_shadow(np.zeros((9, 101), np.float32), DEFAULTS).behind[4, :, 0] / 0.5
    spread = np.gradient(found)
    middle = (spread * np.arange(101)).sum() / spread.sum()
    assert np.sqrt((spread * (np.arange(101) - middle) ** 2).sum() / spread.sum()) == pytest.approx(4.0, rel=0.05)
    assert middle == pytest.approx(49.5, abs=0.05)


def test_windows_overlap_where_both_are() -> None:
    assert _overlap(slice(3, 9), slice(5, 20)) == (slice(0, 4), slice(2, 6))
    assert _overlap(slice(8, 30), slice(5, 20)) == (slice(3, 15), slice(0, 12))
    inside, of_window = _overlap(slice(30, 40), slice(5, 20))
    assert inside.stop - inside.start == of_window.stop - of_window.start == 0


def test_values_of_faces_are_means_over_the_finer_pixels() -> None:
    frame = drawn(PLAIN)
    found = frame.spread(np.arange(12, dtype=np.float32)[:, None] + 1.0)
    raster, place = frame.raster, (frame.patch.rows, frame.patch.columns)
    assert raster is not None
    np.testing.assert_allclose(found[..., 1], raster.coverage[place], atol=1e-6)
    whole = raster._image((raster.faces_seen + 1.0)[..., None])[place]
    np.testing.assert_allclose(found[..., 0], whole[..., 0] * whole[..., 1], atol=1e-5)
    inside = found[..., 1] == 1.0
    depth = POSE.apply(MESH.vertices)[:, 2]
    assert (1.0 / found[inside, 2] > depth.min()).all()
    assert (1.0 / found[inside, 2] < depth.max()).all()


def test_a_body_is_drawn_through_the_lens_with_its_distance() -> None:
    frame = drawn(PLAIN)
    body, sharp = _predict(frame, PLAIN), frame.spread(np.zeros((12, 0), np.float32))[..., 0]
    np.testing.assert_allclose(body[..., 3], gaussian_filter(sharp, 0.7, mode="nearest", truncate=5.0), atol=2e-3)
    np.testing.assert_allclose(body[..., :3], body[..., 3:4] * PLAIN[0], atol=1e-5)
    seen = sharp > 0.2
    depth = POSE.apply(MESH.vertices)[:, 2]
    assert depth.min() - 1e-3 < 1.0 / body[seen, 4].max() < depth.min() + 0.01, "also at its edge"
    assert 1.0 / body[seen, 4].min() < depth.max() + 1e-3


def test_the_flow_beside_the_body_is_that_of_its_nearest_point() -> None:
    frame = drawn(PLAIN)
    near = np.zeros(frame.patch.weight.shape, np.float32)
    near[10:14, 20:26] = np.random.default_rng(1).uniform(0.8, 1.2, (4, 6))
    flow = _flow(frame, near)
    for row, column in ((10, 20), (12, 23), (13, 25)):
        pixel = np.array([frame.patch.columns.start + column, frame.patch.rows.start + row], dtype=float)
        depth = 1.0 / float(near[row, column])
        point = np.append((pixel - CAMERA.K[:2, 2]) / CAMERA.K[0, 0], 1.0) * depth
        of_body = POSE.inverse().apply(point[None])
        for k, unit in enumerate(1e-6 * np.eye(6)):
            ahead, back = (project(CAMERA, POSE.retract(s * unit).apply(of_body))[0] for s in (1.0, -1.0))
            np.testing.assert_allclose(flow[row, column, :, k], (ahead - back) / 2e-6, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(flow[2, 3], flow[10, 20])
    np.testing.assert_array_equal(flow[30, 23], flow[13, 23])
    np.testing.assert_array_equal(flow[12, 40], flow[12, 25])


def test_derivatives_of_the_prediction_are_those_of_its_differences() -> None:
    """Of a body of one colour, whose edges are all that moves; every coordinate by half a pixel to either side."""
    frame = drawn(PLAIN, supersample=7)
    body = _predict(frame, PLAIN)
    found = _jacobian(frame, body, body[..., 4], 1.2)

    def predicted(step: Array) -> Array:
        moved = replace(frame.at(step), patch=frame.patch)
        return -_residual(moved, _predict(moved, PLAIN), 1.2)

    for k, size in enumerate((0.03, 0.03, 0.02, 1.2e-3, 1.2e-3, 0.02)):
        step = size * np.eye(6)[k]
        expected = (predicted(step) - predicted(-step)) / (2.0 * size)
        own = found[:, :, k]
        share = float((own * expected).sum() / (expected**2).sum())
        assert share == pytest.approx(1.0, abs=0.1), k
        assert float((own * expected).sum()) > 0.95 * float(np.linalg.norm(own) * np.linalg.norm(expected)), k
    brighter = _residual(frame, body, 1.2) - _residual(
        frame, body * np.array([1.01, 1.01, 1.01, 1, 1], np.float32), 1.2
    )
    np.testing.assert_allclose(found[:, :, 6], brighter / 0.01, atol=1e-3)


def test_a_step_is_that_of_weighted_least_squares_with_priors() -> None:
    frame = drawn(PLAIN)
    at = frame.at(np.array([0.02, -0.01, 0.015, 5e-4, -4e-4, 0.01]))
    at = replace(at, patch=replace(frame.patch, frame=1.1 * frame.patch.frame))
    body, std = _predict(at, PLAIN), 0.2 * PRIOR_STD
    so_far = np.array([0.3, -0.2, 0.1, 0.2, -0.3, 0.4]) * std
    found = _gauss_newton(at, PLAIN, 2.0, so_far, std)
    assert found is not None
    residual = _residual(at, body, 2.0)
    counted = np.count_nonzero(at.patch.weight)
    level = (residual.astype(float) ** 2).sum() / (3.0 * counted) + 0.004**2
    assert found.level == pytest.approx(level, rel=1e-5)
    weight = 1.0 / (1.0 + (residual**2).mean(axis=-1) / (2.5**2 * level)) / (28.0 * level)
    rows = np.swapaxes(_jacobian(at, body, body[..., 4], 2.0), 2, 3).reshape(-1, 7).astype(float)
    root = np.sqrt(np.repeat(weight.ravel(), 3))
    prior = np.diag([*(1.0 / std), 1.0 / 0.15])
    expected = np.linalg.lstsq(
        np.concatenate([root[:, None] * rows, prior]), [*(root * residual.ravel()), *(-so_far / std), 0.0], rcond=None
    )[0]
    np.testing.assert_allclose(found.step, np.clip(expected[:6], -2.0 * std, 2.0 * std), rtol=1e-3, atol=1e-7)
    alone = rows.T @ (root[:, None] ** 2 * rows) + np.diag([0.0] * 6 + [0.15**-2])
    np.testing.assert_allclose(found.information, np.linalg.inv(np.linalg.inv(alone)[:6, :6]), rtol=1e-3)
    far = _gauss_newton(at, PLAIN, 2.0, 40.0 * std, std)
    assert far is not None
    assert np.abs(far.step / std).max() == pytest.approx(2.0)
    blind = replace(at, patch=replace(at.patch, weight=np.zeros_like(at.patch.weight)))
    assert _gauss_newton(blind, PLAIN, 2.0, so_far, std) is None


def test_colours_are_those_of_weighted_least_squares() -> None:
    others = [POSE, POSE.retract(np.array([0.8, 0.3, -0.5, 0.0, 0.0, 0.1]))]
    frames = [drawn(LIT, pose) for pose in others]
    for frame in frames:
        np.testing.assert_allclose(_residual(frame, _predict(frame, LIT), 1.2), 0.0, atol=1e-5)
    spoilt = frames[0].patch.frame.copy()
    spoilt[20:40, 20:40] += np.array([0.5, 0.1, -0.2], np.float32)
    frames[0] = replace(frames[0], patch=replace(frames[0].patch, frame=spoilt))
    levels = np.array([4e-4, np.inf])
    for before in (None, LIT + 0.01):
        normal, right = np.zeros((4, 4)), np.zeros((4, 3))
        for frame, level in zip(frames, levels, strict=True):
            rows = np.stack([_predict(frame, np.eye(4)[:, [k, k, k]])[..., 0] for k in range(4)], axis=-1)
            covered = _predict(frame, PLAIN)[..., 3:4]
            soft = lambda each: np.stack(  # noqa: E731
                [gaussian_filter(each[..., c], 1.2, mode="nearest", truncate=4.0) for c in range(each.shape[-1])], -1
            )
            rows, target = soft(rows), soft(frame.patch.frame - (1.0 - covered) * frame.patch.behind)
            square = frame.patch.weight**2
            if before is not None and np.isfinite(level):
                off = ((target - rows @ before) ** 2).mean(axis=-1) * square
                square = square / (1.0 + off / (2.5**2 * level))
            normal += np.einsum("hwi,hw,hwj->ij", rows, square, rows)
            right += np.einsum("hwi,hw,hwj->ij", rows, square, target)
        expected = np.linalg.solve(normal + 1e-3 * np.trace(normal) / 4.0 * np.eye(4), right)
        found = _solve_colors(frames, frames[0].stage, 1.2, before, levels)
        np.testing.assert_allclose(found, expected, atol=2e-3)
    clean = _solve_colors([drawn(LIT, pose) for pose in others], frames[0].stage, 1.2, None, levels)
    np.testing.assert_allclose(clean, LIT, atol=0.01)


def test_the_likelihood_counts_pixels_that_err_together_once() -> None:
    def frame(count: int) -> Any:
        weight = np.zeros((20, 30), np.float32)
        weight.ravel()[:count] = 0.7
        return replace(FRAME, patch=replace(FRAME.patch, weight=weight))

    level, pull = np.array([1e-3, 0.0, 4e-3]), np.array([[0.1] * 6, [9.0] * 6, [0.2] * 6])
    found = _log_likelihood([frame(280), frame(100), frame(560)], level, pull, np.array([True, False, True]))
    expected = -0.5 * (30.0 * np.log(1e-3) + 60.0 * np.log(4e-3)) - 0.5 * 6.0 * (0.1**2 + 0.2**2)
    assert found == pytest.approx(expected)


FRAME = PoseInFrame(stage(grey(90)), Patch(slice(0, 1), slice(0, 1), *[np.zeros((1, 1, 3), np.float32)] * 3), POSE)


def test_the_prior_keeps_the_covariance_finite() -> None:
    prior = np.array([0.06, 0.06, 0.06, 0.003, 0.003, 0.04])
    information = np.zeros((1, 6, 6))
    information[0, 2, 2] = 4.0 / 0.06**2
    found = Alignment(np.zeros((1, 6)), information, np.ones(1), 0.0, np.ones(1, dtype=bool))
    np.testing.assert_allclose(found.covariance[0], np.diag(prior**2 / np.array([1, 1, 5, 1, 1, 1])))
