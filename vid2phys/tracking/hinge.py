"""A rigid body on a hinge before a camera: its poses by one angle a frame, and a first hinge from a track of poses.

Purpose: a single image of a thin body confuses its tilt with its distance. All poses on one hinge share axis and pivot,
so that the whole swing shows what single frames do not.

Method: two frames of a track propose a hinge, the axis of the rotation from one to the other (Ball, 1900: each motion
is a screw). Proposals are tried on the principal axes near them, too. Proposals are scored by where they take the
body in the images of all frames, since image positions are right where tilt and distance are not (RANSAC; Fischler and
Bolles, CACM 1981). Gauss-Newton steps then move hinge and angles together; the angles are eliminated first (Triggs et
al., "Bundle adjustment", 2000, section 6).

Limits: the axis is fixed in the body and before the camera, and the track shows the body in images where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes
from vid2phys.geometry import Pose, matrix_from_rotvec, quat_from_matrix, rotvec_from_quat
from vid2phys.indices import evenly
from vid2phys.io.faces import face_areas
from vid2phys.risp.networks.model import Shape
from vid2phys.types import Array, Mesh

SIZE = 10  # coordinates of a hinge: six of its pose, two of the axis and two of the point in the body
_STEP = 1e-5
_SAME_ELEMENT = 0.05  # of matrices: rotations that differ by less are one symmetry element


@dataclass(frozen=True, kw_only=True)
class HingeStartConfig:
    """Settings of `hinge_starts`."""

    frames: int = 40
    """Number of frames that score a proposal."""
    pairs: int = 400
    """Number of pairs of frames that propose a hinge."""
    least_angle_rad: float = 0.15
    """Least rotation between the frames of a pair."""
    angles: int = 90
    """Number of angles that are tried in each frame."""
    error: float = 0.06
    """Usual distance in the image of a body's points from where the track has them, in radii of the body."""
    kept: int = 12
    """Number of proposals that are refined."""
    rounds: int = 25
    """Number of Gauss-Newton steps."""
    apart_rad: float = 0.1
    """Angle between the axes of starts that differ."""
    starts: int = 3
    """Largest number of starts."""
    agreeing: float = 0.6
    """Least share of frames that agree with a start, as a share of those that agree with the best one."""
    snapped: int = 3
    """Largest number of starts on known axes of the body."""
    near_rad: float = 0.7
    """Angle to a known axis of the body within which a proposal is tried on that axis, too."""


DEFAULTS = HingeStartConfig()


@dataclass(frozen=True)
class Hinge:
    """A body on a hinge.

    Attributes:
        place: pose camera_from_body at angle zero.
        axis: [3] unit vector along the axis, body axes; angles are right-handed about it.
        point: [3] on the axis, body axes, m.
    """

    place: Pose
    axis: Array
    point: Array

    def poses(self, angles: Array) -> Pose:
        """Return the poses camera_from_body [T] at angles [T], rad."""
        rotation = matrix_from_rotvec(np.asarray(angles)[:, None] * self.axis)
        rotated = self.place.rotation @ rotation
        fixed = self.place.rotation @ self.point + self.place.translation
        return Pose(rotated, fixed - rotated @ self.point)

    def beside_m(self, mesh: Mesh) -> float:
        """Return how far the axis passes beside the convex hull of a mesh, m; zero where it meets the hull.

        A pin may pass through the hollow of a bracket.
        """
        import cv2

        points = (mesh.vertices - self.point) @ perpendicular(self.axis)
        corners = points[cv2.convexHull(points.astype(np.float32), returnPoints=False)[:, 0]]
        edges = np.roll(corners, -1, axis=0) - corners
        sides = edges[:, 0] * corners[:, 1] - edges[:, 1] * corners[:, 0]  # of the axis, by each edge
        if (sides > 0.0).all() or (sides < 0.0).all():
            return 0.0
        along = np.clip(-(corners * edges).sum(axis=-1) / np.maximum((edges**2).sum(axis=-1), 1e-18), 0.0, 1.0)
        return float(np.linalg.norm(corners + along[:, None] * edges, axis=-1).min())

    def retract(self, step: Array) -> Hinge:
        """Return the hinge after a step [10]: `Pose.retract`, radians of the axis and metres of the point."""
        across = perpendicular(self.axis)
        axis = self.axis + across @ step[6:8]
        return Hinge(self.place.retract(step[:6]), axis / np.linalg.norm(axis), self.point + across @ step[8:10])

    def rolled(self, rotation: Array, center: Array) -> Hinge:
        """Return the same hinge before the camera, with the body rotated [3, 3] about a point [3] of it."""
        place = self.place.compose(Pose(rotation, center - rotation @ center))
        return Hinge(place, self.axis @ rotation, (self.point - center) @ rotation + center)

    def slopes(self, angles: Array) -> Array:
        """Return by how much poses [T] move with the hinge's coordinates and with the angle, [T, 6, 11]."""
        at, columns = self.poses(angles), []
        for unit in _STEP * np.eye(SIZE):
            columns.append(at.step_to(self.retract(unit).poses(angles)) - at.step_to(self.retract(-unit).poses(angles)))
        columns.append(at.step_to(self.poses(angles + _STEP)) - at.step_to(self.poses(angles - _STEP)))
        return np.stack(columns, axis=-1) / (2.0 * _STEP)


