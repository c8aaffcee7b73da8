"""What a fit to recordings concludes, beside closed forms: units, spreads, widened intervals, and finer steps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student_t

from tests.unit.test_recorded_model import STARTS, STD, SYSTEM
from tests.unit.test_recorded_model import point as point
from tests.unit.test_recorded_model import setup as setup
from vid2phys.engine.rollout import simulate
from vid2phys.errors import SimulationError
from vid2phys.solvers import recorded
from vid2phys.solvers.recorded_descent import Descent
from vid2phys.solvers.recorded_model import Point, Recording, Setup, linearized, residuals_of, scale_of, substeps_of
from vid2phys.solvers.whiteness import MOST_LAGS
from vid2phys.types import Array, Estimate, Parameter, Parameters


def test_shared_unknowns_are_judged_by_their_values() -> None:
    """Logarithms, and what is not three errors from zero, are judged in units of one."""
    items = (
        Parameter("mass", "kg", 5.0, 1e-3, 1e3, "log", free=True),
        Parameter("known", "m", 5.0, -9.0, 9.0),
        Parameter("drag", "1", 0.02, -9.0, 9.0, free=True),
        Parameter("lift", "1", 0.02, -9.0, 9.0, free=True),
    )
    given: Any = SimpleNamespace(parameters=Parameters(items), offsets=np.array([0]))
    at: Any = SimpleNamespace(theta=np.array([-7.0, -0.02, 0.02, 0.4]))
    errors = np.array([1e-3, 0.02 / 3.1, 0.02 / 2.9, 0.1])
    normal: Any = SimpleNamespace(information=np.diag(errors**-2))
    np.testing.assert_array_equal(recorded._units(given, at, normal), [1.0, 0.02, 1.0, 0.4])


def test_first_states_have_the_inverse_of_their_information(setup: Setup, point: Point) -> None:
    normal = linearized(setup, point, 24, 1.2)
    found = recorded._start_covariance(setup, normal, 1.7)
    assert found.shape == (2, 2, 2)
    units = np.array([[0.02, 0.1], [0.02, 1.0]])
    free = np.linalg.inv(normal.start_information[0]) * np.outer(units[0], units[0])
    np.testing.assert_allclose(found[0], 1.7 * free, rtol=1e-6)
    alone = 1.7 / normal.start_information[1, 0, 0] * 0.02**2
    np.testing.assert_allclose(found[1], [[alone, 0.0], [0.0, 0.0]], rtol=1e-6)
    wide: Any = SimpleNamespace(system=SimpleNamespace(tangent_names=("x",) * 10_000))
    assert recorded._start_covariance(wide, normal, 1.0).shape == (2, 0, 0), "of bodies of many coordinates none"


def test_units_are_told_by_names() -> None:
    expected = {"angle_rad": "rad", "angle_rad_s": "rad_s", "x_m": "m", "x_m_s": "m_s", "gain": "1"}
    assert {name: recorded._unit(name) for name in expected} == expected


def test_intervals_end_at_the_domain() -> None:
    parameter = Parameter("drag", "1", 0.1, 0.0, 1.0)
    estimate = Estimate("drag", "1", 0.1, (-0.9, 1.1), True)
    assert recorded._within(estimate, parameter).ci95 == (0.0, 1.0)
    inside = replace(estimate, ci95=(0.05, 0.2))
    assert recorded._within(inside, parameter).ci95 == (0.05, 0.2)


def test_residuals_of_the_usual_size_spread_by_their_degrees_of_freedom() -> None:
    """At the scale a residual has weight one; 5 lost numbers do not count. Others have 6 / (5 + square)."""
    equal = np.full((1, 10, 2), 3.0)
    lost = equal.copy()
    lost[0, :5, 1] = np.nan
    assert recorded._spread([equal, lost], 3.0, 4) == pytest.approx(35.0 / 31.0)
    assert recorded._spread([equal], 3.0, 100) == pytest.approx(20.0), "one degree at least"
    assert recorded._spread([2.0 * equal], 3.0, 0) == pytest.approx(4.0 * 6.0 / 9.0)


def test_recordings_are_judged_one_after_another() -> None:
    """Weighted residuals in deviations, with lost rows between two recordings."""
    first, second = np.full((1, 4, 2), 3.0), np.full((1, 3, 1), -6.0)
    found = recorded._stacked([first, second], 3.0)
    assert found.shape == (7 + 2 * MOST_LAGS, 2)
    np.testing.assert_allclose(found[:4], 1.0)
    np.testing.assert_allclose(found[4 + MOST_LAGS : 7 + MOST_LAGS, 0], -2.0 * np.sqrt(6.0 / 9.0))
    known = np.isfinite(found)
    assert known[:4].all()
    assert known.sum() == 8 + 3


def scores_of(*profiles: Array) -> tuple[Any, Array]:
    """Blocks whose scores have these rows of one shared unknown, and one start that takes half of its score away."""
    scores = tuple(np.stack([2.0 * each, 2.0 * each], axis=1) for each in profiles)
    return SimpleNamespace(scores=scores), np.full((len(profiles), 1, 1), 0.5)


def test_intervals_are_as_wide_as_scores_of_pieces_differ() -> None:
    """Eight pieces of one recording: the sandwich of their sums, where it is wider than independent frames."""
    sums = np.array([3.0, -2.0, 1.0, 4.0, -5.0, 2.0, 0.0, -3.0])
    normal, gains = scores_of(np.repeat(sums, 3) / 3.0)
    variance = 0.1**2 * (sums**2).sum() * 8.0 / 7.0
    found, freedom = recorded._widened(np.array([[0.1]]), normal, gains, 1.3)
    assert freedom == 7.0
    assert variance > 0.13
    assert found[0, 0] == pytest.approx(variance)
    narrow, _ = recorded._widened(np.array([[0.1]]), *scores_of(np.repeat(sums, 3) / 30.0), 1.3)
    assert narrow[0, 0] == pytest.approx(0.13), "never narrower than independent frames"


def test_three_recordings_are_judged_as_wholes_too() -> None:
    """Within a recording nothing differs, so that whole ones have the larger spread, of two degrees of freedom."""
    sums = np.array([6.0, -3.0, -3.0])
    normal, gains = scores_of(*(np.full(12, each / 12.0) for each in sums))
    found, freedom = recorded._widened(np.array([[0.1]]), normal, gains, 1.0)
    assert freedom == 3 * 3 - 1
    wholes = 0.1**2 * (sums**2).sum() * 3.0 / 2.0 * (student_t.ppf(0.975, 2) / student_t.ppf(0.975, 8)) ** 2
    assert found[0, 0] == pytest.approx(wholes)
    two, gains = scores_of(*(np.full(12, each / 12.0) for each in sums[:2]))
    found, freedom = recorded._widened(np.array([[0.1]]), two, gains, 1e-6)
    assert freedom == 2 * 4 - 1
    pieces = 0.1**2 * 4.0 * ((sums[:2] / 4.0) ** 2).sum() * 8.0 / 7.0
    assert found[0, 0] == pytest.approx(pieces), "two are too few"


def test_what_is_not_determined_stays_so() -> None:
    normal, gains = scores_of(np.arange(24.0))
    found, _ = recorded._widened(np.zeros((1, 1)), normal, gains, 1.0)
    assert found[0, 0] == 0.0


def test_a_rollout_takes_steps_in_all_intervals(setup: Setup) -> None:
    assert recorded.steps_of(SYSTEM, SYSTEM.parameters(), setup.recordings, 1e-3) == 20 * 23


def rolled(recording: Recording, start: Array, substeps: int) -> Array:
    assert recording.controls is not None
    times = np.diff(recording.times_s)[None]
    vector = SYSTEM.parameters().vector
    return simulate(SYSTEM, start[None], recording.controls[None], vector, times, substeps=substeps)[0]


def test_half_the_step_is_wanted_where_it_changes_the_motion(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is compared with a fifth of the misfit, or of the noise where that is more."""
    changes = []
    substeps = substeps_of(setup, [setup.first_point], 24)
    for recording, start in zip(setup.recordings, STARTS, strict=True):
        change = (rolled(recording, start, 2 * substeps) - rolled(recording, start, substeps)) / STD
        changes.append(change[np.isfinite(recording.seen)])
    size = float(np.sqrt((np.concatenate(changes) ** 2).mean()))
    states = [start[None] for start in STARTS]

    def finer(misfit: float, std: float) -> float | None:
        given = [replace(each, std=STD * std) for each in setup.recordings]
        found: Any = SimpleNamespace(states=states, parameters=SYSTEM.parameters(), misfit=misfit)
        return recorded.finer_step_s(SYSTEM, found, given, 5e-3)

    tiny = 1e-3 * size  # deviations so small that the change is a thousand of them
    for share, wanted in ((0.9, True), (1.1, False)):
        half = finer(share * size / tiny / 0.2, tiny)
        assert (half is not None) is wanted
        if wanted:
            assert half == pytest.approx(0.02 / substeps / 2.0)
    for share, wanted in ((0.9, True), (1.1, False)):
        assert (finer(0.01, share * size / 0.2) is not None) is wanted, "the noise counts as one"

    def failing(*_: Any) -> Any:
        raise SimulationError("it diverges", "a motion", "less")

    monkeypatch.setattr(recorded, "residuals_of", failing)
    assert finer(1.0, 1.0) == pytest.approx(0.02 / substeps / 2.0), "what diverges needs finer steps"


