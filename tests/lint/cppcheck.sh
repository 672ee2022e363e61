#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cppcheck over all sources. Its build folder, which lets it skip unchanged files, is also kept in the user's cache (cache.sh),
# for fresh clones; and since it reads all of them to know, so is a key of contents that were clean. Suppressed: NULL given to
# a variadic function (it has a pointer's size here), and uninitialised structs given to a function that fills them.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/lint/cache.sh
cache=$(lint_cache cppcheck)
folders=()
for d in base kernels engine cache cascade gateway cmd; do [ -d "$d" ] && folders+=("$d"); done
# Names and contents of all that it may read, its version, and how it is called.
clean=$(lint_cache cppcheck-clean)/$({ cppcheck --version && find "${folders[@]}" tests/lint/cppcheck.sh -type f \( -name '*.[ch]' -o -name cppcheck.sh \) |
	LC_ALL=C sort | xargs sha256sum; } | sha256sum | cut -c1-32)
touch -c "$clean" && [ -e "$clean" ] && exit 0
work=build/lint/cppcheck-work
[ -e "$work" ] || { mkdir -p build/lint && cp -r "$cache" "$work"; }
cppcheck --quiet --std=c11 --language=c --enable=warning,portability --inline-suppr \
	--error-exitcode=1 --cppcheck-build-dir="$work" -j "$(nproc)" -I. \
	--suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
	--suppress=varFuncNullUB --suppress=ctuuninitvar --suppress=legacyUninitvar \
	--suppress=invalidFunctionArg --suppress=arrayIndexThenCheck --suppress=duplicateAssignExpression \
	-D__GNUC__=12 -D_GNU_SOURCE "${folders[@]}" || exit 1
# Another clone may do the same at once, so each run moves a complete folder into place.
next=$(mktemp -d "$cache.XXXXXX") && cp -r "$work/." "$next" && rm -rf "$cache" && mv -T "$next" "$cache" 2>/dev/null
rm -rf "$next"
touch "$clean"
exit 0
