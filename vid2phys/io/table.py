"""Read tables of numbers from text files, with errors that name the row (rows count from 1, as in a spreadsheet)."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.io.files import read_text
from vid2phys.types import Array

_HEAD = 8  # lines among which separators are counted
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")
_EXPORT_AGAIN = "correct the row or export the file again"


def numbers(path: str | Path, rows: list[list[str]], columns: list[int], row_of: NDArray[np.int64]) -> Array:
    """Return the cells of `columns`, shape [len(rows), len(columns)]; blank cells are NaN.

    row_of: [len(rows)], numbers of the rows in the file. Raises InputError naming a row that is too short or not
    numeric.
    """
    out = np.full((len(rows), len(columns)), np.nan)
    for i, row in enumerate(rows):
        if len(row) <= max(columns):
            got = f"row {row_of[i]} of '{path}' has {len(row)} cells"
            raise InputError(got, f"at least {max(columns) + 1}", "the file may be cut short; export it again")
        for j, column in enumerate(columns):
            cell = row[column].strip()
            try:
                out[i, j] = float(cell) if cell else np.nan
            except ValueError:
                raise InputError(f"row {row_of[i]} of '{path}' has '{cell}'", "a number", _EXPORT_AGAIN) from None
    return out


def require_increasing(path: str | Path, times_s: Array, row_of: NDArray[np.int64], what: str = "time") -> None:
    """Raise InputError naming the row of a time that is not finite or does not increase. row_of: [T] file rows."""
    bad = np.flatnonzero(~np.isfinite(times_s))
    if len(bad):
        raise InputError(f"row {row_of[bad[0]]} of '{path}' has no finite {what}", "a number", _EXPORT_AGAIN)
    back = np.flatnonzero(np.diff(times_s) <= 0.0)
    if len(back):
        before, after = times_s[back[0]], times_s[back[0] + 1]
        got = f"row {row_of[back[0] + 1]} of '{path}' goes from {what} {before:.10g} to {after:.10g}"
        raise InputError(got, "increasing times", _EXPORT_AGAIN)


def require_finite(path: str | Path, values: Array, names: list[str], row_of: NDArray[np.int64]) -> None:
    """Raise InputError naming the row and column of a value that is not finite. values: [T, len(names)]."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        got = f"row {row_of[row]} of '{path}' has no finite value of '{names[column]}'"
        raise InputError(got, "a number", _EXPORT_AGAIN)


def rows_of(path: str | Path, text: str) -> list[list[str]]:
    """Return all rows, split at commas, semicolons or tabs, whichever the lines with words in them have most of.

    Blank lines are empty rows, so that row i of the list is row i + 1 of the file. Where commas do not separate they
    are decimal points (1,5 is 1.5). Raises InputError for a cell without an end.
    """
    lines = text.replace("\r\r\n", "\n").splitlines()
    head = [line for line in lines[:_HEAD] if any(c.isalpha() for c in line)] or lines[:_HEAD]
    separator = max(",;\t", key=lambda mark: sum(line.count(mark) for line in head))
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
    except csv.Error:
        raise InputError(f"'{path}' has a cell that does not end", "rows of cells", _EXPORT_AGAIN) from None
    if separator == ",":
        return rows
    return [[cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in row] for row in rows]


def split_csv(line: str) -> list[str]:
    """Return the cells of a line with commas, else semicolons; quotes around a cell are dropped."""
    separator = "," if "," in line or ";" not in line else ";"
    return [cell.strip().strip('"') for cell in line.split(separator)]


@dataclass(frozen=True)
class Sheet:
    """A file of rows below a header.

    what: a file of its kind, for errors. header: the columns' titles. rows: of cells, padded to the header. row_of:
    [N], numbers of the rows in the file.
    """

    path: str | Path
    what: str
    header: list[str]
    rows: list[list[str]]
    row_of: NDArray[np.int64]

    @staticmethod
    def read(path: str | Path, what: str) -> Sheet:
        """Return the sheet of a file; lines that begin with # are comments.

        Raises InputError, naming `what` as expected, when there is no row.
        """
        rows = rows_of(path, read_text(path, what))
        kept = [(i, row) for i, row in enumerate(rows, start=1) if any(row) and not row[0].startswith("#")]
        if len(kept) < 2:
            raise InputError(f"'{path}' has {len(kept)} rows", what, "write a header and a row a point")
        header = kept[0][1]
        padded = [row + [""] * (len(header) - len(row)) for _, row in kept[1:]]
        return Sheet(path, what, header, padded, np.array([i for i, _ in kept[1:]]))

    def find(self, pattern: str) -> int | None:
        """Return the first column whose title, without brackets, matches the pattern; None if there is none."""
        plain = [re.sub(r"\s*[\[(].*", "", title).strip().lower() for title in self.header]
        return next((i for i, title in enumerate(plain) if re.fullmatch(pattern, title)), None)

    def column(self, pattern: str) -> int:
        """Return the column of `find`. Raises InputError when there is none."""
        at = self.find(pattern)
        if at is None:
            got = f"'{self.path}' has the columns {', '.join(self.header[:12])}"
            raise InputError(got, self.what, "add the columns that are missing")
        return at

    def numbers(self, columns: list[int]) -> Array:
        """Return cells of `columns`, [N, len(columns)]; blank ones are NaN. Raises InputError for other texts."""
        return numbers(self.path, self.rows, columns, self.row_of)

    def finite(self, columns: list[int], names: list[str]) -> Array:
        """Return `numbers`. Raises InputError also for a cell that is not finite, with its column's name."""
        values = self.numbers(columns)
        require_finite(self.path, values, names, self.row_of)
        return values

    def where(self, index: int) -> str:
        """Return a row in words, for errors."""
        return f"row {self.row_of[index]} of '{self.path}'"
