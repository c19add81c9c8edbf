"""What pyproject.toml cannot say: the configs, which lie beside the packages, go into the wheel."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Adds ``recorder/configs`` to a wheel; an editable install has the folder itself."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for config in Path("configs").glob("*.yaml"):
                target = Path(self.build_lib, "recorder", config)
                self.mkpath(str(target.parent))
                self.copy_file(str(config), str(target))


setup(cmdclass={"build_py": BuildWithConfigs})
