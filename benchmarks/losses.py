"""The losses side by side: a parameter recovered from a small film, and what the differentiable rasteriser costs.

    python -m benchmarks.losses [--json FILE] [--quick]

`error`: of the parameter after 100 iterations of RISP's RMSProp from a start 8 % off (first state known, as in the
papers), relative; `seconds` of processor time. Two films made by our own rasteriser: `same` is compared in the light
that it was filmed in, `other` in another light and before another backdrop, which is what a real clip is to a
simulation. The quadrotor's network is the shipped one, the pendulum has none.

`rasterizer`: milliseconds of processor time for a sphere of 1,280 faces that fills an image of 128 x 128, forward and
backward, the best of several.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.tables import write_table
from tests.filmed import Filmed, film
from vid2phys.io.mesh import load_mesh
from vid2phys.risp.networks.model import Model
from vid2phys.solvers import gradient, losses
from vid2phys.solvers.network_outputs import of_model
from vid2phys.solvers.rendering import Views

ROOT = Path(__file__).resolve().parents[1]
OFF = 1.08
VIEW_PX = 96


@dataclass(frozen=True)
class Row:
    """One number of the table."""

    system: str
    method: str
    case: str
    metric: str
    value: float
    unit: str


def filmed_quadrotor(frames: int) -> Filmed:
    """Return the sample's quadrotor, with the shipped network as reader."""
    mesh = load_mesh(ROOT / "samples" / "quadrotor" / "quad.obj", "m")
    made = film("quadrotor", frames=frames, mesh=mesh, view_px=VIEW_PX)
    reader = of_model(Model.load(ROOT / "models" / "quadrotor"))
    return replace(made, evidence=replace(made.evidence, reader=reader))


def in_another_light(filmed: Filmed) -> Filmed:
    """Return the same film; what is simulated is lit otherwise, before a grey backdrop."""
    scene = filmed.evidence.scene
    assert scene is not None
    views = Views(**{**vars(scene.views), "backdrop": np.full_like(scene.views.backdrop, 0.5)})
    light = 0.7 * scene.light + np.array([0.12, 0.0, 0.03, 0.0])[:, None]
    return replace(filmed, evidence=replace(filmed.evidence, scene=replace(scene, views=views, light=light)))


def recovered(filmed: Filmed, parameter: str, name: str, case: str, iterations: int) -> list[Row]:
    """Return the error and time of one loss."""
    truth = filmed.problem.parameters[parameter].value
    start = filmed.problem.parameters.with_values({parameter: OFF * truth}).with_free((parameter,))
    problem = replace(filmed.problem, parameters=start)
    began = time.process_time()
    loss = losses.get(name, problem, filmed.evidence)
    begin = gradient.Start(filmed.states[0], start)
    found = gradient.solve(problem, loss, [begin], iterations=iterations, known_state=True)
    seconds = time.process_time() - began
    error = found.solution.parameters[parameter].value / truth - 1.0
    system = filmed.problem.system.name
    return [Row(system, name, case, f"{parameter}_error", error, "1"), Row(system, name, case, "seconds", seconds, "s")]


def rasterizer(rounds: int) -> list[Row]:
    """Time the rasteriser forward and backward of one image."""
    import trimesh

    from vid2phys.engine.render.differentiable import closed, draw

    sphere = trimesh.creation.icosphere(3)
    faces = np.asarray(sphere.faces)
    vertices = torch.tensor(0.1 * np.asarray(sphere.vertices) + np.array([0.0, 0.0, 1.0])).requires_grad_()
    K = torch.tensor([[[576.0, 0.0, 63.5], [0.0, 576.0, 63.5], [0.0, 0.0, 1.0]]], dtype=torch.float64)
    colors = torch.rand((1, len(faces), 3), dtype=torch.float64, requires_grad=True)
    sides, spent = closed(np.asarray(sphere.vertices), faces), []
    for _ in range(rounds):
        marks = [time.process_time()]
        image, coverage = draw(vertices[None], faces, colors, K, 128, 128, one_sided=sides)
        marks.append(time.process_time())
        torch.autograd.grad(image.square().sum() + coverage.sum(), (vertices, colors))
        marks.append(time.process_time())
        spent.append(np.diff(marks) * 1e3)
    forward, backward = np.min(spent, axis=0)
    case = f"{len(faces)} faces, 128 x 128"
    return [Row("-", "rasterizer", case, name, value, "ms") for name, value in
            (("forward", float(forward)), ("backward", float(backward)))]  # fmt: skip


def run(quick: bool) -> list[Row]:
    """Return all rows."""
    rows = rasterizer(5 if quick else 30)
    frames, iterations = (4, 10) if quick else (10, gradient.ITERATIONS)
    films = (("quadrotor", "mass", filmed_quadrotor(frames)), ("pendulum", "length", film("pendulum", frames=frames)))
    for system, parameter, filmed in films:
        for case, shown in (("same", filmed), ("other", in_another_light(filmed))):
            for name in losses.available():
                if system == "pendulum" and "reader" in losses.kind(name).needs:
                    continue
                if case == "same" or "scene" in losses.kind(name).needs:
                    rows += recovered(shown, parameter, name, case, iterations)
    return rows


def main() -> None:
    """Run, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--quick", action="store_true", help="4 frames and 10 iterations")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    rows = run(options.quick)
    for row in rows:
        print(f"{row.system:10} {row.method:11} {row.case:22} {row.metric:13} {row.value:+10.4f} {row.unit}")
    if options.json is not None:
        flat = [{**vars(row), "std": None, "n": 1, "paper": None} for row in rows]
        write_table(options.json, "losses", flat, time.monotonic() - start, quick=options.quick)


if __name__ == "__main__":
    main()
