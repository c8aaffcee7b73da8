"""Bodies of systems on a known base: made for training, or made again from a trained model.

Limits: a body is a tree of joints on a fixed base, or a rod that is clamped at both ends.
"""

from __future__ import annotations

from pathlib import Path

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.movable.clamped import ClampedBody
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.modes import CELLS, ModalBody, Motions, find_motions
from vid2phys.engine.system import System
from vid2phys.engine.systems._joint_tree import JointTree
from vid2phys.engine.systems._reduced import ReducedBody
from vid2phys.engine.systems.rod import Rod
from vid2phys.errors import InputError
from vid2phys.risp.networks.model import Model

MODES_FILE = "modes.safetensors"


def configuration_kind(system: System) -> str:
    """Return `joints` (links on a fixed base), `modes` (a rod clamped at both ends), or `rigid`."""
    return system.capabilities.observed_as or "rigid"


def body_for_training(system: System, folder: Path, seed: int = 0) -> ArticulatedBody:
    """Return the body of a system for rendering. Raises ValueError for a rigid body.

    folder: keeps the modes of a body that bends, which take a minute to find.
    """
    if isinstance(system, Rod):
        path, size = folder / MODES_FILE, system.size_m
        if not path.exists():
            find_motions(Rod(CELLS, size_m=size, elements="linear"), seed).save(path)
        return ModalBody(Rod(CELLS, size_m=size, elements="linear"), Motions.load(path))
    if isinstance(system, JointTree):
        return JointBody(system)
    raise ValueError(f"'{system.name}' is a body that moves as a whole")


def untrained_body(system: System) -> ArticulatedBody:
    """Return the body of a system that is tracked without a model. Raises InputError for one that bends."""
    if isinstance(system, JointTree):
        return JointBody(system)
    if isinstance(system, ReducedBody):
        return ClampedBody(system)
    got = f"no model for '{system.name}', whose modes are found by training"
    raise InputError(got, "a trained model", f"leave --model out, or run `vid2phys train-risp --system {system.name}`")


def body_of_model(model: Model, system: System) -> ArticulatedBody:
    """Return the body of `system` for which `model` was trained. Raises InputError where they do not match."""
    shape = model.shape
    if configuration_kind(system) != shape.kind or shape.cameras is None:
        raise InputError(
            f"a model for '{shape.system}' ({shape.kind})",
            f"one for '{system.name}' ({configuration_kind(system)})",
            f"train one with `vid2phys train-risp --system {system.name}`",
        )
    if isinstance(system, Rod):
        assert model.folder is not None
        body: ArticulatedBody = ModalBody(system, Motions.load(model.folder / MODES_FILE), shape.cameras)
    else:
        assert isinstance(system, JointTree)
        body = JointBody(system, shape.cameras)
    if body.points_body.shape != model.points_body.shape:
        raise InputError(
            f"a model with {len(model.points_body)} keypoints for '{system.name}'",
            f"{len(body.points_body)}",
            "train it again, for this body",
        )
    return body
