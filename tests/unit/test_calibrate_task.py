"""`vid2phys calibrate` from images on disk to cam.yaml; conversion, places, options, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.board_scene import facing, photograph, round_about
from vid2phys import cli
from vid2phys.camera_calibration.target import parse_target
from vid2phys.commands.calibrate import Calibration, calibrate
from vid2phys.commands.show_calibration import print_calibration
from vid2phys.engine.observe import project
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import invert_transform, make_transform
from vid2phys.io.camera import load_camera
from vid2phys.io.points import load_markers, load_points
from vid2phys.io.video import VideoWriter
from vid2phys.types import Camera

BOARD = parse_target("charuco:7x5:30mm:22mm:4x4_50")
CAMERA = Camera(
    np.array([[410.0, 0, 203], [0, 406, 148], [0, 0, 1]]), 400, 300, np.array([-0.25, 0.08, 0.001, -0.0007])
)
LEVEL = make_transform(np.array([[1.0, 0, 0], [0, -0.8, 0.6], [0, -0.6, -0.8]]), np.array([0.1, -0.22, 0.4]))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of nine images of the board, one of an empty room, and a text."""
    folder = tmp_path_factory.mktemp("images")
    for i, pose in enumerate(round_about(BOARD, CAMERA, 9, seed=3)):
        cv2.imwrite(str(folder / f"view{i:02}.png"), photograph(CAMERA, BOARD, pose, seed=i))
    cv2.imwrite(str(folder / "wall.png"), np.full((300, 400), 90, dtype=np.uint8))
    (folder / "notes.txt").write_text("not an image")
    return folder


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The board on the table, from the camera's place."""
    path = tmp_path_factory.mktemp("rest") / "table.png"
    cv2.imwrite(str(path), photograph(CAMERA, BOARD, invert_transform(LEVEL), seed=77))
    return path


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["vid2phys", "calibrate", *map(str, arguments)])
    return cli._run()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, images: Path, at_rest: Path) -> Calibration:
    """The calibration from these images, with its place."""
    out = tmp_path_factory.mktemp("made") / "cam.yaml"
    return calibrate(images, board=BOARD.text, place=at_rest, board_is="level", out=out)


