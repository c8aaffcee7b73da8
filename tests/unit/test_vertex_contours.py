"""Lines across the contours of a sheet: where the foreground ends beside it, in frames that are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from tests import drawn_clip
from vid2phys.geometry import invert_transform, look_at
from vid2phys.io.array_clip import array_clip
from vid2phys.tracking.vertex_contours import VertexFrames
from vid2phys.types import Array, Camera

FRAMES = 9
CAMERA = Camera(
    np.array([[300.0, 0.0, 80.0], [0.0, 300.0, 60.0], [0.0, 0.0, 1.0]]), 160, 120,
    camera_to_world=look_at(np.array([0.1, -0.9, 0.2]), np.array([0.0, 0.0, 0.1])),
)  # fmt: skip
SQUARE = np.array([[x, 0.0, z] for z in (0.2, 0.1, 0.0) for x in (-0.1, 0.0, 0.1)])
FACES = np.array([
    tri for r in (0, 3) for c in (0, 1) for tri in ((r + c, r + c + 1, r + c + 3), (r + c + 1, r + c + 4, r + c + 3))
])  # fmt: skip
HELD = np.repeat([0.0, 1.0, 1.0], 3)  # the upper edge never moves


def sways(size_m: float = 0.03) -> Array:
    """Places [F, V, 3] of a sheet whose lower part sways sideways."""
    t = np.linspace(0.0, 2.0 * np.pi, FRAMES)
    aside = (0.2 - SQUARE[:, 2])[None, :] * (size_m / 0.1) * np.sin(t)[:, None]
    return np.asarray(SQUARE + aside[..., None] * np.array([1.0, 0.0, 0.0]))


@pytest.fixture(scope="module")
def filmed() -> tuple[VertexFrames, Array]:
    places = sways()
    shown = drawn_clip.images(places, FACES, np.array([0.7, 0.12, 0.1]), CAMERA)
    clip = array_clip(np.stack(shown), np.arange(FRAMES) / 30.0, "sheet")
    frames = VertexFrames(clip, CAMERA, np.asarray(CAMERA.camera_to_world), FACES, HELD)
    frames.learn(places, range(FRAMES))
    return frames, places


def test_the_sheet_is_the_foreground(filmed: tuple[VertexFrames, Array]) -> None:
    frames, places = filmed
    assert frames.moves()
    right, wrong = frames.overlaps(places), frames.overlaps(places + np.array([0.03, 0.0, 0.0]))
    assert (right > 0.85).all()
    assert (wrong < right - 0.1).all()
    assert (wrong > 0.3).all()
    behind = frames.overlaps(places + np.array([0.0, -2.0, 0.0]))
    np.testing.assert_array_equal(behind, 0.0)


def test_a_static_clip_does_not_move() -> None:
    shown = drawn_clip.images(sways()[:1].repeat(FRAMES, axis=0), FACES, np.array([0.7, 0.12, 0.1]), CAMERA)
    clip = array_clip(np.stack(shown), np.arange(FRAMES) / 30.0, "sheet")
    assert not VertexFrames(clip, CAMERA, np.asarray(CAMERA.camera_to_world), FACES, HELD).moves()


def test_lines_of_the_true_motion_end_at_the_contour(filmed: tuple[VertexFrames, Array]) -> None:
    frames, places = filmed
    lines = frames.lines(places, 0.1)
    assert lines is not None
    assert set(lines.frame.tolist()) == set(range(FRAMES))
    np.testing.assert_allclose(lines.weights.sum(axis=1), 1.0)
    residual_px = lines.residuals(places[None])[0] * lines.std
    assert np.median(np.abs(residual_px)) < 0.7
    assert (lines.std > 0.0).all()
    np.testing.assert_allclose(np.linalg.norm(lines.normal, axis=1), 1.0, atol=1e-6)


def test_a_motion_beside_the_true_one_is_as_far_from_the_edges(filmed: tuple[VertexFrames, Array]) -> None:
    """10 mm to the side are some 3 pixels, outward at the right contour and inward at the left one."""
    frames, places = filmed
    aside = places + np.array([0.01, 0.0, 0.0])
    lines = frames.lines(aside, 0.1)
    assert lines is not None
    off = lines.residuals(aside[None])[0] * lines.std
    way = invert_transform(np.asarray(CAMERA.camera_to_world))[:3, :3] @ [0.01, 0.0, 0.0]
    expected = 300.0 * way[0] / 0.9 * lines.normal[:, 0]
    sides = np.abs(lines.normal[:, 0]) > 0.9
    assert sides.sum() > 50
    assert np.median(np.abs(off - expected)[sides]) < 0.7
    assert np.corrcoef(off[sides], expected[sides])[0, 1] > 0.95


def test_contours_of_what_holds_the_sheet_do_not_count(filmed: tuple[VertexFrames, Array]) -> None:
    frames, places = filmed
    lines = frames.lines(places, 0.1)
    assert lines is not None
    assert ((lines.weights * HELD[lines.corners]).sum(axis=1) > 0.5).all()
    points = np.einsum("lc,lcx->lx", lines.weights, places[lines.frame[:, None], lines.corners])
    assert points[:, 2].max() < 0.16
    assert points[:, 2].min() < 0.01
    clip_of_nothing = frames.lines(places + np.array([0.0, -2.0, 0.0]), 0.1)
    assert clip_of_nothing is None


def test_a_frames_foreground_is_kept_until_colours_are_learned_anew(filmed: tuple[VertexFrames, Array]) -> None:
    frames, places = filmed
    before = frames.log_ratio(3)
    np.testing.assert_array_equal(frames.log_ratio(3), before)
    np.testing.assert_allclose(before, frames.foreground.log_ratio(frames.frames[3]), atol=0.01)
    kept = frames.foreground
    try:
        frames.learn(places + np.array([0.05, 0.0, 0.0]), [0, 4])
        assert not np.allclose(frames.log_ratio(3), before, atol=0.05)
    finally:
        frames.foreground = kept
        frames._ratios.clear()
