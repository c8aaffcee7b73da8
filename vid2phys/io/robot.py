"""Read robots: trees of revolute and prismatic joints from URDF or MJCF, by MuJoCo's own parser.

Links that are fixed to each other become one, with the mass and inertia of all. A body without <inertial> gets them
from its geometry at MuJoCo's density of 1000 kg/m^3 (in URDF: from its collision geometry). Limits: other joints and
closed loops are refused, actuators are ignored.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree  # nosec B405

import numpy as np
from numpy.typing import NDArray

from vid2phys.errors import InputError
from vid2phys.geometry import matrix_from_quat
from vid2phys.io.files import read_text
from vid2phys.types import Array, Mesh

A_ROBOT = "a robot (URDF or MJCF)"
JointType = Literal["revolute", "prismatic"]
_URDF_JOINTS = ("revolute", "continuous", "prismatic", "fixed")
_XACRO = "{http://www.ros.org/wiki/xacro}"
_NOT_FINITE = re.compile(r"(?:^|\s)[-+]?(?:nan|inf(?:inity)?)(?:\s|$)", re.IGNORECASE)
_LARGEST = 1e6
_BONE = 0.05  # radius over length of the bone of a link without geometry


@dataclass(frozen=True)
class Part:
    """A body of the file with mass; one that is fixed to another shares its link.

    link: index of the link that it belongs to. mass: kg. com: [3] m in the link's axes. inertia: [3, 3] kg m^2 about
    the centre of mass, in the link's axes. is_end: whether it carries no other part.
    """

    name: str
    link: int
    mass: float
    com: Array
    inertia: Array
    is_end: bool


@dataclass(frozen=True)
class Robot:
    """A tree of L links; link 0 is the base, link i > 0 hangs on its parent by joint i - 1.

    At rest every joint is at its `reference`. Link axes have their origin on the joint. parents: [L], -1 for the base,
    parents[i] < i. offsets: [L, 3] m, origin in the parent's axes at rest. rotations: [L, 3, 3], link axes in the
    parent's at rest. axes: [L, 3] of the joint, unit, in link axes (the base's is unused). masses: [L] kg. coms: [L, 3]
    m in link axes. inertias: [L, 3, 3] kg m^2 about the centre of mass, in link axes. These are the sums over `parts`,
    the bodies of the file in the order of their links.

    Of the L - 1 joints, in SI: reference, stiffness and the coordinate where the spring rests (spring_reference),
    damping, friction (dry), armature (inertia of the drive), lower and upper limits (infinite without). mesh: the links
    at rest in the base's axes; `part` is the link. gravity: m/s^2. has_geometry: False where the file draws no link, so
    that the mesh is made of bones.
    """

    name: str
    link_names: tuple[str, ...]
    parents: NDArray[np.int64]
    offsets: Array
    rotations: Array
    axes: Array
    masses: Array
    coms: Array
    inertias: Array
    joint_names: tuple[str, ...]
    joint_types: tuple[JointType, ...]
    reference: Array
    stiffness: Array
    spring_reference: Array
    damping: Array
    friction: Array
    armature: Array
    lower: Array
    upper: Array
    free_base: bool
    mesh: Mesh
    parts: tuple[Part, ...]
    gravity: float = 9.81
    has_geometry: bool = True

    def moved(self, rotation: Array, shift: Array) -> Robot:
        """Return the robot with its base rotated by [3, 3], then shifted by [3] m. Gravity stays along -z."""
        on_base = (self.parents == 0)[:, None]
        mesh = replace(self.mesh, vertices=self.mesh.vertices @ rotation.T + shift)
        return replace(
            self,
            offsets=np.where(on_base, self.offsets @ rotation.T + shift, self.offsets),
            rotations=np.where(on_base[..., None], rotation @ self.rotations, self.rotations),
            mesh=mesh,
        )


def load_robot(path: str | Path, *, free_base: bool | None = None) -> Robot:
    """Return the robot of a URDF or MJCF file. Actuators of an MJCF file are ignored with a warning.

    Args:
        path: of the file.
        free_base: True lets the base move; None: as in the file (a URDF's base is fixed to the world).

    Raises:
        InputError: the file is not readable, meshes are missing, masses are not positive, joints are neither revolute
            nor prismatic, or loops are closed.
    """
    text = read_text(path, A_ROBOT)
    return parse_robot(text, Path(path), free_base=free_base)


def parse_robot(text: str, path: Path, *, free_base: bool | None = None) -> Robot:
    """Return the robot of a text, as `load_robot` does.

    path: what errors name; meshes are searched for in its folder.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities can grow without end, or read other files
        raise InputError(f"'{path}' has a document type of its own", A_ROBOT, "remove <!DOCTYPE ...> and its entities")
    try:
        root = ElementTree.fromstring(text)  # nosec B314
    except ElementTree.ParseError as error:
        raise InputError(f"'{path}' is not valid XML ({error})", A_ROBOT, "copy or export it again") from error
    _require_finite(root, path)
    if root.tag == "robot":
        _prepare_urdf(root, path)
    elif root.tag == "mujoco":
        _prepare_mjcf(root, path)
    else:
        got = f"'{path}' begins with <{root.tag}>"
        raise InputError(got, "<robot> (URDF) or <mujoco> (MJCF)", "check that this is the right file")
    model = _compile(ElementTree.tostring(root, encoding="unicode"), path, free_base)
    _refuse_unsupported(model, path)
    return _Builder(model, path).robot()


def _require_finite(root: Any, path: Path) -> None:
    """Raise InputError for a NaN or an infinity; MuJoCo would only warn, on the screen and in a log."""
    for element in root.iter():
        for key, value in element.attrib.items():
            if key != "name" and _NOT_FINITE.search(value):
                got = f"{key} of <{element.tag}> in '{path}' is '{value}'"
                raise InputError(got, "finite numbers", "correct it")


def _prepare_urdf(root: Any, path: Path) -> None:
    """Check what MuJoCo would not name, make mesh paths absolute, and have fixed links and visuals kept."""
    if any(str(element.tag).startswith(_XACRO) for element in root.iter()):
        raise InputError(f"'{path}' has xacro macros", "a plain URDF", f"run: xacro {path} > robot.urdf")
    for joint in root.findall("joint"):
        name, kind = joint.get("name", "?"), joint.get("type", "")
        if kind not in _URDF_JOINTS:
            got, remedy = f"joint '{name}' of '{path}' is of type '{kind}', which is not supported", "model it as these"
            raise InputError(got, f"one of {', '.join(_URDF_JOINTS)}", remedy)
        if joint.find("mimic") is not None:
            got = f"joint '{name}' of '{path}' mimics another, which is not supported"
            raise InputError(got, "joints that move by themselves", "remove <mimic>; the joint is then free")
    for link in root.findall("link"):
        mass = link.find("inertial/mass")
        if mass is not None:
            _check_mass(path, link.get("name", "?"), mass.get("value", "0"), zero=True)
    for mesh in root.iter("mesh"):
        mesh.set("filename", str(_find_mesh(mesh.get("filename", ""), path)))
    for own in root.findall("mujoco"):
        root.remove(own)
    keep = {"discardvisual": "false", "fusestatic": "false", "strippath": "false"}
    ElementTree.SubElement(ElementTree.SubElement(root, "mujoco"), "compiler", keep)


def _prepare_mjcf(root: Any, path: Path) -> None:
    """Check masses, and make paths absolute, since MuJoCo is given the text."""
    for body in root.iter("body"):
        for element in body:
            if element.tag in ("inertial", "geom") and element.get("mass") is not None:
                _check_mass(path, body.get("name", "?"), element.get("mass"), zero=element.tag == "geom")
    compilers = root.findall("compiler")
    if not compilers:
        compilers = [ElementTree.SubElement(root, "compiler")]
    for compiler in compilers:
        for key in ("meshdir", "texturedir", "assetdir"):
            if compiler.get(key) is not None:
                compiler.set(key, str((path.parent / compiler.get(key)).resolve()))
        compiler.set("fusestatic", "false")
        compiler.set("discardvisual", "false")
    folder = next((c.get(k) for k in ("meshdir", "assetdir") for c in compilers if c.get(k)), path.parent.resolve())
    for include in root.iter("include"):
        include.set("file", str((path.parent / include.get("file", "")).resolve()))
    for mesh in root.findall("asset/mesh"):
        if mesh.get("file") is not None:
            mesh.set("file", str(_find_mesh(mesh.get("file"), Path(folder) / path.name)))


def _check_mass(path: Path, link: str, value: Any, *, zero: bool) -> None:
    try:
        mass = float(value)
    except ValueError:
        raise InputError(f"mass '{value}' of link '{link}' in '{path}'", "a number in kg", "correct it") from None
    if not np.isfinite(mass) or mass < 0.0 or (mass == 0.0 and not zero):
        raise InputError(f"link '{link}' of '{path}' has a mass of {mass:g} kg", "a positive mass", "correct it")


def _find_mesh(filename: str, path: Path) -> Path:
    """Return the file of a mesh: package:// and relative names are searched for in the robot's folder and above."""
    name = re.sub(r"^file://", "", filename)
    parts = Path(re.sub(r"^(package|model)://[^/]*/?", "", name)).parts
    folders = [path.parent.resolve(), *list(path.parent.resolve().parents)[:3]]
    tried = [Path(name)] if Path(name).is_absolute() else [folder.joinpath(*parts) for folder in folders]
    for candidate in tried:
        if os.path.isfile(candidate):
            return candidate.resolve()
    got = f"mesh '{filename}' of '{path}' is missing"
    raise InputError(got, f"a file such as '{tried[0]}'", "put the mesh there, or correct its name in the robot")


def _compile(text: str, path: Path, free_base: bool | None) -> Any:
    """Return MuJoCo's model. Raises InputError with MuJoCo's reason."""
    import mujoco

    try:
        spec = mujoco.MjSpec.from_string(text)
        if free_base is not None:
            _set_base(mujoco, spec, path, free=free_base)
        return spec.compile()
    except ValueError as error:
        raise _compile_error(" ".join(str(error).split()), path) from error


def _compile_error(reason: str, path: Path) -> InputError:
    name = re.search(r"Element name '([^']*)'", reason)
    if "mass and inertia of moving bodies" in reason:
        link = f"link '{name.group(1)}'" if name and name.group(1) else "a link"
        got = f"{link} of '{path}' moves and has no mass or no inertia"
        return InputError(got, "a positive mass and inertia", "give it an <inertial>, or geometry to take them from")
    missing = re.search(r"opening file '([^']*)'", reason)
    if missing:
        return InputError(f"'{missing.group(1)}', which '{path}' needs, is missing", "the file", "put it there")
    return InputError(f"'{path}' cannot be read ({reason})", A_ROBOT, "correct what MuJoCo's message names")


def _set_base(mujoco: Any, spec: Any, path: Path, *, free: bool) -> None:
    """Give the only root body a free joint, or take it away."""
    roots = list(spec.worldbody.bodies)
    own = [joint for body in roots for joint in body.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]
    if not free:
        for joint in own:
            spec.delete(joint)
    elif not own:
        if len(roots) != 1 or len(roots[0].joints):
            got = (
                f"'{path}' has {len(roots)} bodies on the world"
                if len(roots) != 1
                else f"the base of '{path}' has joints"
            )
            raise InputError(got, "one body without joints, for a free base", "give the robot a base body of its own")
        roots[0].add_freejoint()


def _refuse_unsupported(model: Any, path: Path) -> None:
    import mujoco

    for what in ("body_pos", "body_ipos", "body_mass", "body_inertia", "jnt_pos", "geom_pos", "mesh_vert"):
        numbers = np.asarray(getattr(model, what))
        if not (np.abs(numbers) < _LARGEST).all():
            got = f"'{path}' has a {what} of {np.nan_to_num(np.abs(numbers), nan=np.inf).max():.3g}"
            raise InputError(got, f"numbers below {_LARGEST:g} in SI", "correct it")
    names = {int(mujoco.mjtJoint.mjJNT_BALL): "ball", int(mujoco.mjtJoint.mjJNT_FREE): "free"}
    for i in range(model.njnt):
        kind, body = int(model.jnt_type[i]), int(model.jnt_bodyid[i])
        if kind in names and (names[kind] == "ball" or model.body_parentid[body] != 0):
            got = f"joint '{_joint_name(model, i)}' of '{path}' is a {names[kind]} joint, which is not supported"
            raise InputError(got, "revolute (hinge) and prismatic (slide) joints", "model it as three hinges")
    free = int((model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE)).sum())
    if free and int((model.body_parentid[model.jnt_bodyid] == 0).sum()) > 1:
        raise InputError(f"'{path}' has several bodies that move by themselves", "one robot", "split the file")
    polynomial = int(np.any(model.jnt_stiffnesspoly) or np.any(model.dof_dampingpoly))
    for count, what in (
        (polynomial, "springs or dampers that are not linear"),
        (model.neq, "equality constraints (closed loops)"),
        (model.ntendon, "tendons"),
    ):
        if count:
            got = f"'{path}' has {what}, which are not supported"
            raise InputError(got, "a tree of joints with linear springs and dampers", "remove them")
    if not model.njnt:
        raise InputError(
            f"'{path}' has no joint that moves", "revolute or prismatic joints", "see rigid_contact instead"
        )
    if np.abs(model.opt.gravity[:2]).max() > 0.0 or model.opt.gravity[2] > 0.0:
        raise InputError(f"gravity of '{path}' is {model.opt.gravity}", "(0, 0, -g): z up", "rotate the robot instead")
    if model.nu:
        warnings.warn(f"the actuators of '{path}' are ignored: actions are joint torques and forces", stacklevel=5)


