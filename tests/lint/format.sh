#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# format.sh [-i]: every C and CUDA file is as clang-format has it (.clang-format); -i: makes it so.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
how=(--dry-run -Werror)
[ "${1-}" = -i ] && how=(-i)
git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cu' | while read -r f; do [ -e "$f" ] && echo "$f"; done |
	xargs -P "$(nproc)" -n 20 clang-format "${how[@]}"
