"""The body adapter of bodies on a known base: hand and rod before cameras all around the directions of filming.

States are configurations [D]. `state_error` is over the paper's own numbers: thirteen joint angles in radians, or the
heights of ten sensors over half the range that the rod's motions pass through.

Limits: the base and the camera are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.body_adapter import BodyAdapter, Estimates, Frames, RenderPlan, Score
from experiments.image_alignment import FOCAL_PX, PIECE_PX, frame_matrix, piece
from experiments.methods import Learnt
from experiments.rigid import project
from vid2phys.engine.constants import RISP_HAND
from vid2phys.engine.movable.joints import JointBody
from vid2phys.geometry import looking, make_transform, matrix_from_rotvec
from vid2phys.risp.networks.articulated_bodies import body_for_training
from vid2phys.risp.shape.configuration_encoding import configuration_encoding, configuration_vectors
from vid2phys.types import Array, Camera

if TYPE_CHECKING:
    from torch import nn

    from vid2phys.commands.training_progress import TrainingProgress
    from vid2phys.engine.system import System
    from vid2phys.risp.heads import Head
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.recipes import TrainingData

_BODY_PLACE = np.array([14.0, 0.0, 0.0])  # where the workspace's middle is, in its radii
_FARTHEST, _MARGIN_PX = 16.0, 12  # of cameras, in radii of the workspace; of the workspace in its piece of a frame
_AIM_RAD = np.deg2rad(8.0)  # spread of what cameras look at about the workspace's middle
_BEHIND = 1.5  # finger radii: what lies farther in front of a point than its own link and the next one reach hides it


class ArticulatedAdapter(BodyAdapter):
    """See `BodyAdapter`. folder: keeps the modes of a body that bends, which take a minute to find."""

    view_size = 128

    def __init__(self, name: str, system: System, paper: float, training_command: str, folder: Path) -> None:
        self.name, self.system, self.paper, self.training_command = name, system, paper, training_command
        folder.mkdir(parents=True, exist_ok=True)
        self.body = body_for_training(system, folder)
        self.mesh, self.radius_m = self.body.mesh, self.body.radius_m
        self.codes = configuration_encoding(self.body)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Return the configurations [N, D], drawn as those of training."""
        return np.stack([self.body.sample(rng) for _ in range(count)])

    def cameras(self, rng: np.random.Generator, states: Array) -> list[Camera]:
        """Return one camera for each configuration: upright, from all of the directions that the body is filmed from,
        its aim a little off.

        So near at most that a piece of the frame holds the workspace.
        """
        body, result = self.body, []
        nearest = 1.0 / np.sin(np.arctan(0.5 * (PIECE_PX - _MARGIN_PX) / FOCAL_PX))
        azimuths = np.deg2rad(body.cameras.azimuth[0] + body.cameras.azimuth[1] * rng.uniform(-1.0, 1.0, len(states)))
        low, high = np.sin(np.deg2rad(body.cameras.elevation))
        sines = rng.uniform(low, high, len(states))
        for azimuth, sine in zip(azimuths, sines, strict=True):
            flat = np.sqrt(1.0 - sine**2)
            towards = np.array([flat * np.cos(azimuth), flat * np.sin(azimuth), sine])
            place = body.center_m + towards * body.radius_m * rng.uniform(nearest, _FARTHEST)
            rotation = looking(-towards) @ matrix_from_rotvec(np.array([*rng.uniform(-_AIM_RAD, _AIM_RAD, 2), 0.0]))
            result.append(piece(frame_matrix(), make_transform(rotation, place), body.center_m))
        return result

    def vertices(self, state: Array) -> Array:
        """See `BodyAdapter.vertices`."""
        return self.body.vertices(state)

    def stage_from_world(self, camera: Camera) -> Array:
        """See `BodyAdapter.stage_from_world`: the body stands where others do, and the wall is behind it."""
        assert camera.camera_to_world is not None
        ahead = self.body.center_m - camera.camera_to_world[:3, 3]
        angle = -np.arctan2(ahead[1], ahead[0])
        rotation = matrix_from_rotvec(np.array([0.0, 0.0, angle]))
        return make_transform(rotation, _BODY_PLACE * self.radius_m - rotation @ self.body.center_m)

    def vectors(self, states: Array) -> Array:
        """See `BodyAdapter.vectors`."""
        return configuration_vectors(self.body, states) / np.array(self.codes.scale)

    def training_data(self, plan: RenderPlan, progress: TrainingProgress) -> TrainingData:
        """See `BodyAdapter.training_data`."""
        from vid2phys.commands.train_articulated import training_data

        data, _ = training_data(
            *(self.body, plan.data),
            samples=plan.made,
            seed=plan.seed,
            progress=progress,
            appearances=plan.appearances,
            varied=plan.varied,
        )
        size = plan.view_size or data.stream.view_size
        return replace(data, stream=replace(data.stream, appearances=plan.appearances, view_size=size))

    def model(self, learnt: Learnt) -> Model:
        """See `BodyAdapter.model`."""
        from vid2phys.commands.train_articulated import model_shape
        from vid2phys.risp.networks.model import Model
        from vid2phys.risp.networks.network import KeypointNetwork

        assert isinstance(learnt.network, KeypointNetwork)
        return Model(model_shape(self.body), learnt.network, None, learnt.view_size, {})

    def estimate_by_keypoints(self, model: Model, frames: Frames, seed: int, *, edges: bool = True) -> Estimates:
        """Detect points, then fit the configuration by kinematics and by edges (`tracking.articulated.contour`)."""
        from vid2phys.risp.networks.articulated_bodies import body_of_model
        from vid2phys.tracking.articulated.contour import fit_configuration
        from vid2phys.tracking.articulated.detector import Window, detect
        from vid2phys.tracking.cues.creases import Solid
        from vid2phys.tracking.uncertainty.articulated import first_calibration

        body = self.body if model.folder is None else body_of_model(model, self.system)
        calibration, solid, found = first_calibration(body), Solid.of(self.mesh), []
        for image, camera in zip(frames.pieces, frames.cameras, strict=True):
            window = Window.of(camera, body, model.view_size)
            seen = detect(model, body, window, [image], calibration)
            if edges:
                found.append(fit_configuration(image, window, self.body, solid, seen.minima[0]))
            else:
                found.append(seen.configurations.configuration[0])
        vectors = configuration_vectors(body, np.stack(found)) / np.array(self.codes.scale)
        return Estimates(vectors)

    def estimate_by_state(self, learnt: Learnt, frames: Frames, seed: int) -> Estimates:
        """See `BodyAdapter.read_state`; the view is that of the tracker, whose camera the network is not told."""
        from vid2phys.engine.virtual_camera import resample
        from vid2phys.risp.networks.state_network import predict_numbers
        from vid2phys.tracking.articulated.detector import Window

        views = []
        for image, camera in zip(frames.pieces, frames.cameras, strict=True):
            window = Window.of(camera, self.body, learnt.view_size)
            views.append(resample(image, camera, window.view))
        vectors = self.codes.decode(predict_numbers(learnt.network, np.stack(views)).numpy())
        return Estimates(vectors / np.array(self.codes.scale))

    def scores(self, estimates: Estimates, frames: Frames) -> dict[str, Score]:
        """See `BodyAdapter.scores`."""
        error = np.abs(estimates.vectors - self.vectors(frames.states))
        result = {"state_error": Score(error.mean(axis=1), "1")}
        if isinstance(self.body, JointBody):
            return {**result, **self._of_joints(estimates.vectors, error, frames)}
        return {**result, **self._of_heights(error, frames)}

    def _of_joints(self, configurations: Array, error: Array, frames: Frames) -> dict[str, Score]:
        """Return scores apart for joints that images show and that they do not, then in units."""
        hidden = self._hidden(frames)
        found, truth = self.body.points(configurations), self.body.points(frames.states)
        pixels = [
            np.linalg.norm(project(camera, a) - project(camera, b), axis=-1).mean()
            for camera, a, b in zip(frames.cameras, found, truth, strict=True)
        ]
        return {
            "state_error_visible": Score(_mean(error, ~hidden), "1"),
            "state_error_hidden": Score(_mean(error, hidden), "1"),
            "angle_deg": Score(np.degrees(error.mean(axis=1)), "deg", median=True),
            "points_mm": Score(1e3 * np.linalg.norm(found - truth, axis=-1).mean(axis=-1), "mm", median=True),
            "points_px": Score(np.array(pixels), "px", median=True),
        }

    def _of_heights(self, error: Array, frames: Frames) -> dict[str, Score]:
        """Return scores of sensors at the heights that were read, at their true place otherwise: in mm, and in the
        frame.
        """
        height_m = error * np.array(self.codes.scale)
        truth = self.body.points(frames.states)[:, : height_m.shape[1]]
        moved = truth.copy()
        moved[..., 2] += height_m
        pixels = [
            np.linalg.norm(project(camera, a) - project(camera, b), axis=-1).mean()
            for camera, a, b in zip(frames.cameras, moved, truth, strict=True)
        ]
        return {
            "height_mm": Score(1e3 * height_m.mean(axis=1), "mm", median=True),
            "points_px": Score(np.array(pixels), "px", median=True),
        }

    def _hidden(self, frames: Frames) -> NDArray[np.bool_]:
        """Return which joints [N, D] the frames do not show; equal for all looks of a state."""
        body = self.body
        assert isinstance(body, JointBody)
        seen: dict[bytes, NDArray[np.bool_]] = {}
        for state, camera in zip(frames.states, frames.cameras, strict=True):
            assert camera.camera_to_world is not None
            key = state.tobytes() + camera.camera_to_world.tobytes()
            if key not in seen:
                seen[key] = hidden_joints(body, state, camera.camera_to_world[:3, 3], _BEHIND * RISP_HAND.radius_m)
        keys = (
            state.tobytes() + np.asarray(camera.camera_to_world).tobytes()
            for state, camera in zip(frames.states, frames.cameras, strict=True)
        )
        return np.stack([seen[key] for key in keys])

    def validation(self, judge: TrainingData, head: Head) -> Callable[[nn.Module], dict[str, float]]:
        """See `BodyAdapter.validation`; `state_error` is over the paper's vector."""
        from vid2phys.risp.heads.state import StateHead
        from vid2phys.risp.networks.state_network import predict_numbers
        from vid2phys.risp.networks.validate import prepare_views
        from vid2phys.risp.renders.dataset import RenderSet
        from vid2phys.risp.renders.stream import ImageStream
        from vid2phys.tracking.uncertainty.articulated_validation import ConfigurationValidation

        settings = replace(judge.stream, appearances=0)
        stream, codes = ImageStream(settings, jitter=False), self.codes
        configurations = RenderSet(settings.folder).configurations()
        wanted = self.vectors(configurations[judge.validation])

        def error(vectors: Array) -> dict[str, float]:
            return {"state_error": float(np.abs(vectors - wanted).mean())}

        if isinstance(head, StateHead):
            images = prepare_views(stream, judge.validation).images

            def validate(network: nn.Module) -> dict[str, float]:
                return error(codes.decode(predict_numbers(network, images).numpy()) / np.array(codes.scale))

            return validate
        own = ConfigurationValidation.prepare(stream, judge.validation, self.body, configurations)
        return lambda network: {**own(network), **error(self.vectors(own.predict_configurations(network)))}


