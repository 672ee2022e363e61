#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh unit|e2e|check|test|perf: builds, runs the tests of that set and ends with one line,
# `N passed, N failed`, counted from what the tests themselves reported; where some could not run
# here, `, N skipped` follows. A binary that crashes, hangs or reports nothing counts as one failed
# test. Logs are kept in build/test and printed only for what failed. `perf` measures, on a machine that has nothing else to
# do, and prints its figures; the other sets judge no time (tests/README.md).
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
. tests/support/tap.sh
. tests/lint/cache.sh

# The make that called this shares no jobs with those called from here.
unset MAKEFLAGS MFLAGS MAKELEVEL
set_name=${1:-test}
# The build folder, as the Makefile names it.
folder=build${SAN:+/san-${SAN//,/-}}
# What the end-to-end tests start.
export SLUICE=$PWD/$folder/sluice
jobs=${JOBS:-$(nproc)}
# The thread sanitizer makes some tests twenty times slower.
slow=1
[[ ${SAN-} != *thread* ]] || slow=10
out=build/test
[ "$set_name" = behind ] || rm -rf "$out"
mkdir -p "$out"
passed=0 failed=0 skipped=0
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1

# count NAME PASSED FAILED LOG [SECONDS]: also names what was skipped.
count() {
	local n=0
	if grep -qs ' # SKIP' "$4"; then n=$(tap_skipped "$4"); fi
	passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + n))
	if [ "$3" -eq 0 ]; then
		printf '  ok    %-44s %4d tests  %s\n' "$1" "$2" "${5-}"
	else
		printf '  FAIL  %-44s %4d passed, %d failed\n' "$1" "$2" "$3"
		tell "$4" | sed 's/^/        /'
	fi
	[ "$n" -eq 0 ] || tap_skips "$4" | sed 's/^/        skipped: /'
}

# What a log says of a failure: each `not ok` with what follows it, innermost first as they come, and how it ended.
tell() {
	awk '/^ *not ok / && !/# SKIP / { n = 30 } n > 0 && shown < 150 { print; n--; shown++ }' "$1"
	echo "… and at its end:"
	tail -n 40 "$1"
}

# timed COMMAND…: runs it and sets $took: how long that took, and what it and those it waited for used of the processors.
timed() {
	local TIMEFORMAT='%R %U %S' rc times
	exec 3>&1 4>&2
	times=$({ time "$@" 1>&3 2>&4 3>&- 4>&-; } 2>&1)
	rc=$?
	exec 3>&- 4>&-
	took=$(awk '{ printf "%4.0f s, %.0f s busy", $1, $2 + $3 }' <<<"$times")
	return "$rc"
}

# For what a test writes. Open to pass through: started as root, servers run as another user and reach what lies in it.
work_folder() {
	local work
	work=$(mktemp -d) && chmod 711 "$work" && echo "$work"
}

# One cmocka binary: writes `PASSED FAILED SECONDS` beside its log. Runs in a subshell of its own.
run_binary() {
	local bin=$1 limit=$2 log=$3 took rc ok bad skip
	# A fresh folder: tests may write, and never beside each other.
	local work
	work=$(work_folder)
	# Of the processor: beside other work a sound test may take ten times as long. What waits for ever ends too.
	ulimit -S -t "$limit"
	TMPDIR=$work CMOCKA_MESSAGE_OUTPUT=TAP timed timeout -k 5 "$((5 * limit))" "$bin" >"$log" 2>&1 </dev/null 8>&-
	rc=$?
	rm -rf "$work"
	read -r ok bad skip < <(tap_counts "$log")
	[ "$rc" -eq 124 ] && echo "timed out after $((5 * limit)) s" >>"$log"
	[ "$rc" -eq 152 ] && echo "used $limit s of the processor" >>"$log" # SIGXCPU
	if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
		echo "exit status $rc" >>"$log"
		bad=1
	elif [ $((ok + bad + skip)) -eq 0 ]; then
		echo "reported no test" >>"$log"
		bad=1
	fi
	result "$log" "$ok" "$bad" "$took"
}

# What ends writes a line here, and the queue waits for lines: asking in turn would cost half a minute of a whole run.
ended=$out/ended
mkfifo "$ended" 2>/dev/null
exec 8<>"$ended"

