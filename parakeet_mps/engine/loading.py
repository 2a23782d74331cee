"""A `.nemo` checkpoint -> a frozen TDT model, ready to recognise with token times and confidences."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch
from nemo.collections.asr.models.asr_model import ASRModel
from nemo.collections.asr.models.rnnt_models import EncDecRNNTModel
from nemo.core.connectors.save_restore_connector import SaveRestoreConnector
from nemo.utils import logging as nemo_logging
from nemo.utils.tar_utils import is_safe_tar_member
from omegaconf import DictConfig, OmegaConf
from torch.overrides import TorchFunctionMode

from parakeet_mps.contract import SAMPLE_RATE_HZ


class NotInitialised(TorchFunctionMode):
    """While it is on, new weights stay as they are: random numbers for 0.6 B of them take three seconds.

    For those that a checkpoint overwrites, every one; NeMo refuses a checkpoint that lacks some.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do everything but initialise."""
        if getattr(func, "__module__", None) == torch.nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


class CheckpointError(ValueError):
    """The checkpoint holds no recogniser that this engine can run; the message says what it holds."""


def load_model(path: str | Path, device: torch.device) -> Any:
    """Restore the NeMo model in the file `path` to `device`: frozen, in fp32, with CUDA graphs allowed on CUDA.

    Raises `CheckpointError` for a model that is not a TDT transducer at 16 kHz.
    """
    nemo_logging.set_verbosity(nemo_logging.ERROR)
    model = _restore(path, device)
    _check(model, path)
    graphs = device.type == "cuda"
    model.change_decoding_strategy(_decoding_config(model.cfg.decoding, graphs=graphs), verbose=False)
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    model.float().eval()
    model.freeze()
    return model


def _restore(path: str | Path, device: torch.device) -> Any:
    # NeMo unpacks with `tarfile`'s filters, which came with Python 3.11.4; Debian 12 has 3.11.2. It gets a folder.
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.realpath(temporary)
        with tarfile.open(path) as archive:
            archive.extractall(folder, [member for member in archive if is_safe_tar_member(member, folder)])  # noqa: S202
        connector = SaveRestoreConnector()
        connector.model_extracted_dir = folder
        with NotInitialised():
            return ASRModel.restore_from(str(path), map_location=device, save_restore_connector=connector)


def _check(model: Any, path: str | Path) -> None:
    name = f"{Path(path).name} holds a {type(model).__name__}"
    if not isinstance(model, EncDecRNNTModel) or not model.cfg.decoding.get("durations"):
        raise CheckpointError(f"{name}, which is no TDT recogniser")
    if model.cfg.preprocessor.sample_rate != SAMPLE_RATE_HZ:
        raise CheckpointError(f"{name} for {model.cfg.preprocessor.sample_rate} Hz; {SAMPLE_RATE_HZ} Hz is served")


def _decoding_config(trained: DictConfig, *, graphs: bool) -> DictConfig:
    """Return the checkpoint's decoding settings with greedy batched search, token durations and confidences.

    NeMo's own merging of words (`compute_timestamps`) stays off: `words` does it without its cost per token.
    """
    wanted = {
        "strategy": "greedy_batch",
        "preserve_alignments": False,
        "compute_timestamps": False,
        "tdt_include_token_duration": True,
        "fused_batch_size": -1,
        "greedy": {"use_cuda_graph_decoder": graphs},
        # `exclude_blank=False` raises a TypeError on the TDT path of NeMo 3.0.
        "confidence_cfg": {
            "preserve_token_confidence": True,
            "exclude_blank": True,
            "method_cfg": {"name": "max_prob", "alpha": 1.0},
        },
    }
    config = OmegaConf.create(OmegaConf.to_container(trained, resolve=True))
    return DictConfig(OmegaConf.merge(config, wanted))
