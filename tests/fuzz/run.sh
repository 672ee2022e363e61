#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Fuzz targets, one file each: tests/fuzz/fuzz_*.c.
#
#   tests/fuzz/run.sh replay [RUNS]      gcc with sanitizers: each target's seeds and RUNS seeded
#                                        mutations (3000), the same each time; a minute in all
#   tests/fuzz/run.sh long N [TARGET…]   clang's libFuzzer with sanitizers, N seconds a target
#   tests/fuzz/run.sh file TARGET FILE…  replays findings
#
# Findings are written to build/fuzz/findings. The exit status says whether there were any.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1

mode=${1:-replay}
out=build/fuzz
found=$PWD/$out/findings
mkdir -p "$out" "$found"
export out

all_targets() {
	local f
	for f in tests/fuzz/fuzz_*.c; do basename "$f" .c; done
}

libraries() {
	pkg-config --libs libevent libevent_pthreads hiredis libnghttp2 libssl libcrypto jansson yaml-0.1 libpcre2-8 libxxhash libutf8proc libseccomp
}

# What the compiler made before is taken from ccache where it is installed, also from a clone in another folder.
compile() {
	CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 $(command -v ccache) gcc -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror \
		-fsanitize=address,undefined -fno-sanitize-recover=all -I. -c "$@"
}

replay_object() {
	compile "-DLLVMFuzzerTestOneInput=$1_input" "-Dfuzz_seed=$1_seed" -o "$out/$1.o" "tests/fuzz/$1.c" || {
		echo "FINDING in $1: it does not compile"
		return 1
	}
}

# One program, since linking takes longer than compiling; a link of a target's name to it is that target.
replay_program() {
	local list gold
	list=$(all_targets | sed 's/.*/T(&)/' | tr '\n' ' ')
	command -v ld.gold >/dev/null && gold=-fuse-ld=gold
	make -s "SAN=address,undefined" build/san-address-undefined/{libcmd,libsluice}.a || return 1
	all_targets | xargs -P "$(nproc)" -I{} bash -c 'replay_object "$@"' object {} || return 1
	compile "-DFUZZ_TARGETS=$list" -o "$out/standalone.o" tests/fuzz/standalone.c || return 1
	# shellcheck disable=SC2046,SC2086 # flags are words
	gcc -fsanitize=address,undefined $gold -o "$out/replay" "$out/standalone.o" $(all_targets | sed "s,.*,$out/&.o,") \
		build/san-address-undefined/{libcmd,libsluice}.a $(libraries) -lm -ldl -pthread || return 1
	all_targets | while read -r t; do ln -sf replay "$out/$t"; done
}

long_target() {
	# The library is built by clang as well, for its coverage counters.
	make -s -j2 CC=clang SAN=fuzzer-no-link,address,undefined build/san-fuzzer-no-link-address-undefined/{libcmd,libsluice}.a || return 1
	# shellcheck disable=SC2046
	clang -std=gnu11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined \
		-fno-sanitize-recover=all -I. -o "$out/$1-long" "tests/fuzz/$1.c" \
		build/san-fuzzer-no-link-address-undefined/{libcmd,libsluice}.a $(libraries) -lm -ldl -pthread
}

# One target's seeds and mutations, in a folder of its own; what it says comes at once.
replay_one() {
	local t=$1 work said rc
	work=$(mktemp -d)
	said=$(cd "$work" && "$OLDPWD/$out/$t" "-runs=$2" 2>&1)
	rc=$?
	printf '%s: %s\n' "$t" "$said"
	if [ "$rc" -ne 0 ]; then
		mv "$work/crash-fuzz" "$found/$t-crash" 2>/dev/null
		echo "FINDING in $t: $found/$t-crash"
	fi
	rm -rf "$work"
	return "$rc"
}

export -f compile replay_object

bad=0
case $mode in
replay)
	replay_program || exit 1
	export found
	export -f replay_one
	all_targets | xargs -P "$(nproc)" -I{} bash -c 'replay_one "$@"' one {} "${2:-3000}" || bad=1
	;;
long)
	seconds=${2:?seconds for each target}
	shift 2
	targets=("$@")
	[ $# -gt 0 ] || mapfile -t targets < <(all_targets)
	replay_program || exit 1
	for t in "${targets[@]}"; do
		long_target "$t" || exit 1
		mkdir -p "$out/corpus/$t"
		"$out/$t" -seeds "$out/corpus/$t" || exit 1
		echo "$t: $seconds s"
		"$out/$t-long" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 \
			-artifact_prefix="$found/$t-" -print_final_stats=1 "$out/corpus/$t" \
			>"$out/$t.log" 2>&1 || { tail -40 "$out/$t.log"; bad=1; }
		grep -E 'number_of_executed_units|peak_rss_mb' "$out/$t.log"
	done
	;;
file)
	t=${2:?target}
	shift 2
	replay_program && "$out/$t" "$@" || bad=1
	;;
*)
	sed -n '4,12p' "$0"
	exit 2
	;;
esac
exit $bad
