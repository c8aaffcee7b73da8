"""What `vid2phys identify` makes of a pushed body, from files as a user has them.

Frames are 320 px wide, with noise, and compressed. The mesh's origin is the centre of mass. Place and first state are
not known to the command, which sees the body for a while before the push sets it going: at rest without weight, on its
way up with weight.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trimesh
from numpy.typing import NDArray

from experiments.gradsim.filmed import Filmed
from experiments.gradsim.pushed import pushed, volume_of
from experiments.gradsim.result_cache import Outcome
from experiments.gradsim.shapes import shape
from experiments.gradsim.sliding import sliding
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
    outcome = _found(body, name, {"mass": truth}, noise, before=REST, set_values={"gravity": 0.0})
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
    outcome = _found(body, name, truths, noise, before=RISE)
    return {key: value for key, value in outcome.items() if _counts(key, outcome)}


def _counts(key: str, outcome: Outcome) -> bool:
    """Return whether a number counts: errors of parameters that are determined alone."""
    return not key.startswith("error_") or bool(outcome[key.replace("error_", "determined_")])


def _found(
    body: Filmed,
    name: str,
    truths: dict[str, float],
    noise: np.random.Generator,
    *,
    before: int,
    set_values: dict[str, float] | None = None,
) -> Outcome:
    """Return errors, intervals and status of the parameters `truths`; a failure where the command has no result.

    before: frames before the push. set_values: what the command is told.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = _written(body, name, noise, before, Path(folder))
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


def _written(body: Filmed, name: str, noise: np.random.Generator, before: int, folder: Path) -> dict[str, Any]:
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
    light = shot.images(initial, controls, parameters).numpy()
    files = {key: folder / file for key, file in (("clip", "clip.mp4"), ("mesh", "body.obj"), ("camera", "cam.yaml"))}
    files["actions"] = folder / "push.csv"
    with VideoWriter(files["clip"], SIZE_PX, SIZE_PX, 1.0 / shot.step_s) as video:
        for image in light:
            video.write(_frame(image, noise))
    save_camera(shot.stage.camera, files["camera"])
    mesh, solid = shape(name), system.bodies[0]
    trimesh.Trimesh((mesh.vertices - solid.origin) @ solid.axes, mesh.faces, process=False).export(files["mesh"])
    given = system.action_names, system.action_units
    values = np.asarray(controls)[:, : len(given[0])]
    times_s = shot.step_s * np.arange(len(values), dtype=float)
    save_actions(Actions(times_s, values, "push", *given), files["actions"])
    return files


def _frame(light: Array, noise: np.random.Generator) -> NDArray[np.uint8]:
    """Return a frame in display values, with noise."""
    shown = 255.0 * np.clip(light, 0.0, 1.0) ** (1.0 / _GAMMA) + noise.normal(0.0, _NOISE, light.shape)
    return np.clip(np.round(shown), 0.0, 255.0).astype(np.uint8)
