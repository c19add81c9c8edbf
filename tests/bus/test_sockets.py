"""The sockets, over real ``ipc://`` in folders of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import zmq

from recorder.bus.sockets import (
    DriverSocket,
    TapPublisher,
    TapSubscriber,
    Waker,
    WriterSocket,
    tap_address,
    writer_address,
)
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ProtocolError, StorageError
from tests.support.waiting import PATIENCE_S, wait_until

T = TypeVar("T")
SPEC = StreamSpec("camera", (ChannelSpec("x", "raw", "u1", (4,)),), rate_hz=30.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="r"))  # addresses of sockets are short
    yield path
    shutil.rmtree(path)


@pytest.fixture
def writer(folder: Path) -> Iterator[WriterSocket]:
    with WriterSocket(folder) as socket:
        yield socket


@pytest.fixture
def driver(folder: Path, writer: WriterSocket) -> Iterator[DriverSocket]:
    with DriverSocket(folder) as socket:
        yield socket


def next_at(writer: WriterSocket) -> tuple[bytes, Message]:
    peer, message = wait_until("a message", writer.receive, writer.wait)
    assert isinstance(message, Message), message
    return peer, message


def next_from(driver: DriverSocket) -> Message:
    return wait_until("a message", driver.receive, driver.wait)


def test_large_frames_arrive_equal_and_answers_come_back(
    writer: WriterSocket, driver: DriverSocket
) -> None:
    rng = np.random.default_rng(1)
    frames = [rng.bytes(size) for size in (0, 1, 16 * 1024 - 1, 16 * 1024, 5_000_000)]
    sent = Message(
        Kind.DATA, stream="camera", count=2, t_mono_ns=np.array([1, 2]), frames=list(frames)
    )
    assert driver.send(sent)
    peer, got = next_at(writer)
    assert [bytes(frame) for frame in got.frames] == frames
    assert isinstance(got.t_mono_ns, np.ndarray) and got.t_mono_ns.tolist() == [1, 2]
    assert writer.send(peer, Message(Kind.ACK, values={"positions": {"camera": [1, 2, 3]}}))
    assert next_from(driver).values == {"positions": {"camera": [1, 2, 3]}}
    assert driver.receive() is None and writer.receive() is None


def test_messages_of_several_drivers_stay_apart_and_in_order(
    folder: Path, writer: WriterSocket, driver: DriverSocket
) -> None:
    with DriverSocket(folder) as other:
        for number in range(10):
            assert driver.send(Message(Kind.STATE, stream="a", number=number))
            assert other.send(Message(Kind.STATE, stream="b", number=number))
        numbers: dict[tuple[bytes, str], list[int]] = {}
        for _ in range(20):
            peer, message = next_at(writer)
            numbers.setdefault((peer, message.stream), []).append(message.number)
    assert sorted(stream for _, stream in numbers) == ["a", "b"]
    assert all(got == list(range(10)) for got in numbers.values())


def test_a_socket_without_a_reader_refuses_soon_instead_of_growing(
    writer: WriterSocket, driver: DriverSocket
) -> None:
    """What ZeroMQ holds on its own is bounded; a refused message leaves no torn one behind."""
    payload = bytes(100_000)
    sent = 0
    while driver.send(Message(Kind.STATE, number=sent, frames=[payload, payload])):
        sent += 1
        assert sent < 500
        time.sleep(0.001)
    got = 0
    while got < sent:
        _, message = next_at(writer)
        assert (message.number, len(message.frames)) == (got, 2)
        got += 1
    driver.wait(PATIENCE_S, until_writable=True)
    assert driver.send(Message(Kind.END, number=sent))
    assert next_at(writer)[1].kind is Kind.END


def test_bytes_that_are_no_message_come_as_an_error_with_their_sender(
    folder: Path, writer: WriterSocket
) -> None:
    foreign: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    foreign.setsockopt(zmq.LINGER, 0)
    foreign.connect(writer_address(folder))
    try:
        for frames in ([b"hello"], [b""], [b"\xc1", b"payload"]):
            foreign.send_multipart(frames)
            peer, error = wait_until("a message", writer.receive, writer.wait)
            assert peer and isinstance(error, ProtocolError)
        assert writer.send(peer, Message(Kind.FAULT, values={"message": str(error)}))
        assert foreign.poll(round(PATIENCE_S * 1000))
    finally:
        foreign.close()


def test_a_driver_finds_the_next_writer_by_itself(folder: Path) -> None:
    with DriverSocket(folder) as driver:
        with WriterSocket(folder) as writer:
            driver.send(Message(Kind.PING, number=1))
            _, message = next_at(writer)
            assert message.number == 1
        with WriterSocket(folder) as writer:

            def again() -> tuple[bytes, Message | ProtocolError] | None:
                driver.send(Message(Kind.PING, number=2))
                return writer.receive()

            second, got = wait_until("a message", again, writer.wait)
            assert isinstance(got, Message) and got.number == 2
            assert writer.send(second, Message(Kind.WHO))
            assert next_from(driver).kind is Kind.WHO
            assert writer.send(b"nobody", Message(Kind.WHO))  # a peer that is gone drops it


def test_a_folder_too_deep_for_a_socket_is_a_clear_error(folder: Path) -> None:
    deep = folder / ("d" * 100)
    deep.mkdir()
    with pytest.raises(StorageError, match="too long for a socket"):
        WriterSocket(deep)
    with pytest.raises(StorageError, match="cannot be bound"):
        WriterSocket(folder / "missing")


def test_waking_ends_a_wait_from_another_thread_and_is_not_lost(folder: Path) -> None:
    waker = Waker()
    with WriterSocket(folder, waker) as writer:
        waker.wake()
        waker.wake()
        started = time.monotonic()
        writer.wait(PATIENCE_S)  # woken before it began to wait
        thread = threading.Timer(0.02, waker.wake)
        thread.start()
        writer.wait(PATIENCE_S)
        assert time.monotonic() - started < PATIENCE_S / 2
        thread.join()
        writer.wait(0.0)
        before = time.monotonic()
        writer.wait(0.05)  # cleared: nothing wakes this one
        assert time.monotonic() - before >= 0.04
    waker.close()


def test_after_its_end_a_waker_writes_to_nobodys_file() -> None:
    waker = Waker()
    number = waker.fileno()
    waker.close()
    made = os.eventfd(0, os.EFD_NONBLOCK)
    os.dup2(made, number)  # as the next file that is opened would have its number
    try:
        waker.wake()
        waker.close()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(number)
    finally:
        os.close(number)
        if made != number:
            os.close(made)


def data(number: int, size: int = 4) -> Message:
    return Message(
        Kind.DATA,
        stream="camera",
        number=number,
        seq=number,
        count=1,
        t_mono_ns=np.array([number]),
        frames=[bytes(size)],
    )


def published_to(publisher: TapPublisher, subscriber: TapSubscriber) -> Iterator[Message]:
    """Publish until the subscriber has something; yields all that it gets."""
    deadline = time.monotonic() + PATIENCE_S
    number = 0
    while time.monotonic() < deadline:
        publisher.publish(data(number))
        number += 1
        while (message := subscriber.receive(0.005)) is not None:
            yield message


def test_a_late_subscriber_is_told_the_declaration_first(folder: Path) -> None:
    publisher = TapPublisher(tap_address(folder, "camera"))
    publisher.declare(SPEC)
    try:
        assert not publisher.wanted("camera")
        for number in range(100):
            publisher.publish(data(number))  # to nobody
        for _ in range(2):  # the second comes while the first's announcement is fresh
            with TapSubscriber([tap_address(folder, "camera")]) as tap:
                got = published_to(publisher, tap)
                first, second = next(got), next(got)
            assert first.kind is Kind.JOIN
            assert StreamSpec.from_wire(first.values["stream"]) == SPEC
            assert second.kind is Kind.DATA and bytes(second.frames[0]) == bytes(4)
    finally:
        publisher.close()


def test_a_subscriber_that_comes_between_two_messages_gets_no_sample_before_the_declaration(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its subscription comes when the publisher has just looked for new ones."""
    publisher = TapPublisher(tap_address(folder, "camera"))
    publisher.declare(SPEC)
    address = tap_address(folder, "camera")
    send, late = publisher._send, list[TapSubscriber]()

    def send_later(message: Message) -> None:
        if not late and message.kind is Kind.DATA:
            late.append(TapSubscriber([address]))
            assert publisher._socket.poll(round(PATIENCE_S * 1000)), "it subscribes"
        send(message)

    try:
        with TapSubscriber([address]) as early:
            next(published_to(publisher, early))
            monkeypatch.setattr(publisher, "_send", send_later)
            publisher.publish(data(7))
            with late[0] as tap:
                assert next(published_to(publisher, tap)).kind is Kind.JOIN
    finally:
        publisher.close()


