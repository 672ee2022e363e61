/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences' identifiers have the number of their engine in the upper bits. Models of the list keep their index while
 * the process runs: an engine that comes back finds its models where they were. What the list says of a model follows
 * from its engines' states whenever one of them changes (merge).
 */
#include "gateway/generation/engine_link_priv.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/generation/role_planner.h"
#include "gateway/generation/route_counts.h"
#include "gateway/loop/thread.h"

enum {
	RECENT_MS = 10000,
	REST_MS = 3600 * 1000, /* no request waits for longer (max_wait) */
	BYTES_PER_TOKEN = 4,   /* for the prediction; about that in English */
	KEY_BORDER = 1,        /* prompts whose first 512 bytes are the same go together by the policy prefix */
};

static struct engine_conn *conn_of(const struct engine_link *l, uint64_t id)
{
	uint64_t k = id >> LINK_ID_SHIFT, half = id >> LINK_HALF_SHIFT & 1;
	if (k >= (uint64_t)l->n_conns)
		return NULL;
	return half == l->successions[k].half ? l->conns[k] : l->successions[k].other;
}

/* ---- the list of models ---- */

static int find_name(const struct engine_link *l, const char *name)
{
	for (int i = 0; i < PROTO_MAX_MODELS; i++)
		if (strcmp(l->names_of[i], name) == 0)
			return i;
	return -1;
}

/* The one that no engine has had for longest, so that a request on its way never reaches another model than the one it
 * names; -1: none has rested enough. */
static int rested(const struct engine_link *l)
{
	uint64_t now = clock_now_ns();
	int best = -1;
	for (int i = 0; i < PROTO_MAX_MODELS; i++)
		if (l->gone_ns[i] != 0 && now - l->gone_ns[i] >= REST_MS * (uint64_t)NS_PER_MS &&
		    (best < 0 || l->gone_ns[i] < l->gone_ns[best]))
			best = i;
	return best;
}

static int free_index(const struct engine_link *l, int from)
{
	for (int n = 0; n < PROTO_MAX_MODELS; n++) {
		int i = (from + n) % PROTO_MAX_MODELS;
		if (l->names_of[i][0] == '\0')
			return i;
	}
	return rested(l);
}

/* Where engine k's model m is, or will be, in the list; -1: it is full. */
static int index_of(struct engine_link *l, int k, int m)
{
	const char *name = engine_conn_model(l->conns[k], m)->name;
	int i = find_name(l, name);
	if (i < 0)
		i = free_index(l, k == 0 ? m : engine_conn_n_models(l->conns[0]));
	if (i >= 0) {
		memcpy(l->names_of[i], name, sizeof l->names_of[i]);
		l->gone_ns[i] = 0;
	}
	return i;
}

static void locate(struct engine_link *l, int k)
{
	for (int i = 0; i < PROTO_MAX_MODELS; i++)
		l->local[i][k] = -1;
	for (int m = 0; m < engine_conn_n_models(l->conns[k]); m++) {
		int i = engine_conn_model(l->conns[k], m)->name[0] != '\0' ? index_of(l, k, m) : -1;
		if (i >= 0)
			l->local[i][k] = (int16_t)m;
	}
}

static const struct link_model *model_at(const struct engine_link *l, int i, int k)
{
	return l->local[i][k] >= 0 ? engine_conn_model(l->conns[k], l->local[i][k]) : NULL;
}

/* A token's id means another text there: what one has begun the other could not continue. */
static void exclude_others(struct engine_link *l, int i)
{
	uint64_t tokenizer = 0;
	for (int k = 0; k < l->n_conns; k++) {
		const struct link_model *m = model_at(l, i, k);
		if (m == NULL || m->tokenizer == 0)
			continue;
		if (tokenizer == 0 || m->tokenizer == tokenizer) {
			tokenizer = m->tokenizer;
			continue;
		}
		if (!l->told[i][k])
			log_error("the engine %s has another model by the name %s: it gets no requests for it",
				  engine_link_name(l, k), m->name);
		l->told[i][k] = true;
		l->local[i][k] = -1;
	}
}

