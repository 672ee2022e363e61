#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [quick|short]: `ok NAME` or `FAIL NAME` for each check. quick leaves out clang-tidy and cppcheck; short, for
# `make test`, leaves out clang's analyzer (three quarters of clang-tidy's time) and the tests' own build.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL
out=build/lint
mkdir -p "$out"
bad=0

check() {
	local name=$1
	shift
	if "$@" >"$out/$name.log" 2>&1; then
		printf '  ok    %s\n' "$name"
	else
		printf '  FAIL  %s\n' "$name"
		head -n 80 "$out/$name.log"
		bad=1
	fi
}

scripts() {
	git ls-files -co --exclude-standard -- '*.sh' .ci/run | grep -v node_modules | xargs shellcheck -S warning
}

if [ "${1-}" = short ]; then
	check warnings make build
else
	check warnings make build tests
fi
check arrows tests/lint/arrows.sh
check rooms tests/lint/rooms.sh
check rooms_test tests/lint/rooms_test.sh
check words tests/lint/words.sh
check tap tests/lint/tap.sh
command -v codespell >/dev/null && check spelling tests/lint/spelling.sh
check config build/sluice config check -c etc/sluice.yaml
check config_keys tests/lint/config_keys.sh
command -v shellcheck >/dev/null && check scripts scripts
if [ "${1-}" != quick ]; then
	check format tests/lint/format.sh
	check clang-tidy tests/lint/tidy.sh "$@"
	check cppcheck tests/lint/cppcheck.sh
fi
exit $bad
