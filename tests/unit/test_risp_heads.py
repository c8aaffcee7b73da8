"""Both heads: what they learn, from what, and that the numbers of a state are what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from experiments.state_vector import rigid_vector, state_vector
from tests.unit.risp_synthetic import RADIUS_M, square_body, training_data, write_renders
from vid2phys.engine.systems import get
from vid2phys.errors import InputError, UsageError
from vid2phys.risp import heads
from vid2phys.risp.networks.model_folders import model_folders
from vid2phys.risp.networks.network import to_input
from vid2phys.risp.networks.state_model import StateModel
from vid2phys.risp.networks.state_network import StateNetwork
from vid2phys.risp.recipes import PenaltyOptions, TrainingData, TrainingRun, head_of, paper_schedule, train_head
from vid2phys.risp.renders.stream import ImageStream, Key, StreamSettings
from vid2phys.risp.shape.configuration_encoding import ConfigurationEncoding
from vid2phys.risp.shape.pose_encoding import PoseEncoding
from vid2phys.risp.training.train import Schedule

VIEW = 48


def poses(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Poses [N, 4, 4] about 1 m before cameras [N, 3, 3] that see the body well."""
    rng = np.random.default_rng(seed)
    pose, camera = np.tile(np.eye(4), (count, 1, 1)), np.tile(np.eye(3), (count, 1, 1))
    pose[:, :3, :3] = Rotation.random(count, random_state=seed).as_matrix()
    pose[:, :3, 3] = np.array([0.0, 0.0, 1.0]) + rng.normal(0.0, 0.02, (count, 3))
    camera[:, 0, 0] = camera[:, 1, 1] = rng.uniform(120, 200, count)
    camera[:, :2, 2] = 23.5 + rng.normal(0.0, 2.0, (count, 2))
    return torch.from_numpy(pose), torch.from_numpy(camera)


def test_numbers_of_a_view_are_the_pose() -> None:
    pose, camera = poses(50)
    codes = PoseEncoding(RADIUS_M, VIEW)
    numbers = codes.encode(pose, camera)
    assert numbers.shape == (50, PoseEncoding.SIZE)
    assert torch.allclose(codes.decode(numbers, camera), pose, atol=1e-9)
    stretched = torch.cat([numbers[:, :3], 0.7 * numbers[:, 3:]], dim=1)  # a network's sines and cosines are shorter
    assert torch.allclose(codes.decode(stretched, camera), pose, atol=1e-9)
    angles = Rotation.from_matrix(pose[:, :3, :3].numpy()).as_euler("XYZ")
    assert np.allclose(numbers[:, 3::2], np.sin(angles))
    assert np.allclose(numbers[:, 4::2], np.cos(angles))


def test_position_is_told_in_the_view() -> None:
    pose, camera = torch.eye(4)[None].double(), torch.eye(3)[None].double()
    pose[0, :3, 3] = torch.tensor([0.1, -0.05, 2.0])
    camera[0, 0, 0] = camera[0, 1, 1] = 320.0  # the sphere's diameter is 32 px = 2/3 of the view
    camera[0, :2, 2] = 23.5
    numbers = PoseEncoding(RADIUS_M, VIEW).encode(pose, camera)[0]
    assert torch.allclose(numbers[:3], torch.tensor([16.0 / 24.0, -8.0 / 24.0, 0.0]).double(), atol=1e-7)


@pytest.mark.parametrize("index", range(4))
def test_a_developed_image_has_its_own_camera(tmp_path: Path, index: int) -> None:
    """Points projected by it are where the jittered image has them."""
    body = square_body()
    folder = write_renders(tmp_path / "data", body, 32)
    item = ImageStream(StreamSettings(folder, body.points, RADIUS_M, view_size=VIEW, bank_count=4))[
        Key(1, index, "gradient")
    ]
    pose, camera = item["view_from_body"].numpy(), item["K"].numpy()
    pixels = (body.points @ pose[:3, :3].T + pose[:3, 3]) @ camera.T
    assert np.allclose(pixels[:, :2] / pixels[:, 2:], item["points_px"], atol=1e-3)
    assert np.isclose(camera[0, 0], camera[1, 1])
    assert abs(camera[0, 1]) < 1e-4


def head(spec: str) -> heads.Head:
    return heads.get(spec, square_body(), radius_m=RADIUS_M, view_size=VIEW)


