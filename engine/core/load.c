/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader thread: reads every model's metadata, loads the models one by one, smallest file first, and mails each to
 * the step thread, loaded or failed. A failed model does not affect the others.
 *
 * Keys and values of all models share one budget (engine/core/kv_budget.h), planned before the weights are loaded. On a
 * device that reports its memory, the loader loads all weights first and budgets what remains: no weight size is
 * estimated, and the memory of a failed model goes to the others. With several models the plan is the initial split:
 * pools share the memory and rebalance at run time (engine/step/kv_rebalance.h). A draft model has a second, smaller
 * pool for drafts, which run only while few sequences do.
 *
 * On a device each model first runs a step of every kind (rehearsal.h). Then it runs a few rows through a few layers to
 * time one token, so that the first prediction is usable. Real steps refine the figure.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/core/device_watch.h"
#include "engine/core/kv_budget.h"
#include "engine/core/memory_watch.h"
#include "engine/core/rehearsal.h"
#include "engine/model/residence.h"
#include "engine/step/in_flight.h"
#include "engine/step/spec_step.h"
#include "engine/step/step.h"
#include "engine/step/kv_rebalance.h"
#include "engine/step/model_residency.h"
#include "kernels/kv_type.h"

enum {
	WARM_ROWS = 16,
	DEVICE_WARM_ROWS = 256, /* 16 take a device as long as one */
	ATTENDS_PART = 5,       /* a position costs at most a thousandth of a step: few bytes beside the weights */
	PROBE_BYTES = 48 << 20, /* weights per timed run: more than most caches hold */
	FIXED_PART = 8,         /* of weights on demand at most this part (1/8) may be in no file */
	CONVERTED_PERCENT = 80, /* of loading a model whose weights are converted */
	MAX_TOKEN_BYTES = 4096,
	AGE_MS = 2000, /* without service, after which a tier rises by one rank */
	STARVE_MS = 10000,
	PAUSED_MS = 1000,
	SWAP_PART = 8,   /* swapped pages take at most this fraction (1/8) of host memory */
	MAX_TEXT = 8192, /* tokens of a text that an encoder computes in one step, unless engine.step_tokens is more */
};

static const uint64_t LARGE_PARAMS = 16000000000;

/* Gives m a load error if it has none yet. Returns rc. */
static int load_failed(struct eng_model *m, int rc)
{
	if (m->load_err.text[0] == '\0')
		sl_errf(&m->load_err, rc, "%s: %s", m->path, sl_code_name(rc));
	return rc;
}

/* States of sequences, where layers keep them. */
static int make_states(struct eng_model *m)
{
	uint64_t floats = arch_state(&m->info.arch);
	if (floats == 0)
		return 0;
	int rc = kv_states_create(m->ops, m->backend, floats, m->e->cfg.max_sequences, (int)m->n_snapshots, &m->states,
				  &m->load_err);
	if (rc == 0)
		prefix_set_states(m->prefix, m->states);
	return rc;
}

static int too_few_pages(struct eng_model *m)
{
	const struct engine *e = m->e;
	uint64_t states = (uint64_t)e->cfg.max_sequences * arch_state(&m->info.arch) * sizeof(float);
	char also[96] = "";
	if (states > 0)
		snprintf(also, sizeof also, "the states of %d sequences (%llu bytes) and ", e->cfg.max_sequences,
			 (unsigned long long)states);
	return sl_errf(&m->load_err, SL_ELIMIT,
		       "the KV memory of %llu bytes%s is too small for %stwo pages of %zu bytes",
		       (unsigned long long)e->cfg.kv_bytes, e->planned ? " that the device has left" : "", also,
		       m->kv_groups.n_groups * model_page_bytes(m));
}

