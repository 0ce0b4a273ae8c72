# The small foundation of every C program here: errors, descriptors, deadlines, compiled tables,
# control sockets. Depends on nothing but libc. Other rooms link $(BASE_LIB) or, for sanitizer
# builds, compile $(BASE_SRCS) themselves.

BASE_SRCS := $(wildcard csrc/base/*.c)
BASE_HDRS := $(wildcard csrc/base/*.h) csrc/hark_control.h
BASE_OBJS := $(patsubst csrc/%.c,$(BUILD)/obj/%.o,$(BASE_SRCS))
BASE_LIB := $(BUILD)/lib/libharkbase.a
BASE_INC := -Icsrc -Icsrc/base

$(BUILD)/obj/base/%.o: csrc/base/%.c $(BASE_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(CFLAGS) $(WARN) $(HARDEN) $(BASE_INC) -c $< -o $@

$(BASE_LIB): $(BASE_OBJS)
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

.PHONY: tidy-base
TIDY_TARGETS += tidy-base
tidy-base:
	$(call say,TIDY,csrc/base)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(BASE_SRCS) -- $(CSTD) $(BASE_INC) 2>/dev/null
