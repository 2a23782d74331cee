"""Builds a Parakeet-TDT-0.6B of random weights that decodes about as many tokens as speech has.

`python benchmarks/build_model.py OUT.nemo [--vocabulary 1024]`: 617.8 M parameters with v2's vocabulary of 1,024, and
627.0 M with v3's 8,192. The published checkpoint cannot always be downloaded, and its speed does not depend on what its
weights say, only on their shapes and on how many tokens come out: the blank's bias is bisected until as many do.

Shapes: https://huggingface.co/nvidia/parakeet-tdt-0.6b-v2 and NeMo's fastconformer_tdt_bpe configuration.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from nemo.collections.asr.models import EncDecRNNTBPEModel
from omegaconf import DictConfig

DURATIONS = [0, 1, 2, 3, 4]
D_MODEL, HIDDEN = 1024, 640
CALIBRATION_S = 45
SHARPNESS = 3.0
"""Factor on the joint's last layer: random logits are otherwise so flat that the blank's bias decides everything."""
DURATION_BIASES = [-6.0, 0.5, 1.0, 0.5, 0.0]
"""Speech hardly ever emits two tokens in one frame, and most often moves on by two."""


def configuration(tokenizer: Path) -> DictConfig:
    """Return NeMo's configuration of the published model's shape."""
    durations = {"num_tdt_durations": len(DURATIONS), "tdt_durations": DURATIONS}
    return DictConfig(
        {
            "sample_rate": 16000,
            "model_defaults": {"enc_hidden": D_MODEL, "pred_hidden": HIDDEN, "joint_hidden": HIDDEN, **durations},
            "tokenizer": {"dir": str(tokenizer), "type": "bpe"},
            "preprocessor": {
                "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
                "sample_rate": 16000,
                "normalize": "per_feature",
                "window_size": 0.025,
                "window_stride": 0.01,
                "features": 128,
                "n_fft": 512,
                "dither": 0.0,
                "pad_to": 0,
            },
            "encoder": _encoder(),
            "decoder": {
                "_target_": "nemo.collections.asr.modules.RNNTDecoder",
                "normalization_mode": None,
                "random_state_sampling": False,
                "blank_as_pad": True,
                "prednet": {"pred_hidden": HIDDEN, "pred_rnn_layers": 2, "t_max": None, "dropout": 0.2},
            },
            "joint": {
                "_target_": "nemo.collections.asr.modules.RNNTJoint",
                "log_softmax": None,
                "preserve_memory": False,
                "fuse_loss_wer": False,
                "num_extra_outputs": len(DURATIONS),
                "jointnet": {"joint_hidden": HIDDEN, "activation": "relu", "dropout": 0.2},
            },
            "decoding": {
                "strategy": "greedy_batch",
                "model_type": "tdt",
                "durations": DURATIONS,
                "greedy": {"max_symbols": 10},
            },
            "loss": {"loss_name": "tdt", "tdt_kwargs": {"durations": DURATIONS, "sigma": 0.02, "omega": 0.1}},
        }
    )


def _encoder() -> dict[str, Any]:
    return {
        "_target_": "nemo.collections.asr.modules.ConformerEncoder",
        "feat_in": 128,
        "feat_out": -1,
        "n_layers": 24,
        "d_model": D_MODEL,
        "subsampling": "dw_striding",
        "subsampling_factor": 8,
        "subsampling_conv_channels": 256,
        "ff_expansion_factor": 4,
        "self_attention_model": "rel_pos",
        "n_heads": 8,
        "att_context_size": [-1, -1],
        "xscaling": False,
        "untie_biases": True,
        "pos_emb_max_len": 5000,
        "use_bias": False,
        "conv_kernel_size": 9,
        "conv_norm_type": "batch_norm",
        "dropout": 0.1,
        "dropout_pre_encoder": 0.1,
        "dropout_emb": 0.0,
        "dropout_att": 0.1,
    }


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """Write a SentencePiece model of `vocabulary` made-up pieces: only their number matters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = (a + b + c for a in letters for b in letters for c in letters)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=vocabulary,
        model_type="bpe",
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    pieces = [line.split("\t")[0] for line in (folder / "tokenizer.vocab").read_text().splitlines()]
    (folder / "vocab.txt").write_text("\n".join(pieces[1:]) + "\n")


@torch.inference_mode()
def calibrate(model: EncDecRNNTBPEModel, tokens_per_second: float) -> float:
    """Raise the blank's bias until about `tokens_per_second` come out of noise. Returns the rate reached."""
    last = model.joint.joint_net[-1]
    last.weight.mul_(SHARPNESS)
    last.bias[-len(DURATIONS) :] = torch.tensor(DURATION_BIASES, device=last.bias.device)
    signal = torch.randn(1, CALIBRATION_S * 16000, device=last.bias.device)
    features, frames = model.preprocessor(input_signal=signal, length=torch.tensor([signal.shape[1]]).to(signal.device))
    encoded, frames = model.encoder(audio_signal=features, length=frames)
    blank, start = len(last.bias) - len(DURATIONS) - 1, float(last.bias[-len(DURATIONS) - 1])
    low, high, rate = 0.0, 40.0, 0.0
    for _ in range(12):
        last.bias[blank] = start + (low + high) / 2
        hypotheses = model.decoding.rnnt_decoder_predictions_tensor(
            encoder_output=encoded, encoded_lengths=frames, return_hypotheses=True
        )
        rate = len(hypotheses[0].y_sequence) / CALIBRATION_S
        low, high = ((low + high) / 2, high) if rate > tokens_per_second else (low, (low + high) / 2)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--tokens-per-second", type=float, default=4.4)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), arguments.vocabulary)
        model = EncDecRNNTBPEModel(cfg=configuration(Path(folder)))
        model.to("cuda" if torch.cuda.is_available() else "cpu").eval().freeze()
        rate = calibrate(model, arguments.tokens_per_second)
        model.half().save_to(str(arguments.out))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{arguments.out}: {parameters / 1e6:.1f} M parameters, {rate:.1f} tokens a second")


if __name__ == "__main__":
    main()
