"""Modal bodies: an elastic body that is clamped in place; the configuration is the amplitudes of its modes.

A rod of thousands of vertices moves in far fewer ways. The engine simulates it under random loads, from random
velocities and over the range of stiffnesses. The principal components of all vertices' displacements are the modes
(proper orthogonal decomposition, Sirovich 1987). They are smooth and vanish at the clamps.

Limits: modes are linear. `left_out_m` measures the displacements that they cannot represent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody, CameraRange, bounding_sphere
from vid2phys.engine.systems._particles import embed
from vid2phys.engine.systems._tets import TetBody
from vid2phys.engine.systems.rod import Rod
from vid2phys.errors import InputError
from vid2phys.io.files import write_bytes
from vid2phys.types import Array

CAMERAS = CameraRange(azimuth=(-90.0, 60.0), elevation=(-10.0, 60.0))
CELLS = (16, 4, 4)  # cells of the rod that is rendered
YOUNG_PA = (1e4, 1e7)
_MOTIONS, _STEPS, _STEP_S = 40, 60, 0.01
_LEFT_OUT = 2e-5  # largest share of the displacements' mean square that modes leave out
_MOST_MODES = 16
_FASTEST = 0.6  # spread of random initial velocities: heights of the body per 0.1 s
_SECTIONS = (1, 4, 5, 8)  # indices of the sensors with keypoints on the rod's edges


@dataclass(frozen=True)
class Motions:
    """Modes of a body, with the simulated motions from which they come.

    Attributes:
        rest_m: [V, 3] vertices at rest, m.
        elements: [T, 4] tetrahedra.
        modes: [D, V, 3] displacements per unit amplitude, m.
        amplitudes: [R, S, D] along R motions.
        step_s: Time between amplitudes, s.
        left_out_m: Root mean square of the displacements that the modes leave out, m.
    """

    rest_m: Array
    elements: NDArray[np.int64]
    modes: Array
    amplitudes: Array
    step_s: float
    left_out_m: float

    def save(self, path: Path) -> None:
        """Write a safetensors file."""
        from safetensors.numpy import save

        numbers = {"step_s": np.array([self.step_s]), "left_out_m": np.array([self.left_out_m])}
        write_bytes(path, save({**self.arrays(), **numbers}))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {
            name: np.ascontiguousarray(getattr(self, name)) for name in ("rest_m", "elements", "modes", "amplitudes")
        }

    @staticmethod
    def load(path: Path) -> Motions:
        """Read a file of `save`. Raises InputError."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            data = load_file(path)
            numbers = float(data["step_s"][0]), float(data["left_out_m"][0])
            return Motions(data["rest_m"], data["elements"], data["modes"], data["amplitudes"], *numbers)
        except (SafetensorError, OSError, KeyError) as error:
            raise InputError(f"'{path}' holds no modes ({error})", "a body's modes", "train the model again") from error


