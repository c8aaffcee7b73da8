#!/usr/bin/env bash
# Makes the virtual environment and installs the package in it: `scripts/setup.sh core` or `scripts/setup.sh dev`.
# Called by the Makefile. Reads VENV (default .venv) and PYTHON (default python3). An existing environment is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-core}
venv=${VENV:-.venv}
python=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*" >&2; }

apt_install() { # apt_install PACKAGE...: as root, or with a sudo that does not ask
  local as_root=()
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n)
  fi
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "$@" >/dev/null 2>&1 && return 0
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get update -qq >/dev/null 2>&1 || return 1
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "$@" >/dev/null 2>&1
}

find_python() { # the newest interpreter of at least 3.11, $python first
  local candidate
  for candidate in "$python" python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  say "got $("$python" --version 2>&1 || true); expected Python 3.11 or newer; install it: sudo apt install python3.11 python3.11-venv"
  return 1
}

make_venv() {
  [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 && return
  local found
  found=$(find_python)
  if ! "$found" -c 'import ensurepip, venv' 2>/dev/null; then
    say "the venv module is missing; installing python3-venv"
    if ! apt_install python3-venv; then
      say "could not install it; run: sudo apt install python3-venv"
      return 1
    fi
  fi
  say "making $venv"
  "$found" -m venv "$venv"
}

torch_index() { # where PyTorch's builds for the CPU are, if that is what this machine wants and they can be had
  local index=https://download.pytorch.org/whl/cpu
  command -v nvidia-smi >/dev/null && return
  "$venv/bin/python" -c "import urllib.request as r; r.urlopen('$index/torch/', timeout=5)" 2>/dev/null || return 0
  echo "--extra-index-url=$index"
}

install_package() {
  local target=. options=()
  [ "$what" = dev ] && target='.[dev]'
  [ -t 2 ] || options=(-q)
  mapfile -t -O "${#options[@]}" options < <(torch_index)
  say "installing the package and its requirements (1 GB and a few minutes the first time; 6 GB with a GPU's libraries)"
  "$venv/bin/python" -m pip install "${options[@]}" -c constraints.txt -e "$target"
}

has_llvm() {
  "$venv/bin/python" -c 'import sys; from vid2phys.engine.render.llvm import find_llvm; sys.exit(find_llvm() is None)'
}

has_atomic() {
  "$venv/bin/python" -c 'import sys; from vid2phys.engine.render.llvm import lacks_atomic; sys.exit(lacks_atomic())'
}

# Only making training data needs a renderer; identify and evaluate do not, so a machine without its libraries goes on.
ensure_renderer() {
  local package
  has_atomic || apt_install libatomic1 || say "no libatomic.so.1: to train models run: sudo apt install libatomic1"
  has_llvm && return
  for package in libllvm19 libllvm20 libllvm18 libllvm17 libllvm16; do
    say "no LLVM of version 16 or newer found; trying $package"
    if apt_install "$package" && has_llvm; then return; fi
  done
  say "no LLVM installed: identify and evaluate work without it; to train models run: sudo apt install libllvm19"
}

make_venv
install_package
ensure_renderer
touch "$venv/.core"
if [ "$what" = dev ]; then touch "$venv/.dev"; fi
