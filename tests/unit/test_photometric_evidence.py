"""Which symmetry elements are compared with a clip's pixels, in which frames, and what their evidence is worth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking import photometric_evidence
from vid2phys.tracking.cues.photometric import Patch, PoseInFrame
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.tracking.photometric_evidence import branch_evidence
from vid2phys.types import Array

QUARTERS = matrix_from_rotvec(np.arange(4)[:, None] * np.array([0.0, 0.0, 0.5 * np.pi]))
CENTER = np.array([0.02, -0.01, 0.03])
UNUSED: Any = None


class Clip:
    """A clip whose frames are their numbers, and a stage on which some frames do not show the body."""

    def __init__(self, hidden: tuple[int, ...] = ()) -> None:
        self.hidden, self.frames = hidden, self

    def at(self, indices: Array) -> list[int]:
        return indices.tolist()

    def frame_at(self, image: int, pose: Pose) -> PoseInFrame | None:
        patch: Patch = SimpleNamespace(number=image)  # type: ignore[assignment]
        return None if image in self.hidden else PoseInFrame(UNUSED, patch, pose)


def evidence(
    nats: list[float], count: int, patch: pytest.MonkeyPatch, hidden: tuple[int, ...] = ()
) -> tuple[Array, Any]:
    """The evidence of a clip of so many frames; nats: of each frame under each element."""
    compared, poses = list[tuple[int, list[int]]](), Pose.stack([Pose(np.eye(3), np.array([0.1, 0.0, 1.0]))] * count)

    def align(frames: list[PoseInFrame]) -> Any:
        g = int(np.argmin([np.abs(frames[0].pose.rotation - each.T).max() for each in QUARTERS]))
        for frame in frames:  # the centre of the symmetry stays where it was
            np.testing.assert_allclose(frame.pose.apply(CENTER[None])[0], poses[0].apply(CENTER[None])[0], atol=1e-12)
        compared.append((g, [frame.patch.number for frame in frames]))  # type: ignore[attr-defined]
        return SimpleNamespace(log_likelihood=len(frames) * nats[g])

    patch.setattr(photometric_evidence, "align", align)
    clip: Any = Clip(hidden)
    return branch_evidence(clip, clip, poses, 10 + 2 * np.arange(count), QUARTERS, CENTER), compared


def test_elements_are_compared_in_a_few_frames_and_the_best_ones_in_more(monkeypatch: pytest.MonkeyPatch) -> None:
    temperature = TEMPERATURES.photometric
    near, far = 39.0 * temperature, 41.0 * temperature
    found, compared = evidence([-near, 0.0, -far, -0.5 * near], 16, monkeypatch)
    np.testing.assert_allclose(found, [-39.0, 0.0, -41.0, -19.5])
    every = list(range(10, 42, 2))
    assert compared[:4] == [(g, every[::2]) for g in range(4)]
    assert compared[4:] == [(g, every) for g in (0, 1, 3)], "within 40 nats"
    one, compared = evidence([0.0, -far, -far, -far], 16, monkeypatch)
    assert len(compared) == 4
    assert one[0] == 0.0


def test_short_clips_are_compared_once_and_long_ones_show_more(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = TEMPERATURES.photometric
    short, compared = evidence([0.0, -unit, -unit, -unit], 8, monkeypatch)
    np.testing.assert_allclose(short, [0.0, -1.0, -1.0, -1.0])
    assert len(compared) == 4
    long, compared = evidence([0.0, -unit, -unit, -unit], 64, monkeypatch)
    np.testing.assert_allclose(long, [0.0, -2.0, -2.0, -2.0])  # the root of four times 16 frames
    assert [len(frames) for _, frames in compared] == [8] * 4 + [16] * 4
    assert compared[4][1][-1] == 10 + 2 * 63, "all over the clip"


def test_frames_without_the_body_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    _, compared = evidence([0.0, -1.0, -2.0, -3.0], 4, monkeypatch, hidden=(12,))
    assert [frames for _, frames in compared] == [[10, 14, 16]] * 4
    nowhere, compared = evidence([0.0, -1.0, -2.0, -3.0], 4, monkeypatch, hidden=(10, 12, 14, 16))
    np.testing.assert_array_equal(nowhere, np.zeros(4))
    assert compared == []
    nothing, _ = evidence([0.0, -1.0, -2.0, -3.0], 1, monkeypatch)
    assert nothing[0] == 0.0
    clip: Any = Clip()
    none = branch_evidence(clip, clip, UNUSED, np.zeros(0, np.int64), QUARTERS)
    np.testing.assert_array_equal(none, np.zeros(4))
