"""Constants of the papers' bodies, in SI, each with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ContactBody:
    """A rigid cube in compliant contact. k_e [N/m], k_d and k_f [N s/m] are those of one contact point."""

    side_m: float
    density_kg_m3: float
    k_e: float
    k_d: float
    k_f: float
    mu: float
    gravity_m_s2: float
    step_s: float


RISP_CUBE = ContactBody(
    side_m=0.05, density_kg_m3=300.0, k_e=1e3, k_d=0.03, k_f=1.0, mu=0.8, gravity_m_s2=9.8, step_s=5e-3
)
"""The cube of RISP (Ma et al., ICLR 2022), after the example bodies of its simulator DiffHand (Xu et al., RSS 2021).

DiffHand's numbers are read as cgs, which its gravity of -980 says: side 5 cm, density 0.3 g/cm^3, k_n = 1e6 dyn/cm,
damping 30 dyn s/cm, k_t = 1e3 dyn s/cm, mu 0.8, steps of 5 ms. That the paper used them unchanged is an assumption.
"""


@dataclass(frozen=True)
class HandBody:
    """A hand of capsules on a fixed palm; a finger is a row of phalanges, each flexed by one joint.

    phalanges_m: lengths [m] of the phalanges of each finger, from the palm outwards. radius_m: of the phalanges.
    knuckles_m: where each finger begins, palm axes. directions_rad: of each finger at rest, from +x towards +y.
    palm_m: sides of the palm, a box about the origin. armature_kg_m2: inertia of each joint's drive.
    damping [N m s/rad] of each joint. limit_rad: it turns by as much either way. stiffness [N m/rad] and torque [N m]:
    the paper's 1 and 1.
    """

    phalanges_m: tuple[tuple[float, ...], ...]
    radius_m: float
    knuckles_m: tuple[tuple[float, float, float], ...]
    directions_rad: tuple[float, ...]
    palm_m: tuple[float, float, float]
    density_kg_m3: float
    armature_kg_m2: float
    damping: float
    limit_rad: float
    stiffness: float
    torque: float
    gravity_m_s2: float
    step_s: float


RISP_HAND = HandBody(
    phalanges_m=((0.055,), (0.045, 0.028, 0.022), (0.050, 0.031, 0.023), (0.046, 0.029, 0.022), (0.036, 0.022, 0.019)),
    radius_m=0.008,
    knuckles_m=(
        (0.005, 0.042, 0.0),
        (0.045, 0.033, 0.0),
        (0.048, 0.011, 0.0),
        (0.045, -0.011, 0.0),
        (0.040, -0.033, 0.0),
    ),
    directions_rad=(0.9, 0.06, 0.02, -0.02, -0.06),
    palm_m=(0.09, 0.084, 0.022),
    density_kg_m3=1000.0,
    armature_kg_m2=2e-5,
    damping=2e-3,
    limit_rad=0.7853981633974483,
    stiffness=0.4,
    torque=0.2,
    gravity_m_s2=9.8,
    step_s=0.01,
)
"""The hand of RISP (Ma et al., ICLR 2022, appendix B): 13 revolute joints in 5 fingers, limits of +-pi/4.

The paper gives joint stiffness and torques in units that it does not name, and no sizes. Here a thumb has one joint and
four fingers have three each, of about a man's size and the density of water. Its stiffness 1 is 0.4 N m/rad and its
torque amplitude 1 is 0.2 N m, so that the paper's motion, m sin(2 pi clip((t - d) / 40, 0, 1)) with m in [0, 1] and d
in [0, 40] steps, turns a joint by about m / 2 rad at steps of 10 ms, at most by 0.68 rad. Damping and the inertia of
drives are ours too: fingers ring at 50 to 140 rad/s, damped to between a seventh and a third of critical.
"""


@dataclass(frozen=True)
class WalkerBody:
    """A body with two legs made of square cells. Stiffness [N/m], damping [N s/m], k_e, k_d, k_f as `ContactBody`."""

    cells_wide: int
    cells_tall: int
    leg_cells_wide: int
    leg_cells_tall: int
    cell_m: float
    density_kg_m2: float
    shear_stiffness: float
    area_stiffness: float
    damping: float
    k_e: float
    k_d: float
    k_f: float
    mu: float
    step_s: float


GRADSIM_WALKER = WalkerBody(
    cells_wide=9,
    cells_tall=8,
    leg_cells_wide=2,
    leg_cells_tall=4,
    cell_m=0.05,
    density_kg_m2=3.0,
    shear_stiffness=400.0,
    area_stiffness=800.0,
    damping=0.5,
    k_e=600.0,
    k_d=0.5,
    k_f=2.0,
    mu=0.8,
    step_s=1.0 / 60.0 / 32.0,
)
"""A walker of the size of gradSim's (Jatavallabhula et al., ICLR 2021): 74 vertices, 104 activated triangles, 5 s.

Numbers of vertices, triangles and steps are the paper's code's. Shape, material and contact are ours: 0.45 m wide,
0.4 m tall, 0.39 kg, stiff enough to stand (its legs shorten by about 2 % under its weight) in steps of 1/1920 s.
"""


@dataclass(frozen=True)
class RodBody:
    """A bar clamped at both ends. cells: of its mesh, six tets each. load_share: see `Rod.load_n`."""

    size_m: tuple[float, float, float]
    cells: tuple[int, int, int]
    values: dict[str, float]
    load_share: float
    step_s: float


RISP_ROD = RodBody(
    size_m=(0.32, 0.08, 0.08),
    cells=(32, 8, 8),
    values={"young_modulus": 1e6, "poisson_ratio": 0.45, "density": 1e3, "damping": 300.0},
    load_share=0.12,
    step_s=0.01,
)
"""The rod of RISP (Ma et al., ICLR 2022), after the cantilever of its simulator DiffPD (Du et al., TOG 2021).

DiffPD's cantilever has 32 x 8 x 8 cells of 1 cm (hexahedra there, tets here), E = 1e6 Pa, nu = 0.45, 1000 kg/m^3 and
steps of 10 ms. RISP publishes no constants of its own; that its rod has these is an assumption. The viscosity (DiffPD
has none: its steps damp) and the load are ours.
"""


@dataclass(frozen=True)
class GearBody:
    """A ring with teeth. layers: of cells from inside out; a tooth is four cells wide with its gap."""

    teeth: int
    layers: int
    inner_m: float
    root_m: float
    tip_m: float
    width_m: float
    values: dict[str, float]
    activation: float
    seconds: float
    step_s: float


GRADSIM_GEAR = GearBody(
    teeth=12,
    layers=4,
    inner_m=0.05,
    root_m=0.09,
    tip_m=0.11,
    width_m=0.05,
    values={
        **{"lame_mu": 750.0, "lame_lambda": 375.0, "density": 20.0, "damping": 0.3},
        **{"k_e": 100.0, "k_d": 0.02, "k_f": 0.1, "mu": 0.8},
    },
    activation=0.3,
    seconds=3.0,
    step_s=1.0 / 60.0 / 480.0,
)
"""A gear of the size of gradSim's (Jatavallabhula et al., ICLR 2021): 480 vertices, 1,152 tets, 3 s, activation 0.3.

Its mu = lambda = 1000 Pa are those of the energy: of linear elasticity 750 and 375. Shape, density, contact and step
are ours: 22 cm across, 23 g, light enough for so soft a body to stand, and steps that are stable for its thin cells.
"""
