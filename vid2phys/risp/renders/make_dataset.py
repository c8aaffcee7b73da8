"""Make a render dataset: render what is missing, on this machine or on a cluster.

An interrupted call is resumed: a later call with the same settings renders the missing shards only. One single-threaded
process renders each image. Neither the number of workers nor a restart changes a byte.

Limits: changed code that renders other bytes must raise `dataset.RECIPE`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.system import System
from vid2phys.errors import InputError
from vid2phys.io.files import write_text
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.renders.dataset import SETTINGS_FILE, RenderSet, Settings, open_shard, read_settings, shard_path
from vid2phys.types import Mesh


@dataclass(frozen=True)
class RenderOptions:
    """What to render.

    Attributes:
        samples: Number of renders.
        seed: Seed of all random numbers.
        gradient_share: Share of the samples with derivatives by psi, 0 to 1.
        size: Width and height of a render, px.
        spp: Samples per pixel.
        sequences: Whether to render groups of 16 consecutive frames of a smooth motion, each in one appearance.
            Calibration needs them.
        articulated: The articulated or modal body to whom the mesh belongs; None renders poses of a rigid body.
        varied: What is randomised.
        appearances: Number of different appearances, used in turn; 0 gives every sample its own.
    """

    samples: int
    seed: int
    gradient_share: float = 0.2
    size: int = 96
    spp: int = 16
    sequences: bool = False
    articulated: ArticulatedBody | None = None
    varied: Randomisation = ALL
    appearances: int = 0


def make_dataset(
    mesh: Mesh,
    system: System,
    folder: str | Path,
    options: RenderOptions,
    *,
    workers: int = 2,
    ray: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RenderSet:
    """Render images of `mesh` into `folder`, and go on where an earlier call stopped.

    Args:
        mesh: The body's mesh, m.
        system: The system whose states give the poses.
        folder: Where the dataset is, or is to be.
        options: What to render.
        workers: Number of processes on this machine.
        ray: Address of a cluster that renders in place of the workers.
        progress: Is called with (samples done, samples).

    Returns:
        The finished dataset.

    Raises:
        InputError: The folder holds a dataset with other settings.
        MissingDependencyError: LLVM is missing.
        RenderError: The renderer died repeatedly.
    """
    from vid2phys.risp.renders.ray_cluster import render_on_ray
    from vid2phys.risp.renders.workers import render_missing

    folder, source = Path(folder), options.articulated or system
    settings = _settings(mesh, system, options)
    _prepare(folder, settings)
    missing = [shard for shard in range(settings.shards) if not _is_whole(shard_path(folder, shard))]
    if ray is not None and missing:
        render_on_ray(mesh, source, folder, settings, missing, ray, progress)
    else:
        render_missing(mesh, source, folder, settings, missing, workers=workers, progress=progress)
    return RenderSet(folder)


def _settings(mesh: Mesh, system: System, options: RenderOptions) -> Settings:
    """Return the settings that a dataset with these options has."""
    body = options.articulated
    return Settings(
        options.samples,
        options.gradient_share,
        options.seed,
        options.size,
        options.spp,
        options.sequences,
        system.name,
        float(np.linalg.norm(mesh.vertices, axis=1).max()) if body is None else body.reach_m,
        _mesh_digest(mesh),
        without=options.varied.off_in_renders,
        appearances=options.appearances,
        configurations="" if body is None else body.recipe,
    )


def _is_whole(path: Path) -> bool:
    """Return whether a shard exists. Remove a damaged one, so that it is rendered again."""
    if not path.exists():
        return False
    try:
        open_shard(str(path))
    except InputError:
        path.unlink()
        return False
    return True


def _prepare(folder: Path, settings: Settings) -> None:
    """Write the settings, or compare them with those in the folder. Raises InputError for other ones."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / SETTINGS_FILE).exists():
        write_text(folder / SETTINGS_FILE, json.dumps(asdict(settings), indent=1) + "\n")
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
    """Return a SHA-256 digest of the mesh's geometry, parts and texture."""
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
