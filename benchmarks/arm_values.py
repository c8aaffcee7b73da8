"""Damping and payload of filmed arms: from the clip by the user's command, from the true joint angles, and the truth.

Called by `python -m benchmarks.arms --values`. Clips are those of a folder with arm.urdf, joint_states.csv and
truth.json. `angles` is the RMS error of the joint angles of the fitted motion, worst joint.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vid2phys.commands.fit_recording import fit_recording
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.pipeline import identify
from vid2phys.types import Estimate

FIT = ("joint_damping", "payload")


@dataclass(frozen=True)
class Value:
    """A fitted parameter of one clip."""

    clip: str
    name: str
    unit: str
    truth: float
    from_clip: Estimate
    from_states: Estimate

    @property
    def cells(self) -> list[str]:
        """Return the cells of the table's row."""
        shown = [f"{each.value:.4g} ({each.ci95[0]:.4g} to {each.ci95[1]:.4g})" for each in
                 (self.from_clip, self.from_states)]  # fmt: skip
        off = 100.0 * (self.from_clip.value / self.truth - 1.0)
        return [self.clip, f"`{self.name}` {self.unit}", f"{self.truth:g}", *shown, f"{off:+.1f} %"]


HEADER = ("clip", "parameter", "truth", "from the clip", "from true angles", "error")


def values_of(folder: Path) -> tuple[list[Value], str]:
    """Return the fitted values of a clip's folder, and a line on angles and seconds."""
    truth = json.loads((folder / "truth.json").read_text())
    true = {f"damping_{joint}": value for joint, value in truth["joint_damping_Nms_per_rad"].items()}
    true["payload_mass"] = truth["payload_mass_kg"]
    began, body = time.monotonic(), str(folder / "arm.urdf")
    with tempfile.TemporaryDirectory() as out:
        config = IdentifyConfig(
            clip=folder / "clip.mp4",
            camera=folder / "camera.yaml",
            body=body,
            fit=FIT,
            overlay=False,
            out=Path(out) / "clip",
        )
        result, _ = identify(config)
        seconds = time.monotonic() - began
        states = [folder / "joint_states.csv"]
        fitted, _ = fit_recording("articulated", states, body=Path(body), fit=FIT, out=Path(out) / "states")
    seen = {each.name: each for each in result.parameters}
    known = {each.name: each for each in fitted.estimates}
    rows = [Value(folder.name, n, seen[n].unit, value, seen[n], known[n]) for n, value in true.items()]
    count = len(truth["joint_damping_Nms_per_rad"])
    angles = np.loadtxt(states[0], delimiter=",", skiprows=1)[:, 2 : 2 + count]
    off = np.degrees(np.sqrt(((result.trajectory.states[:, :count] - angles) ** 2).mean(axis=0)).max())
    return rows, f"{folder.name}: {result.status.value}, angles {off:.2f} deg RMS, {seconds:.0f} s"


def table(clips: Path) -> Iterator[tuple[list[Value], str]]:
    """Yield the values of each clip that has them."""
    for truth in sorted(clips.glob("*/truth.json")):
        if (truth.parent / "arm.urdf").exists() and "payload_mass_kg" in truth.read_text():
            yield values_of(truth.parent)
