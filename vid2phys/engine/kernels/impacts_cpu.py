"""Rollouts of one rigid body over a plane as Numba loops: free flight, impacts at their own time, sliding and rest.

Everything is per kilogram of the body, in the axes of the body. A step is a flight (Runge-Kutta) or, where points
touch, a step at the level of velocities (Moreau, "Unilateral contact and dry friction in finite freedom dynamics",
1988). A step in which a further point would pass through the plane ends where this point touches. The impulses of an
impact obey Newton's law at each touching point and Coulomb's law of friction; projected Gauss-Seidel sweeps solve for
both (Jourdan, Alart and Jean, "A Gauss-Seidel like algorithm to solve frictional contact problems", 1998).
"""

# Numba infers the types itself.
# mypy: ignore-errors

from __future__ import annotations

import math

import numba
import numpy as np

with_memory = numba.njit(cache=True, error_model="numpy", nogil=True)
# Without the reference counts of arrays, which take half of the time. Such a function must not make an array.
compiled = numba.njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
# columns of the parameters of a rollout
MU, RESTITUTION, ROLLING, GRAVITY, DOWN, NORMAL, OFFSET, INERTIA = (
    0,
    1,
    2,
    3,
    slice(4, 7),
    slice(7, 10),
    10,
    slice(11, 14),
)
COLUMNS = 14
# columns of what happens in an interval of a rollout
NORMAL_IMPULSE, FRICTION_IMPULSE, TIME, APPROACH, IMPACTS, SLIDING = range(6)
EVENTS = 6
_FLIGHT_S, _CONTACT_S = 4e-3, 2e-3  # longest steps
_SAME_M = 2e-5  # points within this height of the plane touch
_EXACT_M, _EXACT_S = 1e-9, 1e-13  # how near a point is to the plane at the time of an impact, and its time
SLOW_M_S = 0.01  # points that approach more slowly do not rebound
_SETTLED = 1e-9  # m/s, change of an impulse
_SOFT, _PASSES = 1e-2, 4  # share of an impulse by which a point gives way, and passes at an impact, which take it back
_ROUNDS, _SWEEPS, _NEWTONS = 20, 5, 6
_MOST_EVENTS = 400  # in an interval
_SLIDES = 0.98  # share of the largest friction from which on a body slides
_STILL = 1e-7  # m/s below which a body that touches stays as it is
_SINK = 0.2  # share of a penetration that a step takes back


@compiled
def _copy(values, out):
    """Fill `out` [N] with values [N]; a loop, as the assignment of slices takes memory."""
    for i in range(len(values)):
        out[i] = values[i]


@compiled
def _copy_rows(values, count, out):
    """Fill the first `count` rows of `out` [N, 3] with those of values [N, 3]."""
    for i in range(count):
        for k in range(3):
            out[i, k] = values[i, k]


@compiled
def _rotate(w, x, y, z, v0, v1, v2):
    """Return a vector rotated by a quaternion wxyz."""
    tx, ty, tz = 2.0 * (y * v2 - z * v1), 2.0 * (z * v0 - x * v2), 2.0 * (x * v1 - y * v0)
    return v0 + w * tx + y * tz - z * ty, v1 + w * ty + z * tx - x * tz, v2 + w * tz + x * ty - y * tx


@compiled
def _in_body(state, v):
    """Return a vector of the world in the axes of the body."""
    return _rotate(state[3], -state[4], -state[5], -state[6], v[0], v[1], v[2])


@compiled
def _spin(w0, w1, w2, inertia):
    """Return the angular acceleration without a torque, by Euler's equations."""
    return (
        (inertia[1] - inertia[2]) * w1 * w2 / inertia[0],
        (inertia[2] - inertia[0]) * w2 * w0 / inertia[1],
        (inertia[0] - inertia[1]) * w0 * w1 / inertia[2],
    )


@compiled
def _turn_by(state, r0, r1, r2, out):
    """Fill the quaternion of `out` with that of `state` after a rotation vector in the axes of the body."""
    angle = math.sqrt(r0 * r0 + r1 * r1 + r2 * r2)
    s = 0.5 if angle < 1e-9 else math.sin(0.5 * angle) / angle
    c, x, y, z = math.cos(0.5 * angle), s * r0, s * r1, s * r2
    q0, q1, q2, q3 = state[3], state[4], state[5], state[6]
    a = q0 * c - q1 * x - q2 * y - q3 * z
    b = q0 * x + q1 * c + q2 * z - q3 * y
    d = q0 * y - q1 * z + q2 * c + q3 * x
    e = q0 * z + q1 * y - q2 * x + q3 * c
    size = 1.0 / math.sqrt(a * a + b * b + d * d + e * e)
    out[3], out[4], out[5], out[6] = size * a, size * b, size * d, size * e


