"""POST /v1/audio/transcriptions and /v1/models, over a fake recogniser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from fakes import HELLO, FakeTranscriber
from parakeet_mps.errors import AudioError, DeadlineError, UnavailableError
from parakeet_mps.gateway.app import create_app
from parakeet_mps.settings import Settings
from recordings import duration_s, encoded, samples_wav, speech

pytestmark = pytest.mark.anyio
SETTINGS = Settings(max_upload_mb=1, max_audio_s=20, request_timeout_s=5)
PATH = "/v1/audio/transcriptions"


@pytest.fixture
def transcriber() -> FakeTranscriber:
    return FakeTranscriber()


@pytest.fixture
async def client(transcriber: FakeTranscriber) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(SETTINGS, transcriber)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


async def post(client: httpx.AsyncClient, audio: bytes | None = None, **fields: Any) -> httpx.Response:
    files = {"file": ("x.bin", speech() if audio is None else audio)}
    return await client.post(PATH, files=files, data={"model": "parakeet-tdt"} | fields)


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]
    return dict(body["error"])


async def test_the_upload_reaches_the_recogniser_as_a_waveform(
    client: httpx.AsyncClient, transcriber: FakeTranscriber
) -> None:
    response = await post(client)
    assert response.json()["text"] == HELLO.text
    silence_left_off_s = 0.5
    assert transcriber.audio_s == pytest.approx(duration_s(speech()), abs=silence_left_off_s)


@pytest.mark.parametrize(
    ("response_format", "content_type", "start"),
    [
        ("json", "application/json", '{"text"'),
        ("text", "text/plain; charset=utf-8", HELLO.text),
        ("srt", "application/x-subrip; charset=utf-8", "1\n00:00:00,240 --> "),
        ("verbose_json", "application/json", '{"task": "transcribe"'),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT\n"),
    ],
)
async def test_all_five_formats(client: httpx.AsyncClient, response_format: str, content_type: str, start: str) -> None:
    response = await post(client, response_format=response_format)
    assert response.status_code == 200
    assert response.headers["content-type"] == content_type
    assert response.text.startswith(start)


@pytest.mark.parametrize("suffix", ["wav", "mp3", "m4a", "webm", "flac"])
async def test_the_openai_package_transcribes(client: httpx.AsyncClient, suffix: str) -> None:
    openai = AsyncOpenAI(base_url="http://gateway/v1", api_key="unused", http_client=client, max_retries=0)
    audio = (f"x.{suffix}", encoded(speech(), suffix))
    answer = await openai.audio.transcriptions.create(file=audio, model="parakeet-tdt")
    assert answer.text == HELLO.text


async def test_the_openai_package_reads_words_and_segments(client: httpx.AsyncClient) -> None:
    openai = AsyncOpenAI(base_url="http://gateway/v1", api_key="unused", http_client=client, max_retries=0)
    answer = await openai.audio.transcriptions.create(
        file=("x.wav", speech()),
        model="whisper-1",
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert answer.words is not None
    assert answer.segments is not None
    assert [word.word for word in answer.words] == ["good", "morning", "doctor"]
    assert answer.segments[0].text == HELLO.text


@pytest.mark.parametrize("name", ["timestamp_granularities[]", "timestamp_granularities"])
async def test_granularities_are_read_with_and_without_brackets(client: httpx.AsyncClient, name: str) -> None:
    response = await post(client, **{name: ["word"], "response_format": "verbose_json"})
    assert len(response.json()["words"]) == 3
    assert "segments" not in response.json()
    assert "x-ignored-parameters" not in response.headers


async def test_parameters_without_effect_are_named(client: httpx.AsyncClient) -> None:
    response = await post(client, prompt="of the", temperature="0.5", seed="1", timestamp_granularities=["word"])
    assert response.status_code == 200
    assert response.headers["x-ignored-parameters"] == "prompt, seed, temperature, timestamp_granularities"


async def test_a_strange_field_name_cannot_reach_the_headers(client: httpx.AsyncClient) -> None:
    response = await post(client, **{"x\u00e9, y": "1"})
    assert response.status_code == 200
    assert "x-ignored-parameters" not in response.headers


@pytest.mark.parametrize("language", ["en", "EN", "english"])
async def test_english_is_accepted(client: httpx.AsyncClient, language: str) -> None:
    response = await post(client, language=language, response_format="verbose_json")
    assert response.json()["language"] == "english"
    assert "x-ignored-parameters" not in response.headers


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("language", "fi"),
        ("response_format", "xml"),
        ("temperature", "warm"),
        ("temperature", "1.5"),
        ("temperature", "nan"),
        ("timestamp_granularities[]", "letter"),
        ("timestamp_granularities", "letter"),
    ],
)
async def test_a_bad_parameter_is_named(client: httpx.AsyncClient, field: str, value: str) -> None:
    problem = error(await post(client, **{field: value}), 400)
    assert problem["param"] == field
    assert problem["type"] == "invalid_request_error"
    assert problem["message"]


async def test_a_missing_file_or_model_is_named(client: httpx.AsyncClient) -> None:
    assert error(await client.post(PATH, data={"model": "parakeet-tdt"}), 400)["param"] == "file"
    assert error(await client.post(PATH, files={"file": ("x", speech())}), 400)["param"] == "model"
    assert error(await client.post(PATH, json={"model": "parakeet-tdt"}), 400)["param"] == "file"
    as_text = await client.post(PATH, data={"model": "parakeet-tdt", "file": "speech"})
    assert error(as_text, 400)["param"] == "file"
    fields = {"model": (None, "parakeet-tdt"), "file": (None, "speech")}
    said = error(await client.post(PATH, files=fields), 400)
    assert (said["param"], said["message"]) == ("file", "file: must be sent as a file, not as text")


@pytest.mark.parametrize("kind", ["audio/wav", "application/json", "application/x-www-form-urlencoded", None])
async def test_a_body_that_is_no_multipart_form_is_told_what_is_needed(
    client: httpx.AsyncClient, kind: str | None
) -> None:
    headers = {"content-type": kind} if kind else {}
    said = error(await client.post(PATH, content=speech(), headers=headers), 400)
    assert said["message"] == "Send multipart/form-data, with the recording in `file`."


async def test_a_form_that_ends_early_is_told_so(client: httpx.AsyncClient) -> None:
    whole = httpx.Request("POST", "http://x", data={"model": "parakeet-tdt"}, files={"file": ("x", speech())})
    said = error(await client.post(PATH, content=whole.read()[:-4000], headers=whole.headers), 400)
    assert said["message"] == "The form ends before its last boundary: the upload was cut short."
    assert said["code"] == "invalid_parameter"


async def test_keywords_at_fault_are_named(client: httpx.AsyncClient) -> None:
    assert error(await post(client, **{"keywords[]": "tramadol :9"}), 400)["param"] == "keywords"


async def test_a_body_that_is_no_form_is_refused(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    error(await client.post(PATH, content=b"--y\r\nno form", headers=headers), 400)
    error(await client.post(PATH, content=b"", headers={"content-type": "multipart/form-data"}), 400)


async def test_an_unknown_model_is_not_found(client: httpx.AsyncClient, transcriber: FakeTranscriber) -> None:
    problem = error(await post(client, model="gpt-9"), 404)
    assert (problem["param"], problem["code"]) == ("model", "model_not_found")
    assert not transcriber.waveforms


async def test_bad_uploads_among_good_ones_are_refused_and_harm_nobody(client: httpx.AsyncClient) -> None:
    bad = [b"", b"Dear doctor,\n" * 100]
    answers = await asyncio.gather(*(post(client, audio) for audio in [*bad, speech()] * 3))
    for i, answer in enumerate(answers):
        if i % 3 == 2:
            assert answer.json()["text"] == HELLO.text
        else:
            assert error(answer, 400)["code"] == "invalid_audio"


async def test_a_recording_cut_short_is_transcribed_with_a_warning(client: httpx.AsyncClient) -> None:
    cut_short = speech()[:30_000]
    answer = await post(client, cut_short, response_format="verbose_json")
    assert answer.json()["text"] == HELLO.text
    assert answer.json()["warnings"] == [answer.headers["x-audio-warning"]]
    assert (await post(client, cut_short)).headers["x-audio-warning"]
    assert "x-audio-warning" not in (await post(client)).headers


async def test_audio_beyond_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    assert "at most 20 s" in error(await post(client, samples_wav(bytes(2 * 21 * 16_000))), 400)["message"]


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (AudioError("no word fits in"), 400, "invalid_audio"),
        (UnavailableError("later"), 503, "service_unavailable"),
        (DeadlineError("too late"), 504, "deadline_exceeded"),
    ],
)
async def test_the_recognisers_errors_keep_their_status(
    client: httpx.AsyncClient, transcriber: FakeTranscriber, raised: Exception, status: int, code: str
) -> None:
    transcriber.error = raised
    response = await post(client)
    assert error(response, status)["code"] == code
    assert ("retry-after" in response.headers) == (status > 500)


async def test_an_unexpected_error_tells_the_client_an_id_and_nothing_else(
    client: httpx.AsyncClient, transcriber: FakeTranscriber, caplog: pytest.LogCaptureFixture
) -> None:
    transcriber.error = KeyError("/secret/path")
    response = await post(client)
    problem = error(response, 500)
    assert response.headers["x-request-id"] in problem["message"]
    assert "secret" not in response.text
    assert response.headers["x-request-id"] in caplog.text
    assert "KeyError" in caplog.text


async def test_a_recogniser_that_hangs_is_given_up(transcriber: FakeTranscriber) -> None:
    transcriber.gate.clear()
    app = create_app(Settings(request_timeout_s=1), transcriber)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        response = await post(client)
    assert error(response, 504)["code"] == "deadline_exceeded"


async def test_nothing_that_was_said_or_named_is_logged(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await client.post(PATH, files={"file": ("smith.wav", speech())}, data={"model": "parakeet-tdt", "prompt": "gout"})
    assert "/v1/audio/transcriptions 200" in caplog.text
    for private in (HELLO.text, "doctor", "smith", "gout"):
        assert private not in caplog.text


async def test_metrics_count_requests_stages_and_audio(client: httpx.AsyncClient) -> None:
    await post(client)
    await post(client, b"text")
    await client.get("/made/up/path")
    lines = (await client.get("/metrics")).text.splitlines()
    assert f'parakeet_requests_total{{endpoint="{PATH}",status="200"}} 1.0' in lines
    assert f'parakeet_requests_total{{endpoint="{PATH}",status="400"}} 1.0' in lines
    assert 'parakeet_requests_total{endpoint="unmatched",status="404"} 1.0' in lines
    assert f'parakeet_request_seconds_count{{endpoint="{PATH}",outcome="answered"}} 1.0' in lines
    assert f'parakeet_request_seconds_count{{endpoint="{PATH}",outcome="refused"}} 1.0' in lines
    assert 'parakeet_stage_seconds_count{stage="upload"} 2.0' in lines
    assert 'parakeet_stage_seconds_count{stage="render"} 1.0' in lines
    assert 'parakeet_stage_seconds_count{stage="decode"} 2.0' in lines
    assert 'parakeet_stage_seconds_count{stage="inference"} 1.0' in lines
    audio_s = next(float(line.split()[1]) for line in lines if line.startswith("parakeet_audio_seconds_total "))
    assert audio_s == pytest.approx(duration_s(speech()), abs=0.01)


async def test_a_request_id_comes_back_when_it_is_well_formed(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/models", headers={"x-request-id": "a-1.b_2"})).headers["x-request-id"] == "a-1.b_2"
    made = (await client.get("/v1/models", headers={"x-request-id": "a b"})).headers["x-request-id"]
    assert made != "a b"
    assert made != (await client.get("/v1/models")).headers["x-request-id"]


async def test_models_are_listed_and_described(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == ["parakeet-tdt"]
    assert (await client.get("/v1/models/parakeet-tdt")).json() == listed["data"][0]
    assert (await client.get("/v1/models/whisper-1")).status_code == 200
    assert error(await client.get("/v1/models/nothing"), 404)["code"] == "model_not_found"


async def test_wrong_routes_and_methods_have_the_openai_error_shape(client: httpx.AsyncClient) -> None:
    assert error(await client.get("/v2/nothing"), 404)["code"] == "not_found"
    response = await client.get(PATH)
    assert error(response, 405)["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"


async def test_the_root_points_to_the_documentation(client: httpx.AsyncClient) -> None:
    assert (await client.get("/")).json()["documentation"] == "/docs"
    schema = json.dumps((await client.get("/openapi.json")).json())
    assert "timestamp_granularities[]" in schema


async def test_shutting_down_closes_the_recogniser(transcriber: FakeTranscriber) -> None:
    app = create_app(SETTINGS, transcriber)
    async with app.router.lifespan_context(app):
        assert not transcriber.closed
    assert transcriber.closed
