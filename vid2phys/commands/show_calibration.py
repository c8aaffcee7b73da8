"""What `vid2phys calibrate` prints: the numbers with their spread, the error over the image, the pose, remarks."""

from __future__ import annotations

import json
import math
from typing import Any

from vid2phys.commands.calibrate import Calibration
from vid2phys.commands.show import format_value, print_table
from vid2phys.io.camera import COEFFICIENTS

_T95 = 1.96


def print_calibration(found: Calibration, *, as_json: bool = False) -> None:
    """Print a calibration for people, or as JSON."""
    data = calibration_json(found)
    if as_json:
        print(json.dumps(data, indent=2))
        return
    print(f"{found.camera.width}x{found.camera.height}, {found.camera.model}")
    rows = [
        [name, format_value(item["value"], 6), _plus_minus(item["std"]), format_value(_T95 * item["std"], 2)]
        for name, item in data["intrinsics"].items()
        if "std" in item
    ]
    if rows:
        print_table(("", "value", "standard deviation", "95 %, either way"), rows)
    else:
        print(", ".join(f"{name} {format_value(item['value'], 6)}" for name, item in data["intrinsics"].items()))
        if not found.camera.distortion.any() and found.camera.model != "equidistant":
            print("no distortion")
    if found.fit is not None and found.quality is not None:
        dropped = f", {len(found.fit.dropped)} left out" if found.fit.dropped else ""
        print(f"views: {len(found.fit.views)} of {found.images} images{dropped}")
        views = found.fit.view_rms_px()
        print(f"reprojection error: {found.fit.rms_px:.3f} px RMS (views from {views.min():.3f} to {views.max():.3f})")
        rows = [[_cell(x) for x in line] for line in found.quality.rms_grid_px]
        print_table(("px, left", "middle", "right"), rows)
        print(f"coverage: {100 * found.quality.coverage:.0f} %, tilt up to {found.quality.tilt_deg:.0f} deg")
    if found.pose is None and "position_m" in data:
        print(f"position: {', '.join(f'{x:.4f}' for x in data['position_m'])} m, from the file")
        print(f"looks along: {', '.join(f'{x:.3f}' for x in data['looks_along'])}")
    if found.camera.camera_to_world is None:
        print("pose: none")
    if found.pose is not None:
        pairs = zip(data["position_m"], _T95 * found.pose.std_m, strict=True)
        rotation = f"{_T95 * found.pose.std_deg:.2f} deg"
        print(f"position: {', '.join(f'{x:.4f} +- {width:.4f}' for x, width in pairs)} m (95 %)")
        print(f"direction: +- {rotation}, {found.pose.rms_px:.3f} px RMS over {len(found.pose.residuals)} points")
        ahead = data["looks_along"]
        print(f"looks along: {', '.join(f'{x:.3f}' for x in ahead)}")
    for remark in found.remarks:
        print(f"note: {remark}")
    print(f"camera: {found.path}")


def calibration_json(found: Calibration) -> dict[str, Any]:
    """Numbers of a calibration under plain names."""
    camera = found.camera
    values = [camera.K[0, 0], camera.K[1, 1], camera.K[0, 2], camera.K[1, 2], *camera.distortion]
    named = ("fx", "fy", "cx", "cy", *COEFFICIENTS[camera.model][: len(camera.distortion)])
    intrinsics: dict[str, dict[str, float]] = {n: {"value": float(v)} for n, v in zip(named, values, strict=True)}
    data: dict[str, Any] = {"camera": str(found.path), "model": camera.model, "intrinsics": intrinsics}
    data["size"] = [camera.width, camera.height]
    if found.fit is not None and found.quality is not None:
        for name, std in zip(found.fit.names, found.fit.std, strict=True):
            intrinsics[name]["std"] = float(std)
        data["rms_px"] = found.fit.rms_px
        data["views"] = [
            {"image": view.name, "points": len(view.ids), "rms_px": float(rms)}
            for view, rms in zip(found.fit.views, found.fit.view_rms_px(), strict=True)
        ]
        data["left_out"] = list(found.fit.dropped)
        grids = {"rms_grid_px": found.quality.rms_grid_px, "bias_grid_px": found.quality.bias_grid_px}
        for name, grid in grids.items():
            data[name] = [[None if math.isnan(x) else float(x) for x in line] for line in grid]
        data["coverage"], data["tilt_deg"] = found.quality.coverage, found.quality.tilt_deg
    if camera.camera_to_world is not None:
        data["camera_to_world"] = camera.camera_to_world.tolist()
        data["position_m"] = camera.camera_to_world[:3, 3].tolist()
        data["looks_along"] = camera.camera_to_world[:3, 2].tolist()
    if found.pose is not None:
        data["pose"] = {
            "rms_px": found.pose.rms_px,
            "position_std_m": found.pose.std_m.tolist(),
            "direction_std_deg": found.pose.std_deg,
        }
    return {**data, "remarks": list(found.remarks)}


def _plus_minus(std: float) -> str:
    return f"+- {format_value(std, 2)}" if std > 0.0 else "held at 0"


def _cell(value: float) -> str:
    return "no points" if math.isnan(value) else f"{value:.3f}"
