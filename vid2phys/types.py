"""Define the types that every package shares: frozen, SI units, shapes in the field docs.

Conventions: world z is up; quaternions are wxyz and body-to-world; camera axes are OpenCV's (x right, y down, z
forward); pixel centres are at integers, so the image spans [-0.5, width - 0.5]. Of vid2phys the module imports
`geometry` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vid2phys.geometry import Pose

Array = NDArray[np.float64]
Transform = Literal["identity", "log"]
Side = Literal["top", "bottom", "left", "right"]
_MOST_LOG = 300.0  # either way: still a number


@dataclass(frozen=True)
class Camera:
    """A calibrated camera, static or with a pose for each frame of a clip.

    K: pinhole matrix [px], shape [3, 3]. distortion: coefficients in OpenCV's order, shape [D] (empty: none). model:
    `plumb_bob` (OpenCV 4 or 5), `rational_polynomial` (8), `equidistant` (fisheye, 4), or `omni` (xi, then 4).
    camera_to_world: pose, shape [4, 4], x_world = camera_to_world @ x_camera [m]; of a camera that moves the pose of
    each frame, shape [T, 4, 4]; None when the file has none. width, height: image size [px]. readout_s: time from the
    exposure of the first edge of a frame to that of the opposite edge [s]; 0 with a global shutter. readout_from: side
    of the frame that is exposed first. focal_std: standard deviation of the focal length, as a share of it.
    direction_std_rad: of the camera's rotation about each axis [rad]. Both are 0 where the calibration states nothing.
    """

    K: Array
    width: int
    height: int
    distortion: Array = field(default_factory=lambda: np.zeros(0))
    model: str = "plumb_bob"
    camera_to_world: Array | None = None
    name: str = "camera"
    readout_s: float = 0.0
    readout_from: Side = "top"
    focal_std: float = 0.0
    direction_std_rad: float = 0.0

    @property
    def moves(self) -> bool:
        """Return whether the camera has a pose for each frame."""
        return self.camera_to_world is not None and self.camera_to_world.ndim == 3

    def at(self, frames: int | NDArray[np.int64]) -> Camera:
        """Return the camera with the poses of some frames [n], or of a single frame; a static camera stays as it is."""
        poses = self.camera_to_world
        return self if poses is None or not self.moves else replace(self, camera_to_world=poses[frames])


@dataclass(frozen=True)
class Texture:
    """The colours that a mesh's file gives its surface: those of the corners times those of an image.

    images: sRGB, uint8 [H, W, 3] each, row 0 at the top. image: [F], which of them a face shows. uv: [F, 3, 2], where
    the corners of the faces lie in it: u to the right and v up, 0 and 1 at its borders; beyond them it repeats.
    corner_color: [F, 3, 3] linear RGB, interpolated over the face.
    """

    images: tuple[NDArray[np.uint8], ...]
    image: NDArray[np.int64]
    uv: Array
    corner_color: Array


@dataclass(frozen=True)
class Mesh:
    """A triangle mesh in body axes.

    vertices: [V, 3] m. faces: [F, 3] vertex indices, counter-clockwise seen from outside.
    part: [F] index of the part a face belongs to (groups of the file, else connected components).
    part_names: name of each part. texture: None when the file has no colours that vary over the surface.
    """

    vertices: Array
    faces: NDArray[np.int64]
    part: NDArray[np.int64]
    part_names: tuple[str, ...] = ("body",)
    name: str = "mesh"
    texture: Texture | None = None

    @property
    def radius_m(self) -> float:
        """Return the largest distance of a vertex from the body's origin [m]."""
        return float(np.linalg.norm(self.vertices, axis=1).max())


