# SPDX-License-Identifier: Apache-2.0
#
# Figures of gpu.sh (`NAME SECONDS BYTES OPERATIONS`) to one markdown table: measured, ceiling, ratio, demand, verdict. A
# ceiling is the longer of moving the bytes at the rate of a copy and doing the operations at that of a large product.

{
	seconds[$1] = $2
	bytes[$1] = $3
	ops[$1] = $4
}

function duration(s) {
	return s >= 1 ? sprintf("%.2f s", s) : s >= 1e-3 ? sprintf("%.3f ms", 1e3 * s) : sprintf("%.1f µs", 1e6 * s)
}

# demand: what the ratio must be at least, or below 0: at most.
function row(what, measured, ceiling, ratio, demand, unit,   verdict, told) {
	if (ratio == "") {
		verdict = "not run"
		told = "–"
	} else {
		verdict = demand == "" ? "–" : (demand >= 0 ? ratio >= demand : ratio <= -demand) ? "PASS" : "missed"
		told = unit == "%" ? sprintf("%.1f %%", 100 * ratio) : unit == "x" ? sprintf("%.2f ×", ratio) : duration(ratio)
	}
	if (demand == "")
		demand = "–"
	else if (unit == "%")
		demand = sprintf("≥ %.0f %%", 100 * demand)
	else if (unit == "x")
		demand = demand >= 0 ? sprintf("≥ %.2f ×", demand) : sprintf("≤ %.2f ×", -demand)
	else
		demand = "≤ " duration(-demand)
	printf "| %s | %s | %s | %s | %s | %s |\n", what, measured == "" ? "–" : measured, ceiling == "" ? "–" : ceiling, told, demand, verdict
}

# Of the ceiling.
function share(what, name, demand,   least) {
	if (!(name in seconds) || (bytes[name] > 0 && !copy) || (ops[name] > 0 && !matrix)) {
		row(what, (name in seconds) ? duration(seconds[name]) : "", "", "", demand, "%")
		return
	}
	least = bytes[name] > 0 ? bytes[name] / copy : 0
	if (ops[name] > 0 && ops[name] / matrix > least)
		least = ops[name] / matrix
	row(what, duration(seconds[name]), duration(least), least / seconds[name], demand, "%")
}

# One over the other.
function times(what, over, under, demand) {
	if ((over in seconds) && (under in seconds))
		row(what, duration(seconds[over]) " / " duration(seconds[under]), "", seconds[over] / seconds[under], demand, "x")
	else
		row(what, "", "", "", demand, "x")
}

function at_most(what, name, demand) {
	row(what, (name in seconds) ? duration(seconds[name]) : "", "", (name in seconds) ? seconds[name] : "", -demand, "s")
}

function rate(what, name, amount, unit) {
	printf "| %s | %s | – | – | – | %s |\n", what, (name in seconds) ? sprintf("%.4g %s", amount / seconds[name] / (unit == "TB/s" ? 1e12 : 1e15), unit) : "–", \
		(name in seconds) ? "–" : "not run"
}