static int make_pool(struct eng_model *m)
{
	const struct engine *e = m->e;
	const struct model_arch *a = &m->info.arch;
	const struct kv_groups *g = &m->kv_groups;
	uint32_t n_ctx = (uint32_t)a->n_ctx;
	char line[256];
	if (a->encoder && n_ctx > (uint32_t)m->step_tokens)
		n_ctx = (uint32_t)m->step_tokens; /* a text is computed in one step */
	uint64_t n_pages = m->kv_pages;
	if (n_pages < 2 * (uint64_t)g->n_groups)
		return too_few_pages(m);
	struct kn_kv layout = model_kv_layout(a, m->kv_type, e->cfg.page_tokens, (int)g->n_layers);
	layout.n_pages = (int)n_pages;
	layout.rotate = model_kv_rotated(a, m->kv_type, (enum model_kv_rotation)e->cfg.kv_rotation, m->ops);
	int rc = e->memory != NULL
		     ? kv_pool_make_in(e->memory, m->memory_index, m->ops, m->backend, &layout, &m->pool, &m->load_err)
		     : kv_pool_make(m->ops, m->backend, &layout, &m->pool, &m->load_err);
	if (rc == 0)
		kv_pool_set_groups(m->pool, g, m->places);
	uint64_t n_draft = n_pages / ENGINE_DRAFT_PART / g->n_groups; /* pages of all layers */
	layout.n_layers = a->n_layers;
	layout.n_pages = (int)n_draft;
	if (rc == 0 && spec_may_draft(e, m) && n_draft > 0)
		rc = kv_pool_make(m->ops, m->backend, &layout, &m->draft_pool, &m->load_err);
	if (rc == 0 && m->draft_pool != NULL && arch_is_recurrent(a))
		rc = kv_states_create(m->ops, m->backend, arch_state(a), e->cfg.max_sequences, e->cfg.max_sequences,
				      &m->draft_states, &m->load_err);
	if (rc != 0)
		return rc;
	/* The announced context must fit for a sequence that runs alone. */
	n_pages = (uint64_t)kv_pool_n_pages(m->pool);
	m->n_ctx = kv_groups_fit(g, n_pages, (uint32_t)m->step_tokens, n_ctx);
	if (m->n_ctx < n_ctx)
		log_warn("model %s: %s", m->name, kv_budget_short(m, line, sizeof line));
	m->max_pages = kv_groups_indices(g, m->n_ctx);
	m->page_tables = sl_zalloc_n((size_t)e->cfg.max_sequences * g->n_groups * m->max_pages, sizeof *m->page_tables);
	m->slots = sl_zalloc_n((size_t)e->cfg.max_sequences, sizeof(void *));
	if (m->page_tables == NULL || m->slots == NULL)
		return sl_errf(&m->load_err, SL_ENOMEM, "out of memory for page tables");
	struct sched_config sc = {.step_tokens = (uint32_t)m->step_tokens,
				  .most_chunk = (uint32_t)e->cfg.most_chunk,
				  .max_sequences = (uint32_t)e->cfg.max_sequences,
				  .kv = *g,
				  .n_pages = (uint32_t)n_pages,
				  .age_ns = AGE_MS * NS_PER_MS,
				  .starve_ns = STARVE_MS * NS_PER_MS,
				  .paused_ns = PAUSED_MS * NS_PER_MS,
				  .itl_target_ns = (uint64_t)e->cfg.itl_target_ms * (uint64_t)NS_PER_MS};
	for (int i = 0; i < SCHED_TIERS; i++)
		sc.floor_ns[i] = e->cfg.floor_us[i] * 1000;
	if (prefix_create(m->pool, m->max_pages, &m->prefix) != 0 || sched_create(&sc, &m->sched) != 0)
		return sl_errf(&m->load_err, SL_ENOMEM, "out of memory for the scheduler");
	prefix_set_book(m->prefix, e->book);
	rc = make_states(m);
	return rc == 0 ? head_drafts_make(m) : rc;
}

