"""Friction and restitution from clips of thrown bodies whose truth is known, by the user's command.

    python -m benchmarks.throw_clips --clips DIR [--only NAME,...] [--work DIR]

DIR has a folder for each clip: clip.mp4, mesh.obj, camera.yaml, and truth.json with `friction` and `restitution`, as
`benchmarks.clips.make` writes them. Each clip goes through `identify --model none --system rigid_contact --fit
mu,restitution`, with the readout where truth.json names one. `--work` keeps the runs, and a later call prints those
that are there.

Limits: one clip a row. Truths of all clips by `benchmarks.clips.make` lie between 0.24 and 0.5, and 0.2 and 0.78.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.errors import Vid2PhysError
from vid2phys.io.run import read_json

FITTED = ("mu", "restitution")


def main(
    clips: Annotated[Path, typer.Option(help="Folder of the clips.")],
    only: Annotated[str | None, typer.Option(help="Comma-separated names (default: all with a truth).")] = None,
    work: Annotated[Path | None, typer.Option(help="Folder that keeps the runs.")] = None,
) -> None:
    """Print a row for each clip: truth and estimate, the status, and seconds of processor time."""
    print("| clip | `mu`, truth | `mu` | `restitution`, truth | `restitution` | status | processor time |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as own:
        for folder in sorted(clips.iterdir()):
            if (only is None or folder.name in only.split(",")) and (true := truth(folder)) is not None:
                print(f"| {' | '.join(row(folder, true, (work or Path(own)) / folder.name))} |", flush=True)


def truth(folder: Path) -> dict[str, Any] | None:
    """Return truth.json of a thrown body; None of other clips."""
    path = folder / "truth.json"
    found = read_json(path) if path.is_file() else {}
    known = "mu" in (found.get("friction") or {}) and "value" in (found.get("restitution") or {})
    return found if known else None


def row(folder: Path, true: dict[str, Any], out: Path) -> list[str]:
    """Return the cells of a clip, whose run is or will be in the folder `out`."""
    seconds = ""
    if not (out / "result.json").is_file():
        began = time.process_time()
        try:
            identify(configuration(folder, true, out))
        except Vid2PhysError as error:
            return [folder.name, "", "", "", "", str(error), ""]
        seconds = f"{time.process_time() - began:.0f} s"
    result = read_json(out / "result.json")
    mu, restitution = (shown(result["parameters"].get(name)) for name in FITTED)
    of_truth = f"{true['friction']['mu']:g}", f"{true['restitution']['value']:g}"
    return [folder.name, of_truth[0], mu, of_truth[1], restitution, result["status"], seconds]


def configuration(folder: Path, true: dict[str, Any], out: Path) -> IdentifyConfig:
    """Return what the user's command is given."""
    shutter = true.get("rolling_shutter") or {}
    return IdentifyConfig(
        clip=folder / "clip.mp4",
        mesh=folder / "mesh.obj",
        camera=folder / "camera.yaml",
        model=Path("none"),
        system="rigid_contact",
        fit=FITTED,
        readout=shutter.get("readout_s"),
        overlay=False,
        out=out,
    )


def shown(found: dict[str, Any] | None) -> str:
    """Return an estimate in words; empty of a body that was lost."""
    if found is None:
        return ""
    if not found["identifiable"]:
        return "not identifiable"
    low, high = found["ci95"]
    return f"{found['value']:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    typer.run(main)
