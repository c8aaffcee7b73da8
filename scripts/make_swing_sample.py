"""Make samples/swing: an angled bar on a pin, moved by MuJoCo, filmed by Cycles (module `bpy`).

    python scripts/make_swing_sample.py [--samples 6]

It takes bpy, mujoco, av, trimesh and scipy, and some minutes on two cores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import trimesh
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.clips import files  # noqa: E402
from benchmarks.clips.appearance import Lens, Room, Sensor, Surface  # noqa: E402
from benchmarks.clips.bodies import Body, Solid, build  # noqa: E402
from benchmarks.clips.companions import Mover  # noqa: E402
from benchmarks.clips.film import Stage, film_movers, options_of  # noqa: E402
from benchmarks.clips.motion import Motion  # noqa: E402

Array = NDArray[np.float64]
OUT = ROOT / "samples" / "swing"
FPS, FRAMES, STEPS = 60.0, 96, 200
BAR = Body("l_shape", (0.24, 0.09, 0.03, 0.022), (Surface("plain", ("#b8862b",), roughness=0.5),), mass_kg=0.24)
CORNER_M = np.array([0.225, 0.015, 0.011])  # of the pin, from the corner of the L; the bar is thick along z
PIVOT_M = np.array([0.0, 0.0, 0.5])
YAW_RAD, TILT_RAD = np.radians([24.0, 5.0])  # of the axis: from the world's y, and above the horizontal
START_RAD, DAMPING = np.radians(-52.0), 0.0024  # from where the bar hangs; N m s/rad
LENS = Lens((0.2, -1.3, 0.58), (0.0, 0.0, 0.43), 780.0, (241.0, 177.5), (480, 360))
ROOM = Room(
    Surface("wood", ("#6f6a5e", "#565146"), 0.3, roughness=0.5),
    Surface("noise", ("#93a2b4", "#7d8ea2"), 0.4, roughness=0.9),
    wall_y_m=0.7,
    posters=1,
    clutter=3,
    seed=12,
)
SENSOR = Sensor(crf=21)


def main() -> None:
    """Write the sample."""
    options = options_of(__doc__, OUT)
    solid = build(BAR)
    files.write_mesh(options.out / "bar.obj", solid)
    files.write_camera(options.out / "camera.yaml", "swing", LENS)
    motion, angles, truth = moved(solid)
    rows = np.column_stack([np.arange(FRAMES), motion.times_s, angles, motion.position, motion.orientation])
    header = "frame,time_s,angle_rad,angular_velocity_rad_s,x,y,z,qw,qx,qy,qz"
    np.savetxt(options.out / "states.csv", rows, ["%d", *["%.7f"] * 10], ",", header=header, comments="")
    (options.out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    stage = Stage(LENS, ROOM, SENSOR, 12, FRAMES, FPS, options.samples, options.threads)
    bar = Mover(solid.vertices, solid.faces, solid.slot, BAR.surfaces, motion)
    film_movers(options.out / "clip.mp4", stage, [bar, *pin(axis())], motion.position)


def axis() -> Array:
    """Return the axis [3] in the world."""
    level = np.array([np.sin(YAW_RAD), np.cos(YAW_RAD), 0.0])
    return np.cos(TILT_RAD) * level + np.array([0.0, 0.0, np.sin(TILT_RAD)])


def moved(solid: Solid) -> tuple[Motion, Array, dict[str, Any]]:
    """Return the motion by MuJoCo, angle and rate [FRAMES, 2] from where the bar hangs, and the truth."""
    point = CORNER_M - corner_to_middle()
    arm = -point * [1.0, 1.0, 0.0]
    length = float(np.linalg.norm(arm))
    hanging = hanging_bar(arm / length)
    spec = mujoco.MjSpec()
    spec.option.timestep, spec.option.integrator = 1.0 / (STEPS * FPS), mujoco.mjtIntegrator.mjINT_RK4
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, hanging.ravel())
    body = spec.worldbody.add_body(pos=PIVOT_M - hanging @ point, quat=quat, mass=solid.mass_kg, ipos=np.zeros(3))
    body.explicitinertial = True
    inertia = solid.inertia
    body.fullinertia = [*np.diag(inertia), inertia[0, 1], inertia[0, 2], inertia[1, 2]]
    joint = body.add_joint(type=mujoco.mjtJoint.mjJNT_HINGE, pos=point, axis=[0.0, 0.0, 1.0])
    joint.damping[0] = DAMPING
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[0] = START_RAD
    states, places, quats = [], [], []
    for _ in range(FRAMES):
        mujoco.mj_forward(model, data)
        states.append([data.qpos[0], data.qvel[0]])
        places.append(data.xpos[1].copy())
        quats.append(data.xquat[1].copy())
        mujoco.mj_step(model, data, STEPS)
    about_axis = float(inertia[2, 2])
    truth = {
        "parameters": {"length": length, "damping": DAMPING, "mass": solid.mass_kg, "inertia": about_axis},
        "axis": axis().tolist(),
        "pivot_m": PIVOT_M.tolist(),
        "fps": FPS,
        "frames": FRAMES,
    }
    return Motion(np.arange(FRAMES) / FPS, np.array(places), np.array(quats)), np.array(states), truth


def corner_to_middle() -> Array:
    """Return the centre of mass of the bar, from the corner of the L, m."""
    long, short, thick, height = BAR.size_m
    areas = np.array([long * thick, (short - thick) * thick])
    middles = np.array([[0.5 * long, 0.5 * thick], [0.5 * thick, 0.5 * (short + thick)]])
    return np.array([*(areas @ middles / areas.sum()), 0.5 * height])


def hanging_bar(arm: Array) -> Array:
    """Return the rotation [3, 3] of the bar as it hangs. arm: [3] unit vector from the pin to the centre of mass."""
    down = np.array([0.0, 0.0, -1.0]) - axis() * -axis()[2]
    down /= np.linalg.norm(down)
    world = np.stack([down, np.cross(axis(), down), axis()], axis=1)
    body = np.stack([arm, np.cross([0.0, 0.0, 1.0], arm), [0.0, 0.0, 1.0]], axis=1)
    return world @ body.T


def pin(along: Array) -> list[Mover]:
    """Return the pin through the bar, and the post behind it."""
    still = Motion(np.array([0.0, 1.0]), np.tile(PIVOT_M, (2, 1)), np.tile([1.0, 0.0, 0.0, 0.0], (2, 1)))
    rod = trimesh.creation.cylinder(radius=0.005, height=0.07, sections=32)
    rod.apply_transform(trimesh.geometry.align_vectors([0.0, 0.0, 1.0], along))
    rod.apply_translation(0.02 * along)
    post = trimesh.creation.box((0.025, 0.025, PIVOT_M[2] + 0.03))
    post.apply_translation(0.06 * along + [0.0, 0.0, 0.03 - 0.5 * (PIVOT_M[2] + 0.03)])
    steel = Surface("plain", ("#b8b8bc",), roughness=0.3, metallic=1.0)
    parts = ((rod, steel), (post, Surface("plain", ("#3f4650",), roughness=0.5)))
    return [
        Mover(np.asarray(part.vertices), np.asarray(part.faces), np.zeros(len(part.faces), np.int64), (of,), still)
        for part, of in parts
    ]


if __name__ == "__main__":
    main()
