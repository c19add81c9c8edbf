"""The driver for datagrams: sockets, captures, the simulated sender."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.udp_socket import UdpReceiver, parse_address
from drivers.udp.driver import UdpDriver
from drivers.udp.simulated import HEAD
from recorder.common.errors import ConfigError, DeviceError, SourceError
from tests.drivers.test_datagram_devices import KINDS, feed, story
from tests.drivers.udp.rig import HERE, driver_for, payloads, played, read_payloads, write_capture
from tests.formats.pcap.test_capture_losses import SECTION, enhanced, interface, obsolete, simple
from tests.formats.pcap.test_capture_losses import pcap as cut_pcap
from tests.formats.pcap.test_datagrams import (
    HOST,
    PAYLOAD,
    PLAIN,
    STAMP,
    ethernet,
    ipv4,
    ipv6,
    pcap,
    udp,
)
from tests.support.devices import free_port, opened, read_all, streaming

UDP = KINDS["udp"]
LENGTHS = (0, 1, 1206, 1472, 9000, 65507)


@pytest.fixture
def sender() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        yield made


def live(port: int, **options: Any) -> UdpDriver:
    return driver_for("udp", f"127.0.0.1:{port}", timeout_s=0, socket_buffer_mb=4, **options)


# The network


def test_datagrams_of_any_length_come_as_they_were_sent(sender: socket.socket) -> None:
    port, sent = free_port(), [bytes([k]) * n for k, n in enumerate(LENGTHS)]
    with opened(live(port)) as driver:
        before_ns = time.monotonic_ns()
        for data in sent:
            sender.sendto(data, ("127.0.0.1", port))
        items = read_payloads(driver, len(sent))
    state, *samples = items
    assert isinstance(state, State) and state.lasting and state.values["port"] == port
    assert payloads(items) == sent
    for sample in samples:
        assert isinstance(sample, Sample)
        assert (np.diff(sample.t_ns) >= 0).all() and sample.t_ns[0] >= before_ns - 10**6
        assert sample.t_ns[-1] <= time.monotonic_ns() + 10**6
        assert (np.asarray(sample.data["source"]) == np.frombuffer(HERE, np.uint8)).all()
        assert set(np.asarray(sample.data["source_port"])) == {sender.getsockname()[1]}
        assert set(np.asarray(sample.data["port"])) == {port}


def test_many_datagrams_are_one_sample(sender: socket.socket) -> None:
    """The kernel stores them until they are read; the cost is per batch."""
    port = free_port()
    with opened(live(port)) as driver:
        for k in range(600):
            sender.sendto(k.to_bytes(2, "big"), ("127.0.0.1", port))
        items = read_payloads(driver, 600)
    assert payloads(items) == [k.to_bytes(2, "big") for k in range(600)]
    assert sum(isinstance(item, Sample) for item in items) == 3


def test_ipv6() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        try:
            sender.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = free_port()
        with opened(driver_for("udp", f"[::1]:{port}", timeout_s=0)) as driver:
            sender.sendto(b"six", ("::1", port))
            items = read_payloads(driver, 1)
    sample = items[-1]
    assert isinstance(sample, Sample)
    assert bytes(np.asarray(sample.data["source"])) == bytes(15) + b"\1"
    assert int(np.asarray(sample.data["source_port"])[0]) > 0


def test_a_multicast_group_is_joined(sender: socket.socket) -> None:
    port, group = free_port(), "239.255.77.7"
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    driver = driver_for("udp", f"{group}:{port}", timeout_s=0, interface="127.0.0.1")
    try:
        driver.open()
        sender.sendto(b"to all", (group, port))
    except (DeviceError, OSError) as error:
        pytest.skip(f"no multicast on loopback: {error}")
    with opened(driver):
        assert driver.receives == ()
        sender.sendto(b"to all", (group, port))
        assert payloads(read_payloads(driver, 1)) == [b"to all"]


def test_only_the_sender_is_recorded_and_others_are_counted(
    sender: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivers.udp.live.TELL_NS", 0)
    port = free_port()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        opened(live(port, sender="127.0.0.2")) as driver,
    ):
        other.bind(("127.0.0.2", 0))
        for k in range(5):
            sender.sendto(b"no", ("127.0.0.1", port))
            other.sendto(b"yes %d" % k, ("127.0.0.1", port))
        items = read_payloads(driver, 5)
        while not any(isinstance(i, State) and not i.lasting for i in items):
            if (item := driver.read()) is not None:
                items.append(item)
    assert payloads(items) == [b"yes %d" % k for k in range(5)]
    reported = [i.values for i in items if isinstance(i, State) and not i.lasting]
    assert reported == [{"datagrams_of_others": 5}]


def test_drops_are_lost_also_before_datagrams_of_others() -> None:
    other = UDP.batch([5], [3])
    other.addresses[:, 7] = 2
    with opened(live(free_port(), sender="127.0.0.1")) as driver:
        items = feed(driver, UDP.batch([1], [0]), other, UDP.batch([6], [3]))
    assert story(items, "payload") == [1, ("overflow", 3, 5000), 6]


def test_a_full_buffer_is_counted(sender: socket.socket) -> None:
    """By the kernel itself: as many are recorded and lost as were sent."""
    port = free_port()
    driver = driver_for("udp", f"127.0.0.1:{port}", timeout_s=0, socket_buffer_mb=0.1)
    sent = 3000
    with opened(driver):
        for k in range(sent):
            sender.sendto(struct.pack(">I", k) + bytes(1000), ("127.0.0.1", port))
        items: list[Item | None] = []
        while (item := driver.read()) is not None or not items:
            items.append(item)
        sender.sendto(b"last", ("127.0.0.1", port))
        got = [i for i in items if i is not None]
        while not payloads(got) or payloads(got)[-1] != b"last":
            if (item := driver.read()) is not None:
                got.append(item)
    lost = sum(i.count or 0 for i in got if isinstance(i, Lost))
    assert 0 < lost < sent
    assert len(payloads(got)) + lost == sent + 1


def test_silence_ends_the_device(monkeypatch: pytest.MonkeyPatch, sender: socket.socket) -> None:
    monkeypatch.setattr("drivers.kit.socket_source._FIRST_S", 0.05)
    monkeypatch.setattr("drivers.udp.live._READ_S", 0.02)
    port = free_port()
    driver = driver_for("udp", f"//127.0.0.1:{port}/", timeout_s=0.1)
    text = rf"lidar: udp://127.0.0.1:{port}/: no datagram arrives at UDP port {port}"
    with pytest.raises(DeviceError, match=text):
        driver.open()
    sender.connect(("127.0.0.1", port))
    with UdpReceiver("127.0.0.1", port, 1 << 16, 0.0):
        pass  # the port is free again
    monkeypatch.setattr("drivers.kit.socket_source._FIRST_S", 60.0)
    monkeypatch.setattr(
        "drivers.udp.live.UdpReceiver",
        lambda *a, **k: _Greeted(sender, *a, **k),
    )
    with opened(driver):
        read_payloads(driver, 1)
        with pytest.raises(DeviceError, match="no datagram arrives"):
            while True:
                driver.read()


class _Greeted(UdpReceiver):
    """A socket to which a datagram is sent as soon as it is bound."""

    def __init__(self, sender: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        sender.send(b"hello")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "host:port", "a:70000", "h:1/x", "u@h:7"])
def test_a_source_of_another_form_is_named(address: str) -> None:
    with pytest.raises(SourceError, match="is not of the form udp:HOST:PORT"):
        driver_for("udp", address).open()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1:2368", ("10.0.0.1", 2368)),
        ("0.0.0.0:1", ("", 1)),
        ("*:1", ("", 1)),
        (":1", ("", 1)),
        ("[ff02::1%eth0]:9", ("ff02::1%eth0", 9)),
    ],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text, "x") == found


def test_a_sender_that_is_no_address_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'lidar\.local' is not an IP address") as error:
        live(1, sender="lidar.local").open()
    assert error.value.key == "lidar.sender"


# Captures


def test_a_capture_is_played_as_it_came(tmp_path: Path) -> None:
    sent = [(2368, bytes([k % 256]) * (k * 37 % 1400)) for k in range(300)]
    path = write_capture(tmp_path / "a.pcap", [*sent, (8308, b"position")])
    items = played(path, port=2368)
    assert payloads(items) == [data for _, data in sent]
    first = items[0]
    assert isinstance(first, Sample) and first.count == 256
    assert first.t_ns[0] == STAMP // 1000 * 1000
    assert bytes(np.asarray(first.data["source"])[0]) == bytes(10) + b"\xff\xff\x0a\0\0\5"
    assert int(np.asarray(first.data["source_port"])[0]) == 40000


def test_all_ports_of_a_capture(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", [(1, b"a"), (2, b"b"), (1, b"c")])
    with streaming(driver_for("file", str(path))) as (driver, spec):
        assert spec.settings == {"address": "10.0.0.1", "port": 1}
        (sample,) = read_all(driver)
    assert isinstance(sample, Sample)
    assert np.asarray(sample.data["port"]).tolist() == [1, 2, 1]


def test_one_sender_of_a_capture(tmp_path: Path) -> None:
    frames = [ethernet(ipv4(udp(b"four"))), ethernet(ipv6(udp(b"six")))]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(frames))
    for sender, data in (("10.0.0.5", b"four"), ("::0a00:5", b"six")):
        with opened(driver_for("file", str(path), sender=sender)) as driver:
            assert payloads(read_all(driver)) == [data]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"port": 7}, "has no UDP datagram to port 7; its datagrams go to the ports 1, 2$"),
        ({"sender": "1.2.3.4"}, "has no UDP datagram from 1.2.3.4; its datagrams go to"),
    ],
)
def test_a_capture_without_such_datagrams(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    path = write_capture(tmp_path / "a.pcap", [(2, b""), (1, b"b")])
    with pytest.raises(SourceError, match=rf"lidar: file:.*a.pcap: {text}"):
        driver_for("file", str(path), **options).open()


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", "is empty"), (b"no capture", "is not a pcap"), (pcap([]), "has no UDP datagram$")],
)
def test_what_is_no_capture_is_named(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=rf"lidar: file:.*a.pcap: {text}"):
        driver_for("file", str(path)).open()


def test_the_whole_datagrams_of_a_truncated_capture_are_played(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "a.pcap", [(1, b"a"), (1, b"b")], tail=b"\1\2\3")
    with opened(driver_for("file", str(path))) as driver:
        sample = driver.read()
        assert sample is not None and payloads([sample]) == [b"a", b"b"]
        with pytest.raises(SourceError, match=r"a.pcap: is truncated at byte \d+, inside"):
            driver.read()


def losses(items: list[Item]) -> list[tuple[str, int | None, int]]:
    return [(item.cause, item.count, item.t_ns) for item in items if isinstance(item, Lost)]


def test_what_a_capture_holds_only_in_part_is_lost_before_the_next_datagram(
    tmp_path: Path,
) -> None:
    """tcpdump -s 60 cuts; the file has the length that the frame had (draft-ietf-opsawg-pcap)."""
    path = tmp_path / "a.pcap"
    frames = [ethernet(ipv4(udp(bytes([n]) * 40))) for n in range(6)]
    sizes = [60, 82, 82, 60, 60, 82]
    path.write_bytes(
        cut_pcap([(STAMP + n, frames[n][: sizes[n]], 82) for n in range(6)])
        + cut_pcap([(STAMP + 9, frames[0][:60], 82)])[24:]
    )
    items = played(path, "max")
    assert payloads(items) == [bytes([n]) * 40 for n in (1, 2, 5)]
    assert losses(items) == [
        ("snaplen", 1, STAMP + 1), ("snaplen", 2, STAMP + 5), ("snaplen", 1, STAMP + 5),
    ]  # fmt: skip
    assert [type(item) for item in items] == [Lost, Sample, Lost, Sample, Lost]


def test_a_capture_of_which_every_datagram_is_cut_is_all_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(cut_pcap([(STAMP, PLAIN[:60], len(PLAIN))] * 3))
    items = played(path, port=7502)
    assert losses(items) == [("snaplen", 3, STAMP)] and len(items) == 1
    path.write_bytes(cut_pcap([(STAMP, PLAIN[:30], len(PLAIN))] * 3))
    with pytest.raises(SourceError, match=r"3 packets that the snap length cuts .* are not read"):
        driver_for("file", str(path)).open()


def test_lost_fragments_belong_to_the_senders_of_the_port(tmp_path: Path) -> None:
    part = ethernet(ipv4(udp(bytes(200))[96:], at=96))  # without the first one: no port
    other = ethernet(ipv4(udp(b"x", 1))).replace(HOST, bytes(4), 1)
    frames = [ethernet(ipv4(udp(b"a", 2))), other, part]
    path = tmp_path / "a.pcap"
    path.write_bytes(cut_pcap([(STAMP, frame, len(frame)) for frame in frames]))
    for port, lost in ((2, [("fragments", 1, STAMP)]), (1, []), (None, [("fragments", 1, STAMP)])):
        with opened(driver_for("file", str(path), "max", port=port)) as driver:
            assert losses(read_all(driver)) == lost


def test_datagrams_without_stamps_are_refused_or_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """pcapng's Simple Packet Blocks have none."""
    path = tmp_path / "a.pcapng"
    head = SECTION + interface()
    path.write_bytes(head + simple(PLAIN) * 3)
    with pytest.raises(SourceError, match="have no stamps, so that their times are not known"):
        driver_for("file", str(path)).open()
    path.write_bytes(head + simple(PLAIN) + enhanced(PLAIN) + simple(PLAIN))
    items = played(path, "max")
    sample, state = items
    assert isinstance(sample, Sample) and sample.t_ns.tolist() == [STAMP] * 3
    assert isinstance(state, State) and state.values == {"datagrams_without_stamp": 2}
    assert "a.pcapng: 2 datagrams have no stamp; they got the stamp" in capsys.readouterr().err


