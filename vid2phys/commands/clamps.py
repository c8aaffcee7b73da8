"""Where a body of tets, a sheet or a net is held, and where a known mass hangs: regions such as `x<0.005`, in metres.

Limits: a region is one half-space across an axis, or with & between them where several meet; several clamps hold what
any of them holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError, UsageError

if TYPE_CHECKING:
    from vid2phys.engine.system import System
    from vid2phys.types import Array

_REGION = re.compile(r"\s*([xyz])\s*([<>])=?\s*([^<>=]+)")
CLAMPED = "a body of tets, a sheet or a net: soft_body, cloth, mass_spring"
_FORM = "an axis, < or >, and metres"


def clamped(system: System, clamps: tuple[str, ...], load: str | None) -> System:
    """Return the system with faces clamped, without a ground, and with a load such as `0.052@x>0.095` (kg, region).

    Raises UsageError for a system that is no body of tets and for regions of another form, InputError for clamps that
    hold nothing or everything, and loads that hang nowhere.
    """
    from vid2phys.engine.systems._particles import VertexBody

    hold = getattr(system, "with_clamps", None)
    if hold is None:
        raise UsageError(f"--clamp or --load for '{system.name}'", CLAMPED, "leave them out")
    if not clamps:
        raise UsageError("--load without --clamp", "both", "give what holds the body: --clamp 'x<0.005'")
    points = system.rest_m  # type: ignore[attr-defined]
    least = 1 if isinstance(system, VertexBody) else 3
    pinned = np.unique(np.concatenate([_region("--clamp", each, points, least) for each in clamps]))
    if len(pinned) == len(points):
        raise InputError(f"--clamp {','.join(clamps)} holds the whole body", "a part that is free", "make it smaller")
    if load is None:
        return hold(pinned, None, 0.0)
    mass, _, where = load.partition("@")
    try:
        kilograms = float(mass)
    except ValueError:
        kilograms = np.nan
    if not (kilograms > 0.0 and where):
        raise UsageError(f"--load {load}", "kilograms@region", "for example --load '0.052@x>0.095'")
    return hold(pinned, _region("--load", where, points, least), kilograms)


def _region(flag: str, text: str, points: Array, least: int) -> NDArray[np.int64]:
    """Return the vertices in a region."""
    if "&" in text:
        parts = [_region(flag, part, points, least) for part in text.split("&")]
        both = np.flatnonzero(np.bincount(np.concatenate(parts), minlength=len(points)) == len(parts))
        if len(both) < least:
            raise InputError(f"{flag} {text} holds {len(both) or 'no'} vertices of the body", "a part of it", "move it")
        return both
    found = _REGION.fullmatch(text)
    try:
        axis, side, limit = found.group(1, 2, 3) if found else ("", "", "")
        number = float(limit)
    except ValueError:
        raise UsageError(f"{flag} {text}", _FORM, f"for example {flag} 'x<0.005'") from None
    along = points[:, "xyz".index(axis)]
    inside = np.flatnonzero(along < number if side == "<" else along > number)
    if len(inside) < least:
        got = f"{flag} {text} holds {len(inside) or 'no'} vertices of the body ({axis} is {along.min():.4g} to "
        raise InputError(
            f"{got}{along.max():.4g} m)",
            "a face of it, three or more" if least > 1 else "one or more",
            "move the region, in metres",
        )
    return inside
