"""Articulated bodies: links on joints, such as a hand on its palm or an arm on its stand.

The configuration is the joint coordinates, and the Jacobian is the geometric one of a kinematic tree.

Limits: the base is fixed, and links are rigid.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody, CameraRange, bounding_sphere
from vid2phys.engine.systems._joint_tree import JointTree
from vid2phys.types import Array, Mesh

CAMERAS = CameraRange(azimuth=(-55.0, 60.0), elevation=(15.0, 75.0))
_WIDEST = {"revolute": np.pi, "prismatic": 0.2}  # half range of joints without limits, rad or m
_BEYOND = 0.03  # share of a joint's range by which it may pass its soft stops
_SPHERE_SAMPLES = 150
_SPARSE = 0.1  # distance of places on the surface, as a share of the workspace's radius
_MOST_STEPS = 40  # of such places along an edge
_APART = 0.35  # least distance of a link's two points, as a share of its length


class JointBody(ArticulatedBody):
    """A `JointTree` on a fixed base.

    Each link has two keypoints: the end that its joint moves most (the next joint's centre, or the tip), and its
    middle.
    """

    def __init__(self, system: JointTree, cameras: CameraRange = CAMERAS) -> None:
        """Set up the body. Raises ValueError for a free base or a system without a mesh."""
        robot = system.robot
        if robot.free_base or system.surface is None:
            raise ValueError("an articulated body needs a fixed base and a mesh")
        self.system: JointTree = system
        self.cameras = cameras
        self.mesh = system.surface
        self.names = tuple(robot.joint_names)
        self.rest = system.rest_state()[: len(self.names)]
        widest = np.array([_WIDEST[kind] for kind in robot.joint_types])
        lower = np.where(np.isfinite(robot.lower), robot.lower, self.rest - widest)
        upper = np.where(np.isfinite(robot.upper), robot.upper, self.rest + widest)
        self.prior_mean = 0.5 * (lower + upper)
        self._half = 0.5 * (upper - lower)
        self.prior_std = self._half / np.sqrt(3.0)  # standard deviation of a uniform distribution within the limits
        beyond = np.where(np.isfinite(robot.lower) & np.isfinite(robot.upper), 2.0 * _BEYOND * self._half, np.inf)
        self.lower, self.upper = lower - beyond, upper + beyond
        self.points_body = link_points(system)
        rng = np.random.default_rng(0)
        some = [self.vertices(self.sample(rng)) for _ in range(_SPHERE_SAMPLES)]
        self.center_m, self.radius_m = bounding_sphere(np.stack(some))

    @property
    def recipe(self) -> str:
        """See `ArticulatedBody.recipe`."""
        return f"joints/1 {self.system.name} {self.names} {self.cameras}"

    def vertices(self, configuration: Array) -> Array:
        """See `ArticulatedBody.vertices`; a vertex belongs to the link that its faces are a part of."""
        return self._placed(configuration, *self._vertices_in_links)

    def jacobian(self, configuration: Array, vertices: NDArray[np.int64]) -> Array:
        """See `ArticulatedBody.jacobian`."""
        links, points = self._vertices_in_links
        return self._slopes(configuration, links[vertices], points[vertices])

    @property
    def is_angle(self) -> NDArray[np.bool_]:
        """See `ArticulatedBody.is_angle`."""
        return np.array([kind == "revolute" for kind in self.system.robot.joint_types])

    def all_vertices(self, configurations: Array) -> Array:
        """See `ArticulatedBody.all_vertices`."""
        return self._placed(configurations, *self._vertices_in_links)

    def surface(self, configuration: Array) -> Array:
        """See `ArticulatedBody.surface`."""
        return self._placed(configuration, *self._places_in_links)

    def surface_jacobian(self, configuration: Array, places: NDArray[np.int64]) -> Array:
        """See `ArticulatedBody.surface_jacobian`."""
        links, points = self._places_in_links
        return self._slopes(configuration, links[places], points[places])

    def points(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points`."""
        return self._placed(configurations, *self._points_in_links)

    def points_jacobian(self, configurations: Array) -> Array:
        """See `ArticulatedBody.points_jacobian`."""
        return self._slopes(configurations, *self._points_in_links)

    def _placed(self, configurations: Array, links: NDArray[np.int64], points: Array) -> Array:
        """Return the places [..., K, 3] of points [K, 3] in the axes of links [K], m."""
        rotated, placed = self.system.frames(self.states(configurations, np.zeros_like(configurations)))
        return np.asarray((rotated[..., links, :, :] @ points[..., None])[..., 0] + placed[..., links, :])

    def _slopes(self, configurations: Array, links: NDArray[np.int64], points: Array) -> Array:
        """Return the derivatives [..., K, 3, D] of `_placed`, for pairs of a point and a joint that moves it."""
        rotated, placed = self.system.frames(self.states(configurations, np.zeros_like(configurations)))
        point, joint = np.nonzero(self.system.ancestry()[links][:, 1:])
        x = (rotated[..., links[point], :, :] @ points[point][..., None])[..., 0] + placed[..., links[point], :]
        axes = (rotated[..., joint + 1, :, :] @ self.system.robot.axes[joint + 1][..., None])[..., 0]
        revolute = np.array([kind == "revolute" for kind in self.system.robot.joint_types])[joint]
        slope = np.where(revolute[:, None], _cross(axes, x - placed[..., joint + 1, :]), axes)
        jacobian = np.zeros((*np.shape(configurations)[:-1], len(points), 3, len(self.names)))
        jacobian[..., point, :, joint] = np.moveaxis(slope, -2, 0)
        return jacobian

    def sample(self, rng: np.random.Generator) -> Array:
        """Draw independent joints, or joints that bend alike, or a configuration near the rest."""
        count = len(self.names)
        share, kind = rng.uniform(-1.0, 1.0, count), rng.random()
        if kind < 0.35:
            share = rng.uniform(-1.0, 1.0) + rng.normal(0.0, 0.3, count)
        elif kind < 0.45:
            share = (self.rest - self.prior_mean) / self._half + rng.normal(0.0, 0.12, count)
        return self._within(self.prior_mean + self._half * share)

    def sample_motion(self, rng: np.random.Generator, times_s: Array) -> Array:
        """See `ArticulatedBody.sample_motion`: from a random configuration, each joint in three slow sines."""
        count = len(self.names)
        frequency = rng.uniform(0.3, 2.5, (3, count))
        phase = rng.uniform(-np.pi, np.pi, (3, count))
        waves = np.sin(2.0 * np.pi * frequency * times_s[:, None, None] + phase).sum(axis=1)
        return self._within(self.sample(rng) + waves * self._half * rng.uniform(0.0, 0.25, count))

    def states(self, configurations: Array, rates: Array) -> Array:
        """See `ArticulatedBody.states`."""
        return np.concatenate([configurations, rates], axis=-1)

    def configurations(self, states: Array) -> Array:
        """See `ArticulatedBody.configurations`."""
        return np.asarray(states[..., : len(self.names)])

    def _within(self, configurations: Array) -> Array:
        return np.clip(configurations, self.lower, self.upper)

    @cached_property
    def _points_in_links(self) -> tuple[NDArray[np.int64], Array]:
        """Return the link [K] of each keypoint, and its place [K, 3] in the link's axes."""
        return self._in_links(self.system.links_of(self.points_body), self.points_body)

    @cached_property
    def _vertices_in_links(self) -> tuple[NDArray[np.int64], Array]:
        """Return the link [V] of each vertex, and its place [V, 3] in the link's axes."""
        links = np.zeros(len(self.mesh.vertices), dtype=np.int64)
        links[self.mesh.faces.ravel()] = np.repeat(self.mesh.part, 3)
        return self._in_links(links, self.mesh.vertices)

    @cached_property
    def _places_in_links(self) -> tuple[NDArray[np.int64], Array]:
        """Return the link [M] of each place on the surface, and its place [M, 3] in the link's axes."""
        places, of = _between(self.mesh, _SPARSE * self.radius_m)
        links, points = self._vertices_in_links
        more_links, more_points = self._in_links(self.mesh.part[of], places)
        return np.concatenate([links, more_links]), np.concatenate([points, more_points])

    def _in_links(self, links: NDArray[np.int64], drawn: Array) -> tuple[NDArray[np.int64], Array]:
        rotated, placed = self.system.frames(self.system.drawn_state())
        return links, np.einsum("kji,kj->ki", rotated[links], drawn - placed[links])


def link_points(system: JointTree) -> Array:
    """Return two keypoints per link at rest, [K, 3] m in the base's axes; together they determine every joint.

    The first point is the next joint's centre or the tip of the link; if its joint moves another vertex twice as far,
    it is that vertex. The second point is the link's middle, or, close to the first one, the vertex farthest from it.
    """
    assert system.surface is not None
    robot, mesh = system.robot, system.surface
    rotated, placed = system.frames(system.drawn_state())
    chosen = []
    for link in range(1, len(robot.parents)):
        vertices = mesh.vertices[np.unique(mesh.faces[mesh.part == link])]
        if not len(vertices):
            continue
        joint, axis = placed[link], rotated[link] @ robot.axes[link]
        children = placed[np.flatnonzero(np.asarray(robot.parents) == link)]
        candidates = children if len(children) else _tip(vertices, joint)[None]
        farthest = vertices[int(np.argmax(_lever(vertices, joint, axis)))]
        best = candidates[int(np.argmax(_lever(candidates, joint, axis)))]
        if _lever(best[None], joint, axis)[0] < 0.5 * _lever(farthest[None], joint, axis)[0]:
            best = farthest
        middle = 0.5 * (vertices.min(axis=0) + vertices.max(axis=0))
        away = np.linalg.norm(vertices - best, axis=1)
        second = middle if np.linalg.norm(middle - best) > _APART * away.max() else vertices[int(np.argmax(away))]
        chosen += [best, second]
    return np.array(chosen)


def _between(mesh: Mesh, apart_m: float) -> tuple[Array, NDArray[np.int64]]:
    """Return places [M, 3] inside and on the edges of faces that are larger than `apart_m`, and the face of each."""
    corners = mesh.vertices[mesh.faces]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    places, of = [np.zeros((0, 3))], [np.zeros(0, dtype=np.int64)]
    for face in np.flatnonzero(longest > apart_m).tolist():
        count = min(int(np.ceil(longest[face] / apart_m)), _MOST_STEPS)
        u, v = np.mgrid[: count + 1, : count + 1] / count
        weights = np.stack([1.0 - u - v, u, v], axis=-1)[u + v < 1.0 + 1e-9]
        places.append(weights @ corners[face])
        of.append(np.full(len(weights), face))
    return np.concatenate(places), np.concatenate(of)


def _cross(a: Array, b: Array) -> Array:
    """Return cross products along the last axis, in a tenth of the time of `np.cross`."""
    x, y = a[..., [1, 2, 0]], b[..., [1, 2, 0]]
    return (a * y - x * b)[..., [1, 2, 0]]


def _lever(points: Array, joint: Array, axis: Array) -> Array:
    """Return the distances [N] of points [N, 3] from a joint's axis."""
    return np.linalg.norm(np.cross(points - joint, axis), axis=-1)


def _tip(vertices: Array, joint: Array) -> Array:
    """Return the mean of the vertices at a link's end, which are farthest from its joint along the link."""
    along = vertices - joint
    direction = along.mean(axis=0)
    reach = along @ (direction / max(float(np.linalg.norm(direction)), 1e-12))
    return np.asarray(vertices[reach >= reach.max() - 0.1 * np.ptp(reach)].mean(axis=0))
