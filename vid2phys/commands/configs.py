"""What a user asks of each command but `identify`, which has a folder of its own; and the options that commands share.

Only dataclasses: the command line is built from them before anything heavy is imported (see `options`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from vid2phys.commands.options import Options
from vid2phys.commands.system_choice import AUTO, ROBOTS, is_clamped, is_of_vertices

DEFAULT_BOARD = "charuco:11x7:24mm:18mm:4x4_50"
GAMMA = 1.0
MOST_SECONDS = 120.0
AUTO_CAMERA = Path("auto")  # in place of a camera file
NO_MODEL = Path("none")  # in place of a model's folder: the body is tracked by its silhouette
_INITIAL = {"example": "position_z_m=1.5"}
_LIMIT = {"flags": "--limit", "pair": "..", "example": "thrust=0..12"}


def is_auto(path: object) -> bool:
    """Return whether a path asks for a camera without a file."""
    return path == AUTO_CAMERA


def is_untrained(path: object) -> bool:
    """Return whether a path asks for a tracker without a trained model."""
    return path == NO_MODEL


@dataclass(frozen=True, kw_only=True)
class MeshOptions(Options):
    """The mesh of a body, and how to read it."""

    mesh: Path | None = None
    """Mesh of the object (OBJ, STL, PLY, GLB ...)."""
    mesh_units: str = "m"
    """Units of the mesh: m, cm or mm."""
    mesh_move: str | None = None
    """To the body's axes and origin: x:90 (deg), shift:0:0:-0.02 (m) ..."""


@dataclass(frozen=True, kw_only=True)
class FilmedBodyOptions(MeshOptions):
    """The body in a clip or an image: its mesh or a primitive, and the system that moves it."""

    body: str | None = None
    """In place of a mesh: a primitive (ball:d=66mm, box:120x80x50mm ...), a robot (URDF, MJCF), or tets (.msh)."""
    system: str = AUTO
    """Physical system that a camera follows, see `vid2phys systems`; auto: as the body says."""

    @property
    def shape(self) -> str | Path | None:
        """Return the mesh's path or the primitive; None for a robot or a volume, and for a system with its own mesh."""
        own = self.robot is not None or self.volume is not None
        return self.mesh if self.mesh is not None or own else self.body

    @property
    def robot(self) -> str | None:
        """Return `body` where it is the file of a robot."""
        is_file = self.body is not None and Path(self.body).suffix.lower() in ROBOTS
        return self.body if is_file else None

    @property
    def volume(self) -> str | None:
        """Return `body` where the system is made of its file: of tets, a sheet's triangles or a net."""
        own = self.body is not None and (is_clamped(self.system) or is_of_vertices(self.system))
        return self.body if own else None


@dataclass(frozen=True, kw_only=True)
class ClampOptions(Options):
    """How a body of tets is held."""

    clamp: tuple[str, ...] = ()
    """Where a body of tets, a sheet or a net is held, in m: 'x<0.005,x>0.1'."""
    load: str | None = None
    """A known mass on it, kg and where: '0.052@x>0.095'."""


@dataclass(frozen=True, kw_only=True)
class ValueOptions(Options):
    """Known values of parameters, in SI. `set_values` wins over the file."""

    set_values: dict[str, float] = field(default_factory=dict, metadata={"flags": "--set", "example": "mass=0.04"})
    """A known value, name=SI value; repeatable."""
    params: Path | None = None
    """YAML file of known values, SI."""


@dataclass(frozen=True, kw_only=True)
class CameraOptions(Options):
    """One camera and its pose."""

    camera: Path | None = None
    """Calibration: cam.yaml, ROS, Kalibr, OpenCV, COLMAP ..."""
    camera_pose: Path | None = None
    """File with camera_to_world."""


@dataclass(frozen=True, kw_only=True)
class BodyOptions(ClampOptions, ValueOptions):
    """A system that may be made of a user's own body, and what drives it."""

    system: str = field(metadata={"argument": True})
    """System; `vid2phys systems` lists them."""
    body: Path | None = None
    """Your own body: a file (mesh, tets or robot, by the system), or a primitive: ball:d=66mm ..."""
    body_units: str = "m"
    """Units of the body: m, cm or mm."""
    actions: Path | None = field(default=None, metadata={"replaces": "hold"})
    """CSV of recorded actions."""
    hold: bool = False
    """Apply what holds the system at rest (without --actions; default: nothing)."""


