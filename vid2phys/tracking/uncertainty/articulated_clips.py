"""Short clips of articulated and modal bodies with held-out appearances, on which models are calibrated.

Limits: the base and the camera are static.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vid2phys.engine.movable.body import ArticulatedBody
from vid2phys.geometry import invert_transform, make_transform
from vid2phys.risp.renders.articulated_viewpoints import VIEW_PX
from vid2phys.risp.renders.dataset import RenderSet
from vid2phys.risp.renders.held_out import HeldOutClip, make_clips
from vid2phys.risp.renders.viewpoints import FRAMES_PER_SEQUENCE
from vid2phys.tracking.articulated.detector import Window
from vid2phys.types import Array


@dataclass(frozen=True)
class ArticulatedClip:
    """A clip of T frames with its truth.

    Attributes:
        sequence: Number of the render sequence.
        clip: The frames.
        window: The camera, and its pose.
        configurations: [T, D] true configurations.
    """

    sequence: int
    clip: HeldOutClip
    window: Window
    configurations: Array


def articulated_clips(
    renders: RenderSet,
    body: ArticulatedBody,
    view_size: int,
    most: int,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Iterator[ArticulatedClip]:
    """Yield at most `most` clips, of sizes in the frame that the tracker meets.

    Args:
        renders: Sequences with held-out appearances.
        body: The body.
        view_size: Width and height of the virtual camera's image, px.
        most: Largest number of clips.
        seed: Seed of all random numbers.
        progress: Is called with the share of clips done.
    """
    truth, sizes = renders.configurations(), (VIEW_PX[0], VIEW_PX[2])
    shown = make_clips(renders, body.radius_m, most, seed=seed, in_frame_px=sizes, speed_px=0.0, progress=progress)
    for sequence, clip in shown:
        pose = make_transform(clip.rotation[0], clip.translation[0])  # base and camera are static
        window = Window.of(replace(clip.cameras[0], camera_to_world=invert_transform(pose)), body, view_size)
        first = sequence * FRAMES_PER_SEQUENCE
        yield ArticulatedClip(sequence, clip, window, truth[first : first + FRAMES_PER_SEQUENCE])
