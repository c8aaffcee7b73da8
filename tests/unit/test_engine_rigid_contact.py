"""Bodies in contact against what is known without our code: closed forms, conserved quantities, recorded tosses."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from scipy.spatial.transform import Rotation

from tests.differences import finite_differences, like
from vid2phys import geometry
from vid2phys.engine.constants import RISP_CUBE
from vid2phys.engine.rollout import linearize, rollout, simulate
from vid2phys.engine.systems.rigid_contact import Box, Points, RigidContact, Sphere, from_file
from vid2phys.errors import UsageError
from vid2phys.types import Array, Mesh

TOSSES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "cube_tosses" / "tosses.npz"
needs_tosses = pytest.mark.skipif(not TOSSES.is_file(), reason="../shared/data/cube_tosses is not there")
SIDE, RATE_HZ = 0.1048, 148.0
CUBE = {"mass": 0.37, "inertia_xx": 8.1e-4, "inertia_yy": 8.1e-4, "inertia_zz": 8.1e-4, "gravity": 9.61}
FITTED = {"k_e": 5060.0, "k_d": 35.8, "k_f": 40.0, "mu": 0.182}  # by Nelder-Mead on the first twenty tosses


def values_of(system: RigidContact, **values: float) -> Array:
    return system.parameters().with_values(values).vector


def body(position: object, turn: object = (0, 0, 0), velocity: object = (0, 0, 0), spin: object = (0, 0, 0)) -> Array:
    """The state of one body; `turn` is a rotation vector."""
    quaternion = geometry.quat_from_rotvec(np.asarray(turn, dtype=float))
    return np.concatenate([np.asarray(part, dtype=float) for part in (position, quaternion, velocity, spin)])


def motion(system: RigidContact, start: Array, values: Array, dt_s: float, steps: int, **options: object) -> Array:
    controls = np.zeros((1, steps, len(system.control_names)))
    return simulate(system, start[None], controls, values, dt_s, **options)[0]


# one body


@pytest.mark.parametrize("damping_ratio", [0.0, 0.3, 0.9, 1.0, 1.6])
def test_bounce_of_a_spring_and_a_dashpot(damping_ratio: float) -> None:
    system, mass, k_e, speed = RigidContact((Sphere(0.1),)), 2.0, 5000.0, 1.5
    k_d, frequency = 2.0 * damping_ratio * np.sqrt(k_e * mass), np.sqrt(k_e / mass)
    values = values_of(system, mass=mass, k_e=k_e, k_d=k_d, gravity=0.0, mu=0.0)
    dt_s = 2e-3 / frequency
    states = motion(system, body([0, 0, 0.1 + 1e-9], velocity=[0, 0, -speed]), values, dt_s, 2500)
    # the roots of m s^2 + c s + k, and the time at which the force k x + c x' = -m x'' is zero
    a, b = np.roots([mass, k_d, k_e]).astype(complex)
    if abs(a - b) < 1e-3 * frequency:
        duration, rebound = 2.0 / frequency, speed * np.exp(-2.0)
    else:
        duration = (
            (np.log((a / b) ** 2) / (b - a)).real
            if damping_ratio > 1.0
            else 2.0 * np.arccos(damping_ratio) / (abs(a.imag))
        )
        rebound = -(speed * (a * np.exp(a * duration) - b * np.exp(b * duration)) / (a - b)).real
    pushed = np.flatnonzero(np.diff(states[:, 9]) != 0.0)
    # the force is held over a step: errors of first order in dt
    assert pushed.size * dt_s == pytest.approx(duration, abs=4 * dt_s)
    assert states[-1, 9] == pytest.approx(rebound, rel=4e-3)
    assert system.restitution(values) == pytest.approx(rebound / speed, rel=1e-6)
    assert np.all(np.diff(states[:, 9]) >= 0.0)  # it never pulls


def test_restitution_counts_the_points_that_touch() -> None:
    system = RigidContact(planes=((0, 0, 1, 0),))
    values = values_of(system, k_e=2000.0, k_d=2.0, gravity=0.0)
    states = motion(system, body([0, 0, 0.0251], velocity=[0, 0, -0.5]), values, 2e-5, 2000)
    assert states[-1, 9] == pytest.approx(0.5 * system.restitution(values, points=4), rel=2e-3)


@pytest.mark.parametrize("k_f", [0.5, 8.0])
def test_sliding_distance(k_f: float) -> None:
    """v^2 / (2 mu g), and what the relaxed law adds: below v_c = mu m g / (4 k_f) the box creeps to a halt."""
    system, speed, mu, gravity = RigidContact((Box((0.1, 0.1, 0.02)),)), 1.2, 0.3, 9.8
    values = values_of(system, mass=0.4, k_e=4000.0, k_d=5.0, k_f=k_f, mu=mu, gravity=gravity)
    depth = 0.4 * gravity / (4.0 * 4000.0)
    direction = np.array([np.cos(0.7), np.sin(0.7), 0.0])
    start = body([0, 0, 0.02 - depth], turn=[0, 0, 0.7], velocity=speed * direction)
    states = motion(system, start, values, 0.01, 150, substeps=20)
    travelled = states[-1, :3] - start[:3]
    creep = mu * 0.4 * gravity / (4.0 * k_f)
    assert travelled @ direction == pytest.approx((speed**2 + creep**2) / (2.0 * mu * gravity), rel=2e-3)
    np.testing.assert_allclose(travelled - (travelled @ direction) * direction, 0.0, atol=1e-5)
    assert (creep / speed) ** 2 < 1e-3 or k_f < 1.0  # the stiffer one is at the limit v^2 / (2 mu g)


@pytest.mark.parametrize(("angle", "grips"), [(0.2, True), (0.5, False)])
def test_box_on_a_slope(angle: float, grips: bool) -> None:
    mu, gravity, k_f = 0.3, 9.8, 10.0
    downhill, normal = np.array([np.cos(angle), 0, -np.sin(angle)]), np.array([np.sin(angle), 0, np.cos(angle)])
    offset = 0.3
    system = RigidContact((Box((0.1, 0.1, 0.02)),), planes=((*(2.0 * normal), 2.0 * offset),))
    values = values_of(system, mass=0.4, k_e=4000.0, k_d=10.0, k_f=k_f, mu=mu, gravity=gravity)
    depth = 0.4 * gravity * np.cos(angle) / (4.0 * 4000.0)
    states = motion(system, body((0.02 - depth + offset) * normal, turn=[0, angle, 0]), values, 0.01, 60, substeps=20)
    along = states[:, 7:10] @ downhill
    if grips:
        assert along[-1] == pytest.approx(0.4 * gravity * np.sin(angle) / (4.0 * k_f), rel=1e-3)
    else:
        acceleration = gravity * (np.sin(angle) - mu * np.cos(angle))
        assert along[-1] - along[30] == pytest.approx(0.3 * acceleration, rel=2e-3)


def test_resting_box_sinks_by_its_weight() -> None:
    system = RigidContact()
    values = values_of(system, k_d=1.0)
    end = motion(system, body([0, 0, 0.027], turn=[0.02, -0.03, 0.5]), values, 0.01, 150, substeps=8)[-1]
    mass = RISP_CUBE.density_kg_m3 * RISP_CUBE.side_m**3
    assert mass == pytest.approx(0.0375)
    assert 0.025 - end[2] == pytest.approx(mass * 9.8 / (4.0 * 1e3), rel=1e-6)
    np.testing.assert_allclose(end[7:], 0.0, atol=1e-8)


def test_longest_step_is_where_a_resting_cube_starts_to_shake() -> None:
    system = RigidContact()
    values = values_of(system, k_d=0.0, k_f=0.0, mu=0.0)
    longest = system.longest_step_s(values)
    depth = 0.0375 * 9.8 / 4e3
    start = body([0, 0, 0.025 - depth], spin=[1e-6, 0, 0])
    calm = motion(system, start, values, 0.99 * longest, 400)
    assert np.abs(calm[:, 10]).max() < 2e-5
    controls = np.zeros((1, 400, 12))
    with pytest.raises(UsageError, match="2 substeps or more"):
        simulate(system, start[None], controls, values, 1.01 * longest)
    system.longest_step_s = lambda _: np.inf  # type: ignore[method-assign]
    wild = motion(system, start, values, 1.03 * longest, 400)
    assert np.abs(wild[:, 10]).max() > 1e-3


def test_torque_free_tumbling_conserves_energy_and_angular_momentum() -> None:
    system = RigidContact((Box((0.02, 0.03, 0.05)),), planes=())
    inertia = system.parameters().vector[1:4]
    start = body([0, 0, 0], turn=[0.5, -1.0, 0.3], spin=[0.3, 9.0, -0.4])
    drift = []
    for substeps in (2, 4, 8):
        values = values_of(system, gravity=0.0)
        states = motion(system, start, values, 0.05, 60, substeps=substeps, integrator="rk4")
        spin = inertia * states[:, 10:]
        momentum = Rotation.from_quat(np.roll(states[:, 3:7], -1, axis=1)).apply(spin)
        energy = 0.5 * (states[:, 10:] * spin).sum(axis=1)
        drift.append([np.ptp(energy) / energy[0], np.abs(momentum - momentum[0]).max() / np.linalg.norm(momentum[0])])
    assert np.abs(states[:, 11]).min() < 3.0 < 8.0 < np.abs(states[:, 11]).max()  # it tumbles over its middle axis
    assert max(drift[-1]) < 1e-5
    assert all(a / b > 13.0 for coarse, fine in pairwise(drift) for a, b in zip(coarse, fine, strict=True))


def test_forces_and_torques_are_in_world_and_body_axes() -> None:
    system = RigidContact(planes=())
    passive = RigidContact(planes=(), has_actions=False)
    values = values_of(system, mass=0.5, inertia_xx=0.01, inertia_yy=0.02, inertia_zz=0.04, gravity=9.8)
    start = body([0, 0, 0], turn=[0, 0, np.pi / 2])
    wrench = np.array([1.0, -2.0, 3.0, 0.01, 0.02, 0.04])
    controls = np.zeros((2, 1, 12))
    controls[0, 0, :6], controls[1, 0, 6:] = wrench, wrench
    ends = simulate(system, np.array([start, start]), controls, values, 1e-3)[:, -1]
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_allclose(ends[0, 7:10], 1e-3 * np.array([2.0, -4.0, 6.0 - 9.8]), atol=1e-15)
    np.testing.assert_allclose(ends[0, 10:], 1e-3, atol=1e-15)
    assert passive.action_names == ()
    np.testing.assert_array_equal(simulate(passive, start[None], wrench[None, None], values, 1e-3)[0, -1], ends[0])


def test_mesh_of_a_cube_moves_as_the_box() -> None:
    corners = Box((0.025, 0.025, 0.025)).points
    faces = np.array(
        [
            *([0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1]),
            *([2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]),
        ]
    )
    mesh = Mesh(corners, faces, np.zeros(12, dtype=int))
    box, from_mesh = RigidContact(), RigidContact((Points.of_mesh(mesh),))
    np.testing.assert_allclose(from_mesh.parameters().vector, box.parameters().vector, rtol=1e-12)
    assert from_mesh.longest_step_s(box.parameters().vector) == pytest.approx(
        box.longest_step_s(box.parameters().vector)
    )
    start = body([0, 0, 0.06], turn=[0.4, 0.3, 0.1], velocity=[0.3, 0, -1], spin=[3, 0, 2])
    np.testing.assert_allclose(
        *(motion(s, start, box.parameters().vector, 5e-3, 60, substeps=4) for s in (box, from_mesh)), atol=1e-9
    )


def test_a_mesh_off_its_centre_and_turned_moves_as_the_box() -> None:
    """A flat box somewhere, askew: its own coordinates are filmed, whatever its centre and axes are."""
    half, turn, offset = np.array([0.03, 0.02, 0.01]), geometry.matrix_from_rotvec([0.4, -0.3, 0.2]), [0.3, 0.1, -0.2]
    solid = trimesh.creation.box(2.0 * half).subdivide().subdivide()
    corners = np.asarray(solid.vertices)
    mesh = Mesh(corners @ turn.T + offset, np.asarray(solid.faces), np.zeros(len(solid.faces), dtype=int))
    box, from_mesh = RigidContact((Box(half),)), RigidContact((Points.of_mesh(mesh, most=256),))
    values = box.parameters().vector
    assert len(from_mesh.bodies[0].points) == 8
    rounded = Mesh(mesh.vertices.astype(np.float32).astype(float), mesh.faces, mesh.part)  # as in an STL
    assert len(Points.of_mesh(rounded, most=256).points) == 8
    np.testing.assert_allclose(from_mesh.parameters().vector, values, rtol=1e-12)
    rest = from_mesh.rest_state()
    lying = from_mesh.vertices(rest, mesh.vertices)
    np.testing.assert_allclose(lying, mesh.vertices - offset - [0, 0, (corners @ turn.T).min(axis=0)[2]], atol=1e-15)
    start = body([0.1, 0, 0.08], turn=[0.4, 0.3, 0.1], velocity=[0.3, 0, -1], spin=[3, 0, 2])
    ends = [motion(s, start, values, 5e-3, 60, substeps=4)[-1] for s in (box, from_mesh)]
    np.testing.assert_allclose(from_mesh.vertices(ends[1], mesh.vertices), box.vertices(ends[0], corners), atol=1e-9)


def test_round_meshes_touch_with_some_of_their_vertices() -> None:
    ball = trimesh.creation.icosphere(4, 0.1)
    mesh = Mesh(np.asarray(ball.vertices), np.asarray(ball.faces), np.zeros(len(ball.faces), dtype=int))
    points = Points.of_mesh(mesh, most=256)
    assert points.points.shape == (256, 3)
    flattest = trimesh.convex.convex_hull(points.points)
    depth = (flattest.face_normals * flattest.triangles_center).sum(axis=1).min()
    assert 0.98 < depth / 0.1 < 1.0
    assert points.volume == pytest.approx(ball.volume)


def test_the_mesh_of_a_ball_is_a_sphere() -> None:
    system = from_file("ball:d=66mm")
    shape = system.bodies[0]
    assert isinstance(shape, Sphere)
    assert shape.radius == pytest.approx(0.033, rel=1e-9)
    assert system.surface is shape.mesh is not None
    values = values_of(system, k_e=5e3, k_d=1.0)
    moving = motion(system, body([0, 0, 0.2]), values, 1e-4, 4000)
    landing, rising = moving[:, 9].min(), moving[:, 9].max()
    assert rising / -landing == pytest.approx(system.restitution(values), abs=0.01)


def test_what_is_no_solid_ball_is_no_sphere() -> None:
    ball = trimesh.creation.icosphere(4, 0.1)
    inside = trimesh.creation.icosphere(4, 0.08)
    inside.invert()
    hollow = trimesh.util.concatenate([ball, inside])
    for solid in (trimesh.creation.icosphere(2, 0.1), trimesh.creation.box((0.1,) * 3), hollow):
        faces = np.asarray(solid.faces)
        assert Sphere.of_mesh(Mesh(np.asarray(solid.vertices), faces, np.zeros(len(faces), dtype=int))) is None
    ball.apply_translation([0.3, 0.0, 0.1])
    found = Sphere.of_mesh(
        Mesh(np.asarray(ball.vertices), np.asarray(ball.faces), np.zeros(len(ball.faces), dtype=int))
    )
    assert found is not None
    np.testing.assert_allclose(found.origin, [0.3, 0.0, 0.1], atol=1e-9)


def test_rest_states_lie_on_the_planes() -> None:
    turned = np.array([0.6, 0.0, 0.8])
    system = RigidContact((Sphere(0.1), Box((0.1, 0.2, 0.3))), planes=((0, 0, 1, 0.5), (*turned, 0.2)))
    bodies = system.split(system.rest_state())
    for row, shape in zip(bodies, system.bodies, strict=True):
        points = row[:3] + shape.points
        gaps = [points[:, 2].min() - shape.radius - 0.5, (points @ turned).min() - shape.radius - 0.2]
        assert min(gaps) == pytest.approx(0.0, abs=1e-12)
    assert np.linalg.norm(bodies[1, :3] - bodies[0, :3]) > 0.1 + np.linalg.norm([0.1, 0.2, 0.3])


def test_bad_shapes_are_refused() -> None:
    for make in (
        lambda: Sphere(-1.0),
        lambda: Box((0.1, 0.0, 0.1)),
        lambda: Box((0.1, 0.1)),
        lambda: Points(np.eye(3)),
        lambda: Points(np.full((5, 3), np.nan)),
        lambda: RigidContact(planes=((0, 0, 0, 1),)),
        lambda: RigidContact(planes=((0, 0, 1),)),
        lambda: RigidContact(()),
        lambda: RigidContact((Points(np.vstack([np.eye(3), np.zeros(3)])),) * 2),
    ):
        with pytest.raises(UsageError):
            make()


# several bodies


def test_elastic_collision_of_two_balls() -> None:
    system = RigidContact((Sphere(0.1), Sphere(0.05)), planes=())
    masses, speeds = np.array([2.0, 0.5]), np.array([1.0, -3.0])
    values = values_of(system, mass_0=2.0, mass_1=0.5, k_e=1e5, k_d=0.0, mu=0.0, gravity=0.0)
    start = np.concatenate([body([-0.2, 0, 0], velocity=[1, 0, 0]), body([0.1, 0, 0], velocity=[-3, 0, 0])])
    end = motion(system, start, values, 1e-5, 8000)[-1]
    center = masses @ speeds / masses.sum()
    np.testing.assert_allclose(end[[7, 20]], 2.0 * center - speeds, rtol=2e-3)
    np.testing.assert_allclose(masses @ end[[7, 20]], masses @ speeds, rtol=1e-13)


def test_names_of_several_bodies() -> None:
    system = RigidContact((Sphere(0.1), Box((0.1, 0.1, 0.1))))
    assert system.parameters().names[:5] == ("mass_0", "inertia_xx_0", "inertia_yy_0", "inertia_zz_0", "mass_1")
    assert system.parameters().names[-5:] == ("k_e", "k_d", "k_f", "mu", "gravity")
    assert system.state_names[13] == "position_x_1_m"
    assert system.action_names[6] == "force_x_1"
    assert system.control_names[12 + 9] == "disturbance_torque_x_1_Nm"
    assert system.control_inertia[12 + 9] == "inertia_xx_1"


def momenta(states: Array, masses: Array, inertias: Array) -> tuple[Array, Array, Array]:
    """Linear and angular momentum (about the origin) and kinetic energy of bodies, states [T, 13 a body]."""
    bodies = states.reshape(len(states), -1, 13)
    p, v, w = bodies[..., :3], bodies[..., 7:10], bodies[..., 10:]
    spin = geometry.rotate(bodies[..., 3:7], inertias * w)
    linear = (masses[:, None] * v).sum(axis=1)
    angular = (masses[:, None] * np.cross(p, v) + spin).sum(axis=1)
    energy = 0.5 * (masses * (v**2).sum(axis=-1)).sum(axis=1) + 0.5 * (inertias * w**2).sum(axis=(1, 2))
    return linear, angular, energy


PAIRS = {
    "ball on ball": ((Sphere(0.1), Sphere(0.05)), [0.15, 0.05, 0.02]),
    "ball on box": ((Sphere(0.1), Box((0.05, 0.08, 0.06))), [0.165, 0.03, 0.02]),
    "box on ball": ((Box((0.05, 0.08, 0.06)), Sphere(0.1)), [0.165, 0.03, 0.02]),
    "box on box": ((Box((0.1, 0.12, 0.1)), Box((0.05, 0.08, 0.06))), [0.18, 0.03, 0.02]),
    "mesh on ball": ((Points(trimesh.creation.icosphere(1, 0.06).vertices), Sphere(0.1)), [0.155, 0.04, 0.02]),
    "mesh on box": ((Points(Box((0.05, 0.08, 0.06)).points), Box((0.1, 0.12, 0.1))), [0.18, 0.03, 0.02]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_oblique_collisions_conserve_momentum(name: str) -> None:
    """Without friction and damping energy too, but for what a step over the edge of a contact costs."""
    shapes, apart = PAIRS[name]
    system = RigidContact(shapes, planes=())
    values = np.array([values_of(system, k_e=3e4, k_d=0.0, k_f=50.0, mu=mu, gravity=0.0) for mu in (0.0, 0.5)])
    first = body([0, 0, 0], turn=[0.1, 0.05, -0.05], velocity=[0.8, 0.1, 0], spin=[1, 0.5, -1])
    start = np.concatenate([first, body(apart, turn=[-0.1, 0.15, 0.1], velocity=[-0.8, 0, 0.1], spin=[0, 1, 0.3])])
    rolled = simulate(
        system, np.array([start] * 2), np.zeros((2, 150, 24)), values, 1e-3, substeps=10, integrator="rk4"
    )
    inertial, kept = values[0, :8].reshape(2, 4), []
    for states in rolled:
        assert np.abs(states[-1, 7:10] - states[0, 7:10]).max() > 0.1  # they met
        linear, angular, energy = momenta(states, inertial[:, 0], inertial[:, 1:])
        np.testing.assert_allclose(linear - linear[0], 0.0, atol=1e-13)
        np.testing.assert_allclose(angular - angular[0], 0.0, atol=1e-8 * np.abs(angular).max())
        kept.append(energy[-1] / energy[0])
    assert kept[0] == pytest.approx(1.0, abs=1e-3)
    assert kept[1] < 0.999


def test_pile_stands_where_springs_say() -> None:
    """A ball on a small box on a large one on the ground: each contact carries the weight above it."""
    system = RigidContact((Box((0.2, 0.2, 0.05)), Box((0.1, 0.1, 0.05)), Sphere(0.03)))
    weights = np.array([2.0, 1.0, 0.3]) * 9.8
    values = values_of(system, mass_0=2.0, mass_1=1.0, mass_2=0.3, k_e=5000.0, k_d=20.0, gravity=9.8)
    start = np.concatenate([body([0, 0, 0.05]), body([0, 0, 0.15], turn=[0, 0, 0.4]), body([0, 0, 0.23])])
    substeps = int(np.ceil(0.01 / system.longest_step_s(values)))
    end = motion(system, start, values, 0.01, 100, substeps=substeps)[-1].reshape(3, 13)
    depths = weights[::-1].cumsum()[::-1] / (5000.0 * np.array([4, 4, 1]))
    tops = np.array([0.05, 0.15, 0.23]) - depths.cumsum()
    np.testing.assert_allclose(end[:, 2], tops, atol=1e-6)
    np.testing.assert_allclose(end[:, 7:], 0.0, atol=1e-4)


def test_tower_of_equal_boxes_stands() -> None:
    """At the longest step, turned and shifted so that no corner lies on a face of its neighbour's."""
    boxes = (Box((0.05, 0.05, 0.05), points_per_edge=4),) * 3
    system = RigidContact(boxes)
    values = values_of(system, k_e=3000.0, k_d=5.0, k_f=5.0)
    start = np.concatenate([body([0.002 * i, 0, 0.05 + 0.1 * i], turn=[0, 0, 0.1 * i]) for i in range(3)])
    substeps = int(np.ceil(0.01 / system.longest_step_s(values)))
    end = motion(system, start, values, 0.01, 150, substeps=substeps)[-1].reshape(3, 13)
    np.testing.assert_allclose(end[:, :3], start.reshape(3, 13)[:, :3], atol=1e-3)
    np.testing.assert_allclose(end[:, 7:], 0.0, atol=2e-3)


