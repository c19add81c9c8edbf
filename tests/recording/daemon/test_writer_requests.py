"""What a command to the writer says when it is refused."""

from __future__ import annotations

import pytest

from recorder.bus.messages import AskStatus, Refusal
from recorder.common.errors import RecorderError, StorageError, UsageError
from recorder.recording.supervisor.writer_client import WriterRequest


@pytest.mark.parametrize(("code", "kind"), [(1, StorageError), (2, UsageError)])
def test_a_refusal_is_of_the_kind_that_its_exit_code_says(
    code: int, kind: type[RecorderError]
) -> None:
    request = WriterRequest(7, AskStatus(), 0, 1.0)
    request.answer = Refusal("the disk is full", code)
    assert request.done
    assert type(request.problem) is kind
    assert str(request.problem) == "the disk is full"