@compiled
def _fly(state, h, g, inertia, out):
    """Fill `out` [13] with the state after a free flight of h seconds; g: acceleration [3]."""
    for k in range(3):
        out[k] = state[k] + h * state[7 + k] + 0.5 * h * h * g[k]
        out[7 + k] = state[7 + k] + h * g[k]
    w0, w1, w2 = state[10], state[11], state[12]
    a0, a1, a2 = _spin(w0, w1, w2, inertia)
    b0, b1, b2 = _spin(w0 + 0.5 * h * a0, w1 + 0.5 * h * a1, w2 + 0.5 * h * a2, inertia)
    c0, c1, c2 = _spin(w0 + 0.5 * h * b0, w1 + 0.5 * h * b1, w2 + 0.5 * h * b2, inertia)
    d0, d1, d2 = _spin(w0 + h * c0, w1 + h * c1, w2 + h * c2, inertia)
    l0 = w0 + h / 6.0 * (a0 + 2.0 * b0 + 2.0 * c0 + d0)
    l1 = w1 + h / 6.0 * (a1 + 2.0 * b1 + 2.0 * c1 + d1)
    l2 = w2 + h / 6.0 * (a2 + 2.0 * b2 + 2.0 * c2 + d2)
    m0, m1, m2 = w0 + 0.25 * h * (a0 + b0), w1 + 0.25 * h * (a1 + b1), w2 + 0.25 * h * (a2 + b2)
    bend = h * h / 12.0  # Magnus' expansion of fourth order
    r0 = h / 6.0 * (w0 + 4.0 * m0 + l0) + bend * (w1 * l2 - w2 * l1)
    r1 = h / 6.0 * (w1 + 4.0 * m1 + l1) + bend * (w2 * l0 - w0 * l2)
    r2 = h / 6.0 * (w2 + 4.0 * m2 + l2) + bend * (w0 * l1 - w1 * l0)
    _turn_by(state, r0, r1, r2, out)
    out[10], out[11], out[12] = l0, l1, l2


@compiled
def _solve(work, count, mu, passes):
    """Move the velocities of `work` by the impulses of the touching points, and note these.

    Points are softer than the laws by `_SOFT`, so that one share of the load solves them: four corners share it evenly.
    Each pass but the first takes back what softness left of the one before (proximal points: Rockafellar, "Monotone
    operators and the proximal point algorithm", 1976).
    """
    _, _, rows, weights, _, impulses, before, _ = work
    for c in range(count):
        across = 0.0
        for a in range(3):
            yielding = 0.0
            for k in range(6):
                yielding += rows[c, a, k] ** 2
            impulses[c, a] = 0.0
            if a == 0:
                weights[c, 0] = 1.0 / yielding
            else:
                across += yielding
        weights[c, 1] = weights[c, 2] = 1.0 / (across - 1.0)  # the larger of two eigenvalues, each is 1 at least
    for _ in range(passes):
        _copy_rows(impulses, count, before)
        _settle(work, count, mu)


@compiled
def _settle(work, count, mu):
    """Solve for velocities and impulses by sweeps, and by Newton's method where it is nearer than they are."""
    v, _, _, _, _, impulses, _, newton = work
    steps, v_before, before = newton[0], newton[4], newton[5]
    for _ in range(_ROUNDS):
        for _ in range(_SWEEPS):
            left = _sweep(work, count, mu, True)
            if left < _SETTLED:
                return
        left = _sweep(work, count, mu, False)
        for _ in range(_NEWTONS):
            _copy(v, v_before)
            _copy_rows(impulses, count, before)
            _newton(work, count, mu)
            for c in range(count):
                _push(work, c, max(steps[c, 0], -impulses[c, 0]), steps[c, 1], steps[c, 2])
            after = _sweep(work, count, mu, False)
            if after < _SETTLED:
                return
            if not after < left:
                _copy(v_before, v)
                _copy_rows(before, count, impulses)
                break
            left = after


