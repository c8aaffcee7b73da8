"""Make samples/throw: a wooden block that is thrown on a table, filmed by Cycles (module `bpy`).

    python scripts/make_throw_sample.py [--samples 6]

The motion is that of `benchmarks.clips.motion`, whose time steps of 0.1 ms share no code with the fit. It takes bpy,
av, trimesh and scipy, and some minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.clips import files  # noqa: E402
from benchmarks.clips.appearance import Lens, Room, Sensor, Surface  # noqa: E402
from benchmarks.clips.bodies import Body, build  # noqa: E402
from benchmarks.clips.companions import Mover  # noqa: E402
from benchmarks.clips.film import Stage, film_movers, options_of  # noqa: E402
from benchmarks.clips.motion import Throw  # noqa: E402

OUT = ROOT / "samples" / "throw"
FPS, FRAMES = 60.0, 66
BLOCK = Body("box", (0.1, 0.07, 0.045), (Surface("plain", ("#c98f3c",), roughness=0.55),), mass_kg=0.18)
THROW = Throw(
    position_m=(-0.4, 0.03, 0.24),
    velocity_m_s=(1.15, -0.08, 0.7),
    rotvec_rad=(0.3, 0.2, 0.5),
    spin_rad_s=(1.0, 5.0, -2.0),
    friction=0.28,
    restitution=0.45,
)
LENS = Lens((0.15, -1.25, 0.55), (0.01, 0.0, 0.12), 630.0, (240.5, 178.0), (480, 360))
ROOM = Room(
    Surface("noise", ("#5d6a63", "#4c5852"), 0.35, roughness=0.6),
    Surface("noise", ("#a9b3bd", "#929da9"), 0.4, roughness=0.9),
    wall_y_m=0.8,
    posters=1,
    clutter=2,
    seed=21,
)
SENSOR = Sensor(crf=21)


def main() -> None:
    """Write the sample."""
    options = options_of(__doc__, OUT)
    solid = build(BLOCK)
    files.write_camera(options.out / "camera.yaml", "throw", LENS)
    motion = THROW.solve(solid, FRAMES / FPS)
    times = np.arange(FRAMES) / FPS
    places, quats = motion.at(times)
    rows = np.column_stack([np.arange(FRAMES), times, places, quats])
    header = "frame,time_s,x,y,z,qw,qx,qy,qz"
    np.savetxt(options.out / "states.csv", rows, ["%d", *["%.7f"] * 8], ",", header=header, comments="")
    truth = {
        "parameters": {"mu": THROW.friction, "restitution": THROW.restitution, "mass": BLOCK.mass_kg},
        "size_m": BLOCK.size_m,
        "fps": FPS,
        "frames": FRAMES,
    }
    (options.out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    stage = Stage(LENS, ROOM, SENSOR, 21, FRAMES, FPS, options.samples, options.threads)
    block = Mover(solid.vertices, solid.faces, solid.slot, BLOCK.surfaces, motion)
    film_movers(options.out / "clip.mp4", stage, [block], places)


if __name__ == "__main__":
    main()
