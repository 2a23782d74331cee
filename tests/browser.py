"""A headless Chromium in front of the gateway's page. It notes what no visit should bring about."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 360, "height": 740}


@contextlib.contextmanager
def chromium(microphone: Path) -> Iterator[Browser]:
    """A browser whose microphone hears the WAV file once. Debian's Chromium, or else the one Playwright installed."""
    options = [
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}%noloop",
    ]
    if os.getuid() == 0:
        options.append("--no-sandbox")  # Chromium's sandbox does not work for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        yield browser
        browser.close()


class Visit:
    """One person's visit to the page at `url`; `problems` says what went wrong unseen."""

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self.url = url
        self.problems: list[str] = []
        self._context = browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce"} | context)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        self.page.on("request", self._on_request)

    def open(self) -> Page:
        self.page.goto(self.url)
        self.page.wait_for_selector("#service:not([data-state=unknown])")
        return self.page

    def close(self) -> None:
        self._context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        # Chromium itself writes that a request was refused; the page shows it to the person.
        if not message.text.startswith("Failed to load resource"):
            self.problems.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "blob:", "data:")):
            self.problems.append(f"asked another origin: {request.url}")


def transcribe(page: Page, file: Path | dict[str, Any]) -> None:
    """Choose a file and wait for the whole transcript."""
    page.set_input_files("#file", file)  # type: ignore[arg-type]
    page.click("#transcribe")
    page.wait_for_selector("#downloads:not([hidden])")


def words(page: Page) -> list[str]:
    """Return the words that are shown."""
    return page.locator("#transcript .word").all_text_contents()


def position_s(page: Page) -> float:
    """Return where in the recording the player is."""
    seconds: float = page.evaluate("document.getElementById('audio').currentTime")
    return seconds
