"""The readout of a rolling shutter in `identify`: given, fitted (`--fit readout`), or missing.

Limits: rigid bodies, one clip, a static camera, and a motion that is fast in the frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import InputError, UsageError
from vid2phys.notes import warning

if TYPE_CHECKING:
    from vid2phys.commands.identify.config import IdentifyConfig
    from vid2phys.commands.identify.inputs import Filmed, Inputs
    from vid2phys.tracking.track import Track
    from vid2phys.types import Result

READOUT = "readout"  # in `--fit`


def without_readout(config: IdentifyConfig) -> tuple[IdentifyConfig, bool]:
    """Return the config without the readout in what is fitted, and whether it was there. Raises UsageError."""
    if READOUT not in config.fit:
        return config, False
    if len(config.clips) > 1:
        raise UsageError(f"--fit readout of {len(config.clips)} clips", "one clip", "fit one, then give --readout")
    if config.readout is not None:
        raise UsageError("--fit readout with --readout", "one of them", "leave one of them out")
    return replace(config, fit=tuple(name for name in config.fit if name != READOUT)), True


def with_readout(config: IdentifyConfig, filmed: Filmed) -> Filmed:
    """Return what was filmed, by a camera with the readout of the options. Raises InputError for one that cannot be."""
    from vid2phys.io.camera import checked_side

    camera = filmed.camera
    if config.readout is not None:
        camera = replace(camera, readout_s=config.readout)
    if config.readout_from is not None:
        camera = replace(camera, readout_from=checked_side(config.readout_from))
    interval_s = float(np.diff(filmed.clip.times_s).min()) if len(filmed.clip.times_s) > 1 else np.inf
    if not 0.0 <= camera.readout_s <= interval_s:
        got = f"a readout of {1e3 * camera.readout_s:g} ms"
        expected = f"0 to {1e3 * interval_s:.4g} ms, the time from frame to frame"
        raise InputError(got, expected, "give seconds in readout_s or --readout, and the side that comes first")
    return replace(filmed, camera=camera)


def with_row_times(inputs: Inputs, track: Track, progress: Progress = silent) -> tuple[Inputs, Track]:
    """Return the inputs with a fitted readout, if one was asked for, and the track with measurements at row times."""
    from vid2phys.commands.identify.readout_fit import fitted_readout
    from vid2phys.tracking.frame_store import FrameStore
    from vid2phys.tracking.rolling_shutter import at_row_times

    if inputs.camera.moves:
        return require_no_readout(inputs), track
    if not track.tracked.any():
        return inputs, track
    if inputs.fits_readout:
        progress("fitting the readout")
        given = inputs.clip, inputs.camera, inputs.mesh, track
        found = fitted_readout(*given, lambda share: progress("fitting the readout", round(100 * share), 100))
        readout_s = max(0.0, found.readout_s) if np.isfinite(found.std_s) else 0.0
        inputs = replace(inputs, camera=replace(inputs.camera, readout_s=readout_s), readout=found)
    elif not inputs.camera.readout_s:
        return replace(inputs, warnings=(*inputs.warnings, *_looks_rolling(inputs, track))), track
    if not inputs.camera.readout_s:
        return inputs, track
    frames = FrameStore.of(inputs.clip)
    return inputs, at_row_times(frames, inputs.camera, inputs.mesh, track, inputs.clip.times_s)


def with_fitted_readout(result: Result, inputs: Inputs) -> Result:
    """Return the result with the fitted readout among its parameters."""
    from vid2phys.types import Estimate

    found = inputs.readout
    if found is None:
        return result
    shown = bool(np.isfinite(found.std_s))
    estimate = Estimate(READOUT, "s", inputs.camera.readout_s, found.ci95, shown, at_bound=found.readout_s < 0.0)
    return replace(result, parameters=(*result.parameters, estimate))


def require_no_readout(inputs: Inputs) -> Inputs:
    """Return the inputs, with a note that the readout is not used. Raises UsageError where it is to be fitted."""
    if inputs.fits_readout:
        got = "--fit readout of a body on a known base or a hinge, or of a camera that moves"
        raise UsageError(got, "a rigid body before a static camera", "leave readout out of --fit")
    if not inputs.camera.readout_s:
        return inputs
    text = "the readout is not used for bodies on a known base or a hinge, nor for a camera that moves"
    camera = replace(inputs.camera, readout_s=0.0)
    return replace(inputs, camera=camera, warnings=(*inputs.warnings, warning(text)))


def _looks_rolling(inputs: Inputs, track: Track) -> list[str]:
    """Return a warning where the frames look as if rows were exposed one after the other."""
    from vid2phys.commands.identify.readout_fit import apparent_readout

    readout_s = apparent_readout(inputs.clip, inputs.camera, inputs.mesh, track)
    if readout_s is None:
        return []
    side = "top" if readout_s > 0.0 else "bottom"
    got = f"the frames look like those of a rolling shutter that reads from the {side} in {1e3 * abs(readout_s):.0f} ms"
    return [warning(f"{got}: give --readout in seconds, or try --fit readout")]
