"""The public names, their signatures and docstrings, and what ``import recorder`` costs.

``python -m tests.api.test_public_api`` writes public_api.txt again after a change on purpose.
"""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recorder

GOLDEN = Path(__file__).with_name("public_api.txt")
PROJECT = Path(__file__).resolve().parents[2]
OWN = ("__getitem__", "__iter__", "__len__", "__contains__", "__enter__", "__exit__")


def describe() -> str:
    """A line for each public name, with its signature."""
    lines: list[str] = []
    for name in sorted(recorder.__all__):
        value = getattr(recorder, name)
        if inspect.isclass(value):
            bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
            fields = "" if issubclass(value, Exception) else str(signature(value))
            lines.append(f"class {name}({bases}){fields}")
            lines += (f"    {line}" for line in members(value))
        elif callable(value):
            lines.append(f"def {name}{signature(value)}")
        else:
            lines.append(f"{name}: {type(value).__name__}")
    return "\n".join(lines) + "\n"


def members(value: type) -> Iterator[str]:
    for name in sorted(dir(value)):
        if name.startswith("_") and name not in OWN:
            continue
        member = inspect.getattr_static(value, name)
        if isinstance(member, property):
            yield f"{name} -> {signature(member.fget).return_annotation}"
        elif inspect.isfunction(member) and not issubclass(value, Exception):
            yield f"def {name}{signature(member)}"


def signature(value: Any) -> inspect.Signature:
    return inspect.signature(value)


def documented() -> Iterator[tuple[str, Any]]:
    for name in recorder.__all__:
        value = getattr(recorder, name)
        if not callable(value):
            continue
        yield name, value
        if inspect.isclass(value) and not issubclass(value, Exception):
            for key, member in vars(value).items():
                if not key.startswith("_") and (
                    isinstance(member, property) or inspect.isfunction(member)
                ):
                    yield f"{name}.{key}", member


def test_the_public_api_is_as_it_was() -> None:
    assert describe() == GOLDEN.read_text(), "run `python -m tests.api.test_public_api`"


@pytest.mark.parametrize("name", dict(documented()))
def test_every_public_name_is_documented(name: str) -> None:
    text = inspect.cleandoc(dict(documented())[name].__doc__ or "")
    assert text, name
    assert text.splitlines()[0].endswith("."), name


def test_every_public_function_names_its_arguments() -> None:
    for name, value in documented():
        if not inspect.isfunction(value):
            continue
        text = value.__doc__ or ""
        names = [p for p in inspect.signature(value).parameters if p != "self"]
        if len(names) > 1:
            assert all(f"{p}:" in text or "see `" in text for p in names), name


def test_the_names_are_listed_and_others_are_not_there() -> None:
    assert dir(recorder) == sorted(recorder.__all__)
    with pytest.raises(AttributeError, match="module 'recorder' has no attribute 'opem'"):
        _ = recorder.opem
    assert "internal" in (recorder.__doc__ or "")


@pytest.mark.parametrize(
    ("use", "absent"),
    [
        (
            "recorder.__version__; dir(recorder)",
            ("numpy", "cv2", "zmq", "ouster", "msgspec", "recorder.api", "recorder.session"),
        ),
        (
            "recorder.open",
            (
                "zmq",
                "ouster",
                "serial",
                "recorder.recording.daemon",
                "recorder.archives",
                "drivers",
            ),
        ),
    ],
    ids=["import", "open"],
)
def test_what_is_not_needed_is_not_imported(use: str, absent: tuple[str, ...]) -> None:
    code = (
        f"import sys; sys.path.insert(0, '.'); before = set(sys.modules); import recorder; {use};"
    )
    command = [sys.executable, "-I", "-c", f"{code} print(sorted(set(sys.modules) - before))"]
    made = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert [name for name in absent if f"'{name}" in made.stdout] == []


def test_errors_are_pickled_with_their_text() -> None:
    error = pickle.loads(pickle.dumps(recorder.UnknownNameError("has no stream 'x'")))
    assert isinstance(error, KeyError) and isinstance(error, recorder.SessionError)
    assert str(error) == "has no stream 'x'"


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(recorder.__file__).parent / "py.typed").is_file()
    assert '"py.typed"' in (PROJECT / "pyproject.toml").read_text()


if __name__ == "__main__":
    GOLDEN.write_text(describe())
