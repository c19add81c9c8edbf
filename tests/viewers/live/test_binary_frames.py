"""Binary messages to browsers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from recorder.viewers.live.views import Drawing
from recorder.viewers.live.views.drawing import pack, to_json
from tests.examples import examples
from tests.viewers.live.staging import unpack

DTYPES = st.sampled_from(("u1", "<u2", ">u2", "<i4", "<f4", ">f4", "<f8", "<i8"))
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


@examples(1.5)
@given(st.lists(ARRAYS | st.binary(max_size=40), max_size=5), st.text(max_size=20))
def test_what_is_packed_comes_out_again_at_multiples_of_eight(arrays: list[Any], text: str) -> None:
    drawing = Drawing({"text": text}, [(f"a{i}", array) for i, array in enumerate(arrays)])
    message = pack({"id": 1}, drawing)
    header, found = unpack(message)
    size = int.from_bytes(message[:4], "little")
    assert (4 + size) % 8 == 0 and len(message) % 8 == 0
    assert (header["id"], header["header"]) == (1, {"text": text})
    for i, (array, entry) in enumerate(zip(arrays, header["arrays"], strict=True)):
        assert entry["offset"] % 8 == 0
        if isinstance(array, bytes):
            assert found[f"a{i}"].tobytes() == array
        else:
            assert entry["shape"] == list(array.shape)
            np.testing.assert_array_equal(found[f"a{i}"], array)


def test_arrays_that_are_views_are_packed_in_their_own_order() -> None:
    array = np.arange(24, dtype="<u2").reshape(4, 6)
    _, found = unpack(pack({}, Drawing({}, [("x", array.T[::2])])))
    np.testing.assert_array_equal(found["x"], array.T[::2])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("-inf")])
def test_numbers_that_json_does_not_have_become_null(value: float) -> None:
    assert json.loads(to_json({"a": [1.5, value, {"b": (value,)}]})) == {
        "a": [1.5, None, {"b": [None]}]
    }
