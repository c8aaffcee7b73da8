"""Makes `cube.obj`: a plain cube with sides of 0.1 m, on which the cube's model is trained.

    python samples/cube/make_mesh.py

A model serves cubes of any size: views show none (`vid2phys/risp/find.py`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from vid2phys.io.mesh import save_obj
from vid2phys.types import Mesh

SIDE_M = 0.1


def main() -> None:
    """Writes the mesh beside this file."""
    cube = trimesh.creation.box((SIDE_M,) * 3)
    faces = np.asarray(cube.faces, dtype=np.int64)
    mesh = Mesh(np.asarray(cube.vertices), faces, np.zeros(len(faces), dtype=np.int64), ("cube",), "cube")
    save_obj(mesh, Path(__file__).with_name("cube.obj"))


if __name__ == "__main__":
    main()
