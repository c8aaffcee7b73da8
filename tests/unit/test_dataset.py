"""Datasets: the same bytes for a seed whatever happens on the way, and what is read is what was rendered."""

import dataclasses
import json
import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.systems import get
from vid2phys.errors import InputError
from vid2phys.risp.renders import workers
from vid2phys.risp.renders.dataset import PSI_NAMES, RenderSet, Settings, shard_path
from vid2phys.risp.renders.make_dataset import RenderOptions, make_dataset
from vid2phys.types import Mesh

pytestmark = [
    pytest.mark.mitsuba,
    pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine"),
]

CORNERS = np.array([[0.0, 0.0, 0.0], [0.09, 0.01, 0.0], [0.02, 0.06, 0.01], [-0.01, 0.015, 0.05]]) - [
    0.025,
    0.02,
    0.015,
]
MESH = Mesh(CORNERS, np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]]), np.array([0, 0, 1, 1]), ("a", "b"))
SMALL = {"samples": 70, "seed": 11, "size": 24, "spp": 4, "gradient_share": 0.1}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("set")
    make_dataset(MESH, get("quadrotor"), path, RenderOptions(**SMALL), workers=1)
    return path


def test_another_number_of_workers_and_an_interruption_change_no_byte(folder: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_dataset(MESH, get("quadrotor"), tmp_path, RenderOptions(**SMALL), workers=2, progress=interrupt)
    shard_path(tmp_path, 2).unlink(missing_ok=True)  # all of them may have been ready in time
    with pytest.raises(InputError, match=r"lacks \d of 3 shards"):
        RenderSet(tmp_path)
    seen: list[tuple[int, int]] = []
    make_dataset(
        MESH, get("quadrotor"), tmp_path, RenderOptions(**SMALL), workers=2, progress=lambda *x: seen.append(x)
    )
    assert seen[-1] == (70, 70)
    assert contents(tmp_path) == contents(folder)


KILLED = """
import numpy as np, sys
sys.path.insert(0, {root!r})
from tests.unit.test_dataset import MESH, SMALL
from vid2phys.engine.systems import get
from vid2phys.risp.renders.make_dataset import RenderOptions, make_dataset
if __name__ == "__main__":
    make_dataset(MESH, get("quadrotor"), {folder!r}, RenderOptions(**SMALL), workers=1)
"""


def test_a_killed_process_changes_no_byte(folder: Path, tmp_path: Path) -> None:
    script, made = tmp_path / "make.py", tmp_path / "set"
    script.write_text(KILLED.format(root=str(Path(__file__).resolve().parents[2]), folder=str(made)))
    process = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 60.0
    while not list(made.glob("shard_*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    make_dataset(MESH, get("quadrotor"), made, RenderOptions(**SMALL), workers=1)
    left = {name: data for name, data in contents(made).items() if not name.startswith(".")}
    assert left == contents(folder)


def test_a_worker_that_is_killed_is_replaced(folder: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int, total: int) -> None:
        if not killed:
            for process in multiprocessing.active_children():
                killed.append(process.pid or 0)
                process.kill()

    make_dataset(MESH, get("quadrotor"), tmp_path, RenderOptions(**SMALL), workers=1, progress=kill)
    assert killed
    assert contents(tmp_path) == contents(folder)


def test_a_damaged_shard_is_made_again(folder: Path, tmp_path: Path) -> None:
    for name, data in contents(folder).items():
        (tmp_path / name).write_bytes(data)
    damaged = tmp_path / "shard_00001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"'.*shard_00001.safetensors' is damaged; expected renders; remove it"):
        RenderSet(tmp_path).K()
    make_dataset(MESH, get("quadrotor"), tmp_path, RenderOptions(**SMALL), workers=1)
    assert contents(tmp_path) == contents(folder)


def test_what_is_read(folder: Path) -> None:
    renders = RenderSet(folder)
    assert len(renders) == 70
    assert renders.psi_names == PSI_NAMES
    np.testing.assert_array_equal(renders.gradient_indices, [9, 19, 29, 39, 49, 59, 69])
    sample = renders.sample(39)
    assert sample.radiance.shape == (24, 24, 4)
    assert sample.radiance.dtype == np.float16
    assert sample.tangents is not None
    assert sample.tangents.shape == (len(PSI_NAMES), 24, 24, 4)
    assert np.isfinite(sample.tangents).all()
    assert not sample.tangents[..., 3].any()
    assert all(np.any(t) for t in sample.tangents)
    np.testing.assert_array_equal(renders.radiance(39), sample.radiance)
    np.testing.assert_array_equal(renders.K()[39], sample.K)
    np.testing.assert_array_equal(renders.view_from_body()[39], sample.view_from_body)
    assert renders.sample(0).tangents is None
    with pytest.raises(IndexError):
        renders.sample(70)
    with pytest.raises(KeyError):
        renders.tangents(0)


def test_the_object_is_where_the_pose_says(folder: Path) -> None:
    """Area and centre of the coverage against the outline of the projected corners (the body is convex)."""
    renders = RenderSet(folder)
    gaps = []
    for index in range(len(renders)):
        sample = renders.sample(index)
        points = CORNERS @ sample.view_from_body[:3, :3].T + sample.view_from_body[:3, 3]
        area, center = outline((points / points[:, 2:]) @ sample.K[:2].T)
        coverage = sample.radiance[..., 3].astype(float)
        v, u = np.mgrid[:24, :24]
        gaps.append(np.array([(coverage * u).sum(), (coverage * v).sum()]) / coverage.sum() - center)
        assert coverage.sum() == pytest.approx(area, abs=4.0)
    assert np.abs(gaps).max() < 0.5  # four rays a pixel
    np.testing.assert_allclose(np.mean(gaps, axis=0), 0.0, atol=0.03)


def outline(pixels: np.ndarray) -> tuple[float, np.ndarray]:
    """Area and centroid of the convex hull of points [N, 2]."""
    from scipy.spatial import ConvexHull

    corners = pixels[ConvexHull(pixels).vertices]
    after = np.roll(corners, -1, axis=0)
    cross = corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]
    return 0.5 * cross.sum(), ((corners + after) * cross[:, None]).sum(axis=0) / (3.0 * cross.sum())


def test_tangents_are_the_derivative_of_the_radiance(folder: Path) -> None:
    """Against central differences in each psi, with a common seed."""
    from vid2phys.engine.render.mitsuba import Renderer
    from vid2phys.risp.appearance.materials import mesh_parts
    from vid2phys.risp.appearance.random_appearance import directions, render_appearance, sample_appearance
    from vid2phys.risp.renders.viewpoints import sample_single

    renderer, parts = Renderer(MESH, 32, 16), mesh_parts(MESH)
    rng = np.random.default_rng(3)
    view = sample_single(rng, get("quadrotor"), renderer.radius_m, 32)
    look = sample_appearance(rng, parts)
    seen = (look, view.body_from_world, view.moved_m, renderer.radius_m)
    pose = (view.view_from_body, view.K)
    tangents = renderer.render(*pose, render_appearance(*seen), seed=1, directions=directions(*seen)).tangents
    for name in PSI_NAMES:
        k, step = PSI_NAMES.index(name), 0.02
        sides = [render_appearance(*seen, psi=look.psi + s * np.eye(len(PSI_NAMES))[k]) for s in (step, -step)]
        images = [renderer.render(*pose, side, seed=1).radiance[..., :3] for side in sides]
        difference = (images[0] - images[1]) / (2 * step)
        tolerance = 0.2 if name == "roughness" else 0.02  # its samples move, and may meet or miss the body
        assert np.abs(tangents[k] - difference).mean() <= tolerance * np.abs(difference).mean() + 1e-5, name


def test_sequences_share_a_look_and_move_smoothly(tmp_path: Path) -> None:
    settings = {**SMALL, "samples": 64, "gradient_share": 0.0}
    renders = make_dataset(MESH, get("quadrotor"), tmp_path, RenderOptions(**settings, sequences=True), workers=1)
    np.testing.assert_array_equal(renders.appearance_id(), np.repeat(np.arange(4), 16))
    np.testing.assert_allclose(renders.time_s()[:17], [*np.arange(16) / 30.0, 0.0])
    assert len(renders.gradient_indices) == 0
    poses = renders.view_from_body().reshape(4, 16, 4, 4)
    turn = np.einsum("sfij,sfkj->sfik", poses[:, 1:, :3, :3], poses[:, :-1, :3, :3])
    angle = np.rad2deg(np.arccos(np.clip((np.trace(turn, axis1=2, axis2=3) - 1) / 2, -1, 1)))
    assert 0.1 < np.median(angle) < 8.0
    assert angle.max() < 25.0


def test_a_folder_with_other_settings_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another seed"):
        make_dataset(MESH, get("quadrotor"), folder, RenderOptions(**{**SMALL, "seed": 12}))
    with pytest.raises(InputError, match="holds no dataset"):
        RenderSet(tmp_path)
    (tmp_path / "dataset.json").write_text(json.dumps({"samples": 3}))
    with pytest.raises(InputError, match="holds no dataset"):
        RenderSet(tmp_path)


def test_a_full_disk_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Told:
        def recv(self) -> str:
            return "the disk is full"

    class Ended:
        exitcode = workers._COMPLAINED

        def is_alive(self) -> bool:
            return False

        def kill(self) -> None: ...
        def join(self) -> None: ...

    running = workers._Running(Ended(), workers._Job([0]), Told(), 0, time.monotonic())
    with pytest.raises(InputError, match="disk is full"):
        workers._finished(running, tmp_path, workers.deque())


def test_gradient_share_is_met_evenly() -> None:
    settings = Settings(1000, 0.2, 0, 96, 16, False, "quadrotor", 0.1, "")
    chosen = np.array([settings.has_tangents(i) for i in range(1000)])
    assert chosen.sum() == 200
    assert chosen.reshape(10, 100).sum(axis=1).tolist() == [20] * 10
    assert not any(dataclasses.replace(settings, gradient_share=0.0).has_tangents(i) for i in range(100))
    assert all(dataclasses.replace(settings, gradient_share=1.0).has_tangents(i) for i in range(100))


@pytest.mark.slow
def test_a_cluster_makes_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    """Two workers of a Ray cluster on this machine, the second half only: the first is there already."""
    ray = pytest.importorskip("ray")
    for name in ("dataset.json", "shard_00000.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    seen: list[tuple[int, int]] = []
    make_dataset(
        MESH, get("quadrotor"), tmp_path, RenderOptions(**SMALL), ray="local", progress=lambda *x: seen.append(x)
    )
    assert not ray.is_initialized()
    assert seen[-1] == (70, 70)
    assert contents(tmp_path) == contents(folder)
