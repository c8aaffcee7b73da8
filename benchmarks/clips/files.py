"""The files of a clip's folder: mesh.obj, camera.yaml, mocap.csv, truth.json, clip.mp4, README.md.

Conventions: world with z up, gravity (0, 0, -9.81), floor z = 0; frame k is the middle of its exposure, at k / fps;
camera axes of OpenCV; quaternions XYZW in mocap.csv, which follows the layout of Motive 1.23.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from benchmarks.clips.appearance import Lens
from benchmarks.clips.bodies import Solid
from benchmarks.clips.motion import Motion, Release, Throw
from benchmarks.clips.table import Spec

Array = NDArray[np.float64]
MOCAP_HZ = 120.0
_REPEATABLE = "asm=avx2"  # libx264 with AVX-512 gives other bits at each call
_ID = '"5A1C7E3B90D24F68A7B3C4D5E6F70819"'


def write_mesh(file: Path, solid: Solid) -> None:
    """Write vertices [m] and triangles as a Wavefront file."""
    lines = [f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in solid.vertices]
    lines += [f"f {a} {b} {c}" for a, b, c in solid.faces + 1]
    file.write_text("\n".join(lines) + "\n")


def write_camera(file: Path, name: str, lens: Lens) -> None:
    """Write the camera as a ROS camera_info file with camera_to_world."""
    f, (cx, cy) = lens.focal_px, lens.center_px
    pose = ", ".join(f"{v:.10g}" for v in (lens.camera_to_world() + 0.0).ravel())
    file.write_text(
        f"""# ROS camera_info fields + camera_to_world. Ideal pinhole, static camera.
# Pixel convention: OpenCV and ROS (pixel centres at integers; the centre of the top-left pixel is (0, 0)).
# camera_to_world: 4x4 row-major, x_world = T x_camera, metres; OpenCV camera axes; world z up.
image_width: {lens.size_px[0]}
image_height: {lens.size_px[1]}
camera_name: {name}
camera_matrix:
  rows: 3
  cols: 3
  data: [{f}, 0, {cx}, 0, {f}, {cy}, 0, 0, 1]
distortion_model: plumb_bob
distortion_coefficients:
  rows: 1
  cols: 5
  data: [0, 0, 0, 0, 0]
rectification_matrix:
  rows: 3
  cols: 3
  data: [1, 0, 0, 0, 1, 0, 0, 0, 1]
projection_matrix:
  rows: 3
  cols: 4
  data: [{f}, 0, {cx}, 0, 0, {f}, {cy}, 0, 0, 0, 1, 0]
camera_to_world:
  rows: 4
  cols: 4
  data: [{pose}]
