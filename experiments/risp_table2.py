"""RISP's table 2 (Ma, Du et al., ICLR 2022): parameters from videos with held-out appearances.

Four videos a body, each of another appearance, each with another start; once with the paper's truth and once with
random truths. All methods see the same videos and are given forces and camera (`experiments`). All but `ours`, which is
the user's command, are given the first state too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import weights
from experiments.bodies import Entry
from experiments.experiments import Experiment, unknown_of
from experiments.filling import Form, fill
from experiments.identification import (
    COMMAND,
    GIVEN_START_ALONE,
    KNOWN_START,
    LOSSES,
    Case,
    Network,
    Outcome,
    bound_of,
    identify,
    repeated,
    seen_in,
    versions,
)
from experiments.panels import draw_panels
from experiments.result_cache import Rows
from experiments.table import Setting, Table, row, short
from experiments.test_renderer import CONFIGURATIONS
from experiments.unknowns import Unknown
from experiments.weights import Source, source_for
from vid2phys.errors import Vid2PhysError
from vid2phys.risp.networks.model import Model
from vid2phys.solvers.gradient import ITERATIONS, MOMENTUM, RATES
from vid2phys.types import Array, Observation, Status

NAME = "risp-table2"
METHODS = (
    *("pixel", "perceptual", "random", "paper-no-grad", "paper"),
    *("ours-no-grad", KNOWN_START, COMMAND, "oracle", "oracle-newton"),
)
TRUTHS = ("paper", "random")
VERSION, COMMAND_VERSION = 2, 3  # raise when rows are made in another way
_BLIND = ("random", "oracle", "oracle-newton")  # methods that do not look
_RANDOM_TRUTH = "_random_truth"
_DRAWS = 1000  # of `random`
_STARTS, _TRUTH, _REPEATS = 7, 8, 9  # streams of random numbers
_NOTES = [
    "Errors in the paper's units: mass (3 kg), log10 of the contact's stiffness k_n (6, dyn/cm), joint stiffness "
    "of five fingers (1 each, their mean error), log10 of Young's modulus (5, Pa). Each is the mean of absolute "
    "errors over four videos of four looks never trained on, from four starts drawn in the paper's ranges ([2.8, "
    "3.2), [5.5, 6.5], [0, 1), [4, 7]); `std` is theirs, `bias` the mean of the errors and `spread` their "
    "deviation. Fits are bounded by what the system can simulate alone, and have no prior.",
    f"`..._error{_RANDOM_TRUTH}`: the same with truths drawn from the ranges.",
    "The motions are ours, since the paper publishes none: no figure of the paper's belongs beside these, and "
    "`paper` is empty.",
    f"Methods of the papers use RMSProp as RISP has it: rate {RATES['rmsprop']:g} in the paper's units, momentum "
    f"{MOMENTUM:g}, {ITERATIONS} iterations. `{KNOWN_START}` and `ours-no-grad` detect keypoints, correct them by "
    "contours and descend by Levenberg and Marquardt. Both kinds begin at the best of the same starts, each by its own "
    "loss: 41 of the cube, 17 of the rod, 21 of each stiffness of the hand, within one of the given one (rod: two). "
    f"{GIVEN_START_ALONE} `oracle` sees true positions and angles and uses the papers' optimiser, `oracle-newton` "
    "sees them and uses ours.",
    f"`{COMMAND}` is `vid2phys identify` with recorded actions (`experiments/by_identify.py`): its tracker, its "
    "fit and its intervals. It is given the start by a wide `--prior`, but neither the first state nor the place "
    "of the body; it fits the first state too, of a quadrotor also unknown forces. The textured cube "
    "has the model of the plain one, which the command finds by the shape. After +- stands the mean half width of its "
    "95 % intervals, in the error's unit. `held_share`: of its intervals that hold the truth. `converged_share`: of "
    "its results that the command itself does not doubt (`statuses`).",
    "All other methods are given first state, forces, camera and, for `pixel`, `perceptual` and `paper`, what is "
    "behind the body. Those that look are shown the same views: of rigid bodies about the true place with a "
    "tracker's errors (3 % of the view sideways, 6 % in size), of hand and rod the known workspace. Colours of "
    "the simulated body are fitted in the first frame; its texture is not drawn.",
    "`perceptual` compares features of our own network: weights of one trained on ImageNet cannot be had here. "
    f"`{KNOWN_START}` has the project's own model of the body; `paper`, `paper-no-grad` and `ours-no-grad` have "
    "those of `risp-table1`; `ours-no-grad` has the error model of networks that nobody calibrated.",
    "`random` draws from the range of starts, a thousand times.",
    "`seconds` (`identification_s`): of one identification, from decoded frames to parameters, kernels compiled "
    "and networks loaded.",
    "`bound`: the Cramer-Rao bound of the deviation of unbiased estimates from the first look's keypoints, by the "
    "error model that the network was calibrated to, errors of adjacent frames correlated, with a known first "
    f"state. `..._injected`: root mean square over repeats in which `{KNOWN_START}` fits the true motion with "
    "errors drawn from that error model.",
    "`failed`: identifications that came to nothing; they count with their start.",
]


def run(setting: Setting) -> Table:
    """Fill the cells that are asked for and make the table of all that are filled; the others are named."""
    return fill(
        Form(
            *(NAME, METHODS, TRUTHS, versions(COMMAND_VERSION, VERSION), _NOTES),
            rows=lambda cell, source: Bench(cell.entry, cell.label, setting).rows(cell.method, source),
            metric=lambda cell: _metric(unknown_of(cell.entry.name), cell.label),
            draw=draw,
            label_key="truth",
            source=source_for,
        ),
        setting,
    )


def _metric(unknown: Unknown, truth: str) -> str:
    return unknown.metric + (_RANDOM_TRUTH if truth == "random" else "")


class Bench:
    """The videos and starts of a body with one kind of truth. A quick one has one video, of few frames."""

    def __init__(
        self, entry: Entry, truth: str, setting: Setting, only: Callable[[int], tuple[int, ...]] | None = None
    ) -> None:
        """only: which frames methods are shown of so many, if not all."""
        self.entry, self.truth, self.setting, self.only = entry, truth, setting, only
        self.unknown = unknown_of(entry.name)
        self.count = 1 if setting.quick else len(CONFIGURATIONS)
        self.frames = 8 if setting.quick else None
        self.spp = 8 if setting.quick else 64

    def rows(self, method: str, source: Source) -> Rows:
        """Return all rows of a method."""
        if method == "random":
            rng = self._rng(_STARTS)
            drawn = [Outcome(self.unknown.draw(rng), 0.0) for _ in range(_DRAWS)]
            return self.scored(method, drawn, [self._truth_of(i % self.count) for i in range(_DRAWS)])
        network = self.network(source)
        cases, outcomes = self.identified(method, network)
        truths = [case.experiment.truth for case in cases]
        if not isinstance(network, Model) or method in LOSSES or method == COMMAND:
            return self.scored(method, outcomes, truths)
        try:
            seen = seen_in(cases[0], network)
        except Vid2PhysError as error:
            return self.scored(method, outcomes, truths, bound=None, bound_missing=str(error))
        bound = float(np.sqrt(np.mean(bound_of(cases[0].experiment, seen) ** 2)))
        more = {"bound": short(bound) if np.isfinite(bound) else None}
        rows = self.scored(method, outcomes, truths, **more)
        if method == KNOWN_START:
            rows.append(self._injected(cases[0].experiment, seen, **more))
        return rows

    def identified(self, method: str, network: Network) -> tuple[list[Case], list[Outcome]]:
        """Return what a method makes of all videos."""
        cases = [self._case(index, with_images=method not in _BLIND) for index in range(self.count)]
        identify(replace(cases[0], iterations=1), method, network)  # compiles and loads: no part of anyone's wall time
        outcomes = []
        for index, case in enumerate(cases):
            outcomes.append(identify(case, method, network))
            self.setting.progress.step(f"{self.entry.name} {method}, identification", index + 1, self.count)
        return cases, outcomes

    def network(self, source: Source) -> Network:
        """Return the network of a method."""
        adapter = self.entry.make(self.setting.work / self.entry.name)
        return weights.load(source, adapter, self.setting)

    def _case(self, index: int, *, with_images: bool) -> Case:
        folder, setting = self.setting.work / self.entry.name, self.setting
        experiment = Experiment.of(self.entry, folder, self._truth_of(index), self.frames)
        if self.only is not None:
            experiment = replace(experiment, only=self.only(len(experiment.plan.times_s)))
        seen = experiment.footage(index, self.spp, setting.seed, folder, setting.progress) if with_images else None
        iterations = 3 if setting.quick else ITERATIONS
        return Case(experiment, seen, self.unknown.draw(self._rng(_STARTS, index)), setting.seed + index, iterations)

    def _truth_of(self, index: int) -> Array:
        if self.truth == "paper":
            return np.full(len(self.unknown.names), self.unknown.truth)
        return self.unknown.draw(self._rng(_TRUTH, index))

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.setting.seed, zlib.crc32(self.entry.name.encode()), *stream])

    def scored(self, method: str, outcomes: list[Outcome], truths: list[Array], **more: Any) -> Rows:
        """Return the errors and wall times."""
        off = np.array([o.values - truth for o, truth in zip(outcomes, truths, strict=True)])
        errors, seconds = np.abs(off).mean(axis=1), np.array([o.seconds for o in outcomes])
        failures = [o.failure for o in outcomes if o.failure]
        reported = {
            **{"n": len(outcomes), "truth": self.truth, "seconds": short(seconds.mean(), 3)},
            **{"failed": len(failures), "failures": sorted(set(failures))},
        }
        size = {"std": short(errors.std()), "bias": short(off.mean()), "spread": short(off.std())}
        size |= _half_width([o.ends for o in outcomes if o.ends is not None])
        name = self.entry.name
        rows = [row(name, method, _metric(self.unknown, self.truth), float(errors.mean()), self.unknown.unit,
                    **{**reported, **size, **more})]  # fmt: skip
        if method != "random" and self.truth == "paper":
            rows.append(row(name, method, "identification_s", float(seconds.mean()), "s", **reported))
        return rows + self._stated(method, outcomes, truths)

    def _stated(self, method: str, outcomes: list[Outcome], truths: list[Array]) -> Rows:
        """Return the rows of what the command states of its results: how often intervals hold, and what it doubts."""
        stated = [(each.ends, truth) for each, truth in zip(outcomes, truths, strict=True) if each.ends is not None]
        if not stated:
            return []
        inside = np.array([(ends[:, 0] <= truth) & (truth <= ends[:, 1]) for ends, truth in stated])
        converged = [o.status == Status.CONVERGED.key for o in outcomes]
        ending = _RANDOM_TRUTH if self.truth == "random" else ""
        reported = {"truth": self.truth, "statuses": [o.status or "failed" for o in outcomes]}
        shares = {"held_share": inside.ravel(), "converged_share": np.array(converged)}
        return [
            row(self.entry.name, method, name + ending, float(share.mean()), "1", **{**reported, "n": share.size})
            for name, share in shares.items()
        ]

    def _injected(self, experiment: Experiment, seen: Observation, **more: Any) -> dict[str, Any]:
        """Return the row of our fit with errors drawn from the error model, beside the bound."""
        repeats = 3 if self.setting.quick else 50
        off = repeated(experiment, seen, repeats, int(self._rng(_REPEATS).integers(1 << 31)))
        kept = off[np.isfinite(off).all(axis=1)]
        value, bias = (float(np.sqrt(np.mean(kept**2))), short(kept.mean())) if len(kept) else (None, None)
        reported = {"n": len(kept), "failed": repeats - len(kept), "truth": self.truth, "bias": bias}
        metric = _metric(self.unknown, self.truth) + "_injected"
        return row(self.entry.name, KNOWN_START, metric, value, self.unknown.unit, **{**reported, **more})


def _half_width(intervals: list[Array]) -> dict[str, Any]:
    """Return the mean half width of intervals [U, 2] that tell something, and how many tell nothing."""
    if not intervals:
        return {}
    half = 0.5 * np.ptp(np.array(intervals), axis=-1)
    finite = np.isfinite(half)
    return {
        "half_width": short(float(half[finite].mean())) if finite.any() else None,
        "told_nothing": int((~finite).sum()),
    }


def draw(rows: Rows, path: Path) -> None:
    """Draw the errors as bars: the paper's truth filled, random ones empty, bounds as lines."""

    def panel(axis: Any, system: str, mine: Rows) -> None:
        unknown = unknown_of(system)
        for shift, ending, style in ((-0.2, "", {}), (0.2, _RANDOM_TRUTH, {"facecolor": "none"})):
            shown = [row for row in mine if row["metric"] == unknown.metric + ending]
            places = [METHODS.index(row["method"]) + shift for row in shown]
            values = [max(row["value"], 1e-9) for row in shown]
            label = "random truths" if ending else "the paper's truth"
            axis.bar(places, values, 0.38, edgecolor="tab:blue", label=label, **style)
        bound = next((row["bound"] for row in mine if row["method"] == KNOWN_START and row.get("bound")), None)
        if bound is not None:
            axis.axhline(bound, color="tab:green", linestyle="--", linewidth=1.0, label="Cramer-Rao bound")
        axis.set_ylabel(unknown.label, fontsize=8)
        if axis.patches:
            axis.set_ylim(bottom=1e-6)

    draw_panels(rows, path, METHODS, panel, legend=3)
