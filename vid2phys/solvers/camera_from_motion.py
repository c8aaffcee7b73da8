"""Estimate focal length, direction of gravity and ground from the motion of a body of known size.

Purpose: a camera without a calibration and without a pose. A body of known size is a yardstick, and gravity is
known; so a fall tells of the camera that filmed it.

Physics. Let a tracker take f_0 for the focal length f, and s = f / f_0. A body of width D that is d pixels wide is
at the depth Z = f D / d, and at X = (u - c_x) Z / f = (u - c_x) D / d across. So places across do not depend on f, and
depths are s times those that the tracker finds. A parabola stays a parabola. Its acceleration, as the tracker finds it,
is a_0 = g (n_x, n_y, n_z / s), where n is the unit direction of gravity in camera axes. What follows:

- The part of gravity across the sight line is seen in m/s^2 whatever f is. It is g cos(p) for a camera that looks down
  by the angle p. So the size gives |sin p|, and the sign of a_z gives the sign: f follows where the camera looks up or
  down. The error of a size of 0.5 % becomes an error of f of 0.5 % / tan(p)^2: 4 % at 20 degrees, 15 % at 10.
- Impacts on one level ground have the same height n_x X + n_y Y + n_z s Z_0. Where they differ in depth, they give
  s tan(p), while the fall gives tan(p) / s. Both together give f and p.
- A level camera that sees a body fall at a constant depth shows gravity, and nothing of f: the prior stays.
- If the size is wrong, g comes out wrong by the same factor. So g is reported as if it were not known, as a check.

Method: `flights` finds a_0 and the contacts with their joint covariance. Unknown are log s, n, log g, the ground's
height and how long a contact lasts, since flights that are continued into a contact meet below the ground. Each has a
prior. The equations hold both unknowns and data with errors (Gauss-Helmert model: Foerstner and Wrobel,
"Photogrammetric Computer Vision", 2016). The marginal of log s comes from a grid, with a Laplace approximation of the
rest at each point (Rue, Martino and Chopin, "Approximate Bayesian inference by integrated nested Laplace
approximations", 2009), because a fall that hardly shows the angle p makes it skewed.

Limits: no drag of the air, a level ground, one lens without zoom. Gravity that no fall shows is taken along the image,
as a camera on a table has it, with the spread of the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from vid2phys.solvers.flights import Flights, Places, find_flights
from vid2phys.types import Array

SIZE_STD = 0.004  # relative error of a body's size, and of its size as a tracker measures it
_DRAG = 0.003  # share of gravity that the fall may miss: drag of the air, the end of a contact
_TILT_WEAK = 0.6  # spread of gravity's direction in the image before a fall is seen: hardly a prior
_LEVEL_RAD = (np.radians(5.0), np.radians(15.0))  # roll and pitch of a camera whose clip shows no fall
_GROUND_M, _GROUND_LEVEL = 2e-3, 0.004  # errors of the ground's height: constant, and per distance
_CONTACT_S = (5e-4, 1e-3)  # half the duration of a contact: mean and spread
_HEIGHT_M = 1e3  # spread of a ground of which nothing is known
_WITHIN = 3.5  # standard deviations of the focal length that the grid covers
_POINTS = 29
_FAR = 9.0  # squared standard deviations, and 2 for each impact: heights that differ by more are not of one ground
_OFF_VERTICAL = 0.7  # least cosine between the kick of an impact and the vertical, so that the ground gave it
_LEAST = 1e-4  # spread of what is known
ORDER = ("log_focal", "down_x", "down_y", "down_z", "log_gravity", "ground_m")


@dataclass(frozen=True)
class CameraPrior:
    """What is known beforehand.

    log_focal, log_focal_std: mean and spread of the logarithm of the focal length over the nominal one; a spread of 0
    for a calibrated camera. gravity: m/s^2. log_gravity_std: of gravity in units of the body's size, so also the
    relative error of this size.
    """

    log_focal_std: float
    log_focal: float = 0.0
    gravity: float = 9.81
    log_gravity_std: float = SIZE_STD


@dataclass(frozen=True)
class CameraEstimate:
    """What a motion tells of its camera.

    log_focal: logarithm of the focal length over the nominal one. down: [3] unit vector of gravity in camera axes.
    gravity: m/s^2. ground_m: distance of the ground below the camera's centre; None without an impact on it.
    covariance: [6, 6] of `ORDER`. flights: None where the body is never seen to fall. impacts: number on the ground.
    """

    log_focal: float
    down: Array
    gravity: float
    ground_m: float | None
    covariance: Array
    flights: Flights | None
    impacts: int = 0

    def std(self, name: str) -> float:
        """Return the standard deviation of one of `ORDER`."""
        index = ORDER.index(name)
        return float(np.sqrt(self.covariance[index, index]))

    @property
    def pitch(self) -> tuple[float, float]:
        """Return the angle by which the camera looks down, and its standard deviation, rad."""
        slope = np.zeros(6)
        slope[3] = 1.0 / max(float(np.hypot(*self.down[:2])), 0.05)
        return float(np.arcsin(np.clip(self.down[2], -1.0, 1.0))), self.spread(slope)

    @property
    def roll(self) -> tuple[float, float]:
        """Return the angle between gravity in the image and the image's downward axis, and its deviation, rad."""
        x, y = self.down[:2]
        slope = np.zeros(6)
        slope[1:3] = np.array([y, -x]) / max(float(x * x + y * y), 0.05**2)
        return float(np.arctan2(x, y)), self.spread(slope)

    def known(self, directions: Array, std: float) -> CameraEstimate:
        """Return the estimate if combinations [K, 6] of `ORDER` were measured, with an error of this spread."""
        gain = self.covariance @ directions.T
        own = directions @ gain + std**2 * np.eye(len(directions))
        return replace(self, covariance=self.covariance - gain @ np.linalg.solve(own, gain.T))

    def rotation_std(self, camera_to_world: Array) -> tuple[float, float]:
        """Return the standard deviations of rotations of the camera about the world's x and y axes, rad."""
        x, y = camera_to_world[0, :3], camera_to_world[1, :3]
        spread = self.covariance[1:4, 1:4]
        return float(np.sqrt(y @ spread @ y)), float(np.sqrt(x @ spread @ x))

    def spread(self, slope: Array) -> float:
        """Return the standard deviation of a combination [6] of `ORDER`."""
        return float(np.sqrt(max(float(slope @ self.covariance @ slope), 0.0)))


