"""Charts of a fit: what is drawn is what the numbers say, on paper and in a browser's specification alike."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.synthetic import camera_of, noisy_result, short_flight
from vid2phys.report.charts import Chart, Curve, Panel
from vid2phys.report.figures import Plot, draw
from vid2phys.report.fit_charts import actions_chart, impacts_chart, posterior_chart, residual_chart, trajectory_chart
from vid2phys.report.interactive import specification
from vid2phys.types import ConfigurationMeasurement, Posterior, Trajectory


def panel(chart: Chart, row: int, column: int = 0) -> Panel:
    found = chart.rows[row][column]
    assert found is not None
    return found


def two() -> Posterior:
    covariance = np.array([[0.04, 0.012], [0.012, 0.01]])
    return Posterior(("mass", "offset"), ("kg", "1"), (True, False), np.array([np.log(0.5), 2.0]), covariance)


def test_bands_hold_what_the_covariance_states() -> None:
    flight = short_flight()
    result = noisy_result(flight, lost=(5, 6, 9))
    chart = trajectory_chart(result, flight.system)
    z = panel(chart, 0).curves[2]
    assert z.band is not None
    assert np.allclose(z.band[1] - z.band[0], 2 * 1.96 * 0.01)
    assert np.array_equal(z.y, result.trajectory.states[:, 2])
    step = flight.times_s[1] - flight.times_s[0]
    assert np.allclose(chart.absent, [(4.5 * step, 6.5 * step), (8.5 * step, 9.5 * step)], atol=5e-3)


def test_residuals_of_coordinates_are_their_differences() -> None:
    """Of joints, a hinge's angle and modes; frames without a measurement are left out."""
    flight = short_flight()
    result, frames = noisy_result(flight), len(flight.times_s)
    names = ("shoulder_rad", "elbow_rad", "shoulder_rad_s", "elbow_rad_s")
    states = np.zeros((frames, 4))
    states[:, 1] = 0.3
    seen = np.arange(frames) != 4
    measured = ConfigurationMeasurement(
        *(
            np.tile([0.1, 0.1], (frames, 1)),
            np.zeros((frames, 2, 2)),
            np.zeros((frames, 2, 1)),
            np.ones(1),
            seen,
            "test",
        )
    )
    found = replace(
        result,
        trajectory=Trajectory(flight.times_s, states, names),
        observation=replace(result.observation, configuration=measured),
    )
    chart = residual_chart(found, flight.system, camera_of(flight))
    assert chart is not None
    shoulder, elbow = panel(chart, 0).curves
    assert (shoulder.name, elbow.name) == ("shoulder", "elbow")
    assert shoulder.y == pytest.approx(np.full(frames - 1, 0.1))
    assert elbow.y == pytest.approx(np.full(frames - 1, -0.2))


def test_residuals_are_those_of_points_where_a_state_holds_places() -> None:
    """Modes of a rod are measured, while its state holds the places of vertices."""
    flight = short_flight()
    result, frames = noisy_result(flight), len(flight.times_s)
    modes = ConfigurationMeasurement(
        *(np.ones((frames, 2)), np.zeros((frames, 2, 2)), np.zeros((frames, 2, 1)), np.ones(1)),
        *(np.ones(frames, bool), "test"),
    )
    found = replace(result, observation=replace(result.observation, configuration=modes))
    chart = residual_chart(found, flight.system, camera_of(flight))
    assert chart is not None
    assert panel(chart, 0).y_label == "residual (px)"


def test_residuals_of_points_grow_with_their_noise() -> None:
    flight = short_flight()
    chart = residual_chart(noisy_result(flight, lost=(5,)), flight.system, camera_of(flight))
    assert chart is not None
    median, worst = panel(chart, 0).curves
    assert len(median.x) == len(flight.times_s) - 1
    assert (median.y <= worst.y).all()


def test_a_clip_that_shows_nothing_has_no_chart_of_residuals() -> None:
    flight = short_flight()
    result = noisy_result(flight, lost=tuple(range(len(flight.times_s))))
    assert residual_chart(result, flight.system, camera_of(flight)) is None


