"""A clip of a simulated motion: the mesh, shaded, over a chequered floor under a plain sky, as the camera sees it."""

from __future__ import annotations

import colorsys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.progress import Progress, silent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vid2phys.engine.render.rasterizer import Raster
    from vid2phys.engine.system import System
    from vid2phys.io.texture import SurfaceColors
    from vid2phys.types import Array, Camera, Mesh, Trajectory

SUPERSAMPLE = 3
_LIGHT_WORLD = np.array([0.35, 0.5, -0.8])  # where the light travels
_FLOOR, _FLOOR_OTHER = np.array([0.30, 0.29, 0.27]), np.array([0.40, 0.39, 0.37])  # linear light
_HORIZON, _ZENITH, _OUTSIDE = np.array([0.55, 0.60, 0.66]), np.array([0.20, 0.30, 0.48]), np.zeros(3)
_NODES_PX = 4  # rays are exact on a grid this fine and linear in between
_BAND_ROWS = 64
_SUNK = 0.05  # of the size of a body: how far it may be in the floor


def write_clip(
    path: Path, system: System, trajectory: Trajectory, mesh: Mesh, camera: Camera, fps: float,
    progress: Progress = silent,
) -> tuple[int, int]:  # fmt: skip
    """Film a trajectory at `fps` frames a second from its first state on, H.264.

    The mesh goes through the camera's whole distortion model and is composited in linear light. Returns the numbers of
    frames, and of frames that show the body. Limits: one light, no shadows, no motion blur, no noise.
    """
    from vid2phys.io.texture import SurfaceColors
    from vid2phys.io.video import VideoWriter

    times_s = frame_times(trajectory.times_s, fps)
    states = states_at(system, trajectory, times_s)
    world = [system.vertices(state, mesh.vertices) for state in states]
    background = _backdrop_of(camera, world)
    plain, seen, colors = encode(background), 0, SurfaceColors(mesh)
    with VideoWriter(path, camera.width, camera.height, fps) as video:
        for index, vertices in enumerate(world):
            progress("drawing clip.mp4", index, len(world))
            frame, shown = draw(vertices, mesh, camera, background, plain, colors)
            video.write(frame)
            seen += shown
    return len(world), seen


def frame_times(times_s: Array, fps: float) -> Array:
    """Times [s] of the frames from the first state to before the last one; at least one frame."""
    duration = float(times_s[-1] - times_s[0])
    return times_s[0] + np.arange(max(1, int(np.ceil(duration * fps - 1e-6)))) / fps


def states_at(system: System, trajectory: Trajectory, times_s: Array) -> Array:
    """States [len(times_s), N] between those of a trajectory, straight in the tangent space of the earlier one."""
    known_s, states = trajectory.times_s, trajectory.states
    before = np.clip(np.searchsorted(known_s, times_s, side="right") - 1, 0, len(known_s) - 2)
    share = (times_s - known_s[before]) / (known_s[before + 1] - known_s[before])
    return system.retract(states[before], share[:, None] * system.local(states[before], states[before + 1]))


def draw(
    vertices_world: Array, mesh: Mesh, camera: Camera, background: Array, plain: NDArray[np.uint8],
    surface: SurfaceColors,
) -> tuple[NDArray[np.uint8], bool]:  # fmt: skip
    """One frame, sRGB [H, W, 3], and whether the body shows. background: linear, plain: the same encoded.

    surface: looks up the mesh's texture, where it has one; else each part has a colour of its own.
    """
    from vid2phys.engine.render.rasterizer import lambert, rasterize_camera

    to_camera = _world_to_camera(camera)
    in_camera = vertices_world @ to_camera[:3, :3].T + to_camera[:3, 3]
    raster = rasterize_camera(in_camera, mesh.faces, camera, SUPERSAMPLE)
    frame = plain.copy()
    if not (raster.faces_seen >= 0).any():
        return frame, False
    light = lambert(raster, to_camera[:3, :3] @ _LIGHT_WORLD)[raster.faces_seen][..., None]
    rgba, window = raster.averaged(light * _base_colors(raster, mesh, camera, surface)), raster.image_window
    frame[window] = encode(background[window] * (1.0 - rgba[..., 3:]) + rgba[..., :3] * rgba[..., 3:])
    return frame, True


def _base_colors(raster: Raster, mesh: Mesh, camera: Camera, surface: SurfaceColors) -> Array:
    """Linear colours [window, 3] of what is seen."""
    if mesh.texture is None:
        return part_colors(len(mesh.part_names))[mesh.part][raster.faces_seen]
    seen = raster.faces_seen >= 0
    footprint_m = float(1.0 / np.median(raster.nearness[seen])) / (camera.K[0, 0] * SUPERSAMPLE)
    colors = np.zeros((*seen.shape, 3))
    colors[seen] = surface.at(raster.faces_seen[seen], raster.barycentric_seen[seen], footprint_m)
    return colors


def part_colors(count: int) -> Array:
    """Linear RGB [count, 3], well apart from each other and from the floor."""
    hues = (0.06 + 0.618034 * np.arange(count)) % 1.0
    return np.array([colorsys.hsv_to_rgb(hue, 0.75, 0.85) for hue in hues]).reshape(-1, 3) ** 2.2


