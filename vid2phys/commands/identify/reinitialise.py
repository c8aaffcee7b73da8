"""Re-initialise bodies on a known base: detect frames again from the fitted motion, and fit again.

The network sees one frame at a time, and edges lead to the nearest minimum. A finger that is taken for its neighbour
therefore stays there for the whole clip, and the fit gives it the stiffness of a finger that hardly moves.

Method: the system predicts the motion under its actions. Motions with far different parameters are compared with the
images (`solvers.configuration_scan`). Frames are fitted again from the best motion (`reinitialise_track`). The new fit
is kept where it explains the images no worse.

Limits: the scan compares a few frames of each clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.error_model import Calibration
from vid2phys.errors import SimulationError
from vid2phys.solvers import configuration_shooting
from vid2phys.solvers.configuration_scan import other_motion
from vid2phys.solvers.configuration_shooting import ConfigurationSolution
from vid2phys.solvers.problem import Problem
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.reinitialise import ClipEvidence, reinitialise_track, with_averaged_covariance
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs

_KEPT_PRIOR = (1.0, 0.1)  # share of the weak prior around the motion that stays in the result of each round
_COMPARED = 12  # frames of a clip that are compared with a motion
_CLEARLY = 10.0  # least gain in nats by a motion with far different parameters


@dataclass(frozen=True)
class Shown:
    """The images of a clip. images: some of the frames, with their evidence for configurations."""

    frames: Indexed
    window: Window
    calibration: Calibration
    images: ClipEvidence

    @staticmethod
    def of(inputs: Inputs, body: ArticulatedBody) -> Shown:
        """Return the images of a clip's inputs."""
        clip, model = inputs.clip, inputs.network
        frames = FrameStore.of(clip)
        window = Window.of(inputs.camera, body, model.view_size)
        some = np.unique(np.linspace(0, len(frames) - 1, _COMPARED).astype(np.int64))
        return Shown(
            frames, window, Calibration.from_dict(model.calibration), ClipEvidence.of(frames, body, window, some)
        )

    @property
    def body(self) -> ArticulatedBody:
        """Return the body that the images show."""
        return self.images.body

    def nats(self, configurations: Array) -> float:
        """Return the log-likelihood of the compared images at configurations [F, D] of all frames, nats."""
        return self.images.nats(configurations[self.images.indices])

    def read_along(
        self, problem: Problem, track: ConfigurationTrack, start: Array, theta: Array, kept: float
    ) -> ConfigurationTrack:
        """Return the track, detected again from the motion with a start [2 D] and parameters [P].

        kept: share of the weak prior around that motion that stays in the result.
        """
        states = configuration_shooting.states_at_frames(problem, self.body, np.concatenate([start, theta])[None])[0]
        return reinitialise_track(
            self.frames, self.window, track, self.body, self.body.configurations(states), self.calibration, kept
        )


def reinitialise(
    shown: Sequence[Shown],
    problems: Sequence[Problem],
    tracked: Sequence[ConfigurationTrack],
    fitted: list[ConfigurationSolution],
) -> tuple[list[ConfigurationTrack], list[ConfigurationSolution]]:
    """Return the tracks and fits of clips of one body after re-initialisation; the given ones where none is better."""
    body, tracks, best = shown[0].body, list(tracked), fitted

    def judge(clip: int, configurations: Array) -> float:
        return shown[clip].nats(configurations)

    def explained(several: Sequence[ConfigurationSolution]) -> float:
        return sum(judge(clip, body.configurations(each.states)) for clip, each in enumerate(several))

    nats = explained(best)
    for kept in _KEPT_PRIOR:
        starts, theta, least = np.stack([each.start for each in best]), best[0].parameters.free_vector(), nats
        other = other_motion(problems, body, starts, theta, judge, _CLEARLY)
        if other is not None:
            starts, theta, least = other.starts, other.theta, nats + _CLEARLY
        detected = [
            each.read_along(problem, track, start, theta, kept)
            for each, problem, track, start in zip(shown, problems, tracks, starts, strict=True)
        ]
        if all(a is b for a, b in zip(detected, tracks, strict=True)):
            break
        parameters = problems[0].parameters.fitted_at(theta)
        anew = [
            replace(problem, parameters=parameters, observation=track.observation)
            for problem, track in zip(problems, detected, strict=True)
        ]
        with suppress(SimulationError):
            again = configuration_shooting.solve_clips(anew, body, list(starts), shares=(1.0,))
            better = explained(again)
            if better >= least:
                tracks, best, nats = detected, again, better
    if best is fitted:
        return tracks, best
    tracks = [with_averaged_covariance(track, body, each.window) for each, track in zip(shown, tracks, strict=True)]
    stated = [replace(problem, observation=track.observation) for problem, track in zip(problems, tracks, strict=True)]
    return tracks, configuration_shooting.with_error_models(stated, body, best)
