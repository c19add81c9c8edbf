"""``bag:`` of lidars' packets: the same as a capture of them; and the given recordings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.hesai.driver import HesaiDriver
from drivers.kit.driver import Item, Lost
from drivers.kit.lidar.family import FamilyDriver
from drivers.velodyne.driver import VelodyneDriver
from recorder.common.errors import SourceError
from recorder.formats.ros2.definitions import NEBULA_PACKETS, PANDAR_SCAN
from tests.drivers.hesai.test_packets import DUAL, MANUALS, build
from tests.drivers.kit.lidar.packet_messages import Packets, scan_message, write_capture
from tests.formats.bags.kit import SECOND, START_NS, compressed, jpeg, write_mcap, write_sqlite
from tests.support.devices import losses, make_driver, play, read_all, samples, states

RECORDINGS = Path("../shared/data/lidar")
GIVEN: dict[str, tuple[type[FamilyDriver], str, int, int]] = {  # columns of all samples, lasers
    "hesai_40p": (HesaiDriver, "angles.csv", 7195, 40),
    "hesai_qt64": (HesaiDriver, "angles.csv", 2400, 64),
    "hesai_xt32": (HesaiDriver, "angles.csv", 8000, 32),
    "velodyne_vlp16": (VelodyneDriver, "calibration.yaml", 7236, 16),
    "velodyne_vlp32": (VelodyneDriver, "calibration.yaml", 4548, 32),
}
PERIOD_NS = 200_000


def turn_packets(count: int = 800) -> Packets:
    """Packets of an XT32: 4 columns of 0.18 deg each."""
    packets = list[tuple[int, bytes]]()
    for number in range(count):
        ranges = np.full((8, 32), number % 60_000)
        azimuths = [(72 * number + 18 * (block // 2)) % 36_000 for block in range(8)]
        payload = build(MANUALS["PandarXT32"], ranges, azimuths, mode=DUAL, number=number)
        packets.append((START_NS + number * PERIOD_NS, payload))
    return packets


def assert_same(found: list[Item], wanted: list[Item]) -> None:
    """The same samples, and the same states but for their times, which depend on the batches."""
    for one, other in zip(samples(found), samples(wanted), strict=True):
        assert one.t_ns.tolist() == other.t_ns.tolist()
        for name, values in one.data.items():
            assert np.array_equal(np.asarray(values), np.asarray(other.data[name])), name
    assert [each.keys() for each in states(found)] == [each.keys() for each in states(wanted)]
    assert losses(found) == losses(wanted) == []


@pytest.mark.parametrize("kind", [PANDAR_SCAN, NEBULA_PACKETS])
def test_a_bag_gives_what_a_capture_of_the_packets_gives(tmp_path: Path, kind: str) -> None:
    packets = turn_packets()
    messages = [scan_message("/p", kind, packets[at : at + 90]) for at in range(0, 800, 90)]
    capture = write_capture(tmp_path / "a.pcap", packets)
    wanted_spec, wanted = play(make_driver(HesaiDriver, "lidar", "pcap", capture))
    assert len(samples(wanted)) == 2 and not losses(wanted)
    for path in (
        write_mcap(tmp_path / "a.mcap", messages),
        write_sqlite(tmp_path / "a.db3", messages),
    ):
        driver = make_driver(HesaiDriver, "lidar", "bag", path)
        (spec,) = driver.open()
        items = read_all(driver)
        assert spec == wanted_spec and driver.ordered
        assert_same(items, wanted)
        assert driver.origin_ns == packets[0][0]
        driver.close()


def test_stamps_of_another_clock_are_not_used(tmp_path: Path) -> None:
    packets = [(t_ns - 9 * 10**16, payload) for t_ns, payload in turn_packets(40)]
    message = scan_message("/p", PANDAR_SCAN, packets, START_NS + SECOND)
    driver = make_driver(HesaiDriver, "lidar", "mcap", write_mcap(tmp_path / "a.mcap", [message]))
    _, items = play(driver)
    (sample,) = samples(items)
    assert START_NS + SECOND <= sample.t_ns[0] <= START_NS + SECOND + 40 * PERIOD_NS


def test_a_sweeps_stamp_is_not_before_that_of_the_sweep_before(tmp_path: Path) -> None:
    packets = list(turn_packets())
    late_ns = packets[520][0] + SECOND // 2
    packets[490:500] = [(late_ns, payload) for _, payload in packets[490:500]]
    message = scan_message("/p", PANDAR_SCAN, packets)
    driver = make_driver(HesaiDriver, "lidar", "bag", write_mcap(tmp_path / "a.mcap", [message]))
    first, second = samples(play(driver)[1])
    assert first.t_ns[0] == late_ns <= second.t_ns[0]


def test_a_topic_is_chosen_and_others_are_named(tmp_path: Path) -> None:
    packets = turn_packets(20)
    messages = [scan_message(f"/{side}/p", PANDAR_SCAN, packets) for side in ("left", "right")]
    path = write_mcap(tmp_path / "a.mcap", [compressed("/c", jpeg(0), START_NS), *messages])
    with pytest.raises(SourceError, match="select a topic, as in #/left/p"):
        make_driver(HesaiDriver, "lidar", "bag", path).open()
    assert len(samples(play(make_driver(HesaiDriver, "lidar", "bag", f"{path}#right/p"))[1])) == 1
    assert len(samples(play(make_driver(HesaiDriver, "left", "bag", path))[1])) == 1
    with pytest.raises(SourceError, match=r"has no packet of VLP-16 .* but 20 others"):
        make_driver(VelodyneDriver, "lidar", "bag", f"{path}#/left/p").open()
    with pytest.raises(SourceError, match=r"topic '/c': holds pictures"):
        make_driver(HesaiDriver, "lidar", "bag", f"{path}#/c").open()


def test_messages_that_cannot_be_decoded_are_counted(tmp_path: Path) -> None:
    packets = turn_packets(300)
    messages = [scan_message("/p", PANDAR_SCAN, packets[at : at + 50]) for at in range(0, 300, 50)]
    cut = replace(messages[2], data=messages[2].data[:-9])
    odd = scan_message("/p", NEBULA_PACKETS, [(packets[-1][0], b"odd")])
    path = write_mcap(tmp_path / "a.mcap", [*messages[:2], cut, *messages[3:]])
    items = play(make_driver(HesaiDriver, "lidar", "bag", path))[1]
    (lost,) = losses(items)
    assert isinstance(lost, Lost) and lost.cause == "corrupt" and "byte" in lost.detail["reason"]
    (sample,) = samples(items)
    assert np.count_nonzero(sample.data["t_col"]) == 4 * 250
    nebula = [scan_message("/p", NEBULA_PACKETS, packets[:9]), odd]
    path = write_mcap(tmp_path / "b.mcap", nebula)
    items = play(make_driver(HesaiDriver, "lidar", "bag", path))[1]
    assert {"packets_corrupt": 1} in states(items)


def test_a_file_whose_recorder_was_killed_plays_as_far_as_it_is_whole(tmp_path: Path) -> None:
    messages = [scan_message("/p", PANDAR_SCAN, turn_packets(50))] * 3
    path = write_mcap(tmp_path / "a.mcap", messages, chunk_size=1, finish=False)
    data = path.read_bytes()
    path.write_bytes(data[:-200])
    items = play(make_driver(HesaiDriver, "lidar", "bag", path))[1]
    assert samples(items) and "truncated" in [lost.cause for lost in losses(items)]


@pytest.mark.parametrize("name", GIVEN)
def test_the_given_recordings(name: str) -> None:
    kind, calibration, columns, lasers = GIVEN[name]
    folder = RECORDINGS / name
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    options = {"calibration": str(folder / calibration)}
    spec, items = play(make_driver(kind, "lidar", "bag", folder / "packets.db3", **options))
    assert spec.channel("rng").shape[0] == lasers
    assert not losses(items)
    found = [np.count_nonzero(sample.data["t_col"]) for sample in samples(items)]
    assert sum(found) == columns
