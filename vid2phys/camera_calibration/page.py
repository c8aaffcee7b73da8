"""Write a PDF page with a target in true size.

A board needs rectangles and text alone, so the file is written directly. Lengths are in points of 1/72 inch (ISO 32000,
8.3.2.3). A ruler shows whether the printer kept the size. The origin and the axes that a pose will have are marked
beside the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vid2phys.camera_calibration.target import Rectangle, Target, black_areas
from vid2phys.errors import UsageError
from vid2phys.io.files import write_bytes

PAGES_MM = {
    "a4": (210.0, 297.0),
    "a3": (297.0, 420.0),
    "a2": (420.0, 594.0),
    "a1": (594.0, 841.0),
    "a0": (841.0, 1189.0),
    "letter": (215.9, 279.4),
    "tabloid": (279.4, 431.8),
}
_POINTS_A_MM = 72.0 / 25.4
_SIDE_MM, _FOOT_MM = 5.0, 18.0  # what printers leave white; where the text stands
_RULER_MM = 100.0
_TEXT_POINTS = 8.0


@dataclass(frozen=True)
class Page:
    """Black rectangles and lines of text on a page, in mm from its lower left corner."""

    width_mm: float
    height_mm: float
    rectangles_mm: list[Rectangle]
    texts: list[tuple[float, float, str]]


def lay_out(target: Target, page: str = "a4") -> Page:
    """Return a page with the target in its middle, and its name, its axes and a ruler below.

    The page lies or stands, as the target fits. Raises UsageError for an unknown page, and for one that is too small,
    naming the sizes that are large enough.
    """
    if page.lower() not in PAGES_MM:
        raise UsageError(f"unknown page '{page}'", f"one of {', '.join(PAGES_MM)}", "choose what the printer holds")
    size = _page_for(target, PAGES_MM[page.lower()])
    wide, high = (1e3 * side for side in target.size_m)
    if size is None:
        fitting = [name for name, sides in PAGES_MM.items() if _page_for(target, sides) is not None]
        got = f"{target.text} is {wide:g} x {high:g} mm, too large for {page}"
        raise UsageError(
            got, f"a page of {', '.join(fitting) or 'no size known here'}", "give --page, or smaller squares"
        )
    left, bottom = 0.5 * (size[0] - wide), _FOOT_MM + 0.5 * (size[1] - _FOOT_MM - _SIDE_MM - high)
    areas = [(left + 1e3 * x, bottom + 1e3 * y, 1e3 * w, 1e3 * h) for x, y, w, h in black_areas(target)]
    ruler = min(_RULER_MM, 10.0 * (wide // 10.0)) or 10.0
    areas += [(left, 8.0, ruler, 0.3), (left, 6.5, 0.3, 3.0), (left + ruler - 0.3, 6.5, 0.3, 3.0)]
    areas += [(left, bottom - 4.0, 12.0, 0.3), (left + 11.0, bottom - 4.6, 0.3, 1.5), (left, bottom - 4.6, 0.3, 1.5)]
    texts = [
        (
            left + 13.5,
            bottom - 4.8,
            "x: from this corner of the pattern, the origin of the world; up the page is y, or z if it hangs",
        ),
        (left + ruler + 3.0, 7.0, f"{ruler:g} mm: print at 100 %, and measure"),
        (left, 2.8, f"vid2phys calibrate IMAGES --board {target.text}"),
    ]
    return Page(*size, areas, texts)


def write_pdf(target: Target, path: str | Path, page: str = "a4") -> Page:
    """Write the page as PDF, and return it. Raises UsageError as `lay_out` does."""
    laid = lay_out(target, page)
    write_bytes(path, pdf_bytes(laid))
    return laid


def pdf_bytes(page: Page) -> bytes:
    """Return the page as a PDF file of one page."""
    k = _POINTS_A_MM
    drawing = ["0 g"]
    drawing += [f"{k * x:.4f} {k * y:.4f} {k * w:.4f} {k * h:.4f} re" for x, y, w, h in page.rectangles_mm]
    drawing.append("f")
    for x, y, text in page.texts:
        plain = text.encode("ascii", "replace").decode().replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        drawing.append(f"BT /F1 {_TEXT_POINTS:g} Tf {k * x:.4f} {k * y:.4f} Td ({plain}) Tj ET")
    stream = "\n".join(drawing).encode("ascii")
    box = f"[0 0 {k * page.width_mm:.4f} {k * page.height_mm:.4f}]"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /ViewerPreferences << /PrintScaling /None >> >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Contents 4 0 R ".encode()
        + b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n" % len(stream) + stream + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, offsets = bytearray(b"%PDF-1.6\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)
    return bytes(out)


def _page_for(target: Target, sides_mm: tuple[float, float]) -> tuple[float, float] | None:
    """Return width and height of the page, upright or lying; None when the target fits in neither way."""
    wide, high = (1e3 * side for side in target.size_m)
    for size in (sides_mm, sides_mm[::-1]):
        if wide <= size[0] - 2 * _SIDE_MM and high <= size[1] - _FOOT_MM - _SIDE_MM:
            return size
    return None
