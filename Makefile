# SPDX-License-Identifier: Apache-2.0
#
# Sluice. `make run` starts it, `make test` tests it; both install what is missing after asking.
# `make help` lists everything.

SHELL := /bin/bash
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
SAN ?=
# With sanitizers -O2 takes more than twice as long to compile, and every load is a check anyway. Their reports name lines
# only, for which -g1 is enough and much less work.
OPT ?= $(if $(SAN),-O1 -g1,-O2 -g)
# The unit tests' own code is short work, and long to compile. (Without optimisation no ranges are known, and every number
# may be too long for its text.)
TEST_OPT ?= $(if $(SAN),-O0 -Wno-format-truncation)
# Names and lines, as with sanitizers: a sixth of the time to compile them, and objects of a third of the size to link.
TEST_DEBUG ?= $(if $(SAN),,-g1)
PREFIX ?= /usr/local
DESTDIR ?=
# A build folder for each set of sanitizers, so that switching rebuilds nothing.
comma := ,
B := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))

# As many jobs as there are cores, unless -j was given.
JOBS ?= $(shell nproc)
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(JOBS)
endif
# Without make's own rules, which it would try for every header.
MAKEFLAGS += --no-print-directory --no-builtin-rules
.SUFFIXES:
Q := $(if $(V),,@)
# gold links in a third of the time: sanitized programs, and what only tests run. What ships is linked by the system's own.
GOLD := $(if $(findstring clang,$(CC)),,$(if $(shell command -v ld.gold 2>/dev/null),-fuse-ld=gold))
LINKER := $(if $(SAN),$(GOLD))
say = $(if $(V),@:,@printf '  %-5s %s\n' '$(1)' '$(2)')

# A fresh system has no pkg-config yet: then these are empty, and `needs` says what is missing.
PKGS := libevent libevent_openssl libevent_pthreads hiredis libnghttp2 libssl libcrypto jansson yaml-0.1 libpcre2-8 libxxhash libutf8proc libseccomp lua5.1
# Not libcurl: what is a client of other servers opens it at run time (base/http/curl_library.h). Its headers are in the usual folder.
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
WARN := -Wall -Wextra -Wshadow -Wconversion -Werror
# Sanitizers make gcc see uninitialised variables where there are none (its manual says so of that warning).
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all $(if $(findstring clang,$(CC)),,-Wno-maybe-uninitialized))
CFLAGS_ALL := -std=gnu11 -D_GNU_SOURCE $(OPT) $(WARN) -fno-math-errno -ffp-contract=off $(SANFLAGS) \
	-I. -I$(B) $(PKG_CFLAGS) -pthread $(CFLAGS)
LIBS_ALL := $(PKG_LIBS) -lm -ldl -pthread $(SANFLAGS) $(LINKER) $(LDFLAGS)

# Compilers' results are kept where ccache is installed; `make CCACHE=` does without. Clones in different folders share them.
CCACHE ?= $(if $(findstring ccache,$(CC)),,$(shell command -v ccache 2>/dev/null))
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
# Nothing is preprocessed where nothing is found: the compiler lists the headers.
export CCACHE_DEPEND ?= 1

# The CUDA backend is a shared object of its own, made when there is a toolkit; `make NVCC=` leaves it out.
# (It may be a link or a script of another folder's: where its headers lie is its own business.)
FOUND_NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
NVCC := $(and $(FOUND_NVCC),$(or $(wildcard $(dir $(FOUND_NVCC))../include/cublasLt.h),$(shell \
	echo '\#include <cublasLt.h>' | $(FOUND_NVCC) -x cu -M - >/dev/null 2>&1 && echo yes)),$(FOUND_NVCC))
