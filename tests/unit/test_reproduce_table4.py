"""RISP's table 4 and figure 6b: what is shown, what is aimed at, and how ends are judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import driving, method_inputs, reproduce, risp_fig6b
from experiments.aiming import bring, final_distance_mm, final_l1, nearest_alike
from experiments.bodies import entries
from experiments.control_parametrisation import parametrisation_of
from experiments.experiments import Experiment
from experiments.footage import Footage
from experiments.identification import Case, identify, true_states
from experiments.imitation import followed
from experiments.method_inputs import observation_of, views_of
from vid2phys.engine.systems.rod import Rod
from vid2phys.geometry import make_transform, matrix_from_quat, matrix_from_rotvec, quat_from_rotvec, quat_multiply
from vid2phys.risp.shape.rotation_groups import cyclic
from vid2phys.types import Observation


def flight(frames: int = 6) -> tuple[Experiment, Case]:
    """A quadrotor's motion of which the ends are shown, and a case that begins with another one."""
    (entry,) = entries(("quadrotor",))
    parametrisation = parametrisation_of("quadrotor", frames)
    rng = np.random.default_rng(0)
    experiment = replace(parametrisation.experiment(entry, Path(), parametrisation.draw(rng)), only=(0, frames))
    return experiment, Case(experiment, None, parametrisation.draw(rng), 0)


def test_ends_are_judged_by_places_and_angles() -> None:
    experiment, _ = flight()
    states = experiment.states.copy()
    assert final_l1(experiment, states) == 0.0
    states[-1, :3] += [0.02, -0.01, 0.03]
    states[-1, 7:] += 5.0  # no image shows speeds
    states[:-1] = 0.0  # nor are other frames looked at
    assert final_l1(experiment, states) == pytest.approx(0.06 / experiment.radius_m)
    assert final_distance_mm(experiment, states) == pytest.approx(1e3 * np.sqrt(0.0014))
    states = experiment.states.copy()
    states[-1, 3:7] = quat_multiply(states[-1, 3:7], quat_from_rotvec(np.array([0.1, -0.2, 0.05])))
    assert final_l1(experiment, states) == pytest.approx(0.35, rel=1e-3)


def test_of_a_rod_its_sensors_heights_count() -> None:
    rod = Rod((4, 1, 1), elements="linear")
    rest = rod.rest_state()
    lifted = rest.copy()
    free = np.setdiff1d(np.arange(len(rod.rest_m)), rod.pinned)
    lifted[: 3 * len(rod.rest_m)].reshape(-1, 3)[free, 2] += 0.01

    class Pushed:
        class plan:  # noqa: N801
            system = rod

        radius_m = 0.2
        states = rest[None]

    heights = rod.keypoints(lifted[None], rod.spine_m)[0, :, 2] - rod.keypoints(rest[None], rod.spine_m)[0, :, 2]
    assert final_l1(Pushed, lifted[None]) == pytest.approx(heights.sum() / 0.2)  # type: ignore[arg-type]
    assert heights.max() == pytest.approx(0.01)


def test_a_plain_cube_is_judged_by_the_nearest_pose_that_looks_alike() -> None:
    (entry,) = entries(("cube-plain",))
    parametrisation = parametrisation_of("cube-plain", 3)
    experiment = parametrisation.experiment(entry, Path(), parametrisation.draw(np.random.default_rng(0)))
    assert experiment.alike.shape == (24, 4, 4)
    states = experiment.states.copy()
    quarter = quat_from_rotvec(np.array([0.0, np.pi / 2.0, 0.0]))
    off = quat_from_rotvec(np.array([0.1, 0.0, 0.0]))
    states[-1, 3:7] = quat_multiply(quat_multiply(states[-1, 3:7], quarter), off)
    assert final_l1(experiment, states) == pytest.approx(0.1, abs=1e-9)
    assert final_distance_mm(experiment, states) == pytest.approx(
        1e3 * 0.1 * np.sqrt(2.0 / 3.0) * experiment.radius_m, rel=0.01
    )
    pose = make_transform(matrix_from_quat(experiment.states[-1, 3:7]), experiment.states[-1, :3])
    turned = pose @ experiment.alike[7]
    nearest = nearest_alike(experiment, turned)
    np.testing.assert_allclose(nearest, pose, atol=1e-9)
    assert len(flight()[0].alike) == 1


def test_true_targets_are_reached_by_gentle_actions() -> None:
    experiment, case = flight(10)
    parametrisation = parametrisation_of("quadrotor", 10)
    found = bring(case, parametrisation, "oracle-newton", None)
    assert found.failure is None
    before, after = (
        final_l1(experiment, followed(experiment, parametrisation, u).states) for u in (case.start, found.values)
    )
    assert after < 0.1 * before
    assert np.abs(found.values).max() <= 500.0
    assert parametrisation.numbers_of(parametrisation.actions(found.values)) == pytest.approx(found.values)
    worse = bring(replace(case, iterations=20), parametrisation, "oracle", None)
    assert final_l1(experiment, followed(experiment, parametrisation, worse.values).states) < before