def _joint_name(model: Any, i: int) -> str:
    return str(model.joint(i).name) or f"joint_{i}"


@dataclass
class _Links:
    """Columns of the future robot, one entry a link."""

    names: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    offsets: list[Array] = field(default_factory=list)
    rotations: list[Array] = field(default_factory=list)
    axes: list[Array] = field(default_factory=list)
    joints: list[int] = field(default_factory=list)


class _Builder:
    """Make links of a compiled model: one a joint; bodies without joints belong to the link they are fixed to."""

    def __init__(self, model: Any, path: Path) -> None:
        import mujoco

        self.model, self.path, self.types = model, path, mujoco.mjtJoint
        self.links = _Links()
        self.body: dict[int, tuple[int, Array, Array]] = {}  # link, rotation and position of each body in it
        self.free = bool((model.jnt_type == int(self.types.mjJNT_FREE)).any())
        for b in range(model.nbody):
            self._add_body(b)

    def robot(self) -> Robot:
        """Return the robot."""
        model, joints = self.model, self.links.joints
        dofs = model.jnt_dofadr[joints]
        places = model.jnt_qposadr[joints]
        limited = model.jnt_limited[joints].astype(bool)
        parts = self._parts()
        masses, coms, inertias = _summed(parts, len(self.links.names))
        kinds = [int(kind) == int(self.types.mjJNT_SLIDE) for kind in model.jnt_type[joints]]
        parents, offsets = np.array(self.links.parents), np.array(self.links.offsets)
        rotations = np.array(self.links.rotations)
        return Robot(
            name=self.path.stem,
            link_names=tuple(self.links.names),
            parents=parents,
            offsets=offsets,
            rotations=rotations,
            axes=np.array(self.links.axes),
            masses=masses,
            coms=coms,
            inertias=inertias,
            joint_names=tuple(_joint_name(model, j) for j in joints),
            joint_types=tuple("prismatic" if slides else "revolute" for slides in kinds),
            reference=model.qpos0[places].copy(),
            stiffness=model.jnt_stiffness[joints].copy(),
            spring_reference=model.qpos_spring[places].copy(),
            damping=model.dof_damping[dofs].copy(),
            friction=model.dof_frictionloss[dofs].copy(),
            armature=model.dof_armature[dofs].copy(),
            lower=np.where(limited, model.jnt_range[joints, 0], -np.inf),
            upper=np.where(limited, model.jnt_range[joints, 1], np.inf),
            free_base=self.free,
            mesh=self._mesh(*rest_frames(parents, rotations, offsets), masses, coms),
            parts=parts,
            gravity=float(-model.opt.gravity[2]),
            has_geometry=any(_geometry(model, b) for b in self.body),
        )

    def _add_body(self, b: int) -> None:
        model, name = self.model, str(self.model.body(b).name) or f"link_{b}"
        if b == 0:
            if not self.free:
                self._add_link("base", -1, np.eye(3), np.zeros(3), np.zeros(3))
                self.body[0] = (0, np.eye(3), np.zeros(3))
            return
        joints = range(model.body_jntadr[b], model.body_jntadr[b] + model.body_jntnum[b])
        if any(int(model.jnt_type[j]) == int(self.types.mjJNT_FREE) for j in joints):
            self._add_link(name, -1, np.eye(3), np.zeros(3), np.zeros(3))
            self.body[b] = (0, np.eye(3), np.zeros(3))
            return
        parent = int(model.body_parentid[b])
        if parent not in self.body:
            return  # scenery about a free robot
        link, rotation, position = self.body[parent]
        position = position + rotation @ model.body_pos[b]
        rotation = rotation @ matrix_from_quat(model.body_quat[b])
        for index, j in enumerate(joints):
            anchor = np.array(model.jnt_pos[j])
            last = index == len(joints) - 1
            own = name if last else f"{name}_{index}"
            link = self._add_link(own, link, rotation, position + rotation @ anchor, model.jnt_axis[j], j)
            rotation, position = np.eye(3), -anchor
        self.body[b] = (link, rotation, position)

    def _add_link(self, name: str, parent: int, rotation: Array, offset: Array, axis: Array, joint: int = -1) -> int:
        self.links.names.append(name)
        self.links.parents.append(parent)
        self.links.rotations.append(np.array(rotation))
        self.links.offsets.append(np.array(offset))
        self.links.axes.append(np.array(axis))
        if joint >= 0:
            self.links.joints.append(joint)
        return len(self.links.names) - 1

    def _parts(self) -> tuple[Part, ...]:
        """Return the bodies that have mass, in the order of their links."""
        model, found = self.model, list[Part]()
        heavy = [b for b in self.body if model.body_mass[b] > 0.0]
        carriers = {a for b in heavy for a in self._carriers(b)}
        for b, (link, rotation, position) in self.body.items():
            axes = rotation @ matrix_from_quat(model.body_iquat[b])
            inertia = axes @ np.diag(model.body_inertia[b]) @ axes.T
            com, mass = position + rotation @ model.body_ipos[b], float(model.body_mass[b])
            if mass > 0.0:
                name = str(model.body(b).name) or f"link_{b}"
                found.append(Part(name, link, mass, com, inertia, b not in carriers))
        return tuple(sorted(found, key=lambda part: part.link))

    def _carriers(self, b: int) -> Iterator[int]:
        """Yield the bodies that carry a body, from its parent to the world."""
        while b > 0:
            b = int(self.model.body_parentid[b])
            yield b

    def _mesh(self, rotations: Array, positions: Array, masses: Array, coms: Array) -> Mesh:
        """Return the geometry of all links at rest, in the base's axes; a link with mass and no geometry gets bones."""
        pieces: list[tuple[Array, NDArray[np.int64], int]] = []
        for b, (link, rotation, position) in self.body.items():
            for vertices, faces in _geometry(self.model, b):
                in_link = vertices @ rotation.T + position
                pieces.append((in_link @ rotations[link].T + positions[link], faces, link))
        drawn = {link for _, _, link in pieces}
        for link in set(range(len(masses))) - drawn:
            if masses[link] > 0.0:
                ends = [positions[link] + rotations[link] @ coms[link]]
                ends += [positions[i] for i, parent in enumerate(self.links.parents) if parent == link]
                pieces += [
                    (*_bone(positions[link], end), link) for end in ends if np.ptp([positions[link], end], 0).any()
                ]
        pieces.sort(key=lambda piece: piece[2])
        starts = np.cumsum([0] + [len(vertices) for vertices, _, _ in pieces])
        return Mesh(
            np.concatenate([vertices for vertices, _, _ in pieces] or [np.zeros((0, 3))]),
            np.concatenate([f + s for (_, f, _), s in zip(pieces, starts, strict=False)] or [np.zeros((0, 3), int)]),
            np.concatenate([np.full(len(f), link) for _, f, link in pieces] or [np.zeros(0, int)]),
            tuple(self.links.names),
            self.path.stem,
        )


