"""Random throws of bodies onto a floor: friction and restitution, from poses with a tracker's errors (`throws`)."""

from __future__ import annotations

import numpy as np

from benchmarks import throws
from benchmarks.coverage.cases import Case
from vid2phys.errors import Vid2PhysError
from vid2phys.types import Estimate, Status

FIT = ("mu", "restitution")


def case(seed: int) -> Case:
    """Return the fit of a random throw. What the motion does not determine is not identifiable."""
    throw = throws.random_throw(np.random.default_rng(seed))
    truth = {name: throw.parameters[name].value for name in FIT}
    try:
        fit = throws.fitted(throw)
    except Vid2PhysError:
        return Case(truth, {}, Status.NOT_CONVERGED)
    found = {}
    for name in FIT:
        at = fit.parameters[name]
        j = fit.parameters.free_names.index(name)
        half = 1.96 * float(np.sqrt(fit.covariance[j, j]))
        middle = at.to_free(at.value)
        ends = (at.from_free(middle - half), at.from_free(middle + half))
        found[name] = Estimate(name, "", at.value, ends, name not in fit.unknown)
    return Case(truth, found, Status.CONVERGED)
