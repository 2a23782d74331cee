"""Long recordings through the whole service: word error, word times, memory, and what other requests feel.

Usage: python benchmarks/long_audio.py [--hours 3] [--minutes 30] [--url URL]     (about 15 minutes on two cores)
Prints the table that stands in RESULTS.md. With --url a running service is measured, without its memory.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from jiwer import process_words

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "training")]

from benchmarks.recordings import Recording, Sentence, record, speak_sentences, wav  # noqa: E402
from benchmarks.service import Service, running_service  # noqa: E402

SENTENCES = 640
"""About half an hour of speech."""

SHORT_S = 3.0
IDLE_REQUESTS = 200
LARGEST_ERROR_S = 0.1
UPLOAD_TIMEOUT_S = 6 * 3600


class Client:
    """Transcribes WAV files over HTTP."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=UPLOAD_TIMEOUT_S)

    def transcribe(self, audio: bytes) -> dict[str, Any]:
        """Return the `verbose_json` document, with words."""
        fields = {"model": "parakeet-tdt", "response_format": "verbose_json", "timestamp_granularities[]": "word"}
        answer = self._http.post("/v1/audio/transcriptions", files={"file": audio}, data=fields)
        answer.raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def seconds(self, audio: bytes) -> float:
        """Return how long a transcription takes."""
        begin = time.perf_counter()
        self.transcribe(audio)
        return time.perf_counter() - begin


def word_error(said: Sequence[str] | str, heard: Sequence[str] | str) -> float:
    """Return the word error rate in %."""
    return 100 * float(process_words(said, heard).wer)


def edge_errors(recording: Recording, words: Sequence[dict[str, Any]]) -> list[float]:
    """Return how far (s) the first word's start and the last word's end of every sentence are from the truth.

    Sentences whose edge word is misheard do not count: it has no time to compare.
    """
    matched = _matched_words(recording.text, " ".join(word["word"] for word in words))
    errors, at = [], 0
    for sentence in recording.spoken:
        last = at + len(sentence.text.split()) - 1
        errors += [words[matched[at]]["start"] - sentence.onset_s] if at in matched else []
        errors += [words[matched[last]]["end"] - sentence.offset_s] if last in matched else []
        at = last + 1
    return errors


def _matched_words(said: str, heard: str) -> dict[int, int]:
    """Map the position of every word that was heard right to its position among the words heard."""
    alignment = process_words(said, heard).alignments[0]
    equal = (chunk for chunk in alignment if chunk.type == "equal")
    return {
        chunk.ref_start_idx + offset: chunk.hyp_start_idx + offset
        for chunk in equal
        for offset in range(chunk.ref_end_idx - chunk.ref_start_idx)
    }


def measure_accuracy(client: Client, sentences: list[Sentence], minutes: float) -> Iterator[str]:
    """Yield table rows: word error of the sentences alone and in long recordings, and the word times in these."""
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda sentence: client.transcribe(wav(sentence.audio))["text"], sentences))
    heard_alone = {sentence.text: text for sentence, text in zip(sentences, alone, strict=True)}
    for name, pauses_s in (("pauses of 0.1 to 0.8 s", (0.1, 0.8)), ("no pauses", (0.0, 0.0))):
        recording = record(sentences, 60 * minutes, pauses_s)
        answer = client.transcribe(wav(recording.audio))
        texts = [sentence.text for sentence in recording.spoken]
        separate = word_error(texts, [heard_alone[text] for text in texts])
        together = word_error(recording.text, answer["text"])
        yield f"| {minutes:g} min, {name}: word error | {together:.2f} % | {separate:.2f} % for its sentences alone |"
        yield f"| {minutes:g} min, {name}: word times | {_spread(edge_errors(recording, answer['words']))} | |"
        _check(recording, answer)


def _spread(errors: Sequence[float]) -> str:
    within = sum(abs(error) <= LARGEST_ERROR_S for error in errors) / len(errors)
    middle = statistics.median(map(abs, errors))
    return f"{100 * within:.1f} % of {len(errors)} within 100 ms, median {1000 * middle:.0f} ms"


