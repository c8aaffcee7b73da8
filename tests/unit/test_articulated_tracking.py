"""Bodies on a known base: keypoints and modes, the kinematic fit, the window, and joining the frames of a clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.engine.constants import RISP_HAND
from vid2phys.engine.movable import modes as posed_modes
from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.movable.joints import JointBody
from vid2phys.engine.movable.modes import ModalBody, Motions, find_motions
from vid2phys.engine.observe import project
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rod import Rod
from vid2phys.error_model import Calibration
from vid2phys.geometry import invert_transform
from vid2phys.io.array_clip import ArrayFrames
from vid2phys.risp.networks.articulated_bodies import configuration_kind
from vid2phys.risp.networks.model import KeypointPrediction
from vid2phys.risp.renders.articulated_viewpoints import sample_articulated, sample_articulated_sequence
from vid2phys.tracking.articulated.detector import Window, configuration_modes, detect
from vid2phys.tracking.articulated.kinematic_fit import find_minima, fit_configurations
from vid2phys.tracking.articulated.tracker import _viterbi_path, track_configurations
from vid2phys.types import Array, Camera, Clip

NOISE_PX = 0.5


@pytest.fixture(scope="module")
def hand() -> JointBody:
    return JointBody(get("hand"))


@pytest.fixture(scope="module")
def motions() -> Motions:
    """Of a coarse rod, in three short motions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posed_modes, "_MOTIONS", 3)
        patch.setattr(posed_modes, "_STEPS", 12)
        return find_motions(Rod((4, 1, 1), elements="linear"))


@pytest.fixture(scope="module")
def rod(motions: Motions) -> ModalBody:
    return ModalBody(Rod((4, 1, 1), elements="linear"), motions)


def seen_by(
    body: ArticulatedBody, configurations: Array, rng: np.random.Generator, noise_px: float
) -> tuple[Array, Array, Array]:
    """Poses [N, 4, 4] of random training cameras, bearings [N, K, 2] through them with noise, and its covariance."""
    views = [sample_articulated(rng, body, 128) for _ in configurations]
    pose, focal = np.stack([v.view_from_body for v in views]), np.array([v.K[0, 0] for v in views])
    x = np.einsum("nij,nkj->nki", pose[:, :3, :3], body.points(configurations)) + pose[:, None, :3, 3]
    std = np.broadcast_to((noise_px / focal)[:, None], x.shape[:2])
    bearings = x[..., :2] / x[..., 2:] + std[..., None] * rng.normal(size=(*x.shape[:2], 2))
    return pose, bearings, std[..., None, None] ** 2 * np.eye(2)


@pytest.mark.parametrize("name", ["hand", "articulated", "rod"])
def test_jacobian_is_that_of_the_points(name: str, request: pytest.FixtureRequest) -> None:
    body = JointBody(get(name)) if name == "articulated" else request.getfixturevalue(name)
    configuration, step = body.sample(np.random.default_rng(1)), 1e-6
    slopes = [
        (body.points(configuration + d) - body.points(configuration - d)) / (2 * step)
        for d in step * np.eye(len(configuration))
    ]
    assert body.points_jacobian(configuration) == pytest.approx(np.stack(slopes, axis=-1), abs=1e-7)
    state = body.states(configuration, np.zeros_like(configuration))
    assert body.points(configuration) == pytest.approx(body.system.keypoints(state, body.points_body), abs=1e-9)


def test_points_of_a_bent_thumb(hand: JointBody) -> None:
    """Closed form: the thumb of length l at angle a in the palm's plane, flexed by q towards -z."""
    configuration = np.zeros(13)
    configuration[0] = flexed = 0.4
    length, aside = RISP_HAND.phalanges_m[0][0], RISP_HAND.directions_rad[0]
    along = np.array([np.cos(aside) * np.cos(flexed), np.sin(aside) * np.cos(flexed), -np.sin(flexed)])
    tip, at_rest = hand.points(configuration)[0], hand.points(np.zeros(13))
    reach = np.linalg.norm(at_rest[0] - RISP_HAND.knuckles_m[0])
    assert tip == pytest.approx(RISP_HAND.knuckles_m[0] + reach * along, abs=1e-6)
    assert length < reach < length + RISP_HAND.radius_m
    assert hand.points(configuration)[2:] == pytest.approx(at_rest[2:], abs=1e-12)


def test_keypoints_determine_every_coordinate(hand: JointBody, rod: ModalBody) -> None:
    for body in (hand, JointBody(get("articulated")), rod):
        jacobian = body.points_jacobian(body.rest).reshape(-1, len(body.rest)) * body.prior_std
        assert np.linalg.svd(jacobian, compute_uv=False)[-1] > 1e-4 * body.radius_m


