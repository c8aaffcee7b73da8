"""The clip of a recorded flight, path-traced along its motion with a held-out appearance, and the errors of motions.

Errors are in metres and degrees, in pixels, and in actions. Limits: one camera and one appearance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.articulated import looking
from experiments.flights import Flight
from experiments.footage import Footage, Shot, film
from experiments.method_inputs import looked_for, views_about
from experiments.rigid import MIDDLE
from experiments.test_renderer import CONFIGURATIONS, FLOOR
from vid2phys.engine.systems.quadrotor import Quadrotor
from vid2phys.geometry import invert_transform, make_transform, matrix_from_quat, matrix_from_rotvec
from vid2phys.indices import evenly
from vid2phys.report.metrics import SymmetryGroup, summarize, symmetry_of
from vid2phys.solvers.rendering import Scene, Views, fit_light
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.types import Array, Camera, Mesh, Parameters, PoseLog

WIDTH, HEIGHT, FOCAL_PX = 960, 400, 1500.0
_APPEARANCE = [appearance.name for appearance in CONFIGURATIONS].index("workshop")
_AWAY, _ABOVE = 24.0, 6.0  # of the camera from the middle of the flight, in the stage's units
_STRIP_PX, _STRIP_WIDE, _STRIP = 128, 2.0, 8  # size of the strips' views, how much wider than usual, how many
_LIT_EVERY, _CHUNK = 12, 24  # frames


@dataclass(frozen=True)
class FilmSet:
    """Where the flight is filmed: its camera in the world, and how the world is put on the stage of `test_renderer`."""

    camera: Camera
    stage_from_world: Array
    unit_m: float

    @staticmethod
    def about(positions: Array) -> FilmSet:
        """Return the set for a flight through [F, 3] m above the floor z = 0, wider along x than along y: seen from
        along y.
        """
        middle = 0.5 * (positions.min(axis=0) + positions.max(axis=0))
        unit = float(middle[2]) / -FLOOR
        rotation = matrix_from_rotvec(np.array([0.0, 0.0, -0.5 * np.pi]))
        move = make_transform(rotation, unit * MIDDLE - rotation @ middle)
        bearing = np.array([_AWAY, 0.0, -_ABOVE])
        on_stage = make_transform(looking(bearing / np.linalg.norm(bearing)), unit * (MIDDLE - bearing))
        K = np.array([[FOCAL_PX, 0.0, 0.5 * (WIDTH - 1)], [0.0, FOCAL_PX, 0.5 * (HEIGHT - 1)], [0.0, 0.0, 1.0]])
        return FilmSet(Camera(K, WIDTH, HEIGHT, camera_to_world=invert_transform(move) @ on_stage), move, unit)

    def shot(self, mesh: Mesh, vertices: Array, spp: int, seed: int) -> Shot:
        """Return the shot of the mesh with vertices [F, V, 3] m in the world."""
        move = self.stage_from_world
        camera = replace(self.camera, camera_to_world=move @ np.asarray(self.camera.camera_to_world))
        return Shot(mesh, self.unit_m, vertices @ move[:3, :3].T + move[:3, 3], camera, _APPEARANCE, spp, seed)


@dataclass(frozen=True)
class FlightClip:
    """A flight of the body `mesh` as it is filmed. folder: keeps the frames. progress: called with those made and
    all."""

    flight: Flight
    mesh: Mesh
    folder: Path
    spp: int
    seed: int
    progress: Callable[[int, int], None]

    @cached_property
    def system(self) -> Quadrotor:
        """Return the system that flies; its actions are a wrench, as they were commanded."""
        return Quadrotor()

    @cached_property
    def parameters(self) -> Parameters:
        """Return the parameters of what flies, all known."""
        return self.system.parameters().with_values({"mass": self.flight.mass_kg})

    @cached_property
    def film_set(self) -> FilmSet:
        """Return where the flight is filmed."""
        return FilmSet.about(self.flight.states[:, :3])

    @property
    def camera_to_world(self) -> Array:
        """Return camera_to_world [4, 4]."""
        return np.asarray(self.film_set.camera.camera_to_world)

    @cached_property
    def footage(self) -> Footage:
        """Return the video, which is made or taken from the folder."""
        vertices = np.stack([self.system.vertices(state, self.mesh.vertices) for state in self.flight.states])
        return film(self.film_set.shot(self.mesh, vertices, self.spp, self.seed), self.folder, self.progress)

    @cached_property
    def radius_m(self) -> float:
        """Return the radius of the body."""
        return self.mesh.radius_m

    @cached_property
    def symmetry(self) -> SymmetryGroup:
        """Return the symmetry group of the body with its colours."""
        return symmetry_of(self.mesh)

    @cached_property
    def looked(self) -> tuple[Array, Array]:
        """Return where a tracker would look: bearings [F, 2] and angular radii [F]."""
        return looked_for(self.film_set.camera, self.flight.states[:, :3], self.radius_m, self.seed)

    def views(self, size: int) -> Views:
        """Return the views of all frames, `size` px wide, where a tracker would look."""
        frames = np.arange(len(self.flight.times_s))
        return views_about(self.film_set.camera, *self.looked, frames, self.footage, size)

    def grey(self, views: Views) -> Scene:
        """Return the body in a plain grey, lighter from above."""
        light = np.zeros((len(self.mesh.part_names), 4, 3))
        light[:, 0], light[:, 3] = 0.2, 0.1
        return Scene(self.system, self.mesh, views, light)

    def lit(self, views: Views) -> Scene:
        """Return the body in colours that explain the clip at the recorded poses."""
        some = views.some(slice(None, None, _LIT_EVERY))
        light = fit_light(self.system, self.mesh, some, torch.from_numpy(self.flight.states)).light
        return Scene(self.system, self.mesh, views, light)

    def strips(self, states: dict[str, Array]) -> tuple[dict[str, NDArray[np.uint8]], list[float]]:
        """Return the images [n, V, V, 3] of the clip and of motions [F, 13] drawn into it, and their times [s]."""
        chosen = evenly(len(self.flight.times_s), _STRIP)
        views, shown = self._judged, {"clip": self._judged.images[chosen]}
        for method, each in states.items():
            shown[method] = np.concatenate([self._drawn(each, views.some(slice(i, i + 1))) for i in chosen])
        images = {name: np.round(255.0 * strip).astype(np.uint8) for name, strip in shown.items()}
        return images, self.flight.times_s[chosen].tolist()

    def errors(self, states: Array) -> dict[str, float | None]:
        """Return the errors of a motion [F, 13]: root mean squares over the frames in mm and degrees, and the
        difference of pixels.
        """
        flown, times = self.flight.states, self.flight.times_s
        found = PoseLog(times, states[:, :3], states[:, 3:7])
        truth = flown[:, :3], flown[:, 3:7], np.ones(len(times), dtype=bool)
        numbers = summarize(found, truth, camera_position=self.camera_to_world[:3, 3], symmetry=self.symmetry)

        def in_mm(name: str) -> float | None:
            value = numbers[name]
            return None if value is None else 1e3 * value

        return {
            "position_error": in_mm("position_rmse_m"),
            "sideways_error": in_mm("lateral_rmse_m"),
            "depth_error": in_mm("depth_rmse_m"),
            "rotation_error": numbers["rotation_rmse_deg"],
            "rotation_error_up_to_symmetry": numbers["rotation_rmse_deg_up_to_symmetry"],
            "pixel_difference": self._pixel_difference(states),
        }

    def action_errors(self, actions: Array) -> dict[str, float]:
        """Return the errors of actions [F - 1, 4] of the frames, thrust [N] and torques [N m]."""
        off = actions - self.wanted
        return {
            "thrust_error": float(np.sqrt(np.mean(off[:, 0] ** 2))),
            "torque_error": float(np.sqrt(np.mean(off[:, 1:] ** 2))),
        }

    @property
    def wanted(self) -> Array:
        """Return the mean actions of frames [F - 1, 4] that the flight's controller asked for, the thrust by its own
        scale.
        """
        upright = matrix_from_quat(self.flight.states[:-1, 3:7])[:, 2, 2]
        asked = self.flight.asked_for
        weight = self.parameters["mass"].value * self.parameters["gravity"].value
        return asked * [weight / float((asked[:, 0] * upright).mean()), 1.0, 1.0, 1.0]

    @cached_property
    def _judged(self) -> Views:
        """Return the views of all frames about the recorded places, wide enough to show where a motion goes instead."""
        camera, flown = self.film_set.camera, self.flight.states[:, :3]
        pose = invert_transform(self.camera_to_world)
        centers, radii = direction_and_size(flown @ pose[:3, :3].T + pose[:3, 3], self.radius_m)
        return views_about(camera, centers, _STRIP_WIDE * radii, np.arange(len(flown)), self.footage, _STRIP_PX)

    @cached_property
    def _colors(self) -> Array:
        return self.lit(self._judged).light

    def _drawn(self, states: Array, views: Views) -> Array:
        """Return the motion [F, 13] in these views, display values [n, V, V, 3]."""
        with torch.no_grad():
            scene = Scene(self.system, self.mesh, views, self._colors)
            return np.asarray(scene.images(torch.from_numpy(states)).numpy())

    def _pixel_difference(self, states: Array) -> float:
        parts = [self._judged.some(slice(i, i + _CHUNK)) for i in range(0, len(states), _CHUNK)]
        off = np.concatenate([np.abs(self._drawn(states, part) - part.images)[part.known] for part in parts])
        return float(off.mean())
