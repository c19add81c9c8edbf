"""The command's frame: verbs, exit codes, what goes to stderr, completion."""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import recorder.cli
from recorder.cli import VERBS, build_parser, load_verb, main
from recorder.common.errors import (
    ConfigError,
    DeviceError,
    StorageError,
    StreamChangedError,
    UsageError,
)


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Puts a verb ``try`` in the place of all others; it does what it is given."""

    def install(action: Callable[[], int]) -> None:
        module = types.ModuleType("fake_verb")
        module.add_arguments = lambda parser: parser.add_argument("--speed", type=float)  # type: ignore[attr-defined]
        module.run = lambda args: action()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "fake_verb", module)
        monkeypatch.setattr(recorder.cli, "VERBS", (("try", "fake_verb", "tries"),))

    return install


Install = Callable[[Callable[[], int]], None]


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_the_exit_code_is_the_verbs(verb: Install, code: int) -> None:
    verb(lambda: code)
    assert main(["try"]) == code


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("no such thing"), 2, "recorder try: no such thing"),
        (
            ConfigError("bad", file="c.yaml", line=3, key="a.b"),
            2,
            "recorder try: c.yaml:3: a.b: bad",
        ),
        (StorageError("full"), 1, "recorder try: full"),
        (StreamChangedError("other shape"), 3, "recorder try: other shape"),
        (DeviceError("rtsp://u:pw@h"), 1, "recorder try: rtsp://u:***@h"),
        (KeyboardInterrupt(), 1, "recorder try: interrupted"),
        (FileNotFoundError(2, "No such file", "/x"), 1, "recorder try: /x: No such file"),
        (OSError("odd"), 1, "recorder try: odd"),
    ],
)
def test_an_error_is_one_line(
    verb: Install,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def fail() -> int:
        raise error

    verb(fail)
    assert main(["try"]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == line + "\n"


def test_a_bug_is_not_hidden(verb: Install) -> None:
    def fail() -> int:
        raise KeyError("bug")

    verb(fail)
    with pytest.raises(KeyError):
        main(["try"])


@pytest.mark.parametrize(
    "argv", [[], ["try", "extra"], ["try", "--speed", "x"], ["try", "--sp", "1"], ["--x"]]
)
def test_wrong_usage(verb: Install, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    verb(lambda: 0)
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "usage: recorder" in captured.err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name, _, _ in VERBS) and "Exit codes" in out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("recorder ")
    assert main(["check", "--help"]) == 0
    assert "CONFIG" in capsys.readouterr().out


def test_the_help_fits_a_terminal_and_has_every_verb_in_one_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path(recorder.cli.__file__).parent
    modules = [p.stem for p in folder.glob("*.py") if "\ndef add_arguments(" in p.read_text()]
    places = sorted(place for _, place, _ in VERBS if ":" not in place)
    assert sorted(f"recorder.cli.{module}" for module in modules) == places
    main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 52 and max(map(len, lines)) <= 80
    titles = [line for line in lines if line.endswith(":") and line[0] != " "]
    assert titles == [f"{title}:" for title in (*recorder.cli.GROUPS, "Options")]
    for name, _, text in VERBS:
        assert lines.count(f"    {name:<10}  {text}") == 1


@pytest.mark.parametrize("name", [name for name, _, _ in VERBS])
def test_the_help_of_a_verb_fits_a_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 52 and max(map(len, lines)) <= 80
    description = lines[lines.index("") + 1]
    assert description[0].isupper() and description.endswith(".")


HELP_VERBS = """
add calibrate check complete create cut decode decrypt do download emulate encrypt export
feed get give import inject keep list listen log make mark pack permit play print protect
prove publish reach read record redact refuse repair report require rewrite run search seed
send set show sign start stop store take trust upload use verify write
"""


def test_every_help_text_begins_with_a_verb_in_the_imperative() -> None:
    (verbs,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    texts = [text for _, _, text in VERBS]
    texts += [str(action.help) for verb in verbs.choices.values() for action in verb._actions]
    assert [text for text in texts if text.split()[0] not in HELP_VERBS.split()] == []


def test_only_the_asked_verb_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str) -> recorder.cli.Verb:
        loaded.append(name)
        return load_verb(name)

    monkeypatch.setattr(recorder.cli, "load_verb", load)
    build_parser("check")
    assert loaded == ["check"]


def test_every_verb_declares_its_arguments() -> None:
    build_parser()
    for name, _, _ in VERBS:
        assert callable(load_verb(name).run)


def test_no_finalize_is_a_switch() -> None:
    parse = build_parser("run").parse_args
    assert parse(["run", "rig.yaml"]).no_finalize is False
    args = parse(["run", "--no-finalize", "rig.yaml"])
    assert args.no_finalize is True and args.config == Path("rig.yaml")


def recorder_process(*arguments: str, stdout: int) -> subprocess.Popen[bytes]:
    code = "import sys; from recorder.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=stdout, stderr=subprocess.PIPE
    )


def test_a_reader_that_goes_away() -> None:
    process = recorder_process("completion", "bash", stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_results_that_cannot_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        process = recorder_process("completion", "bash", stdout=full.fileno())
        _, stderr = process.communicate()
    assert stderr == b"recorder completion: No space left on device\n"
    assert process.returncode == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_scripts(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "validate" in script and "--format" in script
    if shutil.which(shell) is None:
        return  # the text is checked above; the shell itself is not on this machine
    path = tmp_path / "script"
    path.write_text(script)
    subprocess.run([shell, "-n", str(path)], check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [(["repl"], "replay"), (["check", "--for"], "--format"), (["check", "--format", "j"], "json")],
)
def test_bash_completes(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "bash"])
    script = capsys.readouterr().out
    script += (
        f"\nCOMP_WORDS=(recorder {' '.join(words)}); COMP_CWORD={len(words)}\n"
        f"_shtab_recorder recorder '{words[-1]}' ''\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-s"], input=script, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [expected]


def test_paths_are_completed_as_files() -> None:
    import shtab

    from recorder.cli.completion import _complete_paths

    parser = argparse.ArgumentParser()
    config = parser.add_subparsers().add_parser("check").add_argument("config", type=Path)
    _complete_paths(parser, shtab.FILE)
    assert config.complete == shtab.FILE  # type: ignore[attr-defined]


INTERRUPTED = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["recorder", "list", "."]
from recorder.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["recorder.cli", "argparse", "recorder.cli.list_command"])
def test_an_interrupt_while_modules_are_imported_is_one_line(module: str) -> None:
    code = f"MODULE = {module!r}\n{INTERRUPTED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "recorder: interrupted\n")


def test_the_command_begins_with_next_to_no_imports() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="recorder")
    assert script.value == "recorder.__main__:main"


def test_what_lies_too_deep_is_one_message(
    verb: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    def deeper() -> int:
        return deeper()

    verb(deeper)
    assert main(["try", "--speed", "2"]) == 1
    text = "folders or values lie too deep in each other to be read"
    assert capsys.readouterr().err == f"recorder try: --speed 2: {text}\n"
