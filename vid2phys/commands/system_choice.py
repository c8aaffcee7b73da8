"""Which system a command may use, and what it may ask of it: all answers come from `System.capabilities`.

No command names a system. A system that a camera cannot follow is refused here with its purpose and the command that
serves it. Parameters that a clip of the body cannot show are refused with what would determine them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.engine import SYSTEM_OF_MESH, SYSTEM_OF_ROBOT, SYSTEM_OF_TETS
from vid2phys.engine import SYSTEM_WITH_ACTIONS as SYSTEM_WITH_ACTIONS
from vid2phys.errors import UsageError, Vid2PhysError

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.types import Actions, Mesh

AUTO = "auto"  # in place of a system's name: as the body says
ROBOTS = (".urdf", ".xml", ".mjcf")  # endings of files of robots
_TETS = ".msh"
_LISTED = 8  # parameters that a message lists


def system_of_body(body: str | None) -> str:
    """Return the system of a primitive or of a file, as `--body` names it; None stands for a mesh."""
    ending = "" if body is None else Path(body).suffix.lower()
    return SYSTEM_OF_ROBOT if ending in ROBOTS else SYSTEM_OF_TETS if ending == _TETS else SYSTEM_OF_MESH


def has_own_mesh(name: str, command: str) -> bool:
    """Return whether the system called `name` has a mesh of its own; otherwise the user gives one.

    Raises UsageError for an unknown name, and for a system that no camera shows to `command`.
    """
    from vid2phys.engine import systems

    return own_mesh(systems.get(name), command)


def is_free(name: str, command: str) -> bool:
    """Return whether a camera sees the system called `name` as a body that moves freely. Raises as `has_own_mesh`."""
    from vid2phys.engine import systems

    return not has_own_mesh(name, command) and not is_on_hinge(systems.get(name))


def is_clamped(name: str) -> bool:
    """Return whether a camera sees the system called `name` as a body of tets that the user gives and clamps."""
    return _observed_as(name) == "clamped"


def is_of_vertices(name: str) -> bool:
    """Return whether a camera sees the system called `name` as a body of vertices that the user gives, as a whole."""
    return _observed_as(name) == "vertices"


def _observed_as(name: str) -> str | None:
    """Return what a camera sees of the system called `name`; None for nothing, and for a name that is not known."""
    from vid2phys.engine import systems

    return systems.get(name).capabilities.observed_as if name in systems.available() else None


def is_on_hinge(system: System) -> bool:
    """Return whether a camera sees the system as a body on a hinge."""
    return system.capabilities.observed_as == "hinge"


def usually_fitted(name: str) -> tuple[str, ...]:
    """Return what is fitted of the system called `name` where the user names nothing."""
    from vid2phys.engine import systems

    return systems.get(name).capabilities.fitted


def own_mesh(system: System, command: str) -> bool:
    """Return whether a camera sees the system by its own mesh. Raises UsageError for one that `command` refuses."""
    seen = system.capabilities.observed_as
    if seen is None:
        raise _refused(system, command)
    if seen == "rigid" and not _is_rigid(system):
        got = f"--system {system.name}, which is declared to be seen as a rigid body"
        expected = "the states, mass and inertia of one rigid body, and a disturbance force and torque"
        raise UsageError(got, expected, "derive it from `RigidBodies`, or declare observed_as=None with the reason")
    if seen == "hinge" and command != "identify":
        got = f"`{command}` of '{system.name}', a body on a hinge"
        raise UsageError(got, "`identify`, which tracks it without training", "use `vid2phys identify`")
    if seen in ("clamped", "vertices") and command != "identify":
        raise _refused(system, command)
    if seen not in ("rigid", "hinge") and system.surface is None:
        raise UsageError(
            f"--system {system.name}, which is declared to be seen by its {seen}", "a `surface` of its own"
        )
    return seen not in ("rigid", "hinge")


def require_mesh(system: System, command: str, *, given: bool) -> bool:
    """Return `own_mesh`, and raise UsageError for a mesh (or a primitive) that is missing or one too many."""
    own = own_mesh(system, command)
    if own and given:
        remedy = "leave --mesh or --body out" + ("; a robot's file is --body" if command == "train-risp" else "")
        raise UsageError(f"a mesh for '{system.name}', which has a mesh of its own", "no mesh", remedy)
    if not own and not given:
        raise UsageError(
            f"no --mesh for '{system.name}'", "the mesh of the body", "give --mesh, or a primitive by --body"
        )
    return own


def filmed_system(name: str, mesh: Mesh, actions: Actions | None, fit: tuple[str, ...] = ()) -> System:
    """Return the system called `name` as it is fitted to a clip of the body `mesh`.

    Raises UsageError for an unknown name, actions that the system does not take, and parameters in `fit` that no clip
    of it shows.
    """
    from vid2phys.engine import systems

    system = systems.get(name)
    if actions is not None:
        system = with_actions(system, actions)
    system = system.for_clip(mesh)
    _require_effect(system, fit)
    return system


def with_actions(system: System, actions: Actions) -> System:
    """Return a rigid system that is driven by recorded actions. Raises UsageError for those that it does not take."""
    kinds = system.capabilities.inputs
    if actions.kind in kinds:
        return system.with_input(actions.kind)
    expected = " or ".join(kinds) or "no recorded actions"
    got = f"--actions of the kind {actions.kind} for the system '{system.name}'"
    raise UsageError(got, expected, "leave them out: forces are fitted")


def needs_actions(name: str) -> bool:
    """Return whether nothing but recorded actions drives a rollout of the rigid system called `name`."""
    from vid2phys.engine import systems
    from vid2phys.solvers.problem import flies_free

    return name != AUTO and bool(systems.get(name).capabilities.inputs) and not flies_free(systems.get(name))


def system_of_actions(path: str | Path) -> str:
    """Return the system of a mesh that takes the recorded actions of a file; the usual one for other files."""
    from vid2phys.engine import systems
    from vid2phys.io.actions import load_actions

    try:
        kind = load_actions(path).kind
    except Vid2PhysError:  # which comes again where the actions are read
        return SYSTEM_WITH_ACTIONS
    return SYSTEM_OF_MESH if kind in systems.get(SYSTEM_OF_MESH).capabilities.inputs else SYSTEM_WITH_ACTIONS


def remedies(system: System) -> dict[str, str]:
    """Return by parameter, as far as it is known, a sentence on what determines it in a clip."""
    from vid2phys.solvers.intervals import REMEDIES

    return system.capabilities.remedies(system.parameters().names) | REMEDIES


def _is_rigid(system: System) -> bool:
    """Return whether the system has what the fit of a rigid body needs."""
    from vid2phys.commands.fit_parameters import INERTIA
    from vid2phys.engine.systems._rigid import state_names

    disturbances = len(system.control_names) - len(system.action_names)
    return (
        system.state_names == state_names(1)
        and {"mass", *INERTIA} <= set(system.parameters().names)
        and disturbances >= len(("force", "torque")) * 3
    )


def _refused(system: System, command: str) -> UsageError:
    """Return the error for a system that `command` cannot use: purpose, what would serve, the alternative."""
    can = system.capabilities
    reason = can.reason if can.observed_as is None else "`identify` alone follows it, without a model"
    got = f"`{command}` of '{system.name}' ({purpose(system)}): {reason}"
    example = next(iter(system.parameters().names), "PARAMETER")
    recorded = f"`vid2phys fit-recording {system.name} states.csv --fit {example}` for recorded states"
    remedy = can.alternative or f"{system.name} is simulated and fitted to recordings only: use {recorded}"
    return UsageError(got, f"a system that a camera follows: {', '.join(filmed())}", remedy)


def purpose(system: System) -> str:
    """Return what the system is for, in one line: as it declares, else the first sentence of its docstring."""
    import inspect

    first = " ".join((inspect.getdoc(type(system)) or system.name).split("\n\n")[0].split())
    return system.capabilities.purpose or first.partition(". ")[0].rstrip(".")


def filmed() -> list[str]:
    """Return the names of the systems that a camera follows."""
    from vid2phys.engine import systems

    return [name for name in systems.available() if systems.get(name).capabilities.observed_as is not None]


def _require_effect(system: System, fit: tuple[str, ...]) -> None:
    """Raise UsageError for parameters in `fit` that do not change the motion of this body."""
    can = system.capabilities
    idle = [name for name in fit if name in can.without_effect]
    if not idle:
        return
    others = [name for name in system.parameters().names if name not in can.without_effect][:_LISTED]
    needs = "; ".join(can.remedies(idle).values()) or "leave them out"
    got = f"--fit {','.join(idle)}: no effect on the motion of '{system.name}' as a clip shows it"
    raise UsageError(got, f"parameters that its motion depends on ({', '.join(others)})", needs)