END {
	copy = ("copy" in seconds) ? bytes["copy"] / seconds["copy"] : 0
	matrix = ("matrix_bf16" in seconds) ? ops["matrix_bf16"] / seconds["matrix_bf16"] : 0
	if ("library_bf16" in seconds && ops["library_bf16"] / seconds["library_bf16"] > matrix)
		matrix = ops["library_bf16"] / seconds["library_bf16"]
	if ("torch_copy" in seconds && bytes["torch_copy"] / seconds["torch_copy"] > copy)
		copy = bytes["torch_copy"] / seconds["torch_copy"]
	if ("torch_matrix_bf16" in seconds && ops["torch_matrix_bf16"] / seconds["torch_matrix_bf16"] > matrix)
		matrix = ops["torch_matrix_bf16"] / seconds["torch_matrix_bf16"]
	if (backend != "cuda")
		print "Not a device: tiny shapes, to try the program. The figures mean nothing.\n"
	print "| metric | measured | ceiling | ratio | demand | |"
	print "|---|---|---|---|---|---|"
	rate("copy, read and written", "copy", bytes["copy"], "TB/s")
	rate("the same by PyTorch", "torch_copy", bytes["torch_copy"], "TB/s")
	rate("product of 8192³, bf16", "matrix_bf16", ops["matrix_bf16"], "PFLOP/s")
	rate("product of 8192³, weights in fp8", "matrix_fp8", ops["matrix_fp8"], "PFLOP/s")
	rate("product of 8192³, bf16, by cuBLASLt where it is quicker", "library_bf16", ops["library_bf16"], "PFLOP/s")
	rate("product of 8192³, bf16 by PyTorch", "torch_matrix_bf16", ops["torch_matrix_bf16"], "PFLOP/s")
	share("bf16 decode, one sequence, of its floor", "decode_bf16_1", 0.70)
	share("bf16 decode, batch 8 at 1K", "decode_bf16_8", 0.65)
	share("bf16 decode, batch 64 at 1K", "decode_bf16_64", 0.55)
	share("bf16 decode, batch 256 at 1K", "decode_bf16_256", 0.45)
	share("fp8 decode, one sequence, of its floor", "decode_fp8_1", "")
	share("int4 decode, groups of 128, one sequence, of its floor", "decode_int4_1", "")
	share("Q4_0 decode, one sequence, of its floor", "decode_q4_0_1", "")
	times("fp8 decode, one sequence, against bf16", "decode_bf16_1", "decode_fp8_1", 1.5)
	times("int4 decode, groups of 128, one sequence, against bf16", "decode_bf16_1", "decode_int4_1", 2.2)
	times("Q4_0 decode, one sequence, against bf16", "decode_bf16_1", "decode_q4_0_1", "")
	n = split("BF16 fp8 Q8_0 INT4 Q4_0 Q4_K", types, " ")
	for (i = 1; i <= n; i++)
		for (k = split("1 8 64 256", rows, " "); k > 0; k--)
			share("products of a layer, " types[i] ", rows: " rows[5 - k], "product_" types[i] "_" rows[5 - k], rows[5 - k] <= 8 ? 0.80 : "")
	share("decode attention, 64 × 4K", "attention_decode", 0.75)
	share("prompt of 2K, bf16", "prompt_bf16_2048", 0.65)
	share("prompt of 8K, bf16", "prompt_bf16_8192", 0.65)
	share("prompt of 2K, bf16, cuBLASLt where it is quicker", "prompt_library_2048", "")
	share("prompt of 8K, bf16, cuBLASLt where it is quicker", "prompt_library_8192", "")
	share("prompt of 2K, fp8", "prompt_fp8_2048", "")
	share("prompt of 2K, int4", "prompt_int4_2048", "")
	share("prompt of 2K, int4, cuBLASLt where it is quicker", "prompt_library_int4_2048", "")
	share("prompt of 2K, Q4_0", "prompt_q4_0_2048", "")
	times("attention of a prompt of 4K, against PyTorch's SDPA", "torch_attention_prompt", "attention_prompt", 0.70)
	at_most("gap of a step", "gap_bf16", 50e-6)
	at_most("sampling, 256 sequences", "sample_256", 150e-6)
	times("prompt of 2K + 100, all of it against 2K of it there", "prefix_miss_bf16", "prefix_hit_bf16", 8)
	times("verifying 5 tokens, against one", "verify_bf16_5", "verify_bf16_1", -1.15)
	row("adapters of rank 16 (there are none)", "", "", "", "", "%")
	times("bf16 decode, one sequence, PyTorch's time over ours", "torch_decode_bf16_1", "decode_bf16_1", "")
	times("bf16 decode, batch 64 at 1K, PyTorch's time over ours", "torch_decode_bf16_64", "decode_bf16_64", "")
	times("prompt of 2K, bf16, PyTorch's time over ours", "torch_prompt_bf16_2048", "prompt_bf16_2048", "")
}
