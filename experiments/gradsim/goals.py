"""Tables of control experiments (`reach`): a body, some goals, the three methods; curves, last images, a film."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.gradsim.reach import LENGTHS, METHODS, REACHED, TRIES, Task, reach, steps_to_goal
from experiments.gradsim.result_cache import Cell, Outcome, rng_of, tabulated
from experiments.panels import figure_at
from experiments.table import Setting, Table, row, short
from vid2phys.solvers.rendering import encode_srgb
from vid2phys.types import Array, Camera

_COLORS = {"random": "tab:grey", "diffphysics": "tab:orange", "pixel": "tab:blue"}
_GHOST = 0.4  # share of the goal in images of both
_SHOWN = 3  # goals of which images are drawn
_UNITS = {"image_error": "1", "overlap": "1", "middle_m": "m", "vertices_m": "m"}
_START, _DRAWS = 1, 2  # streams of random numbers


@dataclass(frozen=True)
class Control:
    """A control experiment.

    task: of the goal with this number. count: of goals. size_m: of the body, beside which distances count. steps: of
    descent, of so many `lengths` each, from so many `starts`. paper: what the paper says, by metric of the method
    `pixel`. version: of how outcomes are made.
    """

    name: str
    body: str
    task: Callable[[int], Task]
    count: int
    size_m: float
    steps: int
    notes: tuple[str, ...]
    paper: dict[str, float]
    lengths: int = LENGTHS
    starts: int = 1
    version: int = 2

    def table(self, setting: Setting) -> Table:
        """Fill what this sitting is for and make the table."""
        cells = [Cell(self.name, self.body, method, self.count, setting, self.version) for method in METHODS]
        quick = "fewer goals and steps, and shorter motions"
        return tabulated(
            cells,
            self._work,
            self._rows,
            [*_NOTES, self._begun, *self.notes],
            self._draw_cells,
            quick,
            film=self._film_of,
        )

    @property
    def _begun(self) -> str:
        """Return a note on the starts."""
        drawn = f"All begin with the same of {TRIES * self.starts} random unknowns, "
        if self.starts == 1:
            return f"{drawn}those that end nearest to the image."
        return (
            f"{drawn}the {self.starts} that end nearest to the image: the descent that comes to the least loss "
            "counts, with the time of all."
        )

    def _draw_cells(self, cells: list[Cell], path: Path) -> None:
        self._draw({cell.method: cell.outcomes() for cell in cells}, path)

    def _film_of(self, cells: list[Cell]) -> Callable[[Path], None] | None:
        found = next(cell for cell in cells if cell.method == "pixel").outcomes()
        return partial(self._film, found[0]) if found else None

    def _work(self, cell: Cell) -> Callable[[int], Outcome]:
        def outcome(index: int) -> Outcome:
            task = self.task(index)
            starts = task.begin(rng_of(cell.setting, _START, index), self.starts)
            draws = rng_of(cell.setting, _DRAWS, index)
            got = reach(task, cell.method, starts, self.steps, draws, lengths=self.lengths)
            ends = task.states(torch.from_numpy(np.stack([starts[0], got.unknowns])))[:, -1].numpy()
            return {
                "curve": got.curve,
                "ended": got.ended,
                "seconds": round(got.seconds, 1),
                "unknowns": np.round(got.unknowns, 9).tolist(),
                **{name: np.round(end, 7).tolist() for name, end in zip(("before", "after"), ends, strict=True)},
                "goal": np.round(task.goal, 7).tolist(),
                "steps_to_goal": steps_to_goal(got.curve, self.size_m),
                **{name: got.curve[-1][name] for name in (*_UNITS, "rollouts")},
            }

        return outcome

    def _rows(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the rows of a method's result, and its curve."""
        found = cell.outcomes()
        paper = self.paper if cell.method == "pixel" else {}
        rows = [cell.row(name, name, unit, paper=paper.get(name)) for name, unit in _UNITS.items()]
        rows.append(cell.row("steps_to_goal", "steps_to_goal", "1", paper=paper.get("steps_to_goal")))
        if not found:
            return rows
        reached = sum(each["steps_to_goal"] is not None for each in found) / len(found)
        rows.append(row(self.body, cell.method, "reached", reached, "1", n=len(found)))
        rows.append(cell.row("wall_s", "seconds", "s"))
        for metric, unit in _UNITS.items():
            for step, values in enumerate(curves_of(found, metric).T):
                rows.append(
                    row(self.body, cell.method, metric, float(values.mean()), unit, epoch=step, n=len(values),
                        std=short(values.std()))
                )  # fmt: skip
        return rows

    def _draw(self, done: dict[str, list[Outcome]], path: Path) -> None:
        """Draw curves over steps, then a row a goal: where the start ends, the goal, and each method's end over it."""
        shown = min(_SHOWN, max((len(found) for found in done.values()), default=0))
        with figure_at(path, 9.0, 2.6 + 1.7 * shown, dpi=90) as figure:
            parts: Any = figure.subfigures(2, 1, height_ratios=[2.6, max(1.7 * shown, 0.1)])
            above, below = parts
            for axis, metric in zip(above.subplots(1, 3), ("image_error", "overlap", "middle_m"), strict=True):
                for method, found in done.items():
                    if found:
                        curves = curves_of(found, metric)
                        axis.plot(curves.mean(axis=0), color=_COLORS[method], label=method)
                        steps = np.arange(curves.shape[1])
                        axis.fill_between(steps, curves.min(0), curves.max(0), color=_COLORS[method], alpha=0.15, lw=0)
                axis.set(xlabel="gradient steps", title=metric.replace("_m", " [m]").replace("_", " "))
                axis.grid(alpha=0.3)
                if metric == "middle_m":
                    axis.axhline(REACHED * self.size_m, color="tab:green", ls="--", lw=1.0, label="reached")
                    axis.legend(fontsize=7)
            for index in range(shown):
                self._draw_goal(below, done, index, shown)

    def _draw_goal(self, figure: Any, done: dict[str, list[Outcome]], index: int, rows: int) -> None:
        task = enlarged(self.task(index), 2)
        found = {method: outcomes[index] for method, outcomes in done.items() if index < len(outcomes)}
        first = next(iter(found.values()))
        states = [first["before"], first["goal"], *(each["after"] for each in found.values())]
        images = _images(task, np.array(states))
        titles = ["the start's end", "goal", *(f"{method} over goal" for method in found)]
        for column, title in enumerate(titles):
            shown = images[column] if column < 2 else _over(images[column], images[1])
            axis = figure.add_subplot(rows, 2 + len(METHODS), index * (2 + len(METHODS)) + column + 1)
            axis.imshow(shown)
            axis.set_xticks([])
            axis.set_yticks([])
            if index == 0:
                axis.set_title(title, fontsize=8)

    def _film(self, outcome: Outcome, path: Path) -> None:
        """Return the film of the motion that `pixel` found for the first goal, the goal shining through."""
        from vid2phys.io.video import VideoWriter

        task = enlarged(self.task(0), 3)
        states = task.states(torch.tensor([outcome["unknowns"]], dtype=torch.float64))[0]
        images = _images(task, task.shot.filmed(states).numpy())
        goal = _images(task, np.array([outcome["goal"]]))[0]
        rate = 1.0 / (task.shot.step_s * task.shot.every)
        height, width = images.shape[1:3]
        with VideoWriter(path, width, height, rate, crf=26) as video:
            for image in images:
                video.write(_over(image, goal))
            for _ in range(round(rate)):
                video.write(_over(images[-1], goal))


