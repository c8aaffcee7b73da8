"""Overlay and report of a made-up result: what is drawn is where it should be, and the page stands alone."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.flight import Flight
from tests.synthetic import camera_of, cross_mesh, noisy_result, save_run, short_flight, write_clip
from vid2phys.engine import systems
from vid2phys.io.video import read_clip
from vid2phys.report.ground_grid import ground_grid
from vid2phys.report.html import _impact_rows, _ranges, widths, write_report
from vid2phys.report.mesh_lines import Projected, Window, mesh_lines, project_vertices
from vid2phys.report.overlay import FIT_COLOR, LOST_COLOR, _followed_point, write_overlay
from vid2phys.types import Estimate, Mesh


@pytest.fixture(scope="module")
def flight() -> Flight:
    return short_flight()


def square(z: float = 2.0) -> Mesh:
    vertices = np.array([[-0.1, -0.1, z], [0.1, -0.1, z], [0.1, 0.1, z], [-0.1, 0.1, z]])
    return Mesh(vertices, np.array([[0, 1, 2], [0, 2, 3]]), np.zeros(2, dtype=np.int64))


def test_outline_lies_on_the_edge_at_any_zoom() -> None:
    pixels = np.array([[20.0, 30.0], [60.0, 30.0], [60.0, 50.0], [20.0, 50.0]])
    seen = Projected(pixels, np.full(4, 2.0))
    for scale in (1.0, 3.0):
        window = Window(10.0, 20.0, int(60 * scale), int(40 * scale), scale)
        cover = mesh_lines(seen, square(), window)
        rows, columns = np.nonzero(cover > 0.5)
        corner, opposite = window.place(pixels[0]), window.place(pixels[2])
        assert np.abs([columns.min() - corner[0], rows.min() - corner[1]]).max() <= 2.0
        assert np.abs([columns.max() - opposite[0], rows.max() - opposite[1]]).max() <= 2.0
        inside = cover[rows.min() + 5 : rows.max() - 5, columns.min() + 5 : columns.max() - 5]
        assert inside.max() == 0.0


def test_vertices_behind_the_camera_are_left_out(flight: Flight) -> None:
    camera = camera_of(flight)
    assert camera.camera_to_world is not None
    behind = square(-1.0).vertices @ camera.camera_to_world[:3, :3].T + camera.camera_to_world[:3, 3]
    seen = project_vertices(camera, behind)
    assert np.isnan(seen.pixels).all()
    assert mesh_lines(seen, square(), Window(0.0, 0.0, 40, 30)).max() == 0.0


@pytest.mark.parametrize("distortion", [(), (-0.2, 0.05, 0.0, 0.0)])
def test_overlay_follows_the_body(tmp_path: Path, flight: Flight, distortion: tuple[float, ...]) -> None:
    camera = camera_of(flight, distortion=np.array(distortion))
    result = noisy_result(flight)
    write_clip(tmp_path / "clip.mp4", flight, camera)
    lost = np.zeros(len(flight.times_s), dtype=bool)
    lost[30] = True
    path = tmp_path / "overlay.mp4"
    write_overlay(path, read_clip(tmp_path / "clip.mp4"), camera, cross_mesh(), flight.system, result.trajectory, lost)
    video = read_clip(path)
    assert len(video.frames) == len(flight.times_s)
    assert np.allclose(video.times_s, flight.times_s, atol=1e-3)
    frames = list(video.frames.at([10, 30]))
    for index, frame, color in ((10, frames[0], FIT_COLOR), (30, frames[1], LOST_COLOR)):
        right = frame[:, -camera.width :].astype(int)
        middle = project_vertices(camera, result.trajectory.states[index, :3][None]).pixels[0]
        near = right[int(middle[1]) - 25 : int(middle[1]) + 25, int(middle[0]) - 25 : int(middle[0]) + 25]
        strong = np.abs(near - np.array(color)).sum(axis=-1) < 200
        assert strong.sum() > 10
        left = frame[: camera.height // 2, : camera.width].astype(int)
        saturation = left.max(axis=-1) - left.min(axis=-1)
        assert np.percentile(saturation, 99) < 40


def test_a_body_whose_origin_is_at_rest_is_followed_at_its_end() -> None:
    """A pendulum's origin is its pivot: the vertex that moves most leaves the trail."""
    system = systems.get("pendulum")
    mesh = Mesh(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, -0.5], [0.1, 0.0, 0.0]]), np.array([[0, 1, 2]]), np.zeros(1, int))
    states = np.stack([np.array([0.0, 0.5, 1.0]), np.zeros(3)], axis=-1)
    followed = _followed_point(system, mesh, states, system.body_pose(states)[0])
    assert np.linalg.norm(followed, axis=-1) == pytest.approx([0.5] * 3)
    assert np.ptp(followed[:, 2]) == pytest.approx(0.5 * (1.0 - np.cos(1.0)))


