"""The contract of a physical system: what engine, tracker and solvers may ask of one.

Arrays are float64 and batched over leading axes. N is the size of a state, D that of its tangent space, M the number of
controls, P the number of parameters. States live on a manifold: solvers, Jacobians and covariances know tangents only.

Bodies that bend (soft bodies, cloth) have a state for every vertex. Their points and meshes are given in the shape at
rest and move with the element they lie in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np

from vid2phys.errors import UsageError, unknown_name
from vid2phys.types import Array, Mesh, Parameters

if TYPE_CHECKING:
    from torch import Tensor

WORLD, BODY = "world", "body"  # axes of states
TO_WORLD = "body to world, quaternion wxyz"
Integrator = Literal["rk4", "semi_implicit_euler", "implicit_euler", "implicit_midpoint"]
Precision = Literal["double", "single"]
Observed = Literal["rigid", "hinge", "joints", "modes", "clamped", "vertices"]
InputKind = Literal["rotors", "wrench", "push", "other"]
NOT_DECLARED = "it does not declare what a camera sees of it"


@dataclass(frozen=True)
class Capabilities:
    """What the commands may offer for a system. Help, defaults and refusals come from here.

    A camera sees the configuration of a body, from which its state follows:

    - "rigid": position and orientation of one body. The state is that of `RigidBodies` with one body, `body_pose` gives
      the pose of a state. The parameters have `mass`, `inertia_xx`, `inertia_yy` and `inertia_zz`. The controls end
      with a disturbance force and torque.
    - "hinge": the angle of one rigid body on a fixed axis, with a mesh that the user gives. The state is the angle from
      where the centre of mass hangs, and its rate; the system is `engine.movable.hinged.Swinging`.
    - "joints": the joint coordinates of a `JointTree` on a fixed base, see `engine.movable.joints`.
    - "modes": the mode amplitudes of a clamped body, see `engine.movable.modes`.
    - "clamped": the mode amplitudes of a body of tets that the user gives and clamps, see `engine.movable.clamped`.
    - "vertices": the motion of all vertices of a `VertexBody` that the user gives, as one rollout, see
      `solvers.vertex_fit`.
    - None: no tracker estimates the state from images. The system is simulated and fitted to recordings.
    """

    purpose: str = ""
    """What the system is for, in one line without a full stop. Empty: the first sentence of its docstring."""
    observed_as: Observed | None = None
    """What the tracker estimates in each frame of a clip, None where there is no tracker for this system."""
    called: str = "body"
    """What messages call such a body."""
    reason: str = NOT_DECLARED
    """Why no clip serves, in words. Only used where `observed_as` is None."""
    alternative: str = ""
    """The command to use where `identify` refuses the system. Empty: `fit-recording`."""
    inertial: tuple[str, ...] = ()
    """Parameters of the body. A name stands also for all names that it begins ("mass" for "mass_upper")."""
    scene: tuple[str, ...] = ()
    """Parameters of what surrounds the body: gravity, ground, air."""
    fitted: tuple[str, ...] = ()
    """Parameters that `identify` fits where the user names none."""
    excited_by: Mapping[str, str] = field(default_factory=dict)
    """The motion or input that determines each parameter, in words. Keys are names as in `inertial`."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names that stand for several parameters in `--fit`."""
    without_effect: tuple[str, ...] = ()
    """Parameters that do not change the motion of this body, as it is made. `identify` refuses to fit them."""
    of_impacts: tuple[str, ...] = ()
    """Parameters of contact that are fitted by rollouts after the smoothing (`fit_impacts`, `fit_springs`)."""
    inputs: tuple[InputKind, ...] = ()
    """Kinds of recorded actions that it takes (`io/actions.py`). Empty: the file names actions as `action_names`."""
    balanced: bool = True
    """Whether what holds the body at rest drives it in a clip without recorded actions. False: nothing does."""
    caution: str = ""
    """What the reader of a fitted value must know. Empty: nothing."""

    def needed_for(self, parameter: str) -> str:
        """Return what determines a parameter, in words; "" where that is not declared."""
        keys = [key for key in self.excited_by if parameter == key or parameter.startswith(f"{key}_")]
        return self.excited_by[max(keys, key=len)] if keys else ""

    def remedies(self, parameters: Iterable[str]) -> dict[str, str]:
        """Return a sentence on what determines each of the parameters, by name, as far as that is declared."""
        needed = {name: self.needed_for(name) for name in parameters}
        return {name: f"{name} needs {what}" for name, what in needed.items() if what}


