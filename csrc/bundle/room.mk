# The C core of a bundle, as an archive for hark._native, the fuzz targets and the C tests. BLAKE3
# is compiled from the official sources that Debian ships; fetch_blake3.sh checks each by digest.

B3_DIR := $(BUILD)/third_party/blake3
B3_ASM := $(if $(filter x86_64,$(shell uname -m)),sse2 sse41 avx2 avx512)
B3_NAMES := blake3 blake3_dispatch blake3_portable $(if $(B3_ASM),,blake3_neon)
B3_OBJS := $(B3_NAMES:%=$(BUILD)/obj/blake3/%.o) \
	$(B3_ASM:%=$(BUILD)/obj/blake3/blake3_%_x86-64_unix.o)

BUNDLE_SRCS := $(wildcard csrc/bundle/*.c)
BUNDLE_HDRS := $(wildcard csrc/bundle/*.h)
BUNDLE_OBJS := $(patsubst csrc/%.c,$(BUILD)/obj/%.o,$(BUNDLE_SRCS))
BUNDLE_LIB := $(BUILD)/lib/libharkbundle.a
BUNDLE_INC := -Icsrc/bundle -isystem $(B3_DIR)
# The archive ends in a shared object, and its inner loops pay for -O3.
BUNDLE_CFLAGS := -fPIC -fvisibility=hidden -O3 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2
NATIVE_PREREQS += $(BUNDLE_LIB)

$(B3_DIR)/.done: csrc/bundle/fetch_blake3.sh $(wildcard csrc/bundle/blake3-*.sha256)
	$(call say,FETCH,BLAKE3)
	$(Q)csrc/bundle/fetch_blake3.sh $(B3_DIR)
	$(Q)touch $@

$(B3_OBJS): $(B3_DIR)/.done
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)src=$(B3_DIR)/$(basename $(@F)); test -e $$src.c && src=$$src.c || src=$$src.S; \
		$(CC) -std=c11 -O3 -fPIC -fvisibility=hidden -w -c $$src -o $@

$(BUILD)/obj/bundle/%.o: csrc/bundle/%.c $(BUNDLE_HDRS) $(B3_DIR)/.done
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(WARN) $(BUNDLE_CFLAGS) $(BUNDLE_INC) -c $< -o $@

$(BUNDLE_LIB): $(BUNDLE_OBJS) $(B3_OBJS)
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

.PHONY: tidy-bundle
TIDY_TARGETS += tidy-bundle
tidy-bundle: $(B3_DIR)/.done
	$(call say,TIDY,csrc/bundle)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(BUNDLE_SRCS) -- $(CSTD) $(BUNDLE_INC) 2>/dev/null
