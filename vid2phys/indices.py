"""Choose indices: evenly spread ones, and nearest ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of `count` indices, evenly spread from the first to the last."""
    return np.linspace(0, count - 1, min(most, count)).astype(np.int64)


def nearest(count: int, among: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each of `count` indices the place in `among` of the nearest one, the lower of two.

    among: ascending indices, not empty.
    """
    wanted = np.arange(count)
    after = np.clip(np.searchsorted(among, wanted), 1, max(1, len(among) - 1))
    before = after - 1
    after = np.minimum(after, len(among) - 1)
    return np.where(among[after] - wanted < wanted - among[before], after, before)
