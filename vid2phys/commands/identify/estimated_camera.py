"""Estimate a camera whose pose, and perhaps focal length, is not known, from the track that a nominal camera gave.

The nominal camera has the focal length of its file, of the clip's metadata, or a usual one. `camera_from_motion` states
what the motion says of it. Where the focal length differs by more than a few per cent the body is tracked again, as a
tracker's poses depend on it. The world has z up, x to the camera's right, and its origin where the body was first seen.

The uncertainty goes on into the fit: focal length and rotations about the horizontal axes become nuisance parameters,
whose priors are the estimates. Limits: these priors are independent of each other, so the intervals of a trajectory are
rather too wide; and the camera's place is exact by definition, so that positions carry the error of its rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.fit_parameters import with_nuisance
from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.identify.fit import enough
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.geometry import make_transform
from vid2phys.notes import ordered, warning

if TYPE_CHECKING:
    from vid2phys.io.focal_length import FocalPrior
    from vid2phys.solvers.camera_from_motion import CameraEstimate, CameraPrior, Motion
    from vid2phys.solvers.flights import Flights
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array, Camera, Estimate, Result


@dataclass(frozen=True)
class EstimatedCamera:
    """What the motion says of the camera.

    estimate: with gravity known. check: as if gravity were not known. prior: of the estimate. first: [3] m, where the
    body was first seen, in camera axes. size_std: relative error of the body's size and of its width in the image.
    """

    estimate: CameraEstimate
    check: CameraEstimate
    prior: CameraPrior
    first: Array
    size_std: float

    def with_errors(self, camera: Camera) -> Camera:
        """Return the camera with the errors of its focal length and direction, as far as a camera file states them."""
        estimate = self.estimate
        direction_std_rad = max(estimate.pitch[1], estimate.roll[1])
        return replace(
            camera, focal_std=min(estimate.std("log_focal"), _MOST_FOCAL), direction_std_rad=direction_std_rad
        )


TrackAgain = Callable[[Inputs], tuple[Inputs, "Track"]]
_MOST_FOCAL = 0.5  # error of a focal length that a camera file may state, as a share
_RUNS = 4  # of the tracker, at most
_SAME = 0.02  # of the logarithm of the focal length: the track is not made again for less
_OPEN = 0.5  # spread of the logarithm of a gravity, or of a size, that is not known
_MOTION = 0.8  # share of the prior's spread below which the motion gave a value
_REDUCED = 0.8  # share of an interval below which a measurement is worth a line
_FALL_FRAMES = 8  # least number of frames of a fall at an unexpected rate
_FALL_BEND = 0.5  # radii of the body that such a fall bends by
_WRONG = 3.0  # standard deviations of gravity that call for a warning
_NORMAL = 1.96
_WIDTH_PX = 0.4  # error of a tracked width that lasts for the clip: 0.1 to 0.2 px on each side


def with_estimated_camera(
    inputs: Inputs, found: tuple[Inputs, Track], options: FitOptions, track_again: TrackAgain
) -> tuple[Inputs, Track]:
    """Return the inputs with the camera that the motion shows, and the track by its focal length.

    inputs: with the nominal camera. found: inputs with the tracker's notes, and the track by this camera. track_again:
    tracks with another camera. The inputs stay as they are where the body was lost.
    """
    from vid2phys.solvers.camera_from_motion import CameraPrior

    focal = inputs.focal
    assert focal is not None
    tracked, track = found
    values = {parameter.name: parameter.value for parameter in inputs.known.parameters}
    prior = CameraPrior(focal.log_std, gravity=values.get("gravity", 9.81))
    asks_size = bool({"gravity", "scale"} & set(options.fit))
    for run in range(_RUNS):
        if not enough(track):
            return tracked, track
        motion = _motion(tracked, track)
        of_size = size_std(inputs.mesh.radius_m, motion.points, float(tracked.camera.K[0, 0]))
        prior = replace(prior, log_gravity_std=_OPEN if asks_size else of_size)
        estimate, check = _estimated(inputs, motion, prior)
        if run == _RUNS - 1 or abs(estimate.log_focal) < _SAME:
            break
        K = tracked.camera.K.copy()
        K[:2, :2] *= np.exp(estimate.log_focal)
        prior = replace(prior, log_focal=prior.log_focal - estimate.log_focal)
        tracked, track = track_again(replace(inputs, camera=replace(tracked.camera, K=K)))
    first = motion.points[0] * np.array([1.0, 1.0, np.exp(estimate.log_focal)])
    pose = _pose(estimate, first)
    camera = replace(tracked.camera, camera_to_world=pose)
    tracked = replace(tracked, camera=camera, camera_to_world=pose)
    tracked, carried = _with_nuisance(tracked, options, estimate)
    kept = EstimatedCamera(estimate, check, prior, first, of_size)
    return replace(tracked, warnings=(*tracked.warnings, *carried), camera_estimate=kept), track


def _estimated(inputs: Inputs, motion: Motion, prior: CameraPrior) -> tuple[CameraEstimate, CameraEstimate]:
    """Return the estimate, and the one in which gravity is not known: the size of the body may be wrong.

    The second one stands for both where gravity does not come out as it is known. A body whose own forces carry it does
    not fall, nor does one that a hand moves: its stretches of constant acceleration are short.
    """
    from vid2phys.solvers.camera_from_motion import estimate_camera, level_camera
    from vid2phys.solvers.problem import flies_free

    level = level_camera(prior)
    if len(inputs.system.action_names) and not flies_free(inputs.system):
        return level, level
    check = estimate_camera(motion, replace(prior, log_gravity_std=_OPEN))
    if check.flights is None:
        return check, check
    if _is_wrong(check, prior):
        return (check, check) if _has_fall(motion, check.flights) else (level, level)
    return estimate_camera(motion, prior), check


def _has_fall(motion: Motion, flights: Flights) -> bool:
    """Return whether a flight is long enough for a fall: by its frames, and by how far it bends."""
    least = _FALL_BEND * float(np.linalg.norm(motion.vertices, axis=1).max())
    for frames in flights.frames:
        seconds = float(np.ptp(motion.times_s[frames]))
        if len(frames) >= _FALL_FRAMES and np.linalg.norm(flights.acceleration) * seconds**2 / 8.0 > least:
            return True
    return False


def _is_wrong(check: CameraEstimate, prior: CameraPrior) -> bool:
    """Return whether gravity differs from what is known, where it is known."""
    off = abs(float(np.log(check.gravity / prior.gravity)))
    return prior.log_gravity_std < _OPEN and off > _WRONG * _gravity_std(check, prior.log_gravity_std)


def with_fitted_camera(inputs: Inputs, result: Result) -> tuple[Inputs, Result]:
    """Return inputs and result with the world's origin at the first place of the fit, and the camera as fitted.

    The diagnostics get the entry `camera_estimate`, and notes.
    """
    kept, focal = inputs.camera_estimate, inputs.focal
    assert kept is not None
    assert focal is not None
    values = {parameter.name: parameter for parameter in result.parameters}
    estimate = kept.estimate
    if "camera_turn_x" in values:
        inputs, result = _from_first_place(inputs, result)
        estimate = _as_fitted(inputs, estimate, values)
    report = _report(float(inputs.camera.K[0, 0]), replace(kept, estimate=estimate), focal)
    notes = ordered([*result.diagnostics["notes"], *_notes(report, kept)])  # type: ignore[misc]
    diagnostics = result.diagnostics | {"camera_estimate": report, "notes": notes}
    return inputs, replace(result, diagnostics=diagnostics)


def _from_first_place(inputs: Inputs, result: Result) -> tuple[Inputs, Result]:
    """Return both with the world moved so that the fitted motion begins at its origin."""
    states, pose = result.trajectory.states.copy(), inputs.camera_to_world.copy()
    pose[:3, 3] -= states[0, :3]
    states[:, :3] -= states[0, :3].copy()
    camera = replace(inputs.camera, camera_to_world=pose)
    moved = replace(result, trajectory=replace(result.trajectory, states=states))
    return replace(inputs, camera=camera, camera_to_world=pose), moved


def _as_fitted(inputs: Inputs, estimate: CameraEstimate, values: dict[str, Estimate]) -> CameraEstimate:
    """Return the estimate with the values of the fit.

    A fall that the estimate has used tells nothing more in the fit, so that its spreads stay. Without a fall they are
    those of the fit, as if the fit had measured them.
    """
    from vid2phys.solvers.camera_parameters import camera_pose

    pose = camera_pose(inputs.camera_to_world, {name: one.value for name, one in values.items()})
    if estimate.flights is None:
        estimate = _with_spreads(inputs, estimate, values)
    if values["focal"].source == "nuisance":
        estimate = replace(estimate, log_focal=float(np.log(values["focal"].value)))
    return replace(estimate, down=-pose[2, :3])


def _with_spreads(inputs: Inputs, estimate: CameraEstimate, values: dict[str, Estimate]) -> CameraEstimate:
    """Return the estimate with the spreads of the fit."""
    before = estimate.rotation_std(inputs.camera_to_world)
    for name, row, std in (("camera_turn_x", 1, before[0]), ("camera_turn_y", 0, before[1])):
        direction = np.concatenate([[0.0], inputs.camera_to_world[row, :3], [0.0, 0.0]])
        estimate = estimate.known(direction[None], _measured(std, _spread(values[name].ci95)))
    if values["focal"].source == "nuisance":
        spread = _spread(tuple(np.log(values["focal"].ci95)))
        estimate = estimate.known(np.eye(6)[:1], _measured(estimate.std("log_focal"), spread))
    return estimate


def _spread(ci95: tuple[float, ...]) -> float:
    return 0.5 * (ci95[1] - ci95[0]) / _NORMAL


def _measured(before: float, after: float) -> float:
    """Return the spread of a measurement that brings one spread to another; a large one if it is not less."""
    more = after**-2.0 - before**-2.0
    return float(more**-0.5) if more > 1e-9 * before**-2.0 else 1e3 * before


def _motion(inputs: Inputs, track: Track) -> Motion:
    """Return the places of the body in the tracked frames, with their errors."""
    from vid2phys.commands.identify.places import places_of
    from vid2phys.solvers.camera_from_motion import Motion

    places, pose = places_of(track, lasting=True), track.poses.pose
    frames = np.flatnonzero(track.tracked & pose.is_finite)
    return Motion(places.times_s, places.points, places.covariance, pose.rotation[frames], inputs.mesh.vertices)


def _pose(estimate: CameraEstimate, first: Array) -> Array:
    """Return camera_to_world [4, 4]: z up, x to the camera's right, the origin at the first place [3] m."""
    up = -estimate.down
    right = np.array([1.0, 0.0, 0.0]) if abs(up[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
    x = right - (right @ up) * up
    x /= np.linalg.norm(x)
    rotation = np.stack([x, np.cross(up, x), up])
    return make_transform(rotation, -rotation @ first)


def _with_nuisance(inputs: Inputs, options: FitOptions, estimate: CameraEstimate) -> tuple[Inputs, tuple[str, ...]]:
    """Return the inputs with the camera's unknowns as nuisance parameters, and a note where no fit can take these."""
    from vid2phys.commands.identify.config import OF_ANY_LOSS
    from vid2phys.commands.identify.fit_impacts import fits_contact

    if options.method in OF_ANY_LOSS:
        text = f"intervals of --solver {options.method} do not carry the uncertainty of the camera: use smoothing"
        return inputs, (warning(text),)
    if fits_contact(inputs, options):  # a contact that is not modelled yet would move the focal length
        text = "intervals of contact do not carry the uncertainty of the camera: give a camera file with its pose"
        return inputs, (warning(text),)
    about_x, about_y = estimate.rotation_std(inputs.camera_to_world)
    priors = {"camera_turn_x": (0.0, about_x), "camera_turn_y": (0.0, about_y)}
    if inputs.focal is not None and inputs.focal.log_std > 0.0:
        priors["focal"] = (estimate.log_focal, estimate.std("log_focal"))
    return replace(inputs, known=with_nuisance(inputs.known, priors, priors)), ()


def _report(nominal: float, kept: EstimatedCamera, focal: FocalPrior) -> dict[str, Any]:
    """Return what result.json states of the camera: values with 95 % intervals, their sources, and what would help."""
    estimate, check, first = kept.estimate, kept.check, kept.first
    std = estimate.std("log_focal")
    by_motion = "the fall" if estimate.flights is not None else "a level camera, by assumption"
    source = focal.source
    if focal.log_std and std < _MOTION * focal.log_std:
        source = f"the motion, with {focal.source}"
    pixels = nominal * np.exp(estimate.log_focal + _NORMAL * std * np.array([-1.0, 0.0, 1.0]))
    report: dict[str, Any] = {"focal_px": _value(pixels[1], (pixels[0], pixels[2]), source)}
    for name, (angle, spread) in (("pitch_deg", estimate.pitch), ("roll_deg", estimate.roll)):
        report[name] = _normal(float(np.degrees(angle)), float(np.degrees(spread)), by_motion)
    if check.flights is not None:
        spread = _gravity_std(check, kept.size_std)
        low, high = (check.gravity * float(np.exp(sign * _NORMAL * spread)) for sign in (-1.0, 1.0))
        report["gravity_m_s2"] = _value(check.gravity, (low, high), "the fall, if the size is right")
    if estimate.ground_m is not None:
        slope = np.array([-estimate.down[2] * first[2], *-first, 0.0, 1.0])  # of the height above the ground
        height = float(estimate.ground_m - estimate.down @ first)
        report["ground_z_m"] = _normal(-height, estimate.spread(slope), _impacts(estimate.impacts))
    flights = estimate.flights
    report["frames_in_free_flight"] = 0 if flights is None else flights.count
    report["impacts"] = 0 if flights is None else len(flights.impacts)
    report["measurements_that_would_help"] = _remedies(estimate, check)
    return report


def _value(value: float, ci95: tuple[float, float], source: str) -> dict[str, Any]:
    return {"value": float(value), "ci95": [float(ci95[0]), float(ci95[1])], "source": source}


def _normal(value: float, std: float, source: str) -> dict[str, Any]:
    return _value(value, (value - _NORMAL * std, value + _NORMAL * std), source)


def _gravity_std(check: CameraEstimate, size_std: float) -> float:
    """Return the spread of the logarithm of gravity, with the relative error of the body's size."""
    return float(np.hypot(check.std("log_gravity"), size_std))


def size_std(radius_m: float, places: Array, focal_px: float) -> float:
    """Return the relative error of the size of a body at places [T, 3] m: of its mesh, and of its width in images."""
    from vid2phys.engine.pose_geometry import diameter_px
    from vid2phys.solvers.camera_from_motion import SIZE_STD

    return float(np.hypot(SIZE_STD, _WIDTH_PX / diameter_px(focal_px, radius_m, places)))


def _remedies(estimate: CameraEstimate, check: CameraEstimate) -> list[str]:
    """Return a line for each measurement that would make an interval much shorter."""
    one = np.eye(6)
    measurements = {
        "a board (vid2phys calibrate)": (one[:1], 0.003),
        "a level or a plumb line (vid2phys calibrate --place, --board-is level)": (one[1:4], 0.005),
        "a measured length of the body": (one[4:5], 0.001),
    }
    lines = []
    for what, (directions, error) in measurements.items():
        known, checked = estimate.known(directions, error), check.known(directions, error)
        if estimate.flights is None and what.startswith("a measured"):
            continue
        spans = {
            "the focal length": (estimate.std("log_focal"), known.std("log_focal"), 100.0, "%"),
            "the pitch": (estimate.pitch[1], known.pitch[1], np.degrees(1.0), "deg"),
            "the roll": (estimate.roll[1], known.roll[1], np.degrees(1.0), "deg"),
        }
        if check.flights is not None and not what.startswith("a measured"):
            spans["gravity"] = (check.std("log_gravity"), checked.std("log_gravity"), 100.0, "%")
        shorter = [
            f"{name} from +-{_NORMAL * unit * before:.2g} to +-{_NORMAL * unit * max(after, 0.0):.2g} {sign}"
            for name, (before, after, unit, sign) in spans.items()
            if before * unit > 0.05 and after < _REDUCED * before
        ]
        if shorter:
            lines.append(f"{what} would reduce the interval of {', '.join(shorter)}")
    return lines


def _notes(report: dict[str, Any], kept: EstimatedCamera) -> tuple[str, ...]:
    """Return what a reader of the result must know of the camera."""
    estimate, check, prior = kept.estimate, kept.check, kept.prior
    focal, pitch, roll = report["focal_px"], report["pitch_deg"], report["roll_deg"]
    text = (
        f"the camera was estimated: focal length {_interval(focal, '.4g')} px ({focal['source']}), looking down by "
        f"{_interval(pitch, '.3g')} deg and rolled by {_interval(roll, '.2g')} deg ({pitch['source']}); the world's z "
        "is up, x to the camera's right, and its origin where the body was first seen"
    )
    notes: list[str] = [text]
    if estimate.flights is None:
        notes.append(
            warning(
                "the body is never seen to fall freely, so the motion shows neither the direction of gravity nor the "
                "focal length: a level camera is assumed; film a throw, check the body's size and the frame rate, or "
                "give a camera file with its pose"
            )
        )
    else:
        gravity = report["gravity_m_s2"]
        text = f"gravity, as if it were not known, is {_interval(gravity, '.4g')} m/s^2 by the size of the body"
        if _is_wrong(check, prior):
            text = warning(f"{text}, not {prior.gravity:.4g}: its size or the frame rate is wrong (--fps)")
        notes.append(text)
    if "ground_z_m" in report:
        notes.append(
            f"the ground is at z = {_interval(report['ground_z_m'], '.3g')} m, by {_impacts(estimate.impacts)}"
        )
    return (*notes, *report["measurements_that_would_help"])


def _impacts(count: int) -> str:
    return "one impact" if count == 1 else f"{count} impacts"


def _interval(entry: dict[str, Any], form: str) -> str:
    return f"{entry['value']:{form}} ({entry['ci95'][0]:{form}} to {entry['ci95'][1]:{form}})"
