"""Checkpoints of a training: tensors as safetensors with numbers as JSON in their metadata, written atomically.

Limits: one file per training; an earlier epoch cannot be restored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from vid2phys.io.files import write_bytes


def save_checkpoint(
    path: Path, network: nn.Module, average: dict[str, Tensor], optimizer: torch.optim.Optimizer, notes: dict[str, Any]
) -> None:
    """Write weights, their running average, the optimiser's moments and `notes` (plain JSON) to one file."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"average.{name}": value for name, value in average.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    kept = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
    write_bytes(path, save(kept, {"notes": json.dumps(notes)}))


def read_notes(path: Path) -> dict[str, Any] | None:
    """Return the notes of a checkpoint, or None for a missing or broken one."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            return dict(json.loads(file.metadata()["notes"]))
    except (SafetensorError, KeyError, ValueError, TypeError):
        return None


def load_checkpoint(
    path: Path, network: nn.Module, average: dict[str, Tensor], optimizer: torch.optim.Optimizer
) -> None:
    """Load a checkpoint into a network, its average and its optimiser."""
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    network.load_state_dict({k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")})
    for name, value in average.items():
        value.copy_(tensors[f"average.{name}"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, entry = name.split(".", 2)
            state.setdefault(int(index), {})[entry] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