@dataclass(frozen=True)
class Motion:
    """Where a body was seen in T frames, by a camera of nominal focal length.

    times_s: [T], increasing. points: [T, 3] m, its centre of mass in camera axes. covariance: [T, 3, 3]. rotation: [T,
    3, 3] of camera_from_body. vertices: [V, 3] m of the body.
    """

    times_s: Array
    points: Array
    covariance: Array
    rotation: Array
    vertices: Array


def estimate_camera(motion: Motion, prior: CameraPrior) -> CameraEstimate:
    """Return what the motion tells of its camera, beside the prior."""
    flights = find_flights(Places(motion.times_s, motion.points, motion.covariance))
    if flights is None:
        return level_camera(prior)
    return estimate_from_flights(flights, motion, prior)


def estimate_from_flights(flights: Flights, motion: Motion, prior: CameraPrior) -> CameraEstimate:
    """Return what flights tell of the camera, beside the prior."""
    free = _Equations(flights, motion, prior, np.zeros(0, dtype=np.int64))
    without = _integrated(free)
    struck = _from_the_ground(flights, without.down)
    if not len(struck):
        return without
    cost = free.minimum(without.log_focal, without.down).cost
    level = _Equations(flights, motion, prior, struck)
    with_ground = _integrated(level)
    more = level.minimum(with_ground.log_focal, with_ground.down).cost - cost
    if 2.0 * more > _FAR + 2.0 * len(struck):  # a step, a table, a hand
        return without
    return with_ground


