"""Trains the demo recogniser: `python train.py --corpus DIR --state DIR --minutes 20 --run-minutes 9`.

The learning rate follows the share of `--minutes` used so far over all runs, so a run may stop anywhere and the next
one, given the same `--state`, goes on. Each run writes `demo.nemo` beside the state; `evaluate.py` measures it.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

if not hasattr(
    np, "row_stack"
):  # NumPy 1's name, which numba's CUDA target, that NeMo's loss compiles with, still uses
    np.row_stack = np.vstack

from batches import Batch, Corpus, distort
from model import DEMO, DURATIONS, SIGMA, build, train_tokenizer
from sentences import consultation, draw, everything_said, random_words
from tdt_loss import tdt_loss

PEAK_RATE, WARM_UP_STEPS, FINAL_SHARE = 1.2e-3, 500, 0.003
CTC_WEIGHT = 0.3
EMA_DECAY = 0.999
SHARDS_TO_START = 12
HOP_SAMPLES = 160


class Trainer:
    """The model, its auxiliary CTC head, its optimiser and the moving average of its weights."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = build(_tokenizer(arguments.state), DEMO).to(self.device)
        self.ctc_head = torch.nn.Linear(DEMO.d_model, DEMO.vocabulary + 1).to(self.device)
        self.parameters = [*self.model.parameters(), *self.ctc_head.parameters()]
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=1e-2, fused=self.device.type == "cuda"
        )
        self.average = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.live = [value for value in self.model.state_dict().values() if value.is_floating_point()]
        self.averaged = [value for value in self.average.values() if value.is_floating_point()]
        self.elapsed, self.steps = 0.0, 0
        self._resume()

    def fit(self, batches: Iterator[Batch]) -> None:
        """Train until this run's or all runs' minutes are used up."""
        started, before = time.monotonic(), self.elapsed
        losses: list[torch.Tensor] = []
        while self.elapsed < min(before + self.arguments.run_minutes * 60, self.arguments.minutes * 60):
            losses.append(self._step(next(batches)))
            self.elapsed = before + time.monotonic() - started
            if self.steps % 100 == 0:
                mean = torch.stack(losses).mean().item()
                print(f"{self.steps} {self.elapsed:.0f}s loss {mean:.3f} rate {self._rate():.2e}", flush=True)
                losses.clear()

    def _progress(self) -> float:
        return min(1.0, self.elapsed / (self.arguments.minutes * 60))

    def _rate(self) -> float:
        cosine = FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * self._progress()))
        return PEAK_RATE * min(1.0, (self.steps + 1) / WARM_UP_STEPS) * cosine

    def _step(self, batch: Batch) -> torch.Tensor:
        self.model.train()
        loss = self._loss(batch)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.optimiser.param_groups:
            group["lr"] = self._rate()
        self.optimiser.step()
        self.steps += 1
        self._move_average()
        return loss.detach()

    def _loss(self, batch: Batch) -> torch.Tensor:
        batch = Batch(*(part.to(self.device, non_blocking=True) for part in batch))
        features, frames = self._features(batch)
        targets, counts = batch.targets, batch.counts
        with torch.autocast(self.device.type, torch.bfloat16):
            encoded, frames = self.model.encoder(audio_signal=features, length=frames)
            ctc = self.ctc_head(encoded.transpose(1, 2))
            predicted, _, _ = self.model.decoder(targets=targets, target_length=counts)
            joint = self.model.joint(encoder_outputs=encoded, decoder_outputs=predicted)
        return self._tdt(joint.float(), targets, frames, counts) + CTC_WEIGHT * self._ctc(ctc, frames, targets, counts)

    @torch.no_grad()
    def _features(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        audio, lengths = distort(batch)
        features, frames = self.model.preprocessor(input_signal=audio, length=lengths)
        # The loss wants the longest utterance, which is the first, to fill the batch to the frame.
        features = features[:, :, : audio.shape[1] // HOP_SAMPLES]
        return _mask_spectrum(features, frames), frames

    def _tdt(
        self, joint: torch.Tensor, targets: torch.Tensor, frames: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        if joint.is_cuda:  # NeMo's kernels, with the paper's mixture of the plain transducer loss (omega)
            return self.model.loss(log_probs=joint, targets=targets, input_lengths=frames, target_lengths=counts)
        return tdt_loss(joint, targets, frames, counts, DURATIONS, SIGMA)

    def _ctc(
        self, ctc: torch.Tensor, frames: torch.Tensor, targets: torch.Tensor, counts: torch.Tensor
    ) -> torch.Tensor:
        log_probs = ctc.float().log_softmax(-1).transpose(0, 1)
        losses = torch.nn.functional.ctc_loss(
            log_probs, targets, frames, counts, blank=DEMO.vocabulary, reduction="none", zero_infinity=True
        )
        return losses.mean()

    @torch.no_grad()
    def _move_average(self) -> None:
        decay = min(EMA_DECAY, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(self.averaged, self.live, 1 - decay)

    def save(self) -> None:
        """Write the state in files under 16 MB, and the averaged model as `demo.nemo`."""
        state = self.arguments.state
        half = {name: value.half() for name, value in self.model.state_dict().items() if value.is_floating_point()}
        torch.save({"model": half, "ctc": self.ctc_head.state_dict()}, state / "weights.pt")
        squares = [self.optimiser.state[p]["exp_avg_sq"].bfloat16() for p in self.parameters]
        progress = {"elapsed": self.elapsed, "steps": self.steps}
        torch.save({"squares": squares, **progress}, state / "optimiser.pt")
        self.use_average()
        self.model.half().save_to(str(state / "demo.nemo"))
        self.model.float()

    def use_average(self) -> None:
        """Put the averaged weights into the model: what is measured and shipped."""
        self.model.load_state_dict(self.average)

    def _resume(self) -> None:
        state = self.arguments.state
        if not (state / "optimiser.pt").exists():
            return
        weights = torch.load(state / "weights.pt", map_location=self.device)
        self.model.load_state_dict({**self.model.state_dict(), **weights["model"]})
        self.ctc_head.load_state_dict(weights["ctc"])
        for name, value in self.model.state_dict().items():
            self.average[name].copy_(value)
        saved = torch.load(state / "optimiser.pt", map_location=self.device)
        self.elapsed, self.steps = saved["elapsed"], saved["steps"]
        for parameter, square in zip(self.parameters, saved["squares"], strict=True):
            # The first moment and the average start again: they are rebuilt within the first steps.
            self.optimiser.state[parameter] = {
                "step": torch.tensor(float(self.steps), device=self.device if self.device.type == "cuda" else None),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": square.float(),
            }


def _load(arguments: argparse.Namespace, tokenize: Callable[[str], list[int]]) -> Iterator[Batch]:
    corpus = Corpus(arguments.corpus, arguments.seconds, tokenize)
    cuda = torch.cuda.is_available()
    loader = torch.utils.data.DataLoader(corpus, batch_size=None, num_workers=4 if cuda else 1, pin_memory=cuda)
    return iter(loader)


def _tokenizer(state: Path) -> Path:
    folder = state / "tokenizer"
    if not folder.exists():
        rng = random.Random(0)
        lines = [draw(rng, source, test=False) for source in (consultation, random_words) for _ in range(20_000)]
        train_tokenizer(folder, [*lines, everything_said()], DEMO.vocabulary)
    return folder


def _mask_spectrum(features: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
    """Hide two bands of up to 12 mels and two spans of up to 5 % of each utterance (SpecAugment, arXiv:1904.08779)."""
    _, mels, length = features.shape
    bins = torch.arange(mels, device=features.device)[None, :]
    times = torch.arange(length, device=features.device)[None, :]
    for _ in range(2):
        features = features.masked_fill(_span(bins, torch.full_like(frames, mels), 12 / mels)[:, :, None], 0.0)
        features = features.masked_fill(_span(times, frames, 0.05)[:, None, :], 0.0)
    return features


def _span(positions: torch.Tensor, lengths: torch.Tensor, share: float) -> torch.Tensor:
    size = torch.rand(len(lengths), 1, device=lengths.device) * share * lengths[:, None]
    start = torch.rand_like(size) * (lengths[:, None] - size)
    return (positions >= start) & (positions < start + size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20, help="training time over all runs")
    parser.add_argument("--run-minutes", type=float, default=9, help="training time of this run")
    parser.add_argument("--seconds", type=float, default=700, help="audio in one batch")
    arguments = parser.parse_args()
    arguments.state.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(arguments)
    while len(list(arguments.corpus.glob("shard-?????.npz"))) < SHARDS_TO_START:
        time.sleep(0.5)
    trainer.fit(_load(arguments, trainer.model.tokenizer.text_to_ids))
    trainer.save()


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = True
    main()
