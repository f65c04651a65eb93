# Two commands do all the set-up: `make demo` and `make test`.
CARGO ?= cargo
RELEASE := target/release/margay
# Features of lints, tests and packages beyond the default. A plain build has no Kafka, since loading its library adds 2 ms to every start.
FEATURES ?= --features margay/kafka
# Crates whose benchmarks `make micro` runs.
MICRO_FLAGS ?= $(foreach c,packet capture flow stream json output detect,--bench '*' -p margay-$(c))
PYTHON ?= python3
# Experiments of `make lab-experiments`, and the folder of their results.
EXPERIMENTS ?= $(wildcard lab/experiments/*.yaml)
LAB_OUT ?= out/lab
# Number and kind of conversations in `make hosts` (docs/hosts.md).
HOSTS_FLAGS ?= --count 1000000
# Folder of the public conformance cases; the crates' tests use it too.
CONFORMANCE_CASES ?= $(wildcard ../shared/conformance/cases)

# Tests and tools add a line here for each test that cannot run on this machine; `make test` prints a summary.
NOT_RUN := $(CURDIR)/target/not-run
export MARGAY_NOT_RUN = $(NOT_RUN)
# Other programs that tests use.
TEST_PACKAGES := suricata-update ethtool groff zsh fish redis-server rsyslogd openssl prometheus chromium

# How `autofp` assigns flows to workers (docs/parallel.md).
SCHEDULERS ?= adaptive hash shortest-queue

# No target with a description is a file.
.PHONY: begin $(shell sed -nE 's/^([a-z-]+):.*## .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install the system packages that are missing
	@tools/setup

build: setup ## build for release
	$(CARGO) build --release --locked --package margay

# Folders of `make install`, below DESTDIR. PACKAGE is the folder for packages.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
PACKAGE ?= target/package
# The program to install (make install BINARY=…), and the features of packages: a sensor has no laboratory.
BINARY ?= $(RELEASE)
SENSOR := --no-default-features --features mimalloc,kafka
INSTALL = DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" BINARY="$(BINARY)" packaging/install

install: ## install the built program below PREFIX (/usr/local), settings below SYSCONFDIR (/etc): docs/install.md
	@$(INSTALL)

uninstall: ## remove the installed files, except settings that you changed
	@$(INSTALL) --remove

sensor: setup ## build for release without the laboratory
	$(CARGO) build --release --locked --package margay $(SENSOR)

package: sensor ## a Debian package, in PACKAGE (target/package)
	@tools/setup dpkg-shlibdeps:dpkg-dev
	@packaging/deb $(BINARY) $(PACKAGE)

package-test: sensor ## build the package; check it with lintian; install, run, upgrade and purge it in a clean Debian root; needs root
	@tools/package-test $(BINARY) $(PACKAGE)

package-quick: build ## the same with the program that `make test` builds (part of test): from the package to the first alert within two minutes
	@if [ "$$(id -u)" = 0 ]; then tools/package-test $(RELEASE) $(PACKAGE); \
	else printf 'tools/package-test\tpackage\tneeds root\tleft out\n' >>$(NOT_RUN); fi

rpm-check: sensor ## check the RPM specification with rpmlint; build the package and inspect it
	@tools/rpm-check $(BINARY)

tarball: sensor ## an archive of the program and its files, in PACKAGE
	@packaging/tarball $(BINARY) $(PACKAGE)

demo: build ## run the engine on a small capture and show what it found
	@tools/demo $(RELEASE)

lint: ## formatting, clippy, layout of the code, language, links of the manual
	@tools/setup lints codespell
	@tools/check-language
	@tools/manual --links
	$(CARGO) fmt --all --check
	@tools/check-portable
	@tools/check-house
	@tools/house-counts --check
	$(CARGO) clippy --workspace --all-targets --features margay-fuzz-replay/tools $(FEATURES) --locked -- -D warnings
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir target --no-default-features --locked -- -D warnings

unit: setup ## unit, integration and property tests, several programs at a time
	@tools/setup $(TEST_PACKAGES)
	@CARGO="$(CARGO)" $(PYTHON) tools/unit -- --workspace --locked $(FEATURES)

properties: setup ## property tests with new random cases: CASES for each, unless the test sets their number
	@CARGO="$(CARGO)" $(PYTHON) tools/unit --properties $(or $(CASES),20000) -- --workspace --locked $(FEATURES)

test-web: setup ## the web page in a browser, and its metrics
	@tools/setup chromium prometheus
	$(CARGO) test --locked --package margay-watch --test web

test-watch: build ## Prometheus scrapes a running engine; cost of watching (docs/watch.md)
	@tools/setup prometheus
	@$(PYTHON) tools/watch $(RELEASE)

outage: build ## kill Redis and rsyslog while events arrive, restart them, count losses and repeats (docs/outputs.md)
	@tools/setup redis-server rsyslogd
	@$(PYTHON) tools/outage $(RELEASE)

doc: setup ## API documentation, without a warning
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet

manual: build ## every command of the manual runs as shown; links, table of contents and generated pages are right (docs/)
	@tools/setup curl
	@tools/manual $(RELEASE)

book: ## the manual as a website, in target/book; installs mdBook if it is missing
	@tools/manual --book target/book-source
	@command -v mdbook >/dev/null || test -x target/mdbook/bin/mdbook || $(CARGO) install --locked --root target/mdbook mdbook
	@PATH="$(CURDIR)/target/mdbook/bin:$$PATH" mdbook build target/book-source --dest-dir $(CURDIR)/target/book

deny: ## licences, sources and bans of every dependency; advisories if their database can be fetched
	@tools/deny

conformance: build ## the public conformance cases, held to the list of known failures
	@tools/conformance $(RELEASE) "$(CONFORMANCE_CASES)"
	@tools/conformance $(RELEASE) "$(CONFORMANCE_CASES)" protocols

conformance-autofp: build ## the same with three workers and every scheduler
	@for s in $(SCHEDULERS); do echo "$$s, three workers:"; tools/conformance --autofp $$s:3 $(RELEASE) "$(CONFORMANCE_CASES)" || exit; done

hosts: build ## random conversations with this machine's TCP/IP stack: every byte it reads was inspected (docs/hosts.md); needs root, ten minutes
	$(CARGO) build --release --locked --quiet --package margay-hosts
	target/release/margay-hosts $(HOSTS_FLAGS)

conversations: build ## conversations of real servers and clients, event by event beside the installed Suricata 7, and in any cut and order (root); CONVERSATIONS="--only 'smb*'"
	@$(PYTHON) tools/conversations target/conversations --check $(RELEASE) $(CONVERSATIONS)
	@tools/events-peer $(RELEASE) --captures target/conversations

peers: build ## odd HTTP, mail and TLS, read by real programs: the engine saw what they read (docs/peers.md). PEERS_FLAGS="--only mail --seed 2"
	@tools/setup nginx go node curl openssl python3-venv
	@test -x target/peers/venv/bin/python || { $(PYTHON) -m venv target/peers/venv && target/peers/venv/bin/pip install -q 'urllib3>=2,<3' brotli; }
	$(PYTHON) tools/peers $(RELEASE) $(PEERS_FLAGS)

peers-quick: build ## each odd message once, with the programs that are installed (part of test)
	@tools/setup openssl
	@$(PYTHON) tools/peers $(RELEASE) --quick

differential: build ## generated rules compared with Suricata 8.0.6, held to conformance/differential.txt; DIFFERENTIAL="--show 50"
	@tools/differential $(RELEASE) $(DIFFERENTIAL)

generated: build ## rules made from captures, given to the installed Suricata and to this engine: what differs, made small, by class; GENERATED="--minutes 30 --variants" (docs/generated-rules.md)
	@$(PYTHON) tools/generate-differential $(RELEASE) $(GENERATED)

events: build ## every event of real captures compared with Suricata 8.0.6, member by member, held to conformance/events.txt; EVENTS="--only 'dns*' --types tls"
	@tools/events $(RELEASE) $(EVENTS)

events-peer: build ## events of the cases' captures compared with the installed Suricata 7, member by member; EVENTS_PEER="--captures ../shared/captures/real --types tls"; "--lose 1": of lossy copies
	@tools/events-peer $(RELEASE) $(EVENTS_PEER)

settings-peer: build ## what each setting changes in the events, compared with the installed Suricata 7; half an hour; SETTINGS_PEER="--only 'stream.*'"
	@$(PYTHON) tools/settings-peer $(RELEASE) $(SETTINGS_PEER)

SWEEP_CAPTURES := $(addprefix $(SHARED)/captures/real/,sip.pcap nfsv3.pcap tftp.pcap rdp3.pcap pop3.pcap ssh_unidirectional.pcap profinet-io-le.pcap \
	targusdataspeed_false_positives.pcap smtp-starttls.pcap tls_port_80.pcapng)
sweep: build ## every byte of a conversation changed, one at a time: events compared with the installed Suricata 7; SWEEP="--bytes 60 --values 0,0xff FILE…"
	@tools/sweep $(RELEASE) $(or $(SWEEP),$(SWEEP_CAPTURES))

eve-schema: build ## every event of the captures is valid against docs/eve-schema.json; conformance checks those of the cases
	@tools/eve-schema $(RELEASE) --only captures

defence: build ## every sample of defence/: attacks are stopped by their rule, the others by none
	@tools/defence rules --check
	@tools/defence table --check
	@tools/defence test $(RELEASE)
	@tools/defence held-out $(RELEASE)

defence-cost: build ## CPU time that the rules of defence/ add to Emerging Threats on the mix of `make bench`
	@tools/defence-cost $(RELEASE)

defence-report: build ## a page of what of the defence's samples is stopped, missed and stopped by mistake (REPORT=FILE)
	@$(RELEASE) lab attacks make --quiet -o target/defence.pcap
	@$(RELEASE) lab attacks run target/defence.pcap --offline -c etc/margay.yaml --set classification-file=etc/classification.config \
		-S defence/margay-defence.rules -S defence/margay-network.rules -o target/defence-report >/dev/null
	@$(RELEASE) lab attacks report target/defence-report -o $(or $(REPORT),target/defence.html)

defence-live: build ## the held-out requests past an engine between two namespaces, and what the server received (root)
	@tools/defence-live $(RELEASE) defence/margay-defence.rules defence/held-out/*-*.txt

defence-lab-live: build ## every sample past an engine between two pairs of interfaces, by technique; fails under 98.5 % (root)
	@tools/defence-lab-live $(RELEASE)

defence-office: build ## 10 GB of an office's traffic, made of real texts and files, through both rule files: every drop (an hour; OFFICE=--gigabytes 1)
	@tools/defence-office $(RELEASE) $(OFFICE)

defence-rate: build ## highest lossless rate inline with 1 % of attack packets against none, in pairs (root, idle machine)
	@tools/defence-rate $(RELEASE)

defence-captures: build ## every rule of defence/ on the real captures of ../shared blocks only attacks (defence/captures.txt)
	@tools/defence captures $(RELEASE) ../shared/captures/real

intercept: build ## attacks and ordinary requests of ../shared through the defence, by class, held to defence/figures.txt; INTERCEPT=--evasions
	@tools/intercept $(RELEASE) $(INTERCEPT)

fuzz-replay: setup ## every file of the fuzz corpora through its target
	@$(CARGO) test --release --locked --quiet --package margay-fuzz-replay --test corpus

instructions: build ## instructions of a small fixed run, held to bench/instructions.json
	@tools/setup valgrind
	@tools/instructions $(RELEASE)

instructions-accept: build ## accept the present instruction counts; the commit says why
	@tools/setup valgrind
	@tools/instructions $(RELEASE) --accept

adversarial: build ## cost and peak memory of attacks beside ordinary traffic; ADVERSARIAL="--only half-open"
	@tools/setup valgrind
	@tools/adversarial $(RELEASE) $(ADVERSARIAL)

adversarial-quick: build ## instructions of some of these attacks, on small captures; ADVERSARIAL="--only many-headers"
	@tools/setup valgrind
	@tools/adversarial $(RELEASE) --quick $(or $(ADVERSARIAL),--sample)

adversarial-accept: build ## accept the present cost of attacks; the commit says why
	@tools/setup valgrind
	@tools/adversarial $(RELEASE) --quick --accept

portable: setup ## matching tests and core cases with the feature `portable`: no code for one kind of processor
	$(CARGO) clippy --locked --package margay-detect --features portable -- -D warnings
	$(CARGO) test --locked --quiet --package margay-detect --package margay --features margay/portable --lib --test rules --test transactions --test command
	@tools/conformance target/debug/margay "$(CONFORMANCE_CASES)" core

# Steps of `make test`: the lint first, since it is quick and fails most often, then the others two at a time. The unit tests wait
# more than they work, so they run beside what works; `portable` follows them, since it replaces the program that they start. No
# step reads a clock to judge; those that measure count instructions.
# The fuzz corpora are among the unit tests, with overflow checks; `make fuzz-replay` is for release builds.
BESIDE := unit conformance instructions adversarial-quick events differential defence peers-quick intercept eve-schema test-fleet-quick \
	package-quick manual doc deny
export MARGAY_STEPS = $(CURDIR)/target/steps

test: begin ## everything that must pass, a list of what did not run, and the time of each step
	@tools/steps lint build
	@tools/setup $(TEST_PACKAGES) valgrind python3-venv mmdebstrap lintian dpkg-shlibdeps:dpkg-dev curl
	@tools/steps --two $(BESIDE)
	@tools/steps portable
	@tools/steps --report
	@tools/not-run $(NOT_RUN)
	@echo "make test: all passed"

begin:
	@mkdir -p $(dir $(NOT_RUN)); rm -f $(NOT_RUN) $(MARGAY_STEPS)

# Python with Spark, for fleet/.
FLEET := target/fleet/bin/python
target/fleet/installed: fleet/pyproject.toml
	@tools/setup python3-venv java
	$(PYTHON) -m venv target/fleet && target/fleet/bin/pip install -q -e './fleet[test]' && touch $@

test-fleet: sensor target/fleet/installed ## margay-fleet: hunts beside one engine, detectors, streams on Spark's local mode, S3, a Kafka broker (docs/fleet.md); FLEET_TESTS="-k hunt"
	@tools/setup kafka
	@MARGAY_ENGINE=$(CURDIR)/$(RELEASE) $(FLEET) -m pytest -q fleet/tests $(FLEET_TESTS)

target/fleet-quick/installed: fleet/pyproject.toml
	@tools/setup python3-venv
	$(PYTHON) -m venv target/fleet-quick && target/fleet-quick/bin/pip install -q 'pytest>=7' && touch $@

test-fleet-quick: build target/fleet-quick/installed ## the same without Spark, S3 and Kafka, which take minutes to install
	@MARGAY_ENGINE=$(CURDIR)/$(RELEASE) target/fleet-quick/bin/python -m pytest -q -m 'not extras and not corpora' fleet/tests

test-fleet-corpora: build target/fleet-quick/installed ## hunts over the real captures, the mix and the attacks of ../shared in 1, 2, 7 and 32 parts beside one engine; twenty minutes
	@MARGAY_ENGINE=$(CURDIR)/$(RELEASE) target/fleet-quick/bin/python -m pytest -q -s -m corpora fleet/tests

demo-fleet: sensor target/fleet/installed ## a scan spread over three sensors in namespaces, found by the fleet through Kafka; then a hunt with a rule that came later; root
	@tools/setup kafka
	@$(FLEET) fleet/demo.py $(RELEASE)

fresh: ## both commands of the README in a new Debian 12 root; needs root. FRESH="--toolchain here"
	@tools/fresh $(FRESH)

test-live: setup ## live capture and the laboratory in network namespaces; needs root (part of unit)
	$(CARGO) test --locked --quiet --package margay-capture --test af_packet --test af_xdp --test bridge --test ebpf --test nfqueue
	$(CARGO) test --locked --quiet --package margay --test live --test af_xdp --test bypass --test inline --test nfqueue --test service --test faults --test faults_inline
	$(CARGO) test --locked --quiet --package margay-lab --test wire --test tune

test-ansible: ## the Ansible role: lint, and a run in a namespace; root, ansible-core, ansible-lint
	cd ansible && ansible-lint
	$(CARGO) build --locked --package margay-lab
	ansible/roles/margay_sensor/tests/run target/debug/margay-lab

test-faults: setup ## faults under traffic, long tests included; needs root
	$(CARGO) test --locked --quiet --package margay --test faults --test faults_inline
	$(CARGO) test --locked --quiet --package margay --test faults --test faults_inline -- --ignored --test-threads=2 long_

measure-harm: build ## downloads through the engine and through a kernel bridge, in turn, over good and bad links; root, ten minutes
	MARGAY_BENCH_ENGINE=$(CURDIR)/$(RELEASE) $(CARGO) test --locked --quiet --package margay --test inline -- --ignored --nocapture measure_what

monitor-cost: ## time that the laboratory's monitor takes of a core
	$(CARGO) test --release --locked --quiet --package margay-lab --lib -- --ignored --nocapture four_samples

lab-experiments: build ## every experiment of lab/experiments in quick form, into LAB_OUT (out/lab); root. LAB_FLAGS="-c my.yaml -S my.rules"
	@for e in $(EXPERIMENTS); do $(RELEASE) lab compare $$e --quick -o $(LAB_OUT)/$$(basename $$e .yaml) $(LAB_FLAGS) || failed=1; done; test -z "$$failed"

lab-results: build ## experiments for Margay whose figures are kept in lab/results; root, an idle machine, three quarters of an hour. LAB_FLAGS="--only clock --quick"
	@tools/lab-results $(RELEASE) $(LAB_FLAGS)

lab-lossless: build ## the highest rate without loss beside Suricata's, passive and inline; root, an idle machine; LAB_FLAGS="--quick --only passive --full"
	@tools/lab-lossless $(RELEASE) $(LAB_FLAGS)

agreement: build ## alerts and events of real captures compared with Suricata; AGREEMENT_FLAGS="--show 2 --only 'dns*'" …
	@tools/agreement $(RELEASE) $(AGREEMENT_FLAGS)

parser-costs: ## nanoseconds per byte of each parser on real conversations, bound to 50; PARSER_COSTS="--bound 30 my.pcap"
	@tools/parser-costs $(PARSER_COSTS)

fuzz-seeds: ## seeds for the fuzz targets from captures, rules and lists; SEEDS="my.pcap folder"
	@tools/fuzz-seeds $(SEEDS)

fuzz: ## fuzz each target for FUZZ_SECONDS (default 600); needs a nightly toolchain. FUZZ_TARGETS="smb quic" FUZZ_JOBS=2
	@tools/fuzz $${FUZZ_SECONDS:-600}

sanitize: setup ## unit tests and core cases under sanitizers; needs a nightly toolchain. SANITIZE="address thread memcheck loom"
	@tools/sanitize $(SANITIZE)

bench: build ## speed, start and memory beside Suricata's, on an idle machine; BENCH_FLAGS="--only mix --pairs 1"
	@tools/bench $(RELEASE) $(BENCH_FLAGS)

bench-send: build ## the sender's speed and pacing beside tcpreplay, over virtual interfaces; root. BENCH_SEND="--pairs 3 --only pace"
	@tools/setup tcpreplay tcpdump
	@tools/bench-send "$(RELEASE) lab" $(BENCH_SEND)

elephant: build ## two workers of an interface over one, on one large flow; root, an idle machine, 4 GB of memory. ELEPHANT="--pairs 3"
	@tools/elephant $(RELEASE) $(SHARED) $(ELEPHANT)

profile: build ## flame graph and tables of time and instructions; PROFILE_FLAGS="x.pcap --rules my.rules --packets"
	@tools/profile $(RELEASE) $(PROFILE_FLAGS)

micro: ## benchmarks of parts: decoding, flows, reassembly, matching, JSON, reading; MICRO_FLAGS="-p margay-detect -- scan"
	$(CARGO) bench --locked $(MICRO_FLAGS)

bench-rules: ## time and memory to load generated rules; BENCH_RULES="10000 100000 1000000"
	@tools/bench-rules $(RELEASE) $(BENCH_RULES)

clean: ## remove build results
	$(CARGO) clean
