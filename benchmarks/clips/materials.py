"""Procedural materials of Blender (module `bpy`) for the surfaces of the clips. No image comes from a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bpy
import numpy as np

from benchmarks.clips.appearance import Surface


def emission(name: str) -> Any:
    """Return a new material that shines white."""
    material = bpy.data.materials.new(name)
    material.use_nodes = True
    nodes, links = material.node_tree.nodes, material.node_tree.links
    nodes.clear()
    light, output = nodes.new("ShaderNodeEmission"), nodes.new("ShaderNodeOutputMaterial")
    links.new(light.outputs[0], output.inputs[0])
    return material


def material(surface: Surface) -> Any:
    """Return a new material of Blender for a surface. Raises KeyError for an unknown kind."""
    result = bpy.data.materials.new(surface.kind)
    result.use_nodes = True
    tree = result.node_tree
    shader = tree.nodes["Principled BSDF"]
    shader.inputs["Roughness"].default_value = surface.roughness
    shader.inputs["Metallic"].default_value = surface.metallic
    colors = [(*linear(c), 1.0) for c in surface.colors]
    if surface.kind == "plain":
        shader.inputs["Base Color"].default_value = colors[0]
        return result
    coordinate = tree.nodes.new("ShaderNodeTexCoord")
    mapping = tree.nodes.new("ShaderNodeMapping")
    mapping.inputs["Scale"].default_value = (1.0 / surface.scale_m,) * 3
    mapping.inputs["Location"].default_value = (0.137, 0.291, 0.053)  # no edge of a pattern on a face of a box
    tree.links.new(coordinate.outputs["Object"], mapping.inputs["Vector"])
    color = PATTERNS[surface.kind](_Nodes(tree, mapping.outputs["Vector"]), colors)
    tree.links.new(color, shader.inputs["Base Color"])
    return result


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


def linear(color: str) -> tuple[float, float, float]:
    """Return linear light of an sRGB colour "#rrggbb"."""
    srgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    light = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return (float(light[0]), float(light[1]), float(light[2]))
