"""Scenes in Blender (module `bpy`): rooms with procedural materials, lights, the camera, and bodies that move.

Frame k of Blender is frame k of the clip. A body has keys at the middle of each exposure, and at both ends if the clip
has motion blur.

The static scene is rendered once. In each frame, Cycles renders anew the rectangle that holds the moving things and
their shadows (`changed_box`), and `paste` blends it in. Both use the same seed and as many samples. Where nothing
changes, both differ by 0.3 of 255 levels (RMS), by the denoiser alone: far below the sensor's noise. Limit: light that
moving things reflect onto places outside of that rectangle is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bpy
import mathutils
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from benchmarks.clips.appearance import Lens, Light, Prop, Room, Surface
from benchmarks.clips.bodies import Body, build
from benchmarks.clips.companions import Mover
from benchmarks.clips.materials import emission, linear, material
from benchmarks.clips.motion import Motion

Array = NDArray[np.float64]
Box = tuple[int, int, int, int]
_MARGIN_PX, _BLEND_PX = 16, 10
_CLUTTER = (
    "#7a3b2e",
    "#2f5d50",
    "#c9b458",
    "#3b4a7a",
    "#a0a0a0",
    "#d9d2c0",
    "#6b4f8a",
    "#1f1f24",
    "#d0703a",
    "#5f8f4e",
)
_SHARP_RAD = np.radians(32.0)


def start(lens: Lens, samples: int, threads: int, ambient: str, ambient_power: float) -> None:
    """Empty Blender, and set up Cycles with samples of a pixel, the camera and the light from everywhere."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.context.preferences.edit.keyframe_new_interpolation_type = "LINEAR"
    scene = bpy.context.scene
    render, cycles = scene.render, scene.cycles
    render.engine = "CYCLES"
    render.threads_mode, render.threads = "FIXED", threads
    render.resolution_x, render.resolution_y = lens.size_px
    render.resolution_percentage = 100
    render.use_persistent_data = True
    settings = render.image_settings
    settings.file_format, settings.color_mode, settings.color_depth = "OPEN_EXR", "RGB", "32"
    cycles.device, cycles.seed, cycles.use_animated_seed = "CPU", 1, False
    cycles.samples, cycles.use_adaptive_sampling, cycles.use_light_tree = samples, False, False
    cycles.use_denoising, cycles.denoiser = True, "OPENIMAGEDENOISE"
    cycles.denoising_input_passes, cycles.denoising_prefilter = "RGB_ALBEDO_NORMAL", "FAST"
    cycles.max_bounces, cycles.diffuse_bounces, cycles.glossy_bounces = 2, 2, 1
    cycles.transmission_bounces = cycles.volume_bounces = cycles.transparent_max_bounces = 0
    cycles.caustics_reflective = cycles.caustics_refractive = False
    cycles.sample_clamp_indirect, cycles.blur_glossy = 4.0, 1.0
    world = bpy.data.worlds.new("world")
    world.use_nodes = True
    background = world.node_tree.nodes["Background"]
    background.inputs[0].default_value = (*linear(ambient), 1.0)
    background.inputs[1].default_value = ambient_power
    scene.world = world
    _add_camera(lens)


def _add_camera(lens: Lens) -> None:
    """Add the camera of a lens. Blender counts pixels from the corner, and its cameras have y up, z backward."""
    data = bpy.data.cameras.new("camera")
    width, height = lens.size_px
    data.sensor_fit, data.sensor_width = "HORIZONTAL", 36.0
    data.lens = lens.focal_px * 36.0 / width
    data.shift_x = (0.5 * width - (lens.center_px[0] + 0.5)) / width
    data.shift_y = ((lens.center_px[1] + 0.5) - 0.5 * height) / width
    data.clip_start, data.clip_end = 0.01, 100.0
    camera = bpy.data.objects.new("camera", data)
    pose = lens.camera_to_world()
    pose[:3, 1:3] *= -1.0
    camera.matrix_world = _matrix(pose)
    bpy.context.scene.collection.objects.link(camera)
    bpy.context.scene.camera = camera


def _matrix(pose: Array) -> Any:
    return mathutils.Matrix(pose.tolist())


