"""What a user holds of parameters that are to be fitted: priors and bounds, checked and put where the solvers look."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from vid2phys.engine import systems
from vid2phys.errors import UsageError
from vid2phys.types import Parameter, Parameters


@dataclass(frozen=True)
class Priors:
    """In SI, by name. priors: mean and one standard deviation of a normal distribution. bounds: lower and upper end.

    A prior is mapped to solver coordinates to first order: of a parameter that is fitted as its logarithm, its
    standard deviation over its mean is that of the logarithm.
    """

    priors: dict[str, tuple[float, float]] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, float]:
        """Of the priors: where a fit begins unless it is told."""
        return {name: mean for name, (mean, _) in self.priors.items()}

    def without(self, names: Collection[str]) -> Priors:
        """Return the priors and bounds of other parameters."""
        both = ({name: each[name] for name in each if name not in names} for each in (self.priors, self.bounds))
        return Priors(*both)

    def applied(
        self, parameters: Parameters, given: dict[str, float]
    ) -> tuple[Parameters, dict[str, tuple[float, float]], list[str]]:
        """The parameters within the bounds, priors in solver coordinates, and notes on where the fit begins.

        given: values that the user set. Raises UsageError for names that are unknown or not fitted, bounds and priors
        that contradict themselves or each other, and a start at or beyond a bound that the user set.
        """
        for flag, name in (*(("--prior", n) for n in self.priors), *(("--bounds", n) for n in self.bounds)):
            if name not in parameters.names:
                raise systems.unknown_parameter(name, parameters.names)
            if not parameters[name].free:
                fitted = ", ".join(parameters.free_names) or "none"
                raise UsageError(
                    f"{flag} of {name}, which is not fitted",
                    f"one that is ({fitted})",
                    f"add it to --fit, or drop {flag}",
                )
        notes: list[str] = []
        items = tuple(self._within(p, given, notes) if p.free else p for p in parameters)
        priors = {name: in_solver_coordinates(Parameters(items)[name], *pair) for name, pair in self.priors.items()}
        return Parameters(items), priors, notes

    def _within(self, parameter: Parameter, given: dict[str, float], notes: list[str]) -> Parameter:
        """The parameter with its bounds, starting inside of them."""
        name = parameter.name
        low, high = self.bounds.get(name, (-np.inf, np.inf))
        if not low < high:
            raise UsageError(
                f"the bounds {low:g}..{high:g} of {name}", "a lower end below the upper", f"--bounds {name}=LOW..HIGH"
            )
        lower, upper = max(low, parameter.lower), min(high, parameter.upper)
        if not lower < upper:
            domain = parameter.with_unit(f"{parameter.lower:g} to {parameter.upper:g}")
            raise UsageError(
                f"the bounds {low:g}..{high:g} of {name}", f"some of its domain, {domain}", "give SI units"
            )
        parameter = replace(parameter, lower=lower, upper=upper)
        inside = lower < parameter.value < upper
        if name in given and not inside:
            raise UsageError(
                parameter.with_unit(f"a fit of {name} that starts at {parameter.value:g}"),
                parameter.with_unit(f"a start inside its bounds, {lower:g} to {upper:g}"),
                f"give another --set {name}, or leave it out",
            )
        if inside or name not in self.bounds:
            if not inside and name in self.priors:
                notes.append(parameter.with_unit(f"{name} starts at its bound, {parameter.value:g}"))
            return parameter
        middle = 0.5 * (parameter.to_free(lower) + parameter.to_free(upper))
        parameter = replace(parameter, value=parameter.from_free(middle))
        notes.append(parameter.with_unit(f"{name} starts in the middle of its bounds, {parameter.value:.4g}"))
        return parameter


def in_solver_coordinates(parameter: Parameter, mean: float, std: float) -> tuple[float, float]:
    """Return mean and standard deviation of a prior in solver coordinates. Raises UsageError for what is none."""
    text = f"the prior {mean:g} +- {std:g} of {parameter.name}"
    if not (np.isfinite(mean) and np.isfinite(std) and std > 0.0):
        raise UsageError(text, "a mean and a width above zero", f"for example --prior {parameter.name}=0.4+-0.05")
    if not parameter.lower <= mean <= parameter.upper:
        within = parameter.with_unit(f"{parameter.lower:g} to {parameter.upper:g}")
        raise UsageError(text, f"a mean within its bounds, {within}", "give it in SI, or wider --bounds")
    return parameter.to_free(mean), parameter.spread_to_free(mean, std)