/* The better of two states. */
static bool is_better(const struct link_model *a, const struct link_model *b)
{
	static const int rank[] = {[PROTO_MODEL_FAILED] = 0, [PROTO_MODEL_LOADING] = 1, [PROTO_MODEL_READY] = 2};
	static const int near[] = {
	    [PROTO_RESIDENCE_ABSENT] = 0, [PROTO_RESIDENCE_COMING] = 1, [PROTO_RESIDENCE_HERE] = 2};
	if (a->state != b->state)
		return rank[a->state] > rank[b->state];
	if (a->residence != b->residence)
		return near[a->residence] > near[b->residence];
	return a->percent > b->percent;
}

/* As its base is called in the list. */
static uint16_t parent_of(const struct engine_link *l, int k, const struct link_model *m)
{
	int n = engine_conn_n_models(l->conns[k]);
	int i =
	    m->parent > 0 && m->parent <= n ? find_name(l, engine_conn_model(l->conns[k], m->parent - 1)->name) : -1;
	return (uint16_t)(i + 1);
}

static void merge_model(struct engine_link *l, int i)
{
	struct link_model *to = &l->models[i];
	const struct link_model *best = NULL;
	uint32_t n_ctx = 0;
	exclude_others(l, i);
	for (int k = 0; k < l->n_conns; k++) {
		const struct link_model *m = model_at(l, i, k);
		if (m == NULL)
			continue;
		if (m->n_ctx > 0 && (n_ctx == 0 || m->n_ctx < n_ctx))
			n_ctx = m->n_ctx;
		if (best != NULL && !is_better(m, best))
			continue;
		best = m;
		*to = *m;
		to->parent = parent_of(l, k, m);
	}
	if (best != NULL) {
		to->n_ctx = n_ctx; /* any of them may get a prompt */
		return;
	}
	if (to->name[0] != '\0')
		l->gone_ns[i] = clock_now_ns();
	*to = (struct link_model){.name = ""};
}

void engine_link_merge(struct engine_link *l)
{
	int n = engine_conn_n_models(l->conns[0]);
	for (int k = 0; k < l->n_conns; k++)
		locate(l, k);
	for (int i = 0; i < PROTO_MAX_MODELS; i++) {
		merge_model(l, i);
		n = l->models[i].name[0] != '\0' && i >= n ? i + 1 : n;
	}
	l->n_models = n;
}

/* ---- what the engines report ---- */

/* Can engine k serve the model? */
static bool can_serve(const struct engine_link *l, int model, int k)
{
	const struct link_model *m = model_at(l, model, k);
	return m != NULL && engine_conn_takes(l->conns[k]) && m->state == PROTO_MODEL_READY;
}

static int role_of(const struct engine_link *l, int k)
{
	return l->roles[k] == GW_ENGINE_AUTO ? role_now(k) : l->roles[k];
}

/* Does engine k get requests for the model? One that computes prompts for others does if no other engine can. */
static bool is_candidate(const struct engine_link *l, int model, int k)
{
	if (!can_serve(l, model, k))
		return false;
	if (role_of(l, k) != GW_ENGINE_PREFILL)
		return true;
	for (int i = 0; i < l->n_conns; i++)
		if (role_of(l, i) != GW_ENGINE_PREFILL && can_serve(l, model, i))
			return false;
	return true;
}

/* -1: it is another process's than the one that gets requests. */
static int number_of(const struct engine_link *l, const struct engine_conn *c)
{
	for (int k = 0; k < l->n_conns; k++)
		if (l->conns[k] == c)
			return k;
	return -1;
}

/* Of each priority the engine that would serve it soonest. */
static void best_load(const struct engine_link *l, int i, struct proto_load *m)
{
	for (int k = 0; k < l->n_conns; k++) {
		if (l->local[i][k] < 0 || !is_candidate(l, i, k))
			continue;
		const struct proto_load *other = engine_conn_load(l->conns[k], l->local[i][k]);
		m->idle = m->idle || other->idle;
		for (int p = 0; p < PROTO_PRIORITIES; p++)
			if (other->of[p].wait_us < m->of[p].wait_us)
				m->of[p] = other->of[p];
	}
}

