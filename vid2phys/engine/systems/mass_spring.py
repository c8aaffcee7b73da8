"""Points joined by damped springs: any graph in space, with gravity, air drag, pins and a force on each point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vid2phys.engine.system import Capabilities, Integrator
from vid2phys.engine.systems._particles import START_VELOCITY, Indices, VertexBody, own_surface
from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array, Parameter, Parameters

_AXES = ("x", "y", "z")
# a basket: four corners of a square hang from a pin, braced by a diagonal
_POINTS_M = ((0.0, 0.0, 0.0), (0.2, 0.2, -0.3), (-0.2, 0.2, -0.3), (-0.2, -0.2, -0.3), (0.2, -0.2, -0.3))
_SPRINGS = ((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 1), (1, 3))
_FACES = ((1, 2, 3), (1, 3, 4))


class MassSpring(VertexBody):
    """Mass points joined by linear springs with dampers along them.

    State [6 V]: positions of the V points (world, m), then their velocities (world, m/s). Controls [3 F]: a force on
    each of the F points that are not pinned (world, N), in the order of the points. With n the direction from point i
    to the other end j of spring s, and L the distance between them,

        x_i' = v_i,  m_i v_i' = f_i - d v_i - m_i g e_z + sum_s (k_s (L - L0_s) + c_s n . (v_j - v_i)) n

    A pinned point stays where the state has it, at rest whatever velocity the state gives.

    points: [V, 3] m, where the points are when no spring is loaded; a basket without them. springs: [S, 2] indices of
    points. pinned: indices of points. faces: [F, 3] indices of points, the surface that is seen. per_spring: one
    `stiffness`, `damping` and `rest_length` (m) for each spring, with "_s" after the name; otherwise a common stiffness
    and damping, and `rest_scale`, by which all the distances at rest are multiplied. masses: kg, one number (the mass
    of each point, parameter `mass`), or [V] for parameters `mass_i` of all points i that are not pinned. Raises
    InputError for springs, faces and pins that name points which are not there, for springs without length, points
    that are not finite or that no spring holds, UsageError for masses that are not positive and when all is pinned.

    Points of the body, and vertices of a mesh, are given in the shape at rest. Each belongs to the spring that is
    nearest there: it keeps its share of the way along it, and its offset from it in the world's axes.

    Without known forces the motion determines stiffness, damping and drag over mass, and ratios of masses.

    Limits: springs neither bend nor break, keep their stiffness however far they stretch, and pass through each other;
    no contact; drag is linear and the same on all points, the air at rest. Offsets from a spring do not turn with it,
    so a mesh has to lie close to the springs; its mass is in the points. Two joined points must not meet, for the
    spring has no direction there.
    """

    name = "mass_spring"
    capabilities = Capabilities(
        purpose="a net of points and damped springs",
        observed_as="vertices",
        called="net",
        fitted=("stiffness", "damping", "drag"),
        groups=START_VELOCITY,
        inertial=("stiffness", "rest_scale", "rest_length", "damping", "mass"),
        scene=("drag", "gravity"),
        excited_by={
            "stiffness": "vibration of the springs, with a known mass",
            "rest": "springs that are stretched and slack in turn",
            "damping": "vibration that dies away, with a known mass",
            "mass": "a recorded force on a point; without one ratios of the masses show alone",
            "drag": "motion of the whole net through the air, with a known mass",
            "gravity": "free fall, or hanging springs of known stiffness and mass",
        },
    )
    integrators = ("rk4", "semi_implicit_euler")
    vertex = "point"
    weight, weight_of = "mass", "each point"
    step_share = 0.25  # a clip shows vibration: of RK4, the fastest has its period within 5e-4, and loses 1e-3 in each

    def __init__(
        self,
        points: ArrayLike | None = None,
        springs: ArrayLike = (),
        pinned: Indices | Sequence[int] = (0,),
        *,
        faces: ArrayLike = (),
        per_spring: bool = False,
        masses: float | ArrayLike = 0.05,
    ) -> None:
        if points is None:
            points, springs, faces = _POINTS_M, _SPRINGS, _FACES
        given, self.springs = np.array(points, dtype=float), _indices(springs, "springs", columns=2)
        self.faces = _indices(faces, "faces", columns=3)
        self.masses, self.per_spring = np.array(masses, dtype=float), per_spring
        _check_net(given, self.springs, self.faces, self.masses)
        super().__init__(given, pinned=tuple(pinned))
        self._moving = np.flatnonzero(self.free)
        if not self._moving.size:
            raise UsageError(f"all {len(given)} points are pinned", "a point that can move", "unpin one")
        self.rest_lengths = _lengths(given, self.springs)
        self.surface = own_surface(given, self.faces, self.name) if len(self.faces) else None
        self.action_names = tuple(f"force_{i}_{a}" for i in self._moving for a in _AXES)
        self.action_units = ("N",) * len(self.action_names)
        self.control_names = self.action_names
        self.control_inertia = tuple(name for name in self._mass_names() for _ in _AXES)
        self.control_groups = ("force",) * len(self.control_names)
        self._nets: dict[str, Any] = {}

    def parameters(self) -> Parameters:
        """Return the defaults of no particular net: 100 N/m, lightly damped, rest lengths of the shape at rest."""
        springs = range(len(self.springs))
        if self.per_spring:
            names = [(f"stiffness_{s}", f"rest_length_{s}", f"damping_{s}") for s in springs]
            rest_unit, rest = "m", self.rest_lengths
        else:
            names, rest_unit, rest = [("stiffness", "rest_scale", "damping")], "1", np.ones(1)
        by_point = np.broadcast_to(self.masses, len(self.rest_m))[self._moving]
        masses = dict(zip(self._mass_names(), by_point, strict=True))
        return Parameters(
            (
                *(Parameter(name, "N/m", 100.0, 1e-6, 1e9, "log") for name, _, _ in names),
                *(
                    Parameter(name, rest_unit, float(value), 1e-6, 1e6, "log")
                    for (_, name, _), value in zip(names, rest, strict=True)
                ),
                *(Parameter(name, "N s/m", 0.05, 0.0, 1e6) for _, _, name in names),
                *(Parameter(name, "kg", float(value), 1e-9, 1e6, "log") for name, value in masses.items()),
                Parameter("drag", "N s/m", 0.0, 0.0, 1e6),
                Parameter("gravity", "m/s^2", 9.81, 0.0, 30.0),
            )
        )

    def launch_step(
        self,
        states: Any,
        controls: Any,
        parameters: Any,
        dt_s: Any,
        next_states: Any,
        *,
        step: int,
        fraction: float,
        integrator: Integrator,
    ) -> None:
        """See `System.launch_step`; one launch, or five for RK4."""
        from vid2phys.engine.kernels import mass_spring as kernels

        wp, net = kernels.wp, self._net(states.device)
        points = (states.shape[0], len(self.rest_m))
        if integrator == "semi_implicit_euler":
            inputs = [states, controls, parameters, dt_s, step, fraction, net]
            wp.launch(kernels.step_semi_implicit_euler, points, inputs, [next_states], device=states.device)
            return
        slopes = [states]  # the first stage moves along nothing, by no time
        for share in (0.0, 0.5, 0.5, 1.0):
            out = wp.empty_like(states, requires_grad=states.requires_grad)
            inputs = [states, slopes[-1], controls, parameters, dt_s, step, share * fraction, net]
            wp.launch(kernels.slopes_rk4, points, inputs, [out], device=states.device)
            slopes.append(out)
        inputs = [states, *slopes[1:], dt_s, step, fraction, net]
        wp.launch(kernels.combine_rk4, points, inputs, [next_states], device=states.device)

    def longest_step_s(self, parameters: Array) -> float:
        """See `System.longest_step_s`: from bounds of all frequencies and damping rates, sums over a point's springs.

        No row of M^-1 K sums to more than 2 sum k / m, unloaded or stretched; semi-implicit Euler wants
        (w h)^2 + 2 rate h < 4 of each mode, and RK4 manages that too.
        """
        p, count = np.asarray(parameters, dtype=float), len(self.springs) if self.per_spring else 1
        mass = np.broadcast_to(p[3 * count : -2], self._moving.size)

        def about_points(by_spring: Array) -> Array:
            total = np.zeros(len(self.rest_m))
            np.add.at(total, self.springs, np.broadcast_to(by_spring, len(self.springs))[:, None])
            return total[self._moving]

        stiff = float((2.0 * about_points(p[:count]) / mass).max())
        rate = float(((2.0 * about_points(p[2 * count : 3 * count]) + p[-2]) / mass).max())
        return float((np.sqrt(rate**2 + 4.0 * stiff) - rate) / stiff)

    def clamped(self, pinned: Indices) -> MassSpring:
        """See `VertexBody.clamped`."""
        return self._changed(self.rest_m, pinned)

    def placed(self, rotation: Array, shift: Array) -> MassSpring:
        """See `VertexBody.placed`."""
        return self._changed(self.rest_m @ rotation.T + shift, self.pinned)

    def refined(self) -> None:
        """See `VertexBody.refined`: none, since the springs are the model."""

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`."""
        points, shares = np.asarray(points_body, dtype=float), self._shares(points_body)
        return np.asarray(points + shares @ (self.positions(states) - self.rest_m))

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`; the same for every state."""
        shares, size = self._shares(points_body), len(self.state_names)
        jacobian = np.zeros((len(shares), 3, size))
        jacobian[..., : size // 2] = np.einsum("kv,ij->kivj", shares, np.eye(3)).reshape(len(shares), 3, -1)
        return np.broadcast_to(jacobian, (*np.shape(states)[:-1], *jacobian.shape))

    def rest_state(self) -> Array:
        """See `System.rest_state`."""
        return self.state(self.rest_m)

    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """See `System.sample_state`: sheared and stretched about the pins, then each point moved a little."""
        centre = self.rest_m[self.pinned if self.pinned.size else slice(None)].mean(axis=0)
        size = float(np.median(self.rest_lengths))
        strain = rng.normal(0.0, 0.15, (n, 3, 3))
        positions = np.broadcast_to(self.rest_m, (n, *self.rest_m.shape)).copy()
        moved = (self.rest_m - centre) @ strain + rng.normal(0.0, 0.05 * size, positions.shape)
        positions[:, self._moving] += moved[:, self._moving]
        velocities = np.zeros_like(positions)
        velocities[:, self._moving] = rng.normal(0.0, 0.5, (n, self._moving.size, 3))
        return self.state(positions, velocities)

    def _changed(self, points: Array, pinned: Indices) -> MassSpring:
        """Return the net with points elsewhere, and with other pins."""
        return MassSpring(
            points, self.springs, pinned, faces=self.faces, per_spring=self.per_spring, masses=self.masses
        )

    def _mass_names(self) -> tuple[str, ...]:
        """Return the parameter with the mass of each free point."""
        return tuple(f"mass_{i}" if self.masses.ndim else "mass" for i in self._moving)

    def _shares(self, points_body: Array) -> Array:
        """Return how much of each point's way [K, V] is in that of every mass point: 1 - t and t at the ends of a
        spring.
        """
        points = np.asarray(points_body, dtype=float)
        start, along = self.rest_m[self.springs[:, 0]], np.diff(self.rest_m[self.springs], axis=1)[:, 0]
        t = np.einsum("ksi,si->ks", points[:, None] - start, along) / self.rest_lengths**2
        t = np.clip(t, 0.0, 1.0)
        nearest = np.linalg.norm(start + t[..., None] * along - points[:, None], axis=-1).argmin(axis=1)
        rows, ends, t = np.arange(len(points)), self.springs[nearest], t[np.arange(len(points)), nearest]
        shares = np.zeros((len(points), len(self.rest_m)))
        shares[rows, ends[:, 0]], shares[rows, ends[:, 1]] = 1.0 - t, t
        return shares

    def _net(self, device: Any) -> Any:
        """Return the graph in the memory of a device, made once."""
        if str(device) not in self._nets:
            self._nets[str(device)] = self._make_net(device)
        return self._nets[str(device)]

    def _make_net(self, device: Any) -> Any:
        from vid2phys.engine.kernels import mass_spring as kernels

        wp, count, springs = kernels.wp, len(self.rest_m), len(self.springs)
        own, other = self.springs.T.reshape(-1), self.springs[:, ::-1].T.reshape(-1)
        order = np.argsort(own, kind="stable")
        place = np.zeros(count)
        place[self._moving] = np.arange(self._moving.size)
        net, each = kernels.Net(), springs if self.per_spring else 1
        integers = {
            "starts": np.searchsorted(own[order], np.arange(count + 1)),
            "springs": np.tile(np.arange(springs), 2)[order],
            "neighbours": other[order],
            "masses": place * self.masses.ndim,
            "forces": 3 * place,
        }
        for name, values in integers.items():
            setattr(net, name, wp.array(values.astype(np.int32), dtype=wp.int32, device=device))
        lengths = np.ones(springs) if self.per_spring else self.rest_lengths
        net.lengths = wp.array(lengths, dtype=wp.float64, device=device)
        net.free = wp.array(self.free, dtype=wp.float64, device=device)
        places = {"rest": each, "damping": 2 * each, "mass": 3 * each, "drag": len(self.parameters().items) - 2}
        for name, number in {"stride": int(self.per_spring), **places}.items():
            setattr(net, name, number)
        return net


def _lengths(points: Array, springs: Any) -> Array:
    return np.asarray(np.linalg.norm(points[springs[:, 1]] - points[springs[:, 0]], axis=-1))


def _indices(values: Any, what: str, columns: int) -> Indices:
    """Return the indices [..., columns] as an array of integers. Raises InputError for what is none."""
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros((0, columns), dtype=np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{what} of type {array.dtype}", "indices of points", "give whole numbers")
    if array.ndim != 2 or array.shape[1] != columns:
        raise InputError(f"{what} of shape {array.shape}", f"[..., {columns}]", "give the points that each one joins")
    return array.astype(np.int64)


def _check_net(points: Array, springs: Indices, faces: Indices, masses: Array) -> None:
    """Raise InputError for a graph that cannot be simulated, UsageError for masses."""
    if points.ndim != 2 or points.shape[1] != 3 or not points.size or not np.isfinite(points).all():
        raise InputError(f"points of shape {points.shape}", "[V, 3] finite numbers in m", "give x, y, z of each point")
    count = len(points)
    for what, indices in (("spring", springs), ("face", faces)):
        outside = np.argwhere((indices < 0) | (indices >= count))
        if outside.size:
            k = int(outside[0, 0])
            raise InputError(f"{what} {k} names point {indices[tuple(outside[0])]}", f"0 to {count - 1}", "correct it")
    short = np.flatnonzero(_lengths(points, springs) <= 1e-9 * np.ptp(points, axis=0).max())
    if short.size:
        i, j = springs[short[0]]
        raise InputError(f"spring {short[0]} from point {i} to {j} has no length", "two places", "move or merge them")
    loose = np.setdiff1d(np.arange(count), springs)
    if loose.size:
        raise InputError(
            f"no spring holds point {loose[0]}", "every point joined to another", "join it or leave it out"
        )
    if masses.ndim > 1 or (masses.ndim == 1 and len(masses) != count):
        raise UsageError(f"masses of shape {masses.shape}", f"one number, or one for each of {count} points")
    wrong = np.flatnonzero(~(np.isfinite(masses) & (masses > 0.0)))
    if wrong.size:
        of = f" of point {wrong[0]}" if masses.ndim else ""
        raise UsageError(f"a mass of {masses.reshape(-1)[wrong[0]]:g} kg{of}", "a positive number", "correct it")


def from_file(path: str | Path, units: str = "m") -> MassSpring:
    """Return a net by an OBJ file, free to fall: springs are its lines (`l`), or the edges of its faces."""
    from vid2phys.io.net import load_net

    net = load_net(path, units, units_flag="--body-units")
    return MassSpring(net.points, net.springs, (), faces=net.faces)
