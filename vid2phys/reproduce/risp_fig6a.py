"""RISP's figure 6a (Ma, Du et al., ICLR 2022): what rendering gradients add to domain randomisation.

Both heads are trained on renders of 1, 10 and ever new rendering configurations (materials, lights, surroundings,
background, exposure), with and without the gradient loss, on as many pictures; the curves are their errors on renders
of looks that none of them has met.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.reproduce.bodies import Body, Missing, bodies
from vid2phys.reproduce.methods import Recipe, train, training_data
from vid2phys.reproduce.table import Setting, Table, row

if TYPE_CHECKING:
    from torch import nn

    from vid2phys.risp.training.recipes import TrainingData

LOOKS = {"1": 1, "10": 10, "random": 0}
_COLORS = {"1": "tab:red", "10": "tab:orange", "random": "tab:blue"}
_NOTES = [
    "`state_error` is the mean absolute error over the nine numbers of a pose in its view (`risp/shape/view_state.py`: "
    "place in half views, log size, sines and cosines of three angles), up to the body's symmetry, on held-out random "
    "looks.",
    "All trainings of a head have as many steps; `1`, `10` and `random` are the rendering configurations they meet.",
]


def run(setting: Setting) -> Table:
    """Trains what is missing and draws the curves."""
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    for body in bodies(setting.bodies or ("quadrotor",)):
        if isinstance(body, Missing):
            rows.append(row(body.name, "ours", "state_error", None, "1", reason=body.reason))
        else:
            rows += _body_rows(body, setting)
    command = "vid2phys reproduce risp-fig6a" + (" --quick" if setting.quick else "")
    command += "".join(f" --body {name}" for name in setting.bodies)
    return Table("risp-fig6a", command, rows, _NOTES, time.monotonic() - began, lambda path: draw(rows, path))


def _body_rows(body: Body, setting: Setting) -> list[dict[str, Any]]:
    samples = 384 if setting.quick else 6_000
    heads = {"paper": ("state@w16", 4), "ours": ("keypoint", 4)}
    if not setting.quick:
        heads = {"paper": ("state@w32", 40), "ours": ("keypoint", 12)}
    judge = training_data(body, setting, samples, 0)  # its held-out looks are new to all
    rows = []
    for family, (head, epochs) in heads.items():
        for looks, number in LOOKS.items():
            for gamma in (0.0, 1.0):
                recipe = Recipe(head, "error-gradient", gamma, samples, epochs, looks=number)
                method = family if gamma else f"{family}-no-grad"
                setting.progress.note(f"{body.name}: {method}, {looks} configurations")
                learnt = train(body, recipe, setting, validation=_validation(judge, head))
                same = {"looks": looks, **learnt.effort()}
                rows += [
                    row(body.name, f"{method}, {looks}", metric, learnt.history[-1][metric], unit, **same)
                    for metric, unit in (("state_error", "1"), ("rotation_deg", "deg"))
                ]
                rows += [
                    row(body.name, method, "state_error", entry["state_error"], "1", looks=looks, epoch=entry["epoch"])
                    for entry in learnt.history
                ]
    return rows


def _validation(judge: TrainingData, head: str) -> Callable[[nn.Module], dict[str, float]]:
    """The head's own validation on the judge's held-out renders, with the error that both heads share."""
    import torch

    from vid2phys.risp.renders.stream import PictureStream
    from vid2phys.risp.shape.view_state import ViewState
    from vid2phys.risp.training.recipes import head_of

    pictures = replace(judge.pictures, looks=0)
    own: Any = head_of(judge, head).validation(PictureStream(pictures, jitter=False), judge.validation)
    codes = ViewState(pictures.radius_m, pictures.view_size)
    truth = own.view_from_body[:, None] @ judge.body.turns
    camera = torch.from_numpy(own.K)
    wanted = codes.encode(torch.from_numpy(truth), camera[:, None])

    def validate(network: nn.Module) -> dict[str, float]:
        found = codes.encode(torch.from_numpy(own.read_poses(network)), camera)
        error = (found[:, None] - wanted).abs().mean(-1).amin(-1)
        return {**own(network), "state_error": float(error.mean())}

    return validate


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Validation error over epochs, one panel a head, dashed without gradients."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    families = ("paper", "ours")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    for axis, family, title in zip(axes, families, ("state head (RISP's network)", "keypoint head"), strict=True):
        for looks, color in _COLORS.items():
            for method, style in ((family, "-"), (f"{family}-no-grad", "--")):
                curve = [r for r in rows if r["method"] == method and r.get("looks") == looks and "epoch" in r]
                label = f"{looks}, {'with' if style == '-' else 'without'} gradients"
                epochs, errors = [r["epoch"] for r in curve], [r["value"] for r in curve]
                axis.plot(epochs, errors, style, color=color, label=label)
        axis.set(title=title, xlabel="epoch", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("state error on unseen looks")
    axes[1].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
