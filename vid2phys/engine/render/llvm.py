"""Finding the libraries that Dr.Jit needs, before Mitsuba is imported: a libLLVM that it can use, and libatomic.

LLVM 14 aborts the whole process on the first render, and an abort cannot be caught: so the version is asked of the
library itself (`LLVMGetVersion` of its C API, in LLVM 16 and later; older ones lack it) and only good ones are used.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MINIMUM_VERSION = 16
ATOMIC_REMEDY = "install it (Debian, Ubuntu: `apt install libatomic1`)"
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/opt/homebrew/opt/llvm/lib",
    "/usr/local/opt/llvm/lib",
)
_NAMES = ("libLLVM*.so*", "libLLVM*.dylib", "llvm-*/lib/libLLVM*.so*", "llvm*/lib*/libLLVM*.so*")


@dataclass(frozen=True)
class LlvmInfo:
    """A shared libLLVM: the file and its version, such as (19, 1, 7)."""

    path: str
    version: tuple[int, int, int]


@cache
def find_llvm() -> LlvmInfo | None:
    """Return the newest usable libLLVM of this machine, None when there is none. `DRJIT_LIBLLVM_PATH` is believed
    first.
    """
    given = os.environ.get("DRJIT_LIBLLVM_PATH")
    if given:
        info = _inspect(Path(given))
        if info is not None:
            return info
    found: dict[str, LlvmInfo] = {}
    for path in _candidates():
        real = str(path.resolve())
        if real not in found and (info := _inspect(path)) is not None:
            found[real] = info
    return max(found.values(), key=lambda item: item.version, default=None)


def lacks_atomic() -> bool:
    """Return whether Dr.Jit cannot be loaded for want of libatomic, which bare Linux systems leave out."""
    try:
        ctypes.CDLL("libatomic.so.1")
    except OSError:
        return sys.platform == "linux"
    return False


def _candidates() -> list[Path]:
    paths = [p for folder in _FOLDERS for name in _NAMES for p in sorted(Path(folder).glob(name)) if p.is_file()]
    # Old ones are left out by name: loading several LLVMs into one process is best avoided.
    return [p for p in paths if not _surely_old(p.resolve().name)]


def _surely_old(name: str) -> bool:
    digits = "".join(c if c.isdigit() else " " for c in name).split()
    return bool(digits) and 1 < int(digits[0]) < MINIMUM_VERSION


def _inspect(path: Path) -> LlvmInfo | None:
    """Return the version of the library, None when it is too old, broken or of another architecture."""
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_LAZY)
        get_version = library.LLVMGetVersion
    except (OSError, AttributeError):
        return None
    parts = [ctypes.c_uint() for _ in range(3)]
    get_version(*(ctypes.byref(part) for part in parts))
    major, minor, patch = (int(part.value) for part in parts)
    return LlvmInfo(str(path), (major, minor, patch)) if major >= MINIMUM_VERSION else None
