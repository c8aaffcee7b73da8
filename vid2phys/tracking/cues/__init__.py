"""Cues: what one frame shows of a body at a pose, one file each, and the switches by which a user turns them off.

Each cue gives a residual and its slope, or a log-likelihood in nats. `CUES` names the cues that `tracker.track` and
`identify` can do without; `python -m benchmarks.cues` measures what each one is worth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vid2phys.errors import unknown_name

CUES: dict[str, str] = {
    "contour": "edges of the silhouette and of creases, which refine the pose in every frame",
    "creases": "edges inside the silhouette, where faces meet at an angle; a part of the contour cue",
    "region": "colours inside the silhouette against colours around it, which tell ambiguous poses apart",
    "symmetry": "which symmetry element of a nearly symmetric body explains a frame best",
    "part_colors": "colours of the mesh's parts; a part of the symmetry cue",
    "temporal_outliers": "adjacent frames, which correct a frame that the network or its edges misjudged",
    "texture": "the texture of the mesh, where the mesh has one",
    "support": "whether the image supports the pose; frames without support count as lost",
    "photometric": "alignment of the whole clip to its pixels after the first fit; `identify` alone uses this cue",
}


def available() -> tuple[str, ...]:
    """Return the names of the cues that can be switched off."""
    return tuple(CUES)


@dataclass(frozen=True)
class ActiveCues:
    """The cues in use: `name in cues` says whether one is.

    Attributes:
        off: names of the cues that are switched off.
    """

    off: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name not in self.off

    @staticmethod
    def without(names: Iterable[str]) -> ActiveCues:
        """Return all cues except these.

        Raises:
            UsageError: for a name that is not in `CUES`; the message lists the names.
        """
        off = frozenset(names)
        for name in sorted(off - CUES.keys()):
            raise unknown_name("cue", name, available())
        return ActiveCues(off)


ALL_CUES = ActiveCues()
