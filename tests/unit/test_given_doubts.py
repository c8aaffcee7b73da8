"""Points that do not fit their body: the mistake is named where one explains them, and doubted where none does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.flight import POINTS, Flight, fly
from tests.unit.test_given_points import NAMES, body, camera_of, clip_of, pixels_of, write_csv
from vid2phys.commands.identify.external_doubts import Points, doubts, doubts_of_motion
from vid2phys.commands.identify.external_keypoints import given_track
from vid2phys.errors import InputError
from vid2phys.io.camera import load_camera
from vid2phys.io.mesh import load_mesh
from vid2phys.io.points import save_body_points
from vid2phys.io.video import read_clip
from vid2phys.notes import Severity, is_doubtful, severity_of
from vid2phys.types import Array, Camera, Observation

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases"
SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "quadrotor"
FEW = np.array([[0.12, 0.0, 0.01], [0.08, 0.09, 0.02], [0.08, -0.09, 0.02], [-0.08, 0.09, 0.02], [-0.08, -0.09, 0.02],
                [0.0, 0.0, -0.04]])  # fmt: skip
FEW_NAMES = ("nose", "fl", "fr", "rl", "rr", "low")
CAMERA = Camera(np.array([[800.0, 0.0, 320.0], [0.0, 800.0, 240.0], [0.0, 0.0, 1.0]]), 640, 480)


@pytest.fixture(scope="module")
def flight() -> Flight:
    return fly(1.5)


def seen(flight: Flight, noise_px: float = 0.3, places: Array = FEW) -> Array:
    """Pixels of points [K, 3] along the flight, [T, K, 2], with independent errors."""
    from vid2phys.engine.observe import bearings_to_pixels, observe

    bearings, _, _ = observe(flight.system, flight.states, places, flight.camera_to_world)
    pixels = bearings_to_pixels(CAMERA, bearings)
    return pixels + np.random.default_rng(0).normal(0.0, noise_px, pixels.shape)


def points(pixels: Array, places: Array = FEW, names: tuple[str, ...] = FEW_NAMES) -> Points:
    return Points(pixels, np.ones(pixels.shape[:2], dtype=bool), places, names)


def swapped(pixels: Array, *pairs: tuple[int, int]) -> Array:
    order = list(range(pixels.shape[1]))
    for i, k in pairs:
        order[i], order[k] = order[k], order[i]
    return pixels[:, order]


@pytest.mark.parametrize("noise_px", [0.2, 1.0, 2.5])
def test_good_points_are_not_doubted(flight: Flight, noise_px: float) -> None:
    assert doubts(points(seen(flight, noise_px)), CAMERA, "the points") == ()


def test_exchanged_names_are_found_though_a_point_is_hidden_in_each_frame(flight: Flight) -> None:
    pixels = swapped(seen(flight), (0, 1))
    visible = np.ones(pixels.shape[:2], dtype=bool)
    visible[np.arange(len(pixels)), np.arange(len(pixels)) % len(FEW)] = False
    with pytest.raises(InputError, match="names exchanged \\('fl' for 'nose', 'nose' for 'fl'\\)"):
        doubts(Points(pixels, visible, FEW, FEW_NAMES), CAMERA, "the points")


def test_outliers_and_gaps_are_no_reason_for_doubt(flight: Flight) -> None:
    rng, pixels = np.random.default_rng(1), seen(flight)
    visible = rng.random(pixels.shape[:2]) < 0.85
    pixels = pixels + np.where(rng.random(pixels.shape[:2])[..., None] < 0.08, 25.0, 0.0)
    assert doubts(Points(pixels, visible, FEW, FEW_NAMES), CAMERA, "the points") == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p * [1, -1] + [0, 479], r"with y counted from the bottom \(479 - y\)"),
        (lambda p: p * [-1, 1] + [639, 0], r"with x counted from the right \(639 - x\)"),
        (lambda p: p[..., ::-1], "with x and y exchanged"),
        (lambda p: swapped(p, (0, 3)), "names exchanged .*'rl' for 'nose'"),
        (lambda p: swapped(p, (1, 2), (3, 4)), "names exchanged .*'fr' for 'fl', 'fl' for 'fr'"),
        (lambda p: swapped(p, (0, 1), (1, 4), (4, 5)), "names exchanged"),
        (lambda p: 3.0 * p, "pixels of an image of 1920x1440"),
    ],
)
def test_the_mistake_is_named(flight: Flight, change, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=words) as caught:
        doubts(points(change(seen(flight))), CAMERA, "the points of 'k.csv'")
    assert "no pose of the body explains the points of 'k.csv'" in str(caught.value)


def test_left_handed_places_are_named(flight: Flight) -> None:
    with pytest.raises(InputError, match="left-handed axes"):
        doubts(points(seen(flight), FEW * [1.0, 1.0, -1.0]), CAMERA, "the points")


def test_names_of_many_points_are_found(flight: Flight) -> None:
    pixels = swapped(seen(flight, places=POINTS), (2, 7), (3, 9))
    with pytest.raises(InputError, match="'bolt 7' for 'bolt 2', 'bolt 9' for 'bolt 3'"):
        doubts(points(pixels, POINTS, NAMES), CAMERA, "the points")


def test_what_noise_nearly_hides_is_a_doubt(flight: Flight) -> None:
    """A mirrored body is nearly as good as the true one where noise is as large as perspective."""
    notes = doubts(points(seen(flight, 0.5) * [1, -1] + [0, 479]), CAMERA, "the points")
    assert is_doubtful(notes)
    assert "y counted from the bottom" in notes[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_another_body_is_doubted(flight: Flight, seed: int) -> None:
    other = np.random.default_rng(seed).uniform(-0.12, 0.12, FEW.shape)
    notes = doubts(points(seen(flight), other), CAMERA, "the points")
    assert is_doubtful(notes)
    assert "points of this body" in notes[0]


def test_inaccurate_places_are_a_warning(flight: Flight) -> None:
    places = FEW + np.random.default_rng(4).normal(0.0, 0.004, FEW.shape)
    notes = doubts(points(seen(flight, 0.15), places), CAMERA, "the points")
    assert [severity_of(note) for note in notes] == [Severity.WARNING]
    assert "places of the body's points" in notes[0]


def test_points_outside_the_image_are_doubted(flight: Flight) -> None:
    notes = doubts(points(seen(flight) + np.array([420.0, 0.0])), CAMERA, "the points")
    assert any("outside the image of 640x480" in note for note in notes)
    assert is_doubtful(notes)


@pytest.mark.parametrize(("times", "doubtful"), [(1.0, False), (2.0, False), (6.0, True)])
def test_a_motion_that_misses_the_points_is_doubted(times: float, doubtful: bool) -> None:
    shape, rng = (40, 6, 2), np.random.default_rng(5)
    observation = Observation(
        np.arange(40) / 30.0, np.zeros(shape), np.broadcast_to(1e-6 * np.eye(2), (*shape, 2)), np.zeros((*shape, 6)),
        np.full(6, 0.2), np.ones(shape[:2], dtype=bool), FEW,
    )  # fmt: skip
    residual = rng.normal(0.0, times * 1e-3, shape)
    residual[:, 0] = 1.0 if times == 1.0 else residual[:, 0]  # an outlier throughout
    assert is_doubtful(doubts_of_motion(observation, residual)) == doubtful


def test_a_flipped_file_is_refused_by_name(tmp_path: Path, flight: Flight) -> None:
    save_body_points(dict(zip(NAMES, POINTS, strict=True)), tmp_path / "body.csv")
    pixels = pixels_of(flight) * [1.0, -1.0] + [0.0, 479.0]
    csv = write_csv(tmp_path / "flipped.csv", flight.times_s, pixels)
    with pytest.raises(InputError, match=r"explains the points of 'flipped.csv'.* y counted from the bottom"):
        given_track(csv, tmp_path / "body.csv", clip_of(flight.times_s), camera_of(flight), body())


def test_places_in_a_larger_unit_are_refused(tmp_path: Path, flight: Flight) -> None:
    save_body_points(dict(zip(NAMES, 1e-3 * POINTS, strict=True)), tmp_path / "body.csv")
    csv = write_csv(tmp_path / "k.csv", flight.times_s, pixels_of(flight))
    with pytest.raises(InputError, match=r"within 0\.000.* m of the body's origin.*check axes and units"):
        given_track(csv, tmp_path / "body.csv", clip_of(flight.times_s), camera_of(flight), body())


@pytest.mark.skipif(not CASES.is_dir(), reason="../shared is not there")
def test_the_cases() -> None:
    """The sample's points with y from the bottom are refused; those with independent errors are taken as they are."""
    clip, camera = read_clip(SAMPLE / "clip.mp4"), load_camera(SAMPLE / "camera.yaml")
    mesh = load_mesh(SAMPLE / "quad.obj", "m")
    flipped, good = CASES / "keypoints_y_up", CASES / "independent_points"
    with pytest.raises(InputError, match=r"miss by 1\.4 px.*fit to 0\.31 px with y counted from the bottom"):
        given_track(flipped / "yflip.csv", flipped / "body.csv", clip, camera, mesh)
    track, notes = given_track(good / "glob.csv", good / "body.csv", clip, camera, mesh)
    assert len(notes) == 1
    assert "estimated, 0.3 px a point and up to 0.0" in notes[0]
    assert track.tracked.all()
