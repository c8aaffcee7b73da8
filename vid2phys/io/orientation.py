"""Find the faces of a mesh that point against their neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def inconsistent_faces(faces: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the faces [F] of [F, 3] to flip so that neighbours agree, the fewest in each connected piece.

    Two faces are neighbours if they share an edge with no third one, and agree when they run along it in opposite
    directions. The graph of (face, as it is) and (face, flipped), with edges between what agrees, gives all at once:
    each piece falls into two mirror images. A piece that does not (a Moebius strip) is left as it is.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(faces)
    begin, end = faces[:, [0, 1, 2]].ravel(), faces[:, [1, 2, 0]].ravel()
    forward, owner = begin < end, np.repeat(np.arange(count), 3)
    key = np.minimum(begin, end) * (int(faces.max(initial=0)) + 1) + np.maximum(begin, end)
    order = np.argsort(key, kind="stable")
    key, forward, owner = key[order], forward[order], owner[order]
    first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    pair = first[np.diff(np.append(first, len(key))) == 2]
    a, b, agree = owner[pair], owner[pair + 1], forward[pair] != forward[pair + 1]
    if agree.all():
        return np.zeros(count, dtype=bool)
    rows = np.concatenate([a, a + count])
    columns = np.concatenate([np.where(agree, b, b + count), np.where(agree, b + count, b)])
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(2 * count, 2 * count))
    _, label = connected_components(graph, directed=False)
    as_is, turned = label[:count], label[count:]
    chosen = np.minimum(as_is, turned)  # of the two mirror images of a piece, any
    flip = as_is != chosen
    pieces = np.unique(chosen, return_inverse=True)[1]
    many = 2 * np.bincount(pieces, flip) > np.bincount(pieces)
    flip = np.where(many[pieces], ~flip, flip)
    return np.asarray(flip & (as_is != turned))
