"""Modes, far-bent shapes and reduced motion of a clamped bar, beside beam theory and the full simulation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.coverage.elastic_bar import lowest_vibration
from tests import bending_bar
from tests.bending_bar import AREA, DECAY, DENSITY, GRAVITY, INERTIA, PLACE_M, RATE, SIZE_M, YOUNG
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.default_system import with_system
from vid2phys.commands.identify.inputs import read_inputs
from vid2phys.commands.identify.soft_bodies import mesh_to_fit, model_errors
from vid2phys.engine.bent_shapes import rotated_shapes
from vid2phys.engine.movable.clamped import ClampedBody, reduced_body
from vid2phys.engine.rollout import simulate
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import box_tets
from vid2phys.engine.vibration import vibration
from vid2phys.errors import InputError, UsageError
from vid2phys.solvers.full_model import full_states
from vid2phys.solvers.vibration_start import _Mode, vibration_start
from vid2phys.types import Array, Parameters

FALLING = dict(density=DENSITY, poisson_ratio=0.0, young_modulus=YOUNG, damping=1e-6)


def bar(cells: tuple[int, int, int] = (6, 1, 1), hold: float = 1e-6) -> tuple[SoftBody, Parameters]:
    vertices, tets = box_tets(SIZE_M, cells)
    body = SoftBody(vertices + PLACE_M, tets).with_clamps(np.flatnonzero(vertices[:, 0] < hold), None, 0.0)
    return body, body.parameters().with_values(FALLING)


@pytest.fixture(scope="module")
def clamped() -> tuple[ClampedBody, Parameters]:
    body, parameters = bar()
    return ClampedBody(reduced_body(body, parameters.vector)), parameters


def test_modes_and_sag_are_those_of_a_beam() -> None:
    body, parameters = bar()
    found = vibration(body, parameters.vector, 3)
    assert np.sqrt(YOUNG * found.squares[0]) == pytest.approx(RATE, rel=0.01)
    tip = int(np.argmax(body.rest_m[:, 0]))
    sag = GRAVITY / YOUNG * np.tensordot(found.sag, found.modes[:, tip, 2], 1)
    assert sag == pytest.approx(-DENSITY * AREA * GRAVITY * SIZE_M[0] ** 4 / (8.0 * YOUNG * INERTIA), rel=0.02)
    square, ratio = found.viscosity[0, 0] / found.stiffness[0, 0], 2.0  # the stress is 2 eta times the rate of strain
    assert square == pytest.approx(ratio, rel=0.01)


def test_clamps_that_leave_a_body_free_to_turn_are_refused() -> None:
    vertices, tets = box_tets(SIZE_M, (2, 1, 1))
    body = SoftBody(vertices, tets, pinned=[0])
    with pytest.raises(InputError, match="free to move"):
        vibration(body, body.parameters().with_values({"poisson_ratio": 0.0}).vector, 1)


def test_bars_that_bend_far_keep_their_length(clamped: tuple[ClampedBody, Parameters]) -> None:
    shapes, full = clamped[0].system.shapes, clamped[0].system.full
    middle = [np.flatnonzero(np.abs(full.rest_m[:, 0] - x) < 1e-9) for x in np.unique(full.rest_m[:, 0])]
    exact = rotated_shapes(full, clamped[0].system.vibration.modes)
    for share in (0.3, -0.6, 0.9):
        at = np.zeros(len(shapes.limits))
        at[0] = share * shapes.limits[0]
        line = np.array([shapes.vertices(at)[each].mean(axis=0) for each in middle])
        assert np.linalg.norm(np.diff(line, axis=0), axis=1).sum() == pytest.approx(SIZE_M[0], rel=3e-3)
        np.testing.assert_allclose(shapes.vertices(at), exact(at), atol=4e-3 * SIZE_M[0])
    at, step = 0.4 * shapes.limits, 1e-6
    for d, slope in enumerate(np.moveaxis(shapes.jacobian(at), -1, 0)):
        ahead, behind = (shapes.vertices(at + sign * step * np.eye(len(at))[d]) for sign in (1.0, -1.0))
        np.testing.assert_allclose(slope, (ahead - behind) / (2.0 * step), atol=1e-7)


@pytest.mark.slow
def test_a_small_swing_has_the_beams_frequency(clamped: tuple[ClampedBody, Parameters]) -> None:
    body, parameters = clamped
    still = parameters.with_values({"gravity": 0.0}).vector
    start = np.zeros(2 * len(body.names))
    start[0] = 1e-3
    count, step_s = 40, 2.0 * np.pi / RATE / 20.0
    states = simulate(body.system, start[None], np.zeros((1, count, 0)), still, step_s, substeps=4)[0]
    np.testing.assert_allclose(states[::10, 0], 1e-3 * np.cos(RATE * step_s * np.arange(0, count + 1, 10)), atol=6e-5)


def test_a_large_swing_is_that_of_all_vertices(clamped: tuple[ClampedBody, Parameters]) -> None:
    body, parameters = clamped
    parameters = parameters.with_values({"young_modulus": YOUNG / 2.0, "damping": 2e4})
    times, start = np.arange(31) / 120.0, np.zeros(2 * len(body.names))
    start[0] = 0.02
    reduced = simulate(body.system, start[None], np.zeros((1, 30, 0)), parameters.vector, 1.0 / 120.0, substeps=4)[0]
    full = full_states(body, start, parameters, times)
    found = body.nearest_states(full, body.configurations(reduced))
    assert np.ptp(found[:, 0]) > 0.07  # of 0.2 m
    assert np.sqrt(((found - reduced)[:, 0] ** 2).mean()) < 0.03 * np.ptp(found[:, 0])


def test_vibration_shows_modulus_and_damping(clamped: tuple[ClampedBody, Parameters]) -> None:
    body, _ = clamped
    found = body.system.vibration
    times = np.arange(50) / 60.0
    rate = np.sqrt(RATE**2 - DECAY**2)
    seen = np.zeros((len(times), len(body.names)))
    rest = GRAVITY * found.sag[0] / (RATE**2 / found.squares[0])
    seen[:, 0] = rest + 0.01 * np.exp(-DECAY * times) * np.cos(rate * times + 0.4)
    seen[7] = np.nan
    start = vibration_start(times, seen, np.full(seen.shape, 1e-8), found, GRAVITY)
    assert start.young_modulus == pytest.approx(RATE**2 / found.squares[0], rel=0.02)
    assert start.damping * found.decays[0] == pytest.approx(DECAY, rel=0.5)
    assert start.cost < 0.05 * start.still


def test_a_coarse_mesh_is_corrected_by_a_finer_one() -> None:
    body, parameters = bar((2, 1, 1))
    used, found, note = mesh_to_fit(body, parameters.vector)
    assert len(used.rest_m) == len(body.refined().rest_m)
    finest, _ = bar((12, 2, 2))
    coarse, fine = (vibration(each, parameters.vector, 1) for each in (used, finest))
    assert found.stiffness == pytest.approx(fine.squares[0] / coarse.squares[0], rel=0.005)
    assert found.viscosity == pytest.approx(fine.decays[0] / coarse.decays[0], rel=0.005)
    assert 0.0 < found.std < 0.01
    assert "nodes" in note


def test_viscosity_is_that_of_a_bar_without_a_mesh() -> None:
    vertices, tets = box_tets(SIZE_M, (4, 1, 1))
    body = SoftBody(vertices, tets, pinned=np.flatnonzero(vertices[:, 0] == 0.0))
    parameters = body.parameters().with_values({"poisson_ratio": 0.3, "density": DENSITY})
    used, found, _ = mesh_to_fit(body, parameters.vector)
    modes = vibration(used, parameters.vector, 1)
    square, decay = lowest_vibration(np.array(SIZE_M), 0.3, DENSITY)
    assert found.viscosity * modes.decays[0] == pytest.approx(decay, rel=4e-3), "the finest mesh has 1.5 % less"
    assert found.stiffness * modes.squares[0] == pytest.approx(square, rel=5e-3)


def test_a_slender_bar_without_a_mesh_is_that_of_beam_theory() -> None:
    size = np.array([1.0, 0.02, 0.02])
    square, decay = lowest_vibration(size, 0.0, DENSITY)
    rate = (1.8751040687 / size[0]) ** 4 * size[2] ** 2 / (12.0 * DENSITY)  # Euler and Bernoulli
    assert square == pytest.approx(rate, rel=1e-3)
    assert decay == pytest.approx(square, rel=1e-6), "without contraction the stress is 2 eta times the rate of strain"


@pytest.mark.parametrize(
    ("options", "words", "kind"),
    [
        ({"clamp": ()}, "without --clamp", UsageError),
        ({"body": None}, "no --body", UsageError),
        ({"clamp": ("x<-1",)}, "no vertices", InputError),
        ({"fit": ("poisson_ratio",)}, "give one of them", UsageError),
        ({"actions": Path("a.csv")}, "gravity drives", UsageError),
        ({"load": "0.1@x>9"}, "no vertices", InputError),
        ({"body": "open.stl"}, "open surface", InputError),
        ({"system": "rigid_contact", "body": "ball:d=66mm"}, "--clamp or --load for", UsageError),
    ],
)
def test_bad_input_is_one_line(
    options: dict[str, object], words: str, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bending_bar.write(tmp_path, 0)
    sheet = bending_bar.surface(2)
    sheet.update_faces(np.arange(len(sheet.faces) - 1))
    sheet.export(tmp_path / "open.stl")
    given: dict[str, object] = {
        "clip": Path("images"), "camera": Path("cam.yaml"), "system": "soft_body", "body": "bar.msh",
        "clamp": ("x<0.001",), "fit": ("young_modulus",), "set_values": {"density": 1000.0}, **options,
    }  # fmt: skip
    with pytest.raises(kind, match=words):
        read(with_system(IdentifyConfig(**given)))  # type: ignore[arg-type]


def read(config: IdentifyConfig) -> None:
    config.check()
    read_inputs(config)


def test_a_body_is_placed_with_what_holds_it() -> None:
    body, _ = bar()
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    moved = body.placed(turn, np.array([0.1, 0.0, 0.0]))
    np.testing.assert_array_equal(moved.pinned, body.pinned)
    np.testing.assert_allclose(moved.rest_m, body.rest_m @ turn.T + [0.1, 0.0, 0.0])


def test_measured_shapes_are_found_again(clamped: tuple[ClampedBody, Parameters]) -> None:
    body, _ = clamped
    at: Array = 0.5 * np.stack([body.upper, -body.upper])
    states = body.states(at, 2.0 * at)
    full = np.stack([body.system.full.state(body.system.shapes.vertices(q), body.system.shapes.jacobian(q) @ (2.0 * q))
                     for q in at])  # fmt: skip
    np.testing.assert_allclose(body.nearest_states(full, 0.8 * at), states, atol=1e-5)


def test_a_load_at_the_tip_slows_a_bar_as_rayleigh_has_it() -> None:
    vertices, tets = box_tets(SIZE_M, (6, 1, 1))
    clamps, tip = np.flatnonzero(vertices[:, 0] == 0.0), np.flatnonzero(vertices[:, 0] == SIZE_M[0])
    load, mass = 0.2, DENSITY * AREA * SIZE_M[0]
    body = SoftBody(vertices, tets).with_clamps(clamps, tip, load)
    found = vibration(body, body.parameters().with_values(FALLING).vector, 1)
    expected = 3.0 * YOUNG * INERTIA / (SIZE_M[0] ** 3 * (load + 33.0 / 140.0 * mass))
    assert YOUNG * found.squares[0] == pytest.approx(expected, rel=0.02)


def test_a_vibration_that_hardly_shows_is_about_the_sag() -> None:
    times, sag, young = np.arange(30) / 60.0, -3e3, 2e5
    mode = _Mode(times, 0.02 * np.cos(40.0 * times), np.full(30, 1e20), 0.004, 1e-5, sag)
    _, amplitude, rate = mode.fit(young, 1.0, 1e-6)
    assert amplitude == pytest.approx(sag / young, rel=1e-4)
    assert abs(rate) < 1e-3


def test_sampled_motions_are_vibrations_of_which_the_slowest_takes_a_second() -> None:
    """Rates are roots of the modes' squares; amplitudes reach half of the limits at most."""
    body = object.__new__(ClampedBody)
    rates, limits = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.04, 0.02])
    vars(body).update(
        system=SimpleNamespace(vibration=SimpleNamespace(squares=25.0 * rates**2)), lower=-limits, upper=limits
    )
    times_s = np.arange(1200) / 600.0
    for seed in range(5):
        motion = body.sample_motion(np.random.default_rng(seed), times_s)
        for mode, rate in enumerate(rates):
            spectrum = np.abs(np.fft.rfft(motion[:, mode]))
            assert np.argmax(spectrum) == 2 * rate, "in two seconds"
            assert spectrum[np.argmax(spectrum)] == pytest.approx(np.linalg.norm(spectrum))
            assert 0.0 < np.abs(motion[:, mode]).max() <= 0.5 * limits[mode]
    many = np.stack([body.sample_motion(np.random.default_rng(seed), times_s[::60]) for seed in range(300)])
    np.testing.assert_allclose(np.sqrt(np.mean(many**2, axis=(0, 1))), 0.5 * limits / np.sqrt(6.0), rtol=0.1)


def test_a_corrected_modulus_errs_as_the_mesh_does() -> None:
    """Damping, and what the full mesh could not correct, errs by as much as it moved, too."""
    moved = {"young_modulus": 0.004, "damping": 0.003}
    assert model_errors(moved, 0.004, is_corrected=True) == pytest.approx({"young_modulus": 0.004, "damping": 0.005})
    uncorrected = model_errors(moved, 0.003, is_corrected=False)
    assert uncorrected == pytest.approx({"young_modulus": 0.005, "damping": 0.003 * np.sqrt(2.0)})
