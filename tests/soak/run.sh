#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [SECONDS]: the long runs. Each fuzz target for SECONDS (60), the simulations, a million strings
# for the cleanser (CLEANSE_STRINGS), draws of the sampler (SAMPLER_DRAWS), prompts with and without speculation
# (SPEC_PROMPTS), the CUDA backend's host side in random orders of its streams (standin.sh; STANDIN_SEEDS, and whole
# programs STANDIN_SLOW_SEEDS),
# two engines of which one is killed over and over (KILLS),
# eight models on demand under 32 clients, 200 adapters under 16 streams, the end-to-end suite over an upstream
# (OVER_UPSTREAM: the files, or all),
# the context that a model of 0.6 billion parameters gets,
# and with each of the seeds in SEEDS ("1 2 3") answers of random schemas (FORMS) in every kind of trouble
# and a whole server under chaos for SECONDS (at least 20). Ends with one line:
# `N passed, N failed`. Expects the binaries to be built. With SAN set, simulations and server are
# those built with these sanitizers, and time limits are five times as long; fuzzers always are.
# Logs and the figures of each chaos run are kept in build/soak.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1

unset MAKEFLAGS MFLAGS MAKELEVEL
seconds=${1:-60}
read -r -a seeds <<<"${SEEDS:-1 2 3}"
folder=build${SAN:+/san-${SAN//,/-}}
slow=${SAN:+5}
slow=${slow:-1}
out=build/soak
mkdir -p "$out"
passed=0 failed=0
# A short quarantine: what was freed long ago is not worth the memory of a long run.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:quarantine_size_mb=32 UBSAN_OPTIONS=print_stacktrace=1

# result NAME STATUS LOG
result() {
	if [ "$2" -eq 0 ]; then
		passed=$((passed + 1))
		echo "  ok    $1"
	else
		failed=$((failed + 1))
		echo "  FAIL  $1"
		tail -n 60 "$3" | sed 's/^/        /'
	fi
}

shopt -s nullglob
for f in tests/fuzz/fuzz_*.c; do
	t=$(basename "$f" .c)
	# Building comes on top of the seconds, the first time for the whole library.
	timeout -k 10 $((seconds + 900)) tests/fuzz/run.sh long "$seconds" "$t" >"$out/$t.log" 2>&1 </dev/null
	rc=$?
	inputs=$(awk '/^stat::number_of_executed_units:/ { n = $2 } END { print n + 0 }' "$out/$t.log")
	result "$t, $seconds s, $inputs inputs" $rc "$out/$t.log"
done

for f in tests/sim/test_*.c; do
	t=${f%.c}
	log=$out/$(basename "$t").log
	SIM_STEPS=${SIM_STEPS:-10000000} timeout -k 5 $((300 * slow)) "$folder/$t" >"$log" 2>&1 </dev/null
	result "$t" $? "$log"
done

for seed in "${seeds[@]}"; do
	log=$out/engines-$seed.log
	SLUICE=$folder/sluice timeout -k 5 $((900 * slow)) node tests/soak/engines.mjs "${KILLS:-100}" "$seed" >"$log" 2>&1 </dev/null
	result "engines killed, seed $seed, $(tail -n 1 "$log")" $? "$log"
done

log=$out/test_cleanse.log
CLEANSE_STRINGS=${CLEANSE_STRINGS:-1000000} timeout -k 5 $((300 * slow)) "$folder/tests/unit/gateway/cleanse/test_cleanse" \
	>"$log" 2>&1 </dev/null
result "cleansing of ${CLEANSE_STRINGS:-1000000} strings" $? "$log"

log=$out/test_sampler_reference.log
SAMPLER_DRAWS=${SAMPLER_DRAWS:-1000000} timeout -k 5 $((300 * slow)) "$folder/tests/unit/engine/sample/test_sampler_reference" \
	>"$log" 2>&1 </dev/null
result "the draw, ${SAMPLER_DRAWS:-1000000} times a setting" $? "$log"

log=$out/test_speculation.log
SPEC_PROMPTS=${SPEC_PROMPTS:-1000} timeout -k 5 $((300 * slow)) "$folder/tests/unit/engine/core/test_speculation" \
	>"$log" 2>&1 </dev/null
result "speculation on ${SPEC_PROMPTS:-1000} prompts" $? "$log"

# Random orders of the device's streams, on the stand-in for CUDA's runtime.
log=$out/test_standin.log
STANDIN_SEEDS=${STANDIN_SEEDS:-200} STANDIN_SLOW_SEEDS=${STANDIN_SLOW_SEEDS:-20} timeout -k 5 $((7200 * slow)) \
	"$folder/tests/kernels/test_standin" >"$log" 2>&1 </dev/null
result "CUDA's device layer in ${STANDIN_SEEDS:-200} random orders" $? "$log"
log=$out/standin.log
timeout -k 5 $((7200 * slow)) tests/soak/standin.sh 1 "${STANDIN_SEEDS:-200}" >"$log" 2>&1 </dev/null
result "steps, pages and whole models in ${STANDIN_SEEDS:-200} random orders" $? "$log"
sed 's/^/        /' "$log"

# What `make test` does in part.
export THOROUGH=1
log=$out/test_conversation_faults.log
timeout -k 5 $((300 * slow)) "$folder/tests/unit/gateway/conversation/test_conversation_faults" >"$log" 2>&1 </dev/null
result "every allocation of a conversation" $? "$log"
for f in "$folder"/tests/unit/engine/core/test_{families,recurrent,windows,latent,invariance} "$folder"/tests/kernels/test_{steps,cuda_products}; do
	t=${f##*/}
	log=$out/$t.log
	timeout -k 5 $((300 * slow)) "$f" >"$log" 2>&1 </dev/null
	result "$t, the whole of it" $? "$log"
done
for t in nonces hostile_requests page_stream page_features; do
	log=$out/$t.log
	SLUICE=$PWD/$folder/sluice timeout -k 10 $((600 * slow)) node --test "tests/e2e/$t.test.mjs" >"$log" 2>&1 </dev/null
	result "$t, the whole of it" $? "$log"
done

log=$out/pull.log
SLUICE=$PWD/$folder/sluice SLUICE_PULL_MB=${PULL_MB:-1024} timeout -k 10 $((600 * slow)) node --test tests/e2e/pull.test.mjs >"$log" 2>&1 </dev/null
result "a model of ${PULL_MB:-1024} MiB pulled with interruptions" $? "$log"
log=$out/on_demand.log
ON_DEMAND_SECONDS=$seconds SLUICE=$PWD/$folder/sluice timeout -k 10 $(((seconds + 120) * slow)) \
	node --test tests/e2e/on_demand.test.mjs >"$log" 2>&1 </dev/null
result "eight models on demand with room for three, $seconds s" $? "$log"
log=$out/adapters.log
SLUICE=$PWD/$folder/sluice timeout -k 10 $(((seconds * 2 + 300) * slow)) \
	node tests/soak/adapters.mjs --seconds "$seconds" >"$log" 2>&1 </dev/null
result "200 adapters that come and go under 16 streams, $seconds s" $? "$log"
log=$out/over_upstream.md
# What a fault between the two servers would break first; all of them take most of an hour.
over=${OVER_UPSTREAM:-cascade choices constrained flush forms_faults limits pacing replay responses resume sessions tools twins}
read -r -a over <<<"${over/#all/}"
SLUICE=$PWD/$folder/sluice timeout -k 10 $((3600 * slow)) tests/soak/over_upstream.sh "${over[@]}" >"$log" 2>&1 </dev/null
result "the end-to-end suite over an upstream, $(tail -n 1 "$log")" $? "$log"
log=$out/context.log
SLUICE=$PWD/$folder/sluice SLUICE_READY_MS=$((300000 * slow)) timeout -k 10 $((900 * slow)) \
	node tests/soak/context.mjs >"$log" 2>&1 </dev/null
result "the context of a model of 0.6 billion parameters" $? "$log"
grep '^{' "$log"

for seed in "${seeds[@]}"; do
	log=$out/forms-$seed.run
	SLUICE=$PWD/$folder/sluice SLUICE_READY_MS=$((30000 * slow)) timeout -k 10 $((1800 * slow)) \
		node tests/soak/forms.mjs --seed "$seed" --schemas "${FORMS:-1000}" >"$log" 2>&1 </dev/null
	result "answers of ${FORMS:-1000} random schemas, seed $seed" $? "$log"
	grep '^{' "$log"
done

# Half of a chaos run is faults, and one of them alone takes four seconds.
chaos=$((seconds < 20 ? 20 : seconds))
for seed in "${seeds[@]}"; do
	log=$out/chaos-$seed.run
	SLUICE=$PWD/$folder/sluice SLUICE_READY_MS=$((30000 * slow)) \
		timeout -k 10 $((chaos + 120 * slow)) node tests/soak/chaos.mjs \
		--seed "$seed" --seconds "$chaos" --slow "$slow" >"$log" 2>&1 </dev/null
	result "chaos, seed $seed, $chaos s" $? "$log"
	grep '^{' "$log"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
