"""The container image: what its entry point makes of variables, and a node that runs in it."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from peers.kafka import free_port

from headrace import __version__
from headrace.config import load_properties_file
from tools import dist, image

COMPRESSED_MB_MAX = 120
USER = 10001
WRITABLE = ("/var/lib/headrace/", "/tmp/")
KEPT_FROM_THE_BASE = ("/dev/", "/proc/", "/sys/")


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", image.CONTAINER / "entrypoint.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_variables_of_kafkas_image_are_settings_and_the_rest_is_named(entrypoint: ModuleType) -> None:
    settings, ignored = entrypoint.merged(
        {"num.partitions": "1", "log.dirs": "/file"},
        {
            "KAFKA_LOG_DIRS": "/kafka",
            "KAFKA_NODE_ID": "7",
            "HEADRACE_SERVER_NODE_ID": "8",
            "KAFKA_LISTENER_NAME_CLIENTS_SCRAM___SHA___512_SASL_JAAS_CONFIG": "x required;",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "KAFKA_OPTS": "-javaagent:x.jar",
            "PATH": "/bin",
            "HEADRACE_PROFILE": "p",
        },
    )
    assert ignored == ["KAFKA_HEAP_OPTS", "KAFKA_OPTS"]
    assert settings == {
        **entrypoint.DEFAULTS,
        **entrypoint.LISTENERS,
        "num.partitions": "1",
        "log.dirs": "/kafka",
        "node.id": "8",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": "x required;",
    }


def test_stores_of_kafkas_image_are_files_among_its_secrets(
    entrypoint: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrypoint, "SECRETS", tmp_path)
    (tmp_path / "credentials").write_text("a password\n")
    found, ignored = entrypoint.of_kafka(
        {"KAFKA_SSL_KEYSTORE_FILENAME": "store.jks", "KAFKA_SSL_KEYSTORE_CREDENTIALS": "credentials"}
    )
    assert found == {"ssl.keystore.location": str(tmp_path / "store.jks"), "ssl.keystore.password": "a password"}
    assert not ignored


def test_listeners_that_are_given_have_no_default_beside_them(entrypoint: ModuleType) -> None:
    settings, _ = entrypoint.merged({}, {"KAFKA_LISTENERS": "A://:1"})
    assert settings["listeners"] == "A://:1"
    assert "advertised.listeners" not in settings


def test_what_is_written_is_what_is_read(entrypoint: ModuleType, tmp_path: Path) -> None:
    settings = {"a": "  two blanks \\ and a tab\t", "key": "-----BEGIN-----\nx=y:z\n#!\n", "ü": "ß", "e": ""}
    path = tmp_path / "headrace" / "server.properties"
    for _ in range(2):  # a container that starts again
        entrypoint.write(settings, path)
    assert load_properties_file(str(path)) == settings
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_node_by_itself_chooses_its_cluster(entrypoint: ModuleType) -> None:
    assert entrypoint.cluster_of({}, {}) == ""
    assert entrypoint.cluster_of({}, {"CLUSTER_ID": "c"}) == "c"
    assert entrypoint.cluster_of({"controller.quorum.voters": "1@a:1,2@b:2"}, {}) == entrypoint.DEFAULT_CLUSTER


def test_the_image_says_what_it_is() -> None:
    text = (image.CONTAINER / "Containerfile").read_text()
    for line in (f"USER {USER}:{USER}", "STOPSIGNAL SIGTERM", "VOLUME /var/lib/headrace", "EXPOSE 9092 9404"):
        assert f"\n{line}\n" in text
    assert re.search(r'^HEALTHCHECK .*CMD \[.*"--health"\]$', text, re.MULTILINE)
    assert re.search(r"^ENTRYPOINT \[", text, re.MULTILINE), "a shell would keep SIGTERM from the node"
    assert ":latest" not in text


def test_the_image_has_the_extras_of_a_server() -> None:
    assert {"cryptography", "prometheus-client", "uvloop", "cffi", "click"} <= set(image.needed())
    assert not {"pyspark", "pytest"} & set(image.needed())


def cannot_build() -> str:
    missing = [name for name in ("buildah", "debootstrap", "unshare") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed (tools/system_deps.sh image)"
    return "" if os.geteuid() == 0 else "images are built and entered as root"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """The image's name, its archive, and the root of a container of it."""
    if why := cannot_build():
        pytest.skip(why)
    out = tmp_path_factory.mktemp("image")
    given = os.environ.get("DIST_FOLDER")  # wheels that were built before
    if not given:
        dist.build(out, ["3.11"])
    name = image.build(image.debian_base(), "3.11", Path(given) if given else out)
    archive = image.save(name, out)
    container = image.buildah("from", name)
    root = Path(image.buildah("mount", container))
    yield name, archive, root
    image.buildah("umount", container)
    image.buildah("rm", container)


