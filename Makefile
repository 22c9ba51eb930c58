# Everything starts here. `make help` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# RocksDB takes minutes to compile and seconds to fetch from ccache. Every target has the same PATH, so nothing is built twice.
CCACHE := /usr/lib/ccache
export PATH := $(CCACHE):$(HOME)/.cargo/bin:$(PATH):/usr/sbin:/sbin
# A compiler is the same if its bytes are, not its date: a fresh system has the same one with another date.
export CCACHE_COMPILERCHECK := content

# Build, clippy and tests share the release profile: RocksDB is built once.
CARGO := cargo
BINARY := $(or $(CARGO_TARGET_DIR),target)/release/switchback
ARGS ?=
# The last commit whose program speaks version 8 of the control channel, and no other.
LAST_WITH_VERSION_8 := 6947f97

.PHONY: help setup run demo kills build deb image test fuzz soak nemesis upgrade redis-suite bench fmt clean

help: ## What there is
	@echo 'Switchback: an in-network write-back cache for key-value stores.'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'ARGS goes to the program:  make run ARGS="--scheme netcache --nodes 8"'

setup: ## Install what is missing (as root), or print the command that does
	@scripts/setup.sh run

run: setup ## Build, and start a rack: redis-cli -p 6380
	@$(CARGO) build --release --quiet -p switchback
	@exec $(BINARY) up --hints $(ARGS)

demo: setup ## See it: a rack under load, a console, and a key and a button that kill its switch
	@$(CARGO) build --release --quiet -p switchback
	@exec $(BINARY) demo $(ARGS)

kills: setup ## Kill the demo's switch KILLS (20) times under load, and fail if anything was lost
	@$(CARGO) build --release --quiet -p switchback
	@exec $(BINARY) demo --headless --kills '$(or $(KILLS),20)'

build: setup ## Build the product, switchback, and the laboratory, which "switchback lab" runs
	scripts/build.sh

deb: setup ## Make a Debian package; ARGS=test installs, upgrades and purges it in a clean system
	@$(CARGO) build --release --quiet -p switchback
	scripts/deb.sh $(ARGS)

image: setup ## Make an OCI image from packages of Debian: target/switchback.oci.tar
	@$(CARGO) build --release --quiet -p switchback
	contrib/oci/image.sh $(ARGS)

test: ## Set up, and pass every test
	@scripts/setup.sh test
	@scripts/test.sh

fuzz: ## Fuzz every target for SECONDS (60) each
	@SECONDS_EACH='$(or $(SECONDS),60)' scripts/fuzz.sh

soak: setup ## Simulate seed after seed until stopped, for SECONDS_MAX, or SEEDS of them
	@ARGS='$(ARGS)' scripts/soak.sh

nemesis: build ## Kill, pause and cut off parts of racks for SECONDS (600) each, and check what clients saw; as root
	@SWITCHBACK='$(abspath $(BINARY))' NEMESIS_SECONDS='$(or $(SECONDS),600)' tests/e2e/nemesis.sh

upgrade: build ## Replace each part of a rack under load that a program of an older commit began; OLD=COMMIT
	@OLD='$(or $(OLD),$(LAST_WITH_VERSION_8))' SWITCHBACK='$(abspath $(BINARY))' tests/e2e/two_builds.sh

redis-suite: setup ## Pass the listed tests of Redis' own suite, with "refuse" and "batch"; REDIS_SOURCE=DIR of 7.0.15
	@$(CARGO) build --release --quiet -p switchback
	@REDIS_SOURCE='$(REDIS_SOURCE)' SWITCHBACK='$(abspath $(BINARY))' tests/redis_suite.sh $(ARGS)

bench: setup ## Measure every scheme beside its limit
	@$(CARGO) build --release --quiet -p switchback
	@exec $(BINARY) bench $(ARGS)

fmt: ## Format Rust and C
	$(CARGO) fmt --all
	cd datapath && clang-format-19 -i *.h *.c tests/*.c

clean: ## Remove what was built
	$(CARGO) clean