static int token_text(const struct tokenizer *t, int32_t id, char **out)
{
	if (id < 0)
		return 0;
	struct proto_str s = tokenizer_bytes(t, id);
	*out = sl_strndup(s.at, s.n);
	return *out != NULL ? 0 : SL_ENOMEM;
}

static int list_end_ids(struct eng_model *m)
{
	const struct tokenizer *t = model_tokenizer(m->model);
	int n = tokenizer_n_vocab(t);
	for (int32_t id = 0; id < n; id++)
		m->n_end_ids += tokenizer_is_end(t, id);
	m->end_ids = sl_zalloc_n(m->n_end_ids + 1u, sizeof *m->end_ids);
	if (m->end_ids == NULL)
		return SL_ENOMEM;
	for (int32_t id = 0, at = 0; id < n; id++)
		if (tokenizer_is_end(t, id))
			m->end_ids[at++] = id;
	return 0;
}

static int check_vocabulary(struct eng_model *m)
{
	const struct tokenizer *t = model_tokenizer(m->model);
	int n = tokenizer_n_vocab(t);
	if (n != m->info.arch.n_vocab)
		return sl_errf(&m->load_err, SL_EINVAL, "%s: the tokenizer has %d tokens, the weights have %d", m->path,
			       n, m->info.arch.n_vocab);
	for (int32_t id = 0; id < n; id++) {
		if (tokenizer_bytes(t, id).n > MAX_TOKEN_BYTES)
			return sl_errf(&m->load_err, SL_ELIMIT, "%s: token %d is longer than %d bytes", m->path,
				       (int)id, MAX_TOKEN_BYTES);
	}
	text_form_make(t, model_template(m->model), &m->form);
	if (list_end_ids(m) != 0 || token_text(t, tokenizer_bos(t), &m->bos) != 0 ||
	    token_text(t, tokenizer_eos(t), &m->eos) != 0)
		return sl_errf(&m->load_err, SL_ENOMEM, "out of memory");
	return 0;
}

/* The shortest time of several runs, since other processes may slow some of them down; short runs repeat more often. */
static int time_part(struct eng_model *m, const struct kn_step *step, int n_layers, int n_want, float *logits,
		     double *ns)
{
	enum { LEAST = 2, MOST = 8 };
	static const double enough_ns = 5e6;
	const int32_t want = 0; /* an encoder has no head: n_want is 0 */
	double all = 0;
	for (int i = 0; i < LEAST || (i < MOST && all < enough_ns); i++) {
		uint64_t begin = clock_now_ns();
		int rc = model_forward_part(m->model, step, kv_pool_layout(m->pool), n_layers, &want, n_want, logits);
		double took = (double)(clock_now_ns() - begin);
		if (rc != 0)
			return rc;
		*ns = i == 0 || took < *ns ? took : *ns;
		all += took;
	}
	return 0;
}

/* First guesses of step costs, from the head and as few layers as exceed the caches; whole steps would take as long as
 * loading. */