@dataclass(frozen=True, kw_only=True)
class SimulateConfig(MeshOptions, CameraOptions, BodyOptions):
    """What a user asks of `vid2phys simulate`.

    Rows of the trajectory are 1 / rate seconds apart, and where an action changes. The mesh is filmed in place of the
    system's own surface.
    """

    command: ClassVar[str] = "simulate"

    seconds: float | None = None
    """How long (default: as long as the actions, or 2)."""
    initial: dict[str, float] = field(default_factory=dict, metadata=_INITIAL)
    """A state at the start, name=SI value (default: at rest)."""
    rate: float = 100.0
    """Rows of trajectory.csv a second."""
    step: float | None = None
    """Longest time step, s (default: stable, at most 1/rate)."""
    integrator: str | None = None
    """rk4, semi_implicit_euler, implicit_euler ... (default: its own)."""
    fps: float = 30.0
    """Frames of the clip a second."""
    out: Path | None = None
    """Run folder (default: runs/simulate/TIME)."""


@dataclass(frozen=True, kw_only=True)
class FitRecordingConfig(BodyOptions):
    """What a user asks of `vid2phys fit-recording`."""

    command: ClassVar[str] = "fit-recording"

    recordings: tuple[Path, ...] = field(metadata={"argument": True})
    """CSVs of recorded states: time_s and states by name."""
    fit: tuple[str, ...]
    """Parameters to fit, comma-separated."""
    std: dict[str, float] = field(default_factory=dict, metadata=_INITIAL)
    """Standard deviation of a state, name=SI value (default: found)."""
    points: Path | None = None
    """CSV of markers on a body of tets at rest: name, x_m, y_m, z_m."""
    offsets: tuple[str, ...] = ()
    """States whose sensor's zero is not known."""
    most_seconds: float = MOST_SECONDS
    """Stop after this time with the best fit so far."""
    out: Path | None = None
    """Run folder (default: runs/fit-recording/TIME)."""


@dataclass(frozen=True, kw_only=True)
class TargetOptions(Options):
    """Where the body is to be."""

    target: Path
    """Image of the body where it is to be."""


@dataclass(frozen=True, kw_only=True)
class ControlConfig(ValueOptions, CameraOptions, FilmedBodyOptions, TargetOptions):
    """What a user asks of `vid2phys control`. The mesh is None for a system on a known base, which has its own."""

    command: ClassVar[str] = "control"

    initial: dict[str, float] = field(default_factory=dict, metadata=_INITIAL)
    """A state at the start, name=SI value (default: at rest)."""
    limits: dict[str, tuple[float, float]] = field(default_factory=dict, metadata=_LIMIT)
    """Of an action, name=LOW..HIGH in SI; repeatable."""
    seconds: float = 1.0
    """When the body is to be there."""
    rate: float = 25.0
    """Actions a second."""
    moving: bool = field(default=False, metadata={"flags": "--moving/--at-rest"})
    """It may pass its goal, or comes to rest there."""
    model: Path | None = None
    """Model folder (default: found by the mesh)."""
    hint_box: str | None = None
    """Where the body is in the image, X0,Y0,X1,Y1 in pixels: a box close around it."""
    out: Path | None = None
    """Run folder (default: runs/control/TIME)."""
    overlay: bool = True
    """Draw the motion over the target."""


@dataclass(frozen=True, kw_only=True)
class HintConfig(MeshOptions):
    """What a user asks of `vid2phys hint`."""

    command: ClassVar[str] = "hint"

    clip: Path = field(metadata={"argument": True})
    """A video or folder of images."""
    camera: Path
    """Calibration of the camera: cam.yaml, ROS, Kalibr, OpenCV ...; auto: without a file."""
    body: str | None = None
    """A primitive in place of a mesh: ball:d=66mm, box:120x80x50mm, cylinder:d=40mm,h=100mm ..."""
    from_s: float | None = field(default=None, metadata={"flags": "--from"})
    """Seconds of the clip's clock at which the part to use begins."""
    to_s: float | None = field(default=None, metadata={"flags": "--to"})
    """Seconds of the clip's clock at which the part to use ends."""
    fps: float | None = None
    """Frames a second of a folder of images, or in place of a video's own."""
    stream: int | None = None
    """Index of the video stream in the file, from 0."""
    port: int = 0
    """Port of the page on this machine (default: any free one)."""
    open_page: bool = field(default=False, metadata={"flags": "--open"})
    """Open the page in the browser."""


@dataclass(frozen=True, kw_only=True)
class LogOptions(Options):
    """What a motion capture log leaves open (`io.mocap.load_mocap`)."""

    body: str | None = None
    """Rigid body in the log, if it has several; or its markers: A,B,C."""
    units: str | None = field(default=None, metadata={"flags": "--mocap-units"})
    """m, cm or mm, if the log does not state it."""
    euler: str | None = None
    """Order of the log's angles: XYZ ... (own axes), xyz ... (fixed), rotvec."""
    angle_units: str | None = field(default=None, metadata={"flags": "--euler-units"})
    """deg or rad, if the log does not state it."""
    up_axis: str = "z"
    """Vertical axis of the log: x, y or z."""


