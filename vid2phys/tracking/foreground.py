"""Segment the frames of a clip: how much more likely each pixel shows the body than the scene behind it.

Each pixel gets a log-likelihood ratio in nats. The scene's side is a normal distribution about the background of a
static camera, the same colour in shadow (same chromaticity, darker), or any colour of the scene. The body's side is
its colour histogram, once a pose was fitted in some frames; before that all colours are equally likely. Segmentation
and pose take turns, as in region-based tracking (Prisacariu and Reid, PWP3D, IJCV 2012): fitted poses also say what
changes beside the body, such as shadows in coloured light. Frames are first brought to one exposure.

Limits: a static camera. A body with the colours of the scene behind it is seen only where the background is known.
Frames are taken as large as they are: 31 of them are held in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from vid2phys.geometry import Pose
from vid2phys.tracking.background import Indexed
from vid2phys.tracking.cues.silhouette import silhouette_of
from vid2phys.tracking.detectors.network import Image
from vid2phys.tracking.motion_samples import evenly_in_motion
from vid2phys.types import Array, Camera, Mesh

_LEVELS = 256
_BINS = 16  # bins of a colour histogram in each channel
_SHIFT = 4  # binary digits of a channel that a bin drops
_SAME = 160.0  # relative colour of a pixel that shows its background
_FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}  # infinite noise marks an unknown background
_compiled = numba.njit(cache=True, error_model="numpy", fastmath=_FAST, nogil=True)

Silhouette = tuple[slice, slice, NDArray[np.bool_]]
"""Rows and columns of a rectangle in a frame, and which of its pixels show the body."""


@dataclass(frozen=True, kw_only=True)
class ForegroundConfig:
    """Settings of `Foreground`. Colours are display values, 0 to 255."""

    frames: int = 31
    """Number of frames from which the background is estimated."""
    min_noise: float = 3.0
    """Least standard deviation of a pixel about its background, grey levels."""
    noise_factor: float = 1.5
    """Factor of the measured noise: codecs change pixels together."""
    shadow_nats: float = 3.0
    """Cost of a shadow, nats."""
    darkest_shadow: float = 0.35
    """Least brightness in a shadow, as a share of the background's, while no pose is known."""
    at_contact: float = 0.9
    """Brightness of a shadow at the body's contact, as a share of the darkest ones further away."""
    shadow_colors: float = 0.08
    """Largest difference of the brightnesses of three colours in a shadow."""
    shadow_pixels: int = 100
    """Least number of pixels in shadows from which the clip says how dark they are."""
    other_nats: float = 3.5
    """Cost of a pixel of the scene that is neither the background nor its shadow, nats."""
    unknown_nats: float = 2.0
    """Log-likelihood of a body of unknown colours above that of a uniform distribution, nats."""
    lights: tuple[float, ...] = (0.5, 0.65, 0.8, 1.0)
    """Brightnesses in which the colours of a texture may appear."""
    unknown_light_share: float = 0.3
    """Share of any colour beside those of a texture."""
    beside_px: float = 3.0
    """Distance from a silhouette from which on a pixel shows the scene, px."""
    apart_share: float = 0.75
    """The same for what changes beside the body, as a share of the body's size: its pose may be wrong."""
    changed_std: float = 3.0
    """Distance of a pixel from its background at which it has changed, standard deviations."""
    patch_px: int = 5
    """Least width of a patch that changed, px."""
    rested_std: float = 4.0
    """Distance of two backgrounds at which they disagree, standard deviations."""
    uniform_share: float = 0.1
    """Share of the body's pixels that may have any colour."""
    max_nats: float = 4.0
    """Largest log-likelihood ratio of a pixel, nats."""
    min_others: int = 3
    """Number of frames in which a pixel needs other colours than the body's, for only these to count."""
    touched_share: float = 0.8
    """Share of frames in which the silhouette touches a part of the body that does not move."""
    body_nats: float = 1.0
    """Log-likelihood ratio of colours from which on a pixel does not count for the background, nats."""