@dataclass(frozen=True)
class Adjustment:
    """A Gauss-Newton step of a hinge and of the angles in T frames.

    Attributes:
        hinge: after the step.
        angles: [T] after the step.
        step: [10] of the hinge, and [T] of the angles.
        moved: root mean square motion of the poses, in local coordinates.
        covariance: [10, 10] of the hinge. An angle that all frames share is no motion: its variance is zero.
        own: [T] variance of each angle on a known hinge.
        by_hinge: [T, 10] by how much the angles follow the hinge.
    """

    hinge: Hinge
    angles: Array
    step: tuple[Array, Array]
    moved: float
    covariance: Array
    own: Array
    by_hinge: Array

    def longer(self, factor: float) -> tuple[Hinge, Array]:
        """Return hinge and angles [T] after a step that is longer by a factor."""
        return self.hinge.retract((factor - 1.0) * self.step[0]), self.angles + (factor - 1.0) * self.step[1]


def adjusted(
    hinge: Hinge, angles: Array, information: Array, pull: Array, most: float = np.inf, fixed: bool = False
) -> Adjustment:
    """Move hinge and angles [T] to where quadratic models of the frames lead.

    A frame with the body behind the camera states nothing.

    Args:
        hinge: where the models are.
        angles: [T] where they are.
        information: [T, 6, 6] about the pose of each frame, in local coordinates.
        pull: [T, 6] information times the step to the best pose.
        most: largest step of a pose, in local coordinates.
        fixed: whether the axis stays where it is in the body.
    """
    before = hinge.poses(angles).translation[:, 2] > 0.0
    with np.errstate(invalid="ignore"):  # of a body that a step takes behind the camera
        slopes = np.where(before[:, None, None], np.nan_to_num(hinge.slopes(angles)), 0.0)
    joint = np.swapaxes(slopes, -1, -2) @ information @ slopes
    gradient = (np.swapaxes(slopes, -1, -2) @ pull[..., None])[..., 0]
    own = 1.0 / np.maximum(joint[:, SIZE, SIZE], 1e-12)
    beside = joint[:, :SIZE, SIZE]
    reduced = (joint[:, :SIZE, :SIZE] - own[:, None, None] * beside[:, :, None] * beside[:, None, :]).sum(axis=0)
    wanted = (gradient[:, :SIZE] - (own * gradient[:, SIZE])[:, None] * beside).sum(axis=0)
    if fixed:
        reduced[6:8], reduced[:, 6:8], wanted[6:8] = 0.0, 0.0, 0.0
    scale = 1.0 / np.sqrt(np.maximum(np.diag(reduced), 1e-12))
    covariance = scale[:, None] * np.linalg.pinv(scale[:, None] * reduced * scale, rcond=1e-9, hermitian=True) * scale
    step = covariance @ wanted
    by_hinge = -own[:, None] * beside
    turned = own * gradient[:, SIZE] + by_hinge @ step
    each = (slopes @ np.concatenate([np.tile(step, (len(angles), 1)), turned[:, None]], axis=1)[..., None])[..., 0]
    moved = float(np.sqrt((each**2).mean()))
    share = min(1.0, most / max(float(np.abs(each).max()), 1e-12))
    step, turned = share * step, share * turned
    return Adjustment(hinge.retract(step), angles + turned, (step, turned), moved, covariance, own, by_hinge)


