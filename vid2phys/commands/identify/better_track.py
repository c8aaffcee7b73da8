"""Track by the silhouette where a trained model finds the body in too few frames, and report which one was used.

Limits: frames in which the model takes another thing for the body count as found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from vid2phys.errors import InputError
from vid2phys.notes import warning

if TYPE_CHECKING:
    from vid2phys.commands.identify.inputs import Inputs
    from vid2phys.tracking.track import Track

LEAST_SHARE = 0.5  # share of frames in which a model finds the body, below which the silhouette is tried


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
    return replace(plain, warnings=(*plain.warnings, note)), other
