"""The ground as the tracker uses it: no body reaches below it, and a body that rests lies on it.

Silhouettes err where a shadow at the contact counts as the body, or a part of the body as its shadow: the fit is then
too near or too far. Where the ground is known, a fit at rest is moved along the line of sight until the body touches.
In motion it stays, and its errors are stated as wide as those of a search. One that is far below the ground is wrong,
and its frame is lost.

Limits: one plane and a static camera. The rotation stays as it was found, so that errors of a moved fit are stated as
wide as those of a search, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from vid2phys.geometry import Pose
from vid2phys.tracking.silhouette_fit import Fit
from vid2phys.types import Array, Mesh

_OFF, _ABOVE = 0.05, 0.3  # of the body's radius: a distance from the ground that counts, and the height of one at rest
_SURE, _MOST = 0.01, 0.25  # shares of the distance: a fit keeps its errors, and stays where it is
_FAR_BELOW = 0.08  # share of the distance by which a fit in motion is too far, which is twice what silhouettes err
_MOST_LOST = 0.3  # share of the fits; where more are far below, the ground is wrong


@dataclass(frozen=True)
class Ground:
    """normal: [3] of the plane, up, in the axes of the camera. offset_m: normal . x of its points."""

    normal: Array
    offset_m: float

    @staticmethod
    def of(normal: Array, offset_m: float, camera_to_world: Array) -> Ground:
        """Return the ground n . x = offset of the world, before a camera at camera_to_world [4, 4]."""
        turned = camera_to_world[:3, :3].T @ normal
        return Ground(turned, float(offset_m - normal @ camera_to_world[:3, 3]))

    def clearance_m(self, pose: Pose, mesh: Mesh) -> float:
        """Return how far the lowest vertex of a mesh is above the ground."""
        return float((pose.apply(mesh.vertices) @ self.normal).min() - self.offset_m)

    def share_to_touch(self, pose: Pose, mesh: Mesh) -> float:
        """Return the factor of the distance at which the mesh, on the same line of sight, touches the ground."""
        lowest = float((mesh.vertices @ pose.rotation.T @ self.normal).min())
        slope = float(self.normal @ pose.translation)
        return (self.offset_m - lowest) / slope if slope else np.inf

    def supporting(self, fits: Mapping[int, Fit], still: Collection[int], mesh: Mesh) -> dict[int, Fit]:
        """Return fits by frame; those at rest that are below the ground or just above it touch it.

        still: frames in which the body rests. A fit that would move by more than a quarter of its distance stays as it
        is: then the ground or the fit is wrong. One that would move by more than a hundredth has no contour any more,
        so that its errors are those of a search. In motion this is all that happens to a fit below the ground, unless
        it is far below: such fits are left out, if they are few.
        """
        far = {
            i for i, fit in fits.items() if i not in still and self.share_to_touch(fit.pose, mesh) < 1.0 - _FAR_BELOW
        }
        lost = far if len(far) <= _MOST_LOST * len(fits) else set()
        return {i: self._supported(fit, mesh, at_rest=i in still) for i, fit in fits.items() if i not in lost}

    def _supported(self, fit: Fit, mesh: Mesh, *, at_rest: bool) -> Fit:
        height = self.clearance_m(fit.pose, mesh) / mesh.radius_m
        if height > -_OFF and not (at_rest and _OFF < height < _ABOVE):
            return fit
        share = self.share_to_touch(fit.pose, mesh)
        if abs(share - 1.0) > _MOST:
            return fit
        contour = fit.contour if abs(share - 1.0) < _SURE else None
        pose = replace(fit.pose, translation=share * fit.pose.translation) if at_rest else fit.pose
        return replace(fit, pose=pose, contour=contour)
