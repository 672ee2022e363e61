/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter from its file into the backend's memory. It keeps its numbers' type where all halves of a site have it,
 * F16 or BF16; else they become F32. As KN_LORA_I8 each row of A and each column of B gets a scale, the largest
 * magnitude in it divided by 127, and rounds to nearest; the product of both scales is applied to t. The halves of
 * matrices that read the same rows are stacked, so that q, k and v, or gate and up, shrink them once. The embeddings' B
 * is a table, of which a token's row is t.
 *
 * Any thread packs, while steps run. Where memory is not the host's, an adapter is packed on the host, and the step
 * thread brings it to the device (model_put_adapter): only that thread may call such a backend.
 */
#include "engine/model/adapter_pack.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/adapter/adapter.h"
#include "kernels/quantize.h"

/* Of a dense half; in a mixture the shared expert's are there instead (shared_of). */
static const struct {
	enum adapter_target first;
	int n;
} targets[SITES] = {[SITE_QKV] = {ADAPTER_Q, 3},
		    [SITE_O] = {ADAPTER_O, 1},
		    [SITE_GATE_UP] = {ADAPTER_GATE, 2},
		    [SITE_DOWN] = {ADAPTER_DOWN, 1}};

/* Where halves go: first counted, then written. */
struct packing {
	const struct model *m;
	const struct adapter *from;
	struct model_adapter *to; /* host NULL: counted */
	int type;                 /* -1: as the file has it */
	size_t bytes;
	struct sl_err *err;
};

/* A site while it is packed: its parts in the file. */
struct site_parts {
	struct kn_lora l;
	const struct adapter_matrix *of[KN_LORA_PARTS];
	bool table; /* of the embeddings */
};

static size_t aligned(size_t bytes) { return (bytes + KN_ALIGN - 1) / KN_ALIGN * KN_ALIGN; }

static size_t tiles_of(int n_out) { return ((size_t)n_out + KN_LORA_TILE - 1) / KN_LORA_TILE; }

static size_t a_bytes(const struct kn_lora *l)
{
	return aligned((size_t)l->rank * (size_t)l->n_in * kn_lora_bytes(l->type));
}

static size_t b_bytes(const struct kn_lora *l, const struct kn_lora_part *p)
{
	return aligned(tiles_of(p->n_out) * (size_t)p->rank * KN_LORA_TILE * kn_lora_bytes(l->type));
}

static int type_with(int type, int other)
{
	bool keeps = other == KN_F16 || other == KN_BF16;
	return keeps && (type < 0 || type == other) ? other : KN_F32;
}

static enum adapter_target shared_of(enum adapter_target t)
{
	return (enum adapter_target)((int)t - (int)ADAPTER_GATE + (int)ADAPTER_SHARED_GATE);
}

/* A layer has a dense half or a mixture, so one of both at most has an adapter. */
static const struct adapter_matrix *matrix_at(const struct adapter *a, int layer, enum adapter_target t)
{
	const struct adapter_matrix *m = adapter_at(a, layer, t);
	return m->rank > 0 || t < ADAPTER_GATE || t > ADAPTER_DOWN ? m : adapter_at(a, layer, shared_of(t));
}

static void add_part(struct site_parts *s, const struct adapter_matrix *m)
{
	int i = s->l.n_parts++;
	s->of[i] = m;
	if (m->rank == 0)
		return;
	s->l.parts[i] = (struct kn_lora_part){.n_out = m->n_out, .rank = m->rank, .scale = m->scale};
	s->l.type = type_with(type_with(s->l.type, m->a.type), m->b.type);
	s->l.n_in = m->n_in;
	s->l.rank += m->rank;
}

