"""Random soft bars in a clamp: Young's modulus and damping, from amplitudes of modes with a tracker's errors.

A bar is flicked and let go. The truth moves on a mesh twice as fine as the user's, with the stiffness and viscosity of
a bar without a mesh (`elastic_bar`). Errors have the covariance of contours, seen from a
random side: motion towards the camera is hardly seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage.cases import Case
from benchmarks.coverage.elastic_bar import lowest_vibration
from vid2phys.commands.fit_parameters import articulated_parameters
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.identify.soft_bodies import mesh_to_fit
from vid2phys.commands.priors import Priors
from vid2phys.engine.movable.clamped import ClampedBody, reduced_body
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets
from vid2phys.engine.vibration import Vibration, vibration
from vid2phys.errors import SimulationError
from vid2phys.geometry import look_at, matrix_from_quat, quat_from_rotvec
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.tracking.articulated.contour import PlacedBody
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.silhouette_fit import DEFAULTS as FRAME_FIT
from vid2phys.tracking.articulated.silhouette_search import coordinate_units
from vid2phys.tracking.articulated.silhouette_tracker import DEFAULTS, VIEW_PX, observation_of_nothing
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.cues.contour_config import DEFAULTS as CONTOUR
from vid2phys.tracking.cues.occluding_contour import occluding_contour
from vid2phys.tracking.cues.silhouette import draw
from vid2phys.types import Array, Camera, Clip, ConfigurationMeasurement, Status

FIT = ("young_modulus", "damping")
FPS, FRAMES, _SUBSTEPS = 60.0, 60, 6
_CELLS = ((8, 1, 1), (10, 1, 1))
_HANGS = 1.566  # tip of a level bar under its weight, in units of g over the square of its rate
_LINE_STD_PX = (0.1, 0.4)  # of a line across the contour, with adjacent ones that err alike
_FOCAL_PX, _WIDTH, _HEIGHT = 860.0, 480, 360


@dataclass(frozen=True)
class Bar:
    """A bar and its motion.

    Attributes:
        size_m: [3] length, width and thickness.
        level: vertices [V, 3] m and tets [T, 4] of the user's mesh along x, y and z.
        tilt_rad: of the bar about y.
        body: that mesh, tilted and held.
        fine: the body that moves.
        given: parameters that the user knows.
        truth: E and damping.
        states: [T, 6 V] of `fine`.
    """

    size_m: Array
    level: tuple[Array, NDArray[np.int64]]
    tilt_rad: float
    body: SoftBody
    fine: SoftBody
    given: dict[str, float]
    truth: dict[str, float]
    states: Array


def random_bar(rng: np.random.Generator) -> Bar:
    """Return a random bar that is flicked and let go."""
    size = np.array([rng.uniform(0.1, 0.2), rng.uniform(0.014, 0.03), rng.uniform(0.008, 0.014)])
    given = {"poisson_ratio": float(rng.uniform(0.3, 0.47)), "density": float(rng.uniform(900.0, 1300.0))}
    cells, tilt = _CELLS[int(rng.integers(len(_CELLS)))], float(np.radians(rng.uniform(-50.0, 50.0)))
    level = box_tets((float(size[0]), float(size[1]), float(size[2])), cells)
    bar = _bar(*level, tilt)
    parameters = bar.parameters().with_values(given).vector
    fine = bar.refined()
    found = vibration(fine, parameters, 2)
    square, decay = lowest_vibration(size, given["poisson_ratio"], given["density"])
    rate = np.sqrt(2.0 * _HANGS * 9.81 / (rng.uniform(0.1, 0.5) * size[0]))
    dies = rate * float(np.exp(rng.uniform(np.log(0.005), np.log(0.06))))
    values = {"young_modulus": rate**2 / found.squares[0], "damping": dies / found.decays[0]}
    truth = {"young_modulus": float(rate**2 / square), "damping": dies / decay}
    flick = 0.1 * size[0] * rate * rng.normal(size=2) * [1.0, 0.2]
    return Bar(size, level, tilt, bar, fine, given, truth, _moved(fine, found, given | values, flick))


def case(seed: int) -> Case:
    """Return the fit of a random bar."""
    rng = np.random.default_rng([seed, 75])
    bar = random_bar(rng)
    parameters = bar.body.parameters().with_values(bar.given).vector
    system, mesh, note = mesh_to_fit(bar.body, parameters)
    body = ClampedBody(reduced_body(system, parameters, mesh))
    states = _part(bar.fine, system, bar.states)
    exact = body.nearest_states(states, np.zeros((len(states), len(body.names))))
    camera = _camera(rng, bar)
    times = np.arange(FRAMES) / FPS
    track = _tracked(rng, times, exact[:, : len(body.names)], body, camera)
    clip = Clip(ArrayFrames(np.zeros((FRAMES, _HEIGHT, _WIDTH, 3), np.uint8)), times, _WIDTH, _HEIGHT, "drawn")
    known = articulated_parameters(body.system, bar.given, FIT, Priors())
    to_world = np.asarray(camera.camera_to_world, float)
    inputs = Inputs(clip, body.mesh, camera, to_world, body.system, None, None, known, (note,), body)
    try:
        return Case.of(pipeline.solve([inputs], [track], FitOptions(fit=FIT, refine=False)), bar.truth)
    except SimulationError:
        return Case(bar.truth, {}, Status.NOT_CONVERGED)


def _bar(vertices: Array, tets: NDArray[np.int64], tilt_rad: float) -> SoftBody:
    """Return a bar along x whose face at x = 0 is held, tilted about y."""
    bar = SoftBody(vertices, tets, pinned=np.flatnonzero(vertices[:, 0] == 0.0))
    return bar.placed(matrix_from_quat(quat_from_rotvec(np.array([0.0, tilt_rad, 0.0]))), np.zeros(3))


def _moved(body: SoftBody, found: Vibration, values: dict[str, float], flick_m_s: Array) -> Array:
    """Return states [T, 6 V] of a bar that begins in its shape at rest, with rates of its two lowest modes."""
    begin = body.state(body.rest_m, np.einsum("d,dvx->vx", flick_m_s, found.modes))
    controls = np.zeros((1, FRAMES - 1, len(body.control_names)))
    parameters = body.parameters().with_values(values).vector
    return simulate(body, begin[None], controls, parameters, 1.0 / FPS, substeps=_SUBSTEPS)[0]


def _part(fine: SoftBody, body: SoftBody, states: Array) -> Array:
    """Return the states of a mesh of which `fine` is the refinement; its vertices are the first ones."""
    count = len(body.rest_m)
    assert np.allclose(fine.rest_m[:count], body.rest_m)
    return body.state(fine.positions(states)[:, :count], fine.velocities(states)[:, :count])


def _camera(rng: np.random.Generator, bar: Bar) -> Camera:
    """Return a camera that looks at the bar from a side, across the plane in which it swings or nearly so."""
    length_m = float(bar.size_m[0])
    middle = bar.body.rest_m.mean(axis=0) - np.array([0.0, 0.0, 0.15 * length_m])
    away = random_side(rng)
    place = middle + float(rng.uniform(3.0, 6.0)) * length_m * away
    K = np.array([[_FOCAL_PX, 0.0, 239.5], [0.0, _FOCAL_PX, 179.5], [0.0, 0.0, 1.0]])
    return Camera(K, _WIDTH, _HEIGHT, camera_to_world=look_at(place, middle))


def random_side(rng: np.random.Generator) -> Array:
    """Return a direction [3] across the plane in which bars swing, or nearly so."""
    turn = rng.normal(0.0, 0.25, 2)
    return np.array([np.sin(turn[0]), -np.cos(turn[0]), np.sin(turn[1])])


def _covariance(rng: np.random.Generator, body: ClampedBody, camera: Camera, configuration: Array) -> Array:
    """Return the covariance [D, D] of amplitudes that lines across the contour measure, each to half a pixel or so."""
    window = Window.of(camera, body, VIEW_PX)
    placed = PlacedBody(body, window.camera_from_base, configuration)
    drawing = draw(placed.vertices(), body.mesh.faces)
    assert drawing is not None
    contour = occluding_contour(drawing, window.camera)
    assert contour is not None
    slopes = placed.slopes(contour.points, contour.along) / float(rng.uniform(*_LINE_STD_PX))
    information = slopes.T @ slopes / CONTOUR.overconfidence + np.diag(
        (FRAME_FIT.contour_std * coordinate_units(body)) ** -2.0
    )
    return np.asarray(DEFAULTS.error_scale**2 * np.linalg.inv(information))


def _tracked(
    rng: np.random.Generator, times: Array, true: Array, body: ClampedBody, camera: Camera
) -> ConfigurationTrack:
    """Return the track of true amplitudes [T, D], with errors as `silhouette_tracker` states them."""
    count, size = true.shape
    covariance = _covariance(rng, body, camera, true[count // 2])
    columns, correlation_s = np.linalg.cholesky(covariance), np.full(size, DEFAULTS.correlation_s)
    share, seen = DEFAULTS.independent_share, np.ones(count, bool)
    errors = draw_first_order(rng, times, correlation_s) + share * rng.normal(size=true.shape)
    at = true + errors @ columns.T
    own, basis = np.tile(share**2 * covariance, (count, 1, 1)), np.tile(columns, (count, 1, 1))
    measured = ConfigurationMeasurement(at, own, basis, correlation_s, seen, "silhouette")
    nothing = observation_of_nothing(times, body, correlation_s)
    observation = nothing.with_configurations(np.arange(count), measured)
    return ConfigurationTrack(observation, at, np.tile(covariance, (count, 1, 1)), seen, np.ones(count), ())
