"""Render datasets on disk: the layout of their files, and how they are read.

A folder holds `dataset.json` (the settings) and one safetensors file per shard of 32 samples. `make_dataset` writes it.
A reader memory-maps the shards, so that a dataset may be larger than the memory.

Sample i depends on (seed, i) alone. Two folders with equal settings hold the same bytes.

Keys of the files are those of version 0.1, whatever the code calls the values. `posture` holds configurations, and
`look_id` the number of the appearance. `looks` in an older `dataset.json` holds the count of appearances.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.risp.appearance.random_appearance import PSI_NAMES
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE
from vid2phys.types import Array

SCHEMA = "vid2phys.dataset/1"
SHARD_SAMPLES = 32
RECIPE = 2  # raise this number when renders change: old shards then do not mix with new ones
SETTINGS_FILE = "dataset.json"
_OPEN_SHARDS = 512


@dataclass(frozen=True)
class Settings:
    """How a dataset is rendered.

    Attributes:
        samples: Number of samples.
        gradient_share: Share of the samples with derivatives by psi, 0 to 1.
        seed: Seed of all random numbers.
        size: Width and height S of a render, px.
        spp: Samples per pixel of the path tracer.
        sequences: Whether samples are groups of 16 consecutive frames of one smooth motion.
        system: Name of the system.
        radius_m: Radius of the sphere about the body's origin, m.
        mesh_sha256: Digest of the mesh and its texture.
        schema: Version of the layout.
        recipe: Version of the rendering.
        psi_names: Names of the rendering parameters, in the order of the tangents.
        configurations: `ArticulatedBody.recipe` of an articulated or modal body, else empty.
        without: Names of what is not randomised (`Randomisation.off_in_renders`).
        appearances: Number of different appearances; 0 gives every sample or sequence its own.
    """

    samples: int
    gradient_share: float
    seed: int
    size: int
    spp: int
    sequences: bool
    system: str
    radius_m: float
    mesh_sha256: str
    schema: str = SCHEMA
    recipe: int = RECIPE
    psi_names: tuple[str, ...] = PSI_NAMES
    configurations: str = ""
    without: tuple[str, ...] = ()
    appearances: int = 0

    @property
    def shards(self) -> int:
        """Return the number of shard files."""
        return -(-self.samples // SHARD_SAMPLES)

    def indices(self, shard: int) -> range:
        """Return the indices of the samples of a shard."""
        return range(shard * SHARD_SAMPLES, min((shard + 1) * SHARD_SAMPLES, self.samples))

    def has_tangents(self, index: int) -> bool:
        """Return whether a sample carries dI/dpsi. Such samples are evenly spread over the dataset."""
        return int((index + 1) * self.gradient_share) > int(index * self.gradient_share)

    def appearance_of(self, index: int) -> int:
        """Return the number of a sample's appearance. The frames of a sequence share one."""
        group = index // FRAMES_PER_SEQUENCE if self.sequences else index
        return group % self.appearances if self.appearances else group


@dataclass(frozen=True)
class Render:
    """One sample: the body before black.

    Attributes:
        radiance: [S, S, 4] float16, linear premultiplied RGB and coverage.
        K: [3, 3] camera matrix, px; pixel centres at integers.
        view_from_body: [4, 4] pose, m, OpenCV axes.
        tangents: [P, S, S, 4] float16, d radiance / d psi for one standard deviation of each of `PSI_NAMES`, or None.
            The coverage does not change.
        appearance_id: Number of the appearance.
        time_s: Time within the sequence, s.
        configuration: [D] of an articulated or modal body, else None.
    """

    radiance: NDArray[np.float16]
    K: Array
    view_from_body: Array
    tangents: NDArray[np.float16] | None
    appearance_id: int
    time_s: float
    configuration: Array | None = None