class Frames(Protocol):
    """Frames of a clip, decoded when asked for: RGB, uint8, shape [H, W, 3] each."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[NDArray[np.uint8]]: ...
    def at(self, indices: ArrayLike) -> Iterator[NDArray[np.uint8]]:
        """Yield the frames at increasing `indices`."""
        ...


@dataclass(frozen=True)
class Clip:
    """A video: frames and their mid-exposure times [s] from the container, shape [T], strictly increasing.

    notes: what was changed in the video. whole: the clip that `frames` are a part of, and the index of each frame in
    that clip, shape [T]; None for a whole clip.
    """

    frames: Frames
    times_s: Array
    width: int
    height: int
    name: str = "clip"
    notes: tuple[str, ...] = ()
    whole: tuple[Clip, NDArray[np.int64]] | None = None


@dataclass(frozen=True)
class Parameter:
    """One physical parameter in SI units, with bounds and the transform a solver works in."""

    name: str
    unit: str
    value: float
    lower: float = -np.inf
    upper: float = np.inf
    transform: Transform = "identity"
    free: bool = False
    source: str = "default"  # default | mesh | given | fitted

    def to_free(self, value: float) -> float:
        """Return a value in SI in solver coordinates."""
        return float(np.log(value)) if self.transform == "log" else float(value)

    def from_free(self, coordinate: float) -> float:
        """Return a solver coordinate as a value in SI."""
        return float(np.exp(coordinate)) if self.transform == "log" else float(coordinate)

    def spread_to_free(self, value: float, std: float) -> float:
        """Return a small standard deviation about a value, in SI, in solver coordinates, to first order."""
        return float(std / value) if self.transform == "log" else float(std)

    def spread_from_free(self, value: float, std: float) -> float:
        """Return a small standard deviation in solver coordinates in SI, to first order."""
        return float(std * value) if self.transform == "log" else float(std)

    def interval(self, half_width: float) -> tuple[float, float]:
        """Return the interval about the value, in SI, of a half width in solver coordinates; a finite one is within
        the bounds."""
        centre = self.to_free(self.value)
        with np.errstate(over="ignore"):
            low, high = self.from_free(centre - half_width), self.from_free(centre + half_width)
        return (max(low, self.lower), min(high, self.upper)) if np.isfinite(half_width) else (low, high)

    def with_unit(self, text: str) -> str:
        """Return the text, followed by the unit if there is one."""
        return text if self.unit == "1" else f"{text} {self.unit}"


@dataclass(frozen=True)
class Parameters:
    """The parameters of a system in the order of its kernels."""

    items: tuple[Parameter, ...]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.items)

    def __getitem__(self, name: str) -> Parameter:
        for item in self.items:
            if item.name == name:
                return item
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names in the kernels' order."""
        return tuple(item.name for item in self.items)

    @property
    def free_indices(self) -> tuple[int, ...]:
        """Return the indices of the free parameters."""
        return tuple(i for i, item in enumerate(self.items) if item.free)

    @property
    def free_names(self) -> tuple[str, ...]:
        """Return the names of the free parameters."""
        return tuple(item.name for item in self.items if item.free)

    @property
    def vector(self) -> Array:
        """Return all values in SI, shape [P]."""
        return np.array([item.value for item in self.items])

    @property
    def slopes(self) -> Array:
        """Return derivatives of all values in SI by solver coordinates, shape [P]."""
        return np.array([item.spread_from_free(item.value, 1.0) for item in self.items])

    @property
    def free_units(self) -> Array:
        """Return unit steps of the free parameters in solver coordinates, shape [number free].

        A logarithm or a zero has 1, another parameter its absolute value.
        """
        free = [item for item in self.items if item.free]
        return np.array([1.0 if p.transform == "log" or p.value == 0.0 else abs(p.value) for p in free])

    @property
    def free_bounds(self) -> tuple[Array, Array]:
        """Return lower and upper bounds of the free parameters in solver coordinates, shape [number free] each."""
        free = [item for item in self.items if item.free]
        lower = [p.to_free(max(p.lower, np.exp(-_MOST_LOG)) if p.transform == "log" else p.lower) for p in free]
        return np.array(lower), np.array([p.to_free(p.upper) for p in free])

    def free_vector(self) -> Array:
        """Return the free parameters in solver coordinates, shape [number free]."""
        return np.array([item.to_free(item.value) for item in self.items if item.free])

    def with_free_vector(self, coordinates: Array) -> Parameters:
        """Return a copy in which the free parameters have these solver coordinates."""
        values = iter(coordinates)
        return Parameters(tuple(replace(p, value=p.from_free(next(values))) if p.free else p for p in self.items))

    def fitted_at(self, coordinates: Array) -> Parameters:
        """Return a copy with the free parameters fitted to these solver coordinates, or the nearest within bounds."""
        values = {}
        for p, coordinate in zip((p for p in self if p.free), coordinates, strict=True):
            log = p.transform == "log"
            reached = p.from_free(np.clip(coordinate, -_MOST_LOG, _MOST_LOG) if log else coordinate)
            values[p.name] = float(np.clip(reached, max(p.lower, np.exp(-_MOST_LOG)) if log else p.lower, p.upper))
        return self.with_values(values, source="fitted")

    def with_values(self, values: dict[str, float], *, source: str = "given") -> Parameters:
        """Return a copy with values set by name. Raises KeyError for an unknown name."""
        for name in values:
            self[name]
        return Parameters(
            tuple(replace(p, value=float(values[p.name]), source=source) if p.name in values else p for p in self.items)
        )

    def with_free(self, names: tuple[str, ...]) -> Parameters:
        """Return a copy in which exactly `names` are free. Raises KeyError for an unknown name."""
        for name in names:
            self[name]
        return Parameters(tuple(replace(p, free=p.name in names) for p in self.items))


