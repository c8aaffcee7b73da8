"""Rendered images of a simulated motion, differentiable: what losses of pixels compare with the clip's images.

Method: a clip is compared in square images around the object, each of a virtual camera without distortion, resampled
from a frame once. Light is composited linearly and encoded as sRGB. The body's colours are linear in its normals, for
each part: the first order of spherical harmonics (Basri and Jacobs, PAMI 2003, who show that two orders suffice for a
convex matte body). A texture or colours of faces multiply this light.

Limits: no shadows, no gloss, one light for all frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.points import world_points
from vid2phys.engine.render.differentiable import FragmentColors, draw, normals_of
from vid2phys.engine.render.surface_colors import textured
from vid2phys.engine.system import System
from vid2phys.engine.virtual_camera import View, resample
from vid2phys.errors import InputError
from vid2phys.geometry import invert_transform
from vid2phys.types import Array, Camera, Mesh

_RIDGE = 1e-3  # of the pixels of a part: colours without evidence stay near grey
_GREY, _WHITE = 0.18, 1.0  # light of a part that no image shows: without colours of its own, and with them


@dataclass(frozen=True)
class Views:
    """Images of some frames of a clip, all V x V.

    frames: [n] which frames. images, backdrop: [n, V, V, 3] display values (sRGB) 0..1, with the body and what is
    behind it. known: [n, V, V] bool, where the backdrop is known. K: [n, 3, 3] px. world_to_view: [n, 4, 4].
    """

    frames: NDArray[np.int64]
    images: Array
    backdrop: Array
    known: NDArray[np.bool_]
    K: Array
    world_to_view: Array

    def __post_init__(self) -> None:
        """Raises InputError for images that are not square or not all of one size."""
        expected = (len(self.frames), *self.images.shape[1:2] * 2, 3)
        for name, values, shape in (
            ("images", self.images, expected),
            ("backdrops", self.backdrop, expected),
            ("masks of what is known", self.known, expected[:3]),
        ):
            if values.shape != shape:
                got = f"{name} of shape {list(values.shape)} for {len(self.frames)} frames"
                raise InputError(got, f"{list(shape)}", "give square views of one size, one a frame")

    @staticmethod
    def through(
        cameras: Sequence[View],
        camera: Camera,
        frames: NDArray[np.int64],
        images: Iterable[NDArray[np.uint8]],
        backdrop: NDArray[np.uint8],
        known: NDArray[np.bool_],
    ) -> Views:
        """Return views of a camera, which has a pose: of frames [n] as `images` [H, W, 3], and of the backdrop.

        known: [n, V, V], in the views. Raises InputError as any `Views`.
        """
        to_view = np.tile(np.eye(4), (len(cameras), 1, 1))
        to_view[:, :3, :3] = [each.rotation_view_from_camera for each in cameras]
        return Views(
            frames,
            np.stack([resample(image, camera, each) for image, each in zip(images, cameras, strict=True)]) / 255.0,
            np.stack([resample(backdrop, camera, each) for each in cameras]) / 255.0,
            known,
            np.stack([each.K for each in cameras]),
            to_view @ invert_transform(np.asarray(camera.camera_to_world)),
        )

    def some(self, chosen: slice) -> Views:
        """Return the views of some of the frames."""
        return Views(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})

    @property
    def size(self) -> int:
        """Return V, px."""
        return int(self.images.shape[1])


@dataclass(frozen=True)
class Scene:
    """A body before its backdrop. light: [parts, 4, 3], linear light of a part's face.

    For the unit normal n (world axes, towards the camera) it is light[0] + n @ light[1:]. texture: colours that
    multiply the light over the faces, or None.
    """

    system: System
    mesh: Mesh
    views: Views
    light: Array
    texture: FragmentColors | None = None

    @cached_property
    def _one_sided(self) -> NDArray[np.bool_]:
        return one_sided(self.mesh.vertices, self.mesh.faces)

    @cached_property
    def _behind(self) -> Tensor:
        return decode_srgb(torch.from_numpy(self.views.backdrop))

    def images(self, states: Tensor) -> Tensor:
        """Return display values [n, V, V, 3] of states [F, N] at all frames of the clip; differentiable."""
        shape, normals = self._placed(states)
        light = torch.from_numpy(self.light)[torch.from_numpy(self.mesh.part)]
        colors = light[:, 0] + torch.einsum("nfa,fac->nfc", normals, light[:, 1:])
        image, coverage = self._drawn(shape, self._textured(colors))
        return encode_srgb(image + (1.0 - coverage[..., None]) * self._behind)

    def coverage(self, states: Tensor) -> Tensor:
        """Return the share of each pixel that the body covers, [n, V, V]."""
        shape, normals = self._placed(states)
        return self._drawn(shape, normals)[1]

    def require_overlap(self, states: Tensor) -> None:
        """Raises InputError when the body is in none of the views: nothing would pull it there."""
        if not bool((self.coverage(states.detach()) > 0.0).any()):
            raise InputError(
                f"the simulated body is in none of the {len(self.views.frames)} views of the clip",
                "a start at which its image overlaps the clip's",
                "start nearer (--set, or let the tracker find the first state), or use --loss keypoint",
            )

    def _placed(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return vertices in view axes [n, V, 3] and normals in world axes, towards the camera [n, F, 3]."""
        world = world_points(self.system, states[torch.from_numpy(self.views.frames)], self.mesh.vertices)
        to_view = torch.from_numpy(self.views.world_to_view)
        vertices = world @ to_view[:, :3, :3].transpose(1, 2) + to_view[:, None, :3, 3]
        normals = normals_of(vertices, self.mesh.faces)
        away = (normals * vertices[:, self.mesh.faces[:, 0]]).sum(-1, keepdim=True) > 0.0
        normals = torch.where(away & ~torch.from_numpy(self._one_sided)[:, None], -normals, normals)
        return vertices, normals @ to_view[:, :3, :3]

    def _textured(self, light: Tensor, channels: slice = slice(None)) -> Tensor | FragmentColors:
        """Return the light [n, F, C] of the faces, times these channels of the texture."""
        texture = self.texture
        if texture is None:
            return light
        return lambda pieces: light[pieces.image, pieces.face] * texture(pieces)[:, channels]

    def _drawn(self, vertices: Tensor, colors: Tensor | FragmentColors) -> tuple[Tensor, Tensor]:
        size, K = self.views.size, torch.from_numpy(self.views.K)
        return draw(vertices, self.mesh.faces, colors, K, size, size, one_sided=self._one_sided)


