"""Cells of tables: what is read, and which row and column a message names."""

from __future__ import annotations

import numpy as np
import pytest

from vid2phys.errors import InputError
from vid2phys.io.table import numbers, require_finite, require_increasing, rows_of

ROW_OF = np.array([3, 5, 6, 9])


def test_blank_cells_are_nan_and_columns_are_chosen() -> None:
    found = numbers("a.csv", [["1", " 2.5 ", "x"], ["", "-4e1", ""]], [1, 0], ROW_OF)
    np.testing.assert_array_equal(found, [[2.5, 1.0], [-40.0, np.nan]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["1", "2"], ["3", "b"], ["c", "4"]], "row 5 of 'a.csv' has 'b'"),
        ([["1", "2"], ["3", "4"], ["5"]], "row 6 of 'a.csv' has 1 cells"),
    ],
)
def test_the_first_row_that_cannot_be_read_is_named(rows: list[list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        numbers("a.csv", rows, [0, 1], ROW_OF)


@pytest.mark.parametrize(
    ("times_s", "message"),
    [
        ([0.0, 1.0, 1.0, 0.5], "row 6 of 'a.csv' goes from time 1 to 1"),
        ([0.0, 2.0, 1.5, 1.0], "row 6 of 'a.csv' goes from time 2 to 1.5"),
        ([0.0, np.nan, 2.0, np.inf], "row 5 of 'a.csv' has no finite time"),
    ],
)
def test_the_first_time_that_does_not_increase_is_named(times_s: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        require_increasing("a.csv", np.array(times_s), ROW_OF)
    require_increasing("a.csv", np.array([0.0, 1e-9, 2.0, 3.0]), ROW_OF)


def test_the_first_value_that_is_not_finite_is_named() -> None:
    values = np.ones((4, 3))
    require_finite("a.csv", values, ["x", "y", "z"], ROW_OF)
    values[1, 2], values[2, 0] = np.inf, np.nan
    with pytest.raises(InputError, match=r"row 5 of .a.csv. has no finite value of .z."):
        require_finite("a.csv", values, ["x", "y", "z"], ROW_OF)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_rows_are_split_at_the_mark_of_the_lines_with_words(mark: str) -> None:
    text = f"t{mark}x{mark}y\n\n0{mark}1{mark}2\n"
    assert rows_of("a.csv", text) == [["t", "x", "y"], [], ["0", "1", "2"]]


def test_commas_are_decimal_points_where_they_do_not_separate() -> None:
    assert rows_of("a.csv", "t;x\n0,5;1,25\n") == [["t", "x"], ["0.5", "1.25"]]
