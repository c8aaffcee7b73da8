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

compiled = numba.njit(cache=True, error_model="numpy", nogil=True)
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
_EXACT_M = 1e-9  # how near a point is to the plane at the time of an impact
_SLOW_M_S = 0.01  # points that approach more slowly do not rebound
_SWEEPS, _SETTLED = 400, 1e-9
_MOST_EVENTS = 400  # in an interval
_SLIDES = 0.98  # share of the largest friction from which on a body slides
_STILL = 1e-7  # m/s below which a body that touches stays as it is
_SINK = 0.2  # share of a penetration that a step takes back


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
def _in_world(state, v):
    """Return a vector in the axes of the body in those of the world."""
    return _rotate(state[3], state[4], state[5], state[6], v[0], v[1], v[2])


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
def _solve(work, touching, count, points, radius, inertia, mu):
    """Move the velocities of `work` by the impulses of the touching points, and note these."""
    u, w, axes, arms, weights, targets, impulses = work
    for c in range(count):
        i = touching[c]
        impulses[c, 0] = impulses[c, 1] = impulses[c, 2] = 0.0
        for k in range(3):
            arms[c, k] = points[i, k] - radius * axes[0, k]
        across = 0.0
        for a in range(3):
            t0 = arms[c, 1] * axes[a, 2] - arms[c, 2] * axes[a, 1]
            t1 = arms[c, 2] * axes[a, 0] - arms[c, 0] * axes[a, 2]
            t2 = arms[c, 0] * axes[a, 1] - arms[c, 1] * axes[a, 0]
            yielding = 1.0 + t0 * t0 / inertia[0] + t1 * t1 / inertia[1] + t2 * t2 / inertia[2]
            if a == 0:
                weights[c, 0] = 1.0 / yielding
            else:
                across += yielding
        weights[c, 1] = 1.0 / (across - 1.0)  # the larger of two eigenvalues, of which each is 1 at least
    for _ in range(_SWEEPS):
        change = 0.0
        for c in range(count):
            vn, vs, vt = _velocity(u, w, axes, arms[c])
            pn = max(0.0, impulses[c, 0] - weights[c, 0] * (vn - targets[c]))
            ps = impulses[c, 1] - weights[c, 1] * vs
            pt = impulses[c, 2] - weights[c, 1] * vt
            length = math.sqrt(ps * ps + pt * pt)
            if length > mu * pn:
                share = mu * pn / length
                ps *= share
                pt *= share
            dn, ds, dt = pn - impulses[c, 0], ps - impulses[c, 1], pt - impulses[c, 2]
            impulses[c, 0], impulses[c, 1], impulses[c, 2] = pn, ps, pt
            _push(u, w, arms[c], axes, inertia, dn, ds, dt)
            change = max(change, abs(dn), abs(ds), abs(dt))
        if change < _SETTLED:
            break


@compiled
def _velocity(u, w, axes, arm):
    """Return the velocity of a point of the body along the normal and both tangents."""
    v0 = u[0] + w[1] * arm[2] - w[2] * arm[1]
    v1 = u[1] + w[2] * arm[0] - w[0] * arm[2]
    v2 = u[2] + w[0] * arm[1] - w[1] * arm[0]
    return (
        v0 * axes[0, 0] + v1 * axes[0, 1] + v2 * axes[0, 2],
        v0 * axes[1, 0] + v1 * axes[1, 1] + v2 * axes[1, 2],
        v0 * axes[2, 0] + v1 * axes[2, 1] + v2 * axes[2, 2],
    )


@compiled
def _push(u, w, arm, axes, inertia, dn, ds, dt):
    """Add an impulse, along the normal and both tangents, at an arm to the velocities u, w of the body."""
    p0 = dn * axes[0, 0] + ds * axes[1, 0] + dt * axes[2, 0]
    p1 = dn * axes[0, 1] + ds * axes[1, 1] + dt * axes[2, 1]
    p2 = dn * axes[0, 2] + ds * axes[1, 2] + dt * axes[2, 2]
    u[0] += p0
    u[1] += p1
    u[2] += p2
    w[0] += (arm[1] * p2 - arm[2] * p1) / inertia[0]
    w[1] += (arm[2] * p0 - arm[0] * p2) / inertia[1]
    w[2] += (arm[0] * p1 - arm[1] * p0) / inertia[2]


