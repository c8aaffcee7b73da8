"""Write card.md: what a model is, how it was trained, its errors on held-out appearances, and where it fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vid2phys.io.files import write_text
from vid2phys.report.card_sheets import UNITS, write_sheet
from vid2phys.tracking.uncertainty.single_images import EvaluatedModel, ImageEvaluation
from vid2phys.types import Array

CARD, WORST, USUAL = "card.md", "card_worst.jpg", "card_usual.jpg"
LEFT_OUT = (
    "occlusion",
    "motion_blur",
    "shadows",
    "distractors",
    "noise",
    "codec",
)  # one at a time
_TILES = 9
_WORST_SHARE = 0.1
_COVERED = ((0.0, 0.0, "none"), (0.0, 0.25, "up to 25 %"), (0.25, 0.5, "25 to 50 %"), (0.5, 1.0, "more than half"))
_CONTRAST = (0.0, 15.0, 30.0, 60.0, 256.0)
_SIZES = 4
_FLIP_DEG, _WELL_PX = 45.0, 4.0


@dataclass(frozen=True)
class Easier:
    """Some of the images again, with one thing left out. rows: their indices among all images."""

    name: str
    rows: NDArray[np.int64]
    judged: ImageEvaluation


def write_card(
    folder: Path,
    evaluated: EvaluatedModel,
    judged: ImageEvaluation,
    easier: Sequence[Easier],
    score: dict[str, Any],
    command: str,
) -> Path:
    """Write card.md and its images into a model folder, and return its path.

    Args:
        folder: of the model.
        evaluated: the model, with the body to project.
        judged: detections of all held-out images.
        easier: the same images, each time with one thing left out.
        score: the content of score.json.
        command: the command that makes the card again.
    """
    worst = _worst(judged, evaluated.main_error)
    write_sheet(folder / WORST, evaluated, judged, _one_an_appearance(worst, judged.appearance)[:_TILES])
    write_sheet(folder / USUAL, evaluated, judged, _usual(judged, evaluated.main_error))
    parts = [
        f"# {folder.name}",
        _about(evaluated),
        "## What it is",
        _table(("", ""), _facts(evaluated)),
        "## How it was trained",
        _table(("", ""), _training(score)),
        "## How well it detects",
        f"{len(judged.images)} images of {len(np.unique(judged.appearance))} appearances that were never trained on, "
        "developed with all that is varied in training, one at a time: no tracking, no other frame, no contour. "
        "Medians, up to the body's symmetry; points: of those that nothing else covers.",
        _conditions(judged, evaluated),
        *_hidden(judged),
        "### What makes it hard",
        "The same images with one thing left out.",
        _costs(judged, easier, evaluated.main_error),
        *_calibration(score),
        "## Known failures",
        f"The worst of these images by {_named(evaluated.main_error)}, one of an appearance: on the left as the "
        "network sees it, on the right green the truth (rings: hidden) and orange the detection.",
        f"![worst]({WORST})",
        f"What the worst tenth has in common, medians; covered is the share of the keypoints behind other things or "
        f"beyond the frame's end.\n\n{_in_common(judged, worst, evaluated.across)}",
        *_flipped(judged),
        "## As it usually is",
        f"From the best to the worst quarter: quantiles {', '.join(f'{q:.0%}' for q in _QUANTILES)}.",
        f"![usual]({USUAL})",
        f"Made by `{command}`.",
    ]
    write_text(folder / CARD, "\n\n".join(parts) + "\n")
    return folder / CARD


def _about(evaluated: EvaluatedModel) -> str:
    model = evaluated.model
    what = "Poses" if evaluated.articulated is None else "Configurations"
    sizes = f"{evaluated.fill * evaluated.view_px[0]:.0f} to {evaluated.fill * evaluated.view_px[1]:.0f} px across"
    text = f"{what} of `{model.shape.mesh_name}` (system `{model.shape.system}`) from single frames of a calibrated "
    text += f"camera, its {evaluated.across} {sizes} (larger ones are shrunk). It knows this shape alone"
    return text + (
        ", in any size." if evaluated.articulated is None else ", on a base and before a camera that are known."
    )


def _facts(evaluated: EvaluatedModel) -> Iterable[tuple[str, str]]:
    model, shape = evaluated.model, evaluated.model.shape
    order = len(shape.rotations)
    yield "mesh", f"{shape.mesh_name}, {len(evaluated.mesh.faces)} faces, radius {1e3 * model.radius_m:.4g} mm"
    yield "keypoints", f"{len(model.points_body)}"
    if evaluated.articulated is None:
        kind = "none" if order == 1 else f"{order} orientations look the same" + (", exactly" if shape.exact else "")
        features = "its colours" if shape.textured else "" if shape.exact else "a front point"
        yield "symmetry", kind + (f", distinguished by {features}" if order > 1 and features else "")
    else:
        yield "configuration", f"{len(evaluated.articulated.names)} numbers ({shape.kind})"
    if shape.cameras is not None:
        c = shape.cameras
        yield (
            "cameras",
            f"azimuth {c.azimuth[0]:g} +- {c.azimuth[1]:g} deg, elevation {c.elevation[0]:g} to {c.elevation[1]:g}"
            f" deg, {c.distance[0]:g} to {c.distance[1]:g} radii away",
        )
    networks = (("fine", model.fine), ("coarse", model.coarse))
    sizes = [f"{n} {sum(p.numel() for p in w.parameters()) / 1e3:.0f}k" for n, w in networks if w is not None]
    yield "networks", f"{', '.join(sizes)} parameters, views of {model.view_size} px"


def training_facts(score: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what a card states of score.json: rows of its training table, and paragraphs on its calibration.

    Raises KeyError, TypeError, ValueError or AttributeError for a broken score.
    """
    return list(_training(score)), list(_calibration(score))


