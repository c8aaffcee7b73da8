"""Print and keep how often 95 % intervals hold the truth, and how wide they are, for random motions.

    python -m benchmarks.coverage [KIND ...] [--count 200] [--json FILE] [--histogram FILE] [--work DIR]

KIND: arms, bars, calibrations, cameras, falls, flights, hands, pushes, shutters, springs, sprung_arms, swings, throws;
from pixels: filmed_arms, filmed_bars, filmed_blurred_falls, filmed_falls, filmed_flights, filmed_swings,
filmed_throws. Rows state `held_share`; `width_ratio`, the half width over 1.96 times the error; and `bias_ratio`, the
mean error over the root mean square.

Intervals of random motions differ in width. Errors are therefore counted in stated standard deviations, and the width
ratio is one over their root mean square.

Errors of poses are drawn from the error model of the tracker: this judges fits and their intervals, not the tracker.
Kinds from pixels draw a clip of each motion and call `identify`: they judge the tracker, too. A fall takes some 30 s
of processor time, a throw 90 s, a swing more. `--work` keeps cases, clips and runs: a later call goes on from there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage.cases import Case
from vid2phys.types import Status

_SYSTEMS = {
    "arms": "articulated",
    "bars": "soft body",
    "calibrations": "calibrated camera",
    "cameras": "unknown camera",
    "falls": "rigid body",
    "filmed_arms": "articulated",
    "filmed_bars": "soft body",
    "filmed_blurred_falls": "rigid body, blurred",
    "filmed_falls": "rigid body",
    "filmed_flights": "quadrotor",
    "filmed_swings": "pendulum",
    "filmed_throws": "rigid_contact",
    "flights": "quadrotor",
    "hands": "hand",
    "pushes": "contact on springs, pushed",
    "shutters": "rolling shutter",
    "springs": "contact on springs",
    "sprung_arms": "articulated, springs",
    "swings": "pendulum",
    "throws": "rigid_contact",
}
KINDS = tuple(_SYSTEMS)
FILMED = tuple(kind for kind in KINDS if kind.startswith("filmed_"))
_BINS = np.linspace(-5.0, 5.0, 41)


def source(kind: str) -> dict[str, str]:
    """Return the system of a kind of motion, and where errors of its poses come from."""
    return {"system": _SYSTEMS[kind], "errors": "from pixels" if kind in FILMED else "drawn"}


def fitted(kind: str, seed: int, work: Path) -> Case:
    """Return the case of a seed: the one that `work` keeps, or a new one, which is kept there."""
    kept = work / kind / f"{seed}.json"
    if kept.is_file():
        return Case.of_json(json.loads(kept.read_text()))
    module = importlib.import_module(f"benchmarks.coverage.{kind}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    case: Case = module.case(seed, kept.with_suffix("")) if kind in FILMED else module.case(seed)
    kept.write_text(json.dumps(case.to_json()))
    return case


def rows(kind: str, cases: list[Case]) -> list[dict[str, Any]]:
    """Return a row for each parameter of a kind of motion."""
    converged = float(np.mean([case.converged for case in cases]))
    groups = dict[str, list[tuple[float, float, float]]]()  # error, half width, deviations
    unknown = dict[str, int]()
    for case in cases:
        for name, each in case.found.items():
            group = name.split("_")[0] if name.startswith(("damping", "payload", "inertia", "stiffness")) else name
            if not each.identifiable:
                unknown[group] = unknown.get(group, 0) + 1
                continue
            low, high = each.ci95
            true = case.truth[name]
            half = (each.value - low) if true < each.value else (high - each.value)  # on the truth's side
            groups.setdefault(group, []).append(
                ((each.value - true) / true, half / true, 1.96 * (each.value - true) / half)
            )
    out = []
    for name, values in groups.items():
        error, half, z = np.array(values).T
        size = float(np.sqrt(np.mean(z**2)))
        out.append(
            {
                **source(kind),
                "parameter": name,
                "motions": len(cases),
                "converged": converged,
                "doubtful": sum(case.status is Status.DOUBTFUL for case in cases),
                "estimates": len(values),
                "not_identifiable": unknown.get(name, 0),
                "held_share": float(np.mean(np.abs(z) < 1.96)),
                "width_ratio": 1.0 / size,
                "bias_ratio": float(np.mean(z)) / size,
                "median_error": float(np.median(np.abs(error))),
                "median_half_width": float(np.median(half)),
                "deviations": [round(float(each), 3) for each in z],
            }
        )
    return out


def all_rows(kind: str, cases: list[Case]) -> list[dict[str, Any]]:
    """Return the rows of a kind of motion; from pixels, there are rows without doubtful results, too."""
    if kind not in FILMED:
        return rows(kind, cases)
    sure = rows(kind, [case for case in cases if case.status is not Status.DOUBTFUL])
    return rows(kind, cases) + [row | {"errors": f"{row['errors']}, no doubts"} for row in sure]


def same_line(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two rows stand in one line of the table."""
    return all(one[key] == other[key] for key in ("system", "parameter", "errors"))