/* The site's shape, without its data. */
static struct site_parts site_of(const struct packing *p, int at)
{
	struct site_parts s = {.l = {.type = -1}};
	int in_layers = p->m->info.arch.n_layers * SITES, n_experts = p->m->info.arch.experts.n;
	if (at < in_layers) {
		for (int i = 0; i < targets[at % SITES].n; i++)
			add_part(&s, matrix_at(p->from, at / SITES,
					       (enum adapter_target)((int)targets[at % SITES].first + i)));
	} else if (at == in_layers + SITE_EMBED) {
		add_part(&s, adapter_at(p->from, 0, ADAPTER_EMBED));
		s.table = true;
		s.l.n_in = s.of[0]->n_out;
		s.l.parts[0].n_out = s.of[0]->n_in;
	} else if (at == in_layers + SITE_HEAD) {
		add_part(&s, adapter_at(p->from, 0, ADAPTER_HEAD));
	} else {
		int number = at - in_layers - SITES_OUTSIDE, layer = number / (n_experts * KN_EXPERT_LORAS);
		int expert = number / KN_EXPERT_LORAS % n_experts;
		if (number % KN_EXPERT_LORAS == 0) {
			add_part(&s, adapter_expert(p->from, layer, ADAPTER_EXPERT_GATE, expert));
			add_part(&s, adapter_expert(p->from, layer, ADAPTER_EXPERT_UP, expert));
		} else {
			add_part(&s, adapter_expert(p->from, layer, ADAPTER_EXPERT_DOWN, expert));
		}
	}
	s.l.type = p->type >= 0 ? p->type : s.l.type;
	return s;
}

static int no_memory(const struct packing *p)
{
	return sl_errf(p->err, SL_ENOMEM, "%s: no memory", adapter_path(p->from));
}

/* Room for so many bytes; NULL: they are only counted. */
static uint8_t *room_for(struct packing *p, size_t bytes)
{
	size_t at = p->bytes;
	p->bytes += bytes;
	return p->to->host != NULL ? p->to->host + at : NULL;
}

/* n numbers as the type; scale: of KN_LORA_I8. */
static void narrow(int type, const float *from, size_t n, float scale, uint8_t *to)
{
	if (type != KN_LORA_I8) {
		BUG_IF(kn_quantize_row(type, from, n, to) != 0, "an adapter's number");
		return;
	}
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(int8_t)(scale > 0 ? lrintf(fmaxf(-127, fminf(127, from[i] / scale))) : 0);
}

static float largest(const float *row, size_t n)
{
	float most = 0;
	for (size_t i = 0; i < n; i++)
		most = fmaxf(most, fabsf(row[i]));
	return most;
}

/* Rows of A of all parts, one after the other; scales: of each, 0 where it has zeros only. */
static void pack_a(const struct site_parts *s, uint8_t *out, float *row, float *scales)
{
	size_t n = (size_t)s->l.n_in, at = 0;
	for (int i = 0; i < s->l.n_parts; i++)
		for (int j = 0; j < s->l.parts[i].rank; j++, at++) {
			adapter_a_row(s->of[i], j, row);
			scales[at] = largest(row, n) / 127;
			narrow(s->l.type, row, n, scales[at], out + at * n * kn_lora_bytes(s->l.type));
		}
}

/* Of each column of B the scale. */
static void b_scales(const struct adapter_matrix *m, float *scales)
{
	float row[ADAPTER_MAX_RANK];
	memset(scales, 0, (size_t)m->rank * sizeof *scales);
	for (int o = 0; o < m->n_out; o++) {
		adapter_b_row(m, o, row);
		for (int j = 0; j < m->rank; j++)
			scales[j] = fmaxf(scales[j], fabsf(row[j]) / 127);
	}
}

/* Number j of output o in tiles. */
static size_t in_tiles(int rank, int o, int j)
{
	return ((size_t)o / KN_LORA_TILE * (size_t)rank + (size_t)j) * KN_LORA_TILE + (size_t)o % KN_LORA_TILE;
}

static void pack_b(int type, const struct kn_lora_part *p, const struct adapter_matrix *m, const float *scales,
		   uint8_t *out)
{
	float row[ADAPTER_MAX_RANK];
	size_t each = kn_lora_bytes(type);
	for (int o = 0; o < p->n_out; o++) {
		adapter_b_row(m, o, row);
		for (int j = 0; j < p->rank; j++)
			narrow(type, &row[j], 1, scales[j], out + in_tiles(p->rank, o, j) * each);
	}
}

/* The embeddings': a token's row of B, and A's rows in tiles of what they add to. */
static void pack_table(int type, const struct adapter_matrix *m, const float *scales, uint8_t *out)
{
	float row[ADAPTER_MAX_RANK];
	size_t each = kn_lora_bytes(type);
	for (int o = 0; o < m->n_out; o++) {
		adapter_b_row(m, o, row);
		for (int j = 0; j < m->rank; j++, out += each)
			narrow(type, &row[j], 1, scales[j], out);
	}
}

