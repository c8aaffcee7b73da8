"""Learn the surfaces of a body and the background beside it from a clip, and state what frames say of poses by them.

The background is the median of what frames show beside the body. The body has flat sides of one colour each, or a
texture, where a texture that some frames teach explains their pixels much better (`cues.surfaces`).

Limits: a static camera; a body with curved sides stays plain, since their shading passes for a texture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.surfaces import Backdrop, PoseModel, Textured, pose_model
from vid2phys.tracking.foreground import Foreground
from vid2phys.types import Array, Camera


@dataclass(frozen=True, kw_only=True)
class LearnedSurfacesConfig:
    """Settings of `LearnedSurfaces`."""

    unlike_nats: float = 1.0
    """Log-likelihood ratio against the body from which on a pixel shows the background, nats."""
    texture_frames: int = 12
    """Number of frames that tell whether the body has a texture."""
    textured_share: float = 0.6
    """Share of a plain body's misfit below which that with a texture shows that there is one, in the best quarter of
    these frames: a texture does not explain frames whose poses are wrong."""


_BEST = 25.0  # percentile of the frames' shares that counts
DEFAULTS = LearnedSurfacesConfig()


@dataclass(frozen=True)
class LearnedSurfaces:
    """The frames of a clip, the background, and the body as some frames show it."""

    frames: Indexed
    camera: Camera
    backdrop: Backdrop
    body: Textured

    @staticmethod
    def of(
        frames: Indexed,
        camera: Camera,
        solid: Solid,
        foreground: Foreground,
        rows: NDArray[np.int64],
        poses: Pose,
        margin_px: int,
        config: LearnedSurfacesConfig = DEFAULTS,
    ) -> LearnedSurfaces:
        """Learn from the frames `rows` [n] with the body at poses [n] camera_from_body.

        margin_px: least distance of the background from the body.
        """
        shown = [frames[i] for i in rows.tolist()]
        unlike = [foreground.log_ratio(frame) < -config.unlike_nats for frame in shown]
        backdrop = Backdrop.of(shown, unlike, camera, solid.mesh, poses, margin_px)
        plain = LearnedSurfaces(frames, camera, backdrop, Textured.of(solid))
        if not plain.body.is_flat:
            return plain
        textured = LearnedSurfaces(frames, camera, backdrop, plain.body.textured(shown, camera, poses))
        some = evenly(len(rows), config.texture_frames)

        def left(learned: LearnedSurfaces) -> Array:
            models = (learned.model(int(rows[k]), poses[int(k)], gain_only=True) for k in some)
            return np.array([np.nan if model is None else model.cost for model in models])

        shares = left(textured) / left(plain)
        known = shares[np.isfinite(shares)]
        return textured if len(known) and np.percentile(known, _BEST) < config.textured_share else plain

    @property
    def is_textured(self) -> bool:
        """Return whether the body has a texture."""
        return self.body.tint is not None

    def model(self, i: int, pose: Pose, gain_only: bool = False) -> PoseModel | None:
        """Return what frame i states about a pose; None for nothing. gain_only: see `pose_model`."""
        return pose_model(self.frames[i], self.backdrop, self.camera, self.body, pose, gain_only=gain_only)

    def gain(self, i: int, pose: Pose) -> float:
        """Return the evidence of frame i for a pose, nats; minus infinity where it shows nothing."""
        model = self.model(i, pose, gain_only=True)
        return -np.inf if model is None else model.gain
