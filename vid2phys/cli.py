"""The command line: each command is a thin wrapper of one function in `vid2phys.commands`.

Data goes to stdout, progress and errors to stderr. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from vid2phys.commands.system_choice import DEFAULT_SYSTEM, has_own_mesh
from vid2phys.errors import UsageError, Vid2PhysError

app = typer.Typer(
    pretty_exceptions_enable=False,
    help="Physics out of a video: mass, actions and trajectory with intervals, from a clip, a mesh and a camera.",
)

_T = TypeVar("_T")
EXIT_BUG, EXIT_USAGE, EXIT_INPUT, EXIT_FIT, EXIT_INTERRUPTED = 1, 2, 3, 4, 130


def _systems(incomplete: str) -> list[str]:
    """Names for the shell to complete."""
    from vid2phys.commands.describe import systems_like

    return systems_like(incomplete)


def _filmed_systems(incomplete: str) -> list[str]:
    """Names of systems that a camera follows, for the shell to complete."""
    from vid2phys.commands.system_choice import filmed

    return [name for name in filmed() if name.startswith(incomplete)]


MeshOption = Annotated[Path | None, typer.Option("--mesh", help="Mesh of the object (OBJ, STL, PLY, GLB ...).")]
UnitsOption = Annotated[str, typer.Option("--mesh-units", help="Units of the mesh: m, cm or mm.")]
MoveOption = Annotated[
    str | None, typer.Option("--mesh-move", help="To the body's axes and origin: x:90 (deg), shift:0:0:-0.02 (m) ...")
]
SystemOption = Annotated[
    str,
    typer.Option(
        "--system",
        help="Physical system that a camera follows; `vid2phys systems` says which.",
        autocompletion=_filmed_systems,
    ),
]
CameraOption = Annotated[
    Path | None, typer.Option("--camera", help="Calibration: cam.yaml, ROS, Kalibr, OpenCV, COLMAP ...")
]
PoseOption = Annotated[Path | None, typer.Option("--camera-pose", help="File with camera_to_world.")]
HoldOption = Annotated[
    bool, typer.Option("--hold", help="Apply what holds the system at rest (without --actions; default: nothing).")
]
ActionsOption = Annotated[Path | None, typer.Option("--actions", help="CSV of recorded actions.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="A known value, name=SI value; repeatable.")]
ParamsOption = Annotated[Path | None, typer.Option("--params", help="YAML file of known values, SI.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="Repeat the run of this config.yaml.")]
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


@app.command()
def identify(
    context: typer.Context,
    clip: Annotated[
        list[Path] | None,
        typer.Argument(help="A video or folder of images, or several of one body.", show_default=False),
    ] = None,
    mesh: MeshOption = None,
    camera: Annotated[
        list[Path] | None,
        typer.Option("--camera", help="Calibration: cam.yaml, ROS, Kalibr, OpenCV ...; for all clips, or one each."),
    ] = None,
    camera_pose: Annotated[
        list[Path] | None, typer.Option("--camera-pose", help="File with camera_to_world; for all clips, or one each.")
    ] = None,
    system: SystemOption = DEFAULT_SYSTEM,
    actions: Annotated[
        list[Path] | None, typer.Option("--actions", help="CSV of recorded actions; for all clips, or one each.")
    ] = None,
    fit: Annotated[
        str, typer.Option("--fit", help="Parameters to fit, comma-separated: mass,drag ..., scale, camera.")
    ] = "",
    set_: SetOption = None,
    params: ParamsOption = None,
    prior: Annotated[
        list[str] | None, typer.Option("--prior", help="Of a fitted value, name=MEAN+-STD in SI; repeatable.")
    ] = None,
    bounds: Annotated[
        list[str] | None, typer.Option("--bounds", help="Of a fitted value, name=LOW..HIGH in SI; repeatable.")
    ] = None,
    mesh_units: UnitsOption = "m",
    mesh_move: MoveOption = None,
    model: Annotated[Path | None, typer.Option("--model", help="Model folder (default: found by the mesh).")] = None,
    observation: Annotated[
        Path | None,
        typer.Option("--observation", help="Keypoints of another tracker (CSV), or observation.npz, in place of RISP."),
    ] = None,
    body_points: Annotated[
        Path | None, typer.Option("--body-points", help="CSV of the points of --observation: name, x_m, y_m, z_m.")
    ] = None,
    method: Annotated[
        str, typer.Option("--solver", "--method", help="smoothing, shooting, or as in the papers rmsprop, adam.")
    ] = "smoothing",
    loss: Annotated[
        str,
        typer.Option("--loss", help="Of rmsprop and adam: keypoint, state, risp_image, pixel or perceptual."),
    ] = "keypoint",
    starts: Annotated[
        int,
        typer.Option("--starts", help="Starts of shooting, rmsprop, adam, parameters up to twice off."),
    ] = 1,
    without: Annotated[
        str, typer.Option("--without", help="What losses of images are not to draw: shading,texture.")
    ] = "",
    from_s: Annotated[
        list[float] | None, typer.Option("--from", help="Seconds of the clip's clock at which the part to use begins.")
    ] = None,
    to_s: Annotated[list[float] | None, typer.Option("--to", help="Seconds at which that part ends.")] = None,
    fps: Annotated[
        list[float] | None,
        typer.Option("--fps", help="Frames a second: of images, or instead of what the video says."),
    ] = None,
    stream: Annotated[
        list[int] | None, typer.Option("--stream", help="Which video stream of the file, from 0.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/identify/TIME).")] = None,
    seed: SeedOption = 0,
    refine: Annotated[
        bool, typer.Option("--refine/--no-refine", help="Align the mesh to the clip's pixels; needs a camera at rest.")
    ] = True,
    overlay: Annotated[bool, typer.Option("--overlay/--no-overlay", help="Draw the fit over the frames.")] = True,
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Actions, trajectory and physical parameters of the object in a clip."""
    options: dict[str, Any] = {
        "clip": _one_or_all(clip), "mesh": mesh, "camera": _one_or_all(camera),
        "camera_pose": _one_or_all(camera_pose), "system": system,
        "actions": _one_or_all(actions), "fit": _names(fit), "priors": _pairs("--prior", "+-", "mass=0.4+-0.05", prior),
        "bounds": _pairs("--bounds", "..", "mass=0.1..2", bounds),
        "set_values": _assignments("--set", set_), "params": params, "mesh_units": mesh_units,
        "mesh_move": mesh_move, "model": model, "observation": observation, "body_points": body_points,
        "method": method, "loss": loss, "starts": starts, "without": _names(without),
        "from_s": _one_or_all(from_s), "to_s": _one_or_all(to_s),
        "fps": _one_or_all(fps), "stream": _one_or_all(stream),
        "out": out, "seed": seed, "refine": refine, "overlay": overlay,
    }  # fmt: skip
    if config is not None:
        options = _merge_config(context, config, "identify", options)
    own_mesh = has_own_mesh(options["system"], "identify")
    for name, flag in (("clip", "a CLIP"), ("mesh", "--mesh"), ("camera", "--camera")):
        if options[name] is None and not (name == "mesh" and own_mesh):
            raise UsageError(f"no {name} given", flag, "see `vid2phys identify --help`")
    from vid2phys.commands.identify import identify as run_identify
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_result

    required = [options.pop(name) for name in ("clip", "mesh", "camera")]
    with show_progress() as progress:
        result, folder = run_identify(*required, **options, progress=progress)
    print_result(result, folder, as_json=json_)
    if result.status.key != "converged":
        raise typer.Exit(EXIT_FIT)


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
def control(
    context: typer.Context,
    target: Annotated[Path | None, typer.Option("--target", help="Image of the body where it is to be.")] = None,
    system: SystemOption = DEFAULT_SYSTEM,
    mesh: MeshOption = None,
    camera: CameraOption = None,
    camera_pose: PoseOption = None,
    set_: SetOption = None,
    params: ParamsOption = None,
    initial: Annotated[
        list[str] | None, typer.Option("--initial", help="A state at the start, name=SI value (default: at rest).")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option("--limit", help="Of an action, name=LOW..HIGH in SI; repeatable.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="When the body is to be there.")] = 1.0,
    rate: Annotated[float, typer.Option("--rate", help="Actions a second.")] = 25.0,
    moving: Annotated[
        bool, typer.Option("--moving/--at-rest", help="It may pass its goal, or comes to rest there.")
    ] = False,
    mesh_units: UnitsOption = "m",
    mesh_move: MoveOption = None,
    model: Annotated[Path | None, typer.Option("--model", help="Model folder (default: found by the mesh).")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/control/TIME).")] = None,
    overlay: Annotated[bool, typer.Option("--overlay/--no-overlay", help="Draw the motion over the target.")] = True,
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Find the actions that bring a body to the state in an image."""
    options: dict[str, Any] = {
        "target": target, "system": system, "mesh": mesh, "camera": camera, "camera_pose": camera_pose,
        "set_values": _assignments("--set", set_), "params": params, "initial": _assignments("--initial", initial),
        "limits": _pairs("--limit", "..", "thrust=0..12", limit), "seconds": seconds, "rate": rate, "moving": moving,
        "mesh_units": mesh_units, "mesh_move": mesh_move, "model": model, "out": out, "overlay": overlay,
    }  # fmt: skip
    if config is not None:
        options = _merge_config(context, config, "control", options)
    needed = ("target", "camera", *(() if has_own_mesh(options["system"], "control") else ("mesh",)))
    for name in needed:
        if options[name] is None:
            raise UsageError(f"no {name} given", f"--{name}", "see `vid2phys control --help`")
    from vid2phys.commands.control import control as run_control
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_control

    with show_progress() as progress:
        found, folder = run_control(options.pop("target"), **options, progress=progress)
    print_control(found, folder, as_json=json_)
    if found.status != "reached":
        raise typer.Exit(EXIT_FIT)


@app.command()
def evaluate(
    run: Annotated[Path | None, typer.Argument(help="Run folder (default: the newest).", show_default=False)] = None,
    mocap: Annotated[
        Path | None, typer.Option("--mocap", help="Log of the true poses: Motive, Vicon, C3D, TUM, EuRoC, CSV.")
    ] = None,
    align: Annotated[
        str, typer.Option("--align", help="What to align: time, marker (and time), world (all).")
    ] = "time",
    body: Annotated[
        str | None, typer.Option("--body", help="Rigid body in the log, if it has several; or its markers: A,B,C.")
    ] = None,
    units: Annotated[str | None, typer.Option("--mocap-units", help="m, cm or mm, if the log does not say.")] = None,
    euler: Annotated[
        str | None,
        typer.Option("--euler", help="Order of the log's angles: XYZ ... (own axes), xyz ... (fixed), rotvec."),
    ] = None,
    angle_units: Annotated[
        str | None, typer.Option("--euler-units", help="deg or rad, if the log does not say.")
    ] = None,
    up_axis: Annotated[str, typer.Option("--up-axis", help="Vertical axis of the log: x, y or z.")] = "z",
    json_: JsonOption = False,
) -> None:
    """Judge a run against motion capture: position, rotation and drift, with the clocks aligned."""
    if mocap is None:
        raise UsageError("no --mocap given", "a log of the true poses", "see `vid2phys evaluate --help`")
    from vid2phys.commands.evaluate import evaluate as run_evaluate
    from vid2phys.commands.show import print_metrics

    log: dict[str, Any] = {"body": body, "units": units, "up_axis": up_axis, "euler": euler, "angle_units": angle_units}
    metrics, folder = run_evaluate(run, mocap=mocap, align=align, **log)
    print_metrics(metrics, folder, as_json=json_)


@app.command()
def calibrate(
    images: Annotated[
        Path | None, typer.Argument(help="Video or folder of images of a board.", show_default=False)
    ] = None,
    board: Annotated[
        str | None,
        typer.Option("--board", help="chessboard:10x7:25mm (squares!), charuco:11x7:24mm:18mm:4x4_50 (default)."),
    ] = None,
    print_board: Annotated[
        Path | None, typer.Option("--print-board", help="Write the board as PDF in true size; calibrates nothing.")
    ] = None,
    page: Annotated[str, typer.Option("--page", help="Page of the PDF: a4, a3, a2, a1, a0, letter, tabloid.")] = "a4",
    model: Annotated[
        str, typer.Option("--model", help="plumb_bob, rational_polynomial (wide) or equidistant (fisheye).")
    ] = "plumb_bob",
    source: Annotated[Path | None, typer.Option("--from", help="Camera file of any format, instead of images.")] = None,
    camera_name: Annotated[str | None, typer.Option("--camera-name", help="Which camera or image of --from.")] = None,
    camera_pose: PoseOption = None,
    size: Annotated[
        str | None, typer.Option("--size", help="Image size of a --from file that does not say it: 640x480.")
    ] = None,
    place: Annotated[Path | None, typer.Option("--place", help="Image from where the camera stands: the pose.")] = None,
    place_board: Annotated[
        str | None, typer.Option("--place-board", help="Board in --place (default: --board), or tag:36h11:7:160mm.")
    ] = None,
    board_is: Annotated[
        str | None, typer.Option("--board-is", help="In --place: level (face up) or upright (hanging): gravity.")
    ] = None,
    markers: Annotated[
        Path | None, typer.Option("--markers", help="CSV of markers in --place: id, x_m, y_m, z_m [, corner].")
    ] = None,
    dictionary: Annotated[
        str, typer.Option("--dictionary", help="Of the markers: 4x4_50 ... (ArUco), 36h11 ... (AprilTag).")
    ] = "4x4_50",
    points: Annotated[
        Path | None, typer.Option("--points", help="CSV of known points: name, x_m, y_m, z_m, u_px, v_px.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Camera file to write.")] = Path("cam.yaml"),
    json_: JsonOption = False,
) -> None:
    """Make a camera file: from images of a board, or of another format; with its pose in the world."""
    from vid2phys.commands.calibrate import DEFAULT_BOARD
    from vid2phys.commands.calibrate import calibrate as run_calibration
    from vid2phys.commands.calibrate import print_board as write_board

    if print_board is not None:
        print(f"{write_board(board or DEFAULT_BOARD, print_board, page)}\n{print_board}")
        return
    options: dict[str, Any] = {
        "board": board or DEFAULT_BOARD, "model": model, "source": source, "camera_name": camera_name,
        "camera_pose": camera_pose, "size": size, "place": place, "place_board": place_board, "board_is": board_is,
        "markers": markers, "dictionary": dictionary, "points": points, "out": out,
    }  # fmt: skip
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show_calibration import print_calibration

    with show_progress() as progress:
        found = run_calibration(images, **options, progress=progress)
    print_calibration(found, as_json=json_)


@app.command("train-risp")
def train_risp(
    mesh: MeshOption = None,
    system: SystemOption = DEFAULT_SYSTEM,
    body: Annotated[
        Path | None, typer.Option("--body", help="Robot (URDF, MJCF) of --system articulated, on a fixed base.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Model folder (default: models/NAME of the mesh).")] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Images to render.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over them.")] = None,
    gamma: Annotated[float | None, typer.Option("--gamma", help="Weight of the rendering-gradient loss.")] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", help="keypoint (default), or state, RISP's own; state@w32 is narrower."),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option("--loss", help="error-gradient (default), full-jacobian, projected-jacobian or error-only."),
    ] = None,
    start: Annotated[
        Path | None, typer.Option("--start", help="Model of a similar body to begin with: saves epochs.")
    ] = None,
    mesh_units: UnitsOption = "m",
    mesh_move: MoveOption = None,
    device: DeviceOption = None,
    resume: Annotated[bool, typer.Option("--resume/--no-resume", help="Go on where an earlier run stopped.")] = True,
    work: Annotated[
        Path | None, typer.Option("--work", help="Folder of renders, checkpoints (default: runs/train-risp/NAME).")
    ] = None,
    ray: Annotated[
        str | None, typer.Option("--ray", help="Address of a Ray cluster that renders; local starts one here.")
    ] = None,
    without: Annotated[
        str, typer.Option("--without", help="For ablations, what not to vary: shadows,distractors,noise ...")
    ] = "",
    seed: SeedOption = 0,
) -> None:
    """Train the network that finds a body's keypoints in images; without options, the sample's model."""
    from vid2phys.commands.show import print_model
    from vid2phys.commands.train_risp import train_risp as run_training

    sample_mesh, sample_model = Path("samples/quadrotor/quad.obj"), Path("models/quadrotor")
    posed = mesh is None and (body is not None or system != DEFAULT_SYSTEM)
    if mesh is None and not posed and not sample_mesh.is_file():
        raise UsageError("no --mesh given", "a mesh to train for", "or run in the project's folder to train the sample")
    if out is None:
        out = Path("models") / (mesh or body or Path(system)).stem if mesh or posed else sample_model
        out = out.with_name(f"{out.name}-{head}") if head not in (None, "keypoint") else out
    chosen = {"samples": samples, "epochs": epochs, "gamma": gamma, "start": start, "device": device}
    chosen |= {"head": head, "loss": loss, "work": work, "ray": ray}
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if without:
        given["without"] = _names(without)
    shape = mesh if mesh or posed else sample_mesh
    run_training(
        shape, system, out, body=body, mesh_units=mesh_units, mesh_move=mesh_move, resume=resume, seed=seed, **given
    )
    print_model(out)


@app.command()
def card(
    model: Annotated[Path, typer.Argument(help="Model folder.", show_default=False)],
    mesh: MeshOption = None,
    body: Annotated[Path | None, typer.Option("--body", help="Robot (URDF, MJCF) that it was trained for.")] = None,
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
def simulate(
    context: typer.Context,
    system: Annotated[
        str | None, typer.Argument(help="System; `vid2phys systems` lists them.", autocompletion=_systems)
    ] = None,
    body: Annotated[
        Path | None, typer.Option("--body", help="File of your own body: a mesh, tets or a robot, by the system.")
    ] = None,
    body_units: Annotated[str, typer.Option("--body-units", help="Units of the body: m, cm or mm.")] = "m",
    set_: SetOption = None,
    params: ParamsOption = None,
    actions: ActionsOption = None,
    hold: HoldOption = False,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="How long (default: as long as the actions, or 2).")
    ] = None,
    initial: Annotated[
        list[str] | None, typer.Option("--initial", help="A state at the start, name=SI value (default: at rest).")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="Rows of trajectory.csv a second.")] = 100.0,
    step: Annotated[
        float | None, typer.Option("--step", help="Longest time step, s (default: stable, at most 1/rate).")
    ] = None,
    integrator: Annotated[
        str | None, typer.Option("--integrator", help="rk4, semi_implicit_euler or implicit_euler (default: its own).")
    ] = None,
    mesh: MeshOption = None,
    mesh_units: UnitsOption = "m",
    mesh_move: MoveOption = None,
    camera: CameraOption = None,
    camera_pose: PoseOption = None,
    fps: Annotated[float, typer.Option("--fps", help="Frames of the clip a second.")] = 30.0,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/simulate/TIME).")] = None,
    config: ConfigOption = None,
    json_: JsonOption = False,
) -> None:
    """Roll a system out in time: trajectory.csv and, with a camera and a mesh or body, a rendered clip."""
    options: dict[str, Any] = {
        "system": system, "body": body, "body_units": body_units, "set_values": _assignments("--set", set_),
        "params": params, "actions": actions, "hold": hold, "seconds": seconds,
        "initial": _assignments("--initial", initial), "rate": rate, "step": step, "integrator": integrator,
        "mesh": mesh, "mesh_units": mesh_units, "mesh_move": mesh_move, "camera": camera, "camera_pose": camera_pose,
        "fps": fps, "out": out,
    }  # fmt: skip
    if config is not None:
        options = _merge_config(context, config, "simulate", options)
        if actions is not None:  # these replace what held the system in that run
            options["hold"] = hold
    if options["system"] is None:
        raise UsageError("no system given", "a SYSTEM", "`vid2phys systems` lists them")
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_simulation
    from vid2phys.commands.simulate import simulate as run_simulation

    with show_progress() as progress:
        simulation, folder = run_simulation(options.pop("system"), **options, progress=progress)
    print_simulation(simulation, folder, as_json=json_)


@app.command("fit-recording")
def fit_recording(
    system: Annotated[str, typer.Argument(help="System; `vid2phys systems` lists them.", autocompletion=_systems)],
    recordings: Annotated[list[Path], typer.Argument(help="CSVs of recorded states: time_s and states by name.")],
    fit: Annotated[str, typer.Option("--fit", help="Parameters to fit, comma-separated.")],
    body: Annotated[Path | None, typer.Option("--body", help="File of your own body, by the system.")] = None,
    body_units: Annotated[str, typer.Option("--body-units", help="Units of the body: m, cm or mm.")] = "m",
    set_: SetOption = None,
    params: ParamsOption = None,
    actions: ActionsOption = None,
    hold: HoldOption = False,
    std: Annotated[
        list[str] | None, typer.Option("--std", help="Standard deviation of a state, name=SI value (default: found).")
    ] = None,
    offsets: Annotated[str, typer.Option("--offsets", help="States whose sensor's zero is not known.")] = "",
    most_seconds: Annotated[
        float, typer.Option("--most-seconds", help="Stop after this time with the best fit so far.")
    ] = 120.0,
    out: Annotated[Path | None, typer.Option("--out", help="Run folder (default: runs/fit-recording/TIME).")] = None,
    json_: JsonOption = False,
) -> None:
    """Fit a system's parameters to recorded states, without a video: values with 95 % intervals."""
    from vid2phys.commands.fit_recording import fit_recording as run_fit
    from vid2phys.commands.progress import show_progress
    from vid2phys.commands.show import print_recorded

    with show_progress() as progress:
        fitted, folder = run_fit(
            system, recordings, fit=_names(fit), body=body, body_units=body_units,
            set_values=_assignments("--set", set_), params=params, actions=actions, hold=hold,
            std=_assignments("--std", std), offsets=_names(offsets), most_seconds=most_seconds, out=out,
            progress=progress,
        )  # fmt: skip
    print_recorded(fitted, folder, as_json=json_)
    if fitted.status != "converged":
        raise typer.Exit(EXIT_FIT)


@app.command()
def systems(
    name: Annotated[
        str | None, typer.Argument(help="One system (default: all).", show_default=False, autocompletion=_systems)
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


def _one_or_all(values: list[_T] | None) -> _T | list[_T] | None:
    """What was given once as itself, what was given more often as a list."""
    return values[0] if values and len(values) == 1 else values or None


def _names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _assignments(flag: str, items: list[str] | None) -> dict[str, float]:
    """`name=value` texts as a dictionary. Raises UsageError for what is not of that form."""
    values: dict[str, float] = {}
    for item in items or []:
        name, equals, text = item.partition("=")
        try:
            values[name.strip()] = float(text)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            example = "mass=0.04" if flag == "--set" else "position_z_m=1.5"
            raise UsageError(f"{flag} {item}", "name=value with a number in SI units", f"for example {flag} {example}")
    return values


def _pairs(flag: str, between: str, example: str, items: list[str] | None) -> dict[str, tuple[float, float]]:
    """`name=A<between>B` texts as a dictionary. Raises UsageError for what is not of that form, or given twice."""
    values: dict[str, tuple[float, float]] = {}
    for item in items or []:
        name, _, text = item.replace("\u00b1", "+-").partition("=")
        first, _, second = text.partition(between)
        name = name.strip()
        try:
            pair = float(first), float(second)
        except ValueError:
            form = f"name=NUMBER{between}NUMBER in SI units"
            raise UsageError(f"{flag} {item}", form, f"for example {flag} {example}") from None
        if name in values or not name:
            raise UsageError(f"{flag} {item}" + (" beside another one" if name else ""), "one for each name")
        values[name] = pair
    return values


def _merge_config(context: typer.Context, config: Path, command: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a config file, with those given on the command line over them."""
    from vid2phys.commands.config import PATHS, read_config

    merged = dict(options)
    names = {"set_values": "set_", "priors": "prior", "limits": "limit"}
    for name, value in read_config(config, command).items():
        source = context.get_parameter_source(names.get(name, name))
        if name == "out" or (source is not None and source.name == "COMMANDLINE"):
            continue  # a repeated run gets a folder of its own
        if name in PATHS:
            merged[name] = [Path(str(one)) for one in value] if isinstance(value, list) else Path(str(value))
        else:
            merged[name] = value
    return merged


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


def _run() -> int:
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
