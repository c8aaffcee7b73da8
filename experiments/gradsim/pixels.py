"""gradSim's pixel path: simulation, vertices, rasteriser, error of images, in one PyTorch graph.

A `Stage` is what a camera looks at; a `Shot` is a system before it, with physics and images at rates of their own; a
`Target` is the images that a motion is compared with. Images are linear light.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.points import world_points
from vid2phys.engine.render.differentiable import FragmentColors, Fragments, draw, normals_of
from vid2phys.engine.render.surface_colors import interpolated
from vid2phys.engine.rollout import rollout
from vid2phys.engine.system import Integrator, Precision, System
from vid2phys.errors import InputError, UsageError
from vid2phys.geometry import invert_transform, look_at
from vid2phys.io.orientation import inconsistent_faces
from vid2phys.types import Array, Camera, Mesh

_LIGHT = np.array([0.35, -0.6, 0.72])  # where it comes from, world axes
_AMBIENT, _DIFFUSE = 0.35, 0.65
_FOREGROUND = 0.02  # of full light, by which a pixel has to differ from what is behind to show a body


@dataclass(frozen=True)
class Actor:
    """A body that is filmed.

    Attributes:
        placed: Function from states [F, N] to vertices [F, V, 3] m in the world.
        count: Number of vertices V.
        faces: [T, 3], wound alike.
        one_sided: [T], whether a face is never seen from behind.
        albedo: Linear RGB [3].
        texture: Colour that varies over the body, times the albedo.
        shaded: Whether light falls on the body (Lambert, one lamp far away and the sky), or all of it is as bright.
        light: [4, 3], light of a face with the unit normal n (world axes): light[0] + n @ light[1:]. None: albedo and
            shading give it.
    """

    placed: Callable[[Tensor], Tensor]
    count: int
    faces: NDArray[np.int64]
    one_sided: NDArray[np.bool_]
    albedo: Array
    texture: FragmentColors | None = None
    shaded: bool = True
    light: Array | None = None

    def colors(self, normals: Tensor) -> Tensor:
        """Return linear light of its faces, without texture, from their unit normals towards the camera [F, T, 3]."""
        if self.light is not None:
            light = torch.from_numpy(self.light)
            return light[0] + normals @ light[1:]
        albedo = torch.from_numpy(self.albedo).expand(*normals.shape[:2], 3)
        if not self.shaded:
            return albedo
        lamp = torch.from_numpy(_LIGHT / np.linalg.norm(_LIGHT))
        return albedo * (_AMBIENT + _DIFFUSE * (normals @ lamp).clamp(min=0.0))[..., None]

    @staticmethod
    def of(
        system: System,
        mesh: Mesh | None = None,
        *,
        body: int = 0,
        albedo: tuple[float, float, float] = (0.8, 0.35, 0.2),
        texture: FragmentColors | None = None,
        shaded: bool = True,
    ) -> Actor:
        """Return a mesh carried by a system, or one of its bodies (`world_points`); None: the system's own surface.

        Raises UsageError for a system without a mesh, InputError for faces that are wound against their neighbours.
        """
        mesh = system.surface if mesh is None else mesh
        if mesh is None:
            raise UsageError(f"'{system.name}' without a mesh", "a mesh to film", "give one")
        against = int(inconsistent_faces(mesh.faces).sum())
        if against:
            raise InputError(
                f"{against} of {len(mesh.faces)} faces of '{mesh.name}' are wound against their neighbours",
                "faces that go round counter-clockwise seen from outside",
                "read the mesh with vid2phys.io.mesh.load_mesh, which turns them",
            )
        placed = partial(world_points, system, points_body=mesh.vertices, body=body)
        sides = one_sided(mesh.vertices, mesh.faces)
        return Actor(placed, len(mesh.vertices), mesh.faces, sides, np.array(albedo), texture, shaded)


@dataclass(frozen=True)
class Stage:
    """Bodies before one camera that is static and without distortion.

    background: linear RGB, [3] or of each pixel [H, W, 3].
    """

    actors: tuple[Actor, ...]
    camera: Camera
    background: Array = field(default_factory=lambda: np.array([0.08, 0.1, 0.13]))

    def images(self, states: Tensor) -> Tensor:
        """Return the linear light [F, H, W, 3] of states [F, N]; differentiable."""
        return self.drawn(states)[0]

    def coverage(self, states: Tensor) -> Tensor:
        """Share of each pixel that the bodies cover, [F, H, W]."""
        return self.drawn(states)[1]

    def drawn(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return `images` and `coverage` of states [F, N]."""
        camera, (faces, sides) = self.camera, self._mesh
        world = torch.cat([actor.placed(states) for actor in self.actors], dim=1)
        to_camera = torch.from_numpy(invert_transform(np.asarray(camera.camera_to_world)))
        vertices = world @ to_camera[:3, :3].T + to_camera[:3, 3]
        colors, K = self._colors(world, vertices), torch.from_numpy(camera.K).expand(len(states), 3, 3)
        image, coverage = draw(vertices, faces, colors, K, camera.width, camera.height, one_sided=sides)
        return image + (1.0 - coverage[..., None]) * torch.from_numpy(self.background), coverage

    @cached_property
    def _mesh(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the faces of all actors, and which are never seen from behind."""
        starts = np.cumsum([0, *(actor.count for actor in self.actors[:-1])])
        faces = [actor.faces + start for actor, start in zip(self.actors, starts, strict=True)]
        return np.concatenate(faces), np.concatenate([actor.one_sided for actor in self.actors])

    def _colors(self, world: Tensor, vertices: Tensor) -> Tensor | FragmentColors:
        """Return the colours of all faces, [F, T, 3], or of pieces of them where a body has a texture."""
        faces, sides = self._mesh
        away = (normals_of(vertices, faces) * vertices[:, faces[:, 0]]).sum(-1, keepdim=True) > 0.0
        normals = normals_of(world, faces)
        normals = torch.where(away & ~torch.from_numpy(sides)[:, None], -normals, normals)
        counts = [len(actor.faces) for actor in self.actors]
        each = zip(self.actors, normals.split(counts, dim=1), strict=True)
        flat = torch.cat([actor.colors(own) for actor, own in each], dim=1)
        if all(actor.texture is None for actor in self.actors):
            return flat
        return partial(self._textured, flat)

    def _textured(self, flat: Tensor, fragments: Fragments) -> Tensor:
        colors, first = flat[fragments.image, fragments.face], 0
        for actor in self.actors:
            last = first + len(actor.faces)
            if actor.texture is not None:
                own = (fragments.face >= first) & (fragments.face < last)
                inside = Fragments(fragments.image[own], fragments.face[own] - first, fragments.weights[own])
                colors = colors.index_put((own,), colors[own] * actor.texture(inside))
            first = last
        return colors


@dataclass(frozen=True)
class Target:
    """Images that a motion is compared with. images: [F, H, W, 3] linear light. mask: [F, H, W] bool, what counts;
    None: all does."""

    images: Tensor
    mask: Tensor | None = None

    def first(self, frames: int) -> Target:
        """Return the target's first frames alone."""
        return Target(self.images[:frames], None if self.mask is None else self.mask[:frames])

    def error(self, images: Tensor) -> Tensor:
        """Return the mean squared difference over what counts: gradSim's loss. Raises InputError for images of another
        size.
        """
        return (self.differences(images) ** 2).mean()

    def differences(self, images: Tensor) -> Tensor:
        """Return what is left of images [F, H, W, 3] where it counts, [R]. Raises as `error`."""
        self._check(images)
        off = images - self.images
        return off.flatten() if self.mask is None else off[self.mask].flatten()

    def require_overlap(self, stage: Stage, states: Tensor) -> None:
        """Raise InputError for states [F, N] at which no body is where the target shows one in any frame.

        Then no pixel's error depends on where the body is: the loss has no gradient.
        """
        with torch.no_grad():
            covered = stage.coverage(states) > 0.0
            self._check(covered[..., None].expand(*covered.shape, 3))
            seen = ((self.images - torch.from_numpy(stage.background)).abs() > _FOREGROUND).any(-1)
            seen = seen if self.mask is None else seen & self.mask
        if not bool((covered & seen).any()):
            raise InputError(
                f"the simulated body is in none of the {len(covered)} frames where the target shows it: the error of "
                "pixels has no gradient there",
                "a start that overlaps the target in some frame",
                "start nearer, or fit keypoints (--loss keypoint), which pull from everywhere",
            )

    def _check(self, images: Tensor) -> None:
        expected, wrong = tuple(self.images.shape), None
        if tuple(images.shape) != expected:
            wrong = f"frames of shape {list(images.shape)}"
        elif self.mask is not None and tuple(self.mask.shape) != expected[:3]:
            wrong, expected = f"a mask of shape {list(self.mask.shape)}", expected[:3]
        elif self.mask is not None and not bool(self.mask.any()):
            raise InputError("a mask that leaves out everything", "one true pixel or more", "check its sign")
        if wrong:
            raise InputError(wrong, f"{list(expected)}", "give a frame of the camera's size for each image")


@dataclass(frozen=True)
class Shot:
    """A system before a stage. steps: intervals of `step_s`, in `substeps` each, an image after every `every` of them,
    the first one of the initial state."""

    system: System
    stage: Stage
    step_s: float
    steps: int
    every: int = 1
    substeps: int = 1
    integrator: Integrator | None = None
    precision: Precision = "double"

    def states(self, initial: Tensor, controls: Tensor | None, parameters: Tensor) -> Tensor:
        """Return the states at the ends of all intervals [S + 1, N], from the first [N], controls [S, M] or none,
        parameters [P] in SI.

        Raises as `rollout`, UsageError for an activation outside of -1..1.
        """
        controls = self.rest if controls is None else controls
        self._check_activations(controls)
        how = {"integrator": self.integrator, "substeps": self.substeps, "precision": self.precision}
        return rollout(self.system, initial[None], controls[None], parameters, self.step_s, **how)[0]  # type: ignore[arg-type]

    def filmed(self, states: Tensor) -> Tensor:
        """Return the states of the frames."""
        return states[:: self.every]

    def images(self, initial: Tensor, controls: Tensor | None, parameters: Tensor) -> Tensor:
        """Return the linear light [F, H, W, 3]; differentiable. Raises as `states`."""
        return self.stage.images(self.filmed(self.states(initial, controls, parameters)))

    @property
    def rest(self) -> Tensor:
        """Return the controls [S, M] of a body that nothing drives."""
        return torch.zeros((self.steps, len(self.system.control_names)), dtype=torch.float64)

    def _check_activations(self, controls: Tensor) -> None:
        for column, name in enumerate(self.system.control_names):
            if not name.startswith("activation") or not len(controls):
                continue
            most = float(controls[:, column].detach().abs().max())
            if most > 1.0:
                raise UsageError(f"{name} of {most:.3g}", "-1 to 1", "bound what drives it, for example with a tanh")


def waves(points: Array, faces: NDArray[np.int64], length_m: float = 0.25) -> FragmentColors:
    """Return a texture: waves of three colours through a body's matter, points [V, 3] of its vertices at rest."""
    ways = torch.tensor([[23.0, 9.0, -5.0], [-7.0, 19.0, 11.0], [5.0, -13.0, 21.0]], dtype=torch.float64)
    return solid_texture(points, faces, lambda at: 0.55 + 0.45 * torch.sin(at @ (ways.T * (0.25 / length_m))))


def looking_at(
    place: tuple[float, float, float], middle: tuple[float, float, float], reach_m: float, size_px: int = 64
) -> Camera:
    """Return a square camera at a place that holds a ball of `reach_m` about a middle; its horizon is level."""
    eye, target = np.array(place, dtype=float), np.array(middle, dtype=float)
    distance = float(np.linalg.norm(target - eye))
    half = 0.5 * size_px
    focal = half * np.sqrt(max((distance / reach_m) ** 2 - 1.0, 1e-6))
    K = np.array([[focal, 0.0, half - 0.5], [0.0, focal, half - 0.5], [0.0, 0.0, 1.0]])
    return Camera(K, size_px, size_px, camera_to_world=look_at(eye, target))


def solid_texture(points: Array, faces: NDArray[np.int64], color: Callable[[Tensor], Tensor]) -> FragmentColors:
    """Return a solid texture (Peachey, SIGGRAPH 1985), which needs no map of the surface and has no seams.

    points: [V, 3] m, the vertices at rest. faces: [F, 3]. color: points [n, 3] of the shape at rest to light [n, 3].
    """
    at_rest = interpolated(torch.from_numpy(np.asarray(points, dtype=float)), faces)
    return lambda fragments: color(at_rest(fragments))
