# The loader and reader of the BPF sensors, as an archive for hark._native; hark_pins.c needs no
# libbpf and is linked into the static launcher too.

SENSORS_SRCS := $(wildcard csrc/sensors/*.c) csrc/base/hark_err.c csrc/base/hark_fd.c
SENSORS_HDRS := $(wildcard csrc/sensors/*.h) $(BASE_HDRS) bpf/hark_abi.h bpf/hark_abi_check.h
SENSORS_OBJS := $(patsubst csrc/%.c,$(BUILD)/obj/pic/%.o,$(SENSORS_SRCS))
SENSORS_LIB := $(BUILD)/lib/libharksensors.a
SENSORS_INC := -Icsrc -Icsrc/base -Icsrc/sensors -Ibpf
SENSORS_CFLAGS := -fPIC -fvisibility=hidden -O2 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2
NATIVE_PREREQS += $(SENSORS_LIB)

$(BUILD)/obj/pic/%.o: csrc/%.c $(SENSORS_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(WARN) $(SENSORS_CFLAGS) $(SENSORS_INC) -c $< -o $@

$(BUILD)/obj/sensors/hark_pins.o: csrc/sensors/hark_pins.c $(SENSORS_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(CFLAGS) $(WARN) $(HARDEN) $(SENSORS_INC) -c $< -o $@

$(SENSORS_LIB): $(SENSORS_OBJS)
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

.PHONY: tidy-sensors
TIDY_TARGETS += tidy-sensors
tidy-sensors:
	$(call say,TIDY,csrc/sensors)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(wildcard csrc/sensors/*.c) -- $(CSTD) $(SENSORS_INC) 2>/dev/null

# Membership under sanitizers; it is also what `make san` has of this room, since everything else
# in it is a call into libbpf or the kernel.
PINS_TEST := $(BUILD)/tests/sensors_pins
$(PINS_TEST): tests/c/sensors_pins.c csrc/sensors/hark_pins.c $(SENSORS_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g $(SAN) -Wall -Wextra $(SENSORS_INC) $< csrc/sensors/hark_pins.c \
		csrc/base/hark_err.c csrc/base/hark_fd.c -o $@ -lcmocka

.PHONY: test-c-sensors san-sensors
TEST_C_TARGETS += test-c-sensors
SAN_TARGETS += san-sensors
test-c-sensors san-sensors: $(PINS_TEST)
	$(Q)$<
