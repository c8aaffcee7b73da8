"""gradSim's imperfect models: the same objects taken for other things, path-traced targets, and what the table says."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import footage, gradsim_table4_models, reproduce
from experiments.footage import Footage
from experiments.gradsim import photographed as photographs
from experiments.gradsim.filmed import Filmed, by_newton
from experiments.gradsim.mixed import DENSITIES, KINDS, SHAPES, filled, kind_of, thrown
from experiments.gradsim.newton import noisy
from experiments.gradsim.photographed import photographed
from experiments.gradsim.shapes import shape
from experiments.gradsim_table4_models import MODELS, TEST, Model, believing
from experiments.test_renderer import FLOOR
from vid2phys.engine.closed_surfaces import one_sided
from vid2phys.engine.render.differentiable import draw, normals_of
from vid2phys.engine.systems.rigid_contact import RigidContact
from vid2phys.engine.systems.soft_body import SoftBody
from vid2phys.engine.tets import check_tets, tet_volumes
from vid2phys.geometry import invert_transform
from vid2phys.io.mesh import mass_properties
from vid2phys.solvers.rendering import encode_srgb
from vid2phys.types import Array


def drawn(kind: str, *, seed: int = 0, **more: object) -> Filmed:
    return thrown(np.random.default_rng(seed), kind, "wedge", size_px=24, **more)  # type: ignore[arg-type]


def places(filmed: Filmed) -> Array:
    """Of the vertices at the truth, [F, V, 3] m."""
    with torch.no_grad():
        states = filmed.states(torch.from_numpy(filmed.true_free))
        return filmed.shot.stage.actors[0].placed(states).numpy()


def test_ninety_objects_are_a_third_of_each_kind() -> None:
    counts = {kind: [kind_of(i) for i in range(TEST)].count((kind, name)) for kind in KINDS for name in SHAPES}
    assert set(counts.values()) == {TEST // len(KINDS) // len(SHAPES)}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_filled(name: str) -> None:
    mesh = shape(name)
    vertices, tets = filled(mesh)
    check_tets(vertices, tets)
    assert tet_volumes(vertices, tets).sum() == pytest.approx(mass_properties(mesh).volume)


@pytest.mark.parametrize("kind", KINDS)
def test_objects_get_a_known_momentum_and_land(kind: str) -> None:
    filmed = drawn(kind)
    assert DENSITIES[kind][0] <= filmed.truth[0] <= DENSITIES[kind][1]
    states = [filmed.inputs(torch.tensor([factor * filmed.truth[0]]))[0] for factor in (1.0, 2.0)]
    moving = torch.nonzero(states[0] != states[1])[:, 0]
    np.testing.assert_allclose(states[1][moving], 0.5 * states[0][moving], rtol=1e-12)
    assert len(moving) in (3, 3 * len(filmed.shot.system.surface.vertices))
    heights = places(filmed)[..., 2]
    assert heights[0].min() > 0.015
    assert heights[1:3].min() > heights[0].min()  # up it goes
    assert heights[-1].min() < 0.01
    assert places(filmed)[-1, :, 0].mean() > 0.05


def test_a_rigid_thing_and_a_soft_one_begin_alike() -> None:
    rigid, soft = drawn("rigid"), drawn("soft")
    assert isinstance(rigid.shot.system, RigidContact)
    assert isinstance(soft.shot.system, SoftBody)
    assert rigid.truth == soft.truth
    one, other = places(rigid), places(soft)[:, : len(shape("wedge").vertices)]
    np.testing.assert_allclose(one[0], other[0], atol=1e-9)
    np.testing.assert_allclose(one[1].mean(0), other[1].mean(0), atol=1e-3)  # in the air
    sides = np.linalg.norm(other[:, shape("wedge").faces[:, 0]] - other[:, shape("wedge").faces[:, 1]], axis=-1)
    assert np.ptp(sides / sides[0], axis=0).max() > 0.01  # it gives
    assert np.abs(one - other).max() > 0.002


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if not model.photographed])
def test_images_are_those_of_the_true_model(name: str) -> None:
    model = MODELS[name]
    number = KINDS.index(model.of or "rigid")
    believed = believing(model, partial(np.random.default_rng, 3), number, size_px=24)
    true = thrown(np.random.default_rng(3), *kind_of(number), size_px=24)
    assert torch.equal(believed.target.images, true.target.images)
    with torch.no_grad():
        off = float(believed.target.error(believed.images(torch.from_numpy(believed.true_free))))
    assert (off == 0.0) == (name == "perfect")
    assert believed.truth == true.truth


def test_a_wrong_model_is_said_by_its_misfit() -> None:
    rng, found = np.random.default_rng(0), {}
    for name in ("perfect", "no-friction"):
        believed = believing(MODELS[name], partial(np.random.default_rng, 5), 1, size_px=16)
        seen = replace(believed, seen=noisy(believed.target, rng))
        found[name] = by_newton(seen, np.linspace(*believed.bounds, 3))
    low, high = found["perfect"].estimates[0].ci95
    assert low < believed.truth[0] < high
    assert found["perfect"].misfit == pytest.approx(1.0, abs=0.05)
    assert found["no-friction"].misfit > 1.3


def test_photographs_are_explained_by_their_own_light(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another renderer's light and backdrop: at the truth the model draws what was seen."""
    filmed, taken = drawn("soft"), []
    light = np.array([[0.3, 0.2, 0.1], [0.05, -0.03, 0.0], [-0.1, 0.02, 0.04], [0.1, 0.1, 0.12]])
    backdrop = np.random.default_rng(0).integers(60, 160, (24, 24, 3), dtype=np.uint8)

    def film(shot: footage.Shot, folder: Path, progress: object) -> Footage:
        taken.append(shot)
        world = torch.from_numpy(shot.vertices)
        to_camera = torch.from_numpy(invert_transform(np.asarray(shot.camera.camera_to_world)))
        seen = world @ to_camera[:3, :3].T + to_camera[:3, 3]
        colors = torch.from_numpy(light[0]) + normals_of(world, shot.mesh.faces) @ torch.from_numpy(light[1:])
        K = torch.from_numpy(shot.camera.K).expand(len(seen), 3, 3)
        sides = one_sided(shot.mesh.vertices, shot.mesh.faces)
        image, covered = draw(seen, shot.mesh.faces, colors, K, 24, 24, one_sided=sides)
        behind = torch.from_numpy(((backdrop / 255.0 + 0.055) / 1.055) ** 2.4)
        frames = encode_srgb(image + (1.0 - covered[..., None]) * behind)
        return Footage(np.round(255.0 * frames.numpy()).astype(np.uint8), backdrop)

    monkeypatch.setattr(photographs.footage, "film", film)
    seen = photographed(filmed, 1, tmp_path, seed=0, progress=lambda done, count: None)
    with torch.no_grad():
        off = (seen.images(torch.from_numpy(seen.true_free)) - seen.target.images).abs()
        aside = (seen.images(torch.from_numpy(seen.start)) - seen.target.images).abs()
    assert float(off[0].max()) < 0.03  # of which colours are known
    assert float(off.square().mean()) < 0.1 * float(aside.square().mean())
    assert float(aside.max()) > 0.1
    shot = taken[0]
    assert shot.vertices[..., 2].min() == pytest.approx(FLOOR * shot.radius_m)
    np.testing.assert_allclose(np.asarray(shot.camera.camera_to_world)[:3, 3], 0.0, atol=1e-12)
    assert np.asarray(shot.camera.camera_to_world)[0, 2] > 0.8  # it looks along x


def test_without_mitsuba_the_row_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gradsim_table4_models, "find_llvm", lambda: None)
    files = reproduce(
        "gradsim-table4-models", quick=True, bodies=("photorealistic",), out=tmp_path, work=tmp_path, quiet=True
    )
    table = json.loads(files[0].read_text())
    rows = {(row["system"], row["method"]): row for row in table["rows"] if row["metric"] == "mass_error"}
    assert rows["photorealistic", "ours"]["reason"].startswith("needs Mitsuba and LLVM")
    assert rows["perfect", "pixel"]["reason"] == "not run yet"
    assert rows["perfect", "pixel"]["paper"] == 0.1071
    assert not any("photorealistic, " in note for note in table["notes"])
    assert [path.suffix for path in files] == [".json", ".md", ".png"]
    assert gradsim_table4_models._count(Model(0.0, "soft"), quick=False) == 30
