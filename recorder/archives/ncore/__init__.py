"""NCore V4 sequences: component stores that NVIDIA's loader opens.

    with SequenceWriter(folder, "drive", interval_ns=(start_ns, stop_ns)) as sequence:
        sequence.poses().dynamic_pose("rig", "world", t_ns, poses)
        sequence.poses().static_pose("front", "rig", T_front_rig)
        sequence.intrinsics().camera("front", OpenCvPinhole(...))
        camera = sequence.camera("front")
        for start_ns, end_ns, jpeg in frames:
            camera.frame(start_ns, end_ns, jpeg, "jpeg")
    sequence.packed.meta        # drive.json, which names all stores

Times are passed as int64 nanoseconds and stored in whole microseconds, rounded down.
docs/ncore.md is the guide.  Definition: NVIDIA/ncore, docs/data/formats.rst.
"""

from __future__ import annotations

from recorder.archives.ncore.format.cameras import CameraWriter, IntrinsicsWriter, MasksWriter
from recorder.archives.ncore.format.component import ComponentWriter, Interval
from recorder.archives.ncore.format.cuboids import Cuboid, CuboidsWriter, euler_xyz
from recorder.archives.ncore.format.labels import (
    CameraLabelsWriter,
    ImageEncoded,
    LabelDescriptor,
    LabelType,
    Quantization,
    Raw,
)
from recorder.archives.ncore.format.models import (
    BivariateWindshield,
    FTheta,
    IdealPinhole,
    OpenCvFisheye,
    OpenCvPinhole,
    RowOffsetSpinning,
)
from recorder.archives.ncore.format.point_clouds import Attribute, PointCloudsWriter
from recorder.archives.ncore.format.poses import PosesWriter, Trajectory
from recorder.archives.ncore.format.rays import LidarWriter, RadarWriter
from recorder.archives.ncore.format.sequence import PackedSequence, SequenceWriter

__all__ = [
    "Attribute",
    "BivariateWindshield",
    "CameraLabelsWriter",
    "CameraWriter",
    "ComponentWriter",
    "Cuboid",
    "CuboidsWriter",
    "FTheta",
    "IdealPinhole",
    "ImageEncoded",
    "Interval",
    "IntrinsicsWriter",
    "LabelDescriptor",
    "LabelType",
    "LidarWriter",
    "MasksWriter",
    "OpenCvFisheye",
    "OpenCvPinhole",
    "PackedSequence",
    "PointCloudsWriter",
    "PosesWriter",
    "Quantization",
    "RadarWriter",
    "Raw",
    "RowOffsetSpinning",
    "SequenceWriter",
    "Trajectory",
    "euler_xyz",
]
