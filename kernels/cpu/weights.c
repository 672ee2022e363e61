/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaves weights at load (int8.h), on all threads. The original bytes are not needed afterwards. The memory uses
 * huge pages: every step reads it from end to end, and an address translation per 4 KB costs as much as a cache miss.
 */
#include <stdint.h>
#include <sys/mman.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/int8.h"

enum {
	GROUPS_EACH = 16, /* of a part */
	BROUGHT = 2048,   /* bytes of each group that a share begins with */
	LINE = 64,
};

struct interleaving {
	const struct kn_weight *w;
	const uint8_t *host;
	uint8_t *to;
	int n_groups;
};

static void run_interleaving(void *ctx, int part)
{
	const struct interleaving *j = ctx;
	int from = part * GROUPS_EACH, to = from + GROUPS_EACH;
	kn_interleave(j->host, j->w->type, j->w->n_out, j->w->n_in, from, to < j->n_groups ? to : j->n_groups, j->to);
}

int kn_weight_interleave(struct kn_backend *b, struct kn_weight *w, struct sl_err *err)
{
	size_t bytes = kn_interleaved_bytes(w->type, w->n_out, w->n_in);
	void *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct interleaving j = {.w = w, .host = w->data, .to = to, .n_groups = (w->n_out + INT8_OUT - 1) / INT8_OUT};
	if (to == MAP_FAILED)
		return sl_errf(err, SL_ENOMEM, "no memory for %zu bytes of weights", bytes);
	(void)madvise(to, bytes, MADV_HUGEPAGE); /* failure only costs speed */
	kn_run_parts(b, (j.n_groups + GROUPS_EACH - 1) / GROUPS_EACH, run_interleaving, &j);
	w->data = to;
	w->type |= KN_INTERLEAVED;
	return 0;
}

void kn_bring_share(const struct kn_backend *b, const struct kn_weight *w, int o0)
{
	const size_t row = kn_row_bytes(w->type & ~KN_INTERLEAVED, (size_t)w->n_in);
	for (int o = o0; o < o0 + b->isa->tile_outputs; o += INT8_OUT)
		for (size_t i = 0; i < BROUGHT; i += LINE)
			__builtin_prefetch((const uint8_t *)w->data + (size_t)o * row + i, 0, 2);
}

const void *kn_cpu_weight_made(struct kn_backend *b, const struct kn_weight *w, size_t *bytes)
{
	(void)b;
	if ((w->type & KN_INTERLEAVED) == 0)
		return NULL;
	*bytes = kn_interleaved_bytes(w->type & ~KN_INTERLEAVED, w->n_out, w->n_in);
	return w->data;
}

int kn_weight_adopt(const void *made, size_t bytes, int type, int n_out, int n_in, struct kn_weight *out,
		    struct sl_err *err)
{
	if (n_out <= 0 || n_in <= 0 || n_in % kn_type_block(type) != 0 ||
	    bytes != kn_interleaved_bytes(type, n_out, n_in))
		return sl_errf(err, SL_EINVAL, "%zu bytes are no %d × %d matrix of %s", bytes, n_in, n_out,
			       kn_type_name(type));
	*out = (struct kn_weight){
	    .data = made, .type = type | KN_INTERLEAVED, .n_out = n_out, .n_in = n_in, .borrowed = true};
	return 0;
}

void kn_cpu_weight_free(struct kn_backend *b, struct kn_weight *w)
{
	size_t bytes = 0;
	const void *made = kn_cpu_weight_made(b, w, &bytes);
	if (made != NULL && !w->borrowed)
		munmap((void *)(uintptr_t)made, bytes);
	w->data = NULL;
}