DEFAULTS = ForegroundConfig()


@dataclass(frozen=True)
class Foreground:
    """Colour models of a clip's scene and of the body before it.

    Attributes:
        samples: [S, H, W, 3] frames from which the background was estimated.
        rows: [S] indices of these frames.
        background: [H, W, 3] of a static camera.
        noise: [H, W] standard deviation of a pixel about its background, grey levels; infinite where the background
            is unknown.
        scene: [4096] log density of the scene's colours.
        body: [4096] log density of the body's colours, or None while no pose is known.
        changed: [4096] log density of relative colours of what changes beside the body, or None likewise.
        darkest_shadow: least brightness in a shadow, as a share of the background's.
        is_dark: whether the body may pass for a shadow, so that it matters how dark the clip's shadows are.
        config: settings.
    """

    samples: Image
    rows: NDArray[np.int64]
    background: Image
    noise: NDArray[np.float32]
    scene: Array
    body: Array | None = None
    changed: Array | None = None
    darkest_shadow: float = DEFAULTS.darkest_shadow
    is_dark: bool = False
    config: ForegroundConfig = DEFAULTS

    @staticmethod
    def of(frames: Indexed, including: Sequence[int] = (), config: ForegroundConfig = DEFAULTS) -> Foreground:
        """Return the model of a static camera's clip before any pose is known.

        including: frames that may teach the model, beside those that are chosen.
        """
        rows = np.union1d(evenly_in_motion(frames, config.frames), np.array(including, dtype=np.int64))
        samples = np.stack([frames[int(i)] for i in rows])
        everywhere = np.ones(samples.shape[:3], dtype=np.bool_)
        first, _ = _background(samples, everywhere)
        samples = np.stack([_of_exposure(sample, first) for sample in samples])
        background, noise = _background(samples, everywhere)
        scene = color_density(background.reshape(-1, 3), 0.3)
        return Foreground(samples, rows, background, _floored(noise, config), scene, config=config)

    def knowing(self, colors: Array) -> Foreground:
        """Return the model of a body whose texture has colours [N, 3] (perceptual, 0..1), in light of any strength."""
        lit = 255.0 * np.clip(colors[None] * np.array(self.config.lights)[:, None, None], 0.0, 1.0)
        return replace(self, body=color_density(lit.reshape(-1, 3).astype(np.uint8), self.config.unknown_light_share))

    def without_shadows(self) -> Foreground:
        """Return the model of a scene in which nothing casts a shadow."""
        return replace(self, darkest_shadow=np.inf)

    def learned(self, silhouettes: Mapping[int, Silhouette]) -> Foreground:
        """Return the model after poses were fitted in some of the frames `rows`.

        Args:
            silhouettes: of the body, by frame.

        The body's colours are those inside the silhouettes. The background is that of these frames where the body is
        elsewhere, and of other frames with pixels that do not have the body's colours, unless both disagree: then the
        body rests there in most frames.
        """
        config = self.config
        known = {k: silhouettes[i] for k, i in enumerate(self.rows.tolist()) if i in silhouettes}
        inside = [self.samples[k, rows, columns][mask] for k, (rows, columns, mask) in known.items()]
        colors = np.concatenate(inside) if inside else np.zeros((0, 3), np.uint8)
        if not len(colors):
            return self
        body = color_density(colors, config.uniform_share)
        outside = np.zeros(self.samples.shape[:3], dtype=np.bool_)
        for k, part in known.items():
            outside[k] = ~_grown(part, outside.shape[1:], config.beside_px)
        used = _other_colors(self.samples, body, self.scene, config.body_nats)
        always = used.sum(axis=0) < config.min_others  # a thing of the body's colours that is always there
        own = _touched(always, list(known.values()), config)
        used |= always
        used[list(known)] = outside[list(known)]
        used &= ~own
        background, noise = _background(self.samples, used)
        noise = _floored(noise, config)
        elsewhere, _ = _background(self.samples, outside)
        rested = (outside.sum(axis=0) >= config.min_others) & (
            _distance(elsewhere, background) > config.rested_std * noise
        )
        background[rested] = elsewhere[rested]
        beside = list[Image]()
        for k, part in known.items():
            apart = ~_grown(
                part, outside.shape[1:], config.apart_share * float(np.ptp(np.nonzero(part[2]), axis=1).max(initial=0))
            )
            other = _distance(self.samples[k], background) > config.changed_std * noise
            patches = _patches(apart & other, config.patch_px)
            beside.append(_relative(self.samples[k][patches], background[patches]))
        changed = np.concatenate(beside)
        share = min(1.0, len(changed) / len(colors))
        density = color_density(changed, 0.0) + np.log(max(share, 1e-9))
        darkest = _darkest_shadow(changed, config) if self.is_dark else self.darkest_shadow
        return replace(self, background=background, noise=noise, body=body, changed=density, darkest_shadow=darkest)

    def learned_from(self, poses: Mapping[int, Pose], mesh: Mesh, camera: Camera) -> Foreground:
        """Return the model after a mesh was found at poses camera_from_body, by frame; see `learned`."""
        known = [i for i in self.rows.tolist() if i in poses]
        shown = {i: silhouette_of(poses[i].apply(mesh.vertices), mesh.faces, camera) for i in known}
        return self.learned({i: place for i, place in shown.items() if place is not None})

    def log_ratio(self, frame: Image) -> NDArray[np.float32]:
        """Return the log-likelihood ratio [H, W] of body and scene for the pixels of a frame, nats."""
        import cv2

        config = self.config
        unknown = config.unknown_nats - 3.0 * np.log(_LEVELS)
        body = np.full(_BINS**3, unknown) if self.body is None else self.body
        shadow = config.shadow_nats, self.darkest_shadow
        changed = np.full(_BINS**3, -np.inf) if self.changed is None else self.changed
        same = _of_exposure(frame, self.background)
        ratio = _log_ratio(same, self.background, self.noise, body, (self.scene, changed), shadow, config.other_nats)
        most = config.max_nats
        smooth = cv2.blur(np.clip(ratio, -3.0 * most, 3.0 * most), (3, 3))
        return np.asarray(np.clip(smooth, -most, most), dtype=np.float32)