# gradients


IN_CONTACT = {
    "flat": (RigidContact(), body([0, 0, 0.024], [0.01, 0.005, 0.3], [0.1, 0.05, -0.1], [1, 2, 3])),
    "flat, sliding": (RigidContact(), body([0, 0, 0.024], [0.01, 0.005, 0.3], [12.0, 5.0, -0.1], [1, 2, 3])),
    "corner": (RigidContact(), body([0, 0, 0.035], [0.6, 0.4, 0.3], [0.3, 0.05, -0.3], [1, 2, 3])),
    "ball": (RigidContact((Sphere(0.03),)), body([0, 0, 0.029], [0.6, 0.4, 0.3], [9.0, 0.05, -0.3], [1, 2, 3])),
    **{
        name: (
            RigidContact(shapes, planes=()),
            np.concatenate(
                [
                    body([0, 0, 0], [0.1, 0.05, -0.05], [0.8, 0.1, 0], [1, 0.5, -1]),
                    body(0.87 * np.array(apart), [-0.1, 0.15, 0.1], [-0.8, 0, 0.1], [0, 1, 0.3]),
                ]
            ),
        )
        for name, (shapes, apart) in PAIRS.items()
    },
}


@pytest.mark.parametrize("name", IN_CONTACT)
@pytest.mark.parametrize("integrator", ["semi_implicit_euler", "rk4"])
def test_derivatives_in_contact_agree_with_finite_differences(name: str, integrator: str) -> None:
    system, state = IN_CONTACT[name]
    values = system.parameters().vector
    control = 1e-3 * np.random.default_rng(0).normal(size=len(system.control_names))
    dt_s = 0.6 * system.longest_step_s(values)
    options = {"integrator": integrator, "substeps": 2}
    exact = linearize(system, state[None], control[None], values, np.array([dt_s]), **options)

    def after(at: Array, u: Array, p: Array) -> Array:
        ends = simulate(system, at, u[:, None], p, dt_s, **options)[:, 1]
        return system.local(like(ends, exact.next_states[0]), ends)

    zero = np.zeros(len(system.tangent_names))
    numeric = (
        finite_differences(
            lambda d: after(system.retract(like(d, state), d), like(d, control), values), zero, zero + 1e-6
        ),
        finite_differences(lambda u: after(like(u, state), u, values), control, np.full(control.size, 1e-4)),
        finite_differences(lambda p: after(like(p, state), like(p, control), p), values, 1e-3 * values),
    )
    assert np.abs(exact.C[0][:, -5]).max() > 0.0  # it touches
    for mine, theirs in zip((exact.A[0], exact.B[0], exact.C[0]), numeric, strict=True):
        size = np.maximum(np.abs(theirs).max(axis=0), 1e-9)
        assert (np.abs(mine - theirs) / size).max() < 1e-6
    if "sliding" in name or name == "ball":
        assert np.abs(exact.C[0][:, -2]).max() > 0.0  # and slips


