"""Write the native camera file: ROS camera_info YAML plus `camera_to_world`."""

from __future__ import annotations

import json

import numpy as np

from vid2phys.types import Array, Camera

_HEADER = """\
# ROS camera_info fields + camera_to_world. Pixel centres at integers (OpenCV, ROS).
# camera_to_world: 4x4 row-major, x_world = T x_camera, metres; camera axes x right, y down, z forward; world z up.
# focal_std: standard deviation of the focal length, as a share of it; direction_std_deg: of the camera's direction.
# readout_s: seconds from the first to the last row of a rolling shutter; readout_from: side that is exposed first.
"""


def camera_text(camera: Camera, notes: tuple[str, ...] = ()) -> str:
    """Return the file's text; its numbers are exact. notes: lines of comment at its head."""
    distortion = camera.distortion if len(camera.distortion) else np.zeros(5)
    projection = np.hstack([camera.K, np.zeros((3, 1))])
    lines = [
        f"image_width: {camera.width}",
        f"image_height: {camera.height}",
        f"camera_name: {json.dumps(camera.name, ensure_ascii=False)}",
        _block("camera_matrix", camera.K),
        f"distortion_model: {camera.model}",
        _block("distortion_coefficients", distortion[None]),
        _block("rectification_matrix", np.eye(3)),
        _block("projection_matrix", projection),
    ]
    if camera.camera_to_world is not None:
        lines.append(_block("camera_to_world", camera.camera_to_world))
    if camera.readout_s:
        lines += [f"readout_s: {camera.readout_s!r}", f"readout_from: {camera.readout_from}"]
    if camera.focal_std:
        lines.append(f"focal_std: {camera.focal_std:.6g}")
    if camera.direction_std_rad:
        lines.append(f"direction_std_deg: {np.degrees(camera.direction_std_rad):.6g}")
    comment = "".join(f"# {' '.join(note.split())}\n" for note in notes)
    return _HEADER + comment + "\n".join(lines) + "\n"


def _block(key: str, value: Array) -> str:
    rows, cols = value.shape
    numbers = ", ".join(repr(float(x)) for x in value.ravel())
    return f"{key}:\n  rows: {rows}\n  cols: {cols}\n  data: [{numbers}]"
