"""Which poses of held-out clips count for the errors of contours, and how far the network's windows are off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vid2phys.geometry import matrix_from_rotvec
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.tracking.uncertainty import contour_errors
from vid2phys.tracking.uncertainty.config import UncertaintyConfig
from vid2phys.tracking.uncertainty.contour_errors import NetworkPose, detect_clip
from vid2phys.types import Array

HALF = matrix_from_rotvec(np.pi * np.eye(3)[2])
MODEL: Any = SimpleNamespace(radius_m=0.2, rotations=np.stack([np.eye(3), HALF]))
CALIBRATION: Any = SimpleNamespace(min_quality=0.4)
CONFIG = UncertaintyConfig()
FRAMES = 60


class Network:
    """Detects the body in each frame; `windows` has the centre and the size that it was given."""

    def __init__(self, rotation: Array, quality: Array, cost: Array) -> None:
        self.rotation, self.quality, self.cost = rotation, quality, cost
        self.windows = list[tuple[Array, float]]()

    def detect(self, model: Any, camera: int, images: list[str], aside: Array, size: Array, calibration: Any) -> Any:
        assert images == [f"frame {camera}"]
        self.windows.append((aside[0], float(size[0])))
        pose = SimpleNamespace(
            rotation=self.rotation[camera], translation=np.full(3, 1.0 * camera), cost=self.cost[camera]
        )
        covariance = lambda given: (camera + 1.0) * np.eye(6)[None]  # noqa: E731
        return SimpleNamespace(
            poses={(0, 0): pose}, quality=np.array([[self.quality[camera], 0.9]]), pose_covariance=covariance
        )


def clip() -> Any:
    share = np.linspace(0.0, 1.0, FRAMES)[:, None]
    return SimpleNamespace(
        translation=np.array([0.1, -0.2, 1.0]) + share * [0.3, 0.4, 1.0],
        rotation=matrix_from_rotvec(share * [0.5, -0.4, 2.0]),
        cameras=list(range(FRAMES)),
        frames=[f"frame {i}" for i in range(FRAMES)],
    )


def detected(
    monkeypatch: pytest.MonkeyPatch, frames: list[int], seed: int = 0, **given: Any
) -> tuple[Network, list[NetworkPose]]:
    rotation = given.get("rotation", clip().rotation)
    network = Network(rotation, given.get("quality", np.full(FRAMES, 0.8)), given.get("cost", np.zeros(FRAMES)))
    monkeypatch.setattr(contour_errors, "detect", network.detect)
    rng = np.random.default_rng(seed)
    return network, list(detect_clip(MODEL, CALIBRATION, clip(), rng, frames, CONFIG))


def test_frames_without_a_credible_pose_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    quality, cost = np.full(FRAMES, 0.8), np.zeros(FRAMES)
    quality[[3, 4]], cost[6] = [0.39, 0.41], np.inf
    _, found = detected(monkeypatch, [2, 3, 4, 6, 9], quality=quality, cost=cost)
    assert [pose.frame for pose in found] == [2, 4, 9]
    np.testing.assert_array_equal([pose.translation[0] for pose in found], [2.0, 4.0, 9.0])
    np.testing.assert_array_equal([pose.covariance[5, 5] for pose in found], [3.0, 5.0, 10.0])


def test_a_rotation_has_the_symmetry_element_of_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    off = matrix_from_rotvec(np.array([0.1, -0.2, 0.1]))
    other = off @ clip().rotation @ HALF
    _, found = detected(monkeypatch, [5, 50], rotation=other)
    for pose in found:
        np.testing.assert_allclose(pose.rotation, off @ clip().rotation[pose.frame], atol=1e-9)


def test_windows_are_off_as_after_a_pass_and_partly_alike_in_a_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """In units of the settings: 0.5 from clip to clip, and 0.8 from frame to frame, along each axis and in size."""
    center, radius = direction_and_size(clip().translation, MODEL.radius_m)
    offs = []
    for seed in range(150):
        network, _ = detected(monkeypatch, list(range(FRAMES)), seed)
        aside = np.stack([place for place, _ in network.windows])
        size = np.array([size for _, size in network.windows])
        across = (aside - center) / (CONFIG.contour_view_offset * np.tan(radius)[:, None])
        offs.append(np.column_stack([across, np.log(size / radius) / CONFIG.view_size_offset]))
    off = np.array(offs)
    np.testing.assert_allclose((off - off.mean(axis=1, keepdims=True)).std(axis=(0, 1)), 0.8, rtol=0.04)
    np.testing.assert_allclose(off.mean(axis=1).std(axis=0), np.hypot(0.5, 0.8 / np.sqrt(FRAMES)), rtol=0.2)
    np.testing.assert_allclose(off.mean(axis=(0, 1)), 0.0, atol=0.15)
    correlation = np.corrcoef(off.reshape(-1, 3).T)
    np.testing.assert_allclose(correlation, np.eye(3), atol=0.15)
