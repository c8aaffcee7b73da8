"""Make test clips with a known truth by Blender Cycles, a path tracer that the tool itself does not use.

    python -m benchmarks.clips.make --out DIR               # all clips
    python -m benchmarks.clips.make --out DIR --clip box_plain mug_white
    python -m benchmarks.clips.make --out DIR --split development
    python -m benchmarks.clips.make --plan                  # sizes and places, without rendering

Each clip gets a folder with clip.mp4, mesh.obj, camera.yaml, mocap.csv, truth.json and overlay.png, which shows the
projected mesh on three frames; INDEX.md lists the clips. A folder that exists is kept as it is. `table.py`,
`new_meshes.py`, `drawn_throws.py` and `drawn_swings.py` have a row for each clip; all that is random follows from its
seeds.

Needs `pip install bpy==5.0.1 mujoco trimesh scipy scikit-image opencv-python-headless av pyyaml`, with Python
3.11, best in an environment of its own. A clip of 60 frames takes one to two minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from benchmarks.clips import check, companions, files
from benchmarks.clips.bodies import Solid, build
from benchmarks.clips.drawn_swings import DRAWN_SWINGS
from benchmarks.clips.drawn_throws import DRAWN_THROWS
from benchmarks.clips.motion import Motion
from benchmarks.clips.new_meshes import NEW_MESHES
from benchmarks.clips.table import CLIPS as TABLE
from benchmarks.clips.table import Spec

Array = NDArray[np.float64]
CLIPS = TABLE | NEW_MESHES | DRAWN_THROWS | DRAWN_SWINGS
_OVERLAYS = (0.12, 0.5, 0.9)  # shares of the clip
_CHECKED = (0.0, 0.12, 0.35, 0.5, 0.7, 0.9, 1.0)


def main() -> None:
    """Make the clips that the command line names."""
    parser = argparse.ArgumentParser(description="Make test clips with Blender Cycles.")
    parser.add_argument("--out", type=Path, default=Path("clips"))
    parser.add_argument("--clip", nargs="*", choices=sorted(CLIPS), default=[])
    parser.add_argument("--split", help="make all clips of a split")
    parser.add_argument("--samples", type=int, default=20, help="of a pixel")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plan", action="store_true", help="print sizes and places in the frames, render nothing")
    options = parser.parse_args()
    specs = [CLIPS[name] for name in options.clip]
    specs += [s for s in CLIPS.values() if s.split == options.split or not (options.split or options.clip)]
    for spec in specs:
        if options.plan:
            print(plan(spec))
        elif not (options.out / spec.name).exists():
            make(spec, options.out / spec.name, options.samples, options.threads)


def plan(spec: Spec) -> str:
    """Return a line on sizes and places of the body in the frames."""
    solid, motion = _solve(spec)
    position, quats = motion.at(np.arange(spec.frames) / spec.fps)
    rotation = Rotation.from_quat(quats, scalar_first=True).as_matrix()
    points = np.einsum("tij,vj->tvi", rotation, solid.hull) + position[:, None]
    pixels, _ = spec.lens.project(points)
    low, high = pixels.min(axis=1), pixels.max(axis=1)
    size = (high - low).max(axis=1)
    whole = np.all(low >= 0, axis=1) & np.all(high < spec.lens.size_px, axis=1)
    places = " ".join(f"({x:.0f},{y:.0f})" for x, y in 0.5 * (low + high)[[0, spec.frames // 2, -1]])
    hits = [impact["t"] for impact in motion.facts.get("impacts_over_0p25_m_s", [])]
    return (
        f"{spec.name:16s} {len(solid.faces):6d} faces, {size.min():5.0f} to {size.max():4.0f} px, whole in "
        f"{whole.mean():4.0%}, centre {places}, lowest {1e3 * points[..., 2].min():6.2f} mm, impacts {hits[:6]}"
    )


def make(spec: Spec, folder: Path, samples: int, threads: int) -> None:
    """Render a clip and write its folder, which appears when it is complete."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=_scratch()) as work:
        stage = _Stage(spec, samples, threads, Path(work))
        frames = [stage.frame(k) for k in range(spec.frames)]
        seconds = (time.perf_counter() - began) / spec.frames
        _write(stage, frames, Path(work) / "clip", samples)
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(Path(work) / "clip", part)
        part.rename(folder)
    files.write_index(folder.parent)
    report = json.loads((folder / "truth.json").read_text())["projection_check"]
    print(f"{spec.name}: {seconds:.2f} s a frame; edges within {report['max_edge']} px", flush=True)