"""
    )


def write_mocap(file: Path, name: str, motion: Motion, duration_s: float) -> None:
    """Write exact poses at 120 Hz in the layout of Motive 1.23."""
    count = int(np.floor(duration_s * MOCAP_HZ + 1e-6)) + 1
    times = np.arange(count) / MOCAP_HZ
    position, quats = motion.at(times)
    head = (
        f"Format Version,1.23,Take Name,{name},Take Notes,,Capture Frame Rate,{MOCAP_HZ:.6f},Export Frame Rate,"
        f"{MOCAP_HZ:.6f},Capture Start Time,1970-01-01 12.00.00.000 AM,Capture Start Frame,0,Total Frames in Take,"
        f"{count},Total Exported Frames,{count},Rotation Type,Quaternion,Length Units,Meters,Coordinate Space,Global"
    )
    lines = [head, "", ",Type" + ",Rigid Body" * 7, ",Name" + ",body" * 7, ",ID" + f",{_ID}" * 7]
    lines += [",," + "Rotation," * 4 + "Position,Position,Position", "Frame,Time (Seconds),X,Y,Z,W,X,Y,Z"]
    for i, (t, p, q) in enumerate(zip(times, position, quats, strict=True)):
        values = ",".join(f"{v + 0.0:.6f}" for v in (q[1], q[2], q[3], q[0], *p))
        lines.append(f"{i},{t:.6f},{values}")
    file.write_text("\n".join(lines) + "\n")


def truth(spec: Spec, solid: Solid, motion: Motion, check: dict[str, Any], samples: int) -> dict[str, Any]:
    """Return what is known of a clip, for truth.json."""
    position, quats = motion.at(np.zeros(1))
    first = np.eye(4)
    first[:3, :3] = Rotation.from_quat(quats[0], scalar_first=True).as_matrix()
    first[:3, 3] = position[0]
    seen = np.linalg.inv(spec.lens.camera_to_world()) @ first
    sensor = spec.sensor
    facts = {name: value for name, value in motion.facts.items() if name != "tip_world_m"}
    thrown = isinstance(spec.moves, Throw | Release)
    return {
        "clip": spec.name,
        "split": spec.split,
        "fps": spec.fps,
        "frames": spec.frames,
        "image_size": list(spec.lens.size_px),
        "video_time_of_frame_k": "k / fps = middle of the exposure",
        "world": "z up, gravity (0, 0, -9.81) m/s^2, floor at z = 0",
        "first_pose": {
            "position_m": _rounded(position[0]),
            "quaternion_wxyz": _rounded(quats[0]),
            "T_world_body": _rounded(first),
            "T_camera_body": _rounded(seen),
        },
        "motion_blur": {"shutter_fraction_of_frame": sensor.shutter} if sensor.shutter else None,
        "rolling_shutter": None,
        "appearance": spec.text,
        "sensor_noise": f"Gaussian, sigma = {sensor.noise:.2f}*sqrt(3.6 + 0.03*I) of 255 levels, x264 crf {sensor.crf}",
        "exposure_ev": [list(pair) for pair in sensor.exposure_ev],
        "render": f"Blender Cycles, CPU, {samples} samples, OpenImageDenoise. One static image; what moves, and its "
        "shadows, are rendered anew in every frame; see benchmarks/clips/scene.py",
        "projection_check": check,
        "source": "simulated for this project (no recorded motion)",
        "shape": spec.body.shape,
        "size_m": list(spec.body.size_m),
        "mass_kg": solid.mass_kg,
        "com_body_m": [0.0, 0.0, 0.0],
        "inertia_kgm2_about_com_body_axes": _rounded(solid.inertia, 10),
        "inertia_over_mass_m2": _rounded(solid.inertia / solid.mass_kg, 9),
        **facts,
        "recoverable": {
            "yes": ["friction.mu where the body slides", "restitution.value"] if thrown else [],
            "no": ["mass_kg: no force is known"],
        },
        "time_offset_s": 0.0,
        "time_offset_meaning": "t_mocap = t_video; mocap.csv at 120 Hz is exact, without noise",
        "notes": [],
    }


def write_truth(file: Path, content: dict[str, Any]) -> None:
    """Write truth.json."""
    file.write_text(json.dumps(content, indent=1) + "\n")


def write_readme(file: Path, spec: Spec) -> None:
    """Write one paragraph about the clip."""
    width, height = spec.lens.size_px
    file.write_text(
        f"{spec.name} ({spec.split}): {width}x{height}, {spec.fps:g} fps, {spec.frames} frames, static calibrated "
        f"camera; {spec.text}.\nSimulated motion, every pixel rendered by Blender Cycles, sensor noise added. "
        f"Made by `python -m benchmarks.clips.make --clip {spec.name}`; nothing in it comes from third parties.\n"
    )


def write_index(folder: Path) -> None:
    """Write INDEX.md with one line for each clip of a folder."""
    lines = ["# Clips by Blender Cycles, made by `python -m benchmarks.clips.make`", ""]
    lines += ["| clip | split | size | fps | frames | what it is | edges of files and frames agree to |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for file in sorted(folder.glob("*/truth.json")):
        t = json.loads(file.read_text())
        size, edge = "x".join(map(str, t["image_size"])), t["projection_check"]["max_edge"]
        cells = (t["clip"], t["split"], size, f"{t['fps']:g}", str(t["frames"]), t["appearance"], f"{edge} px")
        lines.append(f"| {' | '.join(cells)} |")
    (folder / "INDEX.md").write_text("\n".join(lines) + "\n")


def write_video(
    file: Path, frames: Iterable[NDArray[np.uint8]], fps: float, size_px: tuple[int, int], crf: int
) -> None:
    """Write RGB frames [H, W, 3] as H.264 in an MP4 file."""
    import av

    with av.open(str(file), "w") as out:
        stream = out.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
        stream.width, stream.height, stream.pix_fmt = *size_px, "yuv420p"
        stream.options = {"crf": str(crf), "preset": "slow", "tune": "grain", "x264-params": _REPEATABLE}
        for frame in frames:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        out.mux(stream.encode())


def _rounded(values: Array, digits: int = 7) -> list[Any]:
    return list(np.round(np.asarray(values) + 0.0, digits).tolist())
