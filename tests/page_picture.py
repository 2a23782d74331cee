"""Take the picture of the page that the README shows.

Usage: python tests/page_picture.py URL FILE     of the service at URL, while it says a word of models/sample.wav
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page

from browser import Visit, chromium, transcribe

SAMPLE = Path(__file__).parent.parent / "models" / "sample.wav"
WORD = "cough"


def take_picture(page: Page, file: Path) -> None:
    """Write the page as a PNG, with the sample's words, one of them lit."""
    transcribe(page, SAMPLE)
    page.get_by_text(WORD, exact=True).click()
    page.wait_for_selector(f".word[aria-current]:text-is('{WORD}')")
    page.locator("main").hover(position={"x": 0, "y": 0})
    page.screenshot(path=file, full_page=True)


def main() -> None:
    """Take one picture."""
    url, file = sys.argv[1:]
    with chromium(SAMPLE) as browser:
        take_picture(Visit(browser, url, viewport={"width": 1280, "height": 640}).open(), Path(file))


if __name__ == "__main__":
    main()
