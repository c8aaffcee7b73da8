"""Clips that differ in one thing: size in the frame, motion blur, noise, partial occlusion, or background.

`make` writes one clip of a thrown body in the layout of `benchmarks.clips`. The body flies freely before a static
camera of 640x480 pixels. Its size in the frame comes from its size in metres, so that its path in the frame stays the
same. Frames are rasterised with two lights and no path tracer: a clip takes two to ten seconds. `film` does the same
for a body, a motion and a camera that the caller gives.

Limits: no shadows, no reflections, no floor. So these clips are easier than filmed ones with the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from benchmarks.clips import files
from benchmarks.clips.appearance import Lens, Surface
from benchmarks.clips.bodies import Body, Solid, build
from benchmarks.clips.motion import Motion, Throw
from benchmarks.painted import Light, Lights, Painted
from benchmarks.prints import printed
from vid2phys.risp.appearance.backgrounds import fractal_noise, random_color, to_linear
from vid2phys.types import Array, Camera

BODIES = {
    "box": Body("box", (0.12, 0.08, 0.05), (Surface(),)),
    "l_shape": Body("l_shape", (0.13, 0.09, 0.035, 0.03), (Surface(),)),
}
WIDTH, HEIGHT = 640, 480
_CENTER_M = 5.0  # height of the middle of the path: the body meets no floor
MARGIN_PX = 20
_LIGHTS: Lights = (((0.5, 0.7, 0.5), 0.75), ((-0.8, 0.1, 0.6), 0.25))


@dataclass(frozen=True)
class Cell:
    """What a clip shows.

    Attributes:
        size_px: mean over the clip of the longer side of the body's bounding box.
        blur_px: mean path of the body's centre in one exposure.
        noise: standard deviation of the sensor's noise, of 255 levels.
        covered: share of the frame that vertical bars before the body cover.
        patches: number of rectangles and ellipses of random colours in the background.
        own_color: share of these that have the body's colour.
        fps: frames a second.
        distance_m: from the camera. A large body needs more, so that it stays in the frame for half a second.
        color: of the body, display values.
        print_color: of parts of its surface; None for a plain body.
        lights: direction of travel in camera axes, and strength, of each.
        longest_s: duration of a free flight, where the frame has room for it.
        spin_rad_s: standard deviation of each component of a free flight's spin.
        pitch_deg: by how much the camera of a free flight looks down.
        gravity: of a free flight, m/s^2.
        air_drag_1_m: of a free flight: deceleration by the air over the square of the speed, 1/m.
        image_px: width and height of the image; the angle of view is the same for all.
        lens_blur_px: standard deviation of the point spread of the lens.
        crf: of the codec; a larger one keeps less.
    """

    size_px: float = 80.0
    blur_px: float = 0.0
    noise: float = 2.0
    covered: float = 0.0
    patches: int = 30
    own_color: float = 0.0
    fps: float = 60.0
    distance_m: float = 2.0
    color: tuple[int, int, int] = (196, 98, 52)
    print_color: tuple[int, int, int] | None = None
    lights: Lights = _LIGHTS
    longest_s: float = 0.85
    spin_rad_s: float = 3.0
    pitch_deg: float = 0.0
    gravity: float = 9.81
    air_drag_1_m: float = 0.0
    image_px: tuple[int, int] = (WIDTH, HEIGHT)
    lens_blur_px: float = 0.0
    crf: int = 18

    @property
    def lens(self) -> Lens:
        """Return the camera of a free flight, which looks at the middle of the path."""
        pitch, middle = np.radians(self.pitch_deg), np.array([0.0, 0.0, _CENTER_M])
        return lens_at(middle + self.distance_m * np.array([0.0, -np.cos(pitch), np.sin(pitch)]), middle, self.image_px)


def lens_at(place_m: Array, towards_m: Array, image_px: tuple[int, int]) -> Lens:
    """Return a camera at a place [3] that looks towards another one."""
    share = image_px[0] / WIDTH
    return Lens(_three(place_m), _three(towards_m), 800.0 * share, (322.3 * share, 236.1 * share), image_px)


def make(cell: Cell, body: Body, folder: Path, seed: int = 0) -> None:
    """Write clip.mp4, mesh.obj, camera.yaml and mocap.csv of a clip. Raises ValueError for more blur than motion.

    body: its shape and proportions; its size is that of the cell.
    """
    rng = _random(seed)
    film(cell, *_scaled(cell, body, rng), cell.lens, folder, rng)


def film(
    cell: Cell, solid: Solid, motion: Motion, frames: int, lens: Lens, folder: Path, rng: np.random.Generator
) -> None:
    """Write the files that `make` writes, of any motion before any camera."""
    camera = Camera(lens.matrix(), *lens.size_px, camera_to_world=lens.camera_to_world())
    behind, bars = background(cell, rng), _bars(cell, rng)
    exposure_s = _exposure_s(cell, motion, frames, lens)
    mesh = printed(solid, 1 if cell.print_color is None else 2)
    colors = to_linear(np.array([cell.color, cell.print_color or cell.color], np.uint8))[mesh.part]
    painted = Painted(mesh.faces, colors, camera, cell.lights)
    images = []
    for k in range(frames):
        exposures = _exposures(motion, mesh.vertices, k / cell.fps, exposure_s, cell.blur_px)
        light = painted.before(behind, exposures)
        light = light + bars[..., 3:] * (bars[..., :3] - light)
        images.append(developed(light, cell, rng))
    folder.mkdir(parents=True)
    files.write_mesh(folder / "mesh.obj", solid)
    files.write_camera(folder / "camera.yaml", folder.name, lens)
    files.write_mocap(folder / "mocap.csv", folder.name, motion, (frames - 1) / cell.fps)
    files.write_video(folder / "clip.mp4", images, cell.fps, lens.size_px, cell.crf)


def thrown(cell: Cell, body: Body, seed: int = 0) -> tuple[Solid, Motion, int]:
    """Return the body of a clip that `make` writes, its motion, and the number of frames."""
    return _scaled(cell, body, _random(seed))


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 9])


def _scaled(cell: Cell, body: Body, rng: np.random.Generator) -> tuple[Solid, Motion, int]:
    """Return the body at the size that the cell asks for, its motion, and the number of frames."""
    (width, height), focal_px = cell.image_px, cell.lens.focal_px
    room_m = (height - 1.15 * cell.size_px - 2 * MARGIN_PX) * cell.distance_m / focal_px
    duration_s = min(cell.longest_s, float(np.sqrt(8.0 * room_m / cell.gravity)))
    frames = int(duration_s * cell.fps)
    aside_m = min(0.5, (0.5 * width - 0.6 * cell.size_px - MARGIN_PX) * cell.distance_m / focal_px)
    top_m = cell.gravity * duration_s**2 / 8.0
    throw = Throw(
        (-aside_m, -0.06, _CENTER_M - 0.5 * top_m),
        (2.0 * aside_m / duration_s, 0.15, 0.5 * cell.gravity * duration_s),
        _three(rng.uniform(-1.5, 1.5, 3)),
        _three(rng.normal(0.0, cell.spin_rad_s, 3)),
        gravity=cell.gravity,
        air_drag_1_m=cell.air_drag_1_m,
    )

    def scaled(factor: float) -> tuple[Solid, Motion]:
        solid = build(body)
        solid = replace(
            solid, vertices=factor * solid.vertices, hull=factor * solid.hull, inertia=factor**2 * solid.inertia
        )
        return solid, throw.solve(solid, duration_s + 1.0 / cell.fps)

    factor = 1.0
    for _ in range(2):  # perspective makes the second round differ a little
        solid, motion = scaled(factor)
        position, quats = motion.at(np.arange(frames) / cell.fps)
        rotation = Rotation.from_quat(quats, scalar_first=True).as_matrix()
        points = np.einsum("tij,vj->tvi", rotation, solid.hull) + position[:, None]
        pixels, _ = cell.lens.project(points)
        factor *= cell.size_px / float(np.ptp(pixels, axis=1).max(axis=1).mean())
    return *scaled(factor), frames


def frame_path_px(cell: Cell, body: Body, seed: int = 0) -> float:
    """Return the mean path of the body from frame to frame in a clip that `make` writes, px."""
    _, motion, frames = thrown(cell, body, seed)
    return _frame_path_px(cell, motion, frames, cell.lens)


def _frame_path_px(cell: Cell, motion: Motion, frames: int, lens: Lens) -> float:
    pixels, _ = lens.project(motion.at(np.arange(frames) / cell.fps)[0])
    return float(np.linalg.norm(np.diff(pixels, axis=0), axis=1).mean())


def _exposure_s(cell: Cell, motion: Motion, frames: int, lens: Lens) -> float:
    """Return the exposure that blurs by `blur_px` in the mean."""
    path_px = _frame_path_px(cell, motion, frames, lens)
    if cell.blur_px > path_px:
        raise ValueError(f"got a blur of {cell.blur_px:g} px; expected at most the path in one frame, {path_px:.1f} px")
    return cell.blur_px / path_px / cell.fps


def _exposures(motion: Motion, vertices: Array, time_s: float, exposure_s: float, blur_px: float) -> list[Array]:
    """Return the vertices [V, 3] of each moment of one exposure about a time."""
    count = max(1, int(np.ceil(1.5 * blur_px)))
    shares = (np.arange(count) + 0.5) / count - 0.5
    position, quats = motion.at(time_s + exposure_s * shares)
    rotations = Rotation.from_quat(quats, scalar_first=True).as_matrix()
    return [vertices @ q.T + p for p, q in zip(position, rotations, strict=True)]


def background(cell: Cell, rng: np.random.Generator) -> Light:
    """Return linear light [H, W, 3] of a wall of two shades with patches on it."""
    base = to_linear(np.array([150, 152, 148], np.uint8))
    shade = cv2.resize(fractal_noise(rng, 256, roughness=1.2), cell.image_px, interpolation=cv2.INTER_CUBIC)
    light = np.ascontiguousarray(base * (1.0 + 0.12 * shade[..., None]), np.float32)
    for index in range(cell.patches):
        color = to_linear((255 * random_color(rng)).astype(np.uint8))
        if index < cell.own_color * cell.patches:
            color = to_linear(np.array(cell.color, np.uint8)) * np.float32(rng.uniform(0.35, 1.2))
        center, side = rng.uniform(0, cell.image_px), rng.uniform(8.0, 70.0, 2)
        if rng.random() < 0.5:
            box = (center.tolist(), side.tolist(), float(rng.uniform(0.0, 180.0)))
            cv2.fillPoly(light, [np.asarray(cv2.boxPoints(box), np.int32)], color.tolist(), cv2.LINE_AA)
        else:
            cv2.ellipse(light, (center.tolist(), side.tolist(), 0.0), color.tolist(), -1)
    return np.maximum(cv2.GaussianBlur(light, (5, 5), 0.7), 0.0)


def _bars(cell: Cell, rng: np.random.Generator) -> Light:
    """Return light and coverage [H, W, 4] of static vertical bars, two for each width of the body."""
    width, height = cell.image_px
    bars = np.zeros((height, width, 4), np.float32)
    bars[..., :3] = to_linear(np.array([92, 84, 70], np.uint8)) * (1.0 + 0.2 * rng.normal(size=(height, 1, 1)))
    bars[..., 3] = (np.arange(width) / (0.5 * cell.size_px)) % 1.0 < cell.covered
    return bars


def developed(light: Light, cell: Cell, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return the frame [H, W, 3] of linear light, as the lens and the sensor of a cell give it."""
    if cell.lens_blur_px:
        light = cv2.GaussianBlur(light, (0, 0), cell.lens_blur_px)
    light = np.clip(light, 0.0, 1.0)
    display = 255.0 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.clip(np.round(display + cell.noise * rng.normal(size=display.shape)), 0, 255).astype(np.uint8)


def _three(values: Array) -> tuple[float, float, float]:
    x, y, z = (float(v) for v in values)
    return (x, y, z)
