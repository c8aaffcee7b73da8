"""Bodies on a known base: keypoints and modes, the kinematic fit, the window, and joining the frames of a clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.engine.constants import RISP_HAND
from vid2phys.engine.movable import modes as posed_modes
from vid2phys.engine.movable.body import PosedBody
from vid2phys.engine.movable.joints import PosedJoints
from vid2phys.engine.movable.modes import Motions, PosedModes, find_motions
from vid2phys.engine.observe import project
from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rod import Rod
from vid2phys.error_model import Calibration
from vid2phys.geometry import invert_transform
from vid2phys.io.held import HeldFrames
from vid2phys.risp.networks.bodies import posed_kind
from vid2phys.risp.networks.model import Reading
from vid2phys.risp.renders.articulated_viewpoints import sample_posed, sample_posed_sequence
from vid2phys.tracking.articulated.detector import Window, look, posture_modes
from vid2phys.tracking.articulated.kinematic_fit import find_minima, fit_postures
from vid2phys.tracking.articulated.tracker import _path, track_postures
from vid2phys.types import Array, Camera, Clip

NOISE_PX = 0.5


@pytest.fixture(scope="module")
def hand() -> PosedJoints:
    return PosedJoints(get("hand"))


@pytest.fixture(scope="module")
def motions() -> Motions:
    """Of a coarse rod, in three short motions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posed_modes, "_MOTIONS", 3)
        patch.setattr(posed_modes, "_STEPS", 12)
        return find_motions(Rod((4, 1, 1)))


@pytest.fixture(scope="module")
def rod(motions: Motions) -> PosedModes:
    return PosedModes(Rod((4, 1, 1)), motions)


def seen_by(body: PosedBody, postures: Array, rng: np.random.Generator, noise_px: float) -> tuple[Array, Array, Array]:
    """Poses [N, 4, 4] of random training cameras, bearings [N, K, 2] through them with noise, and its covariance."""
    views = [sample_posed(rng, body, 128) for _ in postures]
    pose, focal = np.stack([v.view_from_body for v in views]), np.array([v.K[0, 0] for v in views])
    x = np.einsum("nij,nkj->nki", pose[:, :3, :3], body.points(postures)) + pose[:, None, :3, 3]
    std = np.broadcast_to((noise_px / focal)[:, None], x.shape[:2])
    bearings = x[..., :2] / x[..., 2:] + std[..., None] * rng.normal(size=(*x.shape[:2], 2))
    return pose, bearings, std[..., None, None] ** 2 * np.eye(2)


@pytest.mark.parametrize("name", ["hand", "articulated", "rod"])
def test_jacobian_is_that_of_the_points(name: str, request: pytest.FixtureRequest) -> None:
    body = PosedJoints(get(name)) if name == "articulated" else request.getfixturevalue(name)
    posture, step = body.sample(np.random.default_rng(1)), 1e-6
    slopes = [(body.points(posture + d) - body.points(posture - d)) / (2 * step) for d in step * np.eye(len(posture))]
    assert body.jacobian(posture) == pytest.approx(np.stack(slopes, axis=-1), abs=1e-7)
    state = body.states(posture, np.zeros_like(posture))
    assert body.points(posture) == pytest.approx(body.system.keypoints(state, body.points_body), abs=1e-9)


def test_points_of_a_bent_thumb(hand: PosedJoints) -> None:
    """Closed form: the thumb of length l at angle a in the palm's plane, flexed by q towards -z."""
    posture = np.zeros(13)
    posture[0] = flexed = 0.4
    length, aside = RISP_HAND.phalanges_m[0][0], RISP_HAND.directions_rad[0]
    along = np.array([np.cos(aside) * np.cos(flexed), np.sin(aside) * np.cos(flexed), -np.sin(flexed)])
    tip, at_rest = hand.points(posture)[0], hand.points(np.zeros(13))
    reach = np.linalg.norm(at_rest[0] - RISP_HAND.knuckles_m[0])
    assert tip == pytest.approx(RISP_HAND.knuckles_m[0] + reach * along, abs=1e-6)
    assert length < reach < length + RISP_HAND.radius_m
    assert hand.points(posture)[2:] == pytest.approx(at_rest[2:], abs=1e-12)


