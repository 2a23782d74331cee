"""Keys, request ids, and logs that tell nothing of what was said, sent or shown as a key."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from fakes import HELLO, FakeTranscriber
from gateways import PATH, HeldGateway, held_gateway
from parakeet_mps.api_keys import ApiKeys
from parakeet_mps.gateway import endpoints
from parakeet_mps.gateway.app import create_app
from parakeet_mps.http_probe import http_status
from parakeet_mps.logs import JsonFormatter
from parakeet_mps.settings import SettingError, Settings
from parakeet_mps.units import gateway_service
from recordings import speech

KEY, OTHER = "sk-first-7c1f", "sk-second-90ab"
PAGE = sorted(endpoints.PAGE)
DOCUMENTATION = ("/docs", "/redoc", "/openapi.json")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def client_of(settings: Settings) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(settings, FakeTranscriber()))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(Settings(api_keys=f"{KEY}, {OTHER}", wedge_sentinel=str(tmp_path / "wedged"))) as client:
        yield client


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.anyio
@pytest.mark.parametrize("key", [KEY, OTHER])
async def test_each_key_opens_the_api(client: httpx.AsyncClient, key: str) -> None:
    form = {"files": {"file": speech()}, "data": {"model": "parakeet-tdt"}}
    assert (await client.post(PATH, **form, headers=bearer(key))).json()["text"] == HELLO.text


@pytest.mark.anyio
async def test_the_openapi_document_says_where_a_key_is_needed(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json", headers=bearer(KEY))).json()
    (scheme,) = document["components"]["securitySchemes"]
    assert document["components"]["securitySchemes"][scheme] == {"type": "http", "scheme": "bearer"}
    assert document["paths"][PATH]["post"]["security"] == [{scheme: []}]
    assert "security" not in document["paths"]["/health"]["get"]


@pytest.mark.anyio
async def test_without_keys_the_openapi_document_asks_for_none() -> None:
    async with client_of(Settings()) as client:
        document = (await client.get("/openapi.json")).json()
    assert "securitySchemes" not in document["components"]
    assert "security" not in document["paths"][PATH]["post"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("wrong"),
        bearer(KEY + "x"),
        bearer(f"{KEY}, {OTHER}"),
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"authorization": b"Bearer \xff\xfe"},
    ],
)
async def test_a_missing_or_wrong_key_is_refused_in_the_openai_shape(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    for path in ("/v1/models", PATH, "/nowhere", *DOCUMENTATION):
        response = await client.get(path, headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert response.headers["x-request-id"]
        assert response.json()["error"]["code"] == "invalid_api_key"
        assert KEY not in response.text


@pytest.mark.anyio
async def test_probes_and_metrics_stay_open_by_default_and_count_the_refused(client: httpx.AsyncClient) -> None:
    await client.get("/v1/models")
    assert (await client.get("/health")).status_code == 200
    metrics = (await client.get("/metrics")).text
    assert 'parakeet_outcomes_total{outcome="refused",reason="invalid_api_key"} 1.0' in metrics
    assert 'parakeet_requests_total{endpoint="/v1/models",status="401"} 1.0' in metrics


@pytest.mark.anyio
async def test_probes_metrics_page_and_documentation_have_switches(tmp_path: Path) -> None:
    settings = Settings(api_keys=KEY, open_health="off", open_metrics="off", open_page="off", open_docs="on")
    async with client_of(settings) as client:
        assert {(await client.get(path)).status_code for path in ("/health", "/metrics", *PAGE)} == {401}
        assert {(await client.get(path)).status_code for path in DOCUMENTATION} == {200}
        assert (await client.get("/metrics", headers=bearer(KEY))).status_code == 200


@pytest.mark.anyio
async def test_the_page_is_open_by_default_so_that_a_person_can_enter_a_key(client: httpx.AsyncClient) -> None:
    assert {(await client.get(path, headers={"accept": "text/html"})).status_code for path in PAGE} == {200}


@pytest.mark.anyio
async def test_without_keys_everything_is_open() -> None:
    async with client_of(Settings()) as client:
        assert (await client.get("/v1/models")).status_code == 200


def test_a_file_of_keys_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# the clinic\n{KEY}\n\n")
    keys = ApiKeys("", file)
    assert (keys.accept(KEY), keys.accept(OTHER), keys.accept("# the clinic")) == (True, False, False)
    file.write_text(f"{OTHER}\n")
    assert (keys.accept(KEY), keys.accept(OTHER)) == (False, True)


def test_while_the_file_is_missing_or_unfit_the_last_good_keys_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text(KEY)
    keys = ApiKeys(OTHER, file)
    for spoil in (file.unlink, lambda: file.write_text("two words\n"), lambda: file.write_bytes(b"\xff\n")):
        spoil()
        assert keys.accept(KEY)
        assert keys.accept(OTHER)
        assert not keys.accept("two words")
    assert caplog.text.count("the last good keys stay") == 3
    file.write_text("sk-new")
    assert (keys.accept(KEY), keys.accept("sk-new"), keys.accept(OTHER)) == (False, True, True)


@pytest.mark.parametrize("listed", [",", "two words", "\u00e4rger", "x" * 513])
def test_unfit_keys_stop_the_start_and_are_not_shown(listed: str) -> None:
    with pytest.raises(SettingError) as refusal:
        ApiKeys(listed)
    assert "API_KEYS" in str(refusal.value)
    assert listed == "," or listed not in str(refusal.value)


def test_a_missing_or_empty_file_of_keys_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# none yet\n")
    for name in ("missing", "empty"):
        with pytest.raises(SettingError, match="API_KEYS_FILE"):
            ApiKeys("", tmp_path / name)


def test_keys_are_not_shown_with_the_settings() -> None:
    assert KEY not in repr(Settings(api_keys=KEY))


def test_a_json_line_holds_message_fields_and_exception() -> None:
    record = logging.makeLogRecord(
        {"msg": "request %s", "args": ("r1",), "levelname": "INFO", "fields": {"status": 200}}
    )
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["level"], line["status"]) == ("request r1", "info", 200)
    assert line["time"].endswith("+00:00")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with held_gateway(folder, API_KEYS=KEY, OPEN_HEALTH="off", LOG_FORMAT="json", LOG_LEVEL="debug") as gateway:
        yield gateway


def test_the_supervisor_has_a_key_of_its_own() -> None:
    environ = gateway_service(Settings(api_keys=KEY), {}).environ
    first, own = environ["API_KEYS"].split(",")
    assert (first, len(own) > 20) == (KEY, True)
    assert "API_KEYS" not in gateway_service(Settings(), {}).environ


def test_a_probe_with_a_key_reads_a_closed_health(gateway: HeldGateway) -> None:
    for key, status in ((KEY, 200), ("wrong", 401), (None, 401)):
        assert asyncio.run(http_status("127.0.0.1", gateway.port, "/health", key=key)) == status


def test_real_workers_log_one_json_line_for_each_request_and_nothing_private(gateway: HeldGateway) -> None:
    private = {"files": {"file": ("smith-john.wav", speech())}, "data": {"model": "parakeet-tdt", "prompt": "gout"}}
    url = f"{gateway.url}{PATH}?patient=4711"
    answer = httpx.post(url, **private, headers=bearer(KEY) | {"x-request-id": "r-1"}, timeout=60)
    refused = httpx.post(url, **private, headers=bearer("sk-guess") | {"x-request-id": "r-2"}, timeout=60)
    assert (answer.status_code, answer.headers["x-request-id"]) == (200, "r-1")
    assert (refused.status_code, refused.headers["x-request-id"]) == (401, "r-2")
    lines = {line.get("request_id"): line for line in map(json.loads, gateway.log().splitlines())}
    assert lines["r-1"]["audio_seconds"] > 1
    assert lines["r-1"]["seconds"] >= lines["r-1"]["inference_seconds"] > 0
    told = {name: lines["r-1"][name] for name in ("method", "route", "status", "outcome", "model")}
    assert told == {"method": "POST", "route": PATH, "status": 200, "outcome": "answered", "model": "parakeet-tdt"}
    assert (lines["r-2"]["status"], lines["r-2"]["reason"]) == (401, "invalid_api_key")
    for word in ("smith", "gout", "4711", "patient", KEY, "sk-guess", *HELLO.text.split()):
        assert word not in gateway.log()
