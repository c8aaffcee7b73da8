"""The parts of the search of texture patches: corners, matches, peaks, and the pose on which most of them agree."""

from __future__ import annotations

import numpy as np
import pytest

from tests.painted_mesh import painted_cube
from tests.unit.test_texture import BLOCKS, CAMERA, PLACE
from vid2phys.engine.pose_geometry import project_points
from vid2phys.engine.virtual_camera import bearings_to_view, make_view
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.cues.texture_patches import DEFAULTS, Patches, _agreed, _corners, _matched, _misfit, _peak
from vid2phys.types import Array

POSE = Pose(matrix_from_rotvec(np.array([0.5, -0.4, 0.3])), PLACE)
VIEW = make_view(CAMERA, PLACE[:2] / PLACE[2], 0.15, 192)


def test_the_top_of_a_parabola_is_found() -> None:
    at = np.arange(7.0)
    for top in (2.6, 3.0, 3.45):
        assert 3.0 + _peak(5.0 - 0.7 * (at - top) ** 2, 3) == pytest.approx(top)
    assert _peak(np.array([0.0, 1.0, 3.0]), 2) == _peak(np.array([3.0, 1.0, 0.0]), 0) == 0.0, "at the border"
    assert _peak(np.array([2.0, 1.0, 0.5, 0.0]), 1) == 0.0, "of no top"
    assert _peak(np.array([1.0, 3.0, 2.9]), 1) == pytest.approx(0.5 * 1.9 / 2.1)
    assert _peak(np.array([0.0, 2.0, 2.0 + 1e-3]), 1) == 0.5, "half a pixel at most"


@pytest.mark.parametrize("light", [(1.0, 0.0), (0.6, 40.0)])
@pytest.mark.parametrize("moved", [(3, -2), (-4, 4)])
def test_patches_are_found_where_they_are_in_any_light(light: tuple[float, float], moved: tuple[int, int]) -> None:
    drawn = np.random.default_rng(0).integers(0, 255, (60, 70, 3)).astype(np.uint8)
    seen = np.roll(drawn, moved[::-1], axis=(0, 1))
    image = np.rint(light[0] * seen + light[1]).astype(np.uint8)
    corners = np.array([[20, 15], [44, 30], [50, 42]])
    places, correlation = _matched(drawn, image, corners, 4, 13)
    np.testing.assert_allclose(places, corners + moved, atol=0.1)
    np.testing.assert_allclose(correlation, 1.0, atol=1e-3)
    _, short = _matched(drawn, image, corners, 2, 13)
    assert short.max() < 0.4, "beyond the reach"


def test_a_patch_between_pixels_is_found_between_them() -> None:
    drawn = np.zeros((60, 60, 3))
    v, u = np.mgrid[:60, :60]

    def blob(x: float, y: float) -> Array:
        return np.repeat(40.0 + 180.0 * np.exp(-((u - x) ** 2 + (v - y) ** 2) / 18.0)[..., None], 3, axis=-1)

    drawn, image = (np.rint(blob(*at)).astype(np.uint8) for at in ((30.0, 28.0), (31.3, 27.6)))
    places, _ = _matched(drawn, image, np.array([[30, 28]]), 4, 13)
    np.testing.assert_allclose(places, [[31.3, 27.6]], atol=0.06)


def test_corners_lie_on_the_body_with_room_for_a_patch() -> None:
    board = np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((24, 24)))
    drawn = np.repeat((40 + 170 * board).astype(np.uint8)[..., None], 3, axis=-1)
    body = np.zeros(board.shape, dtype=bool)
    body[:, 80:] = True
    found = _corners(drawn, body, DEFAULTS)
    places = {(int(x), int(y)) for x, y in np.round(found / 24.0)}
    assert places == {(x, y) for x in range(4, 8) for y in range(1, 8)}
    assert np.abs(found / 24.0 - np.round(found / 24.0)).max() * 24.0 <= 1.5, "corners of the board"
    rough = np.random.default_rng(0).integers(0, 255, (40, 60, 3)).astype(np.uint8)
    within = np.ones((40, 60), dtype=bool)
    within[:, :20] = False
    found = _corners(rough, within, DEFAULTS)
    assert 26 <= found[:, 0].min() <= 29, "six pixels within the body"
    assert 46 <= found[:, 0].max() <= 52, "seven from the border"
    assert 7 <= found[:, 1].min() <= 12
    assert 27 <= found[:, 1].max() <= 32
    apart = np.linalg.norm(found[:, None] - found, axis=-1) + 99.0 * np.eye(len(found))
    assert 6.0 <= apart.min() < 7.0
    many = np.random.default_rng(1).integers(0, 255, (192, 192, 3)).astype(np.uint8)
    assert len(_corners(many, np.ones((192, 192), dtype=bool), DEFAULTS)) == 90
    assert len(_corners(np.full_like(drawn, 90), body, DEFAULTS)) == 0


