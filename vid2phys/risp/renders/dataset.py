"""Training images on disk: resumable, and the same bytes for a seed however often the making was interrupted.

A folder holds `dataset.json` (how it was made) and one safetensors file a shard. Sample i depends on (seed, i) alone
and every image is rendered by a process with one thread, so neither the number of workers nor a restart shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.system import System
from vid2phys.errors import InputError
from vid2phys.io.files import write_text
from vid2phys.risp.appearance.random_appearance import PSI_NAMES
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE, SEQUENCE_FPS
from vid2phys.types import Array, Mesh

SCHEMA = "vid2phys.dataset/1"
SHARD_SAMPLES = 32
RECIPE = 2  # raise when renders come out otherwise: old shards then do not mix with new ones
_OPEN_SHARDS = 512


@dataclass(frozen=True)
class Settings:
    """How a dataset is made; two folders with equal settings hold the same bytes.

    without: names of what is not randomised (`Randomisation.off_in_renders`). looks: how many there are, 0: one for
    each sample or sequence.
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
    configurations: str = ""  # the recipe of a body on a known base, which is `ArticulatedBody.recipe`
    without: tuple[str, ...] = ()
    looks: int = 0

    @property
    def shards(self) -> int:
        """Number of shard files."""
        return -(-self.samples // SHARD_SAMPLES)

    def indices(self, shard: int) -> range:
        """The samples of a shard."""
        return range(shard * SHARD_SAMPLES, min((shard + 1) * SHARD_SAMPLES, self.samples))

    def has_tangents(self, index: int) -> bool:
        """Whether a sample carries dI/dpsi: evenly spread over the dataset."""
        return int((index + 1) * self.gradient_share) > int(index * self.gradient_share)


@dataclass(frozen=True)
class Render:
    """One sample: the object alone on black.

    radiance: [S, S, 4] float16, linear premultiplied RGB and coverage. K: [3, 3] px, centres at integers.
    view_from_body: [4, 4] m, OpenCV axes. tangents: [P, S, S, 4] float16, d radiance / d psi for one standard
    deviation of each of PSI_NAMES (coverage does not change), or None. look_id: the look; the frames of a sequence
    share it. time_s: within the sequence. configuration: [D] of a body on a known base (`posed`), else None.
    """

    radiance: NDArray[np.float16]
    K: Array
    view_from_body: Array
    tangents: NDArray[np.float16] | None
    look_id: int
    time_s: float
    configuration: Array | None = None


def make_dataset(
    mesh: Mesh,
    system: System,
    folder: str | Path,
    *,
    samples: int,
    seed: int,
    gradient_share: float = 0.2,
    size: int = 96,
    spp: int = 16,
    workers: int = 2,
    sequences: bool = False,
    articulated: ArticulatedBody | None = None,
    varied: Randomisation = ALL,
    looks: int = 0,
    ray: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RenderSet:
    """Renders `samples` images of `mesh` into `folder`, going on where an earlier call stopped.

    gradient_share: share of the samples with dI/dpsi. sequences: groups of 16 consecutive frames of smooth motion
    under one look, for calibration. posed: the body whose mesh this is, if its base is known and its shape is what
    varies. varied: what is randomised at all. looks: only so many, in turn (0: ever new ones). ray: address of a
    cluster that renders instead of `workers` here. progress: called with (samples done, samples). Raises InputError
    when the folder holds a dataset made otherwise, MissingDependencyError without LLVM.
    """
    from vid2phys.risp.renders.ray_cluster import render_on_ray
    from vid2phys.risp.renders.workers import render_missing

    folder = Path(folder)
    radius_m = float(np.linalg.norm(mesh.vertices, axis=1).max()) if articulated is None else articulated.reach_m
    settings = Settings(
        *(samples, gradient_share, seed, size, spp, sequences, system.name, radius_m, _mesh_digest(mesh)),
        without=varied.off_in_renders,
        looks=looks,
        configurations="" if articulated is None else articulated.recipe,
    )
    _prepare(folder, settings)
    missing = [shard for shard in range(settings.shards) if not _is_whole(shard_path(folder, shard))]
    if ray is not None and missing:
        render_on_ray(mesh, articulated or system, folder, settings, missing, ray, progress)
    else:
        render_missing(mesh, articulated or system, folder, settings, missing, workers=workers, progress=progress)
    return RenderSet(folder)


class RenderSet:
    """A finished dataset, read through memory-mapped shards. Raises InputError when there is none or it has gaps."""

    def __init__(self, folder: str | Path) -> None:
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
        """Names of the rendering parameters, in the order of `tangents`."""
        return self.settings.psi_names

    @property
    def gradient_indices(self) -> NDArray[np.int64]:
        """The samples that have tangents."""
        return np.array([i for i in range(len(self)) if self.settings.has_tangents(i)], dtype=np.int64)

    def sample(self, index: int) -> Render:
        """Sample `index`. Raises IndexError."""
        shard, row = self._locate(index)
        tangents = self.tangents(index) if self.settings.has_tangents(index) else None
        return Render(
            radiance=shard.get_slice("radiance")[row],
            K=shard.get_slice("K")[row],
            view_from_body=shard.get_slice("view_from_body")[row],
            tangents=tangents,
            look_id=int(shard.get_slice("look_id")[row]),
            time_s=float(shard.get_slice("time_s")[row]),
            configuration=shard.get_slice("posture")[row] if self.settings.configurations else None,
        )

    def radiance(self, index: int) -> NDArray[np.float16]:
        """[S, S, 4] of sample `index`."""
        shard, row = self._locate(index)
        return np.asarray(shard.get_slice("radiance")[row])

    def tangents(self, index: int) -> NDArray[np.float16]:
        """[P, S, S, 4] of sample `index`. Raises KeyError when it has none (see `gradient_indices`)."""
        shard, row = self._locate(index)
        if not self.settings.has_tangents(index):
            raise KeyError(index)
        first = index - row
        place = sum(self.settings.has_tangents(i) for i in range(first, index))
        rgb = np.asarray(shard.get_slice("tangents")[place])
        return np.concatenate([rgb, np.zeros((*rgb.shape[:-1], 1), rgb.dtype)], axis=-1)

    def view_from_body(self) -> Array:
        """[N, 4, 4] of all samples."""
        return self._all("view_from_body")

    def K(self) -> Array:  # noqa: N802
        """[N, 3, 3] of all samples."""
        return self._all("K")

    def look_id(self) -> NDArray[np.int64]:
        """[N] of all samples."""
        return self._all("look_id").astype(np.int64)

    def time_s(self) -> Array:
        """[N] time within the sequence, s."""
        return self._all("time_s")

    def configurations(self) -> Array:
        """[N, D] of all samples of a body on a known base."""
        return self._all("posture")

    def _all(self, name: str) -> Array:
        shards = (_open(str(shard_path(self.folder, i))) for i in range(self.settings.shards))
        return np.concatenate([shard.get_tensor(name) for shard in shards])

    def _locate(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard, row = divmod(int(index), SHARD_SAMPLES)
        return _open(str(shard_path(self.folder, shard))), row


def shard_path(folder: Path, shard: int) -> Path:
    """File of a shard."""
    return folder / f"shard_{shard:05d}.safetensors"


def read_settings(folder: Path) -> Settings:
    """How the dataset in `folder` is made. Raises InputError."""
    try:
        data = json.loads((folder / "dataset.json").read_text())
        return Settings(**{**data, "psi_names": tuple(data["psi_names"]), "without": tuple(data.get("without", ()))})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{folder} holds no dataset ({error})", "a folder with dataset.json", "make one") from error


def group_of(settings: Settings, index: int) -> int:
    """The look of a sample: its own, or that of its sequence."""
    group = index // FRAMES_PER_SEQUENCE if settings.sequences else index
    return group % settings.looks if settings.looks else group


@lru_cache(maxsize=_OPEN_SHARDS)
def _open(path: str) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="np").__enter__()
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"'{path}' is damaged", "renders", "remove it and repeat the training: it is made again"
        ) from error


def _is_whole(path: Path) -> bool:
    """Whether a shard is there. One that is damaged is removed: it is made again."""
    if not path.exists():
        return False
    try:
        _open(str(path))
    except InputError:
        path.unlink()
        return False
    return True


def _prepare(folder: Path, settings: Settings) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "dataset.json").exists():
        write_text(folder / "dataset.json", json.dumps(asdict(settings), indent=1) + "\n")
        return
    there = read_settings(folder)
    if there != settings:
        names = [n for n, value in asdict(settings).items() if getattr(there, n) != value]
        raise InputError(
            f"{folder} holds a dataset with another {', '.join(names)}",
            "an empty folder or the same settings",
            "choose another folder or remove this one",
        )


def _mesh_digest(mesh: Mesh) -> str:
    import hashlib

    digest = hashlib.sha256()
    for array in (mesh.vertices.astype("<f8"), mesh.faces.astype("<i8"), mesh.part.astype("<i8")):
        digest.update(np.ascontiguousarray(array).tobytes())
    if mesh.texture is not None:
        texture = mesh.texture
        for image in texture.images:
            digest.update(str(image.shape).encode() + np.ascontiguousarray(image).tobytes())
        for array in (texture.image.astype("<i8"), texture.uv.astype("<f8"), texture.corner_color.astype("<f8")):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


__all__ = [
    "FRAMES_PER_SEQUENCE",
    "PSI_NAMES",
    "SEQUENCE_FPS",
    "Render",
    "RenderSet",
    "Settings",
    "make_dataset",
]
