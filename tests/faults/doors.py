"""Every door that files come in by: small valid files of each kind, and the function that reads them as commands do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.mutations import BINARY, NPZ, TENSORS, TEXT, TREE, Step
from vid2phys.errors import InputError

T = 12  # frames
SIZE = (64, 48)
STEPS: dict[str, tuple[Step, ...]] = {
    **dict.fromkeys((".json", ".yaml", ".yml", ".gltf"), TREE),
    **dict.fromkeys(
        (".csv", ".txt", ".obj", ".mtl", ".off", ".xml", ".urdf", ".vtu", ".mesh", ".inp", ".vol", ".dato"),
        TEXT,
    ),
    **{".npz": NPZ, ".safetensors": TENSORS},
}


@dataclass(frozen=True)
class Door:
    """make: writes valid files into an empty folder. files: those that are spoiled, one at a time. read: what follows
    is asked of the folder and the file; it gives a value or raises a Vid2PhysError."""

    name: str
    kind: str
    files: tuple[str, ...]
    make: Callable[[Path], object]
    read: Callable[[Path, Path], object]


def steps_of(file: str) -> tuple[Step, ...]:
    """How a file of this name is spoiled."""
    return STEPS.get(Path(file).suffix, BINARY + TEXT if "ascii" in file else BINARY)


# ------------------------------------------------------------------------------------------------ video and images


def make_videos(folder: Path) -> None:
    """The same frames in three containers and codecs."""
    import av

    for name, codec, pixels in (
        ("a.mp4", "libx264", "yuv420p"),
        ("a.mkv", "mpeg4", "yuv420p"),
        ("a.avi", "mjpeg", "yuvj420p"),
    ):
        with av.open(str(folder / name), "w") as container:
            stream: Any = container.add_stream(codec, rate=30)
            stream.width, stream.height, stream.pix_fmt, stream.gop_size = *SIZE, pixels, 4
            for i in range(T):
                image = np.full((SIZE[1], SIZE[0], 3), 20 * i, np.uint8)
                image[10:30, 3 * i : 3 * i + 20] = (255, 90, 0)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode())


def read_video(_: Path, path: Path) -> object:
    from vid2phys.io.video import read_clip

    clip = read_clip(path)
    shapes = {frame.shape for frame in clip.frames}
    list(clip.frames.at([0, len(clip.times_s) - 1]))
    assert np.isfinite(clip.times_s).all()
    return shapes


def make_images(folder: Path) -> None:
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    for name in ("a.png", "a.jpg", "a.tif"):
        Image.fromarray(noise).save(folder / name)


def read_image(_: Path, path: Path) -> object:
    from vid2phys.camera_calibration.images import open_images
    from vid2phys.io.array_clip import load_image_clip

    with contextlib.suppress(InputError):
        load_image_clip(path, 3, 30.0)
    return [image.shape for _, image in open_images(path, 5)]


# ------------------------------------------------------------------------------------------------------------- shapes


def make_meshes(folder: Path) -> None:
    import trimesh

    from tests.painted_mesh import write_obj

    write_obj(folder)
    cube = trimesh.creation.box([0.1, 0.2, 0.3])
    for name in ("cube.stl", "cube.ply", "cube.off", "cube.glb", "cube.dae", "cube.3mf"):
        try:
            cube.export(folder / name)
        except Exception:  # a format that trimesh writes only with other packages is left out
            continue
    (folder / "ascii.stl").write_text(cube.export(file_type="stl_ascii"))
    (folder / "ascii.ply").write_bytes(cube.export(file_type="ply", encoding="ascii"))
    (folder / "groups.obj").write_text(
        "o one\nv 0 0 0\nv .1 0 0\nv 0 .1 0\nv 0 0 .1 1 0 0\nvt 0 0\nvt 1 1\nf 1/1 3/2 2/1\nf 1 2 4\n"
        "g two\nusemtl red\nf -4 -1 -2\nf 2//1 3//1 4//1\n"
    )
    made = cube.export(file_type="gltf")
    for name, data in made.items():
        (folder / ("cube.gltf" if name.endswith(".gltf") else name)).write_bytes(data)


MESHES = (
    *("square.obj", "paint.mtl", "map.png", "groups.obj", "cube.stl", "cube.ply", "cube.off", "cube.glb", "cube.gltf"),
    *("ascii.stl", "ascii.ply"),
)


def read_mesh(folder: Path, path: Path) -> object:
    from vid2phys.io.mesh import geometry_signature, load_mesh, mass_properties
    from vid2phys.io.texture import mean_face_colors

    mesh = load_mesh(folder / "square.obj" if path.suffix in (".mtl", ".png") else path)
    assert np.isfinite(mesh.vertices).all()
    mean_face_colors(mesh)
    return mass_properties(mesh), geometry_signature(mesh)


def make_volumes(folder: Path) -> None:
    import meshio

    from vid2phys.engine.tets import box_tets

    vertices, tets = box_tets((0.2, 0.1, 0.3), (1, 1, 2))
    body = meshio.Mesh(vertices, [("triangle", tets[:3, :3]), ("tetra", tets)])
    for name in VOLUMES[:-2]:
        body.write(folder / name)
    body.write(folder / "b.msh", file_format="gmsh22")
    body.write(folder / "ascii.msh", file_format="gmsh22", binary=False)


VOLUMES = (
    *("b.vtk", "b.vtu", "b.mesh", "b.meshb", "b.inp", "b.xml", "b.vol", "b.avs", "b.dato"),
    *("b.msh", "ascii.msh"),
)


def read_volume(_: Path, path: Path) -> object:
    from vid2phys.io.volume import load_volume

    return load_volume(path)


def make_robots(folder: Path) -> None:
    from tests.unit.test_engine_articulated import BRANCHED, CHAIN

    (folder / "arm.urdf").write_text(CHAIN)
    (folder / "arm.xml").write_text(BRANCHED)


def read_robot(_: Path, path: Path) -> object:
    from vid2phys.io.robot import load_robot

    robot = load_robot(path)
    assert np.isfinite(robot.masses).all()
    return robot


# ------------------------------------------------------------------------------------------------------------ cameras


def make_cameras(folder: Path) -> None:
    from tests.unit.test_io_camera import POSE, ROS, VINS, kalibr, yaml_of
    from tests.unit.test_io_camera_formats import colmap_model, valid_files

    for name, data in valid_files(folder).items():
        (folder / name).write_bytes(data)
    colmap_model(folder / "colmap", binary=True)
    colmap_model(folder / "colmap_text", binary=False)
    (folder / "ros.yaml").write_text(ROS + "D: [0.1, 0.2, 0, 0, 0]\n" + f"camera_to_world: {yaml_of(POSE)}\n")
    (folder / "pose.yaml").write_text(f"front:\n  camera_to_world: {yaml_of(POSE)}\n")
    (folder / "kalibr.yaml").write_text(kalibr())
    inner = "fx: 500., fy: 510., cx: 319.5, cy: 239.5"
    (folder / "vins.yaml").write_text(VINS.format(model="PINHOLE", projection=inner))
    plain = {"K-matrix": [[500, 0, 320], [0, 500, 240], [0, 0, 1]], "distCoeff": [0.1, 0, 0, 0, 0]}
    (folder / "plain.json").write_text(json.dumps(plain | {"resolution": [640, 480]}))


CAMERAS = (
    *("ros.yaml", "pose.yaml", "kalibr.yaml", "vins.yaml", "plain.json", "cameras.bin", "cameras.txt", "storage.yml"),
    *("camchain.yaml", "transforms.json", "camera.xml", "colmap/images.bin", "colmap_text/images.txt"),
)


def read_camera(folder: Path, path: Path) -> object:
    from vid2phys.io.camera import load_camera

    if path.name == "pose.yaml":
        camera = load_camera(folder / "ros.yaml", path)
    elif "colmap" in path.parent.name:
        camera = load_camera(path.parent, camera_name="two.png")
    else:
        camera = load_camera(path)
    assert np.isfinite(camera.K).all()
    assert np.isfinite(camera.distortion).all()
    return camera


# --------------------------------------------------------------------------------------------------------- recordings


def make_logs(folder: Path) -> None:
    from tests.mocap_files import c3d
    from tests.unit import test_io_mocap as poses
    from tests.unit import test_io_mocap_formats as formats

    points = formats.beside(formats.seen_markers())
    (folder / "take.c3d").write_bytes(c3d(points, formats.LABELS))
    (folder / "take.dec.c3d").write_bytes(c3d(points, formats.LABELS, kind="dec", floats=False))
    texts = {
        "motive.csv": poses.motive(poses.GOOD),
        "vicon.csv": formats.vicon(formats.TURNS.as_quat(), "RX,RY,RZ,RW", ""),
        "tum.txt": poses.TUM,
        "plain.csv": poses.PLAIN,
        "euroc.csv": poses.EUROC + "1403715274302142976,1,2,3,1,0,0,0,0\n1403715274312142976,1,2,3,1,0,0,0,0\n",
        "units.csv": poses.UNITS + "2000;1;2;3;1;0;0;0\n2010;1;2;3;1;0;0;0\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)


LOGS = ("take.c3d", "take.dec.c3d", "motive.csv", "vicon.csv", "tum.txt", "plain.csv", "euroc.csv", "units.csv")
BODIES = {"motive.csv": "quad", "vicon.csv": "lab:quad"}


def read_log(_: Path, path: Path) -> object:
    from vid2phys.io.mocap import load_mocap

    log = load_mocap(path, BODIES.get(path.name), up_axis="y")
    assert np.isfinite(log.times_s).all()
    return log


def make_trajectories(folder: Path) -> None:
    frames = [{"file_path": f"{i}.png", "transform_matrix": np.eye(4).tolist()} for i in range(T)]
    records = [
        {"timestamp": i / 30, "position": {"x": 0.1 * i, "y": 1, "z": 2}, "rotation": [0, 0, 0, 1]} for i in range(T)
    ]
    texts = {
        "images.txt": "".join(f"{i} 1 0 0 0 0.{i} 2 3 1 {i}.png\n1 2 -1\n" for i in range(T)),
        "transforms.json": json.dumps({"fl_x": 50.0, "frames": frames}),
        "phone.json": json.dumps({"frames": records}),
        "phone.csv": "time_ns,x,y,z,qx,qy,qz,qw\n" + "".join(f"{i * 33333333},0.{i},1,2,0,0,0,1\n" for i in range(T)),
        "poses.txt": "# TUM\n" + "".join(f"{i / 30:.6f} 0.{i} 1 2 0 0 0 1\n" for i in range(T)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)


TRAJECTORIES = ("images.txt", "transforms.json", "phone.json", "phone.csv", "poses.txt")


def read_trajectory(_: Path, path: Path) -> object:
    from vid2phys.io.camera_trajectory import load_camera_trajectory
    from vid2phys.types import Clip

    poses = load_camera_trajectory(path, Clip([], np.arange(T) / 30.0, *SIZE))  # type: ignore[arg-type]
    assert poses is None or np.isfinite(poses).all()
    return poses


def make_actions(folder: Path) -> None:
    rows = "".join(f"{0.04 * i:g},{7 + 0.1 * i:g},0.01,-0.02,0\n" for i in range(T))
    (folder / "wrench.csv").write_text("time_s,thrust_N,torque_x_Nm,torque_y_Nm,torque_z_Nm\n" + rows)
    rows = "".join(f"{40 * i};1.5;2;2;2\n" for i in range(T))
    (folder / "rotors.csv").write_text("# of a log\ntime_ms;rotor_0_mN;rotor_1_mN;rotor_2_mN;rotor_3_mN\n" + rows)
    (folder / "pendulum.csv").write_text("time_s,torque_Nm\n0,0.1\n0.5,0.2\n1,0\n")


def read_actions(folder: Path, path: Path) -> object:
    from vid2phys.io.actions import load_actions, load_actions_std, require_cover
    from vid2phys.types import Clip

    actions = load_actions(path, {"torque": "N m"} if path.name == "pendulum.csv" else None)
    assert np.isfinite(actions.values).all()
    require_cover(actions, Clip(None, np.arange(T) / 30.0, *SIZE), path)  # type: ignore[arg-type]
    return load_actions_std(path, actions)


def make_points(folder: Path) -> None:
    from tests.flight import fly, watch
    from vid2phys.io.recordings import save_observation

    save_observation(watch(fly(0.5)), folder / "observation.npz")
    rows = [f"{i},{name},{20 + i},{10 + 2 * k}" for i in range(T) for k, name in enumerate("abcde")]
    extra = "".join(f"{row},0.5,1,0.9,0.2\n" for row in rows)
    (folder / "k.csv").write_text("frame,point,x_px,y_px,sigma_px,visible,confidence,shared_px\n" + extra)
    columns = "frame;point;x;y;cov_xx_px2;cov_xy_px2;cov_yy_px2\n"
    (folder / "cov.csv").write_text(columns + "".join(row.replace(",", ";") + ";1;0,1;1\n" for row in rows))
    places = "a,0.1,0,0\nb,0,0.1,0\nc,0,0,0.1\nd,-0.1,0,0\ne,0,-0.1,0.02\n"
    (folder / "body.csv").write_text("name,x_m,y_m,z_m\n" + places)
    (folder / "scene.csv").write_text(
        "name,x_mm,y_mm,z_mm,u_px,v_px\n" + places.replace("\n", ",3,4\n", 4).rstrip() + ",5,6\n"
    )
    (folder / "markers.csv").write_text("id,corner,x_cm,y_cm,z_cm\n1,0,0,0,0\n1,1,1,0,0\n1,2,1,1,0\n1,3,0,1,0\n")


POINTS = ("observation.npz", "k.csv", "cov.csv", "body.csv", "scene.csv", "markers.csv")


def read_points(folder: Path, path: Path) -> object:
    from vid2phys.io.keypoints import load_keypoints
    from vid2phys.io.points import load_body_points, load_markers, load_points
    from vid2phys.io.recordings import load_observation

    if path.name == "observation.npz":
        return load_observation(path)
    if path.name in ("scene.csv", "markers.csv"):
        return (load_points if path.name == "scene.csv" else load_markers)(path)
    points = load_body_points(folder / "body.csv")
    seen = load_keypoints(
        folder / "k.csv" if path.name == "body.csv" else path, tuple(points), np.arange(T) / 30.0, SIZE, path
    )
    assert np.isfinite(seen.pixels[seen.visible]).all()
    return seen


# ------------------------------------------------------------------------------------------------------------ options


def make_options(folder: Path) -> None:
    (folder / "clips.yaml").write_text(
        "defaults:\n  mesh: quad.obj\n  camera: cam.yaml\n  fit: [mass, drag]\n  actions: logs/{stem}.csv\n"
        "  prior: {mass: [0.4, 0.05]}\n".replace("prior", "priors")
        + "  set: {drag: 0.1}\n  seed: 3\n  overlay: false\nclips:\n  - a.mp4\n  - clip: b.mp4\n    name: heavy\n"
    )
    (folder / "config.yaml").write_text(
        "command: identify\nclip: a.mp4\nmesh: quad.obj\ncamera: cam.yaml\nfit: [mass]\nset_values: {drag: 0.1}\n"
        "bounds: {mass: [0.1, 2.0]}\nmethod: smoothing\nstarts: 1\nseed: 0\nrefine: true\n"
    )
    (folder / "simulate.yaml").write_text(
        "command: simulate\nsystem: pendulum\nbody_units: m\nset_values: {length: 0.5}\ninitial: {angle_rad: 1.0}\n"
        "seconds: 0.02\nrate: 50.0\nmesh_units: m\nfps: 30.0\n"
    )
    (folder / "params.yaml").write_text("mass: 0.72\ndrag: 0.1\ninertia_xx: 0.004\n")


OPTIONS = ("clips.yaml", "config.yaml", "simulate.yaml", "params.yaml")


def read_options(folder: Path, path: Path) -> object:
    from vid2phys.commands.batch import read_jobs
    from vid2phys.commands.config import read_config
    from vid2phys.commands.configs import SimulateConfig
    from vid2phys.commands.fit_parameters import read_parameters
    from vid2phys.commands.identify.config import IdentifyConfig
    from vid2phys.commands.options import built
    from vid2phys.commands.simulation_inputs import read_inputs

    if path.name == "clips.yaml":
        return read_jobs(path, folder / "out")
    if path.name == "params.yaml":
        return read_parameters(path)
    if path.name == "simulate.yaml":
        return read_inputs(built(SimulateConfig, read_config(path, SimulateConfig)))
    return read_config(path, IdentifyConfig)


# ------------------------------------------------------------------------------------------------------------- models


def make_models(folder: Path) -> None:
    import torch

    from tests.unit.test_risp_model import SIZES, box, make_model
    from vid2phys.engine.movable.joints import JointBody
    from vid2phys.engine.movable.modes import Motions
    from vid2phys.engine.systems import get
    from vid2phys.error_model import Calibration
    from vid2phys.io.mesh import geometry_signature
    from vid2phys.risp.networks.model import Model, Shape
    from vid2phys.risp.networks.network import KeypointNetwork
    from vid2phys.risp.networks.state_model import StateModel
    from vid2phys.risp.networks.state_network import StateNetwork
    from vid2phys.risp.shape.pose_encoding import PoseEncoding

    torch.set_num_threads(1)
    score = {
        **{"command": "vid2phys train-risp", "seed": 0, "machine": "2 cores", "seconds": {"rendering": 1.5}},
        **{"data": {"renders": 64, "with_gradients": 16, "held_out": 8}, "training": {"without": ["noise"]}},
        "validation": {"calibration": {"points": 1.0}},
    }
    model = make_model(box(0.1, 0.1, 0.03)).with_calibration(Calibration().to_dict())
    model.save(folder / "rigid", score)
    hand = JointBody(get("hand"))
    count = len(hand.points_body)
    shape = Shape(
        *("hand", geometry_signature(hand.mesh), hand.points_body, np.eye(3)[None], np.arange(count)[None], None),
        "hand",
        kind="joints",
        cameras=hand.cameras,
    )
    network = KeypointNetwork(count, **SIZES["fine"]).eval()
    Model(shape, network, None, 128, {"fine": SIZES["fine"]}).save(folder / "hand", score)
    StateModel(
        "quadrotor", PoseEncoding(0.1, 96), 8, StateNetwork(PoseEncoding.SIZE, width=8).eval(), 96
    ).save(folder / "state", score)  # fmt: skip
    rng = np.random.default_rng(0)
    elements = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
    Motions(rng.normal(size=(5, 3)), elements, rng.normal(size=(2, 5, 3)), rng.normal(size=(9, 2)), 0.01, 1e-4).save(
        folder / "modes.safetensors"
    )


MODELS = (
    *("rigid/config.json", "rigid/fine.safetensors", "rigid/coarse.safetensors", "rigid/score.json"),
    *("hand/config.json", "state/state.json", "state/state.safetensors", "modes.safetensors"),
)


def read_model(_: Path, path: Path) -> object:
    from tests.unit.test_risp_model import box
    from vid2phys.commands.card import read_score
    from vid2phys.engine.movable.modes import Motions
    from vid2phys.engine.systems import get
    from vid2phys.risp.networks.articulated_bodies import body_of_model
    from vid2phys.risp.networks.model import Model
    from vid2phys.risp.networks.model_lookup import find_model
    from vid2phys.risp.networks.state_model import StateModel

    if path.name == "modes.safetensors":
        return Motions.load(path)
    if path.name == "score.json":
        return read_score(path.parent)
    views = np.zeros((1, 96, 96, 3), np.uint8)
    if path.parent.name == "state":
        return StateModel.load(path.parent)
    if path.parent.name == "hand":
        return body_of_model(Model.load(path.parent), get("hand"))
    model = find_model(box(0.1, 0.1, 0.03), path.parent)
    return model.predict(views) if model.view_size == 96 else model


# ------------------------------------------------------------------------------------------------------------ results


def make_run(folder: Path) -> None:
    from tests.synthetic import mocap_of, noisy_result, save_log, save_run, short_flight
    from vid2phys.io.actions import save_actions

    flight = short_flight()
    result = noisy_result(flight)
    save_run(folder / "run", flight, result)
    assert result.actions is not None
    save_actions(result.actions, folder / "run" / "actions.csv", result.actions_std)
    (folder / "run" / "config.yaml").write_text(
        f"command: identify\nmesh: {folder}/inputs/mesh.obj\ncamera: {folder}/inputs/camera.yaml\nmesh_units: m\n"
    )
    save_log(mocap_of(flight, 0.3), folder / "log.txt")
    (folder / "inputs" / "mesh.obj").unlink()  # whose symmetry would take a second to find each time


RUNS = ("run/result.json", "run/trajectory.csv", "run/actions.csv", "run/observation.npz", "run/config.yaml")


def read_run(folder: Path, path: Path) -> object:
    from vid2phys.api import load_run
    from vid2phys.commands import evaluate
    from vid2phys.errors import Vid2PhysError

    try:
        run = load_run(path.parent)
        assert run.positions_m.shape == (len(run.trajectory.times_s), 3)
        assert run._repr_html_()
    except Vid2PhysError as error:
        require_one_line(error)
    return evaluate.load_run(path.parent)


def require_one_line(error: Exception) -> None:
    """What the user reads is a line that can be read."""
    said = str(error)
    assert said
    assert len(said) < 4000, f"a line of {len(said)} characters: {said[:300]}"


DOORS = (
    Door("video", "video", ("a.mp4", "a.mkv", "a.avi"), make_videos, read_video),
    Door("images", "video", ("a.png", "a.jpg", "a.tif"), make_images, read_image),
    Door("mesh", "mesh", MESHES, make_meshes, read_mesh),
    Door("volume", "mesh", VOLUMES, make_volumes, read_volume),
    Door("robot", "mesh", ("arm.urdf", "arm.xml"), make_robots, read_robot),
    Door("camera", "camera", CAMERAS, make_cameras, read_camera),
    Door("mocap", "mocap", LOGS, make_logs, read_log),
    Door("trajectory", "camera poses", TRAJECTORIES, make_trajectories, read_trajectory),
    Door("actions", "actions", ("wrench.csv", "rotors.csv", "pendulum.csv"), make_actions, read_actions),
    Door("points", "keypoints", POINTS, make_points, read_points),
    Door("options", "batch and config", OPTIONS, make_options, read_options),
    Door("model", "model", MODELS, make_models, read_model),
    Door("run", "result", RUNS, make_run, read_run),
)