static int measure_layers(struct eng_model *m, struct kn_step *step, int rows, float *logits)
{
	const int all = m->info.arch.n_layers;
	uint64_t each = m->info.file_bytes / (uint64_t)all + 1;
	int some = 1 + (int)(PROBE_BYTES / each), rc;
	double with_head = 0, one = 0, many = 0;
	some = some < all ? some : all;
	step->n_rows = 1;
	if ((rc = time_part(m, step, some, !m->info.arch.encoder, logits, &with_head)) != 0 ||
	    (rc = time_part(m, step, some, 0, logits, &one)) != 0)
		return rc;
	step->n_rows = rows;
	if ((rc = time_part(m, step, some, 0, logits, &many)) != 0)
		return rc;
	double head = with_head > one ? with_head - one : 0, layers = (double)all / some;
	double one_ns = layers * one + head, many_ns = layers * many + head;
	double row_ns = rows > 1 && many_ns > one_ns ? (many_ns - one_ns) / (rows - 1) : one_ns / 2;
	cost_init(&m->cost, one_ns > row_ns ? one_ns - row_ns : 0, row_ns);
	m->ns_per_decode_step = one_ns;
	/* If every row needs logits, the head costs as many rows as the layers do. Drafts depend on what few rows
	 * cost, so each number of rows has a guess. */
	const double attends_ns = one_ns / ATTENDS_PART; /* cost_init's guess of attention follows it */
	cost_init(&m->verify, one_ns, row_ns < attends_ns ? row_ns : attends_ns);
	spec_account_init(&m->spec);
	cost_guess(&m->verify, 1, one_ns);
	for (int n = 2; n < rows && m->e->cfg.spec_mode != ENG_SPEC_OFF; n *= 2) {
		double some_rows = 0;
		step->n_rows = n;
		if ((rc = time_part(m, step, some, 0, logits, &some_rows)) != 0)
			return rc;
		cost_guess(&m->verify, (uint32_t)n,
			   layers * some_rows + (some_rows > one ? head * some_rows / one : head));
	}
	if (rows > 1)
		cost_guess(&m->verify, (uint32_t)rows, layers * many + (many > one ? head * many / one : head));
	return 0;
}

static int warm_up(struct eng_model *m)
{
	int page_tokens = m->e->cfg.page_tokens;
	int32_t tokens[DEVICE_WARM_ROWS] = {0}, pos[DEVICE_WARM_ROWS], seq[DEVICE_WARM_ROWS] = {0};
	int32_t pages[KV_GROUPS_MAX * DEVICE_WARM_ROWS] = {0}; /* the same for all groups */
	int n_groups = (int)m->kv_groups.n_groups;
	int few = 2 * page_tokens < WARM_ROWS ? 2 * page_tokens : WARM_ROWS;
	int rows = m->ops->ahead ? DEVICE_WARM_ROWS : few;
	int max_rows = m->step_tokens + m->e->cfg.max_sequences;
	rows = rows < max_rows ? rows : max_rows;
	rows = rows < (int)m->n_ctx ? rows : (int)m->n_ctx;
	int n_pages = (rows + page_tokens - 1) / page_tokens;
	float *logits = sl_zalloc_n((size_t)m->info.arch.n_vocab, sizeof *logits);
	if (logits == NULL)
		return sl_errf(&m->load_err, SL_ENOMEM, "out of memory for logits");
	int got = 0, rc = 0;
	while (got < n_pages && rc == 0) {
		rc = kv_page_alloc(m->pool, &pages[got]);
		got += rc == 0;
	}
	for (int i = 0; i < rows; i++)
		pos[i] = i;
	if (rc != 0 && got > 0) { /* other models have the rest */
		n_pages = got;
		rows = got * page_tokens;
		rc = 0;
	}
	for (int i = n_pages; i < n_groups * n_pages; i++)
		pages[i] = pages[i - n_pages];
	struct kn_step step = {.row_token = tokens,
			       .row_pos = pos,
			       .row_seq = seq,
			       .n_seqs = 1,
			       .page_table = pages,
			       .max_pages = n_pages};
	kv_states_in_step(m->states, &step); /* the first row's: no sequence has begun */
	if (rc == 0)
		rc = measure_layers(m, &step, rows, logits);
	while (got > 0)
		kv_page_unref(m->pool, pages[--got]);
	sl_free(logits);
	if (rc != 0)
		return sl_errf(&m->load_err, rc, "%s: the first step failed: %s", m->path, sl_code_name(rc));
	return 0;
}

/* m's share of host memory for swapped pages. Without swap, pre-empted sequences are computed again, as are those whose
 * layers keep a state: they go on from a snapshot. */
