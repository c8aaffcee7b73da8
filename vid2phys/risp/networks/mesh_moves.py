"""Find the move that brings a mesh to a trained model of its shape: other axes, another origin, another unit.

All 24 rotations that map axes to axes are tried. The scale follows from the extents, and the shift by least squares
from the support points of both shapes.

Limits: other rotations are not found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from vid2phys.io.geometry import (
    SAME_GEOMETRY,
    GeometrySignature,
    geometry_signature,
    signature_distance,
    support_directions,
)
from vid2phys.io.mesh import UNITS_M
from vid2phys.io.move import parse_move
from vid2phys.types import Array, Mesh

LARGEST_SCALE = 12.0  # an inch is 2.5 cm, a foot 0.3 m: millimetres taken for metres are a factor of a thousand
_SAME_UNIT = 0.02  # relative
# Of two moves that fit almost equally well the simpler one is chosen.
_COST_OF_SHIFT, _COST_OF_STEP = 5e-3, 1e-3
Steps = tuple[tuple[str, int], ...]  # rotations as (axis, degrees), one after the other


@dataclass(frozen=True)
class Move:
    """A move that gives a mesh the shape of the model in `folder`.

    Attributes:
        folder: Folder of the model.
        distance: Distance of the shapes after the move, as a share of the size.
        steps: Rotations as (axis, degrees).
        shift: [3] shift after the rotations, m.
        factor: Factor by which the mesh is too small; 1 where the model serves this size.
    """

    folder: Path
    distance: float
    steps: Steps
    shift: Array
    factor: float

    @property
    def words(self) -> str:
        """Return the move in words."""
        parts = [f"rotated by {angle} degrees about {axis}" for axis, angle in self.steps]
        if self.factor != 1.0:
            parts.insert(0, f"{self.factor:.4g} times as large")
        if self.shift.any():
            parts.append(f"shifted by {', '.join(f'{x:g}' for x in self.shift)} m")
        return ", ".join(parts)

    def remedy(self, units: str, before: str | None) -> str:
        """Return what the user can do. units: in which the mesh is read now. before: the move that it has already."""
        sizes = {name: UNITS_M[units] * self.factor / size for name, size in UNITS_M.items()}
        unit = next((name for name, ratio in sizes.items() if abs(ratio - 1.0) < _SAME_UNIT), None)
        steps = [*([before] if before else []), *_texts(self.steps)]
        if self.shift.any():
            steps.append("shift:" + ":".join(f"{x:g}" for x in self.shift))
        options = [f"--mesh-units {unit}"] if unit and unit != units else []
        options += [f"--mesh-move {','.join(steps)}"] if self.steps or self.shift.any() else []
        parts = [f"scale the mesh by {self.factor:.4g}"] if unit is None else []
        parts += [f"add `{' '.join(options)}`"] if options else []
        return " and ".join(parts)


def find_move(mesh: Mesh, models: Iterable[tuple[Path, GeometrySignature]]) -> Move | None:
    """Return the simplest move that gives the mesh the shape of one of the models; None where there is none."""
    known = list(models)
    found: list[tuple[float, Move]] = []
    for steps in _rotations():
        rotated = replace(mesh, vertices=mesh.vertices @ _rotation(steps).T)
        signature = geometry_signature(rotated)
        for folder, model in known:
            for shifted in (False, True):
                move = _move(rotated, signature, folder, model, steps, shifted=shifted)
                if move is not None:
                    found.append((move.distance + _COST_OF_SHIFT * shifted + _COST_OF_STEP * len(steps), move))
    return min(found, key=lambda each: each[0])[1] if found else None


def _move(
    mesh: Mesh,
    signature: GeometrySignature,
    folder: Path,
    model: GeometrySignature,
    steps: Steps,
    *,
    shifted: bool,
) -> Move | None:
    """Return the move that completes `steps`, by which `mesh` is rotated already; None where the shapes differ."""
    factor = float(np.linalg.norm(model.extents) / np.linalg.norm(signature.extents))
    if np.abs(factor * signature.extents - model.extents).max() > 2.0 * SAME_GEOMETRY * model.radius:
        return None  # `signature_distance` would be too large in any case
    shift = np.zeros(3)
    if shifted:
        directions = support_directions()
        ahead = (model.points * directions).sum(axis=1) - factor * _support(mesh.vertices, directions)
        shift = np.linalg.lstsq(directions, ahead, rcond=None)[0]
    moved = geometry_signature(replace(mesh, vertices=factor * mesh.vertices + shift))
    distance = signature_distance(model, moved)
    if distance > SAME_GEOMETRY:
        return None
    if 1.0 / LARGEST_SCALE < factor < LARGEST_SCALE:  # the model serves this size
        shift, factor = shift / factor, 1.0
    shift = np.round(shift, 3 - math.floor(math.log10(model.radius))) + 0.0  # no minus zero
    return Move(folder, distance, steps, shift, factor)


def _support(vertices: Array, directions: Array) -> Array:
    """Return how far the vertices reach along each direction, [D]."""
    return np.asarray((vertices @ directions.T).max(axis=0))


def _texts(steps: Steps) -> list[str]:
    """Return rotations as `--mesh-move` has them."""
    return [f"{axis}:{angle}" for axis, angle in steps]


def _rotation(steps: Steps) -> Array:
    """Return the rotation [3, 3] of steps done one after the other; the identity without any."""
    return parse_move(",".join(_texts(steps)))[0] if steps else np.eye(3)


def _rotations() -> list[Steps]:
    """Return the 24 rotations that take axes to axes, each by the fewest steps."""
    single = [(axis, angle) for axis, angle in product("xyz", (90, -90, 180))]
    found: dict[bytes, Steps] = {}
    for steps in [(), *((step,) for step in single), *product(single, single)]:
        found.setdefault(np.rint(_rotation(steps)).astype(np.int8).tobytes(), steps)
    return list(found.values())
