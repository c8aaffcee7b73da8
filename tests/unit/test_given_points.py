"""Keypoints of another tracker: their files, their error model, and a fit through the command that takes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.flight import POINTS, Flight, fly
from vid2phys.commands.identify import IdentifyConfig, identify
from vid2phys.commands.identify.external_keypoints import given_track, to_keypoints
from vid2phys.engine.observe import bearings_to_pixels, observe
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import angle_between, invert_transform, make_transform, matrix_from_quat, quat_from_matrix
from vid2phys.io.camera import load_camera
from vid2phys.io.keypoints import Keypoints, load_keypoints, save_keypoints
from vid2phys.io.mocap import load_mocap
from vid2phys.io.points import load_body_points, save_body_points
from vid2phys.io.run import load_observation, save_observation
from vid2phys.io.selection import chosen
from vid2phys.io.video import VideoWriter
from vid2phys.notes import Severity, severity_of
from vid2phys.report.alignment import Alignment, apply
from vid2phys.types import Array, Camera, Clip, Mesh

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "quadrotor"
SIZE = (640, 480)
NAMES = tuple(f"bolt {i}" for i in range(len(POINTS)))
SIGMA_PX = 0.7
SECOND = 30  # frames
TIMES = np.arange(20) / 25.0


@pytest.fixture(scope="module")
def flight() -> Flight:
    return fly(1.0)


def camera_of(flight: Flight) -> Camera:
    """With a lens that bends, other focal lengths along its axes, and a centre aside."""
    K = np.array([[620.0, 0.0, 300.0], [0.0, 600.0, 255.0], [0.0, 0.0, 1.0]])
    lens = np.array([-0.21, 0.06, 1e-3, -2e-3])
    return Camera(K, *SIZE, lens, camera_to_world=flight.camera_to_world)


def clip_of(times_s: Array) -> Clip:
    return Clip(None, times_s, *SIZE)  # type: ignore[arg-type]


def body() -> Mesh:
    return Mesh(POINTS, np.array([[0, 1, 2]]), np.zeros(1, dtype=np.int64))


def pixels_of(flight: Flight) -> Array:
    bearings, _, _ = observe(flight.system, flight.states, POINTS, flight.camera_to_world)
    return bearings_to_pixels(camera_of(flight), bearings)


def write_csv(path: Path, times_s: Array, pixels: Array, extra: str = "", title: str = "") -> Path:
    """Rows in no order, points of a frame backwards, as trackers may write them."""
    lines = [f"time_s,point,x_px,y_px{title}"]
    for t in np.random.default_rng(1).permutation(len(times_s)):
        lines += [f"{times_s[t]:.6f},{NAMES[k]},{x:.4f},{y:.4f}{extra}" for k, (x, y) in
                  reversed(list(enumerate(pixels[t])))]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def points_file(tmp_path: Path) -> Path:
    save_body_points(dict(zip(NAMES, POINTS, strict=True)), tmp_path / "body.csv")
    return tmp_path / "body.csv"


def test_keypoints_round_trip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape = (len(TIMES), 3)
    root = rng.normal(size=(*shape, 2, 2)) + 2.0 * np.eye(2)
    seen = Keypoints(("a", "b", "c"), rng.uniform(0, 400, (*shape, 2)), root @ np.swapaxes(root, -1, -2),
                     rng.random(shape) < 0.7, np.full(len(TIMES), 0.4))  # fmt: skip
    seen.visible[3] = [True, True, False]
    save_keypoints(seen, TIMES, tmp_path / "k.csv")
    again = load_keypoints(tmp_path / "k.csv", seen.names, TIMES, SIZE, "body.csv")
    assert (again.visible == seen.visible).all()
    np.testing.assert_allclose(again.pixels[seen.visible], seen.pixels[seen.visible], rtol=1e-9)
    assert again.covariance is not None
    assert seen.covariance is not None
    np.testing.assert_allclose(again.covariance[seen.visible], seen.covariance[seen.visible], rtol=1e-8)
    assert again.shared_px is not None
    np.testing.assert_allclose(again.shared_px[seen.visible.any(axis=1)], 0.4)


@pytest.mark.parametrize(
    "row", ["2;a;10;20;0.5;1;0.9", "2;b;;20;0.5;1;0.9", "2;b;10;20;0.5;0;0.9", "2;b;10;20;0.5;1;.3"]
)
def test_what_is_not_seen_is_not_used(tmp_path: Path, row: str) -> None:
    (tmp_path / "k.csv").write_text(f"frame;point;x;y;sigma;visible;likelihood\n{row}\n0;a;9;8;1;1;1\n")
    seen = load_keypoints(tmp_path / "k.csv", ("a", "b"), TIMES, SIZE, "body.csv")
    assert seen.visible.sum() == (2 if row.startswith("2;a") else 1)
    assert seen.visible[0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time_s,point,x_px\n0,a,1", "has the columns time_s, point, x_px"),
        ("frame,point,x_px,y_px\n20,a,10,20", "row 2 of '.*' has frame 20; expected 0 to 19"),
        ("frame,point,x_px,y_px\n1.5,a,10,20", "has frame 1.5"),
        ("time_s,point,x_px,y_px\n0,a,10,20\n7.3,a,10,20", "row 3 of '.*' has time_s 7.3; expected times of the clip"),
        ("frame,point,x_px,y_px\n0,nose,10,20", "the point 'nose'; expected one of 'body.csv': a, b"),
        ("frame,point,x_px,y_px\n0,a,10,20\n0,a,11,20", "row 3 of '.*' has point 'a' of frame 0 again"),
        ("frame,point,x_px,y_px\n0,a,0.41,0.2", "places up to 0.41 px; expected pixels"),
        ("frame,point,x_px,y_px\n0,a,10,5000", "is at 10, 5000 px; expected places in an image of 640x480"),
        ("frame,point,x_px,y_px,sigma_px\n0,a,10,20,0", "no proper sigma_px"),
        ("frame,point,x_px,y_px,cov_xx_px2,cov_xy_px2,cov_yy_px2\n0,a,10,20,1,2,1", "no proper covariance"),
        ("frame,point,x_px,y_px,confidence\n0,a,10,20,3", "has confidence 3; expected 0 to 1"),
        ("frame,point,x_px,y_px,visible\n0,a,10,20,maybe", "has visible 'maybe'"),
        ("frame,point,x_px,y_px,visible\n0,a,10,20,0", "has no visible point"),
        ("frame,point,x_px,y_px,shared_px\n0,a,10,20,-1", "no proper shared_px"),
        ("frame,point,x_px,y_px\n0,a,ten,20", "row 2 of '.*' has 'ten'; expected a number"),
    ],
)
def test_what_is_wrong_is_said_by_row(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "k.csv").write_text(text + "\n")
    with pytest.raises(InputError, match=message):
        load_keypoints(tmp_path / "k.csv", ("a", "b"), TIMES, SIZE, "body.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [("name,x_m,y_m,z_m\na,0,0,0\na,1,0,0", "row 3 of '.*' has 'a' again"), ("name,x,y,z\na,0,0,0", "has no unit")],
)
def test_body_points_are_named_once_with_units(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "body.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        load_body_points(tmp_path / "body.csv")


def test_poses_and_errors_of_keypoints_without_any(tmp_path: Path, flight: Flight, points_file: Path) -> None:
    """What a file does not say of its errors is estimated; a lens and names in another order change nothing."""
    noise = np.random.default_rng(3).normal(0.0, SIGMA_PX, (len(flight.times_s), len(POINTS), 2))
    csv = write_csv(tmp_path / "k.csv", flight.times_s, pixels_of(flight) + noise)
    track, notes = given_track(csv, points_file, clip_of(flight.times_s), camera_of(flight), body())
    assert track.tracked.all()
    poses = invert_transform(flight.camera_to_world) @ make_transform(
        matrix_from_quat(flight.states[:, 3:7]), flight.states[:, :3]
    )
    off = angle_between(quat_from_matrix(track.poses.rotation), quat_from_matrix(poses[:, :3, :3]))
    assert np.rad2deg(np.median(off)) < 2.0  # 0.7 px of 28 px, on twelve points
    found, true = (place[:, :2] / place[:, 2:] for place in (track.poses.translation, poses[:, :3, 3]))
    assert np.median(np.linalg.norm(found - true, axis=1)) < 1e-3
    assert len(notes) == 1
    sigma = float(notes[0].split("estimated, ")[1].split()[0])
    assert sigma == pytest.approx(SIGMA_PX, rel=0.08)
    moved = np.sqrt((track.observation.shared_basis**2).mean(axis=(1, 2)))
    assert moved.max() * 610.0 < 0.5 * SIGMA_PX  # errors of the points are independent: next to nothing is shared


def test_given_errors_are_taken_as_they_are(tmp_path: Path, flight: Flight, points_file: Path) -> None:
    csv = write_csv(tmp_path / "k.csv", flight.times_s, pixels_of(flight), ",2.0,0.5", ",sigma_px,shared_px")
    track, notes = given_track(csv, points_file, clip_of(flight.times_s), camera_of(flight), body())
    assert notes == ()
    again = to_keypoints(track.observation, camera_of(flight))
    assert again.covariance is not None
    assert again.shared_px is not None
    np.testing.assert_allclose(again.covariance, np.broadcast_to(4.0 * np.eye(2), again.covariance.shape), atol=1e-9)
    np.testing.assert_allclose(again.pixels, pixels_of(flight), atol=1e-3)
    np.testing.assert_allclose(again.shared_px, 0.5, rtol=0.1)


def test_errors_that_are_stated_far_too_small_are_scaled_up(tmp_path: Path, flight: Flight, points_file: Path) -> None:
    pixels = pixels_of(flight)
    pixels += np.random.default_rng(3).normal(0.0, SIGMA_PX, pixels.shape)
    stated = f",{SIGMA_PX / 40.0},0"
    csv = write_csv(tmp_path / "k.csv", flight.times_s, pixels, stated, ",sigma_px,shared_px")
    track, notes = given_track(csv, points_file, clip_of(flight.times_s), camera_of(flight), body())
    assert track.tracked.all()
    assert severity_of(notes[0]) is Severity.WARNING
    times = float(notes[0].split("pose of the body by ")[1].split()[0])
    assert times == pytest.approx(40.0, rel=0.1)
    variance = np.diagonal(to_keypoints(track.observation, camera_of(flight)).covariance[0, 0])  # type: ignore[index]
    np.testing.assert_allclose(np.sqrt(variance), SIGMA_PX, rtol=0.1)


def test_points_in_few_frames_are_refused(tmp_path: Path, flight: Flight, points_file: Path) -> None:
    csv = write_csv(tmp_path / "k.csv", flight.times_s[::3], pixels_of(flight)[::3])
    with pytest.raises(InputError, match=r"4 or more points in .* frames; expected at least"):
        given_track(csv, points_file, clip_of(flight.times_s), camera_of(flight), body())


def test_frames_with_few_points_share_an_error_too(tmp_path: Path, flight: Flight, points_file: Path) -> None:
    csv = write_csv(tmp_path / "k.csv", flight.times_s, pixels_of(flight), ",1.0,0.5", ",sigma_px,shared_px")
    lines = csv.read_text().splitlines()
    few = [line for line in lines if not line.startswith(f"{flight.times_s[4]:.6f},") or ",bolt 1," in line]
    csv.write_text("\n".join(few) + "\n")
    track, _ = given_track(csv, points_file, clip_of(flight.times_s), camera_of(flight), body())
    assert list(track.lost_frames) == [4]
    assert track.observation.visible[4].sum() == 1
    moved = np.sqrt((track.observation.shared_basis[4] ** 2).mean(axis=(0, 1)))
    np.testing.assert_allclose(moved * 610.0, 0.5, rtol=0.1)


def test_an_earlier_observation_comes_back_whole(tmp_path: Path, flight: Flight, points_file: Path) -> None:
    csv = write_csv(tmp_path / "k.csv", flight.times_s, pixels_of(flight), ",1.0", ",sigma_px")
    clip, camera = clip_of(flight.times_s), camera_of(flight)
    first, _ = given_track(csv, points_file, clip, camera, body())
    clock = first.observation.times_s + 0.01 * np.arange(len(first.tracked)) ** 2  # of a run that knew better
    first = replace(first, observation=replace(first.observation, error_clock_s=clock))
    save_observation(first.observation, tmp_path / "o.npz")
    again, _ = given_track(tmp_path / "o.npz", None, clip, camera, body())
    for name in ("bearings", "covariance", "shared_basis", "correlation_time_s", "visible", "error_clock_s"):
        np.testing.assert_array_equal(getattr(again.observation, name), getattr(first.observation, name))
    with pytest.raises(InputError, match="expected those of 'clip', 5 up to"):
        given_track(tmp_path / "o.npz", None, clip_of(TIMES[:5]), camera, body())


@pytest.mark.parametrize("column", ["time_s", "frame"])
def test_a_file_of_the_whole_video_serves_a_part(
    tmp_path: Path, flight: Flight, points_file: Path, column: str
) -> None:
    """Frames that were left out of the clip have their rows all the same; frames are counted in the video."""
    csv = write_csv(tmp_path / "k.csv", flight.times_s, pixels_of(flight), ",1.0", ",sigma_px")
    if column == "frame":
        number = {f"{time:.6f}": str(index) for index, time in enumerate(flight.times_s)}
        rows = [line.split(",", 1) for line in csv.read_text().splitlines()[1:]]
        csv.write_text("\n".join(["frame,point,x_px,y_px,sigma_px", *(f"{number[t]},{rest}" for t, rest in rows)]))
    clip, kept = clip_of(flight.times_s), np.array([3, 4, 6, 9, 10, 11, 12, 13])
    whole, _ = given_track(csv, points_file, clip, camera_of(flight), body())
    part, _ = given_track(csv, points_file, chosen(clip, kept), camera_of(flight), body())
    np.testing.assert_array_equal(part.observation.times_s, flight.times_s[kept])
    np.testing.assert_array_equal(part.observation.bearings, whole.observation.bearings[kept])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (POINTS[:3], "has 3 points; expected 4 or more"),
        (POINTS[:1] * np.arange(5)[:, None], "lie on a line"),
        (1000.0 * POINTS, "check axes and units"),
    ],
)
def test_points_that_cannot_serve_are_refused(tmp_path: Path, flight: Flight, points: Array, message: str) -> None:
    save_body_points({f"p{i}": place for i, place in enumerate(points)}, tmp_path / "body.csv")
    with pytest.raises(InputError, match=message):
        given_track("no.csv", tmp_path / "body.csv", clip_of(TIMES), camera_of(flight), body())


HAND = {"mesh": None, "system": "hand"}
PIXELS = {"loss": "pixel", "method": "adam", "actions": "a.csv"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": None, "body_points": "b.csv"}, "without --observation"),
        ({"observation": "k.csv", "body_points": None}, "without --body-points"),
        ({"observation": "o.npz", "body_points": "b.csv"}, "with --body-points"),
        (
            {"observation": "k.csv", "body_points": "b.csv", "mesh": None, "system": "hand"},
            "for a body on a known base",
        ),
        ({"observation": "k.csv", "body_points": "b.csv", **PIXELS}, "--loss pixel with --observation"),
    ],
)
def test_options_that_do_not_go_together(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        IdentifyConfig(**{"clip": "c.mp4", "camera": "c.yaml", "mesh": "m.obj"} | options).check()


def write_sample_keypoints(folder: Path) -> None:
    """Keypoints of the sample's first second with noise, k.csv, the points of the body that they show, body.csv, and a
    clip.mp4 of as many grey frames, since no pixel is looked at."""
    truth = json.loads((SAMPLE / "truth.json").read_text())
    camera, times_s = load_camera(SAMPLE / "camera.yaml"), np.arange(SECOND) / 30.0
    positions, quats, _ = apply(Alignment(truth["time_offset_s"]), load_mocap(SAMPLE / "mocap.csv"), times_s)
    assert camera.camera_to_world is not None
    poses = invert_transform(camera.camera_to_world) @ make_transform(matrix_from_quat(quats), positions)
    places = np.einsum("tij,kj->tki", poses[:, :3, :3], POINTS) + poses[:, None, :3, 3]
    pixels = bearings_to_pixels(camera, places[..., :2] / places[..., 2:])
    pixels += np.random.default_rng(5).normal(0.0, 0.4, pixels.shape)
    write_csv(folder / "k.csv", times_s, pixels, ",0.4,0.1", ",sigma_px,shared_px")
    save_body_points(dict(zip(NAMES, POINTS, strict=True)), folder / "body.csv")
    with VideoWriter(folder / "clip.mp4", *SIZE, 30.0) as video:
        for _ in range(SECOND):
            video.write(np.full((SIZE[1], SIZE[0], 3), 90, dtype=np.uint8))


def test_mass_from_keypoints_of_the_sample(tmp_path: Path) -> None:
    """Twelve points of the true motion with noise: the mass is within its interval, no network is used."""
    write_sample_keypoints(tmp_path)
    truth = json.loads((SAMPLE / "truth.json").read_text())
    result, folder = identify(
        *(tmp_path / "clip.mp4", SAMPLE / "quad.obj", SAMPLE / "camera.yaml"), actions=SAMPLE / "actions.csv",
        fit=("mass",), observation=tmp_path / "k.csv", body_points=tmp_path / "body.csv", overlay=False,
        out=tmp_path / "run",
    )  # fmt: skip
    assert result.status.key == "converged"
    mass = next(estimate for estimate in result.parameters if estimate.name == "mass")
    assert mass.ci95[0] < truth["parameters"]["mass"] < mass.ci95[1]
    assert mass.value == pytest.approx(truth["parameters"]["mass"], rel=0.05)
    written = json.loads((folder / "result.json").read_text())
    assert written["inputs"]["observation"]["path"].endswith("k.csv")
    assert "model" not in written["inputs"]
    assert load_observation(folder / "observation.npz").times_s.shape == (SECOND,)


def test_points_of_another_body_end_as_doubtful(tmp_path: Path) -> None:
    write_sample_keypoints(tmp_path)
    other = dict(zip(NAMES, POINTS * [1.0, 0.3, 1.0], strict=True))  # narrower
    save_body_points(other, tmp_path / "body.csv")
    lines = [line.rsplit(",", 2)[0] for line in (tmp_path / "k.csv").read_text().splitlines()]  # no errors are stated
    (tmp_path / "k.csv").write_text("\n".join(lines) + "\n")
    result, folder = identify(
        *(tmp_path / "clip.mp4", SAMPLE / "quad.obj", SAMPLE / "camera.yaml"), actions=SAMPLE / "actions.csv",
        fit=("mass",), observation=tmp_path / "k.csv", body_points=tmp_path / "body.csv", overlay=False,
        out=tmp_path / "run",
    )  # fmt: skip
    assert result.status.key == "doubtful"
    assert "no pose of the body explains the points of 'k.csv'" in result.diagnostics["notes"][0]  # type: ignore[index]
    assert json.loads((folder / "result.json").read_text())["status"] == result.status.key
