"""Settings of the tracker of articulated and modal bodies, with a documented default for every constant.

The defaults were tuned on rendered clips with held-out appearances of the hand and the rod. Overconfidence factors say
how many times too much information a cue states: points and edges of one frame err together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArticulatedConfig:
    """Settings of `track_configurations` and of what it calls.

    Attributes:
        anneal: Factors that inflate the standard deviations, one per iteration of the kinematic fit.
        first_damping: Initial Levenberg-Marquardt damping, as a share of the Hessian's diagonal.
        start_offset: Distance of the two bent starts from the prior's mean, in its standard deviations.
        nearest_m: Least depth of a point before the camera, m.
        agreement_share: Distance at which a point's agreement has dropped to 0.6, as a share of the virtual camera's
            image.
        min_points: Least number of inlier points of a tracked frame.
        batch: Number of frames that the network sees at once.
        max_rate: Standard deviation of a coordinate's speed in the Viterbi path, in prior standard deviations per s.
            It is about a quarter of a coordinate's range per frame.
        max_jump_nats: Largest cost of a change between two frames, nats.
        contour_max_step: Largest step of the contour fit, in prior standard deviations.
        contour_shared_px: Standard deviation of the shift that all edges of a bending body share, px. Its width shows
            how far away it is.
        point_overconfidence: Overconfidence factor of the keypoints in a single image.
        point_overconfidence_shaded: The same for a body that bends, where shading is a cue too.
        clip_point_overconfidence: The same for a body that bends, in a clip.
        same_minimum: Largest distance between minima that count as one, in prior standard deviations.
        shading_rounds: Number of renders of the body in a fit to the shading.
        shading_max_step: Largest step of a round of that fit, in prior standard deviations.
        shading_max_frames: Largest number of frames that share one light in a fit, which limits the memory.
        smoothing_s: Time over which covariances are averaged, s. Errors of the hand and the rod are correlated over
            0.15 to 0.5 s.
        reinitialise_nats: Largest loss of evidence with which a frame still takes the configuration from a
            re-initialisation, nats.
    """

    anneal: tuple[float, ...] = (8.0, 4.0, 4.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    first_damping: float = 1e-2
    start_offset: float = 0.85
    nearest_m: float = 1e-3
    agreement_share: float = 0.03
    min_points: int = 6
    batch: int = 16
    max_rate: float = 14.0
    max_jump_nats: float = 12.0
    contour_max_step: float = 0.5
    contour_shared_px: float = 0.3
    point_overconfidence: float = 50.0
    point_overconfidence_shaded: float = 150.0
    clip_point_overconfidence: float = 20.0
    same_minimum: float = 0.05
    shading_rounds: int = 3
    shading_max_step: float = 0.5
    shading_max_frames: int = 100
    smoothing_s: float = 0.2
    reinitialise_nats: float = 5.0


DEFAULTS = ArticulatedConfig()
