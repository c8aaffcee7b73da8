"""What `vid2phys simulate` is given: system, parameters, initial state, actions, scene. Read and checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.configs import BodyOptions, SimulateConfig
from vid2phys.errors import InputError, UsageError, unknown_name

if TYPE_CHECKING:
    from vid2phys.engine.system import Integrator, System
    from vid2phys.types import Actions, Array, Camera, Mesh, Parameters

DEFAULT_SECONDS = 2.0
LARGEST_NUMBERS, LARGEST_FRAMES = 50_000_000, 100_000  # of the states of a trajectory, and of a clip


@dataclass(frozen=True)
class Inputs:
    """Everything the user gave, read and checked. actions: a single one if none were given, see `constant_actions`.

    step_s: the longest time step asked for, None for the program's choice. notes: what the reading brought up.
    """

    system: System
    parameters: Parameters
    initial: Array
    actions: Actions
    seconds: float
    integrator: Integrator
    step_s: float | None
    mesh: Mesh | None
    camera: Camera | None
    notes: tuple[str, ...]


def read_inputs(config: SimulateConfig) -> Inputs:
    """Read and check all inputs. Raises Vid2PhysError."""
    from vid2phys.commands.fit_parameters import check_given, listen, named, read_parameters
    from vid2phys.engine.system import check_scheme
    from vid2phys.io.simplify import simplified

    primitive = _filmed_primitive(config)
    system, notes = read_system(config if primitive is None else replace(config, body=None))
    integrator = check_scheme(system, config.integrator, 1)
    for name in ("rate", "fps", "seconds", "step"):
        if getattr(config, name) is not None:
            require_positive(name, getattr(config, name))
    given = (read_parameters(config.params) if config.params else {}) | config.set_values
    system, _ = named(system, (), given)
    check_given(system.parameters(), given)
    initial = initial_state(system, config.initial)
    mesh, camera, notes_on_mesh = _read_scene(config, system, primitive)
    notes, given_mesh = (*notes, *notes_on_mesh), config.mesh or primitive
    parameters = with_inertia(system.parameters().with_values(given), system, mesh if given_mesh else None)
    if mesh is not None and given_mesh:  # to film: the mass is that of the whole
        whole = mesh
        mesh, notes_on_size = listen(lambda: simplified(whole))
        notes = (*notes, *notes_on_size)
    check_driven(config)
    if config.actions:
        system, actions = read_actions(system, config.actions, given.get("mass"))
    else:
        actions = constant_actions(system, parameters, hold=config.hold)
        notes = (*notes, *hold_note(system, parameters, config.hold))
    seconds = _seconds(actions, config)
    _require_size(seconds, config.rate, len(initial), LARGEST_NUMBERS, "numbers", "--rate")
    if camera is not None:
        _require_size(seconds, config.fps, 1, LARGEST_FRAMES, "frames", "--fps")
    return Inputs(system, parameters, initial, actions, seconds, integrator, config.step, mesh, camera, notes)


def with_inertia(parameters: Parameters, system: System, mesh: Mesh | None) -> Parameters:
    """Moments of inertia that are not given, at uniform density: of the body's own shape, else of the mesh."""
    from vid2phys.commands.fit_parameters import INERTIA, listen
    from vid2phys.io.mesh import mass_properties

    missing = [name for name in INERTIA if name in parameters.names and parameters[name].source == "default"]
    own = system.surface is not None
    if not missing or not (own or mesh):
        return parameters
    if own:
        defaults = system.parameters()
        per_mass = np.array([defaults[name].value for name in INERTIA]) / defaults["mass"].value
    else:
        assert mesh is not None
        properties, _ = listen(lambda: mass_properties(mesh))
        per_mass = np.diagonal(properties.inertia_per_mass)
    moments = parameters["mass"].value * per_mass
    values = {name: float(moments[INERTIA.index(name)]) for name in missing}
    return parameters.with_values(values, source="mesh")


def initial_state(system: System, given: dict[str, float]) -> Array:
    """The state [N] with these values by name, in what is not given that of `System.rest_state`.

    Of a body made of points, a name without `of vertex ...` moves or speeds up all of it. Raises UsageError for unknown
    names, values that are not finite and a quaternion that is not of unit length.
    """
    from vid2phys.engine.layout import quaternions

    state, names = system.rest_state(), system.state_names
    for each in quaternions(names):
        if any(names[i] in given for i in each):
            state[each] = 0.0
    for name, value in given.items():
        if not np.isfinite(value):
            raise UsageError(f"--initial {name}={value:g}", "a finite number in SI", f"for example --initial {name}=0")
        whole = [i for i, known in enumerate(names) if known.startswith(f"{name} of ")]
        if name in names:
            state[names.index(name)] = value
        elif whole:
            state[whole] += value
        else:
            raise unknown_name("state", name, (*names[:20], f"... ({len(names)} in all)") if len(names) > 20 else names)
    for each in quaternions(names):
        length = float(np.linalg.norm(state[each]))
        if abs(length - 1.0) > 0.01:
            listed = ", ".join(names[i] for i in each)
            raise UsageError(f"an --initial quaternion of length {length:.4g}", "length 1", f"give all of {listed}")
        state[each] /= length
    return state


def constant_actions(system: System, parameters: Parameters, *, hold: bool) -> Actions:
    """Return a single action: what holds the system at rest, as far as it can be held, or none."""
    from vid2phys.solvers.camera_parameters import system_vector
    from vid2phys.types import Actions

    values = system.hover_controls(system_vector(parameters))[None, : len(system.action_names)]
    return Actions(
        np.zeros(1), values if hold else 0.0 * values, system.input, system.action_names, system.action_units
    )