def hidden_joints(body: JointBody, configuration: Array, camera_m: Array, behind_m: float) -> NDArray[np.bool_]:
    """Return which joints [D] a camera at `camera_m` [3] does not see: both keypoints of the link that each one moves
    lie more than `behind_m` behind another link's surface.

    Keypoints lie within their links, and at a link's end within the next one: what is nearer does not hide them.
    """
    points = body.points(configuration)
    links = np.repeat([link for link in np.unique(body.mesh.part) if link > 0], 2)  # two a link (`joints.link_points`)
    corners = body.vertices(configuration)[body.mesh.faces]
    covered = np.zeros(len(points), dtype=bool)
    for index, (link, point) in enumerate(zip(links, points, strict=True)):
        others = corners[body.mesh.part != link]
        distance = float(np.linalg.norm(point - camera_m))
        hit = _first_hit(camera_m, (point - camera_m) / distance, others)
        covered[index] = hit < distance - behind_m
    return np.array([covered[links == joint + 1].all() for joint in range(len(body.names))])


def _first_hit(origin: Array, direction: Array, corners: Array) -> float:
    """Return the distance along a ray to the nearest of triangles [F, 3, 3]; infinite if none is met (Moeller, Trumbore
    1997).
    """
    edge_b, edge_c = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    across = np.cross(direction, edge_c)
    determinant = np.einsum("fi,fi->f", edge_b, across)
    with np.errstate(divide="ignore", invalid="ignore"):
        away = origin - corners[:, 0]
        u = np.einsum("fi,fi->f", away, across) / determinant
        turned = np.cross(away, edge_b)
        v = turned @ direction / determinant
        t = np.einsum("fi,fi->f", edge_c, turned) / determinant
        inside = (u >= 0.0) & (v >= 0.0) & (u + v <= 1.0) & (t > 0.0)
    return float(t[inside].min()) if inside.any() else np.inf


def _mean(values: Array, chosen: NDArray[np.bool_]) -> Array:
    """Return the means [N] of the chosen ones of [N, D]; NaN where there are none."""
    count = chosen.sum(axis=1)
    return np.where(count > 0, (values * chosen).sum(axis=1) / np.maximum(count, 1), np.nan)
