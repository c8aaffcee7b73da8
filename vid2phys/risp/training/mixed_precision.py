"""Mixed precision (Micikevicius et al., ICLR 2018): bfloat16 where the device multiplies it faster, else float32.

CPUs without bfloat16 instructions emulate them two to three times slower (measured with AVX-512).

Limits: the penalties of rendering gradients stay in float32, since their second derivatives lose too many digits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def is_faster(device: str) -> bool:
    """Return whether bfloat16 is faster on a device of this type, as on GPUs since Ampere."""
    return device == "cuda" and torch.cuda.get_device_capability()[0] >= 8


def run(network: nn.Module, images: Tensor) -> Tensor:
    """Return a network's output for images from `to_input` in float32; products are bfloat16 where that is faster."""
    device = images.device.type
    with torch.autocast(device, torch.bfloat16, enabled=is_faster(device)):
        output: Tensor = network(images)
    return output.float()
