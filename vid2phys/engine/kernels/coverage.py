"""Exact areas of triangles in pixels, composited front to back, with their gradients written out.

Pixel i covers [i, i + 1] (not centred: callers shift by half a pixel). Nothing here is differentiated by Warp.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.raster import edge
from vid2phys.engine.kernels.runtime import wp

wp.set_module_options({"enable_backward": False})

ZERO, HALF, ONE = wp.constant(wp.float64(0.0)), wp.constant(wp.float64(0.5)), wp.constant(wp.float64(1.0))


@wp.func
def mean_clamped(first: wp.float64, last: wp.float64) -> wp.float64:
    """Return the mean of what runs from first to last in a straight line, clamped to [0, 1]."""
    low, high = wp.min(first, last), wp.max(first, last)
    if high <= ZERO:
        return ZERO
    if low >= ONE:
        return ONE
    span = high - low
    if span < wp.float64(1.0e-14):
        return wp.clamp(low, ZERO, ONE)
    inner_low, inner_high = wp.max(low, ZERO), wp.min(high, ONE)
    return ((inner_high - inner_low) * HALF * (inner_low + inner_high) + (high - inner_high)) / span


@wp.func
def edge_area(a: wp.vec3d, b: wp.vec3d, x: wp.float64, y: wp.float64) -> wp.float64:
    """Return the integral of x dy along the edge a, b within the rows of the pixel [x, x + 1] x [y, y + 1], x clamped
    to it.
    """
    if a[1] == b[1]:
        return ZERO
    first, last = wp.clamp(a[1], y, y + ONE), wp.clamp(b[1], y, y + ONE)
    if first == last:
        return ZERO
    slope = (b[0] - a[0]) / (b[1] - a[1])
    return (last - first) * mean_clamped(a[0] + (first - a[1]) * slope - x, a[0] + (last - a[1]) * slope - x)


@wp.func
def area_in_pixel(a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, x: wp.float64, y: wp.float64) -> wp.float64:
    """Return the area of a triangle within a pixel, with the sign of its winding (Green's theorem, edge by edge)."""
    return edge_area(a, b, x, y) + edge_area(b, c, x, y) + edge_area(c, a, x, y)


@wp.func
def widened(span: wp.vec2d, a: wp.vec3d, b: wp.vec3d, y: wp.float64) -> wp.vec2d:
    """Return the columns spanned so far, and those of the edge a, b in the row [y, y + 1]."""
    if wp.max(a[1], b[1]) < y or wp.min(a[1], b[1]) > y + ONE:
        return span
    first, last = a[0], b[0]
    if a[1] != b[1]:
        slope = (b[0] - a[0]) / (b[1] - a[1])
        first = a[0] + (wp.clamp(a[1], y, y + ONE) - a[1]) * slope
        last = a[0] + (wp.clamp(b[1], y, y + ONE) - a[1]) * slope
    return wp.vec2d(wp.min(span[0], wp.min(first, last)), wp.max(span[1], wp.max(first, last)))


@wp.kernel
def fragments(
    corners: wp.array2d(dtype=wp.vec3d),
    faces: wp.array(dtype=wp.vec3i),
    one_sided: wp.array(dtype=wp.bool),
    near: wp.float64,
    width: int,
    height: int,
    place: wp.array(dtype=wp.int32),
    keep: int,
    face_of: wp.array(dtype=wp.int32),
    area_of: wp.array(dtype=wp.float64),
    nearness_of: wp.array(dtype=wp.float64),
) -> None:
    """Run one thread an image and face. keep = 0: count the pixels that it may touch in `place` [B * H * W].

    keep = 1: `place` says where the pixel's next fragment goes (and moves on); write face, area and 1 / z there.
    corners: [B, V] x, y in pixels and z [m]. Faces not wholly before the camera and those without area are left out,
    and of one-sided ones those seen from behind (clockwise in an image whose y points down, as cameras see it).
    """
    image, face = wp.tid()
    a = corners[image, faces[face][0]]
    b = corners[image, faces[face][1]]
    c = corners[image, faces[face][2]]
    twice = edge(a, b, c[0], c[1])
    if wp.min(wp.min(a[2], b[2]), c[2]) <= near or twice == ZERO or (one_sided[face] and twice > ZERO):
        return
    sign, share = wp.sign(twice), ONE / twice
    near_a, near_b, near_c = ONE / a[2], ONE / b[2], ONE / c[2]
    last_row, last_column = wp.float64(height - 1), wp.float64(width - 1)
    top = wp.int32(wp.floor(wp.clamp(wp.min(wp.min(a[1], b[1]), c[1]), ZERO, last_row + ONE)))
    bottom = wp.int32(wp.floor(wp.clamp(wp.max(wp.max(a[1], b[1]), c[1]), -ONE, last_row)))
    for row in range(top, bottom + 1):
        y = wp.float64(row)
        span = widened(widened(widened(wp.vec2d(wp.float64(1e300), wp.float64(-1e300)), a, b, y), b, c, y), c, a, y)
        left = wp.int32(wp.floor(wp.clamp(span[0], ZERO, last_column + ONE)))
        right = wp.int32(wp.floor(wp.clamp(span[1], -ONE, last_column)))
        for column in range(left, right + 1):
            slot = wp.atomic_add(place, (image * height + row) * width + column, 1)
            if keep == 1:
                x = wp.float64(column)
                u, v = x + HALF, y + HALF
                # a point of the face near the pixel's centre: the plane itself may be anywhere there, seen edge-on
                w_a, w_b = wp.max(share * edge(b, c, u, v), ZERO), wp.max(share * edge(c, a, u, v), ZERO)
                w_c = wp.max(share * edge(a, b, u, v), ZERO)
                face_of[slot] = face
                area_of[slot] = wp.clamp(sign * area_in_pixel(a, b, c, x, y), ZERO, ONE)
                nearness_of[slot] = (w_a * near_a + w_b * near_b + w_c * near_c) / (w_a + w_b + w_c)


@wp.func
def comes_first(near_a: wp.float64, face_a: wp.int32, near_b: wp.float64, face_b: wp.int32) -> bool:
    """Return whether the first of two fragments is in front; of equally near ones, in one plane, that of the earlier
    face.
    """
    tolerance = wp.float64(1.0e-9) * near_b
    return near_a > near_b + tolerance or (near_a >= near_b - tolerance and face_a < face_b)


@wp.kernel
def sort_fragments(
    start: wp.array(dtype=wp.int32),
    face_of: wp.array(dtype=wp.int32),
    area_of: wp.array(dtype=wp.float64),
    nearness_of: wp.array(dtype=wp.float64),
) -> None:
    """Run one thread a pixel of [B * H * W]: its fragments [start, start + 1) from front to back."""
    pixel = wp.tid()
    first, end = start[pixel], start[pixel + 1]
    for k in range(first + 1, end):
        face = face_of[k]
        area = area_of[k]
        nearness = nearness_of[k]
        j = wp.int32(k)
        while j > first:
            if not comes_first(nearness, face, nearness_of[j - 1], face_of[j - 1]):
                break
            face_of[j] = face_of[j - 1]
            area_of[j] = area_of[j - 1]
            nearness_of[j] = nearness_of[j - 1]
            j = j - 1
        face_of[j] = face
        area_of[j] = area
        nearness_of[j] = nearness


@wp.kernel
def composite(
    start: wp.array(dtype=wp.int32),
    face_of: wp.array(dtype=wp.int32),
    row_of: wp.array(dtype=wp.int32),
    area_of: wp.array(dtype=wp.float64),
    colors: wp.array2d(dtype=wp.float64),
    image: wp.array2d(dtype=wp.float64),
    coverage: wp.array(dtype=wp.float64),
) -> None:
    """Run one thread a pixel of [B * H * W]: each of its sorted fragments takes the area that it has, as far as those
    before it left any. row_of: where in `colors` [R, C] the colour of a fragment is.
    """
    pixel = wp.tid()
    free = wp.float64(1.0)
    for k in range(start[pixel], start[pixel + 1]):
        taken = wp.min(area_of[k], free)
        if taken > ZERO:
            for channel in range(colors.shape[1]):
                image[pixel, channel] = image[pixel, channel] + taken * colors[row_of[k], channel]
            free = free - taken
    coverage[pixel] = ONE - free


@wp.func
def add_edge(
    grad: wp.array3d(dtype=wp.float64),
    image: int,
    first: int,
    last: int,
    a: wp.vec3d,
    b: wp.vec3d,
    x: wp.float64,
    y: wp.float64,
    weight: wp.float64,
) -> None:
    """Add what the area in a pixel gains when the ends of an edge move.

    Only its part within the pixel counts; a point of it that moves by v gains v . n (Reynolds' transport theorem), and
    v goes linearly from one end to the other.
    """
    along_x, along_y = b[0] - a[0], b[1] - a[1]
    enter, leave = wp.float64(0.0), wp.float64(1.0)
    if along_x != ZERO:
        p, q = (x - a[0]) / along_x, (x + ONE - a[0]) / along_x
        enter, leave = wp.max(enter, wp.min(p, q)), wp.min(leave, wp.max(p, q))
    elif a[0] < x or a[0] >= x + ONE:
        return
    if along_y != ZERO:
        p, q = (y - a[1]) / along_y, (y + ONE - a[1]) / along_y
        enter, leave = wp.max(enter, wp.min(p, q)), wp.min(leave, wp.max(p, q))
    elif a[1] < y or a[1] >= y + ONE:
        return
    if leave > enter:
        of_last = HALF * (leave * leave - enter * enter) * weight
        of_first = (leave - enter) * weight - of_last
        wp.atomic_add(grad, image, first, 0, of_first * along_y)
        wp.atomic_add(grad, image, first, 1, -of_first * along_x)
        wp.atomic_add(grad, image, last, 0, of_last * along_y)
        wp.atomic_add(grad, image, last, 1, -of_last * along_x)


@wp.kernel
def composite_adjoint(
    start: wp.array(dtype=wp.int32),
    face_of: wp.array(dtype=wp.int32),
    row_of: wp.array(dtype=wp.int32),
    area_of: wp.array(dtype=wp.float64),
    colors: wp.array2d(dtype=wp.float64),
    corners: wp.array2d(dtype=wp.vec3d),
    faces: wp.array(dtype=wp.vec3i),
    width: int,
    pixels: int,
    by_image: wp.array2d(dtype=wp.float64),
    by_coverage: wp.array(dtype=wp.float64),
    grad_corners: wp.array3d(dtype=wp.float64),
    grad_colors: wp.array2d(dtype=wp.float64),
) -> None:
    """Run one thread a pixel: gradients for corners [B, V, 2] and colours [R, C] from those of `composite`'s outputs.

    The fragment that fills the pixel takes what is left: its own area does not count, and what those before it gain it
    loses.
    """
    pixel = wp.tid()
    image = pixel // pixels
    x, y = wp.float64(pixel % width), wp.float64((pixel % pixels) // width)
    first, end = start[pixel], start[pixel + 1]
    free, filling, of_filling = wp.float64(1.0), wp.int32(end), wp.float64(0.0)
    for k in range(first, end):
        taken = wp.min(area_of[k], free)
        if taken > ZERO:
            gain = by_coverage[pixel] + ZERO
            for channel in range(colors.shape[1]):
                slope = by_image[pixel, channel]
                gain = gain + slope * colors[row_of[k], channel]
                wp.atomic_add(grad_colors, row_of[k], channel, taken * slope)
            if area_of[k] >= free and filling == end:
                filling, of_filling = k, gain
            free = free - taken
    for k in range(first, wp.min(filling, end)):
        if area_of[k] > ZERO and area_of[k] < ONE:
            gain = by_coverage[pixel] - of_filling
            for channel in range(colors.shape[1]):
                gain = gain + by_image[pixel, channel] * colors[row_of[k], channel]
            i, j, m = faces[face_of[k]][0], faces[face_of[k]][1], faces[face_of[k]][2]
            a, b, c = corners[image, i], corners[image, j], corners[image, m]
            gain = gain * wp.sign(edge(a, b, c[0], c[1]))
            add_edge(grad_corners, image, i, j, a, b, x, y, gain)
            add_edge(grad_corners, image, j, m, b, c, x, y, gain)
            add_edge(grad_corners, image, m, i, c, a, x, y, gain)
