"""Log lines of every process: one format, to standard error. Nothing that was said is ever logged."""

from __future__ import annotations

import logging


def configure(level: str) -> None:
    """Set the root logger's level and format."""
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
