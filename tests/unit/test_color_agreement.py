"""The colours of a surface tell a motion from its depth reversal, where silhouettes prefer the wrong one."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from tests.drawn_clip import images
from vid2phys.geometry import Pose
from vid2phys.risp.shape.symmetry import find_symmetry
from vid2phys.tracking.candidate_paths import Candidates
from vid2phys.tracking.color_agreement import SurfaceEvidence, agreeing_path
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.light import linear
from vid2phys.tracking.cues.surface_colors import SurfacePlaces
from vid2phys.tracking.look_alikes import LookAlikes
from vid2phys.types import Array, Camera, Mesh

COUNT = 24
CAMERA = Camera(
    np.array([[7000.0, 0.0, 120.0], [0.0, 7000.0, 80.0], [0.0, 0.0, 1.0]]), 240, 160, camera_to_world=np.eye(4)
)
TRUE = Pose(
    Rotation.from_rotvec(0.1 * np.arange(COUNT)[:, None] * [0.5, 0.6, 0.62] + [0.4, 0.3, 0.1]).as_matrix(),
    np.linspace([-0.08, 0.01, 11.0], [0.1, -0.02, 12.0], COUNT),
)


def box() -> Mesh:
    made = trimesh.creation.box((0.1, 0.08, 0.06))
    faces = np.asarray(made.faces, np.int64)
    return Mesh(np.asarray(made.vertices), faces, np.zeros(len(faces), dtype=np.int64), name="box")


LOOK_ALIKES = LookAlikes.of(box(), find_symmetry(box()).rotations)


def film(printed: bool, lit: bool = True) -> list[Array]:
    """Return images of the box in motion; with a print of squares or without, lit from one side or from all."""
    mesh = box()
    small = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).subdivide().subdivide().subdivide()
    tint = np.ones((len(small.faces), 3))
    if printed:
        tint = np.random.default_rng(4).uniform(0.3, 1.0, (len(tint) // 16, 3)).repeat(16, axis=0)
    shown = []
    for pose in (TRUE[i] for i in range(COUNT)):
        normals = small.face_normals @ pose.rotation.T
        even = 0.4 / (0.5 + 0.45 * np.abs(normals @ [0.3, -0.5, 0.81]))  # takes back the light of `images`
        light = 0.3 + 0.5 * np.clip(normals @ [0.3, -0.7, -0.65], 0.0, 1.0) if lit else even
        shown += images(
            [pose.apply(np.asarray(small.vertices))], np.asarray(small.faces, np.int64), light[:, None] * tint, CAMERA
        )
    return shown


def evidence(frames: list[Array], preferred_nats: float) -> SurfaceEvidence:
    """Return evidence for two candidates a frame: the true pose and its reversal, preferred by so many nats."""
    mesh = box()
    symmetry = find_symmetry(mesh)
    poses = {i: [TRUE[i], *LOOK_ALIKES.of_pose(TRUE[i])] for i in range(COUNT)}
    nats = {i: np.array([[0.0], [preferred_nats]]) * np.ones(symmetry.order) for i in range(COUNT)}
    candidates = Candidates(poses, nats, symmetry.rotations, symmetry.center, np.arange(COUNT) / 60.0)
    places = SurfacePlaces.of(Solid.of(mesh), symmetry.rotations, symmetry.center)
    colors = {i: np.stack([places.seen(linear(frames[i]), CAMERA, pose) for pose in poses[i]]) for i in range(COUNT)}
    return SurfaceEvidence(candidates, colors, places.under)


@pytest.mark.parametrize("preferred_nats", [-1.0, 1.0])
def test_a_print_shows_the_right_motion(preferred_nats: float) -> None:
    seen = evidence(film(printed=True), preferred_nats)
    path = agreeing_path(seen, LOOK_ALIKES)
    assert [h for h, _ in path.values()] == [0] * COUNT
    assert len({g for _, g in path.values()}) == 1
    nats = seen.nats(path)[7]
    assert (nats == nats[:, :1]).all(), "which element it is, the motion tells"


@pytest.mark.parametrize(("preferred_nats", "chosen"), [(-1.0, 0), (1.0, 1)])
def test_silhouettes_decide_on_a_body_of_one_color(preferred_nats: float, chosen: int) -> None:
    seen = evidence(film(printed=False, lit=False), preferred_nats)
    path = agreeing_path(seen, LOOK_ALIKES)
    assert [h for h, _ in path.values()] == [chosen] * COUNT


def test_creases_between_lit_sides_show_the_right_motion() -> None:
    path = agreeing_path(evidence(film(printed=False), 1.0), LOOK_ALIKES)
    assert [h for h, _ in path.values()] == [0] * COUNT


def test_the_other_frames_judge_a_frame() -> None:
    """A frame's own colours are left out: of one frame alone, nothing is known."""
    seen = evidence(film(printed=True), 0.0)
    alone = seen.nats({3: (0, 0)})[3]
    others = seen.nats({i: (0, 0) for i in range(COUNT)})[3]
    nothing = seen.nats({i: (0, 0) for i in range(COUNT) if i != 3})[3]
    assert alone[0, 0] < others[0, 0]
    assert others == pytest.approx(nothing)


def test_places_follow_the_elements_of_a_body() -> None:
    mesh = box()
    symmetry = find_symmetry(mesh)
    places = SurfacePlaces.of(Solid.of(mesh), symmetry.rotations, symmetry.center)
    assert (places.under[0] == np.arange(len(places.normals))).all()
    for g, rotation in enumerate(symmetry.rotations):
        moved = places.normals @ rotation
        same = (places.normals[places.under[g]] * moved).sum(axis=1)
        assert np.mean(same > 0.99) > 0.97, "a side goes to a side"


def test_a_body_behind_or_beside_the_camera_shows_nothing() -> None:
    mesh = box()
    places = SurfacePlaces.of(Solid.of(mesh), np.eye(3)[None], np.zeros(3))
    light = np.full((160, 240, 3), 0.5, np.float32)
    for place in ([0.0, 0.0, -1.0], [5.0, 0.0, 10.0], [0.0, 0.0, 400.0]):
        assert np.isnan(places.seen(light, CAMERA, Pose(np.eye(3), np.array(place)))).all()
