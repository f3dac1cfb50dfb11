# make setup   a virtual environment with PyTorch, a PJRT plugin and this package built from source
# make demo    trains and runs three small models on tpu and on cpu, and compares them
# make test    everything that CI checks
# make conformance   sweeps over PyTorch's databases of operators, modules and optimizers, special values, and transformers, that take long
# make aot-large   asks whether large models fit TPUs that aren't there; an hour or more, skipped without libtpu
# make aot-check   compiles every operator's programs for three TPUs that aren't there; installs libtpu
# make bench   measures this project beside its peers and writes docs/performance.md, which tells how peers are given
# make bench-quick   measures a little and prints it
PYTHON ?= python3
TORCH ?= torch==2.13.0
JOBS ?= 2
JAX_PYTHON ?=
REF_PYTHON ?=
REF_ENV ?=
BENCH ?=

VENV := .venv
PY := $(VENV)/bin/python
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

SOURCES := $(shell find csrc -name '*.[ch]' -o -name '*.cpp' -o -name CMakeLists.txt) CMakeLists.txt pyproject.toml

.PHONY: setup demo test test-core test-python conformance aot-check aot-large bench bench-quick wheel docs clean help
help:
	@sed -n 's/^# make/make/p' Makefile

setup: $(VENV)/.built

$(VENV)/.created:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or later is needed: make setup PYTHON=..."'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created requirements-dev.txt requirements-nodeps.txt
	$(PY) -m pip install -q '$(TORCH)' -r requirements-dev.txt
	$(PY) -m pip install -q --no-deps -r requirements-nodeps.txt
	@touch $@

# An editable install: Python files are used where they are, the module is built into the environment.
$(VENV)/.built: $(VENV)/.installed $(SOURCES)
	$(PY) -m pip install -q --no-build-isolation --no-deps -e .
	@touch $@

demo: setup
	$(PY) examples/demo.py

test: setup
	@$(MAKE) --no-print-directory test-core
	@$(MAKE) --no-print-directory test-python

# The core's tests: as it is and on real plugins too, then with address and undefined-behaviour checks, then with race
# checks (both on the mock plugin alone, since plugins are not built with such checks).
test-core: $(VENV)/.installed
	@mkdir -p build; site=$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	plugins=$$(cd $$site && ls -d $$PWD/lammps_jax_pjrt_cpu/*.so $$PWD/fastatomstruct_xla_cpu/*.so | paste -sd:); \
	for sanitize in '' address,undefined thread; do \
	  dir=build/core-$${sanitize%%,*}; test -n "$$sanitize" && plugins=; \
	  echo "== core tests, sanitizers: $${sanitize:-none}"; \
	  { cmake -S csrc -B $$dir -G Ninja -DTT_BUILD_TESTS=ON -DTT_SANITIZE=$$sanitize -DTT_TEST_PLUGINS=$$plugins \
	      -DTT_PJRT_HEADER=$$(find $$site -name pjrt_c_api.h | head -n 1) && cmake --build $$dir; } >build/core.log 2>&1 \
	    || { cat build/core.log; exit 1; }; \
	  ctest --test-dir $$dir --output-on-failure || exit 1; \
	done

test-python: setup
	$(PY) -m pytest tests

SWEEPS := $(addprefix tests/test_,operator_database.py module_database.py optimizer_database.py foreach_database.py memory_formats.py \
  special_values.py bounded_sizes.py transformers_sizes.py gradcheck.py differential.py faults.py)
conformance: setup
	TORCH_TPU_TEST_EVERYTHING=1 $(PY) -m pytest $(SWEEPS)
	$(PY) tests/operator_data.py build/conformance

aot-large: setup
	TORCH_TPU_TEST_LARGE=1 $(PY) -m pytest -s tests/test_aot_large.py

AOT_PROGRAMS := build/aot/programs
AOT_KNOWN := build/aot/known.json
AOT_DTYPES := $(addprefix --dtype ,float32 float64 float16 bfloat16 int64 int32 bool complex64)
aot-check: setup
	$(PY) -m pip install -q libtpu
	rm -rf $(AOT_PROGRAMS)
	$(PY) -m torch_tpu aot programs $(AOT_PROGRAMS) $(AOT_DTYPES)
	-$(PY) -m torch_tpu aot check $(AOT_PROGRAMS) --cache $(AOT_KNOWN) --jobs $(JOBS)
	$(PY) tests/operator_data.py --tpu $(AOT_PROGRAMS) $(AOT_KNOWN)

FLOOR := build/bench/bench/floor
RUN_BENCH = $(PY) bench/run.py --floor $(FLOOR) --jax-python '$(JAX_PYTHON)' --reference-python '$(REF_PYTHON)' --reference-env '$(REF_ENV)'

$(FLOOR): $(VENV)/.installed $(SOURCES) bench/floor.c bench/CMakeLists.txt
	@mkdir -p build
	@{ cmake -S csrc -B build/bench -G Ninja -DTT_BUILD_BENCH=ON && cmake --build build/bench --target floor; } >build/bench.log 2>&1 \
	|| { cat build/bench.log; exit 1; }

bench: setup $(FLOOR)
	$(RUN_BENCH) --report docs/performance.md $(BENCH)

bench-quick: setup $(FLOOR)
	$(RUN_BENCH) --quick --results build/bench/quick.json $(BENCH)

wheel: $(VENV)/.installed
	$(PY) -m pip wheel --no-build-isolation --no-deps -w dist .

docs: setup
	$(PY) docs/generate.py
	$(PY) -m pip install -q mkdocs==1.6.1
	$(PY) -m mkdocs build --strict

clean:
	rm -rf build dist site docs/generated $(VENV)