class _Stage:
    """A clip set up in Blender, of which there can be one at a time. work: a scratch folder."""

    def __init__(self, spec: Spec, samples: int, threads: int, work: Path) -> None:
        from benchmarks.clips import scene

        self.spec, self.file = spec, work / "render.exr"
        self.solid, self.motion = _solve(spec)
        body = companions.Mover(self.solid.vertices, self.solid.faces, self.solid.slot, spec.body.surfaces, self.motion)
        thrown = [body, *([companions.second_object(*spec.second, _duration(spec))] if spec.second else [])]
        movers = [*thrown, *companions.companions(spec.moves, self.solid, self.motion)]
        scene.start(spec.lens, samples, threads, *spec.ambient)
        scene.add_lights(spec.lights)
        times = np.arange(spec.frames) / spec.fps
        scene.add_room(spec.room, spec.lens, np.concatenate([mover.motion.at(times)[0] for mover in thrown]))
        things = [scene.add_mover(mover, spec.frames, spec.fps, spec.sensor.shutter) for mover in movers]
        scene.set_shutter(spec.sensor.shutter)
        self.moving_things = [thing for mover, thing in zip(movers, things, strict=True) if not mover.static]
        self.body, self.thing = body, things[0]
        self.moving = [mover for mover in movers if not mover.static]

    @cached_property
    def static(self) -> Array:
        """The linear light [H, W, 3] of what does not move."""
        from benchmarks.clips import scene

        scene.hide(self.moving_things, hidden=True)
        light = scene.render(0, None, self.file)
        scene.hide(self.moving_things, hidden=False)
        return light

    def frame(self, index: int) -> NDArray[np.uint8]:
        """Return a frame [H, W, 3] as the sensor gives it, RGB."""
        from benchmarks.clips import scene

        spec = self.spec
        times = (index + 0.5 * spec.sensor.shutter * np.array([-1.0, 0.0, 1.0])) / spec.fps
        box = scene.changed_box(self.moving, spec.room, spec.lights, spec.lens, times)
        light = self.static
        if box:
            light = scene.paste(light, scene.render(index, box, self.file), box)
        return _sense(spec, index, light)

    def mask(self, index: int) -> Array:
        """Return the coverage of pixels [H, W] by the body. No frame can be rendered after it."""
        from benchmarks.clips import scene

        box = scene.changed_box([self.body], self.spec.room, (), self.spec.lens, np.array([index / self.spec.fps]))
        return scene.render_mask(index, self.thing, box, self.spec.lens.size_px, self.file)


def _write(stage: _Stage, frames: list[NDArray[np.uint8]], folder: Path, samples: int) -> None:
    """Write the folder of a clip, with the check of its projection."""
    spec, motion = stage.spec, stage.motion
    folder.mkdir()
    files.write_mesh(folder / "mesh.obj", stage.solid)
    files.write_camera(folder / "camera.yaml", spec.name, spec.lens)
    files.write_mocap(folder / "mocap.csv", spec.name, motion, (spec.frames - 1) / spec.fps)
    files.write_video(folder / "clip.mp4", frames, spec.fps, spec.lens.size_px, spec.sensor.crf)
    files.write_readme(folder / "README.md", spec)
    shown = [round(share * (spec.frames - 1)) for share in _OVERLAYS]
    drawn = [check.overlay(frames[k], check.silhouette(folder, k / spec.fps), 2) for k in shown]
    cv2.imwrite(str(folder / "overlay.png"), np.hstack(drawn)[..., ::-1])
    files.write_truth(folder / "truth.json", files.truth(spec, stage.solid, motion, _check(stage, folder), samples))


def _check(stage: _Stage, folder: Path) -> dict[str, Any]:
    """Return how the files of a clip agree with masks by Cycles."""
    spec = stage.spec
    checked = [round(share * (spec.frames - 1)) for share in _CHECKED]
    results = [check.compare(check.silhouette(folder, k / spec.fps), stage.mask(k)) for k in checked]
    return check.summary(checked, results)


def _sense(spec: Spec, index: int, light: Array) -> NDArray[np.uint8]:
    """Return the frame [H, W, 3] as the sensor gives it: with noise, in 8 bits, RGB. light: linear."""
    clean = spec.sensor.develop(light, index / spec.fps)
    rng = np.random.default_rng([spec.seed, index])
    noisy = clean + spec.sensor.noise_sigma(clean) * rng.normal(size=clean.shape)
    return np.clip(np.round(noisy), 0, 255).astype(np.uint8)


def _solve(spec: Spec) -> tuple[Solid, Motion]:
    solid = build(spec.body)
    return solid, spec.moves.solve(solid, _duration(spec))


def _duration(spec: Spec) -> float:
    return (spec.frames + 1) / spec.fps


def _scratch() -> str | None:
    """Return a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    main()
