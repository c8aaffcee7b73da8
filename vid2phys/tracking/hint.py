"""A hint of the user: where the object is in one frame of a clip, as a click or a box.

Texts are `3.2s:412,233` (time, then a pixel x,y) and `3.2s:380,200,450,270` (x0,y0,x1,y1). A frame number may replace
the time: `96:412,233` or `frame 96:412,233`. Pixel centres are whole numbers, as in all of this package.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vid2phys.errors import InputError

if TYPE_CHECKING:
    from vid2phys.types import Clip

_TEXT = re.compile(r"(?:(?P<seconds>[^:]*?)\s*s|(?:frame\s*)?(?P<frame>\d{1,9}))\s*:(?P<numbers>[^:]*)")
_CLICK = "TIME:X,Y, such as 3.2s:412,233 or 'frame 96:412,233'"
_BOX = "TIME:X0,Y0,X1,Y1, such as 3.2s:380,200,450,270 or 'frame 96:380,200,450,270'"
_REMEDY = "`vid2phys hint CLIP` prints it for a click on the object"


@dataclass(frozen=True)
class Hint:
    """Where the object is at a time.

    Attributes:
        text: as the user gave it.
        corners: x0, y0, x1, y1 of a box [px]; both corners of a click are the same.
        time_s: on the clip's clock, or None where a frame is given.
        frame: number of the frame in the clip, from 0, or None where a time is given.
    """

    text: str
    corners: tuple[float, float, float, float]
    time_s: float | None = None
    frame: int | None = None

    @staticmethod
    def of_click(text: str) -> Hint:
        """Return the hint of a text for `--hint`. Raises InputError for other texts."""
        (x, y), time_s, frame = _parsed(text, 2, "--hint", _CLICK)
        return Hint(text, (x, y, x, y), time_s, frame)

    @staticmethod
    def of_box(text: str) -> Hint:
        """Return the hint of a text for `--hint-box`. Raises InputError for other texts and for an empty box."""
        (x0, y0, x1, y1), time_s, frame = _parsed(text, 4, "--hint-box", _BOX)
        if x1 <= x0 or y1 <= y0:
            raise InputError(f"--hint-box {text}: a box without area", "X0 < X1 and Y0 < Y1, in pixels", _REMEDY)
        return Hint(text, (x0, y0, x1, y1), time_s, frame)

    def reduced(self, by: int) -> Hint:
        """Return the hint for frames with blocks of `by` x `by` pixels as their pixels."""
        x0, y0, x1, y1 = ((at + 0.5) / by - 0.5 for at in self.corners)
        return replace(self, corners=(x0, y0, x1, y1))

    @property
    def is_click(self) -> bool:
        """Return whether the hint is a pixel, not a box."""
        x0, y0, x1, y1 = self.corners
        return (x0, y0) == (x1, y1)

    @property
    def flag(self) -> str:
        """Return the option and its value, as for the command line."""
        return f"{'--hint' if self.is_click else '--hint-box'} {self.text}"

    def row(self, clip: Clip) -> int:
        """Return the index of the hinted frame in a clip, or in the part of it that is used.

        Raises InputError for a time outside of the clip, and for pixels outside of the frame.
        """
        x0, y0, x1, y1 = self.corners
        if not (x0 + 0.5 >= 0 and x1 <= clip.width - 0.5 and y0 + 0.5 >= 0 and y1 <= clip.height - 0.5):
            expected = f"x from 0 to {clip.width - 1} and y from 0 to {clip.height - 1}"
            raise InputError(f"{self.flag}: pixels outside of the frame", expected, _REMEDY)
        return self._row_of_frame(clip) if self.time_s is None else self._row_of_time(clip, self.time_s)

    def _row_of_time(self, clip: Clip, time_s: float) -> int:
        times = clip.times_s
        slack = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 1e-3
        if not times[0] - slack <= time_s <= times[-1] + slack:
            expected = f"a time from {times[0]:.3f} s to {times[-1]:.3f} s"
            raise InputError(f"{self.flag}: a time outside of the clip", expected, _REMEDY)
        return int(abs(times - time_s).argmin())

    def _row_of_frame(self, clip: Clip) -> int:
        numbers = list(range(len(clip.times_s))) if clip.whole is None else clip.whole[1].tolist()
        if self.frame not in numbers:
            expected = f"a frame from {numbers[0]} to {numbers[-1]}"
            raise InputError(f"{self.flag}: a frame outside of the clip", expected, _REMEDY)
        return numbers.index(self.frame)


def _parsed(text: str, count: int, flag: str, form: str) -> tuple[list[float], float | None, int | None]:
    """Return `count` pixel coordinates, and the time or the frame."""
    match = _TEXT.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        numbers = [float(part) for part in match["numbers"].split(",")]
        time_s = None if match["seconds"] is None else float(match["seconds"])
        if len(numbers) != count or not all(map(math.isfinite, (*numbers, time_s or 0.0))):
            raise ValueError
    except ValueError:
        raise InputError(f"{flag} {text}", form, _REMEDY) from None
    return numbers, time_s, None if match["frame"] is None else int(match["frame"])