@dataclass(frozen=True)
class HingeStart:
    """A first hinge: the hinge, its angles [T] in all frames of the track, and the share of frames that agree."""

    hinge: Hinge
    angles: Array
    agreement: float


def hinge_starts(
    poses: Pose, shape: Shape, radius_m: float, axes: Array, config: HingeStartConfig = DEFAULTS
) -> list[HingeStart]:
    """Return hinges that explain where a track has the body in the images: the best ones, then those on known axes.

    Args:
        poses: [T] camera_from_body of the track.
        shape: points of the body and its symmetry.
        radius_m: of the body.
        axes: [N, 3] of the body on which hinges are likely: they are tried, too.
        config: settings.
    """
    images = _Images.of(poses, shape, radius_m, config)
    some = evenly(len(poses), config.frames)
    proposed = _proposals(poses, shape, config)
    on_axes = [fixed for hinge in proposed for fixed in snapped(hinge, axes, shape.center, config)]
    free = images.best(proposed, some, config.starts, fixed=False)
    free = [start for start in free if start.agreement > config.agreeing * free[0].agreement]
    return free + images.best(on_axes, some, config.snapped, fixed=True)


def principal_axes(mesh: Mesh) -> Array:
    """Return the principal axes [3, 3] of the surface of a mesh, one a row."""
    corners, area = mesh.vertices[mesh.faces], face_areas(mesh.vertices, mesh.faces)
    corners = corners - (area[:, None] * corners.mean(axis=1)).sum(axis=0) / area.sum()
    points, weight = np.concatenate([corners, corners.sum(axis=1, keepdims=True)], axis=1), area[:, None, None]
    return np.asarray(np.linalg.eigh((weight * np.swapaxes(points, 1, 2) @ points).sum(axis=0))[1].T)


def snapped(hinge: Hinge, axes: Array, center: Array, config: HingeStartConfig) -> list[Hinge]:
    """Return a hinge with its axis on the nearest principal axis of the body: the axis moved there, or the body."""
    axis = axes[int(np.abs(axes @ hinge.axis).argmax())]
    axis = axis * np.sign(axis @ hinge.axis)
    across = np.cross(axis, hinge.axis)
    size = float(np.linalg.norm(across))
    if size > np.sin(config.near_rad):
        return []
    rotvec = across * (np.arcsin(min(1.0, size)) / max(size, 1e-12))
    turned = hinge.rolled(matrix_from_rotvec(rotvec[None])[0], center)
    point = hinge.point - axis * (axis @ (hinge.point - center))
    return [replace(hinge, axis=axis, point=point), replace(turned, axis=axis)]


def rolled_starts(start: HingeStart, shape: Shape, vertices: Array) -> list[HingeStart]:
    """Return a start with the body rolled by a quarter about its longest axis to either side.

    Sides of a bar look alike in images where its width is all that differs, and no small step leads from one to the
    next. Where half a rotation is a symmetry element of the body, one start stands for both sides.

    Args:
        start: the start.
        shape: points of the body and its symmetry.
        vertices: [V, 3] of the body.
    """
    along = np.linalg.svd(vertices - vertices.mean(axis=0), full_matrices=False)[2][0]
    quarter, other, half = matrix_from_rotvec(np.array([0.5, -0.5, 1.0])[:, None] * np.pi * along)
    same = any(np.allclose(half, element, atol=_SAME_ELEMENT) for element in shape.rotations)
    rolls = [quarter] if same else [quarter, other]
    return [replace(start, hinge=start.hinge.rolled(roll, shape.center)) for roll in rolls]