def encode(linear: Array) -> NDArray[np.uint8]:
    """Linear light 0..1 to sRGB bytes (IEC 61966-2-1)."""
    light = np.clip(linear, 0.0, 1.0)
    display = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.round(255.0 * display), dtype=np.uint8)


def backdrop(camera: Camera, floor_z_m: float, cell_m: float) -> Array:
    """What the camera sees without the body, linear [H, W, 3]: a chequered floor at a height, and the sky."""
    size, s = (camera.height, camera.width), SUPERSAMPLE
    nodes = [np.arange(-1.0, side + 2 * _NODES_PX, _NODES_PX) for side in size]
    rays = _rays(camera, nodes[0], nodes[1])
    columns = _between(nodes[1], (np.arange(size[1] * s) + 0.5) / s - 0.5)
    image = np.empty((*size, 3))
    for top in range(0, size[0], _BAND_ROWS):
        bottom = min(top + _BAND_ROWS, size[0])
        rows = _between(nodes[0], (np.arange(top * s, bottom * s) + 0.5) / s - 0.5)
        band = _interpolate(np.swapaxes(_interpolate(rays, rows), 0, 1), columns)
        light = _light(np.swapaxes(band, 0, 1), camera, floor_z_m, cell_m)
        image[top:bottom] = light.reshape(bottom - top, s, size[1], s, 3).mean(axis=(1, 3))
    return image


def _backdrop_of(camera: Camera, world: list[Array]) -> Array:
    """A floor at z = 0, below all that moves if that goes lower than what lies sinks, in cells of a fitting size."""
    assert camera.camera_to_world is not None
    lowest = min(float(vertices[:, 2].min()) for vertices in world)
    size = float(np.ptp(world[0], axis=0).max())
    middle = np.mean([vertices.mean(axis=0) for vertices in world], axis=0)
    distance = float(np.linalg.norm(middle - camera.camera_to_world[:3, 3]))
    floor_z_m = 0.0 if lowest > -_SUNK * size else lowest - 0.1 * size
    return backdrop(camera, floor_z_m, 2.0 ** round(np.log2(max(distance, 1e-3) / 6.0)))


def _world_to_camera(camera: Camera) -> Array:
    from vid2phys.geometry import invert_transform

    assert camera.camera_to_world is not None
    return invert_transform(camera.camera_to_world)


def _rays(camera: Camera, rows: Array, columns: Array) -> Array:
    """Directions in the world of pixels, [len(rows), len(columns), 3]; NaN beyond the lens's field."""
    from vid2phys.engine.observe import pixels_to_bearings

    assert camera.camera_to_world is not None
    u, v = np.meshgrid(columns, rows)
    bearings = pixels_to_bearings(camera, np.stack([u, v], axis=-1))
    return np.concatenate([bearings, np.ones((*u.shape, 1))], axis=-1) @ camera.camera_to_world[:3, :3].T


def _between(nodes: Array, points: Array) -> tuple[NDArray[Any], Array]:
    """The node before each point, and the share of the way to the next."""
    position = (points - nodes[0]) / _NODES_PX
    before = np.floor(position).astype(int)
    return before, position - before


def _interpolate(values: Array, place: tuple[NDArray[Any], Array]) -> Array:
    before, share = place[0], place[1][:, None, None]
    return values[before] * (1.0 - share) + values[before + 1] * share


def _light(rays: Array, camera: Camera, floor_z_m: float, cell_m: float) -> Array:
    """Linear colours [..., 3] along rays [..., 3] of the world."""
    assert camera.camera_to_world is not None
    center, length = camera.camera_to_world[:3, 3], np.linalg.norm(rays, axis=-1)
    slope = rays[..., 2] / length
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = (floor_z_m - center[2]) / rays[..., 2]
        on_floor = np.isfinite(reach) & (reach > 0.0)
        reach = np.where(on_floor, reach, 1.0)
        # a cell smaller than a few pixels would flicker: its contrast goes as it nears the horizon
        footprint = reach * length / (camera.K[0, 0] * np.maximum(np.abs(slope), 1e-6))
        contrast = np.exp(-((2.0 * footprint / cell_m) ** 2))
    cells = np.floor((center[:2] + reach[..., None] * rays[..., :2]) / cell_m)
    parity = np.where(cells.sum(axis=-1) % 2.0 == 0.0, 0.5, -0.5) * contrast
    floor = 0.5 * (_FLOOR + _FLOOR_OTHER) + parity[..., None] * (_FLOOR_OTHER - _FLOOR)
    haze = 1.0 - np.exp(-reach * length / (60.0 * cell_m))[..., None]
    sky = _HORIZON + np.sqrt(np.abs(slope))[..., None] * (_ZENITH - _HORIZON)
    light = np.where(on_floor[..., None], floor * (1.0 - haze) + _HORIZON * haze, sky)
    return np.where(np.isfinite(length)[..., None], light, _OUTSIDE)
