"""The renderer: pixels where OpenCV puts them, light from where it is said to come, derivatives that are right."""

import numpy as np
import pytest

from vid2phys.engine.render.llvm import find_llvm
from vid2phys.engine.render.mitsuba import Appearance, Renderer
from vid2phys.types import Mesh

pytestmark = [
    pytest.mark.mitsuba,
    pytest.mark.skipif(find_llvm() is None, reason="no libLLVM of version 16 or newer on this machine"),
]

SIZE = 64
CORNERS = np.array([[0.0, 0.0, 0.0], [0.09, 0.01, 0.0], [0.02, 0.06, 0.01], [-0.01, 0.015, 0.05]])


@pytest.fixture(scope="module")
def tetrahedron() -> Mesh:
    """An asymmetric, convex body."""
    faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    return Mesh(CORNERS, faces, np.zeros(4, dtype=np.int64))


@pytest.fixture(scope="module")
def renderer(tetrahedron: Mesh) -> Renderer:
    return Renderer(tetrahedron, SIZE, spp=64)


@pytest.fixture(scope="module")
def pose() -> tuple[np.ndarray, np.ndarray]:
    """A view from the side, rotated, off centre, with an asymmetric principal point."""
    from vid2phys.geometry import make_transform, matrix_from_rotvec

    view_from_body = make_transform(matrix_from_rotvec(np.array([1.9, 0.4, -0.3])), np.array([0.005, -0.012, 0.6]))
    return view_from_body, np.array([[260.0, 0.0, 24.3], [0.0, 250.0, 38.9], [0.0, 0.0, 1.0]])


def look(**change: object) -> Appearance:
    values: dict[str, object] = {
        "face_color": np.tile([0.6, 0.3, 0.1], (4, 1)),
        "face_roughness": np.full(4, 0.5),
        "face_metallic": np.array([0.1, 0.6, 0.2, 0.5]),
        "specular": 0.5,
        "light_positions": np.array([[0.3, -1.0, 1.0], [1.0, 1.0, 0.2], [0.0, 0.0, 1.0]]),
        "light_intensities": np.array([[4.0, 5.0, 6.0], [2.0, 1.0, 1.0], [0.0, 0.0, 0.0]]),
        "environment": 0.5 + 0.5 * np.random.default_rng(1).random((32, 64, 3)),
        "environment_from_body": np.eye(3),
        "environment_scale": 0.8,
        "ambient": np.full(3, 0.3),
    }
    return Appearance(**{**values, **change})  # type: ignore[arg-type]


def change_of(**change: object) -> Appearance:
    zero = {name: np.zeros_like(np.asarray(value, dtype=float)) for name, value in vars(look()).items()}
    return Appearance(**{**zero, **change})  # type: ignore[arg-type]