def color_density(colors: Image, uniform_share: float) -> Array:
    """Return the log density [4096] of colours [N, 3], per cube of one grey level.

    uniform_share: share of a uniform distribution.
    """
    from scipy.ndimage import gaussian_filter

    bins = (colors.astype(np.int64) >> _SHIFT) @ [_BINS**2, _BINS, 1]
    counts = np.bincount(bins, minlength=_BINS**3).astype(float).reshape(_BINS, _BINS, _BINS)
    smooth = gaussian_filter(counts, 0.7, mode="nearest").ravel()
    share = (1.0 - uniform_share) * smooth / max(smooth.sum(), 1e-9) + uniform_share / _BINS**3
    return np.asarray(np.log(np.maximum(share, 1e-12) / (_LEVELS / _BINS) ** 3))


def _of_exposure(frame: Image, background: Image) -> Image:
    """Return a frame with the exposure of the background: most pixels show it."""
    part, behind = frame[::4, ::4].reshape(-1, 3), background[::4, ::4].reshape(-1, 3)
    clear = ((part > 20) & (part < 235) & (behind > 20) & (behind < 235)).all(axis=1)
    if clear.sum() < 100:
        return frame
    gain = np.median(behind[clear].astype(np.float32) / part[clear], axis=0)
    if np.abs(gain - 1.0).max() < 0.02:
        return frame
    return np.asarray(np.clip(np.rint(frame * gain.astype(np.float32)), 0, _LEVELS - 1), dtype=np.uint8)


