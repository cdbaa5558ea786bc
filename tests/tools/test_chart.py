"""The Helm chart: its text in quick tests; rendered, and held to Kubernetes' schemas and our settings, in slow ones."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from headrace import __version__
from headrace.config import BrokerConfig
from headrace.config.properties import parse_properties
from tools import dist, lock

ROOT = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "packaging" / "helm" / "headrace"
KUBERNETES: Final = ("1.28", "1.37")
"""The oldest version that the chart is for, and the newest whose schemas are at hand."""
TLS: Final = {"enabled": True, "secretName": "certificates"}
SCRAM: Final = {"enabled": True, "secretName": "passwords"}
VALUES: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "tls": {"tls": TLS},
    "scram": {"scram": SCRAM},
    "tls and scram": {"tls": TLS, "scram": SCRAM},
    "one node": {"replicas": 1, "settings": {"offsets.topic.replication.factor": "1"}},
    "placed": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "logs", "operator": "Exists"}],
        "storage": {"size": "1Ti", "className": "fast"},
        "podAnnotations": {"a": "b"},
        "imagePullSecrets": [{"name": "mine"}],
    },
}


def text_of(name: str) -> str:
    return (CHART / name).read_text("utf-8")


def test_the_chart_has_the_version_of_the_package() -> None:
    assert re.findall(r"^(?:version|appVersion): (.*)$", text_of("Chart.yaml"), re.MULTILINE) == [
        __version__,
        f'"{__version__}"',
    ]


def test_what_a_pod_must_not_have_and_what_it_must() -> None:
    nodes = text_of("templates/nodes.yaml")
    for line in ("enableServiceLinks: false", "podManagementPolicy: Parallel", "readOnlyRootFilesystem: true"):
        assert line in nodes
    assert "publishNotReadyAddresses: true" in text_of("templates/services.yaml")
    assert set(re.findall(r"path: (/\w+z), port", nodes)) == {"/livez", "/readyz"}


def test_each_value_of_the_chart_is_in_its_schema() -> None:
    schema = json.loads(text_of("values.schema.json"))
    named = set(re.findall(r"^(\w+):", text_of("values.yaml"), re.MULTILINE))
    assert named == set(schema["properties"]) - {"global"}


@pytest.fixture(scope="module")
def tools() -> tuple[ModuleType, ModuleType, ModuleType]:
    """Helm, what knows Kubernetes' schemas, and YAML; installed once for each text of their lock."""
    folder = str(dist.installed("chart", lock.CHART_LOCK.read_text()))
    sys.path.append(folder)
    import helm_python  # type: ignore[import-not-found]
    import kubernetes_validate  # type: ignore[import-not-found]
    import yaml  # type: ignore[import-untyped]

    sys.path.remove(folder)
    return helm_python, kubernetes_validate, yaml


def rendered(tools: tuple[ModuleType, ModuleType, ModuleType], values: dict[str, Any]) -> list[dict[str, Any]]:
    helm, _, yaml = tools
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        made = chart.render(values, name="log", namespace="data")
    texts = [text for name, text in made.items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def one(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


@pytest.mark.soak
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_takes_what_is_rendered(
    tools: tuple[ModuleType, ModuleType, ModuleType], values: dict[str, Any]
) -> None:
    objects = rendered(tools, values)
    kinds = sorted(each["kind"] for each in objects)
    assert kinds == ["ConfigMap", "PodDisruptionBudget", "Secret", "Service", "Service", "StatefulSet"]
    for each in objects:
        for version in KUBERNETES:
            tools[1].validate(each, version, strict=True)


@pytest.mark.soak
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_services_find_the_pods_and_their_ports(
    tools: tuple[ModuleType, ModuleType, ModuleType], values: dict[str, Any]
) -> None:
    objects = rendered(tools, values)
    nodes = one(objects, "StatefulSet")
    pod = nodes["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for service in (each for each in objects if each["kind"] == "Service"):
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]}.items() <= ports.items()
    assert nodes["spec"]["serviceName"] in [each["metadata"]["name"] for each in objects]
    assert nodes["spec"]["replicas"] == values.get("replicas", 3)
    assert not container["image"].endswith(":latest")
    volumes = {each["name"] for each in pod["spec"]["volumes"]} | {"data"}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    assert pod["spec"]["enableServiceLinks"] is False


def settings_of_pod(objects: list[dict[str, Any]], index: int, secrets: dict[str, str]) -> dict[str, str]:
    """What the entry point makes of the files and variables of one pod."""
    spec = importlib.util.spec_from_file_location("entrypoint", ROOT / "packaging" / "container" / "entrypoint.py")
    assert spec is not None and spec.loader is not None
    entrypoint = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(entrypoint)
    nodes = one(objects, "StatefulSet")
    (container,) = nodes["spec"]["template"]["spec"]["containers"]
    variables: dict[str, str] = {}
    for each in container["env"]:
        source = each.get("valueFrom", {})
        if "secretKeyRef" in source:
            value = secrets[source["secretKeyRef"]["key"]]
        elif "fieldRef" in source:
            is_name = source["fieldRef"]["fieldPath"] == "metadata.name"
            value = f"{nodes['metadata']['name']}-{index}" if is_name else str(index)
        else:
            value = re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], each["value"])
        variables[each["name"]] = value
    file = parse_properties(one(objects, "ConfigMap")["data"]["server.properties"])
    settings, ignored = entrypoint.merged(file, variables)
    assert ignored == []
    found: dict[str, str] = settings
    return found


@pytest.mark.soak
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_nodes_understand_their_settings_and_name_each_other(
    tools: tuple[ModuleType, ModuleType, ModuleType], values: dict[str, Any]
) -> None:
    objects = rendered(tools, values)
    secrets = {"cluster-id": "c", "node-password": "between", "users": "SCRAM-SHA-512=[name=admin,password=x]"}
    for index in range(values.get("replicas", 3)):
        warnings: list[str] = []
        settings = settings_of_pod(objects, index, secrets)
        config = BrokerConfig.load(settings, warnings.append)
        assert warnings == []
        assert config.node_id == index
        host = f"log-headrace-{index}.log-headrace-nodes.data.svc.cluster.local"
        assert f"{index}@{host}:9093" in settings["controller.quorum.voters"].split(",")
        assert f"CLIENTS://{host}:9092" in settings["advertised.listeners"]
        if "scram" in values:
            assert 'password="between"' in settings["listener.name.controller.plain.sasl.jaas.config"]


@pytest.mark.soak
@pytest.mark.parametrize("values", [{"tls": {"enabled": True}}, {"image": {"tag": "latest"}}, {"replica": 3}])
def test_values_that_cannot_be_are_refused(
    tools: tuple[ModuleType, ModuleType, ModuleType], values: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match=r"secretName|tag|replica"):
        rendered(tools, values)
