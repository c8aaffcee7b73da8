"""Tell a reader which degrees of freedom of a body its images do not show, by the geometry of its mesh."""

from __future__ import annotations

from vid2phys.types import Mesh

_NOTES = {  # by the number of degrees of freedom that an image shows
    3: "a plain ball shows its position only: its rotation is not seen; spin shows with a pattern or in bounces",
    5: "a plain body of revolution shows five of six degrees of freedom: its rotation about its axis is not seen; spin "
    "about it shows with a pattern or in bounces",
}


def notes_on_freedoms(mesh: Mesh) -> tuple[str, ...]:
    """Return a note where an image of the mesh does not show all of a pose."""
    from vid2phys.risp.shape.symmetry import visible_freedoms

    note = _NOTES.get(visible_freedoms(mesh))
    return () if note is None else (note,)
