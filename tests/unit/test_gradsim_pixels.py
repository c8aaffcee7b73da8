"""gradSim's pixel path: one graph from parameters to images, looks that can be switched, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import reproduce
from experiments.gradsim.descent import descend
from experiments.gradsim.pixels import Actor, Shot, Stage, Target, looking_at, solid_texture
from experiments.gradsim.result_cache import Cell, filled, missing_note
from experiments.gradsim.shapes import NAMES, RADIUS_M, shape
from experiments.table import Setting
from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.points import world_points
from vid2phys.engine.render.differentiable import FragmentColors, Fragments, draw
from vid2phys.engine.render.surface_colors import interpolated, textured
from vid2phys.engine.systems import get
from vid2phys.engine.systems.rigid_contact import Box, Points, RigidContact, Sphere
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.errors import InputError, UsageError
from vid2phys.io.texture import surface_colors
from vid2phys.types import Mesh, Texture

SIZE = (40, 32)
K = torch.tensor([[[90.0, 0.0, 19.2], [0.0, 80.0, 15.1], [0.0, 0.0, 1.0]]], dtype=torch.float64)


def wedge(at_m: float = 1.0) -> Mesh:
    """A body without symmetry, before a camera."""
    mesh = shape("wedge")
    turn = np.array([[0.8, -0.48, 0.36], [0.6, 0.64, -0.48], [0.0, 0.6, 0.8]])
    return replace(mesh, vertices=mesh.vertices @ turn.T + np.array([0.01, -0.02, at_m]))


def patterned(mesh: Mesh) -> Mesh:
    """With an image that goes round it, and a tint that varies."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (6, 9, 3), dtype=np.uint8)
    uv = rng.uniform(-0.4, 1.6, (len(mesh.faces), 3, 2))
    tint = rng.uniform(0.3, 1.0, (len(mesh.faces), 3, 3))
    return replace(mesh, texture=Texture((image, image[::2]), np.arange(len(mesh.faces)) % 2, uv, tint))


def paint_of(kind: str, mesh: Mesh) -> FragmentColors:
    if kind == "texture":
        return textured(patterned(mesh))
    if kind == "solid":
        return solid_texture(mesh.vertices, mesh.faces, lambda p: 0.5 + 0.4 * torch.sin(40.0 * p))
    return interpolated(torch.from_numpy(np.random.default_rng(1).uniform(size=(len(mesh.vertices), 3))), mesh.faces)


@pytest.mark.parametrize("kind", ["vertices", "solid", "texture"])
def test_painted_images_have_the_gradients_of_differences(kind: str) -> None:
    mesh, rng = wedge(), np.random.default_rng(2)
    texture, sides = paint_of(kind, mesh), one_sided(mesh.vertices, mesh.faces)
    points = torch.from_numpy(mesh.vertices)[None].requires_grad_()
    weights = torch.from_numpy(rng.normal(size=(1, SIZE[1], SIZE[0], 3)))

    def value(points: torch.Tensor) -> torch.Tensor:
        return (weights * draw(points, mesh.faces, texture, K, *SIZE, one_sided=sides)[0]).sum()

    (gradient,) = torch.autograd.grad(value(points), points)
    for _ in range(3):
        step, h = torch.from_numpy(rng.normal(size=points.shape)), 1e-7
        ends = [float(value((points + sign * h * step).detach())) for sign in (1.0, -1.0)]
        assert (ends[0] - ends[1]) / (2.0 * h) == pytest.approx(float((gradient * step).sum()), rel=1e-4)


def test_gradients_for_colours_of_vertices() -> None:
    mesh = wedge()
    colors = torch.rand(
        (len(mesh.vertices), 3), dtype=torch.float64, generator=torch.manual_seed(0), requires_grad=True
    )
    points = torch.from_numpy(mesh.vertices)[None]

    def value(colors: torch.Tensor) -> torch.Tensor:
        return draw(points, mesh.faces, interpolated(colors, mesh.faces), K, *SIZE)[0].square().sum()

    (gradient,) = torch.autograd.grad(value(colors), colors)
    step, h = torch.rand_like(colors), 1e-6
    slope = (value((colors + h * step).detach()) - value((colors - h * step).detach())) / (2.0 * h)
    assert float(slope) == pytest.approx(float((gradient * step).sum()), rel=1e-6)