def inside(root: Path, *command: str) -> list[str]:
    """A command as the image's user in its root, with this machine's network and /proc."""
    script = 'mount --rbind /proc "$1/proc" && shift && exec "$@"'
    enter = ["chroot", f"--userspec={USER}:{USER}", str(root), *command]
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(root), *enter]


def files_since(root: Path, marker: Path) -> list[str]:
    """What was written there since, without what the kernel makes."""
    found = []
    for path in root.rglob("*"):
        name = f"/{path.relative_to(root)}"
        if not name.startswith(KEPT_FROM_THE_BASE) and path.is_file() and not path.is_symlink():
            if path.stat().st_mtime > marker.stat().st_mtime:
                found.append(name)
    return found


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_the_archive_is_small_and_has_no_pip(built: tuple[str, Path, Path]) -> None:
    _, archive, root = built
    print(f"{archive.stat().st_size / 1e6:.1f} MB compressed")
    assert archive.stat().st_size <= COMPRESSED_MB_MAX * 1e6
    with gzip.open(archive) as packed, tarfile.open(fileobj=packed) as opened:
        assert "manifest.json" in opened.getnames()
    assert not list((root / "opt/headrace/lib").rglob("pip"))
    (package,) = (root / "opt/headrace/lib").glob("python3.*/site-packages/headrace")
    assert list((package / "wire").glob("_walk*.so"))


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_what_the_image_tells_whoever_runs_it(built: tuple[str, Path, Path]) -> None:
    told = json.loads(image.buildah("inspect", "--type", "image", built[0]))["Docker"]["config"]
    assert told["User"] == f"{USER}:{USER}"
    assert told["StopSignal"] == "SIGTERM"
    assert "/var/lib/headrace" in told["Volumes"]
    assert told["Healthcheck"]["Test"][0] == "CMD"
    assert told["Labels"]["org.opencontainers.image.version"] == __version__


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_node_serves_writes_where_it_may_and_stops(built: tuple[str, Path, Path], tmp_path: Path) -> None:
    root = built[2]
    port, pages = free_port(), free_port()
    environment = {
        "PATH": "/opt/headrace/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_METRICS_LISTENER": f"127.0.0.1:{pages}",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
    }
    entry = ["/opt/headrace/bin/python", "/opt/headrace/entrypoint.py"]
    marker = tmp_path / "marker"
    marker.touch()
    node = subprocess.Popen(
        inside(root, *entry, "serve"), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert node.stdout is not None
        said = node.stdout.readline()
        assert f"listens on 127.0.0.1:{port}" in said, node.communicate()[1]
        health = subprocess.run(inside(root, *entry, "--health"), env=environment, check=False, capture_output=True)
        assert health.returncode == 0, health.stdout
        client = {**environment, "HEADRACE_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"}
        for arguments, given, answer in (
            (["topic", "create", "t"], "", "created topic t with 1 partition\n"),
            (["produce", "t"], "one\n", ""),
            (["consume", "t"], "", "one\n"),
        ):
            command = inside(root, *entry, *arguments)
            done = subprocess.run(command, env=client, input=given, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert answer in done.stdout
        owners = {path.stat().st_uid for path in (root / "var/lib/headrace").rglob("*")}
        assert owners == {USER}
        node.send_signal(signal.SIGTERM)
        _, errors = node.communicate(timeout=120)
        assert node.returncode == 0, errors
        assert "these variables name no setting and are ignored: KAFKA_HEAP_OPTS\n" in errors
        assert [name for name in files_since(root, marker) if not name.startswith(WRITABLE)] == []
        health = subprocess.run(inside(root, *entry, "--health"), env=environment, check=False, capture_output=True)
        assert health.returncode == 1
    finally:
        node.kill()
        node.wait()


def test_the_entry_point_needs_nothing_but_the_package() -> None:
    command = [sys.executable, str(image.CONTAINER / "entrypoint.py"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout
