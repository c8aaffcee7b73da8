"""Random throws in simulation: how often friction and restitution lie inside their intervals.

`python -m benchmarks.throws --count 100` throws bodies of random shape, friction and restitution onto a floor, measures
their poses with a tracker's errors (0.5 mm across the line of sight, 4 mm and a lasting 3 mm along it, 0.5 deg),
and fits them as `identify` does (`solvers.impacts`). Motions and fits share the law of contact; the clips of
`docs/results.md` do not. `--revolved` throws cylinders and cones, whose rotation about their axis is not seen.

Limits: no images. The start of a fit is the measured motion, smoothed by differences.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import trimesh
import typer

from benchmarks.coverage.cases import of_one_part
from vid2phys import geometry
from vid2phys.commands.identify.fit_impacts import without_hidden
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.solvers import impacts
from vid2phys.solvers.frame_poses import FramePoses
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.types import Array, Mesh, Parameters

_FPS, _FRAMES = 60.0, 70
_ACROSS_M, _ALONG_M, _LASTING_M, _ROTATION = 5e-4, 4e-3, 3e-3, np.radians(0.5)
_LASTING_S = 0.5
_GROUND = {"ground_height": 5e-3, "ground_tilt_x": 0.02, "ground_tilt_y": 0.02}
_FREE = ("mu", "restitution", *_GROUND)


@dataclass(frozen=True)
class Throw:
    """A body, its true parameters, its true states [F, 13], and the poses that were measured.

    hidden: [A, 3] axes of the body, rotations about which do not show.
    """

    system: ThrownBody
    parameters: Parameters
    states: Array
    poses: FramePoses
    hidden: Array = field(default_factory=lambda: np.zeros((0, 3)))


def random_throw(rng: np.random.Generator, *, is_revolved: bool = False) -> Throw:
    """Return a throw: a box, a prism, a cylinder or a hull of random points; mu 0.05 to 1, restitution 0 to 0.9.

    is_revolved: throw a cylinder or a cone, and do not see how it turns about its axis.
    """
    system = ThrownBody(_random_revolved(rng) if is_revolved else _random_mesh(rng))
    values = {"mu": float(np.exp(rng.uniform(np.log(0.05), 0.0))), "restitution": rng.uniform(0.0, 0.9)}
    inertia = dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), system.shape.inertia_per_mass, strict=True))
    parameters = system.parameters().with_values({"mass": 1.0, **inertia, **values})
    start = np.zeros(13)
    start[:3] = *rng.uniform(-0.05, 0.05, 2), rng.uniform(0.2, 0.4)
    start[3:7] = geometry.quat_normalize(rng.normal(size=4))
    start[7:10] = *rng.uniform(-0.8, 0.8, 2), rng.uniform(-0.5, 0.8)
    start[10:13] = rng.normal(0.0, 6.0, 3)
    lengths = np.full((1, _FRAMES - 1), 1.0 / _FPS)
    states = system.rollouts(start[None], lengths, parameters.vector[None], np.zeros((1, _FRAMES - 1, 4)))[0][0]
    throw = Throw(system, parameters, states, measured(system, states, rng))
    return _revolved(throw) if is_revolved else throw


def _revolved(throw: Throw) -> Throw:
    """Return a throw of a body whose turn about its z axis is not seen: measured poses do not turn about it."""
    poses, axis = throw.poses, np.array([[0.0, 0.0, 1.0]])
    states, covariance = poses.states.copy(), poses.covariance.copy()
    rotations = geometry.matrix_from_quat(states[:, 3:7])
    for before, after in itertools.pairwise(rotations):
        aside = before.T @ after[:, 2]  # the axis after, in the body's axes before
        after[:] = before @ geometry.shortest_rotation(aside)
    states[:, 3:7] = geometry.quat_from_matrix(rotations)
    covariance[:, 5, 5] += np.pi**2
    return replace(throw, poses=replace(poses, states=states, covariance=covariance), hidden=axis)


def _random_revolved(rng: np.random.Generator) -> Mesh:
    width, height = rng.uniform(0.04, 0.13, 2)
    body = trimesh.creation.cylinder(0.5 * width, height, sections=48)
    body.vertices[:, :2] *= np.where(body.vertices[:, 2:] > 0.0, rng.choice([0.6, 1.0, 1.0]), 1.0)
    body.vertices -= body.center_mass
    return of_one_part(body)


def _random_mesh(rng: np.random.Generator) -> Mesh:
    sides = rng.uniform(0.04, 0.13, 3)
    kind = rng.integers(4)
    if kind == 0:
        body = trimesh.creation.box(sides)
    elif kind == 1:
        body = trimesh.creation.cylinder(0.5 * sides[0], sides[1], sections=int(rng.integers(3, 7)))
    elif kind == 2:
        body = trimesh.creation.cylinder(0.5 * sides[0], sides[1], sections=24)
    else:
        body = trimesh.convex.convex_hull(rng.uniform(-0.5, 0.5, (14, 3)) * sides)
    return of_one_part(body)


def measured(system: ThrownBody, states: Array, rng: np.random.Generator) -> FramePoses:
    """Return poses with errors; the camera looks along the world's y."""
    times = np.arange(len(states)) / _FPS
    lasting = draw_first_order(rng, times, np.array([_LASTING_S]))[:, 0]
    stds = np.array([_ACROSS_M, _ALONG_M, _ACROSS_M, *[_ROTATION] * 3])
    errors = np.zeros((len(states), 12))
    errors[:, :6] = rng.normal(size=(len(states), 6)) * stds
    errors[:, 1] += _LASTING_M * lasting
    basis = np.zeros((len(states), 6, 1))
    basis[:, 1, 0] = _LASTING_M
    covariance = np.tile(np.diag(stds**2), (len(states), 1, 1))
    rows = np.arange(len(states))
    return FramePoses(rows, system.retract(states, errors), covariance, basis, np.array([_LASTING_S]), times)


