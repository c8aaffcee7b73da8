"""Vibration modes and the static sag of a clamped body of tets, at its shape at rest.

Method: stiffness and viscosity are the derivatives of the body's own forces at rest, as implicit steps have them
(`StepEquations.entries`). Modes are the lowest eigenvectors of stiffness and lumped mass (Lanczos with shift and
invert, `scipy.sparse.linalg.eigsh`).

Young's modulus scales the stiffness: a body vibrates at sqrt(E times `squares`), and sags by `sag` over E.

Limits: linear; gravity does not stress the body at rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.errors import InputError
from vid2phys.types import Array

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.sparse import csc_array

    from vid2phys.engine.systems._tets import TetBody

_SINGULAR = 1e-13  # square of a frequency over that of the stiffest vertex, below which it is zero
_UNIT_PA = 1.0  # Young's modulus for which matrices are made


@dataclass(frozen=True)
class Vibration:
    """The lowest modes of a clamped body, for a Young's modulus of 1 Pa and a viscosity of 1 Pa s.

    Attributes:
        modes: [D, V, 3] displacements; the largest displacement of a vertex is 1.
        squares: [D] squares of angular frequencies, 1/s^2, ascending.
        stiffness: [D, D] reduced stiffness, N/m.
        viscosity: [D, D] reduced viscosity, N s/m.
        masses_kg: [V] lumped masses.
        sag: [D] amplitudes of the static shape under gravity of 1 m/s^2, m.
    """

    modes: Array
    squares: Array
    stiffness: Array
    viscosity: Array
    masses_kg: Array
    sag: Array

    @property
    def decays(self) -> Array:
        """Return the rates [D] at which modes die away, 1/s for a viscosity of 1 Pa s."""
        flat = self.modes.reshape(len(self.modes), -1)
        return np.asarray(0.5 * np.diagonal(self.viscosity) / ((flat**2) @ np.repeat(self.masses_kg, 3)))

    def scaled(self, stiffness: float, viscosity: float) -> Vibration:
        """Return the vibration of the body with a multiple of its stiffness and its viscosity."""
        changed = stiffness * self.squares, stiffness * self.stiffness, viscosity * self.viscosity
        return Vibration(self.modes, *changed, self.masses_kg, self.sag / stiffness)

    def lowest(self, count: int) -> Vibration:
        """Return the `count` lowest of the modes."""
        part = slice(count)
        reduced = self.stiffness[part, part], self.viscosity[part, part]
        return Vibration(self.modes[part], self.squares[part], *reduced, self.masses_kg, self.sag[part])


def vibration(body: TetBody, parameters: Array, count: int) -> Vibration:
    """Return the `count` lowest modes of a clamped body with parameters [P]; E and damping do not matter.

    Raises InputError for a body that is not clamped, or whose clamps leave it free to turn.
    """
    stiffness, viscosity = _matrices(body, parameters)
    free = np.repeat(body.free, 3) > 0.0
    rows = np.flatnonzero(free)
    masses = np.repeat(body.masses(parameters), 3)
    inner = stiffness[rows][:, rows].tocsc()
    solve = _solver(inner)
    squares, vectors = _lowest(inner, solve, masses[rows], min(count, len(rows) - 2))
    flat = np.zeros((len(squares), len(free)))
    flat[:, rows] = vectors.T
    modes: Array = flat.reshape(len(squares), -1, 3)
    largest = np.linalg.norm(modes, axis=2)
    peak = modes[np.arange(len(modes)), largest.argmax(axis=1)]
    sign = np.sign(peak[np.arange(len(modes)), np.abs(peak).argmax(axis=1)])
    modes *= (sign / largest.max(axis=1))[:, None, None]
    flat = modes.reshape(len(modes), -1)
    reduced = flat @ (stiffness @ flat.T)
    weight = np.zeros(len(free))
    weight[2::3] = -masses[2::3]
    shape = np.zeros(len(free))
    shape[rows] = solve(weight[rows])
    by_mass = flat * masses
    sag = np.asarray(np.linalg.solve(by_mass @ flat.T, by_mass @ shape), dtype=float)
    return Vibration(modes, squares, reduced, flat @ (viscosity @ flat.T), masses[::3], sag)


def largest_turns(body: TetBody, modes: Array) -> Array:
    """Return by how much a mode [D, V, 3] turns any part of the body, [D] rad for an amplitude of 1."""
    points = np.flatnonzero(body.central == 0.0)
    gradient = np.einsum("dtix,tij->dtxj", modes[:, body.point_nodes[points]], body.gradients[points], optimize=True)
    skew = 0.5 * (gradient - np.swapaxes(gradient, 2, 3))
    return np.asarray(np.linalg.norm(skew, axis=(2, 3)).max(axis=1) / np.sqrt(2.0))


def _matrices(body: TetBody, parameters: Array) -> tuple[csc_array, csc_array]:
    """Return stiffness for 1 Pa and viscosity for 1 Pa s [3 V, 3 V] at rest; rows of pinned vertices are zero."""
    from scipy.sparse import csc_array

    equations, state = body.step_equations, body.state(body.rest_m)
    controls = np.zeros(len(body.control_names))
    names = body.parameters().names
    values = np.array(parameters, dtype=float)
    pattern = equations.pattern
    mass = np.zeros(len(pattern.indices))
    columns = np.repeat(np.arange(pattern.size), np.diff(pattern.starts))
    diagonal = pattern.indices == columns
    mass[diagonal] = np.repeat(body.masses(values), 3)

    def entries(damping: float) -> Array:
        values[names.index("young_modulus")], values[names.index("damping")] = _UNIT_PA, damping
        return equations.entries(state, np.zeros(0), controls, values, 1.0)

    elastic = entries(0.0)
    viscous = entries(1.0) - elastic
    shape = (pattern.size, pattern.size)
    return tuple(csc_array((each, pattern.indices, pattern.starts), shape) for each in (elastic - mass, viscous))


def _solver(stiffness: csc_array) -> Callable[[Array], Array]:
    """Return a function that divides by a definite matrix. Raises InputError for a singular one."""
    from scipy.sparse.linalg import splu

    try:
        options = {"SymmetricMode": True}
        return splu(stiffness, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve  # type: ignore[no-any-return]
    except RuntimeError as error:  # exactly singular
        raise _free() from error


def _lowest(stiffness: csc_array, solve: Callable[[Array], Array], masses: Array, count: int) -> tuple[Array, Array]:
    """Return the lowest eigenvalues [D] and eigenvectors [N, D]. Raises InputError where one of them is zero."""
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import LinearOperator, eigsh

    start = np.random.default_rng(0).normal(size=len(masses))
    inverse = LinearOperator(stiffness.shape, solve)
    squares, vectors = eigsh(stiffness, count, diags_array(masses), sigma=0.0, v0=start, OPinv=inverse)
    order = np.argsort(squares)
    squares = squares[order]
    largest = stiffness.diagonal() / masses
    if not (np.isfinite(squares).all() and squares[0] > _SINGULAR * largest.max()):
        raise _free()
    return squares, vectors[:, order]


def _free() -> InputError:
    return InputError("the clamps leave the body free to move", "a face of the body that is held", "move --clamp")
