"""A sheet or a net in `identify`: reading it, and its fit to the contours of a clip as one rollout.

Method: nothing tracks the vertices frame by frame. The body begins in the shape of its file, and few parameters decide
all that follows; they are fitted to the clip as a whole (`solvers.vertex_fit`). Of a sheet, a fit on a finer mesh
states what the given mesh costs.

Limits: the clip begins with the body in the shape of its file; a static camera with a pose; gravity and air alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.errors import InputError, SimulationError
from vid2phys.notes import doubt, is_doubtful, ordered, warning

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.commands.progress import Progress
    from vid2phys.engine.systems._particles import VertexBody
    from vid2phys.solvers.vertex_fit import Started, VertexFit
    from vid2phys.tracking.vertex_contours import VertexFrames
    from vid2phys.types import Array, Observation, Parameter, Result

_WHERE, _FOLLOWED = 0.3, 0.8  # least overlap with the foreground: at the start, and of a good fit
_ACROSS_PX = 0.5  # deviation of a measured edge
_ALONG_PX = 100.0  # of a place along an edge, which the edge does not show


def read_vertex_body(
    config: IdentifyConfig, given: dict[str, float]
) -> tuple[VertexBody, tuple[Parameter, ...], list[str]]:
    """Return the body, the parameters beside its own, and notes for the reader.

    Raises UsageError for options of another form, InputError for a mesh or clamps that do not serve.
    """
    from vid2phys.commands.clamps import clamped
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.engine import systems
    from vid2phys.engine.systems._particles import VertexBody
    from vid2phys.io.move import parse_move
    from vid2phys.solvers.vertex_fit import START_VELOCITY

    body, notes = listen(lambda: systems.from_file(config.system, Path(str(config.body)), config.mesh_units))
    called = body.capabilities.called
    if body.surface is None:
        raise InputError(f"'{config.body}' has no faces", f"faces (f), by which the {called} is seen", "add them")
    if config.clamp or config.load:
        body = clamped(body, config.clamp, config.load)
    assert isinstance(body, VertexBody)
    if not config.clamp:
        body = body.clamped(np.zeros(0, dtype=np.int64))
        notes = [*notes, warning(f"nothing holds the {called}: it is taken to fall freely; --clamp names what is held")]
    if config.base is not None:
        body = body.placed(*parse_move(config.base, "--base"))
    if body.weight not in (*given, *config.fit):
        weight = body.parameters()[body.weight]
        taken = weight.with_unit(f"{weight.value:g}")
        text = f"no {body.weight} of {body.weight_of} is given: {taken} is taken, and stiffness, damping and drag go"
        notes = [*notes, warning(f"{text} with it; give --set {body.weight}=...")]
    return body, START_VELOCITY, notes


def fit_vertex_body(inputs: Inputs, progress: Progress) -> Result:
    """Return the result of a clip of a sheet or a net.

    Raises InputError where nothing moves, and where the body does not begin where its file and the camera say.
    """
    from vid2phys.commands.identify.readout import require_no_readout
    from vid2phys.engine.systems._particles import VertexBody
    from vid2phys.solvers.vertex_fit import Started, fit
    from vid2phys.tracking.vertex_contours import VertexFrames

    inputs = require_no_readout(inputs)
    body, called = inputs.system, inputs.system.capabilities.called
    assert isinstance(body, VertexBody)
    if inputs.camera.moves:
        raise InputError("a camera that moves", f"a static camera, for a {called}", "film from a tripod")
    progress("reading frames")
    frames = VertexFrames(inputs.clip, inputs.camera, inputs.camera_to_world, inputs.mesh.faces, body.free)
    _require_in_place(inputs, body, frames)
    started, finer = Started(body, inputs.known.parameters, inputs.clip.times_s), body.refined()
    try:
        finer_started = None if finer is None else replace(started, system=finer)
        found = fit(started, finer_started, frames, lambda done, total: progress("fitting", done, total))
    except SimulationError as error:
        got = f"no motion of the {called} follows '{inputs.clip.name}' ({error})"
        raise InputError(got, "a motion near the given values", "give values nearer to the truth by --set") from error
    return _result(inputs, started, found)


def _require_in_place(inputs: Inputs, body: VertexBody, frames: VertexFrames) -> None:
    """Raise InputError where nothing moves, or the body is not where its file and the camera say in the first frame.

    Learns the colours of the first frame.
    """
    called = body.capabilities.called
    if not frames.moves():
        expected = f"a {called} that moves before a static camera"
        raise InputError(f"nothing moves in '{inputs.clip.name}'", expected, "film it in motion")
    frames.learn(body.rest_m[None], [0])
    overlap = float(frames.overlaps(body.rest_m[None])[0])
    if overlap < _WHERE:
        raise InputError(
            f"the {called} is not where its file and the camera have it in the first frame (overlap {overlap:.0%})",
            f"the clip's first frame with the {called} in the shape of its file",
            "check --base, camera_to_world and --from",
        )


def _result(inputs: Inputs, started: Started, found: VertexFit) -> Result:
    """Return the result of a fit."""
    from vid2phys.commands.system_choice import remedies
    from vid2phys.solvers import intervals
    from vid2phys.types import Result, Status, Trajectory

    names = inputs.known.parameters.free_names
    fitted = inputs.known.parameters.fitted_at(found.values)
    fitted = fitted.with_values({p.name: p.value for p in fitted if p.free}, source="fitted")
    given = fitted, names, found.covariance, found.null_directions
    estimates = intervals.estimates(*given, found.degrees, inputs.known.priors)
    lines = intervals.identifiability(names, found.null_directions, estimates, fitted, remedies(inputs.system))
    asked = [each for each in estimates if each.name in names]
    moved = fitted.fitted_at(found.values - found.moved)
    shares = ", ".join(f"{name} from {moved[name].value:.3g} to {fitted[name].value:.3g}" for name in names)
    notes = list(inputs.notes)
    if found.moved.any():
        notes.append(f"a finer mesh moved {shares}; a third of it is one standard deviation in the intervals")
    overlap = float(np.median(found.overlaps))
    if overlap < _FOLLOWED:
        text = f"the {inputs.system.capabilities.called} hardly covers what moves in the clip (overlap {overlap:.0%})"
        notes.append(doubt(f"{text}: look at the overlay, and check the clamp, the start and the given parameters"))
    diagnostics: dict[str, Any] = {
        "identifiability": lines,
        "notes": ordered(notes),
        "rms_px": found.distance_px,
        "loss": None,
        "misfit": found.misfit,
        "overlap": overlap,
        "iterations": found.rounds,
        "lost_frames": [],
    }
    status = Status.CONVERGED if found.converged else Status.NOT_CONVERGED
    if asked and not any(each.identifiable for each in asked):
        status = Status.NOT_IDENTIFIABLE
    elif found.converged and is_doubtful(notes):
        status = Status.DOUBTFUL
    trajectory = Trajectory(started.times_s, found.states, inputs.system.state_names)
    joint = intervals.posterior(fitted, estimates, found.covariance)
    seen = _observation(inputs, started, found)
    message = "; ".join(lines)
    return Result(status, message, inputs.system.name, estimates, trajectory, None, None, seen, diagnostics, joint)


def _observation(inputs: Inputs, started: Started, found: VertexFit) -> Observation:
    """Return the vertices next to contours as keypoints, each moved onto its edge.

    An edge shows a place across it; along it the error is large.
    """
    from vid2phys.engine.observe import bearing_jacobian_to_pixels
    from vid2phys.geometry import transform_points
    from vid2phys.types import Observation

    body, lines = started.system, found.lines
    places = body.positions(found.states)
    at = transform_points(lines.to_camera, places)
    bearings: Array = at[..., :2] / at[..., 2:]
    count, size = bearings.shape[:2]
    covariance, visible = np.tile(np.eye(2), (count, size, 1, 1)), np.zeros((count, size), dtype=bool)
    vertex = lines.corners[np.arange(len(lines.frame)), lines.weights.argmax(axis=1)]
    off = -lines.residuals(places[None])[0] * lines.std
    for i, v, normal, distance in zip(lines.frame, vertex, lines.normal, off, strict=True):
        if visible[i, v]:
            continue
        to_bearing = np.linalg.inv(bearing_jacobian_to_pixels(inputs.camera, bearings[i, v]))
        across, along = to_bearing @ normal, to_bearing @ np.array([-normal[1], normal[0]])
        spread = np.column_stack([_ACROSS_PX * across, _ALONG_PX * along])
        covariance[i, v], visible[i, v] = spread @ spread.T, True
        bearings[i, v] += distance * across
    none, times = np.zeros((count, size, 2, 0)), started.times_s
    return Observation(times, bearings, covariance, none, np.zeros(0), visible, body.rest_m)
