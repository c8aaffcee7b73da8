"""Heads: what a network predicts in an image. A file `x.py` defines one concrete `Head` of the name `x`.

Limits: a head sees one image; time is the tracker's.
"""

from __future__ import annotations

from vid2phys import plugins
from vid2phys.errors import UsageError, unknown_name
from vid2phys.risp.heads._head import Head
from vid2phys.risp.networks.validate import Body

__all__ = ["Head", "available", "get"]


def available() -> tuple[str, ...]:
    """Return the names of the heads, sorted."""
    return plugins.names(__path__)


def get(spec: str, body: Body, *, radius_m: float, view_size: int, numbers: int | None = None) -> Head:
    """Return the head called NAME, or NAME@wWIDTH for a network of another width (`state@w32`), for a body.

    Args:
        spec: The head's name.
        body: Keypoints and symmetry.
        radius_m: Radius of the sphere around the body origin, m.
        view_size: Width and height V of an image, px.
        numbers: Number S of the encoded state's numbers for a body that is not rigid.

    Raises:
        UsageError: The name or the width is unknown.
    """
    name, width = parse(spec)
    head = plugins.class_in(__name__, "head", name, available(), Head)
    return head(body, radius_m=radius_m, view_size=view_size, width=width, numbers=numbers)


def parse(spec: str) -> tuple[str, int | None]:
    """Split NAME or NAME@wWIDTH. Raises UsageError for an unknown name or width."""
    name, _, option = spec.partition("@")
    if name not in available():
        raise unknown_name("head", name, available())
    if not option:
        return name, None
    digits = option.removeprefix("w")
    if not option.startswith("w") or not digits.isdigit() or int(digits) < 8 or int(digits) % 8:
        raise UsageError(f"head '{spec}'", "NAME or NAME@wWIDTH with a multiple of 8", "for example state@w32")
    return name, int(digits)