@compiled
def _sweep(work, count, mu, moves):
    """Return the largest change of an impulse to what the laws ask for, and make the changes where it `moves`."""
    impulses, change = work[5], 0.0
    for c in range(count):
        pn, ps, pt = _asked(work, c)
        pn, length = max(0.0, pn), math.sqrt(ps * ps + pt * pt)
        if length > mu * pn:
            ps *= mu * pn / length
            pt *= mu * pn / length
        dn, ds, dt = pn - impulses[c, 0], ps - impulses[c, 1], pt - impulses[c, 2]
        change = max(change, abs(dn), abs(ds), abs(dt))
        if moves:
            _push(work, c, dn, ds, dt)
    return change


@compiled
def _asked(work, c):
    """Return the impulses at which a point would neither approach nor slide."""
    _, _, _, weights, targets, impulses, before, _ = work
    n = impulses[c, 0] - weights[c, 0] * (_speed(work, c, 0) - targets[c])
    s = impulses[c, 1] - weights[c, 1] * _speed(work, c, 1)
    t = impulses[c, 2] - weights[c, 2] * _speed(work, c, 2)
    return (
        n + _SOFT * (before[c, 0] - impulses[c, 0]),
        s + _SOFT * (before[c, 1] - impulses[c, 1]),
        t + _SOFT * (before[c, 2] - impulses[c, 2]),
    )


@compiled
def _newton(work, count, mu):
    """Fill the steps of Newton's method for the impulses, by a linear system for the six velocities.

    Source: Alart and Curnier, "A mixed formulation for frictional contact problems prone to Newton like solution
    methods", 1991.
    """
    _, _, rows, weights, _, impulses, _, newton = work
    steps, by_v, matrix, of_v = newton[0], newton[1], newton[2], newton[3]
    matrix[:], of_v[:] = 0.0, 0.0
    for k in range(6):
        matrix[k, k] = 1.0
    for c in range(count):
        n, s, t = _asked(work, c)
        if n <= 0.0:
            by_v[c] = 0.0
            for a in range(3):
                steps[c, a] = -impulses[c, a]
        else:
            length, most = math.sqrt(s * s + t * t), mu * n
            steps[c, 0] = (n - impulses[c, 0]) / _SOFT
            for k in range(6):
                by_v[c, 0, k] = weights[c, 0] * rows[c, 0, k] / _SOFT
            if length <= most:
                steps[c, 1], steps[c, 2] = (s - impulses[c, 1]) / _SOFT, (t - impulses[c, 2]) / _SOFT
                for k in range(6):
                    by_v[c, 1, k] = weights[c, 1] * rows[c, 1, k] / _SOFT
                    by_v[c, 2, k] = weights[c, 2] * rows[c, 2, k] / _SOFT
            else:  # along the direction of sliding the limit of friction counts, across it the direction itself
                s, t, share = s / length, t / length, most / length
                along = most - s * impulses[c, 1] - t * impulses[c, 2] + mu * (1.0 - _SOFT) * steps[c, 0]
                stiff = 1.0 / (1.0 - (1.0 - _SOFT) * share)
                across = stiff * (t * impulses[c, 1] - s * impulses[c, 2])
                steps[c, 1], steps[c, 2] = s * along - t * across, t * along + s * across
                for k in range(6):
                    along = mu * ((1.0 - _SOFT) * by_v[c, 0, k] + weights[c, 0] * rows[c, 0, k])
                    across = stiff * share * weights[c, 1] * (s * rows[c, 2, k] - t * rows[c, 1, k])
                    by_v[c, 1, k], by_v[c, 2, k] = s * along - t * across, t * along + s * across
        for a in range(3):
            for k in range(6):
                of_v[k] += rows[c, a, k] * steps[c, a]
                for j in range(6):
                    matrix[k, j] += rows[c, a, k] * by_v[c, a, j]
    _eliminate(matrix, of_v)
    for c in range(count):
        for a in range(3):
            for k in range(6):
                steps[c, a] -= by_v[c, a, k] * of_v[k]


@compiled
def _eliminate(matrix, values):
    """Replace `values` [N] by the solution of a linear system whose diagonal is large; `matrix` is lost."""
    size = len(values)
    for i in range(size):
        for r in range(i + 1, size):
            share = matrix[r, i] / matrix[i, i]
            values[r] -= share * values[i]
            for k in range(i, size):
                matrix[r, k] -= share * matrix[i, k]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            values[i] -= matrix[i, k] * values[k]
        values[i] /= matrix[i, i]