@compiled
def _load(state, h, g, inertia, frame, work):
    """Fill the axes and velocities of `work` by a state after h seconds without contact. frame: [3, 3] of the plane."""
    u, w, axes = work[0], work[1], work[2]
    for a in range(3):
        axes[a, 0], axes[a, 1], axes[a, 2] = _in_body(state, frame[a])
    q = state[3], -state[4], -state[5], -state[6]
    u[0], u[1], u[2] = _rotate(*q, state[7] + h * g[0], state[8] + h * g[1], state[9] + h * g[2])
    a0, a1, a2 = _spin(state[10], state[11], state[12], inertia)
    w[0], w[1], w[2] = state[10] + h * a0, state[11] + h * a1, state[12] + h * a2


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
    _load(state, h, g, inertia, frame, work)
    u, w, axes, _, _, targets, impulses = work
    lift = 0.0
    for c in range(count):
        height = heights[touching[c]]
        targets[c] = -max(height, 0.0) / h
        lift = max(lift, -_SINK * height)
    _solve(work, touching, count, points, radius, inertia, p[MU])
    pressed, friction = _sums(impulses, count)
    slides = friction > _SLIDES * p[MU] * pressed
    if slides and count > 1:
        for k in range(3):
            w[k] += uneven * friction * reach * axes[0, k] / inertia[k]
    if p[ROLLING] > 0.0 and radius > 0.0:
        _roll(w, axes, inertia, p[ROLLING] * pressed * radius)
    v0, v1, v2 = _in_world(state, u)
    # along the plane the mean velocity counts, across it the last one
    a0, a1, a2 = 0.5 * h * (v0 - state[7]), 0.5 * h * (v1 - state[8]), 0.5 * h * (v2 - state[9])
    up = a0 * frame[0, 0] + a1 * frame[0, 1] + a2 * frame[0, 2] + lift
    out[0] = state[0] + h * v0 - a0 + up * frame[0, 0]
    out[1] = state[1] + h * v1 - a1 + up * frame[0, 1]
    out[2] = state[2] + h * v2 - a2 + up * frame[0, 2]
    out[7], out[8], out[9], out[10], out[11], out[12] = v0, v1, v2, w[0], w[1], w[2]
    _turn_by(state, h * w[0], h * w[1], h * w[2], out)
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
def _roll(w, axes, inertia, torque):
    """Slow down the rolling of a ball by an angular impulse of at most `torque`."""
    s = axes[1, 0] * w[0] + axes[1, 1] * w[1] + axes[1, 2] * w[2]
    t = axes[2, 0] * w[0] + axes[2, 1] * w[1] + axes[2, 2] * w[2]
    rate = math.sqrt(s * s + t * t)
    if rate < 1e-12:
        return
    share = min(1.0, torque / (inertia[0] * rate))
    for k in range(3):
        w[k] -= share * (s * axes[1, k] + t * axes[2, k])


@compiled
def _rebound(state, touching, count, points, radius, p, frame, slack, work, events):
    """Change the velocities of `state` by the impulses of an impact; the first three of `slack` depart from the law."""
    inertia = p[INERTIA]
    _load(state, 0.0, frame[0], inertia, frame, work)
    u, w, axes, arms, _, targets, impulses = work
    fastest = 0.0
    for c in range(count):
        for k in range(3):
            arms[c, k] = points[touching[c], k] - radius * axes[0, k]
        vn = _velocity(u, w, axes, arms[c])[0]
        targets[c] = -p[RESTITUTION] * vn if vn < -_SLOW_M_S else 0.0
        fastest = max(fastest, -vn)
    _solve(work, touching, count, points, radius, inertia, p[MU])
    pressed, friction = _sums(impulses, count)
    for c in range(count):
        pn = impulses[c, 0]
        _push(u, w, arms[c], axes, inertia, slack[0] * pn, slack[1] * pn, slack[2] * pn)
    state[7], state[8], state[9] = _in_world(state, u)
    state[10], state[11], state[12] = w[0], w[1], w[2]
    events[NORMAL_IMPULSE] += pressed
    events[FRICTION_IMPULSE] += friction
    events[IMPACTS] += 1.0
    events[APPROACH] = max(events[APPROACH], fastest)


