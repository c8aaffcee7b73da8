"""What a training does in a given time, what it starts from, and what is said before and after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.commands import training_benefit
from vid2phys.commands.training_benefit import LEAST_PX, contour_motion, doubt_of, expected_benefit
from vid2phys.commands.training_effort import FULL_MINUTES, SAMPLES, Effort, effort_of
from vid2phys.commands.training_start import NONE, start_of
from vid2phys.errors import UsageError
from vid2phys.io.primitives import load_body
from vid2phys.risp.networks.model import read_config


@pytest.mark.parametrize("minutes", [4.0, 5.0, 10.0, 20.0, FULL_MINUTES])
def test_effort_fits_into_the_minutes(minutes: float) -> None:
    effort = effort_of(minutes)
    assert effort.seconds == pytest.approx(60.0 * minutes, rel=0.01)
    assert effort.refined >= 8
    assert min(effort.epochs, effort.coarse_epochs) >= 1


def test_more_minutes_give_more_images() -> None:
    images = [effort_of(m).samples * effort_of(m).epochs for m in (4.0, 6.0, 10.0, 15.0, 25.0, FULL_MINUTES)]
    assert images == sorted(images)
    assert effort_of(FULL_MINUTES).samples == pytest.approx(SAMPLES, rel=0.1)
    assert Effort().seconds < 60.0 * FULL_MINUTES


@pytest.mark.parametrize("minutes", [0.0, 3.9, 35.0, float("nan")])
def test_minutes_out_of_range(minutes: float) -> None:
    with pytest.raises(UsageError, match="expected 4 to 34"):
        effort_of(minutes)


def test_start_is_a_packaged_model_of_the_same_system() -> None:
    for system in ("rigid_contact", "quadrotor"):
        folder = start_of(None, system)
        assert folder is not None
        assert read_config(folder)["system"] == system
    other = start_of(None, "pendulum")
    assert other is not None
    assert read_config(other).get("kind", "rigid") == "rigid"


def test_start_that_is_given_counts() -> None:
    assert start_of(NONE, "rigid_contact") is None
    assert start_of(Path("models/mine"), "rigid_contact") == Path("models/mine")
    assert start_of(None, None) is None


def test_contours_of_thin_bars_show_less_than_those_of_cubes() -> None:
    bar = contour_motion(load_body(body="box:300x30x20mm"))
    cube = contour_motion(load_body(body="box:100x100x100mm"))
    assert bar is not None
    assert cube is not None
    assert bar < LEAST_PX < cube
    assert contour_motion(load_body(body="box:30x3x2cm")) == pytest.approx(bar)


def test_rotations_that_nothing_shows_do_not_count() -> None:
    can = contour_motion(load_body(body="cylinder:d=60mm,h=110mm"))
    assert can is not None
    assert can > LEAST_PX
    assert contour_motion(load_body(body="ball:d=66mm")) is None


def test_contour_of_a_square_moves_by_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vid2phys.engine.pose_geometry.rotation_grid", lambda count: np.eye(3)[None])
    monkeypatch.setattr(training_benefit, "_visible_axes", lambda mesh: np.array([[0.0, 0.0, 1.0]]))
    side_px = training_benefit._SIZE_PX / np.sqrt(2.0)  # its diagonal is the diameter of the sphere
    moved = contour_motion(load_body(body="box:100x100x1mm"))
    angle = np.deg2rad(5.0)
    shared = 2.0 / (1.0 + np.sin(angle) + np.cos(angle))  # of the area of a square and of the same one rotated
    assert moved == pytest.approx(2.0 * (1.0 - shared) * side_px**2 / (4.0 * side_px), rel=0.03)


def test_sheet_that_vanishes_from_the_side_shows_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from_the_side = np.array([[[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]])
    monkeypatch.setattr("vid2phys.engine.pose_geometry.rotation_grid", lambda count: from_the_side)
    sheet = contour_motion(load_body(body="box:10000x10000x1mm"))
    assert sheet is not None
    assert np.isfinite(sheet)
    assert sheet < LEAST_PX


def test_lines_before_and_after_a_training() -> None:
    assert "expect a model to help" in expected_benefit(load_body(body="box:300x30x20mm"))
    assert "usually suffices without a model" in expected_benefit(load_body(body="box:12x8x5cm"))
    assert "needs no model" in expected_benefit(load_body(body="ball:d=66mm"))
    assert doubt_of({"rotation_over_20deg": 0.2}) is None
    assert "wrong by more than 20 deg in 91% of held-out images" in str(doubt_of({"rotation_over_20deg": 0.91}))
