"""Join the parts of a track that differ by a symmetry of the body's shape, by a texture that the clip shows.

A print breaks the symmetry of a box, but silhouettes do not show this. Where a hit changes the motion, or frames are
lost, a track may go on under another symmetry element. The longest part teaches the texture. Each other part gets the
element under which this texture explains its frames best.

Limits: a part that shows other sides than the longest one says little, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from vid2phys.geometry import Pose, angle_between, quat_from_matrix
from vid2phys.indices import evenly
from vid2phys.risp.networks.model import Shape
from vid2phys.risp.shape.rotation_groups import under_element
from vid2phys.tracking.learned_surfaces import LearnedSurfaces

_JUMP_RAD = np.radians(45.0)  # rotation between two frames that ends a part
_LEAST = 5  # frames of a part that teaches
_FRAMES = 6  # of a part that are compared
_BETTER = 0.02  # share by which the evidence of these frames has to grow


def under_one_element(
    tracked: Mapping[int, Pose], shape: Shape, taught_by: Callable[[Mapping[int, Pose]], LearnedSurfaces]
) -> dict[int, Pose]:
    """Return poses camera_from_body, by the index of the frame, all under one symmetry element of the body.

    Args:
        tracked: poses, each as good by its silhouette as those that the symmetry makes of it.
        shape: symmetry of the body.
        taught_by: returns what poses teach of the surfaces.
    """
    parts = _parts(tracked)
    longest = max(parts, key=len, default={})
    if len(parts) < 2 or len(shape.rotations) < 2 or len(longest) < _LEAST:
        return dict(tracked)
    surfaces = taught_by(longest)
    if not surfaces.is_textured:
        return dict(tracked)
    found = dict[int, Pose]()
    for part in parts:
        found |= part if part is longest else _under_best(part, shape, surfaces)
    return found


def _parts(tracked: Mapping[int, Pose]) -> list[dict[int, Pose]]:
    """Return the parts of a track between its jumps."""
    rows = list(tracked)
    if not rows:
        return []
    quat = quat_from_matrix(np.array([pose.rotation for pose in tracked.values()]))
    ends = np.flatnonzero(angle_between(quat[1:], quat[:-1]) > _JUMP_RAD) + 1
    return [{int(i): tracked[int(i)] for i in part} for part in np.split(np.array(rows), ends)]


def _under_best(part: dict[int, Pose], shape: Shape, surfaces: LearnedSurfaces) -> dict[int, Pose]:
    """Return a part of a track under the symmetry element that a texture explains best."""
    some = [list(part)[k] for k in evenly(len(part), _FRAMES)]
    under = [{i: under_element(part[i], each, shape.center) for i in part} for each in shape.rotations]
    gains = np.array([[surfaces.gain(i, poses[i]) for i in some] for poses in under])
    nats = gains[:, np.isfinite(gains).all(axis=0)].sum(axis=1)  # frames that show nothing say nothing
    best = int(np.argmax(nats))
    return under[best] if nats[best] - nats[0] > _BETTER * abs(nats[0]) else part
