"""What is known before the fit: parameters from the user, the mesh and the defaults, and which of them are free."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from vid2phys.commands.priors import Priors, in_solver_coordinates
from vid2phys.engine import systems
from vid2phys.engine.system import System
from vid2phys.errors import InputError, UsageError
from vid2phys.io.mesh import MassProperties
from vid2phys.io.yaml_files import read_yaml
from vid2phys.notes import Note, warning
from vid2phys.solvers.camera_parameters import GROUPS as CAMERA_GROUPS
from vid2phys.solvers.camera_parameters import NAMES as CAMERA_NAMES
from vid2phys.solvers.camera_parameters import SCALE, expand_groups, with_camera_parameters
from vid2phys.solvers.problem import TIME_BASE
from vid2phys.types import Actions, Camera, Parameter, Parameters

T = TypeVar("T")
INERTIA = ("inertia_xx", "inertia_yy", "inertia_zz")
NO_PRIORS = Priors()
_LARGEST = 1e300  # of whole numbers, which a file may write without end
DRAG = "drag"
# Standard deviation of drag over mass: rotors slow a quadrotor at up to about half of its speed a second (Faessler et
# al., "Differential flatness of quadrotor dynamics subject to rotor drag", 2018). Left out, it is an unknown force.
DRAG_PER_S = 0.5
_OFF_CENTER = 0.02  # distance of a centre of mass from the origin, over the radius of gyration, that a note names
INERTIA_SPREAD = 0.5  # of the logarithm: how far a real body's inertia is from that of uniform density
_GIVEN_STD = 1e-6  # of a time base that is given, s, and of its logarithm
FITTED_INERTIA_SPREAD = 1.0  # likewise, of an inertia that is asked for
# By how much contours state the width of a body wrongly for a whole clip, px, and its mesh, as a share
# (docs/decisions/049-widths.md).
SIZE_PX, MESH_STD = 0.25, 0.002


@dataclass(frozen=True)
class Known:
    """Parameters ready for a `Problem`.

    priors: name -> (mean, std) in solver coordinates. nuisance: free, but not asked for. per_kilogram: the mass is
    unknown and set to 1 kg, so that forces are per kilogram. notes: what a reader of the result must know.
    """

    parameters: Parameters
    priors: dict[str, tuple[float, float]]
    nuisance: tuple[str, ...]
    per_kilogram: bool
    notes: tuple[str, ...]


def read_parameters(path: str | Path) -> dict[str, float]:
    """Known values from a YAML file `name: value` in SI. Raises InputError for anything else."""
    data = read_yaml(path, "a YAML file of parameters, lines 'name: value'")
    if not isinstance(data, dict):
        raise InputError(f"'{path}' holds no parameters", "lines 'name: value' in SI", "see `vid2phys systems`")
    values = {}
    for name, value in data.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > _LARGEST:
            raise InputError(f"'{path}' gives {name} as '{value}'", "a number in SI", "write it without a unit")
        values[str(name)] = float(value)
    return values


def fixed_parameters(
    system: System,
    mass_properties: MassProperties,
    given: dict[str, float],
    fit: tuple[str, ...],
    actions: Actions | None,
    priors_and_bounds: Priors = NO_PRIORS,
) -> Known:
    """Put together what is known. Raises UsageError for unknown names, values outside their domain, contradictions."""
    time_base = {} if actions is None else _time_base(given, priors_and_bounds)
    given = {name: value for name, value in given.items() if name not in time_base}
    priors_and_bounds = priors_and_bounds.without(time_base)
    parameters = with_camera_parameters(
        system.parameters(), (*fit, *given, *priors_and_bounds.priors, *priors_and_bounds.bounds)
    )
    check_given(parameters, given, fit, {*CAMERA_GROUPS, *system.capabilities.groups})
    notes: list[str] = []
    values = {name: mean for name, mean in priors_and_bounds.means.items() if name in parameters.names} | given
    mass_known = "mass" in values
    if actions is not None and not mass_known and "mass" not in fit:
        raise UsageError("--actions without a mass", "--fit mass, or --set mass=VALUE", "say which of the two is meant")
    per_kilogram = not mass_known and actions is None
    if per_kilogram:
        values["mass"] = 1.0
        notes.append("the mass is not known: forces and torques are per kilogram")
    elif "mass" in fit and not mass_known:
        assert actions is not None
        values["mass"] = 1.0 if actions.kind == "push" else _mass_of_thrust(actions, given)
    center, radius_m = mass_properties.center_of_mass, float(np.sqrt(np.trace(mass_properties.inertia_per_mass)))
    if actions is not None and actions.kind == "push" and np.linalg.norm(center) > _OFF_CENTER * radius_m:
        shift = ":".join(f"{0.0 - x:.4g}" for x in center)
        got = f"forces act at the mesh's origin, {1e3 * np.linalg.norm(center):.3g} mm from its centre of mass"
        notes.append(warning(f"{got}: --mesh-move shift:{shift} moves the origin there"))
    from_mesh = [name for name in INERTIA if name not in values]
    diagonal = np.diagonal(mass_properties.inertia_per_mass)
    meshed = {name: values["mass"] * float(diagonal[i]) for i, name in enumerate(INERTIA) if name in from_mesh}
    parameters = parameters.with_values(values).with_values(meshed, source="mesh")
    if per_kilogram:
        parameters = Parameters(tuple(replace(p, source="default") if p.name == "mass" else p for p in parameters))
    unknown = [n for n in (*INERTIA, DRAG) if n in parameters.names and n not in (*given, *fit)]
    of_scene = {*CAMERA_NAMES, *system.capabilities.groups.get("ground", ())}
    by_prior = [name for name in priors_and_bounds.priors if name in of_scene and name not in fit]
    nuisance = (*(unknown if actions is not None else ()), *by_prior)
    if from_mesh:
        shape = "the mesh" if mass_properties.watertight else "the convex hull of the mesh"
        notes.append(f"inertia of {shape} at uniform density; give {', '.join(from_mesh)} with --set to do better")
    spreads = dict.fromkeys(fit, FITTED_INERTIA_SPREAD) | dict.fromkeys(nuisance, INERTIA_SPREAD)
    priors = {n: (float(np.log(parameters[n].value)), spreads[n]) for n in from_mesh if n in spreads}
    if DRAG in nuisance:
        priors[DRAG] = (parameters[DRAG].value, DRAG_PER_S * values["mass"])
    parameters = parameters.with_free(tuple(dict.fromkeys((*fit, *nuisance))))
    parameters, believed, more = priors_and_bounds.applied(parameters, given)
    return Known(parameters, priors | time_base | believed, nuisance, per_kilogram, (*notes, *more))


def _time_base(given: dict[str, float], priors: Priors) -> dict[str, tuple[float, float]]:
    """Return priors, in solver coordinates, of the time base of recorded actions that the user gave or believes."""
    known = {parameter.name: parameter for parameter in TIME_BASE}
    set_values = {name: value for name, value in given.items() if name in known}
    check_given(Parameters(TIME_BASE), set_values)
    stated = {name: (known[name].to_free(value), _GIVEN_STD) for name, value in set_values.items()}
    believed = {name: pair for name, pair in priors.priors.items() if name in known and name not in stated}
    return stated | {name: in_solver_coordinates(known[name], *pair) for name, pair in believed.items()}


def _mass_of_thrust(actions: Actions, given: dict[str, float]) -> float:
    """Return the mass that the usual thrust carries, where the fit begins. Raises InputError without a thrust."""
    thrust = actions.values.sum(axis=1) if actions.kind == "rotors" else actions.values[:, 0]
    mass = float(np.median(thrust)) * given.get("thrust_scale", 1.0) / given.get("gravity", 9.81)
    if mass <= 0.0:
        raise InputError("the recorded thrust is not positive", "thrust along the body's z axis in N")
    return mass


def size_std(diameter_px: float) -> float:
    """Return the standard deviation of the logarithm of a body's size, as contours of its diameter state it."""
    return float(np.hypot(MESH_STD, SIZE_PX / diameter_px))


