"""Z-buffer rasterisation, no gradients: one thread a face, pixel centres at integers."""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp

wp.set_module_options({"enable_backward": False})


@wp.func
def edge(a: wp.vec3d, b: wp.vec3d, x: wp.float64, y: wp.float64) -> wp.float64:
    """Return twice the signed area of the triangle a, b, (x, y) in pixels."""
    return (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])


@wp.func
def narrow(span: wp.vec2d, a: wp.vec3d, b: wp.vec3d, share: wp.float64, y: wp.float64) -> wp.vec2d:
    """Return the part of a span of columns that lies on the inner side of the edge a, b, and a pixel more: rounding."""
    slope = -share * (b[1] - a[1])
    low, high = span[0], span[1]
    if slope != wp.float64(0.0):
        crossing = a[0] + (y - a[1]) * (b[0] - a[0]) / (b[1] - a[1])
        if slope > wp.float64(0.0):
            low = wp.max(low, crossing - wp.float64(1.0))
        else:
            high = wp.min(high, crossing + wp.float64(1.0))
    return wp.vec2d(low, high)


@wp.kernel
def draw(
    vertices: wp.array(dtype=wp.vec3d),
    faces: wp.array(dtype=wp.vec3i),
    near: wp.float64,
    second_pass: int,
    nearness: wp.array2d(dtype=wp.float64),
    face_id: wp.array2d(dtype=wp.int32),
) -> None:
    """Draw in two passes. First pass: largest 1 / z of each pixel. Second pass: the lowest index of the faces that have
    it.

    vertices: x, y in pixels and z [m]. Degenerate faces and those not wholly before the camera are skipped.
    """
    face = wp.tid()
    a, b, c = vertices[faces[face][0]], vertices[faces[face][1]], vertices[faces[face][2]]
    area = edge(a, b, c[0], c[1])
    zero = wp.float64(0.0)
    if wp.min(wp.min(a[2], b[2]), c[2]) > near and area != zero:
        last_x, last_y = wp.float64(nearness.shape[1] - 1), wp.float64(nearness.shape[0] - 1)
        columns = wp.vec2d(
            wp.clamp(wp.min(wp.min(a[0], b[0]), c[0]), zero, last_x + wp.float64(1.0)),
            wp.clamp(wp.max(wp.max(a[0], b[0]), c[0]), wp.float64(-1.0), last_x),
        )
        y_low = wp.int32(wp.ceil(wp.clamp(wp.min(wp.min(a[1], b[1]), c[1]), zero, last_y + wp.float64(1.0))))
        y_high = wp.int32(wp.floor(wp.clamp(wp.max(wp.max(a[1], b[1]), c[1]), wp.float64(-1.0), last_y)))
        share = wp.float64(1.0) / area
        # 1 / z is linear in the image
        near_a, near_b, near_c = wp.float64(1.0) / a[2], wp.float64(1.0) / b[2], wp.float64(1.0) / c[2]
        for row in range(y_low, y_high + 1):
            y = wp.float64(row)
            span = narrow(narrow(narrow(columns, a, b, share, y), b, c, share, y), c, a, share, y)
            for column in range(wp.int32(wp.ceil(span[0])), wp.int32(wp.floor(span[1])) + 1):
                x = wp.float64(column)
                w_a, w_b, w_c = share * edge(b, c, x, y), share * edge(c, a, x, y), share * edge(a, b, x, y)
                if w_a >= zero and w_b >= zero and w_c >= zero:
                    value = w_a * near_a + w_b * near_b + w_c * near_c
                    if second_pass == 0:
                        wp.atomic_max(nearness, row, column, value)
                    elif value == nearness[row, column]:
                        wp.atomic_min(face_id, row, column, face)
