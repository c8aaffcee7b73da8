"""What bodies made of vertices share: soft bodies, cloth, springs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.system import WORLD
from vid2phys.engine.systems._flat import FlatSystem
from vid2phys.errors import InputError, UsageError
from vid2phys.types import Array, Mesh, Parameter

if TYPE_CHECKING:
    from torch import Tensor

Indices = NDArray[np.int64]
_NEAREST = 16  # elements by centroid among which the one that holds a point is looked for
NOT_SEEN = "the tracker does not estimate the positions of single points of a body that bends freely"
START_VELOCITY = {"start_velocity": tuple(f"start_velocity_{axis}" for axis in "xyz")}
"""The group of the unknowns that `solvers.vertex_fit` adds: the first velocity of all free vertices."""
CONTACT_PARAMETERS = ("k_e", "k_d", "k_f", "mu")
CONTACT_NEEDS = {
    "k_e": "rest or an impact on the ground, with a known mass",
    "k_d": "the rebound of an impact on the ground",
    "k_f": "the onset of sliding on the ground",
    "mu": "sliding or an oblique impact on the ground",
}
_KEPT = 8  # sets of points whose place in the mesh is remembered


class PointSystem(FlatSystem):
    """A body whose state is where its V vertices are and how they move.

    State [6 V]: world positions of all vertices (m: x, y, z of vertex 0, of vertex 1 ...), then their velocities (m/s)
    in the same order. `rest_m` [V, 3] is the shape at rest, `pinned` the sorted indices of the vertices that never
    move, `free` [V] 0.0 for those and 1.0 for all others. The pose of the body is the mean of its vertices, never
    turned.
    """

    state_frames: Mapping[str, str] = {"position": WORLD, "velocity": WORLD}
    vertex: ClassVar[str] = "vertex"  # what messages and state names call one

    def __init__(self, rest_m: Array, *, pinned: Indices | tuple[int, ...] = ()) -> None:
        """Raises InputError for a pinned vertex that is not there."""
        self.rest_m: Array = np.array(rest_m, dtype=float)
        count = len(self.rest_m)
        self.pinned: Indices = np.unique(np.asarray(pinned, dtype=np.int64))
        if self.pinned.size and (self.pinned[0] < 0 or self.pinned[-1] >= count):
            wrong = self.pinned[(self.pinned < 0) | (self.pinned >= count)][0]
            raise InputError(f"pinned {self.vertex} {wrong}", f"0 to {count - 1}", "name one of the body's")
        self.free: Array = np.ones(count)
        self.free[self.pinned] = 0.0
        self.state_names = tuple(
            f"{quantity}_{axis}_{unit} of {self.vertex} {i}"
            for quantity, unit in (("position", "m"), ("velocity", "m_s"))
            for i in range(count)
            for axis in "xyz"
        )
        self.tangent_names = self.state_names

    def state(self, positions_m: Array, velocities_m_s: Array | float = 0.0) -> Array:
        """Return the flat states [..., 6 V] of positions and velocities [..., V, 3]."""
        x = np.asarray(positions_m, dtype=float)
        v = np.broadcast_to(np.asarray(velocities_m_s, dtype=float), x.shape)
        return np.concatenate([x.reshape(*x.shape[:-2], -1), v.reshape(*x.shape[:-2], -1)], axis=-1)

    def positions(self, states: Array) -> Array:
        """Return the positions of the vertices [..., V, 3] m."""
        states = np.asarray(states, dtype=float)
        return states[..., : self.rest_m.size].reshape(*states.shape[:-1], -1, 3)

    def velocities(self, states: Array) -> Array:
        """Return the velocities of the vertices [..., V, 3] m/s."""
        states = np.asarray(states, dtype=float)
        return states[..., self.rest_m.size :].reshape(*states.shape[:-1], -1, 3)

    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """See `System.body_pose`: the mean of the vertices, and no rotation."""
        centre = self.positions(states).mean(axis=-2)
        return centre, np.broadcast_to(np.array([1.0, 0.0, 0.0, 0.0]), (*centre.shape[:-1], 4))

    def vertices(self, state: Array, mesh_vertices: Array) -> Array:
        """See `System.vertices`."""
        return self.keypoints(state, mesh_vertices)

    def hover_controls(self, parameters: Array) -> Array:
        """See `System.hover_controls`: none is needed."""
        return np.zeros(len(self.control_names))


class VertexBody(PointSystem):
    """A body of vertices that the user gives and that a clip shows as a whole (`solvers.vertex_fit`).

    `weight` is the parameter of its mass, which the motion alone does not show, and `weight_of` whose mass that is.
    `step_share` is the longest step of a fit, as a share of the longest stable one.
    """

    weight: ClassVar[str]
    weight_of: ClassVar[str]
    step_share: ClassVar[float]

    @abstractmethod
    def clamped(self, pinned: Indices) -> VertexBody:
        """Return the body, without a ground, with these vertices pinned and no others."""

    @abstractmethod
    def placed(self, rotation: Array, shift: Array) -> VertexBody:
        """Return the body, without a ground, rotated by `rotation` [3, 3] and then moved by `shift` [3] m."""

    @abstractmethod
    def refined(self) -> VertexBody | None:
        """Return the body, without a ground, on a finer mesh, whose first vertices are its own; None where there is no
        finer one."""

    def with_clamps(self, pinned: Indices, loaded: Indices | None, load_kg: float) -> VertexBody:
        """Return `clamped`. Raises UsageError for a load: there is none on such a body."""
        if load_kg:
            called = self.capabilities.called
            raise UsageError(f"--load for '{self.name}'", f"a {called} without a load", "leave it out")
        return self.clamped(pinned)


class ParticleSystem(PointSystem):
    """A body of vertices joined by elements (tets, triangles, segments): `elements` [T, 2, 3 or 4].

    Points and meshes are given in the shape at rest. A point is carried by the nearest element: its barycentric
    coordinates there stay what they are (an affine motion, also of points outside; of a triangle's or segment's points
    the part off it is dropped).
    """

    ground: bool = False  # whether vertices press on the plane z = 0

    def __init__(self, rest_m: Array, elements: Indices, *, pinned: Indices | tuple[int, ...] = ()) -> None:
        """Raises InputError for arrays that are no mesh, naming what is wrong with them."""
        self.elements: Indices = np.array(elements, dtype=np.int64)
        check_mesh(np.array(rest_m, dtype=float), self.elements)
        super().__init__(rest_m, pinned=pinned)
        self._places: dict[bytes, tuple[Indices, Array]] = {}

    def rest_state(self) -> Array:
        """See `System.rest_state`: the shape at rest where it was given, raised onto the ground unless it is pinned."""
        below = max(0.0, -float(self.rest_m[:, 2].min())) if self.ground and not self.pinned.size else 0.0
        return self.state(self.rest_m + np.array([0.0, 0.0, below]))

    def keypoints(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints`; points in the shape at rest."""
        corners, weights = self.place(points_body)
        return np.einsum("kc,...kcx->...kx", weights, self.positions(states)[..., corners, :])

    def tensor_points(self, states: Tensor, points_body: Array, body: int = 0) -> Tensor:
        """See `System.tensor_points`; points in the shape at rest."""
        import torch

        corners, weights = self.place(points_body)
        positions = states[:, : self.rest_m.size].reshape(len(states), -1, 3)
        return torch.einsum("kc,fkcx->fkx", torch.from_numpy(weights).to(states), positions[:, corners])

    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """See `System.keypoints_jacobian`; the same for all states."""
        corners, weights = self.place(points_body)
        jacobian = np.zeros((len(corners), 3, len(self.state_names)))
        point = np.arange(len(corners))[:, None]
        for axis in range(3):
            jacobian[point, axis, 3 * corners + axis] = weights
        return np.broadcast_to(jacobian, (*np.shape(states)[:-1], *jacobian.shape))

    def place(self, points: Array) -> tuple[Indices, Array]:
        """Return the vertices [K, C] that carry points [K, 3], and their weights: `embed`, remembered for the sets used
        last.
        """
        points = np.ascontiguousarray(points, dtype=float)
        key = points.tobytes()
        if key not in self._places:
            if len(self._places) == _KEPT:
                self._places.pop(next(iter(self._places)))
            self._places[key] = embed(points, self.rest_m, self.elements)
        return self._places[key]