def check_driven(config: BodyOptions) -> None:
    """Raise UsageError for actions beside `hold`."""
    if config.actions and config.hold:
        raise UsageError("--hold beside --actions", "one of them", "leave one of the two out")


def hold_note(system: System, parameters: Parameters, hold: bool) -> list[str]:
    """Return a note on what drives a system without recorded actions, where holding it makes a difference."""
    if not system.hover_controls(parameters.vector)[: len(system.action_names)].any():
        return []
    if hold:
        return ["--hold: the actions that hold the system at rest are applied"]
    return ["no --actions: nothing drives the system; --hold applies what holds it at rest"]


def read_actions(system: System, path: str | Path, mass: float | None) -> tuple[System, Actions]:
    """Recorded actions, in SI, and the system with the kind of input that they are for.

    mass: as given by the user, to undo a division by it. Raises InputError for actions that are not the system's.
    """
    from vid2phys.commands.system_choice import with_actions
    from vid2phys.io.actions import load_actions

    if not system.action_names:
        raise UsageError(f"--actions for '{system.name}', which has no inputs", "none", "leave --actions out")
    if system.capabilities.inputs:
        actions = load_actions(path)
        system = with_actions(system, actions)
    else:
        actions = load_actions(path, dict(zip(system.action_names, system.action_units, strict=True)))
    if not actions.per_kilogram:
        return system, actions
    if mass is None:
        raise UsageError(f"actions '{path}' per kilogram without a mass", "a mass", "give --set mass=VALUE")
    return system, replace(actions, values=mass * actions.values, per_kilogram=False)


def _seconds(actions: Actions, config: SimulateConfig) -> float:
    """How long to simulate: as asked for, else what the actions cover. Raises InputError when they do not cover it."""
    asked = config.seconds
    if len(actions.times_s) == 1:  # a single action has no end
        return float(DEFAULT_SECONDS if asked is None else asked)
    interval = float(np.median(np.diff(actions.times_s)))
    start, end = float(actions.times_s[0]), float(actions.times_s[-1]) + interval
    seconds = float(end if asked is None else asked)
    if start > 0.5 * interval or end <= 0.0 or seconds > end + 0.5 * interval:
        raise InputError(
            f"actions '{config.actions}' cover {start:.4g} to {end:.4g} s",
            f"0 to {seconds:.4g} s" if seconds > 0.0 else "times after 0",
            "give fewer --seconds" if start <= 0.5 * interval and end > 0.0 else "shift time_s: the motion begins at 0",
        )
    return seconds


def read_system(config: BodyOptions) -> tuple[System, tuple[str, ...]]:
    """Return the system, of the user's own body if there is one, and what reading that warned of."""
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.engine import systems

    body, warned = config.body, list[str]()
    if body is None:
        if config.body_units != "m":
            raise UsageError("--body-units without --body", "both", "give the file --body that they are of")
        system = systems.get(config.system)
    else:
        system, warned = listen(lambda: systems.from_file(config.system, body, config.body_units))
    if config.clamp or config.load:
        from vid2phys.commands.clamps import clamped

        system = clamped(system, config.clamp, config.load)
    return system, tuple(warned)


def _filmed_primitive(config: SimulateConfig) -> Path | None:
    """Return `body` where it is a primitive that the system is not made of, so that it is filmed in place of a mesh."""
    from vid2phys.engine import systems
    from vid2phys.io.primitives import is_primitive

    known = config.system in systems.available()
    filmed = is_primitive(config.body) and known and systems.file_reader(config.system) is None
    return config.body if filmed else None


def _read_scene(
    config: SimulateConfig, system: System, primitive: Path | None
) -> tuple[Mesh | None, Camera | None, tuple[str, ...]]:
    """Return mesh (the system's own if none is given) and camera of the clip, both or neither; notes on the mesh."""
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.io.camera import load_camera, require_pose
    from vid2phys.io.primitives import load_body

    shape, filming = config.mesh or primitive, config.camera
    if filming and not shape and system.surface is None:
        raise UsageError("--camera without --mesh", "both, for a clip", "give the --mesh to film, or a --body")
    if filming is None:
        if shape or config.camera_pose:
            flag = "--mesh" if config.mesh else "--body" if primitive else "--camera-pose"
            expected = "--mesh and --camera, for a clip"
            raise UsageError(f"{flag} without --camera", expected, "give the --camera that films")
        return None, None, ()
    camera, of_camera = listen(lambda: load_camera(filming, config.camera_pose))
    pose = require_pose(camera, config.camera_pose or filming)
    mesh, notes = system.surface, list[str]()
    if shape is not None:
        mesh, notes = listen(lambda: load_body(config.mesh, primitive, config.mesh_units, config.mesh_move))
    return mesh, replace(camera, camera_to_world=pose), (*notes, *of_camera)


def require_positive(name: str, value: object) -> None:
    """Raise UsageError for an option whose value is not a positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value) or value <= 0.0:
        raise UsageError(f"--{name} {value}", "a positive, finite number", f"for example --{name} 30")


def _require_size(seconds: float, rate: float, each: int, most: int, what: str, flag: str) -> None:
    if seconds * rate * each > most:
        got = f"{seconds:.4g} s at {rate:.4g} a second are {seconds * rate * each:.3g} {what}"
        raise UsageError(got, f"at most {most:.0f}", f"lower --seconds or {flag}")
