"""Config keys of a radar's chirps and of its capture card; names and units are red-rover's."""

from __future__ import annotations

from typing import Final

from drivers._protocols.chirp import DEVICES
from recorder.contract.config.options import Option

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
