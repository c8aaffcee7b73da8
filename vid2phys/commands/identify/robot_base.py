"""The pose of a robot's base: fitted (`--fit base`), or compared with what the silhouettes show.

Method: `tracking.articulated.base_pose`. The robot is moved to the fitted base and tracked again.

Limits: one clip, and no trained model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.errors import InputError, UsageError
from vid2phys.notes import doubt

if TYPE_CHECKING:
    from vid2phys.commands.identify.config import IdentifyConfig
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.engine.movable.joints import JointBody
    from vid2phys.tracking.articulated.base_pose import BaseEstimate
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.types import Array, Result

    Track = Callable[[Inputs], ConfigurationTrack]

BASE = "base"  # in `--fit`
NAMES = tuple(f"base_{what}_{axis}" for what in ("move", "turn") for axis in "xyz")
_NORMAL = 1.96
_FEW = 0.5  # share of tracked frames below which the base is searched for
_WRONG_M = 0.03  # shift from which on a search shows that a base is wrong


def require_fittable(config: IdentifyConfig, inputs: Inputs) -> None:
    """Raise UsageError for a base to fit and a trained model."""
    if BASE in config.fit and inputs.model is not None:
        raise UsageError("--fit base with a trained model", "silhouettes alone", "add --model none")


def track_and_compare(inputs: Inputs, track: Track) -> tuple[Inputs, ConfigurationTrack]:
    """Track a robot on the base that was given; note where its silhouettes show another one.

    Raises InputError where the robot is not found, with the base that a search found.
    """
    from vid2phys.tracking.articulated.base_pose import fitted_base

    try:
        found = track(inputs)
    except InputError as error:
        raise _elsewhere(inputs) or error from error
    if found.tracked.mean() < _FEW:
        elsewhere = _elsewhere(inputs)
        if elsewhere is not None:
            raise elsewhere
    estimate = fitted_base(inputs.clip, inputs.camera, _body(inputs), found)
    if estimate is None or not estimate.contradicts:
        return inputs, found
    text = f"{_words(estimate)} from where it is given: check --base and camera_to_world, or add base to --fit"
    return inputs, replace(found, notes=(*found.notes, doubt(f"the silhouettes show the base {text}")))


def track_and_fit(inputs: Inputs, given: str | None, track: Track) -> tuple[Inputs, ConfigurationTrack]:
    """Find the base, move the robot there, and track it. given: the text of `--base`. Raises InputError."""
    from vid2phys.tracking.articulated.base_pose import fitted_base, searched_shift

    body = _body(inputs)
    shift = searched_shift(inputs.clip, inputs.camera, body)
    if shift is None:
        return inputs, track(inputs)  # which raises, or notes what is wrong
    found = track(_moved(inputs, np.eye(3), shift))
    estimate = fitted_base(inputs.clip, inputs.camera, body, found, shift)
    if estimate is None:
        raise InputError("the base cannot be fitted: too few edges are seen", "a robot in view", "film closer")
    if not estimate.is_rotated:
        estimate = estimate.unrotated()
    moved = _moved(inputs, estimate.rotation, estimate.shift)
    same = as_option(estimate) if given is None else f"{given},{as_option(estimate)}"
    note = f"base: fitted {_words(estimate)} from where it was given; the same by --base {same}"
    return replace(moved, warnings=(*moved.warnings, note), base=estimate), track(moved)


def with_base(result: Result, inputs: Inputs) -> Result:
    """Return the result with the fitted base among its parameters."""
    from vid2phys.types import Estimate

    if inputs.base is None:
        return result
    rows = zip(NAMES, inputs.base.moved.tolist(), inputs.base.std.tolist(), strict=True)
    base = [
        Estimate(
            *(name, "m" if "move" in name else "rad", value, (value - _NORMAL * std, value + _NORMAL * std), True),
            source="fitted",
        )
        for name, value, std in rows
        if value != 0.0  # a rotation that was taken as given
    ]
    return replace(result, parameters=(*result.parameters, *base))


def as_option(estimate: BaseEstimate) -> str:
    """Return the base as the text of `--base`."""
    from scipy.spatial.transform import Rotation

    angles = Rotation.from_matrix(estimate.rotation).as_euler("xyz", degrees=True).tolist()
    rotations = [f"{axis}:{angle:.3f}" for axis, angle in zip("xyz", angles, strict=True) if abs(angle) > 5e-4]
    return ",".join([*rotations, "shift:" + ":".join(f"{value:.4f}" for value in estimate.shift.tolist())])


def _elsewhere(inputs: Inputs) -> InputError | None:
    """Return the error that states where a search found the base; None where it found nothing else."""
    from vid2phys.tracking.articulated.base_pose import searched_shift

    shift = searched_shift(inputs.clip, inputs.camera, _body(inputs))
    if shift is None or np.linalg.norm(shift) < _WRONG_M:
        return None
    got = f"'{inputs.mesh.name}' is not where its base is given, but {_centimetres(shift)} from there"
    return InputError(got, "the base's pose in the world of camera_to_world", "correct --base, or add base to --fit")


def _centimetres(shift: Array) -> str:
    return ", ".join(f"{100.0 * value:+.1f}" for value in shift.tolist()) + " cm (x, y, z)"


def _words(estimate: BaseEstimate) -> str:
    """Return how far the base is from where it was given."""
    angles = np.degrees(estimate.moved[3:])
    text = _centimetres(estimate.moved[:3])
    if not angles.any():
        return text
    return f"{text} and rotated by {', '.join(f'{value:+.1f}' for value in angles.tolist())} deg"


def _moved(inputs: Inputs, rotation: Array, shift: Array) -> Inputs:
    """Return the inputs with the robot on another base."""
    from vid2phys.engine.systems.articulated import Articulated
    from vid2phys.risp.networks.articulated_bodies import untrained_body

    system = Articulated(_body(inputs).system.robot.moved(rotation, shift))
    system = system.called_as(inputs.known.parameters.names)
    assert system.surface is not None
    return replace(inputs, system=system, mesh=system.surface, body=untrained_body(system))


def _body(inputs: Inputs) -> JointBody:
    from vid2phys.engine.movable.joints import JointBody

    assert isinstance(inputs.body, JointBody)
    return inputs.body
