"""A mixed load on the real service: good, bad, huge, slow and cancelled requests, and an account of every one of them.

Usage: python benchmarks/mixed_load.py [--minutes 10] [--clients 6] [--url URL] [--key KEY] [--seed 1]
Starts the service itself unless --url names one. Prints tables, and ends with status 1 when a request is unaccounted
for, a client saw what it should not, or the gateway's memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "training")]

from benchmarks.mixed_requests import LEFT, Answered, Clients, Deck  # noqa: E402
from benchmarks.request_accounts import Account, violations  # noqa: E402
from benchmarks.service import Service, running_service  # noqa: E402

BURST = 40
"""Requests at once, more than are admitted here: some must be told to come back."""
BURST_EVERY_S = 60.0
MAX_IN_FLIGHT = 16
SETTLE_S = 30.0
GROWTH = 1.10
"""Memory at the end over memory after warm-up; less than this is noise of the allocator."""
GROWTH_MB = 48.0


async def load(clients: Clients, deck: Deck, minutes: float, count: int) -> list[Answered]:
    """Let `count` clients make one request after the other, with bursts in between; return all they saw."""
    seen: list[Answered] = []
    end = time.monotonic() + minutes * 60

    async def keep_asking() -> None:
        while time.monotonic() < end:
            seen.append(await clients.make(deck.draw()))

    async def burst() -> None:
        while time.monotonic() < end:
            seen.extend(await asyncio.gather(*(clients.make(deck.draw()) for _ in range(BURST))))
            await asyncio.sleep(min(BURST_EVERY_S, max(end - time.monotonic(), 0)))

    await asyncio.gather(burst(), *(keep_asking() for _ in range(count)))
    return seen


def settled(url: str, key: str | None) -> Account:
    """Return the account once no request but the asking one is in flight."""
    deadline = time.monotonic() + SETTLE_S
    while (account := Account.read(url, key)).in_flight > 1 and time.monotonic() < deadline:
        time.sleep(0.2)
    return account


def print_seen(seen: Sequence[Answered]) -> None:
    """Print what the clients saw, by kind."""
    print("| kind | requests | statuses | p50 (s) | p95 (s) |\n|---|---:|---|---:|---:|")
    for kind in sorted({request.kind for request in seen}):
        of_kind = [request for request in seen if request.kind == kind]
        statuses = [request.status for request in of_kind]
        told = ", ".join(
            f"{'left' if status == LEFT else status} x {statuses.count(status)}" for status in sorted(set(statuses))
        )
        seconds = [request.seconds for request in of_kind if request.status in (200, LEFT)] or [
            request.seconds for request in of_kind
        ]
        p95 = statistics.quantiles([*seconds, seconds[-1]], n=20)[-1]
        print(f"| {kind} | {len(of_kind)} | {told} | {statistics.median(seconds):.2f} | {p95:.2f} |")


def print_account(account: Account) -> None:
    """Print what the service counted."""
    parts = " + ".join(f"{account.outcomes[name]} {name}" for name in ("answered", "refused", "cancelled"))
    print(f"\naccepted {account.accepted} = {parts}")
    for reason, count in sorted(account.reasons.items()):
        print(f"- {reason}: {count}")


def memory_growth(samples: Sequence[Sequence[float]]) -> str:
    """Print the gateway's memory after warm-up and at the end; return what is wrong with it."""
    totals = [sum(sample) for sample in samples]
    tenth = max(1, len(totals) // 10)
    early, late = statistics.median(totals[tenth : 3 * tenth]), statistics.median(totals[-tenth:])
    print(f"\ngateway memory: {early:.0f} MB after warm-up, {late:.0f} MB at the end, {max(totals):.0f} MB at most")
    return (
        f"memory grew from {early:.0f} to {late:.0f} MB" if late > early * GROWTH and late > early + GROWTH_MB else ""
    )


@contextlib.contextmanager
def service_of(url: str | None) -> Iterator[tuple[str, Service | None]]:
    """Yield the service to load and, when it was started here, what tells its memory."""
    if url:
        yield url.rstrip("/"), None
        return
    with running_service(GATEWAY_WORKERS="2", MAX_IN_FLIGHT=str(MAX_IN_FLIGHT), UPLOAD_GRACE_S="8") as service:
        yield service.url, service


def main(arguments: Sequence[str]) -> int:
    """Run the load and the checks; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--url")
    parser.add_argument("--key")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        url, service = stack.enter_context(service_of(options.url))
        memory = stack.enter_context(service.watched_memory()) if service else None
        before = settled(url, options.key)
        deck, clients = Deck(options.seed), Clients(url, options.key)
        seen = asyncio.run(load(clients, deck, options.minutes, options.clients))
        account = settled(url, options.key).since(before)
    print_seen(seen)
    print_account(account)
    wrong = [f"{request.kind}: {request.trouble}" for request in seen if request.trouble] + violations(account, seen)
    if memory is not None and (grown := memory_growth(memory)):
        wrong.append(grown)
    print("\n".join(f"VIOLATION {line}" for line in wrong) or "\nevery request is accounted for")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