@compiled
def _speed(work, c, a):
    """Return the velocity of a touching point along an axis of the plane."""
    v, rows, speed = work[0], work[2], 0.0
    for k in range(6):
        speed += v[k] * rows[c, a, k]
    return speed


@compiled
def _push(work, c, dn, ds, dt):
    """Add impulses at a touching point, along the normal and both tangents."""
    v, rows, impulses = work[0], work[2], work[5]
    impulses[c, 0] += dn
    impulses[c, 1] += ds
    impulses[c, 2] += dt
    for k in range(6):
        v[k] += dn * rows[c, 0, k] + ds * rows[c, 1, k] + dt * rows[c, 2, k]


@compiled
def _load(state, h, g, inertia, frame, touching, count, points, radius, work):
    """Fill `work` by a state after h seconds without contact. frame: [3, 3] of the plane.

    Velocities v [6] are along the axes of the plane, then angular ones times the root of the inertia. rows [count, 3,
    6] are the change of v by a unit impulse at a touching point along an axis of the plane.
    """
    v, axes, rows = work[0], work[1], work[2]
    for a in range(3):
        axes[a, 0], axes[a, 1], axes[a, 2] = _in_body(state, frame[a])
        v[a] = 0.0
        for k in range(3):
            v[a] += frame[a, k] * (state[7 + k] + h * g[k])
    spin = _spin(state[10], state[11], state[12], inertia)
    for k in range(3):
        root = math.sqrt(inertia[k])
        v[3 + k] = root * (state[10 + k] + h * spin[k])
        i, j = (k + 1) % 3, (k + 2) % 3
        for c in range(count):
            one = points[touching[c], i] - radius * axes[0, i]
            two = points[touching[c], j] - radius * axes[0, j]
            for a in range(3):
                rows[c, a, k] = 1.0 if a == k else 0.0
                rows[c, a, 3 + k] = (one * axes[a, j] - two * axes[a, i]) / root


@compiled
def _unload(work, inertia, frame, out):
    """Fill the velocities of `out` [13] with those of `work`."""
    v = work[0]
    for k in range(3):
        out[7 + k] = v[0] * frame[0, k] + v[1] * frame[1, k] + v[2] * frame[2, k]
        out[10 + k] = v[3 + k] / math.sqrt(inertia[k])


@compiled
def _heights(state, points, radius, frame, offset, heights):
    """Fill `heights` [K] of the points above the plane, and return the least."""
    n0, n1, n2 = _in_body(state, frame[0])
    base = state[0] * frame[0, 0] + state[1] * frame[0, 1] + state[2] * frame[0, 2] - offset - radius
    least = np.inf
    for i in range(len(points)):
        heights[i] = base + n0 * points[i, 0] + n1 * points[i, 1] + n2 * points[i, 2]
        least = min(least, heights[i])
    return least


@compiled
def _rest(state, h, touching, count, heights, points, reach, radius, p, g, frame, uneven, work, out, events):
    """Fill `out` [13] with the state after h seconds in which points touch without a rebound.

    uneven: torque about the normal of a body that slides, over friction times reach: which of four corners bear how
    much of the load is not determined, and rotates the body.
    """
    inertia = p[INERTIA]
    _load(state, h, g, inertia, frame, touching, count, points, radius, work)
    axes, targets, impulses = work[1], work[4], work[5]
    lift = 0.0
    for c in range(count):
        height = heights[touching[c]]
        targets[c] = -max(height, 0.0) / h
        lift = max(lift, -_SINK * height)
    _solve(work, count, p[MU], 1)
    _unload(work, inertia, frame, out)
    pressed, friction = _sums(impulses, count)
    slides = friction > _SLIDES * p[MU] * pressed
    if slides and count > 1:
        for k in range(3):
            out[10 + k] += uneven * friction * reach * axes[0, k] / inertia[k]
    if p[ROLLING] > 0.0 and radius > 0.0:
        _roll(out, axes, inertia, p[ROLLING] * pressed * radius)
    # along the plane the mean velocity counts, across it the last one
    up = lift
    for k in range(3):
        up += 0.5 * h * (out[7 + k] - state[7 + k]) * frame[0, k]
    for k in range(3):
        out[k] = state[k] + 0.5 * h * (state[7 + k] + out[7 + k]) + up * frame[0, k]
    _turn_by(state, h * out[10], h * out[11], h * out[12], out)
    events[NORMAL_IMPULSE] = pressed
    events[FRICTION_IMPULSE] = friction
    events[SLIDING] = h if slides else 0.0