_NOTES = (
    "Control to one image of a goal (gradSim, section 4.3). `pixel` compares the motion's last image with it; "
    "`diffphysics` is told the goal's centre of mass and pulls the body's there; `random` is the best, by the image, "
    "of as many motions as a step of the others rolls out. What is sought, the goals and the bodies' constants are "
    "ours: the paper publishes images only.",
    "A step goes the way of L-BFGS, as far as the best of a few lengths that are rolled out together. "
    "`image_error`: mean squared difference of linear light. `overlap`: of the silhouettes, common area by joint area. "
    "`middle_m`: from the centre of mass to the goal's; `steps_to_goal`: the step after which that is less than "
    f"{REACHED:.0%} of the body's size, mean over those that come there; `reached`: their share. `vertices_m`: RMS "
    "distance of all vertices from the goal's.",
)


def curves_of(found: list[Outcome], metric: str) -> Array:
    """Return curves [goals, steps + 1]; one that ended early stays where it is."""
    curves = [[each[metric] for each in outcome["curve"]] for outcome in found]
    longest = max(len(curve) for curve in curves)
    return np.array([[*curve, *curve[-1:] * (longest - len(curve))] for curve in curves])


def _images(task: Task, states: Array) -> NDArray[np.uint8]:
    """Return the display values [F, H, W, 3] of states [F, N]."""
    with torch.no_grad():
        light = task.shot.stage.images(torch.from_numpy(states))
    return np.round(255.0 * encode_srgb(light).numpy()).astype(np.uint8)


def _over(image: NDArray[np.uint8], goal: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.round((1.0 - _GHOST) * image + _GHOST * goal).astype(np.uint8)


def enlarged(task: Task, factor: int) -> Task:
    """Return the same before a camera with `factor` times as many pixels a side."""
    camera = task.shot.stage.camera
    K = camera.K * np.array([[factor], [factor], [1.0]])
    K[:2, 2] += 0.5 * (factor - 1)
    larger = Camera(K, factor * camera.width, factor * camera.height, camera_to_world=camera.camera_to_world)
    return replace(task, shot=replace(task.shot, stage=replace(task.shot.stage, camera=larger)))
