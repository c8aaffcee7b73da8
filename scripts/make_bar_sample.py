"""Make samples/bar: a clamped bar of silicone rubber that is let go, by fine tets and Cycles (module `bpy`).

    python scripts/make_bar_sample.py [--samples 6]

The motion is that of a mesh four times as fine as `bar.msh`, which users give. It takes bpy, warp-lang, numba, meshio,
av and scipy, and some minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import meshio
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

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
FINEST = (32, 8, 4)  # of which the modes alone are found
OF_MESH = {"young_modulus": 1.5e6, "poisson_ratio": 0.45, "damping": 2000.0, "density": 1070.0}


def main() -> None:
    """Write the sample."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=6, help="rays of a pixel")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
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
    film(folder, body, shapes, options.samples, options.threads)


def true_values() -> dict[str, float]:
    """Return the parameters of the bar that moves as the fine mesh does: E and damping without the mesh's errors."""
    found = []
    for cells in (FINE, FINEST):
        vertices, tets = box_tets(SIZE_M, cells)
        body = SoftBody(vertices, tets, pinned=np.flatnonzero(vertices[:, 0] == 0.0))
        found.append(vibration(body, body.parameters().with_values(OF_MESH).vector, 1))
    fine, finest = found
    young = OF_MESH["young_modulus"] * float(fine.squares[0] / finest.squares[0])
    damping = OF_MESH["damping"] * float(fine.decays[0] / finest.decays[0])
    return OF_MESH | {"young_modulus": round(young, -2), "damping": round(damping, 1)}


def moved() -> tuple[SoftBody, Array]:
    """Return the fine body, and its vertices [FRAMES, V, 3] m: held level, and let go at the first frame."""
    vertices, tets = box_tets(SIZE_M, FINE)
    body = SoftBody(vertices + PLACE_M, tets, pinned=np.flatnonzero(vertices[:, 0] == 0.0))
    parameters = body.parameters().with_values(OF_MESH).vector
    controls = np.zeros((1, FRAMES - 1, len(body.control_names)))
    states = simulate(body, body.rest_state()[None], controls, parameters, 1.0 / FPS, substeps=SUBSTEPS)[0]
    return body, body.positions(states)


def film(folder: Path, body: SoftBody, shapes: Array, samples: int, threads: int) -> None:
    """Write camera.yaml and clip.mp4."""
    from benchmarks.clips import files, scene
    from benchmarks.clips.appearance import Lens, Light, Prop, Room, Sensor, Surface

    lens = Lens((0.13, -0.62, 0.5), (0.065, 0.0, 0.415), 860.0, (242.0, 176.5), (480, 360))
    lights = (Light((-1.2, -1.4, 2.2), 0.7, 60.0, "#fff1dc"), Light((1.6, -0.8, 1.8), 0.4, 25.0, "#dce8ff"))
    block = Prop("box", (0.06, 0.06, 0.05), (-0.03, 0.0, 0.45), Surface("plain", ("#3a3d44",), roughness=0.4))
    stand = Prop("box", (0.03, 0.03, 0.425), (-0.03, 0.0, 0.2125), Surface("plain", ("#55585f",), roughness=0.5))
    room = Room(
        Surface("wood", ("#7b5b3c", "#5f442b"), 0.3, roughness=0.5),
        Surface("noise", ("#9fb0ad", "#8a9c99"), 0.4, roughness=0.9),
        wall_y_m=0.7,
        posters=1,
        clutter=3,
        seed=8,
        props=(block, stand),
    )
    sensor = Sensor(crf=21)
    assert body.surface is not None
    used, faces = np.unique(body.surface.faces, return_inverse=True)
    files.write_camera(folder / "camera.yaml", "bar", lens)
    scene.start(lens, samples, threads, "#c8d4e6", 0.35)
    scene.add_lights(lights)
    scene.add_room(room, lens, shapes[:, used].reshape(-1, 3))
    thing = scene.add_shape(shapes[0, used], faces.reshape(-1, 3), Surface("plain", ("#c2452f",), roughness=0.55))
    frames = []
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "render.exr"
        scene.hide([thing], hidden=True)
        static = scene.render(0, None, file)
        scene.hide([thing], hidden=False)
        for k in range(FRAMES):
            scene.reshape(thing, shapes[k, used])
            box = scene.box_around(shapes[k, used], room, lights, lens)
            assert box is not None
            clean = sensor.develop(scene.paste(static, scene.render(k, box, file), box), k / FPS)
            noise = np.random.default_rng([6, k]).normal(size=clean.shape)
            frames.append(np.clip(np.round(clean + sensor.noise_sigma(clean) * noise), 0, 255).astype(np.uint8))
    files.write_video(folder / "clip.mp4", frames, FPS, lens.size_px, sensor.crf)


if __name__ == "__main__":
    main()
