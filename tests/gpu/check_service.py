"""Checks the whole service on a GPU: its start, the division of the GPU, minutes of mixed load, failures under load.

Usage: python tests/gpu/check_service.py MODEL.nemo [--soak-s 540] [--clients N] [--failures NAME,NAME] [--after-s 90]
Without a GPU: one recogniser, on the CPU, and only `recogniser` of the failures.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]

from report import Report  # noqa: E402

from benchmarks.closed_loop import Answer, ClosedLoop, Target, form  # noqa: E402
from benchmarks.load import clips  # noqa: E402
from benchmarks.sampling import gpu_memory_mib, sampled  # noqa: E402
from benchmarks.service import ROOT, SHARED, Service, running_service  # noqa: E402
from parakeet_mps.heartbeat import read_pulses  # noqa: E402
from parakeet_mps.mps import CONTROL, MpsDaemon  # noqa: E402
from parakeet_mps.partition import client_environ, expected_multiprocessors  # noqa: E402
from parakeet_mps.plan import Plan  # noqa: E402
from parakeet_mps.run_folder import RunFolder  # noqa: E402

MOST_READY_S = 120.0
MOST_RECOVERY_S = 90.0
MOST_GROWTH = 0.02
MOST_GROWTH_MIB = 64.0
SAMPLE = ROOT / "models" / "sample.wav"
CONCURRENCIES = (8, 16, 32, 64)
PROBE_S = 4.0
FAILURE_LOAD = 0.5
SOAK_LOAD = 0.8
BEFORE_FAILURE_S = 10.0
MISSES = ("graph_misses", "decoder_graph_misses", "boosting_graphs_lost", "self_test_failed")


def kill_recogniser(service: Service) -> None:
    """Kill a recogniser's process."""
    os.kill(read_pulses(RunFolder(service.run).heartbeats)[0].pid, signal.SIGKILL)


def kill_daemon(service: Service) -> None:
    """Kill the MPS control daemon."""
    pid = mps_daemon(service).pid
    assert pid is not None, f"{CONTROL} does not run"
    os.kill(pid, signal.SIGKILL)


def fault_beside(service: Service) -> None:
    """Have another client of the same MPS daemon fault, of which CUDA tells all its clients: their errors stick."""
    ended = subprocess.run(**client_of(service, "fault"), capture_output=True, text=True)
    assert "CUDA error" in ended.stderr, f"the client did not fault: {ended.stderr[-500:]}"


def hang_beside(service: Service) -> None:
    """Have another client of the same MPS daemon take all multiprocessors, for longer than recovery may take."""
    subprocess.Popen(**client_of(service, "hang", str(MOST_RECOVERY_S)))


def client_of(service: Service, *deed: str) -> dict[str, Any]:
    """Return arguments of `subprocess.Popen` for another client of the service's daemon."""
    environ = {**os.environ, **mps_daemon(service).client_environ()}
    return {"args": [sys.executable, str(HERE / "unruly_client.py"), *deed], "env": environ}


def mps_daemon(service: Service) -> MpsDaemon:
    """Return the service's daemon."""
    gpu = plan_of(service).gpu.value
    return MpsDaemon(RunFolder(service.run).mps(gpu), gpu)


@dataclass(frozen=True)
class Failure:
    """A way to fail, and the seconds within which /health says so."""

    cause: Callable[[Service], None]
    noticed_s: float = 2.0


FAILURES = {
    "recogniser": Failure(kill_recogniser),
    "daemon": Failure(kill_daemon),
    "fault": Failure(fault_beside),
    # The client takes ten seconds to start, the probe ten to lose patience with the GPU.
    "hang": Failure(hang_beside, 30.0),
}


def check_service(asked: argparse.Namespace, report: Report) -> None:
    """Start the service with four recognisers under MPS and check all that it promises of a GPU."""
    on_gpu = gpu_memory_mib() is not None
    settings = {"MODEL": str(asked.model.absolute())} | ({"MPS_INSTANCE_COUNT": "4"} if on_gpu else {})
    log = Path(os.environ.get("OUT", "/tmp")) / "service_check.log"
    begin = time.monotonic()
    with (
        running_service(log=log, **settings) as service,
        ClosedLoop(mixed(service), min(8, os.cpu_count() or 1)) as loop,
    ):
        ready_s = time.monotonic() - begin
        report.check("seconds until everything is ready", f"{ready_s:.1f}", holds=ready_s <= MOST_READY_S)
        for line in re.findall(r"(parakeet_asr_\S+) has loaded: (.*)", log.read_text()):
            report.note(*line)
        check_partition(service, report)
        check_memory_limit(service, report)
        rates = probe(loop, report) if asked.failures or not asked.clients else {}
        if asked.soak_s:
            soak(service, loop, asked.clients or concurrency_of(rates, SOAK_LOAD), asked.soak_s, report)
        for name in asked.failures if on_gpu else set(asked.failures) & {"recogniser"}:
            check_failure(name, service, loop, concurrency_of(rates, FAILURE_LOAD), asked.after_s, report)