def test_pairs_lie_as_they_are_correlated() -> None:
    """Contours hold the share they say of a sample, and intervals of the densities too."""
    posterior, rng = two(), np.random.default_rng(0)
    chart = posterior_chart(posterior, {"offset": (2.1, 0.5)})
    assert chart.rows[0][1] is None
    drawn = rng.multivariate_normal(posterior.mean, posterior.covariance, 4000)
    from matplotlib.path import Path as Outline

    for curve, share in zip(panel(chart, 1).curves, (0.68, 0.95), strict=True):
        inside = Outline(np.stack([np.log(curve.x), curve.y], axis=-1)).contains_points(drawn)
        assert inside.mean() == pytest.approx(share, abs=0.02)
    assert "correlation +0.60" in panel(chart, 1).x_label
    filled = panel(chart, 0).curves[0].x
    assert np.mean((np.exp(drawn[:, 0]) > filled[0]) & (np.exp(drawn[:, 0]) < filled[-1])) == pytest.approx(
        0.95, abs=0.02
    )
    prior = panel(chart, 1, 1).curves[-1]
    assert prior.style == "dashed"
    assert prior.x[np.argmax(prior.y)] == pytest.approx(2.1, abs=0.01)


def test_impacts_stand_at_their_times_with_intervals() -> None:
    keys = "time_s", "normal_impulse_m_s", "normal_impulse_std_m_s", "friction_impulse_m_s", "friction_impulse_std_m_s"
    listed = [
        dict(zip(keys, values, strict=True)) for values in ((0.2, 3.0, 0.1, 0.5, 0.2), (0.6, 1.0, 0.01, 0.0, 0.0))
    ]
    chart = impacts_chart(listed, np.linspace(0.0, 1.0, 61))
    for row, values, halves in ((0, (3.0, 1.0), (0.196, 0.0196)), (1, (0.5, 0.0), (0.392, 0.0))):
        impulse, interval = panel(chart, row).curves[:2]
        np.testing.assert_allclose(impulse.x.reshape(2, 3)[:, :2], [[0.2, 0.2], [0.6, 0.6]])
        np.testing.assert_allclose(impulse.y.reshape(2, 3)[:, :2], [[0.0, value] for value in values])
        np.testing.assert_allclose(interval.y.reshape(2, 3)[:, 0], np.subtract(values, halves))
        np.testing.assert_allclose(interval.y.reshape(2, 3)[:, 1], np.add(values, halves))
        assert np.isnan(impulse.y[2::3]).all(), "a gap after each"
    np.testing.assert_array_equal(panel(chart, 0).curves[2].x, [0.0, 1.0], "the axis spans the clip")


def test_both_drawings_show_every_panel() -> None:
    result = noisy_result(short_flight())
    assert result.actions is not None
    chart = actions_chart(result.actions, result.actions_std)
    names = [axes.get_ylabel() for axes in draw(chart).axes]
    assert names[0] == "thrust\n(N)"
    assert len(names) == 4
    written = json.loads(json.dumps(specification(chart), allow_nan=False))
    assert [row[0] for row in written["layout"]["grid"]["subplots"]] == ["xy", "xy2", "xy3", "xy4"]
    lines = [trace for trace in written["data"] if trace.get("hoverinfo") != "skip"]
    assert [trace["yaxis"] for trace in lines] == ["y", "y2", "y3", "y4"]
    assert np.allclose(lines[0]["y"], 7.0)
    assert len(lines[0]["y"]) == len(lines[0]["x"]) == len(result.actions.times_s) + 1


def test_what_is_not_finite_is_a_gap() -> None:
    chart = Chart("t", ((Panel((Curve(np.arange(3.0), np.array([0.0, np.nan, 2.0])),)),),))
    assert specification(chart)["data"][0]["y"] == [0.0, None, 2.0]
    assert Plot(chart)._repr_svg_().startswith("<svg")


def test_long_curves_are_drawn_by_some_of_their_points() -> None:
    flight = short_flight()
    chart = trajectory_chart(noisy_result(flight), flight.system)
    few = panel(chart.thinned(7), 0).curves[0]
    assert len(few.x) == len(few.y) == 7
    assert few.band is not None
    assert len(few.band[0]) == 7
    whole = panel(chart, 0).curves[0]
    assert (few.x[0], few.x[-1], few.y[-1]) == (whole.x[0], whole.x[-1], whole.y[-1])
    assert np.array_equal(panel(chart.thinned(10_000), 0).curves[0].y, whole.y)
