"""Small filmed motions with known truth: views made by our own rasteriser, and what losses compare them with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from vid2phys.engine.observe import observe
from vid2phys.engine.rollout import simulate
from vid2phys.engine.system import System
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rigid_contact import Box, RigidContact
from vid2phys.geometry import invert_transform, look_at
from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.network import KeypointNetwork
from vid2phys.solvers.losses import Evidence
from vid2phys.solvers.network_outputs import NetworkOutputs
from vid2phys.solvers.problem import Problem
from vid2phys.solvers.rendering import Scene, Views
from vid2phys.types import Actions, Array, Mesh, Observation, Parameters

VIEW_PX = 48
LIGHT = np.array([[0.25] * 3, [0.1, -0.05, 0.02], [-0.08, 0.06, 0.1], [0.12, 0.1, 0.05]])


@dataclass(frozen=True)
class Filmed:
    """A problem whose observation is exact, the true states of its frames [F, N], and all evidence."""

    problem: Problem
    states: Array
    evidence: Evidence


def stick() -> Mesh:
    """A pendulum's rod and bob, the bob off the plane that it swings in: two parts."""
    import trimesh

    rod = trimesh.creation.box((0.04, 0.03, 0.5))
    rod.apply_translation((0.0, 0.0, -0.25))
    bob = trimesh.creation.box((0.12, 0.1, 0.16))
    bob.apply_translation((0.02, 0.03, -0.5))
    vertices, faces = np.concatenate([rod.vertices, bob.vertices]), np.concatenate([rod.faces, bob.faces + 8])
    return Mesh(vertices, faces, np.repeat([0, 1], 12), ("rod", "bob"))


def cross() -> Mesh:
    """A quadrotor's arms, one on the other, and a box on the front one, off the middle: nothing pierces anything."""
    import trimesh

    pieces = [trimesh.creation.box(size) for size in ((0.28, 0.03, 0.02), (0.03, 0.28, 0.02), (0.06, 0.05, 0.04))]
    for piece, place in zip(pieces, ((0, 0, -0.011), (0, 0, 0.011), (0.08, 0.01, 0.021)), strict=True):
        piece.apply_translation(place)
    faces = np.concatenate([piece.faces + 8 * i for i, piece in enumerate(pieces)])
    vertices = np.concatenate([piece.vertices for piece in pieces])
    return Mesh(vertices, faces, np.repeat([0, 0, 1], 12), ("frame", "box"))


def brick() -> Mesh:
    """A box with three different sides."""
    import trimesh

    box = trimesh.creation.box((0.1, 0.06, 0.04))
    return Mesh(np.asarray(box.vertices), np.asarray(box.faces), np.zeros(12, dtype=np.int64))


def film(name: str, *, frames: int = 3, view_px: int = VIEW_PX, mesh: Mesh | None = None) -> Filmed:
    """A swing of a pendulum, a quadrotor that accelerates, or a brick that is thrown."""
    times = np.arange(frames) / 15.0
    system: System
    if name == "pendulum":
        system, mesh, actions = get("pendulum"), mesh or stick(), np.zeros(1)
        values, start = {"length": 0.5, "mass": 0.4, "damping": 0.02}, np.array([0.6, -0.5])
        pose, points = look_at(np.array([0.3, -2.4, -0.1]), np.array([0.0, 0.0, -0.35])), stick().vertices[:12]
    elif name == "quadrotor":
        system, mesh, actions = get("quadrotor"), mesh or cross(), np.array([4.6, 0.002, 0.003, -0.004])
        values = {"mass": 0.5, "inertia_xx": 4e-3, "inertia_yy": 4.6e-3, "inertia_zz": 7e-3, "drag": 0.1}
        start = np.array([0.02, 0.0, 0.01, 0.98, 0.1, -0.15, 0.1, 0.3, 0.2, -0.1, 0.5, -0.4, 0.8])
        start[3:7] /= np.linalg.norm(start[3:7])
        pose, points = look_at(np.array([-1.0, -0.8, 0.5]), np.zeros(3)), cross().vertices[::3]
    else:
        system, mesh, actions = (
            RigidContact((Box((0.05, 0.03, 0.02)),), has_actions=False),
            mesh or brick(),
            np.zeros(0),
        )
        values = {"mass": 0.2}
        start = np.array([0.0, 0.0, 0.3, 0.9, 0.3, 0.2, -0.2, 0.3, 0.1, 0.5, 3.0, -4.0, 2.0])
        start[3:7] /= np.linalg.norm(start[3:7])
        pose, points = look_at(np.array([0.3, -0.6, 0.4]), np.array([0.03, 0.0, 0.3])), brick().vertices
    parameters = system.parameters().with_values(values)
    controls = np.zeros((1, frames - 1, len(system.control_names)))
    controls[..., : len(actions)] = actions
    states = simulate(system, start[None], controls, parameters.vector, 1.0 / 15.0, substeps=64)[0]
    recorded = None
    if len(actions):
        recorded = Actions(times[:1], actions[None], "other", system.action_names, system.action_units)
    problem = Problem(system, parameters, exact(system, states, times, points, pose), pose, recorded)
    scene = filmed_scene(system, mesh, states, pose, view_px)
    std = np.ones((frames, len(system.tangent_names))) * 0.01
    return Filmed(problem, states, Evidence(states, std, scene, tiny_reader(view_px)))


