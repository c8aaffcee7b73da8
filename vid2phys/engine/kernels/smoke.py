"""The kernels of a step of smoke, one thread a cell of a row of the batch. Layouts: `systems/smoke.py`.

Fields are flat: cell (k, i) of the n x n grid, k upwards, is entry k n + i of its field. A staggered grid: entry (k, i)
of u is on the left face of the cell, that of v on its lower face, that of the density in its middle.
"""

# Warp's language in Python's clothes: annotations are calls, and Warp checks the types itself.
# mypy: ignore-errors

from __future__ import annotations

from vid2phys.engine.kernels.runtime import wp


@wp.func
def at(fields: wp.array2d(dtype=wp.float64), row: int, field: int, n: int, k: int, i: int) -> wp.float64:
    """Return one entry of a field; k and i are at most n beyond the grid."""
    return fields[row, (field * n + (k + n) % n) * n + (i + n) % n]


@wp.func
def interpolated(
    fields: wp.array2d(dtype=wp.float64), row: int, field: int, n: int, z: wp.float64, x: wp.float64
) -> wp.float64:
    """Return the bilinear interpolation in the entries about the place (z, x), counted in entries from entry (0, 0)."""
    size = wp.float64(n)
    z_in, x_in = z - size * wp.floor(z / size), x - size * wp.floor(x / size)
    # clamped for z_in = n, which rounding can make, and for what is not finite, which has to show and not to crash
    k, i = wp.clamp(int(wp.floor(z_in)), 0, n - 1), wp.clamp(int(wp.floor(x_in)), 0, n - 1)
    up, right = z_in - wp.float64(k), x_in - wp.float64(i)
    down, left = wp.float64(1.0) - up, wp.float64(1.0) - right
    lower = left * at(fields, row, field, n, k, i) + right * at(fields, row, field, n, k, i + 1)
    upper = left * at(fields, row, field, n, k + 1, i) + right * at(fields, row, field, n, k + 1, i + 1)
    return down * lower + up * upper


@wp.func
def laplacian(fields: wp.array2d(dtype=wp.float64), row: int, field: int, n: int, k: int, i: int) -> wp.float64:
    """Sum of the four neighbours less four times the entry."""
    sideways = at(fields, row, field, n, k, i - 1) + at(fields, row, field, n, k, i + 1)
    upright = at(fields, row, field, n, k - 1, i) + at(fields, row, field, n, k + 1, i)
    return sideways + upright - wp.float64(4.0) * at(fields, row, field, n, k, i)


@wp.kernel
def accelerate(
    states: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    n: int,
    velocities: wp.array2d(dtype=wp.float64),
) -> None:
    """Apply viscosity, buoyancy and the body force over `fraction` of an interval: states to velocities [B, 2 n^2]."""
    row, k, i = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    p = wp.min(row, parameters.shape[0] - 1)
    spread = parameters[p, 1] / (parameters[p, 0] * parameters[p, 0])
    density = wp.float64(0.5) * (at(states, row, 2, n, k - 1, i) + at(states, row, 2, n, k, i))
    rate_x = spread * laplacian(states, row, 0, n, k, i) + controls[row, step, 0]
    rate_z = spread * laplacian(states, row, 1, n, k, i) + controls[row, step, 1] + parameters[p, 2] * density
    velocities[row, k * n + i] = at(states, row, 0, n, k, i) + h * rate_x
    velocities[row, (n + k) * n + i] = at(states, row, 1, n, k, i) + h * rate_z


