"""The command line: each command is a thin wrapper of one function in `vid2phys.commands`.

Its flags are built from the dataclass of its options (`commands/flags.py`).

Data goes to stdout, progress and errors to stderr. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vid2phys.commands.configs import (
    CalibrateConfig,
    ControlConfig,
    EvaluateConfig,
    FitRecordingConfig,
    HintConfig,
    SimulateConfig,
    TrainConfig,
)
from vid2phys.commands.flags import all_systems, asking
from vid2phys.commands.identify.config import IdentifyConfig
from vid2phys.commands.retired import RetiredName
from vid2phys.commands.system_choice import AUTO, SYSTEM_WITH_ACTIONS, has_own_mesh
from vid2phys.errors import UsageError, Vid2PhysError

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Physics out of a video: mass, actions and trajectory with intervals, from a clip, a mesh and a camera.",
)

EXIT_BUG, EXIT_USAGE, EXIT_INPUT, EXIT_FIT, EXIT_INTERRUPTED = 1, 2, 3, 4, 130


MeshOption = Annotated[Path | None, typer.Option("--mesh", help="Mesh of the object (OBJ, STL, PLY, GLB ...).")]
UnitsOption = Annotated[str, typer.Option("--mesh-units", help="Units of the mesh: m, cm or mm.")]
MoveOption = Annotated[
    str | None, typer.Option("--mesh-move", help="To the body's axes and origin: x:90 (deg), shift:0:0:-0.02 (m) ...")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
DeviceOption = Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda (default: auto)")]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed_version

        print(f"vid2phys {installed_version('vid2phys')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def _needed_to_identify(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields that have to be given."""
    return ("clip", *_needed_of_body(given, "identify"), "camera")


