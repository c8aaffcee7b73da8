"""What every registered system has to keep; a new file in engine/systems is tested unasked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.differences import finite_differences, like
from vid2phys import geometry
from vid2phys.engine import replay, systems
from vid2phys.engine.kernels.runtime import wp
from vid2phys.engine.layout import NO_RATE, rates
from vid2phys.engine.rollout import linearize, rollout, simulate
from vid2phys.engine.stepping import run_interval
from vid2phys.engine.system import BODY, WORLD, System, is_implicit
from vid2phys.engine.systems.rigid_contact import Box, Sphere
from vid2phys.errors import SimulationError, UsageError
from vid2phys.types import Array

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
OPTIONS: dict[str, tuple[dict, ...]] = {
    "cloth": ({}, {"ground": True, "load_vertices": (0, 4), "per_vertex_mass": True, "per_edge_rest_angle": True}),
    "rigid_contact": ({}, {"bodies": (Sphere(0.03), Box((0.02, 0.03, 0.04))), "has_actions": False}),
    "quadrotor": ({"input": "wrench"}, {"input": "rotors"}),
    "articulated": ({}, {"base": "free"}),
    "rod": ({"cells": (4, 1, 1), "elements": "linear"},),
    "soft_body": (
        {},
        {"elements": "linear"},
        {"moduli": "lame", "pinned": (0, 1, 2, 3), "load_vertices": (8, 9), "muscles": [0, -1] * 6},
        {"elements": "linear", "locking": "nodal", "ground": True, "per_vertex_mass": True, "muscles": [0, 1, 1] * 4},
    ),
}
CASES = [(name, options) for name in systems.available() for options in OPTIONS.get(name, ({},))]
SCHEMES = [(*case, integrator) for case in CASES for integrator in systems.get(case[0], **case[1]).integrators]
LONGEST_S = 0.03
# what controls that are zero at rest are varied by, where it is not 1e-4
CONTROL_SIZES = {"cloth": 0.1, "gear": 1e-2, "rod": 10.0, "soft_body": 1.0, "walker": 0.01}
# by how much steps of differences along rollouts are smaller, where stiff tets bend or friction's kinks are near
DIFFERENCE_SIZES = {"gear": 0.1, "rod": 0.3, "soft_body": 0.3}


COMPARED_COLUMNS = 40  # of the derivatives by a large state, drawn once


def case_name(case: tuple) -> str:
    options = (str(key if isinstance(value, list | tuple | bool) else value) for key, value in case[1].items())
    return "-".join([case[0], *options, *case[2:]])


@pytest.fixture(params=CASES, ids=case_name)
def system(request: pytest.FixtureRequest) -> System:
    return systems.get(request.param[0], **request.param[1])


@pytest.fixture(params=SCHEMES, ids=case_name)
def scheme(request: pytest.FixtureRequest) -> tuple[System, str]:
    """A system with one of its integrators."""
    return systems.get(request.param[0], **request.param[1]), request.param[2]


def interval_s(system: System, parameters: Array, substeps: int = 1) -> float:
    """Length of an interval that every integrator manages with room."""
    return min(LONGEST_S, 0.3 * substeps * system.longest_step_s(parameters))


@pytest.fixture(scope="module", autouse=True)
def _verify_array_access() -> Iterator[None]:
    """Warp notes what a kernel reads and writes only when it is compiled with the check on."""
    wp.config.verify_autograd_array_access = True
    for module in wp._src.context.user_modules.values():
        module.mark_modified()
    yield
    wp.config.verify_autograd_array_access = False


def control_size(system: System) -> float:
    return CONTROL_SIZES.get(system.name, 1e-4)


def scene(system: System, batch: int = 3, steps: int = 2, seed: int = 1) -> tuple[Array, Array, Array]:
    """Random states [B, N], controls [B, S, M] about hovering with disturbances, and parameters [P]."""
    rng = np.random.default_rng(seed)
    values = system.parameters().vector
    parameters = np.where(values == 0.0, 0.02, values) * rng.uniform(0.7, 1.4, values.size)
    upper = np.array([p.upper for p in system.parameters()])
    parameters = np.where(parameters > upper, 0.5 * (values + upper), parameters)
    hover = system.hover_controls(parameters)
    scale = np.where(hover == 0.0, control_size(system), 0.3 * np.abs(hover))
    controls = hover + scale * rng.normal(size=(batch, steps, hover.size))
    return system.sample_state(rng, batch), controls, parameters


def parameter_steps(system: System, parameters: Array) -> Array:
    """Steps of differences in parameters: small against the value and against the way to the upper bound."""
    upper = np.array([p.upper for p in system.parameters()])
    return 1e-2 * DIFFERENCE_SIZES.get(system.name, 1.0) * np.minimum(parameters, upper - parameters)


def relative_error(a: Array, b: Array) -> float:
    """Largest error of any column, relative to the size of that column."""
    size = np.maximum(np.abs(b).max(axis=-2, keepdims=True), 1e-12)
    return float((np.abs(a - b) / size).max())


def test_names_fit_the_layout(system: System) -> None:
    states = system.sample_state(np.random.default_rng(0), 2)
    assert system.name in systems.available()
    assert states.shape == (2, len(system.state_names))
    assert system.tangent_basis(states).shape == (2, len(system.state_names), len(system.tangent_names))
    assert len(system.action_names) == len(system.action_units)
    assert system.control_names[: len(system.action_names)] == system.action_names
    assert system.hover_controls(system.parameters().vector).shape == (len(system.control_names),)
    assert "imits" in (type(system).__doc__ or "")
    for p in system.parameters():
        assert p.lower <= p.value <= p.upper


def test_states_have_the_axes_and_rates_that_are_stated(system: System) -> None:
    """Coordinates change at the rates named after them, in the axes that the system states for them.

    The axes are those of `state_frames`: the tangents of a free body's turns are in its own.
    """
    names = system.state_names
    frame_of = {name: frame for start, frame in sorted(system.state_frames.items(), key=lambda item: len(item[0]))
                for name in names if name.startswith(start)}  # fmt: skip
    assert set(frame_of) == set(names)
    batch, controls, parameters = scene(system, steps=1)
    dt_s = min(1e-7, interval_s(system, parameters))
    ahead = simulate(system, batch, controls, parameters, dt_s)[:, 1]
    change = system.local(batch, ahead) / dt_s
    for d, rate in enumerate(rates(system.tangent_names)):
        if rate == NO_RATE:
            assert not system.tangent_names[d].endswith(("_m", "_rad"))
            continue
        name = system.tangent_names[rate]
        before, after = batch[:, names.index(name)], ahead[:, names.index(name)]
        if name.startswith("angular_velocity") and system.tangent_names[d].startswith("rotation"):
            before, after = (_in_body(system, states, name, frame_of[name]) for states in (batch, ahead))
        slack = np.abs(after - before) + 1e-6 * (1.0 + np.abs(before))
        assert (np.abs(change[:, d] - before) <= slack).all(), name


def _in_body(system: System, states: Array, name: str, frame: str) -> Array:
    """An angular velocity's part [B] in the axes of its body, by the axes that it is said to be in."""
    suffix = name.removeprefix("angular_velocity_")[1:].removesuffix("_rad_s")
    part = "xyz".index(name.removeprefix("angular_velocity_")[0])
    omega = states[:, [system.state_names.index(f"angular_velocity_{axis}{suffix}_rad_s") for axis in "xyz"]]
    quat = states[:, [system.state_names.index(f"orientation_quat_{axis}{suffix}") for axis in "wxyz"]]
    assert frame in (BODY, WORLD)
    return (omega if frame == BODY else geometry.rotate(geometry.quat_conjugate(quat), omega))[:, part]


