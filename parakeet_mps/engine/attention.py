"""Entry: write a checkpoint whose encoder attends as asked: `full`, as trained, or `local`, to near frames alone.

With local attention memory and time grow with the length of an utterance, not with its square; the weights stay the
same, and so do the encodings of utterances shorter than the window (10 s on either side).

Usage: python -m parakeet_mps.engine.attention full|local SOURCE TARGET     (both .nemo files)
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import OmegaConf

from parakeet_mps.engine.loading import CheckpointError, load_model

CONFIG = "model_config.yaml"
LOCAL_ATTENTION = {"encoder": {"self_attention_model": "rel_pos_local_attn", "att_context_size": [128, 128]}}
"""Overrides of the checkpoint's configuration. `change_attention_model()` of NeMo 3.0 would leave random biases."""

CHOICES = ("full", "local")


def write(attention: str, source: Path, target: Path) -> None:
    """Write `source` to `target` with the attention asked for and load it once. Raises `CheckpointError`, `OSError`."""
    if attention == "full":
        shutil.copyfile(source, target)
    else:
        _rewrite(source, target)
    load_model(target, torch.device("cpu"))


def _rewrite(source: Path, target: Path) -> None:
    """Copy the archive member by member, with the configuration changed: weights and tokenizer stay as they are."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        found = False
        for member in old:
            content = old.extractfile(member)
            if content is not None and Path(member.name).name == CONFIG:
                found = True
                text = _with_local_attention(content.read().decode()).encode()
                member.size = len(text)
                content = io.BytesIO(text)
            new.addfile(member, content)
    if not found:
        raise CheckpointError(f"{source.name} holds no {CONFIG}")


def _with_local_attention(config: str) -> str:
    return OmegaConf.to_yaml(OmegaConf.merge(OmegaConf.create(config), LOCAL_ATTENTION))


def main(arguments: Sequence[str]) -> int:
    """Write the checkpoint; exit status 2 and one line when the arguments or the checkpoint do not allow it."""
    if len(arguments) != 3 or arguments[0] not in CHOICES:
        sys.stderr.write(f"attention: use {'|'.join(CHOICES)} SOURCE TARGET, not {' '.join(arguments)!r}\n")
        return 2
    attention, source, target = arguments
    try:
        write(attention, Path(source), Path(target))
    except (CheckpointError, OSError, tarfile.TarError) as error:
        sys.stderr.write(f"attention: {str(error).partition(chr(10))[0]}\n")
        return 2
    sys.stdout.write(f"attention: {attention}; {target} loads\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
