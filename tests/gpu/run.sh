#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [FOLDER] [BACKEND]: the cases of every kernel, and the engine's golden and invariance tests, on a device; `make
# gpu-test` builds what it needs first. Ends with `N passed, N failed`; without a device one line says so and the exit
# status is 77.
#
# FOLDER is where what was built lies (build); one that `make gpu-kit` filled needs neither compiler nor libraries. BACKEND
# is cuda; cuda-emulated tries this script. ONLY=NAME runs only the tests whose names contain that.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
. tests/support/tap.sh
folder=${1:-build}
backend=${2:-cuda}
export SLUICE_TEST_BACKEND=$backend
[ -d "$folder/lib" ] && export LD_LIBRARY_PATH=$PWD/$folder/lib
so=$folder/libsluice-$backend.so
if [ ! -e "$so" ]; then
	echo "no device: $so was not built"
	exit 77
fi
"$folder/tests/gpu/probe" "$so"
rc=$?
[ "$rc" -eq 0 ] || exit "$rc"

out=$folder/gpu-test
passed=0 failed=0 skipped=0
rm -rf "$out"
mkdir -p "$out"

# one NAME LIMIT COMMAND…: counts what it reports; one that reports nothing, or not 0, is a failed test.
one() {
	local name=$1 limit=$2 log t0=$SECONDS rc ok bad skip
	shift 2
	[[ $name == *${ONLY-}* ]] || return 0
	log=$out/$(tr '/ ' -- <<<"$name").log
	CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null
	rc=$?
	ok=$(tap_passed "$log")
	bad=$(tap_failed "$log")
	skip=$(tap_skipped "$log")
	[ "$rc" -eq 124 ] && echo "timed out after $limit s" >>"$log"
	if [ "$bad" -eq 0 ] && { [ "$rc" -ne 0 ] || [ $((ok + skip)) -eq 0 ]; }; then
		echo "exit status $rc" >>"$log"
		bad=1
	fi
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
	if [ "$bad" -eq 0 ]; then
		printf '  ok    %-40s %4d tests  %d s\n' "$name" "$ok" $((SECONDS - t0))
	else
		printf '  FAIL  %-40s %4d passed, %d failed\n' "$name" "$ok" "$bad"
		tail -n 40 "$log" | sed 's/^/        /'
	fi
}

kernels=(test_ops test_attention test_types test_cuda_products test_cuda_attention test_graphs test_sample test_library)
for t in "${kernels[@]}"; do
	[ -e "$folder/tests/kernels/$t" ] && one "$t" 120 "$folder/tests/kernels/$t"
done
# They ask for the backend by name, which is looked for beside the executable.
engine=$folder/tests/unit/engine/core
ln -sf "$PWD/$so" "$engine/"
for t in test_families test_golden test_invariance test_weight_types; do
	one "$t" 300 "$engine/$t"
done
rm -f "$engine/libsluice-$backend.so"
if command -v compute-sanitizer >/dev/null && [ "$backend" = cuda ]; then
	for t in test_graphs test_sample test_cuda_products; do
		one "memcheck $t" 200 compute-sanitizer --tool memcheck --error-exitcode 9 "$folder/tests/kernels/$t"
	done
	one "racecheck test_graphs" 200 compute-sanitizer --tool racecheck --error-exitcode 9 "$folder/tests/kernels/test_graphs"
else
	echo "  compute-sanitizer: not run"
fi
echo "$passed passed, $failed failed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
[ "$failed" -eq 0 ]
