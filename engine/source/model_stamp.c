/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/source/model_stamp.h"

#include <xxhash.h>

#include "engine/file/gguf_priv.h"

enum { SAMPLES = 4, SAMPLE_BYTES = 256 }; /* of a tensor */

/* Evenly from the first byte to the last; all bytes if it is small. */
static void add_samples(XXH3_state_t *x, const struct gguf_tensor *t)
{
	if (t->bytes <= SAMPLES * SAMPLE_BYTES) {
		XXH3_128bits_update(x, t->data, (size_t)t->bytes);
		return;
	}
	uint64_t last = t->bytes - SAMPLE_BYTES;
	for (uint64_t i = 0; i < SAMPLES; i++)
		XXH3_128bits_update(x, (const uint8_t *)t->data + last / (SAMPLES - 1) * i, SAMPLE_BYTES);
}

static void add_part(XXH3_state_t *x, const struct gguf *g)
{
	const uint8_t *data = g->file.at + g->file.bytes;
	const uint64_t of_file[] = {g->file.bytes, g->file.modified_ns, g->file.changed_ns, g->n_tensors};
	for (size_t i = 0; i < g->n_tensors; i++)
		if ((const uint8_t *)g->tensors[i].data < data)
			data = g->tensors[i].data;
	XXH3_128bits_update(x, of_file, sizeof of_file);
	XXH3_128bits_update(x, g->file.at, (size_t)(data - g->file.at));
	for (size_t i = 0; i < g->n_tensors; i++) {
		add_samples(x, &g->tensors[i]);
		map_file_let_go(g->tensors[i].data,
				(size_t)g->tensors[i].bytes); /* one page fault reads many neighbouring pages */
	}
}

bool model_stamp_of(const struct model_file *f, struct model_stamp *out)
{
	XXH3_state_t *x = XXH3_createState();
	size_t n = model_file_n_parts(f);
	if (x == NULL || n == 0) {
		XXH3_freeState(x);
		return false;
	}
	*out = (struct model_stamp){0};
	XXH3_128bits_reset(x);
	for (size_t p = 0; p < n; p++) {
		const struct gguf *g = model_file_part(f, p);
		add_part(x, g);
		if (g->file.changed_ns > out->changed_ns)
			out->changed_ns = g->file.changed_ns;
	}
	XXH128_hash_t h = XXH3_128bits_digest(x);
	XXH3_freeState(x);
	out->digest[0] = h.high64;
	out->digest[1] = h.low64;
	return true;
}
