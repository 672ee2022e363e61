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

all_targets() {
	local f
	for f in tests/fuzz/fuzz_*.c; do basename "$f" .c; done
}

replay_library() {
	make -s "SAN=address,undefined" build/san-address-undefined/{libcmd,libsluice}.a
}

replay_target() {
	local flags
	flags=$(pkg-config --libs libevent libevent_pthreads hiredis libnghttp2 libssl libcrypto jansson yaml-0.1 libpcre2-8 libxxhash libutf8proc libseccomp)
	# shellcheck disable=SC2086 # flags are words
	gcc -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined \
		-fno-sanitize-recover=all -I. -o "$out/$1" "tests/fuzz/$1.c" tests/fuzz/standalone.c \
		build/san-address-undefined/{libcmd,libsluice}.a $flags -lm -ldl -pthread
}

long_target() {
	local flags
	flags=$(pkg-config --libs libevent libevent_pthreads hiredis libnghttp2 libssl libcrypto jansson yaml-0.1 libpcre2-8 libxxhash libutf8proc libseccomp)
	# The library is built by clang as well, for its coverage counters.
	make -s -j2 CC=clang SAN=fuzzer-no-link,address,undefined build/san-fuzzer-no-link-address-undefined/{libcmd,libsluice}.a || return 1
	# shellcheck disable=SC2086
	clang -std=gnu11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined \
		-fno-sanitize-recover=all -I. -o "$out/$1-long" "tests/fuzz/$1.c" \
		build/san-fuzzer-no-link-address-undefined/{libcmd,libsluice}.a $flags -lm -ldl -pthread
}

# One target's seeds and mutations, in a folder of its own; what it says comes at once.
replay_one() {
	local t=$1 work said rc
	if ! replay_target "$t"; then
		echo "FINDING in $t: it does not compile"
		return 1
	fi
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

bad=0
case $mode in
replay)
	replay_library || exit 1
	export out found
	export -f replay_target replay_one
	all_targets | xargs -P "$(nproc)" -I{} bash -c 'replay_one "$@"' one {} "${2:-3000}" || bad=1
	;;
long)
	seconds=${2:?seconds for each target}
	shift 2
	targets=("$@")
	[ $# -gt 0 ] || mapfile -t targets < <(all_targets)
	for t in "${targets[@]}"; do
		replay_library && replay_target "$t" && long_target "$t" || exit 1
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
	replay_library && replay_target "$t" && "$out/$t" "$@" || bad=1
	;;
*)
	sed -n '4,12p' "$0"
	exit 2
	;;
esac
exit $bad
