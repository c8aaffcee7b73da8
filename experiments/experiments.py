"""Known motions of the papers' bodies, filmed by one camera, from which parameters are estimated.

First state, forces and camera are known to all methods. Limits: the paper does not publish its motions; these are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.articulated import ArticulatedAdapter
from experiments.bodies import Entry
from experiments.constants import RISP_QUADROTOR
from experiments.footage import Footage, Shot, film
from experiments.image_alignment import frame_matrix
from experiments.rigid import RigidAdapter, project
from experiments.test_renderer import FLOOR
from experiments.unknowns import CONTACT, JOINTS, MASS, YOUNG, Unknown
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.constants import RISP_CUBE, RISP_HAND, RISP_ROD
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.movable.modes import ModalBody
from vid2phys.engine.system import System
from vid2phys.engine.systems.hand import Hand
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.engine.systems.rigid_contact import Box, RigidContact
from vid2phys.engine.systems.rod import Rod
from vid2phys.geometry import looking, make_transform, quat_from_rotvec
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.rollout_fit import motions
from vid2phys.types import Actions, Array, Camera, Mesh, Observation, Parameters

ROD_CELLS = (8, 2, 2)  # of the rod that moves: eight times as many take hours a method
_NEAR, _ARTICULATED_NEAR = 10.0, 7.4  # distance of the camera, in radii of the body or of its workspace
_MARGIN, _GRID_PX = 0.6, 16  # of the window about a motion: in diameters of the body; sides are multiples
FINGER_STEPS = 40  # of RISP's torques


@dataclass(frozen=True)
class Plan:
    """How a body moves. actions: [S, M] over steps of `step_s`, or None. every: steps a frame. max_step_s: longest step
    of the integration. looked_at: how many values of each unknown our fit tries first, evenly over `reach`, in the
    paper's numbers, to both sides of the one that it is given: a stiff bounce is no small change of a soft one.
    """

    system: System
    parameters: Parameters
    unknown: Unknown
    initial: Array
    actions: Array | None
    step_s: float
    steps: int
    every: int
    max_step_s: float
    looked_at: int = 1
    reach: float = 0.0

    @property
    def times_s(self) -> Array:
        """Return the times of the frames."""
        return np.asarray(np.arange(0, self.steps + 1, self.every) * self.step_s, dtype=float)

    def with_values(self, values: Array) -> Parameters:
        """Return all parameters, the unknown ones free and with these values in the paper's units."""
        named = dict(zip(self.unknown.names, self.unknown.to_si(values), strict=True))
        free = self.parameters.with_free(self.unknown.names)
        return free.with_values({name: float(value) for name, value in named.items()})

    def problem(self, values: Array, observation: Observation, camera_to_world: Array) -> Problem:
        """Return what is solved, starting from `values`."""
        actions = None
        if self.actions is not None:
            names = self.system.action_names
            times = np.asarray(np.arange(self.steps) * self.step_s, dtype=float)
            actions = Actions(times, self.actions, "other", names, self.system.action_units)
        parameters = self.with_values(values)
        return Problem(self.system, parameters, observation, camera_to_world, actions, max_step_s=self.max_step_s)


def _quadrotor(_: Array, frames: int) -> Plan:
    """Plan a second near hovering: thrusts that swell by 4 %, tilts of some 5 degrees to two sides."""
    body, system = RISP_QUADROTOR, Quadrotor("rotors")
    inertia = dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), body.inertia_kg_m2, strict=True))
    values = {"mass": body.mass_kg, "arm_length": body.arm_m, "torque_ratio": body.torque_ratio_m, **inertia}
    parameters = system.parameters().with_values({**values, "gravity": body.gravity_m_s2})
    steps, step_s = 10 * frames, 1.0 / 300.0
    angle = 2.0 * np.pi * np.arange(steps) * step_s
    wrench = np.stack([
        body.mass_kg * body.gravity_m_s2 * (1.0 + 0.04 * np.sin(2.0 * angle)),
        body.inertia_kg_m2[0] * 3.0 * np.cos(angle),
        body.inertia_kg_m2[1] * -2.2 * np.cos(1.3 * angle),
        body.inertia_kg_m2[2] * 1.5 * np.cos(angle),
    ])  # fmt: skip
    thrusts = np.linalg.solve(system.allocation(parameters.vector), wrench).T
    initial = system.rest_state()
    initial[3:7] = quat_from_rotvec(np.array([0.05, -0.04, 0.6]))
    return Plan(system, parameters, MASS, initial, thrusts, step_s, steps, 10, 0.01)