def own_surface(rest_m: Array, triangles: Indices, name: str) -> Mesh:
    """Return the mesh of a body whose surface are these triangles [F, 3] of its vertices."""
    return Mesh(rest_m, triangles, np.zeros(len(triangles), dtype=np.int64), name=name)


def gravity_parameter() -> Parameter:
    """Return the gravity of the scene, along -z."""
    return Parameter("gravity", "m/s^2", 9.81, 0.0, 30.0)


def embed(points: Array, vertices: Array, elements: Indices) -> tuple[Indices, Array]:
    """Return the vertices [K, C] and barycentric weights [K, C] (sum 1) of points [K, 3] in their nearest elements [T,
    C].

    Nearest of the elements whose centroids are nearest, by the distance to the point with its weights clipped.
    """
    from scipy.spatial import cKDTree

    corners = vertices[elements]
    count = min(_NEAREST, len(elements))
    near = cKDTree(corners.mean(axis=1)).query(points, k=count)[1].reshape(len(points), count)
    edges = np.swapaxes(corners[near][..., 1:, :] - corners[near][..., :1, :], -1, -2)
    offset = points[:, None] - corners[near][..., 0, :]
    inner = np.einsum("knxc,knx->knc", np.swapaxes(np.linalg.pinv(edges), -1, -2), offset)
    weights = np.concatenate([1.0 - inner.sum(axis=-1, keepdims=True), inner], axis=-1)
    clipped = np.clip(weights, 0.0, None)
    clipped /= clipped.sum(axis=-1, keepdims=True)
    misses = np.linalg.norm(np.einsum("knc,kncx->knx", clipped, corners[near]) - points[:, None], axis=-1)
    best = misses.argmin(axis=1)
    row = np.arange(len(points))
    found, weights = elements[near[row, best]], weights[row, best]
    gap, vertex = cKDTree(vertices).query(points)
    on = gap == 0.0  # a vertex is itself, also where large elements' centroids are far
    found[on], weights[on] = vertex[on, None], 0.0
    weights[on, 0] = 1.0
    return found, weights


def check_mesh(vertices: Array, elements: Indices) -> None:
    """Raise InputError for arrays that are no mesh."""
    if vertices.ndim != 2 or vertices.shape[1] != 3:
        raise InputError(f"vertices of shape {vertices.shape}", "[V, 3]", "give positions in metres, a row a vertex")
    if elements.ndim != 2 or not len(elements):
        raise InputError(f"elements of shape {elements.shape}", "[T, 2, 3 or 4]", "give vertex indices")
    if not np.isfinite(vertices).all():
        raise InputError(f"vertex {np.argwhere(~np.isfinite(vertices))[0][0]} is not finite", "numbers", "correct it")
    if elements.min() < 0 or elements.max() >= len(vertices):
        row = int(np.argmax(((elements < 0) | (elements >= len(vertices))).any(axis=1)))
        raise InputError(
            f"element {row} names vertices {elements[row].tolist()}", f"0 to {len(vertices) - 1}", "correct the mesh"
        )
    unused = np.setdiff1d(np.arange(len(vertices)), elements)
    if unused.size:
        raise InputError(
            f"vertex {unused[0]} ({unused.size} in all) belongs to no element",
            "a mesh without loose vertices",
            "remove them, and renumber the elements",
        )
