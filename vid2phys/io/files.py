"""Read files with one-line errors, and write files so that none is left half-written."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

from vid2phys.errors import InputError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_HASH_BLOCK = 1 << 20
_COUNTER = re.compile(r"%0?(\d*)d")
_WILDCARD = re.compile(r"[*?[]")


def require_file(path: str | Path, what: str) -> Path:
    """Return `path` as a Path when it is a file that is not empty. Raises InputError naming `what` otherwise."""
    path = Path(path)
    if os.path.isdir(path):
        raise InputError(f"'{path}' is a folder", f"a file: {what}", "give the file inside it")
    if not os.path.exists(path):  # False, too, for impossible names
        raise InputError(f"'{path}' does not exist", what, "check the path")
    if path.stat().st_size == 0:
        raise InputError(f"'{path}' is empty (0 bytes)", what, "copy or export it again")
    return path


def read_text(path: str | Path, what: str) -> str:
    """Return the text of a file, without a byte-order mark. Raises InputError when it is missing, empty or not text."""
    path = require_file(path, what)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"'{path}' is not a text file", what, "check that this is the right file") from None
    except PermissionError:
        raise InputError(f"'{path}' may not be read", what, "change its permissions") from None


@dataclass(frozen=True)
class Source:
    """A file whose format is not known yet. text: empty for a binary file. binary: its bytes then."""

    path: Path
    text: str
    binary: bytes = b""

    @classmethod
    def read(cls, path: str | Path, what: str, largest: int, remedy: str, encoding: str | None = None) -> Self:
        """Return the file's text or bytes.

        Args:
            path: of the file.
            what: the expected content, for errors.
            largest: bytes that a file may have.
            remedy: for an error about a file that is too large.
            encoding: of text that is not in UTF-8.

        Raises:
            InputError: the file is missing, empty or far too large.
        """
        path = require_file(path, what)
        if path.stat().st_size > largest:
            got = f"'{path}' is {path.stat().st_size >> 20} MB large"
            raise InputError(got, f"at most {largest >> 20} MB", remedy)
        raw = path.read_bytes()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = raw.decode(encoding) if encoding else ""
        return cls(path, "", raw) if not text or "\0" in text else cls(path, text)


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Raise InputError in place of "no space left" and "not permitted" inside the block, which writes `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            remedy = "free some space, or write to another disk"
            raise InputError(f"the disk is full: '{path}' could not be written", "", remedy) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise InputError(f"'{path}' may not be written", "", "write elsewhere with --out") from error
        raise


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`, with its suffix; it becomes `path` when the block ends without an error.

    The folder is made. On any error, Ctrl-C included, the temporary file is removed and `path` stays as it was. Raises
    InputError when the disk is full or the folder is not writable.
    """
    path = Path(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def exclusive_lock(lock: str | Path, what: str) -> Iterator[TextIO]:
    """Lock the file `lock`, which is made, for as long as this process and those that inherit the lock live.

    Raises InputError, naming another `what` at work in its folder, while the file is locked.
    """
    import fcntl

    lock = Path(lock)
    with disk_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        opened = lock.open("a")
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(opened.fileno()), lock.stat())  # it may have been removed meanwhile
        except OSError:
            ours = False
        if not ours:
            raise InputError(f"another {what} is at work in '{lock.parent}'", "one", "wait, or give another folder")
        yield opened


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text under a temporary name, then rename it."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes under a temporary name, then rename it.

    Use it also for files that a library could write: some libraries raise errors of their own when the disk is full.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def is_pattern(path: Path) -> bool:
    """Return whether a path stands for several files: %06d or *, ?, [ in its last part, and no file of that name."""
    return bool(_COUNTER.search(path.name) or _WILDCARD.search(path.name)) and not os.path.exists(path)


def matching(pattern: Path) -> list[Path]:
    """Return the files that a pattern (`is_pattern`) stands for, by name, without hidden ones as in a shell."""
    counter = _COUNTER.search(pattern.name)
    if counter is None:
        found = pattern.parent.glob(pattern.name)
    else:
        before, after = pattern.name[: counter.start()], pattern.name[counter.end() :]
        digits = rf"\d{{{int(counter[1] or 1)},}}"
        name = re.compile(re.escape(before) + digits + re.escape(after))
        found = (file for file in pattern.parent.glob("*") if name.fullmatch(file.name))
    hidden = pattern.name.startswith(".")
    return sorted(file for file in found if file.is_file() and (hidden or not file.name.startswith(".")))


def sha256(path: str | Path) -> str:
    """Return the hex digest of a file, or of the names and contents of the files of a folder or pattern."""
    path = Path(path)
    digest = hashlib.sha256()
    folder = path.parent if is_pattern(path) else path
    files = matching(path) if is_pattern(path) else [path] if path.is_file() else sorted(path.rglob("*"))
    for file in (file for file in files if file.is_file()):
        if file != path:
            digest.update(str(file.relative_to(folder)).encode() + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(_HASH_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def _umask() -> int:
    """Return the process's umask, which mkstemp ignores (it always makes files that only their owner may read)."""
    current = os.umask(0)
    os.umask(current)
    return current
