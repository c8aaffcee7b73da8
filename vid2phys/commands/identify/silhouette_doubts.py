"""Doubt a track without a trained model where the clip does not show its poses, and name the likely reason.

Each doubt compares one measured quantity with a threshold: silhouette and foreground overlap too little, the frames do
not show the mesh (`tracking.support`), the body is blurred or partly hidden (`tracking.visibility`), its edges ask for
other proportions (`tracking.proportions`), or its orientation jumps (`tracking.steadiness`). `benchmarks.sweep` judges
them.

Limits: a wrong mesh whose proportions are within some per cent of those of the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.notes import doubt
from vid2phys.tracking.support import SURE_MATCH

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.tracking.track import Track
    from vid2phys.tracking.visibility import Visibility
    from vid2phys.types import Array

SURE_OVERLAP = 0.4  # of silhouette and foreground; thin bodies of 20 pixels have 0.45 to 0.55
STEADY_DEG = 2.5  # third difference of the orientation, median of a clip: good tracks have 0 to 2.4, bad ones 2.9 to 7
JUMP_DEG, JUMP_STEPS = 45.0, 5.0  # rotation between two frames that no motion has, deg and in usual rotations
SMALL_PX = 40.0  # size of a silhouette below which poses are uncertain for this reason
FAST_DEG = 15.0  # rotation a frame above which tracking skips to another side of the body
MOST_HIDDEN = 0.15  # share of the silhouette that shows the background; whole bodies have 0 to 0.07
MOST_BLUR = 0.1  # width of moving edges, as a share of the body's size
BLURRED_PX = 5.0  # width of moving edges that lens and codec explain: sharp ones have 2 to 3
OTHER_RATIO = 1.08  # of proportions of body and mesh: right meshes have 1.00 to 1.06, others 1.12 and more
OTHER_PX, OTHER_STDS = 2.0, 3.0  # least effect of it in a frame, px (glare has 1 to 1.5), and in its deviations
AGREED = 0.2  # share of frames whose pixels agree, from which on a mesh may have other proportions
_BALL = 2  # axes of revolution of a body whose orientation does not show, nor does blur spoil it
NOISY = 18.0  # standard deviation of noise from which on it hides edges, grey levels after the codec


def silhouette_doubts(inputs: Inputs, tracked: Track) -> list[str]:
    """Return the first doubt about a track by silhouettes; an empty list where there is none."""
    return list(islice(_doubts(inputs, tracked), 1))


def training_notes(inputs: Inputs, tracked: Track, doubts: Sequence[str] = ()) -> list[str]:
    """Return how much a trained model would help a track by silhouettes, if nobody asked to do without.

    Edges refine the poses of a model as they refine those of silhouettes. So a model helps where frames are lost or
    poses are doubted. doubts: about the track.
    """
    lost, frames = int((~tracked.tracked).sum()), len(tracked.tracked)
    if not inputs.training:
        return []
    if lost or doubts:
        return [f"a trained model may find the body better ({lost} of {frames} frames are lost): {inputs.training}"]
    return [f"a trained model would hardly help: all {frames} frames show the silhouette, and edges refine its poses"]


def proportion_doubts(inputs: Inputs, tracked: Track, reason: str | None = None) -> Iterator[str]:
    """Yield that the edges ask for a body of other proportions, with the likely reason; also of a trained model."""
    other = tracked.proportions
    if other is None or other.off_px < OTHER_PX or (other.agreement is not None and other.agreement < AGREED):
        return
    if np.log(other.ratio) > max(np.log(OTHER_RATIO), OTHER_STDS * other.std):
        got = f"the body in the frames and the mesh '{inputs.mesh.name}' differ in proportions by a factor of"
        likely = reason or "the mesh is not the object, or its sides are wrong"
        yield doubt(f"{got} {other.ratio:.2f}: {likely}")


def likely_reason(shown: Visibility | None) -> str | None:
    """Return why a clip may not show the poses of its body, in words; None where nothing is known to hinder it."""
    if shown is None:
        return None
    if shown.size_px < SMALL_PX:
        return f"the body is {shown.size_px:.0f} px wide: too small for its orientation; film closer"
    reason = _blurred(shown) or _hidden(shown)
    if reason is None and shown.noise > NOISY:
        return f"noise of {shown.noise:.0f} grey levels hides the edges; film with more light"
    return reason


def _blurred(shown: Visibility) -> str | None:
    if shown.blur_px > max(BLURRED_PX, MOST_BLUR * shown.size_px):
        return f"motion blur of {shown.blur_px:.0f} px: too blurred for its orientation; expose for a shorter time"
    return None


def _hidden(shown: Visibility) -> str | None:
    if shown.hidden > MOST_HIDDEN:
        got = f"{shown.hidden:.0%} of the silhouette shows the background"
        return f"{got}: the body is partly hidden, or has the colour of what is behind it"
    return None


def _doubts(inputs: Inputs, tracked: Track) -> Iterator[str]:
    from vid2phys.risp.shape.symmetry import axes_of_revolution

    overlap, match, shown = float(np.median(tracked.quality[tracked.tracked])), tracked.image_match, tracked.visibility
    axes = axes_of_revolution(inputs.mesh)
    reason = likely_reason(shown)
    if overlap < SURE_OVERLAP:
        got = f"the silhouette of the mesh and what moves overlap by {overlap:.2f} of 1"
        yield doubt(f"{got}: {reason or 'the mesh is not the object, or something else moves with it'}")
    if match < SURE_MATCH:
        got = f"the image does not support the mesh '{inputs.mesh.name}' at the poses that were found"
        other = "the mesh is not the object, or something hides part of it"
        yield doubt(f"{got} (match {match:.1f}, less than {SURE_MATCH}): {reason or other}")
    if shown is not None:
        blurred = None if len(axes) == _BALL else _blurred(shown)
        yield from (doubt(each) for each in (blurred, _hidden(shown)) if each is not None)
    yield from proportion_doubts(inputs, tracked, reason)
    yield from _of_motion(tracked, axes, reason)


def _of_motion(tracked: Track, axes: list[Array], reason: str | None) -> Iterator[str]:
    """Yield that orientations jump from frame to frame, with the likely reason. axes: of revolution."""
    from vid2phys.tracking.steadiness import steadiness

    steady = steadiness(tracked.poses.pose, tracked.tracked, axes)
    if steady is None:
        return
    if steady.jump_deg > max(JUMP_DEG, JUMP_STEPS * steady.step_deg):
        got = f"the orientation jumps by {steady.jump_deg:.0f} deg between two frames and stays there"
        yield doubt(f"{got}: the body is found the wrong way round in part of the clip; look at the overlay")
    if steady.jitter_deg < STEADY_DEG:
        return
    if reason is None and steady.step_deg > FAST_DEG:
        reason = f"it turns {steady.step_deg:.0f} deg a frame; film with more frames a second"
    got = f"the orientation jumps by {steady.jitter_deg:.0f} deg between adjacent frames"
    yield doubt(f"{got}: {reason or 'the body is partly hidden, or the mesh is not the object; look at the overlay'}")
