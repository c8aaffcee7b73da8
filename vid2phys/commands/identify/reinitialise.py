"""Frames of bodies on a known base read again from the motion that was fitted to them, and fitted again.

The network reads frames by themselves, and edges lead to the nearest place: a finger that is taken for the one beside
it stays there all through a clip, and its stiffness comes out as that of a finger that hardly moves. What the system
can do under its actions is known. Motions by far other parameters are compared with the images
(`solvers.configuration_scan`), frames are fitted again from the best motion (`reinitialise_track`), and what is fitted
to them is kept where the images show it no worse.
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
from vid2phys.tracking.first_pass import FrameStore
from vid2phys.types import Array

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs

_LOOKS = (1.0, 0.1)  # how much of the prior is kept: first to be led by the motion, then to be pulled by nothing
_COMPARED = 12  # frames of a clip
_CLEARLY = 10.0  # nats by which images have to speak for a motion by far other parameters


@dataclass(frozen=True)
class Shown:
    """The images of a clip. images: some of them, with what they show of the body."""

    frames: Indexed
    window: Window
    calibration: Calibration
    images: ClipEvidence

    @staticmethod
    def of(inputs: Inputs, body: ArticulatedBody) -> Shown:
        """Of what the user gave."""
        clip, model = inputs.clip, inputs.network
        frames = FrameStore(clip.frames, clip.width, clip.height)
        window = Window.of(inputs.camera, body, model.view_size)
        some = np.unique(np.linspace(0, len(frames) - 1, _COMPARED).astype(np.int64))
        return Shown(
            frames, window, Calibration.from_dict(model.calibration), ClipEvidence.of(frames, body, window, some)
        )

    @property
    def body(self) -> ArticulatedBody:
        """What is seen."""
        return self.images.body

    def nats(self, configurations: Array) -> float:
        """How well configurations [F, D] of all frames explain the images."""
        return self.images.nats(configurations[self.images.indices])

    def read_along(
        self, problem: Problem, track: ConfigurationTrack, start: Array, theta: Array, kept: float
    ) -> ConfigurationTrack:
        """The track read again from the motion of a problem with this start [2 D] and parameters [P]."""
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
    """Tracks and fits of clips of one body after frames were read again; as they were where that is no better."""

    body, tracks, best = shown[0].body, list(tracked), fitted

    def judge(clip: int, configurations: Array) -> float:
        return shown[clip].nats(configurations)

    def explained(several: Sequence[ConfigurationSolution]) -> float:
        return sum(judge(clip, body.configurations(each.states)) for clip, each in enumerate(several))

    nats = explained(best)
    for kept in _LOOKS:
        starts, theta, least = np.stack([each.start for each in best]), best[0].parameters.free_vector(), nats
        other = other_motion(problems, body, starts, theta, judge, _CLEARLY)
        if other is not None:
            starts, theta, least = other.starts, other.theta, nats + _CLEARLY
        read = [
            each.read_along(problem, track, start, theta, kept)
            for each, problem, track, start in zip(shown, problems, tracks, starts, strict=True)
        ]
        if all(a is b for a, b in zip(read, tracks, strict=True)):
            break
        parameters = problems[0].parameters.fitted_at(theta)
        anew = [
            replace(problem, parameters=parameters, observation=track.observation)
            for problem, track in zip(problems, read, strict=True)
        ]
        with suppress(SimulationError):
            again = configuration_shooting.solve_clips(anew, body, list(starts), shares=(1.0,))
            better = explained(again)
            if better >= least:
                tracks, best, nats = read, again, better
    if best is fitted:
        return tracks, best
    tracks = [with_averaged_covariance(track, body, each.window) for each, track in zip(shown, tracks, strict=True)]
    stated = [replace(problem, observation=track.observation) for problem, track in zip(problems, tracks, strict=True)]
    return tracks, configuration_shooting.with_error_models(stated, body, best)
