"""Which frames count as tracked: those in which the image supports the pose that was found.

The tracker takes the most likely place in each frame, and a hand, a similar object or a print on the object is the most
likely place where the object is hidden or unknown to the network. Each frame's pose gets evidence (`EVIDENCE`) from
the frame itself and from the frames around it. A logistic regression turns the evidence into the log odds that the pose
is right, and poses below a threshold count as lost. Weights and threshold were fitted on clips with distractors; they
are the same for all meshes (`python -m benchmarks.lost_frames`, whose figures stand beside the weights).

Limits: an object of the same shape in another size or place cannot be told from the body, nor can a pose that looks the
same in the image.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearings_to_pixels
from vid2phys.risp.networks.threads import side_by_side
from vid2phys.risp.pixels.creases import Solid
from vid2phys.risp.pixels.edge_lines import find_edges, outline_odds
from vid2phys.risp.pixels.outline import Outline, outline_of
from vid2phys.risp.pixels.region import Region
from vid2phys.risp.pixels.silhouette import Drawing, draw
from vid2phys.risp.tracking.motion import Indexed
from vid2phys.risp.tracking.sight import direction_and_size, in_frame_diameter
from vid2phys.risp.tracking.tracked import Track
from vid2phys.types import Array, Camera

Image = NDArray[np.uint8]
EVIDENCE = (
    "quality",  # of the keypoints, 0..1 (`Track.quality`)
    "keypoint_misfit",  # logarithm of the keypoints' chi-square about the pose
    "edge_odds",  # mean log odds of an image edge along the outline
    "edges_near",  # share of the image's edges that lie on the outline
    "edges_off",  # root mean square distance of these edges, 1 at the end of the search lines
    "colors_differ",  # log-likelihood that colours differ inside and outside, a covered cell
    "log_size",  # logarithm of the body's diameter in pixels: large bodies show more
    "depth_jump",  # logarithm of the distance's change against that of the frames around
    "appearance",  # how alike the colours inside are to those in the other frames, 0..1
)
_WEIGHTS = Path(__file__).with_suffix(".json")
_MOST_LOG_SIZE = 4.5
_MISFIT = (0.1, 3.0)  # added to chi-square; the logarithm of what has none
_DEPTH_JUMP = (3e-3, 2.0)  # added; the largest
_BESIDE = 3  # frames to both sides that count as neighbours
_SEARCH = (1.5, 0.04)  # standard deviation of an edge's place: at least [px], and as a share of the body's diagonal
_NEAR = (1.0, 0.015)  # distance of an edge on the outline: px, and as a share of the body's longer side
_BINS = 8  # a colour channel
_SAMPLES = 400  # places inside the silhouette at which colours are taken
_MOST_COLORS = 6.0


@dataclass(frozen=True)
class SupportModel:
    """The logistic regression. mean, std, weights: [E] of `EVIDENCE`. bias, threshold: log odds."""

    mean: Array
    std: Array
    weights: Array
    bias: float
    threshold: float

    def log_odds(self, evidence: Array) -> Array:
        """Return the log odds [N] that poses are right; evidence: [N, E], NaN where there is none."""
        return np.asarray(np.nan_to_num((evidence - self.mean) / self.std) @ self.weights + self.bias)

    @staticmethod
    @cache
    def load() -> SupportModel:
        """Return the model that comes with this version."""
        data = json.loads(_WEIGHTS.read_text(encoding="utf-8"))
        mean, std, weights = (np.array([data[name][each] for each in EVIDENCE]) for name in ("mean", "std", "weights"))
        return SupportModel(mean, std, weights, float(data["bias"]), float(data["threshold"]))


def supported(track: Track, frames: Indexed, camera: Camera, solid: Solid, model: SupportModel | None = None) -> Track:
    """Return the track without the frames whose image does not support the pose; `Track.unsupported` lists them."""
    model = model or SupportModel.load()
    rows, evidence = evidence_of(track, frames, camera, solid)
    refused = rows[model.log_odds(evidence) < model.threshold]
    lost = np.zeros(len(track.tracked), dtype=bool)
    lost[refused] = True
    return track.without(lost, unsupported=True)


def evidence_of(track: Track, frames: Indexed, camera: Camera, solid: Solid) -> tuple[NDArray[np.int64], Array]:
    """Return the tracked frames' indices [N] and the evidence for their poses [N, E].

    A frame in which the outline cannot be drawn, since the body is behind the camera or out of the frame, gets the
    least evidence.
    """
    rows = np.flatnonzero(track.tracked & np.isfinite(track.poses.translation).all(axis=-1))
    seen = side_by_side(lambda item: _of_image(*item, track, camera, solid), ((int(i), frames[int(i)]) for i in rows))
    images = list(seen)
    evidence = np.zeros((len(rows), len(EVIDENCE)))
    misfit = track.poses.chi2[rows]
    evidence[:, 0] = track.quality[rows]
    evidence[:, 1] = np.where(np.isfinite(misfit), np.log(_MISFIT[0] + np.nan_to_num(misfit)), _MISFIT[1])
    evidence[:, 2:7] = np.array([image.values for image in images]).reshape(-1, 5)
    evidence[:, 7] = _depth_jumps(rows, track.poses.translation[rows])
    evidence[:, 8] = _appearance(np.array([image.colors for image in images]).reshape(len(rows), -1))
    return rows, evidence


@dataclass(frozen=True)
class _ImageEvidence:
    """values: [5] edge_odds, edges_near, edges_off, colors_differ and log_size. colors: histogram [512], sum 1."""

    values: tuple[float, float, float, float, float]
    colors: Array


def _of_image(i: int, frame: Image, track: Track, camera: Camera, solid: Solid) -> _ImageEvidence:
    """Return what one frame shows of the pose."""
    rotation, translation = track.poses.rotation[i], track.poses.translation[i]
    posed = solid.mesh.vertices @ rotation.T + translation
    drawing = draw(posed, solid.mesh.faces)
    outline = None if drawing is None else outline_of(drawing, camera)
    if drawing is None or outline is None:
        return _ImageEvidence((-2.5, 0.0, 3.0, 0.0, 0.0), np.zeros(_BINS**3))
    center, radius = direction_and_size(translation, float(np.linalg.norm(solid.mesh.vertices, axis=1).max()))
    region = Region.of(frame, camera, center, float(radius))
    size_px = float(in_frame_diameter(camera, center[None], np.array([radius]))[0])
    values = (
        outline_odds(frame, outline),
        *_edge_distances(frame, outline),
        min(region.information_per_cell(drawing), _MOST_COLORS),
        min(float(np.log(max(size_px, 1.0))), _MOST_LOG_SIZE),
    )
    return _ImageEvidence(values, _colors_inside(frame, camera, drawing))


def _edge_distances(frame: Image, outline: Outline) -> tuple[float, float]:
    """Return the share of edges that lie on the outline, and how far all of them are off, 1 being the search's end."""
    extent = np.ptp(outline.pixels, axis=0)
    within = max(_SEARCH[0], _SEARCH[1] * float(np.hypot(*extent)))
    edges = find_edges(frame, outline, within)
    off = np.abs(edges.mean[np.isfinite(edges.variance)])
    if not len(off):
        return 0.0, 3.0
    near = float((off < _NEAR[0] + _NEAR[1] * float(extent.max())).mean())
    return near, float(np.sqrt(np.mean(np.minimum(off / within, 3.0) ** 2)))