def mixed(service: Service) -> Target:
    """Return a target that is sent clips of 1 to 60 s."""
    rng = random.Random(11)
    lengths = [rng.uniform(1, 60) for _ in range(40)]
    return Target(service.url, tuple(form(rng.choice(clips(SAMPLE, seconds)), "parakeet-tdt") for seconds in lengths))


def check_partition(service: Service, report: Report) -> None:
    """Each recogniser sees the part of the GPU that the plan gives it, or has none of one on a CPU."""
    plan = plan_of(service)
    part = expected_multiprocessors(plan.thread_percentage.value, plan.multiprocessors.value)
    expected = [part] * plan.instances.value if plan.device.value == "cuda" else []
    seen = [value for name, value in read_metrics(service.url) if name.startswith("parakeet_instance_multiprocessors")]
    near = len(seen) == len(expected) and all(abs(a - b) <= 4 for a, b in zip(seen, expected, strict=True))
    of_all = f"{[round(value) for value in seen]} of {plan.multiprocessors.value}"
    report.check("multiprocessors of each recogniser", of_all, holds=near)


def check_memory_limit(service: Service, report: Report) -> None:
    """What has a recogniser's share of the GPU's memory can take nearly all of the share, and nothing beyond."""
    plan = plan_of(service)
    limit_mb = plan.memory_limit_mb.value
    if not limit_mb:
        return
    client = client_of(service, "take", str(limit_mb * 9 // 10), str(limit_mb))
    share = {"active_thread_percentage": str(plan.thread_percentage.value), "memory_limit_mb": str(limit_mb)}
    client["env"] |= client_environ(share)
    found = subprocess.run(**client, capture_output=True, text=True).stdout.split()
    report.check(f"nine tenths and all of {limit_mb} MiB can be had", f"{found}", holds=found == ["True", "False"])


def plan_of(service: Service) -> Plan:
    """Return what the service was started by."""
    return Plan.from_json(RunFolder(service.run).plan.read_text())


def probe(loop: ClosedLoop, report: Report) -> dict[int, float]:
    """Return the requests a second at several concurrencies."""
    rates = {}
    for concurrency in CONCURRENCIES:
        rates[concurrency] = rate(loop.run(concurrency, PROBE_S + 1), 1.0, PROBE_S + 1)
        report.note(f"mixed lengths, concurrency {concurrency}", f"{rates[concurrency]:.1f} requests/s")
    return rates


def concurrency_of(rates: dict[int, float], part: float) -> int:
    """Return the largest concurrency that takes no more than `part` of what the service can do."""
    most = max(rates.values())
    return max((n for n, value in rates.items() if value <= part * most), default=min(rates))


def soak(service: Service, loop: ClosedLoop, concurrency: int, seconds: float, report: Report) -> None:
    """Load the service for long: nothing grows after the first minute, nothing runs outside the graphs."""
    with sampled(lambda: {"GPU": gpu_memory_mib() or 0.0} | service.memory_mb(), 1.0) as samples:
        answers = loop.run(concurrency, seconds)
    bad = Counter(answer.status for answer in answers if answer.status != 200)
    report.note("soak", f"{seconds:.0f} s at concurrency {concurrency}: {len(answers)} requests")
    report.check("soak: answers other than 200", f"{dict(bad)}", holds=not bad)
    hits, missed = counted(service.url, "graph_hits"), counted(service.url, *MISSES)
    on_gpu = plan_of(service).device.value == "cuda"
    report.check(
        "soak: batches in the graphs and outside", f"{hits:.0f} {missed:.0f}", holds=not missed and (hits > 0) == on_gpu
    )
    for part in samples[0]:
        check_growth(part, [sample[part] for sample in samples], plan_of(service).instances.value, report)


def check_growth(part: str, sizes: Sequence[float], instances: int, report: Report) -> None:
    """After the first minute of samples (MiB, one a second) the last tenth is no larger than the first."""
    settled = sizes[min(len(sizes) // 3, 60) :]
    tenth = max(1, len(settled) // 10)
    steps = [statistics.median(settled[begin : begin + tenth]) for begin in range(0, len(settled) - tenth + 1, tenth)]
    most = max(MOST_GROWTH_MIB, MOST_GROWTH * steps[0])
    if part == SHARED:  # recognisers' regions grow with the audio in flight, up to `BATCHES_AT_HAND` of the largest
        most *= instances
    told = " ".join(f"{step:.0f}" for step in steps)
    report.check(f"soak: memory, tenths of the time: {part} (MiB)", told, holds=steps[-1] - steps[0] <= most)


def check_failure(
    name: str, service: Service, loop: ClosedLoop, concurrency: int, after_s: float, report: Report
) -> None:
    """Cause a failure under load: every request is answered or told to come back, and the rate returns."""
    answers: list[Answer] = []
    seconds = BEFORE_FAILURE_S + after_s
    thread = threading.Thread(target=lambda: answers.extend(loop.run(concurrency, seconds)))
    begin = time.monotonic()
    thread.start()
    time.sleep(BEFORE_FAILURE_S)
    failed_at = time.monotonic()
    FAILURES[name].cause(service)
    down_s = wait_for_health(service.url, 503, FAILURES[name].noticed_s + 10)
    up_s = wait_for_health(service.url, 200, after_s)
    thread.join()
    usual = rate(answers, 3.0, failed_at - begin)
    full_s = full_again(answers, failed_at, usual, after_s)
    statuses = Counter(answer.status for answer in answers)
    slowest = max(answer.answered - answer.sent for answer in answers)
    report.note(f"failure: {name}", f"at {usual:.1f} requests/s, concurrency {concurrency}")
    report.check(f"{name}: /health says 503 after (s)", f"{down_s:.2f}", holds=down_s < FAILURES[name].noticed_s)
    report.check(f"{name}: /health says 200 after (s)", f"{up_s:.1f}", holds=up_s < MOST_RECOVERY_S)
    report.check(f"{name}: full rate again after (s)", f"{full_s:.1f}", holds=full_s < MOST_RECOVERY_S)
    report.check(f"{name}: statuses", f"{dict(statuses)}", holds=set(statuses) <= {200, 503})
    report.note(f"{name}: longest wait for an answer (s)", f"{slowest:.1f}")


def full_again(answers: Sequence[Answer], failed_at: float, usual: float, after_s: float) -> float:
    """Return after how long the rate over two seconds was nine tenths of the usual one; infinity when it never was."""
    good = sorted(answer.answered - failed_at for answer in answers if answer.status == 200)
    for second in range(3, int(after_s) - 2):
        if sum(second <= time_s < second + 2 for time_s in good) >= 1.8 * usual:
            return float(second)
    return float("inf")


def rate(answers: Sequence[Answer], begin: float, end: float) -> float:
    """Return the good answers a second that ended between two times after the first request (s)."""
    first = min(answer.sent for answer in answers)
    return sum(begin <= answer.answered - first < end and answer.status == 200 for answer in answers) / (end - begin)


def wait_for_health(url: str, status: int, limit_s: float) -> float:
    """Return after how long /health answered `status`; infinity after the limit."""
    begin = time.monotonic()
    while time.monotonic() - begin < limit_s:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as response:
                found = response.status
        except urllib.error.HTTPError as error:
            found = error.code
        if found == status:
            return time.monotonic() - begin
        time.sleep(0.05)
    return float("inf")


def read_metrics(url: str) -> list[tuple[str, float]]:
    """Return the samples of the metrics page."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
        page = response.read().decode()
    return [(line.rpartition(" ")[0], float(line.rpartition(" ")[2])) for line in page.splitlines() if line[:1] != "#"]


def counted(url: str, *names: str) -> float:
    """Return the sum of the engine's counters of these names, over all recognisers."""
    return sum(
        value for name, value in read_metrics(url) if any(f"parakeet_engine_{which}_" in name for which in names)
    )


def main() -> int:
    """Check; 0 when all invariants hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--soak-s", type=float, default=540.0, help="0 leaves the soak out")
    parser.add_argument("--clients", type=int, help="of the soak; without, four fifths of what the service can do")
    parser.add_argument("--failures", type=lambda text: list(filter(None, text.split(","))), default=list(FAILURES))
    parser.add_argument("--after-s", type=float, default=90.0, help="load after each failure")
    report = Report()
    check_service(parser.parse_args(), report)
    return report.verdict("service")


if __name__ == "__main__":
    sys.exit(main())
