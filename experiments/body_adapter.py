"""The contract of a body adapter: what a table does with a body.

A body has a pose (`rigid`) or a configuration (`articulated`). Limits: one body before one camera.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.types import Array, Camera, Mesh

if TYPE_CHECKING:
    from torch import nn

    from experiments.methods import Learnt
    from vid2phys.commands.training_progress import TrainingProgress
    from vid2phys.risp.heads import Head
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.recipes import TrainingData


@dataclass(frozen=True)
class Frames:
    """Frames that show a body, with the truth.

    Attributes:
        pieces: [N, 160, 160, 3] uint8, cut out of the frames.
        cameras: Cameras of the pieces, in the body's world.
        states: [N, ...], what the pieces show.
        configuration: [N], index of the appearance in `test_renderer.CONFIGURATIONS`.
    """

    pieces: NDArray[np.uint8]
    cameras: list[Camera]
    states: Array
    configuration: NDArray[np.int64]


@dataclass(frozen=True)
class Estimates:
    """What a method estimates in frames: the paper's vectors [N, S] and states [N, ...], None where it has none."""

    vectors: Array
    states: Array | None = None


@dataclass(frozen=True)
class Score:
    """One metric of N frames, NaN where there is none. median: whether the table has the median, else the mean."""

    values: Array
    unit: str
    median: bool = False


@dataclass(frozen=True)
class RenderPlan:
    """The renders that a training uses.

    Attributes:
        folder: The folder of this body.
        made: How many images are rendered.
        samples: How many images are used.
        appearances: How many appearances there are; 0: each image has a new one (see `RenderOptions`).
        seed: Seed of the renders.
        view_size: V px, 0 for the body's own.
        by_color: Whether the training separates symmetry elements that only colours tell apart. A keypoint network
            does not, since the texture cue tells them apart later.
        varied: What is randomised.
    """

    folder: Path
    made: int
    samples: int
    appearances: int
    seed: int
    view_size: int
    by_color: bool = False
    varied: Randomisation = ALL

    @property
    def data(self) -> Path:
        """Return where they lie."""
        return self.folder / "-".join(
            ["data", *map(str, (self.made, self.appearances, self.seed)), *self.varied.off_in_renders]
        )


class BodyAdapter(ABC):
    """A body of the tables.

    Attributes:
        name: Its name in the tables.
        mesh: The mesh that is drawn.
        radius_m: Unit of length of the scene, m.
        paper: RISP's own state error.
        training_command: The command that trains its model.
        view_size: V px of our own head.
    """

    name: str
    mesh: Mesh
    radius_m: float
    paper: float
    training_command: str
    view_size: int

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Return random states [N, ...]."""

    @abstractmethod
    def cameras(self, rng: np.random.Generator, states: Array) -> list[Camera]:
        """Return for each state the camera of a frame's piece that shows the body."""

    @abstractmethod
    def vertices(self, state: Array) -> Array:
        """Return where the mesh's vertices are in the world, [V, 3] m."""

    @abstractmethod
    def stage_from_world(self, camera: Camera) -> Array:
        """Return the transform [4, 4] from the world to the scene of the test renderer, lengths in metres."""

    @abstractmethod
    def vectors(self, states: Array) -> Array:
        """Return the paper's vectors of states, [N, ...] -> [N, S]."""

    @abstractmethod
    def training_data(self, plan: RenderPlan, progress: TrainingProgress) -> TrainingData:
        """Return renders of the body; renders that exist are used again."""

    @abstractmethod
    def model(self, learnt: Learnt) -> Model:
        """Return a keypoint network as a model to read frames with."""

    @abstractmethod
    def estimate_by_keypoints(self, model: Model, frames: Frames, seed: int, *, edges: bool = True) -> Estimates:
        """Return what a model of keypoints says of frames; with `edges` what the frames' own edges add."""

    @abstractmethod
    def estimate_by_state(self, learnt: Learnt, frames: Frames, seed: int) -> Estimates:
        """Return what a state head says of frames."""

    @abstractmethod
    def scores(self, estimates: Estimates, frames: Frames) -> dict[str, Score]:
        """Return all metrics of a reading, the one that is compared with the paper first."""

    @abstractmethod
    def validation(self, judge: TrainingData, head: Head) -> Callable[[nn.Module], dict[str, float]]:
        """Return a function that judges networks of a head by the judge's held-out renders and adds `state_error`,
        which heads share.
        """
