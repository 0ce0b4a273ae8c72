# The only task runner. All output of compilers goes below build/; V=1 shows the commands.
#   make setup    everything hark needs, on a fresh Debian: packages, .venv, build; then .venv/bin/hark
#   make check    formatters, linters, types, layers, sanitizer builds
#   make test     all tests that fit into minutes; test-slow, fuzz and bench are separate
#   make test-escape test-host-impact   parts of it: nothing gets out, nothing is harmed, with counts
#   make test-interop   every unmodified client and agent, listed with ok (downloads 1 GB at first)
#   make install  a root-owned tree below PREFIX
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PREFIX ?= /opt/hark
VENV := .venv
PY := $(VENV)/bin/python
BUILD := build
REQ := .ci/requirements
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(2)')

CC := gcc
CLANG := clang
WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wvla -Werror
HARDEN := -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fPIE -Wl,-z,relro,-z,now
CFLAGS ?= -O2 -g
CSTD := -std=c11 -D_GNU_SOURCE
SAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
FUZZ_S ?= 20
# How each libFuzzer target runs; what it finds lies below build/.
FUZZ_RUN = -max_total_time=$(FUZZ_S) -artifact_prefix=$(BUILD)/fuzz/ -verbosity=0 -print_final_stats=1
# A shell's background job ignores ^C, and so would the agents that tests interrupt.
PYTEST := env --default-signal=INT,QUIT $(VENV)/bin/pytest -q

PROGRAMS :=
BPF_OBJECTS :=
CLEAN_HARK := hark/_native*.so

