"""Make test clips with a known truth by Blender Cycles, a path tracer that the tool itself does not use.

    python -m benchmarks.clips.make --out DIR --clip box_plain mug_white
    python -m benchmarks.clips.make --out DIR --split development
    python -m benchmarks.clips.make --plan          # sizes and places in the frames, without rendering

Each clip gets a folder with clip.mp4, mesh.obj, camera.yaml, mocap.csv, truth.json and overlay.png, which shows the
projected mesh on three frames. `table.py` has a row for each clip; all that is random follows from its seeds.

Needs `pip install bpy==5.0.1 mujoco trimesh scipy opencv-python-headless av pyyaml`, with Python 3.11, best in an
environment of its own. A clip of 60 frames takes one to two minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.clips import check, companions, files
from benchmarks.clips.bodies import Solid, build
from benchmarks.clips.motion import Motion
from benchmarks.clips.table import CLIPS, Spec

Array = NDArray[np.float64]
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
    parser.add_argument("--still", type=int, nargs="*", help="render these frames alone, to still_N.png")
    options = parser.parse_args()
    specs = [CLIPS[name] for name in options.clip]
    specs += [s for s in CLIPS.values() if s.split == options.split or not (options.split or options.clip)]
    for spec in specs:
        if options.plan:
            print(plan(spec))
        elif not (options.out / spec.name / "clip.mp4").exists():
            make(spec, options.out / spec.name, options.samples, options.threads, options.still)


def plan(spec: Spec) -> str:
    """Return a line on sizes and places of the body in the frames."""
    solid, motion = _solve(spec)
    position, quats = motion.at(np.arange(spec.frames) / spec.fps)
    boxes = []
    for p, q in zip(position, quats, strict=True):
        pixels, _ = spec.lens.project(solid.vertices @ _matrix(q).T + p)
        boxes.append(np.concatenate([pixels.min(axis=0), pixels.max(axis=0)]))
    box = np.array(boxes)
    size = (box[:, 2:] - box[:, :2]).max(axis=1)
    inside = np.all(box[:, :2] >= 0, axis=1) & np.all(box[:, 2:] < spec.lens.size_px, axis=1)
    ends = [f"({c[0]:.0f},{c[1]:.0f})" for c in 0.5 * (box[[0, len(box) // 2, -1], :2] + box[[0, len(box) // 2, -1], 2:])]
    hits = [impact["t"] for impact in motion.facts.get("impacts_over_0p25_m_s", [])]
    low = min(float((solid.vertices @ _matrix(q).T + p)[:, 2].min()) for p, q in zip(position, quats, strict=True))
    return (
        f"{spec.name:16s} {len(solid.faces):6d} faces, {size.min():5.0f} to {size.max():4.0f} px, whole in "
        f"{inside.mean():4.0%}, centre {' '.join(ends)}, lowest {1e3 * low:6.2f} mm, impacts {hits[:6]}"
    )


def make(spec: Spec, folder: Path, samples: int, threads: int, still: list[int] | None) -> None:
    """Render a clip and write its folder, or only some of its frames."""
    from benchmarks.clips import scene

    began = time.perf_counter()
    solid, motion = _solve(spec)
    movers = [companions.Mover(solid.vertices, solid.faces, solid.slot, spec.body.surfaces, motion)]
    movers += companions.companions(spec.moves, solid, motion)
    if spec.second:
        movers.append(companions.second_object(*spec.second, _duration(spec)))
    scene.start(spec.lens, scene.Quality(samples, threads), spec.sensor.transform, *spec.ambient)
    scene.add_lights(spec.lights)
    places = [motion.at(np.arange(spec.frames) / spec.fps)[0]]
    places += [m.motion.at(np.arange(spec.frames) / spec.fps)[0] for m in movers[1:] if spec.second]
    scene.add_room(spec.room, spec.lens, np.concatenate(places))
    things = [scene.add_mover(mover, spec.frames, spec.fps, spec.sensor.shutter) for mover in movers]
    scene.set_shutter(spec.sensor.shutter)
    work = Path(tempfile.mkdtemp(prefix=f"{spec.name}-", dir=_scratch()))
    try:
        if still is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for k in still:
                scene.render_frame(k, spec.sensor.exposure(k / spec.fps), work / "f.png")
                cv2.imwrite(str(folder / f"still_{k}.png"), _sense(spec, k, work / "f.png")[..., ::-1])
            return
        frames = []
        for k in range(spec.frames):
            scene.render_frame(k, spec.sensor.exposure(k / spec.fps), work / "f.png")
            frames.append(_sense(spec, k, work / "f.png"))
        seconds = (time.perf_counter() - began) / spec.frames
        _write(spec, solid, motion, frames, work / "clip", samples, lambda k: _mask(things[0], k, work / "m.png"))
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(work / "clip", folder, dirs_exist_ok=True)
        report = json.loads((folder / "truth.json").read_text())["projection_check"]
        print(f"{spec.name}: {seconds:.2f} s a frame; edges within {report['max_edge']} px", flush=True)
    finally:
        shutil.rmtree(work)


def _write(spec, solid, motion, frames, folder, samples, mask) -> None:  # type: ignore[no-untyped-def]
    """Write the folder of a clip, with the check of its projection. mask: returns the coverage [H, W] of a frame."""
    folder.mkdir()
    files.write_mesh(folder / "mesh.obj", solid)
    files.write_camera(folder / "camera.yaml", spec.name, spec.lens)
    files.write_mocap(folder / "mocap.csv", spec.name, motion, (spec.frames - 1) / spec.fps)
    files.write_video(folder / "clip.mp4", frames, spec.fps, spec.lens.size_px, spec.sensor.crf)
    files.write_readme(folder / "README.md", spec)
    shown = [round(share * (spec.frames - 1)) for share in _OVERLAYS]
    drawn = [check.overlay(frames[k], check.silhouette(folder, k / spec.fps), 2) for k in shown]
    cv2.imwrite(str(folder / "overlay.png"), np.hstack(drawn)[..., ::-1])
    checked = [round(share * (spec.frames - 1)) for share in _CHECKED]
    results = [check.compare(check.silhouette(folder, k / spec.fps), mask(k)) for k in checked]
    content = files.truth(spec, solid, motion, check.summary(checked, results), samples)
    files.write_truth(folder / "truth.json", content)


def _mask(body, index: int, file: Path) -> Array:  # type: ignore[no-untyped-def]
    from benchmarks.clips import scene

    scene.render_mask(index, body, file)
    return np.asarray(cv2.imread(str(file), cv2.IMREAD_UNCHANGED)[..., 1] / 65535.0)


def _sense(spec: Spec, index: int, file: Path) -> NDArray[np.uint8]:
    """Return the frame [H, W, 3] as the sensor gives it: with noise, in 8 bits, RGB."""
    clean = cv2.imread(str(file), cv2.IMREAD_UNCHANGED)[..., ::-1] / 257.0
    rng = np.random.default_rng([spec.seed, index])
    noisy = clean + spec.sensor.noise_sigma(clean) * rng.normal(size=clean.shape)
    return np.clip(np.round(noisy), 0, 255).astype(np.uint8)


def _solve(spec: Spec) -> tuple[Solid, Motion]:
    solid = build(spec.body)
    return solid, spec.moves.solve(solid, _duration(spec))


def _duration(spec: Spec) -> float:
    return (spec.frames + 1) / spec.fps


def _matrix(quat: Array) -> Array:
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_quat(quat, scalar_first=True).as_matrix())


def _scratch() -> str | None:
    """Return a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    main()
