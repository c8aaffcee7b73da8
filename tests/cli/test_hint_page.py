"""`vid2phys hint`: errors of its options, what its server answers and refuses, and the page in a real browser."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import cv2
import numpy as np
import pytest
import yaml

from tests.browser import Browser, find_browser
from tests.cli.test_cli import run_cli
from tests.moving_box import CAMERA, box_clip, box_mesh
from tests.obj_files import save_obj
from vid2phys.commands.configs import HintConfig
from vid2phys.commands.hint import serve
from vid2phys.commands.hint_server import HintServer
from vid2phys.engine.observe import project
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.video import VideoWriter
from vid2phys.tracking.hint import Hint

FRAME = 12


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pose]:
    """A folder with a clip, a mesh and a camera; and the true poses."""
    folder = tmp_path_factory.mktemp("hint")
    clip, poses = box_clip(24)
    with VideoWriter(folder / "clip.mp4", CAMERA.width, CAMERA.height, 60.0) as writer:
        for frame in clip.frames:
            writer.write(frame)
    save_obj(box_mesh(), folder / "box.obj")
    camera = {
        **{"image_width": CAMERA.width, "image_height": CAMERA.height, "distortion_model": "plumb_bob"},
        "camera_matrix": {"rows": 3, "cols": 3, "data": CAMERA.K.ravel().tolist()},
        "distortion_coefficients": {"rows": 1, "cols": 5, "data": [0.0] * 5},
        "camera_to_world": {"rows": 4, "cols": 4, "data": [1, 0, 0, 0, 0, 0, 1, 0, 0, -1, 0, 1, 0, 0, 0, 1]},
    }
    (folder / "cam.yaml").write_text(yaml.safe_dump(camera))
    return folder, poses


@pytest.fixture(scope="module")
def server(inputs: tuple[Path, Pose]) -> Iterator[HintServer]:
    folder, _ = inputs
    with serve(HintConfig(clip=folder / "clip.mp4", mesh=folder / "box.obj", camera=folder / "cam.yaml")) as server:
        threading.Thread(target=server.run, daemon=True).start()
        yield server
        server.close()


def ask(server: HintServer, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers of an answer; a path without a slash comes after the token."""
    url = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)
    try:
        whole = path if path.startswith("/") else url.path + path
        connection.request("GET" if body is None else "POST", whole, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.headers)
    finally:
        connection.close()


def pixel(poses: Pose, frame: int) -> list[float]:
    return [float(at) for at in project(CAMERA, poses[frame].translation[None])[0]]


def test_only_this_machine_can_connect(server: HintServer) -> None:
    assert urlsplit(server.url).hostname == "127.0.0.1"
    assert len(urlsplit(server.url).path) > 30


def test_without_the_token_nothing_is_answered(server: HintServer) -> None:
    for path in ("/", "/clip.json", "/frame/0", "/wrong/", "/wrong/clip.json", "/%c3%a9/", "/?token=1"):
        status, body, _ = ask(server, path)
        assert (status, b"token" in body) == (403, True)
    assert ask(server, "/pose", b"{}")[0] == 403
    token = urlsplit(server.url).path
    assert ask(server, token[:-2] + "/")[0] == 403


def test_page_clip_and_frames(server: HintServer, inputs: tuple[Path, Pose]) -> None:
    status, page, headers = ask(server, "")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert b"http" not in page.replace(b"http-equiv", b"")  # nothing comes from elsewhere
    status, data, _ = ask(server, "clip.json")
    about = json.loads(data)
    assert (status, about["width"], about["height"], len(about["times_s"])) == (200, 320, 240, 24)
    status, data, headers = ask(server, f"frame/{FRAME}")
    assert (status, headers["Content-Type"]) == (200, "image/jpeg")
    shown = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1].astype(float)
    true = list(box_clip(24)[0].frames)[FRAME].astype(float)
    assert np.abs(shown - true).mean() < 6.0


