"""What is known before a fit: the user's values, the mesh's inertia, and the contradictions that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.coverage import falls, rigid
from benchmarks.coverage.cases import box
from vid2phys.commands import fit_parameters
from vid2phys.commands.fit_parameters import (
    DRAG,
    DRAG_PER_S,
    INERTIA,
    fixed_parameters,
    read_parameters,
    size_std,
    with_unknown_size,
)
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.priors import Priors
from vid2phys.commands.system_choice import filmed_system
from vid2phys.engine.systems import get
from vid2phys.errors import InputError, UsageError
from vid2phys.io.mesh import MassProperties
from vid2phys.solvers.problem import DELAY, LAG
from vid2phys.types import Actions

SYSTEM = get("quadrotor")
SOLID = MassProperties(1e-3, np.zeros(3), np.diag([0.005, 0.006, 0.009]), True)
RECORDED = Actions(
    np.arange(10) / 100, np.tile([7.0, 0, 0, 0], (10, 1)), "wrench", SYSTEM.action_names, SYSTEM.action_units
)


def test_mass_to_fit_starts_at_thrust_over_gravity_with_the_inertia_of_the_mesh() -> None:
    known = fixed_parameters(SYSTEM, SOLID, {}, ("mass",), RECORDED)
    mass = known.parameters["mass"]
    assert mass.free
    assert mass.value == pytest.approx(7.0 / 9.81)
    assert known.parameters["inertia_yy"].value == pytest.approx(0.006 * mass.value)
    assert known.nuisance == (*INERTIA, DRAG)
    assert not known.per_kilogram
    assert known.priors[DRAG] == (0.0, pytest.approx(DRAG_PER_S * mass.value))
    given = fixed_parameters(SYSTEM, SOLID, {"drag": 0.1}, ("mass",), RECORDED)
    assert given.nuisance == INERTIA


def test_a_push_begins_with_any_mass_and_names_a_centre_of_mass_elsewhere() -> None:
    body = get("rigid_contact")
    pushed = Actions(np.arange(10) / 100, np.ones((10, 6)), "push", body.action_names, body.action_units)
    known = fixed_parameters(body, SOLID, {}, ("mass",), pushed)
    assert known.parameters["mass"].value == 1.0
    assert not any("centre of mass" in note for note in known.notes)
    aside = MassProperties(1e-3, np.array([0.0, -0.02, 0.01]), SOLID.inertia_per_mass, True)
    notes = fixed_parameters(body, aside, {}, ("mass",), pushed).notes
    assert any("22.4 mm from its centre of mass: --mesh-move shift:0:0.02:-0.01" in note for note in notes), notes
    assert not any("centre of mass" in note for note in fixed_parameters(body, aside, {}, (), None).notes)


def test_given_values_are_kept_and_not_fitted() -> None:
    known = fixed_parameters(SYSTEM, SOLID, {"mass": 0.5, "inertia_xx": 0.01}, (), None)
    assert known.parameters["mass"].source == "given"
    assert known.parameters["inertia_xx"].value == 0.01
    assert known.parameters["inertia_zz"].source == "mesh"
    assert not any(p.free for p in known.parameters)


def test_without_mass_and_actions_everything_is_per_kilogram() -> None:
    known = fixed_parameters(SYSTEM, SOLID, {}, (), None)
    assert known.per_kilogram
    assert known.parameters["mass"].value == 1.0
    assert any("per kilogram" in note for note in known.notes)


def test_unknown_parameter_lists_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"unknown parameter 'mas'.*arm_length, camera, drag, gravity.*mass"):
        fixed_parameters(SYSTEM, SOLID, {}, ("mas",), None)
    thrown = filmed_system("rigid_contact", box(np.full(3, 0.1)), None)
    with pytest.raises(UsageError, match=r"unknown parameter 'grond'.*gravity, ground, ground_height"):
        fixed_parameters(thrown, SOLID, {}, ("grond",), None)
    with pytest.raises(UsageError, match=r"unknown parameter 'ground'.*gravity, ground_height"):
        fixed_parameters(thrown, SOLID, {"ground": 0.1}, (), None)


def test_values_outside_their_domain_and_actions_without_mass_are_refused() -> None:
    with pytest.raises(UsageError, match="mass = -1 kg"):
        fixed_parameters(SYSTEM, SOLID, {"mass": -1.0}, (), None)
    with pytest.raises(UsageError, match="--fit mass, or --set mass"):
        fixed_parameters(SYSTEM, SOLID, {}, (), RECORDED)


def test_parameter_files(tmp_path: Path) -> None:
    path = tmp_path / "quad.yaml"
    path.write_text("mass: 0.04\ndrag: 1.0e-3\n")
    assert read_parameters(path) == {"mass": 0.04, "drag": 1e-3}
    path.write_text("mass: 40 g\n")
    with pytest.raises(InputError, match="mass as '40 g'"):
        read_parameters(path)
    path.write_text("- mass\n")
    with pytest.raises(InputError, match="holds no parameters"):
        read_parameters(path)


def test_an_unknown_size_is_a_nuisance_unless_the_user_gives_or_fits_it() -> None:
    known = fixed_parameters(get("rigid_contact"), SOLID, {}, ("gravity",), None)
    unsized = with_unknown_size(known)
    assert unsized.parameters.free_names == ("gravity", "scale")
    assert unsized.nuisance == ("scale",)
    assert unsized.priors == {}
    for given, fit in (({"scale": 1.0}, ("gravity",)), ({}, ("gravity", "scale"))):
        told = fixed_parameters(get("rigid_contact"), SOLID, given, fit, None)
        assert with_unknown_size(told) is told


def test_gravity_is_as_uncertain_as_the_size_that_it_is_measured_by(monkeypatch: pytest.MonkeyPatch) -> None:
    variances, diameters, of_frames = list[float](), list[float](), rigid.diameter_px

    def kept_px(*given: Any) -> float:
        diameters.append(of_frames(*given))
        return diameters[-1]

    monkeypatch.setattr(fit_parameters, "MESH_STD", 0.0)
    monkeypatch.setattr(rigid, "diameter_px", kept_px)
    for size_px in (1e-6, 0.4, 1.2):
        monkeypatch.setattr(fit_parameters, "SIZE_PX", size_px)
        low, high = falls.case(3).found["gravity"].ci95
        variances.append(((high - low) / 3.92 / 9.81) ** 2)
    assert variances[1] - variances[0] == pytest.approx((0.4 / diameters[0]) ** 2, rel=0.15)
    assert variances[2] - variances[0] == pytest.approx((1.2 / diameters[0]) ** 2, rel=0.15)


def test_wide_bodies_state_their_size_better() -> None:
    assert size_std(50.0) == pytest.approx(np.hypot(0.002, 0.005))
    assert size_std(1000.0) == pytest.approx(0.002, rel=0.01)


def test_the_time_base_of_actions_is_given_or_believed_by_the_user() -> None:
    usual = fixed_parameters(SYSTEM, SOLID, {}, ("mass",), RECORDED)
    assert not {DELAY, LAG} & set(usual.priors)
    believed = Priors({DELAY: (0.03, 0.005), "mass": (0.5, 0.1)})
    known = fixed_parameters(SYSTEM, SOLID, {LAG: 0.01}, ("mass",), RECORDED, believed)
    assert known.priors[DELAY] == (0.03, 0.005)
    assert known.priors[LAG] == pytest.approx((np.log(0.01), 1e-6))
    assert "mass" in known.priors
    assert known.nuisance == usual.nuisance
    with pytest.raises(UsageError, match="unknown parameter 'action_delay_s'"):
        fixed_parameters(SYSTEM, SOLID, {DELAY: 0.0}, (), None)
    with pytest.raises(UsageError, match="motor_lag_s = -1 s"):
        fixed_parameters(SYSTEM, SOLID, {LAG: -1.0}, ("mass",), RECORDED)
    files: dict[str, Any] = {"clip": "a.mp4", "mesh": "a.obj", "camera": "c.yaml", "actions": "a.csv"}
    shot = IdentifyConfig(**files, method="shooting", set_values={DELAY: 0.0}, system="quadrotor")
    with pytest.raises(UsageError, match="action_delay_s with --solver shooting, which takes actions as"):
        shot.check()