# Machine code for each generation: the driver would compile PTX at the first launch, for half a minute. 80's code runs on 86
# and 89. `make cuda-all` has code of their own for these and for the boards (87, 110), which take no other device's.
# 90a has the products of warp groups (kernels/cuda/wgmma.cu), which 90 lacks. (`make test` compiles one architecture where
# there is no device.)
CUDA_ARCHS ?= 80 90a 100 120
CUDA_ALL := 80 86 87 89 90a 100 110 120
# And PTX of the oldest, for every device without code, later ones included.
cuda_ptx = $(firstword $(filter-out %a,$(CUDA_ARCHS)))
cuda_gen = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	$(if $(cuda_ptx),-gencode arch=compute_$(cuda_ptx)$(comma)code=compute_$(cuda_ptx))
# No contraction: the same expression has the same bits in every kernel.
# One file has most of the work: its parts are compiled side by side by ptxas. Not before: nvcc's own --split-compile makes
# other PTX, for which attention spills on 100 and 120, and whose code depends on the number of jobs.
# (`make test` compiles quickly instead where there is no device.)
CUDA_OPT ?= -O3 -Xptxas --split-compile=$(JOBS)
# -lineinfo: profilers name the source's lines; it changes no code.
NVCCFLAGS := -std=c++17 $(CUDA_OPT) -lineinfo --fmad=false $(if $(filter 90a,$(CUDA_ARCHS)),-DKN_WGMMA) -Werror all-warnings -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -I.
# The longest one first.
CUDA_SRC := $(sort $(wildcard kernels/cuda/attention*.cu)) $(filter-out kernels/cuda/attention%,$(wildcard kernels/cuda/*.cu kernels/cuda/*/*.cu))
CUDA_OBJ := $(CUDA_SRC:%.cu=$(B)/%.o)
CUDA_SO := $(if $(NVCC),$(if $(SAN),,$(B)/libsluice-cuda.so))
# The same sources compiled for the emulation, for tests (tests/emulation). No C++ library is used:
# C's headers are read as they are, which is a third of the work.
CXX := $(if $(filter default,$(origin CXX)),$(if $(findstring clang,$(CC)),clang++,g++),$(CXX))
EMU_SRC := $(filter-out %_cuda.cu,$(CUDA_SRC)) $(wildcard tests/emulation/*.cu)
EMU_OBJ := $(patsubst %.cu,$(B)/emulation/%.o,$(notdir $(EMU_SRC)))
EMU_SO := $(B)/libsluice-cuda-emulated.so
# The same with kernels that report every access (tests/emulation/emu_watch.h); not beside a sanitizer of the compiler's own.
WATCHED_SRC := $(filter kernels/%,$(EMU_SRC)) tests/emulation/emu_probe.cu
WATCHED_OBJ := $(patsubst %.cu,$(B)/emulation/watched/%.o,$(notdir $(WATCHED_SRC)))
WATCHED_ALL := $(WATCHED_OBJ) $(filter-out $(addprefix %/,$(notdir $(WATCHED_OBJ))),$(EMU_OBJ))
WATCH_FLAGS := -fsanitize=thread
WATCHED_SO := $(if $(SAN),,$(B)/libsluice-cuda-watched.so)
EMU_FLAGS := -x c++ -std=gnu++17 -nostdinc++ '-DKN_EMULATED="tests/emulation/emu.h"' $(if $(findstring thread,$(SAN)),-DKN_EMU_THREADS) $(OPT) -g1 -fPIC \
	-fvisibility=hidden -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-math-errno -ffp-contract=off \
	-fno-strict-aliasing -Wall -Wextra -Wshadow -Werror -Wno-unknown-pragmas $(SANFLAGS) -pthread

# The same sources with CUDA's own device layer on a stand-in for its runtime (tests/standin). The kernels call at each
# access to memory; no sanitizer is linked, so this is the same in every build.
STANDIN_SRC := $(CUDA_SRC) tests/emulation/emu.cu tests/emulation/emu_warp.cu tests/emulation/emu_watch.cu tests/emulation/emu_count.cu $(wildcard tests/standin/*.cu)
STANDIN_OBJ := $(patsubst %.cu,$(B)/standin/%.o,$(notdir $(STANDIN_SRC)))
STANDIN_SO := $(B)/libsluice-cuda-standin.so
STANDIN_LIBRARY := $(B)/standin/libcublasLt.so.13
STANDIN_FLAGS := $(filter-out -DKN_EMU_THREADS $(SANFLAGS) $(OPT),$(EMU_FLAGS)) -O2 -Itests/standin/include -DKN_STANDIN -DKN_WGMMA
ACCESSES := -fsanitize=kernel-address $(if $(findstring clang,$(CXX)),$(addprefix -mllvm -asan-,instrumentation-with-call-threshold=0 \
	stack=0 globals=0),$(addprefix --param asan-,instrumentation-with-call-threshold=0 stack=0 globals=0))

# Files that need an instruction set of their own; everything else runs anywhere.
ISA_avx2 := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
ISA_vnni := $(ISA_avx512) -mavx512vnni
# To follow every value of their long unrolled loops takes half of the time to compile them: names and lines are what their
# debugging information has. (The code is the same.)
# Nor are they sanitized, which takes four times as long to compile: tests/kernels runs them as they ship, between guard bands.
isa = $(or $(foreach i,avx512 vnni avx2,$(if $(findstring _$(i),$(1)),$(ISA_$(i)) -g1 $(if $(findstring address,$(SAN)),-fno-sanitize=all))))

# A folder's own files and its rooms'.
sources = $(wildcard $(foreach d,$(1),$(d)/*.c $(d)/*/*.c))
LIB_SRC := $(call sources,base kernels engine cascade cache gateway)
CMD_SRC := $(call sources,cmd)
WWW_SRC := $(wildcard gateway/www/*.* gateway/www/vendor/*.*) gateway/openapi.json
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(B)/gateway/api/www_files.o
CMD_OBJ := $(CMD_SRC:%.c=$(B)/%.o)
# Of the program sluice-bench alone. `sluice plan` uses the load's descriptions.
BENCH_OBJ := $(filter $(B)/cmd/bench/% $(B)/cmd/load/%,$(CMD_OBJ))
PLAN_OBJ := $(addprefix $(B)/cmd/load/,arrivals.o workload.o load_trace.o sweep.o histogram.o)
TEST_SRC := $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c tests/kernels/test_*.c tests/sim/test_*.c)
TEST_BIN := $(TEST_SRC:%.c=$(B)/%)
# These replace functions of the library, each for itself only, or their own bytes are a key (seen.h).
ALONE_BIN := $(patsubst %.c,$(B)/%,$(shell grep -lE 'only_cuda\.h|tests/kernels/seen\.h|fake_model\.h|alloc_meter\.h|^int pthread_cond_|^void .sl_alloc.size_t' $(TEST_SRC)))
ROOM_BIN := $(filter-out $(ALONE_BIN),$(TEST_BIN))
HELPER_BIN := $(patsubst %.c,$(B)/%,$(wildcard tests/support/*.c tests/gpu/*.c))

.PHONY: cuda-all gpu-test gpu-kit kernel-table build run check test perf soak lint format unit tests helpers e2e clean install uninstall deb help needs force
.SECONDARY:
.DELETE_ON_ERROR:
# No built-in rule may guess how a program is made.
%: %.c
%.o: %.c

build: $(B)/sluice $(B)/sluice-bench $(CUDA_SO)

help:
	@printf '%s\n' \
	  'make run              a running server on http://localhost:8080' \
	  '     MODEL=f.gguf     serves this model instead of the demonstration pair; also a folder, or what' \
  '                      `sluice pull` takes: MODEL=hf:OWNER/NAME:Q4_K_M' \
	  '     SMALL=f.gguf     and this one as the small one of the pair' \
	  '     STATE=dir        its state folder (state/)' \
	  "     ARGS='...'       more arguments for sluice serve" \
	  'make test             everything CI runs; ends with one line: N passed, N failed, N skipped' \
	  '     tests/fresh_root.sh runs it and `make run` in a fresh Debian 12 (as root, with debootstrap)' \
	  'make check            a subset of two minutes' \
	  'make build            build/sluice, build/sluice-bench, and build/libsluice-cuda.so where there is a CUDA toolkit' \
	  'make cuda-all         build/libsluice-cuda.so for every architecture' \
	  'make gpu-test         the tests of the CUDA kernels on a device; exit status 77 without one' \
	  'make gpu-kit          build/sluice-gpu-kit.tar: all tests and measurements of a device, in one table, for a machine' \
	  '                      that has only a driver' \
	  'make kernel-table     registers, shared memory, spills, warps and bytes in flight of every kernel' \
	  'make unit             unit tests, kernel tests, simulations' \
	  'make e2e              end-to-end tests: real server, clients, browser' \
	  'make perf             what measures speed, on a quiet machine: figures and whether they are as required' \
	  'make lint             clang-tidy, cppcheck, rooms and arrows, format, spelling, scripts' \
	  'make format           clang-format, all files' \
	  'make soak             long runs: fuzzers, simulations, chaos (SECONDS_EACH=60)' \
	  'make install          DESTDIR= PREFIX=/usr/local SYSCONFDIR=/etc STATEDIR=/var/lib/sluice; make uninstall' \
	  'make deb              build/deb/sluice_VERSION_ARCH.deb, with a service; tests/package.sh tries it in a fresh Debian' \
	  'make clean' \
	  '' \
	  'SAN=address,undefined builds and tests with sanitizers; YES=1 installs without asking;' \
	  'V=1 shows every command.'

# ---- building ----

needs:
	@etc/setup.sh --check build

# Rewritten only when the flags differ, so that a change of flags rebuilds everything.
$(B)/flags: force | needs
	@mkdir -p $(B)
	@echo '$(CC) $(CFLAGS_ALL) $(LIBS_ALL)' | cmp -s - $@ || { \
	  echo '$(CC) $(CFLAGS_ALL) $(LIBS_ALL)' >$@; \
	  $(if $(NVCC),true,echo 'No CUDA toolkit ($(if $(FOUND_NVCC),cublasLt.h for $(FOUND_NVCC),nvcc)) found: building for the CPU'); }

$(B)/version.h: VERSION force
	@mkdir -p $(B)
	@v=$$(cat VERSION); g=$$(git describe --always --dirty 2>/dev/null); \
	  line="#define SLUICE_VERSION \"$$v$${g:+ ($$g)}\""; \
	  echo "$$line" | cmp -s - $@ || echo "$$line" >$@

$(B)/sluice: $(filter-out $(BENCH_OBJ),$(CMD_OBJ)) $(PLAN_OBJ) $(B)/libsluice.a
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ $(LIBS_ALL)

# Measurements and load generators: `sluice bench` starts it.
$(B)/sluice-bench: $(B)/cmd/bench/main.o $(B)/libcmd.a $(B)/libsluice.a
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $^ $(LIBS_ALL)

$(B)/libsluice.a: $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^

# The subcommands without main, for tests of them.
$(B)/libcmd.a: $(filter-out %/main.o,$(CMD_OBJ))
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CCACHE) $(CC) $(CFLAGS_ALL) $(call isa,$*) -MMD -MP -c -o $@ $<

$(B)/cmd/main.o $(B)/cmd/bench/main.o $(B)/cmd/bench/bench.o $(B)/gateway/api/api_ollama.o $(B)/cmd/hub/hub_net.o: $(B)/version.h
$(B)/gateway/admin/admin_status.o $(B)/gateway/observe/otlp.o $(B)/gateway/observe/process_gauges.o: $(B)/version.h

# ---- the CUDA backend ----

$(B)/cuda.flags: force | needs
	@mkdir -p $(B)
	@line='$(NVCC) $(cuda_gen) $(NVCCFLAGS)'; echo "$$line" | cmp -s - $@ || { \
	  echo "$$line" >$@; \
	  echo 'CUDA toolkit found ($(NVCC)): building libsluice-cuda.so for $(addprefix sm_,$(CUDA_ARCHS))'; }

$(CUDA_OBJ): $(B)/%.o: %.cu $(B)/cuda.flags
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(CCACHE) $(NVCC) $(NVCCFLAGS) $(cuda_gen) --threads 2 -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(B)/libsluice-cuda.so: $(CUDA_OBJ)
	$(call say,LINK,$@)
	$(Q)$(NVCC) -shared -cudart static -Xcompiler -static-libstdc++,-static-libgcc -Xlinker --exclude-libs,ALL,-z,defs -o $@.new $^
	$(Q)! readelf -d $@.new | grep NEEDED | grep -Ev '\[(lib(c|m|dl|rt|pthread)|ld-linux[-a-z0-9_]*)\.so\.[0-9]+\]' || { \
	  echo "$@: needs more than the C library, which is all that a machine with a driver has"; exit 1; }
	$(Q)mv $@.new $@

cuda-all:
	$(if $(NVCC),,$(error no CUDA toolkit (nvcc) found))
	$(Q)$(MAKE) $(B)/libsluice-cuda.so CUDA_ARCHS='$(CUDA_ALL)'

# The tests that make sense on a device, and what runs them and the measurements: a static program (tests/gpu/kit).
GPU_TESTS := $(addprefix $(B)/,$(basename $(filter %/test_ops.c %/test_encoder_ops.c %/test_experts.c %/test_attention.c %/test_types.c %/test_cuda_products.c %/test_cuda_attention.c \
	%/test_recurrent_ops.c %/kernels/test_latent.c %/test_graphs.c %/test_sample.c %/test_library.c %/test_lora.c %/test_engine_adapters.c %/core/test_draft_head.c %/core/test_families.c %/core/test_encoders.c %/core/test_golden.c \
	%/core/test_invariance.c %/core/test_weight_types.c,$(TEST_SRC))) tests/gpu/probe)
KIT := $(B)/tests/gpu/kit

$(KIT): $(wildcard tests/gpu/kit/*.[ch]) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -O2 -g $(WARN) -I. -static -o $@ $(filter %.c,$^)

gpu-test: $(CUDA_SO) $(GPU_TESTS) $(KIT)
	$(KIT) --tests $(B)

# An archive that needs nothing of a machine but a driver and the C library: unpack it and run sluice-gpu-kit/kit. Stripped,
# with the libraries that its programs need and the models that tests read.
GPU_KIT := $(B)/sluice-bench $(CUDA_SO) $(GPU_TESTS)
gpu-kit: $(GPU_KIT) $(KIT)
	$(Q)tests/gpu/pack.sh $(B) $(GPU_KIT:$(B)/%=%)

# What every kernel needs of a device, as a committed result; fails if one spills or an architecture is missing.
kernel-table: $(CUDA_SO) $(EMU_SO) $(filter $(B)/tests/kernels/%,$(GPU_TESTS)) $(B)/tests/kernels/test_joined
	$(if $(NVCC),,$(error no CUDA toolkit (nvcc) found))
	node tests/bench/kernels.mjs $(B) >tests/bench/results/kernels-$$(cat VERSION).md

$(B)/emulation/flags: force | needs
	@mkdir -p $(@D)
	@echo "$(CXX) $(EMU_FLAGS) $(LDFLAGS)" | cmp -s - $@ || echo "$(CXX) $(EMU_FLAGS) $(LDFLAGS)" >$@

define emulated
$(B)/emulation/$(basename $(notdir $(1))).o: $(1) $(B)/emulation/flags
	$$(call say,C++,$$<)
	$$(Q)$$(CCACHE) $$(CXX) $$(EMU_FLAGS) -I. -MMD -MP -c -o $$@ $$<
endef
$(foreach s,$(EMU_SRC),$(eval $(call emulated,$(s))))

define watched
$(B)/emulation/watched/$(basename $(notdir $(1))).o: $(1) $(B)/emulation/flags
	@mkdir -p $$(@D)
	$$(call say,C++,$$< (watched))
	$$(Q)$$(CCACHE) $$(CXX) $$(EMU_FLAGS) $(WATCH_FLAGS) -I. -MMD -MP -c -o $$@ $$<
endef
$(foreach s,$(WATCHED_SRC),$(eval $(call watched,$(s))))

$(WATCHED_SO): $(WATCHED_ALL)
	$(Q)$(CXX) -shared -Wl,-z,defs -o $@ $^ -lm -pthread $(LDFLAGS)

$(EMU_SO): $(EMU_OBJ)
	$(Q)$(CXX) -shared -o $@ $^ -lm -pthread $(SANFLAGS) $(LDFLAGS)

$(B)/standin/flags: force | needs
	@mkdir -p $(@D)
	@echo "$(CXX) $(STANDIN_FLAGS) $(ACCESSES) $(LDFLAGS)" | cmp -s - $@ || echo "$(CXX) $(STANDIN_FLAGS) $(ACCESSES) $(LDFLAGS)" >$@

define standin
$(B)/standin/$(basename $(notdir $(1))).o: $(1) $(B)/standin/flags
	$$(call say,C++,$$<)
	$$(Q)$$(CCACHE) $$(CXX) $$(STANDIN_FLAGS) $(if $(findstring kernels/,$(1)),$$(ACCESSES)) -I. -MMD -MP -c -o $$@ $$<
endef
$(foreach s,$(STANDIN_SRC),$(eval $(call standin,$(s))))

# What the backend opens by dlopen lies where it finds it first.
STANDIN_LINK := -shared -Wl,-z,defs -Wl,--enable-new-dtags -lm -ldl -pthread $(LDFLAGS)
$(STANDIN_SO): $(STANDIN_OBJ)
	$(Q)$(CXX) -o $@ $^ -Wl,-rpath,'$$ORIGIN/standin' $(STANDIN_LINK)

# Without the emulation's functions: of its headers it uses the conversions of numbers.
$(STANDIN_LIBRARY): tests/standin/library/cublaslt.cu tests/standin/standin_api.h tests/standin/include/cublasLt.h $(B)/standin/flags
	$(call say,C++,$<)
	$(Q)$(CXX) $(filter-out -DKN_STANDIN,$(STANDIN_FLAGS)) -I. -o $@ $< -Wl,-soname,libcublasLt.so.13 $(STANDIN_LINK)

# A mutant: one source or header changed by a sed script (which names it on its second line), which must change it. The
# changed one lies in a tree that is looked at first; what is compiled of it is itself or, of a header, the sources that
# include it. Those named watched_… are of kernels that report every access.
MUTANTS := $(patsubst %.sed,$(B)/%.so,$(filter-out $(if $(SAN),tests/kernels/mutants/watched_%),$(wildcard tests/kernels/mutants/*.sed)))
$(MUTANTS): $(B)/%.so: %.sed $(EMU_OBJ)
	$(Q){ read -r; read -r _ src; } <$<; to=$(B)/$*/$$src; mkdir -p $${to%/*}; sed -f $< $$src >$$to; \
	  ! cmp -s $$src $$to || { echo "$<: changes nothing in $$src"; exit 1; }; \
	  case $$src in *.cu) of=$$src ;; *) of=$$(grep -lF " $$src" $(EMU_OBJ:.o=.d) | xargs sed -n -s '1s/^[^:]*: *\([^ ]*\).*/\1/p') ;; esac; \
	  others='$(EMU_OBJ)'; flags=; case $* in */watched_*) others='$(WATCHED_ALL)'; flags='$(WATCH_FLAGS)' ;; esac; \
	  made=; for f in $$of; do \
	    o=$${f##*/}; o=$${o%.cu}.o; made="$$made $(B)/$*/$$o"; in=$$f; if [ $$f = $$src ]; then in=$$to; fi; \
	    $(CCACHE) $(CXX) $(EMU_FLAGS) $$flags -w -O0 -g0 -I$(B)/$* -I. -c -o $(B)/$*/$$o $$in || exit 1; \
	    rest=; for x in $$others; do [ $${x##*/} = $$o ] || rest="$$rest $$x"; done; others=$$rest; \
	  done; \
	  $(CXX) -shared -s -o $@ $$made $$others -lm -pthread $(SANFLAGS) $(GOLD) $(LDFLAGS)
$(filter $(B)/tests/kernels/mutants/watched_%,$(MUTANTS)): $(WATCHED_ALL)

# The stand-in's numbers against a toolkit's, where there is one.
$(B)/standin/toolkit.checked: tests/standin/toolkit/toolkit.cu $(wildcard tests/standin/include/*.h) $(B)/standin/flags
	$(Q)$(NVCC) -x c++ -std=c++17 -I. -c -o $@ $<

# A planted fault of the host's side, made as a mutant is; each is an object of its own on the stand-in.
FAULTS := $(patsubst tests/standin/faults/%.sed,$(B)/standin/faults/%.so,$(wildcard tests/standin/faults/*.sed))
$(FAULTS): $(B)/standin/faults/%.so: tests/standin/faults/%.sed $(STANDIN_OBJ)
	@mkdir -p $(@D)/$*/kernels/cuda/device
	$(Q){ read -r; read -r _ src; } <$<; to=$(@D)/$*/$$src; sed -f $< $$src >$$to; \
	  ! cmp -s $$src $$to || { echo "$<: changes nothing in $$src"; exit 1; }; \
	  o=$${src##*/}; o=$${o%.cu}.o; \
	  $(CCACHE) $(CXX) $(STANDIN_FLAGS) $(ACCESSES) -w -O0 -g0 -I. -c -o $(@D)/$*/$$o $$to && \
	  $(CXX) -s -o $@ $(@D)/$*/$$o $$(printf '%s\n' $(STANDIN_OBJ) | grep -v "/$$o$$") $(STANDIN_LINK) $(GOLD)

# gateway/www itself: a file that was removed there.
$(B)/gateway/api/www_files.c: etc/embed.sh gateway/api/www.h gateway/www gateway/www/vendor $(WWW_SRC)
	@mkdir -p $(@D)
	$(Q)etc/embed.sh $@ $(WWW_SRC)

$(B)/gateway/api/www_files.o: $(B)/gateway/api/www_files.c $(B)/flags
	$(Q)$(CCACHE) $(CC) $(CFLAGS_ALL) -c -o $@ $<

# A program of its own: the tests' helpers, and the tests that replace functions of the library.
$(B)/tests/%: tests/%.c $(B)/libcmd.a $(B)/libsluice.a
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CCACHE) $(CC) $(CFLAGS_ALL) $(if $(findstring tests/unit/,$<),$(TEST_OPT)) $(TEST_DEBUG) -MMD -MP -MF $@.d -MT $@ -c -o $@.one.o $<
	$(Q)rm -f $@ && $(CC) $(CFLAGS_ALL) -o $@ $@.one.o $(B)/libcmd.a $(B)/libsluice.a -lcmocka $(LIBS_ALL) $(GOLD)

# All other tests of a folder are one program, `room`, since linking a program takes longer than compiling a test. Each
# file's main gets the file's name. A link of that name to the program runs that file alone.
$(B)/tests/%.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CCACHE) $(CC) $(CFLAGS_ALL) $(if $(findstring tests/unit/,$<),$(TEST_OPT)) $(TEST_DEBUG) -Dmain=$(*F)_main -MMD -MP -c -o $@ $<

# A room has all tests of its folder; with ONLY (paths without .c) those, and what it has already: a part of the tests is built
# without the others, and none is lost.
room_all = $(notdir $(foreach t,$(ROOM_BIN),$(if $(filter $(1)/,$(dir $(t))),$(t))))
room_has = $(file <$(1)/room.tests)
room_only = $(notdir $(filter $(1)/%,$(addprefix $(B)/,$(ONLY)))) $(room_has)
room_wants = $(if $(ONLY),$(filter $(room_only),$(room_all)),$(room_all))

define test_room
$(1)/room: $(2:%=$(1)/%.o) tests/support/room/room.c $(B)/libcmd.a $(B)/libsluice.a $(if $(filter-out $(2),$(room_has))$(filter-out $(room_has),$(2)),force)
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) $$(CFLAGS_ALL) $$(TEST_OPT) -DROOM_TESTS='$(foreach t,$(2),T($(t)))' -o $$@ tests/support/room/room.c $(2:%=$(1)/%.o) \
	  $$(B)/libcmd.a $$(B)/libsluice.a -lcmocka $$(LIBS_ALL) $$(GOLD) && echo '$(2)' >$$@.tests
$(2:%=$(1)/%): $(1)/room
	$$(Q)ln -sf room $$@
endef
$(foreach d,$(patsubst %/,%,$(sort $(dir $(ROOM_BIN)))),$(if $(call room_wants,$(d)),$(eval $(call test_room,$(d),$(call room_wants,$(d))))))

# The driver's library, for tests of what it tells.
FAKE_NVML := $(B)/libfake-nvml.so
$(FAKE_NVML): tests/support/fake_nvml/fake_nvml.c $(B)/flags
	$(Q)$(CC) $(CFLAGS_ALL) -fPIC -shared -o $@ $< $(SANFLAGS)

# A clock that tests set, for a redis-server of theirs: no sanitizer's, which that could not load.
CLOCK_SHIM := $(B)/libclock-shim.so
$(CLOCK_SHIM): tests/support/clock_shim/clock_shim.c $(B)/flags
	$(Q)$(CC) -std=gnu11 -O1 -Wall -Wextra -Wshadow -Wconversion -Werror -fPIC -shared -o $@ $<

# What is opened at run time.
$(B)/tests/unit/cache/test_redis_clock: | $(CLOCK_SHIM)
$(B)/tests/unit/engine/core/test_device_watch: | $(FAKE_NVML)
$(filter $(B)/tests/kernels/%,$(TEST_BIN)): | $(EMU_SO) $(WATCHED_SO) $(STANDIN_SO)
$(B)/tests/kernels/test_standin: | $(if $(NVCC),$(B)/standin/toolkit.checked) $(STANDIN_SO) $(STANDIN_LIBRARY) $(FAULTS) $(addprefix $(B)/tests/kernels/,test_aside test_graphs test_engine_ahead test_engine_memory)
$(B)/tests/kernels/test_mutants: | $(MUTANTS)

tests: $(TEST_BIN) helpers
helpers: $(HELPER_BIN) $(KIT)

clean:
	rm -rf build

# Paths: DESTDIR, PREFIX, SYSCONFDIR, STATEDIR (etc/package/install.sh).
install uninstall: export DESTDIR := $(DESTDIR)
install uninstall: export PREFIX := $(PREFIX)
install deb: export CUDA_SO := $(CUDA_SO)
install: build
	$(Q)etc/package/install.sh install $(B)

uninstall:
	$(Q)etc/package/install.sh uninstall $(B)

# build/deb/*.deb: of this build, for this system's Debian.
deb: build
	$(Q)etc/package/deb.sh $(B)

# ---- running ----

# A model's name is its file's, without what a name can't hold.
model_name = $$(basename "$(1)" .gguf | tr -c 'A-Za-z0-9._\n-' -)
model_sets = --set "engine.models.$(call model_name,$(1)).path=$(1)" \
	--set "engine.models.$(call model_name,$(1)).role=$(2)"

# Sets the shell's variable $(2) to the path of a model: pulled first if it has an address.
model_path = case '$(1)' in hf:* | https://*) \
	  $(2)=$$($(B)/sluice pull '$(1)' -c etc/sluice.yaml $(if $(STATE),--state '$(STATE)') $(ARGS)) || exit 1 ;; *) $(2)='$(1)' ;; esac;

