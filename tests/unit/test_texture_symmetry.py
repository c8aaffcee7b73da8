"""Parts of a track under different symmetry elements, by a stand-in for the texture that the longest one teaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose, matrix_from_rotvec
from vid2phys.tracking.texture_symmetry import under_one_element

HALF_TURN = np.diag([-1.0, -1.0, 1.0])
GROUP = (np.eye(3), HALF_TURN)
CENTER = np.array([0.02, 0.0, 0.0])


@dataclass
class Texture:
    """A texture explains poses by `nats` where their x axis points to the right, and by 100 nats less elsewhere."""

    nats: float = 1000.0
    is_textured: bool = True
    taught: list[list[int]] = field(default_factory=list)
    judged: set[int] = field(default_factory=set)
    hidden: frozenset[int] = frozenset()

    def by(self, poses: Mapping[int, Pose]) -> Any:
        self.taught.append(list(poses))
        return self

    def gain(self, i: int, pose: Pose) -> float:
        self.judged.add(i)
        if i in self.hidden:
            return -np.inf
        return self.nats - 100.0 * float(pose.rotation[0, 0] < 0.0)


def track(turned: set[int], count: int = 20) -> dict[int, Pose]:
    """Return poses of a body that turns slowly; those of some frames by half a turn about CENTER more."""
    found = {}
    for i in range(count):
        rotation = matrix_from_rotvec(0.02 * i * np.array([0.0, 0.0, 1.0]))
        place = np.array([0.1, 0.0, 2.0]) + rotation @ CENTER
        rotation = rotation @ HALF_TURN if i in turned else rotation
        found[i] = Pose(rotation, place - rotation @ CENTER)
    return found


def joined(poses: Mapping[int, Pose], texture: Texture, rotations: Any = GROUP) -> dict[int, Pose]:
    shape: Any = SimpleNamespace(rotations=np.array(rotations), center=CENTER)
    return under_one_element(poses, shape, texture.by)


def test_parts_get_the_element_that_the_longest_one_shows() -> None:
    texture = Texture()
    found = joined(track({*range(8), *range(17, 20)}), texture)
    assert texture.taught == [list(range(8, 17))]
    assert not texture.judged & set(range(8, 17))
    for i, pose in track(set()).items():
        np.testing.assert_allclose(found[i].rotation, pose.rotation, atol=1e-12)
        np.testing.assert_allclose(found[i].translation, pose.translation, atol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("hidden", "joins"), [({0}, True), ({0, 1, 2}, False)])
def test_frames_that_show_nothing_do_not_count(hidden: set[int], joins: bool) -> None:
    found = joined(track({0, 1, 2}), Texture(hidden=frozenset(hidden)))
    assert (found[0].rotation[0, 0] > 0.0) == joins


def test_frames_that_were_lost_divide_nothing() -> None:
    poses = {i: pose for i, pose in track({0, 1, 2}).items() if i not in (8, 9)}
    texture = Texture()
    found = joined(poses, texture)
    assert list(found) == list(poses)
    assert texture.taught == [[i for i in poses if i > 2]]


@pytest.mark.parametrize(("poses", "texture", "rotations"), [
    (track(set()), Texture(), GROUP),  # no jump
    (track({0, 1}), Texture(), (np.eye(3),)),  # no symmetry
    (track({0, 1}), Texture(is_textured=False), GROUP),
    (track({0, 1}), Texture(nats=5100.0), GROUP),  # 2 % of the evidence do not tell
    (track({0, 1, 4, 5, 8, 9}, 12), Texture(), GROUP),  # each part has two frames
    ({}, Texture(), GROUP),
])  # fmt: skip
def test_a_track_stays_without_a_reason(poses: dict[int, Pose], texture: Texture, rotations: Any) -> None:
    assert joined(poses, texture, rotations) == poses
