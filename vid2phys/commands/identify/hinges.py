"""Inputs and track of a rigid body on a hinge: from the free body's track to the angle about a fitted hinge.

Method: the free body is tracked first (`tracking.mesh_tracker`, or a model). Then one hinge and an angle a frame are
fitted to all images together (`tracking.hinge_tracker`). Inputs and track become those of a body on a known base, and
`fit_articulated` fits the dynamics. Errors of the hinge are errors of all angles: they last for the whole clip.

The place of the axis in the mesh measures the length to the centre of mass, as far as the density is uniform.

Limits: a static camera whose pose is known, since gravity gives the metre of a motion its direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.priors import Priors
from vid2phys.commands.progress import Progress
from vid2phys.errors import InputError, UsageError
from vid2phys.notes import doubt, warning
from vid2phys.tracking.hinge_config import DEFAULTS as TRACKER

if TYPE_CHECKING:
    from vid2phys.commands.fit_parameters import Known
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.engine.movable.hinged import Hanging
    from vid2phys.engine.system import System
    from vid2phys.geometry import Pose
    from vid2phys.io.mesh import MassProperties
    from vid2phys.solvers.problem import Problem
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.tracking.hinge import Adjustment, Hinge
    from vid2phys.tracking.hinge_tracker import HingeTrack
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array, Estimate, Mesh

RATIOS = (
    "a swing alone determines only ratios, such as damping over inertia: the mass is not known, so inertia, damping "
    "and friction are per kilogram; give --set mass=..."
)
_DENSITY_STD = 0.01  # of the centre of mass, sizes of the body: no body has quite a uniform density
_VERTICAL_STD = 0.005  # rad: how well the camera's pose knows the vertical, and density the direction of the mass
_LASTING_S = 1e9  # correlation time of errors that last for the whole clip
_STEP = 1e-5
LEAST_FRAMES = 8
_BEGIN = 0.01  # of the spread of friction: where a fit of it begins
_STEEP = np.radians(80.0)  # tilt of an axis beyond which gravity hardly makes a body swing
_FAR_OFF = 3.0  # standard deviations between the length that the motion shows and that of the mesh
_STILL = np.radians(3.0)  # range of angles below which nothing swings
_BESIDE = 0.05  # radii of the body: how far an axis may pass beside its convex hull
_RIVAL = 0.8  # evidence for another axis, as a share of that for the best one
_EXPLAINED = 0.85  # least share of the free track's frames that a hinge explains


@dataclass(frozen=True)
class FittedHinge:
    """A hinge in the world.

    Attributes:
        hanging: how the body hangs on it.
        covariance: [9, 9] of axis, pivot, length, tilt and angle zero.
    """

    hanging: Hanging
    covariance: Array

    def derived(self) -> tuple[Estimate, ...]:
        """Return pivot, axis and length of the hinge, with 95 % intervals."""
        from vid2phys.types import Estimate

        at, std = self.hanging.world_from_swing, np.sqrt(np.diag(self.covariance))
        named = [(f"axis_{name}", "", value) for name, value in zip("xyz", at.rotation[:, 1], strict=True)]
        named += [(f"pivot_{name}_m", "m", value) for name, value in zip("xyz", at.translation, strict=True)]
        named.append(("length_by_mesh_m", "m", self.hanging.length))
        return tuple(
            Estimate(name, unit, float(value), (float(value - 1.96 * s), float(value + 1.96 * s)), True)
            for (name, unit, value), s in zip(named, std, strict=False)
        )


@dataclass(frozen=True)
class OnHinge:
    """What is known of a body before its hinge is.

    Attributes:
        properties: mass properties of its mesh.
        known: returns the parameters on a fitted hinge.
        fitted: the hinge, once it is.
    """

    properties: MassProperties
    known: Callable[[FittedHinge | None, Array | None], Known]
    fitted: FittedHinge | None = None


def require_hinge_options(config: IdentifyConfig) -> None:
    """Raise UsageError for options that a body on a hinge does not take."""
    if config.method != "smoothing" or config.loss != "keypoint" or config.starts > 1:
        got = f"--solver {config.method}, --loss {config.loss} and --starts {config.starts} for a body on a hinge"
        raise UsageError(got, "the defaults", "leave them out: angles are fitted by shooting already")
    if config.observation is not None:
        raise UsageError(
            "--observation for a body on a hinge", "its images", "leave it out: the hinge is fitted to them"
        )


def on_hinge(
    system: System,
    properties: MassProperties,
    given: dict[str, float],
    fit: tuple[str, ...],
    priors: Priors,
) -> OnHinge:
    """Return what is known of a body on a hinge. Raises UsageError for names and values that do not fit."""
    return OnHinge(properties, partial(_known, system, properties, given, fit, priors))


def _known(
    system: System,
    properties: MassProperties,
    given: dict[str, float],
    fit: tuple[str, ...],
    priors: Priors,
    hinge: FittedHinge | None,
    axis_body: Array | None,
) -> Known:
    """Return the parameters: as given, of the mesh about the axis, and of the hinge.

    The hinge's length is the prior of the length. What is usually fitted is a nuisance where it is not asked for.
    """
    from vid2phys.commands.fit_parameters import articulated_parameters
    from vid2phys.engine.movable.hinged import Swinging

    assert isinstance(system, Swinging)
    values, notes = dict(given), list[str]()
    if "mass" not in (*given, *fit, *priors.means):
        values["mass"] = 1.0
        notes.append(RATIOS)
    if hinge is not None and axis_body is not None:
        about_axis = float(axis_body @ properties.inertia_per_mass @ axis_body)
        if "inertia" not in given:
            values["inertia"] = values.get("mass", 1.0) * about_axis
            notes.append("inertia of the mesh at uniform density; give --set inertia=... to do better")
        values.setdefault("length", hinge.hanging.length)
        values.setdefault("axis_tilt", hinge.hanging.tilt)
        begun = system.parameters().with_values(values).vector
        values |= {name: _BEGIN * size for name, size in system.spreads(begun).items() if name in set(fit) - set(given)}
    known = articulated_parameters(system, values, fit, priors)
    from_hinge = [name for name in ("inertia", "length", "axis_tilt") if name not in given and name in values]
    parameters = known.parameters.with_values({name: values[name] for name in from_hinge}, source="mesh")
    believed = dict(known.priors)
    if hinge is not None and "length" not in given and "length" not in believed:
        off = _DENSITY_STD * float(np.sqrt(np.trace(properties.inertia_per_mass)))
        std = float(np.hypot(np.sqrt(hinge.covariance[6, 6]), off))
        believed["length"] = (float(np.log(hinge.hanging.length)), float(std / hinge.hanging.length))
        for name, spread in system.spreads(parameters.vector).items():
            believed.setdefault(name, (0.0, spread))
    nuisance = tuple(name for name in system.capabilities.fitted if name not in (*given, *fit))
    parameters = parameters.with_free((*parameters.free_names, *nuisance))
    believed = {name: prior for name, prior in believed.items() if name in parameters.free_names}
    return replace(
        known, parameters=parameters, priors=believed, nuisance=nuisance, notes=(*known.notes, *notes),
        per_kilogram="mass" not in (*given, *fit, *priors.means),
    )  # fmt: skip


def with_hinge(inputs: Inputs, track: Track, progress: Progress) -> tuple[Inputs, ConfigurationTrack]:
    """Return inputs and track of a body on a hinge, from the track of the free body.

    Raises InputError where the body does not swing.
    """
    from vid2phys.engine.movable.hinged import HingedBody, Swinging, as_hung
    from vid2phys.tracking.hinge_tracker import track_hinge

    on, system, shape = inputs.on_hinge, inputs.system, inputs.shape
    assert on is not None
    assert shape is not None
    assert isinstance(system, Swinging)
    if int(track.tracked.sum()) < LEAST_FRAMES:
        got = f"the body is found in {int(track.tracked.sum())} frames of '{inputs.clip.name}'"
        raise InputError(got, f"at least {LEAST_FRAMES}", "film it larger, or look at the preview")
    share = lambda done: progress("fitting the hinge", round(100 * done), 100)  # noqa: E731
    found = track_hinge(inputs.clip, inputs.camera, inputs.mesh, shape, track, share)
    swing = np.ptp(found.adjustment.angles[found.tracked])
    if swing < _STILL:
        got = f"the body turns by {np.degrees(swing):.2g} deg in '{inputs.clip.name}'"
        raise InputError(got, f"a body that swings by {np.degrees(_STILL):.0f} deg and more", "film it swinging")
    fitted, sign, by_hinge = _in_world(found.adjustment, inputs.camera_to_world, on.properties.center_of_mass)
    hinge, hanging = found.adjustment.hinge, fitted.hanging
    world_from_body = _pose(inputs.camera_to_world).compose(hinge.place)
    doubts = _doubts(found, hanging, inputs.mesh)
    hung = replace(inputs.mesh, vertices=as_hung(inputs.mesh.vertices, world_from_body, hanging))
    placed = system.placed(hanging.world_from_swing)
    body = HingedBody(placed, hung, as_hung(shape.points_body, world_from_body, hanging))
    angles = sign * found.adjustment.angles + hanging.angle
    angles = angles - 2.0 * np.pi * np.round(np.median(angles) / (2.0 * np.pi))
    tracked = _tracked(inputs, found, body, angles, by_hinge)
    inputs = replace(
        inputs, system=placed, mesh=hung, body=body, model=None, on_hinge=replace(on, fitted=fitted),
        known=on.known(fitted, sign * hinge.axis),
    )  # fmt: skip
    return inputs, replace(tracked, notes=(*tracked.notes, *doubts))


def _pose(transform: Array) -> Pose:
    from vid2phys.geometry import Pose

    return Pose(transform[:3, :3], transform[:3, 3])


def _in_world(found: Adjustment, camera_to_world: Array, center_of_mass: Array) -> tuple[FittedHinge, float, Array]:
    """Return the hinge in the world, the sign of its axis there, and how angles [T] err with the hinge, [T, 10].

    The axis points along the world's axis that is nearest to it.
    """
    from vid2phys.engine.movable.hinged import Hanging
    from vid2phys.tracking.hinge import SIZE

    world_from_camera = _pose(camera_to_world)

    def hanging(hinge: Hinge, sign: float) -> tuple[Hanging, Array]:
        world_from_body = world_from_camera.compose(hinge.place)
        center, point = world_from_body.apply(np.stack([center_of_mass, hinge.point]))
        at = Hanging.of(center, point, sign * world_from_body.rotation @ hinge.axis)
        place = at.world_from_swing
        return at, np.concatenate([place.rotation[:, 1], place.translation, [at.length, at.tilt, at.angle]])

    axis = world_from_camera.rotation @ found.hinge.place.rotation @ found.hinge.axis
    sign = float(np.sign(axis[int(np.argmax(np.abs(axis)))]))
    units = _STEP * np.eye(SIZE)
    ahead, behind = (np.stack([hanging(found.hinge.retract(s * u), sign)[1] for u in units], axis=1) for s in (1, -1))
    slopes = (ahead - behind) / (2.0 * _STEP)
    covariance = TRACKER.hinge_scale**2 * found.covariance
    variances, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(variances, 0.0))
    fitted = FittedHinge(hanging(found.hinge, sign)[0], slopes @ covariance @ slopes.T)
    return fitted, sign, (sign * found.by_hinge + slopes[8]) @ root


def _tracked(
    inputs: Inputs, found: HingeTrack, body: ArticulatedBody, angles: Array, by_hinge: Array
) -> ConfigurationTrack:
    """Return the track of the angles [T], whose errors have three parts.

    Edges err in each frame, and for some frames; the hinge and the vertical err for the whole clip.
    """
    from vid2phys.tracking.articulated.silhouette_tracker import observation_of_nothing
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.types import ConfigurationMeasurement

    config, rows = TRACKER, np.flatnonzero(found.tracked)
    variance = config.angle_scale**2 * found.adjustment.own[rows]
    own = config.independent_share**2 * variance
    lasting = [np.sqrt(variance)[:, None], np.full((len(rows), 1), _VERTICAL_STD), by_hinge[rows]]
    basis = np.concatenate(lasting, axis=1)[:, None]
    times_s = np.concatenate([[config.correlation_s], np.full(basis.shape[-1] - 1, _LASTING_S)])
    measured = ConfigurationMeasurement(
        angles[rows, None], own[:, None, None], basis, times_s, np.ones(len(rows), bool), "hinge"
    )
    observation = observation_of_nothing(inputs.clip.times_s, body, times_s).with_configurations(rows, measured)
    configurations, covariance = np.full((len(angles), 1), np.nan), np.full((len(angles), 1, 1), np.nan)
    configurations[rows] = angles[rows, None]
    covariance[rows] = (own + (basis[:, 0] ** 2).sum(axis=1))[:, None, None]
    return ConfigurationTrack(observation, configurations, covariance, found.tracked, found.quality, ())


def _doubts(found: HingeTrack, hanging: Hanging, mesh: Mesh) -> list[str]:
    """Return what makes a hinge doubtful."""
    notes = list[str]()
    if found.agreement < _EXPLAINED:
        notes.append(
            doubt(
                f"no hinge explains the motion: the body is on one fixed axis in {100 * found.agreement:.0f} % of the "
                "frames only; is the joint a hinge, and is its base static?"
            )
        )
    if found.rival > _RIVAL:
        notes.append(
            warning(
                f"another axis explains the images nearly as well ({100 * found.rival:.0f} % of the evidence): compare "
                "the overlay; film a whole period, larger swings, or a body whose sides differ"
            )
        )
    beside_m = found.adjustment.hinge.beside_m(mesh)
    if beside_m > _BESIDE * mesh.radius_m:
        notes.append(
            doubt(
                f"the axis passes {1e3 * beside_m:.0f} mm beside the body and its hollows: the part at the pin hides "
                "the scene in all frames, and may be missed; look at the overlay, or film before another wall"
            )
        )
    if abs(hanging.tilt) > _STEEP:
        notes.append(
            doubt(
                f"the axis is {np.degrees(abs(hanging.tilt)):.0f} deg above the horizontal: gravity hardly moves the "
                "body; check camera_to_world, or film a body on a level axis"
            )
        )
    return notes


def begin_swing(problem: Problem, tracked: ConfigurationTrack) -> tuple[Problem, Array]:
    """Return the problem with parameters near those of the motion, and angle and rate at the first frame, [2]."""
    from vid2phys.solvers.coordinate_smoothing import smooth_coordinates
    from vid2phys.solvers.equation_error import start_parameters

    seen = problem.observation
    assert seen.configuration is not None
    states, _ = smooth_coordinates(seen.times_s, tracked.configurations, seen.configuration.covariance)
    return replace(problem, parameters=start_parameters(problem, states)), states[0]


def unlike_mesh(inputs: Inputs, found: tuple[Estimate, ...]) -> list[str]:
    """Return a doubt where the motion contradicts the length that the mesh has on the hinge."""
    on = inputs.on_hinge
    if on is None or on.fitted is None:
        return []
    length = next(estimate for estimate in found if estimate.name == "length")
    if length.prior is None or abs(length.value - length.prior[0]) < _FAR_OFF * length.prior[1]:
        return []
    return [
        doubt(
            f"the motion shows a length of {length.value:.4g} m, the hinge's place in the mesh {length.prior[0]:.4g} m"
            ": is gravity right, is the density uniform, and does nothing else act?"
        )
    ]
