# Sluice. `make run` starts it, `make test` tests it; both install what is missing after asking.
#
#   make build    build/sluice          make check   tests of two minutes
#   make run      a running server      make test    everything CI runs (ten minutes)
#   make lint     warnings, clang-tidy, cppcheck, include arrows
#   make soak     fuzzers, chaos, simulations (long, seeded, bounded)
#
#   SAN=address,undefined   build and test with sanitizers (a build folder of its own)
#   YES=1                   install without asking

SHELL := /bin/bash
CC ?= gcc
SAN ?=
OPT ?= -O2 -g
# A build folder for each set of sanitizers, so that switching rebuilds nothing.
comma := ,
B := build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))

PKGS := libevent libevent_pthreads libnghttp2 libssl libcrypto jansson yaml-0.1 libpcre2-8
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
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(B)/www_files.o
WWW := $(wildcard gateway/www/*) gateway/openapi.json
CMD_OBJ := $(CMD_SRC:%.c=$(B)/%.o)
TEST_SRC := $(wildcard tests/unit/*/test_*.c tests/kernels/test_*.c tests/sim/test_*.c tests/regress/test_*.c)
TEST_BIN := $(TEST_SRC:%.c=$(B)/%)

HELPER_BIN := $(patsubst %.c,$(B)/%,$(wildcard tests/support/*.c))

.PHONY: build unit clean
build: $(B)/sluice

$(B)/sluice: $(CMD_OBJ) $(B)/libsluice.a
	$(CC) -o $@ $(CMD_OBJ) $(B)/libsluice.a $(LIBS_ALL)

$(B)/libsluice.a: $(LIB_OBJ)
	rm -f $@ && ar rcs $@ $^

$(B)/www_files.c: etc/embed.sh $(WWW)
	@mkdir -p $(@D)
	etc/embed.sh $@ $(WWW)

$(B)/www_files.o: $(B)/www_files.c
	$(CC) $(CFLAGS_ALL) -c -o $@ $<

$(B)/version.h: Makefile
	@mkdir -p $(@D)
	@echo '#define SLUICE_VERSION "0.1.0"' >$@
$(B)/cmd/main.o: $(B)/version.h

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(call isa,$*) -MMD -MP -c -o $@ $<

$(B)/tests/%: tests/%.c $(B)/libsluice.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -MMD -MP -MF $@.d -o $@ $< $(B)/libsluice.a -lcmocka $(LIBS_ALL)

unit: $(TEST_BIN) $(HELPER_BIN)
	@fail=0; for t in $(TEST_BIN); do $$t >$$t.log 2>&1 || { cat $$t.log; fail=1; }; done; exit $$fail

clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