@compiled
def _sums(impulses, count):
    """Return the size of the sums of normal and of friction impulses."""
    n, s, t = 0.0, 0.0, 0.0
    for c in range(count):
        n += impulses[c, 0]
        s += impulses[c, 1]
        t += impulses[c, 2]
    return n, math.sqrt(s * s + t * t)


@compiled
def _roll(state, axes, inertia, torque):
    """Slow down the rolling of a ball by an angular impulse of at most `torque`."""
    s = axes[1, 0] * state[10] + axes[1, 1] * state[11] + axes[1, 2] * state[12]
    t = axes[2, 0] * state[10] + axes[2, 1] * state[11] + axes[2, 2] * state[12]
    rate = math.sqrt(s * s + t * t)
    if rate < 1e-12:
        return
    share = min(1.0, torque / (inertia[0] * rate))
    for k in range(3):
        state[10 + k] -= share * (s * axes[1, k] + t * axes[2, k])


@compiled
def _rebound(state, touching, count, points, radius, p, frame, slack, work, events):
    """Change the velocities of `state` by the impulses of an impact; the first three of `slack` depart from the law."""
    inertia = p[INERTIA]
    _load(state, 0.0, frame[0], inertia, frame, touching, count, points, radius, work)
    targets, impulses = work[4], work[5]
    fastest = 0.0
    for c in range(count):
        vn = _speed(work, c, 0)
        targets[c] = -p[RESTITUTION] * vn if vn < -SLOW_M_S else 0.0
        fastest = max(fastest, -vn)
    _solve(work, count, p[MU], _PASSES)
    pressed, friction = _sums(impulses, count)
    for c in range(count):
        pn = impulses[c, 0]
        rubs = min(p[MU], 1.0) * pn  # what friction can give
        _push(work, c, slack[0] * pn, slack[1] * rubs, slack[2] * rubs)
    _unload(work, inertia, frame, state)
    events[NORMAL_IMPULSE] += pressed
    events[FRICTION_IMPULSE] += friction
    events[IMPACTS] += 1.0
    events[APPROACH] = max(events[APPROACH], fastest)


@with_memory
def _frame_of(normal):
    """Return the normal of the plane and two axes across it, [3, 3]."""
    out = np.zeros((3, 3))
    k = int(np.argmin(np.abs(normal)))
    out[0] = normal
    out[1, k] = 1.0
    out[1] -= (out[1] @ normal) * normal
    out[1] /= math.sqrt(out[1] @ out[1])
    out[2] = np.cross(normal, out[1])
    return out


@compiled
def _interval(state, length, points, reach, radius, p, g, frame, slack, work, lists, events):
    """Advance `state` [13] in place by an interval of `length` seconds, and note in `events` what happens."""
    heights, _, touching, is_touching, trial, idle = lists
    count, offset = len(points), p[OFFSET]
    done, happened = 0.0, 0
    while done < length - 1e-12:
        left = length - done
        least = _heights(state, points, radius, frame, offset, heights)
        speed = math.sqrt(state[7] ** 2 + state[8] ** 2 + state[9] ** 2)
        speed += reach * math.sqrt(state[10] ** 2 + state[11] ** 2 + state[12] ** 2)
        h = min(left, _FLIGHT_S)
        if least > (speed + p[GRAVITY] * h) * h:  # nothing can touch
            _fly(state, h, g, p[INERTIA], trial)
            _copy(trial, state)
            done += h
            continue
        h = min(left, _CONTACT_S)
        found = 0
        for i in range(count):
            is_touching[i] = heights[i] < _SAME_M
            if is_touching[i]:
                touching[found] = i
                found += 1
        if found > 0 and happened < _MOST_EVENTS and _hits(state, touching, found, points, radius, p, frame, work):
            if events[IMPACTS] == 0.0:
                events[TIME] = done
            _rebound(state, touching, found, points, radius, p, frame, slack, work, events)
            happened += 1
        stops = happened < _MOST_EVENTS
        h, rests = _until_touch(state, h, found, stops, points, reach, radius, p, g, frame, slack[3], work, lists)
        _copy(trial, state)
        done += h
        if rests:
            events[SLIDING] += idle[SLIDING]
            events[NORMAL_IMPULSE] += idle[NORMAL_IMPULSE]
            events[FRICTION_IMPULSE] += idle[FRICTION_IMPULSE]
            speed = state[7] ** 2 + state[8] ** 2 + state[9] ** 2
            speed += reach**2 * (state[10] ** 2 + state[11] ** 2 + state[12] ** 2)
            if speed < _STILL**2:
                break


