"""The message about an unknown name lists the known ones, and the one that was probably meant."""

from __future__ import annotations

import pytest

from vid2phys.errors import unknown_name


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
