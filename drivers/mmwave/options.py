"""Config keys of a radar's chirps and of its capture card; names and units are red-rover's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drivers.mmwave.chirp import DEVICES, ChirpConfig, chirp_config
from drivers.mmwave.ti_cfg import CfgFile, read_cfg
from recorder.common.errors import ConfigError
from recorder.config.options import Option

CHIRP_OPTIONS: Final = {
    "device": Option("str", None, "TI's name of the device", choices=tuple(DEVICES)),
    "frequency": Option("float", None, "start frequency of the ramp, GHz", minimum=57, maximum=81),
    "idle_time": Option(
        "float", None, "end of a ramp to start of the next, us", minimum=0, maximum=5300
    ),
    "adc_start_time": Option(
        "float", None, "start of the ramp to the first sample, us", minimum=0, maximum=4096
    ),
    "ramp_end_time": Option("float", None, "length of the ramp, us", minimum=0.1, maximum=5300),
    "tx_start_time": Option(
        "float",
        1.0,
        "start of the ramp to start of the transmitter, us",
        minimum=-4096,
        maximum=4096,
    ),
    "freq_slope": Option("float", None, "slope of the ramp, MHz/us", minimum=0.01, maximum=1000),
    "adc_samples": Option("int", None, "samples per chirp, even", minimum=2, maximum=4096),
    "sample_rate": Option("int", None, "ADC sample rate, ksps", minimum=100, maximum=50_000),
    "frame_length": Option(
        "int", None, "chirps of each transmitter per frame", minimum=1, maximum=4096
    ),
    "frame_period": Option(
        "float", None, "start of a frame to start of the next, ms", minimum=1, maximum=60_000
    ),
    "port": Option("str", None, "serial control port of the device; default: search for it"),
}
CAPTURE_OPTIONS: Final = {
    "sys_ip": Option("str", "192.168.33.30", "this machine's address, as configured on the card"),
    "fpga_ip": Option("str", "192.168.33.180", "the capture card's address"),
    "data_port": Option("int", 4098, "UDP port of the data", minimum=1, maximum=65535),
    "config_port": Option("int", 4096, "UDP port of the commands", minimum=1, maximum=65535),
    "timeout": Option(
        "float", 1.0, "longest wait for an answer or for data, s", minimum=0.01, maximum=60
    ),
    "socket_buffer": Option(
        "int", 6_291_456, "receive buffer, bytes", minimum=65_536, maximum=2**31 - 1
    ),
    "delay": Option(
        "float", 5.0, "pause between two packets of the card, us", minimum=0, maximum=524
    ),
}


@dataclass(frozen=True, slots=True)
class RadarSetup:
    """How a radar is configured.

    Attributes:
        chirp: the chirps and the frame.
        iq_order: order of I and Q in its captures.
        cfg: TI's file that configures the radar; None: xwr configures it.
    """

    chirp: ChirpConfig
    iq_order: str
    cfg: CfgFile | None = None


def radar_setup(
    name: str, scheme: str, options: Mapping[str, Any], usual: ChirpConfig | None = None
) -> RadarSetup:
    """Return the setup that a sensor's checked options describe, by ``radar`` or by ``cfg``.

    Args:
        name: the sensor's name.
        scheme: the source's scheme; a capture (``file``) may have another `iq_order` than its
            ``cfg`` file.
        options: ``radar``, ``cfg`` and ``iq_order``.
        usual: defaults of absent keys of ``radar``; None: all keys are required.

    Raises:
        ConfigError: a key is missing, given twice or impossible, or the file is invalid.
    """
    radar, order = options["radar"], options["iq_order"]
    if options["cfg"] is None:
        return RadarSetup(chirp_config(radar, f"{name}.radar", usual), order or "qqii")
    twice = [
        key
        for key, value in radar.items()
        if key not in ("device", "port") and value != CHIRP_OPTIONS[key].default
    ]
    if twice:
        raise ConfigError(f"{', '.join(twice)}: given by cfg too", key=f"{name}.radar")
    cfg = read_cfg(Path(options["cfg"]), radar["device"], f"{name}.cfg")
    complex_samples = cfg.chirp.antennas.complex_samples
    if order is not None and order != cfg.iq_order and scheme != "file" and complex_samples:
        raise ConfigError(f"{order!r}; the cfg file sets {cfg.iq_order}", key=f"{name}.iq_order")
    return RadarSetup(cfg.chirp, order or cfg.iq_order, cfg)