def _cube(_: Array, frames: int) -> Plan:
    """Throw the cube to the ground, spinning: it lands on a corner and turns over, for 0.3 s: later it is chaotic in
    k_n.
    """
    system = RigidContact((Box((0.5 * RISP_CUBE.side_m,) * 3),), has_actions=False)
    initial = system.rest_state()
    initial[:3] = [0.0, 0.06, 0.065]
    initial[3:7] = quat_from_rotvec(np.array([0.3, 0.2, 0.35]))
    initial[7:] = [0.0, -0.35, -0.5, 5.0, 1.5, 2.0]
    return Plan(system, system.parameters(), CONTACT, initial, None, 1.0 / 60.0, frames, 1, 1e-3, 41, 1.0)


def _hand(_: Array, frames: int) -> Plan:
    """Move the hand by RISP's torques, m sin(2 pi clip((t - d) / 40, 0, 1)) of a finger, with five fixed m and d."""
    system = Hand()
    amplitude, delay = torch.tensor([[0.9, 0.75, 1.0, 0.8, 0.95], [0.0, 10.0, 25.0, 5.0, 40.0]], dtype=torch.float64)
    steps = 2 * frames
    actions = finger_torques(amplitude, delay, steps, finger_of_joints(system)).numpy()
    initial, step_s = system.rest_state(), RISP_HAND.step_s
    return Plan(system, system.parameters(), JOINTS, initial, actions, step_s, steps, 2, 0.01, 21, 1.0)


def _rod(truth: Array, frames: int) -> Plan:
    """Push the rod up and down, 4 times a second, by what moves a rod of this stiffness by an eighth of its length."""
    system, step_s = Rod(ROD_CELLS, elements="linear"), RISP_ROD.step_s
    actions = np.zeros((frames, len(system.action_names)))
    load = system.load_n(float(YOUNG.to_si(truth)[0]))
    actions[:, 2] = load * np.sin(2.0 * np.pi * 4.0 * (np.arange(frames) + 0.5) * step_s)
    return Plan(system, system.parameters(), YOUNG, system.rest_state(), actions, step_s, frames, 1, step_s, 17, 2.0)


_PLANS: dict[str, tuple[Callable[[Array, int], Plan], int, Unknown]] = {
    "quadrotor": (_quadrotor, 30, MASS),
    "cube": (_cube, 18, CONTACT),
    "cube-plain": (_cube, 18, CONTACT),
    "hand": (_hand, 40, JOINTS),
    "rod": (_rod, 25, YOUNG),
}


def unknown_of(name: str) -> Unknown:
    """Return what is to be found of the body called `name`."""
    return _PLANS[name][2]


def finger_of_joints(system: Hand) -> Array:
    """Return the finger of each joint, [J]."""
    return np.array([int(name.removeprefix("finger").split("_")[0]) for name in system.robot.joint_names])


def finger_torques(amplitude: Tensor, delay: Tensor, steps: int, fingers: Array) -> Tensor:
    """Return the torques [..., steps, J] N m of joints of `fingers` [J]: m sin(2 pi clip((t - d) / 40, 0, 1)), t in
    steps.

    amplitude, delay: [..., 5] m and d of each finger, the paper's numbers. What 1 is in SI: `RISP_HAND`.
    """
    t = torch.arange(steps, dtype=torch.float64)[:, None]
    share = ((t - delay[..., None, :]) / FINGER_STEPS).clamp(0.0, 1.0)
    wave = amplitude[..., None, :] * torch.sin(2.0 * torch.pi * share)
    return RISP_HAND.torque * wave[..., torch.from_numpy(fingers)]


