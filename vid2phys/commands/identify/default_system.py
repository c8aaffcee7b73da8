"""Choose the system of a clip for which the user names none: by its body, what drives it, and what is asked of it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.commands.configs import is_untrained
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.system_choice import AUTO, SYSTEM_WITH_ACTIONS, system_of_actions, system_of_body, usually_fitted
from vid2phys.errors import Vid2PhysError

if TYPE_CHECKING:
    from vid2phys.types import Mesh


def with_system(config: IdentifyConfig) -> IdentifyConfig:
    """Return the config with a system, and with what is usually fitted of the system where it names nothing.

    The path of a robot's or a volume's file becomes absolute, so that the config of a run can be used in another
    folder.
    """
    from vid2phys.solvers.camera_parameters import expand_groups

    if config.system == AUTO:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mesh is read again for the fit, and these are kept then
            config = replace(config, system=_system(config))
    body = config.body
    if config.robot is not None or (config.volume is not None and Path(config.volume).exists()):
        body = str(Path(str(config.body)).resolve())
    fit = expand_groups(config.fit or usually_fitted(config.system), _groups(config.system))
    return replace(config, body=body, fit=fit)


def _groups(system: str) -> dict[str, tuple[str, ...]]:
    """Return the groups of parameters that a system has before its body is read; robots have others."""
    from vid2phys.engine.systems import rigid_contact
    from vid2phys.solvers.camera_parameters import GROUPS

    return GROUPS | (rigid_contact.GROUPS if system == rigid_contact.RigidContact.name else {})


def _system(config: IdentifyConfig) -> str:
    """Return the name of the system for a clip.

    Of a mesh, that is the one that takes the recorded actions where there are some, else the only one with the
    parameters that are asked for, else that of the model that was trained for the mesh, else a free body.
    """
    from vid2phys.io.mesh import load_mesh
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.model import read_config
    from vid2phys.risp.networks.model_lookup import system_of_shape

    of_body = system_of_body(config.body)
    if config.mesh is None or config.body is not None:
        return of_body
    if config.actions is not None:
        return system_of_actions(config.actions if isinstance(config.actions, Path) else config.actions[0])
    try:
        mesh = simplified(load_mesh(config.mesh, config.mesh_units, move=config.mesh_move))
    except Vid2PhysError:  # which comes again, after contradictions between options
        return of_body
    asked = {*config.fit, *config.set_values, *config.priors, *config.bounds}
    for one, other in ((of_body, SYSTEM_WITH_ACTIONS), (SYSTEM_WITH_ACTIONS, of_body)):
        if asked & _names(one, mesh) - _names(other, mesh):
            return one
    if config.model is not None and not is_untrained(config.model):
        return str(read_config(config.model)["system"])
    return system_of_shape(mesh) or of_body


def _names(name: str, mesh: Mesh) -> set[str]:
    """Return the names of parameters and of their groups, of a system as a clip of the mesh shows it."""
    from vid2phys.engine import systems

    system = systems.get(name).for_clip(mesh)
    return {*system.parameters().names, *system.capabilities.groups}
