"""What a body looks like, as numbers and as Dr.Jit variables that carry forward derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vid2phys.engine.render.brdf import Brdf
from vid2phys.engine.render.texture import DeviceTexture
from vid2phys.types import Array

LIGHTS = 3
ENVIRONMENT_SHAPE = (32, 64)


@dataclass(frozen=True)
class Appearance:
    """What an image depends on besides the pose. Lengths in metres, everything in body axes.

    face_color: [F, 3] linear RGB. face_roughness, face_metallic: [F]. specular: 0 to 1 (0.5 is plastic).
    light_positions: [3, 3] m. light_intensities: [3, 3] RGB per solid angle; zero switches a light off.
    environment: [32, 64, 3] radiance, a latitude-longitude image whose rows run from +y (top) to -y of its own
    axes. environment_from_body: [3, 3]. environment_scale: factor. ambient: [3], radiance met by light from the body.
    texture_share: [F] how much of the mesh's texture shows (1: nothing of face_color); empty for none.
    texture_brightness: [3], a colour c of the texture becomes 1 - (1 - c)^exp(texture_brightness).
    """

    face_color: Array
    face_roughness: Array
    face_metallic: Array
    specular: float
    light_positions: Array
    light_intensities: Array
    environment: Array
    environment_from_body: Array
    environment_scale: float
    ambient: Array
    texture_share: Array = field(default_factory=lambda: np.zeros(0))
    texture_brightness: Array = field(default_factory=lambda: np.zeros(3))


class MovingAppearance:
    """The appearance as Dr.Jit variables, moving along `directions` by `coordinates` (which are zero)."""

    def __init__(
        self,
        mi: Any,
        dr: Any,
        appearance: Appearance,
        directions: Sequence[Appearance],
        coordinates: Sequence[Any],
        radius_m: float,
        texture: DeviceTexture | None = None,
    ) -> None:
        self.mi, self.dr, self._texture = mi, dr, texture
        self._moves = list(zip(directions, coordinates, strict=True))
        self._buffers = {
            name: [
                (mi.Float(np.ascontiguousarray(getattr(source, name), np.float32).ravel()), coordinate)
                for source, coordinate in [(appearance, None), *self._moving(name)]
            ]
            for name in ("face_color", "face_roughness", "face_metallic")
        }
        self.specular = self._small(appearance, "specular")[0]
        self.environment_scale = self._small(appearance, "environment_scale")[0]
        self.ambient = mi.Color3f(*self._small(appearance, "ambient"))
        positions = [x / radius_m for x in self._small(appearance, "light_positions")]
        intensities = [x / radius_m**2 for x in self._small(appearance, "light_intensities")]
        self.light_positions = [mi.Point3f(*positions[3 * i : 3 * i + 3]) for i in range(LIGHTS)]
        self.light_intensities = [mi.Color3f(*intensities[3 * i : 3 * i + 3]) for i in range(LIGHTS)]
        if texture is not None:
            share = appearance.texture_share if appearance.texture_share.size else np.zeros(len(appearance.face_color))
            self._texture_share = mi.Float(np.ascontiguousarray(share, np.float32))
            self._texture_exponent = [dr.exp(x) for x in self._small(appearance, "texture_brightness")]

    def brdf(self, face: Any, place: Any) -> Brdf:
        """Return the reflection of faces, UInt32, at barycentric places, Point2f."""
        roughness, metallic = (self._gather(name, 1, face) for name in ("face_roughness", "face_metallic"))
        return Brdf(self.mi, self.dr, self.color(face, place), roughness[0], metallic[0], self.specular)

    def color(self, face: Any, place: Any) -> Any:
        """Return base colour of faces, UInt32, at places (the weights of their second and third corners), Color3f."""
        color = self.mi.Color3f(*self._gather("face_color", 3, face))
        if self._texture is None:
            return color
        share = self.dr.gather(self.mi.Float, self._texture_share, face)
        texel = self._texture.at(face, place)
        exposed = [1.0 - (1.0 - texel[i]) ** self._texture_exponent[i] for i in range(3)]
        return self.dr.lerp(color, self.mi.Color3f(*exposed), share)

    def _moving(self, name: str) -> list[tuple[Appearance, Any]]:
        return [(d, x) for d, x in self._moves if name != "face_metallic" and np.any(getattr(d, name))]

    def _gather(self, name: str, channels: int, face: Any) -> list[Any]:
        result = []
        for channel in range(channels):
            total = self.mi.Float(0.0)
            for buffer, coordinate in self._buffers[name]:
                value = self.dr.gather(self.mi.Float, buffer, face * channels + channel)
                total = total + (value if coordinate is None else value * coordinate)
            result.append(total)
        return result

    def _small(self, appearance: Appearance, name: str) -> list[Any]:
        mi, dr = self.mi, self.dr
        values = [dr.opaque(mi.Float, float(x)) for x in np.ravel(getattr(appearance, name))]
        for direction, coordinate in self._moving(name):
            steps = np.ravel(getattr(direction, name))
            values = [v + dr.opaque(mi.Float, float(s)) * coordinate for v, s in zip(values, steps, strict=True)]
        return values