def test_packets_that_cannot_be_read_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.pcapng"
    unknown = enhanced(bytes(60), number=1) * 2
    known = obsolete(PLAIN, drops=7)
    path.write_bytes(SECTION + interface() + interface(link=127) + unknown + known)
    sample, state = played(path, "max")
    assert payloads([sample]) == [PAYLOAD] and isinstance(state, State)
    assert state.values == {
        "not_read": {"packets of link type 127": 2},
        "packets_dropped_by_capture": 7,
    }
    told = capsys.readouterr().err
    assert "a.pcapng: 2 packets of link type 127 are not read" in told
    assert "a.pcapng: the capturing program dropped 7 packets" in told
    path.write_bytes(SECTION + interface() + interface(link=127) + unknown)
    with pytest.raises(
        SourceError, match="no UDP datagram; 2 packets of link type 127 are not read"
    ):
        driver_for("file", str(path)).open()


def test_batches_of_a_capture_are_short_in_real_time(tmp_path: Path) -> None:
    frame = ethernet(ipv4(udp(b"x")))
    data = pcap([])
    for k in range(40):
        second, ms = divmod(k, 1000)
        data += struct.pack("<IIII", second, ms * 1000, len(frame), len(frame)) + frame
    path = tmp_path / "a.pcap"
    path.write_bytes(data)
    for pace, counts in (("realtime", [9, 9, 9, 9, 4]), ("max", [40])):
        items = played(path, pace)
        assert [i.count for i in items if isinstance(i, Sample)] == counts


# The simulation


def test_the_simulated_sender_numbers_its_datagrams() -> None:
    with streaming(driver_for("sim", "", rate=500, size=100)) as (driver, spec):
        assert (spec.rate_hz, driver.origin_ns) == (500.0, 0)
        samples = [driver.read() for _ in range(40)]
    heads, lengths, times = [], set(), []
    for sample in samples:
        assert isinstance(sample, Sample)
        times += sample.t_ns.tolist()
        for data in sample.data["payload"]:
            heads.append(HEAD.unpack_from(bytes(data)))
            lengths.add(len(data))
    assert [head[0] for head in heads] == list(range(200))
    assert [head[1] for head in heads] == times == [2_000_000 * (k + 1) for k in range(200)]
    assert min(lengths) >= HEAD.size and max(lengths) <= 100 and len(lengths) > 30
    assert len({head[2:] for head in heads}) == 200  # the vehicle moves
