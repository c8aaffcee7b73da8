"""Gravity from clips of a rolling shutter, with and without its model, and the readout that `--fit readout` gives.

`python -m benchmarks.rolling_shutter --out DIR` makes clips of a box that falls, is thrown up, or is thrown sideways
(`benchmarks.rolling_shutter_clips`), and runs `identify --model none --fit gravity` on each: as it is, with
`--readout`, and with `--fit gravity,readout`.

Limits: one clip for each throw and readout.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.rolling_shutter_clips import THROWS, TRUTH, make
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.errors import Vid2PhysError
from vid2phys.types import Estimate, Result

READOUTS_MS = (0.0, 5.0, 15.0, 25.0)


def main(
    out: Annotated[Path, typer.Option(help="Folder of the clips; those that are there are used again.")],
    throws: Annotated[str, typer.Option(help="Comma-separated.")] = "fall,up and down,sideways",
) -> None:
    """Print a table with a row for each throw and readout."""
    print("| throw | readout | g, all rows at once | g, by rows | readout as fitted |")
    print("|---|---|---|---|---|")
    for name in throws.split(","):
        for readout_ms in READOUTS_MS:
            folder = out / f"{name}_{readout_ms:g}"
            if not folder.exists():
                make(folder, THROWS[name], 1e-3 * readout_ms)
            print(f"| {name} | {readout_ms:g} ms | {' | '.join(row(folder, 1e-3 * readout_ms))} |", flush=True)


def row(folder: Path, readout_s: float) -> list[str]:
    """Return gravity without and with the true readout, and the fitted readout, each by the user's command."""
    return [
        _shown(identified(folder), "gravity", _gravity),
        _shown(identified(folder, readout_s=readout_s), "gravity", _gravity),
        _shown(identified(folder, fit=("gravity", "readout")), "readout", _readout),
    ]


def identified(folder: Path, fit: tuple[str, ...] = ("gravity",), readout_s: float | None = None) -> Result | str:
    """Return what the command makes of a clip, or its message where it ends with an error."""
    with tempfile.TemporaryDirectory() as run:
        config = IdentifyConfig(
            clip=folder / "clip.mp4",
            mesh=folder / "mesh.obj",
            camera=folder / "camera.yaml",
            model=Path("none"),
            fit=fit,
            readout=readout_s,
            overlay=False,
            out=Path(run) / "run",
        )
        try:
            return identify(config)[0]
        except Vid2PhysError as error:
            return str(error)


def _shown(result: Result | str, name: str, words: Callable[[Estimate], str]) -> str:
    """Return an estimate in words, with the status of a result that has not converged."""
    if isinstance(result, str):
        return result
    found = words(next(each for each in result.parameters if each.name == name))
    return found if result.status.key == "converged" else f"{found}, {result.status.key}"


def _gravity(found: Estimate) -> str:
    """Return gravity, half of its 95 % interval, and how far it is off."""
    off = found.value / TRUTH["gravity"] - 1.0
    return f"{found.value:.2f} +- {0.5 * (found.ci95[1] - found.ci95[0]):.2f} ({100 * off:+.1f} %)"


def _readout(found: Estimate) -> str:
    """Return the readout with its 95 % interval."""
    low, high = found.ci95
    return f"{1e3 * max(0.0, found.value):.1f} ms ({1e3 * low:.1f} to {1e3 * high:.1f})"


if __name__ == "__main__":
    typer.run(main)
