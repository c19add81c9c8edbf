"""Radar driver: TI mmWave devices behind a DCA1000EVM, raw captures and simulated radars.

The driver has one stream with the sensor's name.  Its channels are ``iq`` (i2 [chirps, tx, rx,
values], in the DCA1000's order: two interleaved lanes) and ``valid`` (u1, 1 where the frame is
complete); ``radar.json`` is stored beside them.  The recorder never reorders IQ; ``iq_order`` only
names the order, so a wrong setting can be corrected later in ``radar.json``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from drivers.kit.simulated_clock import CLOCK_OPTION
from drivers.kit.source_driver import ReadDriver
from drivers.mmwave.chirp import IQ_ORDERS
from drivers.mmwave.chirp_limits import check_chirp
from drivers.mmwave.model import SIM_CHIRP
from drivers.mmwave.options import CAPTURE_OPTIONS, CHIRP_OPTIONS, radar_setup
from drivers.mmwave.stream import radar_stream
from drivers.world import WORLD_OPTIONS
from drivers.world.faults import RADAR_FAULTS, fault_option
from drivers.world.mounts import MOUNT_OPTION
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option

__all__ = ["SIM_CHIRP", "MmwaveDriver"]


class MmwaveDriver(ReadDriver):
    """Records a radar, plays a raw capture, or simulates a radar.

    The stamp of a device's frame is the arrival of its last packet (see `AssembledFrame`).  The
    stamp of frame k of a file is k * frame_period.  The stamp of a simulated frame is the end of
    its chirps, so it is later by the duration of the chirps.  Where a device's frame lacks packets,
    the missing values are zero, ``valid`` is 0, and a state record holds the number of missing
    packets and bytes.  Frames without any packet are counted as lost.  An incomplete last frame of
    a file is counted as one lost sample and is not recorded, because its missing values would be
    invented.  Files of packets with their headers are read as packets from the network are.

    >>> driver = MmwaveDriver(sensor)
    >>> (spec,) = driver.open()
    >>> sample = driver.read()
    >>> sample.data["iq"]                # int16 [1, chirps, tx, rx, values], little endian
    >>> driver.close()
    """

    options: ClassVar = {
        "iq_order": Option(
            "str",
            None,
            "order of I and Q in a capture: qqii (default) is the order of red-rover's and xwr's "
            "radar settings (I in the upper half of a word), iiqq the order of mmWave Studio; "
            "with cfg, the file's order is the default",
            choices=IQ_ORDERS,
        ),
        "radar": Option("map", None, "the chirp configuration", keys=CHIRP_OPTIONS),
        "cfg": Option(
            "path",
            None,
            "TI's .cfg file, which defines chirps and frame instead of radar; a device is "
            "configured by its lines",
        ),
        "capture": Option("map", None, "the capture card", keys=CAPTURE_OPTIONS),
        "boot_s": Option(
            "float",
            2.0,
            "longest wait for the radar's prompt after its reset, s",
            minimum=0.1,
            maximum=30,
        ),
        "seed": Option("int", 0, "sim: seed of the world and the noise", minimum=0),
        **WORLD_OPTIONS,
        "clock": CLOCK_OPTION,
        "faults": fault_option(RADAR_FAULTS),
        "noise": Option(
            "float", 1.0, "sim: scale of the thermal noise; 0: no noise", minimum=0, maximum=1000
        ),
        "phase_error_deg": Option(
            "float",
            0.0,
            "sim: standard deviation of the antennas' phase errors, deg; 0: calibrated antennas",
            minimum=0,
            maximum=180,
        ),
        "mount": MOUNT_OPTION,
    }
    schemes: ClassVar = {
        "sim": "a drive past houses, vehicles, people and poles",
        "file": "raw IQ as written by a DCA1000: consecutive frames of int16, or its packets with "
        "their headers, in one file or in the numbered .bin files of a folder; needs the chirp "
        "configuration",
        "dca1000": "a radar behind a DCA1000EVM; //ADDRESS is the card's address (default: "
        "capture.fpga_ip); needs the chirp configuration",
    }
    live_schemes: ClassVar = frozenset({"dca1000"})
    sim_origin_ns = 0  # start of the first simulated frame

    def open(self) -> Sequence[StreamSpec]:
        """Open the source.  A device is reset, configured and started.

        Raises:
            ConfigError: the chirp configuration lacks a key or is impossible.
            SourceError: the file does not exist or holds no complete frame.
            DeviceError: the radar or the capture card does not answer.
        """
        sensor, options = self.sensor, self.sensor.options
        usual = SIM_CHIRP if sensor.scheme == "sim" else None
        setup = radar_setup(sensor.name, sensor.scheme, options, usual)
        chirp = setup.chirp
        key = f"{sensor.name}.{'radar' if setup.cfg is None else 'cfg'}"
        card = options["capture"] if sensor.scheme == "dca1000" else None
        self.warnings = check_chirp(chirp, key, card, captured=sensor.scheme == "file")
        self.warnings += setup.cfg.warnings if setup.cfg is not None else ()
        if sensor.scheme == "file":
            from drivers.mmwave.played import RecordedFrames

            self.source = recorded = RecordedFrames(sensor, chirp)
            self.warnings += recorded.warnings
        for warning in self.warnings:
            print(f"{sensor.name}: {warning}", file=sys.stderr, flush=True)
        if sensor.scheme == "sim":
            from drivers.mmwave.simulated import SimulatedFrames

            self.source = SimulatedFrames(sensor, setup)
        elif sensor.scheme != "file":
            from drivers.mmwave.live import LiveFrames

            self.source = LiveFrames(sensor, setup, self.warnings)
        return [radar_stream(sensor, setup, self.warnings)]