static void on_load(void *ctx, struct engine_conn *c, const struct proto_load *m)
{
	struct engine_link *l = ctx;
	struct proto_load best = *m;
	int k = number_of(l, c), i = 0;
	while (k >= 0 && i < PROTO_MAX_MODELS && l->local[i][k] != m->model)
		i++;
	if (k < 0 || i == PROTO_MAX_MODELS || l->on_load == NULL)
		return;
	best.model = (uint16_t)i;
	best_load(l, i, &best);
	l->on_load(l->on_load_ctx, &best);
}

static void on_state(void *ctx, struct engine_conn *c)
{
	struct engine_link *l = ctx;
	/* The first report comes while the first connection is being made. */
	if (l->n_conns == 0)
		return;
	succession_on_state(l, c);
	engine_link_merge(l);
	if (l->on_state != NULL)
		l->on_state(l->on_state_ctx);
}

static void on_leave(void *ctx, struct engine_conn *c)
{
	struct engine_link *l = ctx;
	int k = number_of(l, c);
	if (k >= 0)
		succession_begin(l, k);
}

/* ---- life ---- */

int engine_link_conn(struct engine_link *l, int k, const char *socket_path, bool half, struct engine_conn **out,
		     struct sl_err *err)
{
	const struct conn_events events = {.on_load = on_load, .on_state = on_state, .on_leave = on_leave, .ctx = l};
	uint64_t first = ((uint64_t)k << LINK_ID_SHIFT) + ((uint64_t)half << LINK_HALF_SHIFT) + 1;
	const char *name = l->names[k];
	return engine_conn_create(l->t, k, k > 0 ? name : "", socket_path, first, &events, out, err);
}

int engine_link_add(struct engine_link *l, const char *name, const char *socket_path, struct sl_err *err)
{
	int k = l->n_conns;
	if (k == ENGINE_LINK_MAX)
		return sl_errf(err, SL_ELIMIT, "more than %d engines", ENGINE_LINK_MAX);
	snprintf(l->names[k], LINK_NAME_BYTES, "%s", name);
	snprintf(l->paths[k], LINK_PATH_BYTES, "%s", socket_path);
	route_counts_register(name);
	l->hashes[k] = XXH3_64bits(name, strlen(name));
	int rc = engine_link_conn(l, k, socket_path, false, &l->conns[k], err);
	if (rc != 0)
		return rc;
	l->n_conns++;
	engine_link_merge(l);
	return 0;
}

int engine_link_create(struct gw_thread *t, const char *socket_path, struct engine_link **out, struct sl_err *err)
{
	struct engine_link *l = sl_zalloc(sizeof *l);
	if (l == NULL || (l->sums = sl_zalloc(sizeof *l->sums)) == NULL) {
		sl_free(l);
		return sl_errf(err, SL_ENOMEM, "no memory for the engine link");
	}
	l->t = t;
	adapter_asks_init(&l->asks);
	succession_init(l);
	int rc = engine_link_add(l, ENGINE_LINK_FIRST, socket_path, err);
	if (rc != 0) {
		engine_link_destroy(l);
		return rc;
	}
	*out = l;
	return 0;
}

void engine_link_set_role(struct engine_link *l, int engine, int role) { l->roles[engine] = role; }

void engine_link_destroy(struct engine_link *l)
{
	if (l == NULL)
		return;
	/* All first: what a sequence loses with one must not be submitted to the next. */
	for (int k = 0; k < l->n_conns; k++)
		engine_conn_stop(l->conns[k]);
	succession_dispose(l);
	for (int k = 0; k < l->n_conns; k++)
		engine_conn_destroy(l->conns[k]);
	hot_prompts_dispose(&l->hot);
	sl_free(l->sums);
	sl_free(l);
}