def perpendicular(axis: Array) -> Array:
    """Return two unit vectors across an axis [3], [3, 2]."""
    first = np.cross(axis, np.eye(3)[int(np.argmin(np.abs(axis)))])
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(axis, first)], axis=1)


def _proposals(poses: Pose, shape: Shape, config: HingeStartConfig) -> list[Hinge]:
    """Return hinges on the axes of the rotations between pairs of frames."""
    rng, found = np.random.default_rng(0), list[Hinge]()
    for _ in range(4 * config.pairs):
        i, j = rng.integers(len(poses), size=2).tolist()
        element = shape.rotations[rng.integers(len(shape.rotations))]
        moved = poses[i].inverse().compose(poses[j].compose(Pose(element, shape.center - element @ shape.center)))
        rotvec = rotvec_from_quat(quat_from_matrix(moved.rotation))
        angle = float(np.linalg.norm(rotvec))
        if i == j or angle < config.least_angle_rad:
            continue
        axis = rotvec / angle
        point = np.linalg.lstsq(np.eye(3) - moved.rotation, moved.translation, rcond=1e-6)[0]
        found.append(Hinge(poses[i], axis, point - axis * (axis @ point)))
        if len(found) == config.pairs:
            break
    return found


def _distinct(
    scored: list[tuple[tuple[float, Array], Hinge]], config: HingeStartConfig
) -> list[tuple[tuple[float, Array], Hinge]]:
    """Return the best proposals with different axes."""
    chosen: list[tuple[tuple[float, Array], Hinge]] = []
    for each in scored:
        if len(chosen) < config.kept and all(axes_apart(each[1], other[1]) > config.apart_rad for other in chosen):
            chosen.append(each)
    return chosen


def axes_apart(a: Hinge, b: Hinge) -> float:
    """Return the angle between the axes of two hinges before the camera, rad."""
    return float(np.arccos(min(1.0, abs(float((a.place.rotation @ a.axis) @ (b.place.rotation @ b.axis))))))