def level_camera(prior: CameraPrior) -> CameraEstimate:
    """Return the prior, with a level camera: what is known where a clip shows no fall."""
    covariance = np.zeros((6, 6))
    covariance[0, 0], covariance[4, 4] = prior.log_focal_std**2, prior.log_gravity_std**2
    covariance[1, 1], covariance[3, 3] = (spread**2 for spread in _LEVEL_RAD)
    return CameraEstimate(prior.log_focal, np.array([0.0, 1.0, 0.0]), prior.gravity, None, covariance, None)


def _from_the_ground(flights: Flights, down: Array) -> NDArray[np.int64]:
    """Return the indices of the impacts that the ground gave: their kick is upward."""
    kicks = np.array([impact.kick for impact in flights.impacts]).reshape(-1, 3)
    sizes = np.linalg.norm(kicks, axis=1)
    return np.flatnonzero(-(kicks @ down) > _OFF_VERTICAL * sizes)


@dataclass(frozen=True)
class _Minimum:
    """The best unknowns at a focal length. values: [U]; down: [3]; hessian [U, U]; cost: nats, with determinants."""

    values: Array
    tangents: Array
    down: Array
    hessian: Array
    cost: float


@dataclass(frozen=True)
class _Equations:
    """Residuals by two steps of gravity's direction, log g, the ground's height, and half the duration of a contact.

    struck: indices of the impacts on the ground.
    """

    flights: Flights
    motion: Motion
    prior: CameraPrior
    struck: NDArray[np.int64]

    def reach(self, down: Array) -> tuple[Array, Array]:
        """Return how far the body reaches below its centre at each impact on the ground, and the error, [K] m."""
        lowest = (self.motion.rotation @ self.motion.vertices.T).transpose(0, 2, 1) @ down
        reach = lowest.max(axis=1)
        times = np.array([self.flights.impacts[k].time_s for k in self.struck])
        after = np.clip(np.searchsorted(self.motion.times_s, times), 1, len(reach) - 1)
        pair = np.stack([reach[after - 1], reach[after]])
        return pair.max(axis=0), 0.5 * np.abs(pair[1] - pair[0])

    def minimum(self, log_focal: float, near: Array) -> _Minimum:
        """Return the best unknowns at a focal length, from a direction of gravity that is near."""
        down, values = near, self._start(log_focal, near)
        for _ in range(3):
            tangents = np.linalg.svd(down[None])[2][1:]
            residuals, determinant = self._residuals(log_focal, down, tangents, values)
            found = least_squares(residuals, values, x_scale=self._scales(), method="trf")
            down = _moved(down, tangents, found.x[:2])
            values = np.concatenate([[0.0, 0.0], found.x[2:]])
        hessian = found.jac.T @ found.jac
        cost = float(found.cost) + 0.5 * determinant + 0.5 * ((log_focal - self.prior.log_focal) / self.focal_std) ** 2
        return _Minimum(values, np.linalg.svd(down[None])[2][1:], down, hessian, cost)

    @property
    def focal_std(self) -> float:
        return max(self.prior.log_focal_std, _LEAST)

    def _scales(self) -> Array:
        return np.array([0.1, 0.1, 0.01, 0.1, 1e-3])

    def _start(self, log_focal: float, down: Array) -> Array:
        metric = np.array([1.0, 1.0, np.exp(log_focal)])
        heights = (self.flights.contacts[self.struck] * metric) @ down
        ground = float(np.mean(heights + self.reach(down)[0])) if len(heights) else 0.0
        return np.array([0.0, 0.0, 0.0, ground, _CONTACT_S[0]])

    def _residuals(
        self, log_focal: float, down: Array, tangents: Array, at: Array
    ) -> tuple[Callable[[Array], Array], float]:
        """Return whitened residuals by the unknowns, and the logarithm of their covariance's determinant."""
        flights, prior, struck = self.flights, self.prior, self.struck
        metric, count = np.array([1.0, 1.0, np.exp(log_focal)]), len(struck)
        contacts = flights.contacts[struck] * metric
        speeds = np.array([np.linalg.norm(flights.impacts[k].kick) for k in struck])
        reach, rotation_error = self.reach(down)
        about = contacts - contacts.mean(axis=0) if count else contacts
        slopes = np.zeros((3 + count, len(flights.covariance)))
        slopes[:3, :3] = np.eye(3)
        for row, k in enumerate(struck):
            slopes[3 + row, 3 + 3 * k : 6 + 3 * k] = down * metric
        errors = slopes @ flights.covariance @ slopes.T
        errors[:3, :3] += (_DRAG * prior.gravity) ** 2 * np.eye(3) / metric**2
        level = _GROUND_M**2 + (_GROUND_LEVEL * np.linalg.norm(about, axis=1)) ** 2 + rotation_error**2
        errors[3:, 3:] += np.diag(level)
        lower = np.linalg.inv(np.linalg.cholesky(errors))

        def residuals(values: Array) -> Array:
            here = _moved(down, tangents, values[:2])
            gravity = prior.gravity * np.exp(values[2])
            fall = flights.acceleration - gravity * here / metric
            height = contacts @ here + reach - values[3] - values[4] * speeds
            return np.concatenate(
                [
                    lower @ np.concatenate([fall, height]),
                    [here[0] / _TILT_WEAK, here[2] / _TILT_WEAK, values[2] / max(prior.log_gravity_std, _LEAST)],
                    [(values[3] - at[3]) / _HEIGHT_M, (values[4] - _CONTACT_S[0]) / _CONTACT_S[1]],
                ]
            )

        return residuals, float(np.linalg.slogdet(errors)[1])


