"""Devices that change model, return mode, unit or speed in mid-stream, and damaged packets."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from drivers.kit.lidar.family import convert_payloads
from drivers.kit.lidar.form import FormChangedError, FormWatch
from tests.campaigns import Campaign
from tests.drivers.kit.lidar.lidars import START_NS, Account, Lidar
from tests.drivers.kit.lidar.test_calibration import write_yaml


@pytest.mark.parametrize(
    ("model", "mode", "wanted"),
    [
        ("PandarXT32", 0x37, "with the returns strongest, 1080 bytes each from here on"),
        ("PandarXT16", 0x39, "a PandarXT16 in 4 mm"),
        ("PandarQT64", 0x39, "a PandarQT64 in 4 mm"),
    ],
)
def test_another_form_ends_the_stream_by_its_name(model: str, mode: int, wanted: str) -> None:
    before, after = Lidar("PandarXT32", 0x39), Lidar(model, mode)
    first, t_ns = before.send(before.turn(600))
    then, _ = after.send(after.turn(40))
    stream, account = before.start(first), Account()
    if model != "PandarXT32":  # a config without a model
        stream._form = FormWatch(before.decoder, after.family.make_decoder)
    account.take(stream.take(first, t_ns, t_ns))
    with pytest.raises(FormChangedError, match=wanted):
        if then.shape[1] == first.shape[1]:
            account.take(stream.take(then, t_ns[-40:], t_ns[-40:]))
        else:
            for packet in then:
                account.take(stream.take_other(packet.tobytes()))
    assert account.columns == 600 * before.decoder.columns  # all before is given


def test_an_hdl_64e_tells_its_returns_by_its_azimuths(tmp_path: Path) -> None:
    angles = write_yaml(tmp_path / "a.yaml", 64, 0.002)
    single, dual = Lidar("HDL-64E S3", 0x37), Lidar("HDL-64E S3", 0x39)
    first, t_ns = single.send(single.turn(300))
    then, _ = dual.send(dual.turn(40))
    stream, account = single.start(first, calibration=str(angles)), Account()
    account.take(stream.take(first, t_ns, t_ns))
    with pytest.raises(FormChangedError, match="with the returns strongest and last"):
        account.take(stream.take(then, t_ns[-40:], t_ns[-40:]))
    assert not dual.decoder.find_sound(first).any()
    still = first.copy()
    still[:, 2::100] = still[:, 3::100] = 0  # it stands
    assert single.decoder.find_sound(still).all()


def test_what_a_message_has_before_another_form_is_given() -> None:
    before, after = Lidar("PandarXT32", 0x39), Lidar("PandarXT16", 0x39)
    first, t_ns = before.send(before.turn(600))
    then, _ = after.send(after.turn(40))
    stream, account = before.start(first), Account()
    stream._form = FormWatch(before.decoder, after.family.make_decoder)
    times = [*t_ns.tolist(), *[int(t_ns[-1])] * len(then)]
    message = zip(times, [packet.tobytes() for packet in (*first, *then)], strict=True)
    with pytest.raises(FormChangedError, match="a PandarXT16 in 4 mm"):
        account.take(convert_payloads(before.family, stream, message))
    assert account.columns == 600 * before.decoder.columns


def test_damaged_packets_are_no_other_form() -> None:
    lidar = Lidar("PandarXT32", 0x39)
    packets, t_ns = lidar.send(lidar.turn(900))
    damaged = packets.copy()
    damaged[::3, 1062] = 0x37  # the return mode
    stream, account = lidar.start(packets), Account()
    account.take(stream.take(damaged, t_ns, t_ns))
    account.take(stream.finish())
    assert account.total("packets_corrupt") == 300
    assert account.columns == 600 * lidar.decoder.columns


@pytest.mark.parametrize("rate_hz", [20.0, 8.0])
def test_another_speed_is_reported(rate_hz: float) -> None:
    lidar = Lidar("PandarXT32", 0x37)
    packets, t_ns = lidar.send(lidar.turn(1500))
    lidar.rate_hz = rate_hz
    later_ns = START_NS + round(1500 * 8 * lidar.decoder.column_ns)
    then, then_ns = lidar.send(lidar.turn(1500, later_ns), 1500)
    stream, account = lidar.start(packets), Account()
    account.take(stream.take(packets, t_ns, t_ns))
    if rate_hz > 10:
        account.take(stream.take(then, then_ns, then_ns))
        assert account.find("rate_hz") == [rate_hz]
    else:  # its sweeps are wider than the stream
        with pytest.raises(
            FormChangedError, match=r"turns at 8\.0 Hz from here on, before at 10\.0 Hz"
        ):
            account.take(stream.take(then, then_ns, then_ns))
        assert account.total("columns_beyond_width") > 0


MUTATED = ["PandarXT32", "Pandar40P", "QT128", "OT128", "VLP-16", "VLP-32C", "VLS-128"]


def mutate(dice: random.Random, packets: np.ndarray) -> np.ndarray:
    """Return packets of which most have random bytes somewhere."""
    mutated = packets.copy()
    for packet in mutated:
        for _ in range(dice.choice([0, 1, 1, 3, 40])):
            begin = dice.choice([0, 0, len(packet) - 60, dice.randrange(len(packet))])
            packet[min(len(packet) - 1, begin + dice.randrange(60))] = dice.randrange(256)
    return mutated


def check_mutated(model: str, seed: int, count: int) -> None:
    dice, lidar = random.Random(seed), Lidar(model, 0x37, seed)
    packets, t_ns = lidar.send(lidar.turn(count))
    stream, account = lidar.start(packets), Account()
    mutated = mutate(dice, packets)
    for at in range(0, count, 50):
        part = slice(at, at + 50)
        account.take(stream.take(mutated[part], t_ns[part], t_ns[part]))
        account.take(stream.take_other(mutated[at, : dice.randrange(900)].tobytes()))
    account.take(stream.finish())
    counted = sum(account.total(f"packets_{name}") for name in ("corrupt", "repeated", "late"))
    counted -= count // 50  # the others
    beyond = account.total("columns_beyond_width")
    assert account.columns + beyond == (count - counted) * lidar.decoder.columns


@pytest.mark.parametrize("model", MUTATED)
def test_a_mutated_packet_ends_no_stream(model: str) -> None:
    check_mutated(model, 0, 400)


@pytest.mark.campaign(weight=30, least=120)
@pytest.mark.parametrize("model", MUTATED)
def test_mutated_packets_end_no_stream(model: str, campaign: Campaign) -> None:
    for seed in campaign.seeds():
        check_mutated(model, seed, 400)
