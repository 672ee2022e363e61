#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cppcheck over all sources; its own build folder keeps what has not changed.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
mkdir -p build/lint/cppcheck
folders=()
for d in base kernels engine cache cascade gateway cmd; do [ -d "$d" ] && folders+=("$d"); done
cppcheck --quiet --std=c11 --language=c --enable=warning,portability --inline-suppr \
	--error-exitcode=1 --cppcheck-build-dir=build/lint/cppcheck -j "$(nproc)" -I. \
	--suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
	-D__GNUC__=12 -D_GNU_SOURCE "${folders[@]}"
