# hark-trace: answers the calls of a run whose answer must repeat. Static, as every program that
# begins as root.

TRACE_SRCS := $(wildcard csrc/trace/*.c)
TRACE_HDRS := $(wildcard csrc/trace/*.h bpf/hark_abi*.h) $(BASE_HDRS)
TRACE_OBJS := $(patsubst csrc/%.c,$(BUILD)/obj/%.o,$(TRACE_SRCS))
TRACE_INC := $(BASE_INC) -Icsrc/trace -isystem $(B3_DIR)
TRACE_BIN := $(BUILD)/bin/hark-trace
# What runs without a kernel's help: tests and fuzzers link these alone.
TRACE_PURE := csrc/trace/hark_stream.c csrc/trace/hark_wait.c

PROGRAMS += $(TRACE_BIN)

$(BUILD)/obj/trace/%.o: csrc/trace/%.c $(TRACE_HDRS) $(B3_DIR)/.done
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(CFLAGS) $(WARN) $(HARDEN) $(TRACE_INC) -c $< -o $@

$(TRACE_BIN): $(TRACE_OBJS) $(B3_OBJS) $(BASE_LIB)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(HARDEN) -static-pie $^ -o $@

# ---- tests ----

.PHONY: test-c-trace
TEST_C_TARGETS += test-c-trace
TRACE_TEST_BINS := $(patsubst tests/c/%.c,$(BUILD)/tests/%,$(wildcard tests/c/trace_*.c))

$(BUILD)/tests/trace_%: tests/c/trace_%.c $(TRACE_PURE) $(BASE_SRCS) $(TRACE_HDRS) $(B3_DIR)/.done
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g -Wall -Wextra $(SAN) $(B3_PORTABLE) $(TRACE_INC) $< $(TRACE_PURE) \
		$(BASE_SRCS) $(B3_C) -o $@ -lcmocka

test-c-trace: $(TRACE_TEST_BINS)
	$(Q)for t in $^; do $$t || exit 1; done

.PHONY: san-trace
SAN_TARGETS += san-trace
san-trace: $(BUILD)/san/hark-trace
$(BUILD)/san/hark-trace: $(TRACE_SRCS) $(BASE_SRCS) $(TRACE_HDRS) $(B3_DIR)/.done
	$(call say,SAN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g -w -fsanitize=undefined -fsanitize-undefined-trap-on-error \
		$(B3_PORTABLE) $(TRACE_INC) -static $(TRACE_SRCS) $(BASE_SRCS) $(B3_C) -o $@

.PHONY: tidy-trace
TIDY_TARGETS += tidy-trace
tidy-trace: $(B3_DIR)/.done
	$(call say,TIDY,csrc/trace)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(TRACE_SRCS) -- $(CSTD) $(TRACE_INC) 2>/dev/null

.PHONY: fuzz-trace
FUZZ_TARGETS += fuzz-trace
$(BUILD)/fuzz/trace_wait: csrc/fuzz/trace_wait.c csrc/trace/hark_wait.c $(TRACE_HDRS)
	$(call say,FUZZ,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(CSTD) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -O1 -g -w \
		$(TRACE_INC) $< csrc/trace/hark_wait.c -o $@

fuzz-trace: $(BUILD)/fuzz/trace_wait
	$(Q)mkdir -p $<.corpus
	$(Q)$< -max_total_time=$(FUZZ_S) -max_len=128 -verbosity=0 -print_final_stats=1 $<.corpus
