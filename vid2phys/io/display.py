"""Show frames as their container asks players to: upright, rotated by quarter turns, or mirrored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_SKEW = 0.02  # of a direction: one degree, as whole degrees in a matrix are rounded


@dataclass(frozen=True)
class Display:
    """One of the eight ways to show a frame: rows and columns swapped first, then flipped.

    swapped: whether columns become rows. left_right, top_bottom: whether the result is flipped that way.
    """

    swapped: bool = False
    left_right: bool = False
    top_bottom: bool = False

    @classmethod
    def of(cls, frame: VideoFrame, path: object) -> Display:
        """Return the display of a decoded frame; a frame without a display matrix is upright.

        The matrix takes a stored place (x, y) to (a x + c y, b x + d y) on the screen, y down. Its scale is left out,
        as players do. Raises InputError for rotations by other angles than multiples of 90 degrees.
        """
        data: Any = frame.side_data.get("DISPLAYMATRIX")
        if data is None:
            return cls()
        a, b, _, c, d = np.frombuffer(bytes(data), dtype=np.int32)[:5] / 65536.0
        columns = np.array([[a, c], [b, d]])
        scale = np.linalg.norm(columns, axis=0)
        if not scale.all():
            return cls()  # no direction is given; players show such frames as they are stored
        directions = columns / scale
        whole = np.round(directions)
        if np.abs(directions - whole).max() > _SKEW or abs(np.linalg.det(whole)) != 1.0:
            got = f"'{path}' asks for a display rotated by {abs(frame.rotation)} degrees or skewed"
            raise InputError(got, "a multiple of 90", "export it upright with `ffmpeg -i IN -c:v libx264 OUT.mp4`")
        to_right, to_bottom = whole.sum(axis=1)
        return cls(not whole[0, 0], to_right < 0, to_bottom < 0)

    def shown(self, stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a stored frame [H, W, 3] as players show it; height and width may swap."""
        image = stored.swapaxes(0, 1) if self.swapped else stored
        if self.left_right:
            image = image[:, ::-1]
        if self.top_bottom:
            image = image[::-1]
        return np.ascontiguousarray(image)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of a shown frame from those of a stored one."""
        return (width, height) if self.swapped else (height, width)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what to report: nothing unless the frames are mirrored."""
        if not self.swapped ^ self.left_right ^ self.top_bottom:
            return ()
        how = "left to right" if self.left_right else "top to bottom"
        rotated = " and rotated by 90 degrees" if self.swapped else ""
        return (f"the clip's display matrix mirrors it {how}{rotated}: its frames are mirrored, as players show them",)
