"""The pipeline of `vid2phys identify`: inputs -> track -> initialise -> estimate -> report.

    inputs      Inputs          frames, camera, body, system, actions, model (`inputs.py`)
    track       Track           a pose or configuration for each frame, its covariance and evidence (`tracking/`);
                                and a camera whose pose is not known (`estimated_camera.py`)
    initialise  Initialised     the hypothesis, refined poses and a first motion (`fit.py`, `fit_articulated.py`)
    estimate    Result          states, parameters, intervals, warnings (the same files; `multi_clip.py` for clips
                                that are fitted together)
    report      run folder      `outputs.py`

Each step is one function. Rigid bodies, bodies on a known base and multi-clip fits take the same steps. `control` and
the experiments call these functions, too; no other code assembles a tracker or a fit.

Limits: all clips show one body and share its parameters. In this folder `several` holds the inputs of each clip, `g`
counts clips (in `fit.py` hypotheses), and a missing start means that the body was found in too few frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from vid2phys.commands.identify.config import FitOptions, IdentifyConfig
from vid2phys.commands.options import taking
from vid2phys.commands.progress import Progress, of_clip, silent
from vid2phys.errors import InputError

if TYPE_CHECKING:
    from vid2phys.commands.identify.fit import Initialised
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.geometry import Pose
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.tracking.frame_store import FrameStore
    from vid2phys.tracking.hint import Hint
    from vid2phys.tracking.track import Track
    from vid2phys.types import Array, Result

    Tracked: TypeAlias = Track | ConfigurationTrack
    Start: TypeAlias = Initialised | Array | None  # None: the body was found in too few frames


@taking(IdentifyConfig, "clip", "mesh", "camera")
def identify(config: IdentifyConfig, progress: Progress = silent) -> tuple[Result, Path]:
    """Fit a physical system to a clip, or to several clips of one body, and write a run folder.

    The options are those of `IdentifyConfig`: a config, or its fields as arguments. Paths are those of the command
    line. `fit` names the parameters to estimate. Without `actions`, the actions are estimated for each frame interval.

    Returns:
        The result and the run folder. A fit that fails returns a result whose status states the reason.

    Raises:
        Vid2PhysError: for anything that a user can mend.
    """
    from vid2phys.commands.config import write_config
    from vid2phys.commands.identify.default_system import with_system
    from vid2phys.commands.identify.estimated_camera import with_fitted_camera
    from vid2phys.commands.identify.inputs import read_all
    from vid2phys.commands.identify.outputs import with_cameras, write
    from vid2phys.commands.identify.readout import READOUT, with_fitted_readout, without_readout
    from vid2phys.commands.identify.robot_base import with_base
    from vid2phys.commands.identify.vertex_bodies import fit_vertex_body
    from vid2phys.commands.system_choice import is_of_vertices
    from vid2phys.io.run import new_run
    from vid2phys.memory import return_large_blocks

    started = time.perf_counter()
    return_large_blocks()
    refine = config.refine and "photometric" not in config.without
    config, fits_readout = without_readout(config)
    config = with_system(config)
    config = replace(config, refine=refine)
    configs = config.of_each_clip()
    config.check()
    progress("reading inputs")
    several = read_all(configs)
    with new_run("identify", config.out) as folder:
        several = [
            replace(inputs, preview=path, fits_readout=fits_readout)
            for inputs, path in zip(several, previews(folder, several), strict=True)
        ]
        if is_of_vertices(config.system):  # track and fit are one step
            result = fit_vertex_body(several[0], progress)
        else:
            several, tracks = track_all(several, config, progress)
            result = solve(several, tracks, config, progress)
        result = with_cameras(result, several)
        result = with_fitted_readout(with_base(result, several[0]), several[0])
        if several[0].camera_estimate is not None:
            inputs, result = with_fitted_camera(several[0], result)
            several = [inputs]
        asked = (*config.fit, READOUT) if fits_readout else config.fit
        write_config(folder / "config.yaml", replace(config, fit=asked, out=None))
        write(folder, several, configs, result, time.perf_counter() - started, progress)
    return result, folder


def track_all(
    several: Sequence[Inputs], config: IdentifyConfig, progress: Progress = silent
) -> tuple[list[Inputs], list[Tracked]]:
    """Return the inputs, with notes on keypoints that the user gave, and the track of each clip.

    Where the pose of the camera of a single clip is not known, the track gives it (`estimated_camera`).
    """
    from vid2phys.commands.identify.estimated_camera import with_estimated_camera

    found, tracks = _tracked(several, config, progress)
    if len(several) > 1 or several[0].focal is None:
        return found, tracks

    def again(inputs: Inputs) -> tuple[Inputs, Track]:
        (tracked,), (track,) = _tracked([inputs], config, progress)
        return tracked, cast("Track", track)

    progress("estimating the camera")
    inputs, track = with_estimated_camera(several[0], (found[0], cast("Track", tracks[0])), config, again)
    return [inputs], [track]


def _tracked(
    several: Sequence[Inputs], config: IdentifyConfig, progress: Progress
) -> tuple[list[Inputs], list[Tracked]]:
    """Return the inputs, with notes on keypoints that the user gave, and the track of each clip."""
    from vid2phys.commands.identify.external_keypoints import given_track
    from vid2phys.commands.identify.readout import with_row_times

    if config.observation is not None:
        (inputs,) = several
        points = config.body_points
        tracked, notes = given_track(config.observation, points, inputs.clip, inputs.camera, inputs.mesh)
        inputs = replace(inputs, warnings=(*inputs.warnings, *notes))
        if points is None:  # an earlier run, whose times are those of rows
            return [inputs], [tracked]
        inputs, tracked = with_row_times(inputs, tracked, progress)
        return [inputs], [tracked]
    pairs = [_track_one(one, config, of_clip(g, len(several), progress)) for g, one in enumerate(several)]
    return [inputs for inputs, _ in pairs], [tracked for _, tracked in pairs]


def _track_one(inputs: Inputs, config: IdentifyConfig, progress: Progress) -> tuple[Inputs, Tracked]:
    """Return the inputs and the track of a clip, with measurements at the times of their rows."""
    from vid2phys.commands.identify.readout import require_no_readout, with_row_times

    if inputs.body is not None or inputs.on_hinge is not None:
        return track_frames(require_no_readout(inputs), config, progress)
    inputs, tracked = track_frames(inputs, config, progress)
    return with_row_times(inputs, cast("Track", tracked), progress)


def track_frames(inputs: Inputs, config: IdentifyConfig, progress: Progress = silent) -> tuple[Inputs, Tracked]:
    """Return the inputs and the track of a clip; the better one where no model was asked for by name."""
    from vid2phys.commands.identify.better_track import better_track
    from vid2phys.commands.identify.hinges import with_hinge
    from vid2phys.engine.movable.joints import JointBody

    if isinstance(inputs.body, JointBody) and inputs.model is None:
        return _track_robot(inputs, config, progress)
    if inputs.on_hinge is not None:
        return with_hinge(inputs, track_pose(inputs, config.without, progress), progress)
    found_model = config.model is None and inputs.model is not None
    if not found_model or inputs.body is not None or inputs.camera.moves:
        return inputs, track(inputs, config.without, progress)
    return better_track(
        inputs,
        lambda one: track_pose(one, config.without, progress),
        lambda one: track_silhouette(one, progress),
    )


def _track_robot(inputs: Inputs, config: IdentifyConfig, progress: Progress) -> tuple[Inputs, ConfigurationTrack]:
    """Return the inputs of a robot without a model, and its track; its base is fitted or compared."""
    from vid2phys.commands.identify.robot_base import BASE, track_and_compare, track_and_fit

    def tracked(one: Inputs) -> ConfigurationTrack:
        return track_configuration(one, progress)

    if BASE not in config.fit:
        return track_and_compare(inputs, tracked)
    progress("searching for the base")
    return track_and_fit(inputs, config.base, tracked)


def track(inputs: Inputs, without: tuple[str, ...] = (), progress: Progress = silent) -> Tracked:
    """Track the body through a clip. Raises InputError when the body is found in no frame.

    without: names of cues that are switched off (`tracking.cues`).
    """
    return track_pose(inputs, without, progress) if inputs.body is None else track_configuration(inputs, progress)


def track_pose(inputs: Inputs, without: tuple[str, ...] = (), progress: Progress = silent) -> Track:
    """Track the pose of a rigid body through a clip. Raises InputError when the body is found in no frame."""
    if inputs.model is None:
        return track_silhouette(inputs, progress)
    from vid2phys.risp.renders.viewpoints import tilt_spread
    from vid2phys.tracking import tracker
    from vid2phys.tracking.cues.texture import SurfaceTexture
    from vid2phys.tracking.detectors.shown import place_of
    from vid2phys.tracking.frame_store import FrameStore
    from vid2phys.tracking.proportions import proportions

    model = inputs.network
    switched: dict[str, Any] = {"without": without} if without else {}
    found = tracker.track(
        *(inputs.clip, inputs.camera, model, model.radius_m),
        tilt_std_rad=tilt_spread(inputs.system),
        mesh=inputs.mesh,
        texture=SurfaceTexture.of(inputs.mesh, model.rotations, model.center),
        shown=None if inputs.hint is None else place_of(inputs.hint, inputs.clip),
        progress=lambda share: progress("tracking", round(100 * share), 100),
        **switched,
    )
    placed = found.poses.pose, found.tracked, FrameStore.of(inputs.clip), inputs.camera, inputs.mesh
    return replace(found, proportions=proportions(*placed))


def track_silhouette(inputs: Inputs, progress: Progress = silent) -> Track:
    """Track the pose of a rigid body by its silhouette, without a trained model. Raises InputError."""
    from vid2phys.commands.identify.known_ground import known_ground
    from vid2phys.report.overlay import write_preview
    from vid2phys.risp.renders.viewpoints import tilt_spread
    from vid2phys.tracking.frame_store import FrameStore
    from vid2phys.tracking.mesh_track import track_mesh
    from vid2phys.tracking.proportions import proportions
    from vid2phys.tracking.support import image_match
    from vid2phys.tracking.visibility import visibility

    assert inputs.untrained is not None
    share = lambda done: progress("tracking", round(100 * done), 100)  # noqa: E731
    given = inputs.clip, inputs.camera, inputs.mesh, inputs.untrained, inputs.calibration

    def first(index: int, pose: Pose) -> None:
        if inputs.preview is not None:
            write_preview(inputs.preview, inputs.clip, inputs.camera, inputs.mesh, index, pose)
            progress(f"found in frame {index}: {inputs.preview}")

    frames = FrameStore.of(inputs.clip)
    tilt_std_rad = tilt_spread(inputs.system)

    ground = known_ground(inputs)

    def tracked(hint: Hint | None) -> Track:
        found = track_mesh(
            *given, share, hint=hint, tilt_std_rad=tilt_std_rad, first=first, frames=frames, ground=ground
        )
        return replace(found, image_match=image_match(found, frames, inputs.camera, inputs.mesh))

    places = _places(inputs, frames) if inputs.hint is None else (inputs.hint,)
    found = _best_supported(places, tracked, lambda one: _is_sure(inputs, one))
    placed = found.poses.pose, found.tracked, frames, inputs.camera, inputs.mesh
    return replace(found, visibility=visibility(*placed), proportions=proportions(*placed, found.blur))


def _places(inputs: Inputs, frames: FrameStore) -> Iterator[Hint | None]:
    """Yield where to look for a body: anywhere, then where the clip changes, for one that moves by less than itself.

    A hinge needs no good track of the free body.
    """
    from vid2phys.tracking.changing_place import changing_place

    yield None
    if inputs.camera.moves or inputs.on_hinge is not None:
        return
    place = changing_place(frames, inputs.clip.times_s)
    if place is not None:
        yield place


def _is_sure(inputs: Inputs, track: Track) -> bool:
    """Return whether a body is not to be looked for elsewhere: its track has no doubt, or it moves so that it blurs.

    The images support a sharp thing at rest better than a blurred body.
    """
    from vid2phys.commands.identify.silhouette_doubts import silhouette_doubts

    return track.blur is not None or not silhouette_doubts(inputs, track)


def _best_supported(
    places: Iterable[Hint | None], tracked: Callable[[Hint | None], Track], is_sure: Callable[[Track], bool]
) -> Track:
    """Return the track that the images support best; a further place is tried only where that has a doubt.

    A thing at rest may look like the mesh: such a track has no doubt, but less support than one of the body. tracked:
    returns the track of a body at a place. Raises its first InputError where no place has a track.
    """
    found: list[Track] = []
    failures: list[InputError] = []
    for place in places:
        try:
            found.append(tracked(place))
        except InputError as error:
            failures.append(error)
            continue
        if found[-1].image_match >= max(each.image_match for each in found) and is_sure(found[-1]):
            return found[-1]
    if not found:
        raise failures[0]
    return max(found, key=lambda track: track.image_match)


def previews(folder: Path, several: Sequence[Inputs]) -> list[Path]:
    """Return the image of each clip that shows the body where it was found first."""
    if len(several) == 1:
        return [folder / "preview.jpg"]
    return [folder / f"preview_{g + 1}.jpg" for g in range(len(several))]


def track_configuration(inputs: Inputs, progress: Progress = silent) -> ConfigurationTrack:
    """Track the configuration of a body on a known base through a clip; by its silhouette where it has no model."""
    from vid2phys.tracking.articulated.silhouette_tracker import track_silhouettes
    from vid2phys.tracking.articulated.tracker import track_configurations

    assert inputs.body is not None
    share = lambda done: progress("tracking", round(100 * done), 100)  # noqa: E731
    if inputs.model is None:
        return track_silhouettes(
            inputs.clip, inputs.camera, inputs.body, share, first=lambda i, at: _preview_robot(inputs, i, at, progress)
        )
    return track_configurations(inputs.clip, inputs.camera, inputs.network, inputs.body, progress=share)


def _preview_robot(inputs: Inputs, index: int, configuration: Array, progress: Progress) -> None:
    """Write the preview of a body on a known base in a configuration [D]."""
    from vid2phys.geometry import Pose, invert_transform
    from vid2phys.report.overlay import write_preview

    if inputs.preview is None:
        return
    assert inputs.body is not None
    mesh = replace(inputs.body.mesh, vertices=inputs.body.vertices(configuration))
    to_camera = invert_transform(inputs.camera_to_world)
    pose = Pose(to_camera[:3, :3], to_camera[:3, 3])
    write_preview(inputs.preview, inputs.clip, inputs.camera, mesh, index, pose)
    progress(f"found in frame {index}: {inputs.preview}")


def solve(
    several: Sequence[Inputs], tracks: Sequence[Tracked], options: FitOptions, progress: Progress = silent
) -> Result:
    """Initialise and estimate; return one result, which holds the results of each clip of a multi-clip fit."""
    from vid2phys.commands.identify.multi_clip import joined

    shares = [of_clip(g, len(several), progress) for g in range(len(several))]
    starts = [
        initialise(inputs, tracked, options, share)
        for inputs, tracked, share in zip(several, tracks, shares, strict=True)
    ]
    results = estimate(several, tracks, starts, options, progress)
    return results[0] if len(results) == 1 else joined(results)


def initialise(inputs: Inputs, tracked: Tracked, options: FitOptions, progress: Progress = silent) -> Start:
    """Return the start of a clip's estimate; None for a clip in which the body was found in too few frames."""
    from vid2phys.commands.identify import fit, fit_articulated

    if inputs.body is not None:
        return fit_articulated.initialise(inputs, cast("ConfigurationTrack", tracked))
    return fit.initialise(inputs, cast("Track", tracked), refine=options.refine, progress=progress)


def estimate(
    several: Sequence[Inputs],
    tracks: Sequence[Tracked],
    starts: Sequence[Start],
    options: FitOptions,
    progress: Progress = silent,
) -> list[Result]:
    """Estimate motion and parameters; return a result for each clip. All results have the same parameters."""
    from vid2phys.commands.identify import fit, fit_articulated, multi_clip

    if several[0].body is not None:
        configurations, at = cast("list[ConfigurationTrack]", tracks), cast("list[Array | None]", starts)
        return fit_articulated.estimate(several, configurations, at, options, progress)
    poses, begun = cast("list[Track]", tracks), cast("list[Initialised | None]", starts)
    if len(several) == 1:
        return [fit.estimate(several[0], poses[0], begun[0], options, progress)]
    return multi_clip.estimate(several, poses, begun, options, progress)