def plan_of(name: str, truth: Array, frames: int | None = None) -> Plan:
    """Return how the body called `name` moves when the unknowns are `truth`, the paper's numbers. frames: after the
    first.
    """
    make, usual, _ = _PLANS[name]
    return make(truth, frames or usual)


def nothing_seen(times_s: Array, points: Array) -> Observation:
    """Return an observation of nothing at times [F], of one point [1, 3] of a body."""
    nothing, none = np.zeros((len(times_s), 1, 2)), np.zeros((len(times_s), 1), dtype=bool)
    eye, flat = np.broadcast_to(np.eye(2), (len(times_s), 1, 2, 2)), np.zeros((len(times_s), 1, 2, 1))
    return Observation(times_s, nothing, eye, flat, np.ones(1), none, points)


@dataclass(frozen=True)
class Viewpoint:
    """From where a motion is filmed. azimuth, elevation: rad, of a body on a known base, from the middle of what it is
    filmed from. far: distance, over the usual one."""

    azimuth: float = float(np.deg2rad(20.0))
    elevation: float = float(np.deg2rad(32.0))
    far: float = 1.0


@dataclass(frozen=True)
class Experiment:
    """A plan as it was carried out and filmed.

    Attributes:
        name: Name of the body.
        plan: How the body moves.
        truth: True values of the unknowns, the paper's numbers.
        adapter: The body as tables know it.
        mesh: The mesh that is drawn, in the axes of the plan's system.
        scale: Size of the mesh over that of the adapter's.
        articulated: The articulated or modal body, None for a rigid one.
        only: The frames that are shown, the first among them; None: all.
        viewpoint: Place of the camera.
    """

    name: str
    plan: Plan
    truth: Array
    adapter: RigidAdapter | ArticulatedAdapter
    mesh: Mesh
    scale: float
    articulated: ArticulatedBody | None
    only: tuple[int, ...] | None = None
    viewpoint: Viewpoint = Viewpoint()

    @staticmethod
    def of(entry: Entry, folder: Path, truth: Array, frames: int | None = None) -> Experiment:
        """Return the experiment of a body of the tables. folder: keeps the modes of one that bends."""
        return Experiment.planned(entry, folder, plan_of(entry.name, truth, frames), truth)

    @staticmethod
    def planned(entry: Entry, folder: Path, plan: Plan, truth: Array) -> Experiment:
        """Return the experiment by a plan for the body. folder, truth: as of `of`."""
        adapter = entry.make(folder)
        if isinstance(adapter, ArticulatedAdapter):
            articulated: ArticulatedBody = adapter.body
            if isinstance(articulated, ModalBody):
                assert isinstance(plan.system, Rod)
                articulated = ModalBody(plan.system, articulated.motions)
            return Experiment(entry.name, plan, truth, adapter, adapter.mesh, 1.0, articulated)
        assert isinstance(adapter, RigidAdapter)
        scale = 1.0
        if isinstance(plan.system, RigidContact):
            scale = RISP_CUBE.side_m / float(np.ptp(adapter.mesh.vertices[:, 0]))
        mesh = replace(adapter.mesh, vertices=scale * adapter.mesh.vertices)
        return Experiment(entry.name, plan, truth, adapter, mesh, scale, None)

    @property
    def radius_m(self) -> float:
        """Return the scene's unit of length, m."""
        return self.scale * self.adapter.radius_m

    @cached_property
    def alike(self) -> Array:
        """Return symmetry elements [G, 4, 4] of the body, m, that no image tells apart; the first is the identity."""
        if not isinstance(self.adapter, RigidAdapter) or self.adapter.labelled:
            return np.eye(4)[None]
        elements = self.adapter.known.symmetry_transforms.copy()
        elements[:, :3, 3] *= self.scale
        return elements

    @property
    def shown(self) -> NDArray[np.int64]:
        """Return which frames methods may look at, [n]."""
        return np.arange(len(self.plan.times_s)) if self.only is None else np.array(self.only)

    @cached_property
    def states(self) -> Array:
        """Return the true states at the frames, [F, N]."""
        problem = self.plan.problem(self.truth, self.no_observation, np.eye(4))
        return motions(problem, self.plan.initial)(problem.parameters.free_vector()[None])[0]

    @cached_property
    def no_observation(self) -> Observation:
        """Return an observation of nothing at the times of the frames."""
        points = np.zeros((1, 3)) if self.articulated is None else self.articulated.points_body[:1]
        return nothing_seen(self.plan.times_s, points)

    @cached_property
    def vertices(self) -> Array:
        """Return the vertices of the mesh along the true motion, in the world, [F, V, 3] m."""
        return np.stack([self.plan.system.vertices(state, self.mesh.vertices) for state in self.states])

    @cached_property
    def camera(self) -> Camera:
        """Return a static camera, whose image is the piece of a frame that the motion takes place in."""
        forward, place = self._viewpoint()
        pose = make_transform(looking(forward / np.linalg.norm(forward)), place)
        whole = Camera(frame_matrix(), 640, 480, camera_to_world=pose)
        seen = project(whole, self.vertices.reshape(-1, 3))
        margin = 0.0
        if self.articulated is None:
            size = np.ptp(project(whole, self.vertices[0]), axis=0).max()
            margin = _MARGIN * float(size)
        else:
            middle = project(whole, self.articulated.center_m[None])[0]
            half = whole.K[0, 0] * self.articulated.radius_m / np.linalg.norm(place - self.articulated.center_m)
            seen = np.stack([middle - half, middle + half])
        corner = np.floor(seen.min(axis=0) - margin)
        sides = np.ceil((seen.max(axis=0) + margin - corner) / _GRID_PX).astype(int) * _GRID_PX
        K = whole.K.copy()
        K[:2, 2] -= corner
        return Camera(K, int(sides[0]), int(sides[1]), camera_to_world=pose)

    def _viewpoint(self) -> tuple[Array, Array]:
        """Return the direction [3] in which the camera looks, and its place [3] m."""
        if self.articulated is not None:
            angle = np.deg2rad(self.articulated.cameras.azimuth[0]) + self.viewpoint.azimuth
            flat, up = np.cos(self.viewpoint.elevation), np.sin(self.viewpoint.elevation)
            towards = np.array([flat * np.cos(angle), flat * np.sin(angle), up])
            return (
                -towards,
                self.articulated.center_m
                + self.viewpoint.far * _ARTICULATED_NEAR * self.articulated.radius_m * towards,
            )
        middle = self.vertices.mean(axis=(0, 1))
        height = 3.0 if isinstance(self.plan.system, RigidContact) else 0.0
        place = self.viewpoint.far * self.radius_m * np.array([-_NEAR, 0.0, height]) + [0.0, middle[1], 0.0]
        return middle - place, place

    def shot(self, appearance: int, spp: int, seed: int, variant: int = 0) -> Shot:
        """Return true motion before the camera, with an appearance of `test_renderer`; variant: of its materials."""
        camera = self.camera
        assert camera.camera_to_world is not None
        if self.articulated is not None:
            assert isinstance(self.adapter, ArticulatedAdapter)
            move = self.adapter.stage_from_world(camera)
        else:  # what it lands on is the floor that is seen
            on_floor = isinstance(self.plan.system, RigidContact)
            away = self.viewpoint.far * _NEAR
            move = make_transform(np.eye(3), self.radius_m * np.array([away, 0.0, FLOOR if on_floor else 0.0]))
        vertices = self.vertices @ move[:3, :3].T + move[:3, 3]
        moved = replace(camera, camera_to_world=move @ camera.camera_to_world)
        return Shot(self.mesh, self.radius_m, vertices, moved, appearance, spp, seed, variant)

    def footage(
        self, appearance: int, spp: int, seed: int, folder: Path, progress: TrainingProgress, variant: int = 0
    ) -> Footage:
        """Return the frames that are shown of the video, which is made or taken from `folder`."""
        shot = self.shot(appearance, spp, seed, variant)
        whole = film(shot, folder, lambda done, total: progress.step(f"video of {self.name}", done, total))
        return replace(whole, frames=whole.frames[self.shown])
