# Two commands do all the set-up: `make demo` and `make test`.
CARGO ?= cargo
RELEASE := target/release/margay
# What lints and tests have beyond the default features, and packages too. A plain build has no Kafka: its library would cost every start 2 ms.
FEATURES ?= --features margay/kafka
# Whose benchmarks `make micro` runs.
MICRO_FLAGS ?= $(foreach c,packet capture flow stream json output detect,--bench '*' -p margay-$(c))
PYTHON ?= python3
# What `make lab-experiments` runs, and where to.
EXPERIMENTS ?= $(wildcard lab/experiments/*.yaml)
LAB_OUT ?= out/lab
# How many conversations `make hosts` holds in each mode, and which (docs/hosts.md).
HOSTS_FLAGS ?= --count 1000000
# Where the public conformance cases lie, beside their runner; the crates' tests look there too.
CONFORMANCE_CASES ?= $(wildcard ../shared/conformance/cases)

# Tests and tools add a line here for each test that cannot run where they are; `make test` ends with what it comes to.
NOT_RUN := $(CURDIR)/target/not-run
export MARGAY_NOT_RUN = $(NOT_RUN)
# Programs that tests use beside the engine.
TEST_PACKAGES := suricata-update ethtool groff zsh fish redis-server rsyslogd openssl prometheus chromium

# How flows come to workers (docs/parallel.md).
SCHEDULERS ?= adaptive hash shortest-queue

# Targets with a description make no file of their name.
.PHONY: begin $(shell sed -nE 's/^([a-z-]+):.*## .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the system packages that are missing
	@tools/setup

build: setup ## build for release
	$(CARGO) build --release --locked --package margay

# Where `make install` puts things; DESTDIR is a root to put them below. PACKAGE is where packages go.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
PACKAGE ?= target/package
# What is installed (make install BINARY=…), and what packages hold: a sensor has no laboratory.
BINARY ?= $(RELEASE)
SENSOR := --no-default-features --features mimalloc,kafka
INSTALL = DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" BINARY="$(BINARY)" packaging/install

install: ## install what `make build` built below PREFIX (/usr/local), settings below SYSCONFDIR (/etc): docs/install.md
	@$(INSTALL)

uninstall: ## remove what `make install` installed, but for settings that were changed
	@$(INSTALL) --remove

sensor: setup ## build for release without the laboratory
	$(CARGO) build --release --locked --package margay $(SENSOR)

package: sensor ## a Debian package, in PACKAGE (target/package)
	@tools/setup dpkg-shlibdeps:dpkg-dev
	@packaging/deb $(BINARY) $(PACKAGE)

package-test: sensor ## the package built, checked by lintian, and in a clean Debian root installed, run, upgraded, purged; needs root
	@tools/package-test $(BINARY) $(PACKAGE)

tarball: sensor ## the program with its files, to be unpacked anywhere, in PACKAGE
	@packaging/tarball $(BINARY) $(PACKAGE)

demo: build ## run the engine on a small capture and show what it found
	@tools/demo $(RELEASE)

lint: ## formatting and lints, of the fuzz targets too
	@tools/setup lints
	$(CARGO) fmt --all --check
	@tools/check-portable
	@tools/check-house
	@tools/house-counts --check
	$(CARGO) clippy --workspace --all-targets --features margay-fuzz-replay/tools $(FEATURES) --locked -- -D warnings
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir target --no-default-features --locked -- -D warnings

unit: setup ## unit, integration and property tests
	@tools/setup $(TEST_PACKAGES)
	$(CARGO) test --workspace --locked --quiet --no-fail-fast $(FEATURES)

test-web: setup ## the live page in a browser, over a socket, and its metrics
	@tools/setup chromium prometheus
	$(CARGO) test --locked --package margay-watch --test web

test-watch: build ## Prometheus scrapes a running engine; what watching costs it (docs/watch.md)
	@tools/setup prometheus
	@$(PYTHON) tools/watch $(RELEASE)

doc: setup ## documentation without a warning
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

deny: ## licences, sources and bans of every dependency; advisories where their database can be fetched
	@tools/deny

conformance: build ## the public cases that should pass, and the list of those that do not
	@tools/conformance $(RELEASE) "$(CONFORMANCE_CASES)"
	@tools/conformance $(RELEASE) "$(CONFORMANCE_CASES)" protocols

conformance-autofp: build ## the same with three workers, by every scheduler
	@for s in $(SCHEDULERS); do echo "$$s, three workers:"; tools/conformance --autofp $$s:3 $(RELEASE) "$(CONFORMANCE_CASES)" || exit; done

hosts: build ## random conversations with this machine's TCP/IP stack behind the engine: what it reads was inspected (docs/hosts.md; needs root, ten minutes)
	$(CARGO) build --release --locked --quiet --package margay-hosts
	target/release/margay-hosts $(HOSTS_FLAGS)

peers: build ## odd HTTP, mail and TLS read by programs that users run: what they read was seen (docs/peers.md). PEERS_FLAGS="--only mail --seed 2"
	@tools/setup nginx go node curl openssl python3-venv
	@test -x target/peers/venv/bin/python || { $(PYTHON) -m venv target/peers/venv && target/peers/venv/bin/pip install -q 'urllib3>=2,<3' brotli; }
	$(PYTHON) tools/peers $(RELEASE) $(PEERS_FLAGS)

peers-quick: build ## each odd thing once, with those of these programs that are installed (a part of test)
	@tools/setup openssl
	@$(PYTHON) tools/peers $(RELEASE) --quick

differential: build ## generated rules beside what Suricata 8.0.6 makes of them, held to conformance/differential.txt; DIFFERENTIAL="--show 50"
	@tools/differential $(RELEASE) $(DIFFERENTIAL)

events: build ## every event of real captures beside what Suricata 8.0.6 writes, member by member, held to conformance/events.txt; EVENTS="--only 'dns*' --types tls"
	@tools/events $(RELEASE) $(EVENTS)

defence: build ## every sample of defence/ past the engine: what must stop is stopped by its rule, what must pass by none
	@tools/defence rules --check
	@tools/defence table --check
	@tools/defence test $(RELEASE)
	@tools/defence held-out $(RELEASE)

defence-captures: build ## every rule of defence/ on the real captures of ../shared: what they block there is an attack (defence/captures.txt)
	@tools/defence captures $(RELEASE) ../shared/captures/real

intercept: build ## attacks and ordinary requests of ../shared past the defence, by class, held to defence/figures.txt; INTERCEPT=--evasions
	@tools/intercept $(RELEASE) $(INTERCEPT)

fuzz-replay: setup ## every file of the fuzz corpora through its target
	@$(CARGO) test --release --locked --quiet --package margay-fuzz-replay --test corpus

instructions: build ## instructions of a small fixed run beside those accepted so far (bench/instructions.json)
	@tools/setup valgrind
	@tools/instructions $(RELEASE)

instructions-accept: build ## take what the run takes now as the accepted figures; the commit says why
	@tools/setup valgrind
	@tools/instructions $(RELEASE) --accept

adversarial: build ## what attacks on time and memory cost beside ordinary traffic, and their peak of memory; ADVERSARIAL="--only half-open"
	@tools/setup valgrind
	@tools/adversarial $(RELEASE) $(ADVERSARIAL)

adversarial-quick: build ## instructions of some of these attacks, on small captures; ADVERSARIAL="--only many-headers"
	@tools/setup valgrind
	@tools/adversarial $(RELEASE) --quick $(or $(ADVERSARIAL),--sample)

adversarial-accept: build ## take what attacks cost now as what they may cost; the commit says why
	@tools/setup valgrind
	@tools/adversarial $(RELEASE) --quick --accept

portable: setup ## no path for one kind of processor alone: the matching's tests, and the core cases, with the feature `portable`
	$(CARGO) clippy --locked --package margay-detect --features portable -- -D warnings
	$(CARGO) test --locked --quiet --package margay-detect --package margay --features margay/portable --lib --test rules --test transactions --test command
	@tools/conformance target/debug/margay "$(CONFORMANCE_CASES)" core

# Everything of `make test`. What measures, counts instructions or needs network namespaces runs alone or beside one other step.
ALONE := lint unit doc deny build fuzz-replay
BESIDE := conformance instructions adversarial-quick events differential defence peers-quick intercept
export MARGAY_STEPS = $(CURDIR)/target/steps

test: begin ## everything that must pass, what of it did not run, and how long each step took
	@tools/steps $(ALONE)
	@tools/steps --two $(BESIDE)
	@tools/steps portable
	@tools/steps --report
	@tools/not-run $(NOT_RUN)
	@echo "make test: all passed"

begin:
	@mkdir -p $(dir $(NOT_RUN)); rm -f $(NOT_RUN) $(MARGAY_STEPS)

# Python with Spark, for what is in fleet/.
FLEET := target/fleet/bin/python
target/fleet/installed: fleet/pyproject.toml
	@tools/setup python3-venv java
	$(PYTHON) -m venv target/fleet && target/fleet/bin/pip install -q -e './fleet[test]' && touch $@

test-fleet: build target/fleet/installed ## margay-fleet: hunts beside one engine, detectors, streams on Spark's local mode (docs/fleet.md); FLEET_TESTS="-k hunt"
	@MARGAY_ENGINE=$(CURDIR)/$(RELEASE) $(FLEET) -m pytest -q fleet/tests $(FLEET_TESTS)

demo-fleet: build target/fleet/installed ## a scan spread over three sensors, found by the fleet; then a hunt with a rule that came later
	@$(FLEET) fleet/demo.py $(RELEASE)

fresh: ## both commands of the README on a machine that has nothing: a Debian 12 root made anew; needs root. FRESH="--toolchain here"
	@tools/fresh $(FRESH)

test-live: setup ## live capture and the laboratory in network namespaces; needs root (a part of unit)
	$(CARGO) test --locked --quiet --package margay-capture --test af_packet --test af_xdp --test bridge --test ebpf --test nfqueue
	$(CARGO) test --locked --quiet --package margay --test live --test af_xdp --test bypass --test inline --test nfqueue --test service --test faults --test faults_inline
	$(CARGO) test --locked --quiet --package margay-lab --test wire --test tune

test-ansible: ## the role that installs and tunes sensors: lint, and a run in a namespace; root, ansible-core, ansible-lint
	cd ansible && ansible-lint
	$(CARGO) build --locked --package margay-lab
	ansible/roles/margay_sensor/tests/run target/debug/margay-lab

test-faults: setup ## faults under traffic, those tests too that take long; needs root
	$(CARGO) test --locked --quiet --package margay --test faults --test faults_inline
	$(CARGO) test --locked --quiet --package margay --test faults --test faults_inline -- --ignored --test-threads=2 long_

measure-harm: build ## downloads through the engine and through a bridge of the kernel's, in turn, over good and bad links; root, ten minutes
	MARGAY_BENCH_ENGINE=$(CURDIR)/$(RELEASE) $(CARGO) test --locked --quiet --package margay --test inline -- --ignored --nocapture measure_what

lab-experiments: build ## every experiment of lab/experiments in its quick form, into LAB_OUT (out/lab); root. LAB_FLAGS="-c my.yaml -S my.rules"
	@for e in $(EXPERIMENTS); do $(RELEASE) lab compare $$e --quick -o $(LAB_OUT)/$$(basename $$e .yaml) $(LAB_FLAGS) || failed=1; done; test -z "$$failed"

lab-lossless: build ## the highest rate without loss beside Suricata's, passive and inline; root, an idle machine; LAB_FLAGS="--quick --only passive --full"
	@tools/lab-lossless $(RELEASE) $(LAB_FLAGS)

agreement: build ## alerts and events of real captures beside Suricata's; AGREEMENT_FLAGS="--show 2 --only 'dns*'" …
	@tools/agreement $(RELEASE) $(AGREEMENT_FLAGS)

fuzz-seeds: ## seeds for the fuzz targets from captures, rules and lists; SEEDS="my.pcap folder"
	@tools/fuzz-seeds $(SEEDS)

fuzz: ## fuzz each target for FUZZ_SECONDS (default 600); needs a nightly toolchain. FUZZ_TARGETS="smb quic" FUZZ_JOBS=2
	@tools/fuzz $${FUZZ_SECONDS:-600}

sanitize: setup ## unit tests and core cases with memory and threads watched; needs a nightly toolchain. SANITIZE="address thread memcheck loom"
	@tools/sanitize $(SANITIZE)

bench: build ## speed, start and memory beside Suricata's, on an idle machine; BENCH_FLAGS="--only mix --pairs 1"
	@tools/bench $(RELEASE) $(BENCH_FLAGS)

bench-send: build ## the sender's packets flat out and its pacing beside tcpreplay's, over virtual interfaces; root. BENCH_SEND="--pairs 3 --only pace"
	@tools/setup tcpreplay tcpdump
	@tools/bench-send "$(RELEASE) lab" $(BENCH_SEND)

profile: build ## where time and instructions go: flame graph and tables; PROFILE_FLAGS="x.pcap --rules my.rules --packets"
	@tools/profile $(RELEASE) $(PROFILE_FLAGS)

micro: ## benchmarks of the parts: decoding, flows, reassembly, matching, JSON, reading; MICRO_FLAGS="-p margay-detect -- scan"
	$(CARGO) bench --locked $(MICRO_FLAGS)

bench-rules: ## time and memory of loading made-up rules; BENCH_RULES="10000 100000 1000000"
	@tools/bench-rules $(RELEASE) $(BENCH_RULES)

clean: ## remove what was built
	$(CARGO) clean
