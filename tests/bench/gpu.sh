#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.sh [FOLDER] [BACKEND]: the device's ceilings, what this build's kernels and steps reach of them, and PyTorch beside it
# where python3 has it: one markdown table on standard output, in less than ten minutes on one large device.
#
# FOLDER is where what was built lies (build). A machine that has nothing but a driver needs only this repository and
# build/gpu, which `make gpu-kit CUDA_ARCHS=90` fills elsewhere: `tests/bench/gpu.sh build/gpu`. BACKEND is cuda;
# cuda-emulated tries the script on shapes so small that the figures mean nothing. LIMIT: seconds in all (570).
#
# Each part is a process with a limit of its own; what fails or comes too late is a row that says `not run`. What every part
# said is in FOLDER/gpu-bench.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
folder=${1:-build}
backend=${2:-cuda}
limit=${LIMIT:-570}
out=$folder/gpu-bench
models=$(mktemp -d)
[ -d "$folder/lib" ] && export LD_LIBRARY_PATH=$PWD/$folder/lib
tiny=() shape=llama-3.1-8b
if [ "$backend" != cuda ]; then
	tiny=(--tiny) shape=tiny-llama
fi
"$folder/tests/gpu/probe" "$folder/libsluice-$backend.so" >"$models/device" 2>&1
rc=$?
if [ "$rc" -ne 0 ]; then
	cat "$models/device"
	rm -rf "$models"
	exit "$rc"
fi
trap 'rm -rf "$models"' EXIT
rm -rf "$out"
mkdir -p "$out"

# part NAME SECONDS COMMAND…: its lines `NAME SECONDS BYTES OPERATIONS` go to the figures.
part() {
	local name=$1 most=$2 left=$((limit - SECONDS))
	shift 2
	[ "$left" -lt "$most" ] && most=$left
	if [ "$most" -lt 1 ]; then
		echo "$name: no time left" >&2
		return 1
	fi
	timeout -k 5 "$most" "$@" >"$out/$name.txt" 2>"$out/$name.err" </dev/null
	local rc=$?
	[ "$rc" -eq 0 ] || echo "$name: exit status $rc $(tail -n 1 "$out/$name.err")" >&2
	grep -E '^[a-z0-9_A-Z]+ [0-9.e+-]+ [0-9.e+-]+ [0-9.e+-]+$' "$out/$name.txt" >>"$out/figures"
	return "$rc"
}

gpu() {
	local name=$1 most=$2
	shift 2
	part "$name" "$most" "$folder/sluice" bench gpu "$@" --backend "$backend" "${tiny[@]}"
}

: >"$out/figures"

gpu copy 40 copy
gpu matrix 60 matrix
gpu matrix-fp8 60 matrix-fp8
gpu library 60 matrix --loose
gpu products 90 products
gpu products-fp8 60 products-fp8
gpu attention 60 attention
gpu sample 40 sample
# Weights of the shape are made on the device.
for kind in bf16 fp8 int4 q4_0; do
	gpu "model-$kind" 90 model --model "random:$shape:${kind/fp8/bf16}" --kind "$kind"
done
gpu model-library 90 model --model "random:$shape:bf16" --kind library --loose
gpu model-library-int4 90 model --model "random:$shape:int4" --kind library_int4 --loose
if [ "$backend" != cuda ]; then
	peer="not asked"
elif python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
	part torch 120 python3 tests/bench/gpu_peer.py
	peer=$(head -n 1 "$out/torch.err")
else
	peer="python3 has no torch that sees the device"
fi

echo
echo "$(head -n 1 "$models/device"); $("$folder/sluice" --version 2>/dev/null | head -n 1)"
echo "PyTorch: $peer"
echo
awk -v backend="$backend" -f tests/bench/gpu_table.awk "$out/figures"
