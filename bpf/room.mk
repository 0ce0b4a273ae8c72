# The BPF programs: one object per subject, linked into one so that a run loads (or finds pinned)
# a single set. Offsets are patched at load time, so the object fits every kernel it supports.

BPF_ARCH := $(if $(filter x86_64,$(shell uname -m)),x86,arm64)
BPF_SUBJECTS := process syscall socket
BPF_HDRS := bpf/hark_abi.h bpf/hark_abi_check.h bpf/hark_core.h bpf/hark_maps.h bpf/hark_count.h \
	bpf/hark_spawn.h bpf/hark_acts.h
BPF_FLAGS := -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(BPF_ARCH) -Ibpf \
	-isystem /usr/include/$(shell $(CC) -print-multiarch) \
	-Wall -Wextra -Werror -Wno-unused-parameter
BPF_OBJECTS += $(BUILD)/bpf/hark.bpf.o $(BUILD)/bpf/idle.bpf.o
BPF_ANCHOR := $(BUILD)/bpf/abi.bpf.o

$(BUILD)/bpf/%.bpf.o: bpf/%.bpf.c $(BPF_HDRS)
	$(call say,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_FLAGS) -c $< -o $@

$(BUILD)/bpf/hark.bpf.o: $(BPF_SUBJECTS:%=$(BUILD)/bpf/%.bpf.o)
	$(call say,BPFLINK,$@)
	$(Q)bpftool gen object $@ $^

# What tests/test_abi.py compares with cffi: never loaded, never installed.
bpf: $(BPF_ANCHOR)

# Programs with one rule left out, to show that the test of the idle count can fail. Never installed.
BPF_MUTANTS := $(BUILD)/bpf/idle-no-waking.bpf.o $(BUILD)/bpf/idle-disk-is-idle.bpf.o
bpf: $(BPF_MUTANTS)
$(BUILD)/bpf/idle-no-waking.bpf.o: BPF_MUTATION := -DHARK_MUTANT_NO_WAKING
$(BUILD)/bpf/idle-disk-is-idle.bpf.o: BPF_MUTATION := -DHARK_MUTANT_DISK_IS_IDLE
$(BPF_MUTANTS): bpf/idle.bpf.c $(BPF_HDRS)
	$(call say,BPF,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_FLAGS) $(BPF_MUTATION) -c $< -o $@
