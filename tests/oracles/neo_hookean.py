"""Stable neo-Hookean tets in plain vectorised PyTorch: the oracle of `soft_body`, and a competitor in benchmarks.

Energy of Smith, de Goes and Kim, "Stable Neo-Hookean Flesh Simulation" (2018), eq. 14, its moduli from those of linear
elasticity (their section 3.4); viscosity in the rate of Green's strain.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tets:
    """vertices at rest [V, 3] m, tets [T, 4]; Young's modulus Pa, Poisson's ratio, viscosity Pa s, density kg/m^3."""

    rest: torch.Tensor
    tets: torch.Tensor
    young: torch.Tensor
    poisson: torch.Tensor
    damping: torch.Tensor
    density: torch.Tensor

    def __post_init__(self) -> None:
        edges = self._edges(self.rest)
        object.__setattr__(self, "inverse", torch.linalg.inv(edges))
        object.__setattr__(self, "volumes", torch.linalg.det(edges) / 6.0)

    def _edges(self, points: torch.Tensor) -> torch.Tensor:
        corners = points[self.tets]
        return (corners[:, 1:] - corners[:, :1]).transpose(1, 2)

    def moduli(self) -> tuple[torch.Tensor, torch.Tensor]:
        """mu, lambda of the energy."""
        mu = self.young / (2.0 * (1.0 + self.poisson))
        lam = self.young * self.poisson / ((1.0 + self.poisson) * (1.0 - 2.0 * self.poisson))
        return 4.0 / 3.0 * mu, lam + 5.0 / 6.0 * mu

    def masses(self) -> torch.Tensor:
        """[V] kg."""
        quarter = (self.density * self.volumes / 4.0)[:, None].expand(-1, 4).reshape(-1)
        return torch.zeros_like(self.rest[:, 0]).index_add(0, self.tets.reshape(-1), quarter)

    def energy(self, x: torch.Tensor, activation: float = 0.0) -> torch.Tensor:
        """Elastic energy [J] of positions [V, 3], as the paper writes it; 0 of a tet at rest is not subtracted."""
        mu, lam = self.moduli()
        f = self._edges(x) @ self.inverse
        first = (f**2).sum(dim=(1, 2))
        alpha = 1.0 + mu / lam - mu / (4.0 * lam)
        ratio = torch.linalg.det(f)
        density = 0.5 * mu * (first - 3.0 - torch.log(first + 1.0)) + 0.5 * lam * (ratio - alpha + activation) ** 2
        return (self.volumes * density).sum()

    def forces(self, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Elastic and viscous forces [V, 3] N, without autograd: what a vectorised program would compute."""
        mu, lam = self.moduli()
        f, rate = self._edges(x) @ self.inverse, self._edges(v) @ self.inverse
        a, b, c = f[:, 0], f[:, 1], f[:, 2]
        cofactor = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], dim=1)
        ratio = (a * cofactor[:, 0]).sum(dim=1)
        shear = mu * (1.0 - 1.0 / ((f**2).sum(dim=(1, 2)) + 1.0))
        pressure = lam * (ratio - 1.0) - 0.75 * mu
        stretch = f.transpose(1, 2) @ rate
        stress = shear[:, None, None] * f + pressure[:, None, None] * cofactor
        stress = stress + self.damping * f @ (stretch + stretch.transpose(1, 2))
        corners = -(self.volumes[:, None, None] * stress @ self.inverse.transpose(1, 2)).transpose(1, 2)
        corners = torch.cat([-corners.sum(dim=1, keepdim=True), corners], dim=1)
        return torch.zeros_like(x).index_add(0, self.tets.reshape(-1), corners.reshape(-1, 3))

    def step(
        self, x: torch.Tensor, v: torch.Tensor, masses: torch.Tensor, gravity: float, h: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One step of semi-implicit Euler."""
        fall = torch.tensor([0.0, 0.0, -gravity], dtype=x.dtype)
        v = v + h * (self.forces(x, v) / masses[:, None] + fall)
        return x + h * v, v
