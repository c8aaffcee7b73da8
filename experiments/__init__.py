"""The papers' tables and figures: one module each, found by its file name (`risp_table1.py` is `risp-table1`).

A module holds `run(setting) -> Table`, `METHODS`, and `BODIES` where they are not those of RISP (`bodies`). Tables are
filled cell by cell (`result_cache`, `gradsim.result_cache`): a method of a body.
Shared: `bodies` (which there are), `body_adapter` (what a table does with one: `rigid`, `articulated`),
`image_alignment` and `test_renderer` (the frames), `methods` (trained networks), `table`.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from vid2phys.errors import UsageError, unknown_name

OUT, WORK = Path("docs/results"), Path("work/reproduce")
_PAPERS = ("risp_", "gradsim_")


def available() -> tuple[str, ...]:
    """Return the names of the tables and figures, sorted."""
    names = (m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith(_PAPERS))
    return tuple(sorted(name.replace("_", "-") for name in names))


def reproduce(
    name: str,
    *,
    quick: bool = False,
    bodies: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    out: Path = OUT,
    work: Path = WORK,
    device: str = "auto",
    seed: int = 0,
    quiet: bool = False,
) -> list[Path]:
    """Make the table or figure called `name` and write it to `out`. Returns the files: JSON, Markdown, perhaps PNG.

    quick: minutes instead of hours, with numbers that mean nothing. bodies, methods: what is run now, all if there are
    none; the table holds what was run earlier, too, and names what is missing. work: folder of renders and trained
    weights, which are used again; what was interrupted goes on. device: auto, cpu or cuda.
    Raises UsageError for unknown names, MissingDependencyError without LLVM.
    """
    if name not in available():
        raise unknown_name("table", name, available())
    from experiments.bodies import entries
    from experiments.table import Setting
    from vid2phys.commands.training import choose_device
    from vid2phys.commands.training_progress import show_training
    from vid2phys.io.files import disk_errors

    if seed < 0:
        raise UsageError(f"--seed {seed}", "0 or more", "leave it out for 0")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    known = getattr(module, "BODIES", None) or tuple(entry.name for entry in entries())
    for kind, asked, there in (("body", bodies, known), ("method", methods, module.METHODS)):
        for each in asked:
            if each not in there:
                raise unknown_name(kind, each, there)
    with disk_errors(work), show_training(quiet) as progress:
        setting = Setting(quick, out, work, progress, bodies, methods, choose_device(device), seed)
        files: list[Path] = module.run(setting).write(setting)
    return files
