"""Figures that gradSim's experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.panels import figure_at

_LEAST = 1e-12  # shown on logarithmic axes


def scattered(
    path: Path, errors: Mapping[str, Mapping[str, Sequence[float]]], paper: Mapping[str, float] | None = None
) -> None:
    """Return the relative errors of every object, a panel an unknown, a column a method; means as bars, the paper's as
    a line.
    """
    with figure_at(path, 1.2 + 2.4 * len(errors), 3.3) as figure:
        axes = figure.subplots(1, len(errors), sharey=True, squeeze=False)
        for axis, (name, by_method) in zip(axes[0], errors.items(), strict=True):
            for place, values in enumerate(by_method.values()):
                shown = np.maximum(np.asarray(values, dtype=float), _LEAST)
                if len(shown):
                    axis.scatter(place + np.linspace(-0.25, 0.25, len(shown)), shown, s=8)
                    axis.plot([place - 0.3, place + 0.3], 2 * [shown.mean()], color="black", linewidth=1.5)
            if paper and name in paper:
                axis.axhline(paper[name], color="tab:red", linestyle="--", linewidth=1.0)
            axis.set(yscale="log", title=name, xticks=range(len(by_method)))
            axis.set_xticklabels(by_method, rotation=60, fontsize=8)
            axis.grid(axis="y", alpha=0.3)
        axes[0, 0].set_ylabel("relative error (dashed: paper's pixel)" if paper else "relative error")