def exact_coverage(view_from_body: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Coverage of the convex body's projection by 16 x 16 rays a pixel, from the hull of the projected corners."""
    from scipy.spatial import ConvexHull

    points = (view_from_body[:3, :3] @ CORNERS.T).T + view_from_body[:3, 3]
    hull = ConvexHull((points / points[:, 2:]) @ K[:2].T)
    step = (np.arange(SIZE * 16) + 0.5) / 16.0 - 0.5
    u, v = np.meshgrid(step, step)
    inside = np.all([a * u + b * v + c <= 0 for a, b, c in hull.equations], axis=0)
    return inside.reshape(SIZE, 16, SIZE, 16).mean(axis=(1, 3))


def centroid(coverage: np.ndarray) -> np.ndarray:
    v, u = np.mgrid[:SIZE, :SIZE]
    return np.array([(coverage * u).sum(), (coverage * v).sum()]) / coverage.sum()


def test_projection_is_opencvs(renderer: Renderer, pose: tuple[np.ndarray, np.ndarray]) -> None:
    coverage = renderer.render(*pose, look(), seed=1).radiance[..., 3]
    exact = exact_coverage(*pose)
    assert exact.sum() > 300
    np.testing.assert_allclose(centroid(coverage), centroid(exact), atol=0.03)
    assert coverage.sum() == pytest.approx(exact.sum(), rel=0.005)
    assert np.abs(coverage - exact).max() < 0.3  # 64 random rays a pixel


def test_same_seed_gives_same_bits_and_the_radiance_is_premultiplied(renderer, pose) -> None:
    first, again = (renderer.render(*pose, look(), seed=5).radiance for _ in range(2))
    assert first.tobytes() == again.tobytes()
    assert not np.array_equal(first, renderer.render(*pose, look(), seed=6).radiance)
    assert np.all(first[first[..., 3] == 0] == 0)


def test_nothing_in_view_is_black(renderer, pose) -> None:
    away = pose[0].copy()
    away[0, 3] += 5.0
    image = renderer.render(away, pose[1], look(), seed=0, directions=[change_of(specular=1.0)])
    assert not image.radiance.any()
    assert image.tangents.shape == (1, SIZE, SIZE, 3)


def test_a_white_furnace_keeps_the_energy(renderer, pose) -> None:
    """White matt body under a constant sky of radiance 1: every pixel 1, up to the small specular lobe's losses."""
    white = look(
        face_color=np.ones((4, 3)),
        face_metallic=np.zeros(4),
        specular=0.0,
        light_intensities=np.zeros((3, 3)),
        environment=np.ones((32, 64, 3)),
        environment_scale=1.0,
    )
    radiance = renderer.render(*pose, white, seed=2).radiance
    inside, edge = radiance[..., 3] == 1, (radiance[..., 3] > 0) & (radiance[..., 3] < 1)
    assert radiance[inside][:, :3].mean() == pytest.approx(1.0, abs=0.06)
    assert edge.sum() > 20
    covered = radiance[edge][:, 3].sum()  # what is shaded there are the rays that met the body
    assert radiance[edge][:, :3].mean(axis=1).sum() / covered == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("roughness", [0.2, 0.6])
def test_bare_metal_agrees_with_mitsubas_own_conductor(roughness: float) -> None:
    """Both sample the same GGX lobes; a perfect reflector differs only by the light that masking loses in both."""
    from vid2phys.engine.render.brdf import Brdf
    from vid2phys.engine.render.mitsuba import load_mitsuba

    mi, dr = load_mitsuba()
    alpha = roughness**2
    plugin = mi.load_dict({"type": "roughconductor", "material": "none", "distribution": "ggx", "alpha": alpha})
    n = 200
    rng = np.random.default_rng(0)
    wi, wo = (mi.Vector3f(rng.normal(size=(3, n)) * [[1], [1], [0.6]] + [[0], [0], [1.2]]) for _ in range(2))
    wi, wo = dr.normalize(wi), dr.normalize(wo)
    si = dr.zeros(mi.SurfaceInteraction3f, n)
    si.wi = wi
    theirs = plugin.eval(mi.BSDFContext(), si, wo).numpy()[0]
    one = dr.full(mi.Float, 1.0, n)
    ours = Brdf(mi, dr, mi.Color3f(one), roughness * one, one, 0.5 * one).eval(wi, wo).numpy()[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


def test_sampling_matches_its_density() -> None:
    """The mean of 1 / pdf over samples is the measure of the directions that can be drawn: at most the hemisphere."""
    from vid2phys.engine.render.brdf import Brdf
    from vid2phys.engine.render.mitsuba import load_mitsuba

    mi, dr = load_mitsuba()
    n = 200_000
    random = mi.PCG32(n)
    brdf = Brdf(mi, dr, mi.Color3f(0.5), mi.Float(0.6), mi.Float(0.3), mi.Float(0.5))
    wi = dr.normalize(mi.Vector3f(0.4, 0.2, 1.0))
    wo = brdf.sample(wi, random.next_float32(), mi.Point2f(random.next_float32(), random.next_float32()))
    pdf = brdf.pdf(wi, wo)
    inverse = dr.select(pdf > 1e-4, 1.0 / pdf, 0.0).numpy()
    assert inverse.mean() == pytest.approx(2 * np.pi, rel=0.02)


def test_light_comes_from_the_top_of_the_environment(renderer, pose) -> None:
    """Row 0 is the zenith +y of the environment's axes: turned so that it lies along a face's normal, it lights it."""
    top = np.zeros((32, 64, 3))
    top[:8] = 1.0
    lit = {}
    for sign in (1.0, -1.0):
        normal = sign * pose[0][:3, :3].T @ np.array([0.0, 0.0, -1.0])  # towards the camera, or away from it
        up = np.cross(normal, [0.3, 0.5, 0.2])
        up /= np.linalg.norm(up)
        axes = np.stack([np.cross(normal, up), normal, up])
        dark = look(
            light_intensities=np.zeros((3, 3)), environment=top, environment_from_body=axes, ambient=np.zeros(3)
        )
        lit[sign] = renderer.render(*pose, dark, seed=3).radiance[..., :3].sum()
    assert lit[1.0] > 10 * lit[-1.0]


def test_a_texture_is_where_the_mesh_has_it(tmp_path) -> None:
    """A square seen from in front, askew, under a constant sky: each pixel is the texel that its ray meets."""
    from tests.painted_mesh import write_obj
    from vid2phys.geometry import make_transform, matrix_from_rotvec
    from vid2phys.io.mesh import load_mesh
    from vid2phys.io.texture import surface_colors

    mesh = load_mesh(write_obj(tmp_path))
    furnace = plain_look(2, texture_share=np.ones(2))
    view_from_body = make_transform(matrix_from_rotvec(np.array([2.9, 0.3, -0.2])), np.array([-0.1, 0.15, 0.9]))
    K = np.array([[70.0, 0.0, 31.5], [0.0, 70.0, 31.5], [0.0, 0.0, 1.0]])
    radiance = Renderer(mesh, SIZE, spp=64).render(view_from_body, K, furnace, seed=2).radiance
    v, u = np.nonzero(radiance[..., 3] == 1)
    assert len(u) > 300
    rays = np.stack([(u - 31.5) / 70, (v - 31.5) / 70, np.ones(len(u))], axis=-1) @ view_from_body[:3, :3]
    origin = -view_from_body[:3, :3].T @ view_from_body[:3, 3]
    points = origin - rays * (origin[2] / rays[:, 2])[:, None]  # where they meet the plane z = 0
    a, ab, ac = (
        mesh.vertices[mesh.faces[:, 0]],
        *(mesh.vertices[mesh.faces[:, i]] - mesh.vertices[mesh.faces[:, 0]] for i in (1, 2)),
    )
    faces = np.where(points[:, 1] * 4 < points[:, 0] * 3, 0, 1)
    weights = [
        np.linalg.lstsq(np.stack([ab[f], ac[f]], 1), p - a[f], rcond=None)[0]
        for f, p in zip(faces, points, strict=True)
    ]
    barycentric = np.stack([1 - np.sum(weights, axis=1), *np.transpose(weights)], axis=-1)
    assert barycentric.min() > -1e-6
    expected = np.clip(surface_colors(mesh, faces, barycentric), 0.004, 0.97)
    difference = radiance[v, u, :3] - expected  # texels are four pixels long and blurred by one; 64 random rays
    assert np.abs(difference).mean() < 0.04
    np.testing.assert_allclose(difference.mean(axis=0), 0.0, atol=0.02)


def test_the_share_of_the_texture_mixes_it_with_the_colour(tmp_path) -> None:
    """Halfway, each pixel is the mean of what it is with and without the texture; without it, as for a plain mesh."""
    import dataclasses

    from tests.painted_mesh import write_obj
    from vid2phys.io.mesh import load_mesh

    mesh = load_mesh(write_obj(tmp_path))
    bare = dataclasses.replace(mesh, texture=None)
    view_from_body = np.eye(4)
    view_from_body[:3, 3] = [-0.2, -0.15, 0.9]
    K = np.array([[70.0, 0.0, 31.5], [0.0, 70.0, 31.5], [0.0, 0.0, 1.0]])
    images = [
        Renderer(mesh, 32, spp=4)
        .render(view_from_body, K, plain_look(2, texture_share=np.full(2, share)), seed=3)
        .radiance
        for share in (0.0, 0.5, 1.0)
    ]
    plain = Renderer(bare, 32, spp=4).render(view_from_body, K, plain_look(2), seed=3).radiance
    np.testing.assert_allclose(images[0], plain, atol=1e-6)
    assert np.abs(images[2] - plain).max() > 0.3
    np.testing.assert_allclose(images[1], 0.5 * (images[0] + images[2]), atol=0.01)


def plain_look(faces: int, **change: object) -> Appearance:
    """Matt, under a constant sky of radiance 1."""
    values: dict[str, object] = {
        "face_color": np.full((faces, 3), 0.5),
        "face_roughness": np.full(faces, 0.9),
        "face_metallic": np.zeros(faces),
        "specular": 0.0,
        "light_intensities": np.zeros((3, 3)),
        "environment": np.ones((32, 64, 3)),
        "environment_scale": 1.0,
    }
    return look(**{**values, **change})


DIRECTIONS = {
    "light intensity": change_of(light_intensities=np.array([[4.0, 5.0, 6.0], [0, 0, 0], [0, 0, 0]])),
    "light position": change_of(light_positions=np.array([[0.5, 0.3, -0.2], [0, 0, 0], [0, 0, 0]])),
    "environment": change_of(environment_scale=0.8, ambient=np.full(3, 0.1)),
    "base colour": change_of(face_color=np.tile([0.3, 0.1, -0.05], (4, 1))),
    "specular": change_of(specular=0.2),
}
ROUGHER = change_of(face_roughness=np.full(4, 0.1))


def test_forward_derivatives_match_central_differences(renderer, pose) -> None:
    tangents = renderer.render(*pose, look(), seed=7, directions=list(DIRECTIONS.values())).tangents
    for (name, direction), tangent in zip(DIRECTIONS.items(), tangents, strict=True):
        difference = central_difference(renderer, pose, look(), direction)
        scale = np.abs(difference).mean()
        assert scale > 1e-5, name
        assert np.abs(tangent - difference).mean() < 2e-3 * scale, name


def test_derivative_by_the_textures_brightness(tmp_path) -> None:
    from tests.painted_mesh import write_obj
    from vid2phys.io.mesh import load_mesh

    renderer = Renderer(load_mesh(write_obj(tmp_path)), 32, spp=16)
    view_from_body = np.eye(4)
    view_from_body[:3, 3] = [-0.2, -0.15, 0.6]
    seen = view_from_body, np.array([[40.0, 0.0, 15.5], [0.0, 40.0, 15.5], [0.0, 0.0, 1.0]])
    base = plain_look(2, texture_share=np.full(2, 0.7), texture_brightness=np.array([0.2, -0.1, 0.0]))
    zero = {name: np.zeros_like(np.asarray(value, dtype=float)) for name, value in vars(base).items()}
    direction = Appearance(**{**zero, "texture_brightness": np.array([0.3, 0.2, -0.4])})
    tangent = renderer.render(*seen, base, seed=7, directions=[direction]).tangents[0]
    difference = central_difference(renderer, seen, base, direction)
    assert np.abs(difference).mean() > 1e-3
    assert np.abs(tangent - difference).mean() < 2e-3 * np.abs(difference).mean()


def test_roughness_derivative(renderer, pose) -> None:
    """Under point lights exact; under the environment roughness also moves the samples, so only the means agree."""
    lamps = look(environment_scale=0.0, ambient=np.zeros(3))
    for base, tolerance in ((lamps, 2e-3), (look(light_intensities=np.zeros((3, 3))), 0.3)):
        tangent = renderer.render(*pose, base, seed=7, directions=[ROUGHER]).tangents[0]
        difference = central_difference(renderer, pose, base, ROUGHER)
        blocks = [x.reshape(4, 16, 4, 16, 3).mean(axis=(1, 3)) for x in (tangent, difference)]
        assert np.abs(blocks[0] - blocks[1]).mean() < tolerance * np.abs(blocks[1]).mean()


def central_difference(renderer, pose, base: Appearance, direction: Appearance, step: float = 1e-2) -> np.ndarray:
    """A common seed, so that the noise of both sides cancels."""
    sides = []
    for sign in (1.0, -1.0):
        moved = {n: np.asarray(v) + sign * step * np.asarray(getattr(direction, n)) for n, v in vars(base).items()}
        sides.append(renderer.render(*pose, Appearance(**moved), seed=7).radiance[..., :3])
    return (sides[0] - sides[1]) / (2 * step)
