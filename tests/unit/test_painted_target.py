"""One image of a painted cube as a target, with a model of its shape alone: the paint tells the orientation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.painted_mesh import painted_cube
from tests.unit.test_single_image import START
from tests.unit.test_texture import BLOCKS, CAMERA, GROUP, PLACE, cast
from vid2phys.commands.configs import ControlConfig
from vid2phys.commands.control import FPS, read_target
from vid2phys.commands.fit_parameters import fixed_parameters
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.system_choice import filmed_system
from vid2phys.engine.observe import project
from vid2phys.geometry import matrix_from_quat
from vid2phys.io.array_clip import image_clip
from vid2phys.io.mesh import mass_properties
from vid2phys.risp.networks.model_lookup import fitting_model
from vid2phys.tracking.hint import Hint


@pytest.mark.parametrize("element", [0, 7])
def test_the_paint_tells_the_orientation_of_a_target(element: int) -> None:
    """The start is another orientation, which a cube without paint would be given."""
    rotation = START @ GROUP[element]
    image, mesh = cast(rotation, np.random.default_rng(4), False), painted_cube(BLOCKS)
    camera, system = replace(CAMERA, camera_to_world=np.eye(4)), filmed_system("rigid_contact", mesh, None)
    known = fixed_parameters(system, mass_properties(mesh), {}, (), None)
    corners = project(camera, mesh.vertices @ rotation.T + PLACE)
    hint = Hint("", (*corners.min(axis=0).tolist(), *corners.max(axis=0).tolist()), frame=0)
    given = image_clip(image, 1, FPS, "image"), mesh, camera, np.eye(4), system, None, fitting_model(mesh), known, ()
    config = ControlConfig(target=Path("image"), camera=Path("camera.yaml"))
    seen = read_target(Inputs(*given, hint=hint), system.rest_state(), config).described
    found = matrix_from_quat(np.array([seen[f"orientation_quat_{axis}"] for axis in "wxyz"]))
    assert float(np.trace(rotation.T @ found)) > 1.0 + 2.0 * np.cos(np.radians(3.0))
    np.testing.assert_allclose([seen[f"position_{axis}_m"] for axis in "xyz"], PLACE, atol=0.01)
