"""What a checkpoint of NeMo's looks like from outside."""

from __future__ import annotations

import io
import tarfile


def archive() -> bytes:
    """Return a tar archive of a MiB, as a checkpoint of NeMo's is one."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        member = tarfile.TarInfo("model_weights.ckpt")
        member.size = 1 << 20
        tar.addfile(member, io.BytesIO(bytes(range(256)) * 4096))
    return content.getvalue()
