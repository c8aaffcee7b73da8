"""Primitives: volume, inertia and extents against closed forms, silhouettes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vid2phys.errors import UsageError
from vid2phys.io.mesh import load_mesh, mass_properties
from vid2phys.io.primitives import is_primitive, load_body, load_surface, parse_primitive

ROOT = Path(__file__).resolve().parents[2]
QUAD = ROOT / "samples" / "quadrotor" / "quad.obj"
D, H, R = 0.04, 0.1, 0.02
CAPSULE_BALL, CAPSULE_TUBE = 4 / 3 * np.pi * R**3, np.pi * R**2 * (H - D)


def capsule_inertia() -> tuple[float, float]:
    """Return the moments per mass about an axis across and along a capsule, from its parts (parallel axes)."""
    length, volume = H - D, CAPSULE_BALL + CAPSULE_TUBE
    # A half ball about the ball's centre has 2/5 r^2; its centre of mass is 3/8 r from there.
    end = 0.4 * R**2 - (0.375 * R) ** 2 + (0.5 * length + 0.375 * R) ** 2
    across = CAPSULE_TUBE * (R**2 / 4 + length**2 / 12) + CAPSULE_BALL * end
    along = CAPSULE_TUBE * R**2 / 2 + CAPSULE_BALL * 0.4 * R**2
    return across / volume, along / volume


FORMS = [
    ("ball:d=66mm", (0.066,) * 3, np.pi * 0.066**3 / 6, (0.1 * 0.066**2,) * 3),
    (
        "box:120x80x50mm",
        (0.12, 0.08, 0.05),
        0.12 * 0.08 * 0.05,
        ((0.08**2 + 0.05**2) / 12, (0.12**2 + 0.05**2) / 12, (0.12**2 + 0.08**2) / 12),
    ),
    (
        "cylinder:d=40mm,h=100mm",
        (D, D, H),
        np.pi * R**2 * H,
        (R**2 / 4 + H**2 / 12, R**2 / 4 + H**2 / 12, R**2 / 2),
    ),
    (
        "capsule:d=40mm,h=100mm",
        (D, D, H),
        CAPSULE_BALL + CAPSULE_TUBE,
        (capsule_inertia()[0], capsule_inertia()[0], capsule_inertia()[1]),
    ),
]


@pytest.mark.parametrize(("text", "extents", "volume", "inertia"), FORMS, ids=[form[0] for form in FORMS])
def test_primitives_have_the_closed_forms(
    text: str, extents: tuple[float, ...], volume: float, inertia: tuple[float, ...]
) -> None:
    mesh = load_body(body=text)
    found = mass_properties(mesh)
    assert found.watertight
    np.testing.assert_allclose(np.ptp(mesh.vertices, axis=0), extents, rtol=1e-3)
    np.testing.assert_allclose(found.volume, volume, rtol=2e-3)
    np.testing.assert_allclose(found.inertia_per_mass, np.diag(inertia), rtol=2e-3, atol=1e-3 * max(inertia))
    np.testing.assert_allclose(found.center_of_mass, 0.0, atol=1e-12)
    assert mesh.part_names == ("body",)
    assert len(mesh.part) == len(mesh.faces)


@pytest.mark.parametrize("text", ["ball:d=2m", "cylinder:d=2m,h=1m", "capsule:d=2m,h=3m"])
def test_silhouettes_of_curved_surfaces_are_within_a_thousandth(text: str) -> None:
    """A convex silhouette lies between its corners and the circle less the gap in the middle of its edges."""
    from scipy.spatial import ConvexHull

    vertices, rng = parse_primitive(text).mesh().vertices, np.random.default_rng(0)
    for _ in range(20):
        axes = np.linalg.qr(rng.normal(size=(3, 3)))[0] if text.startswith("ball") else np.eye(3)
        seen = vertices @ axes[:, :2]  # along the axis of a body of revolution
        assert np.linalg.norm(seen, axis=1).max() < 1.001
        assert -ConvexHull(seen).equations[:, 2].max() > 0.999


def test_units_and_ways_to_write_are_the_same() -> None:
    for text in ("ball:d=66mm", "ball:r=33mm", "ball:66mm", " Ball:D=6.6cm ", "ball:d=0.066m"):
        assert parse_primitive(text).name == "ball_66mm"
    for text in ("box:120x80x50mm", "box:12cm x 8cm x 5cm", "box:x=120mm,z=5cm,y=80mm", "box:0.12x0.08x0.05m"):
        assert parse_primitive(text).name == "box_120x80x50mm"
    assert parse_primitive("cylinder:40x100mm") == parse_primitive("cylinder:h=100mm,d=40mm")
    assert parse_primitive("ball:d=2.5in").lengths_m["d"] == pytest.approx(2.5 * 0.0254)
    assert load_body(body="capsule:d=40mm,h=100mm").name == "capsule_40x100mm"


REFUSED = [
    ("ball:d=66", "'ball:d=66' has a length without a unit; .*m, cm, mm, in, ft.*for example ball:d=66mm$"),
    ("ball:66", "without a unit.*for example ball:66mm$"),
    ("ball:d=0.066", "for example ball:d=0.066m$"),
    ("box:120x80x50", "for example box:120x80x50mm$"),
    ("box:12cmx8x5cm", "for example box:x=12cm,y=8cm,z=5cm$"),
    ("cylinder:d=40,h=100mm", "for example cylinder:d=40mm,h=100mm$"),
    ("cube:5mm", "unknown primitive 'cube'; expected one of ball, box, cylinder, capsule; .*ball:d=66mm.*--mesh"),
    ("mug.obj", "unknown primitive 'mug.obj'.*a file of a mesh is given by --mesh"),
    ("ball", "'ball' has 0 lengths; expected 1"),
    ("ball:w=6mm", "unknown dimension 'w' in 'ball:w=6mm'; expected d; for example ball:d=66mm"),
    ("box:r=6mm", "unknown dimension 'r'.*expected x and y and z"),
    ("ball:d=6mm,d=7mm", "the dimension 'd' .*given twice"),
    ("ball:d=6mm,r=3mm", "the dimension 'r' .*given twice"),
    ("box:120x80mm", "has 2 lengths; expected 3"),
    ("cylinder:40mm", "has 1 length; expected 2"),
    ("cylinder:d=40mm", "'cylinder:d=40mm' lacks h; expected d and h; for example cylinder:d=40mm,h=100mm"),
    ("capsule:h=40mm", "lacks d"),
    ("capsule:d=40mm,h=40mm", "h above d, since h is the whole length"),
    ("ball:d=0mm", "a length of 0 mm in .*a positive, finite number"),
    ("ball:d=-66mm", "a length of -66 mm in .*a positive, finite number"),
    ("ball:d=nanmm", "a positive, finite number"),
    ("ball:d=infmm", "a positive, finite number"),
    ("ball:d=1e999mm", "a positive, finite number"),
    ("ball:d=66furlong", "unknown unit 'furlong'; expected one of cm, ft, in, m, mm"),
    ("ball:d=6,6cm", "unknown dimension '6cm'"),
    ("ball:d=6..6mm", r"'6\.\.6mm' in .*a number with a unit"),
    ("ball:d=", "a number with a unit"),
    ("ball:d=0.9mm", r"d of 'ball:d=0.9mm' is 0.0009 m; expected 1 mm to 20 m; the unit is probably wrong"),
    ("ball:d=66m", "is 66 m; expected 1 mm to 20 m; the unit is probably wrong"),
    ("box:120x80x5000cm", "z of 'box:120x80x5000cm' is 50 m"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_is_no_primitive_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load_body(body=text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"mesh": "m.obj"}, "--mesh m.obj beside --body ball:d=66mm; expected one of them; leave --mesh out"),
        ({"units": "mm"}, "--mesh-units mm beside --body .*has its own units and axes; leave --mesh-units out"),
        ({"move": "x:90"}, "--mesh-move x:90 beside --body .*; leave --mesh-move out"),
    ],
)
def test_options_of_a_mesh_do_not_go_with_a_primitive(others: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_body(body="ball:d=66mm", **others)


def test_a_file_is_read_as_before() -> None:
    plain = load_mesh(QUAD, move="z:90")
    for mesh in (load_body(QUAD, move="z:90"), load_body(str(QUAD), None, "m", "z:90")):
        np.testing.assert_array_equal(mesh.vertices, plain.vertices)
    np.testing.assert_array_equal(load_surface(QUAD, units_flag="--body-units").faces, plain.faces)
    with pytest.raises(UsageError, match="no --mesh and no --body"):
        load_body()
    with pytest.raises(UsageError, match=r"--body-units mm for ball:d=66mm.*leave --body-units out"):
        load_surface("ball:d=66mm", "mm", units_flag="--body-units")


def test_paths_are_no_primitives() -> None:
    assert all(map(is_primitive, ("ball", "ball:d=66mm", "sphere:d=66mm", Path("box:1x2x3m"))))
    assert not any(map(is_primitive, (None, "", "ball.obj", "meshes/ball", r"C:\mug.obj", "C:mug.obj", "./a:b.obj")))
