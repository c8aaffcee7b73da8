"""Search a body where a user says that it is: at a click or in a box of one frame.

Hypotheses of the region come from two sources: regions of the foreground that the hint touches, and GrabCut (Rother et
al., SIGGRAPH 2004), started from the box or from discs of several sizes about the click. The second source needs no
motion. Each region is searched (`silhouette_fit.detect`). Poses and colours then take turns: colours inside and around
a pose's silhouette segment the frame again, and the pose is fitted to this.

Limits: a body with the colours of the scene around it is not found. A click must lie on the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.observe import bearing_jacobian_to_pixels, bearings_to_pixels
from vid2phys.engine.parallel import in_processes
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.silhouette import silhouette_of
from vid2phys.tracking.detectors.network import Image
from vid2phys.tracking.detectors.silhouette import Silhouettes
from vid2phys.tracking.foreground import Foreground, color_density
from vid2phys.tracking.hint import Hint
from vid2phys.tracking.silhouette_fit import Fit, FrameForeground, detect
from vid2phys.tracking.track import Track
from vid2phys.types import Camera, Clip, Mesh

Mask = NDArray[np.bool_]
Ratio = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class HintedSearchConfig:
    """Settings of `HintedFrame`."""

    discs: tuple[float, ...] = (0.025, 0.05, 0.1, 0.2)
    """Radii of the discs about a click, as shares of the frame's height."""
    discs_in_box: tuple[float, ...] = (0.4, 0.8)
    """Radii of the discs about the middle of a box, as shares of half of its width."""
    window: float = 3.0
    """Half of the width of the window that GrabCut segments, in radii of the disc or halves of the box."""
    window_px: int = 160
    """Width beyond which this window is made smaller, px."""
    rounds: int = 4
    """Rounds of GrabCut."""
    nats: float = 2.0
    """Log-likelihood ratio of pixels in a region that GrabCut found, nats."""
    color_rounds: int = 2
    """Number of rounds in which colours and pose take turns."""
    around: float = 0.5
    """Width of the surroundings of a silhouette, in square roots of its area."""
    uniform_share: float = 0.1
    """Share of pixels that may have any colour, on both sides."""
    most_share: float = 0.4
    """Largest share of the frame that a body covers."""
    moving_share: float = 0.3
    """Share of the hint's pixels that are foreground, from which on the body moves."""
    least_overlap: float = 0.7
    """Overlap of silhouette and foreground from which on a pose counts."""


DEFAULTS = HintedSearchConfig()


@dataclass(frozen=True)
class HintedFit:
    """A pose at a hint.

    Attributes:
        fit: the pose, judged by the colours of both sides of its own silhouette.
        nats: its evidence, less that of pixels around the silhouette that resemble the body.
        side_px: square root of the silhouette's area, px.
        agreement: intersection over union of the hint's box and that around the silhouette; 1 for a click.
    """

    fit: Fit
    nats: float
    side_px: float
    agreement: float

    @property
    def rank(self) -> float:
        """Return how good the pose is among others: large regions have much evidence, also where they fit badly."""
        return self.nats / self.side_px * self.fit.overlap**4 * (0.2 + 0.8 * self.agreement)


