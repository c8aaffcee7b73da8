"""Find the fit of a mesh in each frame with nothing trained: foreground, silhouettes, tracking in both directions.

Some frames are searched (`detectors.silhouette`). The best of them teach the body's colours (`foreground`), and are
searched again. From these anchors a few hypotheses are followed to the end of the clip and back to its start. In each
frame all fits are candidates, under every symmetry element of the body. A Viterbi path joins them by their evidence and
by how steadily the body rotates. The path teaches colours and background once more. Where the ways forwards and
backwards lead to one pose, frames are fitted again from it. The other frames are followed again, after those that are
explained worst were searched with the new colours. The poses of the first path stay candidates. At last, other poses
with nearly one silhouette are candidates, too (`look_alikes`). The path is taken on which frames agree about the
colours of the surface (`color_agreement`).

A hint of the user (`hinted_search`) replaces the first search: colours and background are learned along the motion that
begins there, and each later search stays in reach of it. Then the body need not move.

Limits: a static camera, and without a hint a body that moves. What holds it, such as a hand, is foreground, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes
from vid2phys.engine.virtual_camera import make_view
from vid2phys.errors import InputError
from vid2phys.geometry import Pose
from vid2phys.indices import evenly
from vid2phys.risp.networks.model import Shape
from vid2phys.risp.shape.rotation_groups import composition, nearest_element, under_element
from vid2phys.tracking.candidate_paths import Candidates, Choice
from vid2phys.tracking.color_agreement import SurfaceEvidence, agreeing_path
from vid2phys.tracking.cues.contour import Contour
from vid2phys.tracking.cues.creases import Solid
from vid2phys.tracking.cues.light import linear, smaller
from vid2phys.tracking.cues.silhouette import silhouette_of
from vid2phys.tracking.cues.surface_colors import SurfacePlaces
from vid2phys.tracking.cues.texture import Shown, SurfaceTexture, soft_view
from vid2phys.tracking.detectors.network import Image, direction_and_size
from vid2phys.tracking.detectors.silhouette import Silhouettes
from vid2phys.tracking.foreground import Foreground, Silhouette
from vid2phys.tracking.frame_size import at_own_size, is_large, reduction_of
from vid2phys.tracking.frame_store import FrameStore
from vid2phys.tracking.ground import Ground
from vid2phys.tracking.hinted_search import (
    HintedFrame,
    HintedRow,
    no_object,
    steady,
    unchanged,
    within_reach,
)
from vid2phys.tracking.hypotheses import DEFAULTS as HYPOTHESES
from vid2phys.tracking.hypotheses import TEMPERATURES
from vid2phys.tracking.look_alikes import LookAlikes
from vid2phys.tracking.motion_blur import MotionBlur
from vid2phys.tracking.resting import laid
from vid2phys.tracking.silhouette_fit import Fit, FrameForeground, detect
from vid2phys.tracking.still_images import still_frames
from vid2phys.tracking.surface_refinement import RefinedPoses, refine_by_surfaces
from vid2phys.types import Array, Camera, Mesh


@dataclass(frozen=True, kw_only=True)
class MeshTrackerConfig:
    """Settings of `MeshTracker`."""

    taught_frames: int = 10
    """Number of frames that are searched for colours and background."""
    taught_shares: tuple[float, ...] = (0.5, 0.8)
    """Share of these, the best ones, that count in each round."""
    least_lit_share: float = 0.4
    """Share of the changed pixels that are no shadow, below which the body may be taken for its shadow. A dark gear has
    0.1, other bodies 0.5 to 1."""
    taught_score: float = 0.1
    """Least evidence times overlap of a fit that counts, as a share of that of the best one."""
    beam: int = 2
    """Number of hypotheses that are followed."""
    beam_share: float = 0.7
    """Least evidence of a hypothesis in a frame, as a share of that of the best one."""
    memory: float = 0.8
    """Share of its evidence that a hypothesis keeps from frame to frame."""
    steady_share: float = 0.95
    """Evidence of a frame, as a share of the frame before, below which the silhouette is aligned first."""
    searched_share: float = 0.7
    """Evidence of a frame, as a share of the frames before, below which the whole frame is searched."""
    stretch: int = 8
    """Number of frames of which one is searched again, where the two ways through the clip differ."""
    hinted_share: float = 0.5
    """Evidence of a frame, as a share of that of the hinted frame, below which it teaches nothing."""
    max_searches: int = 5
    """Largest number of such searches in each direction."""
    same: tuple[float, ...] = (0.06, 0.06, 0.06, 0.005, 0.005, 0.03)
    """Largest distance [6] of fits that are one, in local coordinates of a pose."""
    between_frames: int = 3
    """Largest number of frames to each side, between whose poses a frame is fitted again where it jumps."""
    look_alike_share: float = 0.5
    """Evidence of a look-alike, as a share of that of the fit, below which it is not fitted."""
    candidates: int = 8
    """Largest number of candidates in a frame."""
    feature_frames: int = 64
    """Number of frames in which the features of a texture are searched."""
    least_feature_share: float = 0.2
    """Least share of these in which they must be found."""
    textured_share: float = 0.5
    """Share of frames that a texture must explain, for it to refine poses and to refuse the other frames."""
    texture_px: int = 96
    """Width of the virtual image in which a texture is compared, px."""
    temperature: float = 10.0
    """Factor by which a frame states too much evidence."""
    independent_share: float = 0.5
    """Share of a fit's standard deviation that differs from frame to frame."""
    element_frames: int = 16
    """Number of frames in which the symmetry elements of a nearly symmetric body are compared."""
    most_nats: float = 30.0
    """Largest evidence of one frame against an element, nats."""
    lost_overlap: float = 0.35
    """Overlap of silhouette and foreground below which a frame is lost."""
    lost_share: float = 0.4
    """Evidence of a frame below which it is lost, as a share of that of the clip's good frames."""


