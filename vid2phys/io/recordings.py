"""Save and load a run's arrays: trajectory.csv (text, for any tool) and observation.npz."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.io.files import atomic_path, read_text, require_file, write_text
from vid2phys.io.table import numbers, require_increasing, split_csv
from vid2phys.types import Array, ConfigurationMeasurement, Observation, Trajectory

_A_TRAJECTORY = "a trajectory CSV written by vid2phys (time_s, states, std_..., control_...)"
_MOST_BYTES = 2e9  # ten minutes at 60 frames a second take a tenth of it
_AN_OBSERVATION = "an observation.npz written by vid2phys"
_KEYPOINTS = (
    *("times_s", "bearings", "covariance", "shared_basis", "correlation_time_s", "visible", "points_body"),
    *("error_clock_s", "swing_scale"),
)
_MEASURED = ("covariance", "shared_basis", "correlation_time_s", "measured", "source")
_ROTATION_NAMES = ("rotation_x_rad", "rotation_y_rad", "rotation_z_rad")


def tangent_names(state_names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return names of the tangent space's coordinates, `count` in all.

    They are the names of the states, with three rotation angles for a quaternion's four.
    """
    quaternion = [i for i, name in enumerate(state_names) if "quat" in name or name in ("qw", "qx", "qy", "qz")]
    if count == len(state_names):
        return state_names
    if count == len(state_names) - 1 and len(quaternion) == 4:
        first = quaternion[0]
        return (*state_names[:first], *_ROTATION_NAMES, *state_names[first + 4 :])
    return tuple(f"tangent_{i}" for i in range(count))


def save_trajectory(trajectory: Trajectory, path: str | Path, control_names: Sequence[str] = ()) -> None:
    """Write `time_s`, the states, and where known `std_...` of the tangent space and `control_...`.

    Controls hold until the next row, so those of the last are blank. control_names: [M] of the controls with their
    units; controls have numbers where these are not given. Limit: correlations between coordinates and frames are not
    kept.
    """
    header, columns = ["time_s", *trajectory.state_names], [trajectory.times_s[:, None], trajectory.states]
    if trajectory.covariance is not None:
        variances = np.diagonal(trajectory.covariance, axis1=1, axis2=2)
        header += [f"std_{name}" for name in tangent_names(trajectory.state_names, variances.shape[1])]
        columns.append(np.sqrt(variances))
    if trajectory.controls is not None:
        count = trajectory.controls.shape[1]
        header += [f"control_{name}" for name in (control_names if len(control_names) == count else range(count))]
        columns.append(np.vstack([trajectory.controls, np.full((1, count), np.nan)]))
    lines = [",".join("" if np.isnan(v) else f"{v:.12g}" for v in row) for row in np.concatenate(columns, axis=1)]
    write_text(path, "\n".join([",".join(header), *lines]) + "\n")


def load_trajectory(path: str | Path) -> Trajectory:
    """Return what `save_trajectory` wrote; the covariance comes back diagonal.

    A column `frame` before `time_s` is left out. Raises InputError for anything else.
    """
    lines = [line for line in read_text(path, _A_TRAJECTORY).splitlines() if line.strip()]
    whole = split_csv(lines[0]) if lines else []
    first = int(whole[:1] == ["frame"])
    header = whole[first:]
    if header[:1] != ["time_s"] or len(lines) < 2:
        raise InputError(f"'{path}' is not a trajectory", _A_TRAJECTORY, "give the folder of a run of identify")
    row_of = np.arange(2, len(lines) + 1)
    table = numbers(path, [split_csv(line) for line in lines[1:]], list(range(first, len(whole))), row_of)
    require_increasing(path, table[:, 0], row_of)
    std = [i for i, name in enumerate(header) if name.startswith("std_")]
    control = [i for i, name in enumerate(header) if name.startswith("control_")]
    state = [i for i in range(1, len(header)) if i not in {*std, *control}]
    covariance: Array | None = np.einsum("td,de->tde", table[:, std] ** 2, np.eye(len(std))) if std else None
    controls: Array | None = table[:-1, control] if control else None
    return Trajectory(table[:, 0], table[:, state], tuple(header[i] for i in state), controls, covariance)


def save_observation(observation: Observation, path: str | Path) -> None:
    """Write all arrays of an observation to an npz file; those of measured configurations begin with `measured_`."""
    measured = observation.configuration
    arrays = {name: getattr(observation, name) for name in _KEYPOINTS}
    if measured is not None:
        arrays |= {f"measured_{name}": getattr(measured, name) for name in _MEASURED}
        pose = measured.configuration
        if isinstance(pose, Pose):
            arrays |= {"measured_rotation": pose.rotation, "measured_translation": pose.translation}
        else:
            arrays["measured_coordinates"] = pose
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


