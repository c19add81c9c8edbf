"""EdgeFirst datasets: an Arrow table of samples beside their files.

The format is that of the EdgeFirst client's DATASET_FORMAT.md; docs/edgefirst.md says what becomes
what here.  The parts stand for themselves and know nothing of sessions: `pcd`, `png`, `exif`,
`container`, `table`, `split`.
"""

from __future__ import annotations