def test_a_click_gives_the_pose(server: HintServer, inputs: tuple[Path, Pose]) -> None:
    _, poses = inputs
    x, y = pixel(poses, FRAME)
    status, data, _ = ask(server, "pose", json.dumps({"frame": FRAME, "corners": [x, y]}).encode())
    found = json.loads(data)
    assert (status, found["found"]) == (200, True)
    assert found["overlap"] > 0.8
    assert found["hint"] == f"--hint 0.2s:{x:.0f},{y:.0f}"
    true = project(CAMERA, poses[FRAME].apply(box_mesh().vertices))
    contour = np.concatenate(found["lines"]["contours"])
    assert np.abs(contour.min(axis=0) - true.min(axis=0)).max() < 2.0
    assert np.abs(contour.max(axis=0) - true.max(axis=0)).max() < 2.0


def test_a_box_gives_the_pose_and_a_wrong_place_none(server: HintServer, inputs: tuple[Path, Pose]) -> None:
    _, poses = inputs
    corners = project(CAMERA, poses[FRAME].apply(box_mesh().vertices))
    box = [*(corners.min(axis=0) - 2).tolist(), *(corners.max(axis=0) + 2).tolist()]
    found = json.loads(ask(server, "pose", json.dumps({"frame": FRAME, "corners": box}).encode())[1])
    assert found["found"]
    assert found["hint"].startswith("--hint-box 0.2s:")
    beside = json.loads(ask(server, "pose", json.dumps({"frame": FRAME, "corners": [300, 20]}).encode())[1])
    assert not beside["found"]
    assert "No pose" in beside["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"3", b'"text"', b"\xff\xfe", b"{}", b"[" * 5000,
        b'{"frame": 1}', b'{"frame": "1", "corners": [1, 2]}', b'{"frame": true, "corners": [1, 2]}',
        b'{"frame": 1.5, "corners": [1, 2]}', b'{"frame": 1, "corners": [1]}', b'{"frame": 1, "corners": [1, 2, 3]}',
        b'{"frame": 1, "corners": ["a", 2]}', b'{"frame": 1, "corners": [NaN, 2]}',
        b'{"frame": 99, "corners": [1, 2]}', b'{"frame": -1, "corners": [1, 2]}',
        b'{"frame": 1, "corners": [1000, 2]}', b'{"frame": 1, "corners": [-9, 2]}',
        b'{"frame": 1, "corners": [50, 50, 40, 60]}', b'{"frame": 1, "corners": [50, 50, 50, 50]}',
    ],
)  # fmt: skip
def test_malformed_requests_are_refused(server: HintServer, body: bytes) -> None:
    status, text, headers = ask(server, "pose", body)
    assert status == 400
    assert headers["Content-Type"].startswith("text/plain")
    assert b"bug" not in text


def test_other_requests_are_refused(server: HintServer) -> None:
    for path in (
        "nothing",
        "frame",
        "frame/",
        "frame/24",
        "frame/-1",
        "frame/x",
        "frame/1/2",
        "../clip.json",
        "%2e%2e/",
    ):
        assert ask(server, path)[0] == 404
    assert ask(server, "clip.json", b"{}")[0] == 404
    assert ask(server, "pose")[0] == 404
    assert ask(server, "pose", b"x" * 20_000)[0] == 413
    assert ask(server, "pose", b"x", **{"Content-Length": "-5"})[0] == 400
    assert ask(server, "pose", b"x", **{"Content-Length": "9" * 15})[0] == 413
    assert ask(server, "clip.json")[0] == 200  # and the server goes on


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no clip given"),
        (["clip.mp4"], 2, "no mesh given"),
        (["clip.mp4", "--mesh", "box.obj"], 2, "no camera given"),
        (["no.mp4", "--mesh", "box.obj", "--camera", "cam.yaml"], 3, "no.mp4"),
        (["clip.mp4", "--mesh", "no.obj", "--camera", "cam.yaml"], 3, "no.obj"),
        (["clip.mp4", "--mesh", "box.obj", "--camera", "no.yaml"], 3, "no.yaml"),
        (["clip.mp4", "--body", "ball:d=66", "--camera", "cam.yaml"], 2, "ball:d=66mm"),
        (["clip.mp4", "--mesh", "box.obj", "--camera", "cam.yaml", "--port", "99999"], 2, "--port 99999"),
    ],
)
def test_wrong_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], inputs: tuple[Path, Pose],
    arguments: list[str], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(inputs[0])
    assert run_cli(monkeypatch, "hint", *arguments) == code
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""


