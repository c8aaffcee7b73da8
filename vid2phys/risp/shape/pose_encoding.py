"""Encode a rigid body's pose before the virtual camera as numbers that a network regresses, and decode them.

The network sees the image, not its camera. The position is therefore encoded in the image: the place of the body's
origin, and the apparent size. The camera matrix converts both to metres.

Limits: the encoding of angles is singular at |b| = pi/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

_FILL = 2.0 / 3.0  # share of the image that a body of encoded size 0 takes


@dataclass(frozen=True)
class PoseEncoding:
    """Nine numbers: origin (x, y) in half images from the centre, log size, sines and cosines of three angles.

    The rotation view_from_body is R_x(a) R_y(b) R_z(c), |b| <= pi/2. For an upright body before a level camera c is the
    yaw, a the elevation of the line of sight, and b the roll in the image.

    Attributes:
        radius_m: Radius of the body's bounding sphere, m.
        view_size: Width and height V of the image, px.
    """

    SIZE: ClassVar[int] = 9
    radius_m: float
    view_size: int

    def encode(self, view_from_body: Tensor, K: Tensor) -> Tensor:
        """Encode poses [..., 4, 4] m before cameras [..., 3, 3] px as [..., 9]."""
        rotation, place = view_from_body[..., :3, :3], view_from_body[..., :3, 3]
        pixel = (K @ place[..., None])[..., :2, 0] / place[..., 2:]
        middle = 0.5 * (self.view_size - 1)
        size = 2.0 * K[..., 0, 0] * self.radius_m / (place[..., 2] * _FILL * self.view_size)
        sin_b = rotation[..., 0, 2].clamp(-1.0, 1.0)
        cos_b = (1.0 - sin_b**2).clamp(min=1e-12).sqrt()
        angles = [
            *(-rotation[..., 1, 2] / cos_b, rotation[..., 2, 2] / cos_b),
            *(sin_b, cos_b),
            *(-rotation[..., 0, 1] / cos_b, rotation[..., 0, 0] / cos_b),
        ]
        at = (pixel - middle) / (0.5 * self.view_size)
        return torch.cat([at, torch.stack([size.log().expand(sin_b.shape), *angles], dim=-1)], dim=-1)

    def decode(self, numbers: Tensor, K: Tensor) -> Tensor:
        """Decode [..., 9] before cameras [..., 3, 3] px to view_from_body [..., 4, 4] m.

        Sines and cosines need not be normalised.
        """
        pixel = numbers[..., :2] * (0.5 * self.view_size) + 0.5 * (self.view_size - 1)
        depth = 2.0 * K[..., 0, 0] * self.radius_m / (numbers[..., 2].exp() * _FILL * self.view_size)
        ray = torch.linalg.solve(K, torch.cat([pixel, torch.ones_like(pixel[..., :1])], dim=-1)[..., None])[..., 0]
        a, b, c = (torch.atan2(numbers[..., i], numbers[..., i + 1]) for i in (3, 5, 7))
        rotation = _about(0, a) @ _about(1, b) @ _about(2, c)
        pose = torch.eye(4, dtype=numbers.dtype, device=numbers.device).repeat(*numbers.shape[:-1], 1, 1)
        pose[..., :3, :3], pose[..., :3, 3] = rotation, ray * depth[..., None]
        return pose


def _about(axis: int, angle: Tensor) -> Tensor:
    """Return rotations [..., 3, 3] by angles [...] about a coordinate axis."""
    result = torch.eye(3, dtype=angle.dtype, device=angle.device).repeat(*angle.shape, 1, 1)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    result[..., i, i] = result[..., j, j] = angle.cos()
    result[..., j, i], result[..., i, j] = angle.sin(), -angle.sin()
    return result