def test_a_topic_is_wanted_until_its_last_subscriber_has_gone(folder: Path) -> None:
    publisher = TapPublisher(tap_address(folder, "camera"))

    try:
        with TapSubscriber([tap_address(folder, "camera")]) as second:
            with TapSubscriber([tap_address(folder, "camera")]) as first:
                next(published_to(publisher, first))
                next(published_to(publisher, second))
            assert next(published_to(publisher, second)).stream == "camera"
            assert publisher.wanted("camera")
        wait_until("unsubscribed", lambda: not publisher.wanted("camera"))
        with TapSubscriber([tap_address(folder, "camera")], ["camera"]) as again:
            wait_until("subscribed", lambda: publisher.wanted("camera"))
            assert next(published_to(publisher, again)).stream == "camera"
    finally:
        publisher.close()


def test_only_streams_that_are_subscribed_to_are_wanted(folder: Path) -> None:
    publisher = TapPublisher(tap_address(folder, "lidar"))
    try:
        with TapSubscriber([tap_address(folder, "lidar")], ["lidar_imu"]) as tap:
            wait_until("subscribed", lambda: publisher.wanted("lidar_imu"))
            assert not publisher.wanted("lidar")
            assert tap.receive(0.0) is None
        wait_until("unsubscribed", lambda: not publisher.wanted("lidar_imu"))
    finally:
        publisher.close()


