"""Random bars on a hinge: length to the centre of mass, damping, and g, from angles with a tracker's errors.

The truth is SciPy's. Angles err in each frame, for some frames, and with the vertical for the whole clip; the length
that the mesh shows errs, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.coverage.cases import Case, box
from vid2phys.commands.identify import pipeline
from vid2phys.commands.identify.config import FitOptions
from vid2phys.commands.identify.hinges import FittedHinge, on_hinge
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.commands.priors import Priors
from vid2phys.engine import systems
from vid2phys.engine.movable.hinged import Hanging, HingedBody, Swinging, as_hung
from vid2phys.geometry import Pose, look_at
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.io.mesh import mass_properties
from vid2phys.solvers.gauss_markov import draw_first_order
from vid2phys.tracking.articulated.silhouette_tracker import observation_of_nothing
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.types import Array, Camera, Clip, ConfigurationMeasurement, Mesh, Result

FIT = ("length", "damping")
_FPS, _FRAMES = 60.0, 150
_STD_RAD, _OWN_SHARE, _CORRELATION_S, _VERTICAL_RAD, _LASTING_S = np.radians(0.3), 0.5, 0.15, 0.005, 1e9
_LENGTH_STD_M = 5e-4  # of the hinge's place in the mesh


def case(seed: int, fit: tuple[str, ...] = FIT) -> Case:
    """Return the fit of a random swing."""
    rng = np.random.default_rng([seed, 72])
    sides = np.array([rng.uniform(0.15, 0.5), rng.uniform(0.02, 0.05), rng.uniform(0.01, 0.04)])
    mesh = box(sides)
    properties, mass = mass_properties(mesh), float(np.exp(rng.uniform(np.log(0.05), np.log(1.0))))
    length, inertia = float(rng.uniform(0.15, 0.45) * sides[0]), mass * float(properties.inertia_per_mass[1, 1])
    about = mass * length**2 + inertia
    damping = about * float(np.exp(rng.uniform(np.log(0.1), np.log(1.5))))
    times = np.arange(_FRAMES) / _FPS
    begin = rng.choice([-1.0, 1.0]) * rng.uniform(0.4, 1.6), rng.normal(0.0, 1.0)
    found = solve_ivp(
        lambda _, s: [s[1], -(damping * s[1] + mass * 9.81 * length * np.sin(s[0])) / about],
        *((0.0, times[-1]), begin),
        t_eval=times,
        rtol=1e-10,
        atol=1e-12,
    )
    hinged = mesh, length, mass, about - mass * length**2
    result = _identified(rng, hinged, times, found.y[0], fit)
    truth = {"length": length, "damping": damping, "gravity": 9.81}
    return Case.of(result, {name: truth[name] for name in fit})


def _identified(
    rng: np.random.Generator,
    hinged: tuple[Mesh, float, float, float],
    times: Array,
    angles: Array,
    fit: tuple[str, ...],
) -> Result:
    """Return what `identify` makes of true angles [T] once the hinge is fitted.

    hinged: the mesh, its length to the centre of mass, its mass, and its inertia about the axis through that.
    """
    mesh, length, mass, inertia = hinged
    off = float(_LENGTH_STD_M * rng.normal())
    axes = Pose(np.eye(3), np.array([0.0, 0.0, 0.3]))
    hanging = Hanging(axes, length + off, 0.0, 0.0)
    covariance = np.diag([1e-6, 1e-6, 1e-6, 1e-7, 1e-7, 1e-7, _LENGTH_STD_M**2, 1e-6, 1e-6])
    system = systems.get("pendulum")
    assert isinstance(system, Swinging)
    properties = mass_properties(mesh)
    on = on_hinge(systems.get("pendulum"), properties, {"mass": mass, "inertia": inertia}, fit, Priors())
    placed = system.placed(axes)
    down = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])  # the bar's x is down
    at = Pose(down, axes.translation - np.array([0.0, 0.0, length]))
    hung = replace(mesh, vertices=as_hung(mesh.vertices, at, hanging))
    body = HingedBody(placed, hung, hung.vertices)
    camera = Camera(
        np.array([[700.0, 0.0, 319.5], [0.0, 700.0, 239.5], [0.0, 0.0, 1.0]]),
        *(640, 480),
        camera_to_world=look_at(np.array([0.3, -1.5, 0.4]), axes.translation),
    )
    clip = Clip(ArrayFrames(np.zeros((len(times), 480, 640, 3), np.uint8)), times, 640, 480, "drawn")
    hinge = FittedHinge(hanging, covariance)
    inputs = Inputs(
        *(clip, hung, camera, np.asarray(camera.camera_to_world, float), placed, None, None),
        *(on.known(hinge, np.array([0.0, 1.0, 0.0])), ()),
        body=body,
        on_hinge=replace(on, fitted=hinge),
    )
    return pipeline.solve([inputs], [_tracked(rng, times, angles, body)], FitOptions(fit=fit, refine=False))


def _tracked(rng: np.random.Generator, times: Array, true: Array, body: HingedBody) -> ConfigurationTrack:
    """Return the track of true angles [T], with the errors that `commands.identify.hinges` states."""
    count, correlation_s = len(times), np.array([_CORRELATION_S, _LASTING_S])
    basis = np.tile(np.array([[_STD_RAD, _VERTICAL_RAD]]), (count, 1, 1))
    own = np.full((count, 1, 1), (_OWN_SHARE * _STD_RAD) ** 2)
    errors = (basis[:, 0] * draw_first_order(rng, times, correlation_s)).sum(axis=1)
    angles = true + errors + _OWN_SHARE * _STD_RAD * rng.normal(size=count)
    seen = np.ones(count, bool)
    measured = ConfigurationMeasurement(angles[:, None], own, basis, correlation_s, seen, "hinge")
    nothing = observation_of_nothing(times, body, correlation_s)
    observation = nothing.with_configurations(np.arange(count), measured)
    covariance = own + (basis[:, 0] ** 2).sum(axis=1)[:, None, None]
    return ConfigurationTrack(observation, angles[:, None], covariance, seen, np.ones(count), ())
