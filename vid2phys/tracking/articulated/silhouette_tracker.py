"""Track an articulated or modal body on a known base with nothing trained: foreground, silhouettes, both directions.

As `tracking.mesh_tracker` for rigid bodies. Some frames are searched (`silhouette_search`). The best of them teach the
body's colours and the background (`foreground`), and are searched again. From these anchors a few hypotheses are
followed to the end of the clip and back to its start. A Viterbi path joins all fits by their evidence and by how
steadily the coordinates change. Frames are then fitted again from the adjacent frames of the path.

Parts that never move, and joints that rest, belong to the background. Where such parts cover a pixel, its foreground is
not known: `ConfigurationSearch.static` leaves it out, and learned silhouettes leave the background there unknown.

Limits: a static camera, a base whose pose is known, and at least one joint that moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.engine.parallel import in_processes, one_thread
from vid2phys.errors import InputError
from vid2phys.indices import evenly
from vid2phys.notes import doubt
from vid2phys.tracking.articulated.contour_refinement import smoothed
from vid2phys.tracking.articulated.detector import Window
from vid2phys.tracking.articulated.silhouette_fit import Fit, FrameFit
from vid2phys.tracking.articulated.silhouette_search import DEFAULTS as SEARCH
from vid2phys.tracking.articulated.silhouette_search import (
    ConfigurationSearch,
    SilhouetteSearchConfig,
    coordinate_units,
)
from vid2phys.tracking.articulated.tracker import ConfigurationTrack
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.foreground import Foreground
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.viterbi import SteadyMotion, viterbi_path
from vid2phys.types import Array, Camera, Clip, ConfigurationMeasurement, Observation

VIEW_PX = 128  # width of the virtual camera's image, which only states the size of the workspace here
Mask = tuple[slice, slice, NDArray[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class SilhouetteTrackerConfig:
    """Settings of `SilhouetteTracker`."""

    taught_frames: int = 12
    """Number of frames that are searched for colours and background."""
    taught_shares: tuple[float, ...] = (0.5, 0.8)
    """Share of these, the best ones, that count in each round."""
    unchanged_share: float = 0.15
    """Share of the evidence against the body that counts in a pixel before the body's colours are known: it may rest
    where the background was estimated."""
    least_moved: int = 4
    """Least number of pixels of the search's grid that are foreground in a frame where something moves."""
    beam: int = 3
    """Number of hypotheses that are followed."""
    beam_share: float = 0.7
    """Least evidence of a hypothesis in a frame, as a share of that of the best one."""
    memory: float = 0.8
    """Share of its evidence that a hypothesis keeps from frame to frame."""
    steady_share: float = 0.95
    """Evidence of a frame, as a share of the frame before, below which the silhouette is aligned first."""
    searched_share: float = 0.7
    """Evidence of a frame, as a share of the frames before, below which the whole frame is searched."""
    max_searches: int = 5
    """Largest number of such searches in each direction."""
    stretch: int = 8
    """Number of frames of which one is searched again."""
    varied: int = 24
    """Number of variations of a prediction that are scored."""
    noise: float = 0.06
    """Their standard deviation, in units of the coordinates."""
    same: float = 0.05
    """Largest difference of configurations that are one, in units of the coordinates."""
    jump: float = 0.35
    """Step of a path, in units of the coordinates, beyond which it is followed from both sides."""
    reach: int = 24
    """Largest number of frames for which it is followed there."""
    alone_std: float = 0.05
    """Standard deviation of a prediction there, in units of the coordinates."""
    candidates: int = 10
    """Largest number of candidates in a frame."""
    error_scale: float = 0.5
    """Ratio of measured to stated errors of contour fits."""
    correlation_s: float = 0.3
    """Their correlation time, s."""
    temperature: float = 10.0
    """Factor by which a frame states too much evidence."""
    independent_share: float = 0.5
    """Share of a fit's standard deviation that differs from frame to frame."""
    lost_overlap: float = 0.25
    """Overlap of silhouette and foreground below which a frame is lost."""


DEFAULTS = SilhouetteTrackerConfig()


