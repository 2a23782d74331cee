"""How the page at `/` is served: what each client gets, under which headers, and what is written into it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from parakeet_mps.gateway.web_page import DEMO, WebPage
from parakeet_mps.settings import Settings
from processes import ROOT

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
FOLDER = ROOT / "parakeet_mps" / "gateway" / "page"
FILES = ("/", *sorted(f"/page/{file.name}" for file in FOLDER.iterdir() if file.name != "index.html"))

pytestmark = pytest.mark.anyio


def client_of(asks_key: bool = False, **settings: Any) -> httpx.AsyncClient:
    app = FastAPI()
    app.include_router(WebPage(Settings(**settings), asks_key).router())
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=BROWSER)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with client_of() as client:
        yield client


async def page_of(**settings: Any) -> str:
    async with client_of(**settings) as client:
        return (await client.get("/")).text


async def test_each_file_has_its_type(client: httpx.AsyncClient) -> None:
    kinds = {"": "html", ".css": "css", ".js": "javascript"}
    for path in FILES:
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == f"text/{kinds[Path(path).suffix]}; charset=utf-8"
    assert (await client.get("/page/other.js")).status_code == 404


@pytest.mark.parametrize("accept", ["*/*", "application/json", "", "text/plain, */*"])
async def test_clients_that_do_not_ask_for_html_are_pointed_to_the_documentation(
    client: httpx.AsyncClient, accept: str
) -> None:
    answer = await client.get("/", headers={"accept": accept})
    assert answer.json()["documentation"] == "/docs"
    assert answer.headers["vary"] == "accept"


async def test_the_page_can_load_and_ask_nothing_but_its_service(client: httpx.AsyncClient) -> None:
    for path in FILES:
        headers = (await client.get(path)).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert {policy[kind] for kind in ("script-src", "style-src", "connect-src")} == {"'self'"}
        assert (policy["media-src"], policy["frame-ancestors"]) == ("blob:", "'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


async def test_a_cache_asks_each_time_and_gets_only_what_has_changed(client: httpx.AsyncClient) -> None:
    for path in FILES:
        first = await client.get(path)
        assert first.headers["cache-control"] == "no-cache"
        again = await client.get(path, headers={"if-none-match": f'"other", W/{first.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert (await client.get(path, headers={"if-none-match": '"other"'})).status_code == 200


async def test_pages_of_different_services_have_different_tags(client: httpx.AsyncClient) -> None:
    async with client_of(max_upload_mb=7) as other:
        assert (await other.get("/")).headers["etag"] != (await client.get("/")).headers["etag"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "up to 1024 MiB and 4 hours."),
        ({"max_upload_mb": 7, "max_audio_s": 5400}, "up to 7 MiB and 90 minutes."),
        ({"max_audio_s": 90}, "up to 1024 MiB and 90 seconds."),
        ({}, DEMO),
        ({"model": "/opt/models/demo.nemo"}, DEMO),
        ({"model": "nvidia/parakeet-tdt-0.6b-v2"}, "The recogniser understands English."),
        ({"triton_url": "triton.example:8001"}, "The recogniser understands English."),
        ({}, '<meta name="asks-key" content="no">'),
        ({"asks_key": True}, '<meta name="asks-key" content="yes">'),
    ],
)
async def test_the_page_tells_its_services_limits(settings: dict[str, Any], told: str) -> None:
    assert told in await page_of(**settings)


def test_nothing_comes_from_elsewhere_and_no_code_or_style_is_inline() -> None:
    page = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>[^<]", page) + re.findall(r"<style|\sstyle=|\son\w+=", page) == []
    linked = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page)
    assert sorted(linked) == ["page/page.css", "page/page.js"]
    for file in FOLDER.iterdir():
        assert set(re.findall(r"https?://[\w.]+", file.read_text())) <= {"http://www.w3.org"}


def test_each_module_is_loaded_from_beside_the_one_that_names_it() -> None:
    loaded = {"page.js"}
    for file in FOLDER.glob("*.js"):
        names = re.findall(r'\b(?:from|import)\b\s*\(?\s*"([^"]*)"', file.read_text())
        assert all(name.startswith("./") for name in names)
        loaded |= {name.removeprefix("./") for name in names}
    assert loaded == {file.name for file in FOLDER.glob("*.js")}


def test_an_installed_package_has_the_page(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(FOLDER.parent, tmp_path / FOLDER.parent.relative_to(ROOT))
    for package in (tmp_path / "parakeet_mps", tmp_path / "parakeet_mps" / "gateway"):
        (package / "__init__.py").write_text("")
    build = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, "."], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {file.name for file in FOLDER.iterdir()} == {Path(name).name for name in names if "/page/" in name}
