"""A drawn bar that is clamped at one end and vibrates: its motion in closed form, its images by the own rasteriser.

The truth is Euler and Bernoulli's beam: the static sag and the first mode, which dies away. Sections stay plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np
import trimesh

from tests import drawn_clip
from vid2phys.engine.tets import box_tets
from vid2phys.geometry import look_at
from vid2phys.types import Array, Camera

SIZE_M = (0.2, 0.02, 0.01)
PLACE_M = np.array([0.0, -0.01, 0.3])
DENSITY, GRAVITY, FPS = 1000.0, 9.81, 60.0
RATE = 2.0 * np.pi * 5.0  # of the first mode, rad/s
DECAY = 1.2  # 1/s
ROOT = 1.8751040687  # of cosh x cos x = -1
INERTIA, AREA = SIZE_M[1] * SIZE_M[2] ** 3 / 12.0, SIZE_M[1] * SIZE_M[2]
YOUNG = DENSITY * AREA * RATE**2 * (SIZE_M[0] / ROOT) ** 4 / INERTIA
CAMERA = Camera(
    np.array([[420.0, 0.0, 161.0], [0.0, 420.0, 119.0], [0.0, 0.0, 1.0]]), 320, 240,
    camera_to_world=look_at(np.array([0.14, -0.55, 0.36]), np.array([0.1, 0.0, 0.29])),
)  # fmt: skip


@dataclass(frozen=True)
class Deflection:
    """Deflection [N] m and slope [N] of places along the beam."""

    height: Array
    slope: Array


def first_mode(x: Array) -> Deflection:
    """Return the first mode, of which the tip moves by 1."""
    b = ROOT / SIZE_M[0]
    ratio = (np.cosh(ROOT) + np.cos(ROOT)) / (np.sinh(ROOT) + np.sin(ROOT))
    shape = np.cosh(b * x) - np.cos(b * x) - ratio * (np.sinh(b * x) - np.sin(b * x))
    slope = b * (np.sinh(b * x) + np.sin(b * x) - ratio * (np.cosh(b * x) - np.cos(b * x)))
    return Deflection(0.5 * shape, 0.5 * slope)


def sag(x: Array) -> Deflection:
    """Return the sag under gravity."""
    load, length = DENSITY * AREA * GRAVITY / (24.0 * YOUNG * INERTIA), SIZE_M[0]
    height = -load * x**2 * (6.0 * length**2 - 4.0 * length * x + x**2)
    return Deflection(height, -load * x * (12.0 * length**2 - 12.0 * length * x + 4.0 * x**2))


def moved(vertices: Array, time_s: float, swing_m: float = 0.012) -> Array:
    """Return vertices [V, 3] of the bar at a time. swing_m: of the tip, at first."""
    x = vertices[:, 0]
    amplitude = swing_m * np.exp(-DECAY * time_s) * np.cos(np.sqrt(RATE**2 - DECAY**2) * time_s)
    rest, mode = sag(x), first_mode(x)
    height, slope = rest.height + amplitude * mode.height, rest.slope + amplitude * mode.slope
    off = vertices[:, 2] - (PLACE_M[2] + 0.5 * SIZE_M[2])
    out = vertices.copy()
    out[:, 0] -= off * np.sin(np.arctan(slope)) + 0.5 * x * height**2 / np.maximum(x, 1e-9) ** 2 * 1.2
    out[:, 2] += height - off * (1.0 - np.cos(np.arctan(slope)))
    return out


def surface(pieces: int = 40) -> trimesh.Trimesh:
    """Return the bar's surface in the world, of rings along its length."""
    at = np.linspace(0.0, 1.0, pieces + 1)
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    vertices = np.concatenate([np.column_stack([np.full(4, x), corners]) for x in at])
    first = 4 * np.arange(pieces)[:, None] + np.arange(4)
    second = 4 * np.arange(pieces)[:, None] + (np.arange(4) + 1) % 4
    sides = np.stack([np.stack([first, second + 4, second], -1), np.stack([first, first + 4, second + 4], -1)], 2)
    ends = np.array([[0, 1, 2], [0, 2, 3]])
    faces = np.concatenate([sides.reshape(-1, 3), ends, ends[:, ::-1] + 4 * pieces])
    mesh = trimesh.Trimesh(vertices * np.array(SIZE_M) + PLACE_M, faces, process=False)
    trimesh.repair.fix_normals(mesh)
    return mesh


def images(frames: int, swing_m: float = 0.012, seed: int = 0) -> list[np.ndarray]:
    """Return images of a red bar before a wall of soft spots, with a grey clamp and noise."""
    clamp = trimesh.creation.box((0.04, 0.05, 0.04))
    clamp.apply_translation((-0.02, 0.0, PLACE_M[2] + 0.5 * SIZE_M[2]))
    bar = surface()
    faces = np.concatenate([bar.faces, clamp.faces + len(bar.vertices)])
    colors = np.concatenate([np.tile([0.7, 0.12, 0.1], (len(bar.faces), 1)), np.full((len(clamp.faces), 3), 0.2)])
    motion = [
        np.concatenate([moved(np.asarray(bar.vertices), k / FPS, swing_m), clamp.vertices]) for k in range(frames)
    ]
    return drawn_clip.images(motion, faces, colors, CAMERA, seed)


def write(folder: Path, frames: int, swing_m: float = 0.012, cells: tuple[int, int, int] = (6, 1, 1)) -> None:
    """Write images, camera and mesh into a folder."""
    drawn_clip.write(folder, images(frames, swing_m), CAMERA)
    vertices, tets = box_tets(SIZE_M, cells)
    meshio.write(folder / "bar.msh", meshio.Mesh(vertices + PLACE_M, [("tetra", tets)]), file_format="gmsh")