def with_unknown_size(known: Known) -> Known:
    """Return what is known, with the size of the body as a nuisance: its contours err for a whole clip.

    Its prior follows where the width in the frames is known (`size_std`). A size that is given or fitted stays as it
    is.
    """
    return with_nuisance(known, (SCALE.name,))


def with_camera_errors(known: Known, camera: Camera) -> Known:
    """Return what is known, with focal length and direction of a camera as nuisances, as its calibration errs.

    A free body moves alike wherever the camera stands and whatever its heading: its rotations about the horizontal
    axes count. Parameters that are given or fitted stay as they are.
    """
    priors = dict.fromkeys(("camera_turn_x", "camera_turn_y"), (0.0, camera.direction_std_rad))
    priors["focal"] = (0.0, camera.focal_std)
    stated = {name: prior for name, prior in priors.items() if prior[1] > 0.0}
    return with_nuisance(known, stated, stated)


def with_nuisance(known: Known, names: Iterable[str], priors: Mapping[str, tuple[float, float]] | None = None) -> Known:
    """Return what is known, with some camera parameters as nuisances, unless they are given or fitted already.

    priors: mean and standard deviation in solver coordinates, where the nuisances begin; without effect where the user
    gave one.
    """
    names, priors = tuple(names), priors or {}
    parameters = with_camera_parameters(known.parameters, names)
    new = tuple(name for name in names if parameters[name].source != "given" and not parameters[name].free)
    if not new:
        return known
    begins = {name: parameters[name].from_free(priors[name][0]) for name in new if name in priors}
    free = parameters.with_values(begins, source="default").with_free((*parameters.free_names, *new))
    own = {name: priors[name] for name in begins}
    return replace(known, parameters=free, priors=own | known.priors, nuisance=(*known.nuisance, *new))


