"""Settings of the tracker of a body on a hinge (`hinge_tracker`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class HingeTrackerConfig:
    """Settings of `track_hinge`."""

    reaches: tuple[float, ...] = (0.12, 0.08, 0.05, 0.03)
    """Reach of the foreground's lines in each round, as a share of the body's size."""
    start_frames: int = 16
    """Number of frames in which starts are compared."""
    start_rounds: int = 4
    """Number of rounds of the contour cue, and of the surfaces, for each start."""
    by_edges: int = 2
    """Number of starts that are followed by edges, too."""
    fixed_rounds: int = 6
    """Number of rounds with the axis on a known axis of the body, where a start is tried there."""
    max_rounds: int = 16
    """Largest number of rounds of the surfaces."""
    large_px: float = 100.0
    """Root of the body's area from which on starts are compared in images of half the size, px."""
    apart_rad: float = 0.05
    """Angle to a known axis of the body below which a hinge is on it."""
    rival_rad: float = 0.2
    """Angle between the axes of two hinges that cannot have the same descent."""
    rival_share: float = 0.95
    """Evidence for another hinge, as a share of that for the best one, from which on it is followed as far."""
    worse_share: float = 0.05
    """Loss of evidence beside the free track, as a share, beyond which the hinge does not explain a frame."""
    doublings: int = 4
    """Largest number of times that a step of the surfaces is doubled."""
    still: float = 3e-5
    """Motion of the poses, in local coordinates, below which nothing moves."""
    prior_std: tuple[float, ...] = (0.05, 0.05, 0.05, 0.003, 0.003, 0.02)
    """Standard deviations [6] of a pose in a round, in local coordinates: edges are searched near it."""
    edge_rounds: int = 2
    """Rounds of the contour cue in each frame and round."""
    fine_frames: int = 40
    """Number of frames whose surfaces adjust the hinge."""
    margins_px: tuple[int, ...] = (6, 3, 2)
    """Least distance of the background from the body, two rounds each, px."""
    wider_px: float = 0.5
    """Standard deviation by which the foreground may look wider than the body, as a whole, px."""
    robust_sigma: float = 3.0
    """Disagreement of a frame with the hinge, in standard deviations, beyond which it counts less."""
    angle_scale: float = 20.0
    """Ratio of measured to stated errors of angles: pixels, codec and shading err alike along an edge."""
    hinge_scale: float = 40.0
    """Ratio of measured to stated errors of the hinge, which no number of frames averages out."""
    independent_share: float = 0.7
    """Share of an angle's standard deviation that differs from frame to frame."""
    correlation_s: float = 0.1
    """Correlation time of the other errors of angles, s."""
    lost_overlap: float = 0.35
    """Overlap of silhouette and foreground below which a frame is lost."""


DEFAULTS = HingeTrackerConfig()
