"""The options of `vid2phys identify`, as one frozen dataclass. `check` finds contradictions before anything is read.

Command line, YAML files and keyword arguments are built from this class (see `vid2phys.commands.options`). This file
imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from vid2phys.commands.configs import ClampOptions, FilmedBodyOptions, ValueOptions, is_auto
from vid2phys.commands.options import Options
from vid2phys.commands.system_choice import is_clamped, is_of_vertices, needs_actions
from vid2phys.errors import UsageError, unknown_name
from vid2phys.tracking.hint import Hint

Paths = Path | tuple[Path, ...]
"""One path for all clips, or one path a clip."""
PART = ("fps", "stream", "from_s", "to_s")
PER_CLIP = ("camera", "camera_pose", "actions", "hint", "hint_box", *PART)
INTERVALS = ANALYTIC, BOOTSTRAP = ("analytic", "bootstrap")
LEAST_RESAMPLES = 5  # for a spread
SOLVERS = ("smoothing", "shooting", "rmsprop", "adam")
OF_ANY_LOSS = ("rmsprop", "adam")
APPEARANCE = ("shading", "texture")  # parts of the appearance that losses of images may leave out
_PRIOR = {"flags": "--prior", "pair": "+-", "example": "mass=0.4+-0.05"}
_BOUNDS = {"pair": "..", "example": "mass=0.1..2"}


@dataclass(frozen=True, kw_only=True)
class ClipOptions(Options):
    """The clips, the cameras that filmed them, and the actions. Several clips are fitted together.

    Every field but `clip` holds one value for all clips, or one value a clip.
    """

    clip: Paths = field(metadata={"argument": True})
    """A video or folder of images, or several of one body."""
    camera: Paths
    """Calibration: cam.yaml, ROS, Kalibr, OpenCV ..., for all clips or one each; auto: from the motion."""
    camera_pose: Paths | None = None
    """File with camera_to_world, or poses of a camera that moves; for all clips, or one each."""
    actions: Paths | None = None
    """CSV of recorded actions; for all clips, or one each (default: fit the actions)."""
    from_s: float | tuple[float, ...] | None = field(default=None, metadata={"flags": "--from"})
    """Seconds of the clip's clock at which the part to use begins."""
    to_s: float | tuple[float, ...] | None = field(default=None, metadata={"flags": "--to"})
    """Seconds of the clip's clock at which the part to use ends."""
    fps: float | tuple[float, ...] | None = None
    """Frames a second of a folder of images, or in place of a video's own."""
    stream: int | tuple[int, ...] | None = None
    """Index of the video stream in the file, from 0."""
    readout: float | None = None
    """Seconds from the first to the last row of a rolling shutter (default: as the camera file states)."""
    readout_from: str | None = None
    """Side of the frame that is exposed first: top, bottom, left, right (default: likewise, or top)."""


@dataclass(frozen=True, kw_only=True)
class TrackOptions(Options):
    """How the body is found in the frames."""

    model: Path | None = None
    """Model folder, or `none` to track by the silhouette (default: a model that fits the mesh, else `none`)."""
    base: str | None = None
    """Pose of a robot or a soft body in the world: z:90 (deg), shift:0:0:0.4 (m) ... (default: as in its file)."""
    observation: Path | None = None
    """Keypoints of another tracker (CSV), or observation.npz, in place of the network."""
    body_points: Path | None = None
    """CSV of the points of --observation: name, x_m, y_m, z_m."""
    hint: str | tuple[str, ...] | None = None
    """Where the body is, without a model: a click, TIME:X,Y, such as 3.2s:412,233; one a clip."""
    hint_box: str | tuple[str, ...] | None = None
    """The same as a box: TIME:X0,Y0,X1,Y1."""
    without: tuple[str, ...] = ()
    """Cues to switch off, comma-separated: contour ..."""