@dataclass(frozen=True)
class Actions:
    """Recorded or fitted actions, zero-order hold: values[i] holds from times_s[i] to times_s[i + 1].

    values: [N, M] in SI. kind: `rotors` (4 thrusts, N), `wrench` (collective thrust N, body torques N m), `push` (force
    N along the world's axes, body torques N m), or `other` (described by `names` and `units`). per_kilogram: True when
    divided by an unknown mass.
    """

    times_s: Array
    values: Array
    kind: Literal["rotors", "wrench", "push", "other"]
    names: tuple[str, ...]
    units: tuple[str, ...]
    per_kilogram: bool = False


@dataclass(frozen=True)
class Trajectory:
    """States over time. states: [T, N] in the layout of `state_names`; controls: [T - 1, M] or None."""

    times_s: Array
    states: Array
    state_names: tuple[str, ...]
    controls: Array | None = None
    covariance: Array | None = None  # [T, D, D] in the tangent space of each state


@dataclass(frozen=True)
class PoseLog:
    """Poses of a tracked body. positions_m [T, 3]; orientation_quat_wxyz [T, 4], body to world; gaps are NaN.

    lost: number of rows of the log that are gaps, by their content, in words.
    """

    times_s: Array
    positions_m: Array
    orientation_quat_wxyz: Array
    name: str = "body"
    lost: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KeypointMeasurement:
    """Where K keypoints of the body were detected in T frames, with an error model.

    Attributes:
        times_s: [T] s.
        bearings: [T, K, 2] normalised image coordinates x/z, y/z in camera axes, distortion removed.
        covariance: [T, K, 2, 2] of errors that are independent between points and frames.
        shared_basis: [T, K, 2, R] the error that all points of a frame share, one column a mode. Its coefficients have
            unit variance.
        correlation_time_s: [R] of the coefficients, a first-order Gauss-Markov process in the time error_clock_s.
        visible: [T, K] bool; what is False carries no information (outside the frame, covered, frame lost).
        points_body: [K, 3] m, the keypoints in body axes.
        error_clock_s: [T] clock by which errors forget (`error_clock`), times_s by default.
        swing_scale: [] relative error of the amplitude of a whole clip's motion, over that of the errors of its frames.
    """

    times_s: Array
    bearings: Array
    covariance: Array
    shared_basis: Array
    correlation_time_s: Array
    visible: NDArray[np.bool_]
    points_body: Array
    error_clock_s: Array = field(default_factory=lambda: np.zeros(0))
    swing_scale: Array = field(default_factory=lambda: np.ones(()))

    def __post_init__(self) -> None:
        if not len(self.error_clock_s):
            object.__setattr__(self, "error_clock_s", self.times_s)