def _relative(colors: Image, background: Image) -> Image:
    """Return colours [N, 3] relative to those of their background: `_SAME` where they are the same."""
    return np.asarray(np.minimum(_SAME * colors.astype(np.float32) / (background + 1.0), _LEVELS - 1), dtype=np.uint8)


def _darkest_shadow(changed: Image, config: ForegroundConfig) -> float:
    """Return the least brightness in a shadow, from relative colours [N, 3] of what changes beside the body.

    A dark body passes for a shadow, where the clip's shadows may be of any darkness. Where hardly anything changes
    beside it, it casts none.
    """
    if len(changed) < config.shadow_pixels:
        return np.inf
    bright = changed.astype(np.float32) / _SAME
    mean = bright.mean(axis=1)
    shadows = mean[(np.ptp(bright, axis=1) < config.shadow_colors) & (mean < 1.0)]
    if len(shadows) < config.shadow_pixels:
        return config.darkest_shadow
    return max(config.darkest_shadow, config.at_contact * float(np.percentile(shadows, 5.0)))


def _distance(frame: Image, background: Image) -> NDArray[np.float32]:
    """Return the distance [H, W] of colours, grey levels of one channel."""
    apart = frame.astype(np.float32) - background
    return np.asarray(np.sqrt(np.mean(apart**2, axis=-1)))


def _grown(part: Silhouette, shape: tuple[int, ...], by_px: float) -> NDArray[np.bool_]:
    """Return the pixels [H, W] at most so far from a silhouette."""
    import cv2

    rows, columns, mask = part
    beside = np.ones(shape, dtype=np.uint8)
    beside[rows, columns] = ~mask
    return np.asarray(cv2.distanceTransform(beside, cv2.DIST_L2, 5) <= by_px)


def _touched(always: NDArray[np.bool_], parts: list[Silhouette], config: ForegroundConfig) -> NDArray[np.bool_]:
    """Return the regions [H, W] of pixels that always have the body's colours and belong to the body.

    The silhouette touches such a region in most frames, as that of a swinging body touches the part near its pin. The
    region is smaller than the silhouette: a wall of the body's colours is none.
    """
    import cv2

    count, label = cv2.connectedComponents(_patches(always, config.patch_px).astype(np.uint8))
    touching = np.zeros(count)
    for part in parts:
        near = np.unique(label[_grown(part, always.shape, config.beside_px + config.patch_px)])
        touching[near] += 1.0 / len(parts)
    area = np.bincount(label.ravel(), minlength=count)
    usual = float(np.median([part[2].sum() for part in parts]))
    own = (touching > config.touched_share) & (area < usual)
    own[0] = False
    return np.asarray(own[label] & always)


def _patches(mask: NDArray[np.bool_], size_px: int) -> NDArray[np.bool_]:
    """Return the pixels [H, W] of a mask that lie in squares of it: noise does not."""
    import cv2

    return np.asarray(cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, np.ones((size_px, size_px))) > 0)


def _floored(noise: NDArray[np.float32], config: ForegroundConfig) -> NDArray[np.float32]:
    import cv2

    known = np.isfinite(noise)
    typical = float(np.median(noise[known])) if known.any() else config.min_noise
    smooth = cv2.blur(np.where(known, noise, typical).astype(np.float32), (5, 5))
    floored = np.maximum(smooth, max(config.min_noise, config.noise_factor * typical))
    return np.where(known, floored, np.inf).astype(np.float32)


@_compiled
def _median(bins: NDArray[np.int64], count: int) -> int:
    """Return the median of `count` bytes, of which `bins` [256] counts how often each occurs."""
    below, value = bins[0], 0
    while below <= count // 2:
        value += 1
        below += bins[value]
    return value


@_compiled
def _deviation(bins: NDArray[np.int64], count: int, middle: int) -> int:
    """Return the median distance of these bytes from their median."""
    within, off = bins[middle], 0
    while within <= count // 2:
        off += 1
        if middle >= off:
            within += bins[middle - off]
        if middle + off < 256:
            within += bins[middle + off]
    return off