def load_observation(path: str | Path) -> Observation:
    """Return what `save_observation` wrote. Raises InputError for anything else; nothing is unpickled."""
    import tokenize
    import zipfile
    import zlib

    path = require_file(path, _AN_OBSERVATION)
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > _MOST_BYTES:
            raise InputError(f"'{path}' unpacks to {size / 1e9:.0f} GB", f"at most {_MOST_BYTES / 1e9:.0f} GB")
        with np.load(path, allow_pickle=False) as data:
            names = (n for n in data.files if n in _KEYPOINTS or n.startswith("measured_"))
            arrays = {name: data[name] for name in names}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):  # files of another kind come as bytes
            raise TypeError
        keypoints = {name: arrays[name] for name in _KEYPOINTS if name in arrays}
        observation = Observation(**keypoints, configuration=_measured(arrays))
    except (
        *(KeyError, ValueError, TypeError, OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error),
        *(SyntaxError, tokenize.TokenError),  # of NumPy's headers, which are Python
    ):
        raise InputError(f"'{path}' cannot be read", _AN_OBSERVATION, "run identify again") from None
    _check_observation(observation, path)
    return observation


def _measured(arrays: dict[str, NDArray[Any]]) -> ConfigurationMeasurement | None:
    """Return the measured configurations of a file; None where it has none, as files of earlier versions."""
    if "measured_source" not in arrays:
        return None
    values = {name: arrays[f"measured_{name}"] for name in _MEASURED if name != "source"}
    at: Pose | Array
    if "measured_coordinates" in arrays:
        at = arrays["measured_coordinates"]
    else:
        at = Pose(arrays["measured_rotation"], arrays["measured_translation"])
    return ConfigurationMeasurement(configuration=at, source=str(arrays["measured_source"]), **values)


def _check_measured(measured: ConfigurationMeasurement, frames: int, modes: tuple[int, ...], path: Path) -> None:
    """Raise InputError for configurations that do not fit the keypoints, or are not finite."""
    size, at = measured.covariance.shape[-1:], measured.configuration
    found = {"measured_" + name: getattr(measured, name) for name in _MEASURED if name != "source"}
    shapes: dict[str, tuple[int, ...]] = {
        "measured_covariance": (frames, *size, *size),
        "measured_shared_basis": (frames, *size, *modes),
        "measured_correlation_time_s": modes,
        "measured_measured": (frames,),
    }
    if isinstance(at, Pose):
        found |= {"measured_rotation": at.rotation, "measured_translation": at.translation}
        shapes |= {"measured_rotation": (frames, 3, 3), "measured_translation": (frames, 3)}
    else:
        found["measured_coordinates"] = at
        shapes["measured_coordinates"] = (frames, *size)
    for name, shape in shapes.items():
        _check_array(name, found[name], shape, "b" if name == "measured_measured" else "f", path)
        if name != "measured_correlation_time_s" and not np.isfinite(found[name][measured.measured]).all():
            raise InputError(f"'{path}' has '{name}' that is not finite", _AN_OBSERVATION)


def _check_array(name: str, array: NDArray[Any], shape: tuple[int, ...], kind: str, path: Path) -> None:
    if array.shape != shape or array.dtype.kind != kind:
        raise InputError(f"'{name}' of '{path}' is {array.dtype} {list(array.shape)}", f"shape {list(shape)}")


def _check_observation(seen: Observation, path: Path) -> None:
    """Raise InputError for arrays that do not fit each other, and for measurements that are not finite."""
    frames, points, modes = len(seen.times_s), len(seen.points_body), seen.shared_basis.shape[-1:]
    shapes = {
        "times_s": (frames,),
        "bearings": (frames, points, 2),
        "covariance": (frames, points, 2, 2),
        "shared_basis": (frames, points, 2, *modes),
        "correlation_time_s": modes,
        "visible": (frames, points),
        "points_body": (points, 3),
        "error_clock_s": (frames,),
        "swing_scale": (),
    }
    for name, shape in shapes.items():
        _check_array(name, getattr(seen, name), shape, "b" if name == "visible" else "f", path)
    if seen.configuration is not None:
        _check_measured(seen.configuration, frames, modes, path)
    read = (seen.bearings[seen.visible], seen.covariance[seen.visible], seen.points_body, seen.times_s)
    if not all(np.isfinite(array).all() for array in read) or (np.diff(seen.times_s) <= 0.0).any():
        raise InputError(f"'{path}' has keypoints that are not finite, or times that do not increase", _AN_OBSERVATION)
