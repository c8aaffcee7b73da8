"""Check that the files of a clip agree with its frames: the mesh, projected by OpenCV, against masks by Cycles."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import trimesh
import yaml
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

Array = NDArray[np.float64]
_FINE = 8  # subpixels of a pixel's side


def silhouette(folder: Path, time_s: float) -> Array:
    """Return the coverage of pixels [H, W] by the body at a time, from the files of a clip alone."""
    camera = yaml.safe_load((folder / "camera.yaml").read_text())
    K = np.array(camera["camera_matrix"]["data"], float).reshape(3, 3)
    pose = np.linalg.inv(np.array(camera["camera_to_world"]["data"], float).reshape(4, 4)) @ _body_pose(folder, time_s)
    mesh: Any = trimesh.load(folder / "mesh.obj", process=False, force="mesh")
    rvec = cv2.Rodrigues(pose[:3, :3])[0]
    pixels = cv2.projectPoints(np.asarray(mesh.vertices), rvec, pose[:3, 3], K, None)[0][:, 0]
    width, height = camera["image_width"], camera["image_height"]
    fine = np.zeros((height * _FINE, width * _FINE), np.uint8)
    corners = np.clip(np.round(((pixels + 0.5) * _FINE - 0.5) * 256.0), -(2**30), 2**30).astype(np.int32)
    for face in np.asarray(mesh.faces):
        cv2.fillConvexPoly(fine, corners[face], 255, shift=8)
    return np.asarray(fine.reshape(height, _FINE, width, _FINE).mean(axis=(1, 3)) / 255.0)


def compare(own: Array, rendered: Array) -> dict[str, float]:
    """Return how two coverages [H, W] differ. edge: the largest difference of coverage of a pixel.

    An edge that is d pixels off changes the coverage of the pixels on it by d, so `edge` is its distance [px].
    """
    area = float(rendered.sum())
    if own.sum() < 1.0 or area < 1.0:
        return {"area_px": area}
    return {
        "area_px": round(area, 1),
        "centroid": round(float(np.linalg.norm(_centroid(own) - _centroid(rendered))), 3),
        "iou": round(float(np.minimum(own, rendered).sum() / np.maximum(own, rendered).sum()), 4),
        "edge": round(float(np.abs(own - rendered).max()), 3),
    }


def summary(frames: list[int], results: list[dict[str, float]]) -> dict[str, Any]:
    """Return the worst of the comparisons, for truth.json."""
    seen = [r for r in results if "iou" in r]
    return {
        "method": "coverage of pixels by the body, by Cycles, against the mesh projected by OpenCV from the files; px",
        "frames": frames,
        "max_centroid": max(r["centroid"] for r in seen),
        "min_iou": min(r["iou"] for r in seen),
        "max_edge": max(r["edge"] for r in seen),
        "area_px": [round(r["area_px"], 1) for r in results],
    }


def overlay(frame: NDArray[np.uint8], mask: Array, scale: int = 3) -> NDArray[np.uint8]:
    """Return an enlarged RGB frame with the contour of the projected mesh."""
    big = cv2.resize(frame, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
    fine = cv2.resize(mask, None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR) > 0.5
    lines = cv2.findContours(fine.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)[0]
    return np.asarray(cv2.drawContours(big, lines, -1, (255, 0, 255), 1), np.uint8)


def _body_pose(folder: Path, time_s: float) -> Array:
    """Return T_world_body [4, 4] at a time of mocap.csv, between rows by interpolation."""
    rows = list(csv.reader((folder / "mocap.csv").read_text().splitlines()))[7:]
    data = np.array(rows, float)
    i = int(np.clip(np.searchsorted(data[:, 1], time_s + 1e-5) - 1, 0, len(data) - 2))
    share = (time_s - data[i, 1]) / (data[i + 1, 1] - data[i, 1])
    first, second = Rotation.from_quat(data[i, 2:6]), Rotation.from_quat(data[i + 1, 2:6])
    pose = np.eye(4)
    pose[:3, :3] = (first * Rotation.from_rotvec(share * (first.inv() * second).as_rotvec())).as_matrix()
    pose[:3, 3] = data[i, 6:9] + share * (data[i + 1, 6:9] - data[i, 6:9])
    return pose


def _centroid(mask: Array) -> Array:
    y, x = np.indices(mask.shape)
    return np.array([(x * mask).sum(), (y * mask).sum()]) / mask.sum()