def markdown(found: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    lines = [
        "| system | parameter | errors | motions | converged | estimates | held | width ratio | bias ratio "
        "| median error | median half width |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        lines.append(
            f"| {row['system']} | {row['parameter']} | {row['errors']} | {row['motions']} | {row['converged']:.0%} "
            f"| {row['estimates']} | {row['held_share']:.1%} | {row['width_ratio']:.2f} | {row['bias_ratio']:+.2f} "
            f"| {row['median_error']:.2%} | {row['median_half_width']:.2%} |"
        )
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Draw histograms of the errors in stated standard deviations, with the normal distribution."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(4, len(found))
    count = -(-len(found) // columns)
    figure, axes = pyplot.subplots(count, columns, figsize=(3.0 * columns, 2.3 * count), squeeze=False, sharex=True)
    normal = np.exp(-0.5 * _BINS**2) / np.sqrt(2.0 * np.pi)
    for axis, row in zip(axes.ravel(), found, strict=False):
        axis.hist(np.clip(row["deviations"], -5.0, 5.0), _BINS[::2], density=True, color="tab:blue", alpha=0.6)
        axis.plot(_BINS, normal, color="black", linewidth=1.0)
        errors = "" if row["errors"] == "drawn" else f", {row['errors']}"
        axis.set_title(f"{row['system']}: {row['parameter']}{errors}", fontsize=8)
    for axis in axes.ravel()[len(found) :]:
        axis.set_visible(False)
    figure.supxlabel("error, stated standard deviations")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Fit random motions of the kinds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=[], help=", ".join(KINDS))
    parser.add_argument("--count", type=int, default=200, help="number of motions of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first motion")
    parser.add_argument("--json", type=Path, help="file that keeps the rows; those of other kinds stay")
    parser.add_argument("--histogram", type=Path, help="histograms of the errors, PNG")
    parser.add_argument("--work", type=Path, help="folder that keeps cases, clips and runs")
    options = parser.parse_args()
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    seeds = range(options.first, options.first + options.count)
    for kind in options.kinds or KINDS:
        began, cases = time.process_time(), dict[int, Case]()
        with nullcontext(options.work) if options.work else tempfile.TemporaryDirectory() as work:
            for seed in seeds:
                cases[seed] = fitted(kind, seed, Path(work))
        found = all_rows(kind, list(cases.values()))
        kept = [row for row in kept if not any(same_line(row, each) for each in found)] + found
        each_s = (time.process_time() - began) / options.count
        print(f"{kind}: {each_s:.1f} s of processor time a motion", flush=True)
        for status in (Status.DOUBTFUL, Status.NOT_CONVERGED, Status.NOT_IDENTIFIABLE, Status.LOST):
            if of_status := [seed for seed, case in cases.items() if case.status is status]:
                print(f"{kind}, {status.key}: {', '.join(map(str, of_status))}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(kept, indent=1) + "\n")
    kept.sort(key=lambda row: (row["system"], row["parameter"], row["errors"]))
    print(markdown(kept))
    if options.histogram:
        draw(kept, options.histogram)


if __name__ == "__main__":
    main()
