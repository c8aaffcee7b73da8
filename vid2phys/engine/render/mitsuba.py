"""Images of one mesh with Mitsuba 3: radiance, coverage and forward-mode derivatives dI/dpsi.

The mesh is static in body axes; camera, lights and environment move. So the scene is built once, nothing
recompiles and no ray-tracing structure is rebuilt from one image to the next. Only rays that hit the body are
shaded. Lighting is direct (lights and environment, with shadows); light that comes from the body itself is
approximated by the colour it meets under a constant `ambient` light.

Limits: a pinhole without distortion; silhouettes and shadow edges carry no derivative (only shading does); three
point lights and one environment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.engine.render.appearance import ENVIRONMENT_SHAPE, LIGHTS, Appearance, MovingAppearance
from vid2phys.engine.render.brdf import Brdf
from vid2phys.engine.render.llvm import ATOMIC_REMEDY, MINIMUM_VERSION, LlvmInfo, find_llvm, lacks_atomic
from vid2phys.engine.render.texture import DeviceTexture
from vid2phys.errors import MissingDependencyError
from vid2phys.types import Array, Mesh

__all__ = ["LIGHTS", "Appearance", "Image", "LlvmInfo", "Renderer", "find_llvm", "load_mitsuba"]

_MAX_RADIANCE = 100.0


@dataclass(frozen=True)
class Image:
    """radiance: [S, S, 4] linear premultiplied RGB and coverage. tangents: [P, S, S, 3], RGB along each direction."""

    radiance: NDArray[np.float32]
    tangents: NDArray[np.float32]


@cache
def load_mitsuba() -> tuple[Any, Any]:
    """Load and return the modules (mitsuba, drjit), on one thread so that sums have one order. Raises
    MissingDependencyError.
    """
    llvm = find_llvm()
    if llvm is None:
        raise MissingDependencyError(
            "no usable libLLVM was found",
            f"a shared libLLVM of version {MINIMUM_VERSION} or newer",
            "install it (Debian, Ubuntu: `apt install libllvm19`) or set DRJIT_LIBLLVM_PATH to the file",
        )
    if lacks_atomic():
        raise MissingDependencyError("no libatomic.so.1 was found", "the one that the renderer loads", ATOMIC_REMEDY)
    os.environ["DRJIT_LIBLLVM_PATH"] = llvm.path
    import drjit
    import mitsuba

    mitsuba.set_variant("llvm_ad_rgb")
    mitsuba.set_log_level(mitsuba.LogLevel.Error)
    drjit.set_thread_count(1)
    return mitsuba, drjit


class Renderer:
    """Renders `mesh` into `size` x `size` pixels with `spp` camera rays a pixel, box filter.

    The same arguments give the same bits in any process. Raises MissingDependencyError without LLVM.
    """

    def __init__(self, mesh: Mesh, size: int = 96, spp: int = 16) -> None:
        self.mi, self.dr = load_mitsuba()
        self.size, self.spp = size, spp
        # Unit radius: the epsilons of ray tracing are made for scenes of that size.
        self.radius_m = mesh.radius_m
        self._scene = self._build(mesh)
        self._environment = self._scene.environment()
        self._parameters = self.mi.traverse(self._scene)
        # A texel is as long as a pixel on a body that fills the image: random rays need not average many.
        texel_m = 2.0 * self.radius_m / size
        self._texture = None if mesh.texture is None else DeviceTexture(self.mi, self.dr, mesh, texel_m)

    def render(
        self,
        view_from_body: Array,
        K: Array,
        appearance: Appearance,
        *,
        seed: int,
        directions: Sequence[Appearance] = (),
    ) -> Image:
        """Render one image from `view_from_body` [4, 4] (OpenCV axes, m) through `K` [3, 3] (centres at integers).

        directions: P changes of the appearance (face_color ... ambient as differences; environment,
        environment_from_body and face_metallic are not differentiated); tangents[p] is the derivative along the p-th.
        """
        mi, dr = self.mi, self.dr
        self._set_environment(appearance)
        camera = self._camera(view_from_body, K)
        lanes = dr.arange(mi.UInt32, self.size * self.size * self.spp)
        rays, _ = self._rays(camera, lanes, seed)
        hits = dr.compress(self._scene.ray_intersect_preliminary(rays).is_valid())
        if len(hits) == 0:
            shape = (self.size, self.size)
            return Image(np.zeros((*shape, 4), np.float32), np.zeros((len(directions), *shape, 3), np.float32))
        with dr.suspend_grad(when=not directions):
            return self._shade(camera, hits, seed, appearance, directions)

    def pose(self, vertices: Array) -> None:
        """Move the mesh's vertices [V, 3] m, faces as they are; nothing is compiled again."""
        scaled = np.ascontiguousarray(vertices / self.radius_m, np.float32).ravel()
        self._parameters["body.vertex_positions"] = self.mi.Float(scaled)
        self._parameters.update()

    def _shade(
        self,
        camera: tuple[Any, Any, Any],
        hits: Any,
        seed: int,
        appearance: Appearance,
        directions: Sequence[Appearance],
    ) -> Image:
        mi, dr = self.mi, self.dr
        rays, random = self._rays(camera, hits, seed)
        coordinates = [mi.Float(0.0) for _ in directions]
        for coordinate in coordinates:
            dr.enable_grad(coordinate)
        values = MovingAppearance(mi, dr, appearance, directions, coordinates, self.radius_m, self._texture)
        radiance = dr.clip(self._radiance(rays, random, values), 0.0, _MAX_RADIANCE)
        pixel = hits // self.spp
        images = [self._accumulate(dr.detach(radiance), pixel), self._accumulate(mi.Color3f(1.0), pixel)]
        for coordinate in coordinates:
            dr.set_grad(coordinate, 1.0)
            dr.enqueue(dr.ADMode.Forward, coordinate)
            dr.traverse(dr.ADMode.Forward, flags=dr.ADFlag.ClearVertices)
            tangent = mi.Color3f(dr.grad(radiance))
            dr.set_grad(radiance, 0.0)
            images.append(self._accumulate(dr.clip(tangent, -_MAX_RADIANCE, _MAX_RADIANCE), pixel))
        dr.eval(images)
        shape = (self.size, self.size, 3)
        color, coverage, *tangents = (image.numpy().reshape(shape) for image in images)
        return Image(
            np.concatenate([color, coverage[..., :1]], axis=-1), np.array(tangents, np.float32).reshape(-1, *shape)
        )

    def _radiance(self, rays: Any, random: Any, values: MovingAppearance) -> Any:
        """Return the reflected radiance towards the camera of one sample a lane, Color3f."""
        mi, dr = self.mi, self.dr
        with dr.suspend_grad():
            si = self._scene.ray_intersect(rays)
            normal = dr.mulsign(si.n, -dr.dot(si.n, rays.d))  # two-sided: thin blades are single sheets
            si.n, si.sh_frame = normal, mi.Frame3f(normal)
            wi = si.sh_frame.to_local(-rays.d)
        brdf = values.brdf(si.prim_index, si.uv)
        total = mi.Color3f(0.0)
        for position, intensity in zip(values.light_positions, values.light_intensities, strict=True):
            total += self._point_light(si, wi, brdf, position, intensity)
        total += self._environment_light(si, wi, brdf, random, values)
        return total

    def _point_light(self, si: Any, wi: Any, brdf: Brdf, position: Any, intensity: Any) -> Any:
        dr = self.dr
        offset = position - si.p
        squared = dr.squared_norm(offset)
        with dr.suspend_grad():
            visible = ~self._scene.ray_test(si.spawn_ray_to(dr.detach(position)))
        value = brdf.eval(wi, si.to_local(offset * dr.rsqrt(squared)))
        return dr.select(visible, value * intensity / squared, 0.0)

    def _environment_light(self, si: Any, wi: Any, brdf: Brdf, random: Any, values: MovingAppearance) -> Any:
        """Return the light of two samples, one of the environment and one of the BRDF, balance heuristic (Veach 1997).

        The BRDF's samples move with its roughness: their derivative is far less noisy than one by likelihood ratios.
        """
        mi, dr = self.mi, self.dr
        sky, scale = self._environment, values.environment_scale
        with dr.suspend_grad():
            ds, weight = sky.sample_direction(si, _next_2d(mi, random))
            visible = (ds.pdf > 0) & ~self._scene.ray_test(si.spawn_ray(ds.d))
        local = si.to_local(ds.d)
        mis = ds.pdf / (ds.pdf + brdf.pdf(wi, local))
        total = dr.select(visible, brdf.eval(wi, local) * weight * mis * scale, 0.0)
        wo = brdf.sample(wi, random.next_float32(), _next_2d(mi, random))
        density = brdf.pdf(wi, wo)
        with dr.suspend_grad():
            blocker = self._scene.ray_intersect_preliminary(si.spawn_ray(si.to_world(dr.detach(wo))))
            blocked = blocker.is_valid()
            blocking_face = dr.select(blocked, blocker.prim_index, 0)
            place = dr.select(blocked, blocker.prim_uv, 0.0)  # what a miss has there may be anything
        light, sky_density = self._sky(si, si.to_world(wo))
        light *= scale * density / (density + sky_density)
        arriving = dr.select(blocked, values.color(blocking_face, place) * values.ambient, light)
        return total + dr.select(density > 1e-6, brdf.eval(wi, wo) * arriving / dr.maximum(density, 1e-6), 0.0)

    def _sky(self, si: Any, direction: Any) -> tuple[Any, Any]:
        """Return the radiance of the environment along `direction`, and the density of sampling it."""
        mi, dr = self.mi, self.dr
        count = dr.width(direction)
        miss, ds = dr.zeros(mi.SurfaceInteraction3f, count), dr.zeros(mi.DirectionSample3f, count)
        miss.wi, ds.d = -direction, direction
        return self._environment.eval(miss), self._environment.pdf_direction(si, ds)

    def _accumulate(self, color: Any, pixel: Any) -> Any:
        dr = self.dr
        image = dr.zeros(self.mi.Float, self.size * self.size * 3)
        for channel in range(3):
            dr.scatter_add(image, dr.detach(color[channel]) / self.spp, pixel * 3 + channel)
        return image

    def _rays(self, camera: tuple[Any, Any, Any], lanes: Any, seed: int) -> tuple[Any, Any]:
        """Return the camera rays of these lanes and the random numbers that follow; the same for a lane whatever the
        others.
        """
        mi, dr = self.mi, self.dr
        rotation, origin, (fx, fy, cx, cy) = camera
        # Of size 1: for more, Dr.Jit adds to a lane's stream its place among the others.
        random = mi.PCG32(1, dr.opaque(mi.UInt64, seed), mi.UInt64(lanes))
        pixel = lanes // self.spp
        row = pixel // self.size
        column = pixel - row * self.size
        # OpenCV: the centre of pixel (0, 0) is at (0, 0), so it reaches from -0.5 to 0.5.
        u = mi.Float(column) + random.next_float32() - 0.5
        v = mi.Float(row) + random.next_float32() - 0.5
        direction = rotation @ mi.Vector3f((u - cx) / fx, (v - cy) / fy, 1.0)
        return mi.Ray3f(origin, dr.normalize(direction)), random

    def _camera(self, view_from_body: Array, K: Array) -> tuple[Any, Any, Any]:
        mi, dr = self.mi, self.dr
        rotation = np.asarray(view_from_body)[:3, :3].T
        origin = -rotation @ np.asarray(view_from_body)[:3, 3] / self.radius_m
        opaque = [dr.opaque(mi.Float, float(x)) for x in (K[0, 0], K[1, 1], K[0, 2], K[1, 2])]
        rows = [mi.Vector3f(*(dr.opaque(mi.Float, float(x)) for x in row)) for row in rotation]
        return mi.Matrix3f(*rows), mi.Point3f(*(dr.opaque(mi.Float, float(x)) for x in origin)), opaque

    def _set_environment(self, appearance: Appearance) -> None:
        mi = self.mi
        image = np.asarray(appearance.environment, np.float32)
        closed = np.concatenate([image[:, -1:], image, image[:, :1]], axis=1)  # as the plugin keeps it, to wrap round
        to_world = np.eye(4)
        to_world[:3, :3] = np.asarray(appearance.environment_from_body).T
        self._parameters["sky.data"] = mi.TensorXf(closed)
        self._parameters["sky.to_world"] = mi.AffineTransform4f(mi.Matrix4f(to_world.astype(np.float32)))
        self._parameters.update()

    def _build(self, mesh: Mesh) -> Any:
        mi = self.mi
        vertices, faces = mesh.vertices / self.radius_m, mesh.faces
        properties = mi.Properties()
        properties["face_normals"] = True
        shape = mi.Mesh("body", len(vertices), len(faces), props=properties)
        buffers = mi.traverse(shape)
        buffers["vertex_positions"] = np.ascontiguousarray(vertices, np.float32).ravel()
        buffers["faces"] = np.ascontiguousarray(faces, np.uint32).ravel()
        buffers.update()
        sky = {"type": "envmap", "bitmap": mi.Bitmap(np.ones((*ENVIRONMENT_SHAPE, 3), np.float32))}
        return mi.load_dict({"type": "scene", "body": shape, "sky": sky})


def _next_2d(mi: Any, random: Any) -> Any:
    return mi.Point2f(random.next_float32(), random.next_float32())
