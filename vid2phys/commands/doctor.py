"""`vid2phys doctor`: what this machine has, what is missing, and the command that brings it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "scipy", "torch", "warp-lang", "mitsuba", "opencv-python-headless", "av", "trimesh", "typer")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: whether it is there, what was found, and what to do if it is not."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def doctor() -> list[Finding]:
    """Look at Python, the packages, CUDA, LLVM, the models and the machine. Nothing is changed."""
    return [_python(), *map(_package, PACKAGES), _cuda(), _llvm(), *_models(), _machine()]


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    return Finding("Python", ok, platform.python_version(), "" if ok else "install Python 3.11 or newer")


def _package(name: str) -> Finding:
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, False, "not installed", f"pip install {name}")


def _cuda() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("CUDA", False, "torch is missing", "pip install torch")
    if torch.cuda.is_available():
        return Finding("CUDA", True, f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}")
    return Finding("CUDA", True, "none: everything runs on the processor, training takes longer")


def _llvm() -> Finding:
    from vid2phys.engine.render.llvm import ATOMIC_REMEDY, find_llvm, lacks_atomic

    found = find_llvm()
    if found is not None and lacks_atomic():
        return Finding("LLVM", False, "there, but no libatomic.so.1; only train-risp needs both", ATOMIC_REMEDY)
    if found is not None:
        return Finding("LLVM", True, f"version {'.'.join(map(str, found.version))}: {found.path}")
    remedy = "sudo apt install libllvm19, or set DRJIT_LIBLLVM_PATH to the file of LLVM 16 or newer"
    return Finding("LLVM", False, "none of version 16 or newer; only train-risp needs it", remedy)


def _models() -> list[Finding]:
    from vid2phys.risp.networks.model_folders import model_folders, model_search_paths

    places = model_search_paths()
    folders = list(model_folders(places))
    if not folders:
        where = ", ".join(map(str, places))
        return [Finding("models", False, f"none in {where}", "vid2phys train-risp --mesh MESH --out models/NAME")]
    return [_model(folder) for folder in folders]


def _model(folder: Path) -> Finding:
    weights = sorted(folder.glob("*.safetensors"))
    size = sum(path.stat().st_size for path in weights) / 1e6
    if not weights:
        return Finding(f"model {folder.name}", False, "no weights", f"vid2phys train-risp --out {folder} with its mesh")
    return Finding(f"model {folder.name}", True, f"{folder}, {size:.1f} MB")


def _machine() -> Finding:
    free = shutil.disk_usage(".").free / 1e9
    detail = f"{os.cpu_count()} cores, {platform.machine()}, {free:.0f} GB of disk free"
    return Finding("machine", free > 1.0, detail, "" if free > 1.0 else "free some disk space")
