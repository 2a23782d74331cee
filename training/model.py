"""FastConformer-TDT recognisers of random weights, as NeMo configurations: the demo's, and other shapes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
from nemo.collections.asr.models import EncDecRNNTBPEModel
from omegaconf import DictConfig

from voices import SAMPLE_RATE_HZ

DURATIONS = [0, 1, 2, 3, 4]
SIGMA = 0.02


class Shape(NamedTuple):
    """Sizes of a FastConformer-TDT model: its vocabulary, features, encoder and prediction network."""

    vocabulary: int
    mels: int
    layers: int
    d_model: int
    heads: int
    channels: int
    hidden: int
    prediction_layers: int


DEMO = Shape(128, mels=80, layers=10, d_model=160, heads=4, channels=96, hidden=256, prediction_layers=1)
"""7.0 M parameters."""


def train_tokenizer(folder: Path, lines: Iterable[str], vocabulary: int) -> None:
    """Train a SentencePiece BPE model of `vocabulary` pieces on `lines`; write the files NeMo expects to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "tokenizer"), vocab_size=vocabulary, model_type="bpe",
        character_coverage=1.0, bos_id=-1, eos_id=-1, minloglevel=2,
    )  # fmt: skip
    pieces = [line.split("\t")[0] for line in (folder / "tokenizer.vocab").read_text().splitlines()]
    (folder / "vocab.txt").write_text("\n".join(pieces[1:]) + "\n")


def build(tokenizer: Path, shape: Shape) -> EncDecRNNTBPEModel:
    """Return a model with random weights."""
    return EncDecRNNTBPEModel(cfg=DictConfig(_config(tokenizer, shape)))


def _config(tokenizer: Path, shape: Shape) -> dict[str, Any]:
    hidden = shape.hidden
    durations = {"num_tdt_durations": len(DURATIONS), "tdt_durations": DURATIONS}
    return {
        "sample_rate": SAMPLE_RATE_HZ,
        "model_defaults": {"enc_hidden": shape.d_model, "pred_hidden": hidden, "joint_hidden": hidden, **durations},
        "tokenizer": {"dir": str(tokenizer), "type": "bpe"},
        "preprocessor": {
            "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
            "sample_rate": SAMPLE_RATE_HZ, "normalize": "per_feature", "window_size": 0.025, "window_stride": 0.01,
            "window": "hann", "features": shape.mels, "n_fft": 512, "frame_splicing": 1, "dither": 0.0, "pad_to": 0,
        },
        "encoder": {
            "_target_": "nemo.collections.asr.modules.ConformerEncoder",
            "feat_in": shape.mels, "feat_out": -1, "n_layers": shape.layers, "d_model": shape.d_model,
            "subsampling": "dw_striding",
            "subsampling_factor": 8, "subsampling_conv_channels": shape.channels, "causal_downsampling": False,
            "ff_expansion_factor": 4, "self_attention_model": "rel_pos", "n_heads": shape.heads,
            "att_context_size": [-1, -1],
            "xscaling": False, "untie_biases": True, "pos_emb_max_len": 5000, "use_bias": False, "conv_kernel_size": 9,
            "conv_norm_type": "batch_norm", "dropout": 0.1, "dropout_pre_encoder": 0.1, "dropout_emb": 0.0,
            "dropout_att": 0.1,
        },
        "decoder": {
            "_target_": "nemo.collections.asr.modules.RNNTDecoder", "normalization_mode": None,
            "random_state_sampling": False, "blank_as_pad": True,
            "prednet": {
                "pred_hidden": hidden, "pred_rnn_layers": shape.prediction_layers, "t_max": None, "dropout": 0.2,
            },
        },
        "joint": {
            "_target_": "nemo.collections.asr.modules.RNNTJoint", "log_softmax": None, "preserve_memory": False,
            "fuse_loss_wer": False, "num_extra_outputs": len(DURATIONS),
            "jointnet": {"joint_hidden": hidden, "activation": "relu", "dropout": 0.1},
        },
        "decoding": {
            "strategy": "greedy_batch", "model_type": "tdt", "durations": DURATIONS, "greedy": {"max_symbols": 10},
        },
        "loss": {"loss_name": "tdt", "tdt_kwargs": {"durations": DURATIONS, "sigma": SIGMA, "omega": 0.1}},
    }  # fmt: skip