def _needed_to_control(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields that have to be given."""
    return ("target", "camera", *_needed_of_body(given, "control"))


def _needed_of_body(given: dict[str, Any], command: str) -> tuple[str, ...]:
    """Return the mesh, where neither the system nor `body` replaces it."""
    own = given["body"] or (given["system"] != AUTO and has_own_mesh(given["system"], command))
    return () if own else ("mesh",)


@app.command()
@asking(IdentifyConfig, repeats=True, needs=_needed_to_identify)
def identify(config: IdentifyConfig, json_: JsonOption = False) -> None:
    """Actions, trajectory and physical parameters of the object in a clip."""
    from vid2phys.commands.identify.pipeline import identify as run_identify
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_result

    with show_progress() as progress:
        result, folder = run_identify(config, progress=progress)
    print_result(result, folder, as_json=json_)
    if result.status.key != "converged":
        raise typer.Exit(EXIT_FIT)


def _needed_to_hint(given: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields that have to be given."""
    return ("clip", "camera") if given["body"] else ("clip", "mesh", "camera")


@app.command()
@asking(HintConfig, needs=_needed_to_hint)
def hint(config: HintConfig) -> None:
    """Show a clip on a local page; a click on the object gives its pose there, and the --hint for identify."""
    from vid2phys.commands.hint import serve
    from vid2phys.commands.progress import show_progress

    with show_progress() as progress:
        page = serve(config, progress)
    with page:
        print(page.url, flush=True)
        print("Open this page in a browser; Ctrl-C ends it.", file=sys.stderr)
        page.run(open_page=config.open_page)


@app.command()
def batch(
    clips: Annotated[Path, typer.Argument(help="YAML file: `clips`, and `defaults` for all of them.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the runs (default: runs/batch/NAME).")] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Clips at once (default: one a core).")] = None,
    ray: Annotated[str | None, typer.Option("--ray", help="Address of a Ray cluster; local starts one here.")] = None,
    json_: JsonOption = False,
) -> None:
    """Identify many clips; what is done is kept, a clip that fails does not stop the rest."""
    from vid2phys.commands.batch import batch as run_batch
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_batch

    with show_progress() as progress:
        outcomes, folder = run_batch(clips, out=out, workers=workers, ray=ray, progress=progress)
    print_batch(outcomes, folder, as_json=json_)
    if not all(outcome.converged for outcome in outcomes):
        raise typer.Exit(EXIT_FIT)


@app.command()
@asking(ControlConfig, repeats=True, needs=_needed_to_control)
def control(config: ControlConfig, json_: JsonOption = False) -> None:
    """Find the actions that bring a body to the state in an image."""
    from vid2phys.commands.control import control as run_control
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_control

    with show_progress() as progress:
        found, folder = run_control(config, progress=progress)
    print_control(found, folder, as_json=json_)
    if found.status != "reached":
        raise typer.Exit(EXIT_FIT)


@app.command()
@asking(EvaluateConfig)
def evaluate(config: EvaluateConfig, json_: JsonOption = False) -> None:
    """Judge a run against motion capture: position, rotation and drift, with the clocks aligned."""
    from vid2phys.commands.evaluate import evaluate as run_evaluate
    from vid2phys.commands.show import print_metrics

    metrics, folder = run_evaluate(config)
    print_metrics(metrics, folder, as_json=json_)


@app.command()
@asking(CalibrateConfig)
def calibrate(
    config: CalibrateConfig,
    print_board: Annotated[
        Path | None, typer.Option("--print-board", help="Write the board as PDF in true size; calibrates nothing.")
    ] = None,
    page: Annotated[str, typer.Option("--page", help="Page of the PDF: a4, a3, a2, a1, a0, letter, tabloid.")] = "a4",
    json_: JsonOption = False,
) -> None:
    """Make a camera file: from images of a board, or of another format; with its pose in the world."""
    from vid2phys.commands.calibrate import calibrate as run_calibration
    from vid2phys.commands.calibrate import print_board as write_board
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show_calibration import print_calibration

    if print_board is not None:
        print(f"{write_board(config.board, print_board, page)}\n{print_board}")
        return
    with show_progress() as progress:
        found = run_calibration(config, progress=progress)
    print_calibration(found, as_json=json_)


@app.command("train-risp")
@asking(TrainConfig)
def train_risp(config: TrainConfig) -> None:
    """Train the network that finds a body's keypoints in images; without options, the sample's model."""
    from vid2phys.commands.show import print_model
    from vid2phys.commands.train_risp import default_folder
    from vid2phys.commands.train_risp import train_risp as run_training

    sample, model = Path("samples/quadrotor/quad.obj"), Path("models/quadrotor")
    if config.mesh is None and config.body is None and config.system in (AUTO, SYSTEM_WITH_ACTIONS):
        if not sample.is_file():
            remedy = "or run in the project's folder to train the sample"
            raise UsageError("no --mesh given", "a mesh to train for", remedy)
        named = model if config.head == "keypoint" else model.with_name(f"{model.name}-{config.head}")
        config = replace(config, mesh=sample, system=SYSTEM_WITH_ACTIONS, out=config.out or named)
    out = config.out or default_folder(config)
    run_training(replace(config, out=out))
    print_model(out)


@app.command()
def card(
    model: Annotated[Path, typer.Argument(help="Model folder.", show_default=False)],
    mesh: MeshOption = None,
    body: Annotated[Path | None, typer.Option("--body", help="Primitive or robot that it was trained for.")] = None,
    mesh_units: UnitsOption = "m",
    mesh_move: MoveOption = None,
    work: Annotated[
        Path | None, typer.Option("--work", help="Folder of its training (default: runs/train-risp/NAME).")
    ] = None,
) -> None:
    """Write a model's card again: training, scores by condition, known failures with images."""
    from vid2phys.commands.card import card as make_card

    print(make_card(model, mesh=mesh, body=body, mesh_units=mesh_units, mesh_move=mesh_move, work=work))


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Table or figure (default: list them).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Minutes instead of hours; the numbers mean nothing.")] = False,
    body: Annotated[list[str] | None, typer.Option("--body", help="Run only this body now; repeatable.")] = None,
    method: Annotated[list[str] | None, typer.Option("--method", help="Run only this method now; repeatable.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the results.")] = Path("docs/results"),
    work: Annotated[Path, typer.Option("--work", help="Folder of renders and weights.")] = Path("work/reproduce"),
    device: DeviceOption = None,
    seed: SeedOption = 0,
) -> None:
    """Make a table or figure of the papers again, in as many sittings as you like; the rest is named and goes on."""
    from vid2phys.commands.reproduce import experiments

    if name is None:
        print("\n".join(experiments().available()))
        return
    files = experiments().reproduce(
        name,
        quick=quick,
        bodies=tuple(body or ()),
        methods=tuple(method or ()),
        out=out,
        work=work,
        device=device or "auto",
        seed=seed,
    )
    print("\n".join(str(path) for path in files))


