"""Whether a fitted outline lies on edges of the images: for clips of real things, whose true pose nobody knows.

    python -m benchmarks.edges RUN [--json FILE] [--images FILE]
    python -m benchmarks.edges CLIP --mesh MESH --camera CAMERA --model MODEL [...]

RUN is a run folder of `vid2phys identify`; a CLIP is tracked here, and no dynamics are fitted. In every frame the mesh
is drawn at the fitted (or tracked) pose; from points along its
outline the distance to the nearest edge of the image that runs the same way is measured (Canny, OpenCV; within 20
degrees, at most 12 pixels away, counted as 12). Printed are the median over points of each frame, its median and 90th
percentile over frames, and the same with the body drawn 6 pixels aside, which says what chance would give. Parts of the
outline that something covers count as well, so that frames in which half is covered come out high. --images: a sheet
of frames spread over the clip with outline and edges.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.identify.inputs import read_inputs
from vid2phys.commands.identify.pipeline import track_pose
from vid2phys.engine.render.rasterizer import rasterize_camera
from vid2phys.geometry import invert_transform, make_transform, matrix_from_quat
from vid2phys.indices import evenly
from vid2phys.io.camera import load_camera, require_pose
from vid2phys.io.mesh import load_mesh
from vid2phys.io.recordings import load_observation, load_trajectory
from vid2phys.io.simplify import simplified
from vid2phys.io.video import read_clip
from vid2phys.types import Array, Camera, Clip, Mesh

FAR_PX = 12.0
_ALIKE_DEG = 20.0
_STRIDE_PX = 2
_ASIDE_PX = 6.0
_SHEET = 12
_INSTANT_S = 1e-6


def main() -> None:
    """Measure one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder, or a clip")
    for name in ("mesh", "camera", "model"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--images", type=Path)
    asked = parser.parse_args()
    seen = of_run(asked.run) if asked.run.is_dir() else of_clip(asked.run, asked.mesh, asked.camera, asked.model)
    found = measure(seen, asked.images)
    print(json.dumps(found, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


@dataclass(frozen=True)
class Seen:
    """A clip with poses camera_from_body [T, 4, 4] of its frames, NaN where the body was lost."""

    clip: Clip
    camera: Camera
    mesh: Mesh
    poses: Array


def of_run(run: Path) -> Seen:
    """Return what a run of identify fitted."""
    inputs = json.loads((run / "result.json").read_text())["inputs"]
    fitted = run / "camera.yaml"  # of a run that fitted the camera
    path = fitted if fitted.is_file() else inputs["camera"]["path"]
    trajectory, camera = load_trajectory(run / "trajectory.csv"), load_camera(path)
    observation = load_observation(run / "observation.npz")
    first, last = observation.times_s[[0, -1]]
    clip = read_clip(inputs["clip"]["path"], from_s=max(0.0, first - _INSTANT_S), to_s=last + _INSTANT_S)
    to_camera = invert_transform(require_pose(camera, path))
    knots = np.abs(trajectory.times_s - clip.times_s[:, None]).argmin(axis=1)
    states = trajectory.states[knots]
    poses = to_camera @ make_transform(matrix_from_quat(states[:, 3:7]), states[:, :3])
    poses[~observation.seen] = np.nan
    return Seen(clip, camera, simplified(load_mesh(inputs["mesh"]["path"])), poses)


def of_clip(clip: Path, mesh: Path, camera: Path, model: Path) -> Seen:
    """Return what the tracker sees of a rigid body."""
    inputs = read_inputs(IdentifyConfig(clip=clip, mesh=mesh, camera=camera, model=model, system="rigid_contact"))
    tracked = track_pose(inputs).poses
    return Seen(inputs.clip, inputs.camera, inputs.mesh, make_transform(tracked.rotation, tracked.translation))


def measure(seen: Seen, images: Path | None = None) -> dict[str, Any]:
    """Return the figures of a clip."""
    clip, camera, mesh = seen.clip, seen.camera, seen.mesh
    visible = np.isfinite(seen.poses).all(axis=(1, 2))
    own, aside, sheet = [], [], []
    shown = set(evenly(len(clip.times_s), _SHEET).tolist())
    for i, frame in enumerate(clip.frames):
        if not visible[i]:
            continue
        points, normals = outline(mesh, camera, seen.poses[i])
        edges = Edges(frame)
        own.append(float(np.median(edges.distance(points, normals))))
        turn = np.random.default_rng(i).uniform(0.0, 2.0 * np.pi)
        moved = points + _ASIDE_PX * np.array([np.cos(turn), np.sin(turn)])
        aside.append(float(np.median(edges.distance(moved, normals))))
        if i in shown:
            sheet.append(_drawn(frame, points, f"{i}: {own[-1]:.1f} px"))
    if images:
        _save_sheet(images, sheet)
    return {
        "frames": len(clip.times_s),
        "tracked": int(visible.sum()),
        "median_px": round(float(np.median(own)), 2),
        "p90_px": round(float(np.percentile(own, 90)), 2),
        "frames_within_2px": round(float((np.array(own) <= 2.0).mean()), 3),
        "moved_6px_aside_median_px": round(float(np.median(aside)), 2),
    }


def outline(mesh: Mesh, camera: Camera, pose: Array) -> tuple[Array, Array]:
    """Return points [N, 2] px along the contour of a mesh at pose camera_from_body [4, 4], and its normals [N, 2]."""
    import cv2

    mask = rasterize_camera(mesh.vertices @ pose[:3, :3].T + pose[:3, 3], mesh.faces, camera).mask
    soft = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 2.0)
    found, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    points = np.concatenate(found)[:, 0][::_STRIDE_PX] if found else np.zeros((0, 2), dtype=int)
    inner = ((points > 1) & (points < np.array(mask.shape[::-1]) - 2)).all(axis=1)
    points = points[inner]
    gradient = np.stack([np.gradient(soft, axis=1), np.gradient(soft, axis=0)], axis=-1)[points[:, 1], points[:, 0]]
    normals = -gradient / np.maximum(np.linalg.norm(gradient, axis=1, keepdims=True), 1e-9)
    return points + 0.5 * normals, normals


class Edges:
    """The edges of an image, by the direction that they run in."""

    def __init__(self, frame: NDArray[np.uint8]) -> None:
        import cv2

        grey = cv2.GaussianBlur(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (0, 0), 1.0)
        dx, dy = (cv2.Sobel(grey, cv2.CV_32F, i, 1 - i) for i in (1, 0))
        rows, columns = np.nonzero(cv2.Canny(grey, 30, 80))
        self._places = np.stack([columns, rows], axis=1).astype(float)
        normals = np.stack([dx[rows, columns], dy[rows, columns]], axis=1)
        self._normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)

    def distance(self, points: Array, normals: Array) -> Array:
        """Return the distances [N] px of points [N, 2] from the nearest edge whose normal is alike, at most FAR_PX."""
        from scipy.spatial import cKDTree

        out = np.full(len(points), FAR_PX)
        if not len(self._places):
            return out
        near = cKDTree(self._places).query_ball_point(points, FAR_PX)
        for i, candidates in enumerate(near):
            alike = np.abs(self._normals[candidates] @ normals[i]) > np.cos(np.radians(_ALIKE_DEG))
            if alike.any():
                apart = np.linalg.norm(self._places[candidates][alike] - points[i], axis=1)
                out[i] = min(FAR_PX, float(apart.min()))
        return out


def _drawn(frame: NDArray[np.uint8], points: Array, text: str) -> NDArray[np.uint8]:
    import cv2

    image = frame.copy()
    for x, y in np.round(points).astype(int).tolist():
        cv2.circle(image, (x, y), 1, (255, 0, 255), -1)
    cv2.putText(image, text, (8, 24), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (255, 255, 0), 2, cv2.LINE_AA)
    return np.asarray(image, dtype=np.uint8)


def _save_sheet(path: Path, images: list[NDArray[np.uint8]], columns: int = 3) -> None:
    import cv2

    images = images + [np.zeros_like(images[0])] * (-len(images) % columns)
    rows = [np.hstack(images[i : i + columns]) for i in range(0, len(images), columns)]
    cv2.imwrite(str(path), np.vstack(rows)[..., ::-1])


if __name__ == "__main__":
    main()
