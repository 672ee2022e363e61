/* SPDX-License-Identifier: Apache-2.0
 *
 * The slots of a model, and what a step's rows get from the adapters in them (adapter_pack.c fills these).
 */
#include "engine/model/adapters.h"

#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/adapter/adapter.h"
#include "engine/model/adapter_pack.h"
#include "engine/model/model_priv.h"

/* Rows by adapter: those of a step, or of the step's that go to the head. */
struct by_adapter {
	int32_t *rows; /* [max_rows] */
	struct kn_lora_group groups[MODEL_MAX_ADAPTERS];
	int slots[MODEL_MAX_ADAPTERS]; /* of each group */
	struct kn_lora_rows of;
};

struct model_adapters {
	struct model_adapter *all[MODEL_MAX_ADAPTERS]; /* by slot */
	int n;                                         /* slots up to the last that is used */
	float *t;                                      /* [max_rows][t_width] */
	int *ranks;                                    /* [model_sites]: the largest that any slot has had */
	int t_width;
	const int32_t *row_adapter; /* of the step */
	struct by_adapter step, head;
	/* Of experts: scratch memory [max_rows · n_used][experts.t_width], of each group its sites. */
	struct kn_expert_lora experts;
	const struct kn_lora *experts_of[MODEL_MAX_ADAPTERS];
};

_Static_assert((int)MODEL_MAX_ADAPTERS <= (int)KN_LORA_GROUPS, "a group for each slot");

/* ---- slots ---- */

static int widest(const struct model_adapter *l, int from, int to)
{
	int most = 0;
	for (int i = from; i < to; i++)
		most = l->sites[i].rank > most ? l->sites[i].rank : most;
	return most;
}

/* Scratch memory for `width` floats of each of n rows, in place of what there is. */
static int grow(struct model *m, int n, int width, float **t, int *t_width, struct sl_err *err)
{
	float *more;
	if (width <= *t_width)
		return 0;
	int rc = model_alloc_floats(m, "adapters", (size_t)n * (size_t)width, &more, err);
	if (rc != 0)
		return rc;
	model_free_floats(m, *t);
	*t = more;
	*t_width = width;
	return 0;
}

/* Room for t of this adapter's rows, too. */
static int grow_t(struct model *m, const struct model_adapter *l, struct sl_err *err)
{
	struct model_adapters *all = m->adapters;
	int n = model_sites(m);
	int rc = grow(m, m->max_rows, widest(l, 0, n), &all->t, &all->t_width, err);
	if (rc != 0 || !l->has_experts)
		return rc;
	return grow(m, m->max_rows * m->info.arch.experts.n_used, widest(l, n, l->n_sites), &all->experts.t,
		    &all->experts.t_width, err);
}

static int make_room(struct model *m, struct sl_err *err)
{
	if (m->adapters == NULL)
		m->adapters = sl_zalloc(sizeof *m->adapters);
	struct model_adapters *all = m->adapters;
	if (all != NULL && all->step.rows == NULL)
		all->step.rows = sl_zalloc_n((size_t)m->max_rows, sizeof *all->step.rows);
	if (all != NULL && all->head.rows == NULL)
		all->head.rows = sl_zalloc_n((size_t)m->max_rows, sizeof *all->head.rows);
	if (all != NULL && all->ranks == NULL)
		all->ranks = sl_zalloc_n((size_t)model_sites(m), sizeof *all->ranks);
	if (all == NULL || all->step.rows == NULL || all->head.rows == NULL || all->ranks == NULL)
		return sl_errf(err, SL_ENOMEM, "%s: no memory for adapters", model_file_path(m->file));
	return 0;
}

/* Targets that need more than products of the step's own rows. */
static int check_backend(const struct model *m, const struct adapter *a, struct sl_err *err)
{
	for (int t = ADAPTER_EXPERT_GATE; t < ADAPTER_TARGETS && m->ops->lora_lookup == NULL; t++)
		if (adapter_has(a, (enum adapter_target)t))
			return sl_errf(err, SL_EUNSUPPORTED, "%s: the backend %s has no adapters of %s in this version",
				       adapter_path(a), m->ops->name, adapter_target_tensor((enum adapter_target)t));
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
	if (rc != 0)
		return rc;
	if ((rc = check_backend(m, *out, err)) == 0)
		rc = check_text(m, *out, template, digest, err);
	if (rc != 0)
		adapter_close(*out);
	return rc;
}

void model_close_adapter(struct adapter *a) { adapter_close(a); }

/* The most of any adapter so far, which steps' commands name: so they rarely change. */
static void note_ranks(struct model *m, const struct model_adapter *a)
{
	int *most = m->adapters->ranks;
	for (int i = 0; i < model_sites(m); i++)
		most[i] = a->sites[i].rank > most[i] ? a->sites[i].rank : most[i];
}

int model_put_adapter(struct model *m, struct model_adapter *a, int *slot, struct sl_err *err)
{
	int i = 0, rc = make_room(m, err);
	if (rc == 0)
		rc = grow_t(m, a, err);
	if (rc == 0 && a->memory == NULL)
		rc = model_bring_adapter(m, a, err);
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
	model_free_floats(m, all->experts.t);
	sl_free(all->step.rows);
	sl_free(all->head.rows);
	sl_free(all->ranks);
	sl_free(all);
	m->adapters = NULL;
}

