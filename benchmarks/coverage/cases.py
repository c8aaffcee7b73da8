"""What the kinds of motions share: a case with its estimates, and boxes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

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

    def to_json(self) -> dict[str, Any]:
        """Return what `of_json` takes."""
        return {"status": self.status.key, "truth": self.truth, "found": [asdict(each) for each in self.found.values()]}

    @staticmethod
    def of_json(kept: dict[str, Any]) -> Case:
        """Return the case that `to_json` gave."""
        estimates = [Estimate(**(each | {"ci95": tuple(each["ci95"])})) for each in kept["found"]]
        return Case(kept["truth"], {each.name: each for each in estimates}, Status[kept["status"].upper()])


def box(sides_m: Array) -> Mesh:
    """Return a box with sides [3] m about the origin."""
    return of_one_part(trimesh.creation.box(sides_m))


def of_one_part(body: trimesh.Trimesh) -> Mesh:
    """Return a mesh of one part."""
    faces = np.asarray(body.faces, np.int64)
    return Mesh(np.asarray(body.vertices, float), faces, np.zeros(len(faces), np.int64))
