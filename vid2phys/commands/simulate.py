"""`vid2phys simulate`: roll a system out in time, and film it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vid2phys.commands.configs import SimulateConfig
from vid2phys.commands.options import taking
from vid2phys.commands.progress import Progress, silent
from vid2phys.commands.simulation_inputs import Inputs, read_inputs
from vid2phys.errors import UsageError

if TYPE_CHECKING:
    from vid2phys.engine.system import Integrator, System
    from vid2phys.types import Actions, Array, Parameters, Trajectory

_REST_SHARE = 0.5  # of the longest stable step: it holds near rest, and a motion takes the system elsewhere
COARSE = 0.01  # share of the motion by which halving the step may change it without a note
_CHECKED_STATES, _CHECKED_STEPS = 100, 20_000  # what is simulated a second time with half the step: a second or two
_SAME_TIME = 1e-6  # of 1 / rate: times as near as this are one
_ROUNDING = 1e-9  # of the size of the states: smaller motions are none


@dataclass(frozen=True)
class Simulation:
    """What was simulated. actions: those used, one an interval of the trajectory; integrated in `substeps` steps each.

    step_change: by how much halving the steps changes the states, at most, as a share of their largest motion (norms
    over all coordinates); None where finding out would take long. notes: what a reader must know. frames,
    frames_in_view: of the clip, zero without one.
    """

    system: System
    parameters: Parameters
    trajectory: Trajectory
    actions: Actions
    integrator: Integrator
    substeps: int
    step_change: float | None
    notes: tuple[str, ...]
    frames: int = 0
    frames_in_view: int = 0


@taking(SimulateConfig, "system")
def simulate(config: SimulateConfig, progress: Progress = silent) -> tuple[Simulation, Path]:
    """Roll a system out and write a run folder: trajectory, the actions used and, with a camera, a clip.

    The options are those of `SimulateConfig`: a config, or its fields as arguments. Without `actions` nothing drives
    the system, with `hold` what holds it at rest (`hover_controls`).

    Returns:
        The simulation and the run folder.

    Raises:
        Vid2PhysError: for anything that a user can mend.
    """
    from vid2phys.commands.config import write_config
    from vid2phys.commands.film import write_clip
    from vid2phys.io.actions import save_actions
    from vid2phys.io.recordings import save_trajectory
    from vid2phys.io.run import new_run

    progress("reading inputs")
    inputs = read_inputs(config)
    with new_run("simulate", config.out) as folder:
        simulation = roll_out(inputs, config.rate, progress)
        write_config(folder / "config.yaml", replace(config, seconds=inputs.seconds, out=None))
        save_trajectory(simulation.trajectory, folder / "trajectory.csv", inputs.system.control_names)
        if inputs.actions.names:
            save_actions(simulation.actions, folder / "actions.csv")
        if inputs.mesh is not None and inputs.camera is not None:
            scene = inputs.system, simulation.trajectory, inputs.mesh, inputs.camera
            frames, seen = write_clip(folder / "clip.mp4", *scene, float(config.fps), progress)
            simulation = replace(simulation, frames=frames, frames_in_view=seen)
            if not seen:
                note = "the body is in no frame of the clip: check --camera and the position of --initial"
                simulation = replace(simulation, notes=(*simulation.notes, note))
    return simulation, folder


def roll_out(inputs: Inputs, rate: float, progress: Progress = silent) -> Simulation:
    """Integrate. Raises UsageError for a step that is too long, SimulationError for states that do not stay finite."""
    from vid2phys.engine.rollout import simulate as integrate
    from vid2phys.types import Trajectory

    system, parameters = inputs.system, inputs.parameters.vector
    times_s = timeline(inputs.seconds, rate, inputs.actions.times_s)
    controls, dt_s = held_controls(inputs, times_s[:-1] + _SAME_TIME / rate), np.diff(times_s)
    substeps = _substeps(inputs, float(dt_s.max()))

    def states_with(count: int) -> Array:
        given = inputs.initial[None], controls[None], parameters, dt_s
        return integrate(system, *given, integrator=inputs.integrator, substeps=count)[0]

    progress(f"simulating, {len(dt_s) * substeps} steps")
    states, change = states_with(substeps), None
    if len(inputs.initial) <= _CHECKED_STATES and len(dt_s) * substeps <= _CHECKED_STEPS:
        change = _largest_change(system, states, states_with(2 * substeps))
    used = replace(inputs.actions, times_s=times_s[:-1], values=controls[:, : len(system.action_names)])
    trajectory = Trajectory(times_s, states, system.state_names, controls)
    notes = _notes(inputs, change, float(dt_s.max()) / substeps)
    return Simulation(system, inputs.parameters, trajectory, used, inputs.integrator, substeps, change, notes)


def timeline(seconds: float, rate: float, changes_s: Array) -> Array:
    """Times [s] from 0 to `seconds`: every 1 / rate, and where an action changes."""
    grid = np.arange(int(np.floor(seconds * rate + _SAME_TIME)) + 1) / rate
    changes_s = changes_s[(changes_s > 0.0) & (changes_s < seconds)]
    times = np.sort(np.concatenate([grid, changes_s, [seconds]]))
    return times[np.concatenate([[True], np.diff(times) > _SAME_TIME / rate])]


def held_controls(inputs: Inputs, times_s: Array) -> Array:
    """Controls [T, M] at times [T]: the last action that has begun; disturbances are zero."""
    begun = np.maximum(np.searchsorted(inputs.actions.times_s, times_s, side="right") - 1, 0)
    controls = np.zeros((len(times_s), len(inputs.system.control_names)))
    controls[:, : len(inputs.system.action_names)] = inputs.actions.values[begun]
    return controls


def _substeps(inputs: Inputs, interval_s: float) -> int:
    """Steps an interval: as asked for, else so many that explicit integrators are stable with room."""
    from vid2phys.engine.system import is_implicit

    longest = np.inf
    if not is_implicit(inputs.integrator):
        longest = inputs.system.longest_step_s(inputs.parameters.vector)
    if inputs.step_s is not None and min(inputs.step_s, interval_s) > longest:
        got = f"--step {inputs.step_s:g} s of '{inputs.system.name}'"
        raise UsageError(got, f"at most {longest:.3g} s with {inputs.integrator}", "lower it, or leave it out")
    step_s = _REST_SHARE * longest if inputs.step_s is None else inputs.step_s
    return max(1, int(np.ceil(interval_s / step_s - _SAME_TIME)))


def _largest_change(system: System, states: Array, finer: Array) -> float | None:
    """See `Simulation.step_change`."""
    with np.errstate(over="ignore", invalid="ignore"):
        motion = np.linalg.norm(system.local(states[0], states), axis=1).max()
        change = np.linalg.norm(system.local(states, finer), axis=1).max()
        share = change / max(motion, _ROUNDING * max(1.0, float(np.abs(states).max())))
    return float(share) if np.isfinite(share) else None


def _notes(inputs: Inputs, change: float | None, step_s: float) -> tuple[str, ...]:
    from vid2phys.commands.fit_parameters import INERTIA

    notes = list(inputs.notes)
    if change is not None and change > COARSE:
        notes.append(f"halving the step changes the motion by up to {change:.1%}; try --step {step_s / 10:.2g}")
    source = {p.name: p.source for p in inputs.parameters}
    from_mesh, default = ([name for name in INERTIA if source.get(name) == s] for s in ("mesh", "default"))
    if source.get("mass") == "default" and inputs.system.surface is not None:
        mass = inputs.parameters["mass"].value
        notes.append(f"the mass of {mass:.4g} kg is that of a density nobody gave; give it with --set mass=VALUE")
    if from_mesh:
        notes.append(f"{', '.join(from_mesh)} of the mesh at uniform density; give them with --set to do better")
    if default and source.get("mass") == "given":
        notes.append(f"{', '.join(default)} are defaults, of another mass; give them with --set")
    return tuple(notes)
