"""Several clips of one body in one fit: parameters are shared; camera, actions, trajectory and overlay are of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.commands.progress import Progress
from vid2phys.errors import UsageError
from vid2phys.notes import warning

if TYPE_CHECKING:
    from vid2phys.commands.identify import Inputs
    from vid2phys.types import Result

PART = ("fps", "stream", "from_s", "to_s")  # options of `io.video.read_clip`
PER_CLIP = ("camera", "camera_pose", "actions", *PART)


def spread(options: dict[str, Any]) -> list[dict[str, Any]]:
    """The options of each clip. What may differ between them is given once, for all, or once a clip.

    Raises UsageError for other numbers of cameras, poses or actions.
    """
    clips = _listed(options["clip"])
    each: list[dict[str, Any]] = [{**options, "clip": clip} for clip in clips]
    for name in PER_CLIP:
        given = _listed(options.get(name))
        if len(given) not in (1, len(clips)):
            flag = f"--{name.removesuffix('_s').replace('_', '-')}"
            raise UsageError(
                f"{len(clips)} clips and {len(given)} {flag}", f"one {flag}, or one a clip", "in the clips' order"
            )
        for g, one in enumerate(each):
            one[name] = given[g % len(given)]
    several = {name for name in PER_CLIP if len(_listed(options.get(name))) > 1}
    moving = [name for name in options["fit"] if name == "focal" or name.startswith("camera_")]
    if several & {"camera", "camera_pose"} and moving:
        raise UsageError(
            f"--fit {','.join(moving)} of {len(clips)} cameras", "one camera for all clips", "fit the clips one by one"
        )
    return each


def read_several(each: Sequence[dict[str, Any]]) -> list[Inputs]:
    """The inputs of each clip; mesh, model and what is known of the body are read once. Raises Vid2PhysError."""
    from vid2phys.commands.fit_parameters import listen
    from vid2phys.commands.identify import read_actions_of, read_images, read_inputs

    first = read_inputs(each[0])
    found = [first]
    for options in each[1:]:
        actions = read_actions_of(first.system, options)
        if actions is not None and first.actions is not None and actions.kind != first.actions.kind:
            got = f"actions of the kind {actions.kind} beside {first.actions.kind}"
            raise UsageError(got, "the same kind for all clips", "convert one of them")
        (camera, pose, clip), notes = listen(lambda: read_images(options, actions))  # noqa: B023 (called at once)
        one = replace(first, clip=clip, camera=camera, camera_to_world=pose, actions=actions)
        found.append(replace(one, warnings=(*first.warnings, *notes)))
    return found


def fit_several(each: Sequence[Inputs], options: dict[str, Any], progress: Progress) -> list[Result]:
    """Track and fit all clips; the parameters in all results are those of the joint fit.

    A clip in which the body is lost is left out of it, and its result says so.
    """
    if each[0].network.shape.kind != "rigid":
        from vid2phys.commands.fit_articulated import fit_articulated_clips
        from vid2phys.commands.identify import track_configuration
        from vid2phys.risp.networks.articulated_bodies import body_of_model

        body = body_of_model(each[0].network, each[0].system)
        configurations = [track_configuration(one, body, _of(g, each, progress)) for g, one in enumerate(each)]
        fit, refine = tuple(options["fit"]), bool(options["refine"])
        return fit_articulated_clips(each, body, configurations, fit=fit, refine=refine, progress=progress)
    return _fit_rigid(each, options, progress)


def _fit_rigid(each: Sequence[Inputs], options: dict[str, Any], progress: Progress) -> list[Result]:
    """Every clip is settled by itself first: its branch, its readings and where the joint fit begins."""
    from vid2phys.commands.fit import conclude, lost, settle
    from vid2phys.commands.identify import track_clip
    from vid2phys.solvers import shooting, smoothing
    from vid2phys.solvers.solution import degrees_of_freedom

    tracked, settled = [], []
    for g, inputs in enumerate(each):
        told = _of(g, each, progress)
        tracked.append(track_clip(inputs, told))
        settled.append(settle(inputs, tracked[g], refine=options["refine"], progress=told))
    found = {g: one for g, one in enumerate(settled) if one is not None}
    if not found:
        return [lost(inputs, track) for inputs, track in zip(each, tracked, strict=True)]
    progress("fitting all clips together")
    begun = {g: smoothing.solution(one.fitted) for g, one in found.items()}
    if options["method"] == "shooting":
        problems = [one.problem for one in found.values()]
        solutions = shooting.solve_clips(problems, [begun[g].knot_states for g in found])
    else:
        starts = [
            smoothing.Start(one.problem, begun[g].knot_states, begun[g].knot_inputs, one.fitted.hyperparameters)
            for g, one in found.items()
        ]
        solutions = [smoothing.solution(fitted) for fitted in smoothing.fit_clips(starts)]
    degrees = sum(degrees_of_freedom(one.problem, 0) for one in found.values()) - len(solutions[0].theta_names)
    by_clip = dict(zip(found, solutions, strict=True))
    return [
        conclude(
            *(inputs, tracked[g], found[g], by_clip[g], tuple(options["fit"])), degrees=max(1.0, degrees)
        )
        if g in found
        else lost(inputs, tracked[g])
        for g, inputs in enumerate(each)
    ]  # fmt: skip


def joined(results: Sequence[Result]) -> Result:
    """One result for all: parameters and status of the fit, and what is of each clip beside them."""
    from vid2phys.types import Status

    fitted = [one for one in results if one.status is not Status.LOST] or list(results)
    worst = next((one for one in fitted if one.status is not Status.CONVERGED), fitted[0])
    gone = [g for g, one in enumerate(results) if one.status is Status.LOST and len(fitted) < len(results)]
    left_out = [f"clip {g + 1} is left out: {results[g].message}" for g in gone]
    messages = [message for message in (worst.message, *left_out) if message]
    lines = fitted[0].diagnostics.get("identifiability", [])
    diagnostics: dict[str, object] = {"identifiability": lines, "notes": [warning(text) for text in left_out]}
    return replace(worst, message="; ".join(messages), diagnostics=diagnostics, clips=tuple(results))


def write_several(
    folder: Path, result: Result, each: Sequence[Inputs], options: Sequence[dict[str, Any]], seconds: float,
    progress: Progress,
) -> None:  # fmt: skip
    """A folder a clip, as a fit of it alone would leave it, and result.json of all beside them."""
    from vid2phys.commands.identify import draw_overlay, result_of, write_run
    from vid2phys.io.run import validate_result, write_json

    parts = []
    for g, (one, inputs, chosen) in enumerate(zip(result.clips, each, options, strict=True)):
        place = folder / f"clip_{g + 1}"
        place.mkdir()
        if chosen["overlay"]:
            draw_overlay(place, one, inputs, _of(g, each, progress))
        data = write_run(place, one, inputs, chosen, seconds, config="../config.yaml")
        parts.append(
            {"clip": inputs.clip.name, "folder": place.name}
            | {name: data[name] for name in ("status", "message", "diagnostics", "fit", "files")}
        )
    data = result_of(result, each[0], options[0], seconds, {"config": "config.yaml"})
    clips = [Path(one["clip"]) for one in options]
    data["inputs"] |= {"clip": data["inputs"]["clip"], "clips": [str(path) for path in clips]}
    data["fit"] |= {
        name: sum(part["fit"][name] for part in parts) for name in ("frames_used", "frames_lost")
    }  # fmt: skip
    data["clips"] = parts
    validate_result(data)
    write_json(folder / "result.json", data)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _of(clip: int, each: Sequence[Inputs], progress: Progress) -> Progress:
    """Progress that says which clip it is of."""

    def told(stage: str, done: int = 0, total: int = 0) -> None:
        progress(f"clip {clip + 1} of {len(each)}: {stage}", done, total)

    return told
