"""Intrinsics with honest spread, refusals, and poses: from points seen through a known camera, with noise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.board_scene import facing, photograph, round_about
from vid2phys.camera_calibration.bundle import Bundle
from vid2phys.camera_calibration.detect import View
from vid2phys.camera_calibration.intrinsics import MODELS, calibrate_views
from vid2phys.camera_calibration.pose import Places, places_of_markers, places_of_target, solve_pose
from vid2phys.camera_calibration.quality import judge, require_good
from vid2phys.camera_calibration.target import Target, parse_target
from vid2phys.camera_calibration.views import choose_views, coverage
from vid2phys.engine.observe import project
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import invert_transform, look_at, make_transform, matrix_from_rotvec
from vid2phys.types import Camera

SIZE = (640, 480)
BOARD = parse_target("charuco:7x5:30mm:22mm:4x4_50")
K = np.array([[610.0, 0, 322], [0, 605, 236], [0, 0, 1]])
CAMERAS = {
    "plumb_bob": Camera(K, *SIZE, np.array([-0.28, 0.09, 0.0008, -0.0006, 0.0])),
    "rational_polynomial": Camera(
        K, *SIZE, np.array([0.9, 0.35, 0.0008, -0.0006, 0.02, 1.2, 0.5, 0.03]), "rational_polynomial"
    ),
    "equidistant": Camera(
        np.array([[300.0, 0, 322], [0, 298, 236], [0, 0, 1]]),
        *SIZE,
        np.array([0.02, -0.01, 0.004, -0.001]),
        "equidistant",
    ),
}


def look(
    camera: Camera, pose: np.ndarray, name: str = "", *, noise: float = 0.0, seed: int = 0, target: Target = BOARD
) -> View:
    """What of a target lies in the image, with noise."""
    pixels = project(camera, target.points_m() @ pose[:3, :3].T + pose[:3, 3])
    pixels = pixels + noise * np.random.default_rng(seed).normal(size=pixels.shape)
    inside = ((pixels > 0) & (pixels < np.array(SIZE) - 1)).all(axis=1)
    return View(np.flatnonzero(inside), pixels[inside], name)


def views_of(
    camera: Camera, count: int = 14, *, noise: float = 0.2, seed: int = 0, tilt_deg: float = 35.0
) -> list[View]:
    poses = round_about(BOARD, camera, count, seed=4, tilt_deg=tilt_deg)
    views = [look(camera, pose, f"{i}.png", noise=noise, seed=100 * seed + i) for i, pose in enumerate(poses)]
    return [view for view in views if len(view.ids) >= 8]


def numbers(camera: Camera) -> np.ndarray:
    return np.array([camera.K[0, 0], camera.K[1, 1], camera.K[0, 2], camera.K[1, 2], *camera.distortion])


@pytest.mark.parametrize("model", MODELS)
def test_the_camera_comes_back(model: str) -> None:
    truth = CAMERAS[model]
    fit = calibrate_views(BOARD, views_of(truth), SIZE, model)
    error = numbers(fit.camera) - numbers(truth)
    known = fit.std > 0.0
    if model != "rational_polynomial":  # its eight coefficients stand in for each other
        assert np.abs(error[known] / fit.std[known]).max() < 4.0
    assert np.abs(error[:4]).max() < 6.0
    assert fit.rms_px == pytest.approx(0.2 * np.sqrt(2.0), rel=0.15)
    columns, rows = np.meshgrid(np.linspace(60, 580, 9), np.linspace(60, 420, 7))
    from vid2phys.engine.observe import pixels_to_bearings

    pixels = np.stack([columns, rows], axis=-1)
    there = project(fit.camera, np.concatenate([pixels_to_bearings(truth, pixels), np.ones((7, 9, 1))], axis=-1))
    gap = there - pixels - (there - pixels).mean(axis=(0, 1))  # a shift is a turn of the camera
    assert np.abs(gap).max() < 1.5
    assert judge(fit, BOARD).refusals == ()


def test_without_noise_it_is_exact() -> None:
    for model in ("plumb_bob", "equidistant"):
        fit = calibrate_views(BOARD, views_of(CAMERAS[model], noise=0.0), SIZE, model)
        np.testing.assert_allclose(numbers(fit.camera), numbers(CAMERAS[model]), rtol=1e-3, atol=2e-3)


def test_standard_deviations_are_those_of_opencv_and_of_repeats() -> None:
    """Of a lens whose k3 is needed, so that both free the same numbers; errors over repeats are as large as said."""
    truth = Camera(K, *SIZE, np.array([-0.28, 0.09, 0.0008, -0.0006, 0.2]))
    ratios, scores = [], []
    for repeat in range(8):
        fit = calibrate_views(BOARD, views_of(truth, noise=0.04, seed=repeat), SIZE)
        bundle = Bundle(BOARD.points_m(), fit.views, SIZE, "plumb_bob")
        own = bundle.standard_deviations(numbers(fit.camera), fit.poses)
        if fit.std[8] > 0.0:
            ratios.append(own / fit.std)
        scores.append((numbers(fit.camera) - numbers(truth))[:4] / fit.std[:4])
    assert ratios
    np.testing.assert_allclose(np.mean(ratios, axis=0), 1.0, atol=0.05)
    assert 0.5 < np.sqrt(np.mean(np.square(scores))) < 1.6


def test_an_unneeded_k3_is_held_at_zero() -> None:
    fit = calibrate_views(BOARD, views_of(CAMERAS["plumb_bob"]), SIZE)
    assert fit.camera.distortion[4] == 0.0
    assert fit.std[8] == 0.0


def test_a_misread_view_is_left_out() -> None:
    views = views_of(CAMERAS["plumb_bob"])
    rng = np.random.default_rng(5)
    views[3] = View(views[3].ids, views[3].pixels + 4.0 * rng.normal(size=views[3].pixels.shape), views[3].name)
    fit = calibrate_views(BOARD, views, SIZE)
    assert fit.dropped == (views[3].name,)
    assert fit.rms_px < 0.4
    assert any("left out" in remark for remark in judge(fit, BOARD).remarks)


def test_too_few_views() -> None:
    with pytest.raises(InputError, match=r"seen in 5 images; expected 6 or more .*tilted by 20 to 40"):
        calibrate_views(BOARD, views_of(CAMERAS["plumb_bob"])[:5], SIZE)
    with pytest.raises(InputError, match="is a single marker"):
        calibrate_views(parse_target("tag:36h11:7:160mm"), views_of(CAMERAS["plumb_bob"]), SIZE)
    with pytest.raises(UsageError, match="unknown camera model 'pinhole'"):
        calibrate_views(BOARD, views_of(CAMERAS["plumb_bob"]), SIZE, "pinhole")


def refusal(views: list[View], target: Target = BOARD) -> str:
    with pytest.raises(InputError) as caught:
        require_good(judge(calibrate_views(target, views, SIZE), target))
    assert "nothing was written" in str(caught.value)
    return str(caught.value)


def test_parallel_views_are_refused() -> None:
    assert "all views are nearly parallel (within" in refusal(views_of(CAMERAS["plumb_bob"], tilt_deg=4.0))


def test_a_board_in_a_small_part_of_the_image_is_refused() -> None:
    rng = np.random.default_rng(0)
    poses = [
        facing(BOARD, 0.9, np.append(rng.uniform(-0.6, 0.6, 2), 0.0), rng.uniform(-0.05, 0.05, 2)) for _ in range(12)
    ]
    views = [look(CAMERAS["plumb_bob"], pose, str(i), noise=0.1, seed=i) for i, pose in enumerate(poses)]
    assert coverage(views, SIZE) < 0.4
    said = refusal(views)
    assert "% of the image: move it to the corners" in said


def test_a_large_error_is_refused() -> None:
    """Of a board that is bent by 6 mm, and of counts that are not those of the board."""
    bent = []
    for i, pose in enumerate(round_about(BOARD, CAMERAS["plumb_bob"], 14, seed=4)):
        points = BOARD.points_m()
        points[:, 2] = 6e-3 * np.sin(points[:, 0] / 0.21 * np.pi)
        pixels = project(CAMERAS["plumb_bob"], points @ pose[:3, :3].T + pose[:3, 3])
        inside = ((pixels > 0) & (pixels < np.array(SIZE) - 1)).all(axis=1)
        if inside.sum() > 8:
            bent.append(View(np.flatnonzero(inside), pixels[inside], str(i)))
    assert "the reprojection error is" in refusal(bent)
    views = [view for view in views_of(CAMERAS["plumb_bob"], 20) if len(view.ids) == 24]
    assert "the reprojection error is" in refusal(views, parse_target("chessboard:5x7:30mm"))


def test_a_wide_lens_by_the_wrong_model_is_refused_or_said() -> None:
    views = views_of(CAMERAS["equidistant"], 20)
    fit = calibrate_views(BOARD, views, SIZE, "plumb_bob")
    quality = judge(fit, BOARD)
    assert quality.refusals or any("another --model" in remark for remark in quality.remarks) or fit.rms_px < 0.35


def test_views_that_differ_are_chosen() -> None:
    views = views_of(CAMERAS["plumb_bob"], 14)
    doubled = [view for view in views for _ in range(5)]
    chosen = choose_views(doubled, SIZE, len(views))
    assert len({view.name for view in chosen}) == len(views)
    assert choose_views(views, SIZE, 40) == views


CAMERA = CAMERAS["plumb_bob"]
ROOM = make_transform(matrix_from_rotvec(np.array([-1.9, 0.35, -0.2])), np.array([0.4, -2.1, 1.3]))  # camera to world


@pytest.mark.parametrize("model", ["plumb_bob", "equidistant"])
@pytest.mark.parametrize("lying", ["level", "upright"])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_gravity_and_place_from_a_board(model: str, lying: str, noise: float) -> None:
    """By hand: page axes of a level board are the world's; of a hanging one page up is z, and it looks along -y."""
    camera = CAMERAS[model]
    world_from_page = np.eye(4)
    if lying == "upright":
        world_from_page[:3, 0], world_from_page[:3, 1], world_from_page[:3, 2] = [1, 0, 0], [0, 0, 1], [0, -1, 0]
    truth = look_at(np.array([0.25, -0.35, 0.3]), np.array([0.1, 0.08, 0.0]))
    if lying == "upright":
        truth = look_at(np.array([0.25, -0.45, 0.2]), np.array([0.1, 0.0, 0.08]))
    view = look(camera, invert_transform(truth) @ world_from_page, noise=noise)
    pose = solve_pose(camera, places_of_target(BOARD, view, lying))
    np.testing.assert_allclose(pose.camera_to_world, truth, atol=1e-6 if noise == 0.0 else 6e-3)
    assert pose.rms_px == pytest.approx(noise * np.sqrt(2.0), rel=0.4, abs=1e-6)
    if noise:
        assert np.abs((pose.camera_to_world - truth)[:3, 3] / pose.std_m).max() < 4.0
        assert 1e-4 < pose.std_m.max() < 5e-3
        assert 0.01 < pose.std_deg < 1.0


