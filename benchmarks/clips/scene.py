"""Scenes in Blender (module `bpy`): rooms with procedural materials, lights, the camera, and bodies that move.

Frame k of Blender is frame k of the clip. A body has keys at the middle of each exposure, and at both ends if the clip
has motion blur. Cycles samples with one seed in all frames, so that what is static stays the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bpy
import mathutils
import numpy as np
from numpy.typing import NDArray

from benchmarks.clips.appearance import Lens, Light, Prop, Room, Surface
from benchmarks.clips.bodies import Body, build
from benchmarks.clips.companions import Mover
from benchmarks.clips.motion import Motion

Array = NDArray[np.float64]
_CLUTTER = ("#7a3b2e", "#2f5d50", "#c9b458", "#3b4a7a", "#a0a0a0", "#d9d2c0", "#6b4f8a", "#1f1f24", "#d0703a", "#5f8f4e")
_SHARP_RAD = np.radians(32.0)


@dataclass(frozen=True)
class Quality:
    """samples: of a pixel. threads: of the processor."""

    samples: int = 20
    threads: int = 2


def start(lens: Lens, quality: Quality, transform: str, ambient: str, ambient_power: float) -> None:
    """Empty Blender, and set up Cycles, the camera and the light from everywhere."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    bpy.context.preferences.edit.keyframe_new_interpolation_type = "LINEAR"
    scene = bpy.context.scene
    render, cycles = scene.render, scene.cycles
    render.engine = "CYCLES"
    render.threads_mode, render.threads = "FIXED", quality.threads
    render.resolution_x, render.resolution_y = lens.size_px
    render.resolution_percentage = 100
    render.use_persistent_data = True
    settings = render.image_settings
    settings.file_format, settings.color_mode, settings.color_depth, settings.compression = "PNG", "RGB", "16", 0
    scene.view_settings.view_transform = transform
    cycles.device, cycles.seed, cycles.use_animated_seed = "CPU", 1, False
    cycles.samples, cycles.use_adaptive_sampling, cycles.adaptive_threshold = quality.samples, True, 0.03
    cycles.use_denoising, cycles.denoiser = True, "OPENIMAGEDENOISE"
    cycles.denoising_input_passes, cycles.denoising_prefilter = "RGB_ALBEDO_NORMAL", "FAST"
    cycles.max_bounces, cycles.diffuse_bounces, cycles.glossy_bounces = 3, 2, 2
    cycles.transmission_bounces = cycles.volume_bounces = cycles.transparent_max_bounces = 0
    cycles.caustics_reflective = cycles.caustics_refractive = False
    cycles.sample_clamp_indirect, cycles.blur_glossy = 4.0, 1.0
    world = bpy.data.worlds.new("world")
    world.use_nodes = True
    background = world.node_tree.nodes["Background"]
    background.inputs[0].default_value = (*_linear(ambient), 1.0)
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
        data.energy, data.color, data.size = light.power_w, _linear(light.color), light.size_m
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
    for _ in range(room.posters):
        _add_poster(room, lens, rng, back)
    for prop in (*room.props, *_clutter(room, lens, places, rng)):
        _add_prop(prop)


def _add_poster(room: Room, lens: Lens, rng: np.random.Generator, axes: Array) -> None:
    """Hang a poster where the camera sees the wall."""
    width, height = float(rng.uniform(0.25, 0.55)), float(rng.uniform(0.25, 0.5))
    for _ in range(200):
        place = np.array([rng.uniform(-2.0, 2.0), room.wall_y_m - 0.004, rng.uniform(0.3, 1.6)])
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
        mesh.materials.append(_material(surface))
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


def render_frame(index: int, exposure_ev: float, file: Path) -> None:
    """Write a frame as a PNG file of 16 bits."""
    scene = bpy.context.scene
    scene.view_settings.exposure = exposure_ev
    scene.render.filepath = str(file)
    scene.frame_set(index)
    bpy.ops.render.render(write_still=True)


