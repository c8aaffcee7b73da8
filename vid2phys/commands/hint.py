"""`vid2phys hint CLIP`: a page on this machine that finds the pose of a body where one clicks on it.

The pose is that with which `identify` begins at the same hint: both ask `MeshTracker.at_hint`. The page comes from
`hint_server`, and shows the text of the hint to copy.

Limits: one clip, a static camera. A clip is searched by one request at a time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from vid2phys.commands.configs import HintConfig, is_auto
from vid2phys.commands.hint_server import HintServer, Reply, RequestError
from vid2phys.commands.progress import Progress, silent
from vid2phys.engine.parallel import one_thread
from vid2phys.errors import InputError
from vid2phys.tracking.hint import Hint

if TYPE_CHECKING:
    from vid2phys.tracking.mesh_tracker import MeshTracker
    from vid2phys.tracking.silhouette_fit import Fit
    from vid2phys.types import Camera, Clip

_JPEG_QUALITY = 90
_MOST_CORNERS = 4


def serve(config: HintConfig, progress: Progress = silent) -> HintServer:
    """Read clip, mesh and camera, and return a server that listens on the loopback address.

    Raises InputError for inputs that cannot be read, and for a port that is taken.
    """
    from vid2phys.io.video import read_clip

    progress("reading inputs")
    clip = read_clip(config.clip, fps=config.fps, stream=config.stream, from_s=config.from_s, to_s=config.to_s)
    camera = _camera(config, clip)
    tracker = _tracker(config, clip, camera)
    progress("learning the background")
    page = HintPage(clip, tracker)
    page.prepare()
    return HintServer(page, config.port)


def _camera(config: HintConfig, clip: Clip) -> Camera:
    from vid2phys.io.camera import load_camera, require_resolution
    from vid2phys.io.focal_length import focal_prior, pinhole_camera

    if is_auto(config.camera):
        return pinhole_camera(clip, focal_prior(config.clip, clip).pixels)
    camera = load_camera(config.camera, None, size=(clip.width, clip.height))
    require_resolution(camera, clip, config.camera)
    return camera


def _tracker(config: HintConfig, clip: Clip, camera: Camera) -> MeshTracker:
    from vid2phys.commands.system_choice import system_of_body
    from vid2phys.io.primitives import load_body
    from vid2phys.io.simplify import simplified
    from vid2phys.risp.networks.mesh_shape import shape_of
    from vid2phys.tracking.cues.texture import SurfaceTexture
    from vid2phys.tracking.frame_store import FrameStore
    from vid2phys.tracking.mesh_tracker import MeshTracker

    mesh = simplified(load_body(config.mesh, config.body, config.mesh_units, config.mesh_move))
    shape = shape_of(mesh, system_of_body(config.body))
    frames = FrameStore.of(clip)
    texture = SurfaceTexture.of(mesh, shape.rotations, shape.center)
    return MeshTracker(frames, clip.times_s, camera, mesh, shape, texture)


@dataclass
class HintPage:
    """What the page shows: a clip, and the pose of a mesh at a click or in a box.

    Attributes:
        clip: that is shown.
        tracker: of the mesh in this clip.
    """

    clip: Clip
    tracker: MeshTracker
    _lock: Lock = field(default_factory=Lock)

    @one_thread()
    def prepare(self) -> None:
        """Learn the background and draw the mesh's silhouettes, so that clicks are answered at once."""
        self.tracker.begin()
        _ = self.tracker.silhouettes, self.tracker.solid

    def get(self, path: str) -> Reply:
        """Return what a path of the page shows. Raises RequestError for unknown paths."""
        if path == "":
            from importlib.resources import files

            html = files("vid2phys.commands").joinpath("hint_page.html").read_bytes()
            return Reply(html, "text/html; charset=utf-8")
        if path == "clip.json":
            return _json(self._about())
        name, _, number = path.partition("/")
        row = int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else -1
        if name != "frame" or not 0 <= row < len(self.clip.times_s):
            raise RequestError(404, "no such page")
        return Reply(self._frame(row), "image/jpeg")

    def post(self, path: str, body: bytes) -> Reply:
        """Return the pose at a place that a browser sends. Raises RequestError for unknown paths and other bodies."""
        if path != "pose":
            raise RequestError(404, "no such page")
        row, corners = self._asked(body)
        time = f"{self.clip.times_s[row]:.4f}".rstrip("0").rstrip(".")
        text = f"{time}s:" + ",".join(f"{at:.0f}" for at in corners)
        try:
            hint = Hint.of_click(text) if len(corners) == 2 else Hint.of_box(text)
            fits = self.search(hint, row)
        except InputError as error:
            raise RequestError(400, str(error)) from None
        return _json(self._found(hint, fits))

    @one_thread()
    def search(self, hint: Hint, row: int) -> list[Fit]:
        """Return the poses at a hint in a frame, the best first."""
        from vid2phys.tracking.hinted_search import HintedRow

        with self._lock:
            return self.tracker.at_hint(HintedRow(row, hint))

    def _about(self) -> dict[str, Any]:
        return {
            "name": self.clip.name,
            "mesh": self.tracker.mesh.name,
            "width": self.clip.width,
            "height": self.clip.height,
            "times_s": self.clip.times_s.tolist(),
        }

    def _asked(self, body: bytes) -> tuple[int, list[float]]:
        """Return the frame and the corners that a browser asks for. Raises RequestError."""
        try:
            asked = json.loads(body)
            row, corners = asked["frame"], [float(at) for at in asked["corners"]]
            if type(row) is not int or len(corners) not in (2, _MOST_CORNERS) or not np.isfinite(corners).all():
                raise ValueError
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RequestError(400, "expected {frame: number, corners: [x, y] or [x0, y0, x1, y1]}") from None
        x, y = corners[::2], corners[1::2]
        inside = 0 <= row < len(self.clip.times_s) and min(*x, *y) >= -0.5
        if not inside or max(x) > self.clip.width - 0.5 or max(y) > self.clip.height - 0.5:
            raise RequestError(400, "a place outside of the clip")
        most = (self.clip.width - 1, self.clip.height - 1) * 2
        return row, [min(max(round(at), 0), end) for at, end in zip(corners, most, strict=False)]

    def _frame(self, row: int) -> bytes:
        import cv2

        image = self.tracker.frames[row][..., ::-1]
        return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])[1])

    def _found(self, hint: Hint, fits: list[Fit]) -> dict[str, Any]:
        """Return what the page shows of a search."""
        if not fits:
            return {"found": False, "message": "No pose of the mesh explains the frame here."}
        best = fits[0]
        return {
            "found": True,
            "overlap": float(best.overlap),
            "lines": self._lines(best),
            "hint": hint.flag,
        }

    def _lines(self, fit: Fit) -> dict[str, list[list[list[float]]]]:
        """Return the contours of a pose as closed lines of points x, y, and dots along visible creases, frame px."""
        import cv2

        from vid2phys.engine.observe import bearings_to_pixels
        from vid2phys.tracking.cues.creases import crease_lines

        camera, solid = self.tracker.camera, self.tracker.solid
        vertices = fit.pose.apply(solid.mesh.vertices)
        drawing = solid.draw(vertices)
        if drawing is None:
            return {"contours": [], "creases": []}
        inside = (drawing.nearness > 0.0).astype(np.uint8)
        loops, _ = cv2.findContours(inside, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
        bearings = [(loop[:, 0] + drawing.corner) / drawing.focal for loop in loops]
        creases = crease_lines(solid, vertices, drawing, camera, 1.0)
        dots = np.zeros((0, 2)) if creases is None else creases.pixels
        contours = [bearings_to_pixels(camera, loop).tolist() for loop in bearings]
        return {"contours": contours, "creases": [dots.tolist()]}


def _json(data: dict[str, Any]) -> Reply:
    return Reply(json.dumps(data).encode(), "application/json")
