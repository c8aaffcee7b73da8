"""Contact in `control`: a thrown body whose stiffness of contact is given touches the ground, on springs.

Without a given stiffness the body is in free space, since nobody said where the ground is. The ground is that of
`ground_height` and the tilts, at the world's origin by default.

Limits: on springs the axes are the principal ones of the body, and so are those of the limits of torques.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.solvers.optimal_control import Aim, Reached

_STIFFNESS = "k_e"
_STEP_SHARE = 0.15  # of the longest stable step: 0.2 shifts the k_e of a thrown cube by 5 % (`fit_springs`)


def on_ground(inputs: Inputs, aim: Aim) -> Aim:
    """Return the aim on springs of contact, in principal axes, where the user gave the stiffness; else the same aim.

    Points stay in the axes of the mesh, which the body on springs knows.
    """
    from vid2phys.engine.systems.rigid_contact import ThrownBody

    system, known = inputs.system, inputs.known.parameters
    if not isinstance(system, ThrownBody) or known[_STIFFNESS].source != "given":
        return aim
    springs = system.on_springs(known.vector, has_actions=True)
    parameters = np.array([known[name].value for name in springs.parameters().names])
    return replace(
        aim,
        system=springs,
        parameters=parameters,
        start=system.to_principal(aim.start),
        max_step_s=min(aim.max_step_s, _STEP_SHARE * springs.longest_step_s(parameters)),
    )


def in_mesh_axes(inputs: Inputs, aim: Aim, reached: Reached) -> Reached:
    """Return what an aim of `on_ground` led to, in the axes of the mesh."""
    from vid2phys.engine.systems.rigid_contact import ThrownBody

    system = inputs.system
    if aim.system is system:
        return reached
    assert isinstance(system, ThrownBody)
    actions = reached.actions.copy()
    actions[:, 3:] = actions[:, 3:] @ system.shape.axes.T  # torques; forces are in the world
    return replace(reached, actions=actions, states=system.from_principal(reached.states))
