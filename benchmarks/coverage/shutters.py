"""Random falls before a rolling shutter: the readout, and g by the rows, from poses with errors and drawn frames.

The readout is fitted to edges, so that frames are drawn: each vertex of a fine mesh is where the true motion has it
when its row is exposed. The track has a tracker's errors about the pose at the time of the origin's row. The user's
mesh errs in size as contours do, since g is fitted with the size unknown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import trimesh
from numpy.typing import NDArray

from benchmarks.coverage import rigid
from benchmarks.coverage.cases import Case, box
from benchmarks.coverage.free_fall import Fall
from vid2phys.commands import film
from vid2phys.commands.fit_parameters import size_std
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.identify.readout import READOUT, with_fitted_readout, with_row_times
from vid2phys.commands.system_choice import filmed_system
from vid2phys.engine.observe import project
from vid2phys.engine.pose_geometry import diameter_px
from vid2phys.engine.rolling_shutter import row_delay
from vid2phys.geometry import (
    invert_transform,
    matrix_from_quat,
    quat_normalize,
    transform_points,
)
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.texture import SurfaceColors
from vid2phys.types import Array, Camera, Mesh

FIT = ("gravity",)
_FPS = 30.0
_ROUNDS = 8  # in which the row of a vertex and its time meet
_PIECES = 3  # bisections of a side: straight edges are bent in the frame


def case(seed: int) -> Case:
    """Return the fit of a random fall of a cube."""
    rng = np.random.default_rng([seed, 76])
    side, count = float(rng.uniform(0.08, 0.15)), int(rng.integers(14, 26))
    fall = Fall(
        (np.array([0.0, 0.0, 1.0]), quat_normalize(rng.normal(size=4))),
        rng.normal(0.0, 0.7, 3) + np.array([0.0, 0.0, 0.5 * count / _FPS * 9.8]),
        rng.normal(0.0, 4.0, 3),
        float(rng.uniform(9.7, 9.9)),
    )
    times = np.arange(count) / _FPS
    readout_s = float(rng.uniform(0.15, 0.9)) / _FPS
    camera = replace(_camera(rng, fall.states(times)[:, :3], side), readout_s=readout_s)
    mesh = box(np.full(3, side))
    eye = np.asarray(camera.camera_to_world)[:3, 3]
    std = size_std(diameter_px(float(camera.K[0, 0]), mesh.radius_m, fall.states(times)[:, :3] - eye))
    given = box(np.full(3, side * np.exp(std * rng.normal())))
    rows = _row_times(camera, fall, times, np.zeros((1, 3)))[:, 0]
    system = filmed_system("rigid_contact", given, None, FIT)
    inputs = rigid.read(system, given, replace(camera, readout_s=0.0), times, FIT, {})
    track = rigid.seen(rng, times, rigid.in_camera(inputs, fall.states(rows)))
    frames = ArrayFrames(_frames(rng, camera, mesh, fall, times))
    inputs = replace(inputs, clip=replace(inputs.clip, frames=frames), fits_readout=True)
    inputs, track = with_row_times(inputs, track)
    result = pipeline.solve([inputs], [track], FitOptions(fit=FIT, refine=False))
    return Case.of(with_fitted_readout(result, inputs), {READOUT: readout_s, "gravity": fall.gravity})


def _camera(rng: np.random.Generator, places: Array, side_m: float) -> Camera:
    """Return a camera that sees all places [T, 3] of the body, from a random side."""
    middle, reach = 0.5 * (places.min(axis=0) + places.max(axis=0)), np.ptp(places, axis=0).max() + 2.0 * side_m
    around, up = rng.uniform(-np.pi, np.pi), rng.uniform(-0.2, 0.4)
    far = float(rng.uniform(1.5, 2.2)) * reach
    return rigid.camera_at(middle + far * np.array([np.cos(around), np.sin(around), up]), middle)


def _row_times(camera: Camera, fall: Fall, times_s: Array, points_body: Array) -> Array:
    """Return when frames at times [T] show points [K, 3] of the body, [T, K] s."""
    rows = np.tile(times_s[:, None], (1, len(points_body)))
    for _ in range(_ROUNDS):
        rows = times_s[:, None] + row_delay(camera, project(camera, _in_camera(camera, fall, rows, points_body)))
    return rows


def _in_world(fall: Fall, rows_s: Array, points_body: Array) -> Array:
    """Return points [K, 3] of the body in the world at times [T, K], each at its own, [T, K, 3] m."""
    states = fall.states(rows_s)
    return np.asarray(states[..., :3] + (matrix_from_quat(states[..., 3:7]) @ points_body[..., None])[..., 0])


def _in_camera(camera: Camera, fall: Fall, rows_s: Array, points_body: Array) -> Array:
    return transform_points(invert_transform(np.asarray(camera.camera_to_world)), _in_world(fall, rows_s, points_body))


def _frames(rng: np.random.Generator, camera: Camera, mesh: Mesh, fall: Fall, times_s: Array) -> NDArray[np.uint8]:
    """Return frames [T, H, W, 3] of the body before a chequered floor and a sky, with noise."""
    vertices, faces = np.asarray(mesh.vertices), np.asarray(mesh.faces)
    for _ in range(_PIECES):
        vertices, faces = trimesh.remesh.subdivide(vertices, faces)
    fine = replace(mesh, vertices=vertices, faces=faces, part=np.zeros(len(faces), np.int64))
    shown = _in_world(fall, _row_times(camera, fall, times_s, vertices), vertices)
    background = film.backdrop(camera, float(shown[..., 2].min()) - 0.3, 0.25)
    plain, colors = film.encode(background), SurfaceColors(fine)
    frames = np.stack([film.draw(each, fine, camera, background, plain, colors)[0] for each in shown])
    noise = float(rng.uniform(1.0, 4.0)) * rng.normal(size=frames.shape)
    return np.clip(np.round(frames + noise), 0, 255).astype(np.uint8)
