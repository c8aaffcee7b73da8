"""`vid2phys systems`: what each physical system is, has and cannot do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_EXAMPLE = "box:0.1x0.1x0.1m"  # a rigid body in a clip


def systems_like(start: str) -> list[str]:
    """Names of the systems that start so, for the shell to complete."""
    from vid2phys.engine.systems import available

    return [name for name in available() if name.startswith(start)]


def describe(name: str) -> dict[str, Any]:
    """Return what a system is when it is made without options, for JSON.

    Summary, capabilities, parameters, states and their axes, actions, integrators, file, limits. `state_frames` are the
    axes of states by how their names begin. `clip_parameters` are those that it has beyond in `identify`.

    Raises UsageError for an unknown name.
    """
    from vid2phys.commands.system_choice import purpose
    from vid2phys.engine import systems
    from vid2phys.io.primitives import load_body

    system = systems.get(name)
    can = system.capabilities
    in_clip = system.for_clip(load_body(body=_EXAMPLE)) if can.observed_as == "rigid" else system
    clip_only = [p for p in in_clip.parameters() if p.name not in system.parameters().names]
    paragraphs = [" ".join(text.split()) for text in inspect.getdoc(type(system)).split("\n\n")]  # type: ignore[union-attr]
    reader = systems.file_reader(name)
    limits = next((text for text in paragraphs if text.startswith("Limits:")), "")
    return {
        "name": name,
        "summary": paragraphs[0].replace("`", ""),
        "parameters": [
            {"name": p.name, "unit": p.unit, "default": p.value, "lower": p.lower, "upper": p.upper}
            for p in system.parameters()
        ],
        "clip_parameters": [p.with_unit(p.name) for p in clip_only],
        "state": list(system.state_names),
        "state_frames": dict(system.state_frames),
        "actions": [
            {"name": action, "unit": unit}
            for action, unit in zip(system.action_names, system.action_units, strict=True)
        ],
        "capabilities": {
            "purpose": purpose(system),
            "observed_as": can.observed_as,
            "reason": "" if can.observed_as else can.reason,
            "inputs": list(can.inputs),
            "excited_by": {**can.excited_by, **in_clip.capabilities.excited_by},
        },
        "integrators": list(system.integrators),
        "body": _what_it_reads(reader) if reader else "",
        "limits": limits.removeprefix("Limits:").strip().replace("`", ""),
    }


def summarise(names: list[str], most: int = 16) -> str:
    """Names as one text. More than `most` that differ in their numbers alone are told once, with how many there are."""
    if len(names) <= most:
        return ", ".join(names)
    patterns: dict[str, int] = {}
    for name in names:
        pattern = re.sub(r"(?<=[_ ])\d+(?=[_ ]|$)", "i", name)
        patterns[pattern] = patterns.get(pattern, 0) + 1
    texts = [name if count == 1 else f"{name} ({count})" for name, count in patterns.items()]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _what_it_reads(reader: Callable[..., Any]) -> str:
    """Return the first sentence of a reader's docstring, without its verb."""
    text = " ".join((inspect.getdoc(reader) or "").split("\n\n")[0].split()).removeprefix("Return ")
    return text[:1].upper() + text[1:]
