"""A stream that remembers the samples that it gave last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recorder.session.reader import Session
from tests.session.build import full_session


def test_the_last_samples_are_kept_as_far_as_the_bytes_reach(tmp_path: Path) -> None:
    path = full_session(tmp_path / "drive").path
    with Session(path) as session, Session(path) as other:
        lidar, wanted = session.streams["lidar"], other.streams["lidar"]
        assert lidar.sample(0, ["rng"])["rng"] is not lidar.sample(0, ["rng"])["rng"]
        size = wanted.sample(0, ["rng"])["rng"].nbytes
        lidar.remember(3 * size)
        first = [lidar.sample(index, ["rng"])["rng"] for index in range(3)]
        assert lidar.sample(0, ["rng"])["rng"] is first[0]
        lidar.sample(3, ["rng"])  # the oldest is 1 now
        assert lidar.sample(0, ["rng"])["rng"] is first[0]
        assert lidar.sample(2, ["rng"])["rng"] is first[2]
        assert lidar.sample(1, ["rng"])["rng"] is not first[1]
        for index in (*range(10), -1):
            for name, values in lidar.sample(index).items():
                np.testing.assert_array_equal(values, wanted.sample(index)[name])
        with pytest.raises(ValueError, match="read-only"):
            first[0][...] = 0
