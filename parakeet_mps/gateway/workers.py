"""The parent of the gateway's workers."""

from __future__ import annotations

import logging

from uvicorn.supervisors import Multiprocess

from parakeet_mps.process_state import describe_exit

_log = logging.getLogger(__name__)


class Workers(Multiprocess):
    """Uvicorn's, which replaces a worker that died or hangs, and says here how it ended."""

    def keep_subprocess_alive(self) -> None:
        """Replace what does not live."""
        before = list(self.processes)
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                how = describe_exit(old.exitcode or 0)
                _log.error("gateway worker %s %s, with the requests that it had; another takes its place", old.pid, how)