static void pack_turned_a(int type, const struct adapter_matrix *m, float *row, float *scales, uint8_t *out)
{
	size_t each = kn_lora_bytes(type);
	for (int j = 0; j < m->rank; j++) {
		adapter_a_row(m, j, row);
		scales[j] = largest(row, (size_t)m->n_in) / 127;
		for (int i = 0; i < m->n_in; i++)
			narrow(type, &row[i], 1, scales[j], out + in_tiles(m->rank, i, j) * each);
	}
}

static int put_a(struct packing *p, struct site_parts *s, float *scales)
{
	uint8_t *to = room_for(p, a_bytes(&s->l));
	s->l.a = to;
	if (to == NULL)
		return 0;
	float *row = sl_alloc((size_t)s->l.n_in * sizeof *row);
	if (row == NULL)
		return no_memory(p);
	pack_a(s, to, row, scales);
	sl_free(row);
	return 0;
}

/* scales: of A's rows on entry, then of the products. */
static void put_b(struct packing *p, struct site_parts *s, int part, float *scales)
{
	struct kn_lora_part *of = &s->l.parts[part];
	float of_b[ADAPTER_MAX_RANK];
	uint8_t *to = room_for(p, b_bytes(&s->l, of));
	of->b = to;
	if (to == NULL)
		return;
	b_scales(s->of[part], of_b);
	pack_b(s->l.type, of, s->of[part], of_b, to);
	for (int j = 0; j < of->rank; j++)
		scales[j] *= of_b[j];
}

static int put_table(struct packing *p, struct site_parts *s, float *scales)
{
	const struct adapter_matrix *m = s->of[0];
	float of_b[ADAPTER_MAX_RANK];
	uint8_t *to = room_for(p, a_bytes(&s->l)), *tiles = room_for(p, b_bytes(&s->l, &s->l.parts[0]));
	s->l.a = to;
	s->l.parts[0].b = tiles;
	if (to == NULL)
		return 0;
	float *row = sl_alloc((size_t)m->n_in * sizeof *row);
	if (row == NULL)
		return no_memory(p);
	b_scales(m, of_b);
	pack_table(s->l.type, m, of_b, to);
	pack_turned_a(s->l.type, m, row, scales, tiles);
	for (int j = 0; j < m->rank; j++)
		scales[j] *= of_b[j];
	sl_free(row);
	return 0;
}

static int put_halves(struct packing *p, struct site_parts *s, float *scales)
{
	float *of = scales;
	if (s->table)
		return put_table(p, s, scales);
	int rc = put_a(p, s, scales);
	for (int i = 0; i < s->l.n_parts && rc == 0; of += s->l.parts[i++].rank)
		if (s->l.parts[i].rank > 0)
			put_b(p, s, i, of);
	return rc;
}

static void put_scales(struct packing *p, struct site_parts *s, const float *scales)
{
	if (s->l.type != KN_LORA_I8)
		return;
	uint8_t *to = room_for(p, aligned((size_t)s->l.rank * sizeof *scales));
	s->l.scales = (const float *)(const void *)to;
	if (to != NULL)
		memcpy(to, scales, (size_t)s->l.rank * sizeof *scales);
}

static int pack_site(struct packing *p, int at)
{
	enum { MOST = KN_LORA_PARTS * ADAPTER_MAX_RANK + KN_ALIGN };
	float scales[MOST] = {0};
	struct site_parts s = site_of(p, at);
	int rc = s.l.rank > 0 ? put_halves(p, &s, scales) : 0;
	if (rc == 0 && s.l.rank > 0)
		put_scales(p, &s, scales);
	if (p->to->sites != NULL)
		p->to->sites[at] = s.l;
	return rc;
}

static bool has_experts(const struct adapter *a)
{
	return adapter_has(a, ADAPTER_EXPERT_GATE) || adapter_has(a, ADAPTER_EXPERT_UP) ||
	       adapter_has(a, ADAPTER_EXPERT_DOWN);
}

static size_t sites_bytes(const struct model_adapter *a)
{
	return aligned((size_t)a->n_sites * sizeof(struct kn_lora));
}

