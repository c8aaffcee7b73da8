"""The main job, by the user's command: from the sample's pixels to parameters, poses and actions, against its truth.

Bounds are about twice what is measured (`python -m benchmarks.identify`), on both sides where an interval is judged: an
interval that always holds because it is wide fails as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.identify import cases, run_case

MASS, ACTIONS = "sample, mass", "sample, imitation"


def measured(name: str, folder: Path) -> dict[str, float]:
    """Identify the sample and evaluate the run; return metrics by name."""
    case = next(case for case in cases(quick=False) if case.name == name)
    return {row.metric: row.value for row in run_case(case, folder) if row.value is not None}


@pytest.fixture(scope="module")
def with_recorded_actions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    return measured(MASS, tmp_path_factory.mktemp("mass"))


@pytest.fixture(scope="module")
def with_a_known_mass(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    return measured(ACTIONS, tmp_path_factory.mktemp("actions"))


def test_the_mass_is_right_and_its_interval_is_neither_wrong_nor_useless(
    with_recorded_actions: dict[str, float],
) -> None:
    found = with_recorded_actions
    assert abs(found["mass_error"]) < 0.003
    assert found["mass_in_interval"] == 1.0
    half_width = 0.5 * (found["mass_ci95_high"] - found["mass_ci95_low"]) / found["mass"]
    assert 0.0005 < half_width < 0.02


def test_every_frame_is_tracked_and_the_poses_are_right(with_recorded_actions: dict[str, float]) -> None:
    found = with_recorded_actions
    assert found["frames_tracked_fraction"] == 1.0
    assert found["position_rmse_m"] < 0.008
    assert found["lateral_rmse_m"] < 0.001
    assert found["rotation_median_deg"] < 0.3
    assert found["interval_coverage"] > 0.9


@pytest.mark.slow
def test_the_fitted_thrust_is_that_which_flew_the_sample(with_a_known_mass: dict[str, float]) -> None:
    found = with_a_known_mass
    assert found["thrust_rms_of_hover"] < 0.02
    assert found["torques_in_interval"] > 0.85
