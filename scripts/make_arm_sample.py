"""Make samples/arm: a passive arm of two links with a payload, moved by MuJoCo, filmed by Cycles (module `bpy`).

    python scripts/make_arm_sample.py [--samples 6]

The file arm.urdf states no damping and another payload than the arm has. It takes bpy, mujoco, av, trimesh and scipy,
and some minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.clips.appearance import Lens, Room, Sensor, Surface  # noqa: E402
from benchmarks.clips.arms import Arm, Box  # noqa: E402
from benchmarks.clips.film import Stage, options_of  # noqa: E402

OUT = ROOT / "samples" / "arm"
FPS, FRAMES = 60.0, 66
LENS = Lens((0.25, -1.35, 0.5), (0.02, 0.0, 0.42), 760.0, (242.0, 176.5), (480, 360))
ROOM = Room(
    Surface("wood", ("#7b5b3c", "#5f442b"), 0.3, roughness=0.5),
    Surface("noise", ("#9fb0ad", "#8a9c99"), 0.4, roughness=0.9),
    wall_y_m=0.7,
    posters=1,
    clutter=3,
    seed=5,
)
SENSOR = Sensor(crf=21)
TRUTH = {"damping_shoulder": 0.010, "damping_elbow": 0.004, "payload_mass": 0.12}
JOINTS = """
<joint name="mount" type="fixed"><parent link="world"/><child link="base"/><origin xyz="0 0 0.58"/></joint>
<joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 -0.18" rpy="0 0 0.2"/>
  <axis xyz="0 1 0"/><limit lower="-2.6" upper="2.6" effort="1" velocity="20"/></joint>
<joint name="hook" type="fixed"><parent link="lower"/><child link="payload"/><origin xyz="0 0 -0.17"/></joint>"""


def painted(color: str) -> Surface:
    """Return a surface of one colour."""
    return Surface("plain", (color,), roughness=0.45)


ARM = Arm(
    (
        Box("base", (0.0, 0.0, 0.045), (0.08, 0.07, 0.05), 1.5, painted("#2b2c30")),
        Box("upper", (0.0, 0.0, -0.09), (0.03, 0.024, 0.2), 0.25, painted("#d8d3c4")),
        Box("lower", (0.0, 0.0, -0.075), (0.024, 0.024, 0.16), 0.15, painted("#b8442e")),
        Box("payload", (0.0, 0.0, 0.0), (0.05, 0.045, 0.04), 0.08, painted("#1f5f74")),
    ),
    JOINTS,
    {name: TRUTH[f"damping_{name}"] for name in ("shoulder", "elbow")},
    TRUTH["payload_mass"],
    (1.15, 0.7),
)


def main() -> None:
    """Write the sample."""
    options = options_of(__doc__, OUT)
    truth = {"parameters": TRUTH, "fps": FPS, "frames": FRAMES, "start_rad": ARM.start_rad}
    (options.out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    stage = Stage(LENS, ROOM, SENSOR, 5, FRAMES, FPS, options.samples, options.threads)
    ARM.film(options.out, stage, np.array([[0.0, 0.1, 0.4]]))


if __name__ == "__main__":
    main()