def test_heads_are_found_by_name_and_width() -> None:
    assert {"keypoint", "state"} <= set(heads.available())
    network = head("state").network()
    assert isinstance(network, StateNetwork)
    # 11.18 M of ResNet-18 (He et al. 2016) without its 1000 classes and its norms' 9,600 affine parameters
    assert sum(p.numel() for p in network.parameters()) == 11_176_512 - 9_600 + 513 * 9
    narrow = sum(p.numel() for p in head("state@w32").network().parameters())
    assert 2.7e6 < narrow < 2.9e6
    for spec, message in (("pose", "unknown head 'pose'"), ("state@32", "state@w32"), ("state@w9", "multiple of 8")):
        with pytest.raises(UsageError, match=message):
            head(spec)


def test_the_papers_network_does_not_see_a_factor_of_its_input() -> None:
    """Instance norm without affine parameters: the first layer is linear without a bias, so a factor drops out."""
    torch.manual_seed(0)
    network = head("state@w8").network().double()
    image = torch.rand(1, 3, VIEW, VIEW).double()
    assert torch.allclose(network(image), network(3.0 * image), atol=1e-3)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in network.modules())


def test_state_error_is_blind_to_the_group() -> None:
    body, state = square_body(), head("state")
    pose, camera = poses(6)
    batch = {"view_from_body": pose, "K": camera, "visible": torch.ones(6, 8, dtype=torch.bool)}
    codes = PoseEncoding(RADIUS_M, VIEW)
    for rotation in torch.from_numpy(body.rotations):
        turned = pose.clone()
        turned[:, :3, :3] = pose[:, :3, :3] @ rotation
        assert state.error(codes.encode(turned, camera), batch).max() < 1e-6
    turned[:, :3, :3] = pose[:, :3, :3] @ torch.from_numpy(Rotation.from_euler("z", 30, degrees=True).as_matrix())
    assert state.error(codes.encode(turned, camera), batch).min() > 0.02
    batch["visible"][2] = False
    assert state.error(codes.encode(turned, camera), batch)[2] == 0.0


