"""Pendulums as flat images: each mass is a bright disc, blurred at its edge, that swings before black."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from vid2phys.engine.rollout import rollout, simulate
from vid2phys.engine.systems.double_pendulum import DoublePendulum
from vid2phys.engine.systems.pendulum import Pendulum
from vid2phys.types import Array, Parameters


def discs(centres_px: Tensor, radius_px: float, size_px: int, edge_px: float) -> Tensor:
    """Light [..., H, W] of discs at [..., D, 2] (column, row) in a square image, 0 to 1; differentiable.

    The edge is a step under a Gaussian of standard deviation `edge_px`; where discs lie on each other light does not
    add up. A disc outside of the image gives it nothing.
    """
    places = torch.arange(size_px, dtype=centres_px.dtype)
    across = places - centres_px[..., 0, None]
    down = places - centres_px[..., 1, None]
    distance = (across[..., None, :].square() + down[..., :, None].square() + 1e-12).sqrt()
    covered = torch.special.ndtr((radius_px - distance) / edge_px)
    return 1.0 - (1.0 - covered).prod(dim=-3)


@dataclass(frozen=True)
class Swing:
    """A pendulum, or a double one, filmed from the front, and what of it is unknown.

    parameters: with those free that are sought. moving: the tangents of the first state that are sought, too; `start`
    [N] has the others. An unknown is a parameter in solver coordinates, or an angle [rad] or rate [rad/s].
    """

    system: Pendulum | DoublePendulum
    parameters: Parameters
    start: Array
    moving: tuple[int, ...]
    frames: int
    frame_s: float
    span_m: float  # of the image, the pivot in its middle
    size_px: int = 40
    substeps: int = 10

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the unknowns."""
        return *self.parameters.free_names, *(self.system.state_names[i] for i in self.moving)

    @cached_property
    def _log(self) -> Array:
        return np.array([p.transform == "log" for p in self.parameters if p.free])

    def unknowns(self) -> Array:
        """Return the unknowns at their truth, [U]."""
        return np.concatenate([self.parameters.free_vector(), self.start[list(self.moving)]])

    def values(self, unknowns: Array) -> Array:
        """Return the values in SI, [U]."""
        count = len(self._log)
        logs = np.concatenate([self._log, np.zeros(len(unknowns) - count, dtype=bool)])
        return np.where(logs, np.exp(np.where(logs, unknowns, 0.0)), unknowns)

    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper ones of the unknowns."""
        rest = np.full(len(self.moving), np.inf)
        low, high = self.parameters.free_bounds
        return np.array([*low, *-rest]), np.array([*high, *rest])

    def parts(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first states [B, N] and parameters [B, P] in SI of unknowns [B, U]; differentiable."""
        count, batch = len(self._log), len(unknowns)
        sought = torch.where(torch.from_numpy(self._log), unknowns[:, :count].exp(), unknowns[:, :count])
        columns = torch.tensor(self.parameters.free_indices)
        vector = torch.from_numpy(self.parameters.vector).repeat(batch, 1).index_copy(1, columns, sought)
        state = torch.from_numpy(self.start).repeat(batch, 1)
        return state.index_copy(1, torch.tensor(self.moving, dtype=torch.long), unknowns[:, count:]), vector

    def states(self, unknowns: Tensor) -> Tensor:
        """Return the states of all frames, [B, F, N]; differentiable. Raises as `rollout`."""
        initial, parameters = self.parts(unknowns)
        controls = torch.zeros((len(unknowns), self.frames - 1, len(self.system.control_names)), dtype=torch.float64)
        if unknowns.requires_grad:
            return rollout(self.system, initial, controls, parameters, self.frame_s, substeps=self.substeps)
        start, calm, values = (each.numpy() for each in (initial, controls, parameters))
        return torch.from_numpy(simulate(self.system, start, calm, values, self.frame_s, substeps=self.substeps))

    def centres_m(self, states: Tensor, parameters: Tensor) -> Tensor:
        """Return where the masses are in the x-z plane, [B, F, D, 2], of states [B, F, N] and parameters [B, P]."""
        rods = ("length",) if isinstance(self.system, Pendulum) else ("length_1", "length_2")
        names = list(self.parameters.names)
        place, places = torch.zeros((*states.shape[:2], 2), dtype=states.dtype), []
        for i, rod in enumerate(rods):
            length, angle = parameters[:, names.index(rod), None], states[..., i]
            place = place - torch.stack([length * angle.sin(), length * angle.cos()], dim=-1)
            places.append(place)
        return torch.stack(places, dim=-2)

    def centres(self, unknowns: Tensor) -> Tensor:
        """Return `centres_m`, flattened to [B, F, 2 D]."""
        return self.centres_m(self.states(unknowns), self.parts(unknowns)[1]).flatten(-2)

    def drawn(self, centres_m: Tensor) -> Tensor:
        """Return the images [..., H, W] of centres [..., 2 D] m."""
        per_metre = self.size_px / self.span_m
        places = centres_m.unflatten(-1, (-1, 2)) * torch.tensor([per_metre, -per_metre], dtype=centres_m.dtype)
        return discs(places + 0.5 * (self.size_px - 1), 0.08 * self.size_px, self.size_px, 0.04 * self.size_px)

    def shortened(self, frames: int) -> Swing:
        """Return the motion's first frames."""
        return replace(self, frames=frames)