def named(system: System, fit: tuple[str, ...], names: Iterable[str] = ()) -> tuple[System, tuple[str, ...]]:
    """Return the system, which calls its parameters as the user does, and `fit` with groups replaced by parameters.

    names: other names of parameters that the user gave. Raises UsageError for a name that does not fit the system.
    """
    fit = expand_groups(fit, system.capabilities.groups)
    return system.called_as({*fit, *names}), fit


def articulated_parameters(
    system: System,
    given: dict[str, float],
    fit: tuple[str, ...],
    priors_and_bounds: Priors,
    more: tuple[Parameter, ...] = (),
) -> Known:
    """Return the parameters of a system on a known base with what the user gave.

    more: parameters beside the system's own.

    Raises UsageError for unknown names and values outside their domain.
    """
    named = (*fit, *given, *priors_and_bounds.priors, *priors_and_bounds.bounds)
    if SCALE.name in named:
        raise UsageError(f"the scale of '{system.name}'", "a body by --mesh", "its size is that of the system")
    parameters = with_camera_parameters(Parameters((*system.parameters().items, *more)), named)
    check_given(parameters, given, fit, {*CAMERA_GROUPS, *system.capabilities.groups})
    means = {name: mean for name, mean in priors_and_bounds.means.items() if name in parameters.names}
    parameters = parameters.with_values(means | given).with_free(tuple(dict.fromkeys(fit)))
    parameters, priors, started = priors_and_bounds.applied(parameters, given)
    notes = (warning(system.capabilities.caution),) if system.capabilities.caution else ()
    return Known(parameters, priors, (), False, (*notes, *started))


def listen(function: Callable[[], T]) -> tuple[T, list[str]]:
    """Call `function` and return its result and what it warned of as notes, for a reader."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    texts = [item.message.args[0] for item in caught if isinstance(item.message, UserWarning)]
    return result, [text if isinstance(text, Note) else str(text) for text in texts]


def check_given(
    parameters: Parameters, given: dict[str, float], fit: tuple[str, ...] = (), groups: Collection[str] = ()
) -> None:
    """Raises UsageError for unknown names, listing the known ones, and for values outside their limits.

    groups: names that stand for several parameters in `fit`.
    """
    for names, known in ((given, parameters.names), (fit, (*parameters.names, *groups))):
        for name in names:
            if name not in parameters.names:
                raise systems.unknown_parameter(name, known)
    for name, value in given.items():
        parameter = parameters[name]
        if not (np.isfinite(value) and parameter.lower <= value <= parameter.upper):
            raise UsageError(
                parameter.with_unit(f"{name} = {value:g}"),
                parameter.with_unit(f"between {parameter.lower:g} and {parameter.upper:g}"),
                "give it in SI",
            )
