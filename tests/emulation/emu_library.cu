/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands in for the vendor's library in the emulation: plain loops over K, or in some of its ways over two halves
 * of it, whose sums are added then, as a library splits it. Tests set how many ways it has and which is the
 * quickest. By default there is no library.
 *
 * A command of it takes part in faults like a kernel.
 */
#include "tests/emulation/emu_library.h"

struct dev_library {
	struct dev *dev;
};

enum { WAY = 0x5C1, QUICK_NS = 1000, SLOW_NS = 5000000 };

static int n_ways, quickest, n_products;
static bool refuses;
static int fp8; /* enum dev_fp8 */

extern "C" __attribute__((visibility("default"))) void sluice_emulation_library(int n, int quick)
{
	n_ways = n < DEV_MOST_WAYS ? n : (int)DEV_MOST_WAYS;
	quickest = quick;
	n_products = 0;
	refuses = false;
}

extern "C" __attribute__((visibility("default"))) void sluice_emulation_library_fp8(int what) { fp8 = what; }

extern "C" __attribute__((visibility("default"))) void sluice_emulation_library_refuses(int yes) { refuses = yes != 0; }

extern "C" __attribute__((visibility("default"))) int sluice_emulation_library_products(void) { return n_products; }

int dev_library_open(struct dev *d, struct dev_library **out, struct sl_err *err)
{
	const struct kn_plugin_host *host = dev_host(d);
	if (n_ways <= 0)
		return host->errf(err, SL_ENOTFOUND, "the emulation has no library");
	*out = (struct dev_library *)host->zalloc(sizeof **out);
	if (*out == NULL)
		return host->errf(err, SL_ENOMEM, "no memory for the library");
	(*out)->dev = d;
	return 0;
}

void dev_library_close(struct dev_library *l) { dev_host(l->dev)->free(l); }

const char *dev_library_key(const struct dev_library *) { return "the emulation's library, 1"; }

enum dev_fp8 dev_library_fp8(const struct dev_library *) { return (enum dev_fp8)fp8; }

const char *dev_library_lacks(const struct dev_library *)
{
	return fp8 == DEV_FP8_NONE ? "no FP8 in the emulation" : "";
}

int dev_library_ways(struct dev_library *l, const struct dev_product *s, struct dev_algo *out)
{
	int n = 0;
	for (int i = 0; i < n_ways; i++) {
		struct dev_algo a = {{WAY, (uint64_t)i}};
		if (dev_library_takes(l, s, &a))
			out[n++] = a;
	}
	return n;
}

bool dev_library_takes(struct dev_library *l, const struct dev_product *s, const struct dev_algo *a)
{
	bool sides = s->numbers != DEV_E4M3
			 ? s->n_in % 8 == 0
			 : dev_library_fp8(l) != DEV_FP8_NONE && s->n_in % 16 == 0 && s->n_out % 16 == 0;
	return !refuses && a->word[0] == WAY && a->word[1] < (uint64_t)n_ways && sides;
}

static float value(const void *at, int64_t i, enum dev_numbers numbers)
{
	if (numbers == DEV_E4M3)
		return kn_e4m3_float(static_cast<const uint8_t *>(at)[i]);
	uint16_t h = static_cast<const uint16_t *>(at)[i];
	return numbers == DEV_BF16 ? kn_bf16_float(h) : kn_f16_float(h);
}

/* Eight bits are quicker than sixteen. */
uint64_t emu_library_takes_ns(const struct dev_product_call *c)
{
	return ((int)c->algo.word[1] == quickest ? QUICK_NS : SLOW_NS) / (c->shape.numbers == DEV_E4M3 ? 2 : 1);
}

int dev_library_run(const struct dev_product_call *c)
{
	const struct dev_product *s = &c->shape;
	const int way = (int)c->algo.word[1], half = way % 2 ? s->n_in / 2 : s->n_in;
	n_products++;
	for (int64_t r = 0; r < s->n_rows; r++)
		for (int64_t o = 0; o < s->n_out; o++) {
			float sum[2] = {0, 0};
			for (int64_t k = 0; k < s->n_in; k++)
				sum[k >= half] +=
				    value(c->w, o * s->n_in + k, s->numbers) * value(c->x, r * s->n_in + k, s->numbers);
			float scale = c->w_scale != NULL ? c->w_scale[o] * c->x_scale[r] : 1.0f;
			c->y[r * s->n_out + o] = (sum[0] + sum[1]) * scale;
		}
	return 0;
}