static int make_swap(struct eng_model *m)
{
	const struct engine *e = m->e;
	uint64_t bytes = e->cfg.swap_bytes, n = 0;
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t most = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / SWAP_PART : 0;
	struct sl_err err;
	for (int i = 0; i < e->n_models; i++)
		n += e->models[i].inspected;
	if (bytes == 0 || m->ops->page_out == NULL || n == 0 || m->states != NULL)
		return 0;
	bytes = (bytes < most ? bytes : most) / n;
	int rc = kv_swap_create(m->ops, m->backend, m->pool, bytes, &m->swap, &err);
	if (rc == 0)
		log_info("model %s: swap of %u pages (%llu MiB) in host memory; copying a page takes %.1f us", m->name,
			 kv_swap_most_slots(m->swap),
			 (unsigned long long)kv_swap_most_slots(m->swap) * kv_swap_page_bytes(m->swap) >> 20,
			 kv_swap_ns(m->swap, 1) / 1e3);
	else if (rc != SL_EIO)
		log_warn("model %s: no swap: pre-empted sequences are computed again (%s)", m->name, err.text);
	else
		return sl_errf(&m->load_err, rc, "%s: %s", m->path, err.text);
	return 0;
}

/* Progress of work on the weights: for large models it takes minutes. A line of it is for a terminal, its percent goes
 * to the gateways. */
struct weights_progress {
	struct eng_model *m;
	const char *work, *target;
	struct progress at;
	int first, last; /* percent of loading that the work begins and ends with */
};

static void log_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct weights_progress *p = ctx;
	uint64_t now = clock_now_ns();
	char line[64];
	if (progress_tells(&p->at, done, total, now)) {
		atomic_store(&p->m->percent, p->first + (p->last - p->first) * p->at.percent / 100);
		model_state_report(p->m->e, p->m);
	}
	if (progress_says(&p->at, now))
		log_at(isatty(STDERR_FILENO) ? LOG_INFO : LOG_DEBUG, "model %s: weights %s %s: %s", p->m->name, p->work,
		       p->target, progress_line(&p->at, done, total, now, line, sizeof line));
}

static int load_weights(struct eng_model *m, int max_rows)
{
	const struct engine *e = m->e;
	bool converts = m->quantize >= 0;
	struct weights_progress converted = {
	    .m = m, .work = "converted to", .target = kn_type_name(m->quantize), .last = CONVERTED_PERCENT};
	struct weights_progress rearranged = {.m = m,
					      .work = "loaded for",
					      .target = m->ops->name,
					      .first = converts ? CONVERTED_PERCENT : 0,
					      .last = 100};
	struct convert_progress converting = {.report = log_progress, .ctx = &converted};
	struct convert_progress rearranging = {.report = log_progress, .ctx = &rearranged};
	struct model_quantize q = {.type = m->quantize, .n_threads = e->cfg.n_threads, .progress = &converting};
	struct model_how how = {.quantize = m->quantize >= 0 ? &q : NULL,
				.rearranging = &rearranging,
				.head = m->head_path,
				.drafts = head_drafts_wanted(m),
				.pooling = m->pooling,
				.max_want = e->cfg.max_sequences + STEP_EXTRA_ROWS,
				.cache = e->weight_cache.folder != NULL ? &e->weight_cache : NULL};
	return model_load_as(m->path, &how, m->ops, m->backend, max_rows, e->cfg.max_model_bytes, &m->model,
			     &m->load_err);
}

/* Weights of a model on demand have to lie in a file. Those that were rearranged just now are written to the cache and
 * mapped from there. */
static int settle_weights(struct eng_model *m, int max_rows)
{
	const struct residence *where = model_residence(m->model);
	int rc = 0;
	if (where->fixed > where->bytes / FIXED_PART && model_keep_weights(m->model)) {
		model_free(m->model);
		m->model = NULL;
		rc = load_weights(m, max_rows);
	}
	if (rc != 0)
		return rc;
	where = model_residence(m->model);
	m->weights_bytes = where->bytes;
	m->on_demand = where->fixed <= where->bytes / FIXED_PART;
	if (!m->on_demand)
		log_warn(
		    "model %s: %llu MiB of its weights are in no file as they are used, so all of them stay in memory",
		    m->name, (unsigned long long)(where->fixed >> 20));
	return 0;
}

