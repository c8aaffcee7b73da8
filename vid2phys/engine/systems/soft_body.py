"""A soft body: a volume of tets of stable neo-Hookean material."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from vid2phys import geometry
from vid2phys.engine.system import Capabilities
from vid2phys.engine.systems._particles import CONTACT_PARAMETERS, Indices
from vid2phys.engine.systems._tets import Elements, Locking, Moduli, TetBody
from vid2phys.engine.tets import box_tets, eighths, quadratic_nodes
from vid2phys.errors import UsageError
from vid2phys.types import Array

_SIZE_M, _CELLS = (0.4, 0.2, 0.2), (2, 1, 1)


class SoftBody(TetBody):
    """Elastic volume of quadratic or linear tets.

    State [6 V]: positions (world, m), then velocities (m/s) of the V vertices. Controls: a force (world, N), shared
    equally by `load_vertices` (all if none are named), then the activation of each muscle.

        m_i v_i' = - sum_tets V P grad N_i - m_i g e_z + contact + share_i f,   x_i' = v_i,
        P = mu k F + (lambda (J - 1 + a) - 3/4 mu) cof F + eta F (F^T F' + F'^T F),   k = 1 - 1 / (I_C + 1)

    the first three terms of P belong to the energy mu/2 (I_C - 3) + lambda/2 (J - alpha + a)^2 - mu/2 log(I_C + 1) of
    Smith, de Goes and Kim ("Stable Neo-Hookean Flesh Simulation", 2018; gradSim's appendix), alpha = 1 + 3/4 mu/lambda,
    I_C = tr(F^T F): no force at rest however turned, a finite one when a tet is flat or inverted. Its mu and lambda are
    4/3 mu and lambda + 5/6 mu of linear elasticity's (their section 3.4), so `young_modulus` and `poisson_ratio` (or,
    with `moduli="lame"`, `lame_mu` and `lame_lambda`) mean what they mean in a tension test. gradSim's mu and lambda
    are the energy's: its mu = lambda = 1000 is lame_mu = 750, lame_lambda = 375.

    `muscles` [T] names the muscle of each tet (-1: none). Its activation a = control + `rest_activation_i` adds to the
    volume term as in gradSim: a tet at rest with a > 0 wants to shrink. `damping` eta is a viscosity: a stress in
    the rate of Green's strain, zero in every rigid motion. `ground=True` lets vertices press on the plane z = 0, each
    with gradSim's contact law (`kernels/contact.py`; constants are those of one vertex, so a finer mesh needs smaller
    ones). `pinned` vertices never move. `per_vertex_mass=True` has `mass_i` of every vertex in place of `density`.

    `locking="nodal"` averages the pressure lambda (J - 1) over nodes (Bonet & Burton, "A simple average nodal pressure
    tetrahedral element", 1998) where lambda is linear elasticity's, and leaves 5/6 mu (J - 1) to each tet, without
    which pure averages have modes of no energy: still the gradient of an energy, and smooth.

    Raises InputError for meshes that are no volume: surfaces, flat or inverted tets, loose vertices.

    `elements="quadratic"` adds the middles of edges as vertices and integrates the energy at four points of each tet;
    part of lambda acts at the centre alone (`TetBody.shared`; selective integration, Hughes 1980). Two tets across a
    clamped bar bend within 2 % of elasticity, up to a Poisson ratio of 0.45. `elements="linear"` is what gradSim uses.

    Limits: linear tets are several times too stiff in bending, and near poisson_ratio = 0.5 in everything unless
    locking="nodal"; the mass is lumped; the body does not touch itself nor bodies other than the ground; no plasticity,
    no fracture; the viscosity is linear. Explicit steps are bounded by the time that sound takes across the thinnest
    tet; implicit ones are not, but damp what is faster than a few of them.
    """

    name = "soft_body"

    def __init__(
        self,
        vertices: Array | None = None,
        tets: Indices | None = None,
        *,
        pinned: Indices | tuple[int, ...] = (),
        load_vertices: Indices | tuple[int, ...] | None = None,
        muscles: Indices | None = None,
        elements: Elements = "quadratic",
        moduli: Moduli = "young",
        locking: Locking = "none",
        ground: bool = False,
        per_vertex_mass: bool = False,
        load_kg: float = 0.0,
        values: dict[str, float] | None = None,
    ) -> None:
        """vertices [V, 3] m and tets [T, 4] of the shape at rest; a box of 0.4 x 0.2 x 0.2 m when neither is given.

        pinned, load_vertices: of quadratic tets, the middle of an edge goes with its ends.

        load_kg: a mass that `load_vertices` share beside their own. values: defaults of the parameters, by name.
        """
        if (vertices is None) != (tets is None):
            raise UsageError("vertices without tets, or tets without vertices", "both or neither", "give both")
        if vertices is None or tets is None:
            vertices, tets = box_tets(_SIZE_M, _CELLS)
        self.given = np.array(vertices, dtype=float), np.array(tets, dtype=np.int64)
        super().__init__(
            vertices,
            tets,
            pinned=pinned,
            load_vertices=load_vertices,
            muscles=muscles,
            elements=elements,
            moduli=moduli,
            locking=locking,
            ground=ground,
            per_vertex_mass=per_vertex_mass,
            load_kg=load_kg,
            values=values or {},
        )
        if self.quadratic and self.pinned.size:
            self.integrators = ("implicit_midpoint", "implicit_euler", "semi_implicit_euler")  # type: ignore[misc]

    def with_clamps(self, pinned: Indices, loaded: Indices | None, load_kg: float) -> SoftBody:
        """Return the body with these vertices pinned, a mass [kg] on others, and no ground or muscles."""
        vertices, tets = self.given
        kept = {name: value for name, value in self._values.items() if name not in CONTACT_PARAMETERS}
        return SoftBody(
            vertices,
            tets,
            pinned=pinned[pinned < len(vertices)],
            load_vertices=None if loaded is None else loaded[loaded < len(vertices)],
            elements="quadratic" if self.quadratic else "linear",
            moduli=self.moduli,
            load_kg=load_kg,
            values=kept,
        )

    def refined(self) -> SoftBody:
        """Return a clamped body with eight tets in place of each; vertices at rest remain the first ones."""
        nodes, tets = self.rest_m, self.elements
        if not self.quadratic:
            nodes, of_tets = quadratic_nodes(*self.given)
            tets = eighths(nodes, of_tets)
        finer = SoftBody(nodes, tets, elements="quadratic" if self.quadratic else "linear", moduli=self.moduli,
                         values=self._values)  # fmt: skip
        loaded = np.flatnonzero(self.load_shares) if self.added_kg.any() else None
        return finer.with_clamps(self.pinned, loaded, float(self.added_kg.sum()))

    def placed(self, rotation: Array, shift: Array) -> SoftBody:
        """Return a clamped body rotated by `rotation` [3, 3] and then moved by `shift` [3] m in the world."""
        vertices, tets = self.given
        moved = SoftBody(vertices @ rotation.T + shift, tets, elements="quadratic" if self.quadratic else "linear",
                         moduli=self.moduli, values=self._values)  # fmt: skip
        loaded = np.flatnonzero(self.load_shares) if self.added_kg.any() else None
        return moved.with_clamps(self.pinned, loaded, float(self.added_kg.sum()))

    @property
    def capabilities(self) -> Capabilities:
        """See `System.capabilities`."""
        return replace(
            super().capabilities,
            purpose="an elastic body of any shape, with muscles, pins and a ground",
            observed_as="clamped",
            fitted=("young_modulus", "damping"),
            balanced=False,
        )

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: turned and stretched by about a tenth, vertices off by a fiftieth of an edge.

        With pins nothing turns; on the ground the lowest vertices have sunk in by a third of the shortest edge.
        """
        count = len(self.rest_m)
        edges = self.rest_m[self.elements[:, 1:]] - self.rest_m[self.elements[:, :1]]
        shortest = float(np.linalg.norm(edges, axis=-1).min())
        centre = self.rest_m.mean(axis=0)
        stretch = np.eye(3) + rng.normal(0.0, 0.05, (n, 3, 3))
        if not (self.pinned.size or self.ground):
            stretch = geometry.matrix_from_quat(geometry.quat_from_rotvec(rng.normal(0.0, 1.0, (n, 3)))) @ stretch
        x = centre + np.einsum("nij,vj->nvi", stretch, self.rest_m - centre)
        x += rng.normal(0.0, 0.02 * shortest, (n, count, 3))
        v = rng.normal(0.0, 0.3, (n, 1, 3)) + rng.normal(0.0, 0.1, (n, count, 3))
        if self.ground:
            x[..., 2] -= x[..., 2].min(axis=1, keepdims=True) + 0.35 * shortest
        x[:, self.pinned], v[:, self.pinned] = self.rest_m[self.pinned], 0.0
        return self.state(x, v)


def from_file(path: str | Path, units: str = "m") -> SoftBody:
    """Return a body by a mesh of tets (.msh, .vtk, .vtu, .mesh ...), free to fall on the ground.

    A closed surface (OBJ, STL, PLY ...) is filled with tets if pytetwild is installed (pip install 'vid2phys[volume]').
    The ground is about as stiff as the tets: with the mean distance h and mass m of vertices, k_e = E h at the default
    E; k_d = 0.2 sqrt(k_e m) and k_f = sqrt(k_e m).
    """
    from vid2phys.io.volume import load_volume

    volume = load_volume(path, units)
    free = SoftBody(volume.vertices, volume.tets)
    p = free.parameters()
    edges = free.rest_m[free.elements] - free.rest_m[np.roll(free.elements, 1, axis=1)]
    k_e = p["young_modulus"].value * float(np.linalg.norm(edges, axis=-1).mean())
    critical = float(np.sqrt(k_e * free.masses(p.vector).mean()))
    contact = {"k_e": k_e, "k_d": 0.2 * critical, "k_f": critical}
    return SoftBody(volume.vertices, volume.tets, ground=True, values=contact)
