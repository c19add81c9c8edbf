"""The chirp configuration of TI's mmWave radars, and quantities derived from it.

Keys and units are those of red-rover's and xwr's configs.  Formulas follow TI's "Programming Chirp
Parameters in TI Radar Devices" (SWRA553).  The layout of raw captures is that of "Mmwave Radar
Device ADC Raw Data Capture" (SWRA581): the DCA1000 writes one 16-bit word of each of two LVDS lanes
in turn, so that two samples' words of the same kind are adjacent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import ConfigError

SPEED_OF_LIGHT = 299_792_458.0  # m/s
IQ_ORDERS = ("qqii", "iiqq")


_ROW = tuple((float(k), 0.0) for k in range(4))
_COLUMN = tuple((0.0, -float(k)) for k in range(4))


@dataclass(frozen=True, slots=True)
class RadarDevice:
    """The layout of a device's captures, and the antennas of its evaluation board.

    Attributes:
        tx, rx: number of antennas used.
        complex_samples: whether samples have I and Q.
        tx_places, rx_places: (to the left, up) of each antenna in half waves at `design_ghz`, in
            the order of the chirps and of the receivers, as seen looking out from the radar.
        tx_turns: offset of each transmitter's phase, in turns.
        design_ghz: the frequency that defines the board's antenna spacing.
        view_deg: largest azimuth and elevation to each side of straight ahead.
        family: the device's class in `xwr.radar`; "": the device's own name.
    """

    tx: int
    rx: int
    complex_samples: bool
    tx_places: tuple[tuple[float, float], ...]
    rx_places: tuple[tuple[float, float], ...] = _ROW
    tx_turns: tuple[float, ...] = ()
    design_ghz: float = 77.0
    view_deg: tuple[float, float] = (80.0, 20.0)
    family: str = ""

    def ideal_calibration(self) -> dict[str, Any]:
        """Return ``calibration`` of antennas without errors, as in ``radar.json``."""
        return {
            "range_bias_m": 0.0,
            "coefficients": [[[1.0, 0.0]] * self.rx for _ in range(self.tx)],
            "residual_deg": 0.0,
            "method": "ideal",
        }

    def antennas_m(self) -> dict[str, list[list[float]]]:
        """Return ``tx_m`` and ``rx_m``: (x forward, y left, z up) of each antenna, in m."""
        unit = SPEED_OF_LIGHT / (2e9 * self.design_ghz)
        return {
            "tx_m": [[0.0, unit * left, unit * up] for left, up in self.tx_places],
            "rx_m": [[0.0, unit * left, unit * up] for left, up in self.rx_places],
        }


DEVICES: Mapping[str, RadarDevice] = {
    "AWR1642": RadarDevice(2, 4, True, ((0, 0), (4, 0))),
    "AWR1843": RadarDevice(3, 4, True, ((0, 0), (2, 1), (4, 0))),
    # an AWR1843 without its raised, middle antenna
    "AWR1843L": RadarDevice(2, 4, True, ((0, 0), (4, 0))),
    "AWR1843AOP": RadarDevice(
        3, 4, True, ((0, 0), (1, 0), (2, 0)), _COLUMN, view_deg=(70.0, 70.0), family="AWR1843"
    ),
    "AWR2944": RadarDevice(4, 4, False, ((0, 0), (2, 1.6), (4, 0), (8, 0))),
    "AWR2944P": RadarDevice(4, 4, False, ((0, 0), (2, 1.6), (4, 0), (8, 0))),
    "AWRL6844": RadarDevice(
        4, 4, False, ((2, 0), (0, 0), (0, -2), (2, -2)), ((0, 0), (0, -1), (1, -1), (1, 0)),
        tx_turns=(0.0, 0.5, 0.0, 0.5), design_ghz=60.0, view_deg=(60.0, 60.0),
    ),
}  # fmt: skip
"""Layouts from the boards' guides: AWR1642BOOST, AWR1843BOOST, AWR2944EVM, AWRL6844EVM.

