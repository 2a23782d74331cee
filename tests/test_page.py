"""The page at `/` in a real browser, over the real gateway: with one that recognises, and with one that can be held."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from browser import NARROW, WIDE, Visit, chromium, position_s, transcribe, words
from conftest import RunningService
from fakes import HELLO
from gateways import PATH, wait_until
from live_gateway import LiveGateway, live_gateway
from page_picture import SAMPLE, take_picture
from parakeet_mps.contract import Word
from parakeet_mps.errors import UnavailableError
from recordings import LONG, encoded, speech

SAID = "good morning doctor smith i have had a dry cough for three weeks the pain in my chest is worse at night"
KEY = "sk-page-7c1f"

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(microphone=SAMPLE) as browser:
        yield browser


@pytest.fixture(scope="module")
def gateway() -> Iterator[LiveGateway]:
    with live_gateway(piece_s=5, pieces_in_flight=1, max_upload_mb=1) as gateway:
        yield gateway


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens the page of a service; in the end nothing must have gone wrong unseen."""
    visits: list[Visit] = []

    def open_page(url: str, **context: Any) -> Page:
        visits.append(Visit(browser, url, **context))
        return visits[-1].open()

    yield open_page
    for one in visits:
        one.close()
    assert [problem for one in visits for problem in one.problems] == []


@pytest.fixture
def page(visit: Open, gateway: LiveGateway) -> Page:
    return visit(gateway.url)


def upload(data: bytes, name: str = "visit.wav") -> dict[str, Any]:
    return {"name": name, "mimeType": "", "buffer": data}


