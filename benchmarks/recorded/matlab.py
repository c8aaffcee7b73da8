"""Read MATLAB's .mat files (up to version 7): numbers by name, cells as lists of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vid2phys.errors import InputError
from vid2phys.io.files import require_file


def load_matlab(path: str | Path) -> dict[str, Any]:
    """Return arrays by name, cell arrays as lists in MATLAB's order. Raises InputError for an unreadable file."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    path = require_file(path, "a MATLAB file (.mat)")
    try:
        data = loadmat(path)
    except NotImplementedError:
        raise InputError(f"'{path}' is of version 7.3", "version 7 or older", "save it with -v7") from None
    except (MatReadError, ValueError, TypeError, EOFError, OSError):
        raise InputError(f"'{path}' cannot be read", "a MATLAB file (.mat)", "export it again") from None
    return {name: _plain(value) for name, value in data.items() if not name.startswith("__")}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_plain(cell) for cell in value.ravel(order="F")]
    return value
