#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# format.sh [-i]: checks that clang-format (.clang-format) changes no C or CUDA file; -i: formats them. The check skips files
# whose contents it has seen formatted, under the same rules and version (cache.sh).
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/lint/cache.sh

sources() {
	git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' | while read -r f; do [ -e "$f" ] && echo "$f"; done
}

if [ "${1-}" = -i ]; then
	sources | xargs -P "$(nproc)" -n 20 clang-format -i
	exit
fi

rules=$({ cat .clang-format && clang-format --version; } | sha256sum | cut -c1-32)
seen=$(lint_cache format)/$rules
touch "$seen"
# Lines `HASH  FILE`; the cache has the hashes.
new=$(sources | xargs sha256sum | awk -v list="$seen" 'BEGIN { while ((getline h <list) > 0) seen[h] } !($1 in seen)')
[ -n "$new" ] || exit 0
cut -c67- <<<"$new" | xargs -P "$(nproc)" -n 20 clang-format --dry-run -Werror || exit 1
cut -c1-64 <<<"$new" >>"$seen"
