"""Rolling shutter: the rows of a frame are exposed one after the other, so that a frame shows a body at many times.

The time of a frame is that of its middle row. A row is exposed `readout_s` times its share of the image later or
earlier; `Camera.readout_from` names the side of the frame that is exposed first. A pose of a frame is that at the time
of the row that shows the body's origin. Other points of the body are moved from there to the times of their own rows.

Method: within a frame the body has one twist; a point's row at its own time is a fixed point, found by iteration
(Ait-Aider et al., "Simultaneous object pose and velocity computation using a single view from a rolling shutter
camera", ECCV 2006).

Limits: points move by less than a row while a row is read, and an impact between two rows is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vid2phys.engine.observe import project
from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.types import Array, Camera, Mesh

_SIDES = {"top": (1, 1.0), "bottom": (1, -1.0), "left": (0, 1.0), "right": (0, -1.0)}  # axis of a pixel, direction
_ROUNDS = 4


@dataclass(frozen=True)
class Twist:
    """Velocities of bodies in camera axes, with leading axes [...].

    Attributes:
        angular: [..., 3] rad/s.
        linear: [..., 3] of the body's origin, m/s.
    """

    angular: Array
    linear: Array

    def __getitem__(self, index: int) -> Twist:
        """Return the velocities at an index of the leading axes."""
        return Twist(self.angular[index], self.linear[index])


def row_delay(camera: Camera, pixels: Array) -> Array:
    """Return how long after the middle row pixels [..., 2] are exposed, [...] s."""
    axis, direction = _SIDES[camera.readout_from]
    size = (camera.width, camera.height)[axis]
    return np.asarray(camera.readout_s * direction * ((pixels[..., axis] + 0.5) / size - 0.5))


def origin_delay(camera: Camera, pose: Pose) -> Array:
    """Return how long after the middle row the origins of bodies at poses camera_from_body are exposed, [...] s."""
    return row_delay(camera, project(camera, pose.translation))


def shown_points(camera: Camera, pose: Pose, twist: Twist, points_body: Array) -> Array:
    """Return where a frame shows points of a body that moves, in camera axes.

    Args:
        camera: of the frame.
        pose: camera_from_body when the origin's row is exposed.
        twist: of the body.
        points_body: [K, 3] m.

    Returns:
        [K, 3] m, each point at the time of its own row. Points that the camera cannot see stay where they are.
    """
    about = points_body @ pose.rotation.T
    start, shown = float(origin_delay(camera, pose)), about + pose.translation
    for _ in range(_ROUNDS):
        delay = np.nan_to_num(row_delay(camera, project(camera, shown)) - start)[:, None]
        turned = (matrix_from_rotvec(twist.angular * delay) @ about[..., None])[..., 0]
        shown = turned + pose.translation + twist.linear * delay
    return np.asarray(shown)


def shown_mesh(camera: Camera, pose: Pose, twist: Twist, mesh: Mesh) -> Mesh:
    """Return the mesh as a frame shows it: at the pose, its vertices are where `shown_points` has them."""
    return replace(mesh, vertices=pose.inverse().apply(shown_points(camera, pose, twist, mesh.vertices)))
