"""The compiled loops of the contour cue beside closed forms and slow sums; see also `test_contour`."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.tracking.cues.edge_likelihood import (
    correlated_count,
    cover_lines,
    posterior,
    sample_lines,
    side_colors,
    side_ratio,
)
from vid2phys.tracking.cues.edge_steps import DescentSettings, descend, variance_level
from vid2phys.tracking.cues.foreground_edges import edge_places

SETTINGS = DescentSettings(steps=6, overconfidence=4.0, robust_sigma=3.0, min_level=0.2, max_correlated=20)


def test_variances_are_as_much_too_small_as_residuals_say() -> None:
    rng = np.random.default_rng(1)
    variance = rng.uniform(0.5, 2.0, 4000)
    residual = 3.0 * np.sqrt(variance) * rng.normal(size=4000)
    level, same = variance_level(residual, variance, 0.2, 20)
    assert level == pytest.approx(9.0, rel=0.1)
    assert same == pytest.approx(1.0, abs=0.1)
    assert variance_level(1e-3 * residual, variance, 0.2, 20)[0] == 0.2


@pytest.mark.parametrize("run", [1, 3, 8])
def test_lines_that_err_together_count_as_one(run: int) -> None:
    """Of residuals that are equal in runs of n, the autocorrelation sums to n."""
    values = np.repeat(np.random.default_rng(2).normal(size=4000), run)
    assert correlated_count(values, 60) == pytest.approx(run, rel=0.12)
    assert correlated_count(values + 0.4, 60) == pytest.approx(run, rel=0.15), "about their mean"
    if run == 8:
        assert correlated_count(values, 3) == pytest.approx(1.0 + 2.0 * (7.0 / 8.0 + 6.0 / 8.0), rel=0.03), "two lags"


def test_a_motion_leads_to_the_edges_in_steps_of_a_largest_size() -> None:
    rng = np.random.default_rng(4)
    jacobian, truth = rng.normal(size=(60, 3)), np.array([0.4, -0.2, 0.1])
    mean, variance, free = jacobian @ truth, np.full(60, 0.01), np.full(3, np.inf)
    weak, nowhere = 1e-6 * np.eye(3), np.zeros(3)
    step, information = descend(jacobian, mean, variance, weak, nowhere, free, SETTINGS)
    np.testing.assert_allclose(step, truth, atol=1e-6)
    np.testing.assert_allclose(information, jacobian.T @ jacobian / 0.01 / 0.2, rtol=1e-4)  # the least level
    most = np.array([0.01, 0.02, 0.03])
    step, _ = descend(jacobian, mean, variance, weak, nowhere, most, SETTINGS._replace(steps=2))
    np.testing.assert_allclose(step, 2.0 * most * np.sign(truth))


def test_light_along_lines_is_the_mean_of_bilinear_samples() -> None:
    v, u = np.mgrid[:20, :30]
    frame = np.stack([3 * u + 2 * v, 4 * u + v, 0 * u + 7], axis=-1).astype(np.uint8)
    table = 0.5 + 2.0 * np.arange(256.0)
    start, direction = np.array([[3.2, 4.7], [10.0, 12.0]]), np.array([[0.6, 0.8], [1.0, 0.0]])
    for samples in (1, 4):
        light, inside = sample_lines(frame, table, start, direction, 1.5, 6, samples)
        assert inside.all()
        at = start[:, None] + 1.5 * np.arange(6)[:, None] * direction[:, None]
        linear = np.stack([at @ [3.0, 2.0], at @ [4.0, 1.0], 0.0 * at[..., 0] + 7.0], axis=-1)
        np.testing.assert_allclose(light, 0.5 + 2.0 * linear, atol=1e-9)  # of a plane, any mean is that of its middle
    for begin, way in (
        ([0.0, 0.0], [-1.0, 0.0]),
        ([29.0, 5.0], [1.0, 0.0]),
        ([5.0, 19.0], [0.0, 1.0]),
        ([5.0, 0.0], [0.0, -1.0]),
    ):
        corner = np.array([begin]), np.array([way])
        assert sample_lines(frame, table, *corner, 1.0, 1, 1)[1][0]
        assert not sample_lines(frame, table, *corner, 1.0, 2, 1)[1][0]
    bent = np.zeros((3, 3, 3), np.uint8)
    bent[1, 1] = 100
    light, _ = sample_lines(bent, np.arange(256.0), np.array([[0.5, 0.75]]), np.array([[1.0, 0.0]]), 1.0, 1, 1)
    np.testing.assert_allclose(light[0, 0], 100.0 * 0.5 * 0.75)
    light, _ = sample_lines(bent, np.arange(256.0), np.array([[1.0, 1.0]]), np.array([[1.0, 0.0]]), 1.0, 1, 2)
    np.testing.assert_allclose(light[0, 0], 75.0)  # samples a quarter of a pixel to either side


def test_coverage_along_lines_is_averaged_and_zero_outside() -> None:
    v, u = np.mgrid[:20, :30]
    drawing = (0.1 * u + 0.2 * v + 0.01 * u * v).astype(np.float32)
    start, step = np.array([[3.25, 4.5], [8.0, 2.0]]), np.array([[0.5, 0.25], [0.3, 0.6]])
    at = start[:, None] + np.arange(12)[:, None] * step[:, None]
    x, y = at[..., 0], at[..., 1]
    bilinear = lambda x, y: 0.1 * x + 0.2 * y + 0.01 * x * y  # noqa: E731
    np.testing.assert_allclose(cover_lines(drawing, start, step, 12, 0), bilinear(x, y), rtol=1e-5)
    smooth = np.mean([bilinear(x + k * step[:, :1], y + k * step[:, 1:]) for k in (-1.0, 0.0, 1.0)], axis=0)
    np.testing.assert_allclose(cover_lines(drawing, start, step, 12, 2), smooth, rtol=1e-5)
    gone = cover_lines(drawing + 5.0, np.array([[27.5, 5.0], [5.0, 1.5]]), np.array([[1.0, 0.0], [0.0, -1.0]]), 4, 0)
    np.testing.assert_array_equal(gone > 0.0, [[True, True, False, False], [True, True, False, False]])


def test_colours_of_a_side_vary_between_lines_and_within() -> None:
    rng = np.random.default_rng(5)
    own = np.array([0.5, 0.3, 0.2]) + 0.1 * rng.normal(size=(400, 1, 3))
    seen, pure = own + 0.02 * rng.normal(size=(400, 12, 3)), np.ones((400, 12), dtype=bool)
    seen[:, 8:], pure[:, 8:] = 9.0, False
    mean, spread, texture = side_colors(seen, pure, 0.05)
    np.testing.assert_allclose(mean, seen[:, :8].mean(axis=(0, 1)))
    assert spread == pytest.approx(0.1**2 + 0.02**2 / 8 + 0.05**2, rel=0.1)
    assert texture.mean() == pytest.approx(0.02**2, rel=0.05)
    square = ((seen[:, :8] - seen[:, :8].mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2)) / 3.0
    np.testing.assert_allclose(texture, (square + 2.0 * square.sum() / (400 * 7)) / 9.0)
    pure[3] = False
    np.testing.assert_allclose(side_colors(seen, pure, 0.05)[2][3], square[np.arange(400) != 3].sum() / (399 * 7))
    mean, spread, texture = side_colors(seen, pure & False, 0.05)
    assert (mean.tolist(), spread, set(texture.tolist())) == ([0.3] * 3, 0.1, {0.01})


def test_an_edge_and_the_prior_give_the_posterior() -> None:
    """Of a normal likelihood, mean and variance are its own, where it is wide and where it is narrow beside a step."""
    step, within = 0.25, 4.0
    d = step * np.arange(-80, 81)
    for true, std in ((1.3, 1.0), (-2.6, 2.0), (0.6, 0.1)):
        logs = -0.5 * ((d - true) / std) ** 2 + 5.0
        mean, variance = posterior(logs[None], step, within, 0.01)
        assert mean[0] == pytest.approx(true, abs=0.01)
        assert variance[0] == pytest.approx(std**2, rel=0.02)
    flat = posterior(np.zeros((1, 161)), step, within, 0.01)
    assert np.isinf(flat[1][0])
    wide = -0.5 * (d / (3.0 * within)) ** 2  # a ninth of the prior's information
    assert np.isfinite(posterior(wide[None], step, within, 0.1)[1][0])
    assert np.isinf(posterior(wide[None], step, within, 0.12)[1][0])
    at_end = np.where(np.arange(161) == 160, 50.0, 0.0)
    mean, variance = posterior(at_end[None], step, 1e3, 0.0)
    assert np.isfinite(mean).all()
    assert abs(mean[0] - 20.0) < 2.0 * step


def test_a_line_shows_two_sides_where_their_colours_differ() -> None:
    rng = np.random.default_rng(7)
    cover = np.tile(np.repeat([1.0, 0.97, 0.5, 0.03, 0.0], [6, 2, 1, 2, 4]), (200, 1))
    noise = 0.05 * rng.normal(size=(200, 15, 3))
    seen = noise + 0.8 * (cover[..., None] > 0.4)
    ratio, shown = side_ratio(seen, cover, 0.05, 6, 1e-3)
    assert shown.all()
    share = 8.0 * 6.0 / 14.0**2
    whole = np.sqrt(0.05**2 + share * 0.8**2)
    assert np.median(ratio) == pytest.approx(np.log(whole / (0.05 * np.sqrt(12.0 / 14.0))), abs=0.05)
    assert np.median(side_ratio(noise, cover, 0.05, 6, 1e-3)[0]) < 0.15
    assert not side_ratio(seen, cover, 0.05, 7, 1e-3)[1].any(), "six pixels show the other side"
    assert side_ratio(seen, cover, 0.02, 6, 1e-3)[1].sum() == 0, "of which two have a little of this one"
    assert np.median(side_ratio(0.0 * seen, cover, 0.05, 6, 1e-3)[0]) == 0.0
    exact = side_ratio(0.8 * (cover[..., None] > 0.4) + 0.0 * noise, cover, 0.05, 6, 0.1)[0]
    np.testing.assert_allclose(exact, 0.5 * np.log((share * 0.64 + 0.01) / 0.01))


def test_a_foreground_ends_where_most_of_its_pixels_lie() -> None:
    """The place is the mean over all edges, weighted by their likelihood and a prior of half of the reach."""
    ratio = np.full((40, 60), -2.0, np.float32)
    ratio[:, :23] = 1.5
    pixels, normals = np.array([[20.0, 10.5], [25.0, 8.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    reach, steps, correlated = 8.0, 16, 4.0
    mean, variance = edge_places(ratio, pixels, normals, reach, steps, correlated)
    step = reach / steps
    for i, x in enumerate(pixels[:, 0]):
        along = step * np.arange(-steps, steps + 1)
        values = np.interp(x + along, np.arange(60.0), ratio[10])
        at = step * (np.arange(2 * steps + 2) - 0.5 - steps)
        nats = np.concatenate([[0.0], np.cumsum(values)]) * step / correlated - 0.5 * (at / (0.5 * reach)) ** 2
        weight = np.exp(nats - nats.max())
        weight /= weight.sum()
        assert mean[i] == pytest.approx(weight @ at, abs=1e-6)
        spread = weight @ at**2 - (weight @ at) ** 2
        assert variance[i] == pytest.approx(spread + 0.1 * step**2 + 0.05, rel=1e-5)
    down = edge_places(ratio.T.copy(), pixels[:, ::-1].copy(), normals[:, ::-1].copy(), reach, steps, correlated)
    np.testing.assert_allclose(down[0], mean, atol=1e-5)


def test_beyond_the_frame_little_of_the_body_is_expected() -> None:
    known = np.zeros((40, 60), np.float32)
    ends = np.array([[58.0, 20.0], [1.0, 20.0], [30.0, 38.0], [30.0, 1.0]])
    ways = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    beside, _ = edge_places(known, ends, ways, 8.0, 16, 1.0)
    np.testing.assert_allclose(beside, beside.mean(), atol=1.0)
    assert (beside < -0.3).all(), "the edge is rather inside"
    assert edge_places(known, np.array([[30.0, 20.0]]), ways[:1], 8.0, 16, 1.0)[0][0] == pytest.approx(0.0, abs=1e-6)