@dataclass(frozen=True)
class HintedFrame:
    """The frame of a hint, and what is known of its colours.

    Attributes:
        seen: the frame with its foreground before any pose is known.
        foreground: of the clip. Its background counts only if the hint lies on something that moves.
        hint: where the body is.
        config: settings.
    """

    seen: FrameForeground
    foreground: Foreground
    hint: Hint
    config: HintedSearchConfig = DEFAULTS

    @staticmethod
    def of(
        frame: Image,
        foreground: Foreground,
        camera: Camera,
        solid: Solid,
        hint: Hint,
        config: HintedSearchConfig = DEFAULTS,
    ) -> HintedFrame:
        """Return the hinted frame of a clip with its foreground."""
        ratio = foreground.log_ratio(frame)
        x0, y0, x1, y1 = (round(at) for at in hint.corners)
        moves = (ratio[max(y0 - 1, 0) : y1 + 2, max(x0 - 1, 0) : x1 + 2] > 0.0).mean() > config.moving_share
        if not moves:
            foreground = replace(foreground, noise=np.full_like(foreground.noise, np.inf))
        return HintedFrame(FrameForeground(frame, ratio, camera, solid), foreground, hint, config)

    def search(self, silhouettes: Silhouettes) -> list[HintedFit]:
        """Return the poses that explain the frame at the hint, the best first; none where nothing there fits."""
        regions = [_touched(self.seen.log_ratio, self.hint), *_segmented(self.seen.frame, self.hint, self.config)]
        tried = [replace(self.seen, log_ratio=region) for region in regions if (region > 0.0).any()]
        found = [fit for fits in in_processes(lambda each: detect(silhouettes, each, 3), tried) for fit in fits]
        learned = [one for one in in_processes(self.with_own_colors, found) if one is not None]
        good = (one for one in learned if one.fit.overlap > self.config.least_overlap and self.is_hinted(one.fit.pose))
        return sorted(good, key=lambda one: -one.rank)

    def with_own_colors(self, fit: Fit) -> HintedFit | None:
        """Return a pose after colours and pose took turns; None where the pose leaves the frame."""
        for _ in range(self.config.color_rounds):
            own = self._colored(fit.pose)
            if own is None:
                return None
            before, pose = own.judged(fit.pose, fit.contour), own.aligned(fit.pose, own.config.proposal_reaches)
            again = None if pose is None else own.fitted_from(pose)
            fit = before if again is None or again.nats < before.nats else again
        own, mask = self._colored(fit.pose), self._mask(fit.pose)
        if own is None or mask is None:
            return None
        fit, ratio = own.judged(fit.pose, fit.contour), own.log_ratio
        side = float(np.sqrt(mask.sum()))
        missed = float(np.maximum(ratio[~mask], 0.0).sum()) / (own.config.correlated_sides * side)
        return HintedFit(fit, fit.nats - missed, side, _agreement(mask, self.hint))

    def _colored(self, pose: Pose) -> FrameForeground | None:
        """Return the frame segmented by the colours inside and around a pose's silhouette."""
        import cv2

        config, frame, mask = self.config, self.seen.frame, self._mask(pose)
        if mask is None or mask.mean() > config.most_share:
            return None
        width = max(5, round(config.around * float(np.sqrt(mask.sum()))))
        edge, wide = (cv2.dilate(mask.astype(np.uint8), np.ones((k, k), np.uint8)) > 0 for k in (3, 2 * width + 1))
        around = wide & ~edge
        if not around.any():
            return None
        body, scene = (color_density(frame[part], config.uniform_share) for part in (mask, around))
        ratio = replace(self.foreground, body=body, scene=scene).log_ratio(frame)
        return replace(self.seen, log_ratio=np.where(wide, ratio, ratio.min()))

    def _place(self, pose: Pose) -> tuple[slice, slice, Mask] | None:
        """Return rows, columns and pixels of a pose's silhouette; None where the frame does not show it."""
        mesh = self.seen.solid.mesh
        place = silhouette_of(pose.apply(mesh.vertices), mesh.faces, self.seen.camera)
        return place if place is not None and place[2].any() else None

    def _mask(self, pose: Pose) -> Mask | None:
        """Return the silhouette of a pose [H, W]; None where the frame does not show it."""
        place = self._place(pose)
        if place is None:
            return None
        mask = np.zeros(self.seen.frame.shape[:2], bool)
        mask[place[:2]] = place[2]
        return mask

    def is_hinted(self, pose: Pose) -> bool:
        """Return whether the silhouette of a pose lies at the hint."""
        place = self._place(pose)
        return place is not None and _is_touched(place, self.hint)


