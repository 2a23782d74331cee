"""A `.nemo` checkpoint -> a frozen TDT model, ready to recognise with token times and confidences."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch
from nemo.collections.asr.models.asr_model import ASRModel
from nemo.collections.asr.models.rnnt_models import EncDecRNNTModel
from nemo.core.connectors.save_restore_connector import SaveRestoreConnector
from nemo.utils import logging as nemo_logging
from omegaconf import DictConfig, OmegaConf
from torch.overrides import TorchFunctionMode

from parakeet_mps.contract import SAMPLE_RATE_HZ
from parakeet_mps.engine.unpacking import unpacked


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


class _MappedWeights(SaveRestoreConnector):  # type: ignore[misc]
    """Restores from a folder, with the weights' file mapped into memory: its pages are read when they are copied."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.model_extracted_dir = str(folder)

    @staticmethod
    def _load_state_dict_from_disk(model_weights: str, map_location: Any = "cpu") -> Any:
        # PyTorch before 1.6 wrote files that cannot be mapped.
        return torch.load(model_weights, map_location=map_location, mmap=zipfile.is_zipfile(model_weights))

    def load_instance_with_state_dict(self, instance: Any, state_dict: Any, strict: bool) -> None:
        instance.load_state_dict(state_dict, strict=strict, assign=True)
        instance._set_model_restore_state(is_being_restored=False)


def load_model(path: Path, device: torch.device) -> Any:
    """Return `place_model` of the model in the `.nemo` file `path`."""
    with unpacked(path) as folder:
        return place_model(read_model(path, folder), device)


def read_model(path: Path, folder: Path) -> Any:
    """Return the NeMo model of the file `path`, which `folder` has unpacked, on the CPU, frozen.

    Its weights are the mapped file, whose pages all readers share; the folder may be removed afterwards. Raises
    `CheckpointError` for a model that is not a TDT transducer at 16 kHz.
    """
    nemo_logging.set_verbosity(nemo_logging.ERROR)
    with NotInitialised():
        model = ASRModel.restore_from(str(path), map_location="cpu", save_restore_connector=_MappedWeights(folder))
    _check(model, path)
    model.preprocessor.featurizer.dither = 0.0
    model.preprocessor.featurizer.pad_to = 0
    model.freeze()
    return model


def place_model(model: Any, device: torch.device) -> Any:
    """Move a model that was read to `device`, in fp32, with CUDA graphs allowed on CUDA."""
    model.to(device).float()
    graphs = device.type == "cuda"
    model.change_decoding_strategy(_decoding_config(model.cfg.decoding, graphs=graphs), verbose=False)
    return model


def _check(model: Any, path: Path) -> None:
    name = f"{path.name} holds a {type(model).__name__}"
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
