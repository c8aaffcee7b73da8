"""Rows in which the tracker had lost the body: found in what they hold, and never in a body that rests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.geometry import quat_from_rotvec
from vid2phys.io.mocap import load_mocap
from vid2phys.types import Array, PoseLog

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
ROWS, RATE = 300, 120.0
TIMES = np.arange(ROWS) / RATE
IDENTITY = [1.0, 0.0, 0.0, 0.0]
LOST = slice(100, 130)
EXPORTS = (
    ("crazyflie_mocap_tquat.csv", {}),
    ("euroc_V102_groundtruth_head.csv", {}),
    ("motive_v1.21_rigidbody.csv", {}),
    ("qualisys_beam.c3d", {"body": "Tip"}),
    ("qualisys_beam.c3d", {"body": "Base"}),
    ("tum_freiburg1_xyz-groundtruth.txt", {}),
    ("vicon_nexus_model_outputs_head.csv", {"body": "Test:HED", "euler": "rotvec"}),
)


def motion(noise_m: float = 2e-4) -> tuple[Array, Array]:
    """A body that swings and turns, as a tracker sees it: positions [T, 3], quaternions wxyz [T, 4]."""
    rng = np.random.default_rng(0)
    places = np.array([0.4, -0.3, 1.2]) + 0.4 * np.sin(TIMES[:, None] * [2.0, 3.1, 1.4] + [0.0, 1.0, 2.0])
    turns = 0.5 * np.sin(TIMES[:, None] * [1.2, 2.1, 0.7] + [0.3, 0.0, 1.0])
    return places + rng.normal(0.0, noise_m, places.shape), quat_from_rotvec(turns + rng.normal(0, 1e-3, turns.shape))


def read(folder: Path, places: Array, quats: Array, **options: str) -> PoseLog:
    """The log as a TUM file."""
    np.savetxt(folder / "log.txt", np.column_stack([TIMES, places, np.roll(quats, -1, axis=1)]), fmt="%.9g")
    return load_mocap(folder / "log.txt", **options)  # type: ignore[arg-type]


def lost_of(log: PoseLog) -> list[int]:
    return np.flatnonzero(np.isnan(log.positions_m).all(axis=1)).tolist()


@pytest.mark.parametrize(
    ("place", "quat", "what"),
    [
        (0.0, IDENTITY, "at the origin"),
        (0.0, [0.5, 0.5, 0.5, 0.5], "at the origin"),
        (0.0, [0.0, 0.0, 0.0, 0.0], "without a pose"),
        (0.7, [0.0, 0.0, 0.0, 0.0], "without a pose"),
        (np.nan, IDENTITY, "without a pose"),
        (1e6, IDENTITY, "at three equal coordinates"),
        (-9999.0, IDENTITY, "at three equal coordinates"),
        (-1.0, IDENTITY, "at three equal coordinates"),
        (np.array([1e6, 0.0, 0.0]), IDENTITY, "far away"),
    ],
)
def test_sentinels_are_lost_rows(tmp_path: Path, place: Array | float, quat: list[float], what: str) -> None:
    places, quats = motion()
    places[LOST], quats[LOST] = place, quat
    log = read(tmp_path, places, quats)
    assert lost_of(log) == list(range(LOST.start, LOST.stop))
    assert log.lost == {what: 30}


def test_lost_rows_at_the_ends_and_one_by_one(tmp_path: Path) -> None:
    places, quats = motion()
    gone = np.r_[0:40, 77, 150:290:9, 280:300]
    places[gone], quats[gone] = 0.0, IDENTITY
    assert lost_of(read(tmp_path, places, quats)) == np.unique(gone).tolist()


@pytest.mark.parametrize("gone", [np.r_[50:90], np.r_[40:43, 100:103, 200:230], np.r_[20:280:37]])
def test_one_constant_pose_is_lost_with_its_first_row(tmp_path: Path, gone: Array) -> None:
    """Zeros and the identity, after the log was brought to other axes."""
    places, quats = motion()
    places[gone], quats[gone] = [0.9, -0.2, 0.1], [0.5, 0.5, 0.5, 0.5]
    assert lost_of(read(tmp_path, places, quats)) == gone.tolist()


def test_a_log_in_millimetres_is_read_alike(tmp_path: Path) -> None:
    places, quats = motion()
    places[LOST], quats[LOST] = -9.999, IDENTITY
    assert read(tmp_path, 1e3 * places, quats, units="mm").lost == {"at three equal coordinates": 30}


@pytest.mark.parametrize("rows", [6, 30, 90])
def test_a_held_pose_is_lost(tmp_path: Path, rows: int) -> None:
    places, quats = motion()
    held = slice(100, 100 + rows)
    places[held], quats[held] = places[100], quats[100]
    assert lost_of(read(tmp_path, places, quats)) == list(range(101, 100 + rows))


def rests(places: Array, quats: Array) -> tuple[Array, Array]:
    """A body that rests exactly, is pushed and rests exactly again, as simulated."""
    path = 0.5 * np.clip(TIMES - 1.0, 0.0, 1.0) ** 2
    return np.array([0.3, 0.2, 0.05]) + path[:, None] * [1.0, 0.0, 0.0], np.tile(quats[0], (ROWS, 1))


def flickers(places: Array, quats: Array) -> tuple[Array, Array]:
    """A body at rest in a log of whole millimetres, with a few places farther away."""
    noise = np.random.default_rng(2).normal(0.0, 3e-4, (ROWS, 3))
    noise[::37] *= 10.0
    return np.round(np.array([0.3, 0.2, 0.05]) + noise, 3), np.tile(quats[0], (ROWS, 1))


def repeats(places: Array, quats: Array) -> tuple[Array, Array]:
    """A tracker of 10 Hz in a log of 120 Hz."""
    kept = np.arange(ROWS) // 12 * 12
    return places[kept], quats[kept]


def from_the_origin(places: Array, quats: Array) -> tuple[Array, Array]:
    """A world that begins where the body rests."""
    path = 2.0 * np.maximum(TIMES - 0.5, 0.0) ** 2
    return path[:, None] * [1.0, 0.5, 0.0], np.tile(np.array(IDENTITY), (ROWS, 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda places, quats: (places, quats),
        lambda places, quats: (np.round(places, 2), np.round(quats, 2)),
        lambda places, quats: (np.tile(places[0], (ROWS, 1)), np.tile(quats[0], (ROWS, 1))),
        lambda places, quats: (places[0] + np.random.default_rng(1).normal(0.0, 2e-4, (ROWS, 3)), 0 * quats + quats[0]),
        lambda places, quats: (np.zeros((ROWS, 3)), np.tile(np.array(IDENTITY), (ROWS, 1))),
        rests,
        flickers,
        repeats,
        from_the_origin,
    ],
)  # fmt: skip
def test_a_sound_log_has_no_lost_rows(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    places, quats = change(*motion())
    quats = quats / np.linalg.norm(quats, axis=1, keepdims=True)
    assert read(tmp_path, places, quats).lost == {}


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not there")
def test_real_logs_have_no_lost_rows() -> None:
    for name, options in EXPORTS:
        assert load_mocap(SHARED / "data" / "mocap_exports" / name, **options).lost == {}, name  # type: ignore[arg-type]
    for path in sorted((SHARED / "clips").glob("*/mocap.csv")):
        assert load_mocap(path).lost == {}, path