def test_from_images_and_a_board_at_rest(made: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    camera = load_camera(made.path)
    np.testing.assert_allclose(camera.K, CAMERA.K, atol=1.5)
    np.testing.assert_allclose(camera.camera_to_world, LEVEL, atol=4e-3)
    assert (camera.width, camera.height, camera.name) == (400, 300, "cam")
    print_calibration(made, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["intrinsics"]["fx"]["value"] == camera.K[0, 0]
    assert abs(camera.K[0, 0] - 410.0) < 4.0 * said["intrinsics"]["fx"]["std"] + 0.3
    assert said["rms_px"] < 0.1
    assert np.array(said["rms_grid_px"]).shape == (3, 3)
    assert len(said["views"]) == 9
    np.testing.assert_allclose(said["looks_along"], LEVEL[:3, 2], atol=5e-3)
    text = made.path.read_text()
    assert "# calibrated by vid2phys from 9 views" in text
    assert "# standard deviations: fx " in text
    assert camera.focal_std == pytest.approx(said["intrinsics"]["fx"]["std"] / camera.K[0, 0], rel=0.2)
    assert 0.0 < camera.direction_std_rad < np.radians(0.5)
    points = np.array([[0.1, 0.05, 0.5], [-0.1, 0.08, 0.6]])
    np.testing.assert_allclose(project(camera, points), project(CAMERA, points), atol=1.0)


def test_what_is_printed_for_people(made: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    print_calibration(made)
    text = capsys.readouterr().out
    for part in ("fx", "+-", "95 %", "views: 9 of 10 images", "px RMS", "coverage: ", "position: ", "looks along"):
        assert part in text
    assert text.splitlines()[-1] == f"camera: {made.path}"


def test_from_a_video(tmp_path: Path, images: Path) -> None:
    clip = tmp_path / "board.mp4"
    with VideoWriter(clip, 400, 300, 30.0, crf=12) as video:
        for file in sorted(images.glob("view*.png")):
            video.write(np.repeat(cv2.imread(str(file), 0)[:, :, None], 3, axis=2))
    found = calibrate(clip, board=BOARD.text, out=tmp_path / "cam.yaml")
    np.testing.assert_allclose(found.camera.K, CAMERA.K, atol=4.0)
    assert found.images == 9
    assert found.fit is not None
    assert found.fit.views[0].name.startswith("frame ")


def save(folder: Path, camera: Camera = CAMERA) -> Path:
    from vid2phys.io.camera import save_camera

    save_camera(camera, folder / "known.yaml")
    return folder / "known.yaml"


def test_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cameras.txt").write_text("1 OPENCV 640 480 500 510 320 240 0.1 -0.05 0.001 0.002\n")
    quat = "0.5 0.5 -0.5 0.5"
    (tmp_path / "images.txt").write_text(f"1 {quat} 1 2 3 1 a.png\n\n2 1 0 0 0 0 0 0 1 b.png\n\n")
    out = tmp_path / "out" / "cam.yaml"
    assert run_cli(monkeypatch, "--from", tmp_path, "--camera-name", "a.png", "--out", out) == 0
    assert "z is not up, nor 1 a metre" in capsys.readouterr().out
    camera, original = load_camera(out), load_camera(tmp_path, camera_name="a.png")
    np.testing.assert_array_equal(camera.K, original.K)
    np.testing.assert_array_equal(camera.distortion, original.distortion)
    np.testing.assert_allclose(camera.camera_to_world, original.camera_to_world, atol=1e-12)
    assert run_cli(monkeypatch, "--from", tmp_path, "--camera-name", "c.png", "--out", out) == 3
    assert "one of a.png, b.png, 1" in capsys.readouterr().err


def test_what_was_read_is_printed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    camera = Camera(np.diag([500.0, 510.0, 1.0]), 640, 480, np.array([-0.35, 0.12, 0.0, 0.0, 0.0]), "plumb_bob", LEVEL)
    out = tmp_path / "cam.yaml"
    assert run_cli(monkeypatch, "--from", save(tmp_path, camera), "--out", out) == 0
    printed = capsys.readouterr().out
    assert "640x480, plumb_bob\nfx 500, fy 510, cx 0, cy 0, k1 -0.35, k2 0.12, p1 0, p2 0, k3 0" in printed
    assert "position: 0.1000, -0.2200, 0.4000 m, from the file" in printed
    assert run_cli(monkeypatch, "--from", save(tmp_path, camera), "--out", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["intrinsics"]["k1"] == {"value": -0.35}


def test_a_size_is_given_where_the_file_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix, out = tmp_path / "cam_K.txt", tmp_path / "cam.yaml"
    matrix.write_text("500 0 322\n0 510 241\n0 0 1\n")
    assert run_cli(monkeypatch, "--from", matrix, "--out", out) == 3
    assert f"calibrate --from {matrix} --size 640x480" in capsys.readouterr().err
    assert run_cli(monkeypatch, "--from", matrix, "--size", "640x480", "--out", out) == 0
    printed = capsys.readouterr().out
    assert "fx 500, fy 510, cx 322, cy 241\nno distortion\npose: none\n" in printed
    assert (load_camera(out).width, load_camera(out).height) == (640, 480)
    for words, expected in (
        (("--from", out, "--size", "320x240", "--out", tmp_path / "b.yaml"), "is for 640x480, --size is 320x240"),
        (("--from", matrix, "--size", "640", "--out", out), "WIDTHxHEIGHT"),
        ((tmp_path, "--size", "640x480", "--out", out), "--size without --from"),
    ):
        assert run_cli(monkeypatch, *words) == 2
        assert expected in capsys.readouterr().err


def test_the_file_that_is_read_is_not_written(tmp_path: Path) -> None:
    before = save(tmp_path).read_bytes()
    with pytest.raises(UsageError, match="name the new one with --out"):
        calibrate(source=tmp_path / "known.yaml", out=tmp_path / "known.yaml")
    assert (tmp_path / "known.yaml").read_bytes() == before


def test_a_file_and_a_place(tmp_path: Path, at_rest: Path) -> None:
    found = calibrate(
        source=save(tmp_path), board=BOARD.text, place=at_rest, board_is="level", out=tmp_path / "cam.yaml"
    )
    np.testing.assert_allclose(load_camera(tmp_path / "cam.yaml").camera_to_world, LEVEL, atol=1.5e-3)
    assert found.fit is None
    upright = calibrate(
        source=save(tmp_path), board=BOARD.text, place=at_rest, board_is="upright", out=tmp_path / "cam.yaml"
    )
    turn = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # page y becomes z
    np.testing.assert_allclose(
        upright.camera.camera_to_world[:3, :3], turn @ found.camera.camera_to_world[:3, :3], atol=1e-6
    )


def test_known_points(tmp_path: Path) -> None:
    points = np.array([[0.0, 0, 0], [0.2, 0, 0], [0.2, 0.15, 0], [0, 0.15, 0], [0.1, 0.05, 0.06], [0.05, 0.1, 0.1]])
    pixels = project(CAMERA, (points - LEVEL[:3, 3]) @ LEVEL[:3, :3])
    rows = ["name;x_mm;y_mm;z_mm;u_px;v_px"]
    rows += [
        ";".join([f"P{i}", *(f"{1000 * x:.3f}" for x in point), *(f"{x:.3f}" for x in pixel)]).replace(".", ",")
        for i, (point, pixel) in enumerate(zip(points, pixels, strict=True))
    ]
    path = tmp_path / "points.csv"
    path.write_text("\n".join(rows))
    names, places, seen = load_points(path)
    assert names[:2] == ("P0", "P1")
    np.testing.assert_allclose(places, points, atol=1e-9)
    np.testing.assert_allclose(seen, pixels, atol=1e-3)
    found = calibrate(source=save(tmp_path), points=path, out=tmp_path / "cam.yaml")
    np.testing.assert_allclose(found.camera.camera_to_world, LEVEL, atol=1e-4)


def test_markers_by_file(tmp_path: Path) -> None:
    tag = parse_target("tag:36h11:5:120mm")
    image = tmp_path / "tag.png"
    cv2.imwrite(str(image), photograph(CAMERA, tag, invert_transform(LEVEL) @ facing_floor(), seed=5))
    text = "id,corner,x_m,y_m,z_m\n"
    for i, (x, y, _) in enumerate(tag.points_m() + np.array([0.05, 0.02, 0.0])):
        text += f"5,{i},{x},{y},0\n"
    path = tmp_path / "markers.csv"
    path.write_text(text)
    assert len(load_markers(path)) == 4
    options = {"source": save(tmp_path), "place": image, "out": tmp_path / "cam.yaml"}
    found = calibrate(markers=path, dictionary="36h11", **options)
    np.testing.assert_allclose(found.camera.camera_to_world, LEVEL, atol=8e-3)
    same = calibrate(place_board=tag.text, board_is="level", **options)
    moved = same.camera.camera_to_world + 0.0
    moved[:3, 3] += [0.05, 0.02, 0.0]  # there the tag's own corner is the origin
    np.testing.assert_allclose(moved, found.camera.camera_to_world, atol=1e-4)


def facing_floor() -> np.ndarray:
    return make_transform(np.eye(3), np.array([0.05, 0.02, 0.0]))


def test_print_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(monkeypatch, "--print-board", tmp_path / "board.pdf") == 0
    assert capsys.readouterr().out.splitlines() == ["charuco:11x7:24mm:18mm:4x4_50", str(tmp_path / "board.pdf")]
    assert (tmp_path / "board.pdf").read_bytes().endswith(b"%%EOF\n")
    arguments = ["--print-board", tmp_path / "tag.pdf", "--board", "tag:36h11:7:250mm"]
    assert run_cli(monkeypatch, *arguments) == 2
    assert "too large for a4; expected a page of a3" in capsys.readouterr().err
    assert run_cli(monkeypatch, *arguments, "--page", "a3") == 0


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], 2, "neither images nor --from given"),
        (["IMAGES", "--from", "cam.yaml"], 2, "both images and --from given"),
        (["IMAGES", "--place", "x.png"], 2, "--place does not say where up is"),
        (["IMAGES", "--board-is", "level"], 2, "--board-is without a board"),
        (["IMAGES", "--markers", "m.csv"], 2, "--markers without --place"),
        (["IMAGES", "--points", "p.csv", "--place", "x.png"], 2, "one source of the pose"),
        (["IMAGES", "--board", "dots"], 2, "for example chessboard:10x7:25mm"),
        (["missing.mp4"], 3, "'missing.mp4' does not exist"),
        (["IMAGES", "--board", "charuco:7x5:30mm:22mm:6x6_50"], 3, "is in none of 10 images"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path,
    images: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [str(images) if word == "IMAGES" else word for word in arguments]
    assert run_cli(monkeypatch, *filled) == code
    err = capsys.readouterr().err
    assert expected in err
    assert err.strip().splitlines()[-1].startswith("vid2phys: ")
    assert not (tmp_path / "cam.yaml").exists()


def test_images_that_do_not_go_together(tmp_path: Path, images: Path, at_rest: Path) -> None:
    out = tmp_path / "cam.yaml"
    with pytest.raises(InputError, match="has no image"):
        calibrate(tmp_path, out=out)
    other = tmp_path / "mixed"
    other.mkdir()
    (other / "a.png").write_bytes((images / "wall.png").read_bytes())
    cv2.imwrite(str(other / "b.png"), np.zeros((10, 20), dtype=np.uint8))
    with pytest.raises(InputError, match=r"b.png' is 20x10; expected 400x300 as the first"):
        calibrate(other, out=out)
    (other / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 50)
    with pytest.raises(InputError, match=r"b.png' cannot be read as an image"):
        calibrate(other, out=out)
    small = Camera(CAMERA.K, 640, 480, CAMERA.distortion)
    with pytest.raises(InputError, match=r"table.png' is 400x300, the camera 640x480"):
        calibrate(source=save(tmp_path, small), board=BOARD.text, place=at_rest, board_is="level", out=out)
    with pytest.raises(InputError, match="cannot say which way is up"):
        calibrate(source=save(tmp_path), place_board="chessboard:7x5:3cm", place=at_rest, board_is="upright", out=out)
    with pytest.raises(InputError, match=r"tag:36h11:7:1000mm is not in .*table.png"):
        calibrate(source=save(tmp_path), place_board="tag:36h11:7:1m", place=at_rest, board_is="level", out=out)
    assert not out.exists()


def test_inner_corners_taken_for_squares_are_explained(tmp_path: Path) -> None:
    board = parse_target("chessboard:7x5:30mm")
    for i in range(2):
        cv2.imwrite(
            str(tmp_path / f"{i}.png"), photograph(CAMERA, board, facing(board, 0.45, [0.3, 0.2 * i, 0], [0, 0]))
        )
    with pytest.raises(InputError, match="they show one of 7 by 5 squares: count squares, not inner corners"):
        calibrate(tmp_path, board="chessboard:6x4:30mm", out=tmp_path / "cam.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name,x,y,z,u,v\nA,1,2,3,4,5\n", "column 'x' of .* has no unit; expected x_m, x_mm"),
        ("x_m,y_m,z_m,u_px\n1,2,3,4\n", "has the columns x_m, y_m, z_m, u_px; expected a CSV with"),
        ("x_m,y_m,z_m,u,v\n1,2,3,4,\n", "row 2 of .* has no finite value of 'v'"),
        ("x_m,y_m,z_m,u,v\n1,2,three,4,5\n", "row 2 of .* has 'three'"),
        ("x_m,y_m,z_m,u,v\n", "has 1 rows"),
        ("", "is empty"),
    ],
)
def test_broken_points(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=expected):
        load_points(path)


@pytest.mark.parametrize("rows", ["1.5,0,0,0,0\n", "1,4,0,0,0\n", "1,0,0,0,0\n1,0,1,1,1\n", "a,0,0,0,0\n"])
def test_broken_markers(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "markers.csv"
    path.write_text("id,corner,x_m,y_m,z_m\n" + rows)
    with pytest.raises(InputError, match=r"row [23] of"):
        load_markers(path)
