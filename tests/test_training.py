"""The recipe of the demo recogniser: its loss, its split, its batches and its augmentation."""

import math
import random
from functools import cache

import numpy as np
import pytest
import torch

from batches import Corpus, distort
from corpus import write_shard
from sentences import WORDS, consultation, draw, held_out, random_words
from tdt_loss import tdt_loss
from voices import FLITE, HELD_OUT_ESPEAK, HELD_OUT_FLITE, VARIANTS, speak

DURATIONS = [0, 1, 2, 3, 4]


def loss_by_enumeration(joint: torch.Tensor, target: list[int], frames: int, sigma: float) -> float:
    """Sum every alignment's probability, as the definition of the transducer says."""
    split = joint.shape[-1] - len(DURATIONS)
    tokens = (joint[..., :split].log_softmax(-1) - sigma).exp().tolist()
    spans = joint[..., split:].softmax(-1).tolist()

    @cache
    def completions(t: int, u: int) -> float:
        total = 0.0
        for position, span in enumerate(DURATIONS):
            if span > 0 and t + span < frames:
                total += tokens[t][u][-1] * spans[t][u][position] * completions(t + span, u)
            if span > 0 and t + span == frames and u == len(target):
                total += tokens[t][u][-1] * spans[t][u][position]
            if u < len(target) and t + span < frames:
                total += tokens[t][u][target[u]] * spans[t][u][position] * completions(t + span, u + 1)
        return total

    return -math.log(completions(0, 0))


def test_tdt_loss_is_the_sum_over_all_alignments() -> None:
    generator = torch.Generator().manual_seed(0)
    joint = torch.randn(3, 6, 4, 5 + 5, dtype=torch.double, generator=generator)
    targets = torch.tensor([[0, 3, 1], [2, 2, 0], [1, 0, 0]])
    frames, counts = torch.tensor([6, 4, 5]), torch.tensor([3, 2, 0])
    expected = [
        loss_by_enumeration(joint[row], targets[row, : counts[row]].tolist(), int(frames[row]), 0.02)
        for row in range(3)
    ]
    assert tdt_loss(joint, targets, frames, counts, DURATIONS, 0.02).item() == pytest.approx(sum(expected) / 3)


def test_the_split_keeps_test_sentences_out_of_training() -> None:
    rng = random.Random(3)
    for source in (consultation, random_words):
        assert all(held_out(draw(rng, source, test=True)) for _ in range(20))
        assert not any(held_out(draw(rng, source, test=False)) for _ in range(200))


def test_held_out_voices_are_not_trained() -> None:
    assert HELD_OUT_FLITE not in FLITE
    assert not {voice.partition("+")[2] for voice in HELD_OUT_ESPEAK} & {
        variant.removeprefix("+") for variant in VARIANTS
    }


def test_common_words_are_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS)


def test_batches_hold_every_word_of_their_utterances(tmp_path) -> None:
    rng = random.Random(5)
    texts = [random_words(rng) for _ in range(40)]
    write_shard(tmp_path / "shard-00000.npz", [(text, speak(text, "en-us", rng)) for text in texts])
    known = {tuple(map(ord, text)) for text in texts}
    corpus = Corpus(tmp_path, seconds=30, tokenize=lambda text: list(map(ord, text)))
    stream = iter(corpus)
    for _ in range(6):
        batch = next(stream)
        assert batch.lengths[0] == batch.audio.shape[1]
        assert batch.targets.shape == (len(batch.audio), int(batch.counts.max()))
        for row in range(len(batch.audio)):
            ids = tuple(batch.targets[row, : batch.counts[row]].tolist())
            assert bool(batch.empty[row]) == (not ids)
            assert not ids or ids in known or any(ids[: len(text)] == text for text in known)
        audio, lengths = distort(batch)
        assert torch.isfinite(audio).all()
        assert audio.abs().max() <= 1
        assert (lengths <= audio.shape[1]).all()
        assert not any(audio[row, lengths[row] :].any() for row in range(len(audio)))


@pytest.mark.parametrize("voice", ["en-gb", *HELD_OUT_ESPEAK, *FLITE, HELD_OUT_FLITE])
def test_every_voice_speaks_at_the_recogniser_rate(voice: str) -> None:
    samples = speak("the patient reports cough for three weeks", voice, random.Random(1))
    assert samples.dtype == np.int16
    assert 1.0 < len(samples) / 16000 < 5.0
    assert np.abs(samples).max() > 1000
