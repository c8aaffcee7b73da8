"""Energy and dissipation of a sheet in PyTorch, slow and written another way than the kernels.

The membrane by the metric of each triangle (no frame in its plane), hinges found edge by edge in a loop, their angles
between the normals by the triangles' own winding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from vid2phys.types import Array


def _metric(x: torch.Tensor, triangles: Array) -> torch.Tensor:
    edges = torch.stack([x[triangles[:, i]] - x[triangles[:, 0]] for i in (1, 2)], dim=1)
    return edges @ edges.transpose(1, 2)


def _angles(x: torch.Tensor, sides: list[tuple[tuple[int, int, int], tuple[int, int, int], int, int]]) -> torch.Tensor:
    """Signed angle between normals, positive when the turn from the first to the second is along the edge."""
    angles = []
    for one, other, start, end in sides:
        n = [torch.linalg.cross(x[t[1]] - x[t[0]], x[t[2]] - x[t[0]]) for t in (one, other)]
        n = [m / m.norm() for m in n]
        edge = (x[end] - x[start]) / (x[end] - x[start]).norm()
        angles.append(torch.atan2(torch.dot(torch.linalg.cross(n[0], n[1]), edge), torch.dot(n[0], n[1])))
    return torch.stack(angles)


@dataclass(frozen=True)
class Sheet:
    """A sheet of consistently wound triangles and its constants, see `vid2phys.engine.systems.cloth`."""

    rest_m: Array
    triangles: Array
    shear: float
    area: float
    bending: float
    viscosity: float = 0.0
    bending_damping: float = 0.0

    def sides(self) -> dict[tuple[int, int], tuple[tuple[int, int, int], tuple[int, int, int], int, int]]:
        """Both triangles of every inner edge and the edge as the first goes round it, by the sorted edge."""
        found: dict[tuple[int, int], list[tuple[tuple[int, int, int], int, int]]] = {}
        for t in (tuple(int(i) for i in row) for row in self.triangles):
            for start, end in zip(t, (t[1], t[2], t[0]), strict=True):
                found.setdefault((min(start, end), max(start, end)), []).append((t, start, end))
        return {k: (v[0][0], v[1][0], *v[0][1:]) for k, v in found.items() if len(v) == 2}

    def energy(self, x: torch.Tensor, rest_angles: dict[tuple[int, int], float] | None = None) -> torch.Tensor:
        """Elastic energy [J] of positions [V, 3]; rest angles by the sorted edge, by default those of the mesh."""
        rest = torch.tensor(self.rest_m)
        g0, g = _metric(rest, self.triangles), _metric(x, self.triangles)
        area = 0.5 * torch.linalg.det(g0).sqrt()
        ratio = (torch.linalg.det(g) / torch.linalg.det(g0)).sqrt()
        trace = (torch.linalg.inv(g0) * g.transpose(1, 2)).sum(dim=(1, 2))
        membrane = area * (0.5 * self.shear * (trace - 2 * ratio) + 0.5 * self.area * (ratio - 1) ** 2)
        sides = self.sides()
        if rest_angles is None:
            at_rest = _angles(rest, list(sides.values()))
        else:
            at_rest = torch.tensor([rest_angles[k] for k in sides])
        change = _angles(x, list(sides.values())) - at_rest
        return membrane.sum() + (4 * self.bending * self._shape(rest) * (1 - torch.cos(change / 2))).sum()

    def dissipation(self, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Half the power lost to viscosity [W]; its gradient by the velocities is minus the viscous force."""
        rest = torch.tensor(self.rest_m)
        g0 = _metric(rest, self.triangles)
        _, rate = torch.func.jvp(lambda y: _metric(y, self.triangles), (x,), (v,))
        strain_rate = 0.5 * torch.linalg.inv(g0) @ rate  # mixed components: the trace of its square is a norm
        membrane = 0.25 * self.viscosity * torch.linalg.det(g0).sqrt()
        membrane = membrane * (strain_rate @ strain_rate).diagonal(dim1=1, dim2=2).sum(-1)
        sides = list(self.sides().values())
        _, turning = torch.func.jvp(lambda y: _angles(y, sides), (x,), (v,))
        return membrane.sum() + (0.5 * self.bending_damping * self._shape(rest) * turning**2).sum()

    def _shape(self, rest: torch.Tensor) -> torch.Tensor:
        """Edge squared by the area of both triangles."""
        area = {
            tuple(t): 0.5 * float(torch.linalg.det(m).sqrt())
            for t, m in zip(self.triangles.tolist(), _metric(rest, self.triangles), strict=True)
        }
        return torch.stack(
            [((rest[e] - rest[s]) ** 2).sum() / (area[one] + area[other]) for one, other, s, e in self.sides().values()]
        )


def forces(sheet: Sheet, positions: Array, velocities: Array, rest_angles: dict | None = None) -> Array:
    """Elastic and viscous forces [V, 3] N by automatic differentiation."""
    x, v = torch.tensor(positions, requires_grad=True), torch.tensor(velocities, requires_grad=True)
    elastic = torch.autograd.grad(sheet.energy(x, rest_angles), x)[0]
    viscous = torch.autograd.grad(sheet.dissipation(x.detach(), v), v)[0]
    return np.asarray(-(elastic + viscous))


def stiffness(sheet: Sheet) -> Array:
    """Hessian of the energy at rest [3 V, 3 V] N/m."""
    size = sheet.rest_m.size
    hessian = torch.func.hessian(lambda x: sheet.energy(x.reshape(-1, 3)))(torch.tensor(sheet.rest_m).ravel())
    return np.asarray(hessian).reshape(size, size)


def damping(sheet: Sheet) -> Array:
    """Hessian of the dissipation by the velocities at rest [3 V, 3 V] N s/m."""
    x, size = torch.tensor(sheet.rest_m), sheet.rest_m.size
    hessian = torch.func.hessian(lambda v: sheet.dissipation(x, v.reshape(-1, 3)))(torch.zeros(size, dtype=x.dtype))
    return np.asarray(hessian).reshape(size, size)