run:
	@etc/setup.sh build && $(MAKE) -s build && { $(call model_path,$(MODEL),model) $(call model_path,$(SMALL),small) } && \
	  exec $(B)/sluice serve -c etc/sluice.yaml \
	  $(if $(MODEL)$(SMALL),--set engine.models=) \
	  $(if $(MODEL),$(call model_sets,$$model,large)) \
	  $(if $(SMALL),$(call model_sets,$$small,small)) \
	  $(if $(STATE),--state '$(STATE)') $(ARGS)

# ---- testing ----
# Setup first, then a make of its own: what was installed changes this file's variables.

test:
	@etc/setup.sh build tests lint && tests/run.sh test

check:
	@etc/setup.sh build tests && tests/run.sh check

unit:
	@etc/setup.sh build tests && tests/run.sh unit

e2e:
	@etc/setup.sh build tests && tests/run.sh e2e

perf:
	@etc/setup.sh build tests && tests/run.sh perf

lint:
	@etc/setup.sh build lint && tests/lint/run.sh

format:
	@etc/setup.sh lint && tests/lint/format.sh -i

SECONDS_EACH ?= 60
soak:
	@etc/setup.sh build tests lint && $(MAKE) build $(filter $(B)/tests/sim/% %/test_cleanse %/test_sampler_reference %/test_speculation \
	  %/test_standin %/test_ops %/test_engine_memory %/test_engine_ahead,$(TEST_BIN)) && \
	  SAN=$(SAN) tests/soak/run.sh $(SECONDS_EACH)

-include $(shell find $(B) -type f -name '*.d' 2>/dev/null)
