"""Settings of the calibration of error models, with a documented default for every constant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UncertaintyConfig:
    """Settings of `calibrate` and of what it calls.

    Attributes:
        max_appearances: Largest number of held-out appearances on which a network is measured.
        max_refined_appearances: The same for aligned poses and contour fits, which take longer.
        min_appearances: Least number of appearances from which a contour error model is fitted.
        view_offset: Spread of the centre of the virtual camera, as a share of its image, as in a second pass.
        view_size_offset: Spread of the logarithm of its zoom.
        contour_view_offset: Spread of the centre before a contour fit, as a share of the body's size.
        contour_max_px: Largest diameter of the body in the frame for which contours are measured, px.
        missed_share: Share of true detections that the quality threshold may miss.
        false_share: Share of searches in an empty image that may end with a detection.
        empty_searches: Number of places at which an empty image is searched.
        start_share: Error of the poses from which images are aligned, as a share of the aligner's prior.
        trim_sigma: Normalised errors above this are outliers. The tracker discards them too.
        core_sigma: Frames within this many standard deviations determine the variances of the shared errors.
        informative_sigma: A frame informs about a shared error if it determines it to within this many of its standard
            deviations.
        min_informative_frames: Least number of such frames; with fewer, an error keeps its values, as for a joint that
            no frame shows.
        rounds: Number of rounds of trimming and fitting.
        correlation_range_s: Least and largest correlation time, s.
        min_scale: Least factor of the stated standard deviations of refined poses.
        min_swing_frames: Least number of frames of a clip that show how far a body swings.
        white_share: Share of an error's variance that lasts for a single frame.
        first_shift: First guess of the sideways error, bearings.
        first_contour_scale: First guess of the factor of the contour fit's stated standard deviations.
        first_configuration_share: First guess of the configuration's error, in prior standard deviations.
        bank_images: Number of background images for single held-out images.
        far_share: Distance beyond which a point does not count for the labelling of an image, as a share of the image.
        hidden_depth_share: Depth behind the visible surface at which a point is hidden, as a share of the radius.
        contrast_ring_share: Width of the ring around the body in which contrast is measured, as a share of the image.
    """

    max_appearances: int = 120
    max_refined_appearances: int = 60
    min_appearances: int = 8
    view_offset: float = 0.02
    view_size_offset: float = 0.03
    contour_view_offset: float = 0.06
    contour_max_px: float = 200.0
    missed_share: float = 0.02
    false_share: float = 0.01
    empty_searches: int = 6
    start_share: float = 0.5
    trim_sigma: float = 5.0
    core_sigma: float = 4.0
    informative_sigma: float = 100.0
    min_informative_frames: int = 8
    rounds: int = 3
    correlation_range_s: tuple[float, float] = (0.01, 5.0)
    min_scale: float = 0.25
    min_swing_frames: int = 8
    white_share: float = 1e-6
    first_shift: float = 0.003
    first_contour_scale: float = 2.0
    first_configuration_share: float = 0.05
    bank_images: int = 64
    far_share: float = 0.1
    hidden_depth_share: float = 0.1
    contrast_ring_share: float = 0.06


DEFAULTS = UncertaintyConfig()
