"""Read and check the inputs of `identify`: frames, camera, body, system, actions, model and known parameters.

The cheap inputs are read first, so that a wrong option ends at once. All checks that need a file are here; `config`
checks the options by themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.commands.configs import is_auto, is_untrained
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.system_choice import filmed_system, is_free, is_of_vertices, is_on_hinge, require_mesh
from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from vid2phys.commands.fit_parameters import Known
    from vid2phys.commands.identify.estimated_camera import EstimatedCamera
    from vid2phys.commands.identify.hinges import OnHinge
    from vid2phys.commands.identify.readout_fit import ReadoutEstimate
    from vid2phys.commands.priors import Priors
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.engine.system import System
    from vid2phys.error_model import Calibration
    from vid2phys.io.focal_length import FocalPrior
    from vid2phys.risp.networks.model import Model, Shape
    from vid2phys.tracking.articulated.base_pose import BaseEstimate
    from vid2phys.tracking.hint import Hint
    from vid2phys.types import Actions, Array, Camera, Clip, Mesh, Parameter

LEAST_TRACKED = 0.5  # of the frames
LEAST_FRAMES = 8
MOVES = (
    "the camera moves: cues that need a static background are off (difference from the background, alignment to the "
    "clip's pixels)"
)


@dataclass(frozen=True)
class Inputs:
    """Everything the user gave, read and checked.

    camera_to_world: [4, 4], or [T, 4, 4] of a camera that moves; that of the camera, too. model: None for a body that
    is tracked by its silhouette, and where the user gave keypoints. warnings: notes on all inputs but the clip, which
    holds its own notes. body: the body of a system on a known base; None for a rigid body. untrained: symmetry and
    keypoints of a rigid body without a model. focal: what is known of the focal length of a camera whose pose is not
    known: its motion gives the pose (`estimated_camera`). None where the pose is known. camera_estimate: what the
    motion gave. hint: where the body is in one frame. on_hinge: what is known of a body on a hinge, and its hinge.
    """

    clip: Clip
    mesh: Mesh
    camera: Camera
    camera_to_world: Array
    system: System
    actions: Actions | None
    model: Model | None
    known: Known
    warnings: tuple[str, ...]
    body: ArticulatedBody | None = None
    untrained: Shape | None = None
    focal: FocalPrior | None = None
    camera_estimate: EstimatedCamera | None = None
    hint: Hint | None = None
    base: BaseEstimate | None = None  # of a robot, where it was fitted
    on_hinge: OnHinge | None = None
    fits_readout: bool = False  # of a rolling shutter
    readout: ReadoutEstimate | None = None  # where it was fitted
    preview: Path | None = None  # image of the first frame in which a body without a model is found
    training: str = ""  # the command that trains a model for a body without one, with its duration; empty if not asked

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the reader of a result must know of the inputs."""
        return (*self.known.notes, *self.clip.notes, *self.warnings)

    @property
    def network(self) -> Model:
        """Return the model, for code that needs one."""
        assert self.model is not None
        return self.model

    @property
    def shape(self) -> Shape | None:
        """Return the symmetry and the keypoints of the body; None where the user gave keypoints."""
        return self.untrained if self.model is None else self.model.shape

    @property
    def calibration(self) -> Calibration:
        """Return the error model of the tracker."""
        from vid2phys.error_model import Calibration

        return Calibration.from_dict(None if self.model is None else self.model.calibration)

    @property
    def is_ambiguous(self) -> bool:
        """Return whether neither shape nor texture distinguishes the body's symmetry elements."""
        return self.shape is not None and self.shape.exact and self.mesh.texture is None


@dataclass(frozen=True)
class Filmed:
    """What a camera filmed: the frames, the camera, its pose in the world, and notes for the reader.

    camera_to_world: [4, 4], or [T, 4, 4] of a camera that moves.
    """

    clip: Clip
    camera: Camera
    camera_to_world: Array
    notes: tuple[str, ...] = ()
    focal: FocalPrior | None = None  # of a camera whose pose is not known; the pose is then that of a level camera


ReadFilmed = Callable[[IdentifyConfig, "Actions | None"], Filmed]