DEFAULTS = MeshTrackerConfig()


def shown_at(
    frame: Image, camera: Camera, mesh: Mesh, texture: SurfaceTexture, pose: Pose, config: MeshTrackerConfig
) -> Shown:
    """Return the colours of the body that a frame shows at a pose."""
    place = direction_and_size(pose.translation, mesh.radius_m)
    view = make_view(camera, place[0], float(place[1]), config.texture_px)
    return texture.shown(view, soft_view(frame, camera, view, texture.config), pose)


@dataclass(frozen=True)
class Hypothesis:
    """A motion that is followed: its last fit, the pose before, and its evidence so far."""

    fit: Fit
    before: Pose | None
    evidence: float

    def followed_by(self, fit: Fit, memory: float) -> Hypothesis:
        """Return the hypothesis in the next frame. memory: share of its evidence that it keeps."""
        return Hypothesis(fit, self.fit.pose, memory * self.evidence + fit.nats)

    def predictions(self) -> list[Pose]:
        """Return poses of the next frame: the motion goes on, or stops."""
        return self.fit.pose.predictions(self.before)


@dataclass
class MeshTracker:
    """Track one mesh through the frames of one clip.

    Attributes:
        frames: of the clip.
        times_s: [T], s.
        camera: of the clip.
        mesh: of the body.
        shape: symmetry of the body's shape.
        texture: of the mesh, if it has one.
        progress: receives the share of the work that is done.
        config: settings.
        moved: whether anything was foreground in any frame that was searched.
        hinted: where the body is in one frame, by a hint of the user.
        tilt_std_rad: standard deviation of the angle between the body's z axis and up, if the system limits it.
        first: receives a frame in which the body was found, and its pose.
        small: the tracker that found the body in reduced frames, if they are large.
        known: poses that agree with the hint, by frame; empty without a hint.
        resting: fits of frames in which the body is as in the hinted frame.
        evidence: [G] of the clip for each symmetry element, the chosen one first, nats.
        foreground: colours of body and scene, as far as they are learned.
        blur: motion blur of the clip; None where there is little.
    """

    frames: FrameStore
    times_s: Array
    camera: Camera
    mesh: Mesh
    shape: Shape
    texture: SurfaceTexture | None = None
    progress: Callable[[float], None] | None = None
    config: MeshTrackerConfig = DEFAULTS
    moved: bool = False
    hinted: HintedRow | None = None
    tilt_std_rad: float | None = None
    first: Callable[[int, Pose], None] | None = None
    small: MeshTracker | None = None
    known: dict[int, Pose] = field(default_factory=dict)
    resting: dict[int, Fit] = field(default_factory=dict)
    evidence: Array = field(init=False)
    foreground: Foreground = field(init=False)
    blur: MotionBlur | None = None

    @cached_property
    def solid(self) -> Solid:
        """The mesh and its creases."""
        return Solid.of(self.mesh)

    @cached_property
    def look_alikes(self) -> LookAlikes:
        """Which poses of the mesh have nearly one silhouette."""
        return LookAlikes.of(self.mesh, self.shape.rotations)

    @cached_property
    def silhouettes(self) -> Silhouettes:
        """The drawn silhouettes of the mesh."""
        return Silhouettes.of(self.mesh, self.shape.rotations if self.shape.exact else None)

    def track(self) -> list[Fit | None]:
        """Return the fit of each frame, None where the body is lost.

        Large frames are reduced to search and follow the body, unless it is small in the reduced ones.
        """
        by = reduction_of(self.camera)
        if by == 1:
            return self.run()
        small = self.reduced(by)
        try:
            found = small.run()
        except InputError:  # at a hint no pose fits the reduced frame
            return self.run()
        if not is_large(found, small.camera, self.mesh.radius_m):
            return self.run()
        self.small, self.evidence, self.moved = small, small.evidence, small.moved
        self.blur = None if small.blur is None else small.blur.enlarged(by)
        return at_own_size(self.frames, self.camera, self.solid, found, self.blur)

    def refined_by_surfaces(self, poses: Mapping[int, Pose]) -> RefinedPoses | None:
        """Return the poses of frames as the body's surfaces refine them; None where contours serve as well.

        Surfaces that gain nothing in reduced frames are not learned in the frames themselves.
        """
        if self.small is not None:
            if self.small.refined_by_surfaces(poses) is None:
                return None
            self.foreground = Foreground.of(self.frames).learned_from(poses, self.mesh, self.camera)
        given = self.frames, self.camera, self.solid, self.foreground, poses, self.times_s
        return refine_by_surfaces(*given, self._seen, self.shape)

    def judged(self, i: int, pose: Pose, contour: Contour | None) -> Fit:
        """Return a pose of frame i with the evidence of the frame for it. contour: fitted near the pose."""
        return self._seen(i).judged(pose, contour)

    def still(self, fits: Mapping[int, Fit]) -> frozenset[int]:
        """Return the frames with a fit in which the body rests; of large frames, reduced ones tell."""
        tracker = self.small or self
        return still_frames(tracker.frames, self.times_s, tracker.camera, self.mesh, fits)

    def laid(self, fits: Mapping[int, Fit], still: Collection[int], ground: Ground) -> dict[int, Fit]:
        """Return fits by frame; a body at rest lies on one of its faces, see `resting.laid`."""
        return laid(fits, still, ground, self.mesh, self.shape, (self.small or self)._seen)

    def reduced(self, by: int) -> MeshTracker:
        """Return the tracker of the same clip with blocks of `by` x `by` pixels as pixels."""
        camera, hinted = smaller(self.camera, by), self.hinted
        frames = FrameStore.reduced(self.frames, camera, by)
        hinted = None if hinted is None else replace(hinted, hint=hinted.hint.reduced(by))
        return replace(self, frames=frames, camera=camera, hinted=hinted, small=None, known={}, resting={})

    def run(self) -> list[Fit | None]:
        """Return the fit of each frame, None where the body is lost, with all steps in frames of one size."""
        self.begin()
        self.evidence = np.zeros(len(self.shape.rotations))
        anchors = self._teach() if self.hinted is None else self._teach_at_hint(self.hinted)
        if not anchors:
            return [None] * len(self.frames)
        if self.first is not None:
            best = max(anchors, key=lambda i: anchors[i][0].overlap * anchors[i][0].nats)
            self.first(best, anchors[best][0].pose)
        self._report(0.3)
        candidates, agreed = self._followed(anchors)
        agreed &= self.hinted is None  # ways that begin at one hint agree without being right
        found = self._joined(candidates)
        self._learn({i: fit for i, fit in enumerate(found) if fit is not None})
        self._report(0.5)
        again = self._searched(self._weakest(found, agreed))
        if self.hinted is not None and (anchor := found[self.hinted.row]) is not None:
            again[self.hinted.row] = [*again.get(self.hinted.row, ()), anchor]
        self._report(0.7)
        earlier = self._fitted_again(found) if self.hinted is None else {}
        fixed = {i: earlier[i] for i in self._agreed_rows(agreed) if i in earlier}
        candidates, _ = self._followed({i: fits for i, fits in again.items() if fits}, fixed)
        found = self._joined([[*fits, earlier[i]] if i in earlier else fits for i, fits in enumerate(candidates)])
        both = zip(self._between(found), self._looking_alike(found), strict=True)
        return self._in_best_element(self._agreeing([[*between, *alike] for between, alike in both]))

    def _between(self, found: Sequence[Fit | None]) -> list[list[Fit]]:
        """Return the candidates of each frame: its fit, and fits from between those before and after where it jumps."""
        config = self.config

        def fits(i: int) -> list[Fit]:
            own, out = found[i], list[Fit]()
            for k in range(1, config.between_frames + 1):
                before, after = (found[j] if 0 <= j < len(found) else None for j in (i - k, i + k))
                if before is None or after is None:
                    continue
                pose = before.pose.retract(0.5 * before.pose.step_to(after.pose))
                if own is not None and own.pose.is_near(pose, config.same):
                    break
                fit = self._seen(i).fitted_from(pose)
                out += [] if fit is None else [fit]
            return out if own is None else [own, *out]

        return list(in_processes(fits, range(len(found))))

    def _looking_alike(self, found: Sequence[Fit | None]) -> list[list[Fit]]:
        """Return the fits of each frame from the look-alikes of its fit, where they explain it nearly as well."""
        look_alikes = self.look_alikes

        def fits(i: int) -> list[Fit]:
            if (own := found[i]) is None:
                return []
            seen = self._seen(i)
            judged = [seen.judged(pose, None) for pose in look_alikes.of_pose(own.pose)]
            near = [fit for fit in judged if fit.nats > self.config.look_alike_share * own.nats]
            fitted = [fit for start in near if (fit := seen.fitted(start)) is not None]
            return [fit for fit in fitted if not self._same(fit.pose, own.pose)]

        return list(in_processes(fits, range(len(found))))

    def begin(self) -> None:
        """Learn the background, before any pose is known; draw the mesh, once for all processes."""
        _ = self.silhouettes, self.solid
        self.foreground = Foreground.of(self.frames, () if self.hinted is None else (self.hinted.row,))
        if self.texture is not None:
            self.foreground = self.foreground.knowing(self.texture.fine_colors[-1])
        self.blur = MotionBlur.measured(self.frames, self.foreground)

    def at_hint(self, hinted: HintedRow) -> list[Fit]:
        """Return the poses that explain the frame of a hint, the best first; none where nothing there fits.

        `begin` comes before.
        """
        camera = self.camera.at(hinted.row)
        frame = HintedFrame.of(self.frames[hinted.row], self.foreground, camera, self.solid, hinted.hint)
        return self._distinct_fits([one.fit for one in frame.search(self.silhouettes)])

    def _stretches(self, count: int) -> list[NDArray[np.int64]]:
        """Return the frames of each stretch of a clip of `count` frames."""
        rows = np.arange(count)
        return [rows[k : k + self.config.stretch] for k in range(0, count, self.config.stretch)]

    def _weakest(self, found: Sequence[Fit | None], agreed: NDArray[np.bool_]) -> list[int]:
        """Return frames to search: in each stretch of the clip, where both ways differ, the one explained worst."""
        nats = np.array([-np.inf if fit is None else fit.nats for fit in found])
        differing = [rows[~agreed[rows]] for rows in self._stretches(len(found))]
        return [int(rows[np.argmin(nats[rows])]) for rows in differing if len(rows)]

    def _fitted_again(self, found: Sequence[Fit | None]) -> dict[int, Fit]:
        """Return fits with the colours learned since, by frame."""
        known = {i: fit for i, fit in enumerate(found) if fit is not None}
        fits = in_processes(lambda i: self._seen(i).fitted_from(known[i].pose), list(known))
        return {i: fit for i, fit in zip(known, fits, strict=True) if fit is not None}

    def _agreed_rows(self, agreed: NDArray[np.bool_]) -> list[int]:
        """Return the frames of stretches in which both ways agree everywhere."""
        return [int(i) for rows in self._stretches(len(agreed)) if agreed[rows].all() for i in rows]

    def _teach(self) -> dict[int, list[Fit]]:
        """Learn colours and background in rounds; return the fits of the last round, by frame."""
        rows, found = self._taught_rows(), dict[int, list[Fit]]()
        self.foreground = replace(self.foreground, is_dark=self._passes_for_shadow(rows))
        for share in self.config.taught_shares:
            found = {i: fits for i, fits in self._searched(rows).items() if fits}
            self._learn({i: fits[0] for i, fits in found.items()}, share)
        return found

    def _teach_at_hint(self, hinted: HintedRow) -> dict[int, list[Fit]]:
        """Learn colours and background from a hint, and along the motion that begins there; return fits by frame."""
        row, config = hinted.row, self.config
        fits = self.at_hint(hinted)
        if not fits:
            raise no_object(hinted.hint, self.mesh)
        self.moved, self.known = True, {row: fits[0].pose}
        resting = unchanged(self.frames[row], self.foreground, self._mask(fits[0].pose))
        self.resting = dict.fromkeys(resting, fits[0])
        self._learn({row: fits[0]})
        anchor = self._seen(row).judged(fits[0].pose, fits[0].contour)
        candidates, _ = self._followed({row: [replace(fit, nats=anchor.nats) for fit in fits]})
        path = self._joined(candidates)
        good = steady(path, row, config.hinted_share * anchor.nats, config.lost_overlap)
        self.known |= {i: fit.pose for i, fit in good.items()}
        self._learn({row: fits[0]} | good)
        return {i: each for i, each in self._searched(self._taught_rows()).items() if each} | {row: fits}

    def _taught_rows(self) -> list[int]:
        """Return the frames that are searched for colours and background."""
        known = self.foreground.rows
        return list(known[evenly(len(known), self.config.taught_frames + 2)[1:-1]].tolist())

    def _distinct_fits(self, fits: Sequence[Fit]) -> list[Fit]:
        """Return the first fits with different poses, as many as are followed."""
        chosen: list[Fit] = []
        for fit in fits:
            if len(chosen) < self.config.beam and all(not self._same(fit.pose, other.pose) for other in chosen):
                chosen.append(fit)
        return chosen

    def _detected(self, i: int, seen: FrameForeground) -> list[Fit]:
        """Return the fits of a search in a frame, where a hint does not exclude the body."""
        near = within_reach(seen.log_ratio, self.camera, self.known, i, self.mesh.radius_m)
        return detect(self.silhouettes, replace(seen, log_ratio=near))

    def _detected_in_shadow(self, i: int, seen: FrameForeground) -> list[Fit]:
        """Return the fits of two searches in a frame: with shadows in the model of the scene, and without.

        Pixels that may be shadow count neither for nor against a fit, but they may be the body that it overlaps.
        """
        bright = replace(seen, log_ratio=self.foreground.without_shadows().log_ratio(seen.frame))
        shown = np.where(seen.log_ratio > 0.0, seen.log_ratio, np.minimum(bright.log_ratio, 0.0))
        judge = replace(seen, log_ratio=shown)
        fits = [judge.judged(fit.pose, fit.contour) for each in (seen, bright) for fit in self._detected(i, each)]
        return [replace(fit, overlap=bright.judged(fit.pose, None).overlap) for fit in fits]

    def _passes_for_shadow(self, rows: Sequence[int]) -> bool:
        """Return whether most pixels that change may be shadow. Those of a dark body before a grey floor may be."""
        bright = self.foreground.without_shadows()

        def share(i: int) -> float:
            seen, changed = (each.log_ratio(self.frames[i]) > 0.0 for each in (self.foreground, bright))
            return float(seen.sum() / max(changed.sum(), 1))

        return float(np.median(list(in_processes(share, rows)))) < self.config.least_lit_share

    def _searched(self, rows: Sequence[int]) -> dict[int, list[Fit]]:
        """Return the fits of a search in each of some frames; of two, while a dark body may pass for its shadow."""
        in_shadow = self.foreground.is_dark and self.foreground.body is None

        def search(i: int) -> tuple[bool, list[Fit]]:
            seen = self._seen(i)
            found = self._detected_in_shadow(i, seen) if in_shadow else self._detected(i, seen)
            found.sort(key=lambda fit: -self._nats(fit) - self._texture_nats(seen.frame, fit).max())
            return bool((seen.log_ratio > 0.0).any()), found

        each = list(in_processes(search, rows))
        self.moved |= any(moved for moved, _ in each)
        return {i: found for i, (_, found) in zip(rows, each, strict=True)}

    def _seen(self, i: int) -> FrameForeground:
        """Return a frame with its foreground, whose edges count unless one pose at a hint taught it."""
        frame, blur = self.frames[i], self.blur
        seen = frame, self.foreground.log_ratio(frame), self.camera, self.solid, self.hinted is None
        return FrameForeground(*seen) if blur is None else FrameForeground(*seen, blur.path(i), blur.excess)

    def _nats(self, fit: Fit) -> float:
        """Return the evidence for a fit: by foreground and edges, less what they state too much, and by its tilt."""
        return fit.nats / self.config.temperature + self._tilt_nats(fit.pose)

    def _tilt_nats(self, pose: Pose) -> float:
        """Return the evidence of the angle between the body's z axis and up; zero where nothing is known of it."""
        pose_of_camera = self.camera.camera_to_world
        if self.tilt_std_rad is None or pose_of_camera is None:
            return 0.0
        cosine = float(np.asarray(pose_of_camera)[2, :3] @ pose.rotation[:, 2])
        tilt = np.arccos(np.clip(cosine, -1.0, 1.0))
        return -float(min(0.5 * (tilt / self.tilt_std_rad) ** 2, HYPOTHESES.max_tilt_nats))

    def _texture_nats(self, frame: Image, fit: Fit) -> Array:
        """Return the evidence [G] of the texture for a fit under each symmetry element, nats; zeros without texture."""
        if self.texture is None:
            return np.zeros(len(self.shape.rotations))
        shown = shown_at(frame, self.camera, self.mesh, self.texture, fit.pose, self.config)
        each = self.texture.element_nats(shown)
        return each + shown.explained(self.texture.colors[int(np.argmax(each))])[1]

    def _learn(self, fits: dict[int, Fit], share: float = 1.0) -> None:
        """Learn from the best share of some fits, by frame."""
        score = {i: fit.overlap * fit.nats for i, fit in fits.items()}
        ranked = sorted(score, key=lambda i: -score[i])[: math.ceil(share * len(score))]
        good = {i: fits[i] for i in ranked if score[i] > self.config.taught_score * score[ranked[0]]}
        shown = {i: mask for i, fit in (self.resting | good).items() if (mask := self._mask(fit.pose)) is not None}
        self.foreground = self.foreground.learned(shown)
        if self.blur is not None:
            self.blur = self.blur.with_foreground(self.frames, self.foreground)

    def _mask(self, pose: Pose) -> Silhouette | None:
        """Return the silhouette of a pose in the frame: rows, columns and pixels."""
        return silhouette_of(pose.apply(self.mesh.vertices), self.mesh.faces, self.camera)

    def _followed(
        self, anchors: dict[int, list[Fit]], fixed: Mapping[int, Fit] = MappingProxyType({})
    ) -> tuple[list[list[Fit]], NDArray[np.bool_]]:
        """Return the candidates of each frame, and in which frames both ways lead to one pose.

        Anchors are followed to the end and to the start. In frames whose fit is fixed, nothing else is tried.
        """
        count = len(self.frames)
        if not anchors and not fixed:
            return [[] for _ in range(count)], np.zeros(count, dtype=bool)
        ways = [range(count), range(count - 1, -1, -1)]
        onwards, back = in_processes(lambda way: list(self._follow(way, anchors, fixed)), ways)
        both = list(zip(onwards, back[::-1], strict=True))
        found = [[*anchors.get(i, ()), *before, *after] for i, (before, after) in enumerate(both)]
        return found, np.array([self._agree(*each) for each in both])

    def _agree(self, one: Sequence[Fit], other: Sequence[Fit]) -> bool:
        """Return whether the best of some fits and the best of others have one pose."""
        if not one or not other:
            return False
        a, b = (max(fits, key=lambda fit: fit.nats) for fits in (one, other))
        return self._same(a.pose, b.pose)

    def _follow(
        self, way: Sequence[int], anchors: dict[int, list[Fit]], fixed: Mapping[int, Fit]
    ) -> Iterator[list[Fit]]:
        """Yield the fits of each frame in the order of `way`."""
        config, beam, recent, searches = self.config, list[Hypothesis](), list[float](), 0
        for i in way:
            if (fit := fixed.get(i)) is not None:
                beam = [beam[0].followed_by(fit, config.memory) if beam else Hypothesis(fit, None, fit.nats)]
                recent.append(fit.nats)
                yield [fit]
                continue
            seen = self._seen(i)
            reached = [each for h in beam if (each := self._advanced(seen, h)) is not None]
            best = max((h.fit.nats for h in reached), default=-np.inf)
            usual = float(np.median(recent[-15:])) if recent else np.inf
            fresh = list(anchors.get(i, ()))
            if beam and not fresh and best < config.searched_share * usual and searches < config.max_searches:
                fresh, searches = self._detected(i, seen), searches + 1
            kept = max((h.evidence - h.fit.nats for h in reached), default=0.0)
            reached += [Hypothesis(fit, None, kept + fit.nats - 1.0) for fit in fresh]
            beam = self._distinct(reached)
            if beam:
                recent.append(max(h.fit.nats for h in beam))
            yield [h.fit for h in beam]

    def _advanced(self, seen: FrameForeground, h: Hypothesis) -> Hypothesis | None:
        """Return a hypothesis in the next frame."""
        start = max((seen.judged(pose, None) for pose in h.predictions()), key=lambda each: each.nats)
        fit = seen.fitted(start)
        if fit is None or fit.nats < self.config.steady_share * h.fit.nats:
            pose = seen.aligned(start.pose)
            other = None if pose is None else seen.fitted_from(pose)
            fit = max((each for each in (fit, other) if each is not None), key=lambda each: each.nats, default=None)
        if fit is None:
            return None
        return h.followed_by(fit, self.config.memory)

    def _distinct(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """Return the best hypotheses with different poses; the best of those that go on is one of them."""
        chosen: list[Hypothesis] = []
        least = self.config.beam_share * max((h.fit.nats for h in hypotheses), default=0.0)
        believed = lambda h: h.evidence + self.config.temperature * self._tilt_nats(h.fit.pose)  # noqa: E731
        ranked = sorted(hypotheses, key=believed, reverse=True)
        going_on = [h for h in ranked if h.before is not None]
        for h in (*going_on[:1], *ranked):
            if h.fit.nats >= least and all(not self._same(h.fit.pose, other.fit.pose) for other in chosen):
                chosen.append(h)
            if len(chosen) == self.config.beam:
                break
        return chosen

    def _same(self, a: Pose, b: Pose) -> bool:
        """Return whether two poses are one, up to symmetry."""
        g = nearest_element(b, a, self.shape.rotations)
        return a.is_near(self._under(b, g), self.config.same)

    def _under(self, pose: Pose, g: int) -> Pose:
        """Return the pose that looks the same under symmetry element g."""
        return under_element(pose, self.shape.rotations[g], self.shape.center)

    def _candidates(self, fits: Sequence[Sequence[Fit]]) -> tuple[Candidates, list[list[Fit]]]:
        """Return the candidates among the fits of each frame, and these fits."""
        kept = [sorted(each, key=lambda fit: -fit.nats)[: self.config.candidates] for each in fits]
        poses = {i: [fit.pose for fit in each] for i, each in enumerate(kept) if each}
        nats = {
            i: np.stack([self._nats(fit) + self._texture_nats(self.frames[i], fit) for fit in kept[i]]) for i in poses
        }
        return Candidates(poses, nats, self.shape.rotations, self.shape.center, self.times_s), kept

    def _joined(self, fits: Sequence[Sequence[Fit]]) -> list[Fit | None]:
        """Return the fits along the best path, each under one symmetry element."""
        candidates, kept = self._candidates(fits)
        return self._along(candidates.path(), kept)

    def _agreeing(self, fits: Sequence[Sequence[Fit]]) -> list[Fit | None]:
        """Return the fits along the path on which frames agree about the colours of the surface."""
        if not len(self.look_alikes.maps):
            return self._joined(fits)
        candidates, kept = self._candidates(fits)
        places = SurfacePlaces.of(self.solid, self.shape.rotations, self.shape.center)

        def seen(i: int) -> Array:
            light = linear(self.frames[i])
            return np.stack([places.seen(light, self.camera, pose) for pose in candidates.poses[i]])

        colors = dict(zip(candidates.poses, in_processes(seen, candidates.poses), strict=True))
        return self._along(agreeing_path(SurfaceEvidence(candidates, colors, places.under), self.look_alikes), kept)

    def _along(self, path: Mapping[int, Choice], fits: Sequence[Sequence[Fit]]) -> list[Fit | None]:
        """Return the fit of each frame along a path, under its symmetry element."""
        return self._all_relabelled([(i, fits[i][h], g) for i, (h, g) in path.items()], len(fits))

    def _in_best_element(self, found: list[Fit | None]) -> list[Fit | None]:
        """Return the fits under the symmetry element that explains the clip best; set `evidence`.

        Elements of a body that is not quite symmetric leave different edges in the frames.
        """
        order = len(self.shape.rotations)
        known = [i for i, fit in enumerate(found) if fit is not None]
        if self.shape.exact or order == 1 or not known:
            return found
        rows = [known[k] for k in evenly(len(known), self.config.element_frames)]

        def nats(i: int) -> list[float]:
            fits = [self._relabelled(i, fit, g) for fit in (found[i],) if fit is not None for g in range(order)]
            return [-np.inf if fit is None else fit.nats for fit in fits]

        each = np.array(list(in_processes(nats, rows)))
        evidence = np.maximum(each - each.max(axis=1, keepdims=True), -self.config.most_nats).sum(axis=0)
        best = int(np.argmax(evidence))
        table = composition(self.shape.rotations)
        self.evidence = evidence[table[:, best]] / TEMPERATURES.symmetry
        if best == 0:
            return found
        return self._all_relabelled([(i, fit, best) for i in known if (fit := found[i]) is not None], len(found))

    def _all_relabelled(self, fits: Sequence[tuple[int, Fit, int]], count: int) -> list[Fit | None]:
        """Return the fits of all `count` frames, from frames with fits and the elements under which these count."""
        out: list[Fit | None] = [None] * count
        for i, fit, _ in fits:
            out[i] = fit
        others = [each for each in fits if each[2]]
        moved = in_processes(lambda each: self._relabelled(*each), others)
        for (i, _, _), of_element in zip(others, moved, strict=True):
            out[i] = of_element
        return out

    def _relabelled(self, i: int, fit: Fit, g: int) -> Fit | None:
        """Return a fit under a symmetry element; a body that is not quite symmetric is fitted again."""
        pose = self._under(fit.pose, g)
        return replace(fit, pose=pose) if self.shape.exact else self._seen(i).fitted_from(pose)

    def _report(self, share: float) -> None:
        if self.progress is not None:
            self.progress(share)
