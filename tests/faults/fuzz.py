"""Spoiled files through every door: `python -m tests.faults.fuzz --examples N --seed S [DOOR ...]`.

Each of them has to give a value or a Vid2PhysError of one line, within CPU_SECONDS of its own and in a process that may
take MOST_BYTES of addresses. Prints as JSON what became of them; before it, each kind of error that breaks the rule
once, with the file that brought it about, which is kept. A reader that never comes back, even inside a library, is
ended from outside after HANG_SECONDS.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import logging
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.faults.doors import DOORS, Door, require_one_line, steps_of
from tests.faults.mutations import spoiled
from vid2phys.errors import Vid2PhysError

MOST_BYTES = 4 << 30
CPU_SECONDS = 10  # of one example, by the process's own clock, whatever else the machine does
HANG_SECONDS = 600


class TooLongError(BaseException):
    """An example that took more than CPU_SECONDS. No reader can take it for an error of its file."""


def too_long(*_: object) -> None:
    """Ends an example."""
    raise TooLongError


@dataclass
class Tally:
    """What became of the spoiled files of a door. broken: how often each kind of error broke the rule."""

    read: int = 0
    refused: int = 0
    slowest_ms: int = 0
    broken: dict[str, int] = field(default_factory=dict)


def fuzz(door: Door, examples: int, chance: int) -> Tally:
    """Spoils files of a door, one at a time, in the current folder, so that no file holds a name that differs."""
    folder = Path()
    door.make(folder)
    whole = {file: (folder / file).read_bytes() for file in door.files}
    tally = Tally()

    def one(drawn: tuple[str, bytes]) -> None:
        file, data = drawn
        path = folder / file
        path.write_bytes(data)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        began = time.process_time()
        try:
            door.read(folder, path)
            tally.read += 1
        except Vid2PhysError as error:
            require_one_line(error)
            tally.refused += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
            tally.slowest_ms = max(tally.slowest_ms, round(1000 * (time.process_time() - began)))

    def noted(drawn: tuple[str, bytes]) -> None:
        file, data = drawn
        try:
            one(drawn)
        except (Exception, TooLongError) as error:
            places = [p for p in traceback.extract_tb(error.__traceback__) if p.name != too_long.__name__]
            place = places[-1]
            kind = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
            if kind not in tally.broken:
                kept = Path(tempfile.mkdtemp(prefix="broken-")) / Path(file).name
                kept.write_bytes(data)
                print(f"\n{kept}\n{''.join(traceback.format_exception(error)[-8:])[-3000:]}", file=sys.stderr)
            tally.broken[kind] = tally.broken.get(kind, 0) + 1
        (folder / file).write_bytes(whole[file])

    files = st.sampled_from(door.files)
    drawn = files.flatmap(lambda file: st.tuples(st.just(file), spoiled(whole[file], steps_of(file))))
    rules = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    seed(chance)(rules(given(drawn)(noted)))()
    return tally


def main() -> int:
    """Run the doors named, or all; the examples are shared out evenly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("doors", nargs="*")
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    doors = [door for door in DOORS if not asked.doors or door.name in asked.doors]

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    table = {}
    for door in doors:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            table[door.name] = vars(fuzz(door, -(-asked.examples // len(doors)), asked.seed))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"doors": table, "peak_mb": peak_mb}))
    return 1 if any(row["broken"] for row in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