def test_replays_are_what_launches_are(scheme: tuple[System, str], monkeypatch: pytest.MonkeyPatch) -> None:
    system, integrator = scheme
    if not system.only_launches(integrator):
        pytest.skip("its steps are more than launches")
    results: dict[str, list[Array]] = {"launched": [], "replayed": []}
    for way, often in (("launched", 10**9), ("replayed", 0)):
        monkeypatch.setattr(replay, "_OFTEN", often)
        for seed in (1, 2):  # of the second, nothing of the first may be left
            *inputs, parameters = scene(system, seed=seed)
            dt_s = interval_s(system, parameters, 3)
            how = {"integrator": integrator, "substeps": 3}
            results[way].append(simulate(system, *inputs, parameters, dt_s, **how))
            tensors = [torch.tensor(a, requires_grad=True) for a in (*inputs, parameters)]
            states = rollout(system, *tensors, dt_s, **how)
            loss = (states * torch.linspace(-1.0, 1.0, states.shape[-1], dtype=torch.float64)).sum()
            others = [torch.tensor(a, requires_grad=True) for a in scene(system, seed=seed + 2)]
            rollout(system, *others, dt_s, **how)  # before the first one's way back
            results[way] += [states.detach().numpy(), *(g.numpy() for g in torch.autograd.grad(loss, tensors))]
    for launched, replayed in zip(results["launched"], results["replayed"], strict=True):
        np.testing.assert_array_equal(replayed, launched)