def test_mesh_at_rest_and_links_move_rigidly(hand: JointBody) -> None:
    assert hand.vertices(hand.rest) == pytest.approx(hand.mesh.vertices, abs=1e-12)
    configuration = hand.sample(np.random.default_rng(2))
    bent, rest = hand.vertices(configuration), hand.mesh.vertices
    for part in range(len(hand.mesh.part_names)):
        own = np.unique(hand.mesh.faces[hand.mesh.part == part])[::7]
        assert np.linalg.norm(bent[own] - bent[own[0]], axis=1) == pytest.approx(
            np.linalg.norm(rest[own] - rest[own[0]], axis=1), abs=1e-9
        )


def test_modes_hold_the_clamps_and_make_up_the_motions(rod: ModalBody, motions: Motions) -> None:
    assert np.abs(motions.modes[:, rod.system.pinned]).max() < 1e-9
    amplitudes = motions.amplitudes[1, -1]
    states = rod.states(amplitudes, np.zeros_like(amplitudes))
    assert rod.system.keypoints(states, rod.system.rest_m) == pytest.approx(rod.vertices(amplitudes), abs=1e-12)
    sizes = np.sqrt((motions.amplitudes**2).sum(axis=-1).mean())
    assert 0.0 < motions.left_out_m < 0.01 * sizes


def test_modes_are_carried_over_to_other_elements(motions: Motions, rod: ModalBody) -> None:
    fine = ModalBody(Rod((8, 2, 2)), motions)
    configuration = motions.amplitudes[0, 5]
    assert fine.points(configuration) == pytest.approx(rod.points(configuration), abs=1e-12)
    there = fine.system.keypoints(fine.states(configuration, 0.0 * configuration), fine.points_body)
    assert there == pytest.approx(rod.points(configuration), abs=2e-3)


def test_motions_survive_a_file(motions: Motions, tmp_path: Path) -> None:
    motions.save(tmp_path / "modes.safetensors")
    again = Motions.load(tmp_path / "modes.safetensors")
    assert np.array_equal(again.modes, motions.modes)
    assert np.array_equal(again.elements, motions.elements)
    assert again.left_out_m == motions.left_out_m


def test_kinds_of_bodies() -> None:
    kinds = {name: configuration_kind(get(name)) for name in ("hand", "articulated", "rod", "quadrotor", "cloth")}
    expected = {"hand": "joints", "articulated": "joints", "rod": "modes", "quadrotor": "rigid", "cloth": "vertices"}
    assert kinds == expected


def test_view_shows_the_workspace_from_trained_directions(hand: JointBody) -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        view = sample_articulated(rng, hand, 128)
        assert view.configuration is not None
        x = hand.vertices(view.configuration) @ view.view_from_body[:3, :3].T + view.view_from_body[:3, 3]
        pixels = (x @ view.K.T)[:, :2] / x[:, 2:]
        assert x[:, 2].min() > 0.0
        assert ((pixels > -12.0) & (pixels < 140.0)).all()
        eye = -view.view_from_body[:3, :3].T @ view.view_from_body[:3, 3]
        assert hand.cameras.contains(eye - hand.center_m, margin=0.01)
        assert view.view_from_body[1, 2] < -0.2  # up in the world is up in the image
    assert not hand.cameras.contains(np.array([-1.0, 0.3, 0.5]))
    assert not hand.cameras.contains(np.array([0.3, -1.0, -1.0]))


def test_sequences_move_smoothly_before_a_camera_at_rest(hand: JointBody, rod: ModalBody) -> None:
    for body in (hand, rod):
        frames = sample_articulated_sequence(np.random.default_rng(5), body, 64)
        configurations = np.stack([np.asarray(v.configuration) for v in frames]) / body.prior_std
        assert all(np.array_equal(v.view_from_body, frames[0].view_from_body) for v in frames)
        assert 0.0 < np.abs(np.diff(configurations, axis=0)).max() < 1.0


def test_fit_recovers_configurations_and_knows_how_well(hand: JointBody) -> None:
    rng = np.random.default_rng(6)
    configurations = np.stack([hand.sample(rng) for _ in range(60)])
    pose, bearings, covariance = seen_by(hand, configurations, rng, NOISE_PX)
    found = fit_configurations(hand, pose, bearings, covariance)
    error = found.configuration - configurations
    std = np.sqrt(np.einsum("ndd->nd", found.covariance))
    assert np.median(np.abs(error)) < 0.03
    assert 0.9 < np.mean(np.abs(error) < 1.96 * std) < 0.99
    assert (found.configuration >= hand.lower).all()
    assert (found.configuration <= hand.upper).all()


