"""The normal equations of smoothing: measurements, dynamics as weighted residuals, process priors.

Method: unknowns of a knot are the tangent of the state, unknown input accelerations (band-limited random walks), and
the errors that all points of a frame share (first-order Gauss-Markov). Unknown and shared by all knots are
parameters, action delay and motor lag. Together they are a block-tridiagonal matrix with an arrow. Each keypoint and
each measured configuration has a Student-t weight.

Limits: rigid bodies, whose tangent is a position and a rotation with their rates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.rollout import linearize
from vid2phys.solvers import arrow, camera_parameters, configurations, gauss_markov, prediction
from vid2phys.solvers.least_squares import STUDENT_DOF
from vid2phys.solvers.problem import (
    DELAY,
    LAG,
    Channel,
    Knots,
    Problem,
    effective_actions,
    input_channels,
    mean_controls,
)
from vid2phys.types import Array, Parameters

FORCE, TORQUE = "force", "torque"
# densities of the white accelerations that no input explains, m/s^2 sqrt(s) and rad/s^2 sqrt(s), at most
STEP_STD = {FORCE: 0.01, TORQUE: 0.2}
TIME_BASE_PRIORS = {DELAY: (0.0, 0.02), LAG: (float(np.log(0.02)), 1.0)}
"""Means and standard deviations of the time base of recorded actions, s and its logarithm."""


@dataclass(frozen=True)
class Hyperparameters:
    """All positive: standard deviation and bandwidth of each input group, scales of the observation errors.

    step_std: densities of the white accelerations of each step, by `FORCE` and `TORQUE`.
    """

    input_std: dict[str, float]
    bandwidth_rad_s: dict[str, float]
    point_scale: float = 1.0
    shared_scale: float = 1.0
    step_std: dict[str, float] = field(default_factory=lambda: dict(STEP_STD))


@dataclass(frozen=True)
class Unknowns:
    """A point in the space of unknowns: states [T, N], inputs [T, 2 M] (values, rates), shared [T, R], theta [P]."""

    states: Array
    inputs: Array
    shared: Array
    theta: Array


@dataclass(frozen=True)
class Layout:
    """Where the unknowns of a knot lie, and the fixed facts of a problem.

    relevance: [T, M], factors of the unknown inputs (`relevance`).
    """

    problem: Problem
    knots: Knots
    channels: tuple[Channel, ...]
    parameter_names: tuple[str, ...]
    theta_names: tuple[str, ...]
    relevance: Array

    @staticmethod
    def of(problem: Problem) -> Layout:
        """Lay out a problem."""
        names = tuple(p.name for p in problem.parameters if p.free)
        extra = (DELAY, LAG) if problem.actions is not None else ()
        usual = TIME_BASE_PRIORS if extra else {}
        problem = replace(problem, priors=usual | problem.priors)
        knots = Knots.of(problem.observation.times_s, problem.max_step_s)
        channels = input_channels(problem)
        return Layout(problem, knots, channels, names, names + extra, np.ones((len(knots.times_s), len(channels))))

    @property
    def tangent(self) -> int:
        """Return the size of the tangent space of a state."""
        return len(self.problem.system.tangent_names)

    @property
    def modes(self) -> int:
        """Return the number of modes of the shared error."""
        return self.problem.observation.shared_basis.shape[-1]

    @property
    def inputs(self) -> slice:
        """Return where the inputs are in a knot: values, then rates."""
        return slice(self.tangent, self.tangent + 2 * len(self.channels))

    @property
    def shared(self) -> slice:
        """Return where the shared errors are in a knot; its end is the size of a knot."""
        return slice(self.inputs.stop, self.inputs.stop + self.modes)

    @property
    def error_step_s(self) -> Array:
        """Return steps between knots by the clock of the shared errors, [T - 1]."""
        seen = self.problem.observation
        return np.diff(np.interp(self.knots.times_s, seen.times_s, seen.error_clock_s))

    def parameters(self, theta: Array) -> Parameters:
        """Return all parameters, with the fitted ones as in `theta`."""
        return self.problem.parameters.with_free_vector(theta[: len(self.parameter_names)])


@dataclass
class Terms:
    """Normal equations of the residuals of one kind: the blocks of an `arrow.Arrow`, gradients, half their squares.

    count: of the residuals.
    """

    matrix: arrow.Arrow
    gradient: Array
    gradient_theta: Array
    cost: float = 0.0
    count: float = 0.0

    @staticmethod
    def none(layout: Layout) -> Terms:
        """Return zeros."""
        steps, size, count = len(layout.knots.times_s), layout.shared.stop, len(layout.theta_names)
        matrix = arrow.Arrow(
            *(np.zeros((steps, size, size)), np.zeros((steps - 1, size, size))),
            *(np.zeros((steps, size, count)), np.zeros((count, count))),
        )
        return Terms(matrix, np.zeros((steps, size)), np.zeros(count))


@dataclass
class Linear:
    """Normal equations at a point, without the priors of the processes.

    measurements: to be divided by point_scale^2. steps: of the motion from knot to knot, by `FORCE` and `TORQUE`, to be
    divided by the squares of step_std. corner, gradient_theta, cost: what is known of the parameters otherwise.
    cost_student: of the measurements, robust. weights: [F, K].
    """

    measurements: Terms
    steps: dict[str, Terms]
    corner: Array
    gradient_theta: Array
    cost: float
    cost_student: float
    weights: Array = field(repr=False)

    def scaled(self, hyperparameters: Hyperparameters) -> list[tuple[float, Terms]]:
        """Return the terms of all residuals with their standard deviations, by which they are still to be divided."""
        steps = [(hyperparameters.step_std[group], terms) for group, terms in self.steps.items()]
        return [(hyperparameters.point_scale, self.measurements), *steps]


def controls_of(layout: Layout, point: Unknowns) -> tuple[Array, Array, Array]:
    """Return controls [T - 1, C] and their derivatives by theta [T - 1, C, P] and by the inputs' values [T - 1, C,
    M]."""
    problem, steps = layout.problem, len(layout.knots.step_s)
    names = problem.parameters.names

    def base(theta: Array) -> Array:
        controls = np.zeros((steps, len(problem.system.control_names)))
        parameters = camera_parameters.system_vector(layout.parameters(theta))
        if problem.actions is None:
            controls += mean_controls(problem, parameters)
        else:
            delay, lag = theta[-2], float(np.exp(theta[-1]))
            recorded = effective_actions(problem.actions, layout.knots, delay, lag)
            controls[:, : recorded.shape[1]] = recorded
        for j, channel in enumerate(layout.channels):
            acceleration = layout.relevance[:-1, j] * point.inputs[:-1, j]
            controls[:, channel.index] += parameters[names.index(channel.inertia)] * acceleration
        return controls

    parameters = camera_parameters.system_vector(layout.parameters(point.theta))
    by_input = np.zeros((steps, len(problem.system.control_names), len(layout.channels)))
    for j, channel in enumerate(layout.channels):
        by_input[:, channel.index, j] = parameters[names.index(channel.inertia)] * layout.relevance[:-1, j]
    by_theta = np.zeros((steps, len(problem.system.control_names), len(point.theta)))
    for j in range(len(point.theta)):
        step = np.zeros(len(point.theta))
        step[j] = 2e-3 if layout.theta_names[j] == DELAY else 1e-3
        by_theta[:, :, j] = (base(point.theta + step) - base(point.theta - step)) / (2.0 * step[j])
    return base(point.theta), by_theta, by_input


def linearized(layout: Layout, point: Unknowns, hyperparameters: Hyperparameters) -> Linear:
    """Return residuals and normal equations of measurements, dynamics and fixed priors at a point."""
    count = len(point.theta)
    linear = Linear(
        measurements=Terms.none(layout), steps=_steps(layout, point),
        corner=np.zeros((count, count)), gradient_theta=np.zeros(count), cost=0.0, cost_student=0.0,
        weights=np.ones(layout.problem.observation.visible.shape),
    )  # fmt: skip
    for factor in measurement_factors(layout, point):
        _add_measurements(linear, layout, factor, hyperparameters.point_scale)
    _add_theta_priors(linear, layout, point)
    return linear


def _steps(layout: Layout, point: Unknowns) -> dict[str, Terms]:
    """Return the steps of the motion under white accelerations of unit density, those of forces and of torques."""
    problem, knots, d = layout.problem, layout.knots, layout.tangent
    controls, by_theta, by_input = controls_of(layout, point)
    parameters = layout.parameters(point.theta)
    system_vector = camera_parameters.system_vector(parameters)
    step = linearize(problem.system, point.states[:-1], controls, system_vector, knots.step_s, substeps=2)
    residual = problem.system.local(step.next_states, point.states[1:])
    free = [i for i in parameters.free_indices if i < len(system_vector)]
    to_here = np.zeros((*residual.shape, layout.shared.stop))
    to_here[:, :, :d] = -step.A
    to_here[:, :, layout.inputs.start : layout.inputs.start + len(layout.channels)] = -step.B @ by_input
    to_theta = -step.B @ by_theta
    to_theta[:, :, : len(free)] -= step.C[:, :, free] * parameters.slopes[free]
    axes = np.arange(d // 2).reshape(2, -1)  # of positions, then of rotations; their rates follow
    found = {}
    for group, these in zip((FORCE, TORQUE), axes, strict=True):
        rows = np.concatenate([these, these + d // 2])
        weight = gauss_markov.white_acceleration_precision(knots.step_s, density=np.ones(len(these)))
        terms = Terms.none(layout)
        _add_steps(terms, rows, (residual[:, rows], to_here[:, rows], to_theta[:, rows]), weight)
        found[group] = terms
    return found


def _add_steps(terms: Terms, rows: NDArray[np.int64], part: tuple[Array, Array, Array], weight: Array) -> None:
    """Add residuals [T - 1, R] at the rows of the next knot, their derivatives by knot and theta, and precision."""
    residual, to_here, to_theta = part
    matrix, transposed = terms.matrix, np.swapaxes(to_here, 1, 2)
    weighted, weighted_here, weighted_theta = weight @ residual[..., None], weight @ to_here, weight @ to_theta
    matrix.diagonal[:-1] += transposed @ weighted_here
    matrix.diagonal[1:, rows[:, None], rows] += weight
    matrix.lower[:, rows] += weighted_here
    matrix.arrow[:-1] += transposed @ weighted_theta
    matrix.arrow[1:, rows] += weighted_theta
    matrix.corner[:] += np.einsum("kip,kiq->pq", to_theta, weighted_theta)
    terms.gradient[:-1] += (transposed @ weighted)[..., 0]
    terms.gradient[1:, rows] += weighted[..., 0]
    terms.gradient_theta += np.einsum("kip,ki->p", to_theta, weighted[..., 0])
    terms.cost += 0.5 * float((residual * weighted[..., 0]).sum())
    terms.count += residual.size


@dataclass(frozen=True)
class Factor:
    """Measurements of one kind, G a frame, of M numbers each, at a point.

    Attributes:
        residual: [F, G, M] whitened, predicted minus measured, at point_scale 1.
        by_state: [F, G, M, D] its derivative by the tangent of the state.
        by_shared: [F, G, M, R] that by the error processes.
        by_camera: [F, G, M, V] that by the free camera parameters, the last of `Layout.parameter_names`.
        used: [F, G] which measurements count.
    """

    residual: Array
    by_state: Array
    by_shared: Array
    by_camera: Array
    used: NDArray[np.bool_]

    @property
    def distance(self) -> Array:
        """Return the squared residuals of the measurements [F, G], as of two numbers."""
        return np.asarray((self.residual**2).sum(axis=-1) * (2.0 / self.residual.shape[-1]))


def measurement_factors(layout: Layout, point: Unknowns) -> list[Factor]:
    """Return the factor of the keypoints, and that of the measured configurations where there are any."""
    problem, seen = layout.problem, layout.problem.observation
    states, parameters = point.states[layout.knots.frame_knot], layout.parameters(point.theta)
    shared = point.shared[layout.knots.frame_knot]
    factors = []
    if seen.used.any() or seen.configuration is None:
        predicted, by_state, by_camera = prediction.linear_bearings(problem, parameters, states)
        off = predicted - seen.bearings
        factors.append(_factor(off, by_state, by_camera, (seen.shared_basis, seen.covariance), shared, seen.used))
    if seen.configuration is not None:
        measured = seen.configuration
        step, by_state, by_camera = (each[:, None] for each in configurations.linear(problem, parameters, states))
        errors = measured.shared_basis[:, None], measured.covariance[:, None]
        factors.append(_factor(step, by_state, by_camera, errors, shared, measured.measured[:, None]))
    return factors


def _factor(
    off: Array, by_state: Array, by_camera: Array, errors: tuple[Array, Array], shared: Array, used: NDArray[np.bool_]
) -> Factor:
    """Return whitened measurements. errors: effect [F, G, M, R] of the processes, and covariance [F, G, M, M]."""
    basis, covariance = errors
    root = np.where(used[..., None, None], np.linalg.inv(np.linalg.cholesky(covariance)), 0.0)
    residual = np.where(used[..., None], off + (basis @ shared[:, None, :, None])[..., 0], 0.0)
    white = (root @ residual[..., None])[..., 0]
    return Factor(white, root @ by_state, root @ basis, root @ by_camera, used)


def _add_measurements(linear: Linear, layout: Layout, factor: Factor, point_scale: float) -> None:
    """Add one kind of measurements, with a Student-t cost: of M numbers as of M / 2 keypoints that agree alike."""
    terms, matrix = linear.measurements, linear.measurements.matrix
    residual, to_camera = factor.residual, factor.by_camera
    pairs = 0.5 * residual.shape[-1]
    distance = factor.distance / point_scale**2
    weights = (STUDENT_DOF + 2.0) / (STUDENT_DOF + distance)
    jacobian = np.zeros((*residual.shape, terms.gradient.shape[1]))
    jacobian[..., : layout.tangent] = factor.by_state
    jacobian[..., layout.shared] = factor.by_shared
    frames = layout.knots.frame_knot
    weighted = weights[..., None] * residual
    matrix.diagonal[frames] += np.einsum("fkim,fk,fkin->fmn", jacobian, weights, jacobian, optimize=True)
    terms.gradient[frames] += np.einsum("fkim,fki->fm", jacobian, weighted)
    if to_camera.shape[-1]:
        end = len(layout.parameter_names)
        here = slice(end - to_camera.shape[-1], end)
        matrix.arrow[frames, :, here] += np.einsum("fkim,fk,fkip->fmp", jacobian, weights, to_camera, optimize=True)
        matrix.corner[here, here] += np.einsum("fkip,fk,fkiq->pq", to_camera, weights, to_camera, optimize=True)
        terms.gradient_theta[here] += np.einsum("fkip,fki->p", to_camera, weighted)
    terms.cost += 0.5 * float((weighted * residual).sum())
    student = np.log1p(distance / STUDENT_DOF) * factor.used
    linear.cost_student += 0.5 * (STUDENT_DOF + 2.0) * pairs * float(student.sum())
    terms.count += 2.0 * pairs * float(factor.used.sum())
    linear.weights = np.where(factor.used, weights, linear.weights)


def _add_theta_priors(linear: Linear, layout: Layout, point: Unknowns) -> None:
    off, precision = layout.problem.prior(layout.theta_names, point.theta)
    linear.corner += np.diag(precision)
    linear.gradient_theta += off * np.sqrt(precision)
    linear.cost += 0.5 * float(off @ off)


@dataclass(frozen=True)
class Normal:
    """Complete normal equations: matrix, gradients of chain and theta, cost, log-determinant of all precisions."""

    matrix: arrow.Arrow
    gradient: Array
    gradient_theta: Array
    cost: float
    prior_logdet: float


def with_priors(linear: Linear, layout: Layout, point: Unknowns, hyperparameters: Hyperparameters) -> Normal:
    """Add the process priors for given hyperparameters."""
    diagonal, lower, side, gradient = (
        np.zeros_like(each) for each in (*_chain_blocks(linear.measurements), linear.measurements.gradient)
    )
    corner, gradient_theta, cost, logdet = linear.corner.copy(), linear.gradient_theta.copy(), linear.cost, 0.0
    for std, terms in linear.scaled(hyperparameters):
        weight, matrix = std**-2.0, terms.matrix
        for into, block in zip((diagonal, lower, side), _chain_blocks(terms), strict=True):
            into += weight * block
        corner += weight * matrix.corner
        gradient += weight * terms.gradient
        gradient_theta += weight * terms.gradient_theta
        cost += weight * terms.cost
        logdet -= 2.0 * terms.count * np.log(std)
    processes = np.concatenate([point.inputs, point.shared], axis=1)
    for process in (*input_processes(layout, hyperparameters), *shared_processes(layout, hyperparameters)):
        cost += process.add(processes[:, process.index - layout.tangent], diagonal, lower, gradient)
        logdet += process.chain.logdet
    return Normal(arrow.Arrow(diagonal, lower, side, corner), gradient, gradient_theta, cost, logdet)


def _chain_blocks(terms: Terms) -> tuple[Array, Array, Array]:
    return terms.matrix.diagonal, terms.matrix.lower, terms.matrix.arrow


@dataclass(frozen=True)
class Process:
    """The prior of an error or of an input: a chain of the S numbers at `index` [S] of every knot."""

    chain: gauss_markov.Chain
    index: NDArray[np.int64]

    def add(self, values: Array, diagonal: Array, lower: Array, gradient: Array) -> float:
        """Add the prior to the blocks and the gradient; returns half its squared residual. values: [T, S]."""
        chain, index = self.chain, self.index
        rows, columns = index[:, None], index[None, :]
        weighted = chain.precision @ chain.transition
        diagonal[1:, rows, columns] += chain.precision
        diagonal[:-1, rows, columns] += np.swapaxes(chain.transition, 1, 2) @ weighted
        diagonal[0][rows, columns] += chain.initial
        lower[:, rows, columns] -= weighted
        residual = values[1:] - (chain.transition @ values[:-1, :, None])[..., 0]
        pulled = (chain.precision @ residual[..., None])[..., 0]
        gradient[1:, index] += pulled
        gradient[:-1, index] -= (np.swapaxes(chain.transition, 1, 2) @ pulled[..., None])[..., 0]
        gradient[0, index] += chain.initial @ values[0]
        return 0.5 * float((residual * pulled).sum() + values[0] @ chain.initial @ values[0])


def input_processes(layout: Layout, hyperparameters: Hyperparameters) -> list[Process]:
    """Return the priors of the unknown inputs."""
    count, found = len(layout.channels), []
    for j, channel in enumerate(layout.channels):
        std, width = (each[channel.group] for each in (hyperparameters.input_std, hyperparameters.bandwidth_rad_s))
        chain = gauss_markov.second_order(layout.knots.step_s, std=std, bandwidth_rad_s=width)
        found.append(Process(chain, layout.inputs.start + np.array([j, count + j])))
    return found


def shared_processes(layout: Layout, hyperparameters: Hyperparameters) -> list[Process]:
    """Return the priors of the errors that a frame's measurements share."""
    found, step_s = [], layout.error_step_s
    for j, time_s in enumerate(layout.problem.observation.process_time_s):
        chain = gauss_markov.first_order(step_s, std=hyperparameters.shared_scale, time_constant_s=float(time_s))
        found.append(Process(chain, np.array([layout.shared.start + j])))
    return found


def moved(layout: Layout, point: Unknowns, chain_step: Array, theta_step: Array) -> Unknowns:
    """Return the point after a step in the tangent space, parameters within their bounds."""
    theta, count = point.theta + theta_step, len(layout.parameter_names)
    theta[:count] = layout.problem.parameters.fitted_at(theta[:count]).free_vector()
    return Unknowns(
        layout.problem.system.retract(point.states, chain_step[:, : layout.tangent]),
        point.inputs + chain_step[:, layout.inputs],
        point.shared + chain_step[:, layout.shared],
        theta,
    )
