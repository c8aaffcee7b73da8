"""`vid2phys reproduce`: find the experiments, which are beside the package in a checkout and in no wheel."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from vid2phys.errors import UsageError

_CHECKOUT = Path(__file__).resolve().parents[2]


def experiments() -> ModuleType:
    """Return the package `experiments`. Raises UsageError where the package is not run from a checkout."""
    if not (_CHECKOUT / "experiments" / "__init__.py").is_file():
        raise UsageError(
            "the experiments are not part of an installed package",
            "a checkout of the project, with the folder `experiments`",
            "clone the project's repository, `pip install -e .` there, and run the command again",
        )
    if str(_CHECKOUT) not in sys.path:
        sys.path.insert(0, str(_CHECKOUT))
    return importlib.import_module("experiments")