void engine_link_expect(struct engine_link *l, const char *const *names, int n)
{
	for (int i = 0; i < n && i < PROTO_MAX_MODELS; i++)
		snprintf(l->names_of[i], sizeof l->names_of[i], "%s", names[i]);
}

/* ---- what is known ---- */

int engine_link_n_engines(const struct engine_link *l) { return l->n_conns; }
bool engine_link_engine_up(const struct engine_link *l, int k) { return engine_conn_up(l->conns[k]); }

const char *engine_link_name(const struct engine_link *l, int k) { return l->names[k]; }

bool engine_link_up(const struct engine_link *l)
{
	for (int k = 0; k < l->n_conns; k++)
		if (engine_conn_up(l->conns[k]))
			return true;
	return false;
}

unsigned engine_link_backoff_ms(const struct engine_link *l) { return engine_conn_backoff_ms(l->conns[0]); }

uint64_t engine_link_epoch(const struct engine_link *l)
{
	uint64_t all = engine_conn_epoch(l->conns[0]);
	for (int k = 1; k < l->n_conns; k++)
		all = all * 0x9E3779B97F4A7C15u + engine_conn_epoch(l->conns[k]);
	return all;
}

int engine_link_n_models(const struct engine_link *l) { return l->n_models; }
const struct link_model *engine_link_model(const struct engine_link *l, int index) { return &l->models[index]; }

const struct link_model *engine_link_parent(const struct engine_link *l, const struct link_model *m)
{
	return m->parent > 0 && m->parent <= l->n_models ? &l->models[m->parent - 1] : NULL;
}

/* The NAME of an adapter BASE:NAME; "": it is none. */
static const char *own_name(const struct engine_link *l, const struct link_model *m)
{
	const struct link_model *base = engine_link_parent(l, m);
	size_t n = base != NULL ? strlen(base->name) : 0;
	return n > 0 && strncmp(m->name, base->name, n) == 0 && m->name[n] == ':' ? m->name + n + 1 : "";
}

int engine_link_find_model(const struct engine_link *l, const char *name)
{
	int found = -1, n = 0;
	for (int i = 0; i < l->n_models; i++)
		if (l->models[i].name[0] != '\0' && strcmp(l->models[i].name, name) == 0)
			return i;
	for (int i = 0; i < l->n_models && name[0] != '\0'; i++)
		if (strcmp(own_name(l, &l->models[i]), name) == 0) {
			found = i;
			n++;
		}
	return n == 1 ? found : -1;
}

#define ADD(field) to->field += from->field
static void add_upstream(struct proto_upstream *to, const struct proto_upstream *from)
{
	to->known |= from->known;
	to->open |= from->open;
	to->reports |= from->reports;
	to->kv_permille = from->kv_permille > to->kv_permille ? from->kv_permille : to->kv_permille;
	ADD(retries), ADD(openings), ADD(false_usages), ADD(running), ADD(waiting), ADD(others), ADD(reads);
	ADD(failed_reads);
	for (int i = 0; i < PROTO_FAULTS; i++)
		ADD(faults[i]);
}

static void add_stats(struct proto_stats *to, const struct proto_stats *from)
{
	ADD(running), ADD(waiting), ADD(pages_total), ADD(pages_free), ADD(steps), ADD(prefill_tokens);
	ADD(decode_tokens), ADD(submitted), ADD(finished), ADD(cancelled), ADD(failed), ADD(displaced);
	ADD(prefix_queries), ADD(prefix_hits), ADD(preemptions), ADD(prefix_pages), ADD(spec_drafts);
	ADD(spec_drafted), ADD(spec_accepted), ADD(swapped_out), ADD(swapped_in), ADD(swap_full), ADD(forced_tokens);
	ADD(swap_places), ADD(swap_used), ADD(kv_bytes), ADD(kv_withheld), ADD(kv_released), ADD(kv_restored);
	ADD(models_here), ADD(load_waiting), ADD(model_loads), ADD(model_drops), ADD(model_load_ms);
	ADD(adapters_here), ADD(adapter_bytes), ADD(adapter_loads), ADD(adapter_drops);
	ADD(held), ADD(slowdowns);
	to->slowed |= from->slowed;
	add_upstream(&to->upstream, &from->upstream);
	uint64_t total = to->pages_total, used = total > to->pages_free ? total - to->pages_free : 0;
	to->kv_used_permille = total > 0 ? (uint32_t)(used * 1000 / total) : 0;
}

