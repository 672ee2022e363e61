#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# standin.sh [FIRST LAST [PROGRAM…]]: programs of tests/kernels on the stand-in for CUDA's runtime (tests/standin), which
# aborts on what a device would refuse or get wrong: as early and as late as a device may be, and in the random orders of
# the seeds FIRST to LAST (1 200). Programs that have cases whose calls come in one order run these alone
# (tests/kernels/orders.h); their answers must be those of a device that does everything at once. The first seed runs
# twice, and must run its operations in the same order.
#
# Prints a line a program: seeds, findings, and how often the runs took the paths that matter. The first finding ends it,
# with the command that repeats it. Expects the programs to be built, those of SAN where it is set. Run from anywhere.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1

first=${1:-1} last=${2:-200}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- test_graphs test_aside test_ops test_engine_ahead test_engine_memory
folder=build${SAN:+/san-${SAN//,/-}}
seconds=600 # that one run may take of the processor, and ten times of the clock
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# settings PROGRAM POLICY ANSWERS: what a run is given.
settings() {
	echo "SLUICE_ORDERS=1${3:+ SLUICE_ORDERS_ANSWERS=$3} SLUICE_TEST_BACKEND=cuda-standin SLUICE_STANDIN=$2"
}

# run PROGRAM POLICY ANSWERS: adds what it reached to $logs/reached; its output is $logs/output.
run() {
	local rc
	read -r -a given <<<"$(settings "$@")"
	(
		ulimit -t "$seconds" -c 0
		env "${given[@]}" SLUICE_STANDIN_REPORT=1 timeout -k 5 $((10 * seconds)) "$folder/tests/kernels/$1"
	) >"$logs/output" 2>&1 </dev/null
	rc=$?
	grep '^reached ' "$logs/output" >>"$logs/reached"
	return "$rc"
}

# finding PROGRAM POLICY ANSWERS WHAT: ends the soak.
finding() {
	echo "$1: 1 finding, $2: $4"
	echo "again: $(settings "$1" "$2" "$3") $folder/tests/kernels/$1"
	exit 1
}

# must PROGRAM POLICY ANSWERS: runs it without a finding.
must() {
	run "$@" && return
	finding "$@" "$(grep -m 1 -E 'stand-in for CUDA|ERROR|error: |FAILED' "$logs/output" || tail -n 1 "$logs/output")"
}

order() { sed -n 's/^order //p' "$logs/output"; }

# What all runs reached, summed by name.
reached() {
	awk '{ for (i = 2; i <= NF; i++) { split($i, a, "="); if (!(a[1] in n)) names[++k] = a[1]; n[a[1]] += a[2] } }
		END { for (i = 1; i <= k; i++) printf "%s %s %.0f", (i > 1 ? "," : ""), names[i], n[names[i]] }' "$logs/reached"
}

for program; do
	: >"$logs/reached"
	must "$program" early ""
	answers=$(sed -n 's/^answers //p' "$logs/output" | paste -sd,)
	must "$program" late "$answers"
	for ((seed = first; seed <= last; seed++)); do
		must "$program" "random:$seed" "$answers"
		[ "$seed" -eq "$first" ] || continue
		was=$(order)
		must "$program" "random:$seed" "$answers"
		[ "$was" = "$(order)" ] || finding "$program" "random:$seed" "$answers" "another order when it ran again"
	done
	echo "$program: early, late, seeds $first to $last: 0 findings; reached$(reached)"
done