def fitted(throw: Throw) -> impacts.Fitted:
    """Return the fit of a throw from its poses."""
    stds = np.array([_GROUND.get(name, np.inf) for name in _FREE])
    parameters = throw.parameters.with_values({"mu": 0.4, "restitution": 0.4}).with_free(_FREE)
    order = [_FREE.index(name) for name in parameters.free_names]
    times = np.arange(len(throw.states)) / _FPS
    begun = without_hidden(throw.poses.moving(throw.system, times), throw.hidden)
    return impacts.fit(
        *(throw.system, parameters, throw.poses, times, begun),
        lambda theta: (theta / stds[order], stds[order] ** -2.0),
        hidden=throw.hidden,
    )


def main(
    count: Annotated[int, typer.Option(help="Number of throws.")] = 100,
    first: Annotated[int, typer.Option(help="Seed of the first throw.")] = 0,
    revolved: Annotated[bool, typer.Option(help="Throw cylinders and cones that do not show their spin.")] = False,
) -> None:
    """Print each throw, then coverage, median errors and half widths."""
    inside: dict[str, list[bool]] = {"mu": [], "restitution": []}
    errors: dict[str, list[float]] = {"mu": [], "restitution": []}
    widths: dict[str, list[float]] = {"mu": [], "restitution": []}
    for seed in range(first, first + count):
        throw = random_throw(np.random.default_rng(seed), is_revolved=revolved)
        began = time.perf_counter()
        fit = fitted(throw)
        line = f"{seed:4d} {time.perf_counter() - began:5.1f} s misfit {fit.misfit:.2f}"
        for name in inside:
            true, found = throw.parameters[name].value, fit.parameters[name]
            j = fit.parameters.free_names.index(name)
            half = 1.96 * float(np.sqrt(fit.covariance[j, j]))
            off = found.to_free(found.value) - found.to_free(true)
            line += f"  {name} {found.value:.3f} (true {true:.3f}"
            if name in fit.unknown:
                line += ", not determined)"
                continue
            line += f", {abs(off) / half * 1.96:.1f} deviations)"
            inside[name].append(abs(off) < half)
            errors[name].append(abs(found.value - true))
            widths[name].append(found.spread_from_free(found.value, half))
        print(line, flush=True)
    for name, held in inside.items():
        print(
            f"{name}: determined in {len(held)} of {count}, inside the interval {100 * np.mean(held):.0f} %, median "
            f"error {np.median(errors[name]):.3f}, median half width {np.median(widths[name]):.3f}"
        )


if __name__ == "__main__":
    typer.run(main)
