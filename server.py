"""Entry of the HTTP gateway: settings -> Triton client -> app. `python server.py` starts all its workers.

`uvicorn server:app --workers N` does too; name an empty folder in `PROMETHEUS_MULTIPROC_DIR` for one /metrics of all.
"""

from __future__ import annotations

import os
import sys

from parakeet_mps.gateway.serving import build_app, serve
from parakeet_mps.usage import answered

if __name__ == "__main__":
    status = answered(sys.argv[1:], "python server.py", "Start all workers of the HTTP gateway.")
    if status is not None:
        sys.exit(status)
    serve("server:app")
elif __name__ == "server":
    app = build_app(os.environ)
