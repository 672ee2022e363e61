/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter keeps its numbers' type where all halves of a site have it, F16 or BF16; else they become F32. As
 * KN_LORA_I8 each row of A and each column of B gets a scale, the largest magnitude in it divided by 127, and rounds to
 * nearest; the product of both scales is applied to t. The halves of matrices that read the same rows are stacked, so
 * that q, k and v, or gate and up, shrink them once.
 *
 * An adapter is packed by any thread, while steps run. Where memory is not the host's, it is packed on the host, and
 * the step thread brings it to the device (model_put_adapter): only that thread may call such a backend.
 */
#include "engine/model/adapters.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/adapter/adapter.h"
#include "engine/model/model_priv.h"
#include "kernels/quantize.h"

/* Products of a layer that have the same inputs. */
enum site { SITE_QKV, SITE_O, SITE_GATE_UP, SITE_DOWN, SITES };

static const struct {
	enum adapter_target first;
	int n;
} targets[SITES] = {[SITE_QKV] = {ADAPTER_Q, 3},
		    [SITE_O] = {ADAPTER_O, 1},
		    [SITE_GATE_UP] = {ADAPTER_GATE, 2},
		    [SITE_DOWN] = {ADAPTER_DOWN, 1}};

struct model_adapter {
	struct kn_lora *sites; /* [n_layers][SITES]; rank 0: nothing */
	uint8_t *host;         /* what memory is to hold; NULL once it does */
	void *memory;          /* of the backend: all halves, then the sites; NULL: not yet */
	uint64_t bytes;
};

struct model_adapters {
	struct model_adapter *all[MODEL_MAX_ADAPTERS]; /* by slot */
	int n;                                         /* slots up to the last that is used */
	float *t;                                      /* [max_rows][of.t_width] */
	int *ranks;                                    /* [n_layers][SITES]: the largest that any slot has had */
	/* Of the step: its rows by adapter, and of each group its slot. */
	int32_t *rows; /* [max_rows] */
	struct kn_lora_group groups[MODEL_MAX_ADAPTERS];
	int slots[MODEL_MAX_ADAPTERS];
	struct kn_lora_rows of;
};

_Static_assert((int)MODEL_MAX_ADAPTERS <= (int)KN_LORA_GROUPS, "a group for each slot");

/* ---- loading ---- */

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