def _moved(down: Array, tangents: Array, step: Array) -> Array:
    moved = down + step @ tangents
    return np.asarray(moved / np.linalg.norm(moved))


def _integrated(equations: _Equations) -> CameraEstimate:
    """Return mean and covariance over the grid of focal lengths."""
    std, seen = equations.focal_std, equations.flights.acceleration
    grid = equations.prior.log_focal + np.linspace(-_WITHIN * std, _WITHIN * std, _POINTS)
    found: list[_Minimum] = []
    for _ in range(3):
        found = []
        for log_focal in grid:
            metric = seen * np.array([1.0, 1.0, np.exp(log_focal)])
            found.append(equations.minimum(log_focal, metric / np.linalg.norm(metric)))
        log_weight = np.array([-one.cost - 0.5 * np.linalg.slogdet(one.hessian)[1] for one in found])
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = float(weight @ grid)
        spread = float(np.sqrt(weight @ (grid - mean) ** 2))
        step = float(grid[1] - grid[0])
        if spread > step:  # the grid resolves the marginal
            break
        wide = max(_WITHIN * max(spread, step) * 1.5, 1e-7)
        grid = np.linspace(mean - wide, mean + wide, _POINTS)
    return _mixture(equations, grid, weight, found)


def _mixture(equations: _Equations, grid: Array, weight: Array, found: list[_Minimum]) -> CameraEstimate:
    rows = np.array(
        [[log_focal, *one.down, one.values[2], one.values[3]] for log_focal, one in zip(grid, found, strict=True)]
    )
    mean = weight @ rows
    covariance = np.einsum("n,ni,nj->ij", weight, rows - mean, rows - mean)
    for share, one in zip(weight, found, strict=True):
        slopes = np.zeros((6, 5))
        slopes[1:4, :2], slopes[4, 2], slopes[5, 3] = one.tangents.T, 1.0, 1.0
        covariance += share * slopes @ np.linalg.inv(one.hessian) @ slopes.T
    down = mean[1:4] / np.linalg.norm(mean[1:4])
    count = len(equations.struck)
    return CameraEstimate(
        float(mean[0]),
        down,
        equations.prior.gravity * float(np.exp(mean[4])),
        float(mean[5]) if count else None,
        covariance,
        equations.flights,
        count,
    )