static void add_figures(struct proto_figures *to, const struct proto_figures *from)
{
	ADD(running), ADD(waiting), ADD(pages_total), ADD(pages_free), ADD(prefill_tokens), ADD(decode_tokens);
	ADD(prefix_queries), ADD(prefix_hits), ADD(preemptions), ADD(spec_drafts), ADD(spec_drafted);
	ADD(spec_accepted);
}
#undef ADD

const struct proto_stats *engine_link_stats(const struct engine_link *l)
{
	if (l->n_conns == 1)
		return engine_conn_stats(l->conns[0]);
	l->sums->stats = *engine_conn_stats(l->conns[0]);
	for (int k = 1; k < l->n_conns; k++)
		add_stats(&l->sums->stats, engine_conn_stats(l->conns[k]));
	return &l->sums->stats;
}

const struct proto_figures *engine_link_figures(const struct engine_link *l, int model)
{
	l->sums->figures = (struct proto_figures){0};
	for (int k = 0; k < l->n_conns; k++)
		if (l->local[model][k] >= 0)
			add_figures(&l->sums->figures, &engine_conn_load(l->conns[k], l->local[model][k])->figures);
	return &l->sums->figures;
}

bool engine_link_serves(const struct engine_link *l, int model)
{
	for (int k = 0; k < l->n_conns; k++)
		if (can_serve(l, model, k))
			return true;
	return false;
}

bool engine_link_admits(const struct engine_link *l, int model, uint64_t *retry_ms)
{
	uint64_t least = UINT64_MAX;
	for (int k = 0; k < l->n_conns; k++) {
		uint64_t ms = 0;
		if (!is_candidate(l, model, k))
			continue;
		if (engine_conn_admits(l->conns[k], l->local[model][k], &ms))
			return true;
		least = ms < least ? ms : least;
	}
	*retry_ms = least;
	return least == UINT64_MAX; /* another error answers where none can serve it */
}

/* The engine where a request would wait least; -1: none can serve it. */
static int soonest(const struct engine_link *l, int model, uint8_t priority)
{
	int best = -1;
	uint64_t least = 0;
	for (int k = 0; k < l->n_conns; k++) {
		if (!is_candidate(l, model, k))
			continue;
		uint64_t ms = engine_conn_wait_ms(l->conns[k], l->local[model][k], priority);
		if (best < 0 || ms < least) {
			best = k;
			least = ms;
		}
	}
	return best;
}

uint64_t engine_link_wait_ms(const struct engine_link *l, int model, uint8_t priority)
{
	int k = soonest(l, model, priority);
	return k >= 0 ? engine_conn_wait_ms(l->conns[k], l->local[model][k], priority) : 0;
}

bool engine_link_idle(const struct engine_link *l, int model)
{
	for (int k = 0; k < l->n_conns; k++)
		if (is_candidate(l, model, k) && engine_conn_idle(l->conns[k], l->local[model][k]))
			return true;
	return false;
}

uint64_t engine_link_place_us(const struct engine_link *l, int model, uint8_t priority)
{
	uint8_t line = priority < PROTO_PRIORITIES ? priority : PROTO_PRIORITIES - 1;
	int k = soonest(l, model, priority);
	return k >= 0 ? engine_conn_load(l->conns[k], l->local[model][k])->of[line].us_per_place : 0;
}

void engine_link_on_load(struct engine_link *l, void (*fn)(void *ctx, const struct proto_load *m), void *ctx)
{
	l->on_load = fn;
	l->on_load_ctx = ctx;
}

