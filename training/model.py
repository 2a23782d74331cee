"""The demo recogniser's architecture: a 7.1 M-parameter FastConformer-TDT, as a NeMo configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sentencepiece
from nemo.collections.asr.models import EncDecRNNTBPEModel
from omegaconf import DictConfig

VOCABULARY = 128
DURATIONS = [0, 1, 2, 3, 4]
SIGMA = 0.02
D_MODEL, LAYERS, HEADS, HIDDEN = 160, 10, 4, 256
CHANNELS = 96


def train_tokenizer(folder: Path, lines: list[str]) -> None:
    """Train a SentencePiece BPE model on `lines` and write the three files that NeMo expects into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "tokenizer"), vocab_size=VOCABULARY, model_type="bpe",
        character_coverage=1.0, bos_id=-1, eos_id=-1, minloglevel=2,
    )  # fmt: skip
    pieces = [line.split("\t")[0] for line in (folder / "tokenizer.vocab").read_text().splitlines()]
    (folder / "vocab.txt").write_text("\n".join(pieces[1:]) + "\n")


def build(tokenizer: Path) -> EncDecRNNTBPEModel:
    """Return the model with random weights."""
    return EncDecRNNTBPEModel(cfg=DictConfig(_config(tokenizer)))


def _config(tokenizer: Path) -> dict[str, Any]:
    durations = {"num_tdt_durations": len(DURATIONS), "tdt_durations": DURATIONS}
    return {
        "sample_rate": 16000,
        "model_defaults": {"enc_hidden": D_MODEL, "pred_hidden": HIDDEN, "joint_hidden": HIDDEN, **durations},
        "tokenizer": {"dir": str(tokenizer), "type": "bpe"},
        "preprocessor": {
            "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
            "sample_rate": 16000, "normalize": "per_feature", "window_size": 0.025, "window_stride": 0.01,
            "window": "hann", "features": 80, "n_fft": 512, "frame_splicing": 1, "dither": 0.0, "pad_to": 0,
        },
        "encoder": {
            "_target_": "nemo.collections.asr.modules.ConformerEncoder",
            "feat_in": 80, "feat_out": -1, "n_layers": LAYERS, "d_model": D_MODEL, "subsampling": "dw_striding",
            "subsampling_factor": 8, "subsampling_conv_channels": CHANNELS, "causal_downsampling": False,
            "ff_expansion_factor": 4, "self_attention_model": "rel_pos", "n_heads": HEADS, "att_context_size": [-1, -1],
            "xscaling": False, "untie_biases": True, "pos_emb_max_len": 5000, "use_bias": False, "conv_kernel_size": 9,
            "conv_norm_type": "batch_norm", "dropout": 0.1, "dropout_pre_encoder": 0.1, "dropout_emb": 0.0,
            "dropout_att": 0.1,
        },
        "decoder": {
            "_target_": "nemo.collections.asr.modules.RNNTDecoder", "normalization_mode": None,
            "random_state_sampling": False, "blank_as_pad": True,
            "prednet": {"pred_hidden": HIDDEN, "pred_rnn_layers": 1, "t_max": None, "dropout": 0.2},
        },
        "joint": {
            "_target_": "nemo.collections.asr.modules.RNNTJoint", "log_softmax": None, "preserve_memory": False,
            "fuse_loss_wer": False, "num_extra_outputs": len(DURATIONS),
            "jointnet": {"joint_hidden": HIDDEN, "activation": "relu", "dropout": 0.1},
        },
        "decoding": {
            "strategy": "greedy_batch", "model_type": "tdt", "durations": DURATIONS, "greedy": {"max_symbols": 10},
        },
        "loss": {"loss_name": "tdt", "tdt_kwargs": {"durations": DURATIONS, "sigma": SIGMA, "omega": 0.1}},
    }  # fmt: skip
