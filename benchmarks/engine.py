"""The engine's speed: steps a second forward and backward, beside other ways to compute the same, in one run.

    python -m benchmarks.engine --json FILE [--quick] [--device cpu]

`soft_body`: boxes of tets with viscosity, free fall, 32 substeps an interval. `forward_hz` counts steps of a rollout,
`backward_hz` those of the backward pass alone; ours recomputes an interval's substeps in it. Methods: `ours` (what
`rollout` runs), `warp` (straight kernels of the same force), `torch` (the tests' oracle). Best of several rounds, the
methods in turn: other work on the machine slows each the same way. `reverse_memory` is the peak of a process that takes
a gradient through 4,000 steps of 1,000 tets.

`rod`: 1 s of the rod at E = 1e7 Pa, its load rising and falling once, in intervals of 10 ms. `seconds` of implicit
Euler in one step an interval and of explicit steps as long as is stable, on the same mesh; `difference` is that of the
ten sensors between the two, root mean square as a share of the largest deflection. The explicit steps' own error is far
less (`rod_error`, against a quarter of the step, on the coarser mesh), but they cannot be made fewer.

Rigid and articulated systems: `rollouts_per_s` of rollouts of 200 steps in batches, and `gradient_cost`: the time of a
rollout with its gradient for states, controls and parameters, as a multiple of a rollout without.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.straight_warp import StraightWarp
from benchmarks.tables import write_table
from tests.oracles.neo_hookean import Tets
from vid2phys.engine import systems
from vid2phys.engine.constants import RISP_ROD
from vid2phys.engine.kernels.runtime import wp
from vid2phys.engine.rollout import rollout, simulate
from vid2phys.engine.system import System
from vid2phys.engine.systems.rod import Rod
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets

ROOT = Path(__file__).resolve().parents[1]
SIZE_M = (0.4, 0.2, 0.2)
CELLS = {100: (4, 4, 1), 1_000: (7, 6, 4), 5_000: (12, 10, 7), 10_000: (17, 10, 10)}  # 96, 1,008, 5,040, 10,200 tets
SUBSTEPS = 32
MEMORY_STEPS = 4_000
BATCHES = (1, 16, 256)
SMALL_SYSTEMS = ("quadrotor", "rigid_contact", "articulated", "hand", "pendulum")
Timing = tuple[int, float, float]  # steps, seconds forward, seconds backward


@dataclass(frozen=True)
class Row:
    """One number of the table."""

    system: str
    method: str
    precision: str
    tets: int
    metric: str
    value: float
    n: int
    unit: str
    batch: int = 1


def make(size: int) -> SoftBody:
    """Return a box of about `size` tets."""
    return SoftBody(*box_tets(SIZE_M, CELLS[size]), elements="linear")


def ours(body: SoftBody, intervals: int, precision: Any, device: str) -> Timing:
    """Return what a user runs: `rollout` and its backward pass."""
    dt_s = SUBSTEPS * 0.3 * body.longest_step_s(body.parameters().vector)
    tensors = [body.state(1.02 * body.rest_m)[None], np.zeros((1, intervals, 3)), body.parameters().vector]
    state, controls, parameters = (torch.tensor(t, requires_grad=True) for t in tensors)
    start = time.perf_counter()
    out = rollout(body, state, controls, parameters, dt_s, substeps=SUBSTEPS, device=device, precision=precision)
    middle = time.perf_counter()
    out[0, -1].sum().backward()
    return intervals * SUBSTEPS, middle - start, time.perf_counter() - middle


def straight_warp(body: SoftBody, steps: int, device: str) -> Timing:
    """Return the straight Warp kernels, single precision."""
    p = body.parameters()
    mu, lam = body.lame(p.vector)
    material = (4.0 / 3.0 * mu, lam + 5.0 / 6.0 * mu, p["damping"].value)
    h = 0.3 * body.longest_step_s(p.vector)
    other = StraightWarp(body.rest_m, body.elements, body.masses(p.vector), material, h, device)
    start_x, ones = 1.02 * body.rest_m, np.ones_like(body.rest_m)
    other.run(other.points(start_x), other.points(), 2)
    wp.synchronize()
    start = time.perf_counter()
    other.run(other.points(start_x), other.points(), steps)
    wp.synchronize()
    forward = time.perf_counter() - start
    with wp.Tape() as tape:
        x, _ = other.run(other.points(start_x, True), other.points(gradient=True), steps, gradient=True)
    seeds = {x: other.points(ones)}
    wp.synchronize()
    start = time.perf_counter()
    tape.backward(grads=seeds)
    wp.synchronize()
    return steps, forward, time.perf_counter() - start


def plain_torch(body: SoftBody, steps: int, device: str) -> Timing:
    """Return the oracle, single precision."""
    p = body.parameters()
    names = ("young_modulus", "poisson_ratio", "damping", "density")
    numbers = (torch.tensor(p[name].value, dtype=torch.float32, device=device) for name in names)
    rest = torch.tensor(body.rest_m, dtype=torch.float32, device=device)
    oracle = Tets(rest, torch.tensor(body.elements, device=device), *numbers)
    h, masses = 0.3 * body.longest_step_s(p.vector), oracle.masses()
    x = initial = (1.02 * rest).requires_grad_(True)
    v = torch.zeros_like(rest)
    start = time.perf_counter()
    for _ in range(steps):
        x, v = oracle.step(x, v, masses, 9.81, h)
    middle = time.perf_counter()
    torch.autograd.grad(x.sum(), initial)
    return steps, middle - start, time.perf_counter() - middle


def soft_body(device: str, quick: bool) -> Iterator[Row]:
    """Return the rows of all sizes and methods."""
    for size in (100, 1_000) if quick else CELLS:
        body = make(size)
        tets = len(body.elements)
        intervals = max(2, int((2e5 if quick else 4e6) / tets / SUBSTEPS))
        steps, few = max(20, int(2e5 / tets)), max(5, min(100, int(3e4 / tets)))
        methods: dict[tuple[str, str], Callable[[], Timing]] = {
            ("ours", "double"): lambda b=body, n=intervals: ours(b, n, "double", device),
            ("warp", "single"): lambda b=body, n=steps: straight_warp(b, n, device),
            ("torch", "single"): lambda b=body, n=few: plain_torch(b, n, device),
        }
        if device == "cpu":
            methods["ours", "single"] = lambda b=body, n=intervals: ours(b, n, "single", device)
        yield from _fastest(tets, methods, rounds=2 if quick else 5)


def _fastest(tets: int, methods: dict[tuple[str, str], Callable[[], Timing]], rounds: int) -> Iterator[Row]:
    best = {key: (0.0, 0.0) for key in methods}
    for turn in range(rounds + 1):
        for key, method in methods.items():
            steps, forward_s, backward_s = method()
            if turn:  # the first one compiles
                best[key] = max(best[key][0], steps / forward_s), max(best[key][1], steps / backward_s)
    for (name, precision), rates in best.items():
        for metric, rate in zip(("forward_hz", "backward_hz"), rates, strict=True):
            yield Row("soft_body", name, precision, tets, metric, round(rate, 1), rounds, "Hz")


def small_systems(device: str, quick: bool) -> Iterator[Row]:
    """Return the rollouts a second and the cost of their gradient, 50 intervals of 4 substeps, the system's own
    integrator.
    """
    for name in SMALL_SYSTEMS:
        system, rng = systems.get(name), np.random.default_rng(0)
        values = system.parameters().vector
        dt_s = min(0.01, 2.0 * system.longest_step_s(values))
        for batch in BATCHES[:2] if quick else BATCHES:
            controls = np.broadcast_to(system.hover_controls(values), (batch, 50, len(system.control_names)))
            given = [torch.tensor(a) for a in (system.sample_state(rng, batch), controls, values)]

            def seconds(
                gradient: bool, given: list[torch.Tensor] = given, dt_s: float = dt_s, system: System = system
            ) -> float:
                inputs = [t.clone().requires_grad_(gradient) for t in given]
                start = time.perf_counter()
                states = rollout(system, *inputs, dt_s, substeps=4, device=device)
                if gradient:
                    states.sum().backward()
                return time.perf_counter() - start

            rounds = 2 if quick else 7
            timings = np.array([[seconds(False), seconds(True)] for _ in range(rounds + 1)])[1:].min(axis=0)
            common = name, "ours", "double", 0
            yield Row(*common, "rollouts_per_s", round(batch / timings[0], 1), rounds, "1/s", batch)
            yield Row(*common, "gradient_cost", round(timings[1] / timings[0], 2), rounds, "1", batch)


def rod(quick: bool) -> Iterator[Row]:
    """Return the seconds that implicit and explicit Euler take for one of the rod, and what they differ by."""
    for cells in ((16, 4, 4),) if quick else ((16, 4, 4), RISP_ROD.cells):
        body = Rod(cells, elements="linear")
        parameters = body.parameters().with_values({"young_modulus": 1e7}).vector
        force = np.zeros((1, 100, 3))
        force[0, :, 2] = 0.5 * body.load_n(1e7) * (1.0 - np.cos(0.02 * np.pi * np.arange(1, 101)))
        stable = int(np.ceil(0.01 / body.longest_step_s(parameters)))
        tets = len(body.elements)

        def sensors(
            integrator: Any, substeps: int, b: Rod = body, u: Any = force, p: Any = parameters
        ) -> tuple[Any, float]:
            start = b.state(b.rest_m)[None]
            simulate(b, start, u[:, :2], p, 0.01, integrator=integrator, substeps=substeps)  # loaded and compiled
            begun = time.perf_counter()
            states = simulate(b, start, u, p, 0.01, integrator=integrator, substeps=substeps)[0]
            return b.keypoints(states, b.spine_m), time.perf_counter() - begun

        explicit, explicit_s = sensors("semi_implicit_euler", stable)
        implicit, implicit_s = sensors("implicit_euler", 1)
        moved = np.abs(explicit - explicit[:1]).max()
        yield Row("rod", "explicit", "double", tets, "seconds", round(explicit_s, 3), 100 * stable, "s")
        yield Row("rod", "implicit", "double", tets, "seconds", round(implicit_s, 3), 100, "s")
        difference = np.sqrt(((implicit - explicit) ** 2).sum(axis=-1).mean()) / moved
        yield Row("rod", "implicit", "double", tets, "difference", float(f"{difference:.2e}"), 100, "1")
        if cells != RISP_ROD.cells:
            exact, _ = sensors("semi_implicit_euler", 4 * stable)
            error = np.sqrt(((explicit - exact) ** 2).sum(axis=-1).mean()) / moved
            yield Row("rod", "explicit", "double", tets, "rod_error", float(f"{error:.2e}"), 100 * stable, "1")


def memory() -> Iterator[Row]:
    """Yield the peak memory of a gradient through `MEMORY_STEPS` steps of 1,000 tets, in a process of its own."""
    for precision in ("double", "single"):
        code = f"from benchmarks import engine; print(engine.peak_memory_gb({precision!r}))"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        tets = len(make(1_000).elements)
        yield Row("soft_body", "ours", precision, tets, "reverse_memory", float(done.stdout), 1, "GB")


def peak_memory_gb(precision: str) -> float:
    """Return this process's peak memory after the gradient: Python, PyTorch, Warp and Numba in it."""
    ours(make(1_000), MEMORY_STEPS // SUBSTEPS, precision, "cpu")
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6), 3)


