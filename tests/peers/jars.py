"""The jars of our peers (Apache Kafka, Spark's Kafka connector), brought by Maven into `.peers/` and kept there.

Maven is asked through its ordinary configuration, so a machine's own settings and mirrors apply. A finished folder is
marked by a file that holds the list of coordinates, so a second call costs nothing and works without a network.

    python tests/peers/jars.py [kafka|spark|streams|background|all]
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree, which

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".peers"
KAFKA_VERSION = "4.3.1"
MAVEN_PATIENCE_S = 1200


@dataclass(frozen=True)
class JarSet:
    """A folder of jars: `name` under `.peers/`, the Maven coordinates, and whether what they depend on comes along."""

    name: str
    coordinates: tuple[str, ...]
    closure: bool

    @property
    def folder(self) -> Path:
        return PEERS / self.name / "libs"

    @property
    def mark(self) -> Path:
        return PEERS / self.name / "complete.txt"

    def complete(self) -> bool:
        """Whether the folder holds this very set."""
        return self.mark.exists() and self.mark.read_text() == "\n".join(self.coordinates)


KAFKA = JarSet(
    "kafka",
    (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-shell:{KAFKA_VERSION}",
        f"org.apache.kafka:trogdor:{KAFKA_VERSION}",
        "org.apache.logging.log4j:log4j-core:2.25.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
    ),
    closure=True,
)
SPARK = JarSet(
    "spark",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:4.1.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    closure=False,
)

STREAMS = JarSet(
    "streams",
    (
        f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",
        f"org.apache.kafka:connect-runtime:{KAFKA_VERSION}",
        f"org.apache.kafka:connect-file:{KAFKA_VERSION}",
        "org.apache.logging.log4j:log4j-core:2.25.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
    ),
    closure=True,
)

BACKGROUND = JarSet(
    "background",
    (
        f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",
        f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}",
        "org.springframework.kafka:spring-kafka:4.0.0",
        "org.apache.logging.log4j:log4j-core:2.25.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
    ),
    closure=True,
)
"""MirrorMaker 2 and Spring, as clients of a cluster that is measured."""

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace.peers</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""

DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{exclusions}
    </dependency>"""

NOTHING_ELSE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def pom_of(jars: JarSet) -> str:
    """The project file whose dependencies are `jars`."""
    dependencies = []
    for coordinate in jars.coordinates:
        group, artifact, version = coordinate.split(":")
        exclusions = "" if jars.closure else NOTHING_ELSE
        dependencies.append(DEPENDENCY.format(group=group, artifact=artifact, version=version, exclusions=exclusions))
    return POM.format(name=jars.name, dependencies="\n".join(dependencies))


def ensure(jars: JarSet) -> Path:
    """Bring `jars` if they are not here yet. Returns their folder; raises RuntimeError with Maven's last lines."""
    if jars.complete():
        return jars.folder
    maven = which("mvn")
    if maven is None:
        raise RuntimeError("Maven (mvn) is not installed: run `make system-deps`")
    rmtree(jars.folder, ignore_errors=True)
    jars.folder.mkdir(parents=True)
    pom = PEERS / jars.name / "pom.xml"
    pom.write_text(pom_of(jars))
    command = [maven, "--batch-mode", "--quiet", "-f", str(pom), "dependency:copy-dependencies",
               f"-DoutputDirectory={jars.folder}", "-DincludeScope=runtime"]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=MAVEN_PATIENCE_S)
    if done.returncode != 0:
        raise RuntimeError(f"Maven could not bring {jars.name}: " + "\n".join(done.stdout.splitlines()[-15:]))
    jars.mark.write_text("\n".join(jars.coordinates))
    return jars.folder


def main(arguments: list[str]) -> int:
    sets = {each.name: [each] for each in (KAFKA, SPARK, STREAMS, BACKGROUND)}
    wanted = {**sets, "all": [KAFKA, SPARK]}[arguments[0] if arguments else "all"]
    for jars in wanted:
        folder = ensure(jars)
        print(f"{jars.name}: {len(list(folder.glob('*.jar')))} jars in {folder.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