def test_the_ground_is_drawn_beside_the_frame_alone(tmp_path: Path, flight: Flight) -> None:
    camera, result = camera_of(flight), noisy_result(flight)
    write_clip(tmp_path / "clip.mp4", flight, camera)
    clip, lost = read_clip(tmp_path / "clip.mp4"), np.zeros(len(flight.times_s), dtype=bool)
    ground = ground_grid(np.array([0.0, 0.0, 1.0]), 0.0, result.trajectory.states[:, :3], 0.3)
    scene = clip, camera, cross_mesh(), flight.system, result.trajectory, lost
    for name, lines in (("plain.mp4", None), ("ground.mp4", ground)):
        write_overlay(tmp_path / name, *scene, ground=lines)
    plain, drawn = (next(iter(read_clip(tmp_path / name).frames)).astype(int) for name in ("plain.mp4", "ground.mp4"))
    changed = np.abs(drawn - plain).max(axis=-1) > 25
    seen = project_vertices(camera, ground).pixels.reshape(-1, 2)
    inside = ((seen >= 1.0) & (seen < np.array([camera.width - 1, camera.height - 1]))).all(axis=1)
    assert inside.any()
    assert changed[:, : camera.width - 16].mean() < 0.002, "the codec alone"
    column, row = np.round(seen[inside]).astype(int).T
    right = changed[:, -camera.width :]
    near = [right[y - 1 : y + 2, x - 1 : x + 2].any() for x, y in zip(column, row, strict=True)]
    assert np.mean(near) > 0.5


def test_report_is_one_offline_file(tmp_path: Path, flight: Flight) -> None:
    result = noisy_result(flight, lost=(5, 6, 9))
    (tmp_path / "run").mkdir()
    summary = save_run(tmp_path / "run", flight, result)
    (tmp_path / "run" / "overlay.mp4").write_bytes(b"\0" * 1000)
    path = tmp_path / "run" / "report.html"
    write_report(path, result, summary, flight.system, camera_of(flight), overlay=tmp_path / "run" / "overlay.mp4")
    text = path.read_text()
    assert "0.71 to 0.73" in text
    assert "not identifiable" in text
    assert "unbounded" in text
    assert "5-6, 9" in text
    assert "drag &lt;b&gt;does not show&lt;/b&gt;" in text
    assert "data:video/mp4;base64," in text
    assert text.count("<svg") == 4
    assert not re.search(r'(src|href)="(?!data:|#)', text)


def test_report_escapes_what_it_is_given(tmp_path: Path, flight: Flight) -> None:
    """Names of clips, files, parameters and actions are text, also in plots."""
    bad = "<script>alert(1)</script>"
    result = noisy_result(flight)
    assert result.actions is not None
    named = replace(result.parameters[0], name=bad, unit=bad)
    actions = replace(result.actions, names=(bad, *result.actions.names[1:]))
    result = replace(result, parameters=(named,), actions=actions, message=bad)
    (tmp_path / "run").mkdir()
    summary = save_run(tmp_path / "run", flight, result)
    summary["inputs"] = {"clip": {"path": f"{bad}.mp4"}, bad: bad}
    path = tmp_path / "run" / "report.html"
    write_report(path, result, summary, flight.system, camera_of(flight), title=bad)
    text = path.read_text()
    assert bad not in text
    assert text.count("&lt;script&gt;alert(1)") >= 6


