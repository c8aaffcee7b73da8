"""The card of a trained model: from its score, and from held-out renders that the model sees again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vid2phys.commands.training_progress import TrainingProgress
from vid2phys.errors import InputError

if TYPE_CHECKING:
    from vid2phys.risp.renders.dataset import RenderSet
    from vid2phys.tracking.uncertainty.single_images import EvaluatedModel

_MOST, _MOST_EASIER = 384, 256  # images that are judged, and with one thing left out


def make_card(
    folder: Path,
    evaluated: EvaluatedModel,
    renders: RenderSet,
    seed: int,
    progress: TrainingProgress,
    *,
    given: str = "",
) -> Path:
    """Write the card of a trained model, from the renders that it was calibrated on.

    given: options that name its files.
    """
    from vid2phys.indices import evenly
    from vid2phys.report.card import LEFT_OUT, Easier, write_card
    from vid2phys.risp.appearance.randomisation import Randomisation
    from vid2phys.tracking.uncertainty.single_images import evaluate_images

    chosen = evenly(len(renders), _MOST)
    rows = evenly(len(chosen), _MOST_EASIER)
    stages, done = 1 + len(LEFT_OUT), 0

    def step(share: float) -> None:
        progress.step("the model's card", round(100 * (done + share)), 100 * stages)

    judged = evaluate_images(evaluated, renders, chosen, seed=seed, progress=step)
    easier = []
    for name in LEFT_OUT:
        done += 1
        varied = Randomisation.without((name,))
        easier.append(
            Easier(
                name, rows, evaluate_images(evaluated, renders, chosen[rows], seed=seed, varied=varied, progress=step)
            )
        )
    command = f"vid2phys card models/{folder.name} {given}".strip()
    return write_card(folder, evaluated, judged, easier, read_score(folder), command)


def read_score(folder: Path) -> dict[str, Any]:
    """Return score.json of a model folder, empty where there is none. Raises InputError for one that cannot be read."""
    from vid2phys.report.card import training_facts

    path = folder / "score.json"
    if not path.is_file():
        return {}
    try:
        score = json.loads(path.read_text(encoding="utf-8"))
        training_facts(score)
        int(score.get("seed", 0))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"'{path}' is broken", "the score of a training", "remove it, or train again") from error
    return dict(score)
