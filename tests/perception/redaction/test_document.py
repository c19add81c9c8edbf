"""The protocol's document: its program runs, and its tables are the code's."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from recorder.perception.redaction.pictures import paint
from recorder.perception.redaction.redactor import ANSWER, MOST_BOXES, PICTURE, VERSION, Redactor

TEXT = (Path(__file__).parents[3] / "docs/redaction.md").read_text()
PROGRAM, EGOBLUR = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_program_finds_codes(tmp_path: Path) -> None:
    (tmp_path / "blur.py").write_text(PROGRAM)
    code = cv2.QRCodeEncoder.create().encode("vehicle 7")
    plain = np.full((240, 320, 3), 180, np.uint8)
    coded = plain.copy()
    coded[60:180, 100:220] = cv2.resize(code, (120, 120), interpolation=cv2.INTER_NEAREST)[
        ..., None
    ]
    with Redactor([sys.executable, "blur.py"], tmp_path, 60.0, 60.0) as redactor:
        for number, rgb in enumerate((plain, coded, plain, coded)):
            found = redactor.ask("front", number, number, rgb)
            assert len(found) == number % 2
            painted = rgb.copy()
            paint(painted, found)
            assert len(cv2.QRCodeDetector().detectMulti(painted)[1] or ()) == 0
        redactor.finish()


def test_egoblur_programs_protocol(tmp_path: Path) -> None:
    """With a model that stands in for torch's, which is not installed here."""
    (tmp_path / "torchvision.py").write_text(
        "class ops:\n    nms = staticmethod(lambda boxes, scores, iou: boxes.order(scores))\n"
    )
    (tmp_path / "torch.py").write_text(
        """
import contextlib, numpy as np
no_grad = contextlib.nullcontext
class cuda:
    is_available = staticmethod(lambda: False)
class Tensor(np.ndarray):
    to = cpu = lambda self, device=None: self
    numpy = lambda self: np.asarray(self)
    order = lambda self, scores: np.argsort(-np.asarray(scores))
from_numpy = lambda array: array.view(Tensor)
class Model:
    eval = lambda self: self
    def __call__(self, bgr):
        assert (bgr.dtype, bgr.shape, bgr.flags.c_contiguous) == (np.uint8, (3, 24, 32), True)
        assert bgr[0].max() == 7 and bgr[2].max() == 9
        print("a library's text")
        boxes = np.array([[10, 5, 20, 15], [1, 1, 3, 3]], np.float32).view(Tensor)
        return boxes, None, np.array([0.9, 0.2], np.float32).view(Tensor), None
class jit:
    load = staticmethod(lambda path, map_location: Model())
"""
    )
    (tmp_path / "egoblur_redactor.py").write_text(EGOBLUR)
    rgb = np.full((24, 32, 3), (9, 8, 7), np.uint8)
    command = [sys.executable, "egoblur_redactor.py", "face.jit", "plate.jit"]
    with Redactor(command, tmp_path, 60.0, 60.0) as redactor:
        for number in range(2):
            found = redactor.ask("front", number, 0, rgb)
            np.testing.assert_allclose(found, [[9.25, 4.25, 20.75, 15.75]] * 2)
        redactor.finish()


@pytest.mark.parametrize(("struct", "after"), [(PICTURE, "A picture is"), (ANSWER, "An answer is")])
def test_the_tables_are_the_structs(struct: object, after: str) -> None:
    assert struct in (PICTURE, ANSWER)
    made = PICTURE if struct is PICTURE else ANSWER
    part = TEXT.partition(after)[2]
    assert int(re.search(r"a header of (\d+) bytes", after + part)[1]) == made.size  # type: ignore[index]
    rows = re.findall(
        r"^\| (\d+) \| (\S+)(?: bytes)? \|", part.partition("\n\n##")[0], re.MULTILINE
    )
    at, letters = 0, {"u4": "I", "u8": "Q", "i8": "q"}
    spelled = "<"
    for offset, kind in rows[: 10 if made is PICTURE else 5]:
        assert int(offset) == at
        spelled += letters.get(kind, f"{kind}s")
        at += 4 if kind == "u4" else 8 if kind in ("u8", "i8") else int(kind)
    assert (at, spelled) == (made.size, made.format)


def test_the_numbers_of_the_text() -> None:
    assert f"## Protocol, version {VERSION}\n" in TEXT
    assert f"number of boxes, {MOST_BOXES} at most" in TEXT