def read_inputs(config: IdentifyConfig, read: ReadFilmed | None = None) -> Inputs:
    """Read and check the inputs of a single clip.

    read: reads camera, pose and frames (default: `read_filmed`). Raises Vid2PhysError.
    """
    from vid2phys.commands.identify.visible_freedoms import notes_on_freedoms
    from vid2phys.engine import systems

    read = read or read_filmed
    if require_mesh(systems.get(config.system), "identify", given=config.shape is not None):
        return _read_articulated(config, read)
    inputs = _read_rigid(config, read)
    if config.observation is not None:  # keypoints may show what the silhouette does not
        return inputs
    return replace(inputs, warnings=(*inputs.warnings, *notes_on_freedoms(inputs.mesh)))


def read_all(configs: Sequence[IdentifyConfig]) -> list[Inputs]:
    """Read the inputs of each clip; mesh, model and known parameters are read once. Raises Vid2PhysError."""
    notes_of_first: list[str] = []

    def read(config: IdentifyConfig, actions: Actions | None) -> Filmed:
        filmed = read_filmed(config, actions)
        cameras = {(each.camera, each.camera_pose) for each in configs}
        if len(cameras) > 1:  # errors that differ are no shared parameters
            filmed = replace(filmed, camera=replace(filmed.camera, focal_std=0.0, direction_std_rad=0.0))
        notes_of_first.extend(filmed.notes)
        return filmed

    first = read_inputs(configs[0], read)
    of_all = tuple(note for note in first.warnings if note not in notes_of_first)
    found = [first]
    if len(configs) > 1:
        _require_poses(configs[0], Filmed(first.clip, first.camera, first.camera_to_world, focal=first.focal))
    for config in configs[1:]:
        actions = read_actions_of(first.system, config)
        if actions is not None and first.actions is not None and actions.kind != first.actions.kind:
            got = f"actions of the kind {actions.kind} beside {first.actions.kind}"
            raise UsageError(got, "the same kind for all clips", "convert one of them")
        filmed = read_filmed(config, actions)
        _require_poses(config, filmed)
        one = replace(first, clip=filmed.clip, camera=filmed.camera, camera_to_world=filmed.camera_to_world)
        one = replace(one, hint=_checked_hint(config, filmed.clip))
        found.append(replace(one, actions=actions, warnings=(*of_all, *filmed.notes)))
    require_frames(found)
    return found


def _require_poses(config: IdentifyConfig, filmed: Filmed) -> None:
    """Raise InputError for a camera without a pose, of one of several clips."""
    from vid2phys.io.camera import require_pose

    if filmed.focal is not None:
        require_pose(filmed.camera, _single_path(config.camera))


def require_frames(several: Sequence[Inputs]) -> None:
    """Raise InputError when there are fewer frames than unknown parameters."""
    frames = sum(len(inputs.clip.times_s) for inputs in several)
    unknown = several[0].known.parameters.free_names
    if frames < len(unknown):
        raise InputError(f"{frames} frames and {len(unknown)} unknowns", "more frames than unknowns", "--fit fewer")


def read_filmed(config: IdentifyConfig, actions: Actions | None) -> Filmed:
    """Read camera, pose and clip. Raises InputError, also for actions that do not cover the clip."""
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.commands.identify.readout import with_readout
    from vid2phys.io.actions import require_cover
    from vid2phys.io.video import read_clip

    def read() -> Filmed:
        clip = read_clip(config.clip, **config.part)  # type: ignore[arg-type]
        filmed = with_readout(config, with_camera(config, clip, or_motion=is_free(config.system, "identify")))
        if len(clip.times_s) < LEAST_FRAMES:
            raise InputError(f"the clip has {len(clip.times_s)} frames", f"at least {LEAST_FRAMES}", "film longer")
        if actions is not None:
            require_cover(actions, clip, _single_path(config.actions))
        return filmed

    filmed, notes = listen(read)
    return replace(filmed, notes=tuple(notes))


def with_camera(config: IdentifyConfig, clip: Clip, *, or_motion: bool = False) -> Filmed:
    """Read the camera of a clip and its pose, or its pose in each frame. Raises InputError.

    or_motion: allow a camera without a pose, or `auto`, since the motion of the body will show the rest.
    """
    from vid2phys.io.camera import load_camera, require_pose, require_resolution
    from vid2phys.io.camera_trajectory import load_camera_trajectory
    from vid2phys.io.focal_length import FocalPrior

    path, of_pose = (
        _single_path(config.camera),
        None if config.camera_pose is None else _single_path(config.camera_pose),
    )
    if is_auto(path):
        return _without_file(config, clip, or_motion)
    poses = None if of_pose is None else load_camera_trajectory(of_pose, clip)
    camera = load_camera(path, of_pose if poses is None else None, size=(clip.width, clip.height))
    if poses is not None:
        camera = replace(camera, camera_to_world=poses[0] if len(clip.times_s) == 1 else poses)
    if camera.camera_to_world is None and or_motion:
        require_resolution(camera, clip, path)
        known = FocalPrior(float(camera.K[0, 0]), camera.focal_std, "the camera file")
        return _without_pose(config, clip, camera, known)
    pose = require_pose(camera, of_pose or path)
    require_resolution(camera, clip, path)
    if camera.moves:
        _require_movable(config)
        warnings.warn(MOVES, stacklevel=2)
    return Filmed(clip, camera, pose)


