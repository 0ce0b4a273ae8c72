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

.PHONY: tidy-launch
TIDY_TARGETS += tidy-launch
tidy-launch:
	$(call say,TIDY,csrc/launch)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(LAUNCH_SRCS) -- $(CSTD) $(LAUNCH_INC) 2>/dev/null
