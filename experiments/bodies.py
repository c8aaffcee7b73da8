"""The papers' bodies for the tables, with what the paper reports of each.

Limits: meshes of rigid bodies come from the project's samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from experiments.body_adapter import BodyAdapter
from vid2phys.errors import InputError, unknown_name
from vid2phys.types import Mesh

RIGID_DETECTION, TEXTURED_DETECTION, PARTS_DETECTION, RIGID_TRACKING = 7, 8, 9, 1  # see `Entry`
SHADED_SINGLE_IMAGE, SHADED_TRACKING = 2, 1


@dataclass(frozen=True)
class Entry:
    """A body of the tables before anything is made for it.

    model: name of its model. training_command: by which `train-risp` makes that. view_size: V px of our own head. make:
    the body, given a folder to keep things in; raises InputError when its mesh is not there. reading: raise when its
    keypoints are read another way; tracking: when they are in clips; alone: when they are in single images. mesh: the
    file of a rigid body.
    """

    name: str
    model: str
    training_command: str
    view_size: int
    make: Callable[[Path], BodyAdapter]
    detection: int = 6
    tracking: int = 0
    single_image: int = 0
    mesh: str | None = None


def entries(names: tuple[str, ...] = ()) -> list[Entry]:
    """Return the bodies called `names`, all when there are none. Raises UsageError for an unknown name."""
    known = {entry.name: entry for entry in _ENTRIES}
    for name in names:
        if name not in known:
            raise unknown_name("body", name, tuple(known))
    return [known[name] for name in names or known]


def _command(what: str) -> str:
    return f"vid2phys train-risp {what} --samples 12000 --epochs 12 --gamma 1 --seed 0"


def mesh_at(path: str) -> Mesh:
    """Return the mesh of a rigid body of the tables. Raises InputError where it is not there."""
    from vid2phys.io.mesh import load_mesh

    places = [Path(path), Path(__file__).resolve().parents[1] / path]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise InputError(f"{path} is not here", "the project's samples", "run in the project's folder")
    return load_mesh(found, "m")


def _rigid(
    name: str, path: str, system: str, paper: float, *, labelled: bool = True, detection: int = RIGID_DETECTION
) -> Entry:
    command = _command(f"--mesh {Path(path).name} --system {system}")

    def make(_: Path) -> BodyAdapter:
        from experiments.rigid import RigidAdapter
        from vid2phys.engine.systems import get

        return RigidAdapter(name, mesh_at(path), get(system), paper, command, labelled=labelled)

    return Entry(name, Path(path).parent.name, command, 96, make, detection, RIGID_TRACKING, mesh=path)


def _articulated(name: str, paper: float, *, tracking: int = 0, single_image: int = 0) -> Entry:
    command = _command(f"--system {name}")

    def make(folder: Path) -> BodyAdapter:
        from experiments.articulated import ArticulatedAdapter
        from vid2phys.engine.systems import get

        return ArticulatedAdapter(name, get(name), paper, command, folder)

    return Entry(name, name, command, 128, make, tracking=tracking, single_image=single_image)


# RISP's own state errors are those of its table 1 (Ma, Du et al., ICLR 2022).
_ENTRIES = (
    _rigid("quadrotor", "samples/quadrotor/quad.obj", "quadrotor", 0.15, detection=PARTS_DETECTION),
    _rigid("cube", "samples/cube_textured/cube_textured.obj", "rigid_contact", 0.16, detection=TEXTURED_DETECTION),
    _rigid("cube-plain", "samples/cube/cube.obj", "rigid_contact", 0.16, labelled=False),
    _articulated("hand", 0.10),
    _articulated("rod", 0.019, tracking=SHADED_TRACKING, single_image=SHADED_SINGLE_IMAGE),
)
