"""Posteriors of several clips against the closed form of their product."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vid2phys.solvers.impact_clips import joint_of
from vid2phys.solvers.impacts import Fitted


def fit_of(theta: tuple[float, ...], stds: tuple[float, ...], unknown: tuple[str, ...] = ()) -> Fitted:
    """Return what `joint_of` reads of a fit: independent posteriors of the ground's height, mu and restitution."""
    names = ("ground_height", "mu", "restitution")
    point = SimpleNamespace(point=SimpleNamespace(theta=np.array((0.0, *theta))))
    given: Any = SimpleNamespace(
        parameters=SimpleNamespace(free_names=names),
        covariance=np.diag(np.square((1.0, *stds))),
        minimum=point,
        unknown=unknown,
    )
    return cast("Fitted", given)


def test_precisions_of_clips_add() -> None:
    joint = joint_of([fit_of((0.0, 0.40), (0.1, 0.03)), fit_of((0.1, 0.41), (0.2, 0.04))], ("mu", "restitution"))
    precision = np.array([0.1**-2 + 0.2**-2, 0.03**-2 + 0.04**-2])
    assert joint.theta == pytest.approx(np.array([0.1 * 0.2**-2, 0.40 * 0.03**-2 + 0.41 * 0.04**-2]) / precision)
    assert np.diagonal(joint.covariance) == pytest.approx(1.0 / precision)


def test_clips_that_disagree_widen_the_covariance() -> None:
    apart = joint_of([fit_of((0.0, 0.4), (0.1, 0.01)), fit_of((0.0, 0.5), (0.1, 0.01))], ("restitution",))
    assert apart.disagreement == pytest.approx(0.1**2 / (2 * 0.01**2))
    assert apart.covariance[0, 0] == pytest.approx(0.5 * 0.01**2 * apart.disagreement)


def test_a_clip_that_does_not_determine_a_parameter_does_not_count_for_it() -> None:
    fits = [fit_of((0.3, 0.40), (0.1, 0.03)), fit_of((3.0, 0.40), (5.0, 0.03), ("mu",))]
    joint = joint_of(fits, ("mu", "restitution"))
    assert joint.theta[0] == pytest.approx(0.3)
    assert joint_of(fits[1:], ("mu", "restitution")).names == ("restitution",)
