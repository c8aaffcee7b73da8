"""A recorded beam of silicone: its modulus from the unloaded ring, and the loaded take foretold.

The tip is let go from straight and rings. Frequency and decay of the unloaded take give modulus and viscosity, where it
comes to hang a second modulus: silicone creeps, and holds less than it springs. With 52 g on the tip nothing is fitted
any more: the first foretells the frequency, the second the sag.

Linear tets are too stiff in bending, near poisson_ratio 0.5 hopelessly so: pressures averaged over nodes mend most of
it (`locking="nodal"`), and what is left goes with the square of the cells' size, so that the sags of fine meshes tell
what the mesh that rings makes of a modulus.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.stats import t as student_t

from benchmarks.recorded.rows import Rows, number
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets
from vid2phys.types import Array

CASE, SYSTEM, SOURCE = "beam", "soft_body", "real_beam"
UNLOADED, LOADED, LOAD_KG = "beam_gravity_V2_a.csv", "beam_load52_V2_a.csv", 0.052
Locking = Literal["none", "nodal"]  # how `SoftBody` treats the pressures of its tets
SIZE_M, DENSITY, POISSON = (0.1, 0.03, 0.03), 1070.0, 0.499
AUTHORS_PA = 263_824.0  # fits the sag by beam theory; information, not truth
RINGING = (9, 3, 3)  # cells of the mesh that rings
REFINED = ((6, 2, 2), (9, 3, 3), (12, 4, 4), (15, 5, 5))
FIRST = 264e3, 60.0  # Pa, Pa s: where the fit begins
STEP_S, FRAME_S = 1e-3, 0.01
SETTLED_S = 0.15  # after the tip is let go: before, it falls


@dataclass(frozen=True)
class Ring:
    """Frequency [Hz], with the standard error of its cycles, and decay [1/s] of a tip that rings; how far it hangs down
    in the end, and by how much more than a second before [m]."""

    frequency: float
    frequency_error: float
    decay: float
    sag_m: float
    creep_m: float


def load(path: Path) -> tuple[Array, Array]:
    """Return times [T] s since the tip was let go and the height [T] m of its markers' mean above where it was held."""
    data = np.genfromtxt(path, delimiter=",", names=True)
    names = [name for name in data.dtype.names if name.startswith("Tip") and name.endswith("_x")]
    heights = np.nanmean([data[name] for name in names], axis=0)
    heights = heights - heights[:30].mean()
    # a fall from rest: the root of its depth is a straight line, which begins where it was let go
    falling = np.flatnonzero(heights < -2e-4)[0] + np.arange(4)
    root = np.polyfit(data["t"][falling], np.sqrt(np.maximum(-heights[falling], 0.0)), 1)
    return data["t"] + root[1] / root[0], heights


def ring_of(times: Array, heights: Array, cycles: int = 7) -> Ring:
    """Return the crossings of the settling height, and how peaks shrink, over at most so many cycles after the fall."""
    kept = (times > SETTLED_S) & np.isfinite(heights)
    times, heights = times[kept], heights[kept]
    z = heights - np.polyval(np.polyfit(times, heights, 2), times)
    up = np.flatnonzero((z[:-1] < 0.0) & (z[1:] >= 0.0))[: cycles + 1]
    crossings = times[up] - z[up] * (times[up + 1] - times[up]) / (z[up + 1] - z[up])
    periods = np.diff(crossings)
    frequency = 1.0 / float(periods.mean())
    error = frequency * float(periods.std(ddof=1) / periods.mean() / np.sqrt(len(periods)))
    peaks = [float(np.abs(z[a:b]).max()) for a, b in pairwise(up)]
    decay = -float(np.polyfit(np.cumsum(periods), np.log(peaks), 1)[0])
    end, before = (-float(np.median(part)) for part in (heights[-100:], heights[-200:-100]))
    return Ring(frequency, error, decay, end, end - before)


def beam(cells: tuple[int, int, int], locking: Locking = "nodal", load_kg: float = 0.0) -> SoftBody:
    """Return a beam clamped at x = 0, the load on its end face."""
    vertices, tets = box_tets(SIZE_M, cells)
    options = {
        "pinned": np.flatnonzero(vertices[:, 0] == 0.0),
        "load_vertices": np.flatnonzero(vertices[:, 0] > SIZE_M[0] - 1e-9),
        "elements": "linear",
        "locking": locking,
        "per_vertex_mass": True,
    }
    values = {"density": DENSITY, "poisson_ratio": POISSON}
    plain = SoftBody(vertices, tets, values=values, **options)  # type: ignore[arg-type]
    masses = plain.masses(plain.parameters().vector) + load_kg * plain.load_shares
    loaded = values | {f"mass_{i}": float(m) for i, m in enumerate(masses)}
    return SoftBody(vertices, tets, values=loaded, **options)  # type: ignore[arg-type]


def tip(body: SoftBody, frames: int, frame_s: float, substeps: int, young: float, damping: float) -> Array:
    """Return the heights [frames + 1] m of the end face above where it was let go from straight."""
    parameters = body.parameters().with_values({"young_modulus": young, "damping": damping}).vector
    start, idle = body.state(body.rest_m)[None], np.zeros((1, frames, 3))
    states = simulate(body, start, idle, parameters, frame_s, integrator="implicit_euler", substeps=substeps)[0]
    end = body.load_shares > 0.0
    return np.asarray(body.positions(states)[:, end, 2].mean(axis=1) - 0.5 * SIZE_M[2], dtype=float)