class Quiet:
    """Reports nothing."""

    def step(self, stage: str, done: int, total: int) -> None: ...

    def note(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    torch.set_num_threads(1)
    body = square_body()
    return training_data(write_renders(tmp_path_factory.mktemp("renders"), body, 40), body)


@pytest.mark.parametrize(
    ("spec", "loss"),
    [
        ("state@w8", "error-gradient"),
        ("state@w8", "full-jacobian"),
        ("state@w8", "error-only"),
        ("keypoint@w8", "projected-jacobian"),
    ],
)
def test_heads_train_with_every_loss(data: TrainingData, tmp_path: Path, spec: str, loss: str) -> None:
    schedule, run = Schedule(2, batch=8, workers=0), TrainingRun(tmp_path, "cpu", Quiet())
    penalty = PenaltyOptions(1.0, loss, every=2)
    trained = train_head(data, head_of(data, spec), schedule, run, penalty, seed=3)
    assert len(trained.history) == 2
    assert all(np.isfinite(list(entry.values())).all() for entry in trained.history)
    assert {"rotation_deg", "sideways_mm", "depth_percent"} <= set(trained.history[0])
    assert any(name.startswith("gradient") for name in trained.history[0]) == (loss != "error-only")
    again = train_head(data, head_of(data, spec), schedule, run, penalty, seed=3)
    image = to_input(torch.zeros(1, VIEW, VIEW, 3).uniform_(0, 255))
    assert torch.equal(again.network(image), trained.network(image))


def test_the_papers_schedule() -> None:
    schedule = paper_schedule()
    assert (schedule.epochs, schedule.batch, schedule.learning_rate, schedule.weight_decay) == (100, 16, 1e-2, 1e-6)
    assert schedule.optimizer is torch.optim.Adam
    assert schedule.average == 0.0


def test_a_saved_state_model_reads_the_same_poses(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = StateModel("quadrotor", PoseEncoding(RADIUS_M, VIEW), 8, head("state@w8").network().eval(), VIEW)
    model.save(tmp_path / "quad-state", {"seed": 0})
    images = np.random.default_rng(0).integers(0, 255, (3, VIEW, VIEW, 3), dtype=np.uint8)
    camera = poses(3)[1].numpy()
    loaded = StateModel.load(tmp_path / "quad-state")
    assert np.array_equal(loaded.predict_poses(images, camera), model.predict_poses(images, camera))
    assert loaded.predict_poses(images, camera).shape == (3, 4, 4)
    assert sorted(p.name for p in (tmp_path / "quad-state").iterdir()) == [
        "score.json", "state.json", "state.safetensors",
    ]  # fmt: skip
    assert not list(model_folders([tmp_path]))  # never taken for one that clips are tracked with
    (tmp_path / "quad-state" / "state.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"holds no model of the state head .* train it again"):
        StateModel.load(tmp_path / "quad-state")


def test_a_state_that_is_no_pose_is_learnt_as_numbers() -> None:
    """Angles of a hand, heights of a rod: the paper's vector itself."""
    body = square_body()
    angles = heads.get("state@w8", body, radius_m=RADIUS_M, view_size=VIEW, numbers=13)
    output = angles.network()(to_input(torch.zeros(2, VIEW, VIEW, 3).uniform_(0, 255)))
    assert output.shape == (2, 13)
    batch = {"state": output.detach() + 0.5, "visible": torch.ones(2, 8, dtype=torch.bool)}
    assert torch.allclose(angles.error(output, batch), torch.tensor(0.49), atol=1e-3)


STATES = {"quadrotor": 9, "rigid_contact": 9, "hand": 13, "rod": 10}


@pytest.mark.parametrize("name", STATES)
def test_the_papers_state_vectors(name: str) -> None:
    system = get(name)
    states = system.sample_state(np.random.default_rng(0), 3)
    assert state_vector(system, states).shape == (3, STATES[name])
    if name == "rod":
        rest = system.rest_state()
        lifted = rest.copy()
        lifted[2 : lifted.size // 2 : 3] += 0.03
        assert np.allclose(state_vector(system, lifted) - state_vector(system, rest), 0.03, atol=1e-9)
    elif name == "hand":
        assert np.array_equal(state_vector(system, states), states[:, :13])


def test_the_papers_vector_of_a_pose() -> None:
    rotation = Rotation.from_euler("ZYX", [70.0, -20.0, 35.0], degrees=True).as_matrix()
    vector = rigid_vector(np.array([0.5, -1.0, 2.0]), rotation, half_range_m=np.array([1.0, 2.0, 4.0]))
    roll, pitch, yaw = np.deg2rad([35.0, -20.0, 70.0])
    expected = [*(0.5, -0.5, 0.5), *np.sin([roll, pitch, yaw]), *np.cos([roll, pitch, yaw])]
    assert np.allclose(vector, expected)
    with pytest.raises(UsageError, match="no state vector of the paper for 'cloth'"):
        state_vector(get("cloth"), get("cloth").rest_state())


def test_a_saved_model_of_configurations_reads_the_same(tmp_path: Path) -> None:
    """An angle, told by its sine and cosine, and a height."""
    codes = ConfigurationEncoding((True, False), (1.0, 0.02))
    truth = np.array([[2.5, 0.01], [-0.3, -0.004]])
    assert np.allclose(codes.encode(truth)[0], [np.sin(2.5), 0.5, np.cos(2.5)])
    torch.manual_seed(0)
    model = StateModel("hand", codes, 8, StateNetwork(codes.size, width=8).eval(), VIEW)
    images = np.random.default_rng(0).integers(0, 255, (2, VIEW, VIEW, 3)).astype(np.uint8)
    (tmp_path / "hand").mkdir()
    model.save(tmp_path / "hand", {})
    loaded = StateModel.load(tmp_path / "hand")
    assert loaded.codes == codes
    assert loaded.view_size == VIEW
    found = model.predict_configurations(images)
    assert found.shape == (2, 2)
    assert np.array_equal(loaded.predict_configurations(images), found)


def test_the_error_of_a_configuration_is_that_of_its_numbers() -> None:
    state = heads.get("state@w8", square_body(), radius_m=RADIUS_M, view_size=VIEW, numbers=3)
    wanted = torch.tensor([[0.1, -0.4, 0.7], [0.0, 0.2, 0.3]])
    batch = {"state": wanted, "visible": torch.tensor([[True, False], [False, False]])}
    error = state.error(wanted + torch.tensor([0.3, 0.0, 0.0]), batch)
    assert error[0] == pytest.approx(0.1, abs=0.004)  # smooth at zero
    assert error[1] == 0.0  # an image without the body
    assert sum(p.numel() for p in state.network().parameters() if p.dim() == 1) == 3
