"""Makes samples/quadrotor: clip, camera, motion capture log, actions, truth. Run `make_mesh.py` there first.

    nice -n 19 python scripts/make_sample.py [--frames 144] [--work build/sample]

Same seed, same clip. Rendered frames are kept in the work folder, so an interrupted run goes on where it stopped (about
6 s a frame on one core). Needs Mitsuba with LLVM.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sample_flight import Flight, fly
from sample_scene import MAX_DEPTH, Room

from vid2phys.engine.observe import project
from vid2phys.engine.render.rasterizer import Raster, rasterize
from vid2phys.geometry import Array, invert_transform, look_at
from vid2phys.io.camera import save_camera
from vid2phys.io.files import atomic_path, write_text
from vid2phys.io.mesh import load_mesh
from vid2phys.io.video import VideoWriter
from vid2phys.types import Camera, Mesh

FOLDER = Path(__file__).resolve().parents[1] / "samples" / "quadrotor"
FPS, OFFSET_S, SHUTTER_S, SUB_FRAMES = 30.0, 0.35, 0.006, 2
FULL, SMALL, PATCH = (640, 480), (160, 120), (176, 128)  # the frame, a quarter of it for shadows, around the body
SPP, BACKGROUND_SPP, SHADOW_SPP, SEED = 24, 128, 24, 20261121
PASS_RAYS = 1_300_000  # rays at once: more of them want memory faster than a small machine gives it
SHADOW_BLUR_PX = 1.2  # of the small image
EXPOSURE, READ_NOISE, SHOT_NOISE = 3.0, 1.1, 0.016  # noise variance in 8-bit units: read^2 + shot * value
HIDDEN_M = np.array([0.0, 0.0, -50.0])  # under the floor: the room without the body


def camera() -> Camera:
    """Beside the room's corner, 2.6 m from the middle of the figure, looking slightly down."""
    pose = look_at(np.array([-1.72, -1.85, 1.62]), np.array([0.02, 0.0, 1.06]))
    K = np.array([[815.0, 0.0, 322.7], [0.0, 815.0, 236.4], [0.0, 0.0, 1.0]])
    return Camera(np.round(K, 6), 640, 480, np.zeros(5), "plumb_bob", np.round(pose, 10), "sample_quadrotor")


def main() -> None:
    """Make everything, or with --frames fewer a shorter clip to look at."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=144)
    parser.add_argument("--only", type=int, nargs="*", help="render these frames alone, write no clip")
    parser.add_argument("--work", type=Path, default=Path("build/sample"))
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    mesh, view = load_mesh(FOLDER / "quad.obj"), camera()
    flight = fly(options.frames / FPS)
    times = np.arange(options.frames) / FPS
    _check_in_view(flight, mesh, view, times)
    studio = Studio(mesh, view, flight, options.work)
    for index in options.only if options.only else range(options.frames):
        frame(studio, float(times[index]), index)
        print(f"frame {index}", flush=True)
    if options.only:
        return
    write_clip(options.out / "clip.mp4", studio, times)
    write_files(options.out, flight, view, times)


def frame(studio: Studio, time_s: float, index: int) -> NDArray[np.float32]:
    """Linear RGB [H, W, 3] of a frame: the quiet background, the body's soft shadows and reflections, the body."""
    path = studio.work / f"frame_{index:04d}.npy"
    if path.is_file():
        return np.asarray(np.load(path), dtype=np.float32)
    image = studio.background(FULL, BACKGROUND_SPP) + studio.shadows(time_s)
    moments = time_s + SHUTTER_S * ((np.arange(SUB_FRAMES) + 0.5) / SUB_FRAMES - 0.5)
    left, top = studio.corner(time_s)
    window = np.s_[top : top + PATCH[1], left : left + PATCH[0]]
    patch, covered = np.zeros((PATCH[1], PATCH[0], 3), np.float32), np.zeros((PATCH[1], PATCH[0]))
    for sub, moment in enumerate(moments):
        patch += studio.close_up(float(moment), left, top, seed=1000 * index + sub) / SUB_FRAMES
        covered += studio.coverage(float(moment), left, top) / SUB_FRAMES
    share = _feather(covered)[..., None]
    image[window] = image[window] * (1.0 - share) + patch * share
    image = np.maximum(image, 0.0)
    with atomic_path(path) as temporary:
        np.save(temporary, image.astype(np.float16))
    return image