def test_keypoints_determine_every_coordinate(hand: PosedJoints, rod: PosedModes) -> None:
    for body in (hand, PosedJoints(get("articulated")), rod):
        jacobian = body.jacobian(body.rest).reshape(-1, len(body.rest)) * body.spread
        assert np.linalg.svd(jacobian, compute_uv=False)[-1] > 1e-4 * body.radius_m


def test_mesh_at_rest_and_links_move_rigidly(hand: PosedJoints) -> None:
    assert hand.vertices(hand.rest) == pytest.approx(hand.mesh.vertices, abs=1e-12)
    posture = hand.sample(np.random.default_rng(2))
    bent, rest = hand.vertices(posture), hand.mesh.vertices
    for part in range(len(hand.mesh.part_names)):
        own = np.unique(hand.mesh.faces[hand.mesh.part == part])[::7]
        assert np.linalg.norm(bent[own] - bent[own[0]], axis=1) == pytest.approx(
            np.linalg.norm(rest[own] - rest[own[0]], axis=1), abs=1e-9
        )


def test_modes_hold_the_clamps_and_make_up_the_motions(rod: PosedModes, motions: Motions) -> None:
    assert np.abs(motions.modes[:, rod.system.pinned]).max() < 1e-9
    amplitudes = motions.amplitudes[1, -1]
    states = rod.states(amplitudes, np.zeros_like(amplitudes))
    assert rod.system.keypoints(states, rod.system.rest_m) == pytest.approx(rod.vertices(amplitudes), abs=1e-12)
    sizes = np.sqrt((motions.amplitudes**2).sum(axis=-1).mean())
    assert 0.0 < motions.left_out_m < 0.01 * sizes


def test_modes_are_carried_over_to_other_elements(motions: Motions, rod: PosedModes) -> None:
    fine = PosedModes(Rod((8, 2, 2)), motions)
    posture = motions.amplitudes[0, 5]
    assert fine.points(posture) == pytest.approx(rod.points(posture), abs=1e-12)
    there = fine.system.keypoints(fine.states(posture, 0.0 * posture), fine.points_body)
    assert there == pytest.approx(rod.points(posture), abs=2e-3)


def test_motions_survive_a_file(motions: Motions, tmp_path: Path) -> None:
    motions.save(tmp_path / "modes.safetensors")
    again = Motions.load(tmp_path / "modes.safetensors")
    assert np.array_equal(again.modes, motions.modes)
    assert np.array_equal(again.elements, motions.elements)
    assert again.left_out_m == motions.left_out_m


def test_kinds_of_bodies() -> None:
    kinds = {name: posed_kind(get(name)) for name in ("hand", "articulated", "rod", "quadrotor", "cloth")}
    assert kinds == {"hand": "joints", "articulated": "joints", "rod": "modes", "quadrotor": "rigid", "cloth": "rigid"}


def test_view_shows_the_workspace_from_trained_directions(hand: PosedJoints) -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        view = sample_posed(rng, hand, 128)
        assert view.posture is not None
        x = hand.vertices(view.posture) @ view.view_from_body[:3, :3].T + view.view_from_body[:3, 3]
        pixels = (x @ view.K.T)[:, :2] / x[:, 2:]
        assert x[:, 2].min() > 0.0
        assert ((pixels > -12.0) & (pixels < 140.0)).all()
        eye = -view.view_from_body[:3, :3].T @ view.view_from_body[:3, 3]
        assert hand.cameras.holds(eye - hand.center_m, margin=0.01)
        assert view.view_from_body[1, 2] < -0.2  # up in the world is up in the picture
    assert not hand.cameras.holds(np.array([-1.0, 0.3, 0.5]))
    assert not hand.cameras.holds(np.array([0.3, -1.0, -1.0]))


def test_sequences_move_smoothly_before_a_camera_at_rest(hand: PosedJoints, rod: PosedModes) -> None:
    for body in (hand, rod):
        frames = sample_posed_sequence(np.random.default_rng(5), body, 64)
        postures = np.stack([np.asarray(v.posture) for v in frames]) / body.spread
        assert all(np.array_equal(v.view_from_body, frames[0].view_from_body) for v in frames)
        assert 0.0 < np.abs(np.diff(postures, axis=0)).max() < 1.0


