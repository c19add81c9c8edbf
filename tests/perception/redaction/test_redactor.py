"""A redactor's process: what it is asked, and every way in which it can break the protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from recorder.common.errors import RedactionError
from recorder.perception.redaction.redactor import ANSWER, PICTURE, Redactor
from tests.perception.redaction.programs import GOOD, program

RGB = np.arange(24 * 32 * 3, dtype=np.uint8).reshape(24, 32, 3)
LARGE = np.zeros((1080, 1920, 3), np.uint8)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def opened(tmp_path: Path, body: str, timeout_s: float = 20.0) -> Redactor:
    return Redactor(program(tmp_path / "blur.py", body), tmp_path, timeout_s, timeout_s)


def test_a_picture_arrives_whole(tmp_path: Path) -> None:
    body = f"""
    head, data = source.read(128), source.read({RGB.size})
    open("head", "wb").write(head), open("data", "wb").write(data)
    answer(7, 0)
    """
    with opened(tmp_path, body) as redactor:
        assert redactor.ask("front", 7, -5, RGB).shape == (0, 4)
        redactor.finish()
    assert (tmp_path / "data").read_bytes() == RGB.tobytes()
    found = PICTURE.unpack((tmp_path / "head").read_bytes())
    want = (b"RPIC", 1, 32, 24, 3, b"RGB8", 7, -5, RGB.size, b"front".ljust(80, b"\0"))
    assert found == want
    assert (PICTURE.size, ANSWER.size) == (128, 24)


def test_boxes_scores_and_masks(tmp_path: Path) -> None:
    body = """
    for number, width, height, data in pictures():
        if number == 0:
            answer(number, 2, 5, (-3.5, 0, 4.25, 6, 0.9, 30, 20, 40, 30, 0.1))
        elif number == 1:
            answer(number, height, width, bytes([0, 255]) * (width * height // 2), b"RMSK")
        else:
            answer(number, 1, 4, (0, 0, width, height))
    """
    with opened(tmp_path, body) as redactor:
        assert redactor.ask("a", 0, 0, RGB).tolist() == [[-3.5, 0, 4.25, 6], [30, 20, 40, 30]]
        mask = redactor.ask("a", 1, 1, RGB)
        assert mask.dtype == np.bool_
        assert mask.tolist() == [[False, True] * 16] * 24
        assert redactor.ask("b", 2, 2, LARGE).tolist() == [[0, 0, 1920, 1080]]
        redactor.finish()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(3)", "ended with exit code 3"),
        ("pass", "ended with exit code 0"),
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("source.read(50); sys.exit('out of memory')", "exit code 1; it reported: out of memory"),
        ("source.read(); answer(0, 0)", "did not answer in time"),
        ("os.close(0); time.sleep(60)", "closed its input or output"),
        ("os.close(1); time.sleep(60)", "closed its input or output"),
        ("answer(0, 0); time.sleep(60)", "answered before it had the picture"),
        ("for p in pictures(): answer(p[0] + 1, 0)", "answered picture 1, not 0"),
        ("for p in pictures(): answer(p[0], 0, version=2)", "version 2, which is no header"),
        ("for p in pictures(): print('loaded', 'model' * 9, flush=True)", "which is no header"),
        ("for p in pictures(): answer(p[0], 1, 3, (1, 2, 3))", "1 boxes of 3 values"),
        ("for p in pictures(): answer(p[0], 1 << 31)", "gave 2147483648 boxes"),
        ("answer(next(pictures())[0], 2, 4, (1, 2, 5, 6))", "ended with exit code 0"),
        ("for p in pictures(): answer(p[0], 1, 4, (1, 2, float('nan'), 6))", "no numbers"),
        ("for p in pictures(): answer(p[0], 1, 4, (1, 2, float('inf'), 6))", "no numbers"),
        ("for p in pictures(): answer(p[0], 1, 5, (1, 2, 5, 6, float('nan')))", "no numbers"),
        ("for p in pictures(): answer(p[0], 1, 4, (.1, .2, .5, .6))", "smaller than a pixel"),
        ("for p in pictures(): answer(p[0], 1, 4, (9, 2, 5, 6))", "smaller than a pixel"),
        ("for p in pictures(): answer(p[0], 1, 4, (32, 2, 40, 6))", "of the picture, 32 x 24"),
        ("for p in pictures(): answer(p[0], 1, 4, (3, -9, 40, 0))", "outside of the picture"),
        ("for p in pictures(): answer(p[0], 32, 24, b'0' * 768, b'RMSK')", "mask of 24 x 32"),
    ],
)  # fmt: skip
def test_broken_redactors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    monkeypatch.setattr("recorder.perception.redaction.redactor._END_S", 0.2)
    with opened(tmp_path, body, 0.3 if "in time" in message else 20.0) as redactor:
        with pytest.raises(RedactionError, match=message) as caught:
            redactor.ask("front", 0, 0, LARGE if "sleep" in body else RGB)
        assert f"redactor `{sys.executable} -S {tmp_path / 'blur.py'}`" in str(caught.value)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("sink.write(b'x'); sink.flush()", "wrote more than its answers"),
        ("sys.exit(4)", "ended with exit code 4 after its last answer"),
        ("os.close(1); os.close(2); time.sleep(60)", "did not end after its last answer"),
        ("time.sleep(60)", "did not answer in time"),
    ],
)
def test_bad_ends(tmp_path: Path, rest: str, message: str) -> None:
    body = f"{GOOD}\n{rest}"
    with opened(tmp_path, body) as redactor:
        redactor.ask("front", 0, 0, RGB)
        redactor._timeout_s = 0.3 if "in time" in message else 1.0 if "sleep" in rest else 20.0
        with pytest.raises(RedactionError, match=message):
            redactor.finish()


@pytest.mark.parametrize("read", [0, 128, 128 + RGB.size - 1])
def test_a_picture_that_was_not_read_is_not_answered(tmp_path: Path, read: int) -> None:
    body = f"os.readv(0, [bytearray({read})]); answer(0, 0); time.sleep(60)"
    message = r"answered before it had (read )?the picture"
    with opened(tmp_path, body) as redactor, pytest.raises(RedactionError, match=message):
        redactor.ask("front", 0, 0, RGB)


def test_more_than_an_answer_is_no_answer_to_the_next(tmp_path: Path) -> None:
    body = "for p in pictures(): answer(p[0], 0); answer(p[0] + 1, 0)"
    with opened(tmp_path, body) as redactor:
        redactor.ask("front", 0, 0, RGB)
        with pytest.raises(RedactionError, match="answered before it had the picture"):
            redactor.ask("front", 1, 0, LARGE)


def test_megabytes_on_standard_error(tmp_path: Path) -> None:
    body = """
    for p in pictures():
        os.write(2, b"noise " * 1_000_000)
        answer(p[0], 0)
    os.write(2, b"noise " * 1_000_000)
    sys.exit("the last words")
    """
    with opened(tmp_path, body) as redactor:
        redactor.ask("front", 0, 0, RGB)
        with pytest.raises(RedactionError, match=r"it reported: .{100,300}the last words$"):
            redactor.finish()


def test_a_child_that_keeps_the_pipes_open_is_ended(tmp_path: Path) -> None:
    body = """
    for p in pictures():
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        open("child", "w").write(str(child.pid))
        sys.exit(5)
    """
    with (
        opened(tmp_path, body) as redactor,
        pytest.raises(RedactionError, match="ended with exit code 5"),
    ):
        redactor.ask("front", 0, 0, RGB)
    assert not is_running(int((tmp_path / "child").read_text()))


CHILDREN = """
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open("new", "w").write(f"{os.getpid()} {child.pid}")
os.rename("new", "pids")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


def pids(tmp_path: Path) -> list[int]:
    while not (tmp_path / "pids").exists():
        time.sleep(0.01)
    return [int(pid) for pid in (tmp_path / "pids").read_text().split()]


def test_close_ends_the_program_and_its_children(tmp_path: Path) -> None:
    with opened(tmp_path, CHILDREN):
        started = pids(tmp_path)
        assert all(map(is_running, started))
    assert not any(map(is_running, started))


@pytest.mark.parametrize("victim", ["owner", "guard"])
def test_nothing_remains_of_a_killed_owner(tmp_path: Path, victim: str) -> None:
    command = program(tmp_path / "blur.py", CHILDREN)
    code = (
        "import sys, numpy as np; from pathlib import Path;"
        "from recorder.perception.redaction.redactor import Redactor;"
        f"r = Redactor({command!r}, Path({str(tmp_path)!r}), 60.0, 60.0);"
        "print(r._process.pid, flush=True); r.ask('a', 0, 0, np.zeros((2000, 2000, 3), np.uint8))"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert owner.stdout is not None
    guard = int(owner.stdout.readline())
    started = pids(tmp_path)
    os.kill(owner.pid if victim == "owner" else guard, signal.SIGKILL)
    owner.wait(30)  # although the program's child holds the pipes, if the guard was killed
    owner.stdout.close()
    program_pid, child = started
    if victim == "guard":  # the kernel ends the program; its child is nobody's
        os.kill(child, signal.SIGKILL)
    while any(map(is_running, (guard, program_pid, child))):
        time.sleep(0.01)


def test_programs_that_cannot_be_started(tmp_path: Path) -> None:
    for command, message in (
        (["no-such-program-here"], "no such program"),
        (["./blur"], "no such program"),
        (["sh", "-c", "exec ./missing --password=x rtsp://u:secret@h/"], "exit code 127"),
    ):
        with (
            pytest.raises(RedactionError, match=message) as caught,
            Redactor(command, tmp_path, 20.0, 20.0) as redactor,
        ):
            redactor.ask("front", 0, 0, RGB)
        assert "secret" not in str(caught.value)
    text = tmp_path / "blur"
    text.write_text("\0")
    text.chmod(0o755)
    with (
        Redactor(["./blur"], tmp_path, 20.0, 20.0) as redactor,
        pytest.raises(RedactionError, match="exit code 126; it reported: cannot be started"),
    ):
        redactor.ask("front", 0, 0, RGB)
    with pytest.raises(RedactionError, match="gone"):
        Redactor(["sh"], tmp_path / "gone", 20.0, 20.0)
