# Every recipe sets itself up first: scripts/setup installs what is missing, and says so.

# rustup puts cargo here, and a shell that was open before set-up does not know it yet.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

TARGET := $(or $(CARGO_TARGET_DIR),target)
MANYWAYS := $(TARGET)/release/manyways

.PHONY: help release demo test check lint soak bench
.DEFAULT_GOAL := help

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

release: ## Build the binary for use: target/trained/manyways (two builds; reads captures faster)
	@scripts/setup release
	@scripts/release

demo: ## Fetch a file over emulated Wi-Fi and LTE, and write report.html (needs root)
	@scripts/setup demo
	cargo build --release -p manyways-cli
	$(MANYWAYS) demo

test: ## Run all tests, also those in network namespaces (as root); GROUP=pure|net|root|python: one group
	@scripts/setup test
	@scripts/test $(GROUP)

check: ## Check what changed since the last check, in minutes: before each commit
	@scripts/setup check
	@scripts/setup test
	@scripts/check

lint: ## Check format, lints, docs, layers, licences and shell scripts
	@scripts/setup lint
	@scripts/lint

soak: ## Run 100,000 random scenarios of the cores of bond (COUNT=N: another number); continues after a kill
	@scripts/setup release
	@scripts/soak $(COUNT)

bench: ## Measure the emulator, get, bond, its gateway and lenders, flows, probe, films and pages, replay, steer and radio beside their rivals (BENCH=full: all; BEFORE=FILE: the gateway beside an earlier manyways); rewrites docs/benchmarks/ (needs root)
	@scripts/setup bench
	cargo build --release -p manyways-cli -p manyways-bench
	@scripts/release
	mkdir -p bench/results docs/benchmarks
	$(MANYWAYS) lab bench --json bench/results/lab.json --markdown docs/benchmarks/lab.md
	$(TARGET)/release/manyways-bench rattan --json bench/results/lab-rattan.json --markdown docs/benchmarks/lab-rattan.md
	$(TARGET)/release/manyways-bench get --json bench/results/get.json --markdown docs/benchmarks/get.md
	$(TARGET)/release/manyways-bench bond --json bench/results/bond.json --markdown docs/benchmarks/bond.md
	$(TARGET)/release/manyways-bench gateway $(if $(BEFORE),--before $(BEFORE)) --json bench/results/gateway.json --markdown docs/benchmarks/gateway.md
	$(TARGET)/release/manyways-bench lend --json bench/results/lend.json --markdown docs/benchmarks/lend.md
	$(TARGET)/release/manyways-bench probe --json bench/results/probe.json --markdown docs/benchmarks/probe.md
	$(TARGET)/release/manyways-bench qoe --json bench/results/qoe.json --markdown docs/benchmarks/qoe.md
	MANYWAYS_PYTHON=$$(scripts/scikit-learn) $(TARGET)/release/manyways-bench steer --json bench/results/steer.json --markdown docs/benchmarks/steer.md
	$(TARGET)/release/manyways-bench radio --json bench/results/radio.json --markdown docs/benchmarks/radio.md
	$(TARGET)/release/manyways-bench replay --json bench/results/replay.json --markdown docs/benchmarks/replay.md
	$(TARGET)/release/manyways-bench flows --manyways $(TARGET)/trained/manyways --untrained $(MANYWAYS) --json bench/results/flows.json --markdown docs/benchmarks/flows.md
