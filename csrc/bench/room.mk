# The bench's own programs: client, raw TCP forwarder, TLS stub. They are references, not a part of
# hark, so they are neither installed nor linked with it.

BENCH_DIR := $(BUILD)/bench
BENCH_CLIENT := $(BENCH_DIR)/hark-bench-client
BENCH_FORWARD := $(BENCH_DIR)/hark-bench-forward
BENCH_STUB := $(BENCH_DIR)/hark-bench-stub
BENCH_PROGRAMS := $(BENCH_CLIENT) $(BENCH_FORWARD) $(BENCH_STUB)
# A second reference, only where a Go compiler happens to be.
BENCH_GO := $(if $(shell command -v go),$(BENCH_DIR)/hark-bench-goproxy)
BENCH_HDRS := $(wildcard csrc/bench/*.h)
BENCH_SRCS := $(wildcard csrc/bench/*.c)
BENCH_CC = $(CC) $(CSTD) $(CFLAGS) $(WARN) $(HARDEN) -pie

$(BENCH_CLIENT): csrc/bench/hark_bench_client.c csrc/bench/hark_bench_http.c $(BENCH_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(BENCH_CC) $(filter %.c,$^) -o $@ -lssl -lcrypto

$(BENCH_STUB): csrc/bench/hark_bench_stub.c csrc/bench/hark_bench_tcp.c $(BENCH_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(BENCH_CC) $(filter %.c,$^) -o $@ -lssl -lcrypto -pthread

$(BENCH_FORWARD): csrc/bench/hark_bench_forward.c csrc/bench/hark_bench_tcp.c $(BENCH_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(BENCH_CC) $(filter %.c,$^) -o $@

$(BENCH_DIR)/hark-bench-goproxy: csrc/bench/goproxy/main.go
	$(call say,GO,$@)
	$(Q)mkdir -p $(@D)
	$(Q)GO111MODULE=off go build -o $@ $<

.PHONY: bench-run tidy-bench
BENCH_TARGETS += bench-run
bench-run: $(BENCH_PROGRAMS) $(BENCH_GO)
	$(Q)$(PY) tests/bench/run.py $(BENCH_ARGS)

TIDY_TARGETS += tidy-bench
tidy-bench:
	$(call say,TIDY,csrc/bench)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(BENCH_SRCS) -- $(CSTD) 2>/dev/null