def render_mask(index: int, body: Any, file: Path) -> None:
    """Write the coverage of pixels by the body, with nothing before it, as a PNG file of 16 bits. Spoils the scene."""
    scene = bpy.context.scene
    for thing in scene.objects:
        thing.hide_render = thing not in (body, scene.camera)
    white = bpy.data.materials.get("mask") or _emission("mask")
    body.data.materials.clear()
    body.data.materials.append(white)
    scene.world.node_tree.nodes["Background"].inputs[1].default_value = 0.0
    scene.view_settings.view_transform, scene.view_settings.exposure = "Raw", 0.0
    scene.render.use_motion_blur = False
    scene.cycles.use_denoising, scene.cycles.use_adaptive_sampling, scene.cycles.samples = False, False, 256
    scene.cycles.pixel_filter_type = "BOX"
    scene.render.filepath = str(file)
    scene.frame_set(index)
    bpy.ops.render.render(write_still=True)


def _emission(name: str) -> Any:
    material = bpy.data.materials.new(name)
    material.use_nodes = True
    nodes, links = material.node_tree.nodes, material.node_tree.links
    nodes.clear()
    light, output = nodes.new("ShaderNodeEmission"), nodes.new("ShaderNodeOutputMaterial")
    links.new(light.outputs[0], output.inputs[0])
    return material


def _material(surface: Surface) -> Any:
    material = bpy.data.materials.new(surface.kind)
    material.use_nodes = True
    tree = material.node_tree
    shader = tree.nodes["Principled BSDF"]
    shader.inputs["Roughness"].default_value = surface.roughness
    shader.inputs["Metallic"].default_value = surface.metallic
    colors = [(*_linear(c), 1.0) for c in surface.colors]
    if surface.kind == "plain":
        shader.inputs["Base Color"].default_value = colors[0]
        return material
    coordinate = tree.nodes.new("ShaderNodeTexCoord")
    mapping = tree.nodes.new("ShaderNodeMapping")
    mapping.inputs["Scale"].default_value = (1.0 / surface.scale_m,) * 3
    mapping.inputs["Location"].default_value = (0.137, 0.291, 0.053)  # no edge of a pattern on a face of a box
    tree.links.new(coordinate.outputs["Object"], mapping.inputs["Vector"])
    color = PATTERNS[surface.kind](_Nodes(tree, mapping.outputs["Vector"]), colors)
    tree.links.new(color, shader.inputs["Base Color"])
    return material


class _Nodes:
    """Short ways to add nodes to a material. Coordinates are in periods of the pattern."""

    def __init__(self, tree: Any, vector: Any) -> None:
        self.tree, self.vector = tree, vector

    def add(self, kind: str, vector: Any = None, **inputs: Any) -> Any:
        node = self.tree.nodes.new(f"ShaderNode{kind}")
        if "Vector" in node.inputs:
            self.tree.links.new(self.vector if vector is None else vector, node.inputs["Vector"])
        for name, value in inputs.items():
            node.inputs[name.replace("_", " ").strip()].default_value = value
        return node

    def stretch(self, scale: tuple[float, float, float]) -> Any:
        node = self.add("Mapping", Scale=scale)
        return node.outputs["Vector"]

    def noise(self, scale: float, detail: float = 3.0, vector: Any = None) -> Any:
        return self.add("TexNoise", vector, Scale=scale, Detail=detail).outputs[0]

    def ramp(self, factor: Any, colors: list[Any], low: float, high: float, *, steps: bool = False) -> Any:
        node = self.tree.nodes.new("ShaderNodeValToRGB")
        ramp = node.color_ramp
        ramp.interpolation = "CONSTANT" if steps else "LINEAR"
        count = len(colors)
        places = np.linspace(low, high, count + 1)[:-1] if steps else np.linspace(low, high, count)
        while len(ramp.elements) < count:
            ramp.elements.new(0.5)
        for element, place, color in zip(ramp.elements, places, colors, strict=False):
            element.position, element.color = float(place), color
        self.tree.links.new(factor, node.inputs[0])
        return node.outputs[0]

    def multiply(self, color: Any, factor: Any, low: float, high: float) -> Any:
        """Return a colour made lighter and darker by a factor in 0.3 to 0.7."""
        shade = self.ramp(factor, [(low, low, low, 1.0), (high, high, high, 1.0)], 0.3, 0.7)
        node = self.tree.nodes.new("ShaderNodeMix")
        node.data_type, node.blend_type = "RGBA", "MULTIPLY"
        node.inputs[0].default_value = 1.0
        self.tree.links.new(color, node.inputs[6])
        self.tree.links.new(shade, node.inputs[7])
        return node.outputs[2]

    def bricks(self, colors: list[Any], width: float, offset: float, mortar: float) -> Any:
        """Return rows of blocks of two colours with joints of the third."""
        node = self.add("TexBrick", Scale=1.0, Mortar_Size=mortar, Brick_Width=width, Row_Height=1.0, Bias=0.0)
        node.offset, node.squash = offset, 1.0
        for name, color in zip(("Color1", "Color2", "Mortar"), (*colors, *colors), strict=False):
            node.inputs[name].default_value = color
        return node.outputs["Color"]