@pytest.mark.parametrize(
    ("k_d", "integrator"),
    [(0.0, "semi_implicit_euler"), (6.0, "semi_implicit_euler"), (40.0, "semi_implicit_euler"), (6.0, "rk4")],
)
def test_gradient_across_a_contact_event(k_d: float, integrator: str) -> None:
    """A ball that is let go higher bounces later, by 1 / v a metre, and else the same: dz/dz0 = -e, dv/dz0 = 0.

    Were the dashpot's force to jump at touch-down, derivatives of the steps would not know of the time of the jump, and
    k_d / m of velocity for a metre would be missing there, e times that at the end: -9 and -19 for dv/dz0 here.
    """
    system, speed = RigidContact((Sphere(0.1),), has_actions=False), 2.0
    values = values_of(system, mass=0.5, k_e=2000.0, k_d=k_d, gravity=0.0)
    restitution = system.restitution(values)
    start = torch.tensor(body([0, 0, 0.12 + 1.3e-5], velocity=[0, 0, -speed])[None], requires_grad=True)
    controls = torch.zeros((1, 8, 6), dtype=torch.float64)
    options = {"integrator": integrator, "substeps": 50}
    end = rollout(system, start, controls, torch.tensor(values), 50 * 2e-4, **options)[0, -1]
    height, velocity = (torch.autograd.grad(end[i], start, retain_graph=True)[0][0, [2, 9]].numpy() for i in (2, 9))
    # first order in the step: 0.4 mm at 2 m/s, of the 30 mm that a bounce takes
    assert end[9].item() == pytest.approx(restitution * speed, rel=1e-2)
    assert height[0] == pytest.approx(-restitution, rel=4e-2)
    assert velocity[0] == pytest.approx(0.0, abs=0.5)
    assert velocity[1] == pytest.approx(-restitution, rel=2e-2)


