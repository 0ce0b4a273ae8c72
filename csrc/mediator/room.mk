# hark-mediator: TLS and HTTP at the boundary. Needs OpenSSL, and llhttp as C (fetch_llhttp.sh).

LLHTTP := $(BUILD)/third_party/llhttp
LLHTTP_SRCS := $(addprefix $(LLHTTP)/src/,api.c http.c llhttp.c)
LLHTTP_OBJS := $(addprefix $(BUILD)/obj/llhttp/,api.o http.o llhttp.o)

MEDIATOR_ALL := $(wildcard csrc/mediator/*.c)
MEDIATOR_SRCS := $(filter-out csrc/mediator/hark_sandbox_null.c,$(MEDIATOR_ALL))
# What runs without a socket: parsers, judgements, rewriting. Tests and fuzzers link these alone.
MEDIATOR_PURE := $(addprefix csrc/mediator/,hark_address.c hark_answer.c hark_base64.c hark_buf.c hark_check.c hark_cred.c \
	hark_form.c hark_h1.c hark_name.c hark_policy.c hark_reason.c hark_rebuild.c)
MEDIATOR_HDRS := $(wildcard csrc/mediator/*.h bpf/hark_abi*.h) $(BASE_HDRS)
MEDIATOR_OBJS := $(patsubst csrc/%.c,$(BUILD)/obj/%.o,$(MEDIATOR_SRCS))
MEDIATOR_INC := -Icsrc/mediator $(BASE_INC) -isystem $(LLHTTP)/include
MEDIATOR_LIBS := -lssl -lcrypto

PROGRAMS += $(BUILD)/bin/hark-mediator
NATIVE_PREREQS += csrc/mediator/hark_reasons.h

# One file stands for the unpacked sdist.
$(LLHTTP)/include/llhttp.h: csrc/mediator/fetch_llhttp.sh | $(VENV)/.run
	$(call say,FETCH,llhttp)
	$(Q)csrc/mediator/fetch_llhttp.sh $(PY) $(BUILD)/third_party
	$(Q)touch $@

$(LLHTTP_SRCS): $(LLHTTP)/include/llhttp.h ;

# Generated code: its warnings are not ours.
$(BUILD)/obj/llhttp/%.o: $(LLHTTP)/src/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(CFLAGS) -w $(HARDEN) -I$(LLHTTP)/include -c $< -o $@

$(BUILD)/obj/mediator/%.o: csrc/mediator/%.c $(MEDIATOR_HDRS) $(LLHTTP)/include/llhttp.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(CFLAGS) $(WARN) $(HARDEN) $(MEDIATOR_INC) -c $< -o $@

$(BUILD)/bin/hark-mediator: $(MEDIATOR_OBJS) $(LLHTTP_OBJS) $(BASE_LIB)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(HARDEN) -pie $^ -o $@ $(MEDIATOR_LIBS)

# ---- tests ----

.PHONY: test-c-mediator
TEST_C_TARGETS += test-c-mediator
MEDIATOR_TESTS := $(wildcard tests/c/mediator_*.c)
MEDIATOR_TEST_BINS := $(patsubst tests/c/%.c,$(BUILD)/tests/%,$(MEDIATOR_TESTS))

$(BUILD)/tests/mediator_%: tests/c/mediator_%.c $(MEDIATOR_PURE) $(BASE_SRCS) $(MEDIATOR_HDRS) $(LLHTTP_OBJS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g $(WARN) $(SAN) $(MEDIATOR_INC) $< $(MEDIATOR_PURE) $(BASE_SRCS) \
		$(LLHTTP_OBJS) -o $@ -lcmocka

# The cage itself: no sanitizer lives in it.
$(BUILD)/tests/mediator_cage: tests/c/mediator_cage.c csrc/mediator/hark_sandbox.c $(BASE_SRCS) $(MEDIATOR_HDRS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) $(CFLAGS) $(WARN) $(MEDIATOR_INC) $< csrc/mediator/hark_sandbox.c $(BASE_SRCS) \
		-o $@ -lcmocka

test-c-mediator: $(MEDIATOR_TEST_BINS)
	$(Q)for t in $^; do $$t || exit 1; done

# The whole program under sanitizers, without its filter, which they cannot live in.
.PHONY: san-mediator
SAN_TARGETS += san-mediator
MEDIATOR_SAN_SRCS := $(filter-out csrc/mediator/hark_sandbox.c,$(MEDIATOR_ALL))
$(BUILD)/san/hark-mediator: $(MEDIATOR_SAN_SRCS) $(BASE_SRCS) $(MEDIATOR_HDRS) $(LLHTTP_SRCS)
	$(call say,SAN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CSTD) -O1 -g $(WARN) $(SAN) $(MEDIATOR_INC) $(MEDIATOR_SAN_SRCS) $(BASE_SRCS) \
		$(LLHTTP_OBJS) -o $@ $(MEDIATOR_LIBS)
$(BUILD)/san/hark-mediator: $(LLHTTP_OBJS)
# Its own tests run against it: every path they take is then a sanitized one.
san-mediator: $(BUILD)/san/hark-mediator native
	$(Q)HARK_TEST_MEDIATOR=$(CURDIR)/$< $(VENV)/bin/pytest -q -p no:cacheprovider tests/mediator

.PHONY: tidy-mediator
TIDY_TARGETS += tidy-mediator
tidy-mediator: $(LLHTTP)/include/llhttp.h
	$(call say,TIDY,csrc/mediator)
	$(Q)$(VENV)/bin/clang-tidy --quiet $(MEDIATOR_SRCS) -- $(CSTD) $(MEDIATOR_INC) 2>/dev/null

# ---- fuzzing: libFuzzer with address and undefined-behaviour sanitizers ----

.PHONY: fuzz-mediator
FUZZ_TARGETS += fuzz-mediator
MEDIATOR_FUZZ := $(patsubst csrc/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard csrc/fuzz/mediator_*.c))
FUZZ_FLAGS := -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -O1 -g

$(BUILD)/fuzz/mediator_%: csrc/fuzz/mediator_%.c $(MEDIATOR_PURE) $(BASE_SRCS) $(MEDIATOR_HDRS) $(LLHTTP_SRCS) csrc/fuzz/mediator_h1.h
	$(call say,FUZZ,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(CSTD) $(FUZZ_FLAGS) -w $(MEDIATOR_INC) $< $(MEDIATOR_PURE) $(BASE_SRCS) \
		$(LLHTTP_SRCS) -o $@

fuzz-mediator: $(MEDIATOR_FUZZ)
	$(Q)for f in $^; do mkdir -p $$f.corpus; \
		$$f $(FUZZ_RUN) -max_len=8192 \
			$$f.corpus csrc/fuzz/corpus/$${f##*/} || exit 1; done
