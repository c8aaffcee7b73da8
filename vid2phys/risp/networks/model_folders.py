"""Where trained models are searched.

Limits: only direct subfolders are searched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def model_search_paths() -> list[Path]:
    """Return the folders whose subfolders may be models: ./models, the user's data folder, the package's own.

    A wheel has its models inside the package; a source checkout has them beside it.
    """
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    package = Path(__file__).parents[2]
    checkout = package.parent
    shipped = checkout / "models" if (checkout / "pyproject.toml").is_file() else package / "models"
    return [Path("models"), data / "vid2phys" / "models", shipped]


def model_folders(parents: list[Path]) -> Iterator[Path]:
    """Yield the folders with a config.json directly inside `parents`, each once, in order."""
    seen: set[Path] = set()
    for parent in parents:
        for path in sorted(parent.glob("*/config.json")) if parent.is_dir() else []:
            folder = path.parent.resolve()
            if folder not in seen:
                seen.add(folder)
                yield path.parent
