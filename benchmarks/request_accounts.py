"""The service's own account of its requests, read from /metrics, held against what its clients saw."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import httpx

from benchmarks.mixed_requests import LEFT, Answered

CANCELLED = 499
"""Status under which the service counts requests whose client left."""


@dataclass(frozen=True)
class Account:
    """Counts since the service started, over all its workers."""

    accepted: int
    in_flight: int
    outcomes: Counter[str]
    reasons: Counter[str]
    statuses: Counter[tuple[str, int]]
    """By endpoint and status."""

    @classmethod
    def read(cls, url: str, key: str | None) -> Account:
        """Ask the service."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return cls.read_text(httpx.get(f"{url}/metrics", headers=headers, timeout=30).raise_for_status().text)

    @classmethod
    def read_text(cls, text: str) -> Account:
        """Read what /metrics answered."""
        outcomes, reasons, statuses = Counter[str](), Counter[str](), Counter[tuple[str, int]]()
        for outcome, reason, value in re.findall(
            r'^\w+outcomes_total\{outcome="(.*?)",reason="(.*?)"\} (\S+)', text, re.M
        ):
            outcomes[outcome] += int(float(value))
            reasons[f"{outcome} {reason}".strip()] += int(float(value))
        for endpoint, status, value in re.findall(
            r'^\w+requests_total\{endpoint="(.*?)",status="(\d+)"\} (\S+)', text, re.M
        ):
            statuses[endpoint, int(status)] = int(float(value))
        return cls(_sample(text, "accepted_total"), _sample(text, "requests_in_flight"), outcomes, reasons, statuses)

    def since(self, before: Account) -> Account:
        """Return what came in between; requests in flight are those of now."""
        return Account(
            self.accepted - before.accepted,
            self.in_flight,
            self.outcomes - before.outcomes,
            self.reasons - before.reasons,
            self.statuses - before.statuses,
        )


def violations(account: Account, seen: Iterable[Answered]) -> list[str]:
    """Return what does not add up: empty when every request is accounted for, on both sides alike.

    A client that leaves cannot know whether its request was answered first, so only the sum of those is compared.
    """
    found = []
    ended = sum(account.outcomes.values())
    if account.accepted != ended:  # the look at /metrics itself is accepted but not ended, in both readings
        found.append(f"accepted {account.accepted} requests, but {ended} were answered, refused or cancelled")
    by_endpoint: dict[str, Counter[int]] = {}
    for request in seen:
        by_endpoint.setdefault(request.endpoint, Counter())[request.status] += 1
    for endpoint, clients in by_endpoint.items():
        server = Counter({status: n for (name, status), n in account.statuses.items() if name == endpoint})
        found += _compared(endpoint, clients, server)
    return found


def _compared(endpoint: str, clients: Counter[int], server: Counter[int]) -> list[str]:
    found = []
    if clients.total() != server.total():
        found.append(f"{endpoint}: clients made {clients.total()} requests, the service counted {server.total()}")
    if server[CANCELLED] > clients[LEFT]:
        found.append(f"{endpoint}: {clients[LEFT]} clients left, the service counted {server[CANCELLED]}")
    for status, count in clients.items():
        if status != LEFT and server[status] < count:
            found.append(f"{endpoint}: clients saw status {status} {count} times, the service {server[status]} times")
    return found


def _sample(text: str, name: str) -> int:
    found = re.search(rf"^parakeet_{name} (\S+)", text, re.M)
    return int(float(found[1])) if found else 0