@one_thread()
def track_silhouettes(
    clip: Clip,
    camera: Camera,
    body: ArticulatedBody,
    progress: Callable[[float], None] | None = None,
    config: SilhouetteTrackerConfig = DEFAULTS,
    search: SilhouetteSearchConfig = SEARCH,
    first: Callable[[int, Array], None] | None = None,
) -> ConfigurationTrack:
    """Track the configuration of a body on a known base through a clip, with nothing trained.

    Args:
        clip: T frames.
        camera: of the clip; its pose is in the world of the body's base.
        body: the body.
        progress: receives the share of the work that is done.
        config: settings.
        search: settings of the search.
        first: receives the index of a frame and its configuration [D] once the body is found.

    Raises:
        InputError: the camera moves or looks elsewhere, nothing moves, or the body is found in no frame.
    """
    if camera.moves:
        got = "a camera that moves, and no trained model: a body is found by its motion before a static camera"
        raise InputError(got, "a static camera or a trained model", "film from a tripod, or run `vid2phys train-risp`")
    window = Window.of(camera, body, VIEW_PX)
    frames = FrameStore.of(clip)
    tracker = SilhouetteTracker(frames, clip.times_s, ConfigurationSearch(body, window, search), progress, config)
    tracker.first = first
    found = tracker.run()
    if not tracker.moved:
        got = f"nothing moves in '{clip.name}': without a trained model a body is found by its motion"
        raise InputError(got, "a body that moves before a static camera", "film it in motion")
    tracked = np.array([fit is not None and fit.overlap > config.lost_overlap for fit in found])
    if not tracked.any():
        raise InputError(
            f"nothing that moves in '{clip.name}' has the shape of '{body.mesh.name}' in any frame",
            "a clip that shows it where camera_to_world and the base's pose say",
            "check both, and that the body is in view",
        )
    return _track(clip.times_s, body, found, tracked, config)


def _track(
    times_s: Array,
    body: ArticulatedBody,
    found: Sequence[Fit | None],
    tracked: NDArray[np.bool_],
    config: SilhouetteTrackerConfig,
) -> ConfigurationTrack:
    """Return the track of the fits of T frames."""
    count, size = len(times_s), len(body.rest)
    rows = np.flatnonzero(tracked)
    fits = [fit for fit, shown in zip(found, tracked, strict=True) if shown and fit is not None]
    at = unwrapped(np.array([fit.configuration for fit in fits]), body)
    known = [fit.covariance for fit in fits if fit.covariance is not None]
    usual = np.median(known, axis=0) if known else np.diag(body.prior_std**2)
    covariance = np.array([usual if fit.covariance is None else fit.covariance for fit in fits])
    covariance = config.error_scale**2 * smoothed(covariance, times_s[rows])
    columns = np.asarray(np.linalg.cholesky(covariance), dtype=float)
    correlation_s = np.full(size, config.correlation_s)
    own = np.asarray(config.independent_share**2 * covariance, dtype=float)
    measured = ConfigurationMeasurement(at, own, columns, correlation_s, np.ones(len(rows), bool), "silhouette")
    nothing = observation_of_nothing(times_s, body, correlation_s)
    configurations, covariances = np.full((count, size), np.nan), np.full((count, size, size), np.nan)
    configurations[rows], covariances[rows] = at, covariance
    quality = np.array([0.0 if fit is None else fit.overlap for fit in found])
    observation = nothing.with_configurations(rows, measured)
    notes = jump_notes(times_s[rows], at, body, config.jump * coordinate_units(body))
    return ConfigurationTrack(observation, configurations, covariances, tracked, quality, notes)


def jump_notes(times_s: Array, configurations: Array, body: ArticulatedBody, least: Array) -> tuple[str, ...]:
    """Return a doubt where coordinates [N, D] leave a steady motion by more than `least` [D] in adjacent frames.

    Configurations whose silhouettes are alike, such as those towards the camera and away from it, then took turns.
    """
    if len(times_s) < 3:
        return ()
    off = np.abs(np.diff(body.difference(configurations[:-1], configurations[1:]), axis=0))
    jumps = np.argwhere(off > least)
    if not len(jumps):
        return ()
    names = ", ".join(body.names[d] for d in sorted({int(d) for _, d in jumps}))
    count, first = len({int(n) for n, _ in jumps}), float(times_s[jumps[0][0] + 1])
    return (
        doubt(
            f"the joint coordinates jump in {count} frames, first at {first:.2f} s ({names}): configurations that look "
            "alike from this camera took turns; film from another side, closer, or with less blur"
        ),
    )


