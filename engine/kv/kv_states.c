/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv/kv_states.h"

#include "base/alloc.h"

struct kv_states {
	const struct kn_ops *ops;
	struct kn_backend *backend;
	float *memory;
	size_t floats;
	int n_rows, n_snapshots, n_free;
	int32_t *of_row; /* [n_rows] its slot: a permutation of 0 … n_rows - 1 */
	int32_t *free;   /* [n_snapshots], the first n_free of them */
};

static float *at(const struct kv_states *s, int32_t slot) { return s->memory + (size_t)slot * s->floats; }

static int copy(struct kv_states *s, int32_t from, int32_t to)
{
	return s->ops->state_copy(s->backend, at(s, from), at(s, to), s->floats);
}

int kv_states_create(const struct kn_ops *ops, struct kn_backend *b, uint64_t floats, int n_rows, int n_snapshots,
		     struct kv_states **out, struct sl_err *err)
{
	uint64_t n = (uint64_t)n_rows + (uint64_t)n_snapshots, bytes;
	void *memory;
	if (ops->conv == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "the backend %s has no recurrent layers", ops->name);
	if (__builtin_mul_overflow(n * sizeof(float), floats, &bytes) || bytes > SIZE_MAX / 2)
		return sl_errf(err, SL_ENOMEM, "no memory for %llu states of %llu numbers", (unsigned long long)n,
			       (unsigned long long)floats);
	struct kv_states *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return sl_errf(err, SL_ENOMEM, "out of memory for states");
	*s = (struct kv_states){.ops = ops,
				.backend = b,
				.floats = (size_t)floats,
				.n_rows = n_rows,
				.n_snapshots = n_snapshots,
				.of_row = sl_zalloc_n((size_t)n_rows, sizeof *s->of_row),
				.free = sl_zalloc_n((size_t)n_snapshots + 1, sizeof *s->free)};
	if (s->of_row == NULL || s->free == NULL || ops->mem_alloc(b, (size_t)bytes, &memory) != 0) {
		kv_states_destroy(s);
		return sl_errf(err, SL_ENOMEM, "no memory for %llu states of %llu bytes", (unsigned long long)n,
			       (unsigned long long)(floats * sizeof(float)));
	}
	s->memory = memory;
	for (int i = 0; i < n_rows; i++)
		s->of_row[i] = i;
	for (int32_t i = n_rows + n_snapshots; i-- > n_rows;)
		s->free[s->n_free++] = i;
	*out = s;
	return 0;
}

void kv_states_destroy(struct kv_states *s)
{
	if (s == NULL)
		return;
	BUG_IF(s->memory != NULL && s->n_free != s->n_snapshots, "states destroyed with %d of %d snapshots held",
	       s->n_snapshots - s->n_free, s->n_snapshots);
	if (s->memory != NULL)
		s->ops->mem_free(s->backend, s->memory);
	sl_free(s->of_row);
	sl_free(s->free);
	sl_free(s);
}

void kv_states_in_step(const struct kv_states *s, struct kn_step *step)
{
	if (s == NULL)
		return;
	step->states = s->memory;
	step->state_floats = s->floats;
	step->state_of = s->of_row;
}

int32_t kv_states_take(struct kv_states *s) { return s->n_free > 0 ? s->free[--s->n_free] : -1; }

void kv_states_give(struct kv_states *s, int32_t slot)
{
	BUG_IF(slot < s->n_rows || slot >= s->n_rows + s->n_snapshots || s->n_free == s->n_snapshots,
	       "states: slot %d is given back", slot);
	s->free[s->n_free++] = slot;
}

int kv_states_n_free(const struct kv_states *s) { return s->n_free; }
int kv_states_n_snapshots(const struct kv_states *s) { return s->n_snapshots; }
int kv_states_save(struct kv_states *s, int row, int32_t slot) { return copy(s, s->of_row[row], slot); }
int kv_states_restore(struct kv_states *s, int32_t slot, int row) { return copy(s, slot, s->of_row[row]); }

/* A parent's first child takes its slot over; the others copy into slots that no child's parent has. */
int kv_states_inherit(struct kv_states *s, const int *rows, uint32_t n, const uint8_t *parents, uint32_t n_children)
{
	int32_t slots[256], next[256];
	bool has[256] = {0}, taken[256] = {0}; /* whether a row is a parent; whether its slot is given out */
	int rc = 0;
	BUG_IF(n > 256 || n_children > n, "states: %u rows of %u inherit", n_children, n);
	for (uint32_t i = 0; i < n; i++)
		slots[i] = s->of_row[rows[i]];
	for (uint32_t i = 0; i < n_children; i++)
		has[parents[i]] = true;
	for (uint32_t i = 0, spare = 0; i < n; i++) {
		uint32_t from = i < n_children ? parents[i] : 0;
		if (i < n_children && !taken[from]) {
			taken[from] = true;
			next[i] = slots[from];
			continue;
		}
		while (has[spare] || taken[spare])
			spare++;
		taken[spare] = true;
		next[i] = slots[spare];
		if (i < n_children && rc == 0)
			rc = copy(s, slots[from], next[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		s->of_row[rows[i]] = next[i];
	return rc;
}

uint64_t kv_states_plan(uint64_t slot_bytes, uint64_t bytes, uint64_t most)
{
	uint64_t n = slot_bytes > 0 ? bytes / slot_bytes : 0;
	return n < most ? n : most;
}