def add_lights(lights: tuple[Light, ...]) -> None:
    """Add square area lights."""
    for light in lights:
        data = bpy.data.lights.new("light", "AREA")
        data.energy, data.color, data.size = light.power_w, linear(light.color), light.size_m
        lamp = bpy.data.objects.new("light", data)
        away = np.subtract(light.position_m, light.target_m)
        away = away / np.linalg.norm(away)
        side = np.cross([0.0, 1.0, 0.0] if abs(away[1]) < 0.9 else [1.0, 0.0, 0.0], away)
        side /= np.linalg.norm(side)
        pose = np.eye(4)
        pose[:3, :3] = np.stack([side, np.cross(away, side), away], axis=1)
        pose[:3, 3] = light.position_m
        lamp.matrix_world = _matrix(pose)
        bpy.context.scene.collection.objects.link(lamp)


def add_room(room: Room, lens: Lens, places: Array) -> None:
    """Add floor, walls, posters and clutter. places: [N, 3] m, where the body will be; clutter keeps behind it."""
    rng = np.random.default_rng([room.seed, 77])
    _add_plane((0.0, room.wall_y_m - 6.0, 0.0), np.eye(3), (12.0, 12.0), room.floor)
    back = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    _add_plane((0.0, room.wall_y_m, 2.0), back, (12.0, 4.0), room.wall)
    board = Surface("plain", (room.wall.colors[-1],), roughness=0.5)
    _add_prop(Prop("box", (12.0, 0.015, 0.06), (0.0, room.wall_y_m - 0.0075, 0.03), board))
    if room.wall_x_m is not None:
        side = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        _add_plane((room.wall_x_m, room.wall_y_m - 4.0, 2.0), side, (8.0, 4.0), room.wall)
    for index in range(room.posters):
        _add_poster(room, lens, rng, back, 0.004 * (index + 1))
    for prop in (*room.props, *_clutter(room, lens, places, rng)):
        _add_prop(prop)


def _add_poster(room: Room, lens: Lens, rng: np.random.Generator, axes: Array, off_m: float) -> None:
    """Hang a poster where the camera sees the wall, at a distance from it, as posters may overlap."""
    width, height = float(rng.uniform(0.25, 0.55)), float(rng.uniform(0.25, 0.5))
    for _ in range(200):
        place = np.array([rng.uniform(-2.0, 2.0), room.wall_y_m - off_m, rng.uniform(0.3, 1.6)])
        pixel, depth = lens.project(place)
        if depth > 0.0 and np.all(pixel > 0.0) and np.all(pixel < lens.size_px):
            break
    kind = str(rng.choice(["cells", "waves", "marble", "dots", "checker"]))
    colors = tuple(str(c) for c in rng.choice(_CLUTTER, 4, replace=False))
    _add_plane(tuple(place), axes, (width, height), Surface(kind, colors, 0.3 * width, roughness=0.4))


def _clutter(room: Room, lens: Lens, places: Array, rng: np.random.Generator) -> list[Prop]:
    """Return boxes, cylinders and balls that stand behind the body, apart from each other, in the camera's sight."""
    ahead = lens.camera_to_world()[:2, 2] / np.linalg.norm(lens.camera_to_world()[:2, 2])
    behind = float((places[:, :2] @ ahead).max())
    props: list[Prop] = []
    discs: list[tuple[Array, float]] = []
    for _ in range(2000):
        if len(props) == room.clutter:
            break
        shape = str(rng.choice(["box", "cylinder", "ball"]))
        width, height = float(rng.uniform(0.06, 0.2)), float(rng.uniform(0.08, 0.4))
        size = {"box": (width, 0.8 * width, height), "cylinder": (width, height), "ball": (width,)}[shape]
        height = size[-1]
        spot = np.array([rng.uniform(-2.0, 2.0), rng.uniform(-0.5, room.wall_y_m - 0.15)])
        pixel, depth = lens.project(np.array([*spot, 0.5 * height]))
        shown = depth > 0.3 and bool(np.all(pixel > -20.0) and np.all(pixel < np.array(lens.size_px) + 20.0))
        clear = all(np.linalg.norm(spot - other) > 0.5 * width + radius + 0.04 for other, radius in discs)
        if shown and clear and float(spot @ ahead) > behind + 0.12 + 0.7 * width:
            kind = str(rng.choice(["plain", "plain", "noise", "wood", "dots"]))
            colors = tuple(str(c) for c in rng.choice(_CLUTTER, 2, replace=False))
            surface = Surface(kind, colors, 0.5 * width, roughness=float(rng.uniform(0.25, 0.8)))
            props.append(Prop(shape, size, (spot[0], spot[1], 0.5 * height), surface))
            discs.append((spot, 0.7 * width))
    return props


