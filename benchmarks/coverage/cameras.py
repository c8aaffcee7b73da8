"""Random falls before a camera of which nothing is known: its focal length and how far it looks down.

A tracker with a nominal focal length has right places across the sight line, and depths that are as wrong as that
focal length. Poses are therefore drawn as such a tracker gives them, with its errors; it tracks again by the focal
length that the fall shows. The size of the body errs, too. The focal length is drawn from its prior.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import Case, box
from benchmarks.coverage.free_fall import Fall
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.identify.estimated_camera import size_std, with_estimated_camera, with_fitted_camera
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.system_choice import filmed_system
from vid2phys.geometry import look_at, looking, make_transform, matrix_from_rotvec, quat_normalize
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.focal_length import focal_prior, pinhole_camera
from vid2phys.tracking.track import Track
from vid2phys.types import Array, Camera, Clip, Estimate

_FPS, _WIDTH, _HEIGHT = 60.0, 640, 360
_PITCH_DEG, _ROLL_DEG = (5.0, 50.0), 2.0  # by how much cameras look down; standard deviation of their roll


def case(seed: int) -> Case:
    """Return the fit of a random fall of a cube before an unknown camera."""
    rng = np.random.default_rng([seed, 77])
    side, count = float(rng.uniform(0.04, 0.15)), int(rng.integers(25, 55))
    times, velocity = np.arange(count) / _FPS, rng.normal(0.0, 0.7, 3)
    velocity[2] += 0.5 * times[-1] * 9.81
    start = np.zeros(3), quat_normalize(rng.normal(size=4))
    states = Fall(start, velocity, rng.normal(0.0, 4.0, 3), 9.81).states(times)
    blank = Clip(ArrayFrames(np.zeros((count, _HEIGHT, _WIDTH, 3), np.uint8)), times, _WIDTH, _HEIGHT, "drawn")
    prior = focal_prior(blank.name, blank)
    level = make_transform(looking(np.array([0.0, 1.0, 0.0])), np.zeros(3))
    nominal = replace(pinhole_camera(blank, prior.pixels), camera_to_world=level)
    mesh = box(np.full(3, side))
    inputs = replace(rigid.read(filmed_system("rigid_contact", mesh, None), mesh, nominal, times, (), {}), focal=prior)
    focal_px = prior.pixels * float(np.exp(prior.log_std * rng.normal()))
    pitch = float(np.radians(rng.uniform(*_PITCH_DEG)))
    camera = _camera(rng, focal_px, states[:, :3], side, pitch)

    def track(inputs: Inputs) -> tuple[Inputs, Track]:
        true = rigid.in_camera(replace(inputs, camera_to_world=np.asarray(camera.camera_to_world)), states)
        seen = true.moved_along_sight(np.array([1.0, 1.0, inputs.camera.K[0, 0] / focal_px]))
        of_size = size_std(mesh.radius_m, true.translation, focal_px)
        return inputs, rigid.seen(np.random.default_rng([seed, 78]), times, seen, of_size)

    options = FitOptions(fit=(), refine=False)
    inputs, found = with_estimated_camera(inputs, track(inputs), options, track)
    _, result = with_fitted_camera(inputs, pipeline.solve([inputs], [found], options))
    report: Any = result.diagnostics["camera_estimate"]
    truth = {"focal_px": focal_px, "pitch_deg": float(np.degrees(pitch))}
    estimates = {name: Estimate(name, "", report[name]["value"], tuple(report[name]["ci95"]), True) for name in truth}
    return replace(Case.of(result, truth), found=estimates)


def _camera(rng: np.random.Generator, focal_px: float, places: Array, side_m: float, pitch_rad: float) -> Camera:
    """Return a camera that looks at places [T, 3] m from above, and rolls a little."""
    K = np.array([[focal_px, 0.0, 0.5 * (_WIDTH - 1)], [0.0, focal_px, 0.5 * (_HEIGHT - 1)], [0.0, 0.0, 1.0]])
    middle, reach = 0.5 * (places.min(axis=0) + places.max(axis=0)), np.ptp(places, axis=0).max() + 2.0 * side_m
    far = float(rng.uniform(1.0, 1.6)) * reach * focal_px / _HEIGHT + 0.5 * reach
    away = np.array([0.0, -np.cos(pitch_rad), np.sin(pitch_rad)])
    pose = look_at(middle + far * away, middle)
    pose[:3, :3] = pose[:3, :3] @ matrix_from_rotvec(np.array([0.0, 0.0, np.radians(_ROLL_DEG * rng.normal())]))
    return Camera(K, _WIDTH, _HEIGHT, camera_to_world=pose)