def test_predictions_have_the_zeros_of_the_sensors(setup: Setup) -> None:
    """A sensor that shows 0.2 rad too much: the body begins 0.2 rad lower, and is seen 0.2 rad higher."""
    given = [replace(each, start=start) for each, start in zip(setup.recordings, STARTS, strict=True)]
    plain = recorded.predict(SYSTEM, SYSTEM.parameters(), given, max_step_s=5e-3)
    assert [len(each) for each in plain] == [24, 15]
    np.testing.assert_array_equal(plain[1][0], STARTS[1])
    shifted = recorded.predict(SYSTEM, SYSTEM.parameters(), given, offsets={"angle_rad": 0.2}, max_step_s=5e-3)
    moved = [replace(each, start=start - [0.2, 0.0]) for each, start in zip(setup.recordings, STARTS, strict=True)]
    for found, known in zip(
        shifted, recorded.predict(SYSTEM, SYSTEM.parameters(), moved, max_step_s=5e-3), strict=True
    ):
        np.testing.assert_allclose(found, known + np.array([0.2, 0.0]), atol=1e-12)


def test_a_fit_states_where_its_descent_ended(setup: Setup, point: Point, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are those of the inverse of one dense system of all unknowns, at 30 degrees of freedom."""
    given = list[float]()

    def widened(covariance: Array, normal: Any, gains: Any, spread: float) -> tuple[Array, float]:
        given.append(spread)
        return spread * covariance, 30.0

    monkeypatch.setattr(recorded, "_widened", widened)
    found = recorded._solution(setup, Descent(point, 3.5, 0.03, 17, True), ["a note"])
    states, residuals = residuals_of(setup, [point], 24)
    assert [len(each) for each in found.states] == [24, 15]
    for g in range(2):
        np.testing.assert_allclose(found.states[g], states[0, g, : len(found.states[g])])
        np.testing.assert_allclose(found.residuals[g], residuals[g][0])
    assert (found.iterations, found.converged) == (17, True)
    scale = scale_of(residuals)
    assert found.misfit == pytest.approx(scale)
    assert [each.name for each in found.estimates] == list(SYSTEM.parameters().names)
    assert found.notes[0] == "a note"
    assert found.whiteness is not None
    assert given == [pytest.approx(recorded._spread(residuals, scale, 3 + 3)), *given[1:]]
    normal = linearized(setup, point, 24, scale)
    whole = np.zeros((7, 7))
    whole[:3, :3] = normal.information
    for g, own in enumerate((slice(3, 5), slice(5, 7))):
        whole[own, own], whole[own, :3], whole[:3, own] = (
            normal.start_information[g], normal.mixed[g], normal.mixed[g].T,
        )  # fmt: skip
    half = student_t.ppf(0.975, 30.0) * np.sqrt(given[0] * np.diag(np.linalg.inv(whole))[:3])
    offset = found.offsets["angle_rad"]
    assert (offset.unit, offset.value) == ("rad", pytest.approx(point.theta[2]))
    assert offset.ci95 == pytest.approx((point.theta[2] - half[2], point.theta[2] + half[2]), rel=1e-4)
    for k, name in enumerate(("length", "mass")):
        middle = setup.values(point.theta)[name].value
        assert found[name].value == pytest.approx(middle)
        domain = setup.parameters[name].lower, setup.parameters[name].upper
        ends = np.clip(middle * np.exp([-half[k], half[k]]), *domain)
        assert found[name].ci95 == pytest.approx(tuple(ends), rel=1e-3)
    np.testing.assert_allclose(found.start_covariance, recorded._start_covariance(setup, normal, given[0]))
