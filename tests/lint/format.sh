#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# format.sh [-i]: checks that clang-format (.clang-format) changes no C or CUDA file; -i: formats them.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
how=(--dry-run -Werror)
[ "${1-}" = -i ] && how=(-i)
git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' | while read -r f; do [ -e "$f" ] && echo "$f"; done |
	xargs -P "$(nproc)" -n 20 clang-format "${how[@]}"