def fit_light(
    system: System, mesh: Mesh, views: Views, states: Tensor, *, texture: bool = True, shading: bool = True
) -> Scene:
    """Return a scene with the light that explains the images best for states [F, N] (linear least squares).

    texture: use the mesh's colours, where it has any. shading: let light depend on the normals; if not, each part has
    one for all of its faces. Raises InputError when the body is in none of the images.
    """
    parts = len(mesh.part_names)
    scene = Scene(system, mesh, views, np.zeros((parts, 4, 3)))
    scene.require_overlap(states)
    with torch.no_grad():
        vertices, normals = scene._placed(states)
        if texture and mesh.texture is not None:
            pixel_m = float(vertices[..., 2].mean()) / float(views.K[:, 0, 0].mean())
            scene = replace(scene, texture=textured(mesh, pixel_m))
        basis = torch.zeros((*normals.shape[:2], parts, 4), dtype=torch.float64)
        terms = torch.cat([torch.ones_like(normals[..., :1]), normals if shading else 0.0 * normals], dim=-1)
        basis[:, torch.arange(len(mesh.faces)), torch.from_numpy(mesh.part)] = terms
        apart = [slice(None)] if scene.texture is None else [slice(c, c + 1) for c in range(3)]
        light = torch.cat([_light_of(scene, vertices, basis, channels) for channels in apart], dim=-1)
    return replace(scene, light=light.numpy())


def _light_of(scene: Scene, vertices: Tensor, basis: Tensor, channels: slice) -> Tensor:
    """Return the light [parts, 4, C] of channels that have one texture.

    vertices: [n, V, 3] in view axes. basis: [n, F, parts, 4], terms of the light of their faces.
    """
    parts, views = basis.shape[2], scene.views
    design, coverage = scene._drawn(vertices, scene._textured(basis.flatten(2), channels))
    target = decode_srgb(torch.from_numpy(views.images)) - (1.0 - coverage[..., None]) * scene._behind
    used = torch.from_numpy(views.known) & (coverage > 0.0)
    rows, right = design[used], target[used][:, channels]
    squares = rows.T @ rows
    ridge = _RIDGE * squares.diagonal().reshape(parts, 4)[:, :1].clamp(min=1.0).expand(parts, 4).flatten()
    before = torch.zeros((parts, 4, right.shape[-1]), dtype=torch.float64)
    before[:, 0] = _GREY if scene.texture is None else _WHITE
    before = before.flatten(0, 1)
    light = before + torch.linalg.solve(squares + torch.diag(ridge), rows.T @ (right - rows @ before))
    return light.reshape(parts, 4, -1)


def encode_srgb(light: Tensor) -> Tensor:
    """Return display values 0..1 of linear light, sRGB (IEC 61966-2-1); light is clamped to 0..1."""
    light = light.clamp(0.0, 1.0)
    above = light.clamp(min=0.0031308)
    return torch.where(light <= 0.0031308, 12.92 * light, 1.055 * above ** (1.0 / 2.4) - 0.055)


def decode_srgb(display: Tensor) -> Tensor:
    """Return the linear light of display values: the inverse of `encode_srgb`."""
    above = display.clamp(min=0.04045)
    return torch.where(display <= 0.04045, display / 12.92, ((above + 0.055) / 1.055) ** 2.4)