@dataclass(frozen=True, kw_only=True)
class FitOptions(Options):
    """What is fitted and how."""

    fit: tuple[str, ...] = ()
    """Parameters to fit, comma-separated: mass,drag ...; of a throw mu,restitution,ground; scale, camera, readout."""
    priors: dict[str, tuple[float, float]] = field(default_factory=dict, metadata=_PRIOR)
    """Prior of a fitted parameter, name=MEAN+-STD in SI; repeatable."""
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict, metadata=_BOUNDS)
    """Bounds of a fitted parameter, name=LOW..HIGH in SI; repeatable."""
    method: str = field(default="smoothing", metadata={"flags": "--solver --method"})
    """smoothing, shooting, or as in the papers rmsprop, adam."""
    loss: str = "keypoint"
    """Loss of rmsprop and adam: keypoint, state, risp_image, pixel or perceptual."""
    starts: int = 1
    """Number of starts of shooting, rmsprop, adam; parameters up to twice off."""
    undrawn: tuple[str, ...] = ()
    """What losses of images do not draw: shading,texture."""
    seed: int = 0
    """Seed of everything random."""
    refine: bool = True
    """Align the mesh to the clip's pixels; off where the camera moves."""
    intervals: str = ANALYTIC
    """analytic, or bootstrap: beside it, that of fits to measurements drawn again from their errors."""
    resamples: int = 20
    """Number of fits of --intervals bootstrap."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """What is written."""

    out: Path | None = None
    """Run folder (default: runs/identify/TIME)."""
    overlay: bool = True
    """Draw the fit over the frames."""


@dataclass(frozen=True, kw_only=True)
class IdentifyConfig(
    OutputOptions, FitOptions, TrackOptions, ValueOptions, ClampOptions, ClipOptions, FilmedBodyOptions
):
    """The options of `vid2phys identify`. `shape` is None for a system on a known base.

    That is a hand, a rod, a robot, or a clamped soft body.
    """

    command: ClassVar[str] = "identify"

    @property
    def clips(self) -> tuple[Path, ...]:
        """Return the paths of the clips."""
        return self.clip if isinstance(self.clip, tuple) else (self.clip,)

    @property
    def part(self) -> dict[str, float | int | None]:
        """Return the part of a single clip, as `io.video.read_clip` takes it."""
        return {name: getattr(self, name) for name in PART}

    @property
    def hint_of_clip(self) -> Hint | None:
        """Return the hint of a single clip's config. Raises InputError for a text that is none."""
        if isinstance(self.hint_box, str):
            return Hint.of_box(self.hint_box)
        return Hint.of_click(self.hint) if isinstance(self.hint, str) else None

    def of_each_clip(self) -> tuple[IdentifyConfig, ...]:
        """Return a config for each single clip.

        Raises UsageError where the number of cameras, poses, actions or parts is neither 1 nor the number of clips.
        """
        clips = self.clips
        if not clips:
            raise UsageError("no clip given", "a CLIP", "see `vid2phys identify --help`")
        own: list[dict[str, Any]] = [{"clip": clip} for clip in clips]
        for name in PER_CLIP:
            given = getattr(self, name)
            values = given if isinstance(given, tuple) else (given,)
            if len(values) not in (1, len(clips)):
                flag = f"--{name.removesuffix('_s').replace('_', '-')}"
                expected = f"one {flag}, or one a clip"
                raise UsageError(f"{len(clips)} clips and {len(values)} {flag}", expected, "in the clips' order")
            for g, chosen in enumerate(own):
                chosen[name] = values[g % len(values)]
        self._require_one_camera()
        return tuple(replace(self, **chosen) for chosen in own)

    def _require_one_camera(self) -> None:
        """Raise UsageError where a camera is fitted, but each clip has its own."""
        moving = self.of_camera
        several = any(isinstance(given, tuple) and len(given) > 1 for given in (self.camera, self.camera_pose))
        if several and moving:
            got = f"--fit {','.join(moving)} of {len(self.clips)} cameras"
            raise UsageError(got, "one camera for all clips", "fit the clips one by one")

    def check(self) -> None:
        """Raise UsageError for unknown names and for combinations that do not exist."""
        self._check_solver()
        self._check_contact()
        self._check_intervals()
        self._check_loss()
        self._check_cues()
        if self.base is not None and self.robot is None and self.volume is None:
            expected = "--body with a robot's or a soft body's file"
            raise UsageError(f"--base {self.base} without a robot", expected, "leave it out")
        if "base" in self.fit and self.robot is not None and len(self.clips) > 1:
            got = f"--fit base with {len(self.clips)} clips"
            raise UsageError(got, "one clip", "fit the base to one clip, then give --base for all")
        if self.shape is None or self.robot is not None:
            self._check_known_base()
        elif self.method != "smoothing" and self.actions is None and needs_actions(self.system):
            got = f"--solver {self.method} without --actions"
            raise UsageError(got, "recorded actions", "use --solver smoothing")
        self._check_volume()
        self._check_observation()
        self._check_camera()
        self.check_hints()

    def _check_volume(self) -> None:
        """Check a soft body and its clamps."""
        clamped = is_clamped(self.system)
        if clamped and self.mesh is not None:
            expected = "--body with a volume: tets, or a closed surface"
            raise UsageError(f"--mesh for --system {self.system}", expected, f"give --body {self.mesh}")
        if clamped and self.body is None:
            raise UsageError(
                f"no --body for --system {self.system}", "tets, or a closed surface", "give --body bar.msh"
            )
        if is_of_vertices(self.system):
            self._check_vertices()
        elif (self.clamp or self.load) and not clamped:
            from vid2phys.commands.clamps import CLAMPED

            raise UsageError(f"--clamp or --load for --system {self.system}", CLAMPED, "leave them out")

    def _check_vertices(self) -> None:
        """Check a sheet or a net: its file, and what its fit does not take."""
        from vid2phys.engine import systems

        called = systems.get(self.system).capabilities.called
        if self.body is None or self.mesh is not None:
            got = f"no --body for --system {self.system}" if self.mesh is None else f"--mesh for --system {self.system}"
            raise UsageError(got, f"the {called}'s file by --body", f"give --body {self.mesh or f'{called}.obj'}")
        if len(self.clips) > 1:
            raise UsageError(f"{len(self.clips)} clips of a {called}", "one clip", "fit the clips one by one")
        if self.actions is not None or self.model not in (None, Path("none")):
            got = f"--actions or --model for --system {self.system}"
            raise UsageError(got, "gravity and air alone, and no model", "leave them out")

    def _check_solver(self) -> None:
        if self.method not in SOLVERS:
            raise unknown_name("solver", self.method, SOLVERS)
        if self.starts < 1:
            raise UsageError(f"--starts {self.starts}", "1 or more", "leave it out for one")
        if self.starts > 1 and self.method == "smoothing":
            got = f"--starts {self.starts} with --solver smoothing"
            raise UsageError(got, "one start", "use shooting, rmsprop or adam")
        clips = len(self.clips)
        if clips > 1 and (self.method in OF_ANY_LOSS or self.starts > 1):
            got = f"{clips} clips with --solver {self.method} and --starts {self.starts}"
            raise UsageError(got, "--solver smoothing or shooting, from one start", "or fit the clips one by one")
        if self.method != "smoothing":
            from vid2phys.solvers.problem import TIME_BASE

            named = {*self.set_values, *self.priors}
            if of_time := [parameter.name for parameter in TIME_BASE if parameter.name in named]:
                got = f"{','.join(of_time)} with --solver {self.method}, which takes actions as their file times them"
                raise UsageError(got, "--solver smoothing", "leave --solver out")
        if self.method in OF_ANY_LOSS and (of_image := self.of_image):
            got = f"--fit {','.join(of_image)} with --solver {self.method}"
            raise UsageError(got, "--solver smoothing or shooting", "leave --solver out")

    def _check_contact(self) -> None:
        """Check what is fitted beside parameters of contact, and by which solver."""
        asked = set(self.fit) & self._of_contact
        if not asked:
            return
        if self.method != "smoothing":
            raise UsageError(f"--solver {self.method} with contact", "--solver smoothing", "leave --solver out")
        from vid2phys.engine.systems.rigid_contact import OF_SPRINGS, WITH_SPRINGS

        pushed = self.actions is not None
        beside = ("mass", *WITH_SPRINGS) if pushed else WITH_SPRINGS
        rigid = sorted(asked - set(beside))
        if pushed and rigid:
            got = f"--fit {','.join(rigid)} with --actions"
            raise UsageError(got, ", ".join(beside), "fit impacts to a throw without recorded forces")
        if of_image := self.of_image:
            got = f"--fit {','.join(of_image)} with contact"
            raise UsageError(got, "parameters of body and ground", "fit one of them")
        springs = [name for name in self.fit if name in OF_SPRINGS or (pushed and name == "mu")]
        if springs and len(self.clips) > 1:
            raise UsageError(f"--fit {','.join(springs)} of several clips", "one clip", "fit the clips one by one")
        others = [name for name in self.fit if name not in beside]
        if springs and others:
            raise UsageError(
                f"--fit {','.join(others)} with springs of contact",
                f"{', '.join(beside)} alone",
                "fit them without springs, then give them with --set",
            )

    @property
    def of_image(self) -> tuple[str, ...]:
        """Return the parameters of camera and size that are asked for, or unknown by a prior of the user."""
        from vid2phys.solvers.camera_parameters import NAMES

        return tuple(name for name in dict.fromkeys((*self.fit, *self.priors)) if name in NAMES)

    @property
    def of_camera(self) -> tuple[str, ...]:
        """Return those of `of_image` that belong to the camera."""
        from vid2phys.solvers.camera_parameters import SCALE

        return tuple(name for name in self.of_image if name != SCALE.name)

    @property
    def takes_camera_parameters(self) -> bool:
        """Return whether the fit has unknowns of the camera, such as the body's scale, beside those of the system."""
        return self.method not in OF_ANY_LOSS and not self._of_contact & set(self.fit)

    @property
    def _of_contact(self) -> set[str]:
        """Return the names of parameters of contact; none of a body that cannot be thrown."""
        from vid2phys.engine.systems.rigid_contact import OF_CONTACT, OF_SPRINGS

        return set() if self.shape is None or self.robot is not None else {*OF_CONTACT, *OF_SPRINGS, "ground"}

    def _check_intervals(self) -> None:
        if self.intervals not in INTERVALS:
            raise unknown_name("kind of intervals", self.intervals, INTERVALS)
        if self.intervals != BOOTSTRAP:
            return
        if self.resamples < LEAST_RESAMPLES:
            raise UsageError(f"--resamples {self.resamples}", f"{LEAST_RESAMPLES} or more", "leave it out for 20")
        flies = self.shape is not None and self.robot is None
        if flies and (len(self.clips) > 1 or self.method != "smoothing" or self._of_contact & set(self.fit)):
            got = "--intervals bootstrap with several clips, another solver or impacts"
            raise UsageError(got, "one clip with --solver smoothing", "leave --intervals out")

    def _check_loss(self) -> None:
        drawn = False
        if self.loss != "keypoint":
            from vid2phys.solvers.losses import kind

            drawn = "scene" in kind(self.loss).needs
            if self.method not in OF_ANY_LOSS:
                got = f"--loss {self.loss} with --solver {self.method}"
                raise UsageError(got, "--loss keypoint", "or use --solver rmsprop or adam")
        for name in self.undrawn:
            if name not in APPEARANCE:
                raise unknown_name("appearance", name, APPEARANCE)
        if self.undrawn and not drawn:
            got = f"--undrawn {','.join(self.undrawn)} with --loss {self.loss}, which draws nothing"
            raise UsageError(got, "--loss pixel, perceptual or risp_image", "leave one of them out")

    def _check_cues(self) -> None:
        if not self.without:
            return
        from vid2phys.tracking.cues import ActiveCues

        ActiveCues.without(self.without)  # raises for an unknown name
        if self.observation is not None:
            got = f"--without {','.join(self.without)} with --observation, which needs no tracker"
            raise UsageError(got, "one of them", "leave one of them out")

    def _check_known_base(self) -> None:
        if self.robot is not None and self.mesh is not None:
            got = f"--mesh {self.mesh} beside the robot {self.robot}"
            raise UsageError(got, "one of them", "leave --mesh out: a robot has its links' meshes")
        if self.without:
            got = f"--without {','.join(self.without)} for a body on a known base"
            raise UsageError(got, "the cues of a rigid body's tracker", "leave it out")
        if self.method != "smoothing" or self.loss != "keypoint" or self.starts > 1:
            got = f"--solver {self.method}, --loss {self.loss} and --starts {self.starts} for a body on a known base"
            raise UsageError(got, "the defaults", "leave them out: configurations are fitted by shooting already")

    def _check_camera(self) -> None:
        """Check a camera without a file."""
        given = self.camera if isinstance(self.camera, tuple) else (self.camera,)
        if not any(map(is_auto, given)):
            return
        if len(self.clips) > 1:
            got = f"--camera auto for {len(self.clips)} clips"
            raise UsageError(got, "one clip", "fit the clips one by one, or give a camera file with a pose")
        if self.camera_pose is not None:
            got = "--camera auto with --camera-pose"
            raise UsageError(got, "a camera file with fx, fy, cx, cy beside the pose", "leave --camera-pose out")
        if self.observation is not None and self.observation.suffix == ".npz":
            got = f"--camera auto with --observation {self.observation}"
            raise UsageError(got, "the camera of the run that measured it", "give the camera.yaml of that run")

    def check_hints(self) -> None:
        """Check the hints, their texts too."""
        if self.hint is None and self.hint_box is None:
            return
        if self.hint is not None and self.hint_box is not None:
            raise UsageError("--hint with --hint-box", "one of them", "leave one of them out")
        flag, given = ("--hint", self.hint) if self.hint_box is None else ("--hint-box", self.hint_box)
        texts = given if isinstance(given, tuple) else (given,)
        if len(texts) != len(self.clips):
            raise UsageError(f"{len(texts)} {flag} for {len(self.clips)} clips", "one a clip", "in the clips' order")
        if self.shape is None:
            raise UsageError(f"{flag} for a body on a known base", "a rigid body with its --mesh", "leave it out")
        if self.observation is not None:
            raise UsageError(f"{flag} with --observation, which needs no tracker", "one of them", "leave one out")
        for text in texts:
            (Hint.of_click if flag == "--hint" else Hint.of_box)(str(text))

    def _check_observation(self) -> None:
        """Check the keypoints of another tracker."""
        if self.observation is None:
            if self.body_points is not None:
                raise UsageError("--body-points without --observation", "both", "give the CSV of the keypoints, too")
            return
        if self.shape is None:
            raise UsageError("--observation for a body on a known base", "a rigid body with its --mesh", "leave it out")
        if len(self.clips) > 1:
            raise UsageError(f"--observation for {len(self.clips)} clips", "one clip", "fit the clips one by one")
        if self.loss not in ("keypoint", "state"):
            raise UsageError(f"--loss {self.loss} with --observation", "--loss keypoint or state", "leave one out")
        if (self.observation.suffix == ".npz") == (self.body_points is not None):
            how = "with" if self.body_points is not None else "without"
            got = f"--observation {self.observation} {how} --body-points"
            raise UsageError(got, "a CSV with --body-points FILE, or an observation.npz, which has its own points")