def test_colours_are_interpolated_in_perspective() -> None:
    """A slanted square whose colours are its places: each pixel inside shows where its ray meets the square."""
    corners = np.array([[-0.3, -0.2, 0.8], [0.3, -0.2, 1.6], [0.3, 0.2, 1.6], [-0.3, 0.2, 0.8]])
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    points = torch.from_numpy(corners)[None]
    image, coverage = draw(points, faces, interpolated(torch.from_numpy(corners), faces), K, *SIZE)
    full = (coverage[0] > 1.0 - 1e-9).numpy()
    v, u = np.nonzero(full)
    rays = np.column_stack([u, v, np.ones(len(u))]) @ np.linalg.inv(K[0].numpy()).T
    depth = (0.8 + 0.4) / (1.0 - rays[:, 0] * 0.8 / 0.6)  # z = 1.2 + x 0.8 / 0.6
    assert len(u) > 300
    off = np.abs(image[0].numpy()[full] - rays * depth[:, None]).max(axis=1)
    assert np.quantile(off, 0.8) < 1e-9  # all but those on the diagonal, of two faces
    assert off.max() < 0.03


def test_textures_show_what_the_meshes_reader_says() -> None:
    mesh = patterned(wedge())
    face, weights = torch.arange(len(mesh.faces)), torch.full((len(mesh.faces), 3), 1.0 / 3.0, dtype=torch.float64)
    weights[:, 0] += 0.2
    weights[:, 2] -= 0.2
    colors = textured(mesh)(Fragments(0 * face, face, weights))
    np.testing.assert_allclose(colors.numpy(), surface_colors(mesh, face.numpy(), weights.numpy()), atol=1e-6)


def test_points_of_several_bodies_and_of_vertices() -> None:
    pair = RigidContact((Box((0.1, 0.05, 0.02)), Sphere(0.04)), planes=())
    states = pair.sample_state(np.random.default_rng(0), 3)
    points = np.random.default_rng(1).normal(size=(4, 3))
    second = RigidContact((Sphere(0.04),), planes=())
    placed = world_points(pair, torch.from_numpy(states), points, body=1)
    np.testing.assert_allclose(placed.numpy(), second.keypoints(states[:, 13:], points), atol=1e-12)
    soft = SoftBody(elements="linear")
    states = soft.sample_state(np.random.default_rng(0), 2)
    placed = world_points(soft, torch.from_numpy(states), points)
    np.testing.assert_allclose(placed.numpy(), soft.keypoints(states, points), atol=1e-12)


def shot_of(size_px: int = 32, *, every: int = 2, **look: object) -> Shot:
    """A wedge that a known push sets going."""
    mesh = shape("wedge")
    system = RigidContact((Points.of_mesh(mesh),), planes=())
    stage = Stage((Actor.of(system, mesh, **look),), looking_at((0.3, -1.0, 0.4), (0.0, 0.0, 0.0), 0.4, size_px))  # type: ignore[arg-type]
    return Shot(system, stage, 0.05, 4, every)


def start_of(shot: Shot) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    controls = shot.rest
    controls[0, :6] = torch.tensor([0.6, 0.3, 0.4, 0.01, -0.02, 0.015])
    parameters = shot.system.parameters().with_values({"mass": 0.05, "gravity": 0.0}).vector
    return torch.from_numpy(shot.system.rest_state()), controls, torch.from_numpy(parameters)


def test_the_whole_graph_has_the_gradient_of_differences() -> None:
    """Mass, push and first state, through physics, vertices and pixels at once."""
    shot = shot_of(
        texture=solid_texture(shape("wedge").vertices, shape("wedge").faces, lambda p: 0.6 + 0.3 * torch.sin(30.0 * p))
    )
    inputs = start_of(shot)
    with torch.no_grad():
        target = Target(shot.images(*start_of(shot)) * 0.9)
    assert target.images.shape == (3, 32, 32, 3)  # half of the intervals are filmed
    rng = np.random.default_rng(3)
    basis = shot.system.tangent_basis(inputs[0].numpy())
    steps = [torch.from_numpy(basis @ (0.1 * rng.normal(size=12))), 0.1 * torch.rand_like(inputs[1]),
             torch.rand_like(inputs[2]) * inputs[2]]  # fmt: skip
    asked = [t.clone().requires_grad_() for t in inputs]
    gradients = torch.autograd.grad(target.error(shot.images(*asked)), asked)
    h = 1e-6
    ends = [
        float(target.error(shot.images(*(t + sign * h * s for t, s in zip(inputs, steps, strict=True)))))
        for sign in (1.0, -1.0)
    ]
    along = sum(float((g * s).sum()) for g, s in zip(gradients, steps, strict=True))
    assert (ends[0] - ends[1]) / (2.0 * h) == pytest.approx(along, rel=1e-5)


