"""Draw the user's frames beside the same frames with the fitted mesh over them: overlay.mp4, and a preview."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.parallel import in_processes
from vid2phys.engine.system import System
from vid2phys.geometry import Array, Pose, matrix_from_quat
from vid2phys.io.video import VideoWriter
from vid2phys.report.mesh_lines import Box, Image, Projected, Window, blend, bounds, mesh_lines, project_vertices
from vid2phys.types import Camera, Clip, Mesh, Trajectory

FIT_COLOR, LOST_COLOR, TRAIL_COLOR, GROUND_COLOR = (0, 255, 160), (255, 90, 40), (255, 220, 60), (120, 200, 255)
_AXIS_COLORS = ((255, 70, 70), (90, 230, 90), (90, 140, 255))
_MAX_PANEL_WIDTH = 960
_SMALL_OBJECT = 0.3  # of the frame's height: below it a magnified inset is shown
_TRAIL_S = 1.0
_GAP_PX = 4
_GROUND_OPACITY = 0.5


@dataclass(frozen=True)
class Scene:
    """What is the same in all frames. scale: panel pixels per frame pixel. inset: corner and zoom, or None."""

    camera: Camera
    mesh: Mesh
    scale: float
    panel: tuple[int, int]
    inset: Inset | None


@dataclass(frozen=True)
class Inset:
    """A magnified square that follows the object: its corner in the panel, its side [px], and frame pixels across."""

    left: int
    top: int
    side: int
    across: float


@dataclass(frozen=True)
class Lines:
    """The lines of the mesh in one frame, as the share of each pixel that they cover, [H, W] in [0, 1].

    panel: a part of the panel; top, left: its first row and column. inset: the whole inset. None: no mesh is there.
    """

    top: int
    left: int
    panel: Array | None
    inset: Array | None


def write_overlay(
    path: Path,
    clip: Clip,
    camera: Camera,
    mesh: Mesh,
    system: System,
    trajectory: Trajectory,
    lost: NDArray[np.bool_],
    *,
    mesh_of: Callable[[int], Mesh] | None = None,
    ground: Array | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write the overlay video, H.264.

    The mesh is projected through the camera's whole distortion model onto the original frames. A magnified inset
    follows a small object. Lost frames have a border, and contours in another colour. The ground is a grid.

    Args:
        path: of the video.
        clip: its T frames.
        camera: with a pose in the world.
        mesh: in body axes.
        system: that gives vertices of a state.
        trajectory: one state a frame.
        lost: [T], frames in which the object was not detected.
        mesh_of: gives the mesh as a frame of a rolling shutter shows it (default: the mesh in all frames).
        ground: lines [N, P, 3] m of the ground in the world (default: none are drawn).
        progress: called with what is done, how many frames, and of how many.
    """
    states = trajectory.states
    positions, quats = system.body_pose(states)
    centers = project_vertices(camera, positions[:, None]).pixels[:, 0]
    shown = mesh_of or (lambda _: mesh)
    view = lambda i: project_vertices(camera.at(i), system.vertices(states[i], shown(i).vertices))  # noqa: E731
    scene = _scene(clip, camera, mesh, [bounds(view(i)) for i in range(len(states))], centers)
    axes, followed = _axes(camera, mesh, positions, quats), _followed_point(system, mesh, states, positions)
    fps = 1.0 / float(np.median(np.diff(clip.times_s))) if len(clip.times_s) > 1 else 30.0
    height, width = scene.panel
    lines_of = in_processes(lambda i: _lines(scene, view(i), axes[i]), range(len(states)))
    with VideoWriter(path, 2 * width + _GAP_PX, height, fps) as video:
        for index, (frame, lines) in enumerate(zip(clip.frames, lines_of, strict=True)):
            time_s = float(clip.times_s[index])
            before = (clip.times_s <= time_s) & (clip.times_s > time_s - _TRAIL_S)
            trail = project_vertices(camera.at(index), followed[before]).pixels
            label = f"frame {index}   {time_s:.2f} s"
            grid = () if ground is None else tuple(project_vertices(camera.at(index), ground).pixels)
            drawn = draw_frame(scene, frame, lines, axes[index], trail, bool(lost[index]), label, grid)
            video.write(drawn, time_s=time_s - float(clip.times_s[0]))
            if progress is not None:
                progress("drawing the overlay", index + 1, len(clip.frames))