def _summed(parts: tuple[Part, ...], links: int) -> tuple[Array, Array, Array]:
    """Return mass, centre of mass and inertia of each link: those of its parts together."""
    masses, firsts, seconds = np.zeros(links), np.zeros((links, 3)), np.zeros((links, 3, 3))
    for part in parts:
        masses[part.link] += part.mass
        firsts[part.link] += part.mass * part.com
        seconds[part.link] += part.inertia + part.mass * _spread(part.com)
    coms = firsts / np.where(masses > 0.0, masses, 1.0)[:, None]
    return masses, coms, seconds - masses[:, None, None] * _spread(coms)


def rest_frames(parents: NDArray[np.int64], rotations: Array, offsets: Array) -> tuple[Array, Array]:
    """Return rotation [L, 3, 3] and position [L, 3] m of every link at rest, in the base's axes."""
    turned, placed = np.array(rotations), np.array(offsets)
    for i in range(1, len(parents)):
        parent = parents[i]
        placed[i] = placed[parent] + turned[parent] @ offsets[i]
        turned[i] = turned[parent] @ rotations[i]
    return turned, placed


def _spread(x: Array) -> Array:
    """Return |x|^2 1 - x x^T."""
    return (x**2).sum(-1)[..., None, None] * np.eye(3) - x[..., :, None] * x[..., None, :]


