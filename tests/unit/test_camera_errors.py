"""Errors that a camera file states: read and written, unknowns of the fit, and wide enough intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage.cases import box
from benchmarks.coverage.falls import fallen
from vid2phys.commands.fit_parameters import fixed_parameters, with_camera_errors, with_unknown_size
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.priors import Priors
from vid2phys.commands.system_choice import filmed_system
from vid2phys.engine.systems import get
from vid2phys.errors import InputError, UsageError
from vid2phys.io.camera import describe, load_camera, save_camera
from vid2phys.io.mesh import MassProperties
from vid2phys.types import Camera

CAMERA = Camera(np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]), 640, 480, camera_to_world=np.eye(4))
ERRING = replace(CAMERA, focal_std=0.004, direction_std_rad=0.01)
BODY = get("rigid_contact")
SOLID = MassProperties(1e-3, np.zeros(3), np.diag([0.005, 0.006, 0.009]), True)


def test_errors_are_written_and_read_and_shown(tmp_path: Path) -> None:
    save_camera(ERRING, tmp_path / "cam.yaml")
    camera = load_camera(tmp_path / "cam.yaml")
    assert camera.focal_std == pytest.approx(0.004)
    assert camera.direction_std_rad == pytest.approx(0.01, rel=1e-5)
    assert "focal length known to 0.4 %, direction known to 0.57 deg" in describe(camera)
    save_camera(CAMERA, tmp_path / "exact.yaml")
    assert "focal_std:" not in (tmp_path / "exact.yaml").read_text().split("projection_matrix")[1]
    assert load_camera(tmp_path / "exact.yaml").focal_std == 0.0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("focal_std: -0.1", "focal_std -0.1"),
        ("focal_std: 3.5", "focal_std 3.5 in .* up to 0.5"),
        ("direction_std_deg: 45", "direction_std_deg 45 in .* up to 30 deg"),
        ("direction_std_deg: much", "'direction_std_deg' in .* is not numeric"),
    ],
)
def test_errors_that_no_calibration_has_are_refused(tmp_path: Path, line: str, text: str) -> None:
    save_camera(CAMERA, tmp_path / "cam.yaml")
    path = tmp_path / "cam.yaml"
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(InputError, match=text):
        load_camera(path)


def test_errors_of_a_camera_are_nuisances_unless_they_are_given_or_fitted() -> None:
    known = with_camera_errors(fixed_parameters(BODY, SOLID, {}, ("gravity",), None), ERRING)
    assert known.parameters.free_names == ("gravity", "focal", "camera_turn_x", "camera_turn_y")
    assert known.nuisance == ("camera_turn_x", "camera_turn_y", "focal")
    assert known.priors["focal"] == (0.0, 0.004)
    assert known.priors["camera_turn_x"] == known.priors["camera_turn_y"] == (0.0, 0.01)
    exact = fixed_parameters(BODY, SOLID, {}, ("gravity",), None)
    assert with_camera_errors(exact, CAMERA).parameters.free_names == ("gravity",)
    given = {"focal": 1.0, "camera_turn_x": 0.0, "camera_turn_y": 0.0}
    told = fixed_parameters(BODY, SOLID, given, ("gravity",), None)
    assert with_camera_errors(told, ERRING).nuisance == ()
    fitted = with_camera_errors(fixed_parameters(BODY, SOLID, {}, ("focal",), None), ERRING)
    assert "focal" not in (*fitted.nuisance, *fitted.priors)
    assert with_unknown_size(told).nuisance == ("scale",)  # a given focal length is no given size


def test_a_prior_of_the_user_makes_a_parameter_of_the_scene_a_nuisance() -> None:
    believed = Priors({"focal": (1.0, 0.02), "scale": (1.0, 0.001)})
    known = with_camera_errors(fixed_parameters(BODY, SOLID, {}, ("gravity",), None, believed), ERRING)
    assert known.nuisance == ("focal", "scale", "camera_turn_x", "camera_turn_y")
    assert known.priors["focal"] == pytest.approx((0.0, 0.02))
    thrown = filmed_system("rigid_contact", box(np.full(3, 0.1)), None, ("mu",))
    tilted = fixed_parameters(thrown, SOLID, {}, ("mu",), None, Priors({"ground_tilt_x": (0.0, 0.001)}))
    assert tilted.parameters.free_names == ("mu", "ground_tilt_x")
    assert tilted.nuisance == ("ground_tilt_x",)
    with pytest.raises(UsageError, match="--prior of mass, which is not fitted"):
        fixed_parameters(BODY, SOLID, {}, ("gravity",), None, Priors({"mass": (1.0, 0.1)}))


def test_priors_of_a_camera_are_refused_where_no_fit_takes_them() -> None:
    given = {"clip": "a.mp4", "mesh": "a.obj", "camera": "c.yaml", "priors": {"focal": (1.0, 0.01)}}
    with pytest.raises(UsageError, match="--fit focal with contact"):
        IdentifyConfig(**given, fit=("mu",), system="rigid_contact").check()
    with pytest.raises(UsageError, match="--fit focal with --solver adam"):
        IdentifyConfig(**given, method="adam").check()


def test_gravity_carries_the_error_of_the_focal_length_that_a_file_states() -> None:
    def file_of(camera: Camera, stated: float) -> Camera:
        """Return the file of a camera that looks down, whose focal length is 4 % off."""
        K = camera.K * np.array([[1.04, 1.0, 1.0], [1.0, 1.04, 1.0], [1.0, 1.0, 1.0]])
        return replace(camera, K=K, focal_std=0.04 * stated)

    down = np.array([0.0, -0.1, 1.0])
    exact, erring = (
        fallen(np.random.default_rng([1, 73]), down, lambda camera, stated=stated: file_of(camera, stated))
        for stated in (0.0, 1.0)
    )
    truth, (low, high) = exact.truth["gravity"], exact.found["gravity"].ci95
    least, most = erring.found["gravity"].ci95
    assert not low < truth < high
    assert least < truth < most
    variance = ((most - least) ** 2 - (high - low) ** 2) / 3.92**2
    assert np.sqrt(variance) / truth == pytest.approx(0.04, rel=0.25)  # a fall along the sight line is depth alone