class RenderSet:
    """A finished dataset, read through memory-mapped shards."""

    def __init__(self, folder: str | Path) -> None:
        """Open the dataset in `folder`. Raises InputError for a folder without one, or with shards missing."""
        self.folder = Path(folder)
        self.settings = read_settings(self.folder)
        missing = sum(not shard_path(self.folder, shard).exists() for shard in range(self.settings.shards))
        if missing:
            raise InputError(
                f"{self.folder} lacks {missing} of {self.settings.shards} shards",
                "a finished dataset",
                "make it again with the same settings: it goes on where it stopped",
            )

    def __len__(self) -> int:
        return self.settings.samples

    @property
    def psi_names(self) -> tuple[str, ...]:
        """Return the names of the rendering parameters, in the order of `tangents`."""
        return self.settings.psi_names

    @property
    def gradient_indices(self) -> NDArray[np.int64]:
        """Return the indices of the samples that have tangents."""
        return np.array([i for i in range(len(self)) if self.settings.has_tangents(i)], dtype=np.int64)

    def sample(self, index: int) -> Render:
        """Return sample `index`. Raises IndexError."""
        shard, row = self._locate(index)
        tangents = self.tangents(index) if self.settings.has_tangents(index) else None
        return Render(
            radiance=shard.get_slice("radiance")[row],
            K=shard.get_slice("K")[row],
            view_from_body=shard.get_slice("view_from_body")[row],
            tangents=tangents,
            appearance_id=int(shard.get_slice("look_id")[row]),
            time_s=float(shard.get_slice("time_s")[row]),
            configuration=shard.get_slice("posture")[row] if self.settings.configurations else None,
        )

    def radiance(self, index: int) -> NDArray[np.float16]:
        """Return the radiance [S, S, 4] of sample `index`. Raises IndexError."""
        shard, row = self._locate(index)
        return np.asarray(shard.get_slice("radiance")[row])

    def tangents(self, index: int) -> NDArray[np.float16]:
        """Return the tangents [P, S, S, 4] of sample `index`. Raises KeyError for a sample without any."""
        shard, row = self._locate(index)
        if not self.settings.has_tangents(index):
            raise KeyError(index)
        first = index - row
        place = sum(self.settings.has_tangents(i) for i in range(first, index))
        rgb = np.asarray(shard.get_slice("tangents")[place])
        return np.concatenate([rgb, np.zeros((*rgb.shape[:-1], 1), rgb.dtype)], axis=-1)

    def view_from_body(self) -> Array:
        """Return the poses [N, 4, 4] of all samples, m."""
        return self._all("view_from_body")

    def K(self) -> Array:  # noqa: N802
        """Return the camera matrices [N, 3, 3] of all samples, px."""
        return self._all("K")

    def appearance_id(self) -> NDArray[np.int64]:
        """Return the numbers [N] of all samples' appearances."""
        return self._all("look_id").astype(np.int64)

    def time_s(self) -> Array:
        """Return the times [N] within the sequences, s."""
        return self._all("time_s")

    def configurations(self) -> Array:
        """Return the configurations [N, D] of all samples of an articulated or modal body."""
        return self._all("posture")

    def _all(self, name: str) -> Array:
        shards = (open_shard(str(shard_path(self.folder, i))) for i in range(self.settings.shards))
        return np.concatenate([shard.get_tensor(name) for shard in shards])

    def _locate(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard, row = divmod(int(index), SHARD_SAMPLES)
        return open_shard(str(shard_path(self.folder, shard))), row


def shard_path(folder: Path, shard: int) -> Path:
    """Return the path of a shard's file."""
    return folder / f"shard_{shard:05d}.safetensors"


def read_settings(folder: Path) -> Settings:
    """Read the settings of the dataset in `folder`. Raises InputError."""
    try:
        data = json.loads((folder / SETTINGS_FILE).read_text())
        if "looks" in data:  # the key of version 0.1
            data["appearances"] = data.pop("looks")
        return Settings(**{**data, "psi_names": tuple(data["psi_names"]), "without": tuple(data.get("without", ()))})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder} holds no dataset ({error})", "a folder with dataset.json", "make one") from error


@lru_cache(maxsize=_OPEN_SHARDS)
def open_shard(path: str) -> Any:
    """Return the open safetensors file at `path`. Raises InputError for a damaged one."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="np").__enter__()
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"'{path}' is damaged", "renders", "remove it and repeat the training: it is made again"
        ) from error
