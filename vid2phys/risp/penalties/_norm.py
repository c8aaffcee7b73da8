"""Derivatives by psi and their norm."""

from __future__ import annotations

import torch
from torch import Tensor

_SMOOTH = 1e-8


def along_psi(slope: Tensor, tangents: Tensor) -> Tensor:
    """Return d / dI . dI / dpsi for each psi: [B, V, V, 3] and [B, P, V, V, 3] -> [B, P]."""
    return torch.einsum("bhwc,bphwc->bp", slope, tangents)


def smooth_root(squares: Tensor) -> Tensor:
    """Return the square root, with a finite derivative at zero."""
    return (squares + _SMOOTH).sqrt()
