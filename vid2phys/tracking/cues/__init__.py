"""Cues: what one frame shows of a body at a pose, one file each, and the switches by which a user turns them off.

A module of this folder is a cue if it declares itself: `CUE = Cue("what the cue compares")`. Its name is that of the
file. The tracker calls the built-in cues where their information is needed: a residual and its derivative refine poses,
a log-likelihood chooses between hypotheses. A cue with a function

    log_likelihood(frame, camera, mesh, pose) -> float

is used without any edit elsewhere: `tracking.hypotheses` adds its nats, divided by `CUE.temperature`, to the evidence
of all hypotheses of a frame. `python -m benchmarks.cues` measures the benefit of each cue.

Limits: declarations are read from the source, without an import, so that the command line starts fast. Their arguments
must be literals.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vid2phys.errors import unknown_name

STEPS: dict[str, str] = {
    "symmetry": "which symmetry element of a nearly symmetric body explains a frame best",
    "temporal_outliers": "adjacent frames, which correct a frame that the network or its edges misjudged",
    "support": "whether the image supports the pose; frames without support count as lost",
}
"""Steps of the tracker that use several cues, and can be switched off as cues can."""


@dataclass(frozen=True)
class Cue:
    """The declaration of a cue.

    Attributes:
        description: what the cue compares, in one line.
        temperature: factor by which `log_likelihood` states too much, as measured on held-out appearances.
    """

    description: str
    temperature: float = 1.0


def declared() -> dict[str, Cue]:
    """Return the cues of this folder by name."""
    found = {}
    for finder in pkgutil.iter_modules(__path__):
        cue = _declaration(Path(getattr(finder.module_finder, "path", "")) / f"{finder.name}.py")
        if cue is not None:
            found[finder.name] = cue
    return found


def descriptions() -> dict[str, str]:
    """Return what can be switched off, by name: cues and steps of the tracker, with their descriptions."""
    return dict(sorted({**{name: cue.description for name, cue in declared().items()}, **STEPS}.items()))


def available() -> tuple[str, ...]:
    """Return the names of the cues, and of the steps of the tracker, that can be switched off."""
    return tuple(descriptions())


def likelihoods(active: ActiveCues) -> Iterator[tuple[str, float, Callable[..., float]]]:
    """Yield name, temperature and `log_likelihood` of the cues in use that have this function."""
    for name, cue in declared().items():
        module: Any = importlib.import_module(f"{__name__}.{name}") if name in active else None
        if hasattr(module, "log_likelihood"):
            yield name, cue.temperature, module.log_likelihood


def _declaration(file: Path) -> Cue | None:
    """Return the declaration in a module's source, which is not run; None where there is none."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if "\nCUE = Cue(" not in text:
        return None
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CUE" and isinstance(node.value, ast.Call):
            named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.value.keywords if keyword.arg}
            return Cue(*map(ast.literal_eval, node.value.args), **named)
    return None


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
            UsageError: for a name that is not available; the message lists the names.
        """
        off = frozenset(names)
        known = available() if off else ()
        for name in sorted(off.difference(known)):
            raise unknown_name("cue", name, known)
        return ActiveCues(off)


ALL_CUES = ActiveCues()
