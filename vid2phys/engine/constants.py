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
