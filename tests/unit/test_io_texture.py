"""Textures: the right colour at the right place from every format, and no mesh refused for want of one."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.painted_mesh import IMAGE, linear, texel_centers, write_gltf, write_obj, write_ply
from vid2phys.io import texture_files
from vid2phys.io.mesh import load_mesh
from vid2phys.io.texture import mean_face_colors, surface_colors, texel_sizes
from vid2phys.types import Mesh

trimesh = pytest.importorskip("trimesh")
SHARED = Path(__file__).resolve().parents[2].parent / "shared"
CUBE = SHARED / "data" / "real_cube_video" / "models" / "cube" / "cube.obj"
TETRAHEDRON = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\n"


def colors_at(mesh: Mesh, points: np.ndarray, texel_m: float = 0.0) -> np.ndarray:
    """Colours at points of the surface; where they are on it is found by trimesh."""
    triangles = mesh.vertices[mesh.faces]
    _, distance, faces = trimesh.proximity.closest_point_naive(trimesh.Trimesh(mesh.vertices, mesh.faces), points)
    assert distance.max() < 1e-9
    return surface_colors(mesh, faces, trimesh.triangles.points_to_barycentric(triangles[faces], points), texel_m)


def write_wedges(folder: Path) -> Path:
    return write_ply(folder, wedges=True)


@pytest.mark.parametrize("write", [write_obj, write_gltf, write_ply, write_wedges])
def test_every_texel_is_where_the_image_has_it(tmp_path: Path, write) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mesh = load_mesh(write(tmp_path))
    points, colors = texel_centers()
    np.testing.assert_allclose(colors_at(mesh, points), colors, atol=1e-6)
    between = 0.5 * (points[0] + points[4])  # two texels above each other
    np.testing.assert_allclose(colors_at(mesh, between[None])[0], 0.5 * (colors[0] + colors[4]), atol=1e-6)
    assert texel_sizes(mesh)[1] == pytest.approx(0.1, rel=1e-5)


def test_an_exported_glb_shows_the_same(tmp_path: Path) -> None:
    square = load_mesh(write_obj(tmp_path))
    uv = [[0, 0], [1, 0], [1, 1], [0, 1]]
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=Image.fromarray(IMAGE))
    visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    scene = trimesh.Trimesh(square.vertices, square.faces, visual=visual, process=False)
    points, colors = texel_centers()
    scene.export(tmp_path / "square.glb")
    np.testing.assert_allclose(colors_at(load_mesh(tmp_path / "square.glb"), points), colors, atol=1e-6)


def test_averaging_makes_the_images_mean(tmp_path: Path) -> None:
    """In linear light: the mean of the bytes would be darker."""
    mesh = load_mesh(write_obj(tmp_path))
    points, colors = texel_centers()
    coarse = colors_at(mesh, points, texel_m=3.0)
    np.testing.assert_allclose(coarse, np.tile(colors.mean(axis=0), (12, 1)), atol=1e-6)
    assert mean_face_colors(mesh).shape == (2, 3)


def test_colours_follow_their_faces_through_welding_and_turning(tmp_path: Path) -> None:
    """An inside-out tetrahedron with split vertices, a flat face between, and a colour for each face."""
    corners = ((1, 2, 3), (1, 4, 2), (1, 3, 4), (2, 4, 3))
    first, *others = (f"f {a}/{k} {b}/{k} {c}/{k}" for k, (a, b, c) in enumerate(corners, 1))
    uv = "".join(f"vt {u} {v}\n" for u, v in ((0.125, 5 / 6), (0.625, 5 / 6), (0.875, 5 / 6), (0.875, 1 / 6)))
    split = "v 0.1 0 0\n"  # vertex 5 is vertex 2
    body = "\n".join([first, "f 1/4 1/4 2/4", others[0], others[1], others[2].replace("2/4", "5/4", 1)])
    write_obj(tmp_path)
    (tmp_path / "t.obj").write_text("mtllib paint.mtl\n" + TETRAHEDRON + split + uv + "usemtl print\n" + body + "\n")
    mesh = load_mesh(tmp_path / "t.obj")
    assert mesh.faces.shape == (4, 3)
    assert mesh.vertices.shape == (4, 3)
    normals = np.cross(*(mesh.vertices[mesh.faces[:, i]] - mesh.vertices[mesh.faces[:, 0]] for i in (1, 2)))
    found = surface_colors(mesh, np.arange(4), np.full((4, 3), 1 / 3))
    towards = {"-z": [255, 0, 0], "-y": [255, 255, 255], "-x": [0, 255, 0], "xyz": [255, 255, 0]}
    for normal, color in zip(normals, found, strict=True):
        side = "xyz" if (normal > 0).all() else "-" + "xyz"[int(np.argmin(normal))]
        np.testing.assert_allclose(color, linear(towards[side]), atol=1e-6)


def test_vertex_colours_of_obj_and_ply(tmp_path: Path) -> None:
    rgb = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]])
    lines = [f"{v} {r / 255} {g / 255} {b / 255}" for v, (r, g, b) in zip(TETRAHEDRON.splitlines(), rgb, strict=True)]
    faces = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]
    (tmp_path / "c.obj").write_text("\n".join(lines + ["f " + " ".join(str(i + 1) for i in f) for f in faces]) + "\n")
    vertices = [[float(x) for x in line.split()[1:]] for line in TETRAHEDRON.splitlines()]
    trimesh.Trimesh(vertices, faces, vertex_colors=rgb, process=False).export(tmp_path / "c.ply")
    for name in ("c.obj", "c.ply"):
        mesh = load_mesh(tmp_path / name)
        middle = (mesh.vertices[0] + mesh.vertices[1]) / 2
        np.testing.assert_allclose(colors_at(mesh, mesh.vertices), linear(rgb), atol=1e-6)
        np.testing.assert_allclose(colors_at(mesh, middle[None])[0], [0.5, 0.5, 0.0], atol=1e-6)


def test_what_has_no_colours_has_no_texture(tmp_path: Path) -> None:
    plain = TETRAHEDRON + "vt 0 0\nf 1/1 3/1 2/1\nf 1/1 2/1 4/1\nf 1/1 4/1 3/1\nf 2/1 3/1 4/1\n"
    (tmp_path / "plain.obj").write_text(plain)
    trimesh.creation.box().export(tmp_path / "box.ply")
    trimesh.creation.box().export(tmp_path / "box.stl")
    for name in ("plain.obj", "box.ply", "box.stl"):
        mesh = load_mesh(tmp_path / name)
        assert mesh.texture is None
        assert np.ptp(surface_colors(mesh, np.arange(2), np.full((2, 3), 1 / 3))) == 0.0


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda folder: (folder / "map.png").unlink(), r"'map\.png' is not in .*put it beside 'square\.obj'"),
        (lambda folder: (folder / "paint.mtl").unlink(), r"'paint\.mtl' is not in .*put it beside 'square\.obj'"),
        (
            lambda folder: (folder / "map.png").write_bytes(b"no image"),
            r"map\.png' cannot be read \(no kind of image that is known\).*PNG or JPEG",
        ),
        (lambda folder: (folder / "map.png").write_bytes((folder / "map.png").read_bytes()[:60]), "cannot be read"),
        (lambda folder: (folder / "paint.mtl").write_bytes(b"\xff\xfe\x00"), "is not a text file"),
    ],
)
def test_a_missing_texture_is_a_note(tmp_path: Path, spoil, expected: str) -> None:
    path = write_obj(tmp_path)
    spoil(tmp_path)
    with pytest.warns(UserWarning, match=expected) as caught:
        mesh = load_mesh(path)
    assert mesh.texture is None
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)


def test_missing_images_of_other_formats_are_notes_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for write in (write_ply, write_gltf):
        with pytest.warns(UserWarning, match=r"texture 'gone\.png' is not in .*put it beside 'square\.(ply|gltf)'"):
            assert load_mesh(write(tmp_path, "gone.png")).texture is None
        assert load_mesh(write(tmp_path, "map.png")).texture is not None
    assert capfd.readouterr().err == ""


def test_images_are_found_under_paths_of_other_machines(tmp_path: Path) -> None:
    mesh = load_mesh(write_obj(tmp_path, image="C:\\models of mine\\textures\\map.png"))
    assert mesh.texture is not None


def test_absurd_sizes_are_shrunk_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texture_files, "LARGEST_PX", 64)
    monkeypatch.setattr(texture_files, "_REMARKABLE_PX", 128)
    path = write_obj(tmp_path)
    for kind, mode in (("PNG", "1"), ("PNG", "P"), ("PNG", "RGBA"), ("PNG", "I;16"), ("JPEG", "RGB")):
        image = Image.fromarray(IMAGE).resize((800, 600), Image.Resampling.NEAREST)
        (image.convert("L").convert("I").convert(mode) if mode == "I;16" else image.convert(mode)).save(
            tmp_path / "map.png", format=kind
        )
        with pytest.warns(UserWarning, match="'map.png' has 800 x 600 pixels: it is shrunk below 64"):
            mesh = load_mesh(path)
        assert mesh.texture is not None
        height, width, channels = mesh.texture.images[1].shape
        assert (max(height, width) <= 64, channels) == (True, 3)
        assert width / height == pytest.approx(4 / 3, rel=0.05)
    points, colors = texel_centers()
    np.testing.assert_allclose(colors_at(mesh, points), colors, atol=0.08)  # the JPEG's
    monkeypatch.setattr(texture_files, "MOST_PIXELS", 1000)
    with pytest.warns(UserWarning, match="has 800 x 600 pixels.*used without it; shrink it"):
        assert load_mesh(path).texture is None


def test_a_coordinate_that_is_cut_short_is_named(tmp_path: Path) -> None:
    from vid2phys.errors import InputError

    (tmp_path / "c.obj").write_text(TETRAHEDRON + "vt\nf 1/1 2/1 3/1\n")
    with pytest.raises(InputError, match="line 5"):
        load_mesh(tmp_path / "c.obj")
    (tmp_path / "d.obj").write_text(TETRAHEDRON + "vt 0 0\nf 1/9 2/9 3/9\n")  # a coordinate that is not there
    assert load_mesh(tmp_path / "d.obj").texture is None


@pytest.mark.shared
@pytest.mark.skipif(not CUBE.is_file(), reason="../shared/data is not there")
def test_the_recorded_cubes_image_is_whole() -> None:
    """Held against the clip: beside the sheep is a blue sky, across from it a dark barn door; on the far side straw."""
    mesh = load_mesh(CUBE)
    half = np.abs(mesh.vertices).max()
    places = half * np.array([[-0.85, 0.85, 1.0], [0.6, -0.4, 1.0], [0.6, 0.6, -1.0]])
    sky, door, straw = colors_at(mesh, places, 0.004)
    assert sky[2] > 1.5 * sky[0]
    assert door.max() < 0.15
    assert straw[0] > straw[1] > 2.0 * straw[2]