/* Starts with the first model that has a device. Loader thread. */
static void watch_device(const struct eng_model *m)
{
	struct kn_stats s = {0};
	if (atomic_load(&m->e->watch) != NULL)
		return;
	if (m->e->cfg.nvml_pci != NULL)
		atomic_store(&m->e->watch, device_watch_start(m->e->cfg.nvml_library, m->e->cfg.nvml_pci));
	if (m->e->cfg.nvml_pci != NULL || m->ops->stats == NULL)
		return;
	m->ops->stats(m->backend, &s);
	if (s.pci[0] != '\0')
		atomic_store(&m->e->watch, device_watch_start(m->e->cfg.nvml_library, s.pci));
}

/* Everything except the pages. */
static int load(struct eng_model *m)
{
	const struct engine *e = m->e;
	int max_rows = m->step_tokens + e->cfg.max_sequences;
	struct kn_config kc = {.n_threads = e->cfg.n_threads,
			       .pin = e->cfg.pin,
			       .max_rows = max_rows,
			       .max_width = arch_widest(&m->info.arch),
			       .priority = m->role == PROTO_ROLE_SMALL,
			       .pad_rows = true, /* as model.c's activations are */
			       .fp8_weights = m->fp8,
			       .loose_products = e->cfg.loose_products,
			       .choices_path = e->cfg.choices_path};
	m->ops = e->ops;
	/* Each model has its own backend: a fault ends one model only, and one can load while another runs. */
	int rc = m->ops->open(&kc, &m->backend, &m->load_err);
	if (rc != 0)
		return rc;
	watch_device(m);
	rc = load_weights(m, max_rows);
	if (rc == 0 && m->on_demand)
		rc = settle_weights(m, max_rows);
	if (rc == 0)
		rc = check_vocabulary(m);
	if (rc == 0)
		lora_set_model(m->e->lora, m->index, m->model);
	return rc;
}

/* How the device launched its steps: only graph hits avoid launch costs. */
static void log_steps(const struct eng_model *m)
{
	struct kn_stats s;
	if (m->ops->stats == NULL)
		return;
	m->ops->stats(m->backend, &s);
	log_info("model %s: %llu steps, %llu with a graph, %llu without, %llu graphs captured, %llu refused", m->name,
		 (unsigned long long)s.steps, (unsigned long long)s.graph_hits, (unsigned long long)s.graph_misses,
		 (unsigned long long)s.graph_captures, (unsigned long long)s.graph_refusals);
}

void model_unload(struct eng_model *m)
{
	if (m->backend == NULL)
		return;
	kv_disk_destroy(m->disk);
	kv_hand_destroy(m->hand);
	prefix_destroy(m->prefix);
	kv_states_destroy(m->states);
	sched_destroy(m->sched);
	spec_unpair(m);
	head_drafts_dispose(m);
	in_flight_destroy(m);
	kv_swap_destroy(m->swap);
	kv_pool_destroy(m->pool);
	if (m->e->lora != NULL)
		lora_set_model(m->e->lora, m->index, NULL);
	model_free(m->model);
	log_steps(m);
	m->ops->close(m->backend);
	m->backend = NULL;
	sl_free(m->page_tables);
	sl_free(m->slots);
	sl_free(m->bos);
	sl_free(m->eos);
	sl_free(m->end_ids);
}

static int check_kv_type(struct eng_model *m)
{
	const struct kn_ops *ops = m->e->ops;
	char can[64];
	if (m->kv_type >= 0 && ops->kv_type(m->kv_type))
		return 0;
	return sl_errf(&m->load_err, SL_EUNSUPPORTED, "%s: backend %s does not support KV type %s, only %s", m->path,
		       ops->name, kn_kv_type_name(m->kv_type), kn_kv_types_of(ops, can, sizeof can));
}

