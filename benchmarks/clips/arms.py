"""Passive arms whose joints and payload are known: their URDF, their motion by MuJoCo, and their clip.

The file states no damping and another payload than the arm has, which are to be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import trimesh
from numpy.typing import NDArray

from benchmarks.clips import files
from benchmarks.clips.appearance import Point, Surface
from benchmarks.clips.companions import Mover
from benchmarks.clips.film import Stage, film_movers
from benchmarks.clips.motion import Motion

Array = NDArray[np.float64]
_STEPS = 200  # of the simulation in a frame


@dataclass(frozen=True)
class Box:
    """A box on a link. place: its middle in the link's axes, m. size: m."""

    link: str
    place: Point
    size: Point
    mass_kg: float
    surface: Surface


@dataclass(frozen=True)
class Arm:
    """An arm that is released from rest.

    Attributes:
        boxes: one on each link, that of the payload with its mass in the file.
        joints: the joints as URDF; their link `world` does not move.
        damping: true damping by hinge, N m s/rad.
        payload_kg: true mass of the link `payload`.
        start_rad: angles of the hinges at first.
    """

    boxes: tuple[Box, ...]
    joints: str
    damping: Mapping[str, float]
    payload_kg: float
    start_rad: tuple[float, ...]

    def urdf(self, masses: Mapping[str, float] | None = None) -> str:
        """Return the robot's file. masses: kg by link, where they are not those of the boxes."""
        links = ['<robot name="arm">', '<link name="world"/>']
        for box in self.boxes:
            mass = (masses or {}).get(box.link, box.mass_kg)
            x, y, z = np.square(box.size)
            moments = dict(zip(("ixx", "iyy", "izz"), mass / 12.0 * np.array([y + z, x + z, x + y]), strict=True))
            place, size = (" ".join(f"{value:g}" for value in values) for values in (box.place, box.size))
            inertia = " ".join(f'{name}="{value:.9f}"' for name, value in moments.items())
            links.append(
                f'<link name="{box.link}"><inertial><origin xyz="{place}"/><mass value="{mass:g}"/>'
                f'<inertia {inertia} ixy="0" ixz="0" iyz="0"/></inertial>\n'
                f'  <visual><origin xyz="{place}"/><geometry><box size="{size}"/></geometry></visual></link>'
            )
        return "\n".join(links) + self.joints + "\n</robot>\n"

    def moved(self, frames: int, fps: float) -> tuple[Array, dict[str, Motion]]:
        """Return angles and rates of the hinges [frames, 2 J], and the motion of each link."""
        spec = mujoco.MjSpec.from_string(self.urdf({"payload": self.payload_kg}))
        spec.compiler.fusestatic = False
        for name, damping in self.damping.items():
            spec.joint(name).damping[0] = damping
        model = spec.compile()
        model.opt.timestep, model.opt.integrator = 1.0 / (_STEPS * fps), mujoco.mjtIntegrator.mjINT_RK4
        data = mujoco.MjData(model)
        data.qpos[:] = self.start_rad
        joints, places, quats = [], {box.link: [] for box in self.boxes}, {box.link: [] for box in self.boxes}
        for _ in range(frames):
            mujoco.mj_forward(model, data)
            joints.append(np.concatenate([data.qpos, data.qvel]))
            for box in self.boxes:
                places[box.link].append(data.body(box.link).xpos.copy())
                quats[box.link].append(data.body(box.link).xquat.copy())
            mujoco.mj_step(model, data, _STEPS)
        times = np.arange(frames) / fps
        motions = {name: Motion(times, np.array(places[name]), np.array(quats[name])) for name in places}
        return np.array(joints), motions

    def film(self, folder: Path, stage: Stage, place_m: Array) -> None:
        """Write arm.urdf, camera.yaml, joint_states.csv and clip.mp4. place_m: [N, 3] where the arm moves."""
        (folder / "arm.urdf").write_text(self.urdf())
        files.write_camera(folder / "camera.yaml", folder.name, stage.lens)
        joints, motions = self.moved(stage.frames, stage.fps)
        rows = np.column_stack([np.arange(stage.frames), np.arange(stage.frames) / stage.fps, joints])
        names = [f"{name}_{what}" for what in ("position_rad", "velocity_rad_s") for name in self.damping]
        header, formats = ",".join(("frame", "time_s", *names)), ["%d", *["%.7f"] * (1 + len(names))]
        np.savetxt(folder / "joint_states.csv", rows, formats, ",", header=header, comments="")
        film_movers(folder / "clip.mp4", stage, [_mover(box, motions[box.link]) for box in self.boxes], place_m)


def _mover(box: Box, motion: Motion) -> Mover:
    """Return a box that moves with its link."""
    solid = trimesh.creation.box(box.size)
    faces = np.asarray(solid.faces, np.int64)
    vertices = np.asarray(solid.vertices) + box.place
    return Mover(vertices, faces, np.zeros(len(faces), np.int64), (box.surface,), motion)
