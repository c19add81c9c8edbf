"""Exports of one stream of a session as a table, arrays, pictures or points.

::

    with Session("sessions/rig-1", virtual=True, partial=True) as session:
        wanted = Wanted("camera", "jpg", begin=Moment.parse("10"), end=Moment.parse("12"))
        exported = export(session, wanted, Path("looks"))

========  =====================================================================================
format    content
========  =====================================================================================
``csv``   a row for each sample: stamp, number, device time, and all channels of few values
``npz``   an array for each channel, decoded, with ``ts`` and ``t_ns``
``jpg``   a camera's pictures; recorded JPEGs are unchanged
``png``   a camera's pictures, a lidar's ranges in mm, a radar's power over range and speed
``pcd``   a lidar's points, a radar's detections
``pcap``  datagrams, with their stamps, addresses and ports
========  =====================================================================================

The formats csv, npz and pcap make one file.  The others make a file for each sample, in a folder
if there are several.  All files appear under their names when they are complete.  They are not
synced to the disk: an export can be made again.
"""

from recorder.archives.export.job import FORMATS, Exported, Wanted, export

__all__ = ["FORMATS", "Exported", "Wanted", "export"]
