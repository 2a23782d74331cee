"""Builds a Parakeet-TDT-0.6B of random weights that decodes about as many tokens as speech has.

`python benchmarks/build_model.py OUT.nemo [--vocabulary 1024]`: 617.8 M parameters with v2's vocabulary of 1,024, and
627.0 M with v3's 8,192. The published checkpoint cannot always be downloaded, and its speed does not depend on what its
weights say, only on their shapes and on how many tokens come out: the blank's bias is bisected until as many do.

Shapes: https://huggingface.co/nvidia/parakeet-tdt-0.6b-v2 and NeMo's fastconformer_tdt_bpe configuration.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from nemo.collections.asr.models import EncDecRNNTBPEModel

sys.path.insert(0, str(Path(__file__).parent.parent / "training"))

from model import DURATIONS, Shape, build, train_tokenizer
from voices import SAMPLE_RATE_HZ

PARAKEET = Shape(1024, mels=128, layers=24, d_model=1024, heads=8, channels=256, hidden=640, prediction_layers=2)
CALIBRATION_S = 45
SHARPNESS = 3.0
"""Factor on the joint's last layer: random logits are otherwise so flat that the blank's bias decides everything."""
DURATION_BIASES = [-6.0, 0.5, 1.0, 0.5, 0.0]
"""Speech hardly ever emits two tokens in one frame, and most often moves on by two."""


def made_up_words() -> Iterator[str]:
    """Yield material for a tokenizer of which only the size matters."""
    return map("".join, product("abcdefghijklmnopqrstuvwxyz", repeat=3))


@torch.inference_mode()
def calibrate(model: EncDecRNNTBPEModel, tokens_per_second: float) -> float:
    """Raise the blank's bias until about `tokens_per_second` come out of noise. Returns the rate reached."""
    last = model.joint.joint_net[-1]
    last.weight.mul_(SHARPNESS)
    last.bias[-len(DURATIONS) :] = torch.tensor(DURATION_BIASES, device=last.bias.device)
    signal = torch.randn(1, CALIBRATION_S * SAMPLE_RATE_HZ, device=last.bias.device)
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
    parser.add_argument("--vocabulary", type=int, default=PARAKEET.vocabulary)
    parser.add_argument("--tokens-per-second", type=float, default=4.4)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        train_tokenizer(Path(folder), made_up_words(), arguments.vocabulary)
        model = build(Path(folder), PARAKEET._replace(vocabulary=arguments.vocabulary))
        model.to("cuda" if torch.cuda.is_available() else "cpu").eval().freeze()
        rate = calibrate(model, arguments.tokens_per_second)
        model.half().save_to(str(arguments.out))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{arguments.out}: {parameters / 1e6:.1f} M parameters, {rate:.1f} tokens a second")


if __name__ == "__main__":
    main()
