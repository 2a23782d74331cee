"""What the gateway's metrics page tells of the service around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parakeet_mps.choices import make_plan
from parakeet_mps.gateway.service_state import ServiceState
from parakeet_mps.plan import Plan
from parakeet_mps.run_folder import RunFolder
from parakeet_mps.settings import Settings
from test_plan import gpu_machine


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(run_dir=str(tmp_path / "run"), wedge_sentinel=str(tmp_path / "wedged"))


def state(settings: Settings) -> dict[str, float]:
    """Return every sample by its name, labels left out."""
    return {sample.name: sample.value for metric in ServiceState(settings).collect() for sample in metric.samples}


def write_plan(settings: Settings, plan: Plan) -> None:
    run = RunFolder(settings.run_path)
    run.root.mkdir()
    run.plan.write_text(plan.to_json())


def test_before_anything_happened_every_count_is_zero(settings: Settings) -> None:
    told = state(settings)
    assert {name: told[name] for name in told if "wedge" in name or "recover" in name} == {
        "parakeet_wedged": 0,
        "parakeet_wedges_total": 0,
        "parakeet_recoveries_total": 0,
        "parakeet_recovery_give_ups_total": 0,
        "parakeet_recovery_seconds_total": 0,
    }
    assert told["parakeet_transcriptions_in_flight_limit"] == settings.max_in_flight
    assert told["parakeet_gateway_workers_planned"] == settings.gateway_workers
    assert "parakeet_instances" not in told


def test_wedges_and_recoveries_are_counted_from_their_history(settings: Settings) -> None:
    sentinel = Path(settings.wedge_sentinel)
    sentinel.touch()
    events = [("wedge", None), ("recovery", 9.5), ("wedge", None), ("wedge", None), ("recovery", 3), ("give_up", 60.0)]
    lines = [json.dumps({"at": "x", "event": event, "who": "x", "why": "x", "seconds": s}) for event, s in events]
    sentinel.with_name("wedged.history").write_text("\n".join([*lines, "no event", "[]", '{"event": 1}', '{"ev']))
    told = state(settings)
    assert told["parakeet_wedged"] == 1
    assert told["parakeet_wedges_total"] == 3
    assert told["parakeet_recoveries_total"] == 2
    assert told["parakeet_recovery_give_ups_total"] == 1
    assert told["parakeet_recovery_seconds_total"] == 12.5


def test_the_plan_of_a_gpu_tells_its_recognisers_and_that_mps_is_down(settings: Settings) -> None:
    write_plan(settings, make_plan(settings, gpu_machine()))
    told = state(settings)
    assert (told["parakeet_mps_enabled"], told["parakeet_mps_up"]) == (1, 0)
    assert told["parakeet_instances"] > 1


def test_a_plan_is_told_only_where_its_triton_is(settings: Settings) -> None:
    write_plan(settings, make_plan(settings, gpu_machine()))
    elsewhere = Settings(triton_url="triton:8001", run_dir=settings.run_dir)
    assert "parakeet_instances" not in state(elsewhere)


def test_a_plan_that_cannot_be_read_is_left_out(settings: Settings) -> None:
    settings.run_path.mkdir()
    RunFolder(settings.run_path).plan.write_text("{")
    assert "parakeet_instances" not in state(settings)
