"""Doubts about tracks without a trained model: each names the likely reason, and good tracks have none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.commands.identify.silhouette_doubts import likely_reason, silhouette_doubts, training_notes
from vid2phys.geometry import Pose
from vid2phys.io.primitives import load_body
from vid2phys.notes import Severity, severity_of
from vid2phys.tracking.proportions import Proportions
from vid2phys.tracking.visibility import Visibility

GOOD = Visibility(size_px=80.0, blur_px=3.0, hidden=0.0, path_px=5.0, noise=2.0)
COUNT = 30


def doubts(
    shown: Visibility | None,
    *,
    match: float = 8.0,
    overlap: float = 0.9,
    jitter_deg: float = 0.0,
    other: Proportions | None = None,
    body: str = "box:120x80x50mm",
) -> list[str]:
    """Return the doubts about a body that rotates by 4 deg a frame."""
    angle = 4.0 * np.arange(COUNT) + jitter_deg * 0.5 * (-1.0) ** np.arange(COUNT)
    rotation = Rotation.from_rotvec(np.radians(angle)[:, None] * [0.0, 0.6, 0.8]).as_matrix()
    pose = Pose(rotation, np.tile([0.0, 0.0, 2.0], (COUNT, 1)))
    track = SimpleNamespace(
        poses=SimpleNamespace(pose=pose),
        tracked=np.ones(COUNT, dtype=bool),
        quality=np.full(COUNT, overlap),
        image_match=match,
        visibility=shown,
        proportions=other,
    )
    inputs = SimpleNamespace(mesh=load_body(body=body))
    return silhouette_doubts(cast(Any, inputs), cast(Any, track))


def test_a_good_track_has_no_doubt() -> None:
    assert doubts(GOOD) == doubts(None) == doubts(replace(GOOD, blur_px=np.nan, hidden=np.nan)) == []
    assert doubts(replace(GOOD, size_px=22.0, noise=30.0)) == []  # small or noisy, but steady
    assert likely_reason(GOOD) is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"size_px": 18.0}, "the body is 18 px wide: too small"),
        ({"blur_px": 12.0}, "motion blur of 12 px: too blurred"),
        ({"hidden": 0.3}, "30% of the silhouette shows the background: the body is partly hidden"),
        ({"noise": 40.0}, "noise of 40 grey levels"),
        ({}, "the mesh is not the object"),
    ],
)
def test_a_jumping_orientation_has_its_reason(change: dict[str, float], named: str) -> None:
    (note,) = doubts(replace(GOOD, **change), jitter_deg=6.0)
    assert severity_of(note) is Severity.DOUBT
    assert named in note


@pytest.mark.parametrize(
    ("shown", "named"), [(replace(GOOD, blur_px=12.0), "too blurred"), (replace(GOOD, hidden=0.3), "partly hidden")]
)
def test_blur_and_occlusion_are_doubted_without_jumps(shown: Visibility, named: str) -> None:
    (note,) = doubts(shown)
    assert named in note


def test_blur_of_a_ball_is_not_doubted() -> None:
    """The centre of its path in an exposure shows, and its orientation does not show in any case."""
    assert doubts(replace(GOOD, size_px=40.0, blur_px=9.0), body="ball:d=66mm") == []
    (note,) = doubts(replace(GOOD, size_px=39.0, hidden=0.3), body="ball:d=66mm")
    assert "partly hidden" in note


def test_a_mesh_that_the_frames_do_not_show_is_doubted() -> None:
    (note,) = doubts(GOOD, match=1.0)
    assert "does not support the mesh" in note
    assert "the mesh is not the object" in note
    (note,) = doubts(GOOD, overlap=0.2)
    assert "overlap by 0.20 of 1" in note


def test_a_body_that_turns_far_between_frames_is_named() -> None:
    track_note = doubts(GOOD, jitter_deg=40.0)[0]
    assert "film with more frames a second" in track_note


def test_other_proportions_are_doubted_where_they_are_sure_and_visible() -> None:
    (note,) = doubts(GOOD, other=Proportions(ratio=1.2, std=0.02, off_px=4.0))
    assert "and the mesh 'box_120x80x50mm' differ in proportions by a factor of 1.20" in note
    assert "the mesh is not the object" in note
    assert doubts(GOOD, other=Proportions(ratio=1.05, std=0.01, off_px=4.0)) == []
    assert doubts(GOOD, other=Proportions(ratio=1.2, std=0.1, off_px=4.0)) == []  # frames disagree
    assert doubts(GOOD, other=Proportions(ratio=1.2, std=0.02, off_px=1.5)) == []  # a wider contour explains it


@pytest.mark.parametrize(
    ("training", "lost", "doubts", "expected"),
    [
        ("", 3, (), []),
        ("`train`", 0, (), ["a trained model would hardly help"]),
        ("`train`", 3, (), ["3 of 8 frames are lost"]),
        ("`train`", 0, ("its orientation jumps",), ["0 of 8 frames are lost"]),
    ],
)
def test_training_is_recommended_where_frames_are_lost_or_doubted(
    training: str, lost: int, doubts: tuple[str, ...], expected: list[str]
) -> None:
    inputs, track = SimpleNamespace(training=training), SimpleNamespace(tracked=np.arange(8) >= lost)
    notes = training_notes(cast(Any, inputs), cast(Any, track), doubts)
    assert len(notes) == len(expected)
    assert all(text in note for text, note in zip(expected, notes, strict=True))
    assert all(("`train`" in note) == ("hardly" not in note) for note in notes)
