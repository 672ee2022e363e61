/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated device's queue (emu_queue.h). Commands are kept byte for byte, as a device's driver keeps its own: the
 * list that they were recorded in may be cleared meanwhile.
 */
#include "kernels/cuda/emu_queue.h"

struct emu_pinned {
	struct emu_pinned *next;
	size_t bytes;
	alignas(16) uint8_t at[];
};

static bool eager;

extern "C" __attribute__((visibility("default"))) void sluice_emulation_eager(bool at_once) { eager = at_once; }

void emu_queue_dispose(struct emu_queue *q)
{
	q->host->free(q->owned);
	q->owned = NULL;
	q->at = NULL;
	q->n = q->room = 0;
}

static bool grow(struct emu_queue *q, size_t bytes)
{
	size_t room = 2 * (q->room + bytes) + (64 << 10);
	void *owned = q->host->zalloc(room + KN_COMMAND_ALIGN);
	if (owned == NULL)
		return false;
	uint8_t *at = (uint8_t *)(((uintptr_t)owned + KN_COMMAND_ALIGN - 1) / KN_COMMAND_ALIGN * KN_COMMAND_ALIGN);
	if (q->n > 0)
		memcpy(at, q->at, q->n);
	q->host->free(q->owned);
	q->owned = owned;
	q->at = at;
	q->room = room;
	return true;
}

int emu_queue_put(struct dev *d, struct emu_queue *q, const struct kn_command *c)
{
	if (eager || (q->n + c->bytes > q->room && !grow(q, c->bytes))) {
		int rc = emu_queue_run(d, q, EMU_ALL);
		return rc != 0 ? rc : emu_run_now(d, c);
	}
	memcpy(q->at + q->n, (const void *)c, c->bytes);
	q->n += c->bytes;
	return 0;
}

int emu_queue_copy(struct dev *d, struct emu_queue *q, void *to, const void *from, size_t bytes)
{
	struct {
		struct kn_command c;
		struct kn_copy args;
	} here;
	memset((void *)&here, 0, sizeof here);
	here.c.kind = KN_COPY;
	here.c.bytes = sizeof here;
	here.args = {to, from, bytes};
	return emu_queue_put(d, q, &here.c);
}

int emu_queue_after(struct dev *d, struct emu_queue *q, struct emu_queue *other)
{
	struct {
		struct kn_command c;
		struct emu_after args;
	} here;
	memset((void *)&here, 0, sizeof here);
	here.c.kind = KN_AFTER;
	here.c.bytes = sizeof here;
	here.args = {other, other->n_before + other->n};
	return emu_queue_put(d, q, &here.c);
}

void emu_queue_mark(struct emu_queue *q, int mark) { q->marks[mark] = q->n_before + q->n; }

bool emu_queue_reached(const struct emu_queue *q, int mark) { return q->marks[mark] <= q->n_before + q->first; }

/* A command may run the other queue, which may run this one again up to an earlier place. */
int emu_queue_run_to(struct dev *d, struct emu_queue *q, uint64_t to)
{
	int rc = dev_fault(d)[0] != '\0' ? SL_EIO : 0;
	q->depth++;
	while (rc == 0 && q->first < q->n && q->n_before + q->first < to) {
		const struct kn_command *c = (const struct kn_command *)(const void *)(q->at + q->first);
		q->first += c->bytes;
		rc = emu_run_now(d, c);
	}
	if (rc != 0)
		q->first = q->n;
	if (--q->depth > 0 || q->first == 0)
		return rc;
	q->n -= q->first;
	q->n_before += q->first;
	if (q->n > 0)
		memmove(q->at, q->at + q->first, q->n);
	q->first = 0;
	return rc;
}

int emu_queue_run(struct dev *d, struct emu_queue *q, int mark)
{
	return emu_queue_run_to(d, q, mark == EMU_ALL ? UINT64_MAX : q->marks[mark]);
}

/* ---- pinned memory ---- */

void *emu_pinned_alloc(struct emu_queue *q, size_t bytes)
{
	struct emu_pinned *m = NULL;
	if (bytes < PTRDIFF_MAX / 2)
		m = (struct emu_pinned *)q->host->zalloc(sizeof *m + bytes);
	if (m == NULL)
		return NULL;
	m->bytes = bytes;
	m->next = q->pinned;
	q->pinned = m;
	return m->at;
}

void emu_pinned_free(struct emu_queue *q, void *p)
{
	struct emu_pinned **at = &q->pinned;
	while (*at != NULL && (*at)->at != p)
		at = &(*at)->next;
	if (*at == NULL)
		return;
	struct emu_pinned *m = *at;
	*at = m->next;
	q->host->free(m);
}

bool emu_is_pinned(const struct emu_queue *q, const void *p)
{
	for (const struct emu_pinned *m = q->pinned; m != NULL; m = m->next)
		if ((const uint8_t *)p >= m->at && (const uint8_t *)p < m->at + m->bytes)
			return true;
	return false;
}