@dataclass(frozen=True, kw_only=True)
class ComparedOptions(Options):
    """What is compared."""

    run: Path | None = field(default=None, metadata={"argument": True})
    """Run folder (default: the newest)."""
    mocap: Path
    """Log of the true poses: Motive, Vicon, C3D, TUM, EuRoC, CSV."""
    align: str = "time"
    """What to align: time, marker (and time), world (all)."""


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(LogOptions, ComparedOptions):
    """What a user asks of `vid2phys evaluate`."""

    command: ClassVar[str] = "evaluate"

    plots: bool = field(default=True, metadata={"flags": ""})
    """Draw evaluation.png."""


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig(Options):
    """What a user asks of `vid2phys calibrate`."""

    command: ClassVar[str] = "calibrate"

    images: Path | None = field(default=None, metadata={"argument": True})
    """Video or folder of images of a board."""
    board: str = DEFAULT_BOARD
    """chessboard:10x7:25mm (squares!), charuco:11x7:24mm:18mm:4x4_50 ..."""
    model: str = "plumb_bob"
    """plumb_bob, rational_polynomial (wide) or equidistant (fisheye)."""
    source: Path | None = field(default=None, metadata={"flags": "--from"})
    """Camera file of any format, instead of images."""
    camera_name: str | None = None
    """Which camera or image of --from."""
    camera_pose: Path | None = None
    """File with camera_to_world."""
    size: str | None = None
    """Image size of a --from file that does not state it: 640x480."""
    place: Path | None = None
    """Image from where the camera stands: the pose."""
    place_board: str | None = None
    """Board in --place (default: --board), or tag:36h11:7:160mm."""
    board_is: str | None = None
    """In --place: level (face up) or upright (hanging): gravity."""
    markers: Path | None = None
    """CSV of markers in --place: id, x_m, y_m, z_m [, corner]."""
    dictionary: str = "4x4_50"
    """Of the markers: 4x4_50 ... (ArUco), 36h11 ... (AprilTag)."""
    points: Path | None = None
    """CSV of known points: name, x_m, y_m, z_m, u_px, v_px."""
    out: Path = Path("cam.yaml")
    """Camera file to write."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(FilmedBodyOptions):
    """What a user asks of `vid2phys train-risp`.

    A system on a known base (a hand, a rod, an arm from the file `body`) needs no mesh: it has its own.
    """

    command: ClassVar[str] = "train-risp"

    body: str | None = None
    """A primitive (ball:d=66mm ...), or the robot (URDF, MJCF) of --system articulated, on a fixed base."""
    out: Path | None = None
    """Model folder (default: models/NAME of the mesh)."""
    minutes: float | None = None
    """Time on 2 idle cores, 4 to 34, in place of samples and epochs."""
    samples: int | None = None
    """Images to render (default: 12000)."""
    epochs: int | None = None
    """Passes over them (default: 12; 100, RISP's own, for the state head)."""
    gamma: float = GAMMA
    """Weight of the rendering-gradient loss."""
    head: str = "keypoint"
    """keypoint, or state, RISP's own; state@w32 is narrower."""
    loss: str = "error-gradient"
    """error-gradient, full-jacobian, projected-jacobian or error-only."""
    start: Path | None = None
    """Model whose features are begun with (default: a packaged one), or none."""
    device: str = "auto"
    """auto, cpu or cuda."""
    resume: bool = True
    """Go on where an earlier run stopped."""
    work: Path | None = None
    """Folder of renders, checkpoints (default: runs/train-risp/NAME)."""
    ray: str | None = None
    """Address of a Ray cluster that renders; local starts one here."""
    without: tuple[str, ...] = ()
    """For ablations, what not to vary: shadows,distractors,noise ..."""
    seed: int = 0
    """Seed of everything random."""
    quiet: bool = field(default=False, metadata={"flags": ""})
    """Show no progress."""

    @property
    def primitive(self) -> str | None:
        """Return `body` where it is a primitive."""
        from vid2phys.io.primitives import is_primitive

        return self.body if is_primitive(self.body) else None

    @property
    def robot(self) -> str | None:
        """Return `body` where it is a file."""
        return self.body if self.primitive is None else None

    @property
    def shape(self) -> str | Path | None:
        """Return the mesh's path or the primitive; None for a system that has a mesh of its own."""
        return self.mesh if self.mesh is not None else self.primitive
