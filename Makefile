# Two commands do all the set-up: `make demo` and `make test`.
CARGO ?= cargo
RELEASE := target/release/margay
PYTHON ?= python3
# Where the public conformance cases lie, with their runner.
CONFORMANCE_CASES ?= $(wildcard ../shared/conformance)

.PHONY: demo test test-live build setup lint unit doc deny conformance fuzz-replay fuzz agreement bench bench-rules clean help

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the system packages that are missing
	@tools/setup

build: setup ## build for release
	$(CARGO) build --release --locked

demo: build ## run the engine on a small capture and show what it found
	@tools/demo $(RELEASE)

lint: setup ## formatting, lints, licences
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

unit: setup ## unit, integration and property tests
	$(CARGO) test --workspace --locked --quiet

doc: setup ## documentation without a warning
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

deny: ## licences and advisories of every dependency
	@tools/deny

conformance: build ## the public cases that should pass, and the list of those that do not
	@tools/conformance $(RELEASE) "$(CONFORMANCE_CASES)"

fuzz-replay: setup ## every file of the fuzz corpora through its target
	@$(CARGO) test --release --locked --quiet --package margay-fuzz-replay

test: lint unit doc deny build fuzz-replay conformance ## everything that must pass
	@echo "make test: all passed"

test-live: setup ## live capture in network namespaces; needs root (a part of unit)
	$(CARGO) test --locked --quiet --package margay-capture --test af_packet
	$(CARGO) test --locked --quiet --package margay --test live

agreement: build ## alerts and events of real captures beside Suricata's; AGREEMENT_FLAGS="--show 2 --only 'dns*'" …
	@tools/agreement $(RELEASE) $(AGREEMENT_FLAGS)

fuzz: ## fuzz each target for FUZZ_SECONDS (default 600); needs a nightly toolchain and cargo-fuzz
	@tools/fuzz $${FUZZ_SECONDS:-600}

bench: build ## speed, start and memory beside Suricata's, on an idle machine; BENCH_FLAGS="--only mix --pairs 1"
	@tools/bench $(RELEASE) $(BENCH_FLAGS)

bench-rules: ## time and memory of loading made-up rules; BENCH_RULES="10000 100000 1000000"
	@tools/bench-rules $(RELEASE) $(BENCH_RULES)

clean: ## remove what was built
	$(CARGO) clean