@dataclass(frozen=True)
class _Images:
    """Where a track has the points of a body, [T, G, V, 2] in radii of the body, under each symmetry element."""

    points: Array  # [V, 3]
    size: float  # of the body as a bearing
    seen: Array
    config: HingeStartConfig

    @staticmethod
    def of(poses: Pose, shape: Shape, radius_m: float, config: HingeStartConfig) -> _Images:
        points = shape.points_body
        size = radius_m / float(np.median(np.linalg.norm(poses.translation, axis=1)))
        under = (points - shape.center) @ np.swapaxes(shape.rotations, -1, -2) + shape.center  # [G, V, 3]
        placed = np.einsum("tij,gvj->tgvi", poses.rotation, under) + poses.translation[:, None, None]
        return _Images(points, size, _bearings(placed) / size, config)

    def best(self, hinges: list[Hinge], rows: NDArray[np.int64], most: int, fixed: bool) -> list[HingeStart]:
        """Return the best refined hinges with different axes, at most `most`. fixed: on their axes of the body."""
        scored = [(self.scored(hinge, rows), hinge) for hinge in hinges]
        scored.sort(key=lambda each: each[0][0])
        distinct = _distinct(scored, self.config)
        found = list(in_processes(lambda each: self.refined(each[1], each[0][1], rows, fixed), distinct))
        found.sort(key=lambda each: each[0])
        chosen: list[HingeStart] = []
        for _, start in found:
            if len(chosen) < most and all(axes_apart(start.hinge, o.hinge) > self.config.apart_rad for o in chosen):
                chosen.append(start)
        return chosen

    def off(self, poses: Pose, rows: NDArray[np.int64]) -> Array:
        """Return the residuals [T, V, 2] of poses [T] in frames `rows` [T], under the element that fits best."""
        at = _bearings(poses.apply(self.points)) / self.size
        off = at[:, None] - self.seen[rows]
        best = (off**2).sum(axis=(-1, -2)).argmin(axis=1)
        return np.asarray(off[np.arange(len(rows)), best])

    def cost(self, squares: Array) -> Array:
        """Return the robust cost [...] of mean squared residuals [...]."""
        share = squares / self.config.error**2
        return np.asarray(share / (1.0 + share))

    def scored(self, hinge: Hinge, rows: NDArray[np.int64]) -> tuple[float, Array]:
        """Return the cost of a hinge, and the best angle [n] in each of the frames `rows`."""
        tried = np.linspace(-np.pi, np.pi, self.config.angles, endpoint=False)
        at = _bearings(hinge.poses(tried).apply(self.points)).reshape(len(tried), -1) / self.size
        seen = self.seen[rows].reshape(*self.seen[rows].shape[:2], -1)
        squares = (at**2).sum(-1) + (seen**2).sum(-1)[..., None] - 2.0 * seen @ at.T  # [n, G, angles]
        least = squares.min(axis=1) / len(self.points)
        best = least.argmin(axis=1)
        return float(self.cost(least[np.arange(len(rows)), best]).mean()), tried[best]

    def refined(
        self, hinge: Hinge, angles: Array, rows: NDArray[np.int64], fixed: bool = False
    ) -> tuple[float, HingeStart]:
        """Return the cost and the hinge after Gauss-Newton steps, with the angles of all frames."""
        for _ in range(self.config.rounds):
            models = self._models(hinge.poses(angles), rows)
            step = adjusted(hinge, angles, *models, most=0.2, fixed=fixed)
            hinge, angles = step.hinge, step.angles
            if step.moved < 1e-4:
                break
        cost, _ = self.scored(hinge, rows)
        whole = np.arange(len(self.seen))
        angles = self.scored(hinge, whole)[1]
        for _ in range(5):
            angles = angles + self._turned(hinge, angles, whole)
        squares = (self.off(hinge.poses(angles), whole) ** 2).sum(axis=(-1, -2)) / len(self.points)
        return cost, HingeStart(hinge, angles, float((squares < 4.0 * self.config.error**2).mean()))

    def _models(self, poses: Pose, rows: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return information [n, 6, 6] and pull [n, 6] of the frames `rows`, for poses [n]."""
        off = self.off(poses, rows)
        weight = (1.0 + (off**2).sum(axis=(-1, -2)) / len(self.points) / self.config.error**2) ** -2.0
        columns = []
        for unit in _STEP * np.eye(6):
            moved = [_bearings(poses.retract(sign * unit).apply(self.points)) for sign in (1.0, -1.0)]
            columns.append((moved[0] - moved[1]) / (2.0 * _STEP * self.size))
        jacobian = np.stack(columns, axis=-1).reshape(len(rows), -1, 6)
        weighted = weight[:, None, None] * np.swapaxes(jacobian, -1, -2)
        return weighted @ jacobian, -(weighted @ off.reshape(len(rows), -1, 1))[..., 0]

    def _turned(self, hinge: Hinge, angles: Array, rows: NDArray[np.int64]) -> Array:
        """Return the steps of the angles [n] on a known hinge."""
        information, pull = self._models(hinge.poses(angles), rows)
        slope = hinge.slopes(angles)[..., SIZE]
        curvature = np.einsum("ti,tij,tj->t", slope, information, slope)
        return np.asarray(np.clip((slope * pull).sum(axis=-1) / np.maximum(curvature, 1e-12), -0.2, 0.2))


def _bearings(points: Array) -> Array:
    """Return bearings [..., 2] of points [..., 3]."""
    return np.asarray(points[..., :2] / points[..., 2:])
