"""Make path-traced clips of passive arms, with drawn links, joints, base, damping, payload, light, camera and room.

    python -m benchmarks.clips.drawn_arms --out DIR [--first 0] [--count 4]
    python -m benchmarks.arms --values --clips DIR

Each folder has arm.urdf, camera.yaml, clip.mp4, joint_states.csv and truth.json, as that of ../shared/clips/arm_a has.
Every third arm has three hinges, and the first hinge of every other arm is not parallel to the others.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.clips.appearance import Lens, Sensor, Surface
from benchmarks.clips.arms import Arm, Box
from benchmarks.clips.film import Stage
from benchmarks.clips.random_scenes import COLORS, FLOORS, WALLS, furnished, lamps, patterned, three

_SEED, _FPS, _FRAMES = 515151, 60.0, 72
_X, _Y = "1 0 0", "0 1 0"


def drawn(seed: int) -> tuple[Arm, Lens, np.random.Generator]:
    """Return an arm, the camera that sees all of it, and the generator of the rest."""
    rng = np.random.default_rng([seed, _SEED])
    arm, height_m, reach_m = _arm(seed, rng)
    return arm, _lens(height_m, reach_m, rng), rng


def _arm(seed: int, rng: np.random.Generator) -> tuple[Arm, float, float]:
    """Return an arm, the height of its base, and how far it reaches, m."""
    count = 3 if seed % 3 == 2 else 2
    axes = [_X if seed % 2 else _Y, *[_Y] * (count - 1)]
    names = [f"joint{k + 1}" for k in range(count)]
    height, yaw = float(rng.uniform(0.55, 0.75)), float(rng.uniform(-0.4, 0.4))
    lengths = np.round(rng.uniform(0.12, 0.24, count) * (0.8 if count == 3 else 1.0), 3)
    colors = rng.permutation(len(COLORS))
    boxes = [Box("base", (0.0, 0.0, 0.045), (0.07, 0.07, 0.05), 2.0, Surface("plain", ("#2b2c30",), roughness=0.5))]
    joints = [_joint("mount", "fixed", "world", "base", f'<origin xyz="0 0 {height:.3f}" rpy="0 0 {yaw:.3f}"/>')]
    above, end = "base", 0.0
    for k, (name, length) in enumerate(zip(names, lengths.tolist(), strict=True)):
        width, depth = (round(float(each), 3) for each in rng.uniform(0.018, 0.034, 2))
        surface = patterned(rng, str(rng.choice(["plain", "plain", "noise"])), COLORS[int(colors[k])])
        link = f"link{k + 1}"
        boxes.append(Box(link, (0.0, 0.0, round(-0.5 * length, 4)), (width, depth, length + 0.02),
                         round(float(rng.uniform(0.12, 0.35)), 3), surface))  # fmt: skip
        place = f'<origin xyz="0 0 {end:g}"/><axis xyz="{axes[k]}"/>'
        joints.append(_joint(name, "continuous", above, link, place))
        above, end = link, -length
    joints.append(_joint("hook", "fixed", above, "payload", f'<origin xyz="0 0 {end - 0.02:g}"/>'))
    boxes.append(Box("payload", (0.0, 0.0, 0.0), three(rng.uniform(0.035, 0.055, 3)), 0.1,
                     patterned(rng, "plain", COLORS[int(colors[count])])))  # fmt: skip
    damping = {name: round(float(np.exp(rng.uniform(np.log(0.002), np.log(0.015)))), 5) for name in names}
    start = (float(rng.choice([-1.0, 1.0])) * rng.uniform(0.6, 1.3), *rng.uniform(-0.8, 0.8, count - 1))
    payload = round(float(rng.uniform(0.05, 0.2)), 3)
    arm = Arm(tuple(boxes), "\n" + "\n".join(joints), damping, payload, tuple(float(each) for each in start))
    return arm, height, float(lengths.sum()) + 0.08


def _joint(name: str, kind: str, above: str, below: str, place: str) -> str:
    """Return a joint of a URDF between two links. place: its origin, and its axis where it has one."""
    ends = f'<parent link="{above}"/><child link="{below}"/>'
    return f'<joint name="{name}" type="{kind}">{ends}{place}</joint>'


def _lens(height_m: float, reach_m: float, rng: np.random.Generator) -> Lens:
    """Return a camera that sees all places that an arm reaches from a base at a height."""
    away = 1.5 + float(rng.uniform(0.0, 0.3))
    middle = height_m - 0.35 * reach_m
    return Lens(
        (float(rng.uniform(-0.5, 0.5)), -away, middle + float(rng.uniform(-0.05, 0.25))),
        (0.0, 0.0, middle),
        0.9 * 240.0 * away / reach_m,
        (float(rng.uniform(316.0, 324.0)), float(rng.uniform(236.0, 244.0))),
        (640, 480),
        roll_deg=float(rng.uniform(-2.0, 2.0)),
    )


def make(seed: int, out: Path, samples: int, threads: int) -> None:
    """Write the folder of a clip."""
    folder = out / f"arm_{seed}"
    if (folder / "truth.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    arm, lens, rng = drawn(seed)
    room = furnished(rng, FLOORS[int(rng.integers(5))], WALLS[int(rng.integers(5))], seed=900 + seed)
    stage = Stage(lens, room, Sensor(), seed, _FRAMES, _FPS, samples, threads, lamps(rng))
    arm.film(folder, stage, np.array([[0.0, 0.2, 0.4]]))
    truth = {"clip": folder.name, "joint_damping_Nms_per_rad": arm.damping, "payload_mass_kg": arm.payload_kg}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    print(folder, flush=True)


def main() -> None:
    """Make clips."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0, help="seed of the first arm")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--samples", type=int, default=12, help="of a pixel")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.count):
        make(seed, options.out, options.samples, options.threads)


if __name__ == "__main__":
    main()