@_compiled
def _background(samples: Image, used: NDArray[np.bool_]) -> tuple[Image, NDArray[np.float32]]:
    """Return the median [H, W, 3] of samples [S, H, W, 3] where they are used, and the noise [H, W] about it.

    The noise is infinite where fewer than three samples are used.
    """
    count, height, width, _ = samples.shape
    median, noise = np.zeros((height, width, 3), np.uint8), np.full((height, width), np.inf, np.float32)
    bins = np.zeros(256, np.int64)
    for y in range(height):
        for x in range(width):
            total = 0.0
            for c in range(3):
                n = 0
                for k in range(count):
                    if used[k, y, x]:
                        bins[samples[k, y, x, c]] += 1
                        n += 1
                if n >= 3:
                    middle = _median(bins, n)
                    median[y, x, c] = middle
                    total += _deviation(bins, n, middle)
                for k in range(count):
                    bins[samples[k, y, x, c]] = 0
                if n < 3:
                    break
                if c == 2:
                    noise[y, x] = 1.48 * total / 3.0
    return median, noise


@_compiled
def _other_colors(samples: Image, body: Array, scene: Array, most: float) -> NDArray[np.bool_]:
    """Return which samples [S, H, W] have colours that are not the body's."""
    count, height, width, _ = samples.shape
    out = np.empty((count, height, width), np.bool_)
    for k in range(count):
        for y in range(height):
            for x in range(width):
                color = samples[k, y, x]
                i = (color[0] >> _SHIFT) * _BINS**2 + (color[1] >> _SHIFT) * _BINS + (color[2] >> _SHIFT)
                out[k, y, x] = body[i] - scene[i] < most
    return out


@_compiled
def _log_ratio(
    frame: Image,
    background: Image,
    noise: NDArray[np.float32],
    body: Array,
    scenes: tuple[Array, Array],
    shadow: tuple[float, float],
    other_nats: float,
) -> NDArray[np.float32]:
    """Return the log-likelihood ratio [H, W] of body and scene.

    scenes: log density of the scene's colours, and of relative colours of what changes.
    shadow: cost and least brightness.
    other_nats: cost of any colour of the scene before a known background.
    """
    height, width, _ = frame.shape
    scene, changed = scenes
    shadow_nats, darkest = shadow
    log_slope = np.log(_SAME / (np.arange(_LEVELS) + 1.0))
    out = np.empty((height, width), np.float32)
    for y in range(height):
        for x in range(width):
            i = (frame[y, x, 0] >> _SHIFT) * _BINS**2 + (frame[y, x, 1] >> _SHIFT) * _BINS + (frame[y, x, 2] >> _SHIFT)
            likely = scene[i] - other_nats
            std = noise[y, x]
            if std < np.inf:
                dot, square = 0.0, 1.0
                for c in range(3):
                    dot += float(frame[y, x, c]) * float(background[y, x, c])
                    square += float(background[y, x, c]) ** 2
                dim = min(max(dot / square, darkest), 1.0)
                plain, dimmed = 0.0, 0.0
                for c in range(3):
                    plain += (float(frame[y, x, c]) - float(background[y, x, c])) ** 2
                    dimmed += (float(frame[y, x, c]) - dim * float(background[y, x, c])) ** 2
                norm = -2.757 - 3.0 * np.log(std)
                likely = max(likely, norm - 0.5 * plain / std**2)
                j, slope = 0, 0.0
                for c in range(3):
                    behind = background[y, x, c]
                    level = min(_SAME * float(frame[y, x, c]) / (float(behind) + 1.0), _LEVELS - 1.0)
                    j = j * _BINS + (int(level) >> _SHIFT)
                    slope += log_slope[behind]
                likely = max(likely, changed[j] + slope)
                likely = max(likely, norm - 1.2 - 0.5 * dimmed / (1.5 * std) ** 2 - shadow_nats - 2.0 * (1.0 - dim))
            else:
                likely = scene[i]
            out[y, x] = body[i] - likely
    return out