def test_looks_are_switches() -> None:
    states = torch.from_numpy(shot_of().system.rest_state())[None]
    flat, lit = (shot_of(shaded=shaded).stage.images(states)[0] for shaded in (False, True))
    body = shot_of().stage.coverage(states)[0] > 1.0 - 1e-9
    assert len(torch.unique((flat[body] * 1e6).round(), dim=0)) == 1
    assert len(torch.unique((lit[body] * 1e6).round(), dim=0)) >= 2  # faces differ
    painted = shot_of(texture=solid_texture(shape("wedge").vertices, shape("wedge").faces, lambda p: 0.5 + p))
    assert len(torch.unique((painted.stage.images(states)[0][body] * 1e6).round(), dim=0)) > 30
    assert torch.equal(flat[~(shot_of().stage.coverage(states)[0] > 0.0)].unique(dim=0)[0],
                       torch.from_numpy(shot_of().stage.background))  # fmt: skip


def test_several_bodies_in_one_image() -> None:
    """A painted one before one that is not: each has its own colours, the nearer hides the other."""
    pair = RigidContact((Box((0.1, 0.1, 0.1)), Box((0.3, 0.02, 0.3))), planes=())
    state = pair.rest_state()
    state[:3], state[13:16] = [0.0, 0.0, 0.0], [0.0, 0.5, 0.0]
    box, wall = (replace(_box(half), name="box") for half in ((0.1, 0.1, 0.1), (0.3, 0.02, 0.3)))
    near = Actor.of(
        pair,
        box,
        albedo=(1.0, 1.0, 1.0),
        shaded=False,
        texture=solid_texture(box.vertices, box.faces, lambda p: 0.0 * p + 0.5),
    )
    far = Actor.of(pair, wall, body=1, albedo=(0.0, 0.0, 1.0), shaded=False)
    for actors in ((near, far), (far, near)):
        image = Stage(actors, looking_at((0.0, -2.0, 0.0), (0.0, 0.0, 0.0), 0.5, 33)).images(
            torch.from_numpy(state)[None]
        )[0]
        np.testing.assert_allclose(image[16, 16].numpy(), [0.5, 0.5, 0.5], atol=1e-12)
        np.testing.assert_allclose(image[16, 23].numpy(), [0.0, 0.0, 1.0], atol=1e-12)


def _box(half: tuple[float, float, float]) -> Mesh:
    import trimesh

    box = trimesh.creation.box(2.0 * np.array(half))
    return Mesh(np.asarray(box.vertices), np.asarray(box.faces), np.zeros(12, dtype=np.int64))


def test_bad_input_is_named() -> None:
    shot = shot_of()
    with torch.no_grad():
        images = shot.images(*start_of(shot))
    with pytest.raises(InputError, match=r"frames of shape \[3, 32, 32, 3\]; expected \[3, 16, 16, 3\]"):
        Target(images[:, ::2, ::2]).error(images)
    with pytest.raises(InputError, match=r"mask of shape \[3, 16, 32\]; expected \[3, 32, 32\]"):
        Target(images, torch.ones((3, 16, 32), dtype=torch.bool)).error(images)
    with pytest.raises(InputError, match="leaves out everything"):
        Target(images, torch.zeros((3, 32, 32), dtype=torch.bool)).error(images)
    states = shot.filmed(shot.states(*start_of(shot)))
    Target(images).require_overlap(shot.stage, states)
    away = states.clone()
    away[:, 0] += 0.5
    with pytest.raises(InputError, match=r"no gradient there.*keypoint"):
        Target(images).require_overlap(shot.stage, away)
    mesh = shape("wedge")
    wrong = replace(mesh, faces=np.concatenate([mesh.faces[:1, ::-1], mesh.faces[1:]]))
    with pytest.raises(InputError, match="1 of 12 faces of 'wedge' are wound against"):
        Actor.of(shot.system, wrong)
    with pytest.raises(UsageError, match="'pendulum' without a mesh"):
        Actor.of(get("pendulum"))
    gear = get("gear")
    muscle = Shot(gear, shot.stage, 1e-4, 2)
    held = muscle.rest
    held[1, 3] = 1.4
    with pytest.raises(UsageError, match=r"activation_0 of 1.4; expected -1 to 1"):
        muscle.states(torch.from_numpy(gear.rest_state()), held, torch.from_numpy(gear.parameters().vector))