# recorded tosses


def tosses() -> list[Array]:
    """States [T, 13] of each toss in our layout, the recorder's being quaternion, position, angular rate, velocity."""
    data = np.load(TOSSES)
    rows = data["state"]
    quats = geometry.quat_normalize(rows[:, :4])
    states = np.concatenate([rows[:, 4:7], quats, rows[:, 10:], rows[:, 7:10]], axis=1)
    return [states[data["toss_id"] == i] for i in np.unique(data["toss_id"])]


def replayed(system: RigidContact, recorded: list[Array], values: Array, substeps: int) -> list[Array]:
    """Rollouts from the first recorded states, as long as each toss."""
    steps = max(len(toss) for toss in recorded) - 1
    starts = np.array([toss[0] for toss in recorded])
    states = simulate(system, starts, np.zeros((len(starts), steps, 6)), values, 1.0 / RATE_HZ, substeps=substeps)
    return [rolled[: len(toss)] for rolled, toss in zip(states, recorded, strict=True)]


@needs_tosses
def test_recorded_flight() -> None:
    """Twelve frames from the recorded first state, whose velocity is known to about 1 cm/s and rate to 0.05 rad/s."""
    corners, frames = Box((0.5 * SIDE,) * 3).points, 12
    flights = []
    for toss in tosses():
        lowest = (toss[:frames, None, :3] + geometry.rotate(toss[:frames, None, 3:7], corners))[..., 2].min()
        if lowest > 0.003:
            flights.append(toss[:frames])
    assert len(flights) > 200
    system = RigidContact((Box((0.5 * SIDE,) * 3),), planes=(), has_actions=False)
    values = values_of(system, **CUBE)
    recorded, rolled = np.array(flights), np.array(replayed(system, flights, values, 1))
    far = np.linalg.norm((rolled - recorded)[:, -1, :3], axis=1)
    turned = np.rad2deg(geometry.angle_between(rolled[:, -1, 3:7], recorded[:, -1, 3:7]))
    assert np.median(far) < 2e-3
    assert np.median(turned) < 1.0
    # had the recorder's angular velocity been in the world, it would have turned elsewhere
    recorded[..., 10:] = geometry.rotate(geometry.quat_conjugate(recorded[..., 3:7]), recorded[..., 10:])
    rolled = np.array(replayed(system, list(recorded), values, 1))
    elsewhere = np.rad2deg(geometry.angle_between(rolled[:, -1, 3:7], recorded[:, -1, 3:7]))
    assert np.median(elsewhere) > 10.0


