"""Gravity from clips of a rolling shutter, with and without its model, and the readout that `--fit readout` gives.

`python -m benchmarks.rolling_shutter --out DIR` makes clips of a box that falls, is thrown up, or is thrown sideways
(`benchmarks.rolling_shutter_clips`), and tracks each as `identify --model none` does. Gravity is the acceleration that
the free flights share (`solvers.flights`), with its 95 % interval.

Limits: intervals of gravity know of no error that lasts for a whole flight.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.rolling_shutter_clips import THROWS, TRUTH, make
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.inputs import Inputs, read_inputs
from vid2phys.commands.identify.pipeline import track_silhouette
from vid2phys.commands.identify.places import places_of
from vid2phys.commands.identify.readout_fit import fitted_readout
from vid2phys.solvers.flights import find_flights
from vid2phys.tracking.first_pass import FrameStore
from vid2phys.tracking.rolling_shutter import at_row_times
from vid2phys.tracking.track import Track

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
    """Return gravity without and with the true readout, and the fitted readout."""
    config = IdentifyConfig(
        clip=folder / "clip.mp4",
        mesh=folder / "mesh.obj",
        camera=folder / "camera.yaml",
        model=Path("none"),
        system="rigid_contact",
        fit=("mass",),
    )
    inputs = read_inputs(config)
    track = track_silhouette(inputs)
    frames = FrameStore.of(inputs.clip)
    camera = replace(inputs.camera, readout_s=readout_s)
    by_rows = at_row_times(frames, camera, inputs.mesh, track, inputs.clip.times_s) if readout_s else track
    return [gravity(track), gravity(by_rows), _fitted(inputs, track)]


def gravity(track: Track) -> str:
    """Return the acceleration of the free flights, how far it is off, and half of its 95 % interval."""
    flights = find_flights(places_of(track))
    if flights is None:
        return "no fall found"
    size = float(np.linalg.norm(flights.acceleration))
    along = flights.acceleration / size
    half = 1.96 * float(np.sqrt(along @ flights.covariance[:3, :3] @ along))
    off = size / TRUTH["gravity"] - 1.0
    return f"{size:.2f} +- {half:.2f} ({100 * off:+.1f} %)"


def _fitted(inputs: Inputs, track: Track) -> str:
    found = fitted_readout(inputs.clip, inputs.camera, inputs.mesh, track)
    low, high = found.ci95
    return f"{1e3 * max(0.0, found.readout_s):.1f} ms ({1e3 * low:.1f} to {1e3 * high:.1f})"


if __name__ == "__main__":
    typer.run(main)
