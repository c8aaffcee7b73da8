"""A trained model of the state head: a folder with state.json and one safetensors file.

It predicts poses or configurations in single images, for the papers' tables. Loading executes nothing from the folder.

Limits: it has no covariance, no front and no locator. Clips are tracked with keypoints (`model.Model`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from vid2phys.errors import InputError
from vid2phys.io.files import write_bytes, write_text
from vid2phys.risp.networks.state_network import StateNetwork, predict_numbers
from vid2phys.risp.shape.configuration_encoding import ConfigurationEncoding
from vid2phys.risp.shape.pose_encoding import PoseEncoding
from vid2phys.types import Array

SCHEMA = "vid2phys.state-model/1"
_CONFIG, _WEIGHTS, _SCORE = "state.json", "state.safetensors", "score.json"
_RETRAIN = "train it again with `vid2phys train-risp --head state`"


@dataclass(frozen=True)
class StateModel:
    """A network with the meaning of its numbers.

    Attributes:
        system: Name of the system.
        codes: Encoding of a rigid body's pose, or of a configuration.
        width: Channels of the first stage.
        network: The network.
        view_size: Width and height V of an image, px.
    """

    system: str
    codes: PoseEncoding | ConfigurationEncoding
    width: int
    network: nn.Module
    view_size: int

    def predict_poses(self, images: NDArray[np.uint8], K: Array) -> Array:
        """Predict poses view_from_body [B, 4, 4] m in images [B, V, V, 3] of cameras [B, 3, 3] px."""
        assert isinstance(self.codes, PoseEncoding)
        numbers = predict_numbers(self.network, images)
        return self.codes.decode(numbers, torch.from_numpy(np.asarray(K, dtype=np.float64))).numpy()

    def predict_configurations(self, images: NDArray[np.uint8]) -> Array:
        """Predict the paper's vectors [B, S] (`configuration_encoding`) in images [B, V, V, 3]."""
        assert isinstance(self.codes, ConfigurationEncoding)
        return self.codes.decode(predict_numbers(self.network, images).numpy())

    def save(self, folder: Path, score: dict[str, Any]) -> None:
        """Write the folder, each file atomically, and state.json last, since it makes the folder a model."""
        tensors = {k: v.detach().cpu().contiguous() for k, v in self.network.state_dict().items()}
        write_bytes(folder / _WEIGHTS, save(tensors))
        write_text(folder / _SCORE, json.dumps(score, indent=1) + "\n")
        config = {
            "schema": SCHEMA,
            "system": self.system,
            "view_size": self.view_size,
            **(
                {"radius_m": self.codes.radius_m}
                if isinstance(self.codes, PoseEncoding)
                else {"configuration": self.codes.to_json()}
            ),
            "width": self.width,
        }
        write_text(folder / _CONFIG, json.dumps(config, indent=1) + "\n")

    @staticmethod
    def load(folder: str | Path) -> StateModel:
        """Read a folder. Raises InputError for missing or broken files, or another schema."""
        folder = Path(folder)
        try:
            config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
            if config["schema"] != SCHEMA:
                raise ValueError(f"schema {config['schema']}")
            size = int(config["view_size"])
            codes: PoseEncoding | ConfigurationEncoding
            numbers = config.get("configuration", config.get("posture"))  # the key of version 0.1
            if numbers is not None:
                codes = ConfigurationEncoding.from_json(numbers)
            else:
                codes = PoseEncoding(float(config["radius_m"]), size)
            outputs = codes.size if isinstance(codes, ConfigurationEncoding) else PoseEncoding.SIZE
            network = StateNetwork(outputs, width=int(config["width"]))
            network.load_state_dict(load_file(folder / _WEIGHTS))
            return StateModel(str(config["system"]), codes, int(config["width"]), network.eval(), size)
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RuntimeError, SafetensorError) as error:
            got = f"'{folder}' holds no model of the state head ({' '.join(str(error).split())[:120]})"
            raise InputError(got, f"{_CONFIG} of schema {SCHEMA} and {_WEIGHTS}", _RETRAIN) from error