def test_fit_recovers_postures_and_knows_how_well(hand: PosedJoints) -> None:
    rng = np.random.default_rng(6)
    postures = np.stack([hand.sample(rng) for _ in range(60)])
    pose, bearings, covariance = seen_by(hand, postures, rng, NOISE_PX)
    found = fit_postures(hand, pose, bearings, covariance)
    error = found.posture - postures
    std = np.sqrt(np.einsum("ndd->nd", found.covariance))
    assert np.median(np.abs(error)) < 0.03
    assert 0.9 < np.mean(np.abs(error) < 1.96 * std) < 0.99
    assert (found.posture >= hand.lower).all()
    assert (found.posture <= hand.upper).all()


def test_outliers_are_marked_and_harmless(hand: PosedJoints) -> None:
    rng = np.random.default_rng(7)
    postures = np.stack([hand.sample(rng) for _ in range(20)])
    pose, bearings, covariance = seen_by(hand, postures, rng, NOISE_PX)
    wrong = rng.integers(bearings.shape[1], size=20)
    bearings[np.arange(20), wrong] += 30.0 * np.sqrt(covariance[np.arange(20), wrong, 0, 0])[:, None]
    found = fit_postures(hand, pose, bearings, covariance)
    assert found.inliers[np.arange(20), wrong].mean() < 0.1
    assert found.inliers.mean() > 0.93
    assert np.median(np.abs(found.posture - postures)) < 0.04


def test_a_hidden_finger_gets_an_interval_as_wide_as_its_limits(hand: PosedJoints) -> None:
    rng = np.random.default_rng(8)
    postures = np.stack([hand.sample(rng) for _ in range(10)])
    pose, bearings, covariance = seen_by(hand, postures, rng, NOISE_PX)
    visible = np.ones(bearings.shape[:2], dtype=bool)
    visible[:, 2:8] = False  # finger 1: joints 1 to 3
    found = fit_postures(hand, pose, bearings, covariance, visible=visible)
    std = np.sqrt(np.einsum("ndd->nd", found.covariance))
    assert std[:, 1:4] == pytest.approx(np.broadcast_to(hand.spread[1:4], (10, 3)), rel=1e-6)
    assert np.median(std[:, 4:]) < 0.1
    assert found.posture[:, 1:4] == pytest.approx(np.broadcast_to(hand.middle[1:4], (10, 3)), abs=0.05)


def test_a_rod_is_read_in_its_modes(rod: PosedModes) -> None:
    rng = np.random.default_rng(9)
    postures = np.stack([rod.sample(rng) for _ in range(20)])
    pose, bearings, covariance = seen_by(rod, postures, rng, NOISE_PX)
    found = fit_postures(rod, pose, bearings, covariance)
    away = np.linalg.norm(rod.points(found.posture) - rod.points(postures), axis=-1)
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

    def read(self, images: Array, batch: int = 32) -> Reading:
        assert images.shape[1:] == (128, 128, 3)
        points = self.places_px[self.done : self.done + len(images)]
        self.done += len(images)
        shape = points.shape[:2]
        covariance = np.broadcast_to(0.3 * np.eye(2), (*shape, 2, 2))
        return Reading(points, covariance, np.full(shape, 0.9), np.zeros((len(images), 32, 32)))


def test_track_reads_a_clip_through_a_distorting_camera(hand: PosedJoints) -> None:
    rng, count = np.random.default_rng(10), 24
    times = np.arange(count) / 30.0
    path = hand.path(np.random.default_rng(11), times)
    view = sample_posed(np.random.default_rng(12), hand, 128)
    pose = view.view_from_body.copy()
    pose[0, 3] += 0.08  # the camera's axis passes the body
    camera = camera_of(pose, 300.0 * pose[2, 3])
    window = Window.of(camera, hand, 128)
    x = hand.points(path) @ pose[:3, :3].T + pose[:3, 3]
    turn = window.view.K @ window.view.rotation_view_from_camera
    rays = x @ turn.T
    network = Network(rays[..., :2] / rays[..., 2:] + 0.3 * rng.normal(size=(count, 26, 2)))
    frames = np.zeros((count, 480, 640, 3), np.uint8)
    clip = Clip(HeldFrames(frames), times, 640, 480)
    tracked = track_postures(clip, camera, network, hand, calibration=Calibration(mode_std=(0.01,) * 15,  # type: ignore[arg-type]
        mode_exponent=(0.5,) * 15, mode_doubt=(4.0,) * 15, correlation_time_s=(0.2,) * 15))  # fmt: skip
    assert tracked.tracked.all()
    assert np.median(np.abs(tracked.postures - path)) < 0.03
    seen = tracked.observation
    truth = project(camera, x)
    from vid2phys.engine.observe import bearings_to_pixels

    assert np.median(np.linalg.norm(bearings_to_pixels(camera, seen.bearings) - truth, axis=-1)) < 1.0
    assert seen.shared_basis.shape == (count, 26, 2, 15)
    assert seen.visible.mean() > 0.95
    assert tracked.notes == ()


