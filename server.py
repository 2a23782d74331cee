"""Entry of the HTTP gateway: settings -> Triton client -> app. `python server.py` starts all its workers.

`uvicorn server:app --workers N` does too; name an empty folder in `PROMETHEUS_MULTIPROC_DIR` for one /metrics of all.
"""

from __future__ import annotations

import os

from parakeet_mps.gateway.serving import build_app, serve

if __name__ == "__main__":
    serve("server:app")
elif __name__ == "server":
    app = build_app(os.environ)