void engine_link_on_state(struct engine_link *l, void (*fn)(void *ctx), void *ctx)
{
	l->on_state = fn;
	l->on_state_ctx = ctx;
}

/* ---- sequences ---- */

/* Where none can serve it, one that is connected: it answers why. */
static int any_with(const struct engine_link *l, int model)
{
	for (int k = 0; k < l->n_conns; k++)
		if (engine_conn_up(l->conns[k]) && l->local[model][k] >= 0)
			return k;
	return l->n_conns == 1 && engine_conn_up(l->conns[0]) ? 0 : -1;
}

static int choose_soonest(const struct engine_link *l, int model, uint8_t priority)
{
	if (model >= PROTO_MAX_MODELS)
		return l->n_conns == 1 ? 0 : -1;
	int k = soonest(l, model, priority);
	return k >= 0 ? k : any_with(l, model);
}

/* As engine k calls it. One that it does not know it refuses. */
static uint16_t local_model(const struct engine_link *l, int model, int k)
{
	return model < PROTO_MAX_MODELS && l->local[model][k] >= 0 ? (uint16_t)l->local[model][k] : (uint16_t)model;
}

static struct prefix_whose whose_of(const struct engine_link *l, const struct proto_submit *req, int k)
{
	uint64_t tenant = (req->flags & PROTO_SUBMIT_SHARED_PREFIX) != 0 ? 0 : req->tenant;
	return (struct prefix_whose){local_model(l, req->model, k), tenant, req->cache_salt};
}

/* Pages of the prefix tree that can be had count as free. A server that runs the models elsewhere may report it. */
static double occupancy_of(const struct proto_stats *st)
{
	if (st->upstream.reports)
		return st->upstream.kv_permille / 1e3;
	return st->pages_total > 0 ? 1 - (double)st->pages_free / (double)st->pages_total : 0;
}

static struct route_candidate candidate_of(const struct engine_link *l, const struct proto_submit *req, int k)
{
	struct engine_conn *c = l->conns[k];
	const struct proto_stats *st = engine_conn_stats(c);
	const struct prefix_whose whose = whose_of(l, req, k);
	struct route_candidate to = {.engine = k,
				     .name = l->hashes[k],
				     .occupancy = occupancy_of(st),
				     .n_active = (double)engine_conn_n_active(c)};
	to.cached = prefix_view_cached(engine_conn_prefixes(c), &l->digests, &whose);
	to.recent =
	    prefix_view_recent(engine_conn_prefixes(c), &l->digests, &whose, gw_now(l->t), RECENT_MS * NS_PER_MS);
	double wait_ms = (double)engine_conn_wait_ms(c, whose.model, req->priority);
	to.remote = st->upstream.known != 0;
	to.saturated = !engine_conn_has_place(c, whose.model, req->priority) ||
		       wait_ms > (double)l->t->cfg->routing.saturated_wait_ms;
	double tokens = (1 - to.cached) * (double)req->prompt.n / BYTES_PER_TOKEN;
	to.predicted_s = wait_ms / 1e3 + tokens * (double)st->us_per_prefill_token / 1e6;
	return to;
}

/* A prompt without a border is its own beginning. */
static uint64_t key_of(const struct engine_link *l, const struct proto_submit *req)
{
	uint32_t n = l->digests.n;
	return n > 0 ? l->digests.of[n > KEY_BORDER ? KEY_BORDER : n - 1] : XXH3_64bits(req->prompt.at, req->prompt.n);
}

/* The engines that can serve it, bits; if there are several, those whose errors do not limit it, unless all do. */
static unsigned candidates(const struct engine_link *l, int model, int *n)
{
	unsigned serve = 0, admit = 0;
	uint64_t retry_ms;
	for (int k = 0; k < l->n_conns && model < PROTO_MAX_MODELS; k++)
		serve |= (unsigned)is_candidate(l, model, k) << k;
	for (int k = 0; k < l->n_conns && (serve & (serve - 1)) != 0; k++)
		if ((serve >> k & 1) != 0 && engine_conn_admits(l->conns[k], l->local[model][k], &retry_ms))
			admit |= 1u << k;
	serve = admit != 0 ? admit : serve;
	*n = __builtin_popcount(serve);
	return serve;
}

