"""The ground of a clip, where the user or the world of the camera says where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.tracking.ground import Ground


def known_ground(inputs: Inputs) -> Ground | None:
    """Return the ground that a body touches before a static camera with a pose; None where it is unknown or fitted."""
    from vid2phys.engine.systems.rigid_contact import ThrownBody, plane
    from vid2phys.tracking.ground import Ground

    parameters = inputs.known.parameters
    if not isinstance(inputs.system, ThrownBody) or inputs.camera.moves or inputs.focal is not None:
        return None
    if inputs.camera.camera_to_world is None or parameters["ground_height"].free:
        return None
    normal, offset_m = plane({p.name: p.value for p in parameters})
    return Ground.of(normal, float(offset_m), inputs.camera_to_world)
