"""The kustomize base: renders, is of Kubernetes' schemas, and holds together."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

BASE = Path(__file__).parents[2] / "conf" / "kubernetes"
#: The oldest and the newest version that objects are checked against.
VERSIONS = ("1.30", str(kubernetes_validate.latest_version()))


@pytest.fixture(scope="module")
def rendered() -> dict[str, dict[str, Any]]:
    """The objects by kind, as they would be applied."""
    done = subprocess.run(["kubectl", "kustomize", str(BASE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    assert set(found) == {"ConfigMap", "Service", "StatefulSet"}
    return found


@pytest.fixture(scope="module")
def pod(rendered: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = rendered["StatefulSet"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_of_their_schemas(version: str, rendered: dict[str, dict[str, Any]]) -> None:
    for each in rendered.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_find_a_mistake(rendered: dict[str, dict[str, Any]]) -> None:
    wrong = {**rendered["Service"], "spec": {**rendered["Service"]["spec"], "clusterIp": "None"}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_the_pod_uses_the_network_of_its_node(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["hostNetwork"] is True
    assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod["nodeSelector"]
    assert [(port["containerPort"], port["hostPort"]) for port in container["ports"]] == [(7420, 7420)]


def test_the_pod_has_no_extra_rights(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probes_ask_where_it_serves(container: dict[str, Any]) -> None:
    probes = {
        name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert [probe["path"] for probe in probes.values()] == ["/healthz", "/healthz", "/readyz"]
    for probe in probes.values():
        assert (probe["port"], probe["scheme"]) == ("https", "HTTPS")
    assert container["ports"][0]["name"] == "https"


def test_the_past_can_be_read_while_it_is_not_ready(rendered: dict[str, dict[str, Any]]) -> None:
    service, labels = rendered["Service"]["spec"], rendered["StatefulSet"]["spec"]["template"]["metadata"]
    assert service["publishNotReadyAddresses"] is True
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= labels["labels"].items()
    assert rendered["StatefulSet"]["spec"]["serviceName"] == rendered["Service"]["metadata"]["name"]


def test_every_file_that_it_is_configured_with_is_mounted(
    rendered: dict[str, dict[str, Any]], pod: dict[str, Any], container: dict[str, Any]
) -> None:
    reported = tomllib.loads(rendered["ConfigMap"]["data"]["receiver.toml"])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    files = [reported["certificate"], reported["key"], *reported["tokens"].values(), container["args"][1]]
    assert {str(Path(file).parent) for file in files} <= set(mounts)
    claims = {each["metadata"]["name"] for each in rendered["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    assert mounts[reported["directory"]] in claims
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts.values()) == set(volumes) | claims
    assert volumes["config"]["configMap"]["name"] == rendered["ConfigMap"]["metadata"]["name"]
    assert reported["listen"] == f"0.0.0.0:{container['ports'][0]['containerPort']}"


def test_nothing_else_lies_in_the_folder() -> None:
    reported = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    used = {*reported["resources"], *reported["configMapGenerator"][0]["files"], "kustomization.yaml"}
    assert {path.name for path in BASE.iterdir()} == used


def test_user_and_image_are_those_of_the_dockerfile(pod: dict[str, Any]) -> None:
    dockerfile = (BASE.parent / "Dockerfile").read_text()
    context = pod["securityContext"]
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}\n" in dockerfile
    assert context["fsGroup"] == context["runAsGroup"]