def test_retract_and_local_are_inverse(system: System) -> None:
    rng = np.random.default_rng(3)
    a, b = system.sample_state(rng, 20), system.sample_state(rng, 20)
    tangent = rng.normal(0.0, 0.5, (20, len(system.tangent_names)))
    np.testing.assert_allclose(system.local(a, system.retract(a, tangent)), tangent, atol=1e-12)
    np.testing.assert_allclose(system.local(system.retract(a, system.local(a, b)), b), 0.0, atol=1e-12)
    np.testing.assert_allclose(
        system.cotangent_basis(a) @ system.tangent_basis(a), np.eye(tangent.shape[1])[None].repeat(20, 0), atol=1e-12
    )
    zero = np.zeros(tangent.shape[1])
    for basis, state in zip(system.tangent_basis(a), a, strict=True):
        numeric = finite_differences(lambda moves, s=state: system.retract(like(moves, s), moves), zero, zero + 1e-3)
        np.testing.assert_allclose(basis, numeric, atol=1e-11)


def test_a_motion_can_start_at_rest(system: System) -> None:
    rest = system.rest_state()
    assert rest.shape == (len(system.state_names),)
    np.testing.assert_allclose(system.retract(rest, np.zeros(len(system.tangent_names))), rest, atol=1e-15)
    parameters = system.parameters().vector
    controls = np.tile(system.hover_controls(parameters), (1, 20, 1))
    assert np.isfinite(simulate(system, rest[None], controls, parameters, interval_s(system, parameters))).all()


def test_linearize_agrees_with_finite_differences(scheme: tuple[System, str]) -> None:
    system, integrator = scheme
    states, controls, parameters = scene(system, batch=3, steps=1)
    dt_s = interval_s(system, parameters, substeps=3) * np.array([0.7, 1.0, 1.3])
    size = len(system.tangent_names)
    columns = np.sort(np.random.default_rng(4).permutation(size)[:COMPARED_COLUMNS])
    result = linearize(system, states, controls[:, 0], parameters, dt_s, integrator=integrator, substeps=3)
    for t in range(3):

        def after(states: Array, controls: Array, thetas: Array, t: int = t) -> Array:
            options = {"integrator": integrator, "substeps": 3}
            out = simulate(system, states, controls[:, None], thetas, dt_s[t], **options)
            return system.local(like(states, result.next_states[t]), out[:, 1])

        zero = np.zeros(size)
        state, u = states[t], controls[t, 0]
        np.testing.assert_allclose(after(state[None], u[None], parameters), 0.0, atol=1e-14)
        by_state = finite_differences(
            lambda d, s=state, u=u: after(system.retract(like(d, s), d), like(d, u), parameters),
            zero,
            zero + 1e-3,
            columns,
        )
        by_control = finite_differences(
            lambda c, s=state: after(like(c, s), c, parameters),
            u,
            np.maximum(1e-3 * np.abs(u), 1e-2 * control_size(system)),
        )
        by_parameter = finite_differences(
            lambda p, s=state, u=u: after(like(p, s), like(p, u), p), parameters, parameter_steps(system, parameters)
        )
        assert relative_error(result.A[t][:, columns], by_state) < 1e-6
        assert relative_error(result.B[t], by_control) < 1e-6
        assert relative_error(result.C[t], by_parameter) < 1e-6


def test_reverse_mode_agrees_with_linearize_and_finite_differences(scheme: tuple[System, str]) -> None:
    system, integrator = scheme
    states, controls, parameters = scene(system, batch=2, steps=5)
    dt_s = interval_s(system, parameters, substeps=2)
    rng = np.random.default_rng(5)
    weights = rng.normal(size=(2, 6, states.shape[1]))
    inputs = [torch.tensor(a, requires_grad=True) for a in (states, controls, parameters)]
    loss = (torch.tensor(weights) * rollout(system, *inputs, dt_s, integrator=integrator, substeps=2)).sum()
    loss.backward()
    reverse = [i.grad.numpy() for i in inputs]

    def value(s: Array, u: Array, p: Array) -> float:
        return float((weights * simulate(system, s, u, p, dt_s, integrator=integrator, substeps=2)).sum())

    # forward sensitivities: the linear recursion over the intervals' Jacobians
    trajectory = simulate(system, states, controls, parameters, dt_s, integrator=integrator, substeps=2)
    by_parameter, by_tangent = np.zeros(parameters.size), np.zeros((2, len(system.tangent_names)))
    for b in range(2):
        steps = linearize(
            system, trajectory[b, :-1], controls[b], parameters, np.full(5, dt_s), integrator=integrator, substeps=2
        )
        by_state, by_p = np.eye(len(system.tangent_names)), np.zeros((len(system.tangent_names), parameters.size))
        by_tangent[b] += weights[b, 0] @ system.tangent_basis(trajectory[b, 0])
        for k in range(5):
            by_state, by_p = steps.A[k] @ by_state, steps.A[k] @ by_p + steps.C[k]
            row = weights[b, k + 1] @ system.tangent_basis(trajectory[b, k + 1])
            by_tangent[b], by_parameter = by_tangent[b] + row @ by_state, by_parameter + row @ by_p
    own_tangent = np.einsum("bn,bnd->bd", reverse[0], system.tangent_basis(states))
    assert relative_error(own_tangent[:, None], by_tangent[:, None]) < 1e-6
    np.testing.assert_allclose(reverse[2], by_parameter, rtol=1e-6)

    steps_p = parameter_steps(system, parameters)
    numeric = finite_differences(lambda p: np.array([value(states, controls, each) for each in p]), parameters, steps_p)
    np.testing.assert_allclose(reverse[2], numeric, rtol=1e-6)
    direction_u = np.maximum(np.abs(controls), 0.1 * control_size(system)) * rng.normal(size=controls.shape)
    direction_s = rng.normal(size=(2, len(system.tangent_names)))

    def along(e: Array) -> Array:
        moved = [(system.retract(states, a * direction_s), controls + b * direction_u) for a, b in e]
        return np.array([value(*each, parameters) for each in moved])

    steps = np.full(2, 1e-3 * DIFFERENCE_SIZES.get(system.name, 1.0))
    numeric = finite_differences(along, np.zeros(2), steps)
    analytic = [(own_tangent * direction_s).sum(), (reverse[1] * direction_u).sum()]
    np.testing.assert_allclose(analytic, numeric, rtol=1e-6)