def replay_errors(recorded: list[Array], **contact: float) -> tuple[Array, Array]:
    """Distance [m] and angle [deg] from where each toss came to lie."""
    system = RigidContact((Box((0.5 * SIDE,) * 3),), has_actions=False)
    values = values_of(system, **{**CUBE, **FITTED, **contact})
    substeps = int(np.ceil(2.0 / RATE_HZ / system.longest_step_s(values)))
    ends = np.array([states[-1] for states in replayed(system, recorded, values, substeps)])
    truth = np.array([toss[-1] for toss in recorded])
    distance = np.linalg.norm(ends[:, :3] - truth[:, :3], axis=1)
    return distance, np.rad2deg(geometry.angle_between(ends[:, 3:7], truth[:, 3:7]))


@needs_tosses
def test_recorded_tosses_replay() -> None:
    """About 0.7 s with three or more impacts, from the first state; tosses that the contact was not fitted to."""
    others = tosses()[20:40]
    distance, angle = replay_errors(others)
    assert np.median(distance) < 0.035
    assert np.median(angle) < 15.0
    slippery, _ = replay_errors(others, mu=0.02)
    bouncy, _ = replay_errors(others, k_d=1.0)
    assert np.median(slippery) > 2.0 * np.median(distance)
    assert np.median(bouncy) > 2.0 * np.median(distance)


