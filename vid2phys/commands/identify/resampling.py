"""`--intervals bootstrap`: intervals of clips that are measured again, beside the analytic ones.

Measurements are drawn from the error model about the fitted motion (`solvers.bootstrap`), and fitted again from there.

Limits: one clip of a rigid body with smoothing, or clips of a body on a known base. Of a soft body, the full mesh is
not simulated again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.progress import Progress

if TYPE_CHECKING:
    from vid2phys.engine.movable.body import ArticulatedBody
    from vid2phys.solvers.bootstrap import Resampled
    from vid2phys.solvers.configuration_shooting import ConfigurationSolution
    from vid2phys.solvers.problem import Problem
    from vid2phys.solvers.smoothing import Smoothed
    from vid2phys.solvers.solution import Solution
    from vid2phys.types import Array, Parameters, Result


def resample_flight(
    problem: Problem, fitted: Smoothed, solution: Solution, options: FitOptions, progress: Progress
) -> Resampled:
    """Return fits to a rigid body's clip that is measured again."""
    from vid2phys.solvers import smoothing
    from vid2phys.solvers.bootstrap import resample

    problem = replace(problem, parameters=solution.parameters)
    unknowns = len(problem.parameters.free_names)

    def refit(drawn: list[Problem]) -> Array:
        start = smoothing.Start(drawn[0], solution.knot_states, solution.knot_inputs, fitted.hyperparameters)
        return smoothing.fit_clips([start])[0].point.theta[:unknowns]

    scales = solution.extra["point_scale"], solution.extra["shared_scale"]
    return resample(
        *([problem], [solution.states], refit, options.resamples),
        scales=scales, seed=options.seed, progress=_counted(options, progress),
    )  # fmt: skip


def resample_configurations(
    problems: Sequence[Problem],
    body: ArticulatedBody,
    solutions: Sequence[ConfigurationSolution],
    options: FitOptions,
    progress: Progress,
) -> Resampled:
    """Return fits to clips of a body on a known base that are measured again."""
    from vid2phys.solvers import configuration_shooting
    from vid2phys.solvers.bootstrap import resample

    fitted = [replace(p, parameters=s.parameters, body=body) for p, s in zip(problems, solutions, strict=True)]
    starts = [solution.start for solution in solutions]

    def refit(drawn: list[Problem]) -> Array:
        found = configuration_shooting.solve_clips(drawn, body, starts, shares=configuration_shooting.SHARES[-1:])
        return found[0].parameters.free_vector()

    widened = max(max(1.0, solution.misfit) for solution in solutions)
    return resample(
        *(fitted, [solution.states for solution in solutions], refit, options.resamples),
        scales=(widened, widened), seed=options.seed, progress=_counted(options, progress),
    )  # fmt: skip


def with_resampled(result: Result, parameters: Parameters, resampled: Resampled, parts: Mapping[str, Array]) -> Result:
    """Return the result with bootstrap intervals beside its own, and how many fits they come from.

    parameters: as fitted. parts: analytic variances of the free ones (`solvers.interval_parts`).
    """
    widths = dict(zip(parameters.free_names, resampled.half_widths(parts), strict=True))
    found = tuple(
        replace(each, bootstrap=parameters[each.name].interval(float(widths[each.name])))
        if each.name in widths
        else each
        for each in result.parameters
    )
    counts = {"bootstrap_resamples": len(resampled.values), "bootstrap_failed": resampled.failed}
    return replace(result, parameters=found, diagnostics=result.diagnostics | counts)


def _counted(options: FitOptions, progress: Progress) -> Callable[[int], None]:
    return lambda done: progress("fitting measurements drawn again", done, options.resamples)
