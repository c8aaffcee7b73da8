"""Run the pipeline of `vid2phys identify` on a filmed experiment.

Camera, mesh, actions and all parameters but the unknown ones are known; the body's place and first state are not. A
body has the model that the command finds by its shape, else it is tracked by its silhouette.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from experiments.experiments import Experiment
from experiments.footage import Footage
from vid2phys.commands.fit_parameters import NO_PRIORS, articulated_parameters, fixed_parameters
from vid2phys.commands.identify import fit_articulated, pipeline
from vid2phys.commands.identify.config import FitOptions, IdentifyConfig
from vid2phys.commands.identify.inputs import LEAST_FRAMES, Inputs
from vid2phys.commands.priors import Priors
from vid2phys.commands.system_choice import filmed_system
from vid2phys.errors import InputError
from vid2phys.geometry import (
    Pose,
    angle_between,
    invert_transform,
    make_transform,
    matrix_from_quat,
    quat_from_matrix,
    quat_multiply,
)
from vid2phys.io.mesh import mass_properties
from vid2phys.report.metrics import SymmetryGroup, coverage
from vid2phys.risp.networks.articulated_bodies import body_of_model, untrained_body
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.risp.networks.model import Model
from vid2phys.solvers import whiteness
from vid2phys.solvers.cramer_rao import noisy
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.track import Track
from vid2phys.types import Actions, Array, PoseLog, Result
from vid2phys.types import Clip as Film

_WIDE = 1e3  # standard deviation of a prior that only says where a fit begins, over its mean


@dataclass(frozen=True)
class Clip:
    """A filmed experiment as a user of `identify` has it. asked: names of the parameters that are fitted."""

    experiment: Experiment
    inputs: Inputs
    asked: tuple[str, ...]

    @staticmethod
    def of(
        experiment: Experiment,
        footage: Footage,
        model: Model | None,
        start: Array | None = None,
        *,
        with_actions: bool = True,
    ) -> Clip:
        """Return the clip of the frames that are shown.

        model: None for a body that is tracked by its silhouette. start: where the fit of the unknown parameters
        begins, in the paper's units, as by a wide `--prior`. Without it, the command begins where it does by itself,
        and fits no parameter of a body that is thrown. with_actions: give `--actions`, where the plan has actions.
        Raises Vid2PhysError as the command does.
        """
        plan, asked, priors = experiment.plan, _asked(experiment), NO_PRIORS
        if start is not None:
            asked = plan.unknown.names
            begin = zip(asked, plan.unknown.to_si(start).tolist(), strict=True)
            priors = Priors({name: (value, _WIDE * value) for name, value in begin})
        clip = footage.clip(plan.times_s[experiment.shown])
        if len(clip.times_s) < LEAST_FRAMES:
            raise InputError(f"the clip has {len(clip.times_s)} frames", f"at least {LEAST_FRAMES}", "film longer")
        actions = _actions(experiment) if with_actions else None
        return Clip(experiment, inputs_of(experiment, clip, model, actions, asked, priors), asked)

    def solved(self) -> Result:
        """Return what the command makes of the clip, from its frames. Raises Vid2PhysError as the command does."""
        config = IdentifyConfig(clip=Path(self.inputs.clip.name), camera=Path("camera.yaml"), fit=self.asked)
        several, tracks = pipeline.track_all([self.inputs], config)
        return pipeline.solve(several, tracks, config)

    def tracked(self) -> Track | ConfigurationTrack:
        """Return the track of the body. Raises InputError when the body is found in no frame."""
        return pipeline.track(self.inputs)

    def identified(self, tracked: Track | ConfigurationTrack, *, refine: bool = True) -> Result:
        """Return the result of the user's pipeline, with intervals. refine: by the clip's pixels."""
        return pipeline.solve([self.inputs], [tracked], FitOptions(fit=self.asked, refine=refine))

    def with_drawn_errors(
        self, tracked: Track | ConfigurationTrack, rng: np.random.Generator
    ) -> Track | ConfigurationTrack:
        """Return the true motion with errors drawn from the track's error model, its symmetry element known."""
        experiment = self.experiment
        states = experiment.states[experiment.shown]
        problem = experiment.plan.problem(experiment.truth, tracked.observation, self.inputs.camera_to_world)
        seen = noisy(problem, states, rng).observation
        if isinstance(tracked, ConfigurationTrack):
            return replace(tracked, observation=seen)
        at, quats = experiment.plan.system.body_pose(states)
        pose = invert_transform(self.inputs.camera_to_world) @ make_transform(matrix_from_quat(quats), at)
        poses = replace(tracked.poses, pose=Pose(pose[:, :3, :3], pose[:, :3, 3]))
        return replace(tracked, observation=seen, poses=poses, branch_log_likelihood=np.zeros(1))

    def pose_coverage(self, result: Result) -> float | None:
        """Return the share of the coordinates of poses in their 95 % intervals; None where there are no intervals.

        In each frame the symmetry element nearest to the truth counts.
        """
        if self.inputs.body is not None or result.trajectory.covariance is None:
            return None
        states, shown = result.trajectory.states, self.experiment.shown
        found, quats = self.inputs.system.body_pose(states)
        truth, true_quats = self.experiment.plan.system.body_pose(self.experiment.states[shown])
        std = np.sqrt(np.einsum("tii->ti", result.trajectory.covariance))[:, :6]
        alike = self.experiment.alike
        group = SymmetryGroup(quat_from_matrix(alike[:, :3, :3]), alike[:, :3, 3], exact=True)
        inside = 0.0
        nearest = np.argmin(angle_between(quat_multiply(quats[:, None], group.quats), true_quats[:, None]), axis=1)
        for index in np.unique(nearest).tolist():
            frames = np.flatnonzero(nearest == index)
            log = group.applied(index, PoseLog(result.trajectory.times_s[frames], found[frames], quats[frames]))
            share = coverage(log, group.applied_to_std(index, std[frames]), truth[frames], true_quats[frames])
            inside += len(frames) * (share or 0.0)
        return inside / len(quats)


