"""Read image files, one at a time: sizes agree, and errors name a file that is not readable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import require_file

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_LARGEST_BYTES = 1 << 28  # of an image file


def images_in(folder: Path) -> list[Path]:
    """Return the image files of a folder, by name, without hidden ones. Raises InputError when it has none."""
    shown = (file for file in folder.iterdir() if not file.name.startswith("."))  # macOS adds ._NAME to each file
    files = sorted(file for file in shown if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"'{folder}' has no image", f"files of {', '.join(IMAGE_SUFFIXES)}", "give the images' folder")
    return files


def read_image(file: Path, size: tuple[int, int] | None = None, *, grey: bool = False) -> NDArray[np.uint8]:
    """Return an image turned as its EXIF says: RGB [H, W, 3], or grey [H, W].

    size: width and height it must have. Raises InputError when it cannot be read or is of another size.
    """
    import cv2

    require_file(file, "an image")
    if file.stat().st_size > _LARGEST_BYTES:
        raise InputError(
            f"'{file}' is {file.stat().st_size >> 20} MB large", "a photograph", "take it out of the folder"
        )
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # the error below names the fault
    try:
        image = cv2.imdecode(np.fromfile(file, dtype=np.uint8), cv2.IMREAD_GRAYSCALE if grey else cv2.IMREAD_COLOR)
    except cv2.error:
        image = None
    if image is None:
        raise InputError(
            f"'{file}' cannot be read as an image",
            "a video, a folder of images, or an image",
            "take it out of the folder, or copy it again",
        )
    found = (int(image.shape[1]), int(image.shape[0]))
    if size is not None and found != size:
        expected = f"{size[0]}x{size[1]} as the first"
        remedy = "use images of one camera, one resolution and one orientation"
        raise InputError(f"'{file}' is {found[0]}x{found[1]}", expected, remedy)
    return np.asarray(image if grey else cv2.cvtColor(image, cv2.COLOR_BGR2RGB), dtype=np.uint8)
