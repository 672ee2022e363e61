#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tidy.sh [short]: clang-tidy over all sources; short: without the analyzer. A source is skipped while nothing that it was compiled from has
# changed since it was last clean: the key is a hash over its contents, its headers', .clang-tidy, the flags and clang-tidy's
# version. Keys are kept in the user's cache (cache.sh), which a fresh clone finds.
#
# ipa=none: the analyzer looks at one function at a time. Looking into the file's own functions, but
# not into other files', it takes every `return sl_errf(…)` for a possible 0 and reports only that.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/lint/cache.sh
cache=$(lint_cache tidy)
read -r -a flags < <(pkg-config --cflags libevent libnghttp2 libssl jansson yaml-0.1 libpcre2-8 libxxhash libutf8proc libseccomp lua5.1)
only=''
[ "${1-}" = short ] && only='--checks=-clang-analyzer-*'
common="$only ${flags[*]} $(clang-tidy --version | grep version)"
export cache only common

one() {
	local src=$1 key deps isa=()
	shift
	deps=$(sed -e 's/\\$//' -e 's/^[^ ]*://' "build/${src%.c}.d" 2>/dev/null | tr ' ' '\n' |
		grep -E '^(base|kernels|engine|cache|cascade|gateway|cmd)/' | sort -u)
	# shellcheck disable=SC2086 # names without spaces
	key=$({ echo "$common"; cat .clang-tidy "$src" $deps 2>/dev/null; } | sha256sum | cut -c1-32)
	[ -e "$cache/$key" ] && touch "$cache/$key" && return 0
	case $src in
	*_avx512*) isa=(-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c) ;;
	*_vnni*) isa=(-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c) ;;
	*_avx2*) isa=(-mavx2 -mfma -mf16c) ;;
	esac
	# shellcheck disable=SC2086 # one option or none
	clang-tidy --quiet $only "$src" -- -std=gnu11 -D_GNU_SOURCE -I. -Ibuild "$@" "${isa[@]}" \
		-Xclang -analyzer-config -Xclang ipa=none 2>"$cache/err.$$" || {
		rm -f "$cache/err.$$"
		return 1
	}
	rm -f "$cache/err.$$"
	touch "$cache/$key"
}
export -f one

find base kernels engine cache cascade gateway cmd -name "*.c" | sort |
	xargs -P "$(nproc)" -I{} bash -c 'one "$@"' one {} "${flags[@]}"