# result LOG PASSED FAILED SECONDS: the file appears complete.
result() {
	echo "$2 $3 $4" >"$1.part"
	mv "$1.part" "$1.result"
	echo >&8
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
	if ! make "$@" >"$out/make.log" 2>&1 8>&-; then
		grep -v '^  CC ' "$out/make.log" | tail -n 60
		echo "make $* failed"
		finish 1
	fi
}

finish() {
	failed=$((failed + ${1:-0}))
	[ ${#unsteady[@]} -eq 0 ] || echo "unsteady (failed beside others, passed by themselves): ${unsteady[*]}"
	local rest=
	[ "$skipped" -eq 0 ] || rest=", $skipped skipped"
	# Of all that ended and was waited for, this script's own included.
	times >"$out/times"
	awk '{ gsub(/[ms]/, " "); n += $1 * 60 + $2 + $3 * 60 + $4 } END { printf "%.0f s of the processors\n", n }' "$out/times"
	echo "$passed passed, $failed failed$rest"
	[ "$failed" -eq 0 ]
	exit
}

units() {
	shopt -s nullglob
	local all=(tests/unit/*/test_*.c tests/unit/*/*/test_*.c)
	# Many of them wait more than they compute.
	run_binaries "unit tests" "$folder" $((120 * slow)) $((2 * jobs)) "${all[@]}"
	all=(tests/kernels/test_*.c)
	run_binaries "kernels" "$folder" $((300 * slow)) "$jobs" "${all[@]}"
	all=(tests/sim/test_*.c)
	run_binaries "simulations" "$folder" $((300 * slow)) "$jobs" "${all[@]}"
}

# Of `test`: what is all arithmetic is run as it ships; the rest with sanitizers only, which see more and cost it
# little. Some are run both ways, with sanitizers in a part of what they draw (part.h). (`make unit` runs everything as
# it ships, `make unit SAN=address,undefined` with them.) The longest first.
arithmetic=(tests/unit/engine/{core/test_{draft_head,encoders,families,head_drafts,invariance,latent,recurrent,speculation,weight_types,windows},kv/test_kv_types}.c
	tests/unit/engine/{core/test_golden,sample/test_sampler{,_reference}}.c tests/unit/{gateway/parts/test_parts_corpus,cmd/plan/test_roles}.c)
both=(tests/unit/engine/{step/test_draft_prefix,model/test_{adapters,model},core/test_engine}.c
	tests/unit/cmd/plan/test_tune.c tests/sim/test_trial_sim.c)
kernels=(tests/kernels/test_{mutants,types,engine_ahead}.c)
long=(tests/unit/gateway/{conversation/test_conversation_faults,answer/test_answer_faults,sharing/test_coalesce_faults}.c)

# first A… -- B…: those of A, then those of B that are not among them.
first() {
	local f front=
	while [ "$1" != -- ]; do
		front+="$1 "
		shift
	done
	shift
	printf '%s\n' $front
	for f in "$@"; do
		[[ " $front" == *" $f "* ]] || printf '%s\n' "$f"
	done
}

choose() {
	shopt -s nullglob
	mapfile -t shipped_src < <(first "${kernels[@]}" "${arithmetic[@]}" "${both[@]}" -- tests/kernels/test_*.c)
	mapfile -t sanitized_src < <(first "${arithmetic[@]}" "${long[@]}" -- tests/sim/test_*.c tests/unit/*/test_*.c \
		tests/unit/*/*/test_*.c | tail -n +$((1 + ${#arithmetic[@]})))
	shopt -u nullglob
	shipped=("${shipped_src[@]%.c}")
	sanitized=("${sanitized_src[@]%.c}")
}

# The packages of tests/e2e, exactly as locked, when the lock is newer than what is installed. What npm installed is kept in the
# user's cache by the lock's content, and a fresh clone gets links to its files: npm needs 20 s of the processor.
node_modules() {
	local here=tests/e2e kept
	[ -e "$here/node_modules/.package-lock.json" ] &&
		! [ "$here/package-lock.json" -nt "$here/node_modules/.package-lock.json" ] && return 0
	kept=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/sluice/node_modules
	find "$kept" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null
	kept=$kept/$( (uname -m && node --version && cat "$here/package-lock.json") | sha256sum | cut -c1-32)
	rm -rf "$here/node_modules"
	if ! { [ -d "$kept" ] && cp -al "$kept" "$here/node_modules" 2>/dev/null; }; then # or it is on another file system
		rm -rf "$here/node_modules"
		echo "installing the packages of $here"
		(cd "$here" && npm ci --no-audit --no-fund --loglevel=error) >"$out/npm.log" 2>&1 || {
			cat "$out/npm.log"
			return 1
		}
		if mkdir -p "${kept%/*}" 2>/dev/null && cp -al "$here/node_modules" "$kept.$$" 2>/dev/null; then
			mv -T "$kept.$$" "$kept" 2>/dev/null
		fi
		rm -rf "$kept.$$"
	fi
	touch -c "$kept" 2>/dev/null
	touch "$here/node_modules/.package-lock.json"
}

# One end-to-end file: writes `PASSED FAILED SECONDS` beside its log. Runs in a subshell of its own.
run_e2e_file() {
	local f=$1 log=$2 took rc ok bad skip work
	work=$(work_folder)
	TMPDIR=$work timed timeout -k 10 1800 node --test-reporter=tap "$f" >"$log" 2>&1 </dev/null 8>&-
	rc=$?
	rm -rf "$work"
	ok=$(tap_node_passed "$log")
	bad=$(tap_node_failed "$log")
	skip=$(tap_skipped "$log")
	if [ "$rc" -ne 0 ] && [ "$bad" -eq 0 ]; then
		echo "exit status $rc" >>"$log"
		bad=1
	elif [ $((ok + bad + skip)) -eq 0 ]; then
		echo "reported no test" >>"$log"
		bad=1
	fi
	result "$log" "$ok" "$bad" "$took"
}

# ---- the queue of tests, and what is built behind them ----

# What is made behind the tests, one step after the other, at the lowest priority there is, so that whoever of the tests
# wakes up goes before it. (In the tests' own session: the system shares the processors among sessions.) It stays there
# only as long as tests run: beside somebody else's work a process that idles may wait for ever. Where a process cannot come
# back from there, it is merely nicer than the tests. $out/NAME.rc has how a step ended.
idle=
begin_behind() {
	local how=(nice -n 5)
	if chrt --idle 0 bash -c 'chrt --other --pid 0 $$' 2>/dev/null; then
		how=(chrt --idle 0) idle=1
	fi
	set -m # a process group of its own
	"${how[@]}" "$0" behind >"$out/behind.log" 2>&1 </dev/null 8>&- &
	behind_pid=$!
	set +m
	trap 'behind_runs && kill -- "-$behind_pid" 2>/dev/null' EXIT
}

# Of the jobs, not of the processes: a whole run starts more processes than there are numbers, and once this one has ended
# another may have its number.
behind_runs() {
	[[ " $(jobs -pr | tr '\n' ' ')" == *" $behind_pid "* ]]
}

# The tests wait for what is behind: it stands back no longer. Called again and again, for what was being started.
hurry_behind() {
	[ -n "$idle" ] || return 0
	sed -nE "s/^([0-9]+) \(.*\) [A-Z] [0-9]+ $behind_pid .*/\1/p" /proc/[0-9]*/stat 2>/dev/null |
		xargs -r -n 1 chrt --other --all-tasks --pid 0 2>/dev/null
}

behind() {
	step shipped make build "ONLY=${shipped[*]}" "${shipped[@]/#/$folder/}"
	step sanitized make SAN=address,undefined "ONLY=${sanitized[*]}" "${sanitized[@]/#/build/san-address-undefined/}"
	step lint timeout -k 10 900 tests/lint/run.sh short
	step fuzz timeout -k 10 600 tests/fuzz/run.sh replay "$([ -n "${THOROUGH-}" ] && echo 3000 || echo 1000)"
}

step() {
	local name=$1 took rc
	shift
	timed "$@" >"$out/$name.log" 2>&1 </dev/null 8>&-
	rc=$?
	echo "$rc $took" >"$out/$name.rc.part"
	mv "$out/$name.rc.part" "$out/$name.rc"
	echo >&8
}

# want BESIDE AFTER KIND FILE…: these tests, no more than BESIDE at once (of all kinds), when the step AFTER is done (-: at
# once). Beside 1, no other test runs, only what is behind.
queue=()
want() {
	local f
	for f in "${@:4}"; do
		queue+=("$1 $2 $3 $f")
	done
}

# may AFTER: 0 yes, 1 not yet, 2 never.
may() {
	local rc
	[ "$1" = - ] && return 0
	[ -e "$out/$1.rc" ] || return 1
	read -r rc _ <"$out/$1.rc"
	[ "$rc" -eq 0 ] || return 2
}

begin() {
	local kind=$1 f=$2 log=$3
	rm -f "$log.result"
	case $kind in
	e2e) run_e2e_file "$f" "$log" ;;
	san) run_binary "build/san-address-undefined/${f%.c}" 300 "$log" ;;
	*) run_binary "$folder/${f%.c}" 300 "$log" ;;
	esac &
}

# Most have deadlines, and here they wait for processors that they share with each other, with what is built behind them and
# perhaps with another's work. So what failed is run once more at the end with nothing beside it: what fails twice is a fault,
# what does not is named as unsteady. Not so a crash or what a sanitizer saw, which is a fault once seen (what is never
# freed after a failed assertion apart), nor where more than a few failed.
again=() unsteady=()
most_again=4
may_again() {
	[ ! -e "$1.first" ] && [ ${#again[@]} -lt "$most_again" ] || return 1
	! grep -qE 'ERROR: AddressSanitizer|ThreadSanitizer:|runtime error:' "$1" && grep -qE '^ *not ok [0-9]+ - |^exit status 124$' "$1"
}

run_again() {
	[ ${#again[@]} -gt 0 ] || return 0
	queue+=("${again[@]}")
	run_queue
}

# Starts them in order, as far as they may; tells of each as it ends.
run_queue() {
	local -A running=()
	local i beside after kind f log ok bad took lone=
	while [ ${#queue[@]} -gt 0 ] || [ ${#running[@]} -gt 0 ]; do
		for log in "${!running[@]}"; do
			[ -e "$log.result" ] || continue
			read -r beside kind f <<<"${running[$log]}"
			unset "running[$log]"
			[ "$beside" -le 1 ] && lone=
			read -r ok bad took <"$log.result"
			if [ "$bad" -gt 0 ] && may_again "$log"; then
				mv "$log" "$log.first"
				printf '  again %-44s %s\n' "${f#tests/}" "$bad failed in the first run, see ${log#"$out"/}.first:"
				tell "$log.first" | head -n 60 | sed 's/^/        /'
				again+=("0 - $kind $f")
				continue
			fi
			[ ! -e "$log.first" ] || [ "$bad" -gt 0 ] || unsteady+=("${f#tests/}")
			count "${f#tests/}$([ "$kind" = san ] && echo ' (sanitized)')" "$ok" "$bad" "$log" "$took"
		done
		for i in "${!queue[@]}"; do
			[ -z "$lone" ] || break
			read -r beside after kind f <<<"${queue[i]}"
			may "$after"
			case $? in
			1) continue ;;
			2) unset "queue[i]" && continue ;;
			esac
			if [ "$beside" -le 1 ]; then
				[ ${#running[@]} -eq 0 ] || continue
				lone=1
			elif [ ${#running[@]} -ge "$beside" ]; then
				break
			fi
			log=$out/$kind-$(basename "$(dirname "$f")")-$(basename "$f").log
			unset "queue[i]"
			running[$log]="$beside $kind $f"
			begin "$kind" "$f" "$log"
		done
		queue=("${queue[@]}")
		if [ ${#running[@]} -eq 0 ] && [ ${#queue[@]} -gt 0 ]; then
			hurry_behind
		fi
		read -r -t 1 -u 8
	done
}

# The end-to-end files: those that are a load of their own one after the other (they say so: `// Alone: …`), the others four
# at once, each with ports of its own; the page's are the longest, so they come first. `backends` is what those of the other
# backend wait for.
want_e2e() {
	local backends=$1 f
	for f in tests/e2e/*.test.mjs; do
		grep -q '^// Alone: ' "$f" && want 1 "$(after_of "$f")" e2e "$f"
	done
	for f in $(first tests/e2e/{page_browser,page_unit,replay}.test.mjs -- tests/e2e/*.test.mjs); do
		grep -q '^// Alone: ' "$f" || want 4 "$(after_of "$f")" e2e "$f"
	done
}

# What an end-to-end file needs beside the executable.
after_of() {
	if grep -q 'libsluice-cuda' "$1"; then echo "$backends"; else echo -; fi
}

run_e2e() {
	echo "end to end"
	if ! node_modules; then
		count "npm ci" 0 1 "$out/npm.log"
		return 0
	fi
	want_e2e -
	run_queue
	run_again
}

# What measures: end-to-end files that say `// Perf: …`, unit tests that include tests/support/perf.h; one after the other.
run_perf() {
	local f log
	export SLUICE_PERF=1
	node_modules || { count "npm ci" 0 1 "$out/npm.log"; return 0; }
	for f in $(grep -lE 'tests/support/perf\.h' tests/unit/*/test_*.c tests/unit/*/*/test_*.c); do want 1 - shipped "$f"; done
	for f in $(grep -lE '^// Perf: ' tests/e2e/*.test.mjs); do want 1 - e2e "$f"; done
	run_queue
	for log in "$out"/e2e-*.log; do sed -nE 's/^ *# (.*[0-9].*)$/  \1/p' "$log" | grep -vE '^  (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms|Subtest)'; done
}

# tests/lint/run.sh prints `ok NAME` or `FAIL NAME` for each of its checks.
count_lint() {
	local log=$out/lint.log rc took ok bad
	read -r rc took <"$out/lint.rc"
	ok=$(grep -c '^  ok ' "$log")
	bad=$(grep -c '^  FAIL ' "$log")
	[ "$rc" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
	count "lint" "$ok" "$bad" "$log" "$took"
}

# The fuzz targets' seeds and a fixed number of seeded mutations.
count_fuzz() {
	local log=$out/fuzz.log rc took ok bad
	read -r rc took <"$out/fuzz.rc"
	ok=$(grep -c 'no finding$' "$log")
	bad=$(grep -c '^FINDING ' "$log")
	[ "$rc" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
	count "fuzz" "$ok" "$bad" "$log" "$took"
}

# A step behind that only builds.
count_build() {
	local rc took
	read -r rc took <"$out/$1.rc"
	if [ "$rc" -eq 0 ]; then
		printf '        %-44s %s\n' "building: $1" "$took"
	else
		count "building: $1" 0 1 "$out/$1.log"
	fi
}

everything() {
	choose
	build "$folder/sluice" "$folder/sluice-bench" helpers
	begin_behind
	if node_modules; then
		want_e2e shipped
	else
		count "npm ci" 0 1 "$out/npm.log"
	fi
	# Most of these use two threads, which wait for each other.
	want "$jobs" shipped shipped "${shipped_src[@]}"
	want "$((2 * jobs))" sanitized san "${sanitized_src[@]}"
	run_queue
	while behind_runs; do
		hurry_behind
		sleep 1
	done
	run_again
	count_build shipped
	count_build sanitized
	count_lint
	count_fuzz
}

# Without a device what is made for one need only compile and load: with the optimisations that a device is worth, and for
# each generation of devices, it takes twenty times as long. What is already there stays as it is.
if ! [ -e /dev/nvidia0 ] && ! grep -qs -e ' -O3 ' "$folder/cuda.flags" && [[ $(PATH=$PATH:/usr/local/cuda/bin nvcc --help 2>/dev/null) == *'(-Ofc)'* ]]; then
	export CUDA_OPT='-Ofc max' CUDA_ARCHS=80
fi

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
	step lint timeout -k 10 900 tests/lint/run.sh quick
	count_lint
	;;
perf)
	build build tests
	run_perf
	;;
test)
	export THREADS=4
	# Where test_mutants remembers the bytes in which it found every planted fault.
	SLUICE_TEST_SEEN=$(lint_cache mutants)
	export SLUICE_TEST_SEEN
	everything
	;;
behind)
	choose
	behind
	exit
	;;
*)
	sed -n '4,8p' "$0"
	exit 2
	;;
esac
finish
