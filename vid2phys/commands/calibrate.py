"""`vid2phys calibrate`: a camera file from images of a board, its pose from what stands in the scene.

Intrinsics come from images of a board or from a file of any known format; the pose from one image of the camera at
its place (a board at rest, markers or points whose places are known), or from the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vid2phys.commands.configs import CalibrateConfig
from vid2phys.commands.options import taking
from vid2phys.commands.progress import Progress, silent
from vid2phys.errors import InputError, UsageError
from vid2phys.io.camera import format_of, load_camera, parse_size, save_camera
from vid2phys.types import Camera

if TYPE_CHECKING:
    from vid2phys.camera_calibration.intrinsics import Fit
    from vid2phys.camera_calibration.pose import Places, Pose
    from vid2phys.camera_calibration.quality import Quality

_MOST_IMAGES = 160  # of a video or folder that are looked at
_MOST_VIEWS = 40  # that are calibrated from
_MOST_FOR_POSE = 30
_RECONSTRUCTIONS = ("colmap", "nerfstudio")


@dataclass(frozen=True)
class Calibration:
    """What a calibration found. fit, quality: None where the intrinsics came from a file. pose: None without one.

    images: how many were looked at. remarks: what a reader should know.
    """

    camera: Camera
    path: Path
    fit: Fit | None = None
    quality: Quality | None = None
    pose: Pose | None = None
    images: int = 0
    remarks: tuple[str, ...] = ()


@taking(CalibrateConfig, "images")
def calibrate(config: CalibrateConfig, progress: Progress = silent) -> Calibration:
    """Write `out`, our native camera file.

    The options are those of `CalibrateConfig`: a config, or its fields as arguments. Intrinsics come from `images` that
    show `board` in many ways, or from `source`, a camera file. The pose comes from `place`, an image (or video) that
    shows a static board or the markers whose places the CSV `markers` has; or from `points`, places and their pixels.

    Raises:
        InputError: for what cannot be read, and for a calibration or pose that is not to be relied on.
        UsageError: for options that contradict each other.
    """
    _check_options(config)
    found = _intrinsics(config, progress)
    places, remarks = None, found.remarks
    if config.points is not None:
        places = _places_of_points(config.points)
    elif config.place is not None:
        progress("looking at the scene")
        places, more = _places_in(found.camera, config)
        remarks += more
    if places is not None:
        from vid2phys.camera_calibration.pose import solve_pose

        pose = solve_pose(found.camera, places)
        std_rad = math.radians(pose.std_deg)
        camera = replace(found.camera, camera_to_world=pose.camera_to_world, direction_std_rad=std_rad)
        found = replace(found, pose=pose, camera=camera)
    elif found.camera.camera_to_world is None:
        remarks += (
            "it says nothing about where the camera is: --place with --board-is, --markers or --points adds that",
        )
    found = replace(found, remarks=remarks)
    save_camera(found.camera, config.out, _notes(found))
    return found


def print_board(board: str, path: Path, page: str = "a4") -> str:
    """Write a target as PDF in true size; the text by which `--board` names it."""
    from vid2phys.camera_calibration.page import write_pdf
    from vid2phys.camera_calibration.target import parse_target

    target = parse_target(board)
    write_pdf(target, path, page)
    return target.text


def _check_options(config: CalibrateConfig) -> None:
    """Raise UsageError for options that contradict each other."""
    images, source, out = config.images, config.source, config.out
    if (images is None) == (source is None):
        got = "neither images nor --from given" if images is None else "both images and --from given"
        raise UsageError(got, "one of them: IMAGES of a board, or a camera file", "see `vid2phys calibrate --help`")
    _check_pose_options(config)
    if config.size is not None and source is None:
        raise UsageError("--size without --from", "a camera file", "leave it out: the images have their size")
    if source is not None and out.exists() and source.exists() and out.samefile(source):
        raise UsageError(f"--out is the file of --from, '{source}'", "another file", "name the new one with --out")


def _check_pose_options(config: CalibrateConfig) -> None:
    place, markers = config.place, config.markers
    if config.points is not None and (place is not None or markers is not None):
        raise UsageError("--points with --place or --markers", "one source of the pose", "drop one of them")
    if markers is not None and place is None:
        raise UsageError("--markers without --place", "an image that shows the markers", "give it with --place")
    if config.board_is is not None and (place is None or markers is not None):
        raise UsageError(
            "--board-is without a board", "--place, an image that shows it at rest", "give it with --place"
        )
    if place is not None and markers is None and config.board_is is None:
        remedy = "give --board-is level (face up) or upright (hanging, its top up), or --markers"
        raise UsageError("--place does not say where up is", "how the board lies", remedy)


def _intrinsics(config: CalibrateConfig, progress: Progress) -> Calibration:
    """Return the camera from images of a board, or from a file."""
    if config.images is not None:
        return _from_images(config.images, config.board, config.model, config.out, progress)
    assert config.source is not None  # checked with the options
    return _from_file(config.source, config)


def _from_images(path: Path, board: str, model: str, out: Path, progress: Progress) -> Calibration:
    from vid2phys.camera_calibration.images import open_images
    from vid2phys.camera_calibration.intrinsics import calibrate_views
    from vid2phys.camera_calibration.quality import judge, require_good
    from vid2phys.camera_calibration.target import parse_target
    from vid2phys.camera_calibration.views import choose_views, find_views, refine_views

    target = parse_target(board)
    images = open_images(path, _MOST_IMAGES)
    progress("looking for the board", 0, len(images.names))
    target, views = find_views(target, images, lambda done, total: progress("looking for the board", done, total))
    views = choose_views(views, images.size, _MOST_VIEWS)
    progress("refining corners")
    views = refine_views(target, views, images)
    progress("calibrating")
    fit = calibrate_views(target, views, images.size, model)
    quality = judge(fit, target)
    require_good(quality)
    camera = replace(fit.camera, name=out.stem, focal_std=fit.focal_std)
    return Calibration(camera, out, fit, quality, None, len(images.names), quality.remarks)


def _from_file(source: Path, config: CalibrateConfig) -> Calibration:
    from vid2phys.commands.fit_parameters import listen

    asked = None if config.size is None else parse_size(config.size)
    camera, warned = listen(lambda: load_camera(source, config.camera_pose, camera_name=config.camera_name, size=asked))
    if asked not in (None, (camera.width, camera.height)):
        got = f"camera '{source}' is for {camera.width}x{camera.height}, --size is {config.size}"
        raise UsageError(got, "the size of the calibration's images", "leave --size out")
    remarks = tuple(warned)
    if camera.camera_to_world is not None and config.camera_pose is None and format_of(source) in _RECONSTRUCTIONS:
        remarks += (
            "the pose has the unit and axes of the reconstruction: z is not up, nor 1 a metre, unless you made it so",
        )
    return Calibration(camera, config.out, remarks=remarks)


def _places_of_points(path: Path) -> Places:
    from vid2phys.camera_calibration.pose import Places
    from vid2phys.io.points import load_points

    return Places(*load_points(path))


def _places_in(camera: Camera, config: CalibrateConfig) -> tuple[Places, tuple[str, ...]]:
    """Return the points that an image of the scene shows, and remarks.

    Of a video the first frame that shows them all counts.
    """
    from vid2phys.camera_calibration.detect import detect
    from vid2phys.camera_calibration.images import open_images
    from vid2phys.camera_calibration.pose import places_of_markers, places_of_target
    from vid2phys.camera_calibration.refine import refine
    from vid2phys.camera_calibration.target import other_layout, parse_target
    from vid2phys.io.points import load_markers

    place, board_is = config.place, config.board_is
    assert place is not None
    known = None if config.markers is None else load_markers(config.markers)
    target = parse_target(config.place_board or config.board)
    if known is None and board_is == "upright" and target.half_turn_alike:
        got = f"half a turn leaves {target.text} as it is: it cannot say which way is up"
        remedy = "take a ChArUco board, or a chessboard of an odd and an even number of squares"
        raise InputError(got, "a board that has an upper side", remedy)
    images = open_images(place, _MOST_FOR_POSE)
    if images.size != (camera.width, camera.height):
        got = f"'{place}' is {images.size[0]}x{images.size[1]}, the camera {camera.width}x{camera.height}"
        raise InputError(got, "the same size", "take the image as the clip will be filmed")
    error: InputError | None = None
    for name, image in images:
        if known is not None:
            try:
                return places_of_markers(camera, known, image, config.dictionary), ()
            except InputError as reason:
                error = error or reason
            continue
        layouts = (each for each in (target, other_layout(target)) if each is not None)
        seen = [refine(each, view, image) for each in layouts if (view := detect(each, image, name)) is not None]
        if seen:
            assert board_is is not None  # checked with the options
            turned = "a turn leaves this board as it is: it may be another of its corners that is the origin"
            best = max(seen, key=lambda view: len(view.ids))
            return places_of_target(target, best, board_is), ((turned,) if target.half_turn_alike else ())
    raise error or InputError(f"{target.text} is not in '{place}'", "an image of it", "check light, focus and --board")


def _notes(found: Calibration) -> tuple[str, ...]:
    """Lines of comment for the camera file."""
    notes = []
    if found.fit is not None and found.quality is not None:
        notes.append(
            f"calibrated by vid2phys from {len(found.fit.views)} views: {found.fit.rms_px:.3f} px RMS, "
            f"{100 * found.quality.coverage:.0f} % of the image"
        )
        pairs = [f"{name} {std:.2g}" for name, std in zip(found.fit.names, found.fit.std, strict=True)]
        notes.append(f"standard deviations: {', '.join(pairs)}")
    if found.pose is not None:
        position = ", ".join(f"{1e3 * std:.2g}" for std in found.pose.std_m)
        notes.append(
            f"pose: {found.pose.rms_px:.3f} px RMS, standard deviations {position} mm, {found.pose.std_deg:.2g} deg"
        )
    return (*notes, *found.remarks)
