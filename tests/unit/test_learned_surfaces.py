"""Which body frames teach: plain, or with the texture that leaves much less unexplained, by stand-ins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import Pose
from vid2phys.tracking import learned_surfaces
from vid2phys.tracking.cues.surfaces import PoseModel, Textured
from vid2phys.tracking.learned_surfaces import LearnedSurfaces, LearnedSurfacesConfig

SQUARE = np.array([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]])
FACES = np.array([[0, 1, 2], [0, 2, 3]])
FLAT = Textured(SQUARE, FACES, np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.bool_))
BENT = replace(FLAT, vertices=SQUARE + np.array([[0.0, 0.0, 3.0], [0.0] * 3, [0.0, 0.0, 3.0], [0.0] * 3]))
ROWS = np.array([3, 5, 8, 13, 21])
POSES = Pose(np.tile(np.eye(3), (5, 1, 1)), np.stack([0.1 * ROWS, 0.0 * ROWS, 2.0 + 0.0 * ROWS], axis=1))
FRAMES: Any = {i: f"frame {i}" for i in ROWS.tolist()}


@dataclass
class Teaching:
    """Stand-ins: a plain body leaves 10 nats in frame 5, else the index; a texture a share of that."""

    monkeypatch: pytest.MonkeyPatch
    share: float = 0.5
    body: Textured = FLAT
    shares: dict[str, float] = field(default_factory=dict)
    asked: list[tuple[str, float, bool, bool]] = field(default_factory=list)
    taught: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.monkeypatch.setattr(learned_surfaces, "pose_model", self.pose_model)
        self.monkeypatch.setattr(learned_surfaces, "Backdrop", SimpleNamespace(of=self.backdrop))
        self.monkeypatch.setattr(Textured, "of", staticmethod(lambda solid: self.body))
        self.monkeypatch.setattr(Textured, "textured", self.textured)

    def backdrop(self, *given: Any) -> str:
        self.taught.append(given)
        return "backdrop"

    @staticmethod
    def textured(body: Textured, shown: Any, camera: Any, poses: Any) -> Textured:
        assert shown == list(FRAMES.values())
        return replace(body, tint=np.ones((2, 3)))

    def pose_model(
        self, frame: Any, backdrop: Any, camera: Any, body: Textured, pose: Pose, *, gain_only: bool
    ) -> PoseModel | None:
        self.asked.append((frame, float(pose.translation[0]), body.tint is not None, gain_only))
        if frame == "frame 21":
            return None
        share = self.shares.get(frame, self.share)
        cost = 10.0 * (share if body.tint is not None else 1.0)
        return PoseModel(np.zeros((0, 0)), np.zeros(0), 1.0, cost)

    def learn(self, **config: Any) -> LearnedSurfaces:
        ratios = {name: np.array([[-1.1, -0.9], [0.5, 1.5]]) for name in FRAMES.values()}
        nothing: Any = None
        solid: Any = SimpleNamespace(mesh="mesh")
        foreground: Any = SimpleNamespace(log_ratio=ratios.__getitem__)
        settings = LearnedSurfacesConfig(**config)
        return LearnedSurfaces.of(FRAMES, nothing, solid, foreground, ROWS, POSES, 6, settings)


@pytest.mark.parametrize(("share", "is_textured"), [(0.59, True), (0.61, False)])
def test_a_texture_counts_where_it_leaves_much_less(
    share: float, is_textured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Teaching(monkeypatch, share).learn(textured_share=0.6).is_textured is is_textured


@pytest.mark.parametrize(("explained", "is_textured"), [((3, 5), True), ((3,), False)])
def test_frames_with_wrong_poses_do_not_hide_a_texture(
    explained: tuple[int, ...], is_textured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four frames that show the body, the texture has to explain more than the best one."""
    shares = {f"frame {i}": 0.5 for i in explained}
    assert Teaching(monkeypatch, 0.95, shares=shares).learn(textured_share=0.6).is_textured is is_textured


def test_a_body_with_curved_sides_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    teaching = Teaching(monkeypatch, 0.0, BENT)
    assert not teaching.learn().is_textured
    assert not teaching.asked


def test_some_frames_tell_whether_there_is_a_texture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, the middle and the last one, each at its own pose, for both bodies alike."""
    teaching = Teaching(monkeypatch)
    teaching.learn(texture_frames=3)
    for textured in (True, False):
        asked = [(frame, x) for frame, x, has_tint, _ in teaching.asked if has_tint == textured]
        assert asked == [("frame 3", pytest.approx(0.3)), ("frame 8", pytest.approx(0.8)), ("frame 21", 2.1)]
    assert all(gain_only for *_, gain_only in teaching.asked)


def test_pixels_unlike_the_body_show_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose log-likelihood ratio is below minus one."""
    teaching = Teaching(monkeypatch)
    learned = teaching.learn(unlike_nats=1.0)
    ((shown, unlike, _, mesh, poses, margin_px),) = teaching.taught
    assert shown == list(FRAMES.values())
    np.testing.assert_array_equal(unlike, [[[True, False], [False, False]]] * 5)
    assert (mesh, poses, margin_px) == ("mesh", POSES, 6)
    assert learned.backdrop == "backdrop"


def test_a_model_is_asked_for_all_unless_only_the_gain_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    teaching = Teaching(monkeypatch)
    learned = teaching.learn()
    teaching.asked.clear()
    learned.model(5, POSES[1])
    learned.model(5, POSES[1], gain_only=True)
    assert teaching.asked == [("frame 5", 0.5, True, False), ("frame 5", 0.5, True, True)]


def test_a_frame_that_shows_nothing_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = Teaching(monkeypatch).learn()
    assert learned.gain(5, POSES[1]) == 1.0
    assert learned.gain(21, POSES[4]) == -np.inf
