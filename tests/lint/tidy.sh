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
export cache only

# keys: a line `KEY SOURCE` for each source.
keys() {
	local lists
	lists=$(mktemp -d)
	sources | awk -v common="$common" -v lists="$lists" '
		function hash(f) { return f in hashes ? hashes[f] : "none" }
		BEGIN {
			while (("git ls-files -co --exclude-standard -- .clang-tidy \"*.c\" \"*.h\" | xargs sha256sum 2>/dev/null" | getline line) > 0)
				hashes[substr(line, 67)] = substr(line, 1, 64)
		}
		{
			deps = "build/" substr($0, 1, length($0) - 1) "d"
			list = common "\n" hash(".clang-tidy") "\n" $0 " " hash($0) "\n"
			while ((getline line <deps) > 0) {
				sub(/^[^ ]*:/, "", line)
				n = split(line, name, " ")
				for (i = 1; i <= n; i++)
					if (name[i] in hashes) list = list name[i] " " hashes[name[i]] "\n"
			}
			close(deps)
			out = lists "/" NR
			printf "%s", list >out
			close(out)
			print out, $0 >(lists "/names")
		}'
	(cd "$lists" && find . -name '[0-9]*' -print0 | xargs -0 sha256sum) | awk -v lists="$lists" '
		{ key[lists substr($2, 2)] = substr($1, 1, 32) }
		END { while ((getline <(lists "/names")) > 0) print key[$1], $2 }'
	rm -rf "$lists"
}

sources() {
	find base kernels engine cache cascade gateway cmd -name "*.c" | sort
}

one() {
	local key=$1 src=$2 isa=()
	shift 2
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

keys >"$cache/keys.$$"
# A key in use stays fresh.
awk '{ print $1 }' "$cache/keys.$$" | (cd "$cache" && xargs touch -c)
while read -r key src; do [ -e "$cache/$key" ] || echo "$key" "$src"; done <"$cache/keys.$$" |
	xargs -r -P "$(nproc)" -L 1 bash -c 'one "$@" '"${flags[*]@Q}" one
rc=$?
rm -f "$cache/keys.$$"
exit $rc
