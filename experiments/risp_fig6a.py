"""RISP's figure 6a (Ma, Du et al., ICLR 2022): what rendering gradients add to domain randomisation.

Both heads are trained on renders of 1, 10 and ever new rendering configurations (materials, lights, surroundings,
background, exposure), with and without the gradient loss, on as many images. The curves are their errors on renders
with held-out appearances. Limits: short trainings; one seed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.bodies import entries
from experiments.body_adapter import BodyAdapter
from experiments.methods import QUICK_RENDERS, RATES, Recipe, effort, train, training_data, with_learning_rate
from experiments.panels import figure_at
from experiments.result_cache import Cell, Rows, filled_by_body, missing_row
from experiments.risp_table1 import PAPER_VIEW_PX
from experiments.table import Setting, Table, row

NAME = "risp-fig6a"
METHODS = ("paper-no-grad", "paper", "ours-no-grad", "ours")
APPEARANCES = {"1": 1, "10": 10, "random": 0}
_COLORS = {"1": "tab:red", "10": "tab:orange", "random": "tab:blue"}
_NOTES = [
    "`state_error` on held-out random looks: of rigid bodies the mean absolute error over the nine numbers of a pose "
    "in its view (`risp/shape/pose_encoding.py`: place in half views, log size, sines and cosines of three angles), "
    "up to the body's symmetry; of hand and rod that over the paper's vector. The colours of the cube tell keypoints' "
    "turns after the network, in the table: here their errors are up to the symmetry of its shape.",
    "All trainings of a head have as many steps on as many renders, in the same poses or configurations; `1`, `10` and "
    "`random` are the rendering configurations they meet.",
    "3,000 renders a configuration, RISP's network at a quarter of its width for 16 epochs, ours for 8: an hour a body "
    "on two cores. Trainings this short are marked not converged, all of them.",
]


def recipes(quick: bool) -> dict[tuple[str, str], Recipe]:
    """Return how each network is trained, by method and appearances."""
    samples, paper, ours = (QUICK_RENDERS, ("state@w16", 2), ("keypoint", 2))
    if not quick:
        samples, paper, ours = (3_000, ("state@w16", 16), ("keypoint", 8))
    result = {}
    for family, (head, epochs) in {"paper": paper, "ours": ours}.items():
        for method, gamma in ((f"{family}-no-grad", 0.0), (family, 1.0)):
            for appearances, number in APPEARANCES.items():
                recipe = Recipe(head, "error-gradient", gamma, samples, epochs, appearances=number)
                if family == "paper":
                    rate = RATES[0] if quick else 0.0
                    recipe = replace(recipe, view_size=PAPER_VIEW_PX, learning_rate=rate)
                result[method, appearances] = recipe
    return result


def run(setting: Setting) -> Table:
    """Train what is asked for and draw the curves of all that is there; the others are named."""
    cells = [
        Cell(NAME, entry, method, recipe, setting, label=appearances, reads="")
        for entry in entries()
        for (method, appearances), recipe in recipes(setting.quick).items()
    ]

    def empty(cell: Cell, reason: str | None) -> dict[str, Any]:
        return {**missing_row(cell, "state_error", reason, looks=cell.label), "method": _title(cell)}

    return filled_by_body(
        cells,
        lambda cell: cell.entry.make(setting.work / cell.entry.name),
        lambda adapter, cell: _rows(cell, adapter, setting),
        _NOTES,
        empty,
        draw,
    )


def _title(cell: Cell) -> str:
    return f"{cell.method}, {cell.label}"


def _rows(cell: Cell, adapter: BodyAdapter, setting: Setting) -> Rows:
    """Return the last error of a training, and its curve."""
    from vid2phys.risp.recipes import head_of

    assert cell.recipe is not None
    judge = training_data(adapter, setting, replace(cell.recipe, appearances=0))  # its held-out looks are new to all
    recipe, rate = with_learning_rate(adapter, cell.recipe, setting)
    learnt = train(adapter, recipe, setting, validation=adapter.validation(judge, head_of(judge, cell.recipe.head)))
    same = {"looks": cell.label, **effort(adapter, learnt), **rate}
    last = learnt.history[-1]
    metrics = [(metric, unit) for metric, unit in (("state_error", "1"), ("rotation_deg", "deg")) if metric in last]
    images = learnt.images / len(learnt.history)
    return [
        *(row(adapter.name, _title(cell), metric, last[metric], unit, **same) for metric, unit in metrics),
        *(
            row(
                *(adapter.name, cell.method, "state_error", entry["state_error"], "1"),
                looks=cell.label,
                epoch=entry["epoch"],
                images=round(images * entry["epoch"]),
            )
            for entry in learnt.history
        ),
    ]


def draw(rows: Rows, path: Path) -> None:
    """Draw the validation error over images seen: a row a body, a panel a head, dashed without gradients."""
    curves = [row for row in rows if "epoch" in row]
    systems = list(dict.fromkeys(row["system"] for row in curves or rows))
    families = {"paper": "state head (RISP's network)", "ours": "keypoint head"}
    with figure_at(path, 10.0, 3.6 * len(systems), dpi=120) as figure:
        grid = figure.subplots(len(systems), 2, sharey="row", squeeze=False)
        for axes, system in zip(grid, systems, strict=True):
            for axis, (family, title) in zip(axes, families.items(), strict=True):
                for appearances, color in _COLORS.items():
                    for method, style in ((family, "-"), (f"{family}-no-grad", "--")):
                        curve = [
                            row
                            for row in curves
                            if (row["system"], row["method"], row["looks"]) == (system, method, appearances)
                        ]
                        label = f"{appearances}, {'with' if style == '-' else 'without'} gradients"
                        seen, errors = [1e-3 * row["images"] for row in curve], [row["value"] for row in curve]
                        axis.plot(seen, errors, style, color=color, label=label)
                axis.set(title=f"{system}: {title}", xlabel="thousand images", yscale="log")
                axis.grid(alpha=0.3)
            axes[0].set_ylabel("state error on unseen looks")
        grid[0][1].legend(fontsize=8)
