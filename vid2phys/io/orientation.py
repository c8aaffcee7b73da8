"""Which faces of a mesh point against their neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def turned_alike(faces: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Faces [F] of [F, 3] to be turned over so that neighbours agree, the fewest in each connected piece.

    Two faces are neighbours that share an edge with no third one, and agree when they run along it in opposite
    directions. Found at once for all: in the graph of (face, as it is) and (face, turned), with edges between what
    agrees, each piece falls into two mirror images. One that does not (a Moebius strip) is left as it is.
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
    turn = as_is != chosen
    pieces = np.unique(chosen, return_inverse=True)[1]
    many = 2 * np.bincount(pieces, turn) > np.bincount(pieces)
    turn = np.where(many[pieces], ~turn, turn)
    return np.asarray(turn & (as_is != turned))