static int route(struct engine_link *l, const struct proto_submit *req)
{
	struct route_candidate all[ENGINE_LINK_MAX];
	int n;
	const unsigned serve = candidates(l, req->model, &n);
	l->digests.n = 0;
	if (n > 1)
		prefix_digests_make(req->prompt_kind, req->prompt, &l->digests);
	n = 0;
	for (int k = 0; k < l->n_conns; k++)
		if ((serve >> k & 1) != 0)
			all[n++] = candidate_of(l, req, k);
	l->choice = route_choose(&l->t->cfg->routing, all, n, n > 1 ? key_of(l, req) : 0, l->turn);
	l->turn += route_took_turn(&l->choice);
	if (n > 0)
		return l->choice.engine;
	return l->choice.engine = choose_soonest(l, req->model, req->priority);
}

int engine_link_submit(struct engine_link *l, const struct proto_submit *req, const struct link_listener *listener,
		       void *ctx, uint64_t *id)
{
	struct proto_submit its = *req;
	int k = route(l, req);
	if (k < 0)
		return SL_ECLOSED;
	its.model = local_model(l, req->model, k);
	int rc = engine_conn_submit(l->conns[k], &its, listener, ctx, id);
	if (rc != 0)
		return rc;
	const struct prefix_whose whose = whose_of(l, req, k);
	prefix_view_send(engine_conn_prefixes(l->conns[k]), &l->digests, &whose, gw_now(l->t));
	route_count(l->names[k], l->choice.policy, l->choice.cached > 0, l->choice.spilled);
	hot_prompts_note(&l->hot, req, gw_now(l->t));
	return 0;
}

/* ---- prompts that are computed apart ---- */

int engine_link_role(const struct engine_link *l, int k) { return role_of(l, k); }
bool engine_link_role_moves(const struct engine_link *l, int k) { return l->roles[k] == GW_ENGINE_AUTO; }

int engine_link_engine_of(const struct engine_link *l, uint64_t id)
{
	return id != 0 && conn_of(l, id) != NULL ? (int)(id >> LINK_ID_SHIFT) : -1;
}

bool engine_link_hands_over(const struct engine_link *l, int model, int k)
{
	return model < PROTO_MAX_MODELS && can_serve(l, model, k) &&
	       (model_at(l, model, k)->does & PROTO_DOES_HAND_OVER) != 0;
}

size_t engine_link_n_active(const struct engine_link *l, int k) { return engine_conn_n_active(l->conns[k]); }

int engine_link_prefiller(const struct engine_link *l, int model)
{
	int best = -1;
	uint64_t retry_ms;
	for (int k = 0; k < l->n_conns; k++)
		if (role_of(l, k) == GW_ENGINE_PREFILL && engine_link_hands_over(l, model, k) &&
		    engine_conn_admits(l->conns[k], l->local[model][k], &retry_ms) &&
		    (best < 0 || engine_link_n_active(l, k) < engine_link_n_active(l, best)))
			best = k;
	return best;
}

int engine_link_submit_at(struct engine_link *l, int k, const struct proto_submit *req,
			  const struct link_listener *listener, void *ctx, uint64_t *id)
{
	struct proto_submit its = *req;
	its.model = local_model(l, req->model, k);
	return engine_conn_submit(l->conns[k], &its, listener, ctx, id);
}

void engine_link_hand(struct engine_link *l, uint64_t id, const struct proto_hand *m)
{
	struct engine_conn *c = conn_of(l, id);
	if (c != NULL)
		engine_conn_hand(c, id, m);
}

struct hedging *engine_link_hedging(struct engine_link *l) { return &l->hedging; }