/* ---- a step ---- */

/* Groups n rows by their adapters: row i of these is row want[i] of the step; want NULL: row i. */
static void group_rows(struct model *m, const int32_t *want, int n, struct by_adapter *to)
{
	struct model_adapters *all = m->adapters;
	int32_t first[MODEL_MAX_ADAPTERS + 1] = {0};
	const int32_t *of = all->row_adapter;
	to->of = (struct kn_lora_rows){.groups = to->groups, .rows = to->rows, .t_width = all->t_width};
	if (of == NULL)
		return;
	for (int i = 0; i < n; i++) {
		int slot = of[want != NULL ? want[i] : i];
		BUG_IF(slot >= all->n || (slot >= 0 && all->all[slot] == NULL), "a row of adapter %d", slot);
		if (slot >= 0)
			first[slot + 1]++;
	}
	for (int i = 0; i < all->n; i++) {
		int rows = first[i + 1];
		first[i + 1] += first[i];
		if (rows > 0) {
			to->slots[to->of.n_groups] = i;
			to->groups[to->of.n_groups++] =
			    (struct kn_lora_group){.sites = model_adapter_sites(all->all[i], all->all[i]->memory),
						   .first = first[i],
						   .n = rows};
			to->of.n_rows += rows;
		}
	}
	for (int i = 0; i < n && to->of.n_groups > 0; i++) {
		int slot = of[want != NULL ? want[i] : i];
		if (slot >= 0)
			to->rows[first[slot]++] = i;
	}
}

const struct kn_lora_rows *adapters_begin(struct model *m, const struct kn_step *s)
{
	struct model_adapters *all = m->adapters;
	if (all == NULL)
		return NULL;
	all->row_adapter = s->row_adapter;
	group_rows(m, NULL, s->n_rows, &all->step);
	return all->step.of.n_groups > 0 ? &all->step.of : NULL;
}

/* Whichever adapters a step has, it makes these calls wherever one has ever added something. */
static bool begin(struct model_adapters *all, struct by_adapter *by, int site, int n_in)
{
	if (by->of.n_groups == 0 || all->ranks[site] == 0)
		return false;
	for (int i = 0; i < by->of.n_groups; i++)
		by->groups[i].lora = &all->all[by->slots[i]]->sites[site];
	by->of.site = site;
	by->of.n_in = n_in;
	by->of.rank = all->ranks[site];
	return true;
}

static int add_to(struct model *m, struct by_adapter *by, int site, const float *x, int n_in,
		  const struct kn_lora_out *outs)
{
	struct model_adapters *all = m->adapters;
	if (!begin(all, by, site, n_in))
		return 0;
	int rc = m->ops->lora_shrink(m->backend, &by->of, x, all->t);
	return rc != 0 ? rc : m->ops->lora_expand(m->backend, &by->of, all->t, outs);
}

static int add(struct model *m, const struct layer *l, enum site site, const float *x, int n_in,
	       const struct kn_lora_out *outs)
{
	if (m->adapters == NULL)
		return 0;
	return add_to(m, &m->adapters->step, (int)(l - m->layers) * SITES + (int)site, x, n_in, outs);
}

int adapters_embed(struct model *m)
{
	struct model_adapters *all = m->adapters;
	int n = m->info.arch.n_embd, site = m->info.arch.n_layers * SITES + SITE_EMBED;
	const struct kn_lora_out outs[KN_LORA_PARTS] = {{m->x, n, n}};
	if (all == NULL || !begin(all, &all->step, site, n))
		return 0;
	int rc = m->ops->lora_lookup(m->backend, &all->step.of, all->t);
	return rc != 0 ? rc : m->ops->lora_expand(m->backend, &all->step.of, all->t, outs);
}

int adapters_head(struct model *m, const int32_t *want, int n_want)
{
	struct model_adapters *all = m->adapters;
	int site = m->info.arch.n_layers * SITES + SITE_HEAD, n = m->info.arch.n_vocab;
	const struct kn_lora_out outs[KN_LORA_PARTS] = {{m->logits, n, n}};
	if (all == NULL || all->ranks[site] == 0 || all->step.of.n_groups == 0)
		return 0;
	group_rows(m, want, n_want, &all->head);
	return add_to(m, &all->head, site, m->normed, m->info.arch.n_embd, outs);
}

const struct kn_expert_lora *adapters_experts(struct model *m, const struct layer *l)
{
	struct model_adapters *all = m->adapters;
	int n = m->info.arch.experts.n * KN_EXPERT_LORAS, from = model_sites(m) + (int)(l - m->layers) * n;
	bool some = false;
	for (int i = 0; all != NULL && i < all->step.of.n_groups; i++) {
		const struct model_adapter *a = all->all[all->step.slots[i]];
		all->experts_of[i] = a->has_experts ? a->sites + from : NULL;
		some = some || a->has_experts;
	}
	if (!some)
		return NULL;
	all->experts.rows = &all->step.of;
	all->experts.of = all->experts_of;
	return &all->experts;
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
