"""Rotations of cameras, by what an image shows."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.geometry import invert_transform, look_at, looking, shortest_rotation
from vid2phys.risp.renders.viewpoints import upright


def test_a_camera_looks_at_its_target_and_is_level() -> None:
    rng = np.random.default_rng(0)
    for place, target in rng.normal(size=(20, 2, 3)):
        pose = look_at(place, target)
        distance = float(np.linalg.norm(target - place))
        seen = (invert_transform(pose) @ [*target, 1.0])[:3]
        np.testing.assert_allclose(seen, [0.0, 0.0, distance], atol=1e-12)
        np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-12)
        assert np.linalg.det(pose[:3, :3]) > 0.0
        assert pose[2, 0] == 0.0  # its x axis is level
        assert pose[2, 1] < 0.0  # and down in the image is down
        np.testing.assert_array_equal(upright(pose[:3, 2]), looking(pose[:3, 2]).T)


@pytest.mark.parametrize("direction", [(0.3, -0.2, 2.0), (0.0, 0.0, 1.0), (1.0, 2.0, -0.5)])
def test_the_shortest_rotation_to_a_direction_is_about_an_axis_across_both(direction: tuple[float, ...]) -> None:
    unit = np.array(direction) / np.linalg.norm(direction)
    rotation = shortest_rotation(np.array(direction))
    np.testing.assert_allclose(rotation @ [0.0, 0.0, 1.0], unit, atol=1e-12)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.trace(rotation) == pytest.approx(1.0 + 2.0 * unit[2])
