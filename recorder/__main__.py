"""Entry point of the command ``recorder``, and of ``python -m recorder``.

The module imports nothing slow, so that an early interrupt also prints one line.
"""

import sys


def main() -> int:
    """Run the command and return its exit code, which is 1 on an unsupported machine."""
    try:
        if problem := _unsupported_machine():
            print(f"recorder: {problem}", file=sys.stderr)
            return 1
        from recorder.cli import main as command
        from recorder.common.process_setup import end_where_threads_cannot_begin

        end_where_threads_cannot_begin()
        code = command()
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only Python's own end is left
        return code
    except KeyboardInterrupt:
        print("recorder: interrupted", file=sys.stderr)
        return 1


def _unsupported_machine() -> str | None:
    # Files are mapped as a whole, and arrays are stored in the order of the machine's bytes.
    if sys.maxsize < 2**63 - 1:
        return "this Python is a 32-bit build; install a 64-bit Python on a 64-bit system"
    if sys.byteorder != "little":
        return "this machine is big-endian; use a little-endian one, such as x86-64 or aarch64"
    return None


if __name__ == "__main__":
    sys.exit(main())