def test_the_whole_service_transcribes_plays_and_gives_its_own_subtitles(
    visit: Open, service: RunningService, tmp_path: Path
) -> None:
    page = visit(service.url)
    expect(page.locator("#state")).to_have_text("Ready")
    transcribe(page, SAMPLE)
    assert " ".join(words(page)) == SAID
    page.get_by_text("weeks", exact=True).click()
    assert position_s(page) == pytest.approx(start_of(service, "weeks"), abs=0.01)
    expect(page.locator(".word[aria-current]")).to_have_text("weeks")
    for response_format in ("json", "verbose_json", "text", "srt", "vtt"):
        assert same(downloaded(page, response_format), answer_of(service, response_format).text)
    take_picture(page, tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size < 200_000
    expect(page.locator("#in-flight")).to_have_text("0")
    expect(page.locator("#p95")).to_contain_text("s")


def test_a_recording_of_the_microphone_is_transcribed_and_played(visit: Open, service: RunningService) -> None:
    page = visit(service.url)
    page.get_by_role("button", name="Record").click()
    expect(page.locator("#recorded")).to_have_text("0:04")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#chosen")).to_contain_text("recording.webm")
    page.click("#transcribe")
    page.wait_for_selector("#downloads:not([hidden])")
    assert "i have had a dry cough" in " ".join(words(page))
    page.get_by_text("cough", exact=True).click()
    expect(page.locator(".word[aria-current]")).to_have_text("cough")
    assert position_s(page) > 1
    expect(page.locator("#no-picture")).to_be_hidden()


def test_words_light_up_as_they_are_spoken(page: Page) -> None:
    transcribe(page, upload(speech()))
    page.get_by_role("button", name="Play").click()
    for word in HELLO.text.split():
        expect(page.locator(".word[aria-current]")).to_have_text(word)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_words_appear_while_the_rest_is_recognised_and_cancelling_ends_the_work(
    page: Page, gateway: LiveGateway
) -> None:
    with gateway.held() as pieces:
        page.set_input_files("#file", upload(LONG))
        page.click("#transcribe")
        expect(page.locator("#transcript .word")).to_have_count(3)
        expect(page.locator("#doing")).to_have_text("Transcribed: 0:01 of 0:20")
        pieces.step()
        expect(page.locator("#transcript .word")).to_have_count(6)
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#outcome")).to_have_text("Cancelled.")
        wait_until(lambda: "parakeet_transcriptions_in_flight 0.0" in metrics(gateway))
    assert len(words(page)) == 6
    expect(page.locator("#downloads")).to_be_hidden()
    transcribe(page, upload(speech()))
    assert words(page) == HELLO.text.split()


def test_an_error_in_the_middle_is_told_in_the_services_words(page: Page, gateway: LiveGateway) -> None:
    with gateway.failing(UnavailableError("The recogniser left")) as pieces:
        page.set_input_files("#file", upload(LONG))
        page.click("#transcribe")
        expect(page.locator("#transcript .word")).to_have_count(3)
        pieces.step()
        expect(page.get_by_role("alert")).to_have_text("The recogniser left")


def test_what_is_no_audio_is_refused_in_the_services_words(page: Page, gateway: LiveGateway) -> None:
    notes = b"Dear colleague, thank you for seeing this patient.\n"
    page.set_input_files("#file", upload(notes, "letter.txt"))
    page.click("#transcribe")
    refused = httpx.post(gateway.url + PATH, files={"file": notes}, data={"model": "parakeet-tdt"}).json()
    expect(page.get_by_role("alert")).to_have_text(refused["error"]["message"])
    expect(page.locator("#controls")).to_be_hidden()


def test_a_file_that_is_too_large_is_not_sent(page: Page, gateway: LiveGateway) -> None:
    sent = []
    page.on("request", lambda request: sent.append(request.method))
    page.set_input_files("#file", upload(bytes((1 << 20) + 1)))
    expect(page.get_by_role("alert")).to_have_text("The upload is too large; at most 1 MiB are accepted.")
    expect(page.get_by_role("button", name="Transcribe")).to_be_disabled()
    assert "POST" not in sent


def test_what_the_browser_cannot_read_is_transcribed_without_a_picture(page: Page) -> None:
    transcribe(page, upload(encoded(speech(), "wv"), "visit.wv"))
    assert words(page) == HELLO.text.split()
    expect(page.locator("#no-picture")).to_contain_text(
        "cannot play this recording. The service may read it all the same."
    )
    expect(page.locator("#waveform")).to_be_hidden()


def test_hotwords_are_sent(page: Page, gateway: LiveGateway) -> None:
    page.get_by_label("Words to expect").fill("tramadol :2, gout")
    transcribe(page, upload(speech()))
    assert gateway.transcriber.hotwords[-1] == ("tramadol :2", "gout")


def test_words_of_low_confidence_are_marked(page: Page, gateway: LiveGateway) -> None:
    gateway.transcriber.answer = replace(HELLO, words=(*HELLO.words[:2], Word("gout", 0.96, 1.44, 0.31)))
    transcribe(page, upload(speech()))
    gateway.transcriber.answer = HELLO
    expect(page.locator("#transcript mark")).to_have_text(["gout"])
    assert "confidence 31 %" in str(page.locator("#transcript mark").get_attribute("title"))


def test_a_dropped_file_is_taken(page: Page) -> None:
    page.evaluate(
        """() => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File(["x"], "dropped.wav"));
          document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer }));
        }"""
    )
    expect(page.locator("#chosen")).to_have_text("dropped.wav (1 KiB)")


def test_everything_can_be_done_from_the_keyboard(page: Page) -> None:
    transcribe(page, upload(speech()))
    page.get_by_role("button", name="good").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert position_s(page) == pytest.approx(0.48, abs=0.01)
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    assert position_s(page) == 0
    page.keyboard.press("ArrowRight")
    assert position_s(page) > 1
    page.keyboard.press("Space")
    page.get_by_role("button", name="Choose a file").focus()
    reached = set()
    for _ in range(20):
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        page.keyboard.press("Tab")
    assert {"choose", "record", "hotwords", "transcribe", "copy", "waveform", "play", "speed", "srt"} <= reached


@pytest.mark.parametrize(("viewport", "scheme"), [(NARROW, "dark"), (WIDE, "light")], ids=["narrow", "wide"])
def test_it_is_accessible_and_fits_its_window_in_both_schemes(
    visit: Open, gateway: LiveGateway, viewport: dict[str, int], scheme: str
) -> None:
    page = visit(gateway.url, viewport=viewport, color_scheme=scheme)
    gateway.transcriber.answer = replace(HELLO, words=(*HELLO.words[:2], Word("gout", 0.96, 1.44, 0.31)))
    transcribe(page, upload(speech()))
    gateway.transcriber.answer = HELLO
    page.get_by_text("morning", exact=True).click()
    page.evaluate("for (const one of document.querySelectorAll('[hidden]:not(input)')) one.hidden = false")
    assert [f"{one['id']}: {one['nodes']}" for one in Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_a_service_with_keys_asks_for_one(visit: Open) -> None:
    with live_gateway(api_keys=KEY, open_health="off", open_metrics="off") as gateway:
        page = visit(gateway.url)
        expect(page.locator("#state")).to_have_text("Shown to those with a key")
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Use key").click()
        page.set_input_files("#file", upload(speech()))
        page.click("#transcribe")
        expect(page.get_by_role("alert")).to_have_text("The API key is wrong.")
        expect(page.get_by_label("API key")).to_be_focused()
        page.keyboard.type(KEY)
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_have_text("Ready")
        transcribe(page, upload(speech()))
        assert words(page) == HELLO.text.split()
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


def test_the_state_of_the_service_is_told_with_the_reason(visit: Open, gateway: LiveGateway) -> None:
    gateway.transcriber.is_ready = False
    wait_until(lambda: httpx.get(f"{gateway.url}/health").status_code == 503)
    page = visit(gateway.url)
    expect(page.locator("#state")).to_have_text("Not ready: the recogniser is not loaded")
    gateway.transcriber.is_ready = True
    wait_until(lambda: httpx.get(f"{gateway.url}/health").status_code == 200)


def test_the_state_is_asked_for_now_and_then_and_not_by_a_hidden_tab(browser: Browser, gateway: LiveGateway) -> None:
    visit = Visit(browser, gateway.url)
    asked: list[str] = []

    def on_health(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(json={"status": "ok"})

    visit.page.route("**/health", on_health)
    visit.page.clock.install()
    page = visit.open()
    page.clock.fast_forward(9_000)
    assert len(asked) == 1
    with page.expect_request("**/health"):
        page.clock.fast_forward(2_000)
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    page.clock.fast_forward(60_000)
    page.clock.fast_forward(60_000)
    assert len(asked) == 2
    with page.expect_request("**/health"):
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    visit.close()


def downloaded(page: Page, name: str) -> str:
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    return Path(download.value.path()).read_text("utf-8")


def answer_of(service: RunningService, response_format: str) -> httpx.Response:
    form = {"model": "parakeet-tdt", "response_format": response_format}
    granularities = {"timestamp_granularities[]": ["word", "segment"]}
    return httpx.post(service.url + PATH, files={"file": SAMPLE.read_bytes()}, data=form | granularities, timeout=60)


def start_of(service: RunningService, word: str) -> float:
    return next(one["start"] for one in answer_of(service, "verbose_json").json()["words"] if one["word"] == word)


def same(text: str, expected: str) -> bool:
    """Whether two answers are the same, however their numbers are written."""
    return text == expected or (text.startswith("{") and json.loads(text) == json.loads(expected))


def metrics(gateway: LiveGateway) -> str:
    return httpx.get(f"{gateway.url}/metrics").text