@dataclass(frozen=True)
class ConfigurationMeasurement:
    """Configurations of a body that were measured in T frames, such as by its contour, with an error model.

    Errors are local coordinates: the six of `geometry.Pose.retract` for a pose, differences of coordinates otherwise.

    Attributes:
        configuration: poses camera_from_body [T] of a rigid body, else coordinates [T, D] (joint angles, amplitudes).
        covariance: [T, D, D] of errors that are independent between frames.
        shared_basis: [T, D, R] effect of the R error processes of the clip, of unit variance. They are those of the
            keypoints' `shared_basis`: both kinds err alike while the body has one appearance.
        correlation_time_s: [R] of the processes, in the time error_clock_s of the observation.
        measured: [T] bool; other frames hold harmless numbers.
        source: what measured them, such as "contour".
    """

    configuration: Pose | Array
    covariance: Array
    shared_basis: Array
    correlation_time_s: Array
    measured: NDArray[np.bool_]
    source: str

    def __getitem__(self, frames: slice | NDArray[np.int64]) -> ConfigurationMeasurement:
        """Return the measurements of some of the frames."""
        per_frame = ("configuration", "covariance", "shared_basis", "measured")
        return replace(self, **{name: getattr(self, name)[frames] for name in per_frame})

    def of_nothing(self, frames: int) -> ConfigurationMeasurement:
        """Return a clip of so many frames of this body, with no configuration measured."""
        size, processes = self.shared_basis.shape[-2:]
        configuration: Pose | Array = np.zeros((frames, size))
        if isinstance(self.configuration, Pose):
            configuration = Pose(np.tile(np.eye(3), (frames, 1, 1)), np.tile([0.0, 0.0, 1.0], (frames, 1)))
        return ConfigurationMeasurement(
            configuration,
            np.tile(np.eye(size), (frames, 1, 1)),
            np.zeros((frames, size, processes)),
            np.zeros(processes),
            np.zeros(frames, dtype=bool),
            "",
        )

    @property
    def pose(self) -> Pose:
        """Return the poses of a rigid body, [T]. Raises TypeError for other bodies."""
        if not isinstance(self.configuration, Pose):
            raise TypeError("coordinates are no poses")
        return self.configuration


@dataclass(frozen=True)
class Observation(KeypointMeasurement):
    """What the estimator gets of a clip's frames: keypoints, and for some frames a configuration that replaces them.

    Attributes:
        configuration: measured configurations; None where there are none. A measured configuration was found with the
            keypoints of its frame, so that these do not count beside it (`used`).
    """

    configuration: ConfigurationMeasurement | None = None

    def __getitem__(self, frames: slice | NDArray[np.int64]) -> Observation:
        """Return the measurements of some of the frames."""
        per_frame = ("times_s", "bearings", "covariance", "shared_basis", "visible", "error_clock_s")
        part = None if self.configuration is None else self.configuration[frames]
        return replace(self, **{name: getattr(self, name)[frames] for name in per_frame}, configuration=part)

    def with_configurations(self, frames: NDArray[np.int64], found: ConfigurationMeasurement) -> Observation:
        """Return the observation with other configurations [n] in n of the frames.

        Where earlier measurements of other frames stay, the longest correlation times count, and `source` names all.
        """
        before = self.configuration
        if before is None:
            before = found.of_nothing(len(self.times_s))
        rows = ("covariance", "shared_basis", "measured")
        changed = {name: with_rows(getattr(before, name), frames, getattr(found, name)) for name in rows}
        at, new = before.configuration, found.configuration
        if isinstance(at, Pose):
            at = at.copy()
            at[frames] = found.pose
        elif not isinstance(new, Pose):
            at = with_rows(at, frames, new)
        lasting, source = found.correlation_time_s, found.source
        if np.delete(before.measured, frames).any():
            lasting = np.maximum(lasting, before.correlation_time_s)
            source = ", ".join(dict.fromkeys([*before.source.split(", "), source]))
        after = ConfigurationMeasurement(configuration=at, correlation_time_s=lasting, source=source, **changed)
        return replace(self, configuration=after)

    def without(self, lost: NDArray[np.bool_]) -> Observation:
        """Return the observation with nothing seen in the frames that `lost` [T] names."""
        part = self.configuration
        if part is not None:
            part = replace(part, measured=part.measured & ~lost)
        return replace(self, visible=self.visible & ~lost[:, None], configuration=part)

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Return whether a configuration was measured, [T]."""
        return np.zeros(len(self.times_s), dtype=bool) if self.configuration is None else self.configuration.measured

    @property
    def used(self) -> NDArray[np.bool_]:
        """Return whether a keypoint counts, [T, K]: it is visible, and no configuration was measured."""
        return np.asarray(self.visible & ~self.measured[:, None])

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Return whether a frame shows the body, [T]: by a keypoint or a measured configuration."""
        return np.asarray(self.visible.any(axis=1) | self.measured)

    @property
    def process_time_s(self) -> Array:
        """Return the correlation times [R] of the error processes: the longest of the kinds that count."""
        if self.configuration is None or not self.measured.any():
            return self.correlation_time_s
        if not self.used.any():
            return self.configuration.correlation_time_s
        return np.asarray(np.maximum(self.correlation_time_s, self.configuration.correlation_time_s))

    @property
    def frames_lost(self) -> int:
        """Return the number of frames that do not show the body."""
        return int((~self.seen).sum())