def _planks(nodes: _Nodes, colors: list[Any]) -> Any:
    grain = nodes.noise(1.0, 6.0, nodes.stretch((0.7, 9.0, 1.0)))
    return nodes.multiply(nodes.bricks(colors, 7.0, 0.37, 0.03), grain, 0.6, 1.25)


def _tiles(nodes: _Nodes, colors: list[Any]) -> Any:
    return nodes.multiply(nodes.bricks(colors, 1.0, 0.0, 0.025), nodes.noise(3.0), 0.85, 1.1)


def _brick(nodes: _Nodes, colors: list[Any]) -> Any:
    return nodes.multiply(nodes.bricks(colors, 2.6, 0.5, 0.09), nodes.noise(8.0, 6.0), 0.65, 1.2)


def _checker(nodes: _Nodes, colors: list[Any]) -> Any:
    node = nodes.add("TexChecker", Scale=1.0, Color1=colors[0], Color2=colors[1])
    return node.outputs[0]


def _marble(nodes: _Nodes, colors: list[Any]) -> Any:
    node = nodes.add("TexWave", Scale=0.5, Distortion=9.0, Detail=5.0, Detail_Scale=1.2)
    return nodes.ramp(node.outputs["Fac" if "Fac" in node.outputs else 1], colors, 0.2, 0.9)


def _waves(nodes: _Nodes, colors: list[Any]) -> Any:
    node = nodes.add("TexWave", Scale=0.4, Distortion=3.0, Detail=1.0)
    return nodes.ramp(node.outputs[1], colors, 0.0, 1.0, steps=True)


def _stripes(nodes: _Nodes, colors: list[Any]) -> Any:
    node = nodes.add("TexWave", Scale=np.pi / 10.0)  # one period a unit
    node.wave_profile = "SAW"
    return nodes.ramp(node.outputs[1], colors, 0.0, 1.0, steps=True)


def _wood(nodes: _Nodes, colors: list[Any]) -> Any:
    node = nodes.add("TexWave", nodes.stretch((0.15, 1.0, 1.0)), Scale=0.8, Distortion=4.0, Detail=3.0)
    return nodes.ramp(node.outputs[1], colors, 0.1, 0.9)


def _noise(nodes: _Nodes, colors: list[Any]) -> Any:
    return nodes.ramp(nodes.noise(1.0, 5.0), colors, 0.35, 0.65)


def _cells(nodes: _Nodes, colors: list[Any]) -> Any:
    node = nodes.add("TexVoronoi", Scale=1.0)
    return nodes.ramp(node.outputs["Color"], colors, 0.1, 0.9, steps=True)


def _dots(nodes: _Nodes, colors: list[Any]) -> Any:
    node = nodes.add("TexVoronoi", Scale=1.0, Randomness=0.4)
    return nodes.ramp(node.outputs["Distance"], [colors[1], colors[0]], 0.0, 0.6, steps=True)


PATTERNS: dict[str, Callable[[_Nodes, list[Any]], Any]] = {
    "planks": _planks,
    "tiles": _tiles,
    "brick": _brick,
    "checker": _checker,
    "marble": _marble,
    "waves": _waves,
    "stripes": _stripes,
    "wood": _wood,
    "noise": _noise,
    "cells": _cells,
    "dots": _dots,
}


def _linear(color: str) -> tuple[float, float, float]:
    """Return linear light of an sRGB colour "#rrggbb"."""
    srgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    light = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return (float(light[0]), float(light[1]), float(light[2]))
