"""What `vid2phys identify` makes of bodies that are pushed or bend, from files as a user has them.

Frames are 320 px wide, with noise, and compressed. Place and first state of a pushed body are not known to the command,
which sees it for a while before the push sets it going: at rest without weight, on its way up with weight. The mesh's
origin is then the centre of mass.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import torch
import trimesh
from numpy.typing import NDArray

from experiments.gradsim.filmed import Filmed
from experiments.gradsim.pixels import Shot
from experiments.gradsim.pushed import pushed, volume_of
from experiments.gradsim.result_cache import Outcome
from experiments.gradsim.shapes import shape
from experiments.gradsim.sliding import sliding
from experiments.gradsim.soft import beam_tets, fine_beam
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.engine.systems.rigid_contact import RigidContact
from vid2phys.errors import Vid2PhysError
from vid2phys.io.actions import save_actions
from vid2phys.io.camera import save_camera
from vid2phys.io.video import VideoWriter
from vid2phys.types import Actions, Array

SIZE_PX, REST, RISE = 320, 20, 3  # frames before the push
_CORNERS, _SUBSTEPS = 256, 64  # of a pushed body at most; of a 60th of a second
_NOISE = 2.0  # grey levels
_GAMMA = 2.2  # of the display


def mass_by_command(rng: np.random.Generator, noise: np.random.Generator, name: str) -> Outcome:
    """Return the error of a mass, whether its interval holds the truth, and what the command says.

    Keys are those of the density, the only unknown of the other methods: relative errors of both are the same.

    rng: of the object, as `pushed` takes it. noise: of the frames. name: of the shape.
    """
    body = pushed(rng, name, size_px=SIZE_PX, every=1)
    truth = float(body.truth[0]) * volume_of(name)
    files = partial(_pushed_files, body, name, noise, REST)
    outcome = _found(files, {"mass": truth}, set_values={"gravity": 0.0})
    return {key.replace("_mass", "_density"): value for key, value in outcome.items()}


def springs_by_command(rng: np.random.Generator, noise: np.random.Generator, name: str) -> Outcome:
    """Return what the command makes of mass and springs of a body that is pushed along the ground.

    The body touches with all corners of its convex hull, as the command has it. Its truth has short steps: long ones
    make a stiffness of their own. There are no errors of parameters that are not determined.

    rng: of the object, as `sliding` takes it. noise: of the frames. name: of the shape.
    """
    body = sliding(rng, name, size_px=SIZE_PX, every=1, points=_CORNERS)
    body = replace(body, shot=replace(body.shot, substeps=_SUBSTEPS))
    truths = dict(zip(body.unknown.names, body.truth.tolist(), strict=True))
    outcome = _found(partial(_pushed_files, body, name, noise, RISE), truths)
    return {key: value for key, value in outcome.items() if _counts(key, outcome)}


def modulus_by_command(rng: np.random.Generator, noise: np.random.Generator) -> Outcome:
    """Return what the command makes of Young's modulus of a beam that hangs by one end.

    It has the tets of the other methods, Poisson's ratio, density and damping. The beam moves as a finer mesh does.

    rng: of the beam, as `fine_beam` takes it. noise: of the frames.
    """
    shot, truth = fine_beam(rng, size_px=SIZE_PX)

    def files(folder: Path) -> dict[str, Any]:
        tets = folder / "beam.msh"
        meshio.write(tets, meshio.Mesh(*beam_tets()), "gmsh", binary=False)
        initial = torch.from_numpy(shot.system.rest_state())
        light = shot.images(initial, None, torch.from_numpy(shot.system.parameters().vector)).numpy()
        return _filmed(light, shot, noise, folder) | {"system": "soft_body", "body": tets, "clamp": ("x<0.001",)}

    known = {name: value for name, value in truth.items() if name != "young_modulus"}
    return _found(files, {"young_modulus": truth["young_modulus"]}, set_values=known)


def _found(
    files: Callable[[Path], dict[str, Any]], truths: dict[str, float], set_values: dict[str, float] | None = None
) -> Outcome:
    """Return errors, intervals and status of the parameters `truths`; a failure where the command has no result.

    files: writes them into a folder, and returns options of `IdentifyConfig`. set_values: what the command is told.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = files(Path(folder))
        began = time.monotonic()
        try:
            result, _ = identify(
                IdentifyConfig(
                    **given,
                    fit=tuple(truths),
                    set_values=set_values or {},
                    model=Path("none"),
                    overlay=False,
                    out=Path(folder) / "run",
                )
            )
        except Vid2PhysError as error:
            return {"truth": list(truths.values()), "failure": str(error), "sure": 0.0}
    found = {each.name: each for each in result.parameters}
    outcome: Outcome = {
        "truth": list(truths.values()),
        "found": [found[each].value for each in truths],
        "seconds": time.monotonic() - began,
        "status": result.status.key,
    }
    for each, truth in truths.items():
        low, high = found[each].ci95
        outcome |= {
            f"error_{each}": abs(found[each].value / truth - 1.0),
            f"holds_{each}": float(low <= truth <= high),
            f"determined_{each}": float(found[each].identifiable),
            f"width_{each}": (high - low) / truth if found[each].identifiable else None,
        }
    is_sure = result.status.key == "converged" and all(found[each].identifiable for each in truths)
    return outcome | {"sure": float(is_sure)}


