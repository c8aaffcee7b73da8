"""Estimate states in single images by the user's command: the target of `vid2phys control --target`.

The command has the image, the camera and the mesh. Of a rigid body it has a `--hint-box` where the other methods look.
It takes the model that it finds by the mesh, else the silhouette.

Limits: images are pieces of frames. Where no body is found, it counts as not rotated, where the methods look.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.articulated import ArticulatedAdapter
from experiments.body_adapter import BodyAdapter, Estimates, Frames
from experiments.rigid import RigidAdapter
from vid2phys.commands.configs import ControlConfig
from vid2phys.commands.control import FPS, read_target
from vid2phys.commands.fit_parameters import NO_PRIORS, articulated_parameters, fixed_parameters
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.system_choice import filmed_system
from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.errors import InputError
from vid2phys.geometry import make_transform, matrix_from_quat
from vid2phys.io.array_clip import image_clip
from vid2phys.io.mesh import mass_properties
from vid2phys.risp.networks.articulated_bodies import body_of_model
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.risp.networks.model import Model
from vid2phys.risp.networks.model_lookup import find_model
from vid2phys.risp.shape.configuration_encoding import configuration_vectors
from vid2phys.tracking.hint import Hint
from vid2phys.types import Array, Camera

_CONFIG = ControlConfig(target=Path("frame"), camera=Path("camera.yaml"))


def hint_about(camera: Camera, center: Array, radius: float) -> Hint:
    """Return the `--hint-box` of an image about bearing `center` [2], `radius` rad to each side."""
    x, y = bearings_to_pixels(camera, center)
    half = float(camera.K[0, 0] * np.tan(radius))
    return Hint("", (x - half, y - half, x + half, y + half), frame=0)


@dataclass
class CommandEstimator:
    """model: of the body, None for a silhouette. found: whether the body was found, of each image so far."""

    adapter: BodyAdapter
    model: Model | None
    found: list[bool]

    @staticmethod
    def of(adapter: BodyAdapter, folder: Path | None) -> CommandEstimator:
        """Return the estimator that the command is. folder: of its model, if it takes one."""
        if isinstance(adapter, RigidAdapter):
            return CommandEstimator(adapter, None if folder is None else find_model(adapter.mesh, folder), [])
        if folder is None:
            raise InputError(f"no model of the {adapter.name}", "one of `vid2phys train-risp`", "train it")
        return CommandEstimator(adapter, Model.load(folder), [])

    def estimate(self, frames: Frames, seed: int) -> Estimates:
        """Return what the command estimates in frames. seed: of where the methods look."""
        if isinstance(self.adapter, RigidAdapter):
            return self.adapter.estimate_each(frames, seed, self._pose)
        assert isinstance(self.adapter, ArticulatedAdapter)
        pairs = zip(frames.cameras, frames.pieces, strict=True)
        configurations = np.stack([self._configuration(self.adapter, camera, image) for camera, image in pairs])
        vectors = configuration_vectors(self.adapter.body, configurations)
        return Estimates(vectors / np.array(self.adapter.codes.scale))

    def _pose(self, camera: Camera, image: NDArray[np.uint8], center: Array, radius: float) -> Array:
        """Return camera_from_body [4, 4] of a rigid body about bearing `center` [2], `radius` rad wide."""
        adapter, pose = self.adapter, np.asarray(camera.camera_to_world)
        assert isinstance(adapter, RigidAdapter)
        system = filmed_system(adapter.system.name, adapter.mesh, None)
        known = fixed_parameters(system, mass_properties(adapter.mesh), {}, (), None)
        clip = image_clip(image, 1, FPS, "frame")
        hint = hint_about(camera, center, radius)
        inputs = Inputs(clip, adapter.mesh, camera, pose, system, None, self.model, known, (), hint=hint)
        if self.model is None:
            inputs = replace(inputs, untrained=shape_of(adapter.mesh, system.name))
        seen = self._described(inputs)
        if seen is None:
            towards = np.array([*center, 1.0]) / np.linalg.norm([*center, 1.0])
            return make_transform(pose[:3, :3].T, towards * adapter.radius_m / np.sin(radius))
        quat = np.array([seen[f"orientation_quat_{axis}"] for axis in "wxyz"])
        place = np.array([seen[f"position_{axis}_m"] for axis in "xyz"])
        return np.asarray(np.linalg.inv(pose) @ make_transform(matrix_from_quat(quat), place))

    def _configuration(self, adapter: ArticulatedAdapter, camera: Camera, image: NDArray[np.uint8]) -> Array:
        assert self.model is not None
        system, body = adapter.system, body_of_model(self.model, adapter.system)
        known = articulated_parameters(system, {}, (), NO_PRIORS)
        clip, pose = image_clip(image, 1, FPS, "frame"), np.asarray(camera.camera_to_world)
        inputs = Inputs(clip, adapter.mesh, camera, pose, system, None, self.model, known, (), body)
        seen = self._described(inputs)
        if seen is None:
            return body.configurations(system.rest_state())
        return np.array([seen["configuration"][name] for name in body.names])

    def _described(self, inputs: Inputs) -> dict[str, Any] | None:
        """Return the pose or configuration by name, None where the body is not found."""
        try:
            target = read_target(inputs, inputs.system.rest_state(), _CONFIG)
        except InputError:
            target = None
        self.found.append(target is not None)
        return None if target is None else target.described
