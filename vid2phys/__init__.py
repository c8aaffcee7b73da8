"""Physics out of a video. The commands as functions: `vid2phys.identify(...)`; see `vid2phys.api`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vid2phys.api import (
        CalibrateConfig,
        EvaluateConfig,
        Evaluation,
        FitRecordingConfig,
        IdentifyConfig,
        Outcome,
        Run,
        SimulateConfig,
        TrainConfig,
        batch,
        calibrate,
        evaluate,
        fit_recording,
        identify,
        load_run,
        simulate,
        train_risp,
    )
    from vid2phys.errors import Vid2PhysError

__all__ = [
    "CalibrateConfig",
    "EvaluateConfig",
    "Evaluation",
    "FitRecordingConfig",
    "IdentifyConfig",
    "Outcome",
    "Run",
    "SimulateConfig",
    "TrainConfig",
    "Vid2PhysError",
    "batch",
    "calibrate",
    "evaluate",
    "fit_recording",
    "identify",
    "load_run",
    "simulate",
    "train_risp",
]


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when it is asked for: `import vid2phys` stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'vid2phys' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module("vid2phys.errors" if name == "Vid2PhysError" else "vid2phys.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