def _check(recording: Recording, answer: dict[str, Any]) -> None:
    words, duration = answer["words"], len(recording.audio) / 16_000
    assert abs(answer["duration"] - duration) < 1e-3, "the duration is wrong"
    assert all(word["start"] <= word["end"] for word in words), "a word ends before it begins"
    assert all(before["end"] <= after["start"] for before, after in pairwise(words)), "words overlap"
    assert words[-1]["end"] <= duration, "a word is outside of the audio"


def measure_load(client: Client, service: Service | None, sentences: list[Sentence], hours: float) -> Iterator[str]:
    """Yield table rows: what 3 s requests feel while a file of `hours` runs, and the memory that it takes."""
    short = [_short(sentences[number:]) for number in range(50)]
    recording = record(sentences, 3600 * hours, (0.1, 0.8))
    client.seconds(short[0])
    idle = [_paced(client, short) for _ in range(IDLE_REQUESTS)]
    with service.watched_memory() if service else contextlib.nullcontext([]) as memory:
        busy, seconds, answer = _while_transcribing(client, recording, short)
    _check(recording, answer)
    name = f"{hours:g} h file"
    yield f"| {name}: time | {seconds:.0f} s | {3600 * hours / seconds:.0f} x real time |"
    yield f"| {name}: word error | {word_error(recording.text, answer['text']):.2f} % | |"
    yield f"| {name}: word times | {_spread(edge_errors(recording, answer['words']))} | |"
    yield f"| 3 s request alone | {_percentiles(idle)} | {len(idle)} requests |"
    yield f"| 3 s request while the {name} runs | {_percentiles(busy)} | {len(busy)} requests |"
    if memory:
        largest, total = (max(map(measure, memory)) for measure in (max, sum))
        yield f"| largest gateway process | {largest:.0f} MiB at most | {max(memory[0]):.0f} MiB before |"
        yield f"| all gateway processes | {total:.0f} MiB at most | {sum(memory[0]):.0f} MiB before |"


def _while_transcribing(
    client: Client, recording: Recording, short: Sequence[bytes]
) -> tuple[list[float], float, dict[str, Any]]:
    """Return the times of short requests (s) while the recording is transcribed, its own time (s) and its answer."""
    with ThreadPoolExecutor(1) as pool:
        begin = time.perf_counter()
        future = pool.submit(client.transcribe, wav(recording.audio))
        future.add_done_callback(lambda _: ends.append(time.perf_counter()))
        ends: list[float] = []
        busy = []
        while not ends:
            busy.append(_paced(client, short))
        return busy, ends[0] - begin, future.result()


def _short(sentences: Sequence[Sentence]) -> bytes:
    return wav(record(sentences, SHORT_S, (0.1, 0.3)).audio[: int(SHORT_S * 16_000)])


def _paced(client: Client, short: Sequence[bytes]) -> float:
    """Return the time (s) of one request, some time after the last: it comes at any moment of a long file's piece."""
    time.sleep(random.uniform(0, 0.3))
    return client.seconds(random.choice(short))


def _percentiles(times: Sequence[float]) -> str:
    cuts = statistics.quantiles(times, n=20)
    return f"p50 {1000 * cuts[9]:.0f} ms, p95 {1000 * cuts[18]:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=3)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--url")
    arguments = parser.parse_args()
    sentences = speak_sentences(SENTENCES)
    with (
        contextlib.nullcontext()
        if arguments.url
        else running_service(CUDA_VISIBLE_DEVICES="", LOG_LEVEL="warning") as service
    ):
        client = Client(service.url if service else arguments.url)
        print("| what | measured | beside |\n|---|---|---|", flush=True)
        for row in measure_accuracy(client, sentences, arguments.minutes):
            print(row, flush=True)
        for row in measure_load(client, service, sentences, arguments.hours):
            print(row, flush=True)


if __name__ == "__main__":
    main()