def _geometry(model: Any, b: int) -> list[tuple[Array, NDArray[np.int64]]]:
    """Return the visible geometry of a body, in its axes: purely visual geometry if there is any, else all of it."""
    geoms = range(model.body_geomadr[b], model.body_geomadr[b] + model.body_geomnum[b])
    visual = [g for g in geoms if model.geom_contype[g] == 0 and model.geom_conaffinity[g] == 0]
    pieces = []
    for g in visual or geoms:
        surface = _surface(model, g)
        if surface is not None:
            vertices = surface[0] @ matrix_from_quat(model.geom_quat[g]).T + model.geom_pos[g]
            pieces.append((vertices, surface[1]))
    return pieces


def _surface(model: Any, g: int) -> tuple[Array, NDArray[np.int64]] | None:
    """Return the triangles of one geom in its own axes; None for planes and fields."""
    import mujoco
    from trimesh import creation

    kind, size = mujoco.mjtGeom(int(model.geom_type[g])), model.geom_size[g]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        m = int(model.geom_dataid[g])
        vertices = model.mesh_vert[model.mesh_vertadr[m] : model.mesh_vertadr[m] + model.mesh_vertnum[m]]
        faces = model.mesh_face[model.mesh_faceadr[m] : model.mesh_faceadr[m] + model.mesh_facenum[m]]
        return np.array(vertices, dtype=float), np.array(faces, dtype=np.int64)
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        solid = creation.box(2.0 * size)
    elif kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        solid = creation.icosphere(2, float(size[0]))
    elif kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        solid = creation.cylinder(float(size[0]), 2.0 * float(size[1]), sections=24)
    elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        solid = creation.capsule(2.0 * float(size[1]), float(size[0]), count=(16, 16))
        solid.vertices -= 0.5 * (solid.vertices.min(0) + solid.vertices.max(0))
    elif kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        solid = creation.icosphere(2, 1.0)
        solid.vertices *= size
    else:
        return None
    return np.array(solid.vertices, dtype=float), np.array(solid.faces, dtype=np.int64)


def _bone(start: Array, end: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return a thin cylinder between two points, for links that have no geometry."""
    from trimesh import creation

    radius = _BONE * float(np.linalg.norm(end - start))
    solid = creation.cylinder(radius, segment=np.stack([start, end]), sections=8)
    return np.array(solid.vertices, dtype=float), np.array(solid.faces, dtype=np.int64)
