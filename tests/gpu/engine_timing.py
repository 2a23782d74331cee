"""How long the stages of recognition take: NeMo's, eagerly in bf16 weights, and ours."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

STAGES = ("mel", "encoder", "decoder")


def milliseconds(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the median time of `work` with all that it started on the device finished, after one run to warm up."""
    times = []
    for _ in range(repeats + 1):
        synchronize(device)
        begin = time.perf_counter()
        work()
        synchronize(device)
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[1:])


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@torch.inference_mode()
def time_nemo(model: Any, batch: Sequence[torch.Tensor], device: torch.device, repeats: int) -> dict[str, float]:
    """Return the stages' times (ms) of a NeMo model, whose decoder's CUDA graphs are off."""
    signals = torch.nn.utils.rnn.pad_sequence(list(batch), batch_first=True).to(device)
    samples = torch.tensor([len(utterance) for utterance in batch], device=device)
    dtype = next(model.encoder.parameters()).dtype

    def mel() -> Any:
        return model.preprocessor(input_signal=signals, length=samples)

    features, frames = mel()

    def encode() -> Any:
        return model.encoder(audio_signal=features.to(dtype), length=frames)

    encoded, lengths = encode()

    def decode() -> Any:
        return model.decoding.rnnt_decoder_predictions_tensor(
            encoder_output=encoded, encoded_lengths=lengths, return_hypotheses=True
        )

    works = zip(STAGES, (mel, encode, decode), strict=True)
    return {stage: milliseconds(work, device, repeats) for stage, work in works}


@torch.inference_mode()
def time_ours(recognizer: Any, batch: Sequence[torch.Tensor], device: torch.device, repeats: int) -> dict[str, float]:
    """Return the stages' times (ms) of a recogniser; copies to the device count as "mel", which its graph holds."""
    pipeline = recognizer.pipeline
    acoustics, decoder = pipeline.acoustics, pipeline.decoder
    with torch.cuda.stream(pipeline.stream):
        encoded, lengths = acoustics(batch)
        whole = milliseconds(lambda: acoustics(batch), device, repeats)
        decoding = milliseconds(lambda: decoder(encoded, lengths), device, repeats)
        frontend = getattr(acoustics, "_frontend", None)
        signals = torch.nn.utils.rnn.pad_sequence(list(batch), batch_first=True).to(device)
        samples = torch.tensor([len(utterance) for utterance in batch], device=device)
        mel = 0.0
        if frontend is not None:
            padded = torch.nn.functional.pad(signals, (0, -signals.shape[1] % frontend.frame_samples))
            mel = milliseconds(lambda: frontend._features(padded, samples), device, repeats)
    return {"mel": mel, "encoder": whole - mel, "decoder": decoding}


def profile_frontend(recognizer: Any, batch: Sequence[torch.Tensor], rows: int) -> str:
    """Return the table of the kernels that one batch's features and encoder take most time in, run eagerly."""
    with torch.inference_mode(), torch.cuda.stream(recognizer.pipeline.stream):
        recognizer.pipeline.acoustics.eagerly(batch)
        with torch.profiler.profile() as profile:
            recognizer.pipeline.acoustics.eagerly(batch)
            torch.cuda.synchronize()
    return str(profile.key_averages().table(sort_by="self_cuda_time_total", row_limit=rows, max_name_column_width=90))


def throughput(recognizer: Any, batch: Sequence[torch.Tensor], seconds: float) -> tuple[float, float]:
    """Return (utterances a second, median ms a batch) of `recognize`, called over and over for so long."""
    times: list[float] = []
    recognizer.recognize(batch)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        recognizer.recognize(batch)
        times.append(time.perf_counter() - begin)
    return len(batch) * len(times) / sum(times), statistics.median(times) * 1e3
