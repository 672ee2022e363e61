#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests how the scripts count results in logs of cmocka 1.1, of later versions and of node.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/support/tap.sh
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
bad=0

# expect WHAT WANTED GOT
expect() {
	[ "$2" = "$3" ] && return 0
	echo "$1: \"$3\" instead of \"$2\""
	bad=1
}

cat >"$log" <<'END'
1..4
not ok 1 # SKIP test_device
ok 2 - test_b
not ok 3 - test_c
# 0x1 != 0x2
ok 4 # SKIP test_later
# not ok - group
END
expect "cmocka, passed, failed and skipped" "1 1 2" "$(tap_counts "$log")"
expect "cmocka, skipped" 2 "$(tap_skipped "$log")"
expect "cmocka, names" "test_device test_later" "$(tap_skips "$log" | xargs)"

cat >"$log" <<'END'
TAP version 13
# Subtest: behind some
    # Subtest: one
    ok 1 - one # SKIP nothing is installed
      ---
      ...
    # Subtest: two
    ok 2 - two
ok 1 - behind some
# Subtest: three
ok 2 - three # SKIP
# tests 3
# suites 1
# pass 1
# fail 0
# cancelled 0
# skipped 2
END
expect "node, passed" 1 "$(tap_node_passed "$log")"
expect "node, failed" 0 "$(tap_node_failed "$log")"
expect "node, skipped" 2 "$(tap_skipped "$log")"
expect "node, names" "one: nothing is installed, three" "$(tap_skips "$log" | paste -sd , | sed 's/,/, /g')"

exit $bad