@dataclass(frozen=True)
class HintedRow:
    """A hint and the index of its frame in the clip."""

    row: int
    hint: Hint


def no_object(hint: Hint, mesh: Mesh) -> InputError:
    """Return the error for a hint at which no pose of the mesh explains the frame."""
    got = f"{hint.flag}: no object of the mesh's shape at the hint (mesh '{mesh.name}')"
    expected = "a click on the body of the mesh, in a frame that shows it whole before another colour"
    return InputError(got, expected, "try another frame, or draw a box close around the body: --hint-box")


def unchanged(
    frame: Image, foreground: Foreground, place: tuple[slice, slice, Mask] | None, most: float = 8.0
) -> list[int]:
    """Return the frames, of those that teach the background, that show a place as this frame does: the body rests.

    place: rows, columns and pixels of a silhouette. most: largest median difference, grey levels.
    """
    if place is None:
        return []
    rows, columns, shown = place
    here = frame[rows, columns][shown].astype(float)
    return [
        i
        for i, sample in zip(foreground.rows.tolist(), foreground.samples, strict=True)
        if np.median(np.abs(sample[rows, columns][shown] - here)) < most
    ]


def steady(path: Sequence[Fit | None], row: int, least_nats: float, least_overlap: float) -> dict[int, Fit]:
    """Return the fits around a frame, up to where the body is lost for three frames, each with enough evidence."""
    good: dict[int, Fit] = {}
    for way in (range(row, len(path)), range(row - 1, -1, -1)):
        lost = 0
        for i in way:
            fit = path[i]
            if fit is not None and fit.nats > least_nats and fit.overlap > least_overlap:
                good[i], lost = fit, 0
            else:
                lost += 1
            if lost == 3:
                break
    return good


def within_reach(log_ratio: Ratio, camera: Camera, known: Mapping[int, Pose], i: int, radius_m: float) -> Ratio:
    """Return the foreground of frame i without what a body at known poses of some frames cannot reach.

    It moves less than its radius from frame to frame, and is at most its diameter off. All of the frame counts where no
    pose is known.
    """
    if not known:
        return log_ratio
    k = min(known, key=lambda other: abs(other - i))
    place = known[k].translation
    bearing = place[:2] / place[2]
    px = float(np.sqrt(abs(np.linalg.det(bearing_jacobian_to_pixels(camera, bearing)))))
    reach = (3.0 + abs(i - k)) * radius_m / float(place[2]) * px
    x, y = bearings_to_pixels(camera, bearing)
    rows, columns = np.ogrid[: log_ratio.shape[0], : log_ratio.shape[1]]
    inside = (columns - x) ** 2 + (rows - y) ** 2 < reach**2
    return np.where(inside, log_ratio, np.minimum(log_ratio, -np.float32(1.0)))


def is_at_hint(track: Track, hint: Hint, clip: Clip, camera: Camera, mesh: Mesh) -> bool:
    """Return whether a track has the body at the hint."""
    row = hint.row(clip)
    if not track.tracked[row]:
        return False
    place = silhouette_of(track.poses.pose[row].apply(mesh.vertices), mesh.faces, camera.at(row))
    return place is not None and _is_touched(place, hint)


def _is_touched(place: tuple[slice, slice, Mask], hint: Hint) -> bool:
    """Return whether a silhouette lies at a hint, to two pixels. place: rows, columns and pixels of the silhouette."""
    rows, columns = np.nonzero(place[2])
    x, y, (x0, y0, x1, y1) = columns + place[1].start, rows + place[0].start, hint.corners
    return bool(((x > x0 - 2.5) & (x < x1 + 2.5) & (y > y0 - 2.5) & (y < y1 + 2.5)).any())