def test_a_rod_seen_from_behind_is_the_one_that_was_trained_but_for_names(rod: PosedModes) -> None:
    """Seen from behind, a body looks like itself after half a turn seen from the front, which the network can name."""
    rng = np.random.default_rng(16)
    front = sample_posed(rng, rod, 128).view_from_body
    window = Window.of(camera_of(front @ np.diag([-1.0, -1.0, 1.0, 1.0]), 400.0), rod, 128)
    assert window.from_behind
    assert window.notes(rod) == ()
    posture = rod.sample(rng)
    moved = rod.points(posture) - rod.points_body
    turned = rod.points_body + moved[rod.half_turn] * [-1.0, -1.0, 1.0]
    x = turned @ front[:3, :3].T + front[:3, 3]
    rays = x @ (window.view.K @ window.view.rotation_view_from_camera).T
    network = Network((rays[:, :2] / rays[:, 2:])[None])
    seen = look(network, rod, window, [np.zeros((480, 640, 3), np.uint8)], Calibration())  # type: ignore[arg-type]
    assert seen.bearings[0] == pytest.approx(window.project(rod.points(posture)), abs=1e-9)


def test_shared_modes_are_derivatives_of_bearings(hand: PosedJoints) -> None:
    view = sample_posed(np.random.default_rng(13), hand, 128)
    window = Window.of(camera_of(view.view_from_body, 400.0), hand, 128)
    posture, step = hand.sample(np.random.default_rng(14)), 1e-6
    modes = posture_modes(hand, window, posture[None])[0]
    for i in range(13):
        moved = [window.project(hand.points(posture + s * step * np.eye(13)[i])) for s in (1.0, -1.0)]
        assert modes[..., i] == pytest.approx((moved[0] - moved[1]) / (2 * step), abs=1e-7)


def test_the_path_prefers_a_smooth_motion_to_a_jump(hand: PosedJoints) -> None:
    """Two mirrored minima a frame; in one frame the wrong one costs a little less."""
    rng = np.random.default_rng(15)
    postures = np.repeat(hand.sample(rng)[None], 6, axis=0)
    pose, bearings, covariance = seen_by(hand, postures[:1], rng, 0.2)
    minima = find_minima(hand, pose, bearings, covariance, starts=np.stack([postures[:1, :], -postures[:1, :]], axis=1))
    both = minima[np.zeros(6, dtype=int)]
    both.posture[:, 0], both.posture[:, 1] = postures, -postures
    both.cost[:] = [[1.0, 3.0]]
    both.cost[3] = [2.0, 1.5]
    assert _path(hand, both, np.arange(6) / 30.0).tolist() == [0] * 6


@pytest.mark.mitsuba
@pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine")
def test_rendered_postures_lie_where_their_keypoints_are(hand: PosedJoints, tmp_path: Path) -> None:
    from vid2phys.risp.appearance.develop import project as place
    from vid2phys.risp.renders.dataset import RenderSet, make_dataset

    make_dataset(
        hand.mesh, hand.system, tmp_path, samples=6, seed=3, size=64, spp=4, gradient_share=0.0, workers=1, posed=hand
    )
    renders = RenderSet(tmp_path)
    postures = renders.postures()
    assert postures.shape == (6, 13)
    covered = []
    for i in range(6):
        sample = renders.sample(i)
        assert np.array_equal(sample.posture, postures[i])
        pixels = np.round(place(sample, hand.points(postures[i]))).astype(int)
        inside = ((pixels >= 0) & (pixels < 64)).all(axis=1)
        covered.append(sample.radiance[pixels[inside, 1], pixels[inside, 0], 3] > 0.3)
        outside = place(sample, hand.points(hand.rest))
        assert np.abs(outside - place(sample, hand.points(postures[i]))).max() > 1.0
    assert np.concatenate(covered).mean() > 0.97
