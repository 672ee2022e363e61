/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the tensor core attention kernel for a call, and launches those of prompts without parts (attention_groups.h,
 * attention_prompts.h). The others (attention_mma.h) are compiled from a file for each kind of pages, attention_f16.cu,
 * attention_bf16.cu and attention_8bit.cu, because together they take minutes.
 */
#include "kernels/cuda/attention_groups.h"

enum {
#ifdef KN_EMULATED
	FILLS = 1, /* so that small tests cover both */
#else
	FILLS = 256, /* thread blocks that fill a large device */
#endif
};

bool kn_attn_prompt_can(const struct kn_attn_call *c)
{
	return !c->alone && c->n_parts == 0 && (c->type == KN_F16 || c->type == KN_BF16) && c->wide &&
	       c->pages.page_tokens >= LEAST_PAGE && (c->pages.head_dim == 64 || c->pages.head_dim == 128) &&
	       (uintptr_t)c->out % 8 == 0;
}

template <class P>
static int launch_plan(struct kn_backend *b, const struct kn_attn_call *c, int n_items, const char *name,
		       void (*kernel)(struct kn_attn_call))
{
	struct kn_attn_call call = *c;
	call.n_tiles = (KN_ITEM_ROWS * c->group + P::asked - 1) / P::asked;
	dim3 grid((unsigned)n_items, (unsigned)(c->pages.n_kv_heads * call.n_tiles));
	return kn_launch(b->dev, name, kernel, grid, P::threads, P::all, call);
}

template <int KIND, int WIDE, int ROWS>
static int launch_rows(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	typedef struct prompt_plan<WIDE, ROWS> P;
	return launch_plan<P>(b, c, n_items, "attend_prompt", attend_prompt<KIND, WIDE, ROWS>);
}

template <int KIND, int WIDE> static int launch_groups(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	return launch_plan<struct group_plan<WIDE>>(b, c, n_items, "attend_group", attend_group<KIND, WIDE>);
}

/* Two sets of queries a warp where the device has the memory and the items fill the blocks. */
template <int KIND> static int launch_kind(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	typedef struct prompt_plan<128, 2> TWO;
	if (dev_has_wgmma(b->dev) && c->attn.softcap <= 0)
		return c->pages.head_dim == 64 ? launch_groups<KIND, 64>(b, c, n_items)
					       : launch_groups<KIND, 128>(b, c, n_items);
	if (c->pages.head_dim == 64)
		return launch_rows<KIND, 64, 1>(b, c, n_items);
	int64_t blocks = (int64_t)b->step->n_rows * c->n_heads / TWO::asked;
	if (c->attn.softcap <= 0 && KN_ITEM_ROWS * c->group % TWO::asked == 0 && blocks >= FILLS &&
	    2 * TWO::all <= dev_shared_most(b->dev))
		return launch_rows<KIND, 128, 2>(b, c, n_items);
	return launch_rows<KIND, 128, 1>(b, c, n_items);
}

static int launch_prompt(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	return c->type == KN_F16 ? launch_kind<HALF>(b, c, n_items) : launch_kind<BRAIN>(b, c, n_items);
}

int kn_attn_mma_tile(bool alone) { return alone ? QUERIES : QUERIES * PROMPT_WARPS; }

bool kn_attn_mma_can(int head_dim) { return head_dim <= MOST_WIDE; }

int kn_attn_mma(struct kn_backend *b, const struct kn_attn_call *c, int n_items)
{
	if (kn_attn_prompt_can(c))
		return launch_prompt(b, c, n_items);
	switch (c->type) {
	case KN_F16: return kn_attn_mma_f16(b, c, n_items);
	case KN_BF16: return kn_attn_mma_bf16(b, c, n_items);
	default: return kn_attn_mma_8bit(b, c, n_items);
	}
}
