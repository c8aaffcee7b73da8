"""Things that belong to a motion and show in the clip besides the body: a pin, a string, a hand, a second object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import trimesh
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from benchmarks.clips.appearance import Surface
from benchmarks.clips.bodies import Body, Solid, build, capsule
from benchmarks.clips.motion import Motion, Moves, Pendulum, Release, Swing, continuous

Array = NDArray[np.float64]
_STEEL = Surface("plain", ("#b8b8bc",), roughness=0.3, metallic=1.0)
_STRING = Surface("plain", ("#e8e4d8",), roughness=0.9)
_SKIN = Surface("noise", ("#d29a7c", "#c68868"), 0.03, roughness=0.6)
_SLEEVE = Surface("noise", ("#3c4a66", "#465676"), 0.01, roughness=0.9)
_SLOWING_S = 0.09  # of the hand after the release
_OPENING_S, _OPENING_M = 0.06, 0.03


@dataclass(frozen=True)
class Mover:
    """A mesh with its surfaces and its motion. vertices: [V, 3] m; faces: [F, 3]; slot: [F] index into surfaces."""

    vertices: Array
    faces: NDArray[np.int64]
    slot: NDArray[np.int64]
    surfaces: tuple[Surface, ...]
    motion: Motion

    @property
    def static(self) -> bool:
        """Return whether the mesh never moves."""
        return not np.ptp(self.motion.position, axis=0).any()

    def corners(self) -> Array:
        """Return the corners [8, 3] m of the box around the mesh."""
        ends = np.stack([self.vertices.min(axis=0), self.vertices.max(axis=0)])
        return np.array([[x, y, z] for x in ends[:, 0] for y in ends[:, 1] for z in ends[:, 2]])


def companions(moves: Moves, solid: Solid, motion: Motion) -> list[Mover]:
    """Return what holds the body of a motion: nothing, for most motions."""
    if isinstance(moves, Pendulum):
        return _pin(moves, solid)
    if isinstance(moves, Swing):
        return [_string(moves, motion)]
    if isinstance(moves, Release):
        return _arm(moves, solid, motion)
    return []


def second_object(body: Body, moves: Moves, duration_s: float) -> Mover:
    """Return another object with its own motion."""
    solid = build(body)
    return Mover(solid.vertices, solid.faces, solid.slot, body.surfaces, moves.solve(solid, duration_s))


def _mover(mesh: trimesh.Trimesh, surface: Surface, motion: Motion) -> Mover:
    faces = np.asarray(mesh.faces, np.int64)
    return Mover(np.asarray(mesh.vertices), faces, np.zeros(len(faces), np.int64), (surface,), motion)


def _fixed(position_m: Array) -> Motion:
    position = np.tile(np.asarray(position_m, float), (2, 1))
    return Motion(np.array([0.0, 1.0]), position, np.tile([1.0, 0.0, 0.0, 0.0], (2, 1)))


def _pin(moves: Pendulum, solid: Solid) -> list[Mover]:
    """Return the pin through the body, and the post behind that carries it."""
    front, back = float(solid.vertices[:, 1].min()) - 0.008, float(solid.vertices[:, 1].max()) + 0.04
    along_y = trimesh.geometry.align_vectors([0.0, 0.0, 1.0], [0.0, 1.0, 0.0])
    pin = trimesh.creation.cylinder(radius=0.006, height=back - front, sections=32)
    pin.apply_transform(along_y)
    pin.apply_translation([0.0, 0.5 * (front + back), 0.0])
    height = moves.pin_m[2] + 0.03
    post = trimesh.creation.box((0.025, 0.025, height))
    post.apply_translation([0.0, back + 0.0125, 0.03 - 0.5 * height])
    fixed = _fixed(np.array(moves.pin_m))
    return [_mover(pin, _STEEL, fixed), _mover(post, Surface("plain", ("#4a4d52",), roughness=0.5), fixed)]


def _string(moves: Swing, motion: Motion) -> Mover:
    """Return the string from the pivot to the body."""
    pivot, tips = np.array(moves.pivot_m), motion.facts["tip_world_m"]
    mesh = trimesh.creation.cylinder(radius=0.0012, height=moves.length_m, sections=12)
    along = (tips - pivot) / moves.length_m
    down = np.array([0.0, 0.0, -1.0])
    axis = np.cross(down, along)
    half = np.stack([1.0 + along @ down, *axis.T], axis=1)
    rotation = Rotation.from_quat(half, scalar_first=True)
    quats = rotation.as_quat(scalar_first=True)
    return _mover(mesh, _STRING, Motion(motion.times_s, 0.5 * (pivot + tips), quats))


def _arm(moves: Release, solid: Solid, motion: Motion) -> list[Mover]:
    """Return a hand of capsules that grips the body from behind, opens at the release, and slows down."""
    throw = moves.throw
    along = np.array([throw.velocity_m_s[0], throw.velocity_m_s[1], 0.0])
    along /= np.linalg.norm(along)
    hand = np.stack([along, np.cross([0.0, 0.0, 1.0], along), [0.0, 0.0, 1.0]], axis=1)
    held = solid.vertices @ Rotation.from_rotvec(throw.rotvec_rad).as_matrix().T @ hand
    back, low, high = float(held[:, 0].min()), float(held[:, 2].min()), float(held[:, 2].max())
    front = 0.35 * float(held[:, 0].max())
    palm = _xyz(back - 0.045, 0.0, 0.5 * (low + high))
    parts = [(capsule(palm - _xyz(0.0, 0.03, 0.0), palm + _xyz(0.0, 0.03, 0.0), 0.026), _SKIN, 0.0)]
    for y in (-0.03, -0.005, 0.02):
        knuckle, tip = _xyz(back - 0.012, y, high + 0.016), _xyz(front, y, high + 0.012)
        parts += [
            (capsule(palm + _xyz(0.0, y, 0.0), knuckle, 0.011), _SKIN, 1.0),
            (capsule(knuckle, tip, 0.01), _SKIN, 1.0),
        ]
    thumb = _xyz(back - 0.012, 0.0, low - 0.016)
    parts += [(capsule(palm, thumb, 0.012), _SKIN, -1.0)]
    parts += [(capsule(thumb, _xyz(front, 0.0, low - 0.013), 0.011), _SKIN, -1.0)]
    wrist, elbow = palm + _xyz(-0.06, 0.0, -0.005), palm + _xyz(-0.33, 0.0, -0.1)
    parts += [(capsule(palm, wrist, 0.024), _SKIN, 0.0), (capsule(wrist, elbow, 0.032), _SLEEVE, 0.0)]
    parts += [(capsule(elbow, elbow + _xyz(-0.3, 0.0, 0.12), 0.042), _SLEEVE, 0.0)]
    movers = []
    for mesh, surface, opens in parts:
        mesh.vertices = np.asarray(mesh.vertices) @ hand.T
        movers.append(_mover(mesh, surface, _hand_motion(moves, motion, opens)))
    return movers


def _xyz(x: float, y: float, z: float) -> Array:
    return np.array([x, y, z])


def _hand_motion(moves: Release, motion: Motion, opens: float) -> Motion:
    """Return the motion of a part of the hand: with the body at first, and slowing down after the release."""
    times = np.arange(0.0, motion.times_s[-1], 2e-3)
    after = np.clip(times - moves.hold_s, 0.0, None)[:, None]
    position, quats = motion.at(np.minimum(times, moves.hold_s))
    first = Rotation.from_rotvec(moves.throw.rotvec_rad)
    turned = Rotation.from_quat(quats, scalar_first=True) * first.inv()  # of the hand, since it gripped the body
    glide = _SLOWING_S * (1.0 - np.exp(-after / _SLOWING_S))
    turned = Rotation.from_rotvec(0.3 * np.array(moves.throw.spin_rad_s) * glide) * turned
    share = np.clip(after / _OPENING_S, 0.0, 1.0)
    opening = opens * _OPENING_M * share**2 * (3.0 - 2.0 * share) * np.array([0.0, 0.0, 1.0])
    home = -0.25 * np.clip(after - 0.15, 0.0, None) ** 2 * np.array([moves.throw.velocity_m_s[0], 0.0, 1.0])
    place = position + np.array(moves.throw.velocity_m_s) * glide + turned.apply(opening) + home
    return Motion(times, place, continuous(turned.as_quat(scalar_first=True)))
