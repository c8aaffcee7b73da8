"""Rows of the tables say which networks were not trained to their end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.convergence import PRESET_IMAGES, is_trained, trained_networks, with_marks, with_presets
from experiments.table import Setting, markdown
from vid2phys.commands.training_progress import TrainingProgress


@pytest.mark.parametrize(
    ("method", "flat", "images", "trained"),
    [
        ("ours", True, 100_000, True),
        ("ours", False, PRESET_IMAGES, False),
        ("paper", True, PRESET_IMAGES - 1, False),
        ("paper-no-grad", True, PRESET_IMAGES, True),
        ("paper", False, PRESET_IMAGES, False),
    ],
)
def test_a_flat_curve_is_not_enough_for_the_papers_network(method: str, flat: bool, images: int, trained: bool) -> None:
    assert is_trained(method, flat, images) is trained


def test_tables_take_the_marks_of_the_networks_that_they_use(tmp_path: Path) -> None:
    """`perceptual` uses the network of `ours`; a method without a network has no mark."""
    rows: list[dict[str, Any]] = [
        {"system": "rod", "method": "ours-known-place", "converged": False, "images_seen": 10**6},
        {"system": "rod", "method": "paper", "converged": True, "images_seen": 200_000},
        {"system": "hand", "method": "ours", "converged": True, "images_seen": 10**6},
        {"system": "hand", "method": "average"},
    ]
    (tmp_path / "risp-table1.json").write_text(json.dumps({"rows": with_presets(rows)}))
    assert trained_networks(tmp_path / "risp-table1.json") == {
        ("rod", "ours"): False,
        ("rod", "paper"): False,
        ("hand", "ours"): True,
    }
    setting = Setting(quick=False, out=tmp_path, work=tmp_path, progress=TrainingProgress())
    named = {("rod", "perceptual"): "ours", ("rod", "paper"): "paper", ("hand", "ours"): "ours"}
    methods = [("rod", "perceptual"), ("rod", "paper"), ("rod", "random"), ("hand", "ours")]
    shown = with_marks([{"system": system, "method": method} for system, method in methods], named, setting)
    assert [row.get("network_converged") for row in shown] == [False, False, None, True]
    assert with_marks(shown, named, replace(setting, out=tmp_path / "empty")) == shown
    document = {"name": "t", "quick": False, "command": "c", "seconds": 0.0, "machine": "m", "notes": []}
    more = {"metric": "error", "value": 1.0, "unit": "1", "paper": None}
    lines = markdown({**document, "rows": [row | more for row in shown]}).splitlines()
    assert "| rod | perceptual (network not converged) | 1 |" in lines
    assert "| rod | random | 1 |" in lines