def _counts(key: str, outcome: Outcome) -> bool:
    """Return whether a number counts: errors of parameters that are determined alone."""
    return not key.startswith("error_") or bool(outcome[key.replace("error_", "determined_")])


def _pushed_files(body: Filmed, name: str, noise: np.random.Generator, before: int, folder: Path) -> dict[str, Any]:
    """Write clip, mesh, camera and forces; return their paths as `IdentifyConfig` names them.

    before: frames before the push.
    """
    system = body.shot.system
    assert isinstance(system, RigidContact)
    initial, controls, parameters = body.inputs(torch.from_numpy(body.truth))
    shot, seconds = body.shot, before * body.shot.step_s
    gravity = float(parameters[system.parameters().names.index("gravity")])
    initial = initial.clone()
    initial[2] -= 0.5 * gravity * seconds**2
    initial[9] += gravity * seconds
    controls = torch.cat([torch.zeros_like(controls[:1]).expand(before, -1), controls])
    files = _filmed(shot.images(initial, controls, parameters).numpy(), shot, noise, folder)
    files |= {"mesh": folder / "body.obj", "actions": folder / "push.csv"}
    mesh, solid = shape(name), system.bodies[0]
    trimesh.Trimesh((mesh.vertices - solid.origin) @ solid.axes, mesh.faces, process=False).export(files["mesh"])
    given = system.action_names, system.action_units
    values = np.asarray(controls)[:, : len(given[0])]
    times_s = shot.step_s * np.arange(len(values), dtype=float)
    save_actions(Actions(times_s, values, "push", *given), files["actions"])
    return files


def _filmed(light: Array, shot: Shot, noise: np.random.Generator, folder: Path) -> dict[str, Any]:
    """Write clip and camera of linear light [F, H, W, 3]; return their paths as `IdentifyConfig` names them."""
    files = {"clip": folder / "clip.mp4", "camera": folder / "cam.yaml"}
    with VideoWriter(files["clip"], SIZE_PX, SIZE_PX, 1.0 / shot.step_s) as video:
        for image in light:
            video.write(_frame(image, noise))
    save_camera(shot.stage.camera, files["camera"])
    return files


def _frame(light: Array, noise: np.random.Generator) -> NDArray[np.uint8]:
    """Return a frame in display values, with noise."""
    shown = 255.0 * np.clip(light, 0.0, 1.0) ** (1.0 / _GAMMA) + noise.normal(0.0, _NOISE, light.shape)
    return np.clip(np.round(shown), 0.0, 255.0).astype(np.uint8)
