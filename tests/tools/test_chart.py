"""The Helm chart: its text in quick tests; rendered, and held to Kubernetes' schemas and our settings, in slow ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from peers.kafka import free_port

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
SECRETS: Final = {
    "cluster-id": "aBcDeFgHiJkLmNoPqRsTuA",
    "node-password": "between",
    "users": "SCRAM-SHA-512=[name=admin,password=secret]",
}
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


def entry_point() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", ROOT / "packaging" / "container" / "entrypoint.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def settings_of_pod(objects: list[dict[str, Any]], index: int, secrets: dict[str, str]) -> dict[str, str]:
    """What the entry point makes of the files and variables of one pod."""
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
    settings, ignored = entry_point().merged(file, variables)
    assert ignored == []
    found: dict[str, str] = settings
    return found


@pytest.mark.soak
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_nodes_understand_their_settings_and_name_each_other(
    tools: tuple[ModuleType, ModuleType, ModuleType], values: dict[str, Any]
) -> None:
    objects = rendered(tools, values)
    for index in range(values.get("replicas", 3)):
        warnings: list[str] = []
        settings = settings_of_pod(objects, index, SECRETS)
        config = BrokerConfig.load(settings, warnings.append)
        assert warnings == []
        assert config.node_id == index
        host = f"log-headrace-{index}.log-headrace-nodes.data.svc.cluster.local"
        assert f"{index}@{host}:9093" in settings["controller.quorum.voters"].split(",")
        assert f"CLIENTS://{host}:9092" in settings["advertised.listeners"]
        if "scram" in values:
            assert 'password="between"' in settings["listener.name.controller.plain.sasl.jaas.config"]


def moved_here(settings: dict[str, str], index: int, ports: dict[tuple[int, int], int]) -> dict[str, str]:
    """The settings of a pod with addresses of this machine in place of names of the cluster's."""

    def here(found: re.Match[str]) -> str:
        return f"127.0.0.1:{ports[int(found[1] or index), int(found[2])]}"

    names = re.compile(r"(?:log-headrace-(\d)\.[\w.-]+|0\.0\.0\.0):(90\d\d)\b")
    return {name: names.sub(here, value) for name, value in settings.items()} | {"metrics.listener": "-1"}


@pytest.mark.soak
def test_three_nodes_with_the_settings_of_pods_are_a_cluster(
    tools: tuple[ModuleType, ModuleType, ModuleType], tmp_path: Path
) -> None:
    objects = rendered(tools, VALUES["scram"])
    ports = {(index, port): free_port() for index in range(3) for port in (9092, 9093, 9094)}
    headrace = [sys.executable, "-m", "headrace.cli"]
    nodes: list[subprocess.Popen[str]] = []
    try:
        for index in range(3):
            settings = moved_here(settings_of_pod(objects, index, SECRETS), index, ports)
            file = tmp_path / str(index) / "server.properties"
            entry_point().write({**settings, "log.dirs": str(tmp_path / str(index) / "data")}, file)
            format_it = ["storage", "format", "-t", SECRETS["cluster-id"], "-c", str(file), "-S", SECRETS["users"]]
            subprocess.run([*headrace, *format_it], check=True, capture_output=True)
            nodes.append(subprocess.Popen([*headrace, "serve", str(file)], stdout=subprocess.PIPE, text=True))
        for node in nodes:
            assert node.stdout is not None
            assert "CLIENTS listens on" in node.stdout.readline()
        client = tmp_path / "client.properties"
        login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="secret";'
        client.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login}\n")
        there = {"HEADRACE_COMMAND_CONFIG": str(client), "HEADRACE_BOOTSTRAP_SERVERS": f"127.0.0.1:{ports[0, 9092]}"}
        for arguments, given in (("topic create t", ""), ("produce t", "one\n"), ("consume t", "")):
            done = subprocess.run(
                [*headrace, *arguments.split()],
                env={**os.environ, **there},
                input=given,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        assert done.stdout == "one\n"
        for node in nodes:
            node.terminate()
        assert [node.wait(120) for node in nodes] == [0, 0, 0]
    finally:
        for node in nodes:
            node.kill()
            node.wait()


@pytest.mark.soak
@pytest.mark.parametrize("values", [{"tls": {"enabled": True}}, {"image": {"tag": "latest"}}, {"replica": 3}])
def test_values_that_cannot_be_are_refused(
    tools: tuple[ModuleType, ModuleType, ModuleType], values: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match=r"secretName|tag|replica"):
        rendered(tools, values)
