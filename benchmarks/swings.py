"""Swings that no tracker has met: bodies on hinges, drawn before a room, and what `identify` makes of them.

    python -m benchmarks.swings [--work DIR] [--clip ring bar_blur ...]

Ten clips differ in body, axis, amplitude, duration, frame rate and image. SciPy moves the body. The project's
rasteriser draws it under a lamp, with its shadow, before a wall and a floor with patterns. `vid2phys identify --system
pendulum --model none` gets the clip, a mesh of one colour, the camera and the mass. `--work DIR` keeps clips and runs,
and a later call goes on from there.

Limits: one clip a row; the pin is thin, and nothing else hides the body.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ImageColor
from scipy.integrate import solve_ivp

from benchmarks.clips import files
from benchmarks.clips.appearance import Lens, Sensor, Surface
from benchmarks.clips.bodies import Body, Solid, build
from benchmarks.prints import printed
from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import Raster, face_normals, rasterize_camera
from vid2phys.geometry import Pose, invert_transform, matrix_from_rotvec, transform_points
from vid2phys.risp.appearance.backgrounds import fractal_noise, random_color, to_linear
from vid2phys.types import Array, Camera, Mesh

GRAVITY = 9.81
_PIVOT_M = np.array([0.0, 0.0, 0.55])
_WALL_Y_M, _LAMP_M = 0.45, np.array([-0.5, -1.2, 1.0])
_SUPERSAMPLE, _EXPOSURES = 3, 8


@dataclass(frozen=True)
class Swing:
    """A clip of a body on a hinge.

    Attributes:
        body: its shape and mass.
        point_m: a point of the axis, body axes, from the centre of mass.
        axis_body: direction of the axis, body axes.
        yaw_deg: of the axis, from where it points along the line of sight.
        tilt_deg: of the axis above the horizontal.
        start_deg: angle at the first frame, from hanging.
        periods: duration, in periods of small swings.
        decay_1_s: damping over inertia about the axis.
        rate_rad_s: at the first frame.
        fps: frames a second.
        size_px: width and height of the image.
        shutter: exposure as a share of the frame interval.
        noise: factor of the sensor's usual noise.
        colors: of the body; several make a pattern.
        patches: number of coloured shapes on the wall.
        aside_m: place of the camera, beside and above the pivot.
    """

    body: Body
    point_m: tuple[float, float, float]
    axis_body: tuple[float, float, float]
    yaw_deg: float
    tilt_deg: float
    start_deg: float
    periods: float
    decay_1_s: float = 0.5
    rate_rad_s: float = 0.0
    fps: float = 60.0
    size_px: tuple[int, int] = (480, 360)
    shutter: float = 0.0
    noise: float = 1.0
    colors: tuple[str, ...] = ("#a83a2a",)
    patches: int = 8
    aside_m: tuple[float, float] = (0.15, 0.05)


def _body(shape: str, size_m: tuple[float, ...], mass_kg: float = 0.2) -> Body:
    return Body(shape, size_m, (Surface(),), mass_kg)


CLIPS: dict[str, Swing] = {
    "box_print": Swing(
        *(_body("box", (0.16, 0.09, 0.05)), (0.07, 0.0, 0.0), (0.0, 0.0, 1.0), 0.0, 0.0, 60.0, 2.0),
        colors=("#e0d4a8", "#b5402e", "#2f4f6f"),
    ),
    "ring": Swing(
        *(_body("ring", (0.17, 0.022)), (0.074, 0.0, 0.0), (0.0, 0.0, 1.0), 0.0, 0.0, 50.0, 1.5),
        decay_1_s=0.3,
    ),
    "mug_oblique": Swing(
        *(_body("mug", (0.085, 0.1, 0.005)), (-0.035, 0.0, 0.045), (0.0, 1.0, 0.0), 30.0, 0.0, -45.0, 2.0),
        fps=30.0,
        colors=("#d8d4c8",),
    ),
    "l_half": Swing(
        *(_body("l_shape", (0.24, 0.1, 0.03, 0.025)), (0.12, -0.02, 0.0), (0.0, 0.0, 1.0), 30.0, 15.0, 90.0, 0.5),
        colors=("#3f7a4a",),
    ),
    "bar_half": Swing(
        *(_body("box", (0.34, 0.022, 0.012)), (0.15, 0.0, 0.0), (0.0, 1.0, 0.0), 12.0, 0.0, 2.0, 0.6),
        rate_rad_s=7.0,
        colors=("#c08a2c",),
    ),
    "plate_far": Swing(
        *(_body("box", (0.2, 0.15, 0.008)), (0.09, 0.065, 0.0), (0.0, 0.0, 1.0), -20.0, 5.0, 120.0, 3.0),
        decay_1_s=0.8,
        colors=("#30528f",),
    ),
    "bar_blur": Swing(
        *(_body("box", (0.28, 0.035, 0.025)), (0.12, 0.0, 0.0), (0.0, 0.0, 1.0), 15.0, -5.0, -80.0, 2.0),
        fps=30.0,
        size_px=(320, 240),
        shutter=0.5,
        noise=1.5,
        patches=30,
    ),
    "box_small_swing": Swing(
        *(_body("box", (0.2, 0.06, 0.04)), (0.085, 0.0, 0.0), (0.0, 1.0, 0.0), -10.0, 15.0, 15.0, 2.5),
        size_px=(640, 480),
        decay_1_s=0.4,
        colors=("#7a6aa0",),
    ),
    "l_clutter": Swing(
        *(_body("l_shape", (0.2, 0.14, 0.03, 0.03)), (0.0, 0.08, 0.0), (0.0, 0.0, 1.0), -30.0, 0.0, 75.0, 3.0),
        fps=25.0,
        colors=("#c9b23a", "#c9b23a", "#4a4a52"),
        patches=60,
    ),
    "bar_print": Swing(
        *(_body("box", (0.3, 0.04, 0.03)), (0.13, 0.0, 0.0), (0.0, 0.0, 1.0), 40.0, 10.0, 40.0, 1.0),
        colors=("#e8e4da", "#1f3f7a"),
        size_px=(320, 240),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Motion:
    """A swing by SciPy: truth of a clip, and poses world_from_body at any time."""

    length_m: float
    inertia: float
    damping: float
    axis: Array
    hanging: Array
    point_m: Array
    solution: Any
    period_s: float

    @staticmethod
    def of(swing: Swing, solid: Solid) -> Motion:
        """Solve the swing of a body."""
        yaw, tilt = np.radians([swing.yaw_deg, swing.tilt_deg])
        axis = np.array([np.cos(tilt) * np.sin(yaw), np.cos(tilt) * np.cos(yaw), np.sin(tilt)])
        along, point = np.array(swing.axis_body), np.array(swing.point_m)
        arm = -point + along * (along @ point)
        length = float(np.linalg.norm(arm))
        down = np.array([0.0, 0.0, -1.0]) + axis * axis[2]
        down /= np.linalg.norm(down)
        world = np.stack([down, np.cross(axis, down), axis], axis=1)
        body = np.stack([arm / length, np.cross(along, arm / length), along], axis=1)
        own = float(along @ solid.inertia @ along)
        inertia = own + solid.mass_kg * length**2
        pull = solid.mass_kg * GRAVITY * float(np.cos(tilt)) * length / inertia
        period = float(2.0 * np.pi / np.sqrt(pull))

        def rates(_: float, state: Array) -> list[float]:
            return [state[1], -pull * np.sin(state[0]) - swing.decay_1_s * state[1]]

        duration = swing.periods * period + 2.0 / swing.fps
        begin = [np.radians(swing.start_deg), swing.rate_rad_s]
        found = solve_ivp(rates, (-1.0 / swing.fps, duration), begin, dense_output=True, rtol=1e-10, atol=1e-12)
        return Motion(length, own, swing.decay_1_s * inertia, axis, world @ body.T, point, found.sol, period)

    def at(self, time_s: float) -> Pose:
        """Return the pose at a time."""
        rotation = matrix_from_rotvec(self.solution(time_s)[0] * self.axis) @ self.hanging
        return Pose(rotation, _PIVOT_M - rotation @ self.point_m)


def make(name: str, swing: Swing, folder: Path) -> None:
    """Write clip.mp4, mesh.obj, camera.yaml and truth.json."""
    solid = build(swing.body)
    motion = Motion.of(swing, solid)
    frames = max(12, round(swing.periods * motion.period_s * swing.fps))
    lens, camera = _camera(swing, solid)
    rng = np.random.default_rng([ord(letter) for letter in name])
    scene = _Scene.of(swing, solid, motion.axis, camera, rng)
    sensor = Sensor(shutter=swing.shutter, noise=swing.noise)
    images = []
    for k in range(frames):
        shares = (np.arange(_EXPOSURES) + 0.5) / _EXPOSURES - 0.5 if swing.shutter else np.zeros(1)
        exposed = [scene.drawn(motion.at((k + swing.shutter * share) / swing.fps)) for share in shares]
        shown = sensor.develop(np.mean(exposed, axis=0), k / swing.fps)
        shown = shown + sensor.noise_sigma(shown) * rng.normal(size=shown.shape)
        images.append(np.clip(np.round(shown), 0, 255).astype(np.uint8))
    folder.mkdir(parents=True)
    files.write_mesh(folder / "mesh.obj", solid)
    files.write_camera(folder / "camera.yaml", name, lens)
    parameters = {"length": motion.length_m, "damping": motion.damping}
    truth = {
        "parameters": parameters | {"mass": solid.mass_kg, "inertia": motion.inertia},
        "axis": motion.axis.tolist(),
        "pivot_m": _PIVOT_M.tolist(),
        "frames": frames,
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    files.write_video(folder / "clip.mp4", images, swing.fps, swing.size_px, sensor.crf)


def _camera(swing: Swing, solid: Solid) -> tuple[Lens, Camera]:
    """Return a camera 1.3 m before the pivot that has the whole swing in its image."""
    width, height = swing.size_px
    reach = float(np.linalg.norm(solid.vertices - np.array(swing.point_m), axis=1).max())
    low = _PIVOT_M - [0.0, 0.0, 0.0 if max(abs(swing.start_deg), 10.0 * swing.rate_rad_s) > 70.0 else 0.35 * reach]
    at = _PIVOT_M + np.array([swing.aside_m[0], -1.3, swing.aside_m[1]])
    focal = 0.46 * height * 1.3 / (reach if (low == _PIVOT_M).all() else 0.75 * reach)
    lens = Lens(tuple(at), tuple(low), focal, (0.503 * width, 0.492 * height), swing.size_px)  # type: ignore[arg-type]
    return lens, Camera(lens.matrix(), width, height, camera_to_world=lens.camera_to_world())


@dataclass(frozen=True)
class _Scene:
    """A printed body before a wall and over a floor, lit by a lamp: colours [F, 3] and light [H, W, 3] are linear."""

    mesh: Mesh
    colors: Array
    camera: Camera
    static: Array

    @staticmethod
    def of(swing: Swing, solid: Solid, axis: Array, camera: Camera, rng: np.random.Generator) -> _Scene:
        mesh = printed(solid, len(swing.colors))
        colors = np.array([to_linear(np.array(ImageColor.getrgb(each), np.uint8)) for each in swing.colors])
        return _Scene(mesh, colors[mesh.part], camera, _room(swing, axis, camera, rng))

    def drawn(self, pose: Pose) -> Array:
        """Return linear light [H, W, 3] with the body at a pose, and its shadow."""
        vertices = pose.apply(self.mesh.vertices)
        light = self.static.copy()
        to_wall = (_WALL_Y_M - _LAMP_M[1]) / (vertices[:, 1:2] - _LAMP_M[1])
        dark = self._raster(_LAMP_M + to_wall * (vertices - _LAMP_M), 1).coverage
        light *= (1.0 - 0.55 * cv2.GaussianBlur(dark, (0, 0), 2.5))[..., None]
        raster = self._raster(vertices, _SUPERSAMPLE)
        at = (raster.barycentric_seen[..., None] * vertices[self.mesh.faces[raster.faces_seen]]).sum(axis=-2)
        normal = face_normals(vertices, self.mesh.faces)[raster.faces_seen]
        eye = np.asarray(self.camera.camera_to_world)[:3, 3] - at
        lamp = _LAMP_M - at
        distance = np.linalg.norm(lamp, axis=-1, keepdims=True)
        half = lamp / distance + eye / np.linalg.norm(eye, axis=-1, keepdims=True)
        half /= np.linalg.norm(half, axis=-1, keepdims=True)
        lit = 2.3 * np.clip((normal * lamp).sum(-1, keepdims=True) / distance, 0.0, 1.0) / distance**2
        gloss = 0.12 * np.clip((normal * half).sum(-1, keepdims=True), 0.0, 1.0) ** 30
        sky = 0.3 + 0.15 * normal[..., 2:]
        seen = raster.averaged(self.colors[raster.faces_seen] * (sky + lit) + gloss * (lit > 0.0))
        window = raster.image_window
        light[window] += seen[..., 3:] * (seen[..., :3] - light[window])
        return np.asarray(cv2.GaussianBlur(light, (0, 0), 0.5), dtype=float)

    def _raster(self, vertices: Array, supersample: int) -> Raster:
        return rasterize_camera(_in_camera(self.camera, vertices), self.mesh.faces, self.camera, supersample)


def _in_camera(camera: Camera, points: Array) -> Array:
    return transform_points(invert_transform(np.asarray(camera.camera_to_world)), points)


def _room(swing: Swing, axis: Array, camera: Camera, rng: np.random.Generator) -> Array:
    """Return linear light [H, W, 3] of a wall with patches, a floor, and the pin."""
    size = (camera.width, camera.height)
    wall = np.array([[-1.5, _WALL_Y_M, 1.8], [1.5, _WALL_Y_M, 1.8], [1.5, _WALL_Y_M, 0.0], [-1.5, _WALL_Y_M, 0.0]])
    floor = np.array([[-1.5, _WALL_Y_M, 0.0], [1.5, _WALL_Y_M, 0.0], [1.5, -1.0, 0.0], [-1.5, -1.0, 0.0]])
    light = np.zeros((camera.height, camera.width, 3), np.float32)
    for corners, patches in ((wall, 3 * swing.patches), (floor, 20)):
        image = _pattern(rng, patches)
        sides = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32) * len(image)
        to_image = cv2.getPerspectiveTransform(sides, project(camera, _in_camera(camera, corners)).astype(np.float32))
        drawn = cv2.warpPerspective(np.dstack([image, np.ones_like(image[..., :1])]), to_image, size)
        light += drawn[..., 3:] * (drawn[..., :3] - light)
    ends = project(camera, _in_camera(camera, np.stack([_PIVOT_M, _PIVOT_M + 0.15 * axis])))
    begin, end = (tuple(round(16.0 * float(v)) for v in point) for point in ends)
    cv2.line(light, begin, end, (0.4, 0.4, 0.42), max(2, size[0] // 120), cv2.LINE_AA, 4)
    return np.asarray(cv2.GaussianBlur(light, (0, 0), 0.4), dtype=float)


def _pattern(rng: np.random.Generator, patches: int) -> NDArray[np.float32]:
    """Return light [N, N, 3] of two shades with patches of random colours."""
    size = 1536
    shade = cv2.resize(fractal_noise(rng, 512, roughness=1.1), (size, size))[..., None]
    image = np.ascontiguousarray(0.2 + 0.35 * random_color(rng) + 0.05 * shade, np.float32)
    for _ in range(patches):
        box = (rng.uniform(0, size, 2).tolist(), rng.uniform(20.0, 200.0, 2).tolist(), float(rng.uniform(0.0, 180.0)))
        color = (0.05 + 0.8 * random_color(rng)).tolist()
        cv2.fillPoly(image, [np.asarray(cv2.boxPoints(box), np.int32)], color, cv2.LINE_AA)
    return np.clip(image, 0.02, 0.9)


@dataclass(frozen=True)
class Row:
    """What `identify` made of a clip; errors as shares of the truth, and degrees."""

    clip: str
    frames: int
    status: str
    tracked: float = float("nan")
    length: float = float("nan")
    damping: float = float("nan")
    axis_deg: float = float("nan")
    length_held: bool = False
    damping_held: bool = False
    tracking_s: float = 0.0
    after_s: float = 0.0
    cpu_s: float = 0.0


def measure(name: str, work: Path) -> Row:
    """Make the clip of a name where it is not there, and return what `identify` makes of it."""
    folder, out = work / "clips" / name, work / "runs" / name
    if not (folder / "clip.mp4").is_file():
        make(name, CLIPS[name], folder)
    truth = json.loads((folder / "truth.json").read_text())
    if not (out / "row.json").is_file():
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        shutil.rmtree(out, ignore_errors=True)
        options = ["--mesh", str(folder / "mesh.obj"), "--camera", str(folder / "camera.yaml"), "--model", "none"]
        options += ["--system", "pendulum", "--set", f"mass={truth['parameters']['mass']}", "--out", str(out)]
        command = [sys.executable, "-m", "vid2phys", "identify", str(folder / "clip.mp4"), *options]
        said = subprocess.run(command, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        whole_s, stage = time.perf_counter() - began, re.search(r"\[ *([\d.]+) s\] fitting the hinge", said.stderr)
        tracking_s = float(stage[1]) if stage else whole_s
        row = _judged(name, truth, out)
        row = replace(row, tracking_s=tracking_s, after_s=whole_s - tracking_s, cpu_s=cpu_s)
        out.mkdir(parents=True, exist_ok=True)
        (out / "said.txt").write_text(said.stdout + said.stderr)
        (out / "row.json").write_text(json.dumps(vars(row)))
    return Row(**json.loads((out / "row.json").read_text()))


def _judged(name: str, truth: dict[str, Any], out: Path) -> Row:
    """Return the errors of a run."""
    if not (out / "result.json").is_file():
        return Row(name, truth["frames"], "refused")
    result = json.loads((out / "result.json").read_text())
    row = Row(name, truth["frames"], result["status"])
    found = {each: result["parameters"].get(each, {}) for each in ("length", "damping")}
    if "axis_x" not in result.get("derived", {}) or not all("value" in each for each in found.values()):
        return row
    axis = np.array([result["derived"][f"axis_{letter}"]["value"] for letter in "xyz"])
    cosine = abs(float(axis @ truth["axis"])) / float(np.linalg.norm(axis))
    off, held = {}, {}
    for each, estimate in found.items():
        true = truth["parameters"][each]
        off[each], ends = estimate["value"] / true - 1.0, estimate.get("ci95")
        held[each] = bool(ends and ends[0] is not None and ends[0] <= true <= ends[1])
    tracked = 1.0 - result["fit"]["frames_lost"] / truth["frames"]
    return replace(
        row, tracked=tracked, length=off["length"], damping=off["damping"], length_held=held["length"],
        damping_held=held["damping"], axis_deg=float(np.degrees(np.arccos(min(1.0, cosine)))),
    )  # fmt: skip


def main() -> None:
    """Print a table of the clips that the command line names."""
    parser = argparse.ArgumentParser(description="Swings that no tracker has met.")
    parser.add_argument("--work", type=Path, default=Path("runs/swings"))
    parser.add_argument("--clip", nargs="*", choices=sorted(CLIPS), default=list(CLIPS))
    options = parser.parse_args()
    print("| clip | frames | length | damping | axis | held | status | tracking | hinge | CPU |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.clip:
        row = measure(name, options.work)
        held = " ".join(each for each, yes in (("length", row.length_held), ("damping", row.damping_held)) if yes)
        print(
            f"| {row.clip} | {row.tracked * row.frames:.0f} of {row.frames} | {100 * row.length:+.2f} % | "
            f"{100 * row.damping:+.1f} % | {row.axis_deg:.2f} deg | {held or 'none'} | {row.status} | "
            f"{row.tracking_s:.0f} s | {row.after_s:.0f} s | {row.cpu_s:.0f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
