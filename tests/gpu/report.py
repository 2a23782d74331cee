"""The table of a check on a GPU: what was measured, and which invariants did not hold."""

from __future__ import annotations


class Report:
    """Prints a line for everything measured, and remembers whether an invariant failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def note(self, what: str, value: str) -> None:
        """Print a measured value."""
        print(f"      {what:52} {value}", flush=True)

    def check(self, what: str, value: str, *, holds: bool) -> None:
        """Print an invariant and whether it holds."""
        print(f"{'ok  ' if holds else 'FAIL'}  {what:52} {value}", flush=True)
        if not holds:
            self.failed.append(what)

    def verdict(self, part: str) -> int:
        """Print the last line; return the exit status."""
        print("; ".join(["FAILED", *self.failed]) if self.failed else f"{part}: all invariants hold")
        return bool(self.failed)