@wp.kernel
def advect_velocity(
    states: wp.array2d(dtype=wp.float64),
    velocities: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    n: int,
    moved: wp.array2d(dtype=wp.float64),
) -> None:
    """Compute the carry `velocities` along those of the states: each face takes what was upstream of it."""
    row, k, i = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    cells = h / parameters[wp.min(row, parameters.shape[0] - 1), 0]
    quarter = wp.float64(0.25) * cells
    u, v = at(states, row, 0, n, k, i), at(states, row, 1, n, k, i)
    v_left = quarter * (v + at(states, row, 1, n, k, i - 1) + at(states, row, 1, n, k + 1, i))
    v_left += quarter * at(states, row, 1, n, k + 1, i - 1)
    u_below = quarter * (u + at(states, row, 0, n, k, i + 1) + at(states, row, 0, n, k - 1, i))
    u_below += quarter * at(states, row, 0, n, k - 1, i + 1)
    z, x = wp.float64(k), wp.float64(i)
    moved[row, k * n + i] = interpolated(velocities, row, 0, n, z - v_left, x - cells * u)
    moved[row, (n + k) * n + i] = interpolated(velocities, row, 1, n, z - cells * v, x - u_below)


@wp.kernel
def advect_density(
    states: wp.array2d(dtype=wp.float64),
    velocities: wp.array2d(dtype=wp.float64),
    parameters: wp.array2d(dtype=wp.float64),
    dt_s: wp.array2d(dtype=wp.float64),
    step: int,
    fraction: wp.float64,
    n: int,
    next_states: wp.array2d(dtype=wp.float64),
) -> None:
    """Compute the carry the states' density along the new velocities and write both."""
    row, k, i = wp.tid()
    h = fraction * dt_s[wp.min(row, dt_s.shape[0] - 1), step]
    p = wp.min(row, parameters.shape[0] - 1)
    half = wp.float64(0.5) * h / parameters[p, 0]
    u, v = at(velocities, row, 0, n, k, i), at(velocities, row, 1, n, k, i)
    x = wp.float64(i) - half * (u + at(velocities, row, 0, n, k, i + 1))
    z = wp.float64(k) - half * (v + at(velocities, row, 1, n, k + 1, i))
    next_states[row, k * n + i] = u
    next_states[row, (n + k) * n + i] = v
    density = interpolated(states, row, 2, n, z, x)
    next_states[row, (2 * n + k) * n + i] = wp.exp(-parameters[p, 3] * h) * density


@wp.kernel
def divergence(velocities: wp.array2d(dtype=wp.float64), n: int, out: wp.array2d(dtype=wp.float64)) -> None:
    """Compute the flow out of each cell, [B, 2 n^2] m/s -> [B, n^2] m/s (the divergence times the cell size)."""
    row, k, i = wp.tid()
    sideways = at(velocities, row, 0, n, k, i + 1) - at(velocities, row, 0, n, k, i)
    out[row, k * n + i] = sideways + at(velocities, row, 1, n, k + 1, i) - at(velocities, row, 1, n, k, i)


@wp.kernel
def relax(
    pressure: wp.array2d(dtype=wp.float64),
    outflow: wp.array2d(dtype=wp.float64),
    n: int,
    out: wp.array2d(dtype=wp.float64),
) -> None:
    """Do one Jacobi iteration of Poisson's equation, laplacian(pressure) = outflow."""
    row, k, i = wp.tid()
    change = laplacian(pressure, row, 0, n, k, i) - outflow[row, k * n + i]
    out[row, k * n + i] = pressure[row, k * n + i] + wp.float64(0.25) * change


@wp.kernel
def subtract_gradient(
    velocities: wp.array2d(dtype=wp.float64),
    pressure: wp.array2d(dtype=wp.float64),
    n: int,
    out: wp.array2d(dtype=wp.float64),
) -> None:
    """Subtract the pressure's gradient from the velocities, [B, 2 n^2]."""
    row, k, i = wp.tid()
    here = pressure[row, k * n + i]
    out[row, k * n + i] = velocities[row, k * n + i] - (here - at(pressure, row, 0, n, k, i - 1))
    out[row, (n + k) * n + i] = velocities[row, (n + k) * n + i] - (here - at(pressure, row, 0, n, k - 1, i))
