"""What is varied in training images, each with a switch of its own, so that an ablation can say what it is worth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from vid2phys.errors import unknown_name

_OF_RENDERS = ("environments", "metals", "textures")


@dataclass(frozen=True)
class Randomisation:
    """All on by default. Switching one off leaves the random numbers of the others as they are.

    In renders: environments (photographs, skies and rooms around the body; off: light of one colour from everywhere),
    metals, textures (a mesh's own). In developing: photographs (as backgrounds and on occluders), antialiasing (area
    filter where the image shrinks), translucency, shadows (of the body), distractors (distorted copies, hands and
    solids behind the body), occlusion (up to half of the body), motion_blur, exposure (off: one gain and tone
    curve), colour_cast, noise, codec (JPEG and H.264), small_bodies (off: never below 50 px in the frame).
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
        """All but these. Raises UsageError for an unknown name."""
        known = tuple(field.name for field in fields(Randomisation))
        names = tuple(names)
        for name in names:
            if name not in known:
                raise unknown_name("randomisation", name, known)
        return Randomisation(**dict.fromkeys(names, False))

    @property
    def off(self) -> tuple[str, ...]:
        """Names of what is switched off."""
        return tuple(field.name for field in fields(self) if not getattr(self, field.name))

    @property
    def off_in_renders(self) -> tuple[str, ...]:
        """Those of `off` that show in renders: datasets are made again for them."""
        return tuple(name for name in self.off if name in _OF_RENDERS)


ALL = Randomisation()
