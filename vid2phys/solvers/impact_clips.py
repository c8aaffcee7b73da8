"""Join fits of impacts of several clips of one body, which share friction and restitution.

Method: each clip is fitted by itself (`solvers.impacts`), since its many minima are its own. The posteriors of the
shared parameters are taken as Gaussian in solver coordinates, and multiply. Each clip's motion is then fitted again at
the joint values. Where clips disagree by more than their intervals allow, the joint covariance grows by chi-square per
degree of freedom (Birge, "The calculation of errors by the method of least squares", 1932).

Limits: a lower bound of a clip's friction only bounds the joint friction where no clip determines it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.solvers.impact_problem import descended, with_fixed
from vid2phys.solvers.impacts import Fitted, concluded
from vid2phys.types import Array


@dataclass(frozen=True)
class Joint:
    """The joint posterior of the parameters that several clips share.

    names: of those that at least one clip determines. theta [P], covariance [P, P]: in solver coordinates.
    disagreement: chi-square per degree of freedom of the clips about the joint values; 0 for a single clip.
    """

    names: tuple[str, ...]
    theta: Array
    covariance: Array
    disagreement: float


def joint_of(fits: Sequence[Fitted], shared: Sequence[str]) -> Joint:
    """Return the product of the fits' posteriors of the shared parameters."""
    names = tuple(name for name in shared if any(_determines(fit, name) for fit in fits))
    size = len(names)
    information, gradient, terms = np.zeros((size, size)), np.zeros(size), []
    for fit in fits:
        own = [k for k, name in enumerate(names) if _determines(fit, name)]
        rows = [fit.parameters.free_names.index(names[k]) for k in own]
        if not own:
            continue
        theta, precision = fit.minimum.point.theta[rows], np.linalg.inv(fit.covariance[np.ix_(rows, rows)])
        information[np.ix_(own, own)] += precision
        gradient[own] += precision @ theta
        terms.append((own, theta, precision))
    covariance = np.linalg.inv(information)
    theta = covariance @ gradient
    square = sum(float((own - theta[k]) @ precision @ (own - theta[k])) for k, own, precision in terms)
    degrees = sum(len(own) for own, _, _ in terms) - size
    disagreement = square / degrees if degrees else 0.0
    return Joint(names, theta, np.asarray(covariance * max(1.0, disagreement)), disagreement)


def joined(fits: Sequence[Fitted], shared: Sequence[str]) -> tuple[list[Fitted], Joint]:
    """Return the fits at the joint values of the shared parameters, and the joint posterior."""
    joint = joint_of(fits, shared)
    bounds = [fit.least_friction for fit in fits if fit.least_friction is not None]
    least = max(bounds) if bounds and "mu" not in joint.names else None
    return [replace(_at(fit, joint), least_friction=least) for fit in fits], joint


def _determines(fit: Fitted, name: str) -> bool:
    return name in fit.parameters.free_names and name not in fit.unknown


def _at(fit: Fitted, joint: Joint) -> Fitted:
    """Return the fit of a clip with its motion at the joint values."""
    names = fit.parameters.free_names
    problem, motion = with_fixed(fit.problem, fit.minimum.point, dict(zip(joint.names, joint.theta, strict=True)))
    again = concluded(problem, descended(problem, motion), fit.weights)
    theta, covariance = fit.minimum.point.theta.copy(), fit.covariance.copy()
    of_joint = [names.index(name) for name in joint.names]
    others = [k for k, name in enumerate(names) if name not in joint.names]
    theta[of_joint], theta[others] = joint.theta, again.minimum.point.theta
    covariance[:], covariance[np.ix_(of_joint, of_joint)] = 0.0, joint.covariance
    covariance[np.ix_(others, others)] = again.covariance
    return replace(
        again,
        problem=fit.problem,
        parameters=fit.problem.parameters.fitted_at(theta),
        covariance=covariance,
        minimum=replace(again.minimum, point=replace(again.minimum.point, theta=theta)),
        unknown=tuple(name for name in fit.unknown if name not in joint.names),
        parts={},
    )
