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
MOST_EDGE_PX = 0.5


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
    """Return how two coverages [H, W] differ. Edge distance: area of the difference over length of the contour [px]."""
    fine = [cv2.resize(m, None, fx=4, fy=4, interpolation=cv2.INTER_LINEAR) > 0.5 for m in (own, rendered)]
    lines = [cv2.findContours(f.astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)[0] for f in fine]
    away = cv2.distanceTransform(1 - _edge(fine[0].shape, lines[0]), cv2.DIST_L2, 5)
    if not lines[0] or not lines[1]:
        return {"area_px": float(rendered.sum())}
    distance = np.array([away[y, x] for line in lines[1] for x, y in line[:, 0] if _inside(x, y, fine[0].shape)]) / 4.0
    centroid = np.linalg.norm(_centroid(own) - _centroid(rendered))
    overlap = np.minimum(own, rendered).sum() / np.maximum(own, rendered).sum()
    return {
        "area_px": round(float(rendered.sum()), 1),
        "centroid_px": round(float(centroid), 3),
        "iou": round(float(overlap), 4),
        "edge_p95_px": round(float(np.quantile(distance, 0.95)), 3),
        "edge_max_px": round(float(distance.max()), 3),
    }


def summary(frames: list[int], results: list[dict[str, float]]) -> dict[str, Any]:
    """Return the worst of the comparisons, for truth.json."""
    seen = [r for r in results if "iou" in r]
    return {
        "method": "mask of the body by Cycles against the mesh projected by OpenCV from the written files; px",
        "frames": frames,
        "max_centroid": max(r["centroid_px"] for r in seen),
        "min_iou": min(r["iou"] for r in seen),
        "max_edge_p95": max(r["edge_p95_px"] for r in seen),
        "max_edge": max(r["edge_max_px"] for r in seen),
        "area_px": [r["area_px"] for r in results],
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


def _edge(shape: tuple[int, ...], lines: Any) -> NDArray[np.uint8]:
    return np.asarray(cv2.drawContours(np.zeros(shape, np.uint8), lines, -1, 1, 1), np.uint8)


def _inside(x: int, y: int, shape: tuple[int, ...]) -> bool:
    return 4 < x < shape[1] - 5 and 4 < y < shape[0] - 5


def _centroid(mask: Array) -> Array:
    y, x = np.indices(mask.shape)
    return np.array([(x * mask).sum(), (y * mask).sum()]) / mask.sum()
