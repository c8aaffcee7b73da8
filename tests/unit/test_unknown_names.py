"""The message about an unknown name lists the known ones, and the one that was probably meant."""

from __future__ import annotations

import pytest

from vid2phys.commands.fit_parameters import check_given
from vid2phys.commands.priors import Priors
from vid2phys.engine import systems
from vid2phys.errors import UsageError, unknown_name


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("damping", "did you mean 'joint_damping'?"),
        ("grond", "did you mean 'ground'?"),
        ("xyz", "choose a parameter from the list"),
    ],
)
def test_the_name_that_was_probably_meant_is_named(name: str, ends: str) -> None:
    message = str(unknown_name("parameter", name, ("payload", "joint_damping", "ground", "base")))
    assert message == f"unknown parameter '{name}'; expected one of base, ground, joint_damping, payload; {ends}"


def test_systems_that_have_a_parameter_are_named() -> None:
    parameters = systems.get("rigid_contact").parameters()
    with pytest.raises(UsageError, match=r"--system pendulum has 'length'$"):
        check_given(parameters, {}, ("length",))
    quadrotor = systems.get("quadrotor").parameters()
    with pytest.raises(UsageError, match=r"did you mean 'arm_length'\? --system pendulum has 'length'$"):
        check_given(quadrotor, {}, ("length",))
    with pytest.raises(UsageError, match=r"--system rod or soft_body has 'young_modulus'$"):
        check_given(parameters, {"young_modulus": 1e6})
    with pytest.raises(UsageError, match=r"--system pendulum has 'length'$"):
        Priors({"length": (0.1, 0.01)}, {}).applied(parameters, {})
