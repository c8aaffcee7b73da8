"""The body adapter of rigid bodies: one static camera, a body at random poses before it.

States are world poses [4, 4] m. `state_error` is over the nine numbers of eq. 18, positions over half their range.

Limits: a tracker's first guess of place and size is the truth with random errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.body_adapter import BodyAdapter, Estimates, Frames, RenderPlan, Score
from experiments.image_alignment import frame_matrix, piece
from experiments.methods import Learnt
from experiments.state_vector import rigid_vector
from vid2phys.engine.system import System
from vid2phys.geometry import Pose, make_transform, matrix_from_quat
from vid2phys.types import Array, Camera, Mesh

if TYPE_CHECKING:
    from torch import nn

    from vid2phys.commands.training_progress import TrainingProgress
    from vid2phys.risp.heads import Head
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.validate import Body as Known
    from vid2phys.risp.recipes import TrainingData

MIDDLE = np.array([14.0, 0.0, 0.0])  # of the states' range, body radii; the camera is at the origin and looks along x
HALF_RANGE = np.array([5.0, 4.0, 3.0])  # of positions about it
_CAMERA_TO_WORLD = make_transform(np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]), np.zeros(3))
_PLAUSIBLE = 0.3  # of the distance: five times what the size in a view may be off
ASIDE, SIZE = 0.03, 0.06  # errors of where a tracker looks: share of the view, log size
_LOOK = 3  # stream of random numbers


class RigidAdapter(BodyAdapter):
    """A rigid body, see `BodyAdapter`.

    labelled: whether images tell its equivalent poses apart, so that errors against the label mean something.
    """

    view_size = 96

    def __init__(
        self, name: str, mesh: Mesh, system: System, paper: float, training_command: str, *, labelled: bool = True
    ) -> None:
        self.name, self.mesh, self.system, self.paper = name, mesh, system, paper
        self.training_command, self.labelled = training_command, labelled
        self.radius_m = mesh.radius_m

    @property
    def half_range_m(self) -> Array:
        """Return half the range of positions, [3] m."""
        return HALF_RANGE * self.radius_m

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Return world poses [N, 4, 4] m: positions evenly over their range, orientations as the system gives them."""
        _, quats = self.system.body_pose(self.system.sample_state(rng, count))
        place = MIDDLE * self.radius_m + rng.uniform(-1.0, 1.0, (count, 3)) * self.half_range_m
        return make_transform(matrix_from_quat(quats), place)

    def cameras(self, rng: np.random.Generator, states: Array) -> list[Camera]:
        """See `BodyAdapter.cameras`: all of one camera."""
        return [piece(frame_matrix(), _CAMERA_TO_WORLD, pose[:3, 3]) for pose in states]

    def vertices(self, state: Array) -> Array:
        """See `BodyAdapter.vertices`."""
        return self.mesh.vertices @ state[:3, :3].T + state[:3, 3]

    def stage_from_world(self, camera: Camera) -> Array:
        """See `BodyAdapter.stage_from_world`: they are the same."""
        return np.eye(4)

    def vectors(self, states: Array) -> Array:
        """See `BodyAdapter.vectors`: positions from the middle of their range."""
        place = states[..., :3, 3] - MIDDLE * self.radius_m
        return rigid_vector(place, states[..., :3, :3], self.half_range_m)

    @cached_property
    def known(self) -> Known:
        """Return the body's symmetry with its colours, up to which poses are scored."""
        from vid2phys.risp.networks.mesh_shape import body_of
        from vid2phys.risp.shape.symmetry import find_symmetry

        return body_of(self.mesh, find_symmetry(self.mesh))

    @cached_property
    def shape(self) -> Known:
        """Return keypoints and symmetry of its shape alone, by which keypoints are trained."""
        from vid2phys.risp.networks.mesh_shape import body_of
        from vid2phys.risp.shape.symmetry import find_symmetry

        return body_of(self.mesh, find_symmetry(replace(self.mesh, texture=None)))

    def training_data(self, plan: RenderPlan, progress: TrainingProgress) -> TrainingData:
        """See `BodyAdapter.training_data`."""
        from vid2phys.commands.train_rigid import training_data

        data = training_data(
            *(self.mesh, self.system, plan.data),
            samples=plan.made,
            seed=plan.seed,
            progress=progress,
            appearances=plan.appearances,
            varied=plan.varied,
        )
        size = plan.view_size or data.stream.view_size
        body = self.known if plan.by_color else data.body
        return replace(data, stream=replace(data.stream, appearances=plan.appearances, view_size=size), body=body)

    def model(self, learnt: Learnt) -> Model:
        """See `BodyAdapter.model`; its coarse network knows nothing, since places are given."""
        from vid2phys.io.mesh import geometry_signature
        from vid2phys.risp.networks.model import Model, Shape
        from vid2phys.risp.networks.network import KeypointNetwork, LocatorNetwork
        from vid2phys.risp.recipes import COARSE_SIZE

        known = self.shape
        shape = Shape(
            *(self.system.name, geometry_signature(self.mesh), known.points, known.rotations, known.permutation),
            *(known.front, self.mesh.name, known.center),
            textured=self.mesh.texture is not None,
        )
        assert isinstance(learnt.network, KeypointNetwork)
        return Model(shape, learnt.network, LocatorNetwork(**COARSE_SIZE), learnt.view_size, {})

    def estimate_by_keypoints(self, model: Model, frames: Frames, seed: int, *, edges: bool = True) -> Estimates:
        """Estimate poses by keypoints, PnP and edges (`ambiguous_poses`).

        Front map, texture and shape choose the symmetry element (`symmetry_evidence`). A body with a texture gets
        pose and symmetry element from all cues together (`single_image`).
        """
        from vid2phys.engine.pnp import known_pose
        from vid2phys.error_model import Calibration
        from vid2phys.tracking.ambiguous_poses import resolve
        from vid2phys.tracking.contour_refinement import LEAST_PX
        from vid2phys.tracking.cues.creases import Solid
        from vid2phys.tracking.cues.texture import SurfaceTexture
        from vid2phys.tracking.detectors.network import detect
        from vid2phys.tracking.hypotheses import front_evidence, scored
        from vid2phys.tracking.single_image import TexturedBody
        from vid2phys.tracking.symmetry_evidence import symmetry_evidence

        calibration, shape = Calibration.from_dict(model.calibration), model.shape
        front = None if shape.front is None else shape.points_body[shape.front]
        texture, solid = SurfaceTexture.of(self.mesh, shape.rotations, shape.center), Solid.of(self.mesh)
        single_images = (
            None if texture is None or not edges else TexturedBody.of(self.mesh, texture, shape.rotations, shape.center)
        )

        def estimate_one(camera: Camera, image: Any, center: Array, radius: float) -> Array:
            seen = detect(model, camera, [image], center[None], np.array([radius]), calibration)
            best = seen.poses[0, 0]
            found_pose = best.pose
            large = edges and np.isfinite(best.cost) and seen.diameter_px[0] >= LEAST_PX
            if large:
                prior = np.linalg.inv(seen.pose_covariance(calibration)[0])
                contour = resolve(image, camera, solid, found_pose, prior)
                if contour is not None:
                    found_pose = contour.pose
                    seen = replace(seen, poses=known_pose(found_pose[None, None]))
            found = front_evidence(seen.front_logprob, seen.views, seen.poses, shape.rotations, front, shape.center)
            if texture is not None:
                found = found + texture.evidence(seen, [image], camera)
            if edges:
                found = found + scored(symmetry_evidence([image], [0], seen, camera, solid, shape))
            rotation = shape.rotations[int(np.argmax(found[0, 0]))].T
            pose = make_transform(found_pose.rotation, found_pose.translation)
            pose = pose @ make_transform(rotation, shape.center - rotation @ shape.center)
            refined = (
                single_images.refine(image, camera, Pose(pose[:3, :3], pose[:3, 3]))
                if single_images is not None and large
                else None
            )
            return pose if refined is None else make_transform(refined.pose.rotation, refined.pose.translation)

        return self.estimate_each(frames, seed, estimate_one)

    def estimate_by_state(self, learnt: Learnt, frames: Frames, seed: int) -> Estimates:
        """See `BodyAdapter.read_state`."""
        return self.estimate_each(frames, seed, lambda *looked: estimate_pose(learnt, *looked))

    def estimate_each(
        self, frames: Frames, seed: int, estimate_one: Callable[[Camera, Any, Array, float], Array]
    ) -> Estimates:
        """Return world poses, each estimated in the view that a tracker would choose.

        That is at the true place with a tracker's errors (3 % of the view, 6 % of size), the same for all methods. A
        pose beyond what those errors allow is put where it was looked for (`at_plausible_place`).
        """
        from vid2phys.tracking.detectors.network import direction_and_size

        rng = np.random.default_rng([seed, _LOOK])
        found = []
        for image, camera, pose in zip(frames.pieces, frames.cameras, frames.states, strict=True):
            assert camera.camera_to_world is not None
            place = camera.camera_to_world[:3, :3].T @ (pose[:3, 3] - camera.camera_to_world[:3, 3])
            center, radius = direction_and_size(place, self.radius_m)
            error = rng.normal(size=3) * [ASIDE, ASIDE, SIZE]
            aside = center + 3.0 * error[:2] * np.tan(radius)  # the view is three radii wide
            expected = float(radius * np.exp(error[2]))
            in_camera = estimate_one(camera, image, aside, expected)
            found.append(camera.camera_to_world @ at_plausible_place(in_camera, aside, expected, self.radius_m))
        poses = np.stack(found)
        return Estimates(self.vectors(poses), poses)

    def scores(self, estimates: Estimates, frames: Frames) -> dict[str, Score]:
        """See `BodyAdapter.scores`. A plain body is scored up to its symmetry alone."""
        elements = self.known.symmetry_transforms
        errors = np.abs(estimates.vectors[:, None] - self.vectors(frames.states[:, None] @ elements)).mean(axis=-1)
        result = {"state_error": Score(errors[:, 0], "1")} if self.labelled else {}
        if len(elements) > 1:
            result["state_error_up_to_symmetry"] = Score(errors.min(axis=1), "1")
        return {**result, **({} if estimates.states is None else self._in_units(estimates.states, frames))}

    def _in_units(self, poses: Array, frames: Frames) -> dict[str, Score]:
        """Return the errors in units that mean something outside the table."""
        truth, elements = frames.states, self.known.symmetry_transforms
        cosine = 0.5 * (np.einsum("nij,gjk,nik->ng", truth[:, :3, :3], elements[:, :3, :3], poses[:, :3, :3]) - 1.0)
        angles = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
        error, distance = poses[:, :3, 3] - truth[:, :3, 3], np.linalg.norm(truth[:, :3, 3], axis=1)
        bearing = truth[:, :3, 3] / distance[:, None]
        depth = np.einsum("ni,ni->n", error, bearing)
        sideways = np.linalg.norm(error - depth[:, None] * bearing, axis=1)
        metrics = {
            "position_mm": Score(1e3 * np.linalg.norm(error, axis=1), "mm", median=True),
            "sideways_mm": Score(1e3 * sideways, "mm", median=True),
            "depth_percent": Score(100.0 * np.abs(depth) / distance, "%", median=True),
            "points_px": Score(self._reprojection(poses, frames), "px", median=True),
        }
        if self.labelled:
            metrics["rotation_deg"] = Score(angles[:, 0], "deg", median=True)
        if len(elements) > 1:
            metrics["rotation_deg_up_to_symmetry"] = Score(angles.min(axis=1), "deg", median=True)
        return metrics

    def _reprojection(self, poses: Array, frames: Frames) -> Array:
        """Return the mean distance of vertices in the frame from their places under the nearest equivalent pose, px:
        [N].
        """
        vertices = self.mesh.vertices[:: max(1, len(self.mesh.vertices) // 100)]
        result = []
        for pose, truth, camera in zip(poses, frames.states, frames.cameras, strict=True):
            seen = project(camera, vertices @ pose[:3, :3].T + pose[:3, 3])
            same = truth @ self.known.symmetry_transforms
            places = np.einsum("gij,vj->gvi", same[:, :3, :3], vertices) + same[:, None, :3, 3]
            result.append(np.linalg.norm(seen - project(camera, places), axis=-1).mean(axis=-1).min())
        return np.array(result)

    def validation(self, judge: TrainingData, head: Head) -> Callable[[nn.Module], dict[str, float]]:
        """See `BodyAdapter.validation`; `state_error` is over `PoseEncoding`, up to the judge's symmetry."""
        import torch

        from vid2phys.risp.renders.stream import ImageStream
        from vid2phys.risp.shape.pose_encoding import PoseEncoding

        images = replace(judge.stream, appearances=0)
        own: Any = head.validation(ImageStream(images, jitter=False), judge.validation)
        codes = PoseEncoding(images.radius_m, images.view_size)
        truth = own.view_from_body[:, None] @ judge.body.symmetry_transforms
        camera = torch.from_numpy(own.K)
        wanted = codes.encode(torch.from_numpy(truth), camera[:, None])

        def validate(network: nn.Module) -> dict[str, float]:
            found = codes.encode(torch.from_numpy(own.predict_poses(network)), camera)
            error = (found[:, None] - wanted).abs().mean(-1).amin(-1)
            return {**own(network), "state_error": float(error.mean())}

        return validate


def estimate_pose(learnt: Learnt, camera: Camera, image: Any, center: Array, radius: float) -> Array:
    """Return camera_from_body [4, 4] that a state head estimates of the body about `center` [2], `radius` rad wide."""
    import torch

    from vid2phys.engine.virtual_camera import make_view, resample
    from vid2phys.risp.heads.state import StateHead
    from vid2phys.risp.networks.state_network import predict_numbers

    assert isinstance(learnt.head, StateHead)
    view = make_view(camera, center, radius, learnt.view_size)
    numbers = predict_numbers(learnt.network, resample(image, camera, view)[None])
    in_view = learnt.head.codes.decode(numbers, torch.from_numpy(view.K)[None])[0].numpy()
    rotation = view.rotation_view_from_camera.T
    return make_transform(rotation @ in_view[:3, :3], rotation @ in_view[:3, 3])


def at_plausible_place(camera_from_body: Array, center: Array, angular_radius: float, radius_m: float) -> Array:
    """Return a pose [4, 4] as it is if a tracker would believe its place, else with the place where it was looked for.

    center [2], angular_radius [rad]: of the view. Its sides are three radii: a body half of that aside is not in it. A
    distance 30 % off is kept on its line of sight.
    """
    place, expected = camera_from_body[:3, 3], radius_m / np.sin(angular_radius)
    in_front = bool(np.isfinite(place).all() and place[2] > 0.0)
    if not in_front or np.linalg.norm(place[:2] / place[2] - center) > 1.5 * np.tan(angular_radius):
        place = np.array([*center, 1.0])
    elif abs(np.linalg.norm(place) / expected - 1.0) <= _PLAUSIBLE:
        return camera_from_body
    return make_transform(camera_from_body[:3, :3], expected * place / np.linalg.norm(place))


def project(camera: Camera, points: Array) -> Array:
    """Return the pixels [..., 2] of world points [..., 3] m."""
    pose = camera.camera_to_world
    assert pose is not None
    in_camera = (points - pose[:3, 3]) @ pose[:3, :3] @ camera.K.T
    return np.asarray(in_camera[..., :2] / np.maximum(in_camera[..., 2:], 1e-6))
