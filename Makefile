# Every errand of the project. `make check` is what a developer runs all day; `make test` is everything.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# make install EXTRAS= leaves Spark, pandas and the databases' clients out: the broker, and the tools for work on it
EXTRAS ?= all
LOCK := requirements$(if $(EXTRAS),,-broker).lock
INSTALLED := $(VENV)/installed$(if $(EXTRAS),,-broker)
# of pytest: three at least, as tests that wait for other processes left one of two cores idle
WORKERS ?= $(shell n=$$(nproc); [ $$n -ge 3 ] || n=3; [ $$n -le 4 ] || n=4; echo $$n)
# a file of tests is one process's, for its broker and its Spark; files that share a broker are one process's too
PYTEST := $(RUN) -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

# Python keeps what it has compiled, also where containers ask it not to: else each process of the tests compiles what it
# imports, and each process of pytest every file of tests
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install check static compiled lint types layers tidy ways docs-check codegen codegen-check docs test coverage demo picture bench bench-spark fuzz crash flaky soak sim mutate lock dist image sbom system-deps clean

install: $(INSTALLED)

$(INSTALLED): $(LOCK) pyproject.toml setup.py pipelines/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/system_deps.sh install --if-root
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(RUN) tools/install.py $(LOCK)
	@touch $(INSTALLED)

check: static
	$(PYTEST) -n 4 -q -m "not jvm and not slow" --hypothesis-profile check

# What reads the code without running it; side by side, as the two runs of mypy take as long as all the others.
static: install
	@$(MAKE) --no-print-directory -j 2 -O types lint layers tidy codegen-check docs-check compiled

# In a fresh clone one process compiles what each process of pytest would compile else. What is wrong they say themselves.
compiled: install
	@test -d tests/wire/__pycache__ || $(RUN) -m pytest --collect-only -qq >/dev/null 2>&1 || true

lint: install
	$(RUN) -m ruff check src tests tools bench demo examples

types: install
	$(RUN) -m mypy
	$(RUN) -m mypy --config-file tests/mypy.ini

layers: install
	$(RUN) tools/layers.py

tidy: install
	$(RUN) tools/tidy.py
	$(RUN) tools/shape.py

# How one request of each kind travels down and its answer back, on a broker in one process.
ways: install
	$(RUN) -m tools.request_paths

docs: install
	$(RUN) -m tools.docs

docs-check: install
	$(RUN) -m tools.docs --check

codegen: install
	$(RUN) -m tools.codegen

codegen-check: install
	$(RUN) -m tools.codegen --check

# The peers first (Kafka's jars, Spark's connector and its PySpark), so that no test waits for Maven or pip; without
# Java or Maven the tests say what they skip. What of the system is missing is installed first where this is root, else
# it is named with the command that installs it.
test:
	@tools/system_deps.sh test --if-root
	@$(MAKE) --no-print-directory static
	@$(RUN) tools/interpreters.py
	@$(RUN) -m tests.peers.gssapi_package
	@if command -v mvn >/dev/null && command -v java >/dev/null; then $(RUN) tests/peers/jars.py all && $(RUN) -m tests.peers.spark && $(RUN) -m tests.peers.class_archive; fi
	$(PYTEST) -rs --durations=40

# What the quick tests run of the code, by file and line; there is no threshold. Processes that they start are not counted.
coverage: install
	$(RUN) -m coverage erase
	$(RUN) -m coverage run -m pytest -q -p no:xdist -m "not jvm and not slow" $(or $(TESTS),tests)
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage report

demo: install
	@tools/system_deps.sh demo --if-root
	$(RUN) -m demo $(if $(KEEP),--keep) $(if $(BROKERS),--brokers $(BROKERS)) $(ARGS)

# The picture of the README: the demo's table once a killed leader has been replaced.
picture: install
	$(RUN) -m demo --brokers 3 --picture docs/images/demo-table.svg