def sag(body: SoftBody, young: float) -> float:
    """Return how far the tip hangs down at rest [m]; long implicit steps."""
    return -float(tip(body, 16, 0.05, 1, young, 60.0)[-1])


def ringing(young: float, damping: float, load_kg: float = 0.0, seconds: float = 1.2) -> Ring:
    """Return the ring of the mesh that rings."""
    frames = round(seconds / FRAME_S)
    heights = tip(beam(RINGING, load_kg=load_kg), frames, FRAME_S, round(FRAME_S / STEP_S), young, damping)
    return ring_of(np.arange(frames + 1) * FRAME_S, heights)


def fit_ring(measured: Ring, rounds: int = 3) -> tuple[float, float, Ring]:
    """Return the modulus and viscosity of the mesh whose frequency and decay are the measured ones, and that ring.

    Frequency goes with the root of the modulus; decay with the viscosity, and a little with the length of the steps.
    """
    young, damping = FIRST
    found = ringing(young, damping)
    for _ in range(rounds - 1):
        young *= (measured.frequency / found.frequency) ** 2
        damping *= float(np.clip(measured.decay / found.decay, 0.5, 2.0))
        found = ringing(young, damping)
    return young * (measured.frequency / found.frequency) ** 2, damping, found


def fit_sag(measured: Ring, young: float) -> float:
    """Return the modulus of the mesh that hangs as far down as measured."""
    for _ in range(3):
        young *= sag(beam(RINGING), young) / measured.sag_m
    return young


def rows(folder: Path, *, quick: bool = False) -> Rows:
    """Return the moduli with their intervals, the refinement study, and the loaded take foretold."""
    unloaded, loaded = (ring_of(*load(folder / name)) for name in (UNLOADED, LOADED))
    table, share, unsure = _refinement(REFINED[:3] if quick else REFINED)
    of_ring, damping, found = fit_ring(unloaded)
    of_sag = fit_sag(unloaded, of_ring)
    cycles = float(student_t.ppf(0.975, 6)) * unloaded.frequency_error / unloaded.frequency
    creep = abs(unloaded.creep_m) / unloaded.sag_m
    for method, young, spread in (
        ("ours, unloaded ring", share * of_ring, np.hypot(2.0 * cycles, unsure)),
        ("ours, unloaded sag", share * of_sag, np.hypot(creep, unsure)),
    ):
        interval = [young * (1.0 - spread), young * (1.0 + spread)]
        inside = bool(interval[0] <= AUTHORS_PA <= interval[1])
        table.append(number(CASE, SYSTEM, method, "young_modulus", young, "Pa", ci95=interval, published=AUTHORS_PA,
                            published_in_interval=inside))  # fmt: skip
    table.append(number(CASE, SYSTEM, "ours, unloaded ring", "damping", damping, "Pa s"))
    table.append(
        number(CASE, SYSTEM, "ours, unloaded ring", "decay over the measured", found.decay / unloaded.decay, "1")
    )
    foretold = ringing(of_ring, damping, LOAD_KG, 1.5)
    heavy = beam(RINGING, load_kg=LOAD_KG)
    hangs, would_hang = sag(heavy, of_sag), sag(heavy, of_ring)
    table += _foretold("by the ring's modulus", "frequency", foretold.frequency, loaded.frequency, "Hz", cycles, 0.03)
    table += _foretold("by the sag's modulus", "sag", hangs, loaded.sag_m, "m", creep, 0.10)
    table += _foretold("by the ring's modulus", "sag", would_hang, loaded.sag_m, "m", 2.0 * cycles, 0.10)
    return table


def _foretold(how: str, what: str, value: float, truth: float, unit: str, spread: float, aim: float) -> Rows:
    """Return what is foretold of the loaded take against what was measured; the interval is that of what was fitted."""
    method, metric = f"foretold {how}", f"{what} of the loaded take"
    interval = [value * (1.0 - spread), value * (1.0 + spread)]
    return [
        number(CASE, SYSTEM, method, metric, value, unit, ci95=interval, published=truth),
        number(CASE, SYSTEM, method, f"{metric}, error", value / truth - 1.0, "1", aim=aim),
    ]


def _refinement(meshes: tuple[tuple[int, int, int], ...]) -> tuple[Rows, float, float]:
    """Return the sags of ever finer meshes with and without averaged pressures, and what follows for a modulus.

    Returns rows, the limit over the sag of the mesh that rings, and by which share of it the last two limits differ.
    """
    table: Rows = []
    sags: dict[tuple[int, int, int], float] = {}
    lockings: tuple[Locking, Locking] = ("none", "nodal")
    for cells in meshes:
        for locking in lockings:
            sags[cells] = sag(beam(cells, locking), FIRST[0])
            metric = f"sag at {FIRST[0]:.0f} Pa, {' x '.join(map(str, cells))} cells"
            table.append(number(CASE, SYSTEM, f"locking {locking}", metric, sags[cells], "m"))
    limits = []
    for coarse, fine in pairwise(meshes[-3:]):
        ratio = (fine[1] / coarse[1]) ** 2
        limits.append(sags[fine] + (sags[fine] - sags[coarse]) / (ratio - 1.0))
    unsure = abs(limits[1] / limits[0] - 1.0)
    share = limits[1] / sags[RINGING]
    table += [
        number(CASE, SYSTEM, "locking nodal", f"sag at {FIRST[0]:.0f} Pa, extrapolated", limits[1], "m",
               ci95=[limits[1] * (1.0 - unsure), limits[1] * (1.0 + unsure)]),
        number(CASE, SYSTEM, "locking nodal", "modulus over that of the mesh that rings", share, "1"),
    ]  # fmt: skip
    return table, share, unsure
