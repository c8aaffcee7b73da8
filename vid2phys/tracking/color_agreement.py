"""Choose the path of a clip on which all frames agree about the colours of the body's surface.

A pose and its look-alikes, such as the depth reversal, have nearly one silhouette. A body turns as steadily along one
as along the other. A print tells them apart: along the right motion each place of the surface keeps its colour. Path
and colours are found in turns. A wrong path explains its own colours to some degree. So the search starts from several
paths: the best one by silhouettes, and its look-alikes.

Limits: a body with a plain surface says little here, so that its silhouettes decide. Of a body of revolution,
only the print along its axis counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import angle_between, quat_from_matrix
from vid2phys.tracking.candidate_paths import Candidates, Choice
from vid2phys.tracking.look_alikes import LookAlikes
from vid2phys.types import Array


@dataclass(frozen=True, kw_only=True)
class ColorAgreementConfig:
    """Settings of `agreeing_path`."""

    color_std: float = 0.1
    """Standard deviation of a place's logarithm of colour."""
    independent: float = 3.0
    """Number of independent places that a frame counts as. Places err alike, and frames show the same sides."""
    plain_frames: float = 2.0
    """Weight of the prior that a place has no print, as a number of frames."""
    turn_deg: float = 5.0
    """Rotation since the frame before from which on a frame counts in full, deg. Frames at rest show one thing."""
    least_weight: float = 0.05
    """Weight of a frame at rest."""
    rounds: int = 5
    """Largest number of times that colours are learned along a path."""


DEFAULTS = ColorAgreementConfig()


@dataclass(frozen=True)
class SurfaceEvidence:
    """What the frames show of the surface at the poses of their candidates.

    Attributes:
        candidates: of the clip.
        colors: [H, N, 3] of N places at each candidate, by frame; NaN where a place is not seen.
        under: [G, N] place of each place under the symmetry elements.
        config: settings.
    """

    candidates: Candidates
    colors: Mapping[int, Array]
    under: NDArray[np.int64]
    config: ColorAgreementConfig = DEFAULTS

    def nats(self, path: Mapping[int, Choice]) -> dict[int, Array]:
        """Return the evidence [H, G] of each frame, by the colours that the other frames of a path show.

        The best element of each candidate counts for all: which one it is, the steadiness of the motion tells better.
        """
        config, weights = self.config, self._weights(path)
        own = {i: self._shown(i, choice) * weights[i] for i, choice in path.items()}
        every = np.sum(list(own.values()), axis=0)
        out = dict[int, Array]()
        for i, colors in self.colors.items():
            others = every - own[i] if i in own else every
            learned = others[:, :3] / (others[:, 3:] + config.plain_frames)
            off = ((colors[:, self.under] - learned) ** 2).mean(axis=-1)  # [H, G, N]
            nats = -config.independent * _mean(np.log1p(off / config.color_std**2))
            out[i] = np.broadcast_to(nats.max(axis=1, keepdims=True), nats.shape)
        return out

    def _shown(self, i: int, choice: Choice) -> Array:
        """Return colours and whether they are seen, [N, 4], of a choice in frame i; zeros where they are not."""
        colors = self.colors[i][choice[0]][self.under[choice[1]]]
        seen = np.isfinite(colors[:, :1])
        return np.hstack([np.where(seen, colors, 0.0), seen])

    def _weights(self, path: Mapping[int, Choice]) -> dict[int, float]:
        """Return the weight of each frame of a path: the body's rotation since the frame before."""
        config = self.config
        quat = quat_from_matrix(np.array([self.candidates.rotation(i, choice) for i, choice in path.items()]))
        turned = np.degrees(angle_between(quat[1:], quat[:-1])) / config.turn_deg
        weights = np.clip(np.concatenate([[1.0], turned]), config.least_weight, 1.0)
        return dict(zip(path, weights.tolist(), strict=True))


def agreeing_path(seen: SurfaceEvidence, look_alikes: LookAlikes) -> dict[int, Choice]:
    """Return the choice of each frame on the path whose evidence, by silhouettes and by colours, is best."""
    candidates = seen.candidates
    first = candidates.path()
    if not first:
        return first
    poses = {i: look_alikes.of_pose(candidates.pose(i, choice)) for i, choice in first.items()}
    others = [{i: candidates.nearest(i, poses[i][k]) for i in first} for k in range(len(look_alikes.maps))]
    found = [_in_agreement(seen, start) for start in (first, *others)]
    return max(found, key=lambda each: candidates.mean_nats(*each))[0]


def _in_agreement(seen: SurfaceEvidence, path: dict[int, Choice]) -> tuple[dict[int, Choice], dict[int, Array]]:
    """Return a path that agrees with the colours learned along it, and their evidence."""
    nats = seen.nats(path)
    for _ in range(seen.config.rounds):
        before, path = path, seen.candidates.path(nats)
        if path == before:
            break
        nats = seen.nats(path)
    return path, nats


def _mean(values: Array) -> Array:
    """Return the mean over the last axis of what is known; the median of all means where nothing is."""
    known = np.isfinite(values)
    mean = np.where(known, values, 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)
    any_known = known.any(axis=-1)
    return np.where(any_known, mean, np.median(mean[any_known]) if any_known.any() else 0.0)