def test_how_a_board_lies_has_to_be_known() -> None:
    view = look(CAMERA, facing(BOARD, 0.5, [0.4, 0.2, 0.1], [0, 0]))
    with pytest.raises(UsageError, match="lies 'flat'; expected one of level, upright"):
        places_of_target(BOARD, view, "flat")


def scene(count: int = 7, *, flat: bool = False, noise: float = 0.0) -> Places:
    rng = np.random.default_rng(2)
    bearings = np.column_stack([rng.uniform(-0.4, 0.4, count), rng.uniform(-0.3, 0.3, count), np.ones(count)])
    depth = rng.uniform(1.5, 3.5, (count, 1))
    points = bearings * depth @ ROOM[:3, :3].T + ROOM[:3, 3]
    if flat:
        rays = bearings @ ROOM[:3, :3].T
        points = ROOM[:3, 3] + rays * ((0.2 - ROOM[2, 3]) / rays[:, 2])[:, None]  # on the plane z = 0.2
    pixels = project(CAMERA, (points - ROOM[:3, 3]) @ ROOM[:3, :3]) + noise * rng.normal(size=(count, 2))
    return Places(tuple("ABCDEFGHIJ"[:count]), points, pixels)


@pytest.mark.parametrize("count", [4, 7])
@pytest.mark.parametrize("flat", [False, True])
def test_pose_from_known_points(count: int, flat: bool) -> None:
    pose = solve_pose(CAMERA, scene(count, flat=flat))
    np.testing.assert_allclose(pose.camera_to_world, ROOM, atol=1e-6)
    noisy = solve_pose(CAMERA, scene(10, flat=flat, noise=0.3))
    assert np.abs((noisy.camera_to_world - ROOM)[:3, 3] / noisy.std_m).max() < 4.0


