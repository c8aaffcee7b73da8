"""A clamped soft body in `identify`: reading it, where its fit begins, and the check by its full mesh.

Method: the mesh is refined until its lowest frequency does not change, since E at a given one goes with its square.
The body is reduced to a few modes (`engine.movable.clamped`) and tracked by its silhouette as robots are. The fit
begins from free vibration (`solvers.vibration_start`), and the simulation of the full mesh corrects it
(`solvers.full_model`).

Limits: nothing but gravity drives the body, and its clamps are static.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.errors import UsageError
from vid2phys.notes import warning

if TYPE_CHECKING:
    from vid2phys.commands.progress import Progress
    from vid2phys.engine.movable.clamped import ClampedBody
    from vid2phys.engine.systems._reduced import MeshError, ReducedBody
    from vid2phys.engine.systems.soft_body import SoftBody
    from vid2phys.solvers.configuration_shooting import ConfigurationSolution
    from vid2phys.solvers.problem import Problem
    from vid2phys.tracking.articulated.tracker import ConfigurationTrack
    from vid2phys.types import Array

_STABLE, _HALVED = 0.01, 2.0  # change of E by a finer mesh, and how much smaller the next one is
_SECOND_ORDER = 3.0  # last change of a second-order error over what is left of it
_MOST_VERTICES, _MOST_ROLLED = 12_000, 800  # of a mesh whose modes are found, and of one that is simulated
_LEAST_DAMPING = 0.003  # where a fit of damping begins, as a share of the critical one
_FASTEST = 200.0  # 1/s, of first rates over the limits of amplitudes
_SWINGS = 0.25  # of the cost that a vibration leaves of that of a body at rest, at most


def read_soft_body(
    config: IdentifyConfig, given: dict[str, float], fit: tuple[str, ...]
) -> tuple[ReducedBody, list[str]]:
    """Return the body by its modes, and notes for the reader.

    Raises UsageError for options that a clamped body does not take, InputError for a mesh or clamps that do not serve.
    """
    from vid2phys.commands.clamps import clamped
    from vid2phys.commands.fit_parameters import check_given, listen
    from vid2phys.engine import systems
    from vid2phys.engine.movable.clamped import reduced_body
    from vid2phys.engine.systems.soft_body import SoftBody
    from vid2phys.io.move import parse_move

    assert config.body is not None
    _check(config)
    whole, notes = listen(lambda: systems.from_file(config.system, Path(str(config.body)), config.mesh_units))
    body = clamped(whole, config.clamp, config.load)
    assert isinstance(body, SoftBody)
    if config.base is not None:
        body = body.placed(*parse_move(config.base, "--base"))
    check_given(body.parameters(), given, fit)
    if "poisson_ratio" in fit:
        raise UsageError(f"--fit poisson_ratio: {body.ambiguity(body.parameters().names)}", "a given value",
                         "give --set poisson_ratio=..., such as 0.45 for rubber")  # fmt: skip
    if "density" not in (*given, *fit):
        value = body.parameters()["density"].value
        text = f"no density is given: {value:g} kg/m^3 is taken, and E and damping go with it; give --set density=..."
        notes = [*notes, warning(text)]
    parameters = body.parameters().with_values(given).vector
    finer, mesh, note = mesh_to_fit(body, parameters)
    return reduced_body(finer, parameters, mesh), [*notes, note]


def _check(config: IdentifyConfig) -> None:
    """Raise UsageError for what is missing, and for options that a clamped body does not take."""
    if not config.clamp:
        got = f"--system {config.system} without --clamp"
        raise UsageError(got, "what holds the body", "give --clamp 'x<0.005': an axis, < or >, metres of the mesh")
    if config.actions is not None:
        raise UsageError(
            f"--actions for --system {config.system}", "no actions: gravity drives the body", "leave them out"
        )
    if config.model is not None and config.model != Path("none"):
        raise UsageError(f"--model {config.model} for --system {config.system}", "no model", "leave --model out")


def mesh_to_fit(body: SoftBody, parameters: Array) -> tuple[SoftBody, MeshError, str]:
    """Return the body on the mesh that is simulated, its errors, and a note on them.

    Meshes are refined until E, which at a given frequency goes with one over its square for 1 Pa, moves by less than
    1 %. The next mesh moves it by half as much at most, where clamps make stresses singular. The viscosity's error
    falls to a quarter with each mesh, so that a third of its last change is left (Richardson's extrapolation).
    Simulated is the coarsest mesh whose E is within 1 % of that of the finest, as far as it has few enough nodes.
    """
    from vid2phys.engine.systems._reduced import EXACT, MeshError
    from vid2phys.engine.vibration import vibration

    meshes, found, change = [body], [vibration(body, parameters, 1)], np.inf
    while abs(change) > _STABLE:
        finer = meshes[-1].refined()
        if len(finer.rest_m) > _MOST_VERTICES:
            break
        meshes.append(finer)
        found.append(vibration(finer, parameters, 1))
        change = float(found[-2].squares[0] / found[-1].squares[0] - 1.0) / _HALVED
    if len(found) == 1:
        note = warning("the mesh is too fine to be refined: what E owes to it is not known")
        return body, EXACT, note
    moved = [float(each.squares[0] / found[-1].squares[0]) - 1.0 for each in found]
    counts, used = [len(mesh.rest_m) for mesh in meshes], 0
    while abs(moved[used]) > _STABLE and counts[used + 1] <= _MOST_ROLLED:
        used += 1
    stiffness = float(found[-1].squares[0] / found[used].squares[0])
    decay = float(found[-1].decays[0] + (found[-1].decays[0] - found[-2].decays[0]) / _SECOND_ORDER)
    mesh = MeshError(stiffness, decay / float(found[used].decays[0]), abs(change))
    text = f"E is {moved[0]:+.1%} from what the mesh of {counts[0]} nodes gives, by one of {counts[-1]} nodes"
    text = f"{text}; finer ones may move it by {abs(change):.1%}, which the intervals hold"
    return meshes[used], mesh, text if abs(change) <= _STABLE else warning(text)


def begin(problem: Problem, body: ClampedBody, tracked: ConfigurationTrack) -> tuple[Problem, Array, list[str]]:
    """Return the problem with E and damping of the nearest free vibration, amplitudes and rates at the first frame
    [2 D], and notes."""
    from vid2phys.solvers.vibration_start import Known, vibration_start

    found, parameters = body.system.vibration, problem.parameters
    known = {name: None if parameters[name].free else parameters[name].value for name in ("young_modulus", "damping")}
    variances = np.einsum("tii->ti", tracked.covariance)
    start = vibration_start(
        problem.observation.times_s, tracked.configurations, variances, found, parameters["gravity"].value,
        Known(**known),
    )  # fmt: skip
    critical = float(np.sqrt(start.young_modulus * found.squares[0]) / found.decays[0])
    values = {"young_modulus": start.young_modulus, "damping": max(start.damping, _LEAST_DAMPING * critical)}
    values = {
        name: float(np.clip(value, parameters[name].lower, parameters[name].upper))
        for name, value in values.items()
        if parameters[name].free
    }
    notes = list[str]()
    if start.cost > _SWINGS * start.still:
        notes.append(
            warning("the body hardly swings: E follows from its sag alone, and damping is not determined; let it go")
        )
    state = np.clip(start.state, *(np.concatenate([each, _FASTEST * each]) for each in body.limits))
    return replace(problem, parameters=parameters.with_values(values)), state, notes


def checked(
    problems: Sequence[Problem], body: ClampedBody, solutions: list[ConfigurationSolution], progress: Progress
) -> tuple[list[ConfigurationSolution], list[str]]:
    """Return the fits as the full mesh has them, and notes."""
    from vid2phys.solvers.full_model import corrected

    found = corrected(problems, body, solutions, lambda number: progress(f"simulating the full mesh, round {number}"))
    errors = model_errors(found.moved, body.system.mesh.std, is_corrected=not found.notes)
    found = replace(found, solutions=[_with_model_errors(one, errors) for one in found.solutions])
    if found.notes:
        return found.solutions, list(found.notes)
    moved = ", ".join(f"{name} by {share:+.1%}" for name, share in found.moved.items())
    return found.solutions, [f"the full mesh of {len(body.system.full.rest_m)} nodes moved {moved or 'nothing'}"]


def model_errors(moved: Mapping[str, float], of_mesh: float, *, is_corrected: bool) -> dict[str, float]:
    """Return the standard deviations of the models' errors of fitted parameters, as shares.

    Finer meshes may change each value by `of_mesh`. The full mesh moved each value by `moved`, which counts as a
    standard deviation, too. It does not count for E where the full mesh corrected the fit: then the full mesh has the
    frequency that was measured.
    """
    kept = {name: 0.0 if is_corrected and name == "young_modulus" else share for name, share in moved.items()}
    return {name: float(np.hypot(share, of_mesh)) for name, share in kept.items()}


def _with_model_errors(found: ConfigurationSolution, errors: dict[str, float]) -> ConfigurationSolution:
    """Return a fit whose E and damping, as logarithms, may be off by `errors` beside what the clip leaves open."""
    from vid2phys.solvers.interval_parts import MODEL_ERROR

    names = found.parameters.free_names
    more = np.array([errors.get(name, 0.0) ** 2 if name in ("young_modulus", "damping") else 0.0 for name in names])
    parts = found.theta_parts | {MODEL_ERROR: more}
    return replace(found, theta_covariance=found.theta_covariance + np.diag(more), theta_parts=parts)