def test_the_name_of_a_stream_is_a_topic_for_that_stream_alone(folder: Path) -> None:
    """ZeroMQ takes a topic for a prefix: `lidar` is one of `lidar_imu`."""
    address, names = tap_address(folder, "lidar"), ("lidar", "lidar_imu")
    publisher = TapPublisher(address)

    def until_wanted(*expected: str) -> None:
        wait_until(
            expected, lambda: {name for name in names if publisher.wanted(name)} == set(expected)
        )

    def publish() -> None:
        for name in names:
            publisher.publish(Message(Kind.DATA, name, count=1, t_mono_ns=np.array([1])))

    try:
        for name in names:
            publisher.declare(StreamSpec(name, SPEC.channels))
        with TapSubscriber([address], ["lidar"]) as lidar:
            until_wanted("lidar")
            with TapSubscriber([address], ["lidar_imu"]) as imu:
                until_wanted("lidar", "lidar_imu")
                for _ in range(2):
                    publish()
                for tap, name in ((lidar, "lidar"), (imu, "lidar_imu")):
                    got = [tap.receive(PATIENCE_S) for _ in range(3)]
                    assert [m and m.kind for m in got] == [Kind.JOIN, Kind.DATA, Kind.DATA]
                    assert {m and m.stream for m in got} == {name}
            until_wanted("lidar")
            with TapSubscriber([address]):
                until_wanted("lidar", "lidar_imu")
        until_wanted()
        with TapSubscriber([address], ["lid"]):  # no stream has that name
            until_wanted("lidar", "lidar_imu")
    finally:
        publisher.close()


def test_a_subscriber_that_sleeps_does_not_hold_up_the_publisher(folder: Path) -> None:
    publisher = TapPublisher(tap_address(folder, "camera"))
    publisher.declare(SPEC)
    try:
        with TapSubscriber([tap_address(folder, "camera")]) as tap:
            next(published_to(publisher, tap))
            done = threading.Event()

            def publish() -> None:
                for number in range(1000, 1300):
                    publisher.publish(data(number, 1_000_000))
                done.set()

            thread = threading.Thread(target=publish)
            thread.start()
            assert done.wait(PATIENCE_S), "the publisher waits for its subscriber"
            thread.join()
            numbers = [m.number for m in tap.messages(0.2) if m.kind is Kind.DATA]
            new = [n for n in numbers if n >= 1000]
            assert 0 < len(new) < 300, "dropped, but not all"
            assert new == sorted(new)
    finally:
        publisher.close()


def test_bytes_on_the_tap_that_are_no_message(folder: Path) -> None:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(tap_address(folder, "camera"))
    try:
        with (
            TapSubscriber([tap_address(folder, "camera")]) as tap,
            pytest.raises(ProtocolError),
        ):
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                socket.send_multipart([b"camera", b"junk"])
                tap.receive(0.01)
    finally:
        socket.close()