class CompiledIntervals(Protocol):
    """Whole rollouts on the CPU in compiled loops of a system's own, where launches of kernels would be slow.

    States are [S + 1, B, N], controls [B, S, M], parameters [1 or B, P], dt_s [1 or B, S], all float64 whatever the
    precision computed in. The numbers are those of `launch_step` but for rounding.
    """

    @property
    def integrators(self) -> tuple[Integrator, ...]:
        """Return the integrators that have such loops."""
        ...

    def forward(
        self, states: Array, controls: Array, parameters: Array, dt_s: Array, *, substeps: int, precision: Precision
    ) -> None:
        """Fill states[1:] from states[0]."""
        ...

    def backward(
        self,
        states: Array,
        cotangents: Array,
        controls: Array,
        parameters: Array,
        dt_s: Array,
        *,
        substeps: int,
        precision: Precision,
    ) -> tuple[Array, Array, Array]:
        """Return gradients by initial states, controls and parameters (shapes as given) from those by all states."""
        ...


class System(ABC):
    """A physical system with states, controls, parameters and a body that a camera sees."""

    name: ClassVar[str]
    integrators: ClassVar[tuple[Integrator, ...]]  # the default one comes first
    # those that depend on the kind of input or on the mesh are set per instance
    state_names: tuple[str, ...]  # [N], name and unit
    # axes of the states, by how the states' names begin (the longest that fits): WORLD, BODY ... Empty: not stated
    state_frames: Mapping[str, str] = {}
    tangent_names: tuple[str, ...]  # [D]
    action_names: tuple[str, ...]  # the first controls: what drives the system
    action_units: tuple[str, ...]
    control_names: tuple[str, ...]  # [M]: actions, then disturbances
    control_inertia: tuple[str, ...]  # [M]: the parameter that turns an acceleration into this control, "" if none does
    control_groups: tuple[str, ...]  # [M]: controls of one group share the level and bandwidth of their prior
    surface: Mesh | None = None  # the body's own, in the axes of its points: what is filmed when no other mesh is given
    compiled: CompiledIntervals | None = None  # what rollouts on the CPU use instead of launches, if there is any
    input: InputKind = "other"  # the kind of actions that `action_names` are

    @property
    def capabilities(self) -> Capabilities:
        """Return what the commands may offer for this system. A system declares its own."""
        return Capabilities()

    def called_as(self, names: Collection[str]) -> Self:
        """Return the system, of which some parameters have other names where `names` has these."""
        return self

    def with_input(self, kind: InputKind) -> Self:
        """Return the system whose actions are of this kind, one of `capabilities.inputs`."""
        return self

    def for_clip(self, mesh: Mesh) -> System:
        """Return the system as it is fitted to a clip of the body `mesh`."""
        return self

    @abstractmethod
    def parameters(self) -> Parameters:
        """Return the parameters with their default values, in the order in which the kernels take them."""

    def derived(self, parameters: Array) -> dict[str, tuple[float, str]]:
        """Return what follows from the parameters [P] and shows in a motion by itself: value and unit by name."""
        return {}

    @abstractmethod
    def retract(self, states: Array, tangent: Array) -> Array:
        """Return the states reached from `states` [..., N] along `tangent` [..., D]."""

    @abstractmethod
    def local(self, a: Array, b: Array) -> Array:
        """Return the tangent [..., D] that takes state a to state b, [..., N] each: retract(a, local(a, b)) = b."""

    @abstractmethod
    def tangent_basis(self, states: Array) -> Array:
        """Return d retract(s, t) / dt at t = 0, [..., N] -> [..., N, D]."""

    @abstractmethod
    def cotangent_basis(self, states: Array) -> Array:
        """Return d local(s, b) / db at b = s, [..., N] -> [..., D, N]."""

    @abstractmethod
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
        """Launch the kernels of one substep on Warp arrays of float64, which a tape can record.

        states, next_states: [B, N], never the same array. controls: [B, S, M], of which interval `step` is held.
        parameters: [1 or B, P]. dt_s: [1 or B, S], length of the intervals, of which this substep covers `fraction`.
        What is not a Warp kernel (a sparse solver) records its own adjoint on the tape (`warp.Tape.record_func`).
        """

    def only_launches(self, integrator: Integrator) -> bool:
        """Return whether the steps are launches and nothing else, so that `engine.replay` may record them."""
        return not is_implicit(integrator)

    @abstractmethod
    def longest_step_s(self, parameters: Array) -> float:
        """Return the longest explicit step [s] that is stable near rest, for one vector [P]; inf if any is."""

    @abstractmethod
    def body_pose(self, states: Array) -> tuple[Array, Array]:
        """Return position [..., 3] m and orientation [..., 4] (quaternion wxyz, body to world) of the (root) body."""

    @abstractmethod
    def keypoints(self, states: Array, points_body: Array) -> Array:
        """Return where points [K, 3] m of the body are in the world, [..., N] -> [..., K, 3] m."""

    def tensor_points(self, states: Tensor, points_body: Array, body: int = 0) -> Tensor | None:
        """Return what `points.world_points` does by operations of PyTorch, None for a system that has none."""
        return None

    @abstractmethod
    def keypoints_jacobian(self, states: Array, points_body: Array) -> Array:
        """Return d keypoints / d tangent of the state, [..., N] -> [..., K, 3, D]."""

    @abstractmethod
    def vertices(self, state: Array, mesh_vertices: Array) -> Array:
        """Return the world positions of the vertices [V, 3] m of the body's mesh for one state [N]."""

    @abstractmethod
    def rest_state(self) -> Array:
        """Return the state [N] from which a simulation starts by default.

        The body has its shape at rest, unit quaternions and joints at zero. Nothing moves. A body that would reach
        into the ground lies on the ground.
        """

    @abstractmethod
    def sample_state(self, rng: np.random.Generator, n: int) -> Array:
        """Return random states [n, N]; images for training show them."""

    @abstractmethod
    def hover_controls(self, parameters: Array) -> Array:
        """Return the controls [M] that hold the system at rest (zeros where nothing has to)."""

    def carrying_controls(self, parameters: Array) -> Array:
        """Return the controls [M] by which a hand carries the weight of the body (default: `hover_controls`)."""
        return self.hover_controls(parameters)


def is_implicit(integrator: str) -> bool:
    """Return whether steps of an integrator may be longer than those of explicit ones."""
    return integrator.startswith("implicit")


def check_scheme(system: System, integrator: str | None, substeps: int) -> Integrator:
    """Return the integrator, for None the default. Raises UsageError if the system has no such, or for no substep."""
    if substeps < 1:
        raise UsageError(f"{substeps} substeps an interval", "1 or more", "raise substeps")
    if integrator is None:
        return system.integrators[0]
    for known in system.integrators:
        if known == integrator:
            return known
    raise unknown_name("integrator", integrator, system.integrators)


def compiled_intervals(
    system: System, integrator: Integrator, device: str, precision: Precision
) -> CompiledIntervals | None:
    """Return the compiled loops that do the job, None for launches. Raises UsageError for an unknown precision."""
    if precision not in ("double", "single"):
        raise unknown_name("precision", precision, ("double", "single"))
    compiled = system.compiled
    if compiled is not None and integrator in compiled.integrators and str(device) == "cpu":
        return compiled
    if precision == "single":
        raise UsageError(
            f"single precision for '{system.name}' with {integrator} on {device}",
            "double, or a system with compiled loops on the CPU",
            "leave precision at double",
        )
    return None