The layout of the AWR1843AOPEVM is that of `xwr.rsp` (transmitters side by side, receivers from the
top down), which is the layout of TI's SDK (``antenna_geometry.c``) turned by a quarter.  Fields of
view are those of xwr: its point cloud's for boards in a row, its ``aoaFovCfg`` for the AWRL6844.
The AOP's are the 140 degrees of its datasheet.
"""


@dataclass(frozen=True, slots=True)
class ChirpConfig:
    """One frame's chirps.  The transmitters alternate (TDM), so a loop has one chirp of each.

    >>> chirp = ChirpConfig("AWR1843", 77.0, 6.0, 5.7, 34.0, 67.012, 256, 10000, 64, 50.0)
    >>> chirp.shape
    (64, 3, 4, 512)
    >>> round(chirp.range_resolution, 4)
    0.0874

    Attributes:
        device: a key of `DEVICES`.
        frequency: start of the ramp, GHz.
        idle_time: from the end of a ramp to the start of the next, us.
        adc_start_time: from the start of the ramp to the first sample, us.
        ramp_end_time: length of the ramp, us.
        freq_slope: MHz/us.
        adc_samples: samples per chirp; even, because two lanes carry them.
        sample_rate: ksps.
        frame_length: chirps of each transmitter per frame.
        frame_period: from the start of a frame to the start of the next, ms.
        tx_start_time: from the start of the ramp to the start of the transmitter, us.
        transmitters: the device's transmitters (from 0) in the order of their chirps; None: all,
            in their own order.
    """

    device: str
    frequency: float
    idle_time: float
    adc_start_time: float
    ramp_end_time: float
    freq_slope: float
    adc_samples: int
    sample_rate: int
    frame_length: int
    frame_period: float
    tx_start_time: float = 1.0
    transmitters: tuple[int, ...] | None = None

    @property
    def antennas(self) -> RadarDevice:
        """The device's entry of `DEVICES`, with the transmitters that are used, in their order.

        Raises:
            KeyError: an unknown device.
        """
        device, used = DEVICES[self.device], self.transmitters
        if used is None:
            return device
        places = tuple(device.tx_places[k] for k in used)
        turns = tuple(device.tx_turns[k] for k in used) if device.tx_turns else ()
        return replace(device, tx=len(used), tx_places=places, tx_turns=turns)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """One frame as captured: [chirps, tx, rx, int16 values of a chirp].

        A chirp has 2 * adc_samples values, or adc_samples where the device's samples are real.
        """
        values = self.adc_samples * (2 if self.antennas.complex_samples else 1)
        return self.frame_length, self.antennas.tx, self.antennas.rx, values

    @property
    def cube_shape(self) -> tuple[int, int, int, int]:
        """One frame in samples: [chirps, tx, rx, adc_samples]."""
        return (*self.shape[:3], self.adc_samples)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one captured frame."""
        return 2 * int(np.prod(self.shape))

    @property
    def rate_hz(self) -> float:
        """Frames per second."""
        return 1e3 / self.frame_period

    @property
    def sample_time(self) -> float:
        """Length of the sampled part of a ramp, us."""
        return self.adc_samples / self.sample_rate * 1e3

    @property
    def bandwidth(self) -> float:
        """Bandwidth of the sampled part of a ramp, MHz."""
        return self.freq_slope * self.sample_time

    @property
    def chirp_time(self) -> float:
        """From a transmitter's chirp to its next chirp, us."""
        return (self.idle_time + self.ramp_end_time) * self.antennas.tx

    @property
    def frame_time(self) -> float:
        """Duration of a frame's chirps, ms."""
        return self.chirp_time * self.frame_length / 1e3

    @property
    def wavelength(self) -> float:
        """Wavelength at the middle of the sampled part of a ramp, m."""
        middle_us = self.adc_start_time + self.sample_time / 2
        return SPEED_OF_LIGHT / (self.frequency * 1e9 + self.freq_slope * middle_us * 1e6)

    @property
    def range_resolution(self) -> float:
        """Width of a range bin, m."""
        return SPEED_OF_LIGHT / (2 * self.bandwidth * 1e6)

    @property
    def max_range(self) -> float:
        """Range at which bins wrap, m; real samples distinguish only half of the bins."""
        bins = self.adc_samples if self.antennas.complex_samples else self.adc_samples // 2
        return self.range_resolution * bins

    @property
    def doppler_resolution(self) -> float:
        """Width of a Doppler bin, m/s."""
        return self.wavelength / (2 * self.frame_length * self.chirp_time * 1e-6)

    @property
    def max_doppler(self) -> float:
        """Radial speed at which bins wrap, m/s."""
        return self.wavelength / (4 * self.chirp_time * 1e-6)

    def intrinsics(
        self, iq_order: str, calibration: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the content of ``radar.json``: roverd's keys, and all values for processing.

        ``shape`` is the shape of the cube in samples, as written by red-rover; ``raw_shape`` is the
        shape of the channel ``iq``; ``iq_order`` is null for real samples.

        After Fourier transforms along samples and chirps, range cell b is at
        ``b * range_resolution`` m and speed cell d at ``d * doppler_resolution`` m/s, positive for
        a growing range.  Ranges wrap at ``max_range``, speeds (from - to +) at ``max_doppler``.
        The phase grows by one turn per ``wavelength`` of the path from transmitter to target to
        receiver.  ``antennas`` holds the antennas' positions, ``tx_m`` and ``rx_m``
        [antennas][x forward, y left, z up] in m in the order of axes 1 and 2 of ``iq``, and
        ``tx_turns``, the offset to subtract from a transmitter's phase; ``view_deg``, the azimuth
        and the elevation of the field of view's edges; and ``calibration`` (None: not known):
        ``coefficients`` [tx][rx][re, im], by which the signals are multiplied, and
        ``range_bias_m``, which is subtracted from ranges.

        The transmitters alternate: transmitter i is ``i * chirp_time / tx`` us late, and a target
        has moved during this time.  ``chirp_time`` (us) is the time from a transmitter's chirp to
        its next chirp, ``frame_time`` (ms) the duration of all chirps, which end at the stamp of a
        simulated sample.
        """
        device = self.antennas
        return {
            "shape": list(self.cube_shape),
            "raw_shape": list(self.shape),
            "range_resolution": self.range_resolution,
            "doppler_resolution": self.doppler_resolution,
            "max_range": self.max_range,
            "max_doppler": self.max_doppler,
            "wavelength": self.wavelength,
            "chirp_time": self.chirp_time,
            "frame_time": self.frame_time,
            "antennas": {
                **device.antennas_m(),
                "tx_turns": list(device.tx_turns or (0.0,) * device.tx),
                "view_deg": list(device.view_deg),
                "calibration": None if calibration is None else dict(calibration),
            },
            "iq_order": iq_order if device.complex_samples else None,
            **asdict(self),
        }


def chirp_config(
    values: Mapping[str, Any], key: str, usual: ChirpConfig | None = None
) -> ChirpConfig:
    """Make the chirp configuration from a config's ``radar`` mapping; ``port`` is not part of it.

    Args:
        values: checked; None for absent keys.
        key: the mapping's path in the config, for messages.
        usual: defaults of absent keys; None: all keys are required.

    Raises:
        ConfigError: a key is missing, or a value is impossible.
    """
    given = {name: value for name, value in values.items() if name != "port"}
    if missing := [name for name, value in given.items() if value is None]:
        if usual is None:
            raise ConfigError(
                f"missing: {', '.join(missing)}; a raw capture does not contain its own layout",
                key=key,
            )
        given |= {name: getattr(usual, name) for name in missing}
    chirp = ChirpConfig(**given)
    if chirp.adc_samples % 2:
        raise ConfigError(
            f"{chirp.adc_samples} is odd; a chirp is captured over two lanes",
            key=f"{key}.adc_samples",
        )
    return chirp


def lane_columns(samples: int, iq_order: str) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the columns of a chirp's I and Q values in a capture, each int64 [samples].

    Args:
        samples: samples per chirp, even.
        iq_order: ``qqii``: Q0 Q1 I0 I1 Q2 Q3 ..., the order of xwr's radar settings;
            ``iiqq``: I0 I1 Q0 Q1 I2 I3 ...

    Raises:
        ValueError: an odd number of samples, or an unknown order.
    """
    if samples % 2 or iq_order not in IQ_ORDERS:
        raise ValueError(f"not a two-lane chirp: {samples} samples in order {iq_order!r}")
    first = np.arange(samples) // 2 * 4 + np.arange(samples) % 2
    return (first + 2, first) if iq_order == "qqii" else (first, first + 2)