@app.command()
@asking(SimulateConfig, repeats=True)
def simulate(config: SimulateConfig, json_: JsonOption = False) -> None:
    """Roll a system out in time: trajectory.csv and, with a camera and a mesh or body, a rendered clip."""
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_simulation
    from vid2phys.commands.simulate import simulate as run_simulation

    with show_progress() as progress:
        simulation, folder = run_simulation(config, progress=progress)
    print_simulation(simulation, folder, as_json=json_)


@app.command("fit-recording")
@asking(FitRecordingConfig)
def fit_recording(config: FitRecordingConfig, json_: JsonOption = False) -> None:
    """Fit a system's parameters to recorded states, without a video: values with 95 % intervals."""
    from vid2phys.commands.fit_recording import fit_recording as run_fit
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_recorded

    with show_progress() as progress:
        fitted, folder = run_fit(config, progress=progress)
    print_recorded(fitted, folder, as_json=json_)
    if fitted.status != "converged":
        raise typer.Exit(EXIT_FIT)


@app.command()
def systems(
    name: Annotated[
        str | None, typer.Argument(help="One system (default: all).", show_default=False, autocompletion=all_systems)
    ] = None,
    json_: JsonOption = False,
) -> None:
    """List the physical systems: parameters, units, domains, states, actions, limits."""
    from vid2phys.commands.show import print_systems

    print_systems(name, as_json=json_)


@app.command()
def doctor() -> None:
    """Say what this machine has, what is missing and how to get it."""
    from vid2phys.commands.doctor import doctor as run_doctor
    from vid2phys.commands.show import print_doctor

    print_doctor(run_doctor())


def _fail(message: str, code: int) -> int:
    print(f"vid2phys: {' '.join(message.split())}", file=sys.stderr)
    return code


def _os_error(error: OSError) -> int | None:
    """Exit code for what the machine refuses (disk full, no permission ...), None for everything else."""
    remedies = {
        errno.ENOSPC: "free some space or give --out on another disk",
        errno.EDQUOT: "free some space or give --out on another disk",
        errno.EACCES: "check the permissions",
        errno.EPERM: "check the permissions",
        errno.EROFS: "give --out on a disk that can be written",
        errno.ENOENT: "check the path",
        errno.ENOTDIR: "check the path",
        errno.EISDIR: "give a file, not a folder",
        errno.ENAMETOOLONG: "check the path",
    }
    if error.errno not in remedies:
        return None
    name = f"{error.filename}: " if error.filename else ""
    return _fail(f"{name}{error.strerror}; {remedies[error.errno]}", EXIT_INPUT)


def _is_interruption(error: BaseException) -> bool:
    """Return whether an interruption caused an error: compiled functions turn the former into a SystemError."""
    cause = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt) or (cause is not None and _is_interruption(cause))


def _bug(error: BaseException) -> int:
    """Keep the traceback in a file and say where."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    summary = f"bug: {type(error).__name__}: {str(error)[:200]}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="vid2phys-", suffix=".log", delete=False) as log:
            log.write(f"command: {sys.argv}\n{text}")
    except OSError:
        print(text, file=sys.stderr)
        return _fail(summary, EXIT_BUG)
    return _fail(f"{summary}; expected none: please report it with the log {log.name}", EXIT_BUG)


def _show_notice(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print a retired name or a warning for the user in one line, and other warnings as Python does."""
    if issubclass(category, RetiredName):
        print(f"notice: {message}", file=sys.stderr)
    elif category is UserWarning:
        print(f"warning: {message}", file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *place[:2]))


def _run() -> int:
    warnings.simplefilter("always", RetiredName)
    warnings.showwarning = _show_notice
    try:
        code = app(standalone_mode=False, prog_name="vid2phys")
    except Vid2PhysError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        return EXIT_BUG
    except Exception as error:
        if _is_interruption(error):
            return _fail("interrupted", EXIT_INTERRUPTED)
        if hasattr(error, "format_message"):  # click's usage errors, wherever this typer keeps that class
            return _fail(f"{error.format_message()} See `vid2phys --help`.", EXIT_USAGE)
        known = _os_error(error) if isinstance(error, OSError) else None
        return _bug(error) if known is None else known
    if code == EXIT_INTERRUPTED:
        return _fail("interrupted", EXIT_INTERRUPTED)
    return int(code or 0)


def _terminate(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point of `vid2phys`: known errors end in one line on stderr and their exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_run())
