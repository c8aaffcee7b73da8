"""The walker against an energy differentiated by PyTorch, closed forms and conservation; on the ground it walks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from tests.oracles import shell as oracle
from vid2phys.engine.rollout import rollout, simulate
from vid2phys.engine.systems.walker import Walker, two_legged
from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array

ALOFT = np.array([0.0, 0.0, 1.0])  # above the ground
TRIANGLE = np.array([[0.0, 0, 0], [0.2, 0, 0], [0, 0, 0.1]])


def run(walker: Walker, x: Array, controls: Array, dt_s: float, v: Array | float = 0.0, **values: float) -> Array:
    vector = walker.parameters().with_values(values).vector
    substeps = int(np.ceil(dt_s / walker.longest_step_s(vector)))
    return simulate(walker, walker.state(x, v)[None], controls[None], vector, dt_s, substeps=substeps)[0]


def test_forces_are_minus_the_gradient_of_the_energy_with_activation() -> None:
    rng = np.random.default_rng(0)
    walker = Walker()
    p = walker.parameters()
    reference = oracle.Sheet(
        walker.rest_m, walker.elements, p["shear_stiffness"].value, p["area_stiffness"].value, 0.0, p["damping"].value
    )
    x = walker.rest_m + ALOFT + np.array([0.01, 0.0, 0.01]) * rng.normal(size=walker.rest_m.shape)
    v = np.array([1.0, 0.0, 1.0]) * rng.normal(size=x.shape)
    activation = rng.normal(0.0, 0.2, len(walker.elements))
    positions = torch.tensor(x, requires_grad=True)
    corners = positions[walker.elements][:, :, [0, 2]]
    edges = torch.stack([corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]], dim=1)
    # K A a J, which the activation adds to the energy but for a constant; A J is the area
    added = p["area_stiffness"].value * (torch.tensor(activation) * 0.5 * torch.linalg.det(edges)).sum()
    expected = oracle.forces(reference, x, v) - torch.autograd.grad(added, positions)[0].numpy()
    controls = np.array([[*activation, 0.0, 0.0]])
    after = run(walker, x, controls, 1e-6, v, gravity=0.0)[1]
    got = walker.masses(p.vector)[:, None] * (walker.velocities(after) - v) / 1e-6
    assert np.abs(expected).max() > 1.0
    np.testing.assert_allclose(got, expected, atol=1e-9 * np.abs(expected).max())


def test_all_activated_it_shrinks_to_the_area_asked_for() -> None:
    walker = Walker()
    controls = np.zeros((40, 12))
    controls[:, :10] = 0.3
    states = run(walker, walker.rest_m + ALOFT, controls, 0.1, gravity=0.0, damping=60.0)
    x = walker.positions(states[-1])
    np.testing.assert_allclose(pdist(x), np.sqrt(0.7) * pdist(walker.rest_m), rtol=1e-6)


def test_a_triangle_inside_out_turns_back() -> None:
    walker = Walker(TRIANGLE, np.array([[0, 1, 2]]))
    start = TRIANGLE * [1.0, 1.0, -0.3] + [0.0, 0.0, 1.0]
    states = run(walker, start, np.zeros((20, 3)), 0.1, gravity=0.0, damping=6.0)
    x = walker.positions(states[-1])
    assert np.cross(x[2] - x[0], x[1] - x[0])[1] == pytest.approx(0.02, rel=1e-4)


def test_nothing_happens_along_y_and_aloft_momentum_is_kept() -> None:
    rng = np.random.default_rng(1)
    walker = Walker(size="paper")
    controls = np.concatenate([rng.normal(0.0, 0.2, (20, 104)), np.zeros((20, 2))], axis=1)
    v = rng.normal(0.0, 0.3, walker.rest_m.shape)
    states = run(walker, walker.rest_m + ALOFT, controls, 0.01, v, gravity=0.0)
    mass = walker.masses(walker.parameters().vector)
    positions, velocities = walker.positions(states), walker.velocities(states)
    np.testing.assert_array_equal(positions[..., 1], 0.0)
    np.testing.assert_array_equal(velocities[1:, :, 1], 0.0)
    linear = np.einsum("v,tvx->tx", mass, velocities)[:, [0, 2]]
    angular = np.einsum("v,tv->t", mass, np.cross(positions, velocities)[..., 1])[1:]
    np.testing.assert_allclose(linear, np.tile(linear[0], (21, 1)), atol=1e-12)
    np.testing.assert_allclose(angular, angular[0], atol=1e-12)


def test_it_stands_as_deep_as_the_springs_of_its_feet_say() -> None:
    walker = Walker(size="paper")
    assert (len(walker.rest_m), len(walker.elements)) == (74, 104)
    states = run(walker, walker.rest_m, np.zeros((20, 106)), 0.1, damping=4.0, k_d=4.0)
    x, p = walker.positions(states[-1]), walker.parameters()
    depth = np.maximum(-x[:, 2], 0.0)
    assert depth.sum() == pytest.approx(walker.masses(p.vector).sum() * 9.81 / p["k_e"].value, rel=1e-3)
    legs = x[walker.rest_m[:, 2] == 0.2, 2].mean() - x[walker.rest_m[:, 2] == 0.0, 2].mean()
    assert 0.95 * 0.2 < legs < 0.99 * 0.2


def gait(walker: Walker, frames: int, dt_s: float) -> Array:
    """Activations of a wave of 4 Hz that runs along the body, and no force from outside."""
    centre = walker.rest_m[walker.elements].mean(axis=1)
    phase = 2.0 * np.pi * (4.0 * np.arange(frames)[:, None] * dt_s + centre[:, 0] / 0.45)
    return np.concatenate([0.1 * np.sin(phase), np.zeros((frames, 2))], axis=1)


def test_a_wave_of_activation_carries_it_and_needs_friction() -> None:
    walker, dt_s = Walker(size="paper"), 1.0 / 30.0
    controls = gait(walker, 30, dt_s)
    mass = walker.masses(walker.parameters().vector)
    with_friction, without = (
        mass @ walker.positions(run(walker, walker.rest_m, controls, dt_s, mu=mu)[-1]) / mass.sum() for mu in (0.8, 0.0)
    )
    assert abs(without[0] - mass @ walker.rest_m[:, 0] / mass.sum()) < 1e-9
    assert with_friction[0] > 0.2  # half its width in a second


def test_gradient_of_the_way_by_the_activations_of_the_paper_s_walker() -> None:
    """Reverse mode over 192 steps on the ground against differences along one direction."""
    walker, dt_s = Walker(size="paper"), 1.0 / 60.0
    rng = np.random.default_rng(2)
    u = gait(walker, 6, dt_s)
    start = walker.state(walker.rest_m - [0.0, 0.0, 2e-3])[None]
    along, weights = rng.normal(size=u.shape), rng.normal(size=walker.rest_m.size)

    def way(controls: torch.Tensor) -> torch.Tensor:
        p = torch.tensor(walker.parameters().vector)
        states = rollout(walker, torch.tensor(start), controls[None], p, dt_s, substeps=32)
        return (torch.tensor(weights) * states[0, -1, : len(weights)]).sum()

    controls = torch.tensor(u, requires_grad=True)
    way(controls).backward()
    h = 1e-5
    numeric = (way(torch.tensor(u + h * along)) - way(torch.tensor(u - h * along))).item() / (2.0 * h)
    assert (controls.grad.numpy() * along).sum() == pytest.approx(numeric, rel=1e-7)


@pytest.mark.parametrize(
    ("vertices", "triangles", "match"),
    [
        (TRIANGLE, [[0, 2, 1]], "triangle 0 .* goes round clockwise.*swap"),
        (TRIANGLE[:, [0, 2, 1]], [[0, 1, 2]], "y differs by 0.1 m.*one plane"),
        (TRIANGLE * [1.0, 1.0, 0.0], [[0, 1, 2]], "has no area"),
    ],
)
def test_what_is_no_walker_is_refused(vertices: Array, triangles: list, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Walker(vertices, np.array(triangles))


def test_sizes_are_named() -> None:
    with pytest.raises(UsageError, match="paper"):
        Walker(size="large")
    vertices, triangles = two_legged(5, 3, 1, 2, 0.1)
    assert len(Walker(vertices, triangles).action_names) == len(triangles) == 2 * (5 + 2 * 2)
