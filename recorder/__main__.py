"""``python -m recorder`` is the command ``recorder``."""

import sys

from recorder.cli import main

sys.exit(main())
