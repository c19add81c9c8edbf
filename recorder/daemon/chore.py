"""A module's command line as a child that ends with its parent and gives way to everything.

``python -m recorder.daemon.chore PARENT MODULE ARGS...``
"""

from __future__ import annotations

import os
import runpy
import sys

from recorder.contract.process import die_with_parent
from recorder.daemon.priority import Priority


def main() -> None:
    """Run the module as ``python -m MODULE ARGS`` does."""
    parent, module, *arguments = sys.argv[1:]
    die_with_parent(int(parent))
    Priority(nice=19, policy="batch", io_class="idle").apply(os.getpid())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
