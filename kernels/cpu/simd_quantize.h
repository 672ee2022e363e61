/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantizes 32 activations to 8-bit integers (int8.h). An instruction set's file includes this after defining, besides
 * what simd_unpack.h needs,
 *
 *   v_max v_round v_sum v_largest    of floats, as in simd_matmul.h; the last two over the lanes of a vector
 *   b_put                        stores LANES 8-bit values
 *   begin_of                     int8_block.begin, from the sums of the lanes of both halves
 */
INLINE void quantize_block(const float *x, struct int8_block *out)
{
	vf most = v_set(0), spoiled = most;
	vi total[2] = {0};
	UNROLL_FOR(int k = 0; k < INT8_BLOCK; k += LANES) {
		vf v = v_load(x + k);
		most = v_max((vf)((vi)v & 0x7fffffff), most);
		spoiled = v_fma(v, v_set(0), spoiled); /* NaN where v is not finite */
	}
	float largest = v_largest(most);
	bool finite = v_sum(spoiled) == 0, zero = !(largest >= 0x1p-119f);
	float inverse = !finite || zero ? 0 : 127 / largest;
	UNROLL_FOR(int k = 0; k < INT8_BLOCK; k += LANES) {
		vi q = {0};
		if (finite)
			q = v_round(v_load(x + k) * v_set(inverse));
		b_put(out->q + k, q);
		total[k / FINE_BLOCK] += q;
	}
	int32_t half[2] = {0};
	begin_of(total, half, out->begin);
	out->d = !finite ? __builtin_nanf("") : zero ? 0 : largest / 127;
	out->sum = out->d * (float)(half[0] + half[1]);
	out->halves[0] = out->d * (float)half[0];
	out->halves[1] = out->d * (float)half[1];
}
