"""Which trained model fits a mesh: by its geometry, wherever the file came from."""

from __future__ import annotations

from pathlib import Path

from vid2phys.errors import InputError
from vid2phys.io.geometry import SAME_GEOMETRY
from vid2phys.io.mesh import GeometrySignature, geometry_signature, signature_distance
from vid2phys.risp.networks.mesh_moves import LARGEST_SCALE, find_move
from vid2phys.risp.networks.model import Model, read_config
from vid2phys.risp.networks.model_folders import model_folders, model_search_paths
from vid2phys.types import Mesh

TRAINING_TIME = "about 35 minutes on 2 cores"
_SAME_SIZE = 1e-3  # as the mesh's own numbers are rounded


def find_model(
    mesh: Mesh,
    explicit: str | Path | None = None,
    *,
    mesh_path: str | Path | None = None,
    units: str = "m",
    move: str | None = None,
    system: str = "quadrotor",
    device: str = "cpu",
) -> Model:
    """The model trained for this shape, scaled to the mesh, from `explicit` or else the places of `model_search_paths`.

    Raises InputError when the explicit model is for another shape, or when no model fits. Where the mesh only stands
    otherwise than the model's, the message is the option that brings it there; else the command that trains a model.
    mesh_path, units, move and system only serve that message: how the mesh was read.
    """
    signature = geometry_signature(mesh)
    command = train_command(mesh, mesh_path, system, units, move)
    if explicit is not None:
        folder = Path(explicit)
        distance, scale = _distance(folder, signature)
        if distance > SAME_GEOMETRY:
            _refuse_moved(mesh, [folder], system, units, move)
            raise InputError(
                f"the model '{folder}' is for another shape than '{mesh.name}' (off by {distance:.0%} of its size)",
                f"a model within {SAME_GEOMETRY:.0%}",
                f"leave --model out, or {_train(command)}",
            )
        return Model.load(folder, device).scaled(scale)
    ranked = sorted((*_distance(folder, signature), str(folder)) for folder in model_folders(model_search_paths()))
    fitting = [each for each in ranked if each[0] <= SAME_GEOMETRY]
    if fitting:
        _, scale, folder_name = fitting[0] if len(fitting) == 1 else _alike(mesh, fitting)
        return Model.load(folder_name, device).scaled(scale)
    _refuse_moved(mesh, [Path(folder) for _, _, folder in ranked], system, units, move)
    nearest = f" (the nearest, '{ranked[0][2]}', differs by {ranked[0][0]:.0%} of its size)" if ranked else ""
    raise InputError(f"no model for the mesh '{mesh.name}'{nearest}", "one trained for this shape", _train(command))


def _alike(mesh: Mesh, fitting: list[tuple[float, float, str]]) -> tuple[float, float, str]:
    """Of models for one shape, the one trained with paint, or without, as the mesh has it."""
    painted = mesh.texture is not None
    return min(fitting, key=lambda each: read_config(Path(each[2]))["mesh"].get("painted", False) != painted)


def train_command(
    mesh: Mesh, mesh_path: str | Path | None, system: str, units: str = "m", move: str | None = None
) -> str:
    """What to type to get a model for a mesh; no mesh for a system that has one of its own, of its name."""
    own = mesh_path is None and mesh.name == system
    given = "" if own else f"--mesh {mesh_path or mesh.name} "
    given += "" if units == "m" else f"--mesh-units {units} "
    given += "" if move is None else f"--mesh-move {move} "
    return f"vid2phys train-risp {given}--system {system} --out models/{mesh.name}"


def _train(command: str) -> str:
    return f"run `{command}` (training takes {TRAINING_TIME})"


def _refuse_moved(mesh: Mesh, folders: list[Path], system: str, units: str, move: str | None) -> None:
    """Raise InputError where the mesh has the shape of a model in other axes, at another origin or in another unit."""
    found = find_move(mesh, [(folder, signature) for folder in folders if (signature := _rigid_signature(folder))])
    if found is None:
        return
    axes = "for a quadrotor x forward, y left, z up, the origin at its centre of mass" if system == "quadrotor" else ""
    got = f"no model for the mesh '{mesh.name}' as it stands; {found.words}, it has the shape of '{found.folder}'"
    expected = "the body's axes, origin and unit" + (f" ({axes})" if axes else "")
    raise InputError(got, expected, found.remedy(units, move))


def _rigid_signature(folder: Path) -> GeometrySignature | None:
    config = read_config(folder)
    return GeometrySignature.from_json(config["mesh"]["signature"]) if config.get("kind", "rigid") == "rigid" else None


def _distance(folder: Path, signature: GeometrySignature) -> tuple[float, float]:
    """How far the model's shape is from another, and the factor that makes the model's as large as it.

    A view shows no size, so that a model serves a body of its shape in any size. Sizes that differ by more than 1 to
    LARGEST_SCALE are rather units that were mistaken.
    """
    config = read_config(folder)
    try:
        own = GeometrySignature.from_json(config["mesh"]["signature"])
        scale = signature.radius / own.radius
        rigid = config.get("kind", "rigid") == "rigid"
        if not rigid or abs(scale - 1.0) < _SAME_SIZE or not 1.0 / LARGEST_SCALE < scale < LARGEST_SCALE:
            scale = 1.0
        return signature_distance(own.scaled(scale), signature), scale
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"the model '{folder}' has no mesh signature", "a whole config.json", "train it again"
        ) from error