def _agreement(mask: Mask, hint: Hint) -> float:
    """Return the intersection over union of a hint's box and that around a silhouette [H, W]; 1 for a click."""
    if hint.is_click:
        return 1.0
    rows, columns = np.nonzero(mask)
    x0, y0, x1, y1 = hint.corners
    low, high = np.array([columns.min(), rows.min()]), np.array([columns.max(), rows.max()])
    common = np.prod(np.maximum(np.minimum(high, (x1, y1)) - np.maximum(low, (x0, y0)), 0.0))
    return float(common / (np.prod(high - low) + (x1 - x0) * (y1 - y0) - common))


def _touched(log_ratio: Ratio, hint: Hint) -> Ratio:
    """Return a foreground without the regions that the hint does not touch."""
    import cv2

    closed = cv2.morphologyEx((log_ratio > 0.0).astype(np.uint8), cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    _, labels = cv2.connectedComponents(closed)
    x0, y0, x1, y1 = (round(at) for at in hint.corners)
    within = np.unique(labels[max(y0 - 2, 0) : y1 + 3, max(x0 - 2, 0) : x1 + 3])
    touched = np.isin(labels, within[within > 0])
    return np.where(touched, log_ratio, np.minimum(log_ratio, -np.float32(1.0)))


def _segmented(frame: Image, hint: Hint, config: HintedSearchConfig) -> Iterator[Ratio]:
    """Yield the regions that GrabCut finds about a hint, as log-likelihood ratios [H, W]."""
    height, width = frame.shape[:2]
    x0, y0, x1, y1 = hint.corners
    middle = np.array([0.5 * (x0 + x1), 0.5 * (y0 + y1)])
    box = np.array([0.5 * (x1 - x0), 0.5 * (y1 - y0)])
    tried = [(np.full(2, share * height), True) for share in config.discs]
    if not hint.is_click:
        tried = [(box, False), *((np.full(2, share * box.mean()), True) for share in config.discs_in_box)]
    for half, is_disc in tried:
        low = np.clip(np.floor(middle - config.window * half), 0, [width, height]).astype(int)
        high = np.clip(np.ceil(middle + config.window * half) + 1, 0, [width, height]).astype(int)
        part = slice(low[1], high[1]), slice(low[0], high[0])
        inside = _grab_cut(frame[part], middle - low, half, is_disc, config)
        if inside is None:
            continue
        out = np.full((height, width), -config.nats, np.float32)
        out[part] = np.where(inside, config.nats, -config.nats)
        yield out


def _grab_cut(
    image: Image, middle: NDArray[np.float64], half: NDArray[np.float64], is_disc: bool, config: HintedSearchConfig
) -> Mask | None:
    """Return the pixels [h, w] that GrabCut finds inside a disc or a box; None where it finds none."""
    import cv2

    scale = min(1.0, config.window_px / max(image.shape[:2]))
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    rows, columns = np.indices(small.shape[:2])
    aside = np.stack([columns + 0.5, rows + 0.5], axis=-1) / scale - 0.5 - middle
    apart = np.linalg.norm(aside / half, axis=-1) if is_disc else np.abs(aside / half).max(axis=-1)
    labels = np.full(small.shape[:2], cv2.GC_PR_BGD if is_disc else cv2.GC_BGD, np.uint8)
    labels[apart <= 1.0] = cv2.GC_PR_FGD
    if is_disc:
        labels[apart <= 0.3] = cv2.GC_FGD
        labels[apart > 0.9 * config.window] = cv2.GC_BGD
    if not (apart <= 1.0).any() or not (apart > 1.0).any():
        return None
    cv2.setRNGSeed(0)
    cv2.grabCut(small, labels, (0, 0, 1, 1), np.zeros((1, 65)), np.zeros((1, 65)), config.rounds, cv2.GC_INIT_WITH_MASK)
    inside = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    if not inside.any():
        return None
    return np.asarray(cv2.resize(inside, image.shape[1::-1], interpolation=cv2.INTER_LINEAR) > 0)
