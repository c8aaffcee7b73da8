"""Focal length, gravity and ground from the motion of a ball: the truth of an exact projection comes back.

Oracle: projection and bounces are in closed form in `tests.bouncing_ball`; the code under test shares none of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.bouncing_ball import Scene, bouncing, path, seen_by, tracked
from vid2phys.solvers.camera_from_motion import SIZE_STD, CameraEstimate, CameraPrior, estimate_camera
from vid2phys.types import Array

TIMES = np.arange(60) / 60.0
PRIOR = CameraPrior(0.3)
OPEN = replace(PRIOR, log_gravity_std=0.5)


def scene_of(pitch_deg: float, **camera: float) -> Scene:
    return seen_by(bouncing(TIMES, 0.5, (0.2, 0.5), 0.8), TIMES, pitch_deg=pitch_deg, **camera)


def errors(scene: Scene, nominal_px: float, found: CameraEstimate) -> dict[str, float]:
    """Return errors over their standard deviations."""
    true_pitch, true_roll = np.arcsin(scene.down[2]), np.arctan2(scene.down[0], scene.down[1])
    off = {
        "focal": (found.log_focal - np.log(scene.focal_px / nominal_px)) / found.std("log_focal"),
        "pitch": (found.pitch[0] - true_pitch) / found.pitch[1],
        "roll": (found.roll[0] - true_roll) / found.roll[1],
    }
    if found.ground_m is not None:
        off["ground"] = (found.ground_m - scene.ground_m) / found.std("ground_m")
    return {name: float(value) for name, value in off.items()}


@pytest.mark.parametrize("pitch_deg", [20.0, 35.0, 60.0])
def test_a_camera_that_looks_down_gets_its_focal_length(pitch_deg: float) -> None:
    scene = scene_of(pitch_deg, focal_px=1100.0, roll_deg=4.0)
    found = estimate_camera(tracked(scene, 850.0), PRIOR)
    assert np.exp(found.log_focal) * 850.0 == pytest.approx(1100.0, rel=0.05)
    assert found.std("log_focal") < 0.06
    assert max(map(abs, errors(scene, 850.0, found).values())) < 3.0
    assert found.impacts >= 1


def test_gravity_comes_out_of_the_size() -> None:
    scene = scene_of(25.0)
    free = estimate_camera(tracked(scene, 900.0), replace(OPEN, log_focal_std=0.0))
    assert abs(np.log(free.gravity / 9.81)) < 3.0 * np.hypot(free.std("log_gravity"), SIZE_STD)
    assert free.std("log_gravity") < 0.02
    larger = estimate_camera(tracked(scene, 900.0, size_error=np.log(1.2)), replace(OPEN, log_focal_std=0.0))
    assert larger.gravity / free.gravity == pytest.approx(1.2, rel=0.02)


def test_a_level_camera_keeps_the_prior_of_its_focal_length() -> None:
    scene = scene_of(0.0)
    found = estimate_camera(tracked(scene, 850.0), PRIOR)
    assert found.std("log_focal") == pytest.approx(0.3, rel=0.1)
    assert abs(errors(scene, 850.0, found)["pitch"]) < 3.0
    assert np.degrees(found.pitch[1]) < 4.0


def test_without_a_fall_the_camera_is_level_by_assumption() -> None:
    world, times = path(lambda t: np.stack([0.5 * t, 0 * t, 0.033 + 0 * t], axis=1))
    found = estimate_camera(tracked(seen_by(world, times, pitch_deg=20.0), 850.0), PRIOR)
    assert found.flights is None
    assert found.down.tolist() == [0.0, 1.0, 0.0]
    assert np.degrees(found.pitch[1]) == pytest.approx(15.0)
    assert found.std("log_focal") == 0.3


def test_impacts_on_a_step_are_not_one_ground() -> None:
    """The ball falls on a table and from there to the floor: 0.3 m apart, with the velocity of a bounce."""
    world, up, step = bouncing(TIMES, 0.5, (0.2, 0.1), 0.6), 1.5, 0.3
    top = int(np.argmin(world[:30, 2]))
    after, lands = TIMES[top + 1 :] - TIMES[top], (up + np.sqrt(up**2 + 2 * 9.81 * step)) / 9.81
    again = 0.5 * (9.81 * lands - up)
    falls = up * after - 4.905 * after**2
    rises = -step + again * (after - lands) - 4.905 * (after - lands) ** 2
    world[top + 1 :, 2] = world[top, 2] + np.where(after < lands, falls, rises)
    scene = seen_by(world, TIMES, pitch_deg=25.0)
    found = estimate_camera(tracked(scene, 900.0, size_px=0.1), CameraPrior(0.01))
    assert found.flights is not None
    assert len(found.flights.impacts) == 2
    assert abs(errors(scene, 900.0, found)["pitch"]) < 3.0
    assert found.ground_m is None


def test_what_is_measured_narrows_the_rest() -> None:
    found = estimate_camera(tracked(scene_of(30.0), 900.0), PRIOR)
    board = found.known(np.eye(6)[:1], 0.003)
    assert board.std("log_focal") < 0.003
    assert board.pitch[1] < 0.9 * found.pitch[1]


def draw(seed: int) -> dict[str, float]:
    """Return the errors of a random scene: camera, focal length, size and motion by their priors."""
    rng = np.random.default_rng(seed)
    world = bouncing(TIMES, rng.uniform(0.2, 0.8), tuple(rng.uniform(-0.5, 0.5, 2)), rng.uniform(0.6, 0.9))
    camera: dict[str, float] = {"roll_deg": rng.normal(0.0, 5.0), "focal_px": 850.0 * np.exp(0.3 * rng.normal())}
    scene = seen_by(world, TIMES, pitch_deg=rng.uniform(0.0, 60.0), **camera)  # type: ignore[arg-type]
    motion = tracked(scene, 850.0, seed=seed, size_error=SIZE_STD * rng.normal())
    off = errors(scene, 850.0, estimate_camera(motion, PRIOR))
    free = estimate_camera(motion, OPEN)
    return off | {"gravity": float(np.log(free.gravity / 9.81) / np.hypot(free.std("log_gravity"), SIZE_STD))}


def covered(seeds: range) -> dict[str, Array]:
    found = [draw(seed) for seed in seeds]
    return {name: np.array([one[name] for one in found if name in one]) for name in found[0]}


@pytest.mark.slow
def test_few_random_scenes_stay_within_their_intervals() -> None:
    """One of six is beyond three standard deviations once in 60 times."""
    assert max(np.abs(values).max() for values in covered(range(6)).values()) < 3.0


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    """A binomial with p = 0.95 and n = 100 is below 88 once in 250 times."""
    for name, values in covered(range(100, 200)).items():
        assert (np.abs(values) < 1.96).mean() > 0.88, name
