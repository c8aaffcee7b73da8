"""Read and check the inputs of `identify`: frames, camera, body, system, actions, model and known parameters.

The cheap inputs are read first, so that a wrong option ends at once. All checks that need a file are here; `config`
checks the options by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.system_choice import filmed_system, require_mesh
from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from vid2phys.commands.fit_parameters import Known
    from vid2phys.commands.priors import Priors
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.engine.system import System
    from vid2phys.risp.networks.model import Model
    from vid2phys.types import Actions, Array, Camera, Clip, Mesh

LEAST_TRACKED = 0.5  # of the frames
LEAST_FRAMES = 8


@dataclass(frozen=True)
class Inputs:
    """Everything the user gave, read and checked.

    model: None where the user gave keypoints in place of a model. warnings: notes on all inputs but the clip, which
    holds its own notes. body: the body of a system on a known base; None for a rigid body.
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
    def is_ambiguous(self) -> bool:
        """Return whether neither shape nor texture distinguishes the body's symmetry elements."""
        return self.model is not None and self.model.shape.exact and self.mesh.texture is None


@dataclass(frozen=True)
class Filmed:
    """What a camera filmed: the frames, the camera, its pose [4, 4] in the world, and notes for the reader."""

    clip: Clip
    camera: Camera
    camera_to_world: Array
    notes: tuple[str, ...] = ()


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
    first = read_inputs(configs[0])
    found = [first]
    for config in configs[1:]:
        actions = read_actions_of(first.system, config)
        if actions is not None and first.actions is not None and actions.kind != first.actions.kind:
            got = f"actions of the kind {actions.kind} beside {first.actions.kind}"
            raise UsageError(got, "the same kind for all clips", "convert one of them")
        filmed = read_filmed(config, actions)
        one = replace(first, clip=filmed.clip, camera=filmed.camera, camera_to_world=filmed.camera_to_world)
        found.append(replace(one, actions=actions, warnings=(*first.warnings, *filmed.notes)))
    require_frames(found)
    return found


def require_frames(several: Sequence[Inputs]) -> None:
    """Raise InputError when there are fewer frames than unknown parameters."""
    frames = sum(len(inputs.clip.times_s) for inputs in several)
    unknown = several[0].known.parameters.free_names
    if frames < len(unknown):
        raise InputError(f"{frames} frames and {len(unknown)} unknowns", "more frames than unknowns", "--fit fewer")


def read_filmed(config: IdentifyConfig, actions: Actions | None) -> Filmed:
    """Read camera, pose and clip. Raises InputError, also for actions that do not cover the clip."""
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.io.actions import require_cover
    from vid2phys.io.video import read_clip

    def read() -> Filmed:
        clip = read_clip(config.clip, **config.part)  # type: ignore[arg-type]
        filmed = with_camera(config, clip)
        if len(clip.times_s) < LEAST_FRAMES:
            raise InputError(f"the clip has {len(clip.times_s)} frames", f"at least {LEAST_FRAMES}", "film longer")
        if actions is not None:
            require_cover(actions, clip, _single_path(config.actions))
        return filmed

    filmed, notes = listen(read)
    return replace(filmed, notes=tuple(notes))


def with_camera(config: IdentifyConfig, clip: Clip) -> Filmed:
    """Read the camera of a clip and its pose. Raises InputError."""
    from vid2phys.io.camera import load_camera, require_pose, require_resolution

    path, of_pose = (
        _single_path(config.camera),
        None if config.camera_pose is None else _single_path(config.camera_pose),
    )
    camera = load_camera(path, of_pose, size=(clip.width, clip.height))
    pose = require_pose(camera, of_pose or path)
    require_resolution(camera, clip, path)
    return Filmed(clip, camera, pose)


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
    from vid2phys.commands.fit_parameters import fixed_parameters, listen
    from vid2phys.io.actions import load_actions
    from vid2phys.io.mesh import mass_properties
    from vid2phys.io.primitives import load_body
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.model_lookup import find_model

    units, move = config.mesh_units, config.mesh_move
    given = _given_values(config)
    actions = None if config.actions is None else load_actions(_single_path(config.actions))
    whole, warned = listen(lambda: load_body(config.mesh, config.body, units, move))
    system = filmed_system(config.system, whole, actions, config.fit)
    properties, warned_of_mass = listen(lambda: mass_properties(whole))
    mesh, warned_of_size = listen(lambda: simplified(whole))  # to draw; the mass is that of the whole mesh
    known = fixed_parameters(system, properties, given, config.fit, actions, _priors_and_bounds(config))
    filmed = read(config, actions)
    model = None
    if config.observation is None:
        model = find_model(mesh, config.model, system=config.system, mesh_path=config.shape, units=units, move=move)
    notes = (*warned, *warned_of_mass, *warned_of_size, *filmed.notes)
    return Inputs(filmed.clip, mesh, filmed.camera, filmed.camera_to_world, system, actions, model, known, notes)


def _read_articulated(config: IdentifyConfig, read: ReadFilmed) -> Inputs:
    """Read the inputs for a system on a known base, whose mesh is its own."""
    from vid2phys.commands.fit_parameters import articulated_parameters
    from vid2phys.engine import systems
    from vid2phys.risp.networks.articulated_bodies import body_of_model
    from vid2phys.risp.networks.model_lookup import find_model

    given = _given_values(config)
    system = systems.get(config.system)
    mesh = system.surface
    assert mesh is not None  # `require_mesh` checks it
    actions = read_actions_of(system, config)
    known = articulated_parameters(system, given, config.fit, _priors_and_bounds(config))
    filmed = read(config, actions)
    model = find_model(mesh, config.model, system=config.system)
    clip, camera, pose = filmed.clip, filmed.camera, filmed.camera_to_world
    body = body_of_model(model, system)
    return Inputs(clip, mesh, camera, pose, system, actions, model, known, filmed.notes, body)


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