def test_large_videos_are_linked(tmp_path: Path, flight: Flight) -> None:
    result = noisy_result(flight)
    (tmp_path / "run").mkdir()
    summary = save_run(tmp_path / "run", flight, result)
    video = tmp_path / "run" / "overlay.mp4"
    with video.open("wb") as stream:
        stream.truncate(9_000_000)
    write_report(tmp_path / "run" / "r.html", result, summary, flight.system, camera_of(flight), overlay=video)
    assert 'src="overlay.mp4"' in (tmp_path / "run" / "r.html").read_text()


@pytest.fixture
def browser() -> str:
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    if not found:
        pytest.skip("no Chromium")
    return found[0]


def shown(browser: str, page: Path) -> str:
    """The page's elements after its scripts have run, without a network."""
    offline = ["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    there = ["--virtual-time-budget=20000", f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run([browser, *offline, *there], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_browser_draws_the_charts(tmp_path: Path, flight: Flight, browser: str) -> None:
    (tmp_path / "run").mkdir()
    result = noisy_result(flight, lost=(5, 6, 9))
    page = tmp_path / "run" / "report.html"
    write_report(page, result, save_run(tmp_path / "run", flight, result), flight.system, camera_of(flight))
    dom = shown(browser, page)
    body = dom[dom.index("<body") : dom.index('<script type="application/json"')]
    assert 'data-charts="interactive"' in body
    assert body.count("js-plotly-plot") == 4
    assert "matplotlib" not in body
    for text in ("position (m)", "rotation (deg)", "residual (px)", "mass (kg)", "density", "yaw"):
        assert text in body, text


def test_names_run_nothing_in_a_browser(tmp_path: Path, flight: Flight, browser: str) -> None:
    bad = '<img src="x" onerror="document.body.dataset.broken=1">'
    result = noisy_result(flight)
    assert result.actions is not None
    assert result.posterior is not None
    actions = replace(result.actions, names=(bad, *result.actions.names[1:]))
    result = replace(result, actions=actions, message=bad, posterior=replace(result.posterior, names=(bad,)))
    (tmp_path / "run").mkdir()
    page = tmp_path / "run" / "report.html"
    summary = save_run(tmp_path / "run", flight, result)
    write_report(page, result, summary, flight.system, camera_of(flight), title=bad)
    dom = shown(browser, page)
    assert 'data-charts="interactive"' in dom
    assert "data-broken" not in dom


def test_ranges() -> None:
    assert _ranges([]) == ""
    assert _ranges([3, 4, 5, 9, 11, 12]) == "3-5, 9, 11-12"


def test_widths_name_the_parts_of_an_interval() -> None:
    parts = {"frame_noise": 0.3, "shared_error": 0.15, "correlation": -0.1, "unknown_forces": 0.64, "prior": 0.01}
    mass = Estimate("mass", "kg", 1.0, (0.9, 1.1), True, parts=parts)
    given = Estimate("drag", "N s/m", 0.0, (0.0, 0.0), True, source="given")
    assert widths([mass, given]) == [
        "mass: 64 % unknown forces, 30 % noise of single frames, 5 % errors that last from frame to frame. Narrower by "
        "recorded actions."
    ]


def test_impacts_are_rows_with_bounds() -> None:
    hit = {"time_s": 0.18, "time_std_s": 0.0005, "approach_m_s": 2.0, "count": 2}
    impulses = {"normal_impulse_m_s": 3.0, "normal_impulse_std_m_s": 0.1}
    impulses |= {"friction_impulse_m_s": 1.0, "friction_impulse_std_m_s": 0.05}
    assert _impact_rows([hit | impulses]) == [("0.1800 ± 0.0010", "2.00", "3.000 ± 0.196", "1.000 ± 0.098", "2")]
