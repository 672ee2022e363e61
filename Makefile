# SPDX-License-Identifier: Apache-2.0
#
# Sluice. `make run` starts it, `make test` tests it; both install what is missing after asking.
# `make help` lists everything.

SHELL := /bin/bash
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
SAN ?=
OPT ?= -O2 -g
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
MAKEFLAGS += --no-print-directory
Q := $(if $(V),,@)
say = $(if $(V),@:,@printf '  %-5s %s\n' '$(1)' '$(2)')

# A fresh system has no pkg-config yet: then these are empty, and `needs` says what is missing.
PKGS := libevent libevent_openssl libevent_pthreads hiredis libnghttp2 libssl libcrypto jansson yaml-0.1 libpcre2-8 libxxhash libutf8proc
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
WARN := -Wall -Wextra -Wshadow -Wconversion -Werror
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
CFLAGS_ALL := -std=gnu11 -D_GNU_SOURCE $(OPT) $(WARN) -fno-math-errno -ffp-contract=off $(SANFLAGS) \
	-I. -I$(B) $(PKG_CFLAGS) -pthread $(CFLAGS)
LIBS_ALL := $(PKG_LIBS) -lm -ldl -pthread $(SANFLAGS) $(LDFLAGS)

# Files that need an instruction set of their own; everything else runs anywhere.
ISA_avx2 := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
isa = $(if $(findstring _avx512,$(1)),$(ISA_avx512),$(if $(findstring _avx2,$(1)),$(ISA_avx2)))

LIB_SRC := $(wildcard base/*.c kernels/*.c kernels/cpu/*.c engine/*.c cascade/*.c cache/*.c gateway/*.c)
CMD_SRC := $(wildcard cmd/*.c)
WWW_SRC := $(wildcard gateway/www/*) gateway/openapi.json
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(B)/gateway/www_files.o
CMD_OBJ := $(CMD_SRC:%.c=$(B)/%.o)
TEST_SRC := $(wildcard tests/unit/*/test_*.c tests/kernels/test_*.c tests/sim/test_*.c tests/regress/test_*.c)
TEST_BIN := $(TEST_SRC:%.c=$(B)/%)
HELPER_BIN := $(patsubst %.c,$(B)/%,$(wildcard tests/support/*.c))

.PHONY: build run check test soak lint unit tests e2e clean install help needs force
.SECONDARY:
.DELETE_ON_ERROR:
# No built-in rule may guess how a program is made.
%: %.c
%.o: %.c

build: $(B)/sluice

help:
	@printf '%s\n' \
	  'make run              a running server on http://localhost:8080' \
	  '     MODEL=f.gguf     serves this model instead of the demonstration pair' \
	  '     SMALL=f.gguf     and this one as the small one of the pair' \
	  '     STATE=dir        its state folder (state/)' \
	  "     ARGS='...'       more arguments for sluice serve" \
	  'make test             everything CI runs; ends with one line: N passed, N failed' \
	  'make check            a subset of two minutes' \
	  'make build            build/sluice' \
	  'make unit             unit tests, kernel tests, simulations' \
	  'make e2e              end-to-end tests: real server, clients, browser' \
	  'make lint             clang-tidy, cppcheck, include arrows, scripts' \
	  'make soak             long runs: fuzzers, simulations, chaos (SECONDS_EACH=60)' \
	  'make install          DESTDIR= PREFIX=/usr/local' \
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
	  command -v nvcc >/dev/null \
	    && echo 'CUDA toolkit found; this version has no CUDA backend: building for the CPU' \
	    || echo 'No CUDA toolkit (nvcc) found: building for the CPU'; }

$(B)/version.h: VERSION force
	@mkdir -p $(B)
	@v=$$(cat VERSION); g=$$(git describe --always --dirty 2>/dev/null); \
	  line="#define SLUICE_VERSION \"$$v$${g:+ ($$g)}\""; \
	  echo "$$line" | cmp -s - $@ || echo "$$line" >$@

$(B)/sluice: $(CMD_OBJ) $(B)/libsluice.a
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $(CMD_OBJ) $(B)/libsluice.a $(LIBS_ALL)

$(B)/libsluice.a: $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^

# The subcommands without main, for tests of them.
$(B)/libcmd.a: $(filter-out $(B)/cmd/main.o,$(CMD_OBJ))
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(call isa,$*) -MMD -MP -c -o $@ $<

$(B)/cmd/main.o $(B)/cmd/bench.o: $(B)/version.h

# gateway/www itself: a file that was removed there.
$(B)/gateway/www_files.c: etc/embed.sh gateway/www.h gateway/www $(WWW_SRC)
	@mkdir -p $(@D)
	$(Q)etc/embed.sh $@ $(WWW_SRC)

$(B)/gateway/www_files.o: $(B)/gateway/www_files.c $(B)/flags
	$(Q)$(CC) $(CFLAGS_ALL) -c -o $@ $<

$(B)/tests/%: tests/%.c $(B)/libcmd.a $(B)/libsluice.a
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -MF $@.d -o $@ $< $(B)/libcmd.a $(B)/libsluice.a -lcmocka $(LIBS_ALL)

tests: $(TEST_BIN) $(HELPER_BIN)

clean:
	rm -rf build

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/sluice
	install -m 755 $(B)/sluice $(DESTDIR)$(PREFIX)/bin/sluice
	install -m 644 etc/sluice.yaml $(DESTDIR)$(PREFIX)/share/sluice/sluice.yaml

# ---- running ----

# A model's name is its file's, without what a name can't hold.
model_name = $$(basename '$(1)' .gguf | tr -c 'A-Za-z0-9._\n-' -)
model_sets = --set "engine.models.$(call model_name,$(1)).path=$(1)" \
	--set "engine.models.$(call model_name,$(1)).role=$(2)"

run:
	@etc/setup.sh build && $(MAKE) -s build && exec $(B)/sluice serve -c etc/sluice.yaml \
	  $(if $(MODEL)$(SMALL),--set engine.models=) \
	  $(if $(MODEL),$(call model_sets,$(MODEL),large)) \
	  $(if $(SMALL),$(call model_sets,$(SMALL),small)) \
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

lint:
	@etc/setup.sh build lint && tests/lint/run.sh

SECONDS_EACH ?= 60
soak:
	@etc/setup.sh build tests lint && $(MAKE) build $(filter $(B)/tests/sim/% %/test_cleanse %/test_speculation,$(TEST_BIN)) && \
	  SAN=$(SAN) tests/soak/run.sh $(SECONDS_EACH)

-include $(shell find $(B) -name '*.d' 2>/dev/null)