def test_outliers_are_marked_and_harmless(hand: JointBody) -> None:
    rng = np.random.default_rng(7)
    configurations = np.stack([hand.sample(rng) for _ in range(20)])
    pose, bearings, covariance = seen_by(hand, configurations, rng, NOISE_PX)
    wrong = rng.integers(bearings.shape[1], size=20)
    bearings[np.arange(20), wrong] += 30.0 * np.sqrt(covariance[np.arange(20), wrong, 0, 0])[:, None]
    found = fit_configurations(hand, pose, bearings, covariance)
    assert found.inliers[np.arange(20), wrong].mean() < 0.1
    assert found.inliers.mean() > 0.93
    assert np.median(np.abs(found.configuration - configurations)) < 0.04


def test_a_hidden_finger_gets_an_interval_as_wide_as_its_limits(hand: JointBody) -> None:
    rng = np.random.default_rng(8)
    configurations = np.stack([hand.sample(rng) for _ in range(10)])
    pose, bearings, covariance = seen_by(hand, configurations, rng, NOISE_PX)
    visible = np.ones(bearings.shape[:2], dtype=bool)
    visible[:, 2:8] = False  # finger 1: joints 1 to 3
    found = fit_configurations(hand, pose, bearings, covariance, visible=visible)
    std = np.sqrt(np.einsum("ndd->nd", found.covariance))
    assert std[:, 1:4] == pytest.approx(np.broadcast_to(hand.prior_std[1:4], (10, 3)), rel=1e-6)
    assert np.median(std[:, 4:]) < 0.1
    assert found.configuration[:, 1:4] == pytest.approx(np.broadcast_to(hand.prior_mean[1:4], (10, 3)), abs=0.05)


def test_a_rod_is_read_in_its_modes(rod: ModalBody) -> None:
    rng = np.random.default_rng(9)
    configurations = np.stack([rod.sample(rng) for _ in range(20)])
    pose, bearings, covariance = seen_by(rod, configurations, rng, NOISE_PX)
    found = fit_configurations(rod, pose, bearings, covariance)
    away = np.linalg.norm(rod.points(found.configuration) - rod.points(configurations), axis=-1)
    assert np.median(away) < 1.5e-3


def camera_of(pose: Array, focal: float) -> Camera:
    """A wide one with distortion, which looks past the body."""
    K = np.array([[focal, 0.0, 330.0], [0.0, 1.02 * focal, 235.0], [0.0, 0.0, 1.0]])
    return Camera(K, 640, 480, np.array([-0.2, 0.05, 1e-3, -2e-3, 0.0]), camera_to_world=invert_transform(pose))


class Network:
    """Reads the true places of the points, in order; a few pixels of the view off where told."""

    view_size = 128
    calibration = None

    def __init__(self, places_px: Array) -> None:
        self.places_px, self.done = places_px, 0

    def predict(self, images: Array, batch: int = 32) -> KeypointPrediction:
        assert images.shape[1:] == (128, 128, 3)
        points = self.places_px[self.done : self.done + len(images)]
        self.done += len(images)
        shape = points.shape[:2]
        covariance = np.broadcast_to(0.3 * np.eye(2), (*shape, 2, 2))
        return KeypointPrediction(points, covariance, np.full(shape, 0.9), np.zeros((len(images), 32, 32)))


def test_track_reads_a_clip_through_a_distorting_camera(hand: JointBody) -> None:
    rng, count = np.random.default_rng(10), 24
    times = np.arange(count) / 30.0
    path = hand.sample_motion(np.random.default_rng(11), times)
    view = sample_articulated(np.random.default_rng(12), hand, 128)
    pose = view.view_from_body.copy()
    pose[0, 3] += 0.08  # the camera's axis passes the body
    camera = camera_of(pose, 300.0 * pose[2, 3])
    window = Window.of(camera, hand, 128)
    x = hand.points(path) @ pose[:3, :3].T + pose[:3, 3]
    turn = window.view.K @ window.view.rotation_view_from_camera
    rays = x @ turn.T
    network = Network(rays[..., :2] / rays[..., 2:] + 0.3 * rng.normal(size=(count, 26, 2)))
    frames = np.zeros((count, 480, 640, 3), np.uint8)
    clip = Clip(ArrayFrames(frames), times, 640, 480)
    tracked = track_configurations(clip, camera, network, hand, calibration=Calibration(mode_std=(0.01,) * 15,  # type: ignore[arg-type]
        mode_exponent=(0.5,) * 15, mode_doubt=(4.0,) * 15, correlation_time_s=(0.2,) * 15))  # fmt: skip
    assert tracked.tracked.all()
    assert np.median(np.abs(tracked.configurations - path)) < 0.03
    seen = tracked.observation
    truth = project(camera, x)
    from vid2phys.engine.observe import bearings_to_pixels

    assert np.median(np.linalg.norm(bearings_to_pixels(camera, seen.bearings) - truth, axis=-1)) < 1.0
    assert seen.shared_basis.shape == (count, 26, 2, 15)
    assert seen.visible.mean() > 0.95
    assert tracked.notes == ()


