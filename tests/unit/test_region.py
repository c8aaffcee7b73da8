"""Silhouettes are judged by how well they part the colours of a frame."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from tests.unit.test_ambiguous_poses import CAMERA, SOLID, TRUTH, photograph
from vid2phys.geometry import matrix_from_rotvec
from vid2phys.tracking.cues.region import DEFAULTS, Region
from vid2phys.tracking.cues.silhouette import Drawing, draw
from vid2phys.tracking.detectors.network import direction_and_size
from vid2phys.types import Array, Camera

RADIUS_M = float(np.linalg.norm(SOLID.mesh.vertices, axis=1).max())


def region_of(image: np.ndarray, camera: Camera = CAMERA, place: Array = TRUTH[1]) -> Region:
    center, radius = direction_and_size(place, RADIUS_M)
    return Region.of(image, camera, center, float(radius))


def drawing_of(rotation: Array, translation: Array) -> Drawing:
    drawing = draw(SOLID.mesh.vertices @ rotation.T + translation, SOLID.mesh.faces)
    assert drawing is not None
    return drawing


def test_two_colours_give_the_entropy_of_the_label() -> None:
    drawing = drawing_of(*TRUTH)
    rows, columns = np.mgrid[: CAMERA.height, : CAMERA.width]
    bearings = (np.stack([columns, rows], axis=-1) - CAMERA.K[:2, 2]) / np.diag(CAMERA.K)[:2]
    x, y = np.moveaxis(np.rint(drawing.focal * bearings - drawing.corner).astype(int), -1, 0)
    height, width = drawing.nearness.shape
    on = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    covered = np.zeros(on.shape, bool)
    covered[on] = drawing.nearness[y[on], x[on]] > 0.0
    region = region_of(np.where(covered[..., None], [20, 20, 200], [230, 120, 10]).astype(np.uint8))
    cells = int((region.colors >= 0).sum())
    share = covered.sum() * (1.0 / 600.0 / 610.0) / (cells * region.step**2)  # of the circle that is covered
    expected = cells * (entr(share) + entr(1.0 - share)) / DEFAULTS.correlated_cells
    assert abs(region.evidence(drawing) / expected - 1.0) < 0.1  # cells on the edge are of both


def test_the_true_pose_parts_colours_best() -> None:
    region = region_of(photograph())
    true = region.evidence(drawing_of(*TRUTH))
    for turn in np.vstack([0.15 * np.eye(3), 0.6 * np.eye(3)]):
        assert region.evidence(drawing_of(matrix_from_rotvec(turn) @ TRUTH[0], TRUTH[1])) < true
    aside = region.evidence(drawing_of(TRUTH[0], TRUTH[1] + [0.03, 0.0, 0.0]))
    assert aside < true - 20.0


def test_one_colour_and_what_is_off_the_frame_say_nothing() -> None:
    drawing = drawing_of(*TRUTH)
    assert abs(region_of(np.full((480, 640, 3), 90, np.uint8)).evidence(drawing)) < 1e-3
    off = Camera(CAMERA.K - np.array([[0.0, 0.0, 2000.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), 640, 480)
    nothing = region_of(photograph(), off)
    assert (nothing.colors < 0).all()
    assert nothing.evidence(drawing) == 0.0


def test_a_body_whose_middle_the_lens_does_not_show_is_looked_at_all_the_same() -> None:
    lens = Camera(CAMERA.K, 640, 480, np.array([-0.4, 0.0, 0.0, 0.0]))
    region = region_of(photograph(), lens, np.array([3.0, 0.0, 1.0]))
    assert np.isfinite(region.evidence(drawing_of(*TRUTH)))