def _without_file(config: IdentifyConfig, clip: Clip, or_motion: bool) -> Filmed:
    """Return a clip with a camera of which only the focal length is known, and this hardly."""
    from vid2phys.io.focal_length import focal_prior, pinhole_camera

    if not or_motion:
        got, expected = "--camera auto", "a camera file with a pose, for a body on a known base and for `control`"
        raise UsageError(got, expected, "make one with `vid2phys calibrate`")
    prior = focal_prior(config.clips[0], clip)
    return _without_pose(config, clip, pinhole_camera(clip, prior.pixels), prior)


def _without_pose(config: IdentifyConfig, clip: Clip, camera: Camera, focal: FocalPrior) -> Filmed:
    """Return a clip with a level camera until its motion is known."""
    import numpy as np

    from vid2phys.geometry import looking, make_transform

    if config.of_camera:
        got = f"--fit {','.join(config.of_camera)} of a camera without a pose"
        raise UsageError(got, "no camera parameters, which the motion gives anyway", "leave them out")
    return Filmed(clip, camera, make_transform(looking(np.array([0.0, 1.0, 0.0])), np.zeros(3)), focal=focal)


def _require_movable(config: IdentifyConfig) -> None:
    """Raise UsageError for what needs a static camera and cannot be left out."""
    from vid2phys.solvers.losses import kind

    got = "--camera-pose with a pose for each frame"
    if config.shape is None:
        raise UsageError(f"{got}, for a body on a known base", "a static camera", "film from a tripod")
    if config.loss != "keypoint" and "scene" in kind(config.loss).needs:
        raise UsageError(f"{got}, with --loss {config.loss}", "a static camera", "use --loss keypoint or state")


def read_actions_of(system: System, config: IdentifyConfig) -> Actions | None:
    """Read the recorded actions of a clip, where there are any."""
    from vid2phys.commands.simulation_inputs import read_actions
    from vid2phys.io.actions import load_actions

    if config.actions is None:
        return None
    path = _single_path(config.actions)
    return load_actions(path) if config.shape is not None else read_actions(system, path, None)[1]


def _read_rigid(config: IdentifyConfig, read: ReadFilmed) -> Inputs:
    """Read the inputs for a rigid body, whose mesh or primitive the user gives."""
    from vid2phys.commands.fit_parameters import fixed_parameters, listen, with_camera_errors, with_unknown_size
    from vid2phys.commands.identify.hinges import on_hinge, require_hinge_options
    from vid2phys.io.actions import load_actions
    from vid2phys.io.mesh import mass_properties
    from vid2phys.io.primitives import load_body
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.mesh_shape import shape_of
    from vid2phys.risp.networks.model_lookup import TRAINING_TIME, find_model, fitting_model, train_command

    units, move = config.mesh_units, config.mesh_move
    given = _given_values(config)
    actions = None if config.actions is None else load_actions(_single_path(config.actions))
    whole, warned = listen(lambda: load_body(config.mesh, config.body, units, move))
    system = filmed_system(config.system, whole, actions, config.fit)
    properties, warned_of_mass = listen(lambda: mass_properties(whole))
    mesh, warned_of_size = listen(lambda: simplified(whole))  # to draw; the mass is that of the whole mesh
    on = None
    if is_on_hinge(system):
        require_hinge_options(config)
        on = on_hinge(system, properties, given, config.fit, _priors_and_bounds(config))
        known = on.known(None, None)
    else:
        known = fixed_parameters(system, properties, given, config.fit, actions, _priors_and_bounds(config))
    filmed = read(config, actions)
    if on is None and filmed.focal is None and config.takes_camera_parameters:
        known = with_camera_errors(known, filmed.camera)
        if "gravity" in config.fit:  # an acceleration is as wrong as the size that it is measured by
            known = with_unknown_size(known)
    model, untrained, training = None, None, ""
    notes = (*warned, *warned_of_mass, *warned_of_size, *filmed.notes)
    if config.observation is None:
        if config.model is None:
            model = fitting_model(mesh, system=config.system, units=units, move=move)
        elif not is_untrained(config.model):
            model = find_model(mesh, config.model, system=config.system, mesh_path=config.shape, units=units, move=move)
        if model is None:
            untrained = shape_of(mesh, system.name)
        if model is None and config.model is None:
            training = f"`{train_command(mesh, config.shape, config.system, units, move)}` ({TRAINING_TIME})"
            notes = (*notes, f"no model is trained for '{mesh.name}': it is tracked by its silhouette")
    clip, camera, pose = filmed.clip, filmed.camera, filmed.camera_to_world
    inputs = Inputs(clip, mesh, camera, pose, system, actions, model, known, notes)
    hint = _checked_hint(config, clip)
    if hint is not None and model is not None and len(clip.times_s) > 1:
        used = f"{hint.flag} is not used: the trained model finds the body; `--model none` uses it"
        inputs = replace(inputs, warnings=(*notes, used))
    return replace(inputs, untrained=untrained, focal=filmed.focal, hint=hint, on_hinge=on, training=training)