def test_a_port_that_is_taken(inputs: tuple[Path, Pose], server: HintServer) -> None:
    port = urlsplit(server.url).port
    with pytest.raises(InputError, match=rf"--port {port}: .*in use; expected a port that is free; leave --port out"):
        HintServer(None, port or 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_command_ends_cleanly(inputs: tuple[Path, Pose], name: str) -> None:
    folder, _ = inputs
    line = [sys.executable, "-m", "vid2phys", "hint", "clip.mp4", "--mesh", "box.obj", "--camera", "cam.yaml"]
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        # a job in the background of a shell ignores SIGINT, and so do its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = urlsplit(process.stdout.readline().strip())
        connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)
        connection.request("GET", url.path + "clip.json")
        assert connection.getresponse().status == 200
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--hint", "0.2:5,5"], "--hint 0.2:5,5; expected TIME:X,Y"),
        (["--hint", "9s:5,5"], "a time outside of the clip; expected a time from 0.000 s to 0.383 s"),
        (["--hint", "frame 24:5,5"], "a frame outside of the clip; expected a frame from 0 to 23"),
        (["--hint", "0.2s:320,5"], "pixels outside of the frame; expected x from 0 to 319 and y from 0 to 239"),
        (["--hint-box", "0.2s:5,5,5,9"], "a box without area"),
        (["--hint", "0.2s:300,20"], "no object of the mesh's shape at the hint"),
    ],
)
def test_hints_that_identify_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], inputs: tuple[Path, Pose], tmp_path: Path,
    option: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(inputs[0])
    given = ["identify", "clip.mp4", "--mesh", "box.obj", "--camera", "cam.yaml", "--system", "rigid_contact"]
    assert run_cli(monkeypatch, *given, "--model", "none", "--out", str(tmp_path / "run"), *option) == 3
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on this machine")
    with Browser(path, tmp_path / "profile") as browser:
        yield browser


def test_the_page_in_a_browser(browser: Browser, server: HintServer, inputs: tuple[Path, Pose]) -> None:
    """Choose a frame, click on the body, drag a box around it, click beside it."""
    _, poses = inputs
    browser.call("Page.navigate", url=server.url)
    browser.wait("clip && image.complete && image.naturalWidth")
    browser.evaluate(f"slider.value = {FRAME}, slider.oninput()")
    browser.wait(f"shown === {FRAME} && image.complete")
    assert f"frame {FRAME} · 0.200 s" in browser.evaluate("document.body.innerText")

    def on_screen(x: float, y: float) -> tuple[float, float]:
        script = "(() => { const r = canvas.getBoundingClientRect(); return [r.left, r.top, r.width - 2]; })()"
        left, top, width = browser.evaluate(script)
        return left + 1 + (x + 0.5) * width / CAMERA.width, top + 1 + (y + 0.5) * width / CAMERA.width

    x, y = pixel(poses, FRAME)
    browser.drag(on_screen(x, y))
    browser.wait("by('status').className")
    name, _, text = browser.evaluate("by('line').value").partition(" ")
    assert name == "--hint"
    assert Hint.of_click(text).corners[:2] == pytest.approx((x, y), abs=1.0)  # a mouse moves by whole pixels
    assert browser.evaluate("by('status').className") == "ok"
    green = "[...pen.getImageData(0, 0, canvas.width, canvas.height).data].filter((v, i, d) => i % 4 === 1 && v > 200"
    assert browser.evaluate(f"{green} && d[i - 1] < 120 && d[i + 1] < 190).length") > 50  # the pose is drawn

    corners = project(CAMERA, poses[FRAME].apply(box_mesh().vertices))
    browser.drag(on_screen(*(corners.min(axis=0) - 2)), on_screen(*(corners.max(axis=0) + 2)))
    browser.wait("by('line').value.startsWith('--hint-box 0.2s:')")
    browser.drag(on_screen(300.0, 20.0))
    browser.wait("by('status').className === 'bad'")
    assert browser.evaluate("by('copying').hidden")
    assert browser.errors == []