def exact(system: System, states: Array, times: Array, points: Array, pose: Array) -> Observation:
    """Bearings without noise, stated to be known to 1e-3."""
    bearings, _, _ = observe(system, states, points, pose)
    covariance = np.broadcast_to(1e-6 * np.eye(2), (*bearings.shape, 2)).copy()
    shared, visible = np.zeros((*bearings.shape, 1)), np.ones(bearings.shape[:2], dtype=bool)
    return Observation(times, bearings, covariance, shared, np.ones(1), visible, points)


def filmed_scene(system: System, mesh: Mesh, states: Array, pose: Array, size: int) -> Scene:
    """Views of one camera that holds the motion, over a smooth backdrop, drawn by the scene itself."""
    frames, to_view = len(states), invert_transform(pose)
    world = np.stack([system.vertices(state, mesh.vertices) for state in states])
    camera = world @ to_view[:3, :3].T + to_view[:3, 3]
    reach = np.abs(camera[..., :2] / camera[..., 2:]).max()
    middle = 0.5 * (size - 1)
    K = np.array([[0.4 * size / reach, 0.0, middle], [0.0, 0.4 * size / reach, middle], [0.0, 0.0, 1.0]])
    ramp = np.linspace(0.2, 0.6, size)
    backdrop = np.broadcast_to(np.stack(np.broadcast_arrays(ramp, ramp[:, None], 0.5), -1), (frames, size, size, 3))
    views = Views(
        np.arange(frames), backdrop.copy(), backdrop.copy(), np.ones((frames, size, size), dtype=bool),
        np.broadcast_to(K, (frames, 3, 3)).copy(), np.broadcast_to(to_view, (frames, 4, 4)).copy(),
    )  # fmt: skip
    light = np.stack([LIGHT * (1.0 + 0.6 * part) for part in range(len(mesh.part_names))])
    scene = Scene(system, mesh, views, light)
    images = scene.images(torch.from_numpy(states)).numpy()
    return Scene(system, mesh, Views(**{**vars(views), "images": images}), light)


def tiny_reader(size: int) -> NetworkOutputs:
    """An untrained network in double precision that tells five points, two of which a turn of the body swaps."""
    torch.manual_seed(0)
    network = KeypointNetwork(5, width=8, features=8, depth=2).double().requires_grad_(False)
    turns = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 3, 0, 1, 4, 5, 6, 7, 8, 9]])
    return NetworkOutputs(
        network, size, lambda output: heatmaps.decode(output[:, :-1])[0].flatten(1),
        lambda output: torch.full((len(output), 10), 0.7, dtype=torch.float64), turns, network.pyramid.feature_maps,
    )  # fmt: skip


def free(filmed: Filmed, *names: str) -> Parameters:
    """The problem's parameters with some of them unknown."""
    return filmed.problem.parameters.with_free(names)
