# The only set-up a fresh machine needs is python3.11 to 3.13 and make. With `uv` on the PATH, uv is used.
PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml hatch_build.py $(wildcard engine/native/*.[ch]) # what an editable installation is made from
AREA ?= all
RUNS ?= 2000
SEED ?= 1
MINUTES ?= 30
SECONDS ?= 60
FORGED ?= 100000
STARTS ?= 15
NODES ?= 200
TO ?= build/pictures

ifneq ($(shell command -v uv 2>/dev/null),)
INSTALL := uv pip install --python $(BIN)/python --quiet
else
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# Tests and benchmarks start hundreds of processes; without their byte code each compiles all modules, for 1 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all again check suite style types rules compilers wheels older foreign faults sim chaos soak fuzz forge bench docs pictures screenshots clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "make: no python3.11, 3.12 or 3.13 found; install one or set PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.demo: $(VENV)/.made $(SOURCES)
	@echo "Installing ospltool, Cyclone DDS and the console into $(VENV), once; this takes about a minute ..."
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.made $(SOURCES)
	$(INSTALL) --editable '.[all]' --group dev
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo ## Three nodes, one command: durable data on real Cyclone DDS
	$(BIN)/ospltool demo

check: $(VENV)/.dev ## Style, types, the layers of the house and its small rules
	@$(MAKE) --no-print-directory --jobs 2 style types rules

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.hygiene.measures

types:
	$(BIN)/mypy

rules:
	$(BIN)/python -m pytest -q -n 2 tests/hygiene

# Tests that start processes wait more than they compute: four workers, and the rules, keep two processors busy.
BEFORE_A_COMMIT = -m 'not slow' --hypothesis-profile quick

test: $(VENV)/.dev ## What to run before each commit: the rules, and the tests that are not slow
	@$(MAKE) --no-print-directory --jobs 3 --keep-going style types suite CHOICE="$(BEFORE_A_COMMIT)"

test-all: $(VENV)/.dev ## What to run before a release and each night: the rules and all tests
	@$(MAKE) --no-print-directory --jobs 3 --keep-going style types suite

suite:
	$(BIN)/python -m pytest -n 4 --dist worksteal $(CHOICE) || { [ $$? -eq 1 ] && $(AGAIN); }

again: # what failed beside the others, once more and alone
	$(AGAIN)

define AGAIN # not by $(MAKE): a line that names it is run even by `make -n`
{ $(BIN)/python -m pytest $(CHOICE) --last-failed --last-failed-no-failures none --maxfail 3 --verbose -rpfE; code=$$?; \
  echo "Each test that is PASSED here failed beside others: a defect, of the test or of the code."; exit $$code; }
endef

compilers: $(VENV)/.dev ## The compiled library: built with the compiler of the package index, and run on other processors (needs the package index)
	OSPLTOOL_COMPILERS=1 $(BIN)/python -m pytest tests/unit/native

OLDER = $(VENV)/older
OLDER_PACKAGES = libddsc0debian libiceoryx-binding-c2 libiceoryx-posh2 libiceoryx-hoofs2 libiceoryx-platform2

$(OLDER)/.made: # unpacked here, not installed
	mkdir -p $(OLDER) && cd $(OLDER) && apt-get download $(OLDER_PACKAGES) && for one in *.deb; do dpkg -x $$one . || exit 1; done
	@touch $@

wheels: $(VENV)/.dev ## In dist: a wheel for x86-64, one for aarch64, and the sources (needs the package index)
	for processor in x86_64 aarch64; do \
	  OSPLTOOL_WHEEL=$$processor OSPLTOOL_NATIVE=strict $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . || exit 1; \
	done
	$(BIN)/python -m hatchling build --target sdist --directory dist

older: $(VENV)/.dev $(OLDER)/.made ## Applications on Cyclone DDS 0.10 beside nodes on 11 (needs Debian 12's package index)
	OSPLTOOL_OLDER=$(abspath $(OLDER)) $(BIN)/python -m pytest tests/integration/test_older_applications.py

FOREIGN = $(VENV)/foreign
FOREIGN_PYTHON ?= python3.11 # the packages of ROS 2 need this one

$(FOREIGN)/%/.made: # an environment for each, so that their libraries do not meet
	$(FOREIGN_PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check $(PACKAGES)
	@touch $@
$(FOREIGN)/ros/.made: PACKAGES = 'ros-rclpy[fastrtps]==9.1.2' ros-std-msgs==5.5.1 ros-fastdds==3.2.3
$(FOREIGN)/zero/.made: PACKAGES = zerodds==1.0.0rc3
$(FOREIGN)/dust/.made: PACKAGES = dust-dds==0.16.0

$(FOREIGN)/ros/foreign: tests/integration/foreign.cpp $(FOREIGN)/ros/.made
	$(CXX) -std=c++17 -I$(FOREIGN)/ros/include -o $@ $< -L$(FOREIGN)/ros/lib -Wl,--allow-shlib-undefined \
	  -lfastdds -lfastcdr -lpthread

foreign: $(VENV)/.dev $(FOREIGN)/ros/foreign $(FOREIGN)/zero/.made $(FOREIGN)/dust/.made ## Applications on Fast DDS, ROS 2, zerodds and dust-dds beside nodes (needs python3.11, g++ and root)
	unshare --net sh -c 'ip link set lo up multicast on && ip route add 224.0.0.0/4 dev lo && \
	  OSPLTOOL_FOREIGN=$(abspath $(FOREIGN)) $(BIN)/python -m pytest tests/integration/test_foreign_applications.py'

faults: $(VENV)/.dev ## Faults on real nodes: health names each of them in time, once, and sees it end (STARTS=15)
	OSPLTOOL_FAULTS=1 STARTS=$(STARTS) $(BIN)/python -m pytest -s tests/integration/test_health_faults*.py

sim: $(VENV)/.dev ## Thousands of simulated systems with faults (RUNS=2000 SEED=1)
	$(BIN)/ospltool simulate --runs $(RUNS) --seed $(SEED)

chaos: $(VENV)/.dev ## Real nodes under seeded faults, in network namespaces (MINUTES=30 SEED=1)
	$(BIN)/python -m chaos --minutes $(MINUTES) --seed $(SEED)

soak: $(VENV)/.dev ## Readers on four hosts under random cuts: all agree in the end (MINUTES=30 SEED=1)
	$(BIN)/python -m chaos --soak $(MINUTES) --seed $(SEED)

fuzz: $(VENV)/.dev ## Damaged files and messages for every reader of foreign bytes (SECONDS=60 SEED=1 TALLY=FILE)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED) $(if $(TALLY),--tally $(TALLY))

forge: $(VENV)/.dev ## Two nodes with a secret, and 100,000 messages of one who does not know it (FORGED=100000)
	OSPLTOOL_FORGED=$(FORGED) $(BIN)/python -m pytest --timeout 3600 tests/adversary/test_secret.py -k forged

bench: $(VENV)/.dev ## Figures, side by side in one run (AREA=start|crowd|capture|large|trickle|deliver|topics|history|million|alive|align|merge|reconcile|sets|store|simulator|trace|fleet|console|redundancy)
	$(BIN)/python -m benchmarks --area $(AREA)

docs: $(VENV)/.dev ## The documents as a site with checked links, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pictures: $(VENV)/.dev ## Every screen over a large simulated system, to look at (NODES=200 TO=build/pictures)
	$(BIN)/python -m tests.pictures --nodes $(NODES) --to $(TO)

screenshots: $(VENV)/.dev ## The pictures of the README, from the running demo
	$(BIN)/python samples/screenshots.py
	$(BIN)/python samples/moving_picture.py

clean: ## Remove what make made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
