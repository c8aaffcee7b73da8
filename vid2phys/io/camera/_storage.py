"""OpenCV's FileStorage, read by OpenCV itself.

Its YAML dialect (`%YAML:1.0`, `!!opencv-matrix`) is not YAML, and its XML has a schema of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vid2phys.errors import InputError

_A_STORAGE = "an OpenCV FileStorage (YAML, XML or JSON)"


def is_storage(text: str) -> bool:
    """Return whether a text is in OpenCV's own dialect."""
    return "opencv-matrix" in text or "<opencv_storage" in text


def read_tree(path: str | Path, text: str) -> dict[str, Any]:
    """Return the file as a mapping of numbers, texts, lists, mappings and arrays.

    Args:
        path: the file's name, for messages.
        text: the file's content.

    Raises:
        InputError: OpenCV cannot read the text.
    """
    import cv2

    storage = None
    try:
        storage = cv2.FileStorage(text, cv2.FILE_STORAGE_READ | cv2.FILE_STORAGE_MEMORY)
        root = storage.root()
        return {key: _value(root.getNode(key)) for key in root.keys()}  # noqa: SIM118 (a FileNode)
    except (cv2.error, SystemError) as error:  # its parser raises either, by the place of the fault
        raise InputError(f"'{path}' cannot be read", _A_STORAGE, "write it again") from error
    finally:
        if storage is not None:
            storage.release()


def _value(node: Any) -> Any:
    if node.isMap():
        array = node.mat() if {"rows", "cols", "data"} <= set(node.keys()) else None
        return array if array is not None else {key: _value(node.getNode(key)) for key in node.keys()}  # noqa: SIM118
    if node.isSeq():
        return [_value(node.at(i)) for i in range(node.size())]
    if node.isString():
        return node.string()
    return node.real() if node.isReal() or node.isInt() else None
