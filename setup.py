"""Puts the trained models, which lie in `models/`, into wheels as `vid2phys/models/`; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithModels(build_py):
    """`build_py`, then a copy of the models; an editable install finds them where they are."""

    def run(self) -> None:
        """Build the package's files, then copy the models beside them."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "vid2phys" / "models"
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build
        for config in sorted(Path("models").glob("*/config.json")):
            shutil.copytree(config.parent, target / config.parent.name, ignore=shutil.ignore_patterns(".*"))


setup(cmdclass={"build_py": BuildWithModels})
