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

# ---- tests: the C core under sanitizers, BLAKE3 in portable C so that they see into it ----

B3_PORTABLE := -DBLAKE3_NO_SSE2 -DBLAKE3_NO_SSE41 -DBLAKE3_NO_AVX2 -DBLAKE3_NO_AVX512
B3_C := $(addprefix $(B3_DIR)/,blake3.c blake3_dispatch.c blake3_portable.c)

.PHONY: test-c-bundle
TEST_C_TARGETS += test-c-bundle
$(BUILD)/tests/bundle_core: tests/c/bundle_core.c $(BUNDLE_SRCS) $(BUNDLE_HDRS) $(B3_DIR)/.done
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g $(SAN) $(B3_PORTABLE) -Wall -Wextra $(BUNDLE_INC) $< $(BUNDLE_SRCS) \
		$(B3_C) -o $@ -lcmocka

test-c-bundle: $(BUILD)/tests/bundle_core
	$(Q)$<

# The extension module under sanitizers, with every hostile file and many damaged ones.
.PHONY: san-bundle
SAN_TARGETS += san-bundle
BUNDLE_SAN_LIB := $(BUILD)/lib/libharkbundle-san.a
$(BUNDLE_SAN_LIB): $(BUNDLE_SRCS) $(BUNDLE_HDRS) $(B3_DIR)/.done
	$(call say,SAN,$@)
	$(Q)rm -rf $(BUILD)/obj/bundle-san && mkdir -p $(BUILD)/obj/bundle-san $(@D)
	$(Q)for src in $(BUNDLE_SRCS) $(B3_C); do \
		$(CC) $(CSTD) -O1 -g -fPIC $(SAN) $(B3_PORTABLE) $(BUNDLE_INC) -c $$src \
			-o $(BUILD)/obj/bundle-san/$$(basename $$src .c).o; done
	$(Q)rm -f $@ && $(AR) rcs $@ $(BUILD)/obj/bundle-san/*.o

$(BUILD)/san/.native: $(BUNDLE_SAN_LIB) csrc/build_ffi.py
	$(call say,SAN,hark._native)
	$(Q)$(PY) csrc/build_ffi.py --sanitized $(BUILD)/san
	$(Q)touch $@

san-bundle: $(BUILD)/san/.native
	$(call say,SAN,hostile bundles)
	$(Q)LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=tests/bundle \
		$(PY) tests/fuzz/bundle_sanitized.py $(BUILD)/san

# ---- fuzzing ----

.PHONY: fuzz-bundle
FUZZ_TARGETS += fuzz-bundle
BUNDLE_FUZZ := $(patsubst csrc/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard csrc/fuzz/bundle_*.c))

$(BUILD)/fuzz/bundle_%: csrc/fuzz/bundle_%.c $(BUNDLE_SRCS) $(BUNDLE_HDRS) $(B3_DIR)/.done
	$(call say,FUZZ,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(CSTD) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
		-O1 -g -w $(B3_PORTABLE) $(BUNDLE_INC) $< $(BUNDLE_SRCS) $(B3_C) -o $@

fuzz-bundle: $(BUNDLE_FUZZ)
	$(Q)PYTHONPATH=tests/bundle $(PY) tests/fuzz/bundle_seeds.py $(BUILD)/fuzz
	$(Q)for f in $(BUNDLE_FUZZ); do \
		$$f $(FUZZ_RUN) -max_len=16384 \
			$$f.corpus || exit 1; done
	$(Q)PYTHONPATH=tests/bundle $(PY) tests/fuzz/bundle_files.py --seconds $(FUZZ_S)
	$(Q)$(PY) tests/fuzz/bundle_atheris.py $(FUZZ_RUN) -max_len=16384 \
		$(BUILD)/fuzz/bundle_atheris.corpus
	$(Q)mkdir -p $(BUILD)/fuzz/workspace_atheris.corpus
	$(Q)$(PY) tests/fuzz/workspace_atheris.py $(FUZZ_RUN) -max_len=4096 \
		$(BUILD)/fuzz/workspace_atheris.corpus

.PHONY: bench-bundle
BENCH_TARGETS += bench-bundle
bench-bundle:
	$(Q)$(PY) tests/bench/bundle.py $(BENCH_ARGS)
