"""Where the width of an interval comes from: the variance of a fitted parameter, split by the errors of the model.

Purpose: it tells what would make an interval narrower: more frames, a better camera, a known force, a known value.

Method: near the optimum an estimate is linear in all residuals. Let H be the information of all unknowns, the sum of
those of each kind of residual, H_b. Then the covariance is the sum of H^-1 H_b H^-1, one part a kind. Errors that the
measurements of a frame share are split once more. First comes what they would give if every frame had a new one. The
rest is what their lasting adds: below zero where they cancel along the motion.

Limits: parts are those of the linear model at the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.solvers import arrow
from vid2phys.solvers.measurements import Errors
from vid2phys.solvers.smoothing_model import (
    Hyperparameters,
    Layout,
    Linear,
    Process,
    input_processes,
    shared_processes,
)
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.solvers.frame_poses import FramePoses

FRAME_NOISE, SHARED_ERROR, CORRELATION = "frame_noise", "shared_error", "correlation"
UNKNOWN_FORCES, PRIOR = "unknown_forces", "prior"
MISFIT, MODEL_ERROR = "misfit", "model_error"  # by which a fit widens its covariance as a whole
LAW_OF_IMPACT, OTHER_MINIMA = "law_of_impact", "other_minima"  # of fits of impacts
OF_CHAIN = (FRAME_NOISE, SHARED_ERROR, CORRELATION, UNKNOWN_FORCES, PRIOR)


def of_chain(
    layout: Layout, linear: Linear, hyperparameters: Hyperparameters, solution: Array, covariance: Array
) -> dict[str, Array]:
    """Return the variances [Q] of parameters that a clip's residuals add, by the names of `OF_CHAIN` without priors.

    Args:
        layout: of the clip.
        linear: its normal equations.
        hyperparameters: its scales.
        solution: A^-1 E, [T, n, P] (`arrow.Factor.arrow_solution`).
        covariance: [P, Q] of the clip's parameters with those whose variances are asked for.
    """
    gain = -solution @ covariance  # [T, n, Q], how far a unit force on each unknown moves the estimates
    measured, *of_steps = (
        arrow.squares(terms.matrix, gain, covariance) / std**2 for std, terms in linear.scaled(hyperparameters)
    )
    matrix, scale = linear.measurements.matrix, hyperparameters.shared_scale / hyperparameters.point_scale**2
    of_shared = scale * (matrix.diagonal[:, layout.shared] @ gain + matrix.arrow[:, layout.shared] @ covariance)
    renewed = (of_shared**2).sum(axis=(0, 1))
    lasting = _of_processes(shared_processes(layout, hyperparameters), gain)
    of_inputs = _of_processes(input_processes(layout, hyperparameters), gain)
    return {
        FRAME_NOISE: measured,
        SHARED_ERROR: renewed,
        CORRELATION: lasting - renewed,
        UNKNOWN_FORCES: np.sum(of_steps, axis=0) + of_inputs,
    }


def of_measurements(errors: Errors | FramePoses, gain: Array) -> dict[str, Array]:
    """Return the variances [Q] of estimates that move by gain [Q, F, N] times the measurements of a clip."""
    of_shared = np.einsum("qfi,fir->qfr", gain, errors.basis)
    apart = np.abs(errors.clock_s[:, None] - errors.clock_s[None, :])
    together = np.exp(-apart[..., None] / np.maximum(errors.times_s, 1e-9))
    renewed = (of_shared**2).sum(axis=(1, 2))
    return {
        FRAME_NOISE: np.einsum("qfi,fij,qfj->q", gain, errors.covariance, gain, optimize=True),
        SHARED_ERROR: renewed,
        CORRELATION: np.einsum("qfr,fgr,qgr->q", of_shared, together, of_shared, optimize=True) - renewed,
    }


def _of_processes(processes: Sequence[Process], gain: Array) -> Array:
    """Return the variances [Q] of estimates from the steps of processes. gain: [T, n, Q]."""
    total = np.zeros(gain.shape[2])
    for process in processes:
        chain, values = process.chain, gain[:, process.index]
        steps = values[1:] - chain.transition @ values[:-1]
        total += np.einsum("ksq,kst,ktq->q", steps, chain.precision, steps)
        total += np.einsum("sq,st,tq->q", values[0], chain.initial, values[0])
    return total


def shares(variances: Mapping[str, Array], index: int) -> dict[str, float]:
    """Return the parts of one parameter's variance as shares that sum to 1; empty where there is no variance."""
    total = sum(float(part[index]) for part in variances.values())
    return {name: float(part[index]) / total for name, part in variances.items()} if total > 0.0 else {}