def test_the_check_of_array_access_is_on(system: System) -> None:
    states, controls, parameters = scene(system, batch=2, steps=1)
    arrays = [
        wp.array(a, dtype=wp.float64, device="cpu", requires_grad=True) for a in (states, controls, parameters[None])
    ]
    dt_s = wp.array(np.full((1, 1), interval_s(system, parameters)), dtype=wp.float64, device="cpu")
    with wp.Tape():
        out = run_interval(system, *arrays, dt_s, step=0, integrator=system.integrators[0], substeps=1)
    with wp.Tape(), pytest.raises(UserWarning, match="already been read"):
        system.launch_step(out, *arrays[1:], dt_s, arrays[0], step=0, fraction=1.0, integrator=system.integrators[0])


def test_batch_equals_single_rollouts(system: System) -> None:
    states, controls, parameters = scene(system, batch=4, steps=6)
    own = parameters * np.linspace(0.9, 1.0, 4)[:, None]
    dt_s = interval_s(system, own[0], substeps=3) * np.linspace(0.3, 1.0, 6)
    together = simulate(system, states, controls, own, dt_s, substeps=3)
    for b in range(4):
        alone = simulate(system, states[b : b + 1], controls[b : b + 1], own[b], dt_s, substeps=3)
        np.testing.assert_array_equal(together[b : b + 1], alone)
    in_torch = rollout(system, *(torch.tensor(a) for a in (states, controls, own)), dt_s, substeps=3)
    np.testing.assert_array_equal(in_torch.numpy(), together)


def test_keypoints_jacobian(system: System) -> None:
    states = scene(system)[0]
    points = np.random.default_rng(2).normal(size=(5, 3))
    jacobian = system.keypoints_jacobian(states, points)
    zero = np.zeros(len(system.tangent_names))
    for state, mine in zip(states, jacobian, strict=True):
        numeric = finite_differences(
            lambda d, s=state: system.keypoints(system.retract(like(d, s), d), points), zero, zero + 1e-3
        )
        np.testing.assert_allclose(mine, numeric, atol=1e-10)


def test_what_cannot_be_computed_is_refused(system: System) -> None:
    states, controls, parameters = scene(system, batch=1, steps=1)
    dt_s = interval_s(system, parameters)
    broken = states.copy()
    broken[0, 0] = np.nan
    with pytest.raises(SimulationError, match=system.state_names[0]):
        simulate(system, broken, controls, parameters, dt_s)
    bounded = next(i for i, p in enumerate(system.parameters()) if np.isfinite(p.lower))
    outside = parameters.copy()
    outside[bounded] = system.parameters().items[bounded].lower - 1.0
    with pytest.raises(UsageError, match=system.parameters().items[bounded].name):
        simulate(system, states, controls, outside, dt_s)
    with pytest.raises(UsageError, match="integrator"):
        simulate(system, states, controls, parameters, dt_s, integrator="leapfrog")
    explicit = [name for name in system.integrators if not is_implicit(name)]
    longest = system.longest_step_s(parameters)
    if explicit and np.isfinite(longest):
        with pytest.raises(UsageError, match="substeps or more"):
            simulate(system, states, controls, parameters, 3.0 * longest, integrator=explicit[0])