def _training(score: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the rows that score.json has; older models have fewer."""
    yield "command", f"`{score.get('command', 'unknown')}`"
    yield "seed", f"{score.get('seed', 'unknown')}"
    data, training = score.get("data", {}), score.get("training", {})
    if data:
        yield (
            "data",
            f"{data['renders']} renders, each an appearance of its own, {data['with_gradients']} with derivatives, "
            f"{data['held_out']} of them held out",
        )
    yield "switched off", ", ".join(training.get("without", ())) or "nothing"
    if training.get("started_from"):
        yield "begun with", f"the features of {training['started_from']}"
    seconds = score.get("seconds", {})
    if seconds:
        took = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
        yield "took", f"{sum(seconds.values()) / 60.0:.0f} min ({took})"
    yield "machine", str(score.get("machine", "unknown"))
    for note in score.get("notes", ()):
        yield "note", note


def _conditions(judged: ImageEvaluation, evaluated: EvaluatedModel) -> str:
    """Return the table of median errors by size in the frame, cover and contrast."""
    names = list(judged.errors)
    header = ("images", "count", *(_header(n) for n in names), f"{UNITS[evaluated.main_error][0]}, 9 in 10 below")
    rows = [_row("all", judged, np.ones(len(judged.images), dtype=bool), evaluated.main_error)]
    least_px, most_px = evaluated.view_px
    for low, high in pairwise(evaluated.fill * np.geomspace(least_px, most_px, _SIZES + 1)):
        inside = (judged.diameter_px >= low) & (judged.diameter_px <= high)
        rows.append(_row(f"{evaluated.across} {low:.0f} to {high:.0f} px", judged, inside, evaluated.main_error))
    for least, most, words in _COVERED:
        share = judged.hidden_share
        inside = (share <= most) & ((share > least) | (most == 0.0))
        rows.append(_row(f"keypoints covered: {words}", judged, inside, evaluated.main_error))
    for low, high in pairwise(_CONTRAST):
        words = f"{low:.0f} to {high:.0f}" if high < 256.0 else f"above {low:.0f}"
        inside = (judged.contrast >= low) & (judged.contrast < high)
        rows.append(_row(f"contrast {words} of 255", judged, inside, evaluated.main_error))
    return _table(header, [row for row in rows if row])


def _row(words: str, judged: ImageEvaluation, inside: NDArray[np.bool_], main: str) -> tuple[str, ...]:
    if not inside.any():
        return ()
    medians = (_number(np.nanmedian(v[inside])) for v in judged.errors.values())
    most = _number(np.nanquantile(judged.errors[main][inside], 0.9))
    return (words, f"{inside.sum()}", *medians, most)


def _hidden(judged: ImageEvaluation) -> Iterable[str]:
    """Yield the errors of visible and of hidden keypoints; the body's own parts hide some, too."""
    away = np.linalg.norm(judged.estimated_px - judged.truth_px, axis=-1)
    measures = {"as detected, px": away}
    if judged.points_mm is not None:
        measures["of the fitted body, mm"] = judged.points_mm
    rows = []
    for words, which in (("in the open", ~judged.hidden), ("hidden", judged.hidden)):
        if which.any():
            rows.append((words, f"{which.mean():.0%}", *(_number(np.median(m[which])) for m in measures.values())))
    yield "Keypoints, medians:\n\n" + _table(("keypoints", "share", *measures), rows)


def _costs(judged: ImageEvaluation, easier: Sequence[Easier], main: str) -> str:
    header = ("left out", f"{_header(main)}, with it", "without", "px, with it", "without", "images that differ")
    rows = []
    for each in easier:
        differ = (judged.images[each.rows] != each.judged.images).any(axis=(1, 2, 3))
        if not differ.any():
            continue
        pairs = [
            _number(np.nanmedian(errors[name][differ]))
            for name in (main, "px")
            for errors in ({n: v[each.rows] for n, v in judged.errors.items()}, each.judged.errors)
        ]
        rows.append((_plain(each.name), *pairs, f"{differ.sum()}"))
    return _table(header, rows)


def _calibration(score: dict[str, Any]) -> Iterable[str]:
    """Yield what score.json has on the error model."""
    found = score.get("validation", {}).get("calibration")
    if not found:
        yield "## Calibration\n\nNone: its intervals are guesses."
        return
    yield (
        "## Calibration\n\nErrors over what the error model expects, on appearances that it was not fitted to "
        "(1 is honest), and shares of frames and clips.\n\n"
        + _table(("", ""), [(_plain(n), f"{v:.3g}") for n, v in found.items()])
    )


def _in_common(judged: ImageEvaluation, worst: NDArray[np.int64], across: str) -> str:
    count = max(1, round(_WORST_SHARE * len(worst)))
    groups = (("the worst tenth", worst[:count]), ("the others", worst[count:]))
    rows = [
        (
            words,
            f"{np.median(judged.diameter_px[which]):.0f}",
            f"{np.median(judged.contrast[which]):.0f}",
            f"{np.mean(judged.hidden_share[which] > 0.0):.0%}",
            f"{np.mean(judged.hidden_share[which] > 0.25):.0%}",
        )
        for words, which in groups
        if len(which)
    ]
    header = ("images", f"{across} [px]", "contrast", "with points covered", "with more than a quarter covered")
    return _table(header, rows)


def _flipped(judged: ImageEvaluation) -> Iterable[str]:
    """Yield how often the points are near the truth and the pose is another one that explains them nearly as well."""
    if "rotation_deg" not in judged.errors:
        return
    share = float(((judged.errors["rotation_deg"] > _FLIP_DEG) & (judged.errors["px"] < _WELL_PX)).mean())
    if share == 0.0:
        return
    yield (
        f"In {share:.1%} of all these images the points are within {_WELL_PX:g} px and the pose is off by more than "
        f"{_FLIP_DEG:g} deg: small or nearly flat bodies tilted towards the camera look as if tilted away. One image "
        "cannot decide; the tracker keeps both poses until other frames do."
    )


def _worst(judged: ImageEvaluation, main: str) -> NDArray[np.int64]:
    return np.argsort(-np.nan_to_num(judged.errors[main]), kind="stable")


def _one_an_appearance(order: NDArray[np.int64], appearance: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first index of each appearance in the order."""
    return order[np.sort(np.unique(appearance[order], return_index=True)[1])]


_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.65, 0.75)


def _usual(judged: ImageEvaluation, main: str) -> NDArray[np.int64]:
    order = np.argsort(judged.errors[main], kind="stable")
    return order[[round(q * (len(order) - 1)) for q in _QUANTILES]]


def _named(error: str) -> str:
    return {"rotation_deg": "rotation error", "points_mm": "the error of the fitted points"}[error]


def _header(error: str) -> str:
    name, unit = UNITS[error]
    return f"{name} [{unit}]"


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float | Array) -> str:
    number = float(value)
    return "" if not np.isfinite(number) else f"{number:.2f}" if number < 1.0 else f"{number:.3g}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(header), ("---",) * len(header), *(tuple(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
