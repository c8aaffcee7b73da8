"""A trained model: a folder with config.json, one or two safetensors files and score.json.

Loading executes nothing from the folder.

Limits: weights are saved in half precision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from vid2phys.engine.movable.body import CameraRange
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.io.files import write_bytes, write_text
from vid2phys.io.mesh import GeometrySignature
from vid2phys.risp.networks import heatmaps
from vid2phys.risp.networks.locator import Candidates, locate
from vid2phys.risp.networks.network import STRIDE, KeypointNetwork, LocatorNetwork, to_input
from vid2phys.types import Array

SCHEMA = "vid2phys.model/1"
_CONFIG, _FINE, _COARSE, _SCORE = "config.json", "fine.safetensors", "coarse.safetensors", "score.json"
_RETRAIN = "train it again with `vid2phys train-risp`"
_LEAST_VARIANCE_PX2 = 0.05


@dataclass(frozen=True)
class KeypointPrediction:
    """Keypoints that the fine network predicts in B images of the virtual camera.

    Attributes:
        points_px: [B, K, 2] pixels, labelled up to the body's symmetry.
        covariance_px: [B, K, 2, 2] spread of the heat map around its peak, px^2; the error model scales it.
        peak: [B, K] probability of the window around the peak.
        front_logprob: [B, V/4, V/4] log-probability of each cell to contain the front point.
    """

    points_px: Array
    covariance_px: Array
    peak: Array
    front_logprob: Array

    def renamed(self, order: NDArray[np.int64]) -> KeypointPrediction:
        """Return the prediction with point order[k] in place of point k."""
        return replace(
            self,
            points_px=self.points_px[:, order],
            covariance_px=self.covariance_px[:, order],
            peak=self.peak[:, order],
        )


@dataclass(frozen=True)
class Shape:
    """The body for which a model was trained.

    Attributes:
        system: Name of the system.
        signature: Geometry of the mesh.
        points_body: [K, 3] keypoints, m.
        rotations: [G, 3, 3] symmetry group, the identity first.
        permutation: [G, K]; rotations[g] about `center` takes points[k] to points[permutation[g, k]].
        front: Keypoint that the front map shows; None for an exact group, whose elements no image tells apart.
        mesh_name: Name of the mesh.
        center: [3] fixed point of the symmetry group, m.
        kind: `rigid`, `joints` or `modes` (`articulated_bodies.configuration_kind`).
        textured: Whether training showed the mesh's texture, which tells symmetry elements apart.
        cameras: Where articulated and modal bodies are filmed from.
    """

    system: str
    signature: GeometrySignature
    points_body: Array
    rotations: Array
    permutation: NDArray[np.int64]
    front: int | None
    mesh_name: str = "mesh"
    center: Array = field(default_factory=lambda: np.zeros(3))
    kind: str = "rigid"
    textured: bool = False
    cameras: CameraRange | None = None

    @property
    def exact(self) -> bool:
        """Return whether there are several symmetry elements and nothing tells them apart."""
        return self.front is None and len(self.rotations) > 1

    def scaled(self, factor: float) -> Shape:
        """Return the shape scaled by a factor."""
        return replace(
            self,
            signature=self.signature.scaled(factor),
            points_body=self.points_body * factor,
            center=self.center * factor,
        )


@dataclass(frozen=True)
class Model:
    """Networks with the body for which they were trained.

    Attributes:
        shape: The body.
        fine: Keypoint network.
        coarse: Locator, or None where base and camera determine the virtual camera.
        view_size: Width and height V of the virtual camera's image, px.
        sizes: Arguments of the networks by name.
        calibration: Numbers of the error model, or None before calibration.
        folder: Folder of the model, or None for an unsaved one.
    """

    shape: Shape
    fine: KeypointNetwork
    coarse: LocatorNetwork | None
    view_size: int
    sizes: dict[str, dict[str, int]]
    calibration: dict[str, Any] | None = None
    folder: Path | None = None

    @property
    def points_body(self) -> Array:
        """Return the keypoints [K, 3], m."""
        return self.shape.points_body

    @property
    def rotations(self) -> Array:
        """Return the symmetry group [G, 3, 3], the identity first."""
        return self.shape.rotations

    @property
    def center(self) -> Array:
        """Return the fixed point [3] of the symmetry group, m."""
        return self.shape.center

    @property
    def permutation(self) -> NDArray[np.int64]:
        """Return the permutation [G, K] of the keypoints by each symmetry element."""
        return self.shape.permutation

    @property
    def front(self) -> int | None:
        """Return the index of the keypoint that the front map shows, None for an exact group."""
        return self.shape.front

    @property
    def radius_m(self) -> float:
        """Return the radius of the bounding sphere around the body origin, m."""
        return self.shape.signature.radius

    def predict(self, images: NDArray[np.uint8], places_px: Array | None = None, batch: int = 32) -> KeypointPrediction:
        """Predict the keypoints in images of the virtual camera.

        Args:
            images: [B, V, V, 3] uint8 RGB.
            places_px: [B, K, 2] expected places, or None. With them keypoints have their labels, not labels up to
                symmetry.
            batch: Number of images that the network sees at once.

        Raises:
            ValueError: The images have another size.
        """
        expected = (self.view_size, self.view_size, 3)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise ValueError(f"views of shape {images.shape}, expected [B, {self.view_size}, {self.view_size}, 3]")
        parts = [slice(i, i + batch) for i in range(0, len(images), batch)]
        pieces = [self._predict(images[part], None if places_px is None else places_px[part]) for part in parts]
        if not pieces:
            return _empty_prediction(len(self.points_body), self.view_size // STRIDE)
        return KeypointPrediction(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))

    @torch.no_grad()
    def _predict(self, images: NDArray[np.uint8], places_px: Array | None) -> tuple[Array, Array, Array, Array]:
        device = next(self.fine.parameters()).device
        output = self.fine(to_input(torch.from_numpy(np.ascontiguousarray(images)).to(device))).float()
        if places_px is None:
            points, moment, mass = heatmaps.decode(output[:, :-1])
        else:
            orbit = torch.from_numpy(self.permutation.min(axis=0))
            points, moment, mass = heatmaps.decode_near(output[:, :-1].cpu(), orbit, torch.from_numpy(places_px))
        front = heatmaps.log_probabilities(output[:, -1])
        points, moment, mass, front = (t.cpu().double() for t in (points, moment, mass, front))
        return points.numpy(), excess_covariance(moment, mass).numpy(), mass.numpy(), front.numpy()

    def locate(self, image: NDArray[np.uint8]) -> Candidates:
        """Return candidate places of the body in a frame [H, W, 3], best first."""
        assert self.coarse is not None
        return locate(self.coarse, image)

    def scaled(self, factor: float) -> Model:
        """Return the model for a shape scaled by a factor. Images show no size, so that only lengths change."""
        return replace(self, shape=self.shape.scaled(factor))

    def with_calibration(self, calibration: dict[str, Any]) -> Model:
        """Return the model with another error model."""
        return replace(self, calibration=calibration)

    def save(self, folder: Path, score: dict[str, Any] | None = None) -> None:
        """Write the folder, each file atomically, and config.json last, since it makes the folder a model."""
        folder.mkdir(parents=True, exist_ok=True)
        networks = {_FINE: self.fine, _COARSE: self.coarse}
        for name, network in networks.items():
            if network is None:
                continue
            tensors = {k: v.detach().cpu().half().contiguous() for k, v in network.state_dict().items()}
            write_bytes(folder / name, save(tensors))
        if score is not None:
            write_text(folder / _SCORE, json.dumps(score, indent=1) + "\n")
        write_text(folder / _CONFIG, json.dumps(self._config(), indent=1) + "\n")

    def _config(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "schema": SCHEMA,
            "system": shape.system,
            "kind": shape.kind,
            "cameras": None if shape.cameras is None else shape.cameras.to_json(),
            "mesh": {"name": shape.mesh_name, "signature": shape.signature.to_json(), "painted": shape.textured},
            "view_size": self.view_size,
            "keypoints": {
                "points_body": np.round(shape.points_body, 9).tolist(),
                "permutation": shape.permutation.tolist(),
                "front": shape.front,
            },
            "symmetry": {
                "rotations": np.round(shape.rotations, 12).tolist(),
                "center": np.round(shape.center, 9).tolist(),
            },
            "networks": self.sizes,
            "calibration": self.calibration,
        }

    @staticmethod
    def load(folder: str | Path, device: str = "cpu") -> Model:
        """Read a model folder. Raises InputError for missing or broken files, another schema or wrong shapes."""
        folder = Path(folder)
        config = read_config(folder)
        try:
            shape, sizes = _shape_of(config), config["networks"]
            fine = KeypointNetwork(len(shape.points_body), **sizes["fine"], front=shape.front is not None)
            coarse = LocatorNetwork(**sizes["coarse"]) if shape.kind == "rigid" else None
            view_size, calibration = int(config["view_size"]), config.get("calibration")
            Calibration.from_dict(calibration)
            if view_size <= 0 or view_size % 2 ** (int(sizes["fine"].get("depth", 3)) + 1):
                raise ValueError(f"views of {view_size} px do not fit the network")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RuntimeError) as error:
            why = " ".join(str(error).split())[:120]
            raise InputError(f"'{folder / _CONFIG}' is incomplete ({why})", f"schema {SCHEMA}", _RETRAIN) from error
        _fill(fine, folder / _FINE, device)
        if coarse is not None:
            _fill(coarse, folder / _COARSE, device)
        return Model(shape, fine, coarse, view_size, sizes, calibration, folder)


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json of a model folder. Raises InputError for a folder without a valid one."""
    path = folder / _CONFIG
    if not path.is_file():
        raise InputError(
            f"'{folder}' is not a model", f"a folder with {_CONFIG}", "give a folder made by `vid2phys train-risp`"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not JSON", f"schema {SCHEMA}", _RETRAIN) from error
    found = config.get("schema") if isinstance(config, dict) else None
    if found != SCHEMA:
        raise InputError(f"'{path}' has schema {found}", SCHEMA, _RETRAIN)
    return dict(config)


def _shape_of(config: dict[str, Any]) -> Shape:
    """Return the shape that a config describes. Raises KeyError, TypeError, ValueError."""
    keypoints = config["keypoints"]
    shape = Shape(
        str(config["system"]),
        GeometrySignature.from_json(config["mesh"]["signature"]),
        np.array(keypoints["points_body"], dtype=float),
        np.array(config["symmetry"]["rotations"], dtype=float),
        np.array(keypoints["permutation"], dtype=np.int64),
        None if keypoints["front"] is None else int(keypoints["front"]),
        str(config["mesh"]["name"]),
        np.array(config["symmetry"].get("center", [0.0, 0.0, 0.0]), dtype=float),
        str(config.get("kind", "rigid")),
        bool(config["mesh"].get("painted", False)),
        None if config.get("cameras") is None else CameraRange.from_json(config["cameras"]),
    )
    count, order = len(shape.points_body), len(shape.rotations)
    if shape.points_body.shape != (count, 3) or shape.rotations.shape != (order, 3, 3):
        raise ValueError("points_body or rotations have a wrong shape")
    known = shape.permutation.shape == (order, count) and (np.sort(shape.permutation) == np.arange(count)).all()
    if not known or not (shape.front is None or 0 <= shape.front < count) or shape.center.shape != (3,):
        raise ValueError("permutation, front or center do not fit the keypoints")
    return shape


def _fill(network: nn.Module, path: Path, device: str) -> None:
    """Load weights into a network. Raises InputError."""
    if not path.is_file():
        raise InputError(f"'{path}' does not exist", "the model's weights", _RETRAIN)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"'{path}' is not a safetensors file", "the model's weights", _RETRAIN) from error
    expected = network.state_dict()
    for name, value in expected.items():
        if name not in tensors or tensors[name].shape != value.shape:
            got = "missing" if name not in tensors else f"of shape {list(tensors[name].shape)}"
            raise InputError(f"'{name}' in '{path}' is {got}", f"shape {list(value.shape)}", _RETRAIN)
    network.load_state_dict({name: tensors[name].float() for name in expected})
    network.to(device=device, memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    for parameter in network.parameters():
        parameter.requires_grad_(False)


def excess_covariance(moment: Tensor, mass: Tensor) -> Tensor:
    """Return the spread of heat maps [..., 2, 2] px^2 beyond the target's, divided by the window's probability."""
    offsets = torch.arange(-heatmaps.WINDOW_CELLS, heatmaps.WINDOW_CELLS + 1, dtype=moment.dtype)
    weights = torch.softmax(-0.5 * (offsets / heatmaps.TARGET_SIGMA_CELLS) ** 2, 0)
    own = float((weights * offsets.square()).sum()) * STRIDE**2
    values, vectors = torch.linalg.eigh(moment - own * torch.eye(2, dtype=moment.dtype))
    values = values.clamp(min=_LEAST_VARIANCE_PX2) / mass.clamp(min=0.05)[..., None]
    return vectors @ torch.diag_embed(values) @ vectors.transpose(-1, -2)


def _empty_prediction(keypoints: int, cells: int) -> KeypointPrediction:
    return KeypointPrediction(
        np.zeros((0, keypoints, 2)),
        np.zeros((0, keypoints, 2, 2)),
        np.zeros((0, keypoints)),
        np.zeros((0, cells, cells)),
    )