def markdown(rows: list[Row]) -> str:
    """Return one line a method and size."""
    lines = ["| tets | method | precision | forward Hz | backward Hz |", "|---|---|---|---|---|"]
    values = {(r.tets, r.method, r.precision, r.metric): r.value for r in rows if r.unit == "Hz"}
    for tets, method, precision in dict.fromkeys(key[:3] for key in values):
        rates = (values[tets, method, precision, metric] for metric in ("forward_hz", "backward_hz"))
        lines.append(f"| {tets:,} | {method} | {precision} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |")
    lines += ["", "| system | batch | rollouts a second | cost with gradient |", "|---|---|---|---|"]
    found = {(r.system, r.batch, r.metric): r.value for r in rows if r.metric in ("rollouts_per_s", "gradient_cost")}
    for system, batch in dict.fromkeys(key[:2] for key in found):
        rate, cost = (found[system, batch, metric] for metric in ("rollouts_per_s", "gradient_cost"))
        lines.append(f"| {system} | {batch} | {rate:,.0f} | {cost:.1f} |")
    seconds = {(r.tets, r.method): r.value for r in rows if r.system == "rod" and r.metric == "seconds"}
    for tets in dict.fromkeys(key[0] for key in seconds):
        explicit, implicit = seconds[tets, "explicit"], seconds[tets, "implicit"]
        ratio = explicit / implicit
        lines.append(
            f"\n1 s of the rod, {tets:,} tets: explicit {explicit} s, implicit {implicit} s, {ratio:.1f} times"
        )
    lines += [f"\nGradient through {MEMORY_STEPS} steps: {r.value} GB, {r.precision}" for r in rows if r.unit == "GB"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the table goes")
    parser.add_argument("--quick", action="store_true", help="two sizes, few steps")
    parser.add_argument("--device", default="cpu", help="Warp's name of the device")
    arguments = parser.parse_args()
    start = time.monotonic()
    rows = list(soft_body(arguments.device, arguments.quick))
    rows += small_systems(arguments.device, arguments.quick)
    if arguments.device == "cpu":
        rows += [*rod(arguments.quick), *memory()]
    print(markdown(rows))
    if arguments.json:
        device = arguments.device if arguments.device == "cpu" else wp.get_device(arguments.device).name
        flat = [{**asdict(row), "std": None, "paper": None} for row in rows]
        seconds, asked = time.monotonic() - start, f"--device {arguments.device}"
        write_table(arguments.json, "engine", flat, seconds, quick=arguments.quick, options=asked, device=device)


if __name__ == "__main__":
    main()
