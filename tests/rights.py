"""Who may read what is made, from the first moment on.

A file that is made for all and narrowed behind that was open in between.

::

    with Rights(tmp_path, monkeypatch) as rights:
        publish()
    rights.check()
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

_OTHERS = stat.S_IRWXO
_FORBIDDEN = _OTHERS | stat.S_IWGRP


class Rights:
    """Watches what a block makes below a folder, for a user whose umask takes nothing away.

    Attributes:
        taken: what lost rights that it had before, each as a sentence.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[str] = []
        self._root = root
        self._before = set(root.rglob("*"))
        for name in ("chmod", "fchmod"):
            monkeypatch.setattr(os, name, self._changing(getattr(os, name)))

    def __enter__(self) -> Self:
        self._mask = os.umask(0)
        return self

    def __exit__(self, *_: object) -> None:
        os.umask(self._mask)

    def check(self) -> None:
        """Fail where others may, or might have, read or changed what was made."""
        assert not self.taken, "\n".join(self.taken)
        made = set(self._root.rglob("*")) - self._before
        assert made, "nothing was made: what is tested here?"
        for path in made:
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode):
                forbidden = _OTHERS if stat.S_ISSOCK(mode) else _FORBIDDEN
                assert not mode & forbidden, f"{path}: {stat.filemode(mode)}"

    def _changing(self, real: Callable[..., None]) -> Callable[..., None]:
        def call(path: Any, mode: int, **more: Any) -> None:
            name = f"/proc/self/fd/{path}" if isinstance(path, int) else path
            before = stat.S_IMODE(Path(name).stat().st_mode)
            real(path, mode, **more)
            if before & ~mode:
                self.taken.append(f"{name}: was {before:04o} before it became {mode:04o}")

        return call
