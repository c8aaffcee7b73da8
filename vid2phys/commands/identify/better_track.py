"""Track by the silhouette where a trained model finds the body in too few frames, and report which one was used.

Where the model finds the body elsewhere, one of the two follows another thing, and the result is doubtful.

Limits: frames in which the model takes another thing for the body count as found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.errors import InputError
from vid2phys.notes import doubt, warning

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.tracking.track import Track

LEAST_SHARE = 0.5  # share of frames in which a model finds the body, below which the silhouette is tried
COMPARED = 3  # frames in which both find the body, from which on their places are compared


def better_track(
    inputs: Inputs, by_model: Callable[[Inputs], Track], by_silhouette: Callable[[Inputs], Track]
) -> tuple[Inputs, Track]:
    """Return the track that finds the body in more frames, with the inputs that belong to it.

    Args:
        inputs: with a trained model that fits the mesh.
        by_model: tracks by the model. Raises InputError when it finds nothing.
        by_silhouette: tracks without a model. Raises InputError likewise.

    Raises:
        InputError: of the model, when neither finds the body.
    """
    own: Track | None = None
    failure: InputError | None = None
    try:
        own = by_model(inputs)
    except InputError as error:
        failure = error
    if own is not None and own.tracked.mean() >= LEAST_SHARE:
        return inputs, own
    plain = replace(inputs, model=None, untrained=inputs.shape)
    try:
        other = by_silhouette(plain)
    except InputError:
        if own is None:
            assert failure is not None
            raise failure from None
        return inputs, own
    found = 0 if own is None else int(own.tracked.sum())
    if own is not None and other.tracked.sum() <= found:
        return inputs, own
    note = warning(
        f"the trained model finds the body in {found} of {len(other.tracked)} frames, its silhouette in "
        f"{int(other.tracked.sum())}: the silhouette is used; --model NAME keeps the model"
    )
    notes = (note,) if own is None else (note, *_elsewhere(own, other, inputs.mesh.radius_m))
    return replace(plain, warnings=(*plain.warnings, *notes)), other


def _elsewhere(own: Track, other: Track, radius_m: float) -> Iterator[str]:
    """Yield a doubt where two tracks find the body in different places, in most of the frames that they share."""
    both = own.tracked & other.tracked
    if both.sum() < COMPARED:
        return
    one, two = own.poses.pose.translation[both], other.poses.pose.translation[both]
    along = one / np.linalg.norm(one, axis=1, keepdims=True)
    beside_m = float(np.median(np.linalg.norm(np.cross(along, two), axis=1)))
    if beside_m > radius_m:
        got = f"the trained model finds the body {beside_m / radius_m:.1f} of its radii beside the silhouette"
        yield doubt(f"{got}, in {int(both.sum())} frames: one of the two is another thing; look at the overlay")
