"""Mark the rows of methods whose network was not trained to its end.

Table 1 trains the networks, and tables 2 to 4 share them. A validation curve alone does not tell: a rate that falls to
zero flattens any curve. So RISP's network must also see as many images as its own preset shows it.

Limits: methods without a network have no mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.result_cache import Rows, read_json
from experiments.table import Setting

PRESET_IMAGES = 1_200_000  # 100 epochs of the 12,000 renders that all methods of a body share
TRAINED_IN = "risp-table1"
NETWORK_OF = {"perceptual": "ours", "ours-known-start": "ours", "ours-known-place": "ours"}
"""Whose network a method uses, if not its own: features need weights, and none can be downloaded."""


def is_trained(method: str, converged: bool, images_seen: int) -> bool:
    """Return whether a network was trained to its end: its curve is flat, and RISP's has seen its preset's images."""
    return converged and (not method.startswith("paper") or images_seen >= PRESET_IMAGES)


def with_presets(rows: Rows) -> Rows:
    """Return the rows of table 1, each network's `converged` by its preset, too."""
    return [
        row | {"converged": is_trained(row["method"], row["converged"], row["images_seen"])}
        if "converged" in row
        else row
        for row in rows
    ]


def with_marks(rows: Rows, networks: Mapping[tuple[str, str], str], setting: Setting) -> Rows:
    """Return the rows of a table, with `network_converged` of the networks that they use.

    networks: names of the networks of table 1, by body and method. Rows of other methods stay as they are.
    """
    trained = trained_networks(setting.out / f"{setting.stem(TRAINED_IN)}.json")
    marks = {key: trained[key[0], network] for key, network in networks.items() if (key[0], network) in trained}
    return [
        row | {"network_converged": marks[key]} if (key := (row["system"], row["method"])) in marks else row
        for row in rows
    ]


def trained_networks(table: Path) -> dict[tuple[str, str], bool]:
    """Return whether each network was trained to its end, by body and name; empty where table 1 is missing."""
    rows = (read_json(table) or {}).get("rows", [])
    trained = [row for row in rows if "converged" in row]
    return {(row["system"], NETWORK_OF.get(row["method"], row["method"])): row["converged"] for row in trained}
