"""What is varied in training images: each switch changes what it names and nothing that comes after it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from tests.unit.risp_synthetic import dots, square_body, write_renders
from vid2phys.errors import UsageError
from vid2phys.risp.appearance import codec
from vid2phys.risp.appearance import develop as development
from vid2phys.risp.appearance.backgrounds import make_bank
from vid2phys.risp.appearance.camera_chain import draw_exposure
from vid2phys.risp.appearance.develop import DevelopOptions, body_in_frame, develop
from vid2phys.risp.appearance.distractors import add_lookalikes
from vid2phys.risp.appearance.environments import mean_color, random_environment, uniform_like
from vid2phys.risp.appearance.occluders import _KINDS, MOST_HIDDEN, occlude
from vid2phys.risp.appearance.randomisation import ALL, Randomisation
from vid2phys.risp.appearance.shadows import cast_shadow
from vid2phys.risp.renders.scenes import develop_scene
from vid2phys.risp.renders.stream import ImageStream, Key, Primal, StreamSettings
from vid2phys.types import Array

BANK = make_bank([], count=6, seed=0, size=96)
CAMERA = np.array([[300.0, 0, 47.5], [0, 300.0, 47.5], [0, 0, 1]])
POSE = np.eye(4)
POSE[2, 3] = 1.0


def disc(side: int, center: tuple[float, float], radius: float) -> Array:
    """Coverage of a disc, [side, side]."""
    y, x = np.mgrid[0:side, 0:side]
    return np.clip(radius - np.hypot(x - center[0], y - center[1]) + 0.5, 0, 1).astype(np.float32)


def body() -> Primal:
    return Primal(dots(np.array([[47.5, 47.5], [60.0, 52.0]]), np.ones((2, 3)), 96, sigma=9.0), CAMERA, POSE)


def test_unknown_names_are_refused() -> None:
    assert Randomisation.without(["shadows", "noise"]).off == ("shadows", "noise")
    assert Randomisation.without(["metals", "noise"]).off_in_renders == ("metals",)
    with pytest.raises(UsageError, match=r"smell.*shadows"):
        Randomisation.without(["smell"])


IN_DEVELOPING = [
    f.name for f in fields(Randomisation) if f.name not in ("environments", "metals", "textures", "photographs")
]


@pytest.mark.parametrize("name", IN_DEVELOPING)
def test_each_switch_changes_some_images_and_not_others(name: str) -> None:
    """Images that did not draw the thing switched off stay as they are, bit for bit."""
    without = Randomisation.without([name])
    same = []
    for seed in range(30):
        images = [
            develop(
                body(), np.zeros((1, 3)), np.random.default_rng(seed), DevelopOptions(48, BANK, varied=varied)
            ).image
            for varied in (ALL, without)
        ]
        same.append(np.array_equal(*images))
    everywhere = name in ("antialiasing", "exposure", "colour_cast", "noise")
    assert not all(same)
    assert everywhere or any(same)


def test_photographs_come_only_when_asked_for(tmp_path: Path) -> None:
    folder = write_renders(tmp_path / "data", square_body(), 4)
    banks = []
    for names in ((), ("photographs",)):
        settings = StreamSettings(folder, np.zeros((1, 3)), 0.1, bank_count=6, varied=Randomisation.without(names))
        stream = ImageStream(settings)
        assert stream[Key(0, 1, "plain")]["image"].shape == (96, 96, 3)
        banks.append(stream._open().bank)
    assert np.array_equal(banks[1], make_bank([], count=6, seed=0))
    assert not np.array_equal(banks[0], banks[1])


def test_nothing_hides_more_than_half_of_the_body() -> None:
    coverage, light = disc(64, (30, 33), 14), np.full((64, 64, 3), 0.2, np.float32)
    hidden = []
    for seed in range(200):
        image, mask = occlude(np.random.default_rng(seed), light, coverage, BANK)
        assert mask.min() >= 0.0
        assert mask.max() <= 1.0
        assert np.array_equal(image[mask == 0.0], light[mask == 0.0])
        hidden.append((mask * coverage).sum() / coverage.sum())
    assert max(hidden) <= MOST_HIDDEN + 1e-6
    assert np.mean(np.array(hidden) > 0.05) > 0.6
    assert np.mean(np.array(hidden) > 0.25) > 0.15


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("side", [24, 150])
def test_every_occluder_covers_something(kind, side: int) -> None:
    light = np.full((side, side, 3), 0.2, np.float32)
    for seed in range(20):
        mask, color = kind(np.random.default_rng(seed), light, np.full(2, side / 2), side / 4, BANK)
        assert mask.shape == (side, side)
        assert color.shape == (side, side, 3)
        assert np.isfinite(color).all()
        assert color.min() >= 0.0
        assert seed > 4 or mask.max() > 0.3


def test_hidden_points_say_so() -> None:
    """Points behind an occluder are not visible; the derivative there is zero."""
    found = 0
    for seed in range(40):
        shown = develop(body(), np.zeros((1, 3)), np.random.default_rng(seed), DevelopOptions(96, BANK))
        without = DevelopOptions(96, BANK, varied=Randomisation.without(["occlusion"]))
        bare = develop(body(), np.zeros((1, 3)), np.random.default_rng(seed), without)
        assert np.array_equal(shown.points_px, bare.points_px)
        found += bool(bare.visible[0] and not shown.visible[0])
    assert found >= 1


def test_a_shadow_darkens_and_keeps_to_the_body() -> None:
    """It only takes light away, is about as large as the body or flatter, and starts at it."""
    coverage, white = disc(80, (38, 36), 12), np.ones((80, 80, 3), np.float32)
    reach = []
    for seed in range(60):
        shaded = cast_shadow(np.random.default_rng(seed), white, coverage)
        dark = 1.0 - shaded.mean(axis=-1)
        assert dark.min() > -1e-6
        assert dark.max() < 0.97
        area = (dark > 0.5 * max(dark.max(), 1e-3)).sum() / coverage.sum()
        assert area < 2.2
        reach.append(dark[36 - 12 : 36 + 30, 20:60].sum() / max(dark.sum(), 1e-6))
    assert np.median(reach) > 0.6
    empty = np.zeros_like(coverage)
    assert np.array_equal(cast_shadow(np.random.default_rng(0), white, empty), white)


def test_lookalikes_stay_off_the_middle() -> None:
    coverage = disc(80, (39.5, 39.5), 20)
    lit = np.concatenate([np.repeat(coverage[..., None], 3, -1), coverage[..., None]], axis=-1)
    black = np.zeros((80, 80, 3), np.float32)
    shown = np.mean([add_lookalikes(np.random.default_rng(s), black, lit) > 0.05 for s in range(80)], axis=(0, -1))
    assert shown[32:48, 32:48].mean() < 0.4 * shown.max()
    assert shown.max() > 0.1


def test_a_translucent_body_lets_the_background_through() -> None:
    covers = []
    for seed in range(120):
        light, _ = body_in_frame(body(), np.eye(2, 3), np.random.default_rng(seed), side=96)
        covers.append(light[..., 3].max())
    share = np.mean(np.array(covers) < 0.95)
    assert 0.5 * development._TRANSLUCENT < share < 2.5 * development._TRANSLUCENT


def test_exposure_without_variation_is_one_curve() -> None:
    light = np.random.default_rng(0).random((20, 20, 3)).astype(np.float32)
    still = Randomisation.without(["exposure", "colour_cast"])
    curves = [draw_exposure(np.random.default_rng(seed), light, still) for seed in range(3)]
    assert all(np.array_equal(curve.color, curves[0].color) for curve in curves)
    assert np.allclose(curves[0].color, curves[0].color[0, 0] * np.eye(3))
    grey = [draw_exposure(np.random.default_rng(s), light, Randomisation.without(["colour_cast"])) for s in range(3)]
    assert grey[0].color[0, 0] != grey[1].color[0, 0]
    assert all(np.allclose(curve.color, curve.color[0, 0] * np.eye(3)) for curve in grey)


@pytest.mark.parametrize("size", [36, 96, 157])
def test_codecs_keep_the_image_in_place(size: int) -> None:
    """The same bytes for the same seed; a smooth image comes back near itself, unmoved and unmirrored."""
    y, x = np.mgrid[0:size, 0:size] / size
    image = (255 * np.stack([x, y, 0.5 + 0.3 * np.sin(6 * x * y)], axis=-1)).astype(np.uint8)
    for coder in (codec.h264, codec.jpeg):
        first, again = (coder(np.random.default_rng(3), image) for _ in range(2))
        assert np.array_equal(first, again)
        assert first.shape == image.shape
        assert first.dtype == np.uint8
        worst = max(np.abs(coder(np.random.default_rng(s), image).astype(float) - image).mean() for s in range(4))
        assert worst < 12.0
    kinds = [codec.compress(np.random.default_rng(s), image) is image for s in range(200)]
    assert 0.05 < np.mean(kinds) < 0.2


def test_light_of_one_colour_keeps_the_mean() -> None:
    image = random_environment(np.random.default_rng(0), structured=True)
    np.testing.assert_allclose(mean_color(uniform_like(image)), mean_color(image))
    assert np.ptp(uniform_like(image), axis=(0, 1)).max() == 0.0


def test_scenes_take_the_switches() -> None:
    images = [
        develop_scene(body(), 0.1, np.random.default_rng(2), size=48, bank=BANK, varied=varied).image
        for varied in (ALL, Randomisation.without([f.name for f in fields(Randomisation)]))
    ]
    assert not np.array_equal(*images)