@compiled
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
    heights, later, touching, is_touching, trial, idle = lists
    count, offset = len(points), p[OFFSET]
    inertia = p[INERTIA]
    done, happened = 0.0, 0
    while done < length - 1e-12:
        left = length - done
        least = _heights(state, points, radius, frame, offset, heights)
        speed = math.sqrt(state[7] ** 2 + state[8] ** 2 + state[9] ** 2)
        speed += reach * math.sqrt(state[10] ** 2 + state[11] ** 2 + state[12] ** 2)
        h = min(left, _FLIGHT_S)
        if least > (speed + p[GRAVITY] * h) * h:  # nothing can touch
            _fly(state, h, g, inertia, trial)
            state[:] = trial
            done += h
            continue
        h = min(left, _CONTACT_S)
        found = 0
        for i in range(count):
            is_touching[i] = heights[i] < _SAME_M
            if is_touching[i]:
                touching[found] = i
                found += 1
        if found > 0 and happened < _MOST_EVENTS and _hits(state, touching, found, points, radius, frame, work):
            if events[IMPACTS] == 0.0:
                events[TIME] = done
            _rebound(state, touching, found, points, radius, p, frame, slack, work, events)
            happened += 1
        rests, short, long, bracketed = False, 0.0, h, False
        for _ in range(60):
            if rests:
                idle[:] = 0.0
                _rest(
                    *(state, h, touching, found, heights, points, reach, radius, p, g, frame, slack[3], work),
                    *(trial, idle),
                )
            else:
                _fly(state, h, g, inertia, trial)
            _heights(trial, points, radius, frame, offset, later)
            lowest, falls = np.inf, False
            for i in range(count):
                if is_touching[i]:
                    falls |= later[i] < min(heights[i], 0.0)
                elif later[i] < heights[i]:
                    lowest = min(lowest, later[i])
            if found > 0 and falls and not rests:
                rests = True
                continue
            if happened >= _MOST_EVENTS or (lowest >= -_EXACT_M and (not bracketed or lowest <= _EXACT_M)):
                break
            # find the time at which the first of the further points touches
            if lowest < 0.0:
                long, bracketed = h, True
                share = 1.0
                for i in range(count):
                    if not is_touching[i] and later[i] < 0.0 and later[i] < heights[i]:
                        share = min(share, heights[i] / (heights[i] - later[i]))
                h = max(share * h, short)
            else:
                short = h
                h = 0.5 * (short + long)
            if long - short < 1e-13:
                break
        state[:] = trial
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
def _hits(state, touching, count, points, radius, frame, work):
    """Return whether a touching point approaches fast enough to rebound."""
    _load(state, 0.0, frame[0], frame[0] + 1.0, frame, work)
    u, w, axes, arms = work[0], work[1], work[2], work[3]
    for c in range(count):
        for k in range(3):
            arms[c, k] = points[touching[c], k] - radius * axes[0, k]
        if _velocity(u, w, axes, arms[c])[0] < -_SLOW_M_S:
            return True
    return False


@compiled
def rollouts(starts, lengths_s, points, radius, parameters, slack, states, events):
    """Fill states [B, F, 13] and events [B, F - 1, EVENTS] from starts [B, 13].

    lengths_s: [B, F - 1]. points: [K, 3] m. parameters: [B, COLUMNS]. slack: [B, F - 1, 4].
    """
    reach, count = 0.0, len(points)
    for i in range(count):
        reach = max(reach, math.sqrt(points[i, 0] ** 2 + points[i, 1] ** 2 + points[i, 2] ** 2))
    reach += radius
    work = (
        *(np.empty(3), np.empty(3), np.empty((3, 3)), np.empty((count, 3)), np.empty((count, 2)), np.empty(count)),
        np.empty((count, 3)),
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
