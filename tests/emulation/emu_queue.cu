/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated device's queue (emu_queue.h). Commands are kept byte for byte, as a device's driver keeps its own: the
 * list that they were recorded in may be cleared meanwhile.
 */
#include "tests/emulation/emu_queue.h"

#include <pthread.h>

struct emu_pinned {
	struct emu_pinned *next;
	size_t bytes;
	alignas(16) uint8_t at[];
};

static bool eager;

extern "C" __attribute__((visibility("default"))) void sluice_emulation_eager(bool at_once) { eager = at_once; }

int emu_queue_put(struct dev *d, struct emu_queue *q, const struct kn_command *c)
{
	void *to = eager ? NULL : kn_list_put(&q->list, c->bytes);
	if (to == NULL) {
		int rc = emu_queue_run(d, q, EMU_ALL);
		return rc != 0 ? rc : emu_run_now(d, c);
	}
	memcpy(to, (const void *)c, c->bytes);
	return 0;
}

template <class A> static int put(struct dev *d, struct emu_queue *q, uint32_t kind, const A &args)
{
	struct {
		struct kn_command c;
		A args;
	} here;
	memset((void *)&here, 0, sizeof here);
	here.c.kind = kind;
	here.c.bytes = sizeof here;
	here.args = args;
	return emu_queue_put(d, q, &here.c);
}

int emu_queue_copy(struct dev *d, struct emu_queue *q, void *to, const void *from, size_t bytes)
{
	return put(d, q, KN_COPY, kn_copy{to, from, bytes});
}

int emu_queue_after(struct dev *d, struct emu_queue *q, struct emu_queue *other)
{
	return put(d, q, KN_AFTER, emu_after{other, other->n_before + other->list.n});
}

int emu_queue_step_over(struct dev *d, struct emu_queue *q) { return put(d, q, KN_STEP_OVER, emu_after{NULL, 0}); }

void emu_queue_mark(struct emu_queue *q, int mark) { q->marks[mark] = q->n_before + q->list.n; }

bool emu_queue_reached(const struct emu_queue *q, int mark) { return q->marks[mark] <= q->n_before + q->first; }

/* A command may run the other queue, which may run this one again up to an earlier place. */
int emu_queue_run_to(struct dev *d, struct emu_queue *q, uint64_t to)
{
	int rc = dev_fault(d)[0] != '\0' ? SL_EIO : 0;
	q->depth++;
	while (rc == 0 && q->first < q->list.n && q->n_before + q->first < to) {
		const struct kn_command *c = kn_list_at(&q->list, q->first);
		q->first += c->bytes;
		rc = emu_run_now(d, c);
	}
	if (rc == 0)
		rc = emu_run_kept(d);
	if (rc != 0)
		q->first = q->list.n;
	if (--q->depth > 0 || q->first == 0)
		return rc;
	q->list.n -= q->first;
	q->n_before += q->first;
	if (q->list.n > 0)
		memmove(q->list.at, q->list.at + q->first, q->list.n);
	q->first = 0;
	return rc;
}

int emu_queue_run(struct dev *d, struct emu_queue *q, int mark)
{
	return emu_queue_run_to(d, q, mark == EMU_ALL ? UINT64_MAX : q->marks[mark]);
}

/* ---- pinned memory: any thread may ask for it ---- */

static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

void *emu_pinned_alloc(struct emu_queue *q, size_t bytes)
{
	struct emu_pinned *m = NULL;
	if (bytes < PTRDIFF_MAX / 2)
		m = (struct emu_pinned *)q->list.host->zalloc(sizeof *m + bytes);
	if (m == NULL)
		return NULL;
	m->bytes = bytes;
	pthread_mutex_lock(&pinned_lock);
	m->next = q->pinned;
	q->pinned = m;
	pthread_mutex_unlock(&pinned_lock);
	return m->at;
}

void emu_pinned_free(struct emu_queue *q, void *p)
{
	pthread_mutex_lock(&pinned_lock);
	struct emu_pinned **at = &q->pinned;
	while (*at != NULL && (*at)->at != p)
		at = &(*at)->next;
	struct emu_pinned *m = *at;
	if (m != NULL)
		*at = m->next;
	pthread_mutex_unlock(&pinned_lock);
	q->list.host->free(m);
}

bool emu_is_pinned(const struct emu_queue *q, const void *p)
{
	bool is = false;
	pthread_mutex_lock(&pinned_lock);
	for (const struct emu_pinned *m = q->pinned; m != NULL && !is; m = m->next)
		is = (const uint8_t *)p >= m->at && (const uint8_t *)p < m->at + m->bytes;
	pthread_mutex_unlock(&pinned_lock);
	return is;
}