def _followed_point(system: System, mesh: Mesh, states: Array, positions: Array) -> Array:
    """Return where the point that leaves a trail is in the world, [T, 3] m.

    It is the origin of the body, or the vertex that moves most where the origin is at rest (positions [T, 3]).
    """
    if np.ptp(positions, axis=0).any():
        return positions
    some = [system.vertices(state, mesh.vertices) for state in states[:: max(1, len(states) // 20)]]
    farthest = int(np.linalg.norm(np.ptp(some, axis=0), axis=-1).argmax())
    return np.stack([system.vertices(state, mesh.vertices)[farthest] for state in states])


def write_preview(path: Path, clip: Clip, camera: Camera, mesh: Mesh, index: int, pose: Pose) -> None:
    """Write one frame beside the same frame with the mesh at a pose camera_from_body, before the motion is fitted.

    Args:
        path: of the image.
        clip: that the frame is from.
        camera: of the clip, with or without a pose in the world.
        mesh: in body axes.
        index: of the frame.
        pose: camera_from_body.
    """
    import cv2

    camera = camera.at(index)
    to_world = np.eye(4) if camera.camera_to_world is None else np.asarray(camera.camera_to_world)
    camera = replace(camera, camera_to_world=to_world)
    place = lambda points: pose.apply(points) @ to_world[:3, :3].T + to_world[:3, 3]  # noqa: E731
    view = project_vertices(camera, place(mesh.vertices))
    ends = np.concatenate([np.zeros((1, 3)), 0.8 * mesh.radius_m * np.eye(3)])
    axes = project_vertices(camera, place(ends)).pixels
    scene = _scene(clip, camera, mesh, [bounds(view)], axes[:1])
    (frame,) = clip.frames.at([index])
    label = f"frame {index}   {float(clip.times_s[index]):.2f} s"
    drawn = draw_frame(scene, frame, _lines(scene, view, axes), axes, np.zeros((0, 2)), False, label)
    cv2.imwrite(str(path), np.ascontiguousarray(drawn[..., ::-1]))


def draw_frame(
    scene: Scene,
    frame: Image,
    lines: Lines,
    axes_px: Array,
    trail_px: Array,
    lost: bool,
    label: str,
    ground_px: Sequence[Array] = (),
) -> Image:
    """Return one frame of the overlay: left the frame, right the fit over it.

    axes_px: [4, 2], origin and ends of x, y, z. trail_px: [N, 2], where the body was before. lost: whether the object
    was not detected. ground_px: lines [P, 2] of the ground.
    """
    import cv2

    height, width = scene.panel
    plain: Image = frame.copy()
    if scene.scale != 1.0:
        plain = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA).astype(np.uint8)
    drawn = plain.copy()
    window = Window(0.0, 0.0, width, height, scene.scale)
    if ground_px:
        for line in ground_px:
            _polyline(drawn, window.place(line), GROUND_COLOR, 1)
        drawn = cv2.addWeighted(drawn, _GROUND_OPACITY, plain, 1.0 - _GROUND_OPACITY, 0.0).astype(np.uint8)
    _draw_fit(drawn, window, lines, axes_px, trail_px, lost)
    if scene.inset is not None:
        _draw_inset(scene.inset, frame, plain, None, axes_px, lost)
        _draw_inset(scene.inset, frame, drawn, lines, axes_px, lost)
    if lost:
        cv2.rectangle(drawn, (0, 0), (width - 1, height - 1), LOST_COLOR, 4)
    _write(plain, label)
    _write(drawn, "not seen: pose from the motion before and after" if lost else "fit")
    gap = np.full((height, _GAP_PX, 3), 255, dtype=np.uint8)
    return np.concatenate([plain, gap, drawn], axis=1)


def _scene(clip: Clip, camera: Camera, mesh: Mesh, boxes: Sequence[Box | None], centers: Array) -> Scene:
    """Return the layout of all frames. boxes: what the mesh covers in each frame, None where it is not visible."""
    scale = min(1.0, _MAX_PANEL_WIDTH / clip.width)
    panel = (round(clip.height * scale), round(clip.width * scale))
    sides = [max(box[2] - box[0], box[3] - box[1]) for box in boxes if box is not None]
    if not sides:
        return Scene(camera, mesh, scale, panel, None)
    across = float(np.median(sides))
    if across > _SMALL_OBJECT * clip.height:
        return Scene(camera, mesh, scale, panel, None)
    side = panel[0] // 3
    return Scene(camera, mesh, scale, panel, _place_inset(panel, side, 1.6 * across, centers * scale))


def _place_inset(panel: tuple[int, int], side: int, across: float, centers_px: Array) -> Inset:
    """Return the inset in the corner of the panel that is farthest from the object, the label's corner last."""
    height, width = panel
    margin = 8
    right, low = width - side - margin, height - side - margin
    corners = [(right, low), (margin, low), (right, margin)]
    seen = centers_px[np.isfinite(centers_px).all(axis=1)]
    if not len(seen):
        return Inset(*corners[0], side, across)
    middle = np.array(corners) + side / 2
    nearest = np.abs(seen[:, None] - middle[None]).max(axis=2).min(axis=0)
    return Inset(*corners[int(np.argmax(nearest))], side, across)


def _axes(camera: Camera, mesh: Mesh, positions: Array, quats: Array) -> Array:
    """Return the pixels of the body's origin and the ends of its axes, [T, 4, 2]."""
    length = 0.8 * mesh.radius_m
    ends = np.concatenate([np.zeros((1, 3)), length * np.eye(3)])
    points = np.einsum("tij,kj->tki", matrix_from_quat(quats), ends) + positions[:, None]
    return project_vertices(camera, points).pixels


def _lines(scene: Scene, view: Projected, axes_px: Array) -> Lines:
    """Return the lines of the mesh in a frame. axes_px: [4, 2], the inset is centred on the first."""
    (height, width), box = scene.panel, bounds(view)
    part = None if box is None else _clipped(Window(0.0, 0.0, width, height, scene.scale), box, scene.panel)
    top, left, small = (0, 0, None) if part is None else part
    panel = None if small is None else mesh_lines(view, scene.mesh, small, thickness_px=1.0)
    window = None if scene.inset is None else _inset_window(scene.inset, axes_px)
    inset = None if window is None else mesh_lines(view, scene.mesh, window, thickness_px=1.2)
    return Lines(top, left, panel, inset)


def _draw_fit(image: Image, window: Window, lines: Lines, axes_px: Array, trail_px: Array, lost: bool) -> None:
    _polyline(image, window.place(trail_px), TRAIL_COLOR, 1)
    if lines.panel is not None:
        rows, columns = lines.panel.shape
        part = image[lines.top : lines.top + rows, lines.left : lines.left + columns]
        blend(part, lines.panel, LOST_COLOR if lost else FIT_COLOR)
        _draw_axes(image, window.place(axes_px), 1)


def _clipped(window: Window, box: Box, shape: tuple[int, ...]) -> tuple[int, int, Window] | None:
    """Return the part of a window that a box covers: its first row and column, and that part as a window of its own."""
    corners = window.place(np.array([[box[0], box[1]], [box[2], box[3]]]))
    left, top = np.maximum(np.floor(corners[0]).astype(int) - 4, 0)
    right, bottom = np.minimum(np.ceil(corners[1]).astype(int) + 5, [shape[1], shape[0]])
    if right <= left or bottom <= top:
        return None
    origin = np.array([window.left, window.top]) + np.array([left, top]) / window.scale
    return int(top), int(left), Window(origin[0], origin[1], int(right - left), int(bottom - top), window.scale)


def _inset_window(inset: Inset, axes_px: Array) -> Window | None:
    """Return the part of the frame that an inset shows; None where the body's origin is not in view."""
    if not np.isfinite(axes_px[0]).all():
        return None
    left, top = axes_px[0] - inset.across / 2 + 0.5
    return Window(left, top, inset.side, inset.side, inset.side / inset.across)


def _draw_inset(inset: Inset, frame: Image, panel: Image, lines: Lines | None, axes_px: Array, lost: bool) -> None:
    """Draw a magnified image of the object, in place; `lines` None leaves the fit out."""
    import cv2

    side, window = inset.side, _inset_window(inset, axes_px)
    target = panel[inset.top : inset.top + side, inset.left : inset.left + side]
    if window is not None:
        zoom, left, top = window.scale, window.left, window.top
        matrix = np.array([[zoom, 0.0, (0.5 - left) * zoom - 0.5], [0.0, zoom, (0.5 - top) * zoom - 0.5]])
        target[:] = cv2.warpAffine(frame, matrix, (side, side), flags=cv2.INTER_LINEAR)
        if lines is not None and lines.inset is not None:
            blend(target, lines.inset, LOST_COLOR if lost else FIT_COLOR)
            _draw_axes(target, window.place(axes_px), 2)
    cv2.rectangle(panel, (inset.left - 1, inset.top - 1), (inset.left + side, inset.top + side), (255, 255, 255), 1)


def _draw_axes(image: Image, axes_px: Array, thickness: int) -> None:
    for end, color in zip(axes_px[1:], _AXIS_COLORS, strict=True):
        _polyline(image, np.stack([axes_px[0], end]), color, thickness)


def _polyline(image: Image, points_px: Array, color: tuple[int, int, int], thickness: int) -> None:
    """Draw a smooth line through sub-pixel points; points that are not finite are left out."""
    import cv2

    points = points_px[np.isfinite(points_px).all(axis=1)]
    points = points[np.abs(points).max(axis=1) < 1e5]
    if len(points) > 1:
        fixed = np.round(points * 16).astype(np.int32)[None]
        cv2.polylines(image, list(fixed), False, color, thickness, cv2.LINE_AA, shift=4)


def _write(image: Image, text: str) -> None:
    import cv2

    size, font = max(0.4, image.shape[0] / 1000), cv2.FONT_HERSHEY_SIMPLEX
    for color, thickness in (((0, 0, 0), 3), ((255, 255, 255), 1)):
        cv2.putText(image, text, (10, round(40 * size) + 4), font, size, color, thickness, cv2.LINE_AA)