include $(wildcard csrc/*/room.mk) $(wildcard bpf/room.mk)

.PHONY: help setup packages packages-test venv venv-dev venv-agents build bytecode native programs bpf libexec \
	test-escape test-host-impact test-kernels check lint types layers format-check tidy san test test-python test-c test-slow test-interop packages-interop interop-clients fuzz fidelity bench \
	install clean lock fmt audit

help:
	@sed -n '2,6s/^# *//p' Makefile

setup: packages
	$(Q)$(MAKE) --no-print-directory venv
	$(Q)$(MAKE) --no-print-directory build

packages:
	$(Q).ci/install-debian .ci/debian-run.txt

packages-test: packages
	$(Q).ci/install-debian .ci/debian-test.txt

# The toolchains that only clients need, by program: any version that is there already will do.
packages-interop: packages-test
	$(Q).ci/install-programs .ci/programs-interop.txt

venv: $(VENV)/.run
venv-dev: $(VENV)/.dev

$(VENV)/.run: $(REQ)/run.txt pyproject.toml
	$(call say,VENV,$(VENV))
	$(Q)test -x $(PY) || /usr/bin/python3 -m venv --system-site-packages $(VENV)
	$(Q)$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r $(REQ)/run.txt
	$(Q)$(PY) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(Q)touch $@

$(VENV)/.dev: $(VENV)/.run $(REQ)/dev.txt
	$(call say,VENV,$(VENV) for tests)
	$(Q)$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r $(REQ)/run.txt -r $(REQ)/dev.txt
	$(Q)touch $@

# Agents and SDKs for `make test-interop`: their own venv, so that nothing of theirs meets hark's.
AGENTS := .venv-agents
venv-agents: $(AGENTS)/.done
$(AGENTS)/.done: $(REQ)/agents.txt
	$(call say,VENV,$(AGENTS))
	$(Q)test -x $(AGENTS)/bin/python || /usr/bin/python3 -m venv $(AGENTS)
	$(Q)$(AGENTS)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(REQ)/agents.txt
	$(Q)touch $@

# Clients that are built from their own locks, for `make test-interop`.
INTEROP := $(BUILD)/interop
interop-clients: $(INTEROP)/node/.done $(INTEROP)/rust/.done
$(INTEROP)/node/.done: tests/interop/node/package.json tests/interop/node/package-lock.json
	$(call say,NPM,$(@D))
	$(Q)mkdir -p $(@D) && cp $^ $(@D)/
	$(Q)cd $(@D) && npm ci --silent --ignore-scripts --no-audit --no-fund
	$(Q)touch $@
$(INTEROP)/rust/.done: tests/interop/rust/Cargo.toml tests/interop/rust/Cargo.lock tests/interop/rust/src/main.rs
	$(call say,CARGO,$(@D))
	$(Q)cargo build --quiet --locked --manifest-path $< --target-dir $(@D)
	$(Q)touch $@

build: programs bpf native libexec bytecode
programs: $(PROGRAMS)
bpf: $(BPF_OBJECTS)

NATIVE_SOURCES := $(wildcard csrc/*.py csrc/*.h csrc/base/*.[ch] csrc/bundle/*.[ch] csrc/sensors/*.[ch] bpf/*.h)
native: $(BUILD)/.native
$(BUILD)/.native: $(NATIVE_SOURCES) $(NATIVE_PREREQS) $(VENV)/.run
	$(call say,CFFI,hark._native)
	$(Q)mkdir -p $(BUILD)
	$(Q)$(PY) csrc/build_ffi.py
	$(Q)touch $@

# A start without it compiles 100 modules, also where PYTHONDONTWRITEBYTECODE keeps Python from storing them.
bytecode: $(VENV)/.run
	$(Q)$(PY) -m compileall -q hark
	$(Q)$(PY) .ci/write-command $(CURDIR)

SECCOMP := $(BUILD)/seccomp.bin
$(SECCOMP): hark/launcher/seccomp.py $(VENV)/.run
	$(call say,SECCOMP,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(PY) -m hark.launcher.seccomp > $@.new && mv $@.new $@

libexec: $(PROGRAMS) $(BPF_OBJECTS) $(SECCOMP)
	$(Q)mkdir -p $(VENV)/libexec
	$(Q)for f in $^; do ln -sfn "../../$$f" "$(VENV)/libexec/$${f##*/}"; done

C_OWN := $(wildcard csrc/*.h csrc/*/*.[ch] bpf/*.[ch] shim/*.[ch] tests/*/*.[ch])

check: packages-test
	$(Q)$(MAKE) --no-print-directory venv-dev build
	$(Q)$(MAKE) --no-print-directory lint format-check types layers tidy san

lint:
	$(call say,RUFF,)
	$(Q)$(VENV)/bin/ruff check -q .
	$(Q)$(VENV)/bin/ruff format -q --check .

fmt:
	$(Q)$(VENV)/bin/ruff format -q .
	$(Q)$(VENV)/bin/clang-format -i $(C_OWN)

format-check:
	$(call say,FORMAT,clang-format)
	$(Q)$(VENV)/bin/clang-format --dry-run -Werror $(C_OWN)

types:
	$(call say,MYPY,--strict)
	$(Q)$(VENV)/bin/mypy --no-error-summary

layers:
	$(call say,LAYERS,)
	$(Q)$(VENV)/bin/lint-imports --no-logo >$(BUILD)/layers.log || { cat $(BUILD)/layers.log; exit 1; }

tidy: $(TIDY_TARGETS)
san: $(SAN_TARGETS)

test: packages-test
	$(Q)$(MAKE) --no-print-directory venv-dev build
	$(Q)$(MAKE) --no-print-directory test-c test-python

test-c: $(TEST_C_TARGETS)

test-python:
	$(Q)$(PYTEST) -m "not slow and not agents" $(PYTEST_ARGS)

test-escape test-host-impact: packages-test
	$(Q)$(MAKE) --no-print-directory venv-dev build
	$(Q)$(PYTEST) $(SUITE_$@) $(PYTEST_ARGS)

SUITE_test-escape := tests/escape
SUITE_test-host-impact := tests/kernel/test_host_unchanged.py tests/kernel/test_many_runs.py \
	tests/interop/test_fail_closed.py

# The sensor suite on kernels 6.1 and 6.12, emulated: downloads 60 MB at first, takes 15 minutes.
test-kernels: packages-test
	$(Q).ci/install-debian .ci/debian-kernels.txt
	$(Q)$(MAKE) --no-print-directory venv-dev build
	$(Q)$(PY) tests/kernels/run.py

test-slow: packages-test
	$(Q)$(MAKE) --no-print-directory venv-dev build
	$(Q)$(PYTEST) -m slow $(PYTEST_ARGS)

# Every client of tests/interop/roster.py, none skipped; prints them with ok.
test-interop: packages-test packages-interop
	$(Q)$(MAKE) --no-print-directory venv-dev venv-agents interop-clients build
	$(Q)HARK_REQUIRE=all $(PYTEST) tests/interop --roster $(PYTEST_ARGS)

fuzz: packages-test
	$(Q)$(MAKE) --no-print-directory venv-dev build
	$(Q)$(MAKE) --no-print-directory $(FUZZ_TARGETS)

# N: pairs of each shape. SHAPES: only these, such as node/. A stopped run goes on; FRESH=1 begins anew.
fidelity: packages-test
	$(Q)$(MAKE) --no-print-directory venv-dev venv-agents build
	$(Q)$(PY) tests/fidelity/run.py -n $(or $(N),20) $(if $(FRESH),--fresh) $(SHAPES)

bench: packages-test
	$(Q)$(MAKE) --no-print-directory venv-dev build
	$(Q)$(MAKE) --no-print-directory $(BENCH_TARGETS)

audit:
	$(Q)$(VENV)/bin/pip-audit --require-hashes --disable-pip -r $(REQ)/run.txt

install: setup
	$(call say,INSTALL,$(PREFIX))
	$(Q)install -d $(PREFIX)/bin
	$(Q)/usr/bin/python3 -m venv --system-site-packages $(PREFIX)/lib/hark
	$(Q)$(PREFIX)/lib/hark/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r $(REQ)/run.txt
	$(Q)rm -rf $(BUILD)/wheel
	$(Q)$(PREFIX)/lib/hark/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	$(Q)$(PREFIX)/lib/hark/bin/python .ci/write-command
	$(Q)install -d $(PREFIX)/lib/hark/libexec
	$(Q)install -m 755 $(PROGRAMS) $(PREFIX)/lib/hark/libexec/
	$(Q)install -m 644 $(BPF_OBJECTS) $(SECCOMP) $(PREFIX)/lib/hark/libexec/
	$(Q)ln -sfn ../lib/hark/bin/hark $(PREFIX)/bin/hark
	$(Q)chown -R root:root $(PREFIX)/lib/hark $(PREFIX)/bin/hark
	$(Q)chmod -R go-w $(PREFIX)/lib/hark

# Needs uv; the locks are committed, so nobody else does.
lock:
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header $(REQ)/run.in -o $(REQ)/run.txt
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header $(REQ)/dev.in -o $(REQ)/dev.txt
	uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-header $(REQ)/agents.in -o $(REQ)/agents.txt

clean:
	rm -rf $(BUILD) $(VENV) *.egg-info $(CLEAN_HARK)