int engine_link_idle_beside(const struct engine_link *l, int model, int engine)
{
	int n;
	const unsigned serve = candidates(l, model, &n);
	for (int i = 1; i < l->n_conns; i++) {
		int k = (engine + i) % l->n_conns;
		if ((serve >> k & 1) != 0 && engine_conn_idle(l->conns[k], l->local[model][k]))
			return k;
	}
	return -1;
}

const struct route_choice *engine_link_choice(const struct engine_link *l) { return &l->choice; }

size_t engine_link_n_prefixes(const struct engine_link *l, int k) { return engine_conn_prefixes(l->conns[k])->n; }

const struct proto_stats *engine_link_engine_stats(const struct engine_link *l, int k)
{
	return engine_conn_stats(l->conns[k]);
}

int engine_link_count(struct engine_link *l, const struct proto_count *req,
		      void (*counted)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id)
{
	struct proto_count its = *req;
	int k = choose_soonest(l, req->model, req->priority);
	if (k < 0)
		return SL_ECLOSED;
	its.model = local_model(l, req->model, k);
	return engine_conn_count(l->conns[k], &its, counted, ctx, id);
}

void engine_link_keep(struct engine_link *l, const struct proto_keep *keep)
{
	for (int k = 0; k < l->n_conns; k++) {
		struct proto_keep its = *keep;
		its.model = local_model(l, keep->model, k);
		if (l->n_conns == 1 || (keep->model < PROTO_MAX_MODELS && l->local[keep->model][k] >= 0))
			engine_conn_keep(l->conns[k], &its);
	}
}

void engine_link_levels(struct engine_link *l)
{
	for (int k = 0; k < l->n_conns; k++)
		engine_conn_levels(l->conns[k]);
}

void engine_link_erase(struct engine_link *l, uint64_t tenant)
{
	hot_prompts_erase(&l->hot, tenant);
	for (int k = 0; k < l->n_conns; k++) {
		engine_conn_erase(l->conns[k], tenant);
		if (l->successions[k].other != NULL)
			engine_conn_erase(l->successions[k].other, tenant);
	}
}

/* An adapter that is there goes from the engines that have it. Which of them have the folder of one that is loaded they
 * know themselves. */
int engine_link_adapter(struct engine_link *l, const struct proto_adapter *req,
			void (*done)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id)
{
	struct adapter_engine engines[ENGINE_LINK_MAX];
	char name[PROTO_MAX_NAME + 1];
	int n = 0;
	snprintf(name, sizeof name, "%.*s", (int)req->name.n, req->name.at);
	int i = req->load ? -1 : engine_link_find_model(l, name);
	for (int k = 0; k < l->n_conns; k++)
		if (engine_conn_up(l->conns[k]) && (i < 0 || l->local[i][k] >= 0))
			engines[n++] = (struct adapter_engine){l->conns[k], l->n_conns > 1 ? l->names[k] : ""};
	return adapter_asks_send(&l->asks, req, engines, n, done, ctx, id);
}

void engine_link_uncount(struct engine_link *l, uint64_t id)
{
	struct engine_conn *c = conn_of(l, id);
	if (c != NULL)
		engine_conn_uncount(c, id);
	else
		adapter_asks_forget(&l->asks, id);
}

void engine_link_lane(struct engine_link *l, uint64_t id, uint32_t lane)
{
	struct engine_conn *c = conn_of(l, id);
	if (c != NULL)
		engine_conn_lane(c, id, lane);
}

void engine_link_credit(struct engine_link *l, uint64_t id, uint32_t n_tokens)
{
	struct engine_conn *c = conn_of(l, id);
	if (c != NULL)
		engine_conn_credit(c, id, n_tokens);
}

void engine_link_forget(struct engine_link *l, uint64_t id)
{
	struct engine_conn *c = conn_of(l, id);
	if (c != NULL)
		engine_conn_forget(c, id);
}

void engine_link_abandon(struct engine_link *l, uint64_t id, void (*stopped)(void *ctx), void *ctx)
{
	struct engine_conn *c = conn_of(l, id);
	if (c != NULL)
		engine_conn_abandon(c, id, stopped, ctx);
	else
		stopped(ctx);
}