# CLUSTER=1: three nodes beside three of Apache Kafka. SCALE=1: the metadata of hundreds of brokers.
# CORES=1: several brokers on this machine over one. SECURITY=1: what TLS and ACLs cost, and what others notice of attacks
# (ARGS=--attacks for these alone, five minutes). Whether a failed login's time says who exists: python -m bench.login_times
bench: install
	$(RUN) -m bench $(if $(CLUSTER),--cluster) $(if $(SCALE),--scale) $(if $(CORES),--cores) $(if $(SECURITY),--security) $(ARGS)

# Needs Java and Maven; the first run installs the PySpark that Spark's own connector is made for, beside ours.
bench-spark: install
	$(RUN) -m bench.spark $(ARGS)

# A million mutated frames, and a million mutations of what is read before a login; the short ones are among the tests.
fuzz: install
	$(RUN) -m pytest -q tests/fuzz --fuzz-frames 1000000 --fuzz-logins 1000000

# Kill -9 under load, 20 times among the tests; make crash KILLS=300 for more. CLUSTER=1: the nodes of a cluster, 10
# times among the tests.
crash: install
	$(RUN) -m pytest -q $(if $(CLUSTER),tests/durability/test_cluster_kill.py --cluster-kills $(or $(KILLS),100),tests/durability/test_kill.py tests/durability/test_stop.py --kills $(or $(KILLS),300))

# The tests of what changed since a commit, ten times with every core busy: make flaky SINCE=main~5. Before a change lands.
flaky: install
	$(RUN) -m tools.flaky --since $(or $(SINCE),HEAD~1) $(if $(ROUNDS),--rounds $(ROUNDS)) -- $(ARGS)

# Minutes long: clusters of ours and Apache Kafka's, every node leading everything once; clients in Go, Rust and Node too,
# which it builds.
soak: install
	@$(RUN) -m tests.peers.programs
	@$(RUN) -m tests.peers.gssapi_package
	@if command -v mvn >/dev/null && command -v java >/dev/null; then $(RUN) tests/peers/jars.py streams; fi
	$(RUN) -m pytest -q --soak -m soak $(or $(TESTS),tests)

# Whole brokers in virtual time, every kind of run (python -m headrace.sim --help lists them). make sim SEEDS=1-10000 for more, KIND=--cluster for
# one of them. python -m headrace.sim --cluster --seed 7 --story tells what happens in a seed that fails, with as few of its faults as still break
# something.
sim: install
	@for kind in $(or $(KIND),"" --log --moving --loads --cluster --replicas --roles --apart --dynamic --raised --transactions --grouped --consumers --clients --guarded --encrypted --deleting --failing --unclean --quorum --sink); do \
		$(RUN) -m headrace.sim $$kind --seeds $(or $(SEEDS),1-500) || exit 1; \
	done

# Small changes of the pure packages that no test and no seed notices; a later run goes on with what an earlier one knows.
# make mutate MINUTES=30; the report alone without MINUTES.
mutate: install
	$(RUN) -m headrace.sim mutate --ledger $(or $(LEDGER),tests/sim/mutate/ledger.jsonl) --minutes $(or $(MINUTES),0) $(ARGS)

lock: install
	$(RUN) -m pip install --quiet pip-tools
	$(RUN) tools/lock.py

# sdist, pure wheel and a manylinux wheel for each Python here, and sdist and wheel of headrace-pipelines, in dist/, checked;
# the same commit gives the same bytes.
# make dist PYTHONS="3.11 3.13" for these alone.
dist: install
	$(RUN) -m tools.dist $(PYTHONS)

# The container image, from the wheels of make dist, by buildah. BASE=debian: from this machine's mirror, as root, where
# no image can be pulled.
image: dist
	$(RUN) -m tools.image $(if $(BASE),--base $(BASE))

# What the wheel of this version needs, with versions, hashes and licences: CycloneDX, in dist/.
sbom: install
	$(RUN) -m tools.sbom

system-deps:
	@tools/system_deps.sh

clean:
	rm -rf $(VENV) build dist src/*.egg-info .peers demo-out
