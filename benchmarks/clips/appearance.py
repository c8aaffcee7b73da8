"""What a clip looks like, as plain data: surfaces, rooms, lights, the camera and its sensor.

Colours are sRGB, written "#rrggbb". Lengths are metres, in a world with z up and the floor at z = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Point = tuple[float, float, float]


@dataclass(frozen=True)
class Surface:
    """kind: a key of `materials.PATTERNS`. colors: what that pattern mixes. scale_m: period of the pattern."""

    kind: str = "plain"
    colors: tuple[str, ...] = ("#808080",)
    scale_m: float = 0.1
    roughness: float = 0.6
    metallic: float = 0.0


@dataclass(frozen=True)
class Prop:
    """An object that does not move, standing at a place. shape, size_m: as of a body."""

    shape: str
    size_m: tuple[float, ...]
    position_m: Point
    surface: Surface


@dataclass(frozen=True)
class Room:
    """floor, wall: surfaces. wall_y_m: place of the wall behind; a side wall stands at wall_x_m, if given.

    posters, clutter: how many hang on the wall, and stand behind the body, at places drawn from `seed`. props: objects
    at given places.
    """

    floor: Surface
    wall: Surface
    wall_y_m: float = 1.0
    wall_x_m: float | None = None
    posters: int = 1
    clutter: int = 4
    seed: int = 0
    props: tuple[Prop, ...] = ()


@dataclass(frozen=True)
class Light:
    """An area light, aimed at `target_m`. size_m: its side; a small one throws hard shadows."""

    position_m: Point
    size_m: float
    power_w: float
    color: str = "#ffffff"
    target_m: Point = (0.0, 0.0, 0.1)


@dataclass(frozen=True)
class Lens:
    """A static pinhole camera. focal_px, center_px: OpenCV's convention, pixel centres at integers."""

    position_m: Point
    target_m: Point
    focal_px: float
    center_px: tuple[float, float]
    size_px: tuple[int, int] = (480, 360)
    roll_deg: float = 0.0

    def matrix(self) -> Array:
        """Return the camera matrix K [3, 3]."""
        f, (cx, cy) = self.focal_px, self.center_px
        return np.array([[f, 0.0, cx], [0.0, f, cy], [0.0, 0.0, 1.0]])

    def camera_to_world(self) -> Array:
        """Return the pose [4, 4] of a camera with x right, y down, z forward."""
        forward = np.subtract(self.target_m, self.position_m)
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        down = np.cross(forward, right)
        angle = np.radians(self.roll_deg)
        pose = np.eye(4)
        pose[:3, 0] = np.cos(angle) * right + np.sin(angle) * down
        pose[:3, 1] = np.cos(angle) * down - np.sin(angle) * right
        pose[:3, 2] = forward
        pose[:3, 3] = self.position_m
        return pose

    def project(self, points_m: Array) -> tuple[Array, Array]:
        """Return image positions [..., 2] px and depths [...] m of points [..., 3] of the world."""
        pose = self.camera_to_world()
        seen = (points_m - pose[:3, 3]) @ pose[:3, :3]
        pixels = seen[..., :2] / seen[..., 2:] * self.focal_px + np.array(self.center_px)
        return pixels, seen[..., 2]


@dataclass(frozen=True)
class Sensor:
    """shutter: exposure as a share of the frame interval, 0 for none. noise: factor of the usual noise.

    exposure_ev: (time in s, exposure) pairs, linear in between. soft: a tone curve that compresses highlights, as
    phones have it, instead of clipping. crf: of the codec.
    """

    shutter: float = 0.0
    noise: float = 1.0
    exposure_ev: tuple[tuple[float, float], ...] = ((0.0, 0.0),)
    soft: bool = False
    crf: int = 18

    def exposure(self, time_s: float) -> float:
        """Return the exposure at a time [EV]."""
        times, values = zip(*self.exposure_ev, strict=True)
        return float(np.interp(time_s, times, values))

    def develop(self, light: Array, time_s: float) -> Array:
        """Return the display level, 0 to 255, of linear light."""
        light = np.maximum(light, 0.0) * 2.0 ** self.exposure(time_s)
        if self.soft:
            light = 1.25 * light / (light + 0.6)  # a Reinhard curve, white at 2.4
        light = np.clip(light, 0.0, 1.0)
        return np.asarray(255.0 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055))

    def noise_sigma(self, level: Array) -> Array:
        """Return the standard deviation of the noise at a level, both in units of 8 bits."""
        return np.asarray(self.noise * np.sqrt(3.6 + 0.03 * level))
