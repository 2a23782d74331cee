"""The Kubernetes objects that a kustomization renders, by the real kubectl, and what is in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
KUBECTL = Path(sys.executable).parent / "kubectl"

Object = dict[str, Any]
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def render(folder: Path) -> list[Object]:
    run = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return list(yaml.safe_load_all(run.stdout))


def render_with(form: str, components: Sequence[str], folder: Path) -> list[Object]:
    """Render a form with components, as a kustomization of one's own in `folder` does."""
    own = {
        "resources": [os.path.relpath(KUBERNETES / form, folder.resolve())],
        "components": [os.path.relpath(KUBERNETES / component, folder.resolve()) for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    return render(folder)


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    return [thing for thing in objects if thing["kind"] == kind]


def pods(objects: Sequence[Object]) -> list[Object]:
    """The pod templates of all deployments."""
    return [thing["spec"]["template"] for thing in of_kind(objects, "Deployment")]


def only_container(pod: Object) -> Object:
    (container,) = pod["spec"]["containers"]
    return dict(container)


def environ(objects: Sequence[Object], pod: Object) -> dict[str, str]:
    """The environment of a pod's container; what comes from secrets is left out."""
    container, values = only_container(pod), {}
    for source in container["envFrom"]:
        (settings,) = [
            c for c in of_kind(objects, "ConfigMap") if c["metadata"]["name"] == source["configMapRef"]["name"]
        ]
        values.update(settings["data"])
    values.update({row["name"]: row["value"] for row in container["env"] if "value" in row})
    return values


def volumes(pod: Object) -> Iterator[tuple[str, Object]]:
    """Where each volume is mounted, and the volume."""
    by_name = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    for mount in only_container(pod)["volumeMounts"]:
        yield mount["mountPath"], by_name[mount["name"]]


def volume_of(pod: Object, path: str) -> Object:
    """The volume on which a file lies."""
    mounts = [(where, volume) for where, volume in volumes(pod) if Path(path).is_relative_to(where)]
    assert mounts, f"{path} is on the read-only root file system"
    return max(mounts, key=lambda mount: len(mount[0]))[1]


def size_bytes(quantity: str) -> int:
    return int(quantity[:-2]) * _UNITS[quantity[-2:]]


def in_memory_bytes(pod: Object) -> int:
    """Most that volumes in memory take."""
    folders = [volume.get("emptyDir", {}) for _, volume in volumes(pod)]
    return sum(size_bytes(folder["sizeLimit"]) for folder in folders if folder.get("medium") == "Memory")


def selects(labels: dict[str, str], thing: Object) -> bool:
    return labels.items() <= thing["metadata"]["labels"].items()


def ports(pod: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in only_container(pod)["ports"]}


def probes(pod: Object) -> dict[str, Object]:
    return {name: probe for name, probe in only_container(pod).items() if name.endswith("Probe")}
