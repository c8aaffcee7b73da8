"""Large jobs: `python -m benchmarks.load --clips N` and `python -m benchmarks.load --seconds S`.

--clips: a batch of N short clips, given as keypoints of the sample: the largest memory of the batch's own process after
each tenth of the clips, which should not grow, and whether each result is that of a single run, to the bit.
--seconds: a clip of 3840x2160 that shows the sample's flight forth and back, identified whole: the peak of the
process's memory, in all and until each stage began, the frames that were lost, and the size of the run folder.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "quadrotor"
WIDE, HIGH, FPS = 3840, 2160, 30
TURN = 30  # frames that the clip goes forth, and then back
MASS_KG = 0.72


def peak_mb(who: int = resource.RUSAGE_SELF) -> int:
    """Return the peak memory of this process, or of processes that it waited for (RUSAGE_CHILDREN), in MB."""
    return resource.getrusage(who).ru_maxrss >> 10


def many_clips(count: int, folder: Path) -> dict[str, Any]:
    """Return a batch, and one of its clips by itself."""
    from tests.unit.test_batch import ACTIONS, require_same_runs, write_batch
    from tests.unit.test_given_points import write_sample_keypoints
    from vid2phys.commands.batch import batch

    write_sample_keypoints(folder)
    clips = "".join(f"  - {{clip: clip.mp4, name: clip{i}}}\n" for i in range(count))
    path = write_batch(folder, clips, ACTIONS)
    memory: list[int] = []

    def progress(stage: str, done: int = 0, total: int = 0) -> None:
        if done and done % max(1, count // 10) == 0:
            memory.append(peak_mb())

    began = time.monotonic()
    outcomes, out = batch(path, out=folder / "out", progress=progress)
    seconds = time.monotonic() - began
    same = 0
    config = ["--config", str(out / outcomes[0].name / "config.yaml"), "--out", str(folder / "single")]
    subprocess.run([sys.executable, "-m", "vid2phys", "identify", *config], check=True, capture_output=True)
    for outcome in outcomes:
        require_same_runs(folder / "single", out / outcome.name)
        same += 1
    converged = sum(outcome.converged for outcome in outcomes)
    return {
        **{"clips": count, "converged": converged, "same_as_single": same, "seconds": round(seconds)},
        **{"batch_mb": memory, "largest_clip_mb": peak_mb(resource.RUSAGE_CHILDREN)},
    }


def write_long_clip(path: Path, seconds: float) -> None:
    """Write the sample's first second forth and back, enlarged into a wide frame; encoded once and repeated."""
    import av
    import cv2

    from vid2phys.io.video import read_clip

    frames = [frame for _, frame in zip(range(TURN), read_clip(SAMPLE / "clip.mp4").frames, strict=False)]
    once = path.with_name("once.mp4")
    with av.open(str(once), "w") as container:
        stream: Any = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDE, HIGH, "yuv420p"
        stream.options = {"preset": "ultrafast", "crf": "20", "bf": "0"}
        for frame in (*frames, *frames[::-1]):
            wide = np.full((HIGH, WIDE, 3), frame.mean(axis=(0, 1)), np.uint8)
            side = (WIDE - HIGH * 4 // 3) // 2
            wide[:, side:-side] = cv2.resize(frame, (WIDE - 2 * side, HIGH), interpolation=cv2.INTER_CUBIC)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(wide, format="rgb24")))
        container.mux(stream.encode())
    repeats = max(1, round(seconds * FPS / (2 * TURN)))
    with av.open(str(path), "w") as out, av.open(str(once)) as source:
        stream = out.add_stream_from_template(source.streams.video[0])
        packets = [packet for packet in source.demux(video=0) if packet.size]
        length = sum(packet.duration for packet in packets)
        for again in range(repeats):
            for packet in packets:
                copy = av.Packet(bytes(packet))
                copy.pts, copy.dts = packet.pts + again * length, packet.dts + again * length
                copy.duration, copy.time_base, copy.stream = packet.duration, packet.time_base, stream
                copy.is_keyframe = packet.is_keyframe
                out.mux(copy)


def long_clip(seconds: float, folder: Path) -> dict[str, Any]:
    """Return `vid2phys identify` of a clip of this length, from the video to overlay and report, in a process of its
    own.
    """
    from vid2phys.io.camera import load_camera, save_camera
    from vid2phys.io.video import read_clip

    path = folder / "long.mp4"
    write_long_clip(path, seconds)
    camera = load_camera(SAMPLE / "camera.yaml")
    scale, side = HIGH / camera.height, (WIDE - HIGH * 4 // 3) // 2
    K = np.diag([scale, scale, 1.0]) @ camera.K
    K[:2, 2] += 0.5 * (scale - 1.0) + np.array([side, 0.0])
    save_camera(replace(camera, K=K, width=WIDE, height=HIGH), folder / "camera.yaml")
    inputs = [str(path), "--mesh", str(SAMPLE / "quad.obj"), "--camera", str(folder / "camera.yaml")]
    options = ["--set", f"mass={MASS_KG}", "--out", str(folder / "run")]
    began = time.monotonic()
    stages = watched([sys.executable, "-m", "vid2phys", "identify", *inputs, *options])
    took = time.monotonic() - began
    frames, result = len(read_clip(path).frames), json.loads((folder / "run" / "result.json").read_text())
    return {
        **{"seconds_of_video": seconds, "frames": frames, "status": result["status"]},
        **{"lost": len(result["diagnostics"]["lost_frames"]), "seconds": round(took)},
        **{"peak_mb": peak_mb(resource.RUSAGE_CHILDREN), "peak_mb_until": stages},
        **{"run_mb": sum(file.stat().st_size for file in (folder / "run").iterdir()) >> 20},
    }


def watched(command: Sequence[str]) -> dict[str, int]:
    """Run a command of ours, its stages shown: the largest memory [MB] that it had had when each of them began."""
    peaks: dict[str, int] = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            status, stage = Path(f"/proc/{process.pid}/status").read_text(), line.partition("]")[2].strip()
            peaks[stage] = int(status.partition("VmHWM:")[2].split()[0]) >> 10
            print(f"{line.rstrip()} ({peaks[stage]} MB)", file=sys.stderr, flush=True)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return peaks


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int)
    parser.add_argument("--seconds", type=float)
    asked = parser.parse_args()
    if (asked.clips is None) == (asked.seconds is None):
        parser.error("give --clips N or --seconds S")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(json.dumps(many_clips(asked.clips, folder) if asked.clips else long_clip(asked.seconds, folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
