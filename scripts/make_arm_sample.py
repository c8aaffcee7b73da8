"""Make samples/arm: a passive arm of two links with a payload, moved by MuJoCo, filmed by Cycles (module `bpy`).

    python scripts/make_arm_sample.py [--samples 6]

The file arm.urdf states no damping and another payload than the arm has. It takes bpy, mujoco, av, trimesh and scipy,
and some minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import trimesh
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from sample_film import Stage, film_movers, options_of  # noqa: E402

from benchmarks.clips import files  # noqa: E402
from benchmarks.clips.appearance import Lens, Room, Sensor, Surface  # noqa: E402
from benchmarks.clips.companions import Mover  # noqa: E402
from benchmarks.clips.motion import Motion  # noqa: E402

Array = NDArray[np.float64]
OUT = ROOT / "samples" / "arm"
FPS, FRAMES, STEPS = 60.0, 66, 200
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
START_RAD = (1.15, 0.7)


@dataclass(frozen=True)
class Box:
    """A box on a link. place: its middle in the link's axes, m. size: m."""

    link: str
    place: tuple[float, float, float]
    size: tuple[float, float, float]
    mass_kg: float
    color: str


BOXES = (
    Box("base", (0.0, 0.0, 0.045), (0.08, 0.07, 0.05), 1.5, "#2b2c30"),
    Box("upper", (0.0, 0.0, -0.09), (0.03, 0.024, 0.2), 0.25, "#d8d3c4"),
    Box("lower", (0.0, 0.0, -0.075), (0.024, 0.024, 0.16), 0.15, "#b8442e"),
    Box("payload", (0.0, 0.0, 0.0), (0.05, 0.045, 0.04), 0.08, "#1f5f74"),
)
JOINTS = """
<joint name="mount" type="fixed"><parent link="world"/><child link="base"/><origin xyz="0 0 0.58"/></joint>
<joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 -0.18" rpy="0 0 0.2"/>
  <axis xyz="0 1 0"/><limit lower="-2.6" upper="2.6" effort="1" velocity="20"/></joint>
<joint name="hook" type="fixed"><parent link="lower"/><child link="payload"/><origin xyz="0 0 -0.17"/></joint>"""


def main() -> None:
    """Write the sample."""
    options = options_of(__doc__, OUT)
    (options.out / "arm.urdf").write_text(urdf({}))
    files.write_camera(options.out / "camera.yaml", "arm", LENS)
    joints, motions = moved()
    rows = np.column_stack([np.arange(FRAMES), np.arange(FRAMES) / FPS, joints])
    names = ("shoulder_position_rad", "elbow_position_rad", "shoulder_velocity_rad_s", "elbow_velocity_rad_s")
    header = ",".join(("frame", "time_s", *names))
    np.savetxt(options.out / "joint_states.csv", rows, ["%d", *["%.7f"] * 5], ",", header=header, comments="")
    truth = {"parameters": TRUTH, "fps": FPS, "frames": FRAMES, "start_rad": START_RAD}
    (options.out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    stage = Stage(LENS, ROOM, SENSOR, 5, FRAMES, FPS, options.samples, options.threads)
    movers = [mover(box, motions[box.link]) for box in BOXES]
    film_movers(options.out / "clip.mp4", stage, movers, np.array([[0.0, 0.1, 0.4]]))


def urdf(masses: dict[str, float]) -> str:
    """Return the robot's file. masses: kg by link, where they are not those of the boxes."""
    links = ['<robot name="arm">', '<link name="world"/>']
    for box in BOXES:
        mass = masses.get(box.link, box.mass_kg)
        x, y, z = np.square(box.size)
        moments = dict(zip(("ixx", "iyy", "izz"), mass / 12.0 * np.array([y + z, x + z, x + y]), strict=True))
        place, size = (" ".join(f"{value:g}" for value in values) for values in (box.place, box.size))
        inertia = " ".join(f'{name}="{value:.9f}"' for name, value in moments.items())
        links.append(
            f'<link name="{box.link}"><inertial><origin xyz="{place}"/><mass value="{mass:g}"/>'
            f'<inertia {inertia} ixy="0" ixz="0" iyz="0"/></inertial>\n'
            f'  <visual><origin xyz="{place}"/><geometry><box size="{size}"/></geometry></visual></link>'
        )
    return "\n".join(links) + JOINTS + "\n</robot>\n"


def moved() -> tuple[Array, dict[str, Motion]]:
    """Return joint angles and rates [FRAMES, 4], and the motion of each link, by MuJoCo."""
    spec = mujoco.MjSpec.from_string(urdf({"payload": TRUTH["payload_mass"]}))
    spec.compiler.fusestatic = False
    for name in ("shoulder", "elbow"):
        spec.joint(name).damping[0] = TRUTH[f"damping_{name}"]
    model = spec.compile()
    model.opt.timestep, model.opt.integrator = 1.0 / (STEPS * FPS), mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    data.qpos[:] = START_RAD
    joints, places, quats = [], {box.link: [] for box in BOXES}, {box.link: [] for box in BOXES}
    for _ in range(FRAMES):
        mujoco.mj_forward(model, data)
        joints.append(np.concatenate([data.qpos, data.qvel]))
        for box in BOXES:
            places[box.link].append(data.body(box.link).xpos.copy())
            quats[box.link].append(data.body(box.link).xquat.copy())
        mujoco.mj_step(model, data, STEPS)
    times = np.arange(FRAMES) / FPS
    return np.array(joints), {name: Motion(times, np.array(places[name]), np.array(quats[name])) for name in places}


def mover(box: Box, motion: Motion) -> Mover:
    """Return a box that moves with its link."""
    solid = trimesh.creation.box(box.size)
    faces = np.asarray(solid.faces, np.int64)
    surface = Surface("plain", (box.color,), roughness=0.45)
    return Mover(np.asarray(solid.vertices) + box.place, faces, np.zeros(len(faces), np.int64), (surface,), motion)


if __name__ == "__main__":
    main()
