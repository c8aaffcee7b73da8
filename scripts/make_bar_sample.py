"""Make samples/bar: a clamped bar of silicone rubber that is let go, by fine tets and Cycles (module `bpy`).

    python scripts/make_bar_sample.py [--samples 6]

The motion is that of a mesh four times as fine as `bar.msh`, which users give. It takes bpy, warp-lang, numba, meshio,
av and scipy, and some minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import meshio
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.clips import files, scene  # noqa: E402
from benchmarks.clips.appearance import Lens, Prop, Room, Sensor, Surface  # noqa: E402
from benchmarks.clips.film import LIGHTS, Stage, film, options_of, prepare  # noqa: E402
from benchmarks.coverage.elastic_bar import lowest_vibration  # noqa: E402
from vid2phys.engine.rollout import simulate  # noqa: E402
from vid2phys.engine.systems.soft_body import SoftBody  # noqa: E402
from vid2phys.engine.tets import box_tets  # noqa: E402
from vid2phys.engine.vibration import vibration  # noqa: E402

Array = NDArray[np.float64]
OUT = ROOT / "samples" / "bar"
FPS, FRAMES, SUBSTEPS = 60.0, 90, 8
SIZE_M = (0.14, 0.024, 0.012)
PLACE_M = np.array([0.0, -0.012, 0.444])  # of the corner, in the world; the clamp holds x = 0
CELLS, FINE = (8, 2, 1), (20, 3, 2)
LENS = Lens((0.13, -0.62, 0.5), (0.065, 0.0, 0.415), 860.0, (242.0, 176.5), (480, 360))
BLOCK = Prop("box", (0.06, 0.06, 0.05), (-0.03, 0.0, 0.45), Surface("plain", ("#3a3d44",), roughness=0.4))
STAND = Prop("box", (0.03, 0.03, 0.425), (-0.03, 0.0, 0.2125), Surface("plain", ("#55585f",), roughness=0.5))
ROOM = Room(
    Surface("wood", ("#7b5b3c", "#5f442b"), 0.3, roughness=0.5),
    Surface("noise", ("#9fb0ad", "#8a9c99"), 0.4, roughness=0.9),
    wall_y_m=0.7,
    posters=1,
    clutter=3,
    seed=8,
    props=(BLOCK, STAND),
)
OF_MESH = {"young_modulus": 1.5e6, "poisson_ratio": 0.45, "damping": 2000.0, "density": 1070.0}


def main() -> None:
    """Write the sample."""
    options = options_of(__doc__, OUT)
    folder = options.out
    vertices, tets = box_tets(SIZE_M, CELLS)
    meshio.write(folder / "bar.msh", meshio.Mesh(vertices + PLACE_M, [("tetra", tets)]), "gmsh", binary=False)
    body, shapes = moved()
    tip = int(np.argmax(np.linalg.norm(body.rest_m - body.rest_m[0], axis=1)))
    rows = np.column_stack([np.arange(FRAMES), np.arange(FRAMES) / FPS, shapes[:, tip]])
    names = ",".join(("frame", "time_s", "tip_x_m", "tip_y_m", "tip_z_m"))
    np.savetxt(folder / "tip.csv", rows, ["%d", *["%.7f"] * 4], ",", header=names, comments="")
    (folder / "points.csv").write_text("name,x_m,y_m,z_m\ntip," + ",".join(f"{x:g}" for x in body.rest_m[tip]) + "\n")
    truth = {"parameters": true_values(), "fps": FPS, "frames": FRAMES, "size_m": SIZE_M, "clamp": "x<0.001"}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    film_bar(folder, body, shapes, options.samples, options.threads)


def true_values() -> dict[str, float]:
    """Return the parameters of the bar that moves as the fine mesh does: E and damping without the mesh's errors."""
    vertices, tets = box_tets(SIZE_M, FINE)
    body = SoftBody(vertices, tets, pinned=np.flatnonzero(vertices[:, 0] == 0.0))
    fine = vibration(body, body.parameters().with_values(OF_MESH).vector, 1)
    square, decay = lowest_vibration(np.array(SIZE_M), OF_MESH["poisson_ratio"], OF_MESH["density"])
    young, damping = OF_MESH["young_modulus"] * float(fine.squares[0]), OF_MESH["damping"] * float(fine.decays[0])
    return OF_MESH | {"young_modulus": round(young / square, -2), "damping": round(damping / decay, 1)}


def moved() -> tuple[SoftBody, Array]:
    """Return the fine body, and its vertices [FRAMES, V, 3] m: held level, and let go at the first frame."""
    vertices, tets = box_tets(SIZE_M, FINE)
    body = SoftBody(vertices + PLACE_M, tets, pinned=np.flatnonzero(vertices[:, 0] == 0.0))
    parameters = body.parameters().with_values(OF_MESH).vector
    controls = np.zeros((1, FRAMES - 1, len(body.control_names)))
    states = simulate(body, body.rest_state()[None], controls, parameters, 1.0 / FPS, substeps=SUBSTEPS)[0]
    return body, body.positions(states)


def film_bar(folder: Path, body: SoftBody, shapes: Array, samples: int, threads: int) -> None:
    """Write camera.yaml and clip.mp4."""
    assert body.surface is not None
    used, faces = np.unique(body.surface.faces, return_inverse=True)
    files.write_camera(folder / "camera.yaml", "bar", LENS)
    stage = Stage(LENS, ROOM, Sensor(crf=21), 6, FRAMES, FPS, samples, threads)
    prepare(stage, shapes[:, used].reshape(-1, 3))
    thing = scene.add_shape(shapes[0, used], faces.reshape(-1, 3), Surface("plain", ("#c2452f",), roughness=0.55))

    def box_of(k: int) -> scene.Box | None:
        scene.reshape(thing, shapes[k, used])
        return scene.box_around(shapes[k, used], ROOM, LIGHTS, LENS)

    film(folder / "clip.mp4", stage, [thing], box_of)


if __name__ == "__main__":
    main()
