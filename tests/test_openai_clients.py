"""OpenAI's own packages for Python and JavaScript, and curl, against the gateway over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
)

from fakes import HELLO
from live_gateway import LiveGateway, live_gateway
from parakeet_mps.errors import UnavailableError
from recordings import LONG, duration_s, samples_wav, speech

MODEL = "gpt-4o-transcribe"
NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def gateway() -> Iterator[LiveGateway]:
    with live_gateway(piece_s=5, pieces_in_flight=1, request_timeout_s=60) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: LiveGateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_python_reads_every_format(client: OpenAI) -> None:
    def create(**options: Any) -> Any:
        return client.audio.transcriptions.create(file=("x.wav", speech()), model=MODEL, **options)

    plain = create()
    assert isinstance(plain, Transcription)
    assert (plain.text, plain.usage.type, plain.logprobs) == (HELLO.text, "duration", None)
    assert create(response_format="text").strip() == HELLO.text
    assert create(response_format="srt").startswith("1\n00:00:00,240 --> ")
    assert create(response_format="vtt").startswith("WEBVTT\n")
    verbose = create(response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert isinstance(verbose, TranscriptionVerbose)
    assert [word.word for word in verbose.words or ()] == HELLO.text.split()
    assert [segment.text for segment in verbose.segments or ()] == [HELLO.text]


def test_python_reads_log_probabilities(client: OpenAI) -> None:
    answer = client.audio.transcriptions.create(file=("x.wav", speech()), model=MODEL, include=["logprobs"])
    assert answer.logprobs is not None
    assert "".join(part.token or "" for part in answer.logprobs) == HELLO.text
    assert b"".join(bytes(map(int, part.bytes or ())) for part in answer.logprobs).decode() == HELLO.text
    assert all(part.logprob is not None and part.logprob <= 0 for part in answer.logprobs)


def test_python_streams_events_in_step_with_the_recording(gateway: LiveGateway, client: OpenAI) -> None:
    with gateway.held() as pieces:
        told = []
        with client.audio.transcriptions.create(file=("x.wav", LONG), model=MODEL, stream=True) as events:
            for event in events:
                told.append(event)
                pieces.step()  # the next piece is recognised only now that this one has been told
    *deltas, done = told
    assert len(deltas) >= 4
    assert all(isinstance(delta, TranscriptionTextDeltaEvent) for delta in deltas)
    assert isinstance(done, TranscriptionTextDoneEvent)
    assert done.text == "".join(delta.delta for delta in deltas) == " ".join([HELLO.text] * len(deltas))
    assert done.usage is not None
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    assert (done.usage.input_tokens, done.usage.output_tokens) == (round(12.5 * duration_s(LONG)), 4 * len(deltas))


def test_python_streams_asynchronously_with_log_probabilities(gateway: LiveGateway) -> None:
    async def told() -> list[Any]:
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0) as client:
            events = await client.audio.transcriptions.create(
                file=("x.wav", LONG), model=MODEL, stream=True, include=["logprobs"]
            )
            return [event async for event in events]

    *deltas, done = asyncio.run(told())
    tokens = [part.token for delta in deltas for part in delta.logprobs]
    assert tokens == [part.token for part in done.logprobs]
    assert "".join(tokens) == done.text


@pytest.mark.parametrize("response_format", ["json", "verbose_json"])
def test_silence_streams_one_event(client: OpenAI, gateway: LiveGateway, response_format: Any) -> None:
    events = client.audio.transcriptions.create(
        file=("x.wav", samples_wav(bytes(32_000))), model=MODEL, stream=True, response_format=response_format
    )
    (done,) = list(events)
    assert (done.type, done.text) == ("transcript.text.done", "")


def test_an_error_after_the_start_ends_the_stream_and_is_raised(gateway: LiveGateway, client: OpenAI) -> None:
    with gateway.failing(UnavailableError("The recogniser left")) as pieces:
        events = iter(client.audio.transcriptions.create(file=("x.wav", LONG), model=MODEL, stream=True))
        assert next(events).type == "transcript.text.delta"
        pieces.step()
        with pytest.raises(openai.APIError, match="The recogniser left") as raised:
            next(events)
    assert raised.value.code == "service_unavailable"
    assert 'parakeet_outcomes_total{outcome="refused",reason="service_unavailable"} 1.0' in metrics(gateway)


def test_an_unforeseen_error_after_the_start_tells_an_id_and_nothing_else(gateway: LiveGateway) -> None:
    fields = {"model": MODEL, "stream": "true"}
    url = f"{gateway.url}/v1/audio/transcriptions"
    with (
        gateway.failing(KeyError("/secret/path")) as pieces,
        httpx.stream("POST", url, files={"file": ("x", LONG)}, data=fields, timeout=60) as answer,
    ):
        lines = answer.iter_lines()
        assert "transcript.text.delta" in next(lines)
        pieces.step()
        _, event, data, _ = lines
    assert event == "event: error"
    error = json.loads(data.removeprefix("data: "))["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"] in error["message"]
    assert "secret" not in data


def test_an_error_before_the_start_has_its_own_status(gateway: LiveGateway, client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.audio.transcriptions.create(file=("x.wav", b"no audio"), model=MODEL, stream=True)
    assert (raised.value.code, raised.value.param) == ("invalid_audio", "file")


def test_a_client_that_stops_reading_frees_the_recogniser(gateway: LiveGateway, client: OpenAI) -> None:
    with gateway.held() as pieces:
        events = client.audio.transcriptions.create(file=("x.wav", LONG), model=MODEL, stream=True)
        next(iter(events))
        events.close()
        pieces.step()
    answer = client.audio.transcriptions.create(file=("x.wav", speech()), model=MODEL)
    assert answer.text == HELLO.text


def test_events_are_neither_buffered_nor_cached(gateway: LiveGateway) -> None:
    answer = post(gateway, speech(), stream="true", seed="1")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert answer.headers["x-ignored-parameters"] == "seed"


def metrics(gateway: LiveGateway) -> list[str]:
    return httpx.get(f"{gateway.url}/metrics").text.splitlines()


def post(gateway: LiveGateway, audio: bytes, **fields: str) -> httpx.Response:
    url = f"{gateway.url}/v1/audio/transcriptions"
    return httpx.post(url, files={"file": ("x", audio)}, data={"model": MODEL} | fields, timeout=60)


def test_python_gets_openais_errors(client: OpenAI) -> None:
    def create(**options: Any) -> Any:
        return client.audio.transcriptions.create(**{"file": ("x.wav", speech()), "model": MODEL} | options)

    with pytest.raises(openai.NotFoundError) as unknown:
        create(model="gpt-9")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="json, text, srt, verbose_json, vtt"):
        create(response_format="diarized_json")
    with pytest.raises(openai.BadRequestError, match="events cannot carry srt"):
        create(response_format="srt", stream=True)
    with pytest.raises(openai.BadRequestError) as german:
        create(languages=["de", "fr"])
    assert german.value.param == "languages"
    with pytest.raises(openai.BadRequestError, match="cannot translate"):
        client.audio.translations.create(file=("x.wav", speech()), model=MODEL)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nvidia/nothing")


def test_python_lists_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["parakeet-tdt"]
    assert client.models.retrieve("whisper-1").object == "model"


def test_what_pythons_parameters_do_not_change_is_named(gateway: LiveGateway, client: OpenAI) -> None:
    answer = client.audio.transcriptions.with_raw_response.create(
        file=("x.wav", speech()),
        model=MODEL,
        chunking_strategy={"type": "server_vad", "threshold": 0.5},
        known_speaker_names=["agent"],
        known_speaker_references=["data:audio/wav;base64,AAAA"],
        temperature=0.2,
        keywords=["tramadol", "gout"],
        languages=["en", "de"],
        prompt="Dr. Ibanez sees a patient",
        extra_body={"hotwords": "metformin :1.5"},
    )
    assert answer.headers["x-ignored-parameters"].split(", ") == [
        "chunking_strategy[threshold]",
        "chunking_strategy[type]",
        "known_speaker_names[]",
        "known_speaker_references[]",
        "temperature",
    ]
    assert {"tramadol", "gout", "metformin :1.5"} <= set(gateway.transcriber.hotwords[-1])
    assert any("Ibanez" in phrase for phrase in gateway.transcriber.hotwords[-1])


@pytest.fixture(scope="module")
def seen_by_javascript(gateway: LiveGateway, tmp_path_factory: pytest.TempPathFactory) -> Any:
    audio = tmp_path_factory.mktemp("audio") / "x.wav"
    audio.write_bytes(speech())
    command = ["node", "client.js", f"{gateway.url}/v1", str(audio)]
    done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stderr}\n(scripts/install.sh test installs what this needs)"
    return json.loads(done.stdout)


def test_javascript_reads_every_format(seen_by_javascript: Any) -> None:
    assert seen_by_javascript["json"]["text"] == HELLO.text
    assert "".join(part["token"] for part in seen_by_javascript["json"]["logprobs"]) == HELLO.text
    assert seen_by_javascript["text"].strip() == HELLO.text
    assert seen_by_javascript["srt"].startswith("1\n00:00:00,240 --> ")
    assert seen_by_javascript["vtt"].startswith("WEBVTT\n")
    assert [word["word"] for word in seen_by_javascript["verbose"]["words"]] == HELLO.text.split()


def test_javascript_streams_events(seen_by_javascript: Any) -> None:
    delta, done = seen_by_javascript["events"]
    assert (delta["type"], done["type"]) == ("transcript.text.delta", "transcript.text.done")
    assert delta["delta"] == done["text"] == HELLO.text
    assert len(done["logprobs"]) == len(HELLO.tokens)


def test_javascript_gets_models_and_openais_errors(seen_by_javascript: Any) -> None:
    assert seen_by_javascript["models"] == ["parakeet-tdt"]
    assert seen_by_javascript["model"]["object"] == "model"
    assert seen_by_javascript["refused"] == {"status": 400, "code": "invalid_parameter", "param": "language"}
    assert seen_by_javascript["missing"]["code"] == "model_not_found"
    assert seen_by_javascript["translated"]["status"] == 400


def test_curl_transcribes_and_streams(gateway: LiveGateway, tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(speech())

    def curl(*options: str) -> str:
        url = f"{gateway.url}/v1/audio/transcriptions"
        command = ["curl", "-sN", url, "-F", "file=@x.wav", "-F", "model=parakeet-tdt", *options]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert json.loads(curl())["text"] == HELLO.text
    assert curl("-F", "response_format=text") == f"{HELLO.text}\n"
    events = [json.loads(line.removeprefix("data: ")) for line in curl("-F", "stream=true").splitlines() if line]
    assert [event["type"] for event in events] == ["transcript.text.delta", "transcript.text.done"]