def _add_prop(prop: Prop) -> None:
    solid = build(Body(prop.shape, prop.size_m, (prop.surface,)))
    _add_mesh(solid.vertices, solid.faces, solid.slot, (prop.surface,)).location = prop.position_m


def _add_plane(center: Any, axes: Array, size: tuple[float, float], surface: Surface) -> None:
    x, y = 0.5 * size[0], 0.5 * size[1]
    corners = np.array([[-x, -y, 0.0], [x, -y, 0.0], [x, y, 0.0], [-x, y, 0.0]])
    plane = _add_mesh(corners, np.array([[0, 1, 2], [0, 2, 3]]), np.zeros(2, int), (surface,))
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = axes, center
    plane.matrix_world = _matrix(pose)


def _add_mesh(vertices: Array, faces: Any, slot: Any, surfaces: tuple[Surface, ...]) -> Any:
    mesh = bpy.data.meshes.new("mesh")
    mesh.from_pydata(vertices.tolist(), [], np.asarray(faces).tolist())
    for surface in surfaces:
        mesh.materials.append(material(surface))
    mesh.polygons.foreach_set("material_index", np.asarray(slot, np.int32))
    mesh.polygons.foreach_set("use_smooth", np.ones(len(faces), bool))
    mesh.set_sharp_from_angle(angle=_SHARP_RAD)
    mesh.update()
    thing = bpy.data.objects.new("thing", mesh)
    bpy.context.scene.collection.objects.link(thing)
    return thing


def add_mover(mover: Mover, frames: int, fps: float, shutter: float) -> Any:
    """Add a mesh that moves. Return the object."""
    thing = _add_mesh(mover.vertices, mover.faces, mover.slot, mover.surfaces)
    _animate(thing, mover.motion, frames, fps, shutter)
    return thing


def add_shape(vertices: Array, faces: Any, surface: Surface) -> Any:
    """Add a mesh of one surface where its vertices [V, 3] are. Return the object, for `reshape`."""
    return _add_mesh(vertices, faces, np.zeros(len(faces), np.int64), (surface,))


def reshape(thing: Any, vertices: Array) -> None:
    """Move the vertices [V, 3] of a mesh, m."""
    thing.data.vertices.foreach_set("co", np.asarray(vertices, np.float32).ravel())
    thing.data.update()


def _animate(thing: Any, motion: Motion, frames: int, fps: float, shutter: float) -> None:
    offsets = [-0.5 * shutter, 0.0, 0.5 * shutter] if shutter else [0.0]
    keys = np.array([k + offset for k in range(frames) for offset in offsets])
    position, quats = motion.at(keys / fps)
    thing.rotation_mode = "QUATERNION"
    for key, place, quat in zip(keys, position, quats, strict=True):
        thing.location, thing.rotation_quaternion = place, quat
        thing.keyframe_insert("location", frame=key)
        thing.keyframe_insert("rotation_quaternion", frame=key)
    if shutter:
        thing.cycles.use_motion_blur, thing.cycles.motion_steps = True, 2


def set_shutter(shutter: float) -> None:
    """Set the share of the frame interval for which the shutter is open, around the middle of the frame."""
    render = bpy.context.scene.render
    render.use_motion_blur = shutter > 0.0
    if shutter:
        render.motion_blur_position, render.motion_blur_shutter = "CENTER", shutter


def hide(things: list[Any], *, hidden: bool) -> None:
    """Hide things from the camera and the light, or show them."""
    for thing in things:
        thing.hide_render = hidden


def render(index: int, box: Box | None, file: Path) -> Array:
    """Return linear light [h, w, 3] of a rectangle of a frame, or of the whole frame. file: scratch."""
    scene = bpy.context.scene
    width, height = scene.render.resolution_x, scene.render.resolution_y
    left, top, right, bottom = box or (0, 0, width, height)
    scene.render.use_border = scene.render.use_crop_to_border = box is not None
    inside = 0.25  # of a pixel, since Blender rounds down
    scene.render.border_min_x, scene.render.border_max_x = (left + inside) / width, (right + inside) / width
    scene.render.border_min_y = (height - bottom + inside) / height
    scene.render.border_max_y = (height - top + inside) / height
    scene.render.filepath = str(file)
    scene.frame_set(index)
    bpy.ops.render.render(write_still=True)
    image = bpy.data.images.load(str(file), check_existing=False)
    image.colorspace_settings.name = "Non-Color"
    shape = (image.size[1], image.size[0], image.channels)
    pixels = np.empty(int(np.prod(shape)), np.float32)
    image.pixels.foreach_get(pixels)
    bpy.data.images.remove(image)
    assert shape[:2] == (bottom - top, right - left), f"Blender rounded {box} to {shape}"
    return np.asarray(pixels.reshape(shape)[::-1, :, :3], float)


