"""The command ``recorder``, and ``python -m recorder``.

Nothing is imported here that takes time, so that an interrupt is one line from the start on.
"""

import sys


def main() -> int:
    """Run the command; the exit code."""
    try:
        from recorder.cli import main as command

        code = command()
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only Python's own end is left
        return code
    except KeyboardInterrupt:
        print("recorder: interrupted", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