def _colors_inside(frame: Image, camera: Camera, drawing: Drawing) -> Array:
    """Return the histogram of a frame's colours inside the silhouette, [bins^3]; zero where none is in the frame."""
    row, column = np.nonzero(drawing.nearness > 0.0)
    chosen = np.linspace(0, len(row) - 1, min(_SAMPLES, len(row))).astype(int)
    bearings = (np.stack([column, row], axis=-1)[chosen] + drawing.corner) / drawing.focal
    pixels = bearings_to_pixels(camera, bearings)
    inside = np.isfinite(pixels).all(axis=-1)
    at = np.round(pixels[inside]).astype(int)
    at = at[(at >= 0).all(axis=-1) & (at < [frame.shape[1], frame.shape[0]]).all(axis=-1)]
    bins = frame[at[:, 1], at[:, 0]].astype(int) * _BINS // 256
    counts = np.bincount(bins @ [_BINS**2, _BINS, 1], minlength=_BINS**3)
    return np.asarray(counts / max(1, counts.sum()))


def _depth_jumps(rows: NDArray[np.int64], translation: Array) -> Array:
    """Return the logarithm of how far each distance is from the median of its neighbours, relative to it, [N].

    NaN for a frame with fewer than two neighbours.
    """
    log_depth = np.log(np.maximum(translation[:, 2], 1e-9))
    jumps = np.full(len(rows), np.nan)
    for k, i in enumerate(rows):
        near = np.flatnonzero((np.abs(rows - i) <= _BESIDE) & (rows != i))
        if len(near) > 1:
            jumps[k] = min(abs(log_depth[k] - float(np.median(log_depth[near]))), _DEPTH_JUMP[1])
    return np.asarray(np.log(_DEPTH_JUMP[0] + jumps))


def _appearance(colors: Array) -> Array:
    """Return the median similarity (Bhattacharyya) of each histogram [N, B] to the others, [N]; NaN for one alone."""
    if len(colors) < 2:
        return np.full(len(colors), np.nan)
    alike = np.sqrt(colors) @ np.sqrt(colors).T
    np.fill_diagonal(alike, np.nan)
    return np.asarray(np.nanmedian(alike, axis=1))
