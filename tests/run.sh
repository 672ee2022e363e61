#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh unit|e2e|check|test: builds, runs the tests of that set and ends with one line,
# `N passed, N failed`, counted from what the tests themselves reported. A binary that crashes,
# hangs or reports nothing counts as one failed test. Logs are kept in build/test and printed only
# for what failed.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1

# The make that called this shares no jobs with those called from here.
unset MAKEFLAGS MFLAGS MAKELEVEL
set_name=${1:-test}
# The build folder, as the Makefile names it.
folder=build${SAN:+/san-${SAN//,/-}}
# What the end-to-end tests start.
export SLUICE=$PWD/$folder/sluice
jobs=${JOBS:-$(nproc)}
out=build/test
rm -rf "$out"
mkdir -p "$out"
passed=0 failed=0
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1

# count NAME PASSED FAILED LOG [SECONDS]
count() {
	passed=$((passed + $2)) failed=$((failed + $3))
	if [ "$3" -eq 0 ]; then
		printf '  ok    %-44s %4d tests  %s\n' "$1" "$2" "${5-}"
	else
		printf '  FAIL  %-44s %4d passed, %d failed\n' "$1" "$2" "$3"
		tell "$4" | sed 's/^/        /'
	fi
}

# What a log says of a failure: each `not ok` with what follows it, innermost first as they come, and how it ended.
tell() {
	awk '/^ *not ok / { n = 30 } n > 0 && shown < 150 { print; n--; shown++ }' "$1"
	echo "… and at its end:"
	tail -n 40 "$1"
}

# One cmocka binary: writes `PASSED FAILED SECONDS` beside its log. Runs in a subshell of its own.
run_binary() {
	local bin=$1 limit=$2 log=$3 t0=$SECONDS rc ok bad
	# A fresh folder: tests may write, and never beside each other.
	local work
	work=$(mktemp -d)
	TMPDIR=$work CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 5 "$limit" "$bin" >"$log" 2>&1 </dev/null
	rc=$?
	rm -rf "$work"
	ok=$(grep -c '^ok ' "$log")
	bad=$(grep -c '^not ok ' "$log")
	[ "$rc" -eq 124 ] && echo "timed out after $limit s" >>"$log"
	if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
		echo "exit status $rc" >>"$log"
		bad=1
	elif [ $((ok + bad)) -eq 0 ]; then
		echo "reported no test" >>"$log"
		bad=1
	fi
	echo "$ok $bad $((SECONDS - t0)) s" >"$log.result"
}

# run_binaries TITLE FOLDER LIMIT AT_ONCE SOURCE…: several at once, reported in order.
run_binaries() {
	local title=$1 folder=$2 limit=$3 at_once=$4 src log running=0
	shift 4
	[ $# -gt 0 ] || return 0
	echo "$title"
	for src in "$@"; do
		log=$out/$(tr / - <<<"$folder/${src%.c}").log
		if [ "$running" -ge "$at_once" ]; then
			wait -n
			running=$((running - 1))
		fi
		run_binary "$folder/${src%.c}" "$limit" "$log" &
		running=$((running + 1))
	done
	wait
	for src in "$@"; do
		log=$out/$(tr / - <<<"$folder/${src%.c}").log
		local ok bad took
		read -r ok bad took <"$log.result"
		count "${src#tests/}" "$ok" "$bad" "$log" "$took"
	done
}

# What is built must build: otherwise one failed test and nothing else.
build() {
	if ! make "$@" >"$out/make.log" 2>&1; then
		grep -v '^  CC ' "$out/make.log" | tail -n 60
		echo "make $* failed"
		finish 1
	fi
}

finish() {
	failed=$((failed + ${1:-0}))
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
	exit
}

units() {
	shopt -s nullglob
	local all=(tests/unit/*/test_*.c tests/regress/test_*.c)
	# Many of them wait more than they compute.
	run_binaries "unit tests" "$folder" 120 $((2 * jobs)) "${all[@]}"
	all=(tests/kernels/test_*.c)
	run_binaries "kernels" "$folder" 300 "$jobs" "${all[@]}"
	all=(tests/sim/test_*.c)
	run_binaries "simulations" "$folder" 300 "$jobs" "${all[@]}"
}

# Of `test`: what is all arithmetic is run as it ships; the rest with sanitizers only, which see more and cost it
# little. One is run both ways, with sanitizers in a part of what it draws. (`make unit` runs everything as
# it ships, `make unit SAN=address,undefined` with them.)
arithmetic=(tests/unit/engine/test_{families,invariance,kv_types,speculation}.c)
both=(tests/unit/engine/test_given.c)
kernels=(tests/kernels/test_*.c)

shipped() {
	run_binaries "kernels, and what is all arithmetic" "$folder" 300 "$jobs" "${kernels[@]}" "${arithmetic[@]}" "${both[@]}"
}

sanitized() {
	shopt -s nullglob
	local all f
	for f in tests/unit/*/test_*.c tests/regress/test_*.c tests/sim/test_*.c; do
		[[ " ${arithmetic[*]} " == *" $f "* ]] || all+=("$f")
	done
	local bins=("${all[@]%.c}")
	build SAN=address,undefined "${bins[@]/#/build/san-address-undefined/}"
	run_binaries "unit tests and simulations, with sanitizers" build/san-address-undefined 300 $((2 * jobs)) "${all[@]}"
}

# The packages of tests/e2e, exactly as locked, when the lock is newer than what is installed.
node_modules() {
	local here=tests/e2e
	[ -e "$here/node_modules/.package-lock.json" ] &&
		! [ "$here/package-lock.json" -nt "$here/node_modules/.package-lock.json" ] && return 0
	echo "installing the packages of $here"
	(cd "$here" && npm ci --no-audit --no-fund --loglevel=error) >"$out/npm.log" 2>&1 || {
		cat "$out/npm.log"
		return 1
	}
	touch "$here/node_modules/.package-lock.json"
}

# One end-to-end file: writes `PASSED FAILED SECONDS` beside its log. Runs in a subshell of its own.
run_e2e_file() {
	local f=$1 log=$2 t0=$SECONDS rc ok bad work
	work=$(mktemp -d)
	TMPDIR=$work timeout -k 10 600 node --test --test-reporter=tap "$f" >"$log" 2>&1 </dev/null
	rc=$?
	rm -rf "$work"
	ok=$(sed -n 's/^# pass \([0-9]*\)$/\1/p' "$log" | tail -n 1)
	bad=$(awk '/^# (fail|cancelled) [0-9]+$/ { n += $3 } END { print n + 0 }' "$log")
	ok=${ok:-0} bad=${bad:-0}
	if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
		echo "exit status $rc" >>"$log"
		bad=1
	elif [ $((ok + bad)) -eq 0 ]; then
		echo "reported no test" >>"$log"
		bad=1
	fi
	echo "$ok $bad $((SECONDS - t0)) s" >"$log.result"
}

# Three at once, each with ports of its own, and lint beside them if it is to run; then those that measure
# time (they say so: `// Alone: …`) one after the other.
run_e2e() {
	local files=(tests/e2e/*.test.mjs) f log most=3 running=0 ok bad took
	[ -e "${files[0]}" ] || return 0
	echo "end to end"
	if ! node_modules; then
		count "npm ci" 0 1 "$out/npm.log"
		return 0
	fi
	if [ -n "${lint_pid-}" ]; then
		most=4 running=1
	fi
	# Those of the page are the longest: first, so that they end with the others.
	for f in tests/e2e/page_*.test.mjs $(printf '%s\n' "${files[@]}" | grep -v /page_); do
		grep -q '^// Alone: ' "$f" && continue
		if [ "$running" -ge "$most" ]; then
			wait -n
			running=$((running - 1))
		fi
		run_e2e_file "$f" "$out/$(basename "$f").log" &
		running=$((running + 1))
	done
	wait
	for f in "${files[@]}"; do
		grep -q '^// Alone: ' "$f" || continue
		log=$out/$(basename "$f").log
		run_e2e_file "$f" "$log"
		read -r ok bad took <"$log.result"
		[ "$bad" -eq 0 ] && continue
		# These measure times, on a machine that others may share: what fails twice running is a fault.
		mv "$log" "$log.first"
		run_e2e_file "$f" "$log"
		printf '  again %-44s %s\n' "${f#tests/}" "$bad failed in the first run, see ${log#"$out"/}.first:"
		tell "$log.first" | head -n 60 | sed 's/^/        /'
	done
	for f in "${files[@]}"; do
		log=$out/$(basename "$f").log
		read -r ok bad took <"$log.result"
		count "${f#tests/}" "$ok" "$bad" "$log" "$took"
	done
}

# The fuzz targets' seeds and a fixed number of seeded mutations.
fuzz_replay() {
	[ -e tests/fuzz/run.sh ] || return 0
	echo "fuzz targets: seeds and seeded mutations"
	local log=$out/fuzz.log rc ok bad
	timeout -k 10 600 tests/fuzz/run.sh replay "$1" >"$log" 2>&1 </dev/null
	rc=$?
	ok=$(grep -c 'no finding$' "$log")
	bad=$(grep -c '^FINDING ' "$log")
	[ "$rc" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
	count "fuzz" "$ok" "$bad" "$log"
}

# tests/lint/run.sh prints `ok NAME` or `FAIL NAME` for each of its checks. It goes on beside what is run
# between lint_begin and lint_end, as long as that may be slowed down.
lint_begin() {
	(
		nice -n 19 timeout -k 10 900 tests/lint/run.sh "$@" >"$out/lint.log" 2>&1 </dev/null
		echo $? >"$out/lint.rc"
	) &
	lint_pid=$!
}

lint_end() {
	local log=$out/lint.log rc ok bad
	echo "lint"
	wait
	rc=$(cat "$out/lint.rc")
	ok=$(grep -c '^  ok ' "$log")
	bad=$(grep -c '^  FAIL ' "$log")
	[ "$rc" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
	count "lint" "$ok" "$bad" "$log"
}

case $set_name in
unit)
	build build tests
	units
	;;
e2e)
	build build tests
	run_e2e
	;;
check)
	build build tests
	units
	lint_begin quick
	lint_end
	;;
test)
	some=("${kernels[@]%.c}" "${arithmetic[@]%.c}" "${both[@]%.c}")
	build build helpers "${some[@]/#/$folder/}"
	shipped
	sanitized
	lint_begin short
	export THREADS=4
	run_e2e
	lint_end
	fuzz_replay 3000
	;;
*)
	sed -n '4,8p' "$0"
	exit 2
	;;
esac
finish