def test_misfits_have_the_slopes_of_their_differences() -> None:
    points = np.random.default_rng(1).uniform(-0.05, 0.05, (5, 3))
    places = bearings_to_view(VIEW, project_points(POSE, points)) + np.array([2.0, -1.0])
    off, slopes = _misfit(VIEW, points, places, POSE)
    np.testing.assert_allclose(off, np.tile([-2.0, 1.0], (5, 1)), atol=1e-9)
    for k, step in enumerate(1e-6 * np.eye(6)):
        ahead, back = (_misfit(VIEW, points, places, POSE.retract(s * step))[0] for s in (1.0, -1.0))
        np.testing.assert_allclose(slopes[..., k], (ahead - back) / 2e-6, rtol=1e-5, atol=1e-3)


def agreed(off_px: Array, count: int, agree: float = 1.5) -> tuple[tuple[Pose, Array, float] | None, Pose, Array]:
    """What points state of which the last ones lie `off_px` aside, from a pose that is a little wrong."""
    points = np.random.default_rng(2).uniform(-0.05, 0.05, (count, 3))
    places = bearings_to_view(VIEW, project_points(POSE, points))
    places[count - len(off_px) :] += off_px
    start = POSE.retract(np.array([0.05, -0.04, 0.06, 4e-3, -3e-3, 0.03]))
    return _agreed(VIEW, points, places, start, agree, DEFAULTS), start, points


def test_most_points_have_their_pose_whatever_the_others_say() -> None:
    wrong = np.random.default_rng(3).uniform(-12.0, 12.0, (7, 2))
    wrong += 3.0 * np.sign(wrong)
    found, _, points = agreed(wrong, 25)
    assert found is not None
    pose, information, number = found
    error = POSE.step_to(pose)
    assert np.abs(error[:3]).max() < 3e-3
    assert np.abs(error[3:]).max() < 2e-3
    assert number == pytest.approx(18.0, abs=0.05)
    slopes = _misfit(VIEW, points[:18], np.zeros((18, 2)), pose)[1]
    expected = np.einsum("nij,nik->jk", slopes, slopes) / (2.0 * 0.6**2)
    np.testing.assert_allclose(information, expected, rtol=0.02, atol=0.005 * np.abs(expected).max())


def test_a_point_counts_less_the_further_it_is_off() -> None:
    found, _, _ = agreed(np.array([[0.6, 0.0]] * 2 + [[0.0, -0.6]] * 2), 60)
    assert found is not None
    assert found[2] == pytest.approx(60.0 - 4.0 * 0.6**2 / 1.5**2, abs=0.15)


@pytest.mark.parametrize(("good", "is_enough"), [(7, False), (8, True)])
def test_eight_points_have_to_agree(good: int, is_enough: bool) -> None:
    wrong = np.array([[20.0 * np.cos(k), 20.0 * np.sin(k)] for k in range(4)])
    assert (agreed(wrong, good + 4)[0] is not None) is is_enough


def test_the_start_counts_with_five_deviations_of_the_alignment() -> None:
    expected = 1.0 / (5.0 * np.array([0.06, 0.06, 0.06, 3e-3, 3e-3, 0.04])) ** 2
    np.testing.assert_allclose(DEFAULTS.prior, np.diag(expected))


def test_a_drawing_shows_the_points_of_the_body() -> None:
    patches = Patches(painted_cube(BLOCKS))
    drawn, points = patches._drawing(VIEW, POSE)
    seen = np.isfinite(points[..., 0])
    assert seen.sum() > 5000
    rows, columns = np.nonzero(seen)
    at = bearings_to_view(VIEW, project_points(POSE, points[seen]))
    assert np.abs(at - np.stack([columns, rows], axis=-1)).max() < 0.51
    side = np.abs(points[seen]).max(axis=-1)
    np.testing.assert_allclose(side, side.max(), rtol=1e-6)
    assert (drawn[5, 5] == 128).all()
    assert drawn[seen].std() > 30.0


def test_a_body_about_the_camera_is_not_searched() -> None:
    patches, frame = Patches(painted_cube(BLOCKS)), np.zeros((CAMERA.height, CAMERA.width, 3), np.uint8)
    inside = Pose(POSE.rotation, np.array([0.0, 0.0, 0.05]))
    assert patches.fit(frame, CAMERA, inside) is None