class Studio:
    """The room, the flight and the folder in which what was rendered is kept."""

    def __init__(self, mesh: Mesh, view: Camera, flight: Flight, work: Path) -> None:
        assert view.camera_to_world is not None
        self.mesh, self.view, self.flight, self.work = mesh, view, flight, work
        self.room = Room(mesh, view.camera_to_world, SEED)
        work.mkdir(parents=True, exist_ok=True)

    def background(self, size: tuple[int, int], spp: int) -> NDArray[np.float32]:
        """The room without the body: the mean of passes whose first has seed 0."""
        path = self.work / f"background_{size[0]}_{spp}.npy"
        if not path.is_file():
            self.room.place(np.broadcast_to(HIDDEN_M, self.mesh.vertices.shape))
            passes = max(1, spp * size[0] * size[1] // PASS_RAYS)
            total = np.zeros((size[1], size[0], 3))
            for seed in range(passes):
                total += self.room.render(self._intrinsics(size), *size, spp=round(spp / passes), seed=seed) / passes
            with atomic_path(path) as temporary:
                np.save(temporary, total.astype(np.float32))
        return np.asarray(np.load(path))

    def shadows(self, time_s: float) -> NDArray[np.float32]:
        """What the body changes around it: two small images with equal samples, subtracted and blurred."""
        from scipy.ndimage import gaussian_filter, zoom

        self.room.place(self._vertices(time_s))
        change = self.room.render(self._intrinsics(SMALL), *SMALL, spp=SHADOW_SPP, seed=0) - self.background(
            SMALL, SHADOW_SPP
        )
        body = self._raster(self._intrinsics(SMALL), *SMALL, time_s).coverage
        keep = (gaussian_filter(body, 1.0) < 1e-3).astype(float)
        weight = gaussian_filter(keep, SHADOW_BLUR_PX) + 1e-6
        smooth = [gaussian_filter(change[..., c] * keep, SHADOW_BLUR_PX) / weight for c in range(3)]
        return np.stack(
            [zoom(channel, FULL[0] // SMALL[0], order=1, grid_mode=True, mode="nearest") for channel in smooth], -1
        )

    def close_up(self, time_s: float, left: int, top: int, *, seed: int) -> NDArray[np.float32]:
        """The patch around the body."""
        self.room.place(self._vertices(time_s))
        return self.room.render(self._patch_intrinsics(left, top), *PATCH, spp=SPP, seed=seed)

    def coverage(self, time_s: float, left: int, top: int) -> Array:
        """How much of each pixel of the patch the body covers."""
        return self._raster(self._patch_intrinsics(left, top), *PATCH, time_s).coverage

    def corner(self, time_s: float) -> tuple[int, int]:
        """Where in the frame the patch lies."""
        vertices = self._camera_vertices(time_s)
        pixels = project(self.view, vertices)
        middle = 0.5 * (pixels.min(axis=0) + pixels.max(axis=0))
        left, top = np.round(middle - 0.5 * np.array(PATCH)).astype(int)
        return int(np.clip(left, 0, FULL[0] - PATCH[0])), int(np.clip(top, 0, FULL[1] - PATCH[1]))

    def _vertices(self, time_s: float) -> Array:
        return self.flight.system.vertices(self.flight.at(np.array([time_s]))[0], self.mesh.vertices)

    def _camera_vertices(self, time_s: float) -> Array:
        assert self.view.camera_to_world is not None
        to_camera = invert_transform(self.view.camera_to_world)
        return self._vertices(time_s) @ to_camera[:3, :3].T + to_camera[:3, 3]

    def _raster(self, K: Array, width: int, height: int, time_s: float) -> Raster:
        return rasterize(self._camera_vertices(time_s), self.mesh.faces, K, width, height, supersample=3)

    def _intrinsics(self, size: tuple[int, int]) -> Array:
        """The camera's K for an image of another size, pixel centres at integers."""
        scale = size[0] / self.view.width
        K = self.view.K.copy()
        K[:2, 2] += 0.5
        K[:2] *= scale
        K[:2, 2] -= 0.5
        return K

    def _patch_intrinsics(self, left: int, top: int) -> Array:
        K = self.view.K.copy()
        K[:2, 2] -= (left, top)
        return K


def _feather(covered: Array) -> Array:
    """1 where the body may be, falling to 0 within two pixels around it."""
    from scipy.ndimage import binary_dilation, gaussian_filter

    return np.maximum(covered > 0, gaussian_filter(binary_dilation(covered > 0, iterations=2).astype(float), 0.7))


def develop(linear: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Exposure, sRGB curve, sensor noise, 8 bit."""
    x = np.clip(EXPOSURE * linear, 0.0, 1.0)
    value = 255.0 * np.where(x <= 0.0031308, 12.92 * x, 1.055 * np.maximum(x, 1e-8) ** (1 / 2.4) - 0.055)
    noise = np.sqrt(READ_NOISE**2 + SHOT_NOISE * value) * rng.standard_normal(value.shape)
    return np.clip(np.round(value + noise), 0, 255).astype(np.uint8)


def write_clip(path: Path, studio: Studio, times: Array) -> None:
    """Develop and encode all frames."""
    with VideoWriter(path, *FULL, FPS, crf=16) as video:
        for index, time_s in enumerate(times):
            linear = frame(studio, float(time_s), index)
            video.write(develop(linear, np.random.default_rng((SEED, index))))


def write_files(out: Path, flight: Flight, view: Camera, times: Array) -> None:
    """Everything but the images."""
    save_camera(view, out / "camera.yaml")
    write_text(out / "mocap.csv", _motive(flight, times))
    rows = [
        f"{t:.2f},{','.join(f'{v:.6f}' for v in a)}" for t, a in zip(flight.action_times_s, flight.actions, strict=True)
    ]
    header = "time_s,thrust_N,torque_x_Nm,torque_y_Nm,torque_z_Nm"
    write_text(out / "actions.csv", "\n".join([header, *rows]) + "\n")
    states = flight.at(times)
    truth = {
        "parameters": {p.name: p.value for p in flight.parameters},
        "time_offset_s": OFFSET_S,
        "time_offset_meaning": "mocap time = video time + offset",
        "frames": len(times),
        "fps": FPS,
        "shutter_s": SHUTTER_S,
        "render": f"Mitsuba path, max_depth {MAX_DEPTH}: body {SPP * SUB_FRAMES} spp, background {BACKGROUND_SPP} spp",
        "seed": SEED,
        "first_state": [round(float(v), 9) for v in states[0]],
        "state_names": list(flight.system.state_names),
    }
    write_text(out / "truth.json", json.dumps(truth, indent=1) + "\n")


def _motive(flight: Flight, times: Array) -> str:
    """The log in the layout of OptiTrack Motive 1.23, 120 Hz, z up, starting OFFSET_S before the video."""
    count = int((times[-1] + 2.0 * OFFSET_S) * 120) + 1
    states = flight.at(np.arange(count) / 120 - OFFSET_S)
    head = (
        "Format Version,1.23,Take Name,sample_quadrotor,Take Notes,,Capture Frame Rate,120.000000,Export Frame Rate,"
        "120.000000,Capture Start Time,1970-01-01 12.00.00.000 AM,Capture Start Frame,0,Total Frames in Take,"
        f"{count},Total Exported Frames,{count},Rotation Type,Quaternion,Length Units,Meters,Coordinate Space,Global"
    )
    identity = "0C9E5D1B7A3348F2B6D4E8A1F0927C53"
    columns = [",Type" + ",Rigid Body" * 7, ",Name" + ",quad" * 7, ",ID" + f',"{identity}"' * 7]
    columns += [
        ",,Rotation,Rotation,Rotation,Rotation,Position,Position,Position",
        "Frame,Time (Seconds),X,Y,Z,W,X,Y,Z",
    ]
    rows = []
    for index, state in enumerate(states):
        w, x, y, z = state[3:7]
        numbers = ",".join(f"{value:.6f}" for value in (x, y, z, w, *state[:3]))
        rows.append(f"{index},{index / 120:.6f},{numbers}")
    return "\n".join([head, "", *columns, *rows]) + "\n"


def _check_in_view(flight: Flight, mesh: Mesh, view: Camera, times: Array) -> None:
    assert view.camera_to_world is not None
    to_camera = invert_transform(view.camera_to_world)
    low, high, widths = np.full(2, np.inf), np.full(2, -np.inf), []
    for state in flight.at(times):
        vertices = flight.system.vertices(state, mesh.vertices) @ to_camera[:3, :3].T + to_camera[:3, 3]
        pixels = project(view, vertices)
        low, high = np.minimum(low, pixels.min(axis=0)), np.maximum(high, pixels.max(axis=0))
        widths.append(float(np.ptp(pixels[:, 0])))
    print(f"in view: {low.round()} to {high.round()} px, {min(widths):.0f} to {max(widths):.0f} px wide", flush=True)
    if (low < 0).any() or (high > [view.width - 1, view.height - 1]).any():
        sys.exit("the body leaves the image: move the camera")


if __name__ == "__main__":
    main()
