/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording commands and running them, one by one or as graphs (list.h).
 *
 * Of KN_MAX_GRAPHS graphs the least recently used is evicted. A list's first occurrence leaves its digest in a small
 * table, where others may replace it; its second occurrence is captured. So a list that occurs once (a prompt's
 * chunk) costs a comparison and no capture, and memory does not grow with the number of shapes.
 */
#include "kernels/cuda/list.h"

/* ---- commands ---- */

void *kn_list_put(struct kn_list *l, size_t bytes)
{
	if (l->n + bytes > l->room) {
		size_t room = 2 * (l->room + bytes) + (64 << 10);
		void *owned = l->host->zalloc(room + KN_COMMAND_ALIGN);
		if (owned == NULL)
			return NULL;
		uintptr_t at = ((uintptr_t)owned + KN_COMMAND_ALIGN - 1) / KN_COMMAND_ALIGN * KN_COMMAND_ALIGN;
		if (l->n > 0)
			memcpy((void *)at, l->at, l->n);
		l->host->free(l->owned);
		l->owned = owned;
		l->at = (uint8_t *)at;
		l->room = room;
	}
	l->n += bytes;
	return l->at + l->n - bytes;
}

struct kn_command *kn_command_begin(struct dev *d, uint32_t kind, uint32_t bytes, struct kn_command *here)
{
	struct kn_list *l = dev_recording(d);
	if (dev_fault(d)[0] != '\0')
		return NULL;
	dev_count(d);
	bytes = (bytes + KN_COMMAND_ALIGN - 1) / KN_COMMAND_ALIGN * KN_COMMAND_ALIGN;
	struct kn_command *c = l != NULL ? (struct kn_command *)kn_list_put(l, bytes) : here;
	if (c == NULL) {
		dev_fail(d, "a step", "no memory for its commands");
		return NULL;
	}
	memset((void *)c, 0, bytes);
	c->kind = kind;
	c->bytes = bytes;
	return c;
}

int kn_command_end(struct dev *d, const struct kn_command *c, const struct kn_command *here)
{
	return c == here ? dev_run(d, c) : 0;
}

int dev_copy(struct dev *d, void *to, const void *from, size_t bytes)
{
	return kn_command_of(d, KN_COPY, NULL, kn_copy{to, from, bytes});
}

int dev_copy_out(struct dev *d, void *host, const void *from, size_t bytes)
{
	return kn_command_of(d, KN_COPY_OUT, NULL, kn_copy{host, from, bytes});
}

/* ---- lists ---- */

void kn_list_clear(struct kn_list *l)
{
	l->n = 0;
	l->broken = false;
}

void kn_list_dispose(struct kn_list *l)
{
	l->host->free(l->owned);
	l->owned = NULL;
	l->at = NULL;
	l->n = l->room = 0;
}

size_t kn_list_head(const struct kn_list *l)
{
	size_t at = 0;
	while (at < l->n && kn_list_at(l, at)->kind != KN_COPY_OUT)
		at += kn_list_at(l, at)->bytes;
	return at;
}

int kn_list_run(struct dev *d, const struct kn_list *l, size_t from, size_t to)
{
	int rc = 0;
	while (from < to && rc == 0) {
		const struct kn_command *c = kn_list_at(l, from);
		rc = dev_run(d, c);
		from += c->bytes;
	}
	return rc;
}

int kn_list_flush(struct dev *d)
{
	struct kn_list *l = dev_recording(d);
	if (l == NULL)
		return 0;
	dev_record(d, NULL); /* later calls run at once */
	int rc = l->before(l->ctx);
	if (rc == 0)
		rc = kn_list_run(d, l, 0, l->n);
	dev_record(d, l);
	kn_list_clear(l);
	l->broken = true;
	return rc;
}

/* ---- graphs ---- */

/* FNV-1a (Fowler, Noll, Vo) over words; a list is a multiple of KN_COMMAND_ALIGN. Never 0. */
static uint64_t digest_of(const uint8_t *at, size_t n)
{
	uint64_t h = 0xCBF29CE484222325ull, w;
	for (size_t i = 0; i < n; i += sizeof w) {
		memcpy(&w, at + i, sizeof w);
		h = (h ^ w) * 0x100000001B3ull;
		h ^= h >> 29;
	}
	return h | 1;
}

static void drop(struct dev *d, const struct kn_graph *g)
{
	dev_graph_free(d, g->graph);
	dev_host(d)->free(g->bytes);
}

static struct kn_graph *find(struct kn_graphs *g, const struct kn_list *l, size_t n, uint64_t digest)
{
	for (int i = 0; i < g->n; i++)
		if (g->all[i].digest == digest && g->all[i].n == n && memcmp(g->all[i].bytes, l->at, n) == 0)
			return &g->all[i];
	return NULL;
}

/* NULL: out of memory on the host or the device. */
static struct kn_graph *capture(struct dev *d, struct kn_graphs *g, const struct kn_list *l, size_t n, uint64_t digest)
{
	struct kn_graph made = {};
	made.n = n;
	made.digest = digest;
	made.bytes = (uint8_t *)l->host->zalloc(n);
	if (made.bytes == NULL)
		return NULL;
	memcpy(made.bytes, l->at, n);
	if (dev_graph_make(d, l, n, &made.graph) != 0) {
		l->host->free(made.bytes);
		return NULL;
	}
	int at = g->n;
	if (g->n < KN_MAX_GRAPHS) {
		g->n++;
	} else {
		at = 0;
		for (int i = 1; i < g->n; i++)
			at = g->all[i].used < g->all[at].used ? i : at;
		drop(d, &g->all[at]);
	}
	g->all[at] = made;
	g->captures++;
	return &g->all[at];
}

int kn_graphs_run(struct dev *d, struct kn_graphs *g, const struct kn_list *l, size_t n)
{
	if (n == 0)
		return 0;
	uint64_t digest = digest_of(l->at, n), *seen = g->seen[digest / 2 % (KN_SEEN / KN_SEEN_WAYS)];
	struct kn_graph *graph = find(g, l, n, digest);
	if (graph != NULL) {
		g->hits++;
	} else {
		int way = 0;
		while (way < KN_SEEN_WAYS && seen[way] != digest)
			way++;
		if (way < KN_SEEN_WAYS) {
			graph = capture(d, g, l, n, digest);
			g->refused += graph == NULL;
		} else { /* lists that alternate must not always displace each other: rotate the slot */
			seen[g->misses % KN_SEEN_WAYS] = digest;
		}
		g->misses++;
	}
	if (graph == NULL)
		return kn_list_run(d, l, 0, n);
	graph->used = ++g->clock;
	return dev_graph_run(d, graph->graph);
}

void kn_graphs_drop(struct dev *d, struct kn_graphs *g)
{
	for (int i = 0; i < g->n; i++)
		drop(d, &g->all[i]);
	g->n = 0;
}
