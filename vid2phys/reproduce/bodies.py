"""The papers' bodies, as tables are made for them: a mesh, its system, and what the paper reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vid2phys.engine.system import System
from vid2phys.types import Mesh

QUADROTOR_MESH = Path("samples/quadrotor/quad.obj")


@dataclass(frozen=True)
class Body:
    """name: in the tables. paper: RISP's own state error (Ma, Du et al., ICLR 2022, table 1). labelled: whether its
    pictures tell its equivalent poses apart, so that errors against the label mean something."""

    name: str
    mesh: Mesh
    system: System
    paper: float
    labelled: bool = True


@dataclass(frozen=True)
class Missing:
    """A body that is in no table, and why."""

    name: str
    reason: str


def bodies(names: tuple[str, ...] = ()) -> list[Body | Missing]:
    """The bodies called `names`, all when there are none. Raises UsageError for an unknown name."""
    from vid2phys.errors import unknown_name

    for name in names:
        if name not in _BODIES:
            raise unknown_name("body", name, tuple(_BODIES))
    return [_BODIES[name]() for name in names or _BODIES]


def _quadrotor() -> Body | Missing:
    from vid2phys.engine.systems import get
    from vid2phys.io.mesh import load_mesh

    places = [QUADROTOR_MESH, Path(__file__).resolve().parents[2] / QUADROTOR_MESH]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        return Missing("quadrotor", f"{QUADROTOR_MESH} is not here: run in the project's folder")
    return Body("quadrotor", load_mesh(found, "m"), get("quadrotor"), 0.15)


def _plain_cube() -> Body:
    """RISP's cube without a texture: 24 equivalent poses, so only errors up to symmetry mean anything."""
    from vid2phys.engine.constants import RISP_CUBE
    from vid2phys.engine.systems import get

    half = 0.5 * RISP_CUBE.side_m
    corners = half * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([each for a, b, c, d in sides for each in ((a, b, c), (a, c, d))])
    mesh = Mesh(corners, faces, np.zeros(len(faces), dtype=np.int64), ("body",), "cube")
    return Body("cube-plain", mesh, get("rigid_contact"), 0.16, labelled=False)


def _missing(name: str, reason: str) -> Callable[[], Missing]:
    return lambda: Missing(name, reason)


_BODIES: dict[str, Callable[[], Body | Missing]] = {
    "quadrotor": _quadrotor,
    "cube": _missing("cube", "not yet: path-traced frames have no textures"),
    "cube-plain": _plain_cube,
    "hand": _missing("hand", "not yet: frames and scores are those of rigid bodies"),
    "rod": _missing("rod", "not yet: frames and scores are those of rigid bodies"),
}
