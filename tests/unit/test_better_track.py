"""The choice between a trained model and the silhouette, by the frames in which each finds the body."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.moving_box import CAMERA, box_clip, box_mesh
from vid2phys.commands.identify.better_track import better_track
from vid2phys.commands.identify.inputs import Inputs
from vid2phys.engine import systems
from vid2phys.error_model import Calibration
from vid2phys.errors import InputError
from vid2phys.notes import is_doubtful
from vid2phys.risp.networks.mesh_shape import shape_of
from vid2phys.tracking.track import Track

MESH = box_mesh()
SHAPE = shape_of(MESH, "rigid_contact")


def _inputs() -> Inputs:
    clip, _ = box_clip(10)
    model, known = cast("Any", SimpleNamespace(shape=SHAPE, calibration=None)), cast("Any", SimpleNamespace(notes=()))
    return Inputs(clip, MESH, CAMERA, np.eye(4), systems.get("rigid_contact"), None, model, known, ())


def _finding(frames: int, beside_m: float = 0.0) -> Callable[[Inputs], Track]:
    def track(inputs: Inputs) -> Track:
        nothing = Track.of_nothing(inputs.clip.times_s, SHAPE.points_body, Calibration(), np.zeros(1))
        nothing.tracked[:frames] = True
        nothing.poses.pose.translation[:frames] = beside_m, 0.0, 1.0
        return nothing

    return track


def _failing(words: str) -> Callable[[Inputs], Track]:
    def track(inputs: Inputs) -> Track:
        raise InputError(words, "a body", "film it")

    return track


def test_a_model_that_finds_the_body_is_kept() -> None:
    inputs = _inputs()
    chosen, track = better_track(inputs, _finding(6), _failing("the silhouette is not asked"))
    assert chosen is inputs
    assert track.tracked.sum() == 6


@pytest.mark.parametrize("by_model", [_finding(3), _failing("found in no frame")])
def test_the_silhouette_is_used_where_it_finds_more(by_model: Callable[[Inputs], Track]) -> None:
    chosen, track = better_track(_inputs(), by_model, _finding(9))
    assert chosen.model is None
    assert chosen.shape is SHAPE
    assert track.tracked.sum() == 9
    assert "its silhouette in 9: the silhouette is used" in chosen.notes[-1]


@pytest.mark.parametrize("by_silhouette", [_finding(2), _failing("nothing moves")])
def test_the_model_is_kept_where_the_silhouette_finds_less(by_silhouette: Callable[[Inputs], Track]) -> None:
    inputs = _inputs()
    chosen, track = better_track(inputs, _finding(3), by_silhouette)
    assert chosen is inputs
    assert track.tracked.sum() == 3


@pytest.mark.parametrize(("beside_m", "doubtful"), [(0.5 * MESH.radius_m, False), (1.5 * MESH.radius_m, True)])
def test_a_body_that_the_model_finds_elsewhere_is_doubted(beside_m: float, doubtful: bool) -> None:
    chosen, _ = better_track(_inputs(), _finding(4), _finding(9, beside_m))
    assert is_doubtful(chosen.notes) == doubtful
    assert ("1.5 of its radii beside the silhouette, in 4 frames" in " ".join(chosen.notes)) == doubtful


def test_the_error_is_that_of_the_model() -> None:
    with pytest.raises(InputError, match="found in no frame"):
        better_track(_inputs(), _failing("found in no frame"), _failing("nothing moves"))
