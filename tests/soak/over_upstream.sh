#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# over_upstream.sh [NAME…]: the end-to-end tests that start servers, or tests/e2e/NAME.test.mjs, one file after the other, each
# server with a second one between it and its models (SLUICE_OVER_UPSTREAM; tests/e2e/harness.mjs). Prints a table: of each file
# the cases that pass, those that differ, by name, and how many are skipped because an upstream has to itself what they look at;
# then the reasons. Ends with `N passed, N failed, N skipped`. Expects build/sluice and the packages of tests/e2e.
# Logs: build/soak/over_upstream.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/support/tap.sh

export SLUICE=${SLUICE:-$PWD/build/sluice} SLUICE_OVER_UPSTREAM=1
logs=build/soak/over_upstream
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# starts_servers FILE: itself, or by a module beside it that it imports.
starts_servers() {
	local also
	mapfile -t also < <(sed -nE "s#^(import|.* from) '\./([a-z_]+_suite\.mjs|lifecycle\.mjs|random_forms\.mjs|tool_model\.mjs)'.*#tests/e2e/\2#p" "$1")
	grep -qE 'start(Server|Pair)\(' "$1" "${also[@]}"
}

# differing LOG: the names of the cases that fail, with those of their suites.
differing() {
	awk '/^ *not ok / && !/ # SKIP/ {
		at = match($0, /[^ ]/); name = $0; sub(/^ *not ok [0-9]+ - /, "", name)
		# A suite follows its cases: only the innermost ones are named.
		if (!(at < last)) out = out (out == "" ? "" : "; ") name
		last = at
	} END { gsub(/\|/, "\\|", out); print out }' "$1"
}

names=("$@")
if [ $# -eq 0 ]; then
	for f in tests/e2e/*.test.mjs; do
		starts_servers "$f" && names+=("$(basename "$f" .test.mjs)")
	done
fi

echo "| file | pass | skipped | differ |"
echo "|---|---|---|---|"
for t in "${names[@]}"; do
	log=$logs/$t.log
	timeout -k 10 1800 node --test --test-reporter=tap "tests/e2e/$t.test.mjs" >"$log" 2>&1 </dev/null
	rc=$?
	ok=$(tap_node_passed "$log") bad=$(tap_node_failed "$log") skip=$(tap_skipped "$log")
	[ $rc -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
	echo "| $t | $ok | $skip | $([ "$bad" -eq 0 ] || echo "$bad: $(differing "$log")") |"
done

echo
for t in "${names[@]}"; do
	tap_skips "$logs/$t.log" | sed -nE "s/^(.*): over an upstream: (.*)$/- \`$t\`, \1: \2/p"
done
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