class ModalBody(ArticulatedBody):
    """A clamped `TetBody`.

    The system may have other elements than the simulated one: a vertex interpolates the modes of the element that
    contains it. The keypoints of a rod are its ten sensors along the centre line, and the edges at four of them.
    """

    bends = True

    def __init__(self, system: TetBody, motions: Motions, cameras: CameraRange = CAMERAS) -> None:
        assert system.surface is not None
        self.system: TetBody = system
        self.cameras, self.motions = cameras, motions
        self.mesh = system.surface
        self.points_body = spine_points(system)
        self.half_turn = turned_about_vertical(self.points_body)
        self._vertex_modes = self._modes_at(system.rest_m)
        self._point_modes = self._modes_at(self.points_body)
        amplitudes = motions.amplitudes
        self.names = tuple(f"mode_{i}" for i in range(amplitudes.shape[-1]))
        self.rest = np.zeros(len(self.names))
        self.prior_mean = self.rest
        largest = np.abs(amplitudes).max(axis=(0, 1))
        self.lower, self.upper = -1.5 * largest, 1.5 * largest
        self.prior_std = 2.0 * np.sqrt((amplitudes**2).mean(axis=(0, 1)))
        every = amplitudes.reshape(-1, len(self.names))[:: max(1, amplitudes[..., 0].size // 300)]
        self.center_m, self.radius_m = bounding_sphere(np.stack([self.vertices(q) for q in every]))

    @property
    def recipe(self) -> str:
        """See `ArticulatedBody.recipe`; the settings of the simulated motions identify the modes."""
        found = f"{len(self.system.rest_m)} vertices {self.motions.amplitudes.shape}"
        return f"modes/1 {self.system.name} {found} {self.cameras}"

    def vertices(self, configuration: Array) -> Array:
        """See `ArticulatedBody.vertices`."""
        return np.asarray(self.system.rest_m + np.tensordot(configuration, self._vertex_modes, 1))

    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """See `ArticulatedBody.jacobian`; the same for all configurations."""
        return np.moveaxis(self._vertex_modes[:, vertices], 0, -1)

    def points(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points`."""
        return np.asarray(self.points_body + np.tensordot(configurations, self._point_modes, 1))

    def points_jacobian(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points_jacobian`; the same for all configurations."""
        single = np.moveaxis(self._point_modes, 0, -1)
        return np.broadcast_to(single, (*np.shape(configurations)[:-1], *single.shape))

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw a configuration of one of the motions, scaled and slightly varied."""
        amplitudes = self.motions.amplitudes.reshape(-1, len(self.names))
        configuration = amplitudes[int(rng.integers(len(amplitudes)))] * rng.uniform(0.4, 1.15)
        return np.asarray(configuration + 0.05 * self.prior_std * rng.normal(size=len(configuration)))

    def sample_motion(self, rng: np.random.Generator, times_s: Array) -> Array:
        """See `ArticulatedBody.sample_motion`: a piece of one of the motions, larger or smaller."""
        motion = self.motions.amplitudes[int(rng.integers(len(self.motions.amplitudes)))]
        known_s = np.arange(len(motion)) * self.motions.step_s
        start = rng.uniform(0.0, max(0.0, known_s[-1] - np.ptp(times_s)))
        at = start + times_s - times_s[0]
        scale = rng.uniform(0.6, 1.1)
        return np.stack([scale * np.interp(at, known_s, column) for column in motion.T], axis=1)

    def states(self, configurations: Array, rates: Array) -> Array:
        """See `ArticulatedBody.states`."""
        positions = self.system.rest_m + np.tensordot(configurations, self._vertex_modes, 1)
        return self.system.state(positions, np.tensordot(rates, self._vertex_modes, 1))

    def configurations(self, states: Array) -> Array:
        """See `ArticulatedBody.configurations`: by least squares over the vertices."""
        moved = self.system.positions(states) - self.system.rest_m
        return np.asarray(moved.reshape(*moved.shape[:-2], -1) @ self._from_vertices)

    @cached_property
    def _from_vertices(self) -> Array:
        """Return the map [3 V, D] from displacements of all vertices to configurations."""
        return np.asarray(np.linalg.pinv(self._vertex_modes.reshape(len(self.names), -1)))

    def _modes_at(self, points: Array) -> Array:
        """Return the modes [D, P, 3] of points [P, 3] at rest."""
        corners, weights = embed(points, self.motions.rest_m, self.motions.elements)
        return np.einsum("pc,dpcx->dpx", weights, self.motions.modes[:, corners])


def find_motions(system: TetBody, seed: int = 0) -> Motions:
    """Simulate motions of a rod and return its modes. This takes about a minute."""
    assert isinstance(system, Rod)
    rng = np.random.default_rng([seed, 21])
    moved = np.stack([_motion(system, rng, i / (_MOTIONS - 1)) for i in range(_MOTIONS)])
    flat = moved.reshape(_MOTIONS * (_STEPS + 1), -1)
    _, sizes, rows = np.linalg.svd(flat, full_matrices=False)
    left = 1.0 - np.cumsum(sizes**2) / (sizes**2).sum()
    count = min(_MOST_MODES, int(np.argmax(left < _LEFT_OUT)) + 1)
    scale = np.sqrt(rows.shape[1] / 3.0)  # a unit amplitude moves the vertices by a metre, root mean square
    amplitudes = (flat @ rows[:count].T / scale).reshape(_MOTIONS, _STEPS + 1, count)
    left_out = float(np.sqrt(left[count - 1] * (sizes**2).sum() / flat.shape[0]) / scale)
    modes = scale * rows[:count].reshape(count, -1, 3)
    return Motions(system.rest_m, system.elements, modes, amplitudes, _STEP_S, left_out)


def _motion(system: Rod, rng: np.random.Generator, stiffness: float) -> Array:
    """Simulate the displacements [S + 1, V, 3] of one motion, m.

    stiffness: 0 to 1 over the logarithms of Young's moduli.
    """
    from vid2phys.engine.rollout import simulate

    young = float(np.exp(np.log(YOUNG_PA[0]) + stiffness * np.log(YOUNG_PA[1] / YOUNG_PA[0])))
    parameters = system.parameters().with_values({"young_modulus": young}).vector
    times = np.arange(_STEPS) * _STEP_S
    controls = np.zeros((1, _STEPS, len(system.control_names)))
    angle = rng.uniform(-np.pi, np.pi)
    for direction, weight in (((np.cos(angle), np.sin(angle)), 1.0), ((-np.sin(angle), np.cos(angle)), 0.3)):
        wave = np.sin(2.0 * np.pi * (rng.uniform(0.5, 2.5) * times + rng.random()))
        controls[0, :, 1:3] += weight * rng.uniform(0.4, 1.0) * system.load_n(young) * np.outer(wave, direction)
    place = system.rest_m[:, 0] / system.size_m[0] + 0.5
    speed = np.zeros((len(place), 3))
    for half_waves in (1, 2, 3):
        size = _FASTEST * rng.normal(size=2) * system.size_m[1] / 0.1 / half_waves**2
        speed[:, 1:] += np.sin(np.pi * half_waves * place)[:, None] * np.sin(np.pi * place)[:, None] * size
    speed[system.pinned] = 0.0
    start = system.state(system.rest_m, speed)
    states = simulate(system, start[None], controls, parameters, _STEP_S, substeps=1)[0]
    return np.asarray(system.positions(states) - system.rest_m)


def turned_about_vertical(points: Array) -> NDArray[np.int64]:
    """Return the indices [K] of the points to which a rotation by 180 degrees about z takes points [K, 3].

    Raises ValueError for points without this symmetry.
    """
    distance = np.linalg.norm((points * [-1.0, -1.0, 1.0])[:, None] - points, axis=-1)
    if distance.min(axis=1).max() > 1e-9:
        raise ValueError("the points are not the same after a rotation by 180 degrees")
    return distance.argmin(axis=1)


def spine_points(system: TetBody) -> Array:
    """Return keypoints [K, 3] at rest, m: the sensors of a rod and its four edges at some of them."""
    assert isinstance(system, Rod)
    spine = system.spine_m
    corners = 0.5 * np.array([[0.0, y, z] for y in (-1.0, 1.0) for z in (-1.0, 1.0)]) * system.size_m
    edges = (spine[list(_SECTIONS), None] + corners).reshape(-1, 3)
    return np.concatenate([spine, edges])
