"""What `vid2phys identify` makes of a pushed body, from files as a user has them.

The clip shows the body at rest for a third of a second, then as the push sets it going. Frames are 320 px wide, with
noise, and compressed. The mesh's origin is the centre of mass. Place and first state are not known to the command.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trimesh
from numpy.typing import NDArray

from experiments.gradsim.filmed import Filmed
from experiments.gradsim.pushed import FRAMES, STEP_S, pushed, volume_of
from experiments.gradsim.result_cache import Outcome
from experiments.gradsim.shapes import shape
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.engine.systems.rigid_contact import RigidContact
from vid2phys.errors import Vid2PhysError
from vid2phys.io.actions import save_actions
from vid2phys.io.camera import save_camera
from vid2phys.io.video import VideoWriter
from vid2phys.types import Actions, Array

SIZE_PX, REST = 320, 20  # frames at rest
_NOISE = 2.0  # grey levels
_GAMMA = 2.2  # of the display


def mass_by_command(rng: np.random.Generator, noise: np.random.Generator, name: str) -> Outcome:
    """Return the error of a mass, whether its interval holds the truth, and what the command says.

    Keys are those of the density, the only unknown of the other methods: relative errors of both are the same.

    rng: of the object, as `pushed` takes it. noise: of the frames. name: of the shape.
    """
    body = pushed(rng, name, size_px=SIZE_PX, every=1)
    truth = float(body.truth[0]) * volume_of(name)
    with tempfile.TemporaryDirectory() as folder:
        given = _written(body, name, noise, Path(folder))
        began = time.monotonic()
        try:
            result, _ = identify(
                IdentifyConfig(
                    **given,
                    fit=("mass",),
                    set_values={"gravity": 0.0},
                    model=Path("none"),
                    overlay=False,
                    out=Path(folder) / "run",
                )
            )
        except Vid2PhysError as error:
            return {"truth": truth, "failure": str(error), "sure": 0.0}
    seconds = time.monotonic() - began
    mass = next(each for each in result.parameters if each.name == "mass")
    low, high = mass.ci95
    kept = {"truth": truth, "found": mass.value, "seconds": seconds, "status": result.status.key}
    sure = float(result.status.key == "converged" and mass.identifiable)
    holds, width = float(low <= truth <= high), (high - low) / truth if mass.identifiable else None
    return kept | {
        "error_density": abs(mass.value / truth - 1.0),
        "holds_density": holds,
        "width_density": width,
        "sure": sure,
    }


def _written(body: Filmed, name: str, noise: np.random.Generator, folder: Path) -> dict[str, Any]:
    """Write clip, mesh, camera and forces; return their paths as `IdentifyConfig` names them."""
    system = body.shot.system
    assert isinstance(system, RigidContact)
    initial, controls, parameters = body.inputs(torch.from_numpy(body.truth))
    light = body.shot.images(initial, controls, parameters).numpy()
    files = {key: folder / file for key, file in (("clip", "clip.mp4"), ("mesh", "body.obj"), ("camera", "cam.yaml"))}
    files["actions"] = folder / "push.csv"
    with VideoWriter(files["clip"], SIZE_PX, SIZE_PX, 1.0 / STEP_S) as video:
        for image in np.concatenate([np.repeat(light[:1], REST, axis=0), light]):
            video.write(_frame(image, noise))
    save_camera(body.shot.stage.camera, files["camera"])
    mesh, solid = shape(name), system.bodies[0]
    trimesh.Trimesh((mesh.vertices - solid.origin) @ solid.axes, mesh.faces, process=False).export(files["mesh"])
    given = system.action_names, system.action_units
    pushes = np.asarray(controls)[:, : len(given[0])]
    values = np.concatenate([np.zeros((REST, pushes.shape[1])), pushes])
    times_s = STEP_S * np.arange(REST + FRAMES, dtype=float)
    save_actions(Actions(times_s, values, "push", *given), files["actions"])
    return files


def _frame(light: Array, noise: np.random.Generator) -> NDArray[np.uint8]:
    """Return a frame in display values, with noise."""
    shown = 255.0 * np.clip(light, 0.0, 1.0) ** (1.0 / _GAMMA) + noise.normal(0.0, _NOISE, light.shape)
    return np.clip(np.round(shown), 0.0, 255.0).astype(np.uint8)
