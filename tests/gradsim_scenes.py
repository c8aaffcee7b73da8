"""Small filmed motions with something unknown, for gradSim's Table 6: what can be found of which system from images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from experiments.gradsim.filmed import Filmed, Inputs, by_pixels
from experiments.gradsim.pixels import Shot
from vid2phys.types import Array, Parameter, Parameters


@dataclass(frozen=True)
class Unknown:
    """Numbers of the initial state, of the controls of all intervals, or of the parameters. off: how far from the truth
    the start is; of parameters that have a logarithm, the share. alike: one number for all of them."""

    kind: str
    where: tuple[int, ...]
    off: float | Array
    alike: bool = False


def film(shot: Shot, initial: Array, controls: Array, parameters: Parameters, unknown: Unknown) -> Filmed:
    """The motion, of which nothing but `unknown` is not known."""
    given = [torch.from_numpy(np.array(each, dtype=float)) for each in (initial, controls, parameters.vector)]
    place, columns = ("state", "control", "parameter").index(unknown.kind), torch.tensor(unknown.where)
    source = given[place][0] if unknown.kind == "control" else given[place]
    truth = source[columns].numpy().copy()
    own = unknown.kind == "parameter" and parameters.items[unknown.where[0]].transform == "log"
    start = truth * (1.0 + np.asarray(unknown.off)) if own else truth + unknown.off
    if unknown.alike:
        truth, start = truth[:1], start[:1]
    sought = tuple(
        Parameter(f"u{i}", "1", float(value), *((1e-9, 1e9, "log") if own else (-1e6, 1e6)), free=True)  # type: ignore[arg-type]
        for i, value in enumerate(start)
    )

    def inputs(values: torch.Tensor) -> Inputs:
        put = list(given)
        values = values.expand(len(columns)) if unknown.alike else values
        if unknown.kind == "control":
            put[place] = given[place].index_put(
                (torch.arange(len(controls))[:, None], columns[None]), values.expand(len(controls), -1)
            )
        else:
            put[place] = given[place].index_put((columns,), values)
        return put[0], put[1], put[2]

    return Filmed(shot, Parameters(sought), truth, inputs)


def found(filmed: Filmed, iterations: int = 20) -> Array:
    """What a quasi-Newton descent of the pixels' error comes to, [U] in SI; its first step is of the error's size."""
    rate = 0.3 * float(np.abs(filmed.start - filmed.true_free).max())
    descended = by_pixels(filmed, rate=rate, iterations=iterations, optimizer="lbfgs")
    assert descended.failure is None
    assert descended.loss < 1e-3 * descended.losses[0]
    return filmed.values(torch.from_numpy(descended.values)).numpy()
