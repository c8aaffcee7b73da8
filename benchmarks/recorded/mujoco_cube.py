"""The cube in MuJoCo, by the same search on the same tosses: what another engine's contact makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco import rollout

from benchmarks.recorded.contact_fit import Toss, misses
from benchmarks.recorded.cross_entropy import Found, search
from vid2phys.types import Array

STEPS = 10  # of MuJoCo in a frame of the recording
# sliding friction, time constant [s] and damping ratio of the contact's spring, friction's stiffness over the normal's
NAMES = ("mu", "time_constant_s", "damping_ratio", "impratio")
LOWER, UPPER = np.log([0.01, 0.0015, 0.05, 0.1]), np.log([2.0, 0.05, 5.0, 100.0])
CENTRE, SPREAD = np.log([0.3, 0.006, 0.7, 1.0]), np.array([0.6, 0.6, 0.5, 1.0])
_SCENE = """<mujoco><option timestep="{step}" gravity="0 0 -{gravity}" cone="elliptic"/><worldbody>
  <geom type="plane" size="5 5 1"/><body><freejoint/>
    <inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
    <geom type="box" size="{half} {half} {half}"/></body></worldbody></mujoco>"""


class Cube:
    """A cube of half side [m], mass [kg] and moment of inertia [kg m^2] on the plane z = 0."""

    def __init__(self, half: float, mass: float, inertia: float, gravity: float, rate_hz: float) -> None:
        scene = _SCENE.format(step=1.0 / rate_hz / STEPS, half=half, mass=mass, inertia=inertia, gravity=gravity)
        self.model = mujoco.MjModel.from_xml_string(scene)
        self.data = mujoco.MjData(self.model)

    def predict(self, sample: Array, starts: Array, frames: int) -> Array:
        """Return the states [1, G, frames, 13] in our layout from first states [G, 13]."""
        mu, time_constant, ratio, impratio = np.exp(sample)
        self.model.geom_friction[:, 0] = mu
        self.model.geom_solref[:] = time_constant, ratio
        self.model.opt.impratio = impratio
        first = np.zeros((len(starts), mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        first[:, 1:14] = starts
        states, _ = rollout.rollout(self.model, self.data, first, nstep=STEPS * (frames - 1))
        return np.concatenate([first[:, None, 1:14], states[:, STEPS - 1 :: STEPS, 1:14]], axis=1)[None]

    def fit(self, tosses: Sequence[Toss], starts: Array, *, size: int, generations: int) -> Found:
        """Return the friction and the contact's spring, in logarithms."""
        frames = max(len(toss.times_s) for toss in tosses)

        def costs(samples: Array) -> Array:
            return np.concatenate([misses(self.predict(sample, starts, frames), tosses) for sample in samples])

        rng = np.random.default_rng(0)
        return search(costs, CENTRE, SPREAD, LOWER, UPPER, rng, size=size, generations=generations)
