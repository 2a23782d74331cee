"""What the entry programs answer on the command line: help, or a refusal, since all settings are variables."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from parakeet_mps.settings import describe

HELP = frozenset({"-h", "--help"})

_WIDTH = 100
_INDENT = " " * 8


def answered(arguments: Sequence[str], command: str, purpose: str) -> int | None:
    """Answer a command line that has arguments and return the exit status; None when it has none."""
    if not arguments:
        return None
    if HELP.issuperset(arguments):
        sys.stdout.write(help_text(command, purpose))
        return 0
    sys.stderr.write(f"{command} takes no arguments but --help: its settings are environment variables\n")
    return 2


def help_text(command: str, purpose: str) -> str:
    """Return the usage and the table of settings."""
    head = f"Usage: {command} [--help]\n\n{purpose}\n\nSettings are environment variables:\n\n"
    return head + "".join(_row(*row) for row in describe())


def _row(variable: str, default: str, text: str) -> str:
    name = f"  {variable}={default}" if default else f"  {variable}"
    return f"{name}\n{textwrap.fill(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)}\n"
