"""Settings of the contour cue: edges of the silhouette and of creases, from the drawing to the fitted pose.

The modules `occluding_contour`, `edge_lines`, `edge_steps`, `evidence` and `tracking.refine` are parts of this cue. The
defaults were tuned on held-out appearances of trained bodies (`benchmarks.contour`). Lengths are in pixels of the frame
unless a field names others; light is linear with full scale 1, display values have full scale 1 too.
"""

from __future__ import annotations

from dataclasses import dataclass

from vid2phys.tracking.cues.exposure import STILL


@dataclass(frozen=True, kw_only=True)
class ContourConfig:
    """Settings of `fit_contour`, `fit_edges`, `Evidence` and of what these call."""

    lens_px: float = 0.85
    """Blur of lens, codec, pixel and interpolation together, standard deviation, px."""
    edge_sigma_px: float = 1.5
    """Blur of the drawn silhouette in which edge and normal are measured, drawn pixels."""
    min_slope: float = 0.04
    """Least slope of that blurred silhouette, per drawn pixel; an edge with less has no direction."""
    min_contour_points: int = 12
    """Least number of drawn pixels on the edge of a silhouette."""
    max_contour_points: int = 160
    """Largest number of lines across a contour; they are spread evenly over all of its edges."""

    path_px: tuple[float, float] = STILL
    """Measured path of the body in the exposure of the frame (x, y), px. It blurs the edges across it."""
    blurred_steps: float = 4.0
    """Steps of a line that says whether there is an edge, in which a blurred edge lies; they are longer for it."""
    sharp_px: float = 2.0
    """Largest path across a crease for its place to be measured, px."""
    blurred_crease_px: float = 8.0
    """Largest path across a crease for its evidence to count, px: faces end beyond."""

    reach_sigma: float = 2.5
    """How far an edge is searched, in standard deviations of its place."""
    half_length: int = 9
    """Steps that a line across the contour reaches to either side."""
    half_length_crease: int = 4
    """The same for lines across creases, which are shorter since faces end."""
    places_per_step: int = 3
    """Places of the edge that are tried in each step of a line."""
    pure_share: float = 0.03
    """Largest share of the other side in a pixel that counts as one side's own."""
    interpolation_factor: float = 2.25
    """Factor by which interpolation between pixels lowers the variance of noise."""
    correlated_steps: float = 3.0
    """Steps of a line that count as one, since the pixels of a texture vary together."""
    min_gain: float = 0.2
    """Least information of a line, as a share of that of the prior, with which the line counts."""
    noise_floor: float = 0.004
    """Least standard deviation of noise, linear light."""

    side_px: int = 5
    """Length of each side of a line that says whether there is an edge, px."""
    side_noise: float = 0.012
    """Noise in the ratio of standard deviations of a line and of its sides, display values."""
    side_share: float = 0.15
    """Largest share of the other side in a pixel of a side."""
    min_side_px: int = 3
    """Least number of pixels of each side."""
    even_contour: float = 0.65
    """Logarithm of the ratio at which the odds of a contour's edge are even, as for held-out cubes of 50 to 100 px."""
    even_crease: float = 0.45
    """The same for a crease."""
    odds_slope: float = 4.4
    """Log odds of an edge by the logarithm of the ratio, nats."""
    odds_range: tuple[float, float] = (-2.5, 3.0)
    """Least and largest log odds of an edge at one line, nats."""
    foreground_share: float = 0.5
    """Weight of a contour's edge in the foreground, where it is known, beside that in the frame."""
    print_places_px: tuple[float, ...] = (-8.0, -6.0, 6.0, 8.0)
    """How far a crease is moved to each side to look for edges of a print, px."""
    print_clear_px: float = 5.5
    """Least distance of such a place from creases and contour, px."""
    print_share: float = 0.3
    """Least share of the lines across creases that have such a place."""
    evidence_reach_px: float = 5.0
    """How far lines across creases reach when their evidence is asked, px."""
    evidence_length_px: float = 5.0
    """Length of an edge that counts as one piece of evidence, px."""

    within_shares: tuple[float, ...] = (0.04, 0.015, 0.01)
    """Standard deviations of the edges' places, as shares of the body's size, one per round.

    The last value is repeated until the contour moves little. Every round draws the contour anew, since small rotations
    change which parts of a body are seen. With contours that are carried along, thin bodies end a third further off in
    rotation (`benchmarks.contour`).
    """
    max_rounds: int = 8
    """Largest number of rounds."""
    still_share: float = 0.1
    """Motion of the contour after which no further round follows, as a share of the edges' standard deviation."""
    min_within_px: float = 0.6
    """Least standard deviation of the edges' places, px."""
    slack_share: float = 0.2
    """Additional error of each line, as a share of the edges' standard deviation."""
    steps_per_round: int = 3
    """Newton steps of a round, before the motion of the contour is no longer linear."""
    overconfidence: float = 9.0
    """Factor by which edges state too much information.

    On held-out appearances edges err together by more than adjacent lines show. The error of the final pose is measured
    (`uncertainty.contour_errors`).
    """
    min_lines: int = 12
    """Least number of lines across the contour that find their edge."""
    max_step_prior: float = 2.0
    """Largest step of a pose, in standard deviations of the alignment's prior (`photometric.PRIOR_STD`)."""

    robust_sigma: float = 3.0
    """Residual beyond which a line counts less, in standard deviations (Cauchy)."""
    min_level: float = 0.02
    """Least factor of the stated variances of lines."""
    max_correlated_lines: int = 30
    """Largest number of lines in a row that count as one."""


DEFAULTS = ContourConfig()
