"""The table of deliberate faults fits the code; `make faults` makes them."""

from __future__ import annotations

import pytest

from tests.faults.deliberate import FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_has_its_place_and_its_tests(fault: Fault) -> None:
    assert (ROOT / fault.path).read_text().count(fault.before) == 1
    assert fault.after != fault.before
    assert all((ROOT / name.partition("::")[0]).is_file() for name in fault.tests)
