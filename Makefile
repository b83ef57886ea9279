# Recipes for people and for continuous integration; `make` lists them.
# A Rust toolchain and Python 3.11 or later are all that a machine must have. Everything else is
# installed into .venv by pip and built by cargo, as python/pyproject.toml and Cargo.toml say.

PYTHON ?= python3
# Where `make install` puts the C library; DESTDIR is for those who make packages.
PREFIX ?= /usr/local
DESTDIR ?=
# Which C libraries it installs: "shared", "static" or both.
LIBS ?= shared static
STAGE ?=
NAME ?=
# "night" for the tests as well that no change of the engine breaks, and for more of the others.
EFFORT ?=
ARGS ?=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.SUFFIXES:
.DELETE_ON_ERROR:

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
# One interpreter for every build of the bindings: a change of it would build them again.
export PYO3_PYTHON := $(BIN)/python
export PYTHONDONTWRITEBYTECODE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
# The same random cases in every run, so that a change is judged by what it changed; to look further,
# make test-rust PROPTEST_RNG_SEED=$$RANDOM PROPTEST_CASES=20000.
export PROPTEST_RNG_SEED ?= 20261121
CARGO := cargo --locked
# Where cargo puts what it builds.
BUILT := $(or $(CARGO_TARGET_DIR),target)
MATURIN := cd python && VIRTUAL_ENV=$(VENV) PATH=$(BIN):$$PATH BEDFORM_BUILT=$(abspath $(BUILT))/release \
	$(BIN)/maturin develop --release --locked --quiet
STEP := $(BIN)/python tools/step.py
is-night := $(filter night,$(EFFORT))
DESELECTED := not reliability and not xarray_suite$(if $(is-night),, and not night)
BUILD_TOOL := env -u PYO3_PYTHON $(CARGO) build --release --quiet -p bedform-tool
# The libraries that the Python package carries (python/build.rs).
BUILD_LIBRARIES := env -u PYO3_PYTHON $(CARGO) build --release --quiet \
	-p bedform-preload -p bedform-vol -p bedform-capi
# One kind of library more than Cargo.toml names, so that other builds do not pay for it. The linker options
# that programs need go into a file, for pkg-config.
BUILD_CAPI_STATIC := env -u PYO3_PYTHON $(CARGO) rustc --release --quiet -p bedform-capi --lib \
	--crate-type staticlib -- --print native-static-libs=$(abspath $(BUILT))/release/bedform-static-libs \
	2> >(grep -v "^note: native artifacts\|^$$" >&2)
INSTALL_INTO := sh crates/bedform-capi/install/install.sh
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates vol python/src python/build.rs python/Cargo.toml \
	-name '*.rs' -o -name '*.[ch]' -o -name 'Cargo.toml')

.PHONY: help
help: ## List these recipes
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(STAMPS)/build ## Create .venv, install what is needed, build and install Bedform

.PHONY: build
build: $(STAMPS)/build ## Build the extension again where Rust sources changed

.PHONY: wheel
wheel: $(STAMPS)/venv ## Build a wheel of the Python package in build/
	@$(BUILD_LIBRARIES)
	@cd python && BEDFORM_BUILT=$(abspath $(BUILT))/release PATH=$(BIN):$$PATH $(BIN)/maturin build --release --locked --quiet --out $(CURDIR)/build

.PHONY: demo
demo: $(STAMPS)/build ## Make the reads of a real file fast: `make demo ARGS='--size 256MiB'`
	@$(BIN)/bedform demo $(ARGS)

.PHONY: test
test: test-style test-rust test-python ## Run every test, lint and doc example

.PHONY: test-style
test-style: $(STAMPS)/build ## Check formatting, lints, types, licences, words
	@$(STEP) "cargo fmt" -- cargo fmt --all --check
	@$(STEP) "cargo clippy" -- $(CARGO) clippy --release --workspace --all-targets -- -D warnings
	@$(STEP) "cargo doc" -- env RUSTDOCFLAGS="-D warnings" \
		$(CARGO) doc --release --workspace --no-deps --quiet
	@$(STEP) "cargo lock of fuzz" -- cargo tree --locked --quiet --depth 0 --manifest-path fuzz/Cargo.toml
	@$(STEP) "licences" -- $(BIN)/python tools/licences.py
	@$(STEP) "modules" -- $(BIN)/python tools/modules.py
	@$(STEP) "words" -- $(BIN)/python tools/words.py
	@$(STEP) "ruff check" -- $(BIN)/ruff check python tools benchmarks examples
	@$(STEP) "ruff format" -- $(BIN)/ruff format --check python tools benchmarks examples
	@cd python && $(BIN)/python ../tools/step.py "mypy --strict" -- $(BIN)/mypy

