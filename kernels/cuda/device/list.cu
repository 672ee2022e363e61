/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording commands and running them, one by one or as graphs (list.h).
 *
 * Of KN_MAX_GRAPHS graphs, the least recently used is evicted. A list's first occurrence leaves its digest in a small
 * table, where others may replace it; its second occurrence is captured. So a list that occurs once (a prompt's
 * chunk) costs a comparison and no capture, and memory does not grow with the number of shapes.
 *
 * VERSIONS
 *  1  every list is hashed, then compared with the graph of that hash: 84 kB for an 8B model's 330 launches, 10,500
 *     multiplications in a chain of four cycles each, some 15 us a step beside 5 for the comparison.
 *  2  graphs are compared from the latest used on, after their length and first command; only lists without a graph are
 *     hashed. A list that was refused is not captured again: a refused capture costs what a capture costs.
 */
#include "kernels/cuda/device/list.h"

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
	dev_counts(d)->launches += kind == KN_CALL || kind == KN_PRODUCT;
	dev_counts(d)->transfers += kind == KN_COPY_OUT;
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
	if (dev_recording(d) != NULL)
		kn_list_end_head(dev_recording(d));
	return kn_command_of(d, KN_COPY_OUT, NULL, kn_copy{host, from, bytes});
}

/* ---- lists ---- */

void kn_list_clear(struct kn_list *l)
{
	l->n = l->head = 0;
	l->has_head = l->broken = false;
}

void kn_list_dispose(struct kn_list *l)
{
	l->host->free(l->owned);
	l->owned = NULL;
	l->at = NULL;
	l->n = l->room = 0;
}

void kn_list_end_head(struct kn_list *l)
{
	if (!l->has_head)
		l->head = l->n;
	l->has_head = true;
}

size_t kn_list_head(const struct kn_list *l) { return l->has_head ? l->head : l->n; }

void kn_list_undo(struct dev *d, size_t at)
{
	struct kn_list *l = dev_recording(d);
	dev_counts(d)->launches--;
	l->n = at;
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

/* Cheap, and different for steps of other numbers of rows: length and first command. */
static bool may_be(const struct kn_graph *g, const struct kn_list *l, size_t n)
{
	size_t first = kn_list_at(l, 0)->bytes;
	return g->n == n && memcmp(g->bytes, l->at, first < n ? first : n) == 0;
}

/* Moves graph i to the front. */
static void bring_forward(struct kn_graphs *g, int i)
{
	struct kn_graph used = g->all[i];
	if (i == 0)
		return;
	memmove(&g->all[1], &g->all[0], (size_t)i * sizeof used);
	g->all[0] = used;
}

/* The graph of that list, which is the first then; NULL: there is none. */
static struct kn_graph *find(struct kn_graphs *g, const struct kn_list *l, size_t n)
{
	for (int i = 0; i < g->n; i++) {
		if (!may_be(&g->all[i], l, n))
			continue;
		g->compares++;
		if (memcmp(g->all[i].bytes, l->at, n) == 0) {
			bring_forward(g, i);
			return &g->all[0];
		}
	}
	return NULL;
}

/* The new graph is the first; the last one of too many goes. NULL: out of memory on the host or the device. */
static struct kn_graph *capture(struct dev *d, struct kn_graphs *g, const struct kn_list *l, size_t n)
{
	struct kn_graph made = {};
	made.n = n;
	made.bytes = (uint8_t *)l->host->zalloc(n);
	if (made.bytes == NULL)
		return NULL;
	memcpy(made.bytes, l->at, n);
	if (dev_graph_make(d, l, n, &made.graph) != 0) {
		l->host->free(made.bytes);
		return NULL;
	}
	if (g->n == KN_MAX_GRAPHS)
		drop(d, &g->all[--g->n]);
	g->all[g->n++] = made;
	bring_forward(g, g->n - 1);
	g->captures++;
	return &g->all[0];
}

static bool was_refused(const struct kn_graphs *g, uint64_t digest)
{
	for (int i = 0; i < KN_REFUSED; i++)
		if (g->no[i] == digest)
			return true;
	return false;
}

/* Whether the list occurred before; if not, notes it. */
static bool seen_before(struct kn_graphs *g, uint64_t digest)
{
	uint64_t *seen = g->seen[digest / 2 % (KN_SEEN / KN_SEEN_WAYS)];
	for (int way = 0; way < KN_SEEN_WAYS; way++)
		if (seen[way] == digest)
			return true;
	/* Lists that alternate must not always displace each other: the slot rotates. */
	seen[g->misses % KN_SEEN_WAYS] = digest;
	return false;
}

/* The graph for a list that has none yet, if one is due. */
static struct kn_graph *make(struct dev *d, struct kn_graphs *g, const struct kn_list *l, size_t n)
{
	struct kn_graph *made = NULL;
	uint64_t digest = digest_of(l->at, n);
	if (!was_refused(g, digest) && seen_before(g, digest)) {
		made = capture(d, g, l, n);
		if (made == NULL)
			g->no[g->refused++ % KN_REFUSED] = digest;
	}
	g->misses++;
	return made;
}

int kn_graphs_run(struct dev *d, struct kn_graphs *g, const struct kn_list *l, size_t n)
{
	if (n == 0)
		return 0;
	struct kn_graph *graph = find(g, l, n);
	if (graph != NULL)
		g->hits++;
	else
		graph = make(d, g, l, n);
	return graph != NULL ? dev_graph_run(d, graph->graph) : kn_list_run(d, l, 0, n);
}

void kn_graphs_drop(struct dev *d, struct kn_graphs *g)
{
	for (int i = 0; i < g->n; i++)
		drop(d, &g->all[i]);
	g->n = 0;
	memset(g->no, 0, sizeof g->no); /* memory has moved: they may succeed now */
}