@compiled
def _until_touch(state, h, found, stops, points, reach, radius, p, g, frame, uneven, work, lists):
    """Fill the trial state by a step of at most h seconds, which ends where a further point touches.

    stops: whether it ends there. Returns the seconds, and whether the body rests on the points that touch. The time is
    found by regula falsi (Illinois).
    """
    heights, later, touching, is_touching, trial, idle = lists
    rests, short, long, above, below, side = False, 0.0, h, np.inf, 0.0, 0
    for i in range(len(points)):
        if not is_touching[i]:
            above = min(above, heights[i])
    begun = above
    for _ in range(60):
        if rests:
            idle[:] = 0.0
            _rest(
                *(state, h, touching, found, heights, points, reach, radius, p, g, frame, uneven, work),
                *(trial, idle),
            )
        else:
            _fly(state, h, g, p[INERTIA], trial)
        _heights(trial, points, radius, frame, p[OFFSET], later)
        lowest, falls = np.inf, False
        for i in range(len(points)):
            if is_touching[i]:
                falls |= later[i] < min(heights[i], 0.0)
            else:
                lowest = min(lowest, later[i])
        if falls and not rests:
            rests, short, long, above, below, side = True, 0.0, h, begun, 0.0, 0
            continue
        if not stops or abs(lowest) <= _EXACT_M or (lowest > 0.0 and below == 0.0) or long - short < _EXACT_S:
            break
        if lowest < 0.0:
            above *= 0.5 if side < 0 else 1.0
            long, below, side = h, lowest, -1
        else:
            below *= 0.5 if side > 0 else 1.0
            short, above, side = h, lowest, 1
        h = short + (long - short) * above / (above - below)
    return h, rests


@compiled
def _hits(state, touching, count, points, radius, p, frame, work):
    """Return whether a touching point approaches fast enough to rebound."""
    _load(state, 0.0, frame[0], p[INERTIA], frame, touching, count, points, radius, work)
    least = 0.0
    for c in range(count):
        least = min(least, _speed(work, c, 0))
    return least < -SLOW_M_S


@with_memory
def rollouts(starts, lengths_s, points, radius, parameters, slack, states, events):
    """Fill states [B, F, 13] and events [B, F - 1, EVENTS] from starts [B, 13].

    lengths_s: [B, F - 1]. points: [K, 3] m. parameters: [B, COLUMNS]. slack: [B, F - 1, 4].
    """
    reach, count = 0.0, len(points)
    for i in range(count):
        reach = max(reach, math.sqrt(points[i, 0] ** 2 + points[i, 1] ** 2 + points[i, 2] ** 2))
    reach += radius
    work = (
        *(np.empty(6), np.empty((3, 3)), np.empty((count, 3, 6)), np.empty((count, 3)), np.empty(count)),
        *(np.empty((count, 3)), np.empty((count, 3))),
        (
            *(np.empty((count, 3)), np.empty((count, 3, 6)), np.empty((6, 6)), np.empty(6), np.empty(6)),
            np.empty((count, 3)),
        ),
    )
    lists = (
        *(np.empty(count), np.empty(count), np.empty(count, np.int64), np.zeros(count, np.bool_), np.empty(13)),
        np.zeros(EVENTS),
    )
    for b in range(len(starts)):
        state, p = starts[b].copy(), parameters[b]
        g, frame = p[GRAVITY] * p[DOWN], _frame_of(p[NORMAL])
        least = _heights(state, points, radius, frame, p[OFFSET], lists[0])
        state[:3] -= min(least, 0.0) * frame[0]  # nothing starts in the ground
        states[b, 0] = state
        for f in range(lengths_s.shape[1]):
            length = lengths_s[b, f]
            _interval(state, length, points, reach, radius, p, g, frame, slack[b, f], work, lists, events[b, f])
            states[b, f + 1] = state
