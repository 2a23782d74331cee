"""deploy/kubernetes renders to valid objects that fit each other, the settings, the images and what is served."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import kubernetes_validate
import psutil
import pytest
import yaml

from manifests import (
    KUBERNETES,
    Object,
    environ,
    in_memory_bytes,
    of_kind,
    only_container,
    pods,
    ports,
    probes,
    render,
    render_with,
    selects,
    size_bytes,
    volume_of,
)
from metrics_names import shown_samples
from parakeet_mps.choices import MOST_AUTOMATIC_GPU_INSTANCES, make_plan
from parakeet_mps.gateway.endpoints import HEALTH, METRICS
from parakeet_mps.gateway.health import CANARY_TIMEOUT_S, PROBE_TIMEOUT_S
from parakeet_mps.hardware import Gpu, Hardware
from parakeet_mps.plan import Plan
from parakeet_mps.s3 import Location
from parakeet_mps.settings import Settings, describe
from parakeet_mps.triton_server import EXIT_TIMEOUT_S

FORMS = {
    "whole service": ("base", ["autoscaling", "model-volume"]),
    "split": ("split", ["split-autoscaling", "model-volume"]),
}
GPU = Gpu(0, "GPU-1", "NVIDIA H200", 143771, "Default")
MPS_AND_REAPING_S = 15.0

# The fields in use, as the operator's custom resource definition has them (monitoring.coreos.com/v1).
SERVICE_MONITOR = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "monitoring.coreos.com/v1"},
        "spec": {
            "type": "object",
            "required": ["endpoints", "selector"],
            "additionalProperties": False,
            "properties": {
                "jobLabel": {"type": "string"},
                "selector": {
                    "type": "object",
                    "required": ["matchLabels"],
                    "additionalProperties": False,
                    "properties": {"matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}},
                },
                "endpoints": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "port": {"type": "string"},
                            "path": {"type": "string"},
                            "interval": {"type": "string", "pattern": r"^\d+s$"},
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module", params=FORMS)
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    form, components = FORMS[request.param]
    return render_with(form, components, tmp_path_factory.mktemp("kustomization"))


@pytest.fixture
def recogniser(objects: list[Object]) -> Object:
    (pod,) = [pod for pod in pods(objects) if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "recogniser"]
    return pod


def settings_of(objects: list[Object], pod: Object) -> Settings:
    role = {"ROLE": "all", **environ(objects, pod)}
    return Settings.from_env(role)


def plan_of(objects: list[Object], pod: Object) -> Plan:
    """What is chosen in the pod on a node with one large GPU."""
    shared_memory = size_bytes(volume_of(pod, "/dev/shm")["emptyDir"]["sizeLimit"])
    return make_plan(settings_of(objects, pod), Hardware(8, 65536, shared_memory >> 20, (GPU,), mps_control=True))


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_is_valid(version: str, objects: list[Object]) -> None:
    for thing in objects:
        if thing["kind"] == "ServiceMonitor":
            jsonschema.validate(thing, SERVICE_MONITOR)
        else:
            kubernetes_validate.validate(thing, version, strict=True)


def test_each_form_renders_without_components() -> None:
    assert len(pods(render(KUBERNETES / "base"))) == 1
    assert len(pods(render(KUBERNETES / "split"))) == 2


def test_the_kustomization_in_the_guide_renders(tmp_path: Path) -> None:
    guide = (KUBERNETES / "README.md").read_text()
    (own,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    folder = tmp_path / "own"
    folder.mkdir()
    (tmp_path / "parakeet-mps").symlink_to(KUBERNETES.parent.parent)
    (folder / "kustomization.yaml").write_text(own)
    objects = render(folder)
    (pod,) = pods(objects)
    assert only_container(pod)["image"].endswith("/parakeet-mps:0.1.0")
    assert Location.parse(settings_of(objects, pod).model).bucket == "my-models"
    (account,) = of_kind(objects, "ServiceAccount")
    assert account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].startswith("arn:aws:iam::")
    assert pod["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_every_variable_is_a_setting_with_an_allowed_value(objects: list[Object]) -> None:
    known = {name for name, _, _ in describe()}
    for pod in pods(objects):
        named = {row["name"] for row in only_container(pod)["env"]}
        assert set(environ(objects, pod)) | named <= known
        settings_of(objects, pod)


def test_ports_are_those_that_the_settings_open(objects: list[Object]) -> None:
    for pod in pods(objects):
        settings = settings_of(objects, pod)
        triton = {
            "triton-http": settings.triton_http_port,
            "grpc": settings.triton_grpc_port,
            "metrics": settings.triton_metrics_port,
        }
        assert ports(pod) == (triton if settings.role == "triton" else {"http": settings.port})


def test_services_lead_to_ports_of_pods(objects: list[Object]) -> None:
    for service in of_kind(objects, "Service"):
        found = [pod for pod in pods(objects) if selects(service["spec"]["selector"], pod)]
        assert len(found) == 1, service["metadata"]["name"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports(found[0]).keys()


def test_gateways_elsewhere_name_a_headless_service_of_triton(objects: list[Object]) -> None:
    for pod in pods(objects):
        settings = settings_of(objects, pod)
        if settings.role != "gateway":
            continue
        name, _, port = settings.triton_url.rpartition(":")
        (service,) = [thing for thing in of_kind(objects, "Service") if thing["metadata"]["name"] == name]
        assert service["spec"]["clusterIP"] == "None"
        assert {entry["name"]: entry["port"] for entry in service["spec"]["ports"]}["grpc"] == int(port)
        assert settings.audio_transport == "grpc"


def test_the_api_leads_to_a_gateway(objects: list[Object]) -> None:
    (service,) = [thing for thing in of_kind(objects, "Service") if thing["metadata"]["name"] == "parakeet"]
    (pod,) = [pod for pod in pods(objects) if selects(service["spec"]["selector"], pod)]
    assert settings_of(objects, pod).starts_gateway


def test_budgets_and_policies_select_one_deployment_each(objects: list[Object]) -> None:
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selected = [
            [pod for pod in pods(objects) if selects(thing["spec"][field]["matchLabels"], pod)]
            for thing in of_kind(objects, kind)
        ]
        assert sorted(map(len, selected)) == [1] * len(pods(objects))


def test_policies_open_ports_of_their_pods_only(objects: list[Object]) -> None:
    for policy in of_kind(objects, "NetworkPolicy"):
        (pod,) = [pod for pod in pods(objects) if selects(policy["spec"]["podSelector"]["matchLabels"], pod)]
        opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert opened <= ports(pod).keys()
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}


def test_probes_ask_what_the_service_answers(objects: list[Object]) -> None:
    for pod in pods(objects):
        for probe in probes(pod).values():
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] == HEALTH
                assert probe["timeoutSeconds"] > 2 * PROBE_TIMEOUT_S + CANARY_TIMEOUT_S
            port = probe.get("httpGet", probe.get("tcpSocket", {})).get("port")
            assert port is None or port in ports(pod)


def test_the_startup_probe_outlasts_the_start(objects: list[Object], recogniser: Object) -> None:
    startup = probes(recogniser)["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] > settings_of(objects, recogniser).startup_timeout_s


def test_triton_alone_is_ready_when_it_is_healthy_and_no_recovery_is_under_way(objects: list[Object]) -> None:
    for pod in pods(objects):
        if settings_of(objects, pod).role == "triton":
            command = " ".join(probes(pod)["readinessProbe"]["exec"]["command"])
            assert "$WEDGE_SENTINEL" in command
            assert "parakeet_mps.healthcheck" in command


@contextmanager
def running(*words: str) -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", *words]) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def is_alive(pod: Object, process: psutil.Process) -> bool:
    command = [
        word.replace("/proc/1/", f"/proc/{process.pid}/") for word in probes(pod)["livenessProbe"]["exec"]["command"]
    ]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def test_the_liveness_probe_looks_at_the_supervisor_alone(objects: list[Object]) -> None:
    for pod in pods(objects):
        assert set(probes(pod)["livenessProbe"]) & {"httpGet", "tcpSocket", "grpc"} == set()
        with running("-m", "parakeet_mps.service") as supervisor:
            assert is_alive(pod, supervisor)
            supervisor.suspend()
            while supervisor.status() != psutil.STATUS_STOPPED:
                pass
            assert not is_alive(pod, supervisor)
        with running("server.py") as other:
            assert not is_alive(pod, other)


def test_the_grace_period_covers_everything_that_ends(objects: list[Object]) -> None:
    for pod in pods(objects):
        _, pause = only_container(pod)["lifecycle"]["preStop"]["exec"]["command"]
        gateway = settings_of(objects, pod).stop_timeout_s + 5
        needed = float(pause) + gateway + EXIT_TIMEOUT_S + 10 + MPS_AND_REAPING_S
        assert pod["spec"]["terminationGracePeriodSeconds"] > needed


def test_shared_memory_is_large_enough_for_the_plan(objects: list[Object], recogniser: Object) -> None:
    assert volume_of(recogniser, "/dev/shm")["emptyDir"]["medium"] == "Memory"
    plan = plan_of(objects, recogniser)
    assert plan.instances.value == MOST_AUTOMATIC_GPU_INSTANCES
    assert "--shm-size" not in plan.shm_region_mb.reason


def test_all_that_is_written_lies_on_volumes(objects: list[Object]) -> None:
    for pod in pods(objects):
        settings = settings_of(objects, pod)
        paths = [settings.run_dir, settings.wedge_sentinel, "/tmp", "/dev/shm"]
        if settings.starts_triton:
            paths.append(settings.model_cache)
        for path in paths:
            volume_of(pod, path)
        assert volume_of(pod, settings.wedge_sentinel)["emptyDir"]["medium"] == "Memory"


def test_volumes_in_memory_leave_memory_for_the_processes(objects: list[Object]) -> None:
    for pod in pods(objects):
        resources = only_container(pod)["resources"]
        assert in_memory_bytes(pod) < size_bytes(resources["requests"]["memory"]) / 4
        assert size_bytes(resources["requests"]["memory"]) <= size_bytes(resources["limits"]["memory"])


def test_a_recogniser_has_one_gpu_and_an_update_waits_for_it(objects: list[Object], recogniser: Object) -> None:
    for deployment in of_kind(objects, "Deployment"):
        pod = deployment["spec"]["template"]
        expected = "1" if pod is recogniser else None
        assert only_container(pod)["resources"]["limits"].get("nvidia.com/gpu") == expected
        if pod is recogniser:
            assert deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0


def test_pods_meet_the_restricted_standard(objects: list[Object]) -> None:
    (namespace,) = of_kind(objects, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in pods(objects):
        whole, container = pod["spec"]["securityContext"], only_container(pod)["securityContext"]
        assert whole["runAsNonRoot"]
        assert whole["runAsUser"] > 0
        assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not pod["spec"]["automountServiceAccountToken"]
        assert all(set(volume) <= {"name", "emptyDir", "ephemeral"} for volume in pod["spec"]["volumes"])
        assert not {"hostNetwork", "hostIPC", "hostPID"} & pod["spec"].keys()


def test_replicas_are_left_to_the_autoscaler(objects: list[Object]) -> None:
    assert all("replicas" not in deployment["spec"] for deployment in of_kind(objects, "Deployment"))
    scaled = {scaler["spec"]["scaleTargetRef"]["name"] for scaler in of_kind(objects, "HorizontalPodAutoscaler")}
    assert scaled == {deployment["metadata"]["name"] for deployment in of_kind(objects, "Deployment")}


def test_autoscalers_ask_for_metrics_that_are_exported_and_adapted(objects: list[Object], tmp_path: Path) -> None:
    values = yaml.safe_load((KUBERNETES / "prometheus-adapter-values.yaml").read_text())
    adapted = {rule["seriesQuery"].partition("{")[0] for rule in values["rules"]["custom"]}
    tritons_own = {"nv_inference_pending_request_count"}
    exported = {sample.name for sample in shown_samples(tmp_path)} | tritons_own
    for scaler in of_kind(objects, "HorizontalPodAutoscaler"):
        names = {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]}
        assert names <= adapted & exported


def test_autoscalers_add_pods_before_requests_are_refused(objects: list[Object], recogniser: Object) -> None:
    limits = {
        "parakeet_transcriptions_in_flight": settings_of(objects, recogniser).max_in_flight,
        "nv_inference_pending_request_count": plan_of(objects, recogniser).max_queue_size.value,
    }
    for scaler in of_kind(objects, "HorizontalPodAutoscaler"):
        for metric in scaler["spec"]["metrics"]:
            wanted = int(metric["pods"]["target"]["averageValue"])
            assert 0 < wanted <= limits[metric["pods"]["metric"]["name"]] / 2


def test_prometheus_finds_every_metrics_page_as_the_job_of_the_alert_rules(objects: list[Object]) -> None:
    (monitor,) = of_kind(objects, "ServiceMonitor")
    services = [s for s in of_kind(objects, "Service") if selects(monitor["spec"]["selector"]["matchLabels"], s)]
    scraped = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"] if endpoint["path"] == METRICS}
    for pod in pods(objects):
        reached = [
            port["name"]
            for service in services
            if selects(service["spec"]["selector"], pod)
            for port in service["spec"]["ports"]
            if port["name"] in scraped
        ]
        assert reached == [{"triton": "metrics"}.get(settings_of(objects, pod).role, "http")]
    rules = (KUBERNETES.parent / "prometheus" / "alerts.yml").read_text()
    for service in services:
        job = service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
        assert f'job="{job}"' in rules


def test_downloaded_models_are_kept_on_a_volume_of_their_own(objects: list[Object], recogniser: Object) -> None:
    assert set(volume_of(recogniser, settings_of(objects, recogniser).model_cache)) == {"name", "ephemeral"}


def test_images_are_those_that_are_built(objects: list[Object]) -> None:
    built = (KUBERNETES.parent.parent / "scripts" / "images.sh").read_text()
    for pod in pods(objects):
        assert f" {only_container(pod)['image']}\n" in built


def test_changed_settings_roll_the_pods(objects: list[Object]) -> None:
    (settings,) = of_kind(objects, "ConfigMap")
    assert re.fullmatch(r"parakeet-settings-[a-z0-9]{10}", settings["metadata"]["name"])
