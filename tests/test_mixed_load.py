"""The real chain under clients of every kind: all is accounted for, and who leaves leaves nothing behind."""

from __future__ import annotations

import asyncio

import httpx

from benchmarks.mixed_load import main
from benchmarks.mixed_requests import LEFT, TRANSCRIPTIONS, Answered, Clients, Request, form, post
from benchmarks.request_accounts import Account, violations
from conftest import RunningService
from gateways import wait_until
from recordings import speech

LONG = "the patient presents with cough and loss of appetite " * 12


def test_every_request_of_a_mixed_load_is_accounted_for(service: RunningService) -> None:
    assert main(["--minutes", "0.12", "--clients", "3", "--url", service.url]) == 0


def test_clients_that_leave_take_their_requests_out_of_tritons_queue(service: RunningService) -> None:
    count = 30
    body = form(speech(LONG), model="parakeet-tdt")
    request = Request("leaves", post(body), body, frozenset(), leave_after_s=60)
    before = triton(service, "request_failure", "CANCELED")

    async def crowd_that_leaves() -> None:
        requests = [asyncio.create_task(Clients(service.url, None).make(request)) for _ in range(count)]
        while triton(service, "pending_request_count") < count / 3:
            await asyncio.sleep(0.02)
        for waiting in requests:
            waiting.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    asyncio.run(crowd_that_leaves())
    wait_until(lambda: Account.read(service.url, None).in_flight <= 1, 2)
    # Triton looks at its queue when the running batch is done, and drops what is cancelled without running it.
    wait_until(lambda: triton(service, "pending_request_count") == 0, 10)
    wait_until(lambda: triton(service, "request_failure", "CANCELED") > before, 10)


def triton(service: RunningService, name: str, label: str = "") -> float:
    """Return a sample of Triton's metrics, the one with `label` where there are several."""
    lines = httpx.get(service.triton_metrics_url, timeout=10).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"nv_inference_{name}{{") and label in line)


def test_what_does_not_add_up_is_named() -> None:
    before = Account.read_text("")
    account = Account.read_text(
        'parakeet_accepted_total 4.0\nparakeet_outcomes_total{outcome="answered",reason=""} 3.0\n'
        f'parakeet_requests_total{{endpoint="{TRANSCRIPTIONS}",status="200"}} 1.0\n'
    ).since(before)
    seen = [Answered("good", TRANSCRIPTIONS, status, 1.0) for status in (200, 200, LEFT)]
    found = violations(account, seen)
    assert [line.split(",")[0] for line in found] == [
        "accepted 4 requests",
        f"{TRANSCRIPTIONS}: clients made 3 requests",
        f"{TRANSCRIPTIONS}: clients saw status 200 2 times",
    ]