def test_a_rod_seen_from_behind_is_the_one_that_was_trained_but_for_names(rod: ModalBody) -> None:
    """Seen from behind, a body looks like itself after half a turn seen from the front, which the network can name."""
    rng = np.random.default_rng(16)
    front = sample_articulated(rng, rod, 128).view_from_body
    window = Window.of(camera_of(front @ np.diag([-1.0, -1.0, 1.0, 1.0]), 400.0), rod, 128)
    assert window.from_behind
    assert window.notes(rod) == ()
    configuration = rod.sample(rng)
    moved = rod.points(configuration) - rod.points_body
    turned = rod.points_body + moved[rod.half_turn] * [-1.0, -1.0, 1.0]
    x = turned @ front[:3, :3].T + front[:3, 3]
    rays = x @ (window.view.K @ window.view.rotation_view_from_camera).T
    network = Network((rays[:, :2] / rays[:, 2:])[None])
    seen = detect(network, rod, window, [np.zeros((480, 640, 3), np.uint8)], Calibration())  # type: ignore[arg-type]
    assert seen.bearings[0] == pytest.approx(window.project(rod.points(configuration)), abs=1e-9)


def test_shared_modes_are_derivatives_of_bearings(hand: JointBody) -> None:
    view = sample_articulated(np.random.default_rng(13), hand, 128)
    window = Window.of(camera_of(view.view_from_body, 400.0), hand, 128)
    configuration, step = hand.sample(np.random.default_rng(14)), 1e-6
    modes = configuration_modes(hand, window, configuration[None])[0]
    for i in range(13):
        moved = [window.project(hand.points(configuration + s * step * np.eye(13)[i])) for s in (1.0, -1.0)]
        assert modes[..., i] == pytest.approx((moved[0] - moved[1]) / (2 * step), abs=1e-7)


def test_the_path_prefers_a_smooth_motion_to_a_jump(hand: JointBody) -> None:
    """Two mirrored minima a frame; in one frame the wrong one costs a little less."""
    rng = np.random.default_rng(15)
    configurations = np.repeat(hand.sample(rng)[None], 6, axis=0)
    pose, bearings, covariance = seen_by(hand, configurations[:1], rng, 0.2)
    minima = find_minima(
        hand, pose, bearings, covariance, starts=np.stack([configurations[:1, :], -configurations[:1, :]], axis=1)
    )
    both = minima[np.zeros(6, dtype=int)]
    both.configuration[:, 0], both.configuration[:, 1] = configurations, -configurations
    both.cost[:] = [[1.0, 3.0]]
    both.cost[3] = [2.0, 1.5]
    assert _viterbi_path(hand, both, np.arange(6) / 30.0).tolist() == [0] * 6


@pytest.mark.mitsuba
@pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine")
def test_rendered_configurations_lie_where_their_keypoints_are(hand: JointBody, tmp_path: Path) -> None:
    from vid2phys.risp.appearance.develop import project as place
    from vid2phys.risp.renders.dataset import RenderSet
    from vid2phys.risp.renders.make_dataset import RenderOptions, make_dataset

    make_dataset(
        hand.mesh,
        hand.system,
        tmp_path,
        RenderOptions(samples=6, seed=3, size=64, spp=4, gradient_share=0.0, articulated=hand),
        workers=1,
    )
    renders = RenderSet(tmp_path)
    configurations = renders.configurations()
    assert configurations.shape == (6, 13)
    covered = []
    for i in range(6):
        sample = renders.sample(i)
        assert np.array_equal(sample.configuration, configurations[i])
        pixels = np.round(place(sample, hand.points(configurations[i]))).astype(int)
        inside = ((pixels >= 0) & (pixels < 64)).all(axis=1)
        covered.append(sample.radiance[pixels[inside, 1], pixels[inside, 0], 3] > 0.3)
        outside = place(sample, hand.points(hand.rest))
        assert np.abs(outside - place(sample, hand.points(configurations[i]))).max() > 1.0
    assert np.concatenate(covered).mean() > 0.97
