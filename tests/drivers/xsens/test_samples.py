"""From messages to batches, losses and notes, where a device's times are mapped to the host's."""

from __future__ import annotations

import numpy as np
import pytest

from drivers.kit.serial_time import MinDelayClock
from drivers.xsens.commands import make_outputs
from drivers.xsens.mtdata2 import Coordinates
from drivers.xsens.packets import XbusParser
from drivers.xsens.positions import PositionRate, Positions
from drivers.xsens.sample_clock import SampleClock
from drivers.xsens.samples import Batch, Event, Facts, Missing, MtiAssembler, Note
from tests.drivers.xsens.xsens_logs import log, sample

PERIOD_NS = 10_000_000
LATE_NS = 4_000_000


def live(batch: int = 1) -> MtiAssembler:
    facts = Facts.from_outputs(make_outputs(100, ["quaternion"]), {})
    assert facts is not None
    return MtiAssembler(facts, batch, SampleClock(1e7, strict=True), "imu", MinDelayClock())


def events(
    assembler: MtiAssembler, parts: list[bytes], slots: list[int] | None = None
) -> list[Event]:
    """What comes of messages that arrive 10 ms after each other, or in those slots."""
    slots = slots or list(range(len(parts)))
    for slot, message in zip(slots, XbusParser().feed(b"".join(parts)), strict=True):
        assembler.add(message, slot * PERIOD_NS + LATE_NS)
        assembler.flush()
    return assembler.take()


def test_times_are_the_hosts() -> None:
    made = events(live(), log(50, start_ticks=77_000))
    assert all(isinstance(event, Batch) for event in made)
    batches = [event for event in made if isinstance(event, Batch)]
    times = np.concatenate([batch.t_ns for batch in batches])
    np.testing.assert_array_equal(times, np.arange(50) * PERIOD_NS + LATE_NS)
    device = np.concatenate([batch.t_dev_ns for batch in batches])
    np.testing.assert_array_equal(device, np.arange(50) * PERIOD_NS + 7_700_000_000)
    assert set(batches[0].data) == {"acc", "avel", "rot", "quat"}


def test_a_loss_stands_at_the_hosts_time_of_the_sample_behind_it() -> None:
    parts = log(10)
    made = events(live(batch=100), parts[:4] + parts[7:], [0, 1, 2, 3, 7, 8, 9])
    (first, missing) = made
    assert isinstance(first, Batch) and isinstance(missing, Missing)
    assert len(first.t_ns) == 4
    assert (missing.cause, missing.gap.count, missing.t_ns) == ("device", 3, 74_000_000)
    assert missing.detail == {"duration_ns": 40_000_000, "messages": 3}


def test_another_frame_from_a_configured_device_is_a_broken_message() -> None:
    """Its checksum let it pass; it ends no stream."""
    parts = [*log(3), sample(3, counter=3, ticks=5_000_300, coordinates=Coordinates.NED),
             *log(3, first=4)]  # fmt: skip
    made = events(live(), parts)
    (missing,) = (event for event in made if isinstance(event, Missing))
    assert (missing.gap.count, missing.gap.incomplete) == (1, 1)
    assert sum(isinstance(event, Batch) for event in made) == 6


def test_repeated_and_late_messages_are_noted_once() -> None:
    parts = log(9)
    order = [0, 1, 1, 1, 3, 2, 4]
    made = events(live(), [parts[k] for k in order])
    notes = [event.values for event in made if isinstance(event, Note)]
    assert notes == [{"messages_repeated_or_late": 2}, {"messages_repeated_or_late": 1}]
    assert [event.gap.count for event in made if isinstance(event, Missing)] == [1]
    assert sum(isinstance(event, Batch) for event in made) == 4


def test_a_step_of_the_devices_clock_starts_the_mapping_anew() -> None:
    parts = [*log(20), *log(20, first=20, start_ticks=90_000_000)]
    made = events(live(), parts)
    (note,) = (event for event in made if isinstance(event, Note))
    assert note.values == {"device_clock_step_ns": 85_000_100 * 100_000}
    times = np.concatenate([event.t_ns for event in made if isinstance(event, Batch)])
    np.testing.assert_array_equal(times, np.arange(40) * PERIOD_NS + LATE_NS)


def test_the_mapping_is_told_when_it_has_settled() -> None:
    parts = log(1200)
    made = events(live(), parts)
    (note,) = (event for event in made if isinstance(event, Note))
    assert note.t_ns == 10 * 1_000_000_000 + LATE_NS
    assert note.values == {"host_clock": {"drift_ppm": 0.0, "mean_lateness_us": 0, "restarts": 0}}


def test_the_mapping_tells_by_how_much_messages_are_late() -> None:
    assembler = live()
    for slot, message in enumerate(XbusParser().feed(b"".join(log(1200)))):
        assembler.add(message, slot * PERIOD_NS + LATE_NS + 600_000 * (slot % 2))
        assembler.flush()
    (note,) = (event for event in assembler.take() if isinstance(event, Note))
    assert note.values["host_clock"]["mean_lateness_us"] == pytest.approx(300, abs=60)


def test_a_position_of_a_batchs_last_sample_comes_before_the_next_batch() -> None:
    facts = Facts.from_outputs(make_outputs(100, ["quaternion"]), {})
    assert facts is not None
    positions = Positions(PositionRate(50.0, True), 100.0)
    clock = SampleClock(1e7, strict=True)
    assembler = MtiAssembler(facts, 2, clock, "imu", MinDelayClock(), positions)
    parts = [
        sample(k, counter=k, ticks=5_000_000 + 100 * k,
               latitude_longitude=(48.0, 11.0) if k % 2 else None)
        for k in range(6)
    ]  # fmt: skip
    for slot, message in enumerate(XbusParser().feed(b"".join(parts))):
        assembler.add(message, slot * PERIOD_NS + LATE_NS)
    assembler.flush()
    made = [event for event in assembler.take() if isinstance(event, Batch)]
    assert [bool(event.suffix) for event in made] == [False, True] * 3
    assert [int(event.t_ns[-1]) // PERIOD_NS for event in made] == [1, 1, 3, 3, 5, 5]