def with_rows(into: NDArray[Any], rows: NDArray[np.int64], values: NDArray[Any] | bool) -> NDArray[Any]:
    """Return a copy of an array [T, ...] with other values [n, ...] in rows [n]."""
    out = into.copy()
    out[rows] = values
    return out


class Status(Enum):
    """How a fit ended; the text is the remedy."""

    CONVERGED = "converged"
    DOUBTFUL = "doubtful: the fit converged, but it is probably wrong; read the notes and look at the overlay"
    NOT_CONVERGED = "not converged: check the camera and the mesh scale in overlay.mp4, or select a shorter part"
    NOT_IDENTIFIABLE = "the clip does not determine any of the parameters asked for: see diagnostics for what would"
    LOST = "the object was tracked in too few frames: see overlay.mp4; train on this mesh or film closer"

    @property
    def key(self) -> str:
        """Return the name as result.json writes it."""
        return self.name.lower()


@dataclass(frozen=True)
class Estimate:
    """A parameter's value with its 95 % interval; infinite along directions the data do not determine.

    identifiable: whether the data add to the prior, or to nothing where there is none. prior: mean and standard
    deviation that the fit began with, in the parameter's unit. parts: what the interval comes from, by name, as shares
    of its variance that sum to 1 (`solvers.interval_parts`); empty where it was not split. bootstrap: 95 % interval of
    fits to measurements that were drawn again (`solvers.bootstrap`), None where none were.
    """

    name: str
    unit: str
    value: float
    ci95: tuple[float, float]
    identifiable: bool
    at_bound: bool = False
    source: str = "fitted"
    prior: tuple[float, float] | None = None
    parts: dict[str, float] = field(default_factory=dict)
    bootstrap: tuple[float, float] | None = None

    @property
    def interval(self) -> str:
        """The interval as text."""
        low, high = self.ci95
        if math.isfinite(low) and math.isfinite(high):
            return f"{low:.4g} to {high:.4g}"
        return f"at least {low:.4g}" if math.isfinite(low) and low > 0.0 else "unbounded"


@dataclass(frozen=True)
class Posterior:
    """The joint posterior of P fitted parameters: a normal distribution in solver coordinates.

    logarithmic: which parameters have logarithms as coordinates. mean: [P]. covariance: [P, P].
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    logarithmic: tuple[bool, ...]
    mean: Array
    covariance: Array

    @property
    def std(self) -> Array:
        """Return the standard deviations, [P]."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def correlation(self) -> Array:
        """Return the correlation matrix, [P, P]."""
        return np.asarray(self.covariance / np.outer(self.std, self.std))


@dataclass(frozen=True)
class Result:
    """The result of a fit.

    posterior: of the fitted parameters that the clip determines; None where there are none. clips: of a multi-clip fit
    the results of each clip; trajectory, actions and observation are then the first one's.
    """

    status: Status
    message: str
    system: str
    parameters: tuple[Estimate, ...]
    trajectory: Trajectory
    actions: Actions | None
    actions_std: Array | None  # [T - 1, M], one standard deviation, same units as actions
    observation: Observation
    diagnostics: dict[str, object]
    posterior: Posterior | None = None
    clips: tuple[Result, ...] = ()
    derived: tuple[Estimate, ...] = ()

    @property
    def priors(self) -> dict[str, tuple[float, float]]:
        """Return mean and standard deviation by parameter, where there was a prior."""
        return {estimate.name: estimate.prior for estimate in self.parameters if estimate.prior is not None}

    @property
    def impacts(self) -> list[dict[str, float]]:
        """Return the impacts that were fitted, in the order of time; SI, by the keys of `result.json`."""
        return cast("list[dict[str, float]]", self.diagnostics.get("impacts", []))
