"""`vid2phys identify`: from a clip, a mesh and a camera to actions, trajectory and parameters with intervals.

`pipeline.py` reads as the pipeline. Files import in one direction:
config <- inputs <- external_*, gradient_fit, plausibility, reinitialise, silhouette_doubts <- fit,
fit_articulated <- estimated_camera, multi_clip, outputs <- pipeline.
"""

from vid2phys.commands.identify.config import FitOptions as FitOptions
from vid2phys.commands.identify.config import IdentifyConfig as IdentifyConfig
from vid2phys.commands.identify.pipeline import identify as identify
