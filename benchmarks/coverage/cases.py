"""What the kinds of motions share: a case with its estimates, and boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import trimesh

from vid2phys.types import Array, Estimate, Mesh, Result, Status


@dataclass(frozen=True)
class Case:
    """A fit of one random motion.

    Attributes:
        truth: true values by name of the parameter.
        found: estimates by name, with 95 % intervals; empty where the fit failed.
        status: of the fit.
    """

    truth: dict[str, float]
    found: dict[str, Estimate]
    status: Status

    @property
    def converged(self) -> bool:
        """Return whether the fit has estimates; a doubtful one has."""
        return self.status in (Status.CONVERGED, Status.DOUBTFUL)

    @staticmethod
    def of(result: Result, truth: dict[str, float]) -> Case:
        """Return the case of a result of `identify`; a fit that did not converge has no estimates."""
        found = {each.name: each for each in result.parameters if each.name in truth}
        case = Case(truth, found, result.status)
        return case if case.converged else replace(case, found={})


def box(sides_m: Array) -> Mesh:
    """Return a box with sides [3] m about the origin."""
    body = trimesh.creation.box(sides_m)
    faces = np.asarray(body.faces, np.int64)
    return Mesh(np.asarray(body.vertices, float), faces, np.zeros(len(faces), np.int64))
