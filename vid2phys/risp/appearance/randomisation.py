"""Domain randomisation (Tobin et al., IROS 2017): what varies in training images, with a switch for each effect.

An ablation measures the benefit of an effect by switching it off.

Limits: the ranges of the effects are constants of their modules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from vid2phys.errors import unknown_name

_OF_RENDERS = ("environments", "metals", "textures")


@dataclass(frozen=True)
class Randomisation:
    """Switches of the effects, all on by default. A switch does not change the random numbers of other effects.

    Attributes:
        environments: Photographs, skies and rooms around the body; off: light of one colour from everywhere.
        metals: Metallic materials.
        textures: The mesh's own texture.
        photographs: Photographs as backgrounds and on occluders.
        antialiasing: An area filter where the image shrinks.
        translucency: Bodies of smoked plastic.
        shadows: Shadows of the body on the background.
        distractors: Distorted copies, hands and solids behind the body.
        occlusion: Occluders of up to half of the body.
        motion_blur: Motion blur of the body.
        exposure: Random gain and tone curve; off: a fixed automatic exposure.
        colour_cast: Random white balance and saturation.
        noise: Sensor noise.
        codec: JPEG and H.264.
        small_bodies: Bodies below 50 px in the frame.
    """

    environments: bool = True
    metals: bool = True
    textures: bool = True
    photographs: bool = True
    antialiasing: bool = True
    translucency: bool = True
    shadows: bool = True
    distractors: bool = True
    occlusion: bool = True
    motion_blur: bool = True
    exposure: bool = True
    colour_cast: bool = True
    noise: bool = True
    codec: bool = True
    small_bodies: bool = True

    @staticmethod
    def without(names: Iterable[str]) -> Randomisation:
        """Switch some effects off. Raises UsageError for an unknown name."""
        known = tuple(field.name for field in fields(Randomisation))
        names = tuple(names)
        for name in names:
            if name not in known:
                raise unknown_name("randomisation", name, known)
        return Randomisation(**dict.fromkeys(names, False))

    @property
    def off(self) -> tuple[str, ...]:
        """Return the names of the effects that are off."""
        return tuple(field.name for field in fields(self) if not getattr(self, field.name))

    @property
    def off_in_renders(self) -> tuple[str, ...]:
        """Return the names of `off` that change renders, so that a dataset must be rendered again."""
        return tuple(name for name in self.off if name in _OF_RENDERS)


ALL = Randomisation()
