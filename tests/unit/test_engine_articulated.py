"""Articulated bodies against MuJoCo on the same files, conserved quantities, and what cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from vid2phys import geometry
from vid2phys.engine import systems
from vid2phys.engine.constants import RISP_HAND
from vid2phys.engine.kernels.articulation import FRICTION_RATE
from vid2phys.engine.rollout import rollout, simulate
from vid2phys.engine.systems.articulated import Articulated
from vid2phys.engine.systems.hand import hand_mjcf
from vid2phys.errors import InputError, UsageError
from vid2phys.io.robot import load_robot, parse_robot
from vid2phys.types import Array

ALLEGRO = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "allegro_hand"
HAND_FILE = ALLEGRO / "allegro_hand_description_left.urdf"
needs_allegro = pytest.mark.skipif(not HAND_FILE.exists(), reason=f"no recordings in {ALLEGRO}")

LINK = """
<link name="{name}"><inertial><origin xyz="{com}" rpy="0.3 -0.4 0.9"/><mass value="{mass}"/>
<inertia ixx="{ixx}" iyy="{iyy}" izz="{izz}" ixy="0.0004" ixz="-0.0003" iyz="0.0002"/></inertial></link>"""
LINKS = "".join(
    LINK.format(name=name, com=com, mass=mass, ixx=ixx, iyy=iyy, izz=izz)
    for name, com, mass, ixx, iyy, izz in (
        ("root", "0 0.02 0.01", 3.0, 0.03, 0.04, 0.02),
        ("swing", "0.15 0.02 -0.03", 1.2, 0.004, 0.012, 0.013),
        ("carriage", "0.05 -0.04 0.01", 0.6, 0.003, 0.002, 0.004),
        ("wrist", "0.1 0.0 0.05", 0.4, 0.002, 0.003, 0.0015),
        ("tool", "0.02 0.03 0.04", 0.25, 0.001, 0.0012, 0.0009),
    )
)
CHAIN = f"""<robot name="chain">{LINKS}
<joint name="a" type="continuous"><parent link="root"/><child link="swing"/><origin xyz="0.1 0 0.2" rpy="0.2 0 0.5"/>
  <axis xyz="0.2 1 0.1"/><dynamics damping="0.05"/></joint>
<joint name="b" type="prismatic"><parent link="swing"/><child link="carriage"/><origin xyz="0.3 0 0" rpy="0 0.4 0"/>
  <axis xyz="0.6 0.1 0.8"/><limit lower="-5" upper="5" effort="1" velocity="1"/><dynamics damping="0.8"/></joint>
<joint name="c" type="revolute"><parent link="carriage"/><child link="wrist"/><origin xyz="0 0.1 0.05" rpy="1 0 0"/>
  <axis xyz="0 0 -1"/><limit lower="-9" upper="9" effort="1" velocity="1"/></joint>
<joint name="d" type="fixed"><parent link="wrist"/><child link="tool"/><origin xyz="0.15 0 0.02" rpy="0 0 0.7"/></joint>
</robot>"""
BRANCHED = """<mujoco><compiler angle="radian"/><worldbody><geom type="plane" size="1 1 1"/>
<body name="trunk" pos="0.1 0.2 0.3" quat="0.9 0.1 0.3 -0.2">
  <geom type="box" size="0.1 0.15 0.05" mass="2" pos="0.02 0 0.01"/>
  <body name="two" pos="0.1 0.1 0" quat="0.8 0.2 0.1 0.5">
    <joint name="u" type="hinge" axis="1 0 0" pos="0.01 0.02 0" ref="0.2" armature="0.01" damping="0.02"/>
    <joint name="v" type="hinge" axis="0 1 0.2" pos="0 0 0.03" stiffness="0.4" springref="0.3"/>
    <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.02" mass="0.5"/>
    <body name="leaf" pos="0.2 0 0"><joint name="w" type="slide" axis="0 1 1" stiffness="30" damping="0.1"/>
      <geom type="sphere" size="0.04" mass="0.3" pos="0.03 0 0"/></body></body>
  <body name="other" pos="-0.1 0 0"><joint name="x" axis="0 0 1" pos="0.02 0 0"/>
    <geom type="ellipsoid" size="0.1 0.03 0.05" mass="0.4" pos="-0.1 0 0"/></body></body></worldbody></mujoco>"""


def mujoco_model(text: str, *, free: bool = False) -> mujoco.MjModel:
    """MuJoCo's own reading of the file, without contacts and limits."""
    spec = mujoco.MjSpec.from_string(text)
    if free:
        spec.compiler.fusestatic = False
        next(iter(spec.worldbody.bodies)).add_freejoint()
    model = spec.compile()
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT)
    return model