def inputs_of(
    experiment: Experiment,
    clip: Film,
    model: Model | None,
    actions: Actions | None,
    asked: tuple[str, ...] = (),
    priors: Priors = NO_PRIORS,
) -> Inputs:
    """Return the inputs of a command for frames of an experiment, whose other parameters are known.

    model, Raises: as of `Clip.of`. asked: what is fitted.
    """
    plan, camera, pose = experiment.plan, experiment.camera, np.asarray(experiment.camera.camera_to_world)
    given = {p.name: p.value for p in plan.parameters if p.name not in plan.unknown.names}
    if experiment.articulated is not None:
        known = articulated_parameters(plan.system, given, asked, priors)
        body = untrained_body(plan.system) if model is None else body_of_model(model, plan.system)
        return Inputs(clip, experiment.mesh, camera, pose, plan.system, actions, model, known, (), body)
    system = plan.system if actions else filmed_system(plan.system.name, experiment.mesh, None, asked)
    given = {name: value for name, value in given.items() if name in system.parameters().names}
    known = fixed_parameters(system, mass_properties(experiment.mesh), given, asked, actions, priors)
    inputs = Inputs(clip, experiment.mesh, camera, pose, system, actions, None, known, ())
    if model is None:
        return replace(inputs, untrained=shape_of(experiment.mesh, system.name))
    return replace(inputs, model=model.scaled(experiment.scale))


def intervals_of(clip: Clip, result: Result) -> tuple[Array, Array]:
    """Return estimates [U] and 95 % intervals [U, 2] of what was asked for, in the paper's units."""
    found = {estimate.name: estimate for estimate in result.parameters}
    asked = [found[name] for name in clip.asked]
    unknown = clip.experiment.plan.unknown
    values = np.array([estimate.value for estimate in asked])
    ends = np.array([estimate.ci95 for estimate in asked]).reshape(-1, 2)
    with np.errstate(divide="ignore"):
        return unknown.from_si(values), unknown.from_si(ends)


def is_unfit(result: Result) -> bool:
    """Whether a reader is told that the model does not explain the clip."""
    notes = result.diagnostics["notes"]
    assert isinstance(notes, list)
    return any(note.startswith((whiteness.UNFIT, fit_articulated.UNFIT)) for note in notes)


def _asked(experiment: Experiment) -> tuple[str, ...]:
    """What is fitted: of a body that is thrown nothing but its motion, contacts come out as forces."""
    return () if experiment.plan.actions is None else experiment.plan.unknown.names


def _actions(experiment: Experiment) -> Actions | None:
    plan, system = experiment.plan, experiment.plan.system
    if plan.actions is None:
        return None
    kind: Literal["rotors", "other"] = "rotors" if experiment.articulated is None else "other"
    times = np.asarray(np.arange(plan.steps) * plan.step_s, dtype=float)
    return Actions(times, plan.actions, kind, system.action_names, system.action_units)