def test_points_that_give_no_pose() -> None:
    places = scene(7)
    wrong = places.points_m.copy()
    wrong[2] += [0.3, 0.0, 0.0]
    with pytest.raises(InputError, match=r"points are .* px off, '\w' by .* px; expected up to 2.0 px"):
        solve_pose(CAMERA, Places(places.names, wrong, places.pixels))
    with pytest.raises(InputError, match=r"3 points are known \(A, B, C\); expected four or more"):
        solve_pose(CAMERA, scene(3))
    line = np.linspace([0, 3, 0], [1, 3, 1], 7)
    with pytest.raises(InputError, match="are on a line"):
        solve_pose(CAMERA, Places(places.names, line, places.pixels))
    outside = places.pixels.copy()
    outside[4] = [700.0, 100.0]
    with pytest.raises(InputError, match="point 'E' is at pixel 700, 100; expected a pixel of 640x480"):
        solve_pose(CAMERA, Places(places.names, places.points_m, outside))


def test_a_small_far_tag_has_two_poses() -> None:
    tag = parse_target("tag:36h11:7:60mm")
    view = look(CAMERA, facing(tag, 2.5, [0.25, 0.1, 0.0], [0.0, 0.0]), noise=0.3, seed=1, target=tag)
    with pytest.raises(InputError, match=r"two poses of the camera fit alike .* deg apart; .*bring the target closer"):
        solve_pose(CAMERA, places_of_target(tag, view, "level"))


