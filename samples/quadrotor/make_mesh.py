"""Makes `quad.obj`, the sample's quadrotor: our own design, made of closed parts.

    python samples/quadrotor/make_mesh.py

Metres; x forward, y left, z up; origin at the centre of mass (of the volume, one density). The body is nearly the
same after a quarter turn, as quadrotors are; a camera pod marks the front.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from vid2phys.io.mesh import save_obj
from vid2phys.types import Mesh

MOTOR_CIRCLE_M = 0.27  # diameter
MOTOR_AZIMUTHS_RAD = np.deg2rad([45.0, 135.0, 225.0, 315.0])
PROPELLER_RADIUS_M = 0.063


def box(size: tuple[float, float, float], at: tuple[float, float, float]) -> trimesh.Trimesh:
    """An axis-aligned box."""
    return trimesh.creation.box(size, transform=trimesh.transformations.translation_matrix(at))


def cylinder(radius: float, bottom: tuple[float, float, float], height: float, sections: int = 24) -> trimesh.Trimesh:
    """An upright cylinder standing at `bottom`."""
    solid = trimesh.creation.cylinder(radius, height, sections=sections)
    solid.apply_translation(np.add(bottom, [0.0, 0.0, 0.5 * height]))
    return solid


def prism(outline: np.ndarray, bottom: float, height: float) -> trimesh.Trimesh:
    """A convex outline [N, 2] (counter-clockwise) pulled up from `bottom`."""
    n = len(outline)
    vertices = np.concatenate([np.c_[outline, np.full(n, bottom)], np.c_[outline, np.full(n, bottom + height)]])
    fan = np.array([[0, i, i + 1] for i in range(1, n - 1)])
    side = np.array([[i, (i + 1) % n, n + (i + 1) % n, n + i] for i in range(n)])
    faces = np.concatenate([fan[:, ::-1], fan + n, side[:, [0, 1, 2]], side[:, [0, 2, 3]]])
    return trimesh.Trimesh(vertices, faces, process=False)


def tube(start: np.ndarray, end: np.ndarray, radius: float, sections: int = 16) -> trimesh.Trimesh:
    """A round bar from `start` to `end`."""
    return trimesh.creation.cylinder(radius, segment=np.array([start, end]), sections=sections)


def turned(solid: trimesh.Trimesh, angle_rad: float, at: np.ndarray | None = None) -> trimesh.Trimesh:
    """A copy turned about z, then moved."""
    matrix = trimesh.transformations.rotation_matrix(angle_rad, [0.0, 0.0, 1.0])
    matrix[:3, 3] = 0.0 if at is None else at
    return solid.copy().apply_transform(matrix)


def body() -> list[trimesh.Trimesh]:
    """Two octagonal plates on four posts, and the flight controller between them."""
    angle = np.deg2rad(22.5 + 45.0 * np.arange(8))
    octagon = 0.047 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    posts = [
        cylinder(0.003, (*(0.036 * np.array([np.cos(a), np.sin(a)])), -0.008), 0.02, 12)
        for a in np.arange(4) * np.pi / 2
    ]
    return [
        prism(octagon, -0.011, 0.003),
        prism(0.92 * octagon, 0.012, 0.003),
        box((0.036, 0.036, 0.011), (0, 0, 0)),
        *posts,
    ]


def arms() -> list[trimesh.Trimesh]:
    """Four tapered arms from the lower plate to the motors, with a mount at their end."""
    reach = 0.5 * MOTOR_CIRCLE_M
    outline = np.array([[0.028, -0.0085], [reach, -0.0055], [reach, 0.0055], [0.028, 0.0085]])
    bars = [turned(prism(outline, -0.008, 0.007), a) for a in MOTOR_AZIMUTHS_RAD]
    mounts = [cylinder(0.0155, (*(reach * direction(a)[:2]), -0.009), 0.008) for a in MOTOR_AZIMUTHS_RAD]
    return bars + mounts


def direction(azimuth_rad: float) -> np.ndarray:
    """Unit vector in the horizontal plane."""
    return np.array([np.cos(azimuth_rad), np.sin(azimuth_rad), 0.0])


def motors() -> list[trimesh.Trimesh]:
    """Four bells with a shaft."""
    places = [0.5 * MOTOR_CIRCLE_M * direction(a) for a in MOTOR_AZIMUTHS_RAD]
    bells = [cylinder(0.0135, (p[0], p[1], -0.001), 0.018, 28) for p in places]
    return bells + [cylinder(0.003, (p[0], p[1], 0.017), 0.009, 12) for p in places]


def propellers() -> list[trimesh.Trimesh]:
    """Four standing two-blade propellers; each pair turned so that a quarter turn maps the set to itself."""
    result = []
    for azimuth in MOTOR_AZIMUTHS_RAD:
        place = 0.5 * MOTOR_CIRCLE_M * direction(azimuth) + [0.0, 0.0, 0.0225]
        hub = cylinder(0.0062, (0.0, 0.0, -0.0025), 0.006, 16)
        result += [turned(part, azimuth + np.deg2rad(62.0), place) for part in (hub, blade(), turned(blade(), np.pi))]
    return result


def blade(stations: int = 9) -> trimesh.Trimesh:
    """A twisted, tapered blade along +x: a loft of flat hexagons."""
    share = np.linspace(0.0, 1.0, stations)
    along = 0.003 + share * (PROPELLER_RADIUS_M - 0.003)
    chord = 0.0045 + 0.0115 * np.sin(np.pi * np.clip(0.12 + 0.8 * share, 0.0, 1.0))
    chord[-1] *= 0.6
    pitch = np.deg2rad(26.0 - 17.0 * share)
    section = np.array([[-0.5, 0.0], [-0.2, -0.5], [0.25, -0.5], [0.5, 0.0], [0.2, 0.5], [-0.25, 0.5]])
    rings = []
    for x, width, angle in zip(along, chord, pitch, strict=True):
        y, z = section[:, 0] * width, section[:, 1] * 0.0016
        rings.append(
            np.stack([np.full(6, x), y * np.cos(angle) - z * np.sin(angle), y * np.sin(angle) + z * np.cos(angle)], 1)
        )
    faces = [[0, i + 1, i] for i in range(1, 5)]
    last = 6 * (stations - 1)
    faces += [[last, last + i, last + i + 1] for i in range(1, 5)]
    for ring in range(stations - 1):
        for i in range(6):
            a, b = 6 * ring + i, 6 * ring + (i + 1) % 6
            faces += [[a, b, b + 6], [a, b + 6, a + 6]]
    return trimesh.Trimesh(np.concatenate(rings), np.array(faces), process=False)


def battery() -> list[trimesh.Trimesh]:
    """A pack on the upper plate with its strap."""
    return [box((0.068, 0.034, 0.019), (-0.003, 0.0, 0.0255)), box((0.013, 0.0375, 0.0225), (0.006, 0.0, 0.0255))]


def camera_pod() -> list[trimesh.Trimesh]:
    """A housing at the front with a lens: what tells the front from the other sides."""
    lens = tube(np.array([0.066, 0.0, 0.003]), np.array([0.078, 0.0, 0.001]), 0.0095, 24)
    return [box((0.026, 0.034, 0.026), (0.054, 0.0, 0.003)), lens]


def skids() -> list[trimesh.Trimesh]:
    """A slanted leg under each motor with a round foot."""
    legs, feet = [], []
    for azimuth in MOTOR_AZIMUTHS_RAD:
        top, foot = 0.098 * direction(azimuth) + [0, 0, -0.004], 0.116 * direction(azimuth) + [0, 0, -0.058]
        legs.append(tube(top, foot, 0.0036, 12))
        feet.append(trimesh.creation.icosphere(subdivisions=2, radius=0.0062).apply_translation(foot))
    return legs + feet


PARTS = {
    "body": body,
    "arms": arms,
    "motors": motors,
    "propellers": propellers,
    "battery": battery,
    "camera_pod": camera_pod,
    "skids": skids,
}


def make_quadrotor() -> Mesh:
    """The whole mesh, centred at its centre of mass. Raises ValueError when a part is not closed."""
    vertices, faces, part, count = [], [], [], 0
    for index, (name, make) in enumerate(PARTS.items()):
        for solid in make():
            if not solid.is_watertight or solid.volume <= 0.0:
                raise ValueError(f"a piece of {name} is not closed, or inside out")
            vertices.append(solid.vertices)
            faces.append(solid.faces + count)
            part.append(np.full(len(solid.faces), index))
            count += len(solid.vertices)
    whole = trimesh.Trimesh(np.concatenate(vertices), np.concatenate(faces), process=False)
    return Mesh(whole.vertices - whole.center_mass, whole.faces, np.concatenate(part), tuple(PARTS), "quad")


if __name__ == "__main__":
    path = Path(__file__).parent / "quad.obj"
    mesh = make_quadrotor()
    save_obj(mesh, path)
    print(f"{path.name}: {len(mesh.vertices)} vertices, {len(mesh.faces)} faces, {np.ptp(mesh.vertices, axis=0)} m")
