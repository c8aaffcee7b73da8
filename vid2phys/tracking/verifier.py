"""Whether a frame shows a mesh at a pose, by one small network for all meshes.

The network sees the frame about the body, how far that differs from the clip's background, and the mesh drawn at the
pose: its silhouette and its normals. The network answers with one logit, positive where the frame shows the mesh there.
Its training knows nothing of the body's appearance: random meshes under random textures and light, beside hands, mugs
and similar objects (`python -m benchmarks.verifier`). RISP trains a network for each mesh; this one is an addition.

Limits: rigid bodies; poses within a twentieth of the body's size count as right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.engine.render.rasterizer import rasterize
from vid2phys.engine.virtual_camera import make_view, resample
from vid2phys.geometry import Pose
from vid2phys.risp.networks.network import Block
from vid2phys.tracking.background import Background
from vid2phys.tracking.detectors.network import direction_and_size, in_frame_diameter
from vid2phys.types import Array, Camera, Mesh

SIZE_PX = 64
FILL = 0.6  # share of the crop that the body's bounding sphere takes
CHANNELS = 8
_MARGIN = 0.9  # sides of the crop from its middle that its corners and the lens may reach
WEIGHTS = Path(__file__).with_name("verifier.safetensors")
Image = NDArray[np.uint8]


class VerifierNetwork(nn.Module):
    """Residual network on crops [B, 8, 64, 64]; returns logits [B]."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.stem = nn.Conv2d(CHANNELS, width, 5, stride=2, padding=2)
        self.stages = nn.Sequential(
            Block(width, width),
            Block(width, 2 * width, halve=True),
            Block(2 * width, 3 * width, halve=True),
            Block(3 * width, 4 * width, halve=True),
        )
        self.answer = nn.Sequential(nn.Linear(8 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, crops: Tensor) -> Tensor:
        """Return logits [B]."""
        features = self.stages(self.stem(crops))
        return self.answer(torch.cat([features.mean(dim=(2, 3)), features.amax(dim=(2, 3))], dim=1))[:, 0]


def crop_of(frame: Image, background: Image | None, camera: Camera, mesh: Mesh, pose: Pose) -> NDArray[np.float32]:
    """Return what the network sees of a pose camera_from_body, [8, 64, 64].

    frame: [H, W, 3]. background: [H, W, 3] of the clip (`background_of`); None where it is not known.
    """
    bearing, radius = direction_and_size(pose.translation, mesh.radius_m)
    view = make_view(camera, bearing, float(radius), SIZE_PX, fill=FILL)
    rows, columns = _window(camera, bearing, float(radius), frame.shape)
    piece = frame[rows, columns]
    change = np.zeros(piece.shape[:2], np.uint8) if background is None else _change(piece, background[rows, columns])
    shift = np.array([[0.0, 0.0, columns.start], [0.0, 0.0, rows.start], [0.0, 0.0, 0.0]])
    seen = resample(np.dstack([piece, change]), replace(camera, K=camera.K - shift), view).astype(np.float32) / 255.0
    placed = pose.apply(mesh.vertices) @ view.rotation_view_from_camera.T
    raster = rasterize(placed, mesh.faces, view.K, SIZE_PX, SIZE_PX)
    covered = raster.face_id >= 0
    normals = raster.normals[raster.face_id] * covered[..., None]
    colors = seen[..., :3]
    contrast = (colors - colors.mean(axis=(0, 1))) / (colors.std() + 0.05)
    stacked = np.concatenate([contrast, 4.0 * seen[..., 3:], covered[..., None], normals], axis=-1)
    return np.ascontiguousarray(np.moveaxis(stacked, -1, 0), dtype=np.float32)


def background_of(background: Background, shape: tuple[int, ...]) -> Image:
    """Return the background of a clip in the size of its frames, [H, W, 3]."""
    return np.asarray(cv2.resize(background.image, shape[1::-1], interpolation=cv2.INTER_LINEAR), np.uint8)


def _window(camera: Camera, bearing: Array, radius: float, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Return the rows and columns of a frame that the crop about a bounding sphere shows, at least one of each."""
    center = np.nan_to_num(bearings_to_pixels(camera, bearing), nan=0.0)
    diameter = np.nan_to_num(in_frame_diameter(camera, bearing[None], np.array([radius]))[0], nan=max(shape))
    reach = _MARGIN * float(diameter) / FILL + 2.0
    low = np.clip(np.floor(center - reach), 0, [shape[1] - 1, shape[0] - 1]).astype(int)
    high = np.clip(np.ceil(center + reach) + 1, low + 1, [shape[1], shape[0]]).astype(int)
    return slice(int(low[1]), int(high[1])), slice(int(low[0]), int(high[0]))


def _change(piece: Image, behind: Image) -> Image:
    """Return how far a piece of a frame differs from the background, the largest of the colours, [h, w]."""
    return np.asarray(cv2.absdiff(piece, behind).max(axis=-1), np.uint8)


@dataclass(frozen=True)
class Verifier:
    """The trained network."""

    network: VerifierNetwork

    def logit(self, crop: NDArray[np.float32]) -> float:
        """Return the network's logit for a crop."""
        with torch.inference_mode():
            return float(self.network(torch.from_numpy(crop[None])))

    @staticmethod
    @cache
    def load() -> Verifier:
        """Return the verifier that comes with this version."""
        from safetensors.torch import load_file

        network = VerifierNetwork()
        network.load_state_dict(load_file(str(WEIGHTS)))
        return Verifier(network.eval())