def observation_of_nothing(times_s: Array, body: ArticulatedBody, correlation_s: Array) -> Observation:
    """Return an observation in which no keypoint is visible."""
    count, points, size = len(times_s), len(body.points_body), len(correlation_s)
    return Observation(
        times_s,
        np.zeros((count, points, 2)),
        np.tile(np.eye(2), (count, points, 1, 1)),
        np.zeros((count, points, 2, size)),
        correlation_s,
        np.zeros((count, points), dtype=bool),
        body.points_body,
    )


def unwrapped(configurations: Array, body: ArticulatedBody) -> Array:
    """Return configurations [N, D] whose coordinates with a period do not jump; the first is nearest to the rest."""
    first = body.rest + body.difference(body.rest, configurations[0])
    steps = body.difference(configurations[:-1], configurations[1:])
    return np.asarray(first + np.concatenate([np.zeros((1, len(first))), np.cumsum(steps, axis=0)]))


@dataclass(frozen=True)
class Hypothesis:
    """A motion that is followed: its last fit, the step to it, and its evidence so far."""

    fit: Fit
    step: Array | None
    evidence: float


@dataclass
class SilhouetteTracker:
    """Track one body through the frames of one clip.

    Attributes:
        frames: of the clip.
        times_s: [T], s.
        search: the drawn body.
        progress: receives the share of the work that is done.
        config: settings.
        first: receives a frame's index and its configuration [D] once the body is found.
        moved: whether anything was foreground in any frame that was searched before the body's colours were known.
        foreground: colours of body and scene, as far as they are learned.
    """

    frames: FrameStore
    times_s: Array
    search: ConfigurationSearch
    progress: Callable[[float], None] | None = None
    config: SilhouetteTrackerConfig = DEFAULTS
    first: Callable[[int, Array], None] | None = None
    moved: bool = False
    foreground: Foreground = field(init=False)

    @property
    def body(self) -> ArticulatedBody:
        """Return the body."""
        return self.search.body

    @cached_property
    def solid(self) -> Solid:
        """The mesh and its creases."""
        return Solid.of(self.body.mesh)

    def run(self) -> list[Fit | None]:
        """Return the fit of each frame, None where the body is lost."""
        self._begin()
        anchors = self._teach()
        if not anchors:
            return [None] * len(self.frames)
        if self.first is not None:
            best = max(anchors, key=lambda i: anchors[i][0].overlap * anchors[i][0].nats)
            self.first(best, anchors[best][0].configuration)
        self._report(0.3)
        found = self._joined(self._followed(anchors))
        self._learn({i: fit for i, fit in enumerate(found) if fit is not None})
        self._report(0.5)
        again = self._searched(self._weakest(found))
        self._report(0.65)
        candidates = self._followed({i: fits for i, fits in again.items() if fits})
        self._report(0.85)
        candidates = self._across_jumps(candidates, self._joined(candidates))
        self._report(0.95)
        return self._joined(self._with_adjacent(candidates, self._joined(candidates)))

    def searched_anchors(self, count: int) -> dict[int, list[Fit]]:
        """Return the fits of some frames that are searched by themselves, by frame; empty where the body is lost."""
        self._begin()
        return self._teach(count)

    def _begin(self) -> None:
        """Learn the background, before anything is found; draw configurations, once for all processes."""
        self.foreground = Foreground.of(self.frames)
        self.search.draw()
        _ = self.solid

    def _weakest(self, found: Sequence[Fit | None]) -> list[int]:
        """Return frames to search: in each stretch of the clip the one that is explained worst."""
        stretch = self.config.stretch
        nats = np.array([-np.inf if fit is None else fit.nats for fit in found])
        return [k + int(np.argmin(nats[k : k + stretch])) for k in range(0, len(found), stretch)]

    def _teach(self, count: int | None = None) -> dict[int, list[Fit]]:
        """Learn colours and background in rounds; return the fits of the last round, by frame."""
        known, found = self.foreground.rows, dict[int, list[Fit]]()
        rows = known[evenly(len(known), (count or self.config.taught_frames) + 2)[1:-1]].tolist()
        for share in self.config.taught_shares:
            found = {i: fits for i, fits in self._searched(rows).items() if fits}
            ranked = sorted(found, key=lambda i: -found[i][0].overlap)
            self._learn({i: found[i][0] for i in ranked[: math.ceil(share * len(ranked))]})
        return found

    def _searched(self, rows: Sequence[int]) -> dict[int, list[Fit]]:
        """Return the fits of a search in each of some frames."""

        def search(i: int) -> tuple[bool, list[Fit]]:
            seen = self._seen(i)
            # with the body's colours known, static things may be foreground, too
            moved = self.foreground.body is None and int((seen.coarse > 0.0).sum()) >= self.config.least_moved
            return moved, seen.detect() if moved or self.moved else []

        each = list(in_processes(search, rows))
        self.moved |= any(moved for moved, _ in each)
        return {i: found for i, (_, found) in zip(rows, each, strict=True)}

    def _seen(self, i: int) -> FrameFit:
        frame = self.frames[i]
        ratio = self.foreground.log_ratio(frame)
        ratio[self.search.static] = 0.0
        if self.foreground.body is None:
            ratio = np.where(ratio < 0.0, np.float32(self.config.unchanged_share) * ratio, ratio)
        return FrameFit(frame, ratio, self.search, self.solid)

    def _learn(self, fits: dict[int, Fit]) -> None:
        shown = {i: mask for i, fit in fits.items() if (mask := self._mask(fit.configuration)) is not None}
        self.foreground = self.foreground.learned(shown)

    def _mask(self, configuration: Array) -> Mask | None:
        """Return the moving parts in the frame: rows, columns and pixels."""
        (left, top), (width, height) = self.search.coarse.corner.tolist(), self.search.coarse.size.tolist()
        mask = self.search.silhouette(configuration, replace(self.search.coarse, scale=1.0))
        if mask is None or not mask.any():
            return None
        rows, columns = slice(top, top + height), slice(left, left + width)
        return rows, columns, mask & ~self.search.static[rows, columns]

    def _followed(self, anchors: dict[int, list[Fit]]) -> list[list[Fit]]:
        """Return the candidates of each frame, from anchors followed to the end and to the start."""
        count = len(self.frames)
        found: list[list[Fit]] = [list(anchors.get(i, ())) for i in range(count)]
        ways = [range(count), range(count - 1, -1, -1)]
        each = in_processes(lambda way: list(self._follow(way, anchors)), ways)
        for way, fits in zip(ways, each, strict=True):
            for i, own in zip(way, fits, strict=True):
                found[i] += own
        return found

    def _follow(self, way: Sequence[int], anchors: dict[int, list[Fit]]) -> Iterator[list[Fit]]:
        """Yield the fits of each frame in the order of `way`."""
        config, beam, recent, searches = self.config, list[Hypothesis](), list[float](), 0
        rng = np.random.default_rng(way[0])
        for i in way:
            seen = self._seen(i)
            reached = [each for h in beam if (each := self._advanced(seen, h, rng)) is not None]
            best = max((h.fit.nats for h in reached), default=-np.inf)
            usual = float(np.median(recent[-15:])) if recent else np.inf
            fresh = list(anchors.get(i, ()))
            if beam and not fresh and best < config.searched_share * usual and searches < config.max_searches:
                fresh, searches = seen.detect(), searches + 1
            kept = max((h.evidence - h.fit.nats for h in reached), default=0.0)
            reached += [Hypothesis(fit, None, kept + fit.nats - 1.0) for fit in fresh]
            beam = self._distinct(reached)
            if beam:
                recent.append(beam[0].fit.nats)
            yield [h.fit for h in beam]

    def _advanced(self, seen: FrameFit, h: Hypothesis, rng: np.random.Generator) -> Hypothesis | None:
        """Return a hypothesis in the next frame."""
        at, search, config = h.fit.configuration, self.search, self.config
        ahead = at if h.step is None else search.within(at + h.step)
        noise = config.noise if h.step is not None else 2.0 * config.noise
        tried = np.concatenate([[ahead, at], search.varied(ahead, noise, config.varied, rng)])
        order = np.argsort(-search.scores(tried, seen.coarse))
        starts = [ahead] if order[0] == 0 else [ahead, tried[order[0]]]
        start = max((seen.judged(each) for each in starts), key=lambda fit: fit.nats).configuration
        fit = seen.fitted(start)
        if fit is None or fit.nats < config.steady_share * h.fit.nats:
            aligned = seen.aligned(start)
            other = None if aligned is None else seen.fitted(aligned)
            fit = max((each for each in (fit, other) if each is not None), key=lambda each: each.nats, default=None)
        if fit is None:
            return None
        step = self.body.difference(at, fit.configuration)
        return Hypothesis(fit, step, config.memory * h.evidence + fit.nats)

    def _distinct(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """Return the best hypotheses with different configurations."""
        chosen: list[Hypothesis] = []
        least = self.config.beam_share * max((h.fit.nats for h in hypotheses), default=0.0)
        for h in sorted(hypotheses, key=lambda h: -h.evidence):
            apart = (self._apart(h.fit, other.fit) for other in chosen)
            if h.fit.nats >= least and all(each > self.config.same for each in apart):
                chosen.append(h)
            if len(chosen) == self.config.beam:
                break
        return chosen

    def _across_jumps(self, candidates: list[list[Fit]], path: list[Fit | None]) -> list[list[Fit]]:
        """Return the candidates with those that follow a path over its jumps, from both sides.

        A hypothesis that is worse for some frames leaves the beam; here it goes on.
        """
        out = [list(own) for own in candidates]
        for t in range(len(path) - 1):
            a, b = path[t], path[t + 1]
            if a is None or b is None or self._apart(a, b) < self.config.jump:
                continue
            for first, way in ((t, 1), (t + 1, -1)):
                for i, fit in self._followed_alone(path, first, way):
                    out[i].append(fit)
        return out

    def _followed_alone(self, path: list[Fit | None], first: int, way: int) -> Iterator[tuple[int, Fit]]:
        """Yield frames and fits that continue a path beyond frame `first`, until they meet it again."""
        start, before = path[first], path[first - way] if 0 <= first - way < len(path) else None
        assert start is not None
        at, step = start.configuration, np.zeros(len(self.body.rest))
        if before is not None and self._apart(before, start) < self.config.jump:
            step = self.body.difference(before.configuration, at)
        for i in range(first + way, first + way * self.config.reach, way):
            if not 0 <= i < len(path):
                return
            fit = self._seen(i).fitted(self.search.within(at + step), self.config.alone_std)
            if fit is None:
                return
            yield i, fit
            step, at, met = self.body.difference(at, fit.configuration), fit.configuration, path[i]
            if met is not None and self._apart(met, fit) < self.config.same:
                return

    def _different(self, fits: list[Fit]) -> list[Fit]:
        """Return the best candidates of a frame, without those that are nearly one."""
        chosen: list[Fit] = []
        for fit in sorted(fits, key=lambda fit: -fit.nats):
            if all(self._apart(fit, other) > 0.2 * self.config.same for other in chosen):
                chosen.append(fit)
        return chosen[: self.config.candidates]

    def _apart(self, a: Fit, b: Fit) -> float:
        return self.search.distance(a.configuration, b.configuration)

    def _with_adjacent(self, candidates: list[list[Fit]], path: list[Fit | None]) -> list[list[Fit]]:
        """Return the candidates with fits that start from the adjacent frames of a path."""

        def refit(i: int) -> Fit | None:
            for a, b, share in ((i - 1, i + 1, 0.5), (i - 2, i - 1, 2.0), (i + 2, i + 1, 2.0)):
                one, other = (path[k] if 0 <= k < len(path) else None for k in (a, b))
                if one is not None and other is not None:
                    step = self.body.difference(one.configuration, other.configuration)
                    return self._seen(i).fitted(self.search.within(one.configuration + share * step))
            return None

        again = in_processes(refit, range(len(path)))
        return [[*own, fit] if fit is not None else own for own, fit in zip(candidates, again, strict=True)]

    def _joined(self, candidates: list[list[Fit]]) -> list[Fit | None]:
        """Return the fits along the Viterbi path."""
        rows = [i for i, fits in enumerate(candidates) if fits]
        out: list[Fit | None] = [None] * len(candidates)
        if not rows:
            return out
        kept = [self._different(candidates[i]) for i in rows]
        width, units = max(map(len, kept)), self.search.units
        cost, states = np.full((len(rows), width), np.inf), np.zeros((len(rows), width, len(units)))
        for n, fits in enumerate(kept):
            cost[n, : len(fits)] = [-fit.nats / self.config.temperature for fit in fits]
            states[n, : len(fits)] = [fit.configuration / units for fit in fits]
        motion = SteadyMotion(periods=tuple((self.body.periods / units).tolist()))
        path = viterbi_path(cost, states, self.times_s[rows], motion)
        for n, i in enumerate(rows):
            out[i] = kept[n][int(path[n])]
        return out

    def _report(self, share: float) -> None:
        if self.progress is not None:
            self.progress(share)
