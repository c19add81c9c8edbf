"""EdgeFirst datasets: an Arrow table of samples beside their files.

The EdgeFirst client's DATASET_FORMAT.md defines the format; docs/edgefirst.md maps sessions to it.
  These modules are independent of sessions: `pcd`, `png`, `exif`, `container`, `table`,
`split`.
"""

from __future__ import annotations