def _checked_hint(config: IdentifyConfig, clip: Clip) -> Hint | None:
    """Return the hint of a clip. Raises InputError for one outside of the clip or its frames."""
    hint = config.hint_of_clip
    if hint is not None:
        hint.row(clip)
    return hint


def _read_articulated(config: IdentifyConfig, read: ReadFilmed) -> Inputs:
    """Read the inputs for a system on a known base, whose mesh is its own."""
    from vid2phys.commands.fit_parameters import articulated_parameters, named
    from vid2phys.commands.identify.robot_base import BASE, require_fittable
    from vid2phys.commands.identify.robots import read_robot
    from vid2phys.commands.identify.soft_bodies import read_soft_body
    from vid2phys.commands.identify.vertex_bodies import read_vertex_body
    from vid2phys.engine import systems
    from vid2phys.risp.networks.articulated_bodies import body_of_model, untrained_body
    from vid2phys.risp.networks.model_lookup import find_model, fitting_model

    given = _given_values(config)
    system: System
    more: tuple[Parameter, ...] = ()
    of_vertices = is_of_vertices(config.system)
    if of_vertices:
        system, more, notes = read_vertex_body(config, given)
    elif config.volume is not None:
        system, notes = read_soft_body(config, given, config.fit)
    elif config.robot is not None:
        system, notes = read_robot(config)
    else:
        system, notes = systems.get(config.system), []
    priors = _priors_and_bounds(config)
    system, fit = named(system, config.fit, (*given, *priors.priors, *priors.bounds))
    mesh = system.surface
    assert mesh is not None  # `require_mesh` and `read_robot` check it
    actions = read_actions_of(system, config)
    if config.robot is not None:
        fit = tuple(name for name in fit if name != BASE)
    known = articulated_parameters(system, given, fit, priors, more)
    filmed = read(config, actions)
    model = None
    if config.robot is not None and config.model is None:
        model = fitting_model(mesh, system=config.system)
        if model is None:
            notes = [*notes, f"no model is trained for '{mesh.name}': it is tracked by its silhouette"]
    elif config.volume is None and not is_untrained(config.model):
        model = find_model(mesh, config.model, system=config.system)
    clip, camera, pose = filmed.clip, filmed.camera, filmed.camera_to_world
    body = None if of_vertices else untrained_body(system) if model is None else body_of_model(model, system)
    inputs = Inputs(clip, mesh, camera, pose, system, actions, model, known, (*notes, *filmed.notes), body)
    require_fittable(config, inputs)
    return inputs


def _given_values(config: IdentifyConfig) -> dict[str, float]:
    """Return the fixed parameters' values, those of the file too."""
    from vid2phys.commands.fit_parameters import read_parameters

    return (read_parameters(config.params) if config.params else {}) | config.set_values


def _priors_and_bounds(config: IdentifyConfig) -> Priors:
    from vid2phys.commands.priors import Priors

    both = ({name: (float(a), float(b)) for name, (a, b) in pairs.items()} for pairs in (config.priors, config.bounds))
    return Priors(*both)


def _single_path(path: Path | tuple[Path, ...] | None) -> Path:
    """Return the path of a single clip's config."""
    assert isinstance(path, Path)
    return path