def test_oracles_know_the_frames_that_are_shown_alone() -> None:
    experiment, _ = flight()
    evidence = true_states(experiment)
    assert evidence.std is not None
    assert np.isfinite(evidence.std).any(axis=1).tolist() == [True, *[False] * 5, True]


def test_frames_of_figure_6b() -> None:
    chosen = {label: choose(31) for label, choose in risp_fig6b.FRAMES.items()}
    assert chosen["every frame"] == tuple(range(31))
    assert chosen["every 5th"] == (0, 5, 10, 15, 20, 25, 30)
    assert chosen["first + last"] == (0, 30)
    assert chosen["first + middle"] == (0, 15)


def test_what_is_read_lies_at_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that are not shown hold nothing that is visible, and count for nothing in a fit."""
    (entry,) = entries(("quadrotor",))
    experiment = replace(Experiment.of(entry, Path(), np.array([3.0]), 6), only=(0, 4))
    seen = Observation(
        *(experiment.plan.times_s[[0, 4]], np.array([[[0.1, 0.2]], [[0.3, 0.4]]]), np.tile(np.eye(2), (2, 1, 1, 1))),
        *(np.zeros((2, 1, 2, 1)), np.ones(1), np.ones((2, 1), dtype=bool), np.zeros((1, 3)), np.array([0.0, 1.0])),
    )

    class Read:
        observation = seen

    monkeypatch.setattr(method_inputs, "pose_track", lambda *_: Read)

    class Scaled:
        @staticmethod
        def scaled(_: float) -> None:
            return None

    found = observation_of(experiment, Footage(np.zeros(0), np.zeros(0)), Scaled, 0)  # type: ignore[arg-type]
    assert found.times_s == pytest.approx(experiment.plan.times_s)
    assert found.visible[:, 0].tolist() == [True, False, False, False, True, False, False]
    assert found.bearings[[0, 4], 0] == pytest.approx(np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert found.error_clock_s[[0, 2, 4]] == pytest.approx([0.0, 0.5, 1.0])


def test_views_are_of_the_frames_shown() -> None:
    experiment, _ = flight(4)
    camera = experiment.camera
    frames = np.zeros((2, camera.height, camera.width, 3), dtype=np.uint8)
    frames[1] = 255
    views = views_of(experiment, Footage(frames, frames[0]), 16, 0)
    assert views.frames.tolist() == [0, 4]
    assert views.images[0].max() == 0.0
    assert views.images[1].max() == 1.0


def test_an_oracle_identifies_from_two_frames() -> None:
    (entry,) = entries(("quadrotor",))
    experiment = replace(Experiment.of(entry, Path(), np.array([3.0]), 12), only=(0, 12))
    outcome = identify(Case(experiment, None, np.array([2.9]), 0), "oracle-newton", None)
    assert outcome.values == pytest.approx([3.0], abs=1e-5)


@pytest.mark.parametrize(
    ("name", "metric", "title"),
    [("risp-table4", "final_l1", "oracle-newton"), ("risp-fig6b", "mass_error", "oracle-newton, first + middle")],
)
def test_cells_are_filled_resumed_and_named(
    name: str, metric: str, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {"quick": True, "bodies": ("quadrotor",), "out": tmp_path, "work": tmp_path / "work", "quiet": True}
    files = reproduce(name, methods=("oracle-newton",), **arguments)  # type: ignore[arg-type]
    rows = json.loads(files[0].read_text())["rows"]
    monkeypatch.setattr(driving.Bench, "rows", lambda *_: pytest.fail("it is there already"))
    monkeypatch.setattr(risp_fig6b.Bench, "identified", lambda *_: pytest.fail("it is there already"))
    again = reproduce(name, methods=("oracle-newton",), **arguments)  # type: ignore[arg-type]
    assert json.loads(again[0].read_text())["rows"] == rows
    mine = {(row["method"], row["metric"]): row for row in rows if row["system"] == "quadrotor"}
    assert mine[title, metric]["value"] < 0.05
    assert mine[title.replace("oracle-newton", "ours"), metric]["value"] is None
    assert {row["paper"] for row in rows} == {None}
    assert files[2].stat().st_size > 5000


def test_a_known_orientation_names_what_is_read() -> None:
    turns, known = cyclic(4), matrix_from_rotvec(np.array([0.3, -0.2, 0.1]))
    off = matrix_from_rotvec(np.array([0.0, 0.1, 0.05]))
    for element, turn in enumerate(turns):
        read = np.stack([off @ known @ turn, matrix_from_rotvec(np.array([np.pi, 0.0, 0.0])) @ known])
        nats = method_inputs._known_nats(known, read, turns)
        assert int(np.argmax(nats[0])) == element
        assert nats[0, element] > -1.0
        assert np.delete(nats[0], element).max() < -20.0
        assert nats.min() >= -50.0
