"""Judge whether a calibration is reliable: reasons to refuse it, remarks, and how its error is distributed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vid2phys.camera_calibration.intrinsics import Fit
from vid2phys.camera_calibration.target import Target
from vid2phys.camera_calibration.views import coverage
from vid2phys.engine.observe import pixels_to_bearings
from vid2phys.errors import InputError
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.types import Array

_LEAST_TILT_DEG, _GOOD_TILT_DEG = 15.0, 30.0
_LEAST_COVERAGE, _GOOD_COVERAGE = 0.4, 0.7
_LARGEST_FIT_RMS_PX = 1.0  # or a thousandth of the width, where that is more
_LARGEST_SPREAD = 0.01  # standard deviation of a focal length or of the centre, relative
_GRID = 3
_SYSTEMATIC = 0.5  # a cell's mean error, as a share of the RMS error, above which the model does not fit


@dataclass(frozen=True)
class Quality:
    """Reasons to refuse a calibration, remarks, and what they rest on.

    rms_grid_px, bias_grid_px: [3, 3] cells of the image, top left first, NaN without points; RMS and mean error.
    tilt_deg: largest angle between two views of the board. coverage: share of the image inside the hulls of the views.
    """

    coverage: float
    tilt_deg: float
    rms_grid_px: Array
    bias_grid_px: Array
    refusals: tuple[str, ...]
    remarks: tuple[str, ...]


def judge(fit: Fit, target: Target) -> Quality:
    """Return what is wrong with a fit (`refusals`) and what could be better (`remarks`)."""
    width, height = fit.camera.width, fit.camera.height
    covered, tilt = coverage(fit.views, (width, height)), tilt_deg(fit)
    rms, bias = _grids(fit)
    refusals, remarks = [], []
    if tilt < _LEAST_TILT_DEG:
        refusals.append(
            f"all views are nearly parallel (within {tilt:.0f} deg): tilt the board by 20 to 40 deg to all sides"
        )
    elif tilt < _GOOD_TILT_DEG:
        remarks.append(f"the views differ by {tilt:.0f} deg at most: tilting the board further would help")
    if covered < _LEAST_COVERAGE:
        refusals.append(f"the board covers {100 * covered:.0f} % of the image: move it to the corners, or closer")
    elif covered < _GOOD_COVERAGE or np.isnan(rms).any():
        remarks.append(f"the board covers {100 * covered:.0f} % of the image: distortion is a guess in the rest")
    limit = max(_LARGEST_FIT_RMS_PX, 1e-3 * width)
    if fit.rms_px > limit:
        refusals.append(
            f"the reprojection error is {fit.rms_px:.2f} px (up to {limit:.2g}): check the board's counts and sizes, "
            "that it is flat, sharpness, or another --model"
        )
    loose = [(name, std) for name, std in zip(fit.names[:4], fit.std[:4], strict=True) if not _tight(fit, name, std)]
    if loose:
        listed = ", ".join(f"{name} +- {std:.2g} px" for name, std in loose)
        refusals.append(f"the views leave {listed} open: more views, tilted, in all parts of the image")
    worst = float(np.nanmax(bias)) if np.isfinite(bias).any() else 0.0
    if not refusals and worst > _SYSTEMATIC * fit.rms_px and worst > 0.1:
        remarks.append(
            f"errors of up to {worst:.2f} px go one way in a part of the image: another --model may fit better"
        )
    corners = np.array([[0, 0], [width - 1, 0], [0, height - 1], [width - 1, height - 1]], dtype=float)
    if not np.isfinite(pixels_to_bearings(fit.camera, corners)).all():
        remarks.append("the distortion is not one-to-one up to the image's corners: points there are not used")
    if fit.dropped:
        remarks.append(f"left out for their error: {', '.join(fit.dropped)}")
    if target.kind == "chessboard" and target.columns == target.rows:
        remarks.append("a board with as many rows as columns may be detected rotated; that does no harm here")
    return Quality(covered, tilt, rms, bias, tuple(refusals), tuple(remarks))


def require_good(quality: Quality) -> None:
    """Raise InputError with all the reasons why a calibration is refused; do nothing without one."""
    if quality.refusals:
        raise InputError(
            f"this calibration is refused: {'; '.join(quality.refusals)}",
            "",
            "film the board again; nothing was written",
        )


def tilt_deg(fit: Fit) -> float:
    """Return the largest angle between the board's normals in two views [deg]."""
    normals = matrix_from_rotvec(fit.poses[:, :3])[:, :, 2]
    return float(np.rad2deg(np.arccos(np.clip((normals @ normals.T).min(), -1.0, 1.0))))


def _tight(fit: Fit, name: str, std: float) -> bool:
    scale = {"fx": fit.camera.K[0, 0], "fy": fit.camera.K[1, 1]}.get(name, float(fit.camera.width))
    return bool(std <= _LARGEST_SPREAD * scale)


def _grids(fit: Fit) -> tuple[Array, Array]:
    pixels = np.concatenate([view.pixels for view in fit.views])
    cell = (pixels / [fit.camera.width, fit.camera.height] * _GRID).astype(int).clip(0, _GRID - 1)
    rms, bias = np.full((_GRID, _GRID), np.nan), np.full((_GRID, _GRID), np.nan)
    for row in range(_GRID):
        for column in range(_GRID):
            inside = fit.residuals[(cell == [column, row]).all(axis=1)]
            if len(inside):
                rms[row, column] = np.sqrt((inside**2).sum(axis=1).mean())
                bias[row, column] = np.linalg.norm(inside.mean(axis=0))
    return rms, bias
