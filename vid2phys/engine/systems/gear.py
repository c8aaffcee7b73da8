"""A soft gear on the ground whose sectors are muscles."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Literal

import numpy as np

from vid2phys.engine.constants import GRADSIM_GEAR
from vid2phys.engine.system import Capabilities
from vid2phys.engine.systems._particles import Indices
from vid2phys.engine.systems._tets import TetBody
from vid2phys.errors import UsageError, unknown_name
from vid2phys.types import Array

GearSize = Literal["coarse", "paper"]


class Gear(TetBody):
    """A ring with teeth of stable neo-Hookean tets, standing on the plane z = 0; its axis is along y.

    State [6 V], equations, viscosity and contact are those of `SoftBody`. Controls: a disturbance force (world, N),
    shared equally by all vertices, then the activation of each of `sectors` muscles, equal sectors of the ring counted
    from the ground on, towards +x: 0.3 makes a sector's tets want to be smaller (gradSim, Jatavallabhula et al., ICLR
    2021, drives its gear with 0.3).

    `size="paper"` has 480 vertices and 1,152 tets, as many as gradSim's (`constants.GRADSIM_GEAR`); the default is a
    coarse one of 16 and 24. `moduli` are Lame's, gradSim's mu = lambda = 1000 being lame_mu = 750, lame_lambda = 375.

    Limits: those of `SoftBody`; it does not turn about a bearing, and no other gear meshes with it. Implicit steps of a
    hundredth of a second damp most of the wave that rolls it.
    """

    name = "gear"

    def __init__(
        self, size: GearSize = "coarse", *, sectors: int | None = None, values: dict[str, float] | None = None
    ) -> None:
        """sectors: 2 of the coarse gear, 4 of the paper's, if not given. values: defaults of parameters, by name."""
        if size not in ("coarse", "paper"):
            raise unknown_name("size of 'gear'", size, ("coarse", "paper"))
        g = GRADSIM_GEAR
        around, layers, default = (4, 1, 2) if size == "coarse" else (4 * g.teeth, g.layers, 4)
        sectors = sectors or default
        if around % sectors or sectors < 1:
            raise UsageError(f"{sectors} sectors of {around} cells", f"a divisor of {around}", "choose another number")
        vertices, tets = ring_tets(around, layers, (g.inner_m, g.root_m, g.tip_m), g.width_m)
        vertices[:, 2] -= vertices[:, 2].min()
        super().__init__(
            vertices,
            tets,
            pinned=(),
            load_vertices=None,
            muscles=np.arange(len(tets)) // (6 * layers) * sectors // around,
            moduli="lame",
            locking="none",
            ground=True,
            per_vertex_mass=False,
            values={**g.values, **(values or {})},
        )

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        return replace(super().capabilities, purpose="a soft gear that muscles roll over the ground (gradSim)")

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: stretched by a twentieth, the lowest vertices a fifth of an edge in the ground."""
        edges = self.rest_m[self.elements[:, 1:]] - self.rest_m[self.elements[:, :1]]
        shortest = float(np.linalg.norm(edges, axis=-1).min())
        stretch = np.eye(3) + rng.normal(0.0, 0.03, (n, 3, 3))
        x = np.einsum("nij,vj->nvi", stretch, self.rest_m) + rng.normal(0.0, 0.01 * shortest, (n, *self.rest_m.shape))
        x[..., 2] -= x[..., 2].min(axis=1, keepdims=True) + 0.2 * shortest
        return self.state(x, rng.normal(0.0, 0.1, (n, 1, 3)) + rng.normal(0.0, 0.02, x.shape))


def ring_tets(around: int, layers: int, radii_m: tuple[float, float, float], width_m: float) -> tuple[Array, Indices]:
    """Return the vertices [V, 3] m and tets [T, 4] of a toothed ring about the y axis, six tets a cell, sector by
    sector.

    around: cells round it, four a tooth (a coarser ring has none). layers: cells from inside out. radii_m: inner, at
    the teeth's roots, at their tips. Angles count from -z towards +x.
    """
    inner, root, tip = radii_m
    k, r, w = (a.ravel() for a in np.meshgrid(np.arange(around), np.arange(layers + 1), np.arange(2), indexing="ij"))
    outer = np.where((k % 4 < 2) & (around % 4 == 0) & (around > 4), tip, root)
    # teeth grow out of the outer half of the layers
    inside, share = inner + (root - inner) * r / layers, np.clip(2.0 * r / layers - 1.0, 0.0, 1.0)
    radius, angle = inside + share * (outer - root), 2.0 * np.pi * (k + 0.5) / around
    vertices = np.stack([radius * np.sin(angle), width_m * (w - 0.5), -radius * np.cos(angle)], axis=1)
    cells = np.stack(np.meshgrid(np.arange(around), np.arange(layers), [0], indexing="ij"), axis=-1).reshape(-1, 1, 3)
    tets = []
    for axes in permutations(range(3)):  # Kuhn's paths from a cell's first corner to its last
        path = np.cumsum(np.vstack([np.zeros(3, dtype=np.int64), np.eye(3, dtype=np.int64)[list(axes)]]), axis=0)
        corners = cells + path
        tets.append((corners[..., 0] % around * (layers + 1) + corners[..., 1]) * 2 + corners[..., 2])
    stacked = np.stack(tets, axis=1).reshape(-1, 4)
    sides = vertices[stacked[:, 1:]] - vertices[stacked[:, :1]]
    inverted = np.linalg.det(sides) < 0.0
    stacked[inverted] = stacked[inverted][:, [0, 2, 1, 3]]
    return vertices, stacked