def test_masks_say_what_counts() -> None:
    shot = shot_of()
    with torch.no_grad():
        images = shot.images(*start_of(shot))
    mask = torch.zeros(images.shape[:3], dtype=torch.bool)
    mask[:, :16] = True
    wrong = images.clone()
    wrong[:, 16:] += 0.5
    assert float(Target(images, mask).error(wrong)) == 0.0
    assert float(Target(images).error(wrong)) == pytest.approx(0.125)


def test_a_descent_keeps_the_best_and_its_bounds() -> None:
    def bowl(at: torch.Tensor) -> torch.Tensor:
        return ((at - torch.tensor([1.0, 3.0])) ** 2).sum()

    for optimizer, rate in (("adam", 0.1), ("sgd", 0.2)):
        found = descend(
            bowl, np.zeros(2), rate=rate, iterations=150, optimizer=optimizer, bounds=(-np.inf, np.array([5.0, 2.0]))
        )
        np.testing.assert_allclose(found.values, [1.0, 2.0], atol=1e-3)
        assert found.loss == found.losses.min() == pytest.approx(1.0, abs=1e-3)
        assert found.path.shape == (150, 2)
    found = descend(
        bowl, np.zeros(2), rate=0.1, iterations=40, optimizer="lbfgs", bounds=(-np.inf, np.array([5.0, 2.0]))
    )
    np.testing.assert_allclose(found.values, [1.0, 2.0], atol=1e-6)
    short = descend(bowl, np.zeros(2), rate=0.1, iterations=150, enough=1.0)
    assert len(short.losses) < 150
    with pytest.raises(UsageError, match="unknown optimizer 'newton'"):
        descend(bowl, np.zeros(2), rate=0.1, iterations=1, optimizer="newton")


@pytest.mark.parametrize("name", NAMES)
def test_shapes_are_closed_and_small(name: str) -> None:
    mesh = shape(name)
    assert len(mesh.vertices) <= 250
    assert one_sided(mesh.vertices, mesh.faces).all()
    assert np.linalg.norm(mesh.vertices, axis=1).max() == pytest.approx(RADIUS_M)
    corners = mesh.vertices[mesh.faces]
    assert np.linalg.det(corners).sum() > 0.0  # outside is outside
    assert len(NAMES) == 14


def test_cells_go_on_where_they_were_interrupted(tmp_path: Path) -> None:
    setting = Setting(True, tmp_path, tmp_path / "work", TrainingProgress(quiet=True), methods=("pixel",))
    cells = [Cell("gradsim-x", "beam", method, 3, setting) for method in ("pixel", "ours")]
    made: list[int] = []

    def work(index: int) -> dict[str, float]:
        if index == 2 and len(made) == 2:
            raise KeyboardInterrupt
        made.append(index)
        return {"error": 0.1 * index}

    with pytest.raises(KeyboardInterrupt):
        filled(cells, lambda cell: work)
    made.append(-1)
    filled(cells, lambda cell: work)
    assert made == [0, 1, -1, 2]
    assert cells[0].row("mass_error", "error", "1")["value"] == pytest.approx(0.1)
    assert cells[1].row("mass_error", "error", "1")["reason"] == "not run yet"
    assert "beam, ours (0 of 3)" in missing_note(cells)[0]
    assert Cell("gradsim-x", "beam", "pixel", 2, setting).outcomes() == cells[0].outcomes()[:2]
    with pytest.raises(UsageError, match="unknown body 'kite'"):
        reproduce("risp-table1", bodies=("kite",), quiet=True)