/* An encoder computes a text in one step. A large model's steps are shorter, so that each stays below a second. */
static int step_tokens_of(const struct eng_model *m)
{
	int n = m->e->cfg.step_tokens;
	if (m->e->step_tokens_auto && m->e->ops->ahead && m->info.n_params > LARGE_PARAMS)
		n /= 2;
	int ctx = m->info.arch.n_ctx < MAX_TEXT ? m->info.arch.n_ctx : MAX_TEXT;
	return m->info.arch.encoder && ctx > n ? ctx : n;
}

/* How its layers share pages. */
static int group_layers(struct eng_model *m)
{
	const struct model_arch *a = &m->info.arch;
	uint32_t n = 0, page_tokens = (uint32_t)m->e->cfg.page_tokens;
	int *windows = sl_zalloc_n((size_t)a->n_layers, sizeof *windows);
	m->places = sl_zalloc_n((size_t)a->n_layers, sizeof *m->places);
	if (windows == NULL || m->places == NULL) {
		sl_free(windows);
		return SL_ENOMEM;
	}
	for (int i = 0; i < a->n_layers; i++)
		if (arch_attends(a, i)) /* others have no pages */
			windows[n++] = arch_window(a, i);
	/* An encoder's rows see what follows them; a sequence with states may go back to an earlier one. */
	m->kv_groups = a->encoder || m->e->cfg.kv_one_group || arch_is_recurrent(a)
			   ? kv_groups_one(page_tokens, n)
			   : kv_groups_make(windows, n, (uint32_t)a->n_ctx, page_tokens);
	kv_groups_places(&m->kv_groups, windows, n, m->places);
	for (int i = a->n_layers; i-- > 0;)
		m->places[i] = m->places[arch_n_attending(a, i)];
	sl_free(windows);
	return 0;
}

static void inspect(struct eng_model *m)
{
	struct stat st;
	if (file_stat(m->path, &st) == 0 && st.st_size > 0)
		m->file_bytes = (uint64_t)st.st_size;
	int rc = check_kv_type(m);
	if (rc == 0)
		rc = model_inspect_with(m->path, m->head_path, &m->info, &m->load_err);
	if (rc == 0 && m->info.arch.encoder && m->role != PROTO_ROLE_NONE)
		rc = sl_errf(&m->load_err, SL_EINVAL, "%s: an encoder has no role: it generates nothing", m->path);
	if (rc == 0)
		rc = model_set_pooling(&m->info.arch, m->pooling, &m->load_err);
	if (rc == 0)
		rc = group_layers(m);
	m->inspected = rc == 0;
	if (rc != 0) {
		load_failed(m, rc);
		return;
	}
	m->file_bytes = m->info.file_bytes; /* of all shards */
	m->step_tokens = step_tokens_of(m);
	if (m->shortens >= 0) {
		m->info.arch.shortens = m->shortens > 0;
		m->info.arch.n_lengths = 0;
	}
	if (m->kv_auto)
		m->kv_type = model_kv_type(&m->info.arch, m->e->ops);
	if (m->info.arch.n_unknown_keys > 0)
		log_warn("model %s: %d unknown metadata keys ignored (%s)", m->name, m->info.arch.n_unknown_keys,
			 m->info.arch.unknown_keys);
	if (m->info.note[0] != '\0')
		log_warn("model %s: quantization_config: %s", m->name, m->info.note);
}

static struct eng_model *smallest_of(struct engine *e, const bool *taken)
{
	struct eng_model *best = NULL;
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		if (!taken[i] && (best == NULL || m->file_bytes < best->file_bytes))
			best = m;
	}
	return best;
}

/* Backend, weights and tokenizer. False: m has failed and holds nothing. */
static bool begin(struct eng_model *m)
{
	m->load_began_ns = clock_now_ns();
	int rc = m->inspected ? load(m) : SL_EINVAL;
	if (rc == 0)
		return true;
	load_failed(m, rc);
	model_unload(m);
	return false;
}

