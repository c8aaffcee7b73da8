"""Poses of a camera at some times, or of some images, and the pose of each frame of a clip from them.

Method: rotations are interpolated along the shorter arc (slerp), places along straight lines, both by time. Images
belong to the frames of a clip by their names, or of a video by the number in the name.

Limits: gaps of up to half a second, and half a frame beyond either end.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.geometry import make_transform, matrix_from_quat, quat_from_matrix, slerp
from vid2phys.io.image_sequence import ImageFrames
from vid2phys.notes import warning
from vid2phys.types import Array, Clip, PoseLog

LONGEST_GAP_S = 0.5  # between two poses
OPENGL_TO_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])  # of camera axes
RECONSTRUCTED = warning(
    "the camera's poses are of a reconstruction: its unit is taken as metres and its z axis as up; scale and align it "
    "before, or the parameters are wrong"
)
_MOST_SPANS = 4  # that a message lists


@dataclass(frozen=True)
class CameraTrajectory:
    """N poses of a camera.

    Attributes:
        poses: camera_to_world [N, 4, 4], OpenCV axes, metres, z up.
        times_s: [N] in the clock of the file, increasing; None where the poses are those of images.
        names: of the images, N; empty where the poses have times.
        notes: for a reader of the result.
    """

    poses: Array
    times_s: Array | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @staticmethod
    def of_log(log: PoseLog) -> CameraTrajectory:
        """Return the poses of a log, without its gaps."""
        known = np.isfinite(log.positions_m).all(axis=1)
        rotation = matrix_from_quat(log.orientation_quat_wxyz[known])
        return CameraTrajectory(make_transform(rotation, log.positions_m[known]), log.times_s[known])


def poses_of_clip(trajectory: CameraTrajectory, clip: Clip, path: str | Path) -> Array:
    """Return camera_to_world of each frame [T, 4, 4], or [4, 4] of the only pose of a file.

    path: of the file, for messages. Raises InputError where the poses do not cover the clip, with what is missing.
    """
    if len(trajectory.poses) == 1:
        return trajectory.poses[0]
    if trajectory.times_s is None:
        poses, times = _of_images(trajectory, clip, path)
    else:
        poses, times = trajectory.poses, _in_clock_of(clip, trajectory.times_s, path)
    _require_cover(times, clip, path)
    after = np.clip(np.searchsorted(times, clip.times_s), 1, len(times) - 1)
    before = after - 1
    share = (clip.times_s - times[before]) / (times[after] - times[before])
    quats, places = quat_from_matrix(poses[:, :3, :3]), poses[:, :3, 3]
    rotation = matrix_from_quat(slerp(quats[before], quats[after], share))
    return make_transform(rotation, places[before] + share[:, None] * (places[after] - places[before]))


def _of_images(trajectory: CameraTrajectory, clip: Clip, path: str | Path) -> tuple[Array, Array]:
    """Return the poses of images that are frames of the clip, and their times, both [N], in the order of the times."""
    whole = clip.whole[0] if clip.whole else clip
    frames = _by_name(trajectory.names, whole, path) or _by_number(trajectory.names, whole, path)
    rows = np.array(sorted(frames, key=lambda row: frames[row]))
    times = whole.times_s[[frames[row] for row in rows]]
    if len(times) < 2 or (np.diff(times) <= 0.0).any():
        got = f"'{path}' has {len(times)} images of '{clip.name}', or two images of one frame"
        raise InputError(got, "one pose a frame, of one camera", "leave other images out")
    return trajectory.poses[rows], times


def _by_name(names: tuple[str, ...], clip: Clip, path: str | Path) -> dict[int, int] | None:
    """Return the frame of each row whose image is one of the clip's files; None for a video."""
    if not isinstance(clip.frames, ImageFrames):
        return None
    for part in ("name", "stem"):
        numbers = {getattr(file, part): number for number, file in enumerate(clip.frames.files)}
        found = {row: numbers[key] for row, name in enumerate(names) if (key := getattr(Path(name), part)) in numbers}
        if found:
            return found
    got = f"'{path}' has poses of {names[0]} and others, and none of the images of '{clip.name}'"
    raise InputError(got, f"images like {clip.frames.files[0].name}", "give the reconstruction of these images")


def _by_number(names: tuple[str, ...], clip: Clip, path: str | Path) -> dict[int, int]:
    """Return the frame of each row by the last number in its image's name."""
    digits = [re.findall(r"\d+", Path(name).stem) for name in names]
    unnumbered = [name for name, found in zip(names, digits, strict=True) if not found]
    if unnumbered:
        got = f"'{path}' has the image {unnumbered[0]}, without a number"
        raise InputError(got, "names with the number of a frame", "give the clip as the folder of these images")
    numbers = [int(found[-1]) for found in digits]
    first = min(1, *numbers)
    last = max(numbers) - first
    if last >= len(clip.times_s):
        got = f"'{path}' has an image of frame {last}, counted from 0"
        raise InputError(got, f"the {len(clip.times_s)} frames of '{clip.name}'", "give the clip of these images")
    warnings.warn(f"the numbers of the images count the frames of the video from {first}", stacklevel=5)
    return {row: number - first for row, number in enumerate(numbers)}


def _in_clock_of(clip: Clip, times_s: Array, path: str | Path) -> Array:
    """Return the times in the clip's clock; those of another clock begin with the clip, which a warning states."""
    whole = clip.whole[0] if clip.whole else clip
    if times_s[0] <= whole.times_s[-1] and times_s[-1] >= whole.times_s[0]:
        return times_s
    text = f"the clock of '{path}' is not the clip's: its first pose, at {times_s[0]:.3f} s, is taken for that of the "
    warnings.warn(warning(text + "first frame"), stacklevel=4)
    return times_s - times_s[0] + whole.times_s[0]


def _require_cover(times: Array, clip: Clip, path: str | Path) -> None:
    """Raise InputError, with the seconds that are missing, where a frame has no pose near enough."""
    wanted = clip.times_s
    half = 0.5 * float(np.median(np.diff(wanted))) if len(wanted) > 1 else 0.0
    after = np.searchsorted(times, wanted)
    inside = (after > 0) & (after < len(times))
    at = np.clip(after, 1, len(times) - 1)
    exact = np.isclose(times[at - 1], wanted, rtol=0.0, atol=half) | np.isclose(times[at], wanted, rtol=0.0, atol=half)
    missing = ~(exact | (inside & (times[at] - times[at - 1] <= LONGEST_GAP_S)))
    if not missing.any():
        return
    spans = [f"{wanted[a]:.2f} to {wanted[b - 1]:.2f} s" for a, b in _runs(missing)]
    listed = ", ".join(spans[:_MOST_SPANS]) + (" ..." if len(spans) > _MOST_SPANS else "")
    remedy = "select the part that has poses with --from and --to, or check the clock of the poses and --fps"
    raise InputError(f"'{path}' has no pose of the camera for {listed} of '{clip.name}'", "poses of all frames", remedy)


def _runs(rows: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where runs of True start and end (exclusive)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rows, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
