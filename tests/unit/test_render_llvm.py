"""Finding libLLVM: good ones by version, everything else left alone, and a remedy when there is none."""

from pathlib import Path

import pytest

from vid2phys.engine.render import llvm
from vid2phys.engine.render.mitsuba import load_mitsuba
from vid2phys.errors import MissingDependencyError


@pytest.fixture
def fresh():
    """Both searches are cached."""
    llvm.find_llvm.cache_clear()
    yield
    llvm.find_llvm.cache_clear()


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("libLLVM-14.so.1", True),
        ("libLLVM-15.so", True),
        ("libLLVM.so.19.1", False),
        ("libLLVM-16.so.1", False),
        ("libLLVM-3.9.so", True),
        ("libLLVM.so", False),
    ],
)
def test_old_ones_are_known_by_name(name: str, old: bool) -> None:
    assert llvm._surely_old(name) is old


def test_what_is_found_is_new_enough(fresh) -> None:
    found = llvm.find_llvm()
    if found is None:
        pytest.skip("no libLLVM of version 16 or newer on this machine")
    assert found.version >= (16, 0, 0)
    assert Path(found.path).exists()


def test_a_broken_file_is_not_taken(fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "libLLVM.so.19"
    fake.write_bytes(b"not a library")
    monkeypatch.delenv("DRJIT_LIBLLVM_PATH", raising=False)
    monkeypatch.setattr(llvm, "_FOLDERS", (str(tmp_path),))
    assert llvm.find_llvm() is None


def test_no_llvm_says_what_to_install(fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRJIT_LIBLLVM_PATH", raising=False)
    monkeypatch.setattr(llvm, "_FOLDERS", ())
    with pytest.raises(MissingDependencyError, match="libllvm19"):
        load_mitsuba.__wrapped__()


def test_no_libatomic_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    if llvm.find_llvm() is None:
        pytest.skip("no libLLVM of version 16 or newer on this machine")
    loaded: list[str] = []

    def lacking(name: str) -> None:
        loaded.append(name)
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(llvm.ctypes, "CDLL", lacking)
    monkeypatch.setattr(llvm.sys, "platform", "linux")
    assert llvm.lacks_atomic()
    with pytest.raises(MissingDependencyError, match="apt install libatomic1"):
        load_mitsuba.__wrapped__()
    assert set(loaded) == {"libatomic.so.1"}
    monkeypatch.setattr(llvm.sys, "platform", "darwin")  # whose Dr.Jit needs none
    assert not llvm.lacks_atomic()