@needs_tosses
def test_gradients_through_recorded_tosses_agree_with_differences() -> None:
    """Where a toss is after 0.4 s and about three impacts, by the height and the velocities that it starts with."""
    starts = np.array([toss[0] for toss in tosses()[20:40]])
    system = RigidContact((Box((0.5 * SIDE,) * 3),), has_actions=False)
    values, controls = values_of(system, **CUBE, **FITTED), np.zeros((20, 60, 6))
    tensors = [torch.tensor(a, requires_grad=True) for a in (starts, controls, values)]
    x = rollout(system, *tensors, 1.0 / RATE_HZ, substeps=16)[:, -1, 0]
    exact = torch.autograd.grad(x.sum(), tensors[0])[0].numpy()
    for column, bound in ((2, 0.15), (7, 0.02), (9, 0.02)):
        ends = []
        for shift in (-0.01, 0.01):
            moved = starts + shift * np.eye(13)[column]
            ends.append(simulate(system, moved, controls, values, 1.0 / RATE_HZ, substeps=16)[:, -1, 0])
        differences = (ends[1] - ends[0]) / 0.02
        assert np.median(np.abs(exact[:, column] - differences)) < bound
        assert bound < np.median(np.abs(differences))


@needs_tosses
@pytest.mark.slow
def test_all_other_tosses_replay() -> None:
    distance, angle = replay_errors(tosses()[20:])
    assert np.median(distance) < 0.035
    assert np.median(angle) < 20.0