.PHONY: test-rust
test-rust: $(STAMPS)/build ## Run the Rust tests and doc examples
	@$(STEP) "cargo test" -- $(CARGO) test --release --workspace --quiet

.PHONY: test-python
test-python: $(STAMPS)/build ## Run the Python tests and the examples of the guide
	@$(STEP) "build of its program" -- $(BUILD_TOOL)
	@$(STEP) "build of the static C library" -- $(BUILD_CAPI_STATIC)
	@cd python && $(if $(is-night),BEDFORM_EFFORT=night) $(BIN)/python ../tools/step.py "pytest" -- \
		$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "$(DESELECTED)" $(ARGS)

.PHONY: xarray-suite
xarray-suite: $(STAMPS)/build ## Run all of xarray's own tests of its engines against the engine bedform
	@$(BIN)/pip install "scipy>=1.13"
	@cd python && $(BIN)/python -m pytest -q tests/test_xarray_files.py tests/test_xarray_suite.py $(ARGS)

.PHONY: reliability
reliability: $(STAMPS)/build ## Run the fault, crash and hostile-input stages: STAGE=NAME, EFFORT=night
	@$(BIN)/python tools/reliability.py $(STAGE)

.PHONY: bench
bench: $(STAMPS)/bench ## Run the benchmarks, or one of them: NAME=zarr-read
	@$(BIN)/python -m benchmarks $(or $(NAME),all) $(ARGS)

.PHONY: docs
docs: $(STAMPS)/build ## Build the Rust API pages and run the examples of the guide
	@$(CARGO) doc --release --workspace --no-deps
	@cd python && $(BIN)/python -m pytest -q tests/test_documents.py

.PHONY: install
install: ## Install the C libraries, headers, Fortran sources, and `bedform`: PREFIX=/usr/local
	@command -v cargo >/dev/null || { echo "make: cargo not found: install a Rust toolchain" >&2; exit 1; }
	@[[ "$(strip $(LIBS))" =~ ^(shared|static|shared static|static shared)$$ ]] || { \
		echo 'make: LIBS must be "shared", "static" or "shared static", not "$(LIBS)"' >&2; exit 1; }
	@$(if $(filter shared,$(LIBS)),$(BUILD_LIBRARIES))
	@$(if $(filter static,$(LIBS)),$(BUILD_CAPI_STATIC))
	@$(BUILD_TOOL)
	@$(INSTALL_INTO) $(BUILT)/release "$(DESTDIR)$(PREFIX)" $(LIBS)

.PHONY: clean
clean: ## Remove everything that was built or installed here
	rm -rf target .venv python/bedform/*.so python/bedform/hdf5_plugin fuzz/target bench-data build

# One clear line each, before anything is made.
define need-toolchain
	@command -v cargo >/dev/null || { \
		echo "make: cargo not found: install a Rust toolchain (1.89 or later) and put cargo on PATH" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: $(PYTHON) is missing, older than 3.11 or without venv: name a better one, make PYTHON=python3.12" >&2; \
		exit 1; }
endef

$(STAMPS)/venv: python/pyproject.toml
	$(need-toolchain)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@echo "-- setting up $(VENV)"
	@$(BIN)/pip install "maturin>=1.9,<2"
	@touch $@

$(STAMPS)/install: $(STAMPS)/venv
	@echo "-- building and installing Bedform (the first time takes minutes)"
	@$(BUILD_LIBRARIES)
	@$(MATURIN) --extras dask,demo,test
	@touch $@

$(STAMPS)/build: $(STAMPS)/install $(RUST_SOURCES)
	$(need-toolchain)
	@$(BUILD_LIBRARIES)
	@$(MATURIN) --skip-install
	@touch $@

$(STAMPS)/bench: $(STAMPS)/build
	@$(MATURIN) --extras dask,demo,test,plots,bench
	@touch $@
