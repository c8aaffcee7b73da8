"""Deliberate faults in numbers and signs, and the tests that must notice each one.

`make faults` copies the project, makes one fault at a time in the copy, and runs the tests that are named beside the
fault. It prints the faults that no test noticed, and fails where there are any.

Limits: these are faults that once passed all quick tests, not all that are possible.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("vid2phys", "tests", "experiments", "benchmarks", "samples", "models", "docs", "scripts")
_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "mkdocs.yml", "constraints.txt")
_SMOOTHER = "vid2phys/solvers/smoothing.py"
_STATES = "covariances.append(blocks[:, : layout.tangent, : layout.tangent].copy())"


@dataclass(frozen=True)
class Fault:
    """A fault: `before` in a file becomes `after`. tests: files or names, as pytest takes them."""

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "covariance of states times 0.25", _SMOOTHER, _STATES, _STATES.replace("blocks", "0.25 * blocks"),
        ("tests/recovery/test_smoothing.py",),
    ),
    Fault(
        "covariance of states times 9", _SMOOTHER, _STATES, _STATES.replace("blocks", "9.0 * blocks"),
        ("tests/recovery/test_smoothing.py",),
    ),
    Fault(
        "calibrated covariance of points times 0.25", "vid2phys/error_model.py",
        "return np.asarray(covariance * growth[", "return np.asarray(0.25 * covariance * growth[",
        ("tests/unit/test_error_model.py",),
    ),
    Fault(
        "delay of actions ignored", "vid2phys/solvers/problem.py",
        "_hold_integral(actions, fine - delay_s)", "_hold_integral(actions, fine)",
        ("tests/recovery/test_smoothing.py",),
    ),
    Fault(
        "errors that points share left out of residuals", "vid2phys/solvers/smoothing_model.py",
        "off + (basis @ shared[:, None, :, None])[..., 0], 0.0)", "off, 0.0)",
        ("tests/recovery/test_smoothing.py",),
    ),
    Fault(
        "sign of the symmetry evidence", "vid2phys/tracking/symmetry_evidence.py",
        "return of_edges - TEMPERATURES.symmetry * np.log(np.exp(total).mean()), of_parts",
        "return -of_edges - TEMPERATURES.symmetry * np.log(np.exp(total).mean()), of_parts",
        ("tests/unit/test_turns.py",),
    ),
    Fault(
        "RMSProp without momentum", "vid2phys/solvers/gradient.py",
        "torch.optim.RMSprop([at], lr=rate, momentum=MOMENTUM)", "torch.optim.RMSprop([at], lr=rate)",
        ("tests/recovery/test_gradient.py::test_rmsprop_has_the_momentum_of_the_paper",),
    ),
    Fault(
        "half a pixel in the path tracer", "vid2phys/engine/render/mitsuba.py",
        "v = mi.Float(row) + random.next_float32() - 0.5", "v = mi.Float(row) + random.next_float32()",
        ("tests/unit/test_render_mitsuba.py",),
    ),
    Fault(
        "steps of parameters are not damped", "vid2phys/solvers/arrow.py",
        "np.where(null, 1.0, values + damping)", "np.where(null, 1.0, values)",
        ("tests/unit/test_arrow.py",),
    ),
    Fault(
        "starts of a table are the truth", "experiments/risp_table2.py",
        "return Case(experiment, seen, self.unknown.draw(self._rng(_STARTS, index)),",
        "return Case(experiment, seen, experiment.truth,",
        ("tests/unit/test_tables_see_no_truth.py",),
    ),
    Fault(
        "places that a table searches are the true ones", "experiments/method_inputs.py",
        "* [ASIDE, ASIDE, SIZE]", "* 0.0",
        ("tests/unit/test_tables_see_no_truth.py",),
    ),
)  # fmt: skip


def is_noticed(fault: Fault, folder: Path) -> bool:
    """Return whether a test fails with the fault made in the copy of the project in `folder`, which is mended after."""
    path = folder / fault.path
    whole = path.read_text()
    path.write_text(whole.replace(fault.before, fault.after))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests]
        found = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, check=False)
    finally:
        path.write_text(whole)
    if found.returncode not in (0, 1):
        raise RuntimeError(f"{fault.name}: pytest ended with {found.returncode}: {found.stdout.decode()[-500:]}")
    return found.returncode == 1


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a process that imports the copy in `folder`."""
    return os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def copy_project(folder: Path) -> None:
    """Copy the project to `folder`, without compiled code."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(ROOT / name, folder / name)


def main() -> int:
    """Make the faults one by one and return the number that no test notices."""
    missed = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        copy_project(folder)
        for fault in FAULTS:
            noticed = is_noticed(fault, folder)
            missed += not noticed
            print(f"{'noticed' if noticed else 'MISSED '}  {fault.name}", flush=True)
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} faults noticed")
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