static int pack_all(struct packing *p)
{
	int rc = 0;
	p->bytes = 0;
	for (int i = 0; i < p->to->n_sites && rc == 0; i++)
		rc = pack_site(p, i);
	(void)room_for(p, sites_bytes(p->to));
	return rc;
}

void *model_adapter_sites(const struct model_adapter *a, void *memory)
{
	return (uint8_t *)memory + (a->bytes - sites_bytes(a));
}

static const void *moved(const void *p, const uint8_t *from, const void *to)
{
	return p != NULL ? (const uint8_t *)to + ((const uint8_t *)p - from) : NULL;
}

/* What was packed at a->host will be at a->memory: so do the sites point, both copies of them. */
static void settle(struct model_adapter *a)
{
	for (int i = 0; i < a->n_sites; i++) {
		struct kn_lora *l = &a->sites[i];
		l->a = moved(l->a, a->host, a->memory);
		l->scales = moved(l->scales, a->host, a->memory);
		for (int k = 0; k < KN_LORA_PARTS; k++)
			l->parts[k].b = moved(l->parts[k].b, a->host, a->memory);
	}
	memcpy(model_adapter_sites(a, a->host), a->sites, (size_t)a->n_sites * sizeof *a->sites);
}

int model_bring_adapter(struct model *m, struct model_adapter *a, struct sl_err *err)
{
	int rc = m->ops->mem_alloc(m->backend, a->bytes, &a->memory);
	if (rc != 0)
		return sl_errf(err, rc, "%s: no memory for an adapter's %llu bytes on the device",
			       model_file_path(m->file), (unsigned long long)a->bytes);
	settle(a);
	rc = m->ops->upload(m->backend, a->memory, (const float *)(const void *)a->host, a->bytes / sizeof(float));
	sl_free(a->host);
	a->host = NULL;
	return rc == 0 ? 0
		       : sl_errf(err, rc, "%s: an adapter can't be brought to the device", model_file_path(m->file));
}

static int n_sites_of(const struct model *m, const struct adapter *a)
{
	const struct model_arch *of = &m->info.arch;
	return model_sites(m) + (has_experts(a) ? of->n_layers * of->experts.n * KN_EXPERT_LORAS : 0);
}

uint64_t model_adapter_size(const struct model *m, const struct adapter *a, int type)
{
	struct model_adapter none = {.n_sites = n_sites_of(m, a)};
	struct packing p = {.m = m, .from = a, .to = &none, .type = type};
	(void)pack_all(&p);
	return p.bytes;
}

/* The host's memory is the backend's own where it has no other. */
static int make_memory(struct model *m, struct model_adapter *l)
{
	if (m->ops->memory != NULL) {
		l->host = sl_zalloc(l->bytes);
		return l->host != NULL ? 0 : SL_ENOMEM;
	}
	int rc = m->ops->mem_alloc(m->backend, l->bytes, &l->memory);
	l->host = l->memory;
	return rc;
}

int model_pack_adapter(struct model *m, const struct adapter *a, int type, struct model_adapter **out,
		       struct sl_err *err)
{
	struct model_adapter *l = sl_zalloc(sizeof *l);
	struct packing p = {.m = m, .from = a, .to = l, .type = type, .err = err};
	if (l == NULL)
		return no_memory(&p);
	l->bytes = model_adapter_size(m, a, type);
	l->n_sites = n_sites_of(m, a);
	l->has_experts = has_experts(a);
	l->sites = sl_zalloc_n((size_t)l->n_sites, sizeof *l->sites);
	int rc = l->sites != NULL ? 0 : no_memory(&p);
	if (rc == 0 && make_memory(m, l) != 0)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for %llu bytes", adapter_path(a),
			     (unsigned long long)l->bytes);
	if (rc == 0)
		rc = pack_all(&p);
	if (rc == 0 && l->memory != NULL) {
		settle(l);
		l->host = NULL;
	}
	if (rc != 0)
		model_drop_adapter(m, l);
	else
		*out = l;
	return rc;
}

void model_drop_adapter(struct model *m, struct model_adapter *a)
{
	if (a == NULL)
		return;
	if (a->memory != NULL)
		m->ops->mem_free(m->backend, a->memory);
	else
		sl_free(a->host);
	sl_free(a->sites);
	sl_free(a);
}