TAG = parse_target("tag:36h11:7:160mm")


FLOOR = Camera(K, *SIZE, np.array([-0.1, 0.02, 0.0, 0.0]))
FLOOR_POSE = look_at(np.array([0.6, -0.7, 1.0]), np.array([0.45, 0.4, 0.0]))
TAGS = {1: [0.0, 0.0], 4: [0.8, 0.05], 7: [0.1, 0.7], 9: [0.75, 0.8]}


@pytest.fixture(scope="module")
def floor() -> np.ndarray:
    """Four tags on the floor, photographed."""
    image = None
    for number, corner in TAGS.items():
        page = make_transform(np.eye(3), np.array([*corner, 0.0]))
        shot = photograph(
            FLOOR, parse_target(f"tag:36h11:{number}:160mm"), invert_transform(FLOOR_POSE) @ page, noise=0.0
        )
        image = shot if image is None else _over(image, shot)
    assert image is not None
    return image


@pytest.mark.parametrize("by", ["corners", "middles"])
def test_markers_in_the_scene(floor: np.ndarray, by: str) -> None:
    """Their corners, or their middles alone, give the camera's place."""
    known: dict[tuple[int, int | None], np.ndarray] = {}
    for number, corner in TAGS.items():
        places = TAG.points_m() + np.array([*corner, 0.0])
        if by == "corners":
            known |= {(number, i): place for i, place in enumerate(places)}
        else:
            known[number, None] = places.mean(axis=0)
    found = places_of_markers(FLOOR, known, floor, "36h11")
    assert len(found.names) == (16 if by == "corners" else 4)
    np.testing.assert_allclose(solve_pose(FLOOR, found).camera_to_world, FLOOR_POSE, atol=6e-3)
    with pytest.raises(InputError, match="shows markers of 36h11: 1, 4, 7, 9; expected some of 2"):
        places_of_markers(FLOOR, {(2, None): np.zeros(3)}, floor, "36h11")


def _over(image: np.ndarray, shot: np.ndarray) -> np.ndarray:
    """A tag's paper laid over an image: where the shot is not its background."""
    background = 255.0 * 0.35 * (1.0 + 0.15 * np.linspace(-1, 1, shot.shape[1])[None])
    return np.where(np.abs(shot - background) > 2.0, shot, image).astype(np.uint8)