/* Pages; then mails m to the step thread, loaded or failed. */
static void finish(struct eng_model *m, bool begun)
{
	int rc = begun ? make_pool(m) : SL_EIO;
	if (rc == 0 && (rc = rehearse(m)) != 0)
		sl_errf(&m->load_err, rc, "%s: the first steps failed: %s", m->path, sl_code_name(rc));
	if (rc == 0)
		rc = warm_up(m);
	if (rc == 0)
		rc = make_swap(m);
	if (rc == 0)
		rc = kv_tier_join(m);
	if (rc == 0)
		rc = hand_join(m);
	m->loaded = rc == 0;
	if (m->loaded && m->on_demand) {
		atomic_store(&m->residence, RESIDENCY_ABSENT);
		residence_drop(model_residence(m->model));
	}
	if (m->loaded) {
		log_info("model %s: loaded in %llu ms on %s%s; KV in %s, pages of %zu bytes, %u groups of layers",
			 m->name, (unsigned long long)((clock_now_ns() - m->load_began_ns) / NS_PER_MS),
			 m->ops->describe(m->backend), model_was_kept(m->model) ? ", weights from the cache" : "",
			 kn_kv_type_name(m->kv_type), model_page_bytes(m), m->kv_groups.n_groups);
		if (m->states != NULL)
			log_info("model %s: states of %llu bytes for %d sequences and %llu snapshots", m->name,
				 (unsigned long long)(arch_state(&m->info.arch) * sizeof(float)),
				 m->e->cfg.max_sequences, (unsigned long long)m->n_snapshots);
	} else {
		load_failed(m, rc);
		model_unload(m);
	}
	mailbox_send(&m->e->box, &m->mail.mail);
}

/* The rest of every model's memory for swapped pages, piece by piece, while the models serve: pinning it takes seconds.
 */
static void grow_swaps(struct engine *e)
{
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		int rc = m->loaded && m->swap != NULL ? 0 : SL_ELIMIT;
		while (rc == 0 && !atomic_load(&e->stopping))
			rc = kv_swap_grow(m->swap);
		if (rc == SL_ENOMEM)
			log_warn("model %s: no more memory for swapped pages", m->name);
	}
}

/* No model is loaded that might cost the running engine its memory. */
static void refuse_beside(struct engine *e)
{
	char why[200];
	if (!e->cfg.beside || kv_budget_fits_beside(e, why, sizeof why))
		return;
	for (int i = 0; i < e->n_models; i++) {
		struct eng_model *m = &e->models[i];
		if (m->inspected)
			sl_errf(&m->load_err, SL_ENOMEM, "%s: %s", m->path, why);
		m->inspected = false;
	}
}

void *loader_main(void *engine)
{
	struct engine *e = engine;
	bool taken[PROTO_MAX_MODELS] = {0}, begun[PROTO_MAX_MODELS] = {0};
	struct eng_model *order[PROTO_MAX_MODELS], *m;
	int n = 0;
	for (int i = 0; i < e->n_models; i++)
		inspect(&e->models[i]);
	refuse_beside(e);
	e->planned = kv_budget_is_of_device(e);
	if (!e->planned)
		kv_budget_plan(e, false);
	if (e->kv_auto && e->memory != NULL && e->memory_reserve > 0)
		e->memory_watch = memory_watch_start(e);
	for (; (m = smallest_of(e, taken)) != NULL && !atomic_load(&e->stopping); n++) {
		taken[m->index] = true;
		order[n] = m;
		begun[n] = begin(m);
		if (e->planned)
			m->inspected = begun[n]; /* a failed model gets no KV memory */
		else
			finish(m, begun[n]);
	}
	if (e->planned)
		kv_budget_plan(e, true);
	for (int i = 0; e->planned && i < n && !atomic_load(&e->stopping); i++)
		finish(order[i], begun[i]);
	grow_swaps(e);
	weight_jobs_run(e);
	return NULL;
}