/* The site's shape, without its data. */
static struct site_parts site_of(const struct adapter *a, int layer, enum site site, int type)
{
	struct site_parts s = {.l = {.type = -1, .n_parts = targets[site].n}};
	for (int i = 0; i < s.l.n_parts; i++) {
		const struct adapter_matrix *m =
		    adapter_at(a, layer, (enum adapter_target)((int)targets[site].first + i));
		s.of[i] = m;
		if (m->rank == 0)
			continue;
		s.l.parts[i] = (struct kn_lora_part){.n_out = m->n_out, .rank = m->rank, .scale = m->scale};
		s.l.type = type_with(type_with(s.l.type, m->a.type), m->b.type);
		s.l.n_in = m->n_in;
		s.l.rank += m->rank;
	}
	s.l.type = type >= 0 ? type : s.l.type;
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
static void b_scales(const struct kn_lora_part *p, const struct adapter_matrix *m, float *scales)
{
	float row[ADAPTER_MAX_RANK];
	memset(scales, 0, (size_t)p->rank * sizeof *scales);
	for (int o = 0; o < p->n_out; o++) {
		adapter_b_row(m, o, row);
		for (int j = 0; j < p->rank; j++)
			scales[j] = fmaxf(scales[j], fabsf(row[j]) / 127);
	}
}

static void pack_b(int type, const struct kn_lora_part *p, const struct adapter_matrix *m, const float *scales,
		   uint8_t *out)
{
	float row[ADAPTER_MAX_RANK];
	size_t each = kn_lora_bytes(type);
	for (int o = 0; o < p->n_out; o++) {
		adapter_b_row(m, o, row);
		for (int j = 0; j < p->rank; j++) {
			size_t at = ((size_t)o / KN_LORA_TILE * (size_t)p->rank + (size_t)j) * KN_LORA_TILE +
				    (size_t)o % KN_LORA_TILE;
			narrow(type, &row[j], 1, scales[j], out + at * each);
		}
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
	b_scales(of, s->of[part], of_b);
	pack_b(s->l.type, of, s->of[part], of_b, to);
	for (int j = 0; j < of->rank; j++)
		scales[j] *= of_b[j];
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

static int pack_site(struct packing *p, int layer, enum site site)
{
	enum { MOST = KN_LORA_PARTS * ADAPTER_MAX_RANK + KN_ALIGN };
	float scales[MOST] = {0}, *of = scales;
	struct site_parts s = site_of(p->from, layer, site, p->type);
	int rc = s.l.rank > 0 ? put_a(p, &s, scales) : 0;
	for (int i = 0; i < s.l.n_parts && rc == 0; of += s.l.parts[i++].rank)
		if (s.l.parts[i].rank > 0)
			put_b(p, &s, i, of);
	if (rc == 0 && s.l.rank > 0)
		put_scales(p, &s, scales);
	if (p->to->sites != NULL)
		p->to->sites[layer * SITES + (int)site] = s.l;
	return rc;
}

static int n_sites(const struct model *m) { return m->info.arch.n_layers * SITES; }

static size_t sites_bytes(const struct model *m) { return aligned((size_t)n_sites(m) * sizeof(struct kn_lora)); }

static int pack_all(struct packing *p)
{
	int rc = 0;
	p->bytes = 0;
	for (int layer = 0; layer < p->m->info.arch.n_layers; layer++)
		for (int site = 0; site < SITES && rc == 0; site++)
			rc = pack_site(p, layer, (enum site)site);
	(void)room_for(p, sites_bytes(p->m));
	return rc;
}

/* Where the sites are in an adapter's memory. */
static void *sites_in(const struct model *m, const struct model_adapter *a, void *memory)
{
	return (uint8_t *)memory + (a->bytes - sites_bytes(m));
}

static const void *moved(const void *p, const uint8_t *from, const void *to)
{
	return p != NULL ? (const uint8_t *)to + ((const uint8_t *)p - from) : NULL;
}

/* What was packed at a->host will be at a->memory: so do the sites point, both copies of them. */
static void settle(const struct model *m, struct model_adapter *a)
{
	for (int i = 0; i < n_sites(m); i++) {
		struct kn_lora *l = &a->sites[i];
		l->a = moved(l->a, a->host, a->memory);
		l->scales = moved(l->scales, a->host, a->memory);
		for (int k = 0; k < KN_LORA_PARTS; k++)
			l->parts[k].b = moved(l->parts[k].b, a->host, a->memory);
	}
	memcpy(sites_in(m, a, a->host), a->sites, (size_t)n_sites(m) * sizeof *a->sites);
}

/* Brings what was packed on the host to the device. */
static int bring(struct model *m, struct model_adapter *a, struct sl_err *err)
{
	int rc = m->ops->mem_alloc(m->backend, a->bytes, &a->memory);
	if (rc != 0)
		return sl_errf(err, rc, "%s: no memory for an adapter's %llu bytes on the device",
			       model_file_path(m->file), (unsigned long long)a->bytes);
	settle(m, a);
	rc = m->ops->upload(m->backend, a->memory, (const float *)(const void *)a->host, a->bytes / sizeof(float));
	sl_free(a->host);
	a->host = NULL;
	return rc == 0 ? 0
		       : sl_errf(err, rc, "%s: an adapter can't be brought to the device", model_file_path(m->file));
}

static int widest_t(const struct model *m, const struct model_adapter *l)
{
	int most = 0;
	for (int i = 0; i < n_sites(m); i++)
		most = l->sites[i].rank > most ? l->sites[i].rank : most;
	return most;
}

/* Room for t of this adapter's rows, too. */
static int grow_t(struct model *m, const struct model_adapter *l, struct sl_err *err)
{
	struct model_adapters *all = m->adapters;
	int width = widest_t(m, l);
	float *t;
	if (width <= all->of.t_width)
		return 0;
	int rc = model_alloc_floats(m, "adapters", (size_t)m->max_rows * (size_t)width, &t, err);
	if (rc != 0)
		return rc;
	model_free_floats(m, all->t);
	all->t = t;
	all->of.t_width = width;
	return 0;
}

static int make_room(struct model *m, struct sl_err *err)
{
	if (m->adapters == NULL)
		m->adapters = sl_zalloc(sizeof *m->adapters);
	struct model_adapters *all = m->adapters;
	if (all != NULL && all->rows == NULL)
		all->rows = sl_zalloc_n((size_t)m->max_rows, sizeof *all->rows);
	if (all != NULL && all->ranks == NULL)
		all->ranks = sl_zalloc_n((size_t)n_sites(m), sizeof *all->ranks);
	if (all == NULL || all->rows == NULL || all->ranks == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for adapters", model_file_path(m->file));
	return 0;
}

/* Text is converted by the base's tokenizer for all adapters, and by its template unless one has its own. */
static int check_text(const struct model *m, const struct adapter *a, struct chat_template **out, uint64_t *digest,
		      struct sl_err *err)
{
	struct proto_str base = {"", 0};
	struct sl_err why = {0};
	char *own = NULL;
	size_t n = 0;
	(void)model_file_template(m->file, &base, &why);
	int rc = adapter_check_tokens(a, m->tokenizer, err);
	if (rc == 0)
		rc = adapter_own_template(a, base, &own, &n, err);
	if (rc == 0 && own != NULL && (rc = chat_template_compile(own, n, out, &why)) != 0)
		sl_errf(err, rc, "%s: its chat template: %s", adapter_path(a), why.text);
	*digest = XXH3_64bits_withSeed(own, own != NULL ? n : 0, adapter_digest(a));
	sl_free(own);
	return rc;
}

int model_open_adapter(const struct model *m, const char *path, struct adapter **out, struct chat_template **template,
		       uint64_t *digest, struct sl_err *err)
{
	*template = NULL;
	if (m->ops->lora_shrink == NULL)
		return sl_errf(err, SL_EUNSUPPORTED, "%s: the backend %s has no adapters in this version", path,
			       m->ops->name);
	int rc = adapter_open(path, m->file, &m->info.arch, out, err);
	if (rc == 0 && (rc = check_text(m, *out, template, digest, err)) != 0)
		adapter_close(*out);
	return rc;
}

void model_close_adapter(struct adapter *a) { adapter_close(a); }

uint64_t model_adapter_size(const struct model *m, const struct adapter *a, int type)
{
	struct model_adapter none = {0};
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
	l->sites = sl_zalloc_n((size_t)n_sites(m), sizeof *l->sites);
	int rc = l->sites != NULL ? 0 : no_memory(&p);
	if (rc == 0 && make_memory(m, l) != 0)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for %llu bytes", adapter_path(a),
			     (unsigned long long)l->bytes);
	if (rc == 0)
		rc = pack_all(&p);
	if (rc == 0 && l->memory != NULL) {
		settle(m, l);
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

/* The most of any adapter so far, which steps' commands name: so they rarely change. */
static void note_ranks(struct model *m, const struct model_adapter *a)
{
	int *most = m->adapters->ranks;
	for (int i = 0; i < n_sites(m); i++)
		most[i] = a->sites[i].rank > most[i] ? a->sites[i].rank : most[i];
}

int model_put_adapter(struct model *m, struct model_adapter *a, int *slot, struct sl_err *err)
{
	int i = 0, rc = make_room(m, err);
	if (rc == 0)
		rc = grow_t(m, a, err);
	if (rc == 0 && a->memory == NULL)
		rc = bring(m, a, err);
	if (rc != 0)
		return rc;
	note_ranks(m, a);
	while (i < MODEL_MAX_ADAPTERS && m->adapters->all[i] != NULL)
		i++;
	if (i == MODEL_MAX_ADAPTERS)
		return sl_errf(err, SL_ELIMIT, "a model has at most %d adapters in memory", MODEL_MAX_ADAPTERS);
	m->adapters->all[i] = a;
	m->adapters->n = i >= m->adapters->n ? i + 1 : m->adapters->n;
	*slot = i;
	return 0;
}

void model_remove_adapter(struct model *m, int slot)
{
	struct model_adapters *all = m->adapters;
	model_drop_adapter(m, all->all[slot]);
	all->all[slot] = NULL;
	while (all->n > 0 && all->all[all->n - 1] == NULL)
		all->n--;
}

int model_load_adapter(struct model *m, const char *path, int *slot, struct sl_err *err)
{
	struct adapter *a;
	struct chat_template *template;
	struct model_adapter *l = NULL;
	uint64_t digest;
	int rc = model_open_adapter(m, path, &a, &template, &digest, err);
	if (rc != 0)
		return rc;
	rc = model_pack_adapter(m, a, -1, &l, err);
	if (rc == 0 && (rc = model_put_adapter(m, l, slot, err)) != 0)
		model_drop_adapter(m, l);
	chat_template_free(template);
	adapter_close(a);
	return rc;
}

uint64_t model_adapter_bytes(const struct model *m, int slot) { return m->adapters->all[slot]->bytes; }

void adapters_free(struct model *m)
{
	struct model_adapters *all = m->adapters;
	if (all == NULL)
		return;
	for (int i = 0; i < all->n; i++)
		model_drop_adapter(m, all->all[i]);
	model_free_floats(m, all->t);
	sl_free(all->rows);
	sl_free(all->ranks);
	sl_free(all);
	m->adapters = NULL;
}

/* ---- a step ---- */

const struct kn_lora_rows *adapters_begin(struct model *m, const struct kn_step *s)
{
	struct model_adapters *all = m->adapters;
	int32_t first[MODEL_MAX_ADAPTERS + 1] = {0};
	if (all == NULL)
		return NULL;
	all->of.groups = all->groups;
	all->of.rows = all->rows;
	all->of.n_groups = all->of.n_rows = 0;
	for (int r = 0; r < s->n_rows && s->row_adapter != NULL; r++) {
		BUG_IF(s->row_adapter[r] >= all->n || (s->row_adapter[r] >= 0 && all->all[s->row_adapter[r]] == NULL),
		       "a row of adapter %d", s->row_adapter[r]);
		if (s->row_adapter[r] >= 0)
			first[s->row_adapter[r] + 1]++;
	}
	for (int i = 0; i < all->n; i++) {
		int n = first[i + 1];
		first[i + 1] += first[i];
		if (n > 0) {
			all->slots[all->of.n_groups] = i;
			all->groups[all->of.n_groups++] = (struct kn_lora_group){
			    .sites = sites_in(m, all->all[i], all->all[i]->memory), .first = first[i], .n = n};
			all->of.n_rows += n;
		}
	}
	for (int r = 0; r < s->n_rows && all->of.n_groups > 0; r++)
		if (s->row_adapter[r] >= 0)
			all->rows[first[s->row_adapter[r]]++] = r;
	return all->of.n_groups > 0 ? &all->of : NULL;
}

/* Whichever adapters a step has, it makes these calls wherever one has ever added something. */
static int add(struct model *m, const struct layer *l, enum site site, const float *x, int n_in,
	       const struct kn_lora_out *outs)
{
	struct model_adapters *all = m->adapters;
	int at = (int)(l - m->layers) * SITES + (int)site;
	if (all == NULL || all->of.n_groups == 0 || all->ranks[at] == 0)
		return 0;
	for (int i = 0; i < all->of.n_groups; i++)
		all->groups[i].lora = &all->all[all->slots[i]]->sites[at];
	all->of.site = at;
	all->of.n_in = n_in;
	all->of.rank = all->ranks[at];
	int rc = m->ops->lora_shrink(m->backend, &all->of, x, all->t);
	return rc != 0 ? rc : m->ops->lora_expand(m->backend, &all->of, all->t, outs);
}

int adapters_qkv(struct model *m, const struct layer *l, const float *x)
{
	const struct model_arch *a = &m->info.arch;
	int q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim, all = q + 2 * kv;
	const struct kn_lora_out apart[KN_LORA_PARTS] = {{m->q, q, q}, {m->k, kv, kv}, {m->v, kv, kv}};
	if (l->qkv.data == NULL)
		return add(m, l, SITE_QKV, x, a->n_embd, apart);
	const struct kn_lora_out joined[KN_LORA_PARTS] = {
	    {m->qkv, all, q}, {m->qkv + q, all, kv}, {m->qkv + q + kv, all, kv}};
	return add(m, l, SITE_QKV, x, a->n_embd, joined);
}

int adapters_gate_up(struct model *m, const struct layer *l, const float *x)
{
	int n = l->n_ff, n_in = m->info.arch.n_embd;
	const struct kn_lora_out apart[KN_LORA_PARTS] = {{m->gate, n, n}, {m->up, n, n}};
	const struct kn_lora_out alone[KN_LORA_PARTS] = {{NULL, 0, 0}, {m->gate, n, n}};
	if (l->gate_up.data == NULL)
		return add(m, l, SITE_GATE_UP, x, n_in, l->gate.data != NULL ? apart : alone);
	const struct kn_lora_out joined[KN_LORA_PARTS] = {{m->gate_up, 2 * n, n}, {m->gate_up + n, 2 * n, n}};
	return add(m, l, SITE_GATE_UP, x, n_in, joined);
}

int adapters_o(struct model *m, const struct layer *l, const float *x, float *y)
{
	int n = m->info.arch.n_embd;
	return add(m, l, SITE_O, x, l->o.n_in, (const struct kn_lora_out[KN_LORA_PARTS]){{y, n, n}});
}

int adapters_down(struct model *m, const struct layer *l, const float *x, float *y)
{
	int n = m->info.arch.n_embd;
	return add(m, l, SITE_DOWN, x, l->n_ff, (const struct kn_lora_out[KN_LORA_PARTS]){{y, n, n}});
}
