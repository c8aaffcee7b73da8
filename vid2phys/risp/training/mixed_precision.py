"""Mixed precision: bfloat16 where the device multiplies it faster, float32 everywhere else.

On CPUs without instructions for it bfloat16 is emulated: two to three times slower (measured with AVX-512, both with
and without the second derivative). The penalties of rendering gradients stay in float32, whatever the device: second
derivatives lose too many digits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def is_faster(device: str) -> bool:
    """Whether bfloat16 is faster on a device of this type: on GPUs since Ampere, which multiply it in hardware."""
    return device == "cuda" and torch.cuda.get_device_capability()[0] >= 8


def run(network: nn.Module, images: Tensor) -> Tensor:
    """The network's output in float32, of images from `to_input`; inside, products are bfloat16 where that helps."""
    device = images.device.type
    with torch.autocast(device, torch.bfloat16, enabled=is_faster(device)):
        output: Tensor = network(images)
    return output.float()
