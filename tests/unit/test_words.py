"""Check that the words which `docs/glossary.md` retires are gone from code, help and docs.

Words that have no other meaning here are searched in the whole text of `SEARCHED`, the help of the commands included.
Words of ordinary English count only where they are a whole identifier or the name of a module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEARCHED = ("vid2phys", "experiments", "docs", "README.md")
# Folders and files whose words are still old. Delete an entry to switch its check on. The longest entry counts.
NOT_YET = {
    "docs/results": "written by the experiments",
}
THE_GLOSSARY = "docs/glossary.md"

# Whole words, in any case, also between underscores and inside names like `OneTwo`; the word to use instead.
WORDS = {
    r"pictures?": "image, frame",
    r"postures?": "configuration",
    r"sightings?": "detection",
    r"twins?": "ambiguous poses",
    r"outlined|outlines?|outlining": "contour, silhouette",
    r"painted|paints?|painting": "textured, texture, vertex colours",
    r"lone": "single image",
    r"look(?:s|ed|ing)?[ _]again": "re-initialise",
    r"posed": "articulated, modal",
    r"beliefs?": "priors and bounds",
    r"misread": "temporal outlier, wrong",
    r"likeliest[ _]paths?": "Viterbi path",
    r"st(?:and|ands|ood|anding)[ _]still": "static",
}
# Whole identifiers: names of functions, classes, arguments, variables and attributes that the code defines.
IDENTIFIERS = {
    **dict.fromkeys(("look", "looks", "Look", "Looks"), "appearance"),
    **dict.fromkeys(("reading", "readings", "Reading", "Readings", "reread"), "detection, measurement, keypoints"),
    **dict.fromkeys(
        ("turn", "turns", "Turn", "branch", "branches", "Branch"), "symmetry element, hypothesis, rotation"
    ),
    **dict.fromkeys(("sight", "sights", "Sight", "Found"), "detection, method inputs"),
    **dict.fromkeys(("told", "tell", "held", "said", "settled"), "given, reported, fixed, resolved"),
    **dict.fromkeys(("alone", "driven", "drive", "drives", "Drive"), "single image, input estimation, control"),
    **dict.fromkeys(("levels", "Levels", "activity", "Activity"), "hyperparameters, relevance"),
    **dict.fromkeys(("subject", "subjects", "Subject"), "body adapter"),
    **dict.fromkeys(("unseen", "Unseen", "known_values"), "test renderer, held-out; fixed parameters"),
}
# Names of modules and folders of modules.
MODULES = {
    **dict.fromkeys(("path", "paths", "branch", "branches", "turns"), "viterbi, hypotheses"),
    **dict.fromkeys(("look", "looks", "read", "reread", "readings", "alone"), "appearance, detect, single_image"),
    **dict.fromkeys(("several", "joint", "driven", "known", "known_values"), "multi_clip, input_estimation"),
    **dict.fromkeys(("levels", "activity", "bound"), "hyperparameters, relevance, cramer_rao"),
    **dict.fromkeys(("view", "neighbours", "held"), "virtual_camera, camera_parameters, temporal_outliers, fixed"),
    **dict.fromkeys(("stage", "stages", "subject", "subjects", "cells"), "image_alignment, body_adapter, result_cache"),
    **dict.fromkeys(("sights", "drives", "drawn", "unseen"), "method_inputs, random_experiments, test_renderer"),
}
# Texts in quotes that stay, since files which exist hold them as keys.
KEYS_OF_FILES = {
    "pictures": "the former name of an argument of `calibrate`",
    "painted": "the mesh entry of a model's config.json",
    "posture": "tensors of render shards, and the network entry of configs of version 0.1",
    "posture_p90": "the accuracy entry of a model's score.json",
    "posture_error": "the calibration entry of a model's config.json",
}

_WORD = re.compile("|".join(f"(?P<w{i}>{word})" for i, word in enumerate(WORDS)), re.IGNORECASE)
_WHOLE = re.compile(rf"(?<![A-Za-z])(?:{_WORD.pattern})(?![A-Za-z])", re.IGNORECASE)
_KEY = re.compile(rf"([\"'`])(?:{'|'.join(KEYS_OF_FILES)})\1")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def files() -> list[str]:
    """Return the searched files, relative to the root."""
    found = []
    for place in SEARCHED:
        root = ROOT / place
        paths = [root] if root.is_file() else [path for path in root.rglob("*") if path.suffix in (".py", ".md")]
        found += [path.relative_to(ROOT).as_posix() for path in paths]
    return sorted(set(found) - {THE_GLOSSARY})


def entry_of(file: str, entries: dict[str, str] = NOT_YET) -> str:
    """Return the longest entry that a file lies in, or the file's folder of the second level."""
    fits = [entry for entry in entries if file == entry or file.startswith(f"{entry}/")]
    return max(fits, key=len, default="/".join(file.split("/")[:2]))


def retired_words(text: str) -> Iterator[str]:
    """Yield the retired words of a text, with their lines."""
    for number, line in enumerate(text.splitlines(), start=1):
        plain = _HUMP.sub("_", _KEY.sub('""', line))
        for hit in _WHOLE.finditer(plain):
            word = list(WORDS)[int((hit.lastgroup or "w0")[1:])]
            yield f"line {number}: '{hit[0]}' (use {WORDS[word]})"


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names that a module defines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def faults(file: str) -> list[str]:
    """Return what is retired in a file."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = list(retired_words(text))
    if file.endswith(".py"):
        found += [
            f"line {line}: identifier '{name}' (use {IDENTIFIERS[name.lstrip('_')]})"
            for line, name in sorted(defined_names(ast.parse(text)))
            if name.lstrip("_") in IDENTIFIERS
        ]
    parts = Path(file).with_suffix("").parts if file.endswith(".py") else ()
    return found + [f"module '{part}' (use {MODULES[part]})" for part in parts if part.lstrip("_") in MODULES]


PLACES: dict[str, list[str]] = {}
for _file in files():
    PLACES.setdefault(entry_of(_file), []).append(_file)


@pytest.mark.parametrize("place", sorted(set(PLACES) - set(NOT_YET)))
def test_no_retired_words(place: str) -> None:
    found = [f"{file}: {fault}" for file in PLACES[place] for fault in faults(file)]
    assert not found, "\n".join([f"{len(found)} retired words, see {THE_GLOSSARY}", *found[:50]])


def test_table_of_what_is_not_done() -> None:
    assert set(NOT_YET) <= set(PLACES), "delete the entries of places that are gone"


def test_retired_words_are_found() -> None:
    text = "the picture\nSeveralPostures\n_look_again\nnetwork['painted']\nexposed, outliners\nshe paints `posture`\n"
    assert [fault.split(" (")[0] for fault in retired_words(text)] == [
        *("line 1: 'picture'", "line 2: 'Postures'", "line 3: 'look_again'", "line 6: 'paints'")
    ]
