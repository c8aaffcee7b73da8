"""Which frames are compared under the elements of a nearly symmetric body, from where, and what they state together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vid2phys.geometry import Pose
from vid2phys.tracking import symmetry_evidence as module
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.tracking.symmetry_evidence import DEFAULTS, _edge_nats, symmetry_evidence
from vid2phys.types import Array

ANY: Any = None
CENTER = np.array([0.02, -0.03, 0.05])
QUARTERS = Rotation.from_rotvec(0.5 * np.pi * np.arange(4)[:, None] * np.array([0.0, 0.6, 0.8])).as_matrix()
EDGES, PARTS = np.array([3.0, -1.0, -40.0, 2.0]), np.array([-1.0, 0.0, -30.0, -4.0])


def shape(*, exact: bool = False, count: int = 4) -> Any:
    return SimpleNamespace(exact=exact, rotations=QUARTERS[:count], center=CENTER)


@pytest.mark.parametrize("lost", [None, 2])
def test_edges_are_fitted_from_the_pose_under_each_element(lost: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pose = Pose(Rotation.from_euler("xyz", [0.3, 0.5, -0.2]).as_matrix(), np.array([0.1, 0.0, 1.0]))
    starts, used = list[Pose](), list[bool]()

    def fit(frame: Any, camera: Any, solid: Any, start: Pose, *, prior: Array) -> Any:
        starts.append(start)
        return None if len(starts) - 1 == lost else SimpleNamespace(pose=start)

    def scorer(frame: Any, camera: Any, solid: Any, at: Pose, prior: Array, region: bool) -> Any:
        used.append(region)
        assert at is pose
        return SimpleNamespace(explained=lambda fitted: float(fitted.rotation[0, 0]))

    monkeypatch.setattr(module, "fit_contour", fit)
    monkeypatch.setattr(module, "PoseScorer", scorer)
    given: Any = {"region"}
    nats, poses = _edge_nats(ANY, ANY, ANY, pose, shape(), given)
    for g, start in enumerate(starts):
        np.testing.assert_allclose(start.rotation, pose.rotation @ QUARTERS[g].T, atol=1e-12)
        np.testing.assert_allclose(start.apply(CENTER[None]), pose.apply(CENTER[None]), atol=1e-12)
    assert used == [True]
    if lost is None:
        np.testing.assert_allclose(nats, [start.rotation[0, 0] for start in starts])
        assert poses == starts
    else:
        assert (nats.tolist(), poses) == ([0.0] * 4, [])
    nothing: Any = set()
    _edge_nats(ANY, ANY, ANY, pose, shape(), nothing)
    assert used == [True, False]


def compared(
    monkeypatch: pytest.MonkeyPatch, some: Any, cues: set[str], sizes: Array, costs: Array | None = None
) -> Any:
    """Return the evidence of frames whose edges and parts are known, and which of them were looked at."""
    asked = list[int]()

    def edges(frame: int, *_: Any) -> Any:
        asked.append(frame)
        count = len(some.rotations)
        return EDGES[:count].copy(), ["pose"] * count

    monkeypatch.setattr(module, "_edge_nats", edges)
    monkeypatch.setattr(module, "part_nats", lambda *_: PARTS.copy())
    monkeypatch.setattr(module, "in_processes", lambda function, items: [function(each) for each in items])
    count = len(sizes)

    class Poses:
        cost = np.zeros((count, 3)) if costs is None else costs

        def __getitem__(self, index: tuple[int, int]) -> Any:
            assert index[1] == 0
            return SimpleNamespace(pose=index[0])

    seen: Any = SimpleNamespace(poses=Poses(), diameter_px=sizes)
    given: Any = cues
    solid: Any = SimpleNamespace(mesh=None)
    frames: Any = range(1000)
    return (*symmetry_evidence(frames, 2 * np.arange(count), seen, ANY, solid, some, given), asked)


def test_a_frame_states_as_much_as_no_knowledge_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two frames are compared, so that the colours of parts have twice their temperature."""
    edges, parts, asked = compared(monkeypatch, shape(), {"part_colors"}, np.full(2, 50.0))
    assert asked == [0, 2]
    assert (edges.temperature, parts.temperature) == (TEMPERATURES.symmetry, 2.0 * TEMPERATURES.part_colors)
    for n in range(2):
        np.testing.assert_allclose(parts.nats[n, 0], [-1.0, 0.0, -DEFAULTS.max_part_nats, -4.0])
        np.testing.assert_allclose(edges.nats[n, 0] - edges.nats[n, 0, 0], [0.0, -4.0, -DEFAULTS.max_nats, -1.0])
        both = edges.nats[n, 0] / edges.temperature + parts.nats[n, 0] / parts.temperature
        assert np.exp(both).mean() == pytest.approx(1.0)
    assert not edges.nats[:, 1:].any(), "other hypotheses are not compared"
    edges, parts, _ = compared(monkeypatch, shape(), set(), np.full(1, 50.0))
    assert not parts.nats.any()
    assert np.exp(edges.nats[0, 0] / edges.temperature).mean() == pytest.approx(1.0)


def test_some_large_frames_with_a_pose_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, costs = np.array([50.0, 39.9, 40.0, 90.0, 50.0]), np.zeros((5, 3))
    costs[3, 0] = np.inf
    edges, parts, asked = compared(monkeypatch, shape(), {"part_colors"}, sizes, costs)
    assert asked == [0, 4, 8]
    for n in (1, 3):
        assert not edges.nats[n].any()
        assert not parts.nats[n].any()
    _, _, asked = compared(monkeypatch, shape(), set(), np.full(111, 50.0))
    assert asked == list(range(0, 221, 20)), "twelve, from the first to the last"
    for exact in (shape(exact=True), shape(count=1)):
        edges, parts, asked = compared(monkeypatch, exact, {"part_colors"}, np.full(3, 50.0))
        assert (asked, edges.nats.any(), parts.nats.any()) == ([], False, False)
    two: Any = compared(monkeypatch, shape(count=2), set(), np.full(3, 50.0))
    assert len(two[2]) == 3
