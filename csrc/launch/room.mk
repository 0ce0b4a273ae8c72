# hark-launch: builds the sandbox, watches the run, cleans up. Static, so that no library path and
# no preload can reach a root process.

LAUNCH_SRCS := $(wildcard csrc/launch/*.c)
LAUNCH_HDRS := $(wildcard csrc/launch/*.h csrc/base/*.h) csrc/hark_control.h
LAUNCH_OBJS := $(patsubst csrc/%.c,$(BUILD)/obj/%.o,$(LAUNCH_SRCS))
LAUNCH_INC := -Icsrc -Icsrc/base -Icsrc/launch -Icsrc/sensors
LAUNCH_BIN := $(BUILD)/bin/hark-launch

PROGRAMS += $(LAUNCH_BIN)

$(BUILD)/obj/launch/%.o: csrc/launch/%.c $(LAUNCH_HDRS) csrc/sensors/hark_pins.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(CFLAGS) $(WARN) $(HARDEN) $(LAUNCH_INC) -c $< -o $@

# hark_pins.c: the last run out takes the machine's sensors down (csrc/sensors/room.mk).
$(LAUNCH_BIN): $(LAUNCH_OBJS) $(BUILD)/obj/sensors/hark_pins.o $(BUILD)/lib/libharkbase.a
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(HARDEN) -static-pie $^ -o $@

# ---- tests: what runs without a kernel of its own, under sanitizers ----

.PHONY: test-c-launch
TEST_C_TARGETS += test-c-launch
LAUNCH_PURE := csrc/launch/plan.c csrc/launch/remove.c csrc/launch/disk.c

$(BUILD)/tests/launch_%: tests/c/launch_%.c $(LAUNCH_PURE) $(BASE_SRCS) $(LAUNCH_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g $(WARN) $(SAN) $(LAUNCH_INC) $< $(LAUNCH_PURE) $(BASE_SRCS) -o $@ -lcmocka

test-c-launch: $(BUILD)/tests/launch_parts
	$(Q)$<

# The whole program: undefined behaviour traps, since a static root process can hold no sanitizer
# runtime. tests/launcher runs against it with HARK_TEST_LAUNCH=build/san/hark-launch.
.PHONY: san-launch
SAN_TARGETS += san-launch
san-launch: $(BUILD)/san/hark-launch
$(BUILD)/san/hark-launch: $(LAUNCH_SRCS) csrc/sensors/hark_pins.c $(BASE_SRCS) $(LAUNCH_HDRS)
	$(call say,SAN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g $(WARN) -fsanitize=undefined -fsanitize-undefined-trap-on-error \
		$(LAUNCH_INC) -Ibpf -static $(LAUNCH_SRCS) csrc/sensors/hark_pins.c $(BASE_SRCS) -o $@

.PHONY: tidy-launch
TIDY_TARGETS += tidy-launch
tidy-launch:
	$(call say,TIDY,csrc/launch)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(LAUNCH_SRCS) -- $(CSTD) $(LAUNCH_INC) 2>/dev/null

.PHONY: fuzz-launch
FUZZ_TARGETS += fuzz-launch
$(BUILD)/fuzz/launch_plan: csrc/fuzz/launch_plan.c csrc/launch/plan.c $(BASE_SRCS) $(LAUNCH_HDRS)
	$(call say,FUZZ,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(CSTD) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -O1 -g -w \
		$(LAUNCH_INC) $< csrc/launch/plan.c $(BASE_SRCS) -o $@

fuzz-launch: $(BUILD)/fuzz/launch_plan
	$(Q)mkdir -p $<.corpus
	$(Q)$(PY) tests/fuzz/launch_seeds.py $<.corpus
	$(Q)$< $(FUZZ_RUN) -max_len=16384 $<.corpus
