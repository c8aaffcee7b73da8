"""Where training cameras stand: any side of a tumbling body, near and far, whatever its size; flyers as before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vid2phys.engine.systems import get
from vid2phys.risp.renders.viewpoints import sample_sequence, sample_single


def distances(system: str, radius_m: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    views = [sample_single(rng, get(system), radius_m, 96) for _ in range(80)]
    return np.array([np.linalg.norm(view.view_from_body[:3, 3]) for view in views]) / radius_m


@pytest.mark.parametrize("radius_m", [0.02, 0.09, 1.5])
def test_a_tumbling_body_fills_a_frame_or_is_small(radius_m: float) -> None:
    found = distances("rigid_contact", radius_m)
    assert 3.0 <= found.min() < 4.5
    assert 50.0 < found.max() <= 80.0


def test_what_flies_keeps_away() -> None:
    assert distances("quadrotor", 0.2).min() >= 6.0


def test_a_tumbling_body_is_seen_from_all_sides_and_turns_fast() -> None:
    rng, system = np.random.default_rng(1), get("rigid_contact")
    views = [sample_single(rng, system, 0.09, 96).view_from_body for _ in range(400)]
    sight = np.stack([-v[:3, :3].T @ v[:3, 3] / np.linalg.norm(v[:3, 3]) for v in views])
    assert np.abs(sight.mean(axis=0)).max() < 0.12
    np.testing.assert_allclose(sight.T @ sight / len(sight), np.eye(3) / 3.0, atol=0.06)
    turns = []
    for _ in range(20):
        frames = sample_sequence(rng, system, 0.09, 96)
        world = [f.body_from_world for f in frames]
        cosine = [0.5 * (np.trace(a @ b.T) - 1.0) for a, b in itertools.pairwise(world)]
        turns.append(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))).mean())
    assert np.median(turns) == pytest.approx(10.0, abs=4.0)  # 3 rad/s an axis, 30 frames a second
