"""Join one candidate of each frame, under one symmetry element, into the motion of a clip.

Evidence of each frame and steadiness of the rotation decide (`viterbi`). What all frames have to agree on comes as
further evidence: the colours of the body's surface (`color_agreement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vid2phys.geometry import Pose
from vid2phys.risp.shape.rotation_groups import nearest_element, under_element
from vid2phys.tracking.viterbi import RotationMotion, viterbi_path
from vid2phys.types import Array

Choice = tuple[int, int]
"""Index of a candidate in its frame, and symmetry element."""


@dataclass(frozen=True)
class Candidates:
    """The poses that frames may have.

    Attributes:
        poses: camera_from_body, by frame.
        nats: [H, G] evidence of the poses of a frame under symmetry elements, by frame.
        rotations: [G, 3, 3] symmetry elements.
        center: [3] point that they leave where it is, m.
        times_s: [T] of all frames of the clip.
    """

    poses: Mapping[int, Sequence[Pose]]
    nats: Mapping[int, Array]
    rotations: Array
    center: Array
    times_s: Array

    def path(self, more_nats: Mapping[int, Array] | None = None) -> dict[int, Choice]:
        """Return the choice of each frame along the best path; a frame that it passes over may have none.

        more_nats: [H, G] further evidence, by frame.
        """
        rows = list(self.poses)
        if not rows:
            return {}
        width, order = max(map(len, self.poses.values())), len(self.rotations)
        cost = np.full((len(rows), width, order), np.inf)
        distance = np.zeros((len(rows), width, order))
        states = np.broadcast_to(np.eye(3), (len(rows), width, order, 3, 3)).copy()
        for n, i in enumerate(rows):
            count = len(self.poses[i])
            cost[n, :count] = -self.nats[i] if more_nats is None else -self.nats[i] - more_nats[i]
            for h, pose in enumerate(self.poses[i]):
                distance[n, h] = np.log(np.linalg.norm(pose.translation))
                states[n, h] = pose.rotation @ np.swapaxes(self.rotations, -1, -2)
        path = viterbi_path(
            cost.reshape(len(rows), -1),
            states.reshape(len(rows), -1, 3, 3),
            self.times_s[rows],
            RotationMotion(),
            log_distance=distance.reshape(len(rows), -1),
        )
        chosen = {i: divmod(state, order) for i, state in zip(rows, path.tolist(), strict=True)}
        return {i: (h, g) for i, (h, g) in chosen.items() if h < len(self.poses[i])}

    def rotation(self, i: int, choice: Choice) -> Array:
        """Return the rotation [3, 3] of a choice in frame i."""
        return np.asarray(self.poses[i][choice[0]].rotation @ self.rotations[choice[1]].T)

    def pose(self, i: int, choice: Choice) -> Pose:
        """Return the pose of a choice in frame i, under its symmetry element."""
        return under_element(self.poses[i][choice[0]], self.rotations[choice[1]], self.center)

    def nearest(self, i: int, pose: Pose) -> Choice:
        """Return the choice in frame i whose rotation is nearest to that of a pose."""
        elements = [nearest_element(each, pose, self.rotations) for each in self.poses[i]]
        near = [float((self.rotation(i, (h, g)) * pose.rotation).sum()) for h, g in enumerate(elements)]
        best = int(np.argmax(near))
        return best, elements[best]

    def mean_nats(self, path: Mapping[int, Choice], more_nats: Mapping[int, Array]) -> float:
        """Return the mean evidence of a frame for a path, nats."""
        return float(np.mean([self.nats[i][choice] + more_nats[i][choice] for i, choice in path.items()]))
