"""Where a body is to be: of orientations that look alike, where the user shows it, and on what it lies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import trimesh

from vid2phys.commands.configs import ControlConfig
from vid2phys.commands.control import Target, as_at_start, change_doubts, solve
from vid2phys.commands.control_contact import in_mesh_axes, on_ground
from vid2phys.commands.options import built
from vid2phys.engine.systems.rigid_contact import ThrownBody
from vid2phys.geometry import make_transform, matrix_from_quat, matrix_from_rotvec, quat_from_rotvec
from vid2phys.notes import doubt
from vid2phys.risp.shape.rotation_groups import cyclic
from vid2phys.solvers import optimal_control
from vid2phys.solvers.optimal_control import Aim
from vid2phys.tracking.detectors.shown import place_of
from vid2phys.tracking.hint import Hint
from vid2phys.types import Array, Mesh

CENTER = np.array([0.02, 0.0, 0.01])
QUARTERS = cyclic(4)


def alike(evidence: list[float], seen: Array) -> tuple[Array, list[str]]:
    """The goal of a body of four quarters that starts without a rotation and is seen at a pose [4, 4]."""
    shape = SimpleNamespace(rotations=QUARTERS, center=CENTER)
    system = SimpleNamespace(body_pose=lambda state: (state[:3], state[3:7]))
    inputs: Any = SimpleNamespace(shape=shape, system=system)
    return as_at_start(inputs, seen, np.array(evidence), np.array([*np.zeros(3), 1.0, 0.0, 0.0, 0.0]))


def test_of_orientations_that_look_alike_the_nearest_to_the_start_is_the_goal() -> None:
    truth = make_transform(matrix_from_rotvec(np.array([0.0, 0.1, 0.2])), np.array([0.3, 0.1, 0.5]))
    for element in range(4):
        turned = make_transform(QUARTERS[element], CENTER - QUARTERS[element] @ CENTER)
        goal, (note,) = alike([0.0] * 4, truth @ turned)
        np.testing.assert_allclose(goal, truth, atol=1e-12)
        assert "in 4 orientations: the one nearest to the start" in note


def test_what_the_image_tells_apart_is_not_asked_of_the_start() -> None:
    seen = make_transform(QUARTERS[1], np.zeros(3))
    goal, notes = alike([0.0, -11.0, -11.0, -11.0], seen)
    np.testing.assert_allclose(goal, seen, atol=1e-12)
    assert notes == []
    goal, (note,) = alike([0.0, -9.0, -9.0, -11.0], seen)
    np.testing.assert_allclose(goal[:3, :3], np.eye(3), atol=1e-12)
    assert "in 3 orientations" in note


def test_a_box_about_the_body_is_a_place() -> None:
    image: Any = SimpleNamespace(times_s=np.zeros(1))
    place = place_of(Hint.of_box("frame 0:10,20,30,60"), image)
    assert place is not None
    np.testing.assert_array_equal(place.center_px, np.tile([20.0, 40.0], (3, 1)))
    assert place.diameter_px[0] == pytest.approx(46.0)
    assert place.diameter_px.min() < 40.0 < 50.0 < place.diameter_px.max(), "the box may be loose, or too narrow"
    assert place_of(Hint.of_click("frame 0:10,20"), image) is None
    clip: Any = SimpleNamespace(times_s=np.zeros(2))
    assert place_of(Hint.of_box("frame 0:10,20,30,60"), clip) is None


def brick() -> Mesh:
    """A brick whose principal axes and centre are not those of its mesh."""
    made = trimesh.creation.box((0.04, 0.05, 0.06))
    vertices = made.vertices @ matrix_from_rotvec(np.array([0.2, -0.3, 0.4])).T + [0.01, 0.0, -0.02]
    return Mesh(vertices, np.asarray(made.faces), np.zeros(12, dtype=np.int64), name="brick")


def flying(mesh: Mesh, **given: float) -> tuple[Any, Aim]:
    """Inputs of a thrown body, and an aim of six centimetres aside in a fifth of a second."""
    system = ThrownBody(mesh)
    inertia = dict(zip(("inertia_xx", "inertia_yy", "inertia_zz"), 0.15 * system.shape.inertia_per_mass, strict=True))
    known = system.parameters().with_values({"mass": 0.15, **inertia, **given})
    begin = np.array([0.0, 0.0, 0.075, *quat_from_rotvec(np.array([0.0, 0.1, 0.0])), *np.zeros(6)])
    limit, points = np.array([6.0] * 3 + [0.05] * 3), mesh.vertices
    goal = points @ matrix_from_quat(begin[3:7]).T + begin[:3] + [0.06, 0.0, -0.01]
    step_s, at_rest = np.full(8, 0.025), False
    aim = Aim(system, known.vector, begin, step_s, 0.0 * limit, -limit, limit, points, goal, 0.04, at_rest)
    inputs: Any = SimpleNamespace(system=system, known=SimpleNamespace(parameters=known))
    return inputs, aim


def test_a_body_of_which_no_stiffness_is_given_touches_nothing() -> None:
    inputs, aim = flying(brick())
    assert on_ground(inputs, aim) is aim


def test_on_the_ground_a_body_comes_to_its_goal_in_its_own_axes() -> None:
    mesh = brick()
    inputs, aim = flying(mesh, k_e=2000.0, mu=0.3)
    grounded = on_ground(inputs, aim)
    assert grounded.system.action_names == aim.system.action_names
    at = [each.system.keypoints(each.start[None], each.points_body)[0] for each in (aim, grounded)]
    np.testing.assert_allclose(at[1], at[0], atol=1e-12)
    reached = optimal_control.solve(grounded)
    own = in_mesh_axes(inputs, grounded, reached)
    end = matrix_from_quat(own.states[-1, 3:7])
    np.testing.assert_allclose(mesh.vertices @ end.T + own.states[-1, :3], aim.goal, atol=2e-3)
    places = np.array([mesh.vertices @ matrix_from_quat(s[3:7]).T + s[:3] for s in own.states])
    assert places[..., 2].min() > -4e-3  # springs give way
    turned = np.linalg.norm(own.actions[:, 3:], axis=1)
    np.testing.assert_allclose(turned, np.linalg.norm(reached.actions[:, 3:], axis=1))
    assert np.abs(own.actions[:, 3:] - reached.actions[:, 3:]).max() > 1e-4
    assert in_mesh_axes(inputs, aim, reached) is reached


def test_the_start_reaches_the_search_for_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, aim = flying(brick())
    inputs.warnings, inputs.known.notes, inputs.known.per_kilogram = (), (), False
    asked = {"target": "t.png", "camera": "c.yaml", "seconds": 0.2, "rate": 20.0, "moving": True}
    config = built(ControlConfig, {**asked, "initial": {"position_z_m": 0.1}})
    starts, lift = [], np.array([0.0, 0.0, 0.09])

    def target(_: Any, start: Array, __: Any) -> Target:
        starts.append(start)
        return Target(aim.points_body, aim.points_body + lift, {}, 1e-3, 0.04, ("a note",))

    monkeypatch.setattr("vid2phys.commands.control.read_target", target)
    found = solve(inputs, config)
    assert starts[0][2] == 0.1
    assert (found.status, found.notes[0]) == ("reached", "a note")


def test_a_goal_that_the_image_hardly_supports_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, aim = flying(brick())
    inputs.warnings, inputs.known.notes, inputs.known.per_kilogram = (), (), False
    target = Target(aim.points_body, aim.goal, {}, 1e-3, 0.04, (doubt("is it another body?"),))
    monkeypatch.setattr("vid2phys.commands.control.read_target", lambda *_: target)
    asked = {"target": "t.png", "camera": "c.yaml", "seconds": 0.2, "rate": 20.0, "moving": True}
    found = solve(inputs, built(ControlConfig, asked))
    assert found.status == "doubtful"
    assert found.message.endswith("at the start")


def test_a_way_that_may_be_an_error_is_doubted() -> None:
    """By draws from the errors themselves: one of twenty passes for a way."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    ways = rng.normal(size=(400, 5)) @ root.T
    passed = np.mean([not change_doubts(way, root @ root.T) for way in ways])
    assert 0.02 < passed < 0.09
    assert not any(
        change_doubts(6.0 * way, root @ root.T) for way in ways if np.linalg.norm(np.linalg.solve(root, way)) > 1
    )
