"""Find the trained model that fits a mesh, by its geometry.

Limits: a mesh in other axes is refused, with the option that brings it to the model's axes (`mesh_moves`).
"""

from __future__ import annotations

from pathlib import Path

from vid2phys.errors import InputError
from vid2phys.io.geometry import SAME_GEOMETRY
from vid2phys.io.mesh import GeometrySignature, geometry_signature, signature_distance
from vid2phys.io.primitives import is_primitive
from vid2phys.risp.networks.mesh_moves import LARGEST_SCALE, find_move
from vid2phys.risp.networks.model import Model, read_config
from vid2phys.risp.networks.model_folders import model_folders, model_search_paths
from vid2phys.types import Mesh

TRAINING_TIME = "about 35 minutes on 2 cores"
_SAME_SIZE = 1e-3  # relative; the numbers of a mesh are rounded


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
    """Return the model that was trained for this shape, scaled to the mesh.

    Args:
        mesh: The mesh, m.
        explicit: Folder of a model; None searches `model_search_paths`.
        mesh_path: File of the mesh, or the primitive, for the error's text, as the next three.
        units: Its units.
        move: Its move, as `--mesh-move` has it.
        system: Name of the system.
        device: torch's name of the device.

    Raises:
        InputError: The explicit model has another shape, or no model fits. The remedy is the option that brings the
            mesh to a model's axes, else the command that trains a model.
    """
    signature = geometry_signature(mesh)
    command = train_command(mesh, mesh_path, system, units, move)
    if explicit is None:
        model = fitting_model(mesh, units=units, move=move, system=system, device=device)
        if model is not None:
            return model
        ranked = _ranked(signature)
        nearest = f" (the nearest, '{ranked[0][2]}', differs by {ranked[0][0]:.0%} of its size)" if ranked else ""
        raise InputError(f"no model for the mesh '{mesh.name}'{nearest}", "one trained for this shape", _train(command))
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


def fitting_model(
    mesh: Mesh, *, units: str = "m", move: str | None = None, system: str = "quadrotor", device: str = "cpu"
) -> Model | None:
    """Return the model of `model_search_paths` that was trained for this shape, scaled to the mesh; None without one.

    Args: as of `find_model`.

    Raises:
        InputError: A model has this shape in other axes, at another origin or in another unit.
    """
    ranked = _ranked(geometry_signature(mesh))
    fitting = [each for each in ranked if each[0] <= SAME_GEOMETRY]
    if fitting:
        _, scale, folder_name = fitting[0] if len(fitting) == 1 else _alike(mesh, fitting)
        return Model.load(folder_name, device).scaled(scale)
    _refuse_moved(mesh, [Path(folder) for _, _, folder in ranked], system, units, move)
    return None


def system_of_shape(mesh: Mesh) -> str | None:
    """Return the system of the model of `model_search_paths` that was trained for this shape; None without one."""
    ranked = _ranked(geometry_signature(mesh))
    configs = [read_config(Path(folder)) for off, _, folder in ranked if off <= SAME_GEOMETRY]
    return next((str(each["system"]) for each in configs if each.get("kind", "rigid") == "rigid"), None)


def _ranked(signature: GeometrySignature) -> list[tuple[float, float, str]]:
    """Return distance, scale and folder of each known model, the nearest first."""
    return sorted((*_distance(folder, signature), str(folder)) for folder in model_folders(model_search_paths()))


def _alike(mesh: Mesh, fitting: list[tuple[float, float, str]]) -> tuple[float, float, str]:
    """Return, of models of one shape, the one that was trained with a texture, or without, as the mesh has one."""
    textured = mesh.texture is not None
    return min(fitting, key=lambda each: read_config(Path(each[2]))["mesh"].get("painted", False) != textured)


def train_command(
    mesh: Mesh, mesh_path: str | Path | None, system: str, units: str = "m", move: str | None = None
) -> str:
    """Return the command that trains a model for a mesh; without a mesh where the system has its own."""
    own = mesh_path is None and mesh.name == system
    given = "" if own else f"--{'body' if is_primitive(mesh_path) else 'mesh'} {mesh_path or mesh.name} "
    given += "" if units == "m" else f"--mesh-units {units} "
    given += "" if move is None else f"--mesh-move {move} "
    return f"vid2phys train-risp {given}--system {system} --out models/{mesh.name}"


def _train(command: str) -> str:
    return f"run `{command}` (training takes {TRAINING_TIME})"


def _refuse_moved(mesh: Mesh, folders: list[Path], system: str, units: str, move: str | None) -> None:
    """Raise InputError for a mesh of a model's shape in other axes, at another origin or in another unit."""
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
    """Return the distance of the model's shape from another, and the factor that scales the model to its size.

    The virtual camera shows no size, so that a model serves a body of its shape in any size. A factor beyond
    LARGEST_SCALE is rather a wrong unit.
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
