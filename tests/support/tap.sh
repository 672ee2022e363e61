# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What a test's log in TAP says: of cmocka, whose lines are its tests, and of node, which ends with counts of its own. What was
# skipped neither passed nor failed, though cmocka 1.1 says `not ok 1 # SKIP NAME` (later ones: `ok 1 # SKIP NAME`).

# tap_skips LOG: a line for each, `NAME` or `NAME: REASON`.
tap_skips() {
	sed -nE 's/^(not )?ok [0-9]+ # SKIP (.*)$/\2/p; s/^ *ok [0-9]+ - (.*) # SKIP$/\1/p; s/^ *ok [0-9]+ - (.*) # SKIP (.*)$/\1: \2/p' "$1"
}

tap_skipped() { tap_skips "$1" | wc -l; }

# Of cmocka, at once: PASSED FAILED SKIPPED.
tap_counts() {
	awk '/^(not )?ok / { if (/ # SKIP /) skipped++; else if (/^ok /) passed++; else failed++ }
		END { print passed + 0, failed + 0, skipped + 0 }' "$1"
}

# Of node.
tap_node_passed() { awk '/^# pass [0-9]+$/ { n = $3 } END { print n + 0 }' "$1"; }
tap_node_failed() { awk '/^# (fail|cancelled) [0-9]+$/ { n += $3 } END { print n + 0 }' "$1"; }
