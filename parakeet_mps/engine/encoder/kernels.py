"""The encoder's operations as kernels of the Triton language, each of which reads and writes a tensor once.

What PyTorch spends on them goes into transposing, into passing intermediate results through memory, and into reading
with strides. Arithmetic is fp32. Checked against `reference`; on a CPU by Triton's interpreter (TRITON_INTERPRET=1).

Block sizes are fixed, and numbers that differ from bucket to bucket are not specialised: nothing is compiled twice.
"""

# ruff: noqa: N803, RUF005 - this language writes compile-time constants in capitals, and knows no starred tuples

from __future__ import annotations

import torch
import triton
import triton.language as tl

from parakeet_mps.engine.encoder.batch import MASKED, Batch
from parakeet_mps.engine.encoder.operations import Operations, Positions
from parakeet_mps.engine.encoder.reference import multiply_positions, read_queries


@triton.jit
def _normalise(x, weight, bias, out, epsilon, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * CHANNELS
    channels = tl.arange(0, BLOCK)
    known = channels < CHANNELS
    values = tl.load(x + row + channels, mask=known, other=0.0).to(tl.float32)
    centred = tl.where(known, values - tl.sum(values, 0) / CHANNELS, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / CHANNELS + epsilon)
    scale = tl.load(weight + channels, mask=known, other=0.0).to(tl.float32)
    shift = tl.load(bias + channels, mask=known, other=0.0).to(tl.float32)
    tl.store(out + row + channels, (centred * factor * scale + shift).to(out.dtype.element_ty), mask=known)


@triton.jit(do_not_specialize=["frames"])
def _convolve(
    gates, lengths, taps, bias, out, frames,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write ROWS frames of BLOCK channels. The frames before and after that they need are gated here again."""
    channels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = channels < CHANNELS
    first, utterance = tl.program_id(1) * ROWS, tl.program_id(2)
    length = tl.minimum(tl.load(lengths + utterance).to(tl.int32), frames)
    start = utterance.to(tl.int64) * frames * CHANNELS
    shift = tl.load(bias + channels, mask=known, other=0.0).to(tl.float32)
    weights = ()
    for tap in tl.static_range(TAPS):
        weights = weights + (tl.load(taps + tap * CHANNELS + channels, mask=known, other=0.0).to(tl.float32),)
    gated = ()
    for step in tl.static_range(ROWS + TAPS - 1):
        frame = first + step - TAPS // 2
        true = known & (frame >= 0) & (frame < length)
        own = gates + 2 * start + frame * (2 * CHANNELS) + channels
        value = tl.load(own, mask=true, other=0.0).to(tl.float32)
        gate = tl.load(own + CHANNELS, mask=true, other=0.0).to(tl.float32)
        gated = gated + (value * tl.sigmoid(gate),)
        if step >= TAPS - 1:
            total = shift
            for tap in tl.static_range(TAPS):
                total += gated[step - TAPS + 1 + tap] * weights[tap]
            row = first + step - TAPS + 1
            activated = (total * tl.sigmoid(total)).to(out.dtype.element_ty)
            tl.store(out + start + row * CHANNELS + channels, activated, mask=known & (row < frames))


@triton.jit(do_not_specialize=["utterances", "frames", "pitch", "longest"])
def _score_positions(
    scores, offsets, lengths, out, utterances, frames, pitch, longest,
    HEADS: tl.constexpr, MASK: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Shift rows of `scores` [heads, utterances, frames, 2 x frames] against each other, add offsets, mask."""
    keys = (tl.program_id(0) * KEYS + tl.arange(0, KEYS))[None, :]
    queries = (tl.program_id(1) * QUERIES + tl.arange(0, QUERIES))[:, None]
    utterance, head = tl.program_id(2) // HEADS, tl.program_id(2) % HEADS
    length = tl.minimum(tl.load(lengths + utterance).to(tl.int32), frames)
    true = (queries < length) & (keys < length)
    start = (head * utterances + utterance).to(tl.int64) * frames * (2 * frames)
    score = tl.load(scores + start + queries * (2 * frames) + (frames - 1 - queries + keys), mask=true, other=0.0)
    offset = tl.load(offsets + head * (2 * longest) + (longest - 1 - queries + keys), mask=true, other=0.0)
    masked = tl.where(keys < length, score.to(tl.float32) + offset, MASK).to(out.dtype.element_ty)
    own = out + tl.program_id(2).to(tl.int64) * frames * pitch + queries * pitch + keys
    tl.store(own, masked, mask=(queries < frames) & (keys < frames))


@triton.jit(do_not_specialize=["frames"])
def _subsample_features(
    features, lengths, first, taps, out, frames,
    MELS: tl.constexpr, CHANNELS: tl.constexpr, PLACES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write PLACES pairs of (frame, mel). What the first convolution gives is computed for each window again.

    It is a product of nine features and a one by the taps and the bias. A row of zeros gives zeros.
    """
    channels = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    places = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    utterance = tl.program_id(2)
    halved: tl.constexpr = (MELS + 1) // 2
    across: tl.constexpr = (halved + 1) // 2
    length = tl.minimum(tl.load(lengths + utterance).to(tl.int32), (frames + 1) // 2)
    tap = tl.arange(0, 16)[None, :]
    rows = tl.arange(0, 16)[:, None]
    weight = tl.load(first + rows * CHANNELS + channels, mask=(rows < 10) & (channels < CHANNELS), other=0.0)
    own = features + utterance.to(tl.int64) * frames * MELS
    total = tl.zeros([PLACES, BLOCK], dtype=tl.float32)
    for number in tl.range(0, 9, num_stages=1):
        y = (2 * (places // across) + number // 3 - 1)[:, None]
        x = (2 * (places % across) + number % 3 - 1)[:, None]
        inside = (y >= 0) & (y < length) & (x >= 0) & (x < halved)
        frame, mel = 2 * y + tap // 3 - 1, 2 * x + tap % 3 - 1
        there = inside & (tap < 9) & (frame >= 0) & (frame < frames) & (mel >= 0) & (mel < MELS)
        window = tl.load(own + frame * MELS + mel, mask=there, other=0.0).to(tl.float32)
        window = tl.where(inside & (tap == 9), 1.0, window).to(weight.dtype)
        value = tl.maximum(tl.dot(window, weight, input_precision="ieee"), 0.0)
        total += value * tl.load(taps + number * CHANNELS + channels, mask=channels < CHANNELS, other=0.0)
    count = ((frames + 1) // 2 + 1) // 2 * across
    place = out + (utterance.to(tl.int64) * count + places[:, None]) * CHANNELS + channels
    tl.store(place, total.to(out.dtype.element_ty), mask=(places[:, None] < count) & (channels < CHANNELS))


@triton.jit(do_not_specialize=["frames"])
def _subsample(
    x, lengths, taps, out, frames, MELS: tl.constexpr, CHANNELS: tl.constexpr, STRIP: tl.constexpr, BLOCK: tl.constexpr
):
    """Write STRIP mels of a frame. Each value read is added to the one or two of them that it belongs to."""
    channels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = channels < CHANNELS
    across: tl.constexpr = (MELS + 1) // 2
    strips: tl.constexpr = (across + STRIP - 1) // STRIP
    frame, first = tl.program_id(1) // strips, tl.program_id(1) % strips * STRIP
    utterance = tl.program_id(2)
    length = tl.minimum(tl.load(lengths + utterance).to(tl.int32), frames)
    own = x + utterance.to(tl.int64) * frames * (MELS * CHANNELS) + channels
    target = out + (utterance.to(tl.int64) * ((frames + 1) // 2) + frame) * (across * CHANNELS) + channels
    weights = ()
    for number in tl.static_range(9):
        weights = weights + (tl.load(taps + number * CHANNELS + channels, mask=known, other=0.0).to(tl.float32),)
    values = ()
    for column in tl.static_range(2 * STRIP + 1):
        mel = 2 * first + column - 1
        for row in tl.static_range(3):
            y = 2 * frame + row - 1
            there = known & (y >= 0) & (y < length) & (mel >= 0) & (mel < MELS)
            value = tl.load(own + (y * MELS + mel) * CHANNELS, mask=there, other=0.0).to(tl.float32)
            values = values + (tl.maximum(value, 0.0),)
        if column % 2 == 0 and column > 0:
            total = tl.zeros([BLOCK], dtype=tl.float32)
            for number in tl.static_range(9):
                total += values[3 * (column - 2 + number % 3) + number // 3] * weights[number]
            done = first + column // 2 - 1
            tl.store(target + done * CHANNELS, total.to(out.dtype.element_ty), mask=known & (done < across))


def normalise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, epsilon: float) -> torch.Tensor:
    """See `reference.normalise`."""
    out, channels = torch.empty_like(x), x.shape[1]
    block = triton.next_power_of_2(channels)
    _normalise[(len(x),)](x, weight, bias, out, epsilon, CHANNELS=channels, BLOCK=block)
    return out


def convolve(gates: torch.Tensor, batch: Batch, taps: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """See `reference.convolve`."""
    count, channels = taps.shape
    # The compiler's time grows with the square of what is unrolled.
    rows, block = 16 if count <= 17 else 8, min(256, triton.next_power_of_2(channels))
    out = gates.new_empty(len(gates), channels)
    grid = (triton.cdiv(channels, block), triton.cdiv(batch.frames, rows), batch.utterances)
    _convolve[grid](
        gates, batch.lengths, taps, bias, out, batch.frames, CHANNELS=channels, TAPS=count, ROWS=rows, BLOCK=block
    )
    return out


def score_positions(joint: torch.Tensor, batch: Batch, positions: Positions) -> torch.Tensor:
    """See `reference.score_positions`. Rows begin at multiples of 16 bytes, as fused attention kernels want it."""
    frames, heads, pitch = batch.frames, len(positions.rows), -(-batch.frames // 8) * 8
    scores = multiply_positions(read_queries(joint, positions), frames, positions)
    out = joint.new_empty(batch.utterances, heads, frames, pitch)
    queries, keys = 16, 128
    grid = (triton.cdiv(frames, keys), triton.cdiv(frames, queries), batch.utterances * heads)
    _score_positions[grid](
        scores, positions.offsets, batch.lengths, out, batch.utterances, frames, pitch, positions.longest,
        HEADS=heads, MASK=MASKED, QUERIES=queries, KEYS=keys,
    )  # fmt: skip
    return out[..., :frames]


def subsample_features(
    features: torch.Tensor, lengths: torch.Tensor, first: torch.Tensor, taps: torch.Tensor
) -> torch.Tensor:
    """See `reference.subsample_features`. What is beyond an utterance is not what the reference leaves there."""
    utterances, frames, mels = features.shape
    channels = taps.shape[1]
    out = features.new_empty(utterances, _halve(_halve(frames)), _halve(_halve(mels)), channels)
    places, block = 64, max(16, min(64, triton.next_power_of_2(channels)))
    grid = (triton.cdiv(channels, block), triton.cdiv(out.shape[1] * out.shape[2], places), utterances)
    _subsample_features[grid](
        features.contiguous(), lengths, first, taps, out, frames,
        MELS=mels, CHANNELS=channels, PLACES=places, BLOCK=block,
    )  # fmt: skip
    return out


def subsample(x: torch.Tensor, lengths: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """See `reference.subsample`. What is beyond an utterance is not what the reference leaves there."""
    utterances, frames, mels, channels = x.shape
    out = x.new_empty(utterances, _halve(frames), _halve(mels), channels)
    strip, block = 8, min(256, triton.next_power_of_2(channels))
    grid = (triton.cdiv(channels, block), out.shape[1] * triton.cdiv(out.shape[2], strip), utterances)
    _subsample[grid](x, lengths, taps, out, frames, MELS=mels, CHANNELS=channels, STRIP=strip, BLOCK=block)
    return out


def _halve(number: int) -> int:
    return (number + 1) // 2


KERNELS = Operations(normalise, convolve, score_positions, subsample_features, subsample)