def changed_box(movers: list[Mover], room: Room, lights: tuple[Light, ...], lens: Lens, times_s: Array) -> Box | None:
    """Return left, top, right, bottom [px] of the things that move and of their shadows on floor and wall."""
    points = []
    for mover in movers:
        for place, quat in zip(*mover.motion.at(times_s), strict=True):
            points.append(mover.corners() @ Rotation.from_quat(quat, scalar_first=True).as_matrix().T + place)
    return box_around(np.concatenate(points), room, lights, lens)


def box_around(body: Array, room: Room, lights: tuple[Light, ...], lens: Lens) -> Box | None:
    """Return left, top, right, bottom [px] of points [N, 3] and of their shadows on floor and wall; None if unseen."""
    shadows = [_shadow(body, corner, room) for light in lights for corner in _corners(light)]
    pixels, depth = lens.project(np.concatenate([body, *shadows]))
    pixels = pixels[depth > 0.05]
    size = np.array(lens.size_px)
    low = np.clip(np.floor(pixels.min(axis=0)) - _MARGIN_PX, 0, size).astype(int)
    high = np.clip(np.ceil(pixels.max(axis=0)) + 1 + _MARGIN_PX, 0, size).astype(int)
    if np.any(high - low < 2):
        return None
    return (int(low[0]), int(low[1]), int(high[0]), int(high[1]))


def paste(static: Array, part: Array, box: Box) -> Array:
    """Return the static frame [H, W, 3] with a rendered rectangle in its place, blended over a few pixels."""
    left, top, right, bottom = box
    height, width = static.shape[:2]
    x, y = np.arange(left, right), np.arange(top, bottom)
    far = np.full((bottom - top, right - left), np.inf)
    for at_border, distance in (
        (left == 0, x[None] - left),
        (right == width, right - 1 - x[None]),
        (top == 0, y[:, None] - top),
        (bottom == height, bottom - 1 - y[:, None]),
    ):
        if not at_border:
            far = np.minimum(far, distance)
    weight = np.clip(far / _BLEND_PX, 0.0, 1.0)[..., None]
    frame = static.copy()
    frame[top:bottom, left:right] += weight * (part - frame[top:bottom, left:right])
    return frame


def _corners(light: Light) -> Array:
    half = 0.5 * light.size_m
    return np.array(light.position_m) + half * np.array([[a, b, 0.0] for a in (-1, 1) for b in (-1, 1)])


def _shadow(points: Array, source: Array, room: Room) -> Array:
    """Return where rays from a source through points [N, 3] meet the floor or the wall behind, whichever is first."""
    ray = points - source
    with np.errstate(divide="ignore", invalid="ignore"):
        down = np.where(ray[:, 2] < 0.0, -source[2] / ray[:, 2], np.inf)
        back = np.where(ray[:, 1] > 0.0, (room.wall_y_m - source[1]) / ray[:, 1], np.inf)
    length = np.minimum(down, back)
    reached = np.isfinite(length)
    return np.asarray(source + ray[reached] * length[reached, None])


def render_mask(index: int, body: Any, box: Box | None, size_px: tuple[int, int], file: Path) -> Array:
    """Return the coverage of pixels [H, W] by the body, with nothing before it; box: around it. Spoils the scene."""
    mask = np.zeros(size_px[::-1])
    if box is None:
        return mask
    scene = bpy.context.scene
    for thing in scene.objects:
        thing.hide_render = thing not in (body, scene.camera)
    body.data.materials.clear()
    body.data.materials.append(bpy.data.materials.get("mask") or emission("mask"))
    scene.world.node_tree.nodes["Background"].inputs[1].default_value = 0.0
    scene.render.use_motion_blur = False
    scene.cycles.use_denoising, scene.cycles.samples, scene.cycles.pixel_filter_type = False, 128, "BOX"
    mask[box[1] : box[3], box[0] : box[2]] = render(index, box, file)[..., 1]
    return mask
