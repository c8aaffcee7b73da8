"""Surface reflection for training images: Lambert + GGX, metallic workflow, per-face values.

A subset of Burley, "Physically Based Shading at Disney" (2012) with Schlick's Fresnel term, written out in Dr.Jit
and not taken from Mitsuba's `principled` plugin: forward-mode derivatives of several parameters in one kernel need
code without virtual calls. `wi` and `wo` are unit vectors in the local frame, z along the normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MIN_ROUGHNESS = 0.08


@dataclass(frozen=True)
class Brdf:
    """Reflection at a batch of points. mi, dr: the modules; base_color: Color3f; the others Float."""

    mi: Any
    dr: Any
    base_color: Any
    roughness: Any
    metallic: Any
    specular: Any

    def eval(self, wi: Any, wo: Any) -> Any:
        """Return the BRDF times the cosine of `wo`, Color3f; differentiable in every value."""
        mi, dr = self.mi, self.dr
        above = (wi.z > 0) & (wo.z > 0)
        half = dr.normalize(wi + wo)
        fresnel = self._fresnel(dr.maximum(dr.dot(wi, half), 0.0))
        ggx = self._distribution()
        spec = fresnel * (ggx.eval(half) * ggx.G(wi, wo, half) / (4.0 * dr.maximum(wi.z, 1e-4)))
        diffuse = self.base_color * (1.0 - self.metallic) * (1.0 - fresnel) * (wo.z * dr.inv_pi)
        return dr.select(above, spec + diffuse, mi.Color3f(0.0))

    def pdf(self, wi: Any, wo: Any) -> Any:
        """Return the density of `sample` in solid angle."""
        dr = self.dr
        half = dr.normalize(wi + wo)
        spec = self._distribution().pdf(wi, half) / (4.0 * dr.maximum(dr.dot(wo, half), 1e-6))
        share = self._specular_share()
        density = share * spec + (1.0 - share) * wo.z * dr.inv_pi
        return dr.select((wi.z > 0) & (wo.z > 0), density, 0.0)

    def sample(self, wi: Any, choice: Any, uniform: Any) -> Any:
        """Return a direction `wo` drawn from the two lobes; it moves with the roughness."""
        mi, dr = self.mi, self.dr
        half, _ = self._distribution().sample(wi, uniform)
        reflected = 2.0 * dr.dot(wi, half) * mi.Vector3f(half) - wi
        return dr.select(choice < self._specular_share(), reflected, mi.warp.square_to_cosine_hemisphere(uniform))

    def _fresnel(self, cosine: Any) -> Any:
        weight = (1.0 - cosine) ** 5
        at_normal = self.dr.lerp(self.mi.Color3f(0.08 * self.specular), self.base_color, self.metallic)
        return at_normal + (1.0 - at_normal) * weight

    def _distribution(self) -> Any:
        alpha = self.dr.square(self.dr.maximum(self.roughness, MIN_ROUGHNESS))
        return self.mi.MicrofacetDistribution(self.mi.MicrofacetType.GGX, alpha, sample_visible=True)

    def _specular_share(self) -> Any:
        return self.dr.lerp(0.4, 1.0, self.dr.detach(self.metallic))
