"""Which model's features a training starts from, where none is named.

Limits: only models that came with the package are taken, so that equal commands give equal networks everywhere.
"""

from __future__ import annotations

from pathlib import Path

from vid2phys.risp.networks.model import read_config
from vid2phys.risp.networks.model_folders import model_folders, model_search_paths

NONE = Path("none")


def start_of(given: Path | None, system: str | None) -> Path | None:
    """Return the folder of the model whose features a training starts from; None for a start from nothing.

    Args:
        given: The folder that was asked for, or `NONE`; None takes the packaged model of a rigid body that moves by the
            same system, else another one.
        system: Name of the system; None where nothing packaged suits.
    """
    if given is not None or system is None:
        return None if given == NONE else given
    rigid = {}
    for folder in model_folders(model_search_paths()[-1:]):
        config = read_config(folder)
        if config.get("kind", "rigid") == "rigid":
            rigid[folder] = config["system"]
    return min(rigid, key=lambda folder: (rigid[folder] != system, folder.name), default=None)