def mujoco_motion(
    model: mujoco.MjModel, position: Array, velocity: Array, torques: Array, dt_s: float, substeps: int
) -> Array:
    """[S + 1, nq + nv], torques [S, nv] held over intervals of dt_s; no dry friction."""
    model.opt.timestep = dt_s / substeps
    model.dof_frictionloss[:] = 0.0
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = position, velocity
    out = [np.concatenate([data.qpos, data.qvel])]
    for torque in torques:
        data.qfrc_applied[:] = torque
        for _ in range(substeps):
            mujoco.mj_step(model, data)
        out.append(np.concatenate([data.qpos, data.qvel]))
    return np.array(out)


def controls_of(system: Articulated, torques: Array) -> Array:
    """Joint torques [S, n] as controls [1, S, M]."""
    controls = np.zeros((1, len(torques), len(system.control_names)))
    controls[0, :, : torques.shape[1]] = torques
    return controls


def smooth_torques(steps: int, scale: Array, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    phase, rate = rng.uniform(0.0, 6.0, len(scale)), rng.uniform(3.0, 12.0, len(scale))
    return scale * np.sin(phase + rate * np.linspace(0.0, 1.0, steps)[:, None])


def test_a_chain_moves_as_in_mujoco() -> None:
    system = Articulated(parse_robot(CHAIN, Path("chain.urdf")))
    assert system.state_names == ("a_rad", "b_m", "c_rad", "a_rad_s", "b_m_s", "c_rad_s")
    start, torques = np.array([0.3, 0.1, -0.4, 1.0, -0.5, 2.0]), smooth_torques(100, np.array([3.0, 4.0, 0.5]), 1)
    theirs = mujoco_motion(mujoco_model(CHAIN), start[:3], start[3:], torques, 0.01, 20)
    parameters = system.parameters().vector
    mine = simulate(system, start[None], controls_of(system, torques), parameters, 0.01, substeps=4)[0]
    assert np.abs(mine[:, :3]).max() > 1.0
    np.testing.assert_allclose(mine, theirs, atol=2e-7)


def test_branches_with_springs_and_two_joints_a_body_move_as_in_mujoco() -> None:
    system = Articulated(parse_robot(BRANCHED, Path("branched.xml")))
    rng = np.random.default_rng(2)
    start = rng.normal(size=8)
    torques = smooth_torques(100, np.array([0.2, 0.3, 2.0, 0.1]), 3)
    theirs = mujoco_motion(mujoco_model(BRANCHED), start[:4], start[4:], torques, 0.01, 20)
    parameters = system.parameters().vector
    mine = simulate(system, start[None], controls_of(system, torques), parameters, 0.01, substeps=10)[0]
    np.testing.assert_allclose(mine, theirs, atol=2e-8)


@pytest.mark.parametrize("text", [CHAIN, BRANCHED])
def test_a_free_base_moves_as_in_mujoco(text: str) -> None:
    system = Articulated(parse_robot(text, Path("robot.xml"), free_base=True))
    count = len(system.action_names)
    rng = np.random.default_rng(4)
    quat = geometry.quat_normalize(rng.normal(size=4))
    position, velocity = np.concatenate([[0.5, -3.0, 1.0], quat, rng.normal(size=count)]), rng.normal(size=6 + count)
    torques = smooth_torques(100, np.full(count, 0.3), 5)
    model = mujoco_model(text, free=True)
    # MuJoCo's base velocity is that of the frame's origin in the world, its angular velocity in the body: as here
    theirs = mujoco_motion(model, position, velocity, np.hstack([np.zeros((100, 6)), torques]), 0.01, 40)
    start = np.concatenate([position, velocity])[None]
    parameters = system.parameters().vector
    mine = simulate(system, start, controls_of(system, torques), parameters, 0.01, substeps=10)[0]
    np.testing.assert_allclose(system.local(theirs, mine), 0.0, atol=1e-5)


def test_a_wrench_on_a_free_base_acts_as_in_mujoco() -> None:
    system = Articulated(parse_robot(CHAIN, Path("chain.urdf"), free_base=True))
    model = mujoco_model(CHAIN, free=True)
    wrench = np.array([1.0, -2.0, 3.0, 0.3, -0.2, 0.1])
    position, velocity = np.array([0, 0, 0, 0.6, 0.0, 0.8, 0.0, 0.3, 0.1, -0.2]), np.zeros(9)
    theirs = mujoco_motion(model, position, velocity, np.tile(np.concatenate([wrench, np.zeros(3)]), (20, 1)), 0.01, 40)
    controls = np.zeros((1, 20, 12))
    controls[..., 6:] = wrench
    start = np.concatenate([position, velocity])[None]
    mine = simulate(system, start, controls, system.parameters().vector, 0.01, substeps=10)[0]
    np.testing.assert_allclose(system.local(theirs, mine), 0.0, atol=1e-11)


def allegro_text() -> str:
    """The URDF as MuJoCo can read it by itself: without its meshes, which it would only draw."""
    return re.sub(r"<visual>.*?</visual>", "", HAND_FILE.read_text(), flags=re.S)


@needs_allegro
def test_the_allegro_hand_swings_as_in_mujoco() -> None:
    system = Articulated(load_robot(HAND_FILE))
    model = mujoco_model(allegro_text())
    assert system.robot.joint_names == tuple(model.joint(i).name for i in range(16))
    assert system.robot.masses[1:].sum() == pytest.approx(model.body_mass[1:].sum(), rel=1e-12)
    lower, upper = system.robot.lower, system.robot.upper
    wide = Articulated(_without_limits(system.robot))
    raised = 0.5 * (lower + upper)
    torques = smooth_torques(200, np.full(16, 3e-4), 6)
    start = np.concatenate([raised, np.zeros(16)])
    # free fingers whirl (up to 16 rad in the second), so small errors grow: both take short steps
    theirs = mujoco_motion(model, raised, np.zeros(16), torques, 0.005, 40)
    mine = simulate(wide, start[None], controls_of(wide, torques), wide.parameters().vector, 0.005, substeps=20)[0]
    assert np.ptp(theirs[:, :16], axis=0).min() > 0.3
    np.testing.assert_allclose(mine[:, :16], theirs[:, :16], atol=1e-4)
    np.testing.assert_allclose(mine[:40, :16], theirs[:40, :16], atol=5e-8)


def _without_limits(robot):
    from dataclasses import replace

    free = np.full(len(robot.joint_names), np.inf)
    return replace(robot, lower=-free, upper=free)


@needs_allegro
def test_recorded_joint_motion_puts_the_links_where_mujoco_puts_them() -> None:
    system = Articulated(load_robot(HAND_FILE))
    table = np.genfromtxt(ALLEGRO / "joint_states.csv", delimiter=",", names=True)
    names = [name.removeprefix("joint_").removesuffix(".0") for name in system.robot.joint_names]
    angles = np.stack([table[f"q{name}_rad"] for name in names], axis=1)[::200]
    model = mujoco_model(allegro_text())
    data = mujoco.MjData(model)
    links = np.arange(1, 17)
    mujoco.mj_forward(model, data)
    points = data.xipos[links].copy()
    mine = system.keypoints_on(np.hstack([angles, 0.0 * angles]), points, links)
    for row, state in zip(mine, angles, strict=True):
        data.qpos[:] = state
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        np.testing.assert_allclose(row, data.xipos[links], atol=1e-8)


@needs_allegro
def test_the_allegro_mesh_belongs_to_its_links_and_moves_with_them() -> None:
    system = Articulated(load_robot(HAND_FILE))
    mesh = system.robot.mesh
    assert len(mesh.faces) > 10_000
    chosen = np.random.default_rng(0).choice(len(mesh.faces), 300, replace=False)
    centres, owner = mesh.vertices[mesh.faces[chosen]].mean(1), mesh.part[chosen]
    np.testing.assert_array_equal(system.links_of(centres), owner)
    state = system.sample_state(np.random.default_rng(1), 1)[0]
    np.testing.assert_allclose(system.vertices(state, centres), system.keypoints(state, centres), atol=1e-12)
    np.testing.assert_allclose(system.vertices(np.zeros(32), centres), centres, atol=1e-12)


def mechanical_energy(system: Articulated, states: Array, parameters: Array) -> Array:
    """Kinetic by central differences of the links' mass points, gravity's and the springs' energy, [T]."""
    robot, count = system.robot, len(system.action_names)
    first, h = len(system.state_names) - 2 * count - (6 if robot.free_base else 0), 1e-5
    angles = states[:, first : first + count]
    spring = 0.5 * (parameters[1 : 1 + count] * (angles - robot.spring_reference) ** 2).sum(axis=1)
    rates = states[:, -count:]
    turned, placed = system.frames(states)
    coms = placed + np.einsum("tlij,lj->tli", turned, robot.coms)
    moved = [states.copy(), states.copy()]
    for sign, s in zip((1.0, -1.0), moved, strict=True):
        s[:, first : first + count] += sign * h * rates
        if robot.free_base:
            v, w = states[:, -6 - count : -3 - count], states[:, -3 - count : -count]
            s[:, :3] += sign * h * v
            s[:, 3:7] = geometry.quat_multiply(states[:, 3:7], geometry.quat_from_rotvec(sign * h * w))
    frames = [system.frames(s) for s in moved]
    places = [p + np.einsum("tlij,lj->tli", r, robot.coms) for r, p in frames]
    velocity = (places[0] - places[1]) / (2 * h)
    spin_matrix = (frames[0][0] - frames[1][0]) / (2 * h) @ np.swapaxes(turned, -1, -2)
    omega = np.stack([spin_matrix[..., 2, 1], spin_matrix[..., 0, 2], spin_matrix[..., 1, 0]], axis=-1)
    inertia = turned @ robot.inertias @ np.swapaxes(turned, -1, -2)
    kinetic = 0.5 * (robot.masses * (velocity**2).sum(-1)).sum(1) + 0.5 * np.einsum(
        "tli,tlij,tlj->t", omega, inertia, omega
    )
    kinetic += 0.5 * (robot.armature * rates**2).sum(axis=1)
    return kinetic + spring + parameters[0] * (robot.masses * coms[..., 2]).sum(axis=1)


@pytest.mark.parametrize("free", [False, True])
def test_energy_is_kept_without_friction_and_torques(free: bool) -> None:
    system = Articulated(parse_robot(BRANCHED, Path("branched.xml"), free_base=free))
    names = system.parameters().names
    values = {name: 0.0 for name in names if name.startswith(("damping", "friction"))}
    parameters = system.parameters().with_values(values).vector
    start = system.sample_state(np.random.default_rng(7), 1)
    controls = np.zeros((1, 100, len(system.control_names)))
    states = simulate(system, start, controls, parameters, 0.01, substeps=10)[0]
    energy = mechanical_energy(system, states, parameters)
    assert np.ptp(energy) < 5e-8  # J, of some 10
    damped = system.parameters().vector
    lost = mechanical_energy(system, simulate(system, start, controls, damped, 0.01, substeps=10)[0], damped)
    assert (np.diff(lost) < 1e-9).all()


def test_dry_friction_has_its_torque_and_stops_a_joint() -> None:
    text = """<mujoco><option gravity="0 0 0"/><worldbody><body><joint name="j" axis="0 0 1" frictionloss="0.3"/>
    <geom type="box" size="0.1 0.1 0.1" mass="3"/></body></worldbody></mujoco>"""
    system = Articulated(parse_robot(text, Path("wheel.xml")))
    parameters = system.parameters().vector
    inertia = 3.0 * (0.2**2 + 0.2**2) / 12.0
    rates = simulate(system, np.array([[0.0, 8.0]]), np.zeros((1, 100, 2)), parameters, 0.005, substeps=2)[0, :, 1]
    # closed form of I w' = -c tanh(w / w_c): sinh(w / w_c) decays exponentially
    width = float(FRICTION_RATE)
    wanted = width * np.arcsinh(np.sinh(8.0 / width) * np.exp(-0.3 / (inertia * width) * 0.005 * np.arange(101)))
    np.testing.assert_allclose(rates, wanted, atol=1e-11)


def test_limits_are_springs_beyond_the_range_only() -> None:
    text = """<mujoco><compiler angle="radian"/><option gravity="0 0 0"/><worldbody><body>
    <joint name="j" axis="0 0 1" range="-0.5 0.5"/>
    <geom type="box" size="0.1 0.1 0.1" mass="3"/></body></worldbody></mujoco>"""
    system = Articulated(parse_robot(text, Path("wheel.xml")))
    start, still = np.array([[0.0, 2.0]]), np.zeros((1, 600, 2))
    motion = simulate(system, start, still, system.parameters().vector, 0.001, substeps=4)[0]
    inside = np.flatnonzero(motion[:, 0] < 0.5)
    np.testing.assert_allclose(motion[: inside[np.diff(inside, append=0) != 1][0], 1], 2.0, atol=1e-12)
    assert motion[:, 0].max() == pytest.approx(0.5 + 2.0 / 300.0, abs=2e-5)  # a quarter swing at 300 rad/s
    assert motion[450, 1] == pytest.approx(-2.0, abs=1e-3)


def test_link_masses_scale_inertias_along() -> None:
    system = Articulated(parse_robot(CHAIN, Path("chain.urdf")))
    parameters = system.parameters()
    assert [name for name in parameters.names if name.startswith("mass")] == [
        "mass_swing",
        "mass_carriage",
        "mass_wrist",
        "mass_tool",  # fixed to the wrist
    ]
    doubled = {"mass_swing": 2.4, "mass_carriage": 1.2, "mass_wrist": 0.8, "mass_tool": 0.5}
    heavier = parameters.with_values(doubled).vector
    start = np.array([[0.3, 0.1, -0.4, 1.0, -0.5, 2.0]])
    without = {name: 0.0 for name in parameters.names if name.startswith("damping")}
    one = parameters.with_values(without).vector
    two = np.where([name.startswith("damping") for name in parameters.names], 0.0, heavier)
    controls = np.zeros((1, 50, 6))
    a, b = (simulate(system, start, controls, p, 0.01, substeps=2) for p in (one, two))
    np.testing.assert_allclose(a, b, atol=1e-10)  # all masses doubled, only gravity acts: the same motion


def test_the_mass_of_a_link_that_is_fixed_to_another_moves_as_in_mujoco() -> None:
    system = Articulated(parse_robot(CHAIN, Path("chain.urdf"))).called_as({"payload_mass"})
    values = system.parameters().with_values({"payload_mass": 0.6})
    assert "mass_tool" not in values.names
    heavier = CHAIN.replace('<mass value="0.25"/>', '<mass value="0.6"/>')
    for name, value in (("ixx", 0.001), ("iyy", 0.0012), ("izz", 0.0009)):
        heavier = heavier.replace(f'{name}="{value}"', f'{name}="{2.4 * value}"')
    tool = heavier[heavier.index('name="tool"') :]
    scaled = tool.replace("0.0004", "0.00096").replace("-0.0003", "-0.00072").replace("0.0002", "0.00048")
    model = mujoco_model(heavier.replace(tool, scaled))
    start, torques = np.array([0.3, 0.1, -0.4, 1.0, -0.5, 2.0]), smooth_torques(100, np.array([3.0, 4.0, 0.5]), 1)
    theirs = mujoco_motion(model, start[:3], start[3:], torques, 0.01, 20)
    ours = simulate(system, start[None], controls_of(system, torques), values.vector, 0.01, substeps=20)[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_the_gradient_by_a_payload_is_that_of_differences() -> None:
    system = Articulated(parse_robot(CHAIN, Path("chain.urdf")))
    values, column = system.parameters().vector, system.parameters().names.index("mass_tool")
    start, controls = torch.tensor([[0.3, 0.1, -0.4, 1.0, -0.5, 2.0]]).double(), torch.zeros((1, 30, 6)).double()

    def end(mass: float) -> float:
        moved = np.where(np.arange(len(values)) == column, mass, values)
        return float(simulate(system, start.numpy(), controls.numpy(), moved, 0.005)[0, -1].sum())

    parameters = torch.tensor(values).requires_grad_()
    rollout(system, start, controls, parameters, 0.005)[0, -1].sum().backward()
    assert parameters.grad is not None
    wanted = (end(0.25 + 1e-5) - end(0.25 - 1e-5)) / 2e-5
    assert float(parameters.grad[column]) == pytest.approx(wanted, rel=1e-6)


def test_a_robot_with_two_ends_has_no_payload_unless_a_link_is_called_so() -> None:
    two_ends = parse_robot(BRANCHED, Path("branched.xml"))
    with pytest.raises(UsageError, match="ends in leaf, other"):
        Articulated(two_ends).called_as({"payload_mass"})
    named = Articulated(parse_robot(BRANCHED.replace('"other"', '"payload"'), Path("branched.xml")))
    assert named.called_as({"payload_mass"}).parameters()["payload_mass"].value == pytest.approx(0.4)


def test_hover_controls_hold_a_fixed_base_robot_still() -> None:
    for system in (Articulated(), Articulated(parse_robot(BRANCHED, Path("branched.xml"))), systems.get("hand")):
        parameters = system.parameters().vector
        controls = np.tile(system.hover_controls(parameters), (1, 20, 1))
        still = simulate(system, system.rest_state()[None], controls, parameters, 0.001)
        np.testing.assert_allclose(still, [[system.rest_state()] * 21], atol=1e-9)


def risp_torques(rng: np.random.Generator, batch: int, largest: bool) -> Array:
    """RISP's action curves, m sin(2 pi clip((t - d) / 40, 0, 1)), as controls [batch, 90, 26] of the hand."""
    size = np.ones((batch, 1, 13)) if largest else rng.uniform(0.0, 1.0, (batch, 1, 13))
    delay = rng.uniform(0.0, 40.0, (batch, 1, 13))
    curve = np.sin(2.0 * np.pi * np.clip((np.arange(90)[:, None] - delay) / 40.0, 0.0, 1.0))
    controls = np.zeros((batch, 90, 26))
    controls[..., :13] = RISP_HAND.torque * size * curve
    return controls


def test_the_hand_has_thirteen_joints_in_five_fingers_and_keeps_off_its_limits() -> None:
    hand = systems.get("hand")
    names, rng = hand.parameters().names, np.random.default_rng(9)
    assert len(hand.action_names) == 13
    assert [name for name in names if name.startswith("stiffness")] == [f"stiffness_{i}" for i in range(5)]
    np.testing.assert_allclose([hand.robot.upper, -hand.robot.lower], 0.25 * np.pi)
    controls = np.concatenate([risp_torques(rng, 60, largest) for largest in (False, True)])
    motion = simulate(hand, np.zeros((120, 26)), controls, hand.parameters().vector, RISP_HAND.step_s, substeps=2)
    peaks = np.abs(motion[..., :13]).max(axis=1)
    assert peaks.max() < 0.9 * 0.25 * np.pi  # measured 0.68 over 500 draws
    assert peaks[60:].min() > 0.4
    # positive is towards the underside, for the thumb too
    tips = hand.keypoints(np.concatenate([np.full(13, 0.3), np.zeros(13)]), [[0.14, 0.011, 0.0], [0.039, 0.085, 0.0]])
    assert (tips[:, 2] < -0.01).all()


def test_the_hand_moves_as_in_mujoco() -> None:
    hand = systems.get("hand")
    model = mujoco_model(hand_mjcf(RISP_HAND))
    names = hand.parameters().names
    stiffness = {f"stiffness_{i}": 0.4 * (0.8 + 0.2 * i) for i in range(5)}
    still = {name: 0.0 for name in names if name.startswith("friction")}
    parameters = hand.parameters().with_values(stiffness | still).vector
    model.jnt_stiffness[:] = [stiffness[f"stiffness_{name[6]}"] for name in hand.robot.joint_names]
    controls = risp_torques(np.random.default_rng(10), 1, largest=True)
    theirs = mujoco_motion(model, np.zeros(13), np.zeros(13), controls[0, :, :13], 0.01, 40)
    mine = simulate(hand, np.zeros((1, 26)), controls, parameters, 0.01, substeps=20)[0]
    assert np.abs(theirs[:, :13]).max() < 0.25 * np.pi  # its limits are off
    np.testing.assert_allclose(mine[:, :13], theirs[:, :13], atol=1e-7)


def test_gradients_of_a_long_rollout_match_differences() -> None:
    system = Articulated(parse_robot(BRANCHED, Path("branched.xml"), free_base=True))
    rng = np.random.default_rng(8)
    start = system.sample_state(rng, 2)
    controls = 0.1 * rng.normal(size=(2, 40, len(system.control_names)))
    parameters = np.maximum(system.parameters().vector, 0.01)  # friction and damping may not be negative
    weights = rng.normal(size=start.shape)
    given = [torch.tensor(a, requires_grad=True) for a in (start, controls, parameters)]
    (rollout(system, *given, 0.01, substeps=2)[:, -1] * torch.tensor(weights)).sum().backward()

    def value(s: Array, u: Array, p: Array) -> float:
        return float((simulate(system, s, u, p, 0.01, substeps=2)[:, -1] * weights).sum())

    point, h = [start, controls, parameters], 1e-5
    for index in (1, 2):
        direction = rng.normal(size=point[index].shape) * np.maximum(np.abs(point[index]), 0.1)
        ahead, behind = list(point), list(point)
        ahead[index], behind[index] = point[index] + h * direction, point[index] - h * direction
        numeric = (value(*ahead) - value(*behind)) / (2 * h)
        assert float((given[index].grad.numpy() * direction).sum()) == pytest.approx(numeric, rel=1e-7)


def urdf(joint: str = 'type="revolute"', inside: str = "", mass: str = "1", visual: str = "") -> str:
    limit = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
    inertia = '<inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/>'
    return f"""<robot name="r"><link name="a"/>
    <link name="b">{visual}<inertial><mass value="{mass}"/>{inertia}</inertial></link>
    <joint name="j" {joint}><parent link="a"/><child link="b"/><axis xyz="0 1 0"/>{limit}{inside}</joint></robot>"""


def mjcf(body: str, after: str = "") -> str:
    return f"<mujoco><worldbody><body name='b'><geom size='0.1'/>{body}</body></worldbody>{after}</mujoco>"


LOOP = "<equality><connect body1='b' anchor='0 0 1'/></equality>"
BROKEN = {
    "broken XML": ("<robot name='r'><link>", "not valid XML"),
    "another format": ("<sdf/>", "begins with <sdf>"),
    "xacro": ('<robot xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:macro/></robot>', "run: xacro"),
    "ball": (urdf('type="ball"'), "joint 'j' .* of type 'ball'.*one of revolute"),
    "planar": (urdf('type="planar"'), "joint 'j' .* of type 'planar'"),
    "mimic": (urdf(inside='<mimic joint="j"/>'), "joint 'j' .* mimics"),
    "zero mass": (urdf(mass="0"), "link 'b' .* moves and has no mass"),
    "negative mass": (urdf(mass="-2"), "link 'b' .* mass of -2 kg"),
    "NaN": (urdf(visual="<visual><origin xyz='0 nan 0'/></visual>"), "xyz of <origin> .* is '0 nan 0'"),
    "huge": (mjcf("<joint/>").replace("<body", "<body pos='0 0 1e300'"), "has a body_pos of 1e.300"),
    "not a number": (urdf(mass="heavy"), "mass 'heavy' of link 'b'"),
    "mesh": (
        urdf(visual="<visual><geometry><mesh filename='package://p/x.stl'/></geometry></visual>"),
        "x.stl'.*missing",
    ),
    "no joint": (urdf('type="fixed"'), "no joint that moves"),
    "MJCF ball": (mjcf("<joint name='j' type='ball'/>"), "joint 'j' .* is a ball joint"),
    "MJCF loop": (mjcf("<joint/>", LOOP), "closed loops"),
    "MJCF mesh": (mjcf("<joint/>", "<asset><mesh file='y.obj'/></asset>"), "y.obj'.*missing"),
    "MJCF massless": ("<mujoco><worldbody><body name='b'><joint/></body></worldbody></mujoco>", "link 'b' .* no mass"),
    "MJCF unknown": (mjcf("<joint/><jiont/>"), "cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_read_is_named(case: str, tmp_path: Path) -> None:
    text, message = BROKEN[case]
    path = tmp_path / "robot.xml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Articulated(path)


def test_files_bases_and_actuators_are_refused_or_warned_of(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_robot(tmp_path / "none.urdf")
    with pytest.raises(UsageError, match="file, fixed or free"):
        Articulated(base="floating")
    with pytest.raises(InputError, match="for a free base"):
        parse_robot(mjcf("<joint/>"), tmp_path / "r.xml", free_base=True)
    with pytest.warns(UserWarning, match="actuators .* are ignored"):
        parse_robot(mjcf("<joint name='j'/>", "<actuator><motor joint='j'/></actuator>"), tmp_path / "r.xml")


def test_meshes_are_found_and_placed(tmp_path: Path) -> None:
    from trimesh import creation

    (tmp_path / "meshes").mkdir()
    creation.box((0.2, 0.1, 0.1)).export(tmp_path / "meshes" / "x.stl")
    visual = """<visual><origin xyz="0.3 0 0" rpy="0 0 1.5707963267948966"/><geometry>
    <mesh filename="package://p/meshes/x.stl" scale="1 2 1"/></geometry></visual>"""
    path = tmp_path / "robot.urdf"
    path.write_text(urdf(visual=visual))
    robot = load_robot(path)
    assert robot.masses[1] == pytest.approx(1.0)  # what is only seen weighs nothing
    np.testing.assert_allclose(robot.mesh.vertices.min(0), [0.2, -0.1, -0.05], atol=1e-6)
    np.testing.assert_allclose(robot.mesh.vertices.max(0), [0.4, 0.1, 0.05], atol=1e-6)
    turned = Articulated(robot).vertices(np.array([0.5 * np.pi, 0.0]), robot.mesh.vertices)
    np.testing.assert_allclose(turned.min(0)[2], -0.4, atol=1e-6)  # about +y: x goes down


def test_a_joint_whose_limits_leave_zero_out_rests_at_the_nearest() -> None:
    text = """<mujoco><compiler angle="radian"/><worldbody><body><joint name="a" axis="0 1 0" range="0.5 1"/>
    <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1"/></body></worldbody></mujoco>"""
    system = Articulated(parse_robot(text, Path("arm.xml")))
    np.testing.assert_array_equal(system.rest_state(), [0.5, 0.0])
    torque = system.hover_controls(system.parameters().vector)[0]
    assert torque == pytest.approx(-9.81 * 0.15 * np.cos(0.5))
