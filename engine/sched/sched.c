/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's indices. A tenant's sequences of one tier that have a prompt to compute are in a queue: a heap by
 * remaining work, and a list by age. The queues of a tier are in a heap by their tenants' shares. Sequences that hold a
 * slot are in an array besides. So a waiting sequence costs only memory: a plan visits the started sequences (at most
 * max_sequences) and takes the few that it starts from the tops of heaps.
 *
 * Shares only grow; a queue's key in its heap may lag behind its tenant's share and is updated when it reaches the top.
 */
#include "engine/sched/sched_state.h"

#include <math.h>

#include "base/alloc.h"
#include "base/err.h"

/* A tenant's cheap prompts go before its expensive ones, within limits: each token makes a prompt count as if it had
 * arrived so much later, and so does as much attention as costs the same. So none that arrives later than that passes
 * it. */
enum { TURN_NS_PER_ROW = 1000000 };

static bool earlier_turn(const struct heap_node *a, const struct heap_node *b)
{
	const struct sched_seq *x = heap_entry(a, const struct sched_seq, by_turn);
	const struct sched_seq *y = heap_entry(b, const struct sched_seq, by_turn);
	return x->turn_ns != y->turn_ns ? x->turn_ns < y->turn_ns : x->order < y->order;
}

static bool less_share(const struct heap_node *a, const struct heap_node *b)
{
	const struct sched_queue *x = heap_entry(a, const struct sched_queue, by_share);
	const struct sched_queue *y = heap_entry(b, const struct sched_queue, by_share);
	return x->share_key < y->share_key;
}

int sched_create(const struct sched_config *cfg, struct sched **out)
{
	BUG_IF(cfg->step_tokens == 0 || cfg->max_sequences == 0 || cfg->kv.page_tokens == 0 || cfg->age_ns == 0,
	       "scheduler: a size is 0");
	struct sched *sc = sl_zalloc(sizeof *sc);
	if (sc == NULL)
		return SL_ENOMEM;
	sc->cfg = *cfg;
	sc->best_tier = SCHED_TIERS;
	sched_ease_init(&sc->ease);
	size_t n = cfg->max_sequences;
	sc->started = sl_zalloc_n(5 * n, sizeof *sc->started);
	if (sc->started == NULL || idmap_init(&sc->queues) != 0) {
		sl_free(sc->started);
		sl_free(sc);
		return SL_ENOMEM;
	}
	sc->run = sc->started + n;
	sc->evicted = sc->run + 2 * n;
	sc->order = sc->evicted + n;
	for (int i = 0; i < SCHED_TIERS; i++)
		heap_init(&sc->tiers[i].queues, less_share);
	*out = sc;
	return 0;
}

void sched_destroy(struct sched *sc)
{
	if (sc == NULL)
		return;
	BUG_IF(sc->n_started != 0 || sc->queues.n != 0, "scheduler: sequences are left");
	idmap_dispose(&sc->queues);
	sl_free(sc->started);
	sl_free(sc);
}

const struct sched_config *sched_config(const struct sched *sc) { return &sc->cfg; }
uint32_t sched_n_started(const struct sched *sc) { return sc->n_started; }
uint32_t sched_n_queued(const struct sched *sc) { return sc->n_queued; }
void sched_ease(struct sched *sc, const uint64_t *itl_ns) { sc->ease.itl_ns = itl_ns; }
void sched_took(struct sched *sc, double expected_ns, double ns) { sched_ease_took(&sc->ease, expected_ns, ns); }
uint32_t sched_n_held(const struct sched *sc) { return sc->ease.n_held; }

/* ---- queues ---- */

static uint8_t tier_of(uint8_t priority) { return priority < SCHED_TIERS ? priority : SCHED_TIERS - 1; }

static uint64_t queue_key(const struct sched_tenant *t, uint8_t tier)
{
	return (uint64_t)(uintptr_t)t * SCHED_TIERS + tier;
}

/* The queue for s, one sequence more in it; NULL: out of memory. */
static struct sched_queue *queue_enter(struct sched *sc, const struct sched_seq *s)
{
	uint8_t tier = tier_of(s->priority);
	struct idmap_node *node = idmap_find(&sc->queues, queue_key(s->tenant, tier));
	struct sched_queue *q;
	if (node != NULL) {
		q = idmap_entry(node, struct sched_queue, node);
	} else {
		q = sl_zalloc(sizeof *q);
		if (q == NULL)
			return NULL;
		q->node.key = queue_key(s->tenant, tier);
		q->tenant = s->tenant;
		q->tier = tier;
		heap_init(&q->by_turn, earlier_turn);
		list_init(&q->by_age);
		idmap_insert(&sc->queues, &q->node);
	}
	sc->tiers[tier].weight -= q->weight;
	q->weight = s->tenant->weight;
	sc->tiers[tier].weight += q->weight;
	q->n_seqs++;
	if (tier < sc->best_tier || (tier == sc->best_tier && q->weight > sc->best_weight)) {
		sc->best_tier = tier;
		sc->best_weight = q->weight;
	}
	return q;
}

static void queue_leave(struct sched *sc, struct sched_queue *q)
{
	if (--q->n_seqs > 0)
		return;
	BUG_IF(q->n_slots != 0 || q->by_turn.n != 0, "scheduler: a queue is freed in use");
	sc->tiers[q->tier].weight -= q->weight;
	idmap_remove(&sc->queues, &q->node);
	sl_free(q);
}

/* Rows left to compute, as far as known. */
static uint32_t rows_left(const struct sched_seq *s)
{
	uint32_t cached = s->started || s->n_cached >= s->n_left ? 0 : s->n_cached;
	return s->n_left - cached;
}

static uint64_t positions_left(const struct sched_seq *s)
{
	uint32_t n = rows_left(s);
	return cost_positions(s->n_past + (s->n_left - n), n);
}

static uint64_t turn_of(const struct sched *sc, const struct sched_seq *s)
{
	double rows = (double)rows_left(s) + sc->position_rows * (double)positions_left(s);
	return s->came_ns + (uint64_t)(rows * TURN_NS_PER_ROW);
}

void sched_learn_turns(struct sched *sc, const struct cost *cost)
{
	double n = sc->cfg.step_tokens, row_ns = cost_rows_ns(cost, n) / n;
	/* A chunk of n rows reads from memory what each of them attends to. */
	double ns = cost_past_ns(cost, (struct cost_past){.positions = 1, .reads = 1 / n});
	sc->position_rows = row_ns > 0 && ns < row_ns ? ns / row_ns : row_ns > 0;
}

static void enqueue(struct sched *sc, struct sched_seq *s, uint64_t now)
{
	struct sched_queue *q = s->queue;
	struct sched_tier *tier = &sc->tiers[q->tier];
	s->rows = rows_left(s);
	s->positions = positions_left(s);
	s->turn_ns = turn_of(sc, s);
	heap_insert(&q->by_turn, &s->by_turn);
	/* New sequences are the youngest; a returning one is usually older than most. */
	struct list *after = q->by_age.prev;
	int looked = 0;
	while (after != &q->by_age && list_entry(after, struct sched_seq, by_age)->order > s->order && looked++ < 8)
		after = after->prev;
	if (looked > 8)
		after = &q->by_age;
	list_push_front(after, &s->by_age);
	q->n_rows += s->rows;
	q->n_positions += s->positions;
	tier->n_rows += s->rows;
	tier->n_positions += s->positions;
	if (!q->by_share.in) {
		if (tier->queues.n == 0)
			tier->served_ns = now;
		q->share_key = q->tenant->share;
		heap_insert(&tier->queues, &q->by_share);
	}
	sc->n_queued++;
}

static void dequeue(struct sched *sc, struct sched_seq *s)
{
	struct sched_queue *q = s->queue;
	struct sched_tier *tier = &sc->tiers[q->tier];
	heap_remove(&q->by_turn, &s->by_turn);
	list_remove(&s->by_age);
	q->n_rows -= s->rows;
	q->n_positions -= s->positions;
	tier->n_rows -= s->rows;
	tier->n_positions -= s->positions;
	if (q->by_turn.n == 0)
		heap_remove(&tier->queues, &q->by_share);
	sc->n_queued--;
}

void sched_set_aside(struct sched *sc, struct sched_seq *s)
{
	if (s->by_turn.in)
		dequeue(sc, s);
}

void sched_bring_back(struct sched *sc, struct sched_seq *s, uint64_t now)
{
	if (s->prefilling && s->credit && !s->blocked && !s->by_turn.in)
		enqueue(sc, s, now);
}

struct sched_queue *sched_first_queue(struct sched_tier *tier)
{
	while (tier->queues.top != NULL) {
		struct sched_queue *q = heap_entry(tier->queues.top, struct sched_queue, by_share);
		if (q->share_key == q->tenant->share)
			return q;
		heap_remove(&tier->queues, &q->by_share);
		q->share_key = q->tenant->share;
		heap_insert(&tier->queues, &q->by_share);
	}
	return NULL;
}

/* ---- sequences ---- */

static void take_slot(struct sched *sc, struct sched_seq *s)
{
	BUG_IF(sc->n_started == sc->cfg.max_sequences, "scheduler: more sequences than slots");
	sc->started[sc->n_started++] = s;
	s->started_index = sc->n_started;
	sc->n_slots += s->width;
	s->queue->n_slots += s->width;
	sc->tiers[s->queue->tier].n_slots += s->width;
	sc->tiers[s->queue->tier].n_waiting--;
}

static void give_slot(struct sched *sc, struct sched_seq *s)
{
	struct sched_seq *last = sc->started[--sc->n_started];
	sc->started[s->started_index - 1] = last;
	last->started_index = s->started_index;
	s->started_index = 0;
	sc->n_slots -= s->width;
	s->queue->n_slots -= s->width;
	sc->tiers[s->queue->tier].n_slots -= s->width;
	sc->tiers[s->queue->tier].n_waiting++;
}

int sched_add(struct sched *sc, struct sched_seq *s, uint64_t now_ns)
{
	BUG_IF(s->queue != NULL || s->tenant == NULL || s->width == 0 || s->width > sc->cfg.max_sequences,
	       "scheduler: a sequence that can't be added");
	s->queue = queue_enter(sc, s);
	if (s->queue == NULL)
		return SL_ENOMEM;
	s->started_index = 0;
	s->came_ns = now_ns;
	sc->tiers[s->queue->tier].n_waiting++;
	list_init(&s->by_age);
	list_init(&s->aside);
	sched_update(sc, s, now_ns);
	return 0;
}

void sched_update(struct sched *sc, struct sched_seq *s, uint64_t now_ns)
{
	if (s->queue == NULL)
		return;
	sched_set_aside(sc, s);
	if (s->started && s->started_index == 0)
		take_slot(sc, s);
	else if (!s->started && s->started_index > 0)
		give_slot(sc, s);
	sched_bring_back(sc, s, now_ns);
}

void sched_hold(struct sched *sc, bool hold) { sc->holds = hold; }

void sched_remove(struct sched *sc, struct sched_seq *s)
{
	if (s->queue == NULL)
		return;
	sched_set_aside(sc, s);
	if (s->started_index > 0)
		give_slot(sc, s);
	sc->tiers[s->queue->tier].n_waiting--;
	queue_leave(sc, s->queue);
	s->queue = NULL;
	s->started = false;
}

void sched_boost(struct sched *sc, struct sched_seq *s, uint8_t priority, uint64_t now_ns)
{
	if (s->queue == NULL || priority >= s->priority)
		return;
	uint8_t before = s->priority;
	s->priority = priority;
	if (tier_of(before) == tier_of(priority))
		return;
	struct sched_queue *to = queue_enter(sc, s), *from = s->queue;
	if (to == NULL) {
		s->priority = before;
		return;
	}
	bool started = s->started_index > 0;
	sched_set_aside(sc, s);
	if (started)
		give_slot(sc, s);
	sc->tiers[from->tier].n_waiting--;
	sc->tiers[to->tier].n_waiting++;
	s->queue = to;
	if (started)
		take_slot(sc, s);
	queue_leave(sc, from);
	/* A sequence set aside while a plan is made returns with the others. */
	if (list_empty(&s->aside))
		sched_bring_back(sc, s, now_ns);
}

/* ---- prediction ---- */

struct ahead {
	const struct sched_seq *of;
	uint64_t turn_ns;
	uint64_t n_rows, n_positions;
	uint32_t n_waiting;
};

static bool count_ahead(void *ctx, struct heap_node *node)
{
	struct ahead *a = ctx;
	const struct sched_seq *s = heap_entry(node, const struct sched_seq, by_turn);
	if (s->turn_ns > a->turn_ns)
		return false;
	if (s == a->of)
		return true;
	a->n_rows += s->rows;
	a->n_positions += s->positions;
	a->n_waiting += !s->started;
	return true;
}

struct others {
	const struct sched_seq *s;
	double own_rows; /* until s is done, of its own tenant */
	double n_rows, n_positions;
	uint32_t n_waiting;
};

/* What another tenant gets until s is done: its share by weight, plus what it lags behind. */
static bool count_other(void *ctx, struct heap_node *node)
{
	struct others *o = ctx;
	const struct sched_queue *q = heap_entry(node, const struct sched_queue, by_share);
	const struct sched_tenant *own = o->s->tenant;
	if (q->tenant == own)
		return true;
	double gets = o->own_rows * q->weight / own->weight;
	gets += ((double)own->share - (double)q->tenant->share) * q->weight / ((double)SCHED_WEIGHT * SHARE_UNIT);
	if (gets <= 0)
		return true;
	double part = gets < (double)q->n_rows ? gets / (double)q->n_rows : 1;
	o->n_rows += part * (double)q->n_rows;
	o->n_positions += part * (double)q->n_positions;
	o->n_waiting += (uint32_t)(part * (double)q->by_turn.n);
	return true;
}

/* The decodes that share steps with prompts. */
struct beside {
	double per_step, reads;
	uint32_t n_decode;
};

/* Steps until so many rows of prompts are computed. */
static double prompts_ns(const struct cost *cost, const struct beside *b, double rows, double positions)
{
	double whole = floor(rows / b->per_step), rest = rows - whole * b->per_step;
	/* A prompt of n is read from memory n / per_step times, half of it on the average. */
	double ns = whole * cost_rows_ns(cost, b->per_step + b->n_decode) +
		    cost_past_ns(cost, (struct cost_past){.positions = positions, .reads = positions / b->per_step});
	if (rest >= 1)
		ns += cost_rows_ns(cost, rest + b->n_decode);
	return ns +
	       (whole + (rest >= 1)) * cost_past_ns(cost, (struct cost_past){.positions = b->reads, .reads = b->reads});
}

/* Slots of worse tiers count as free: they can be taken. */
static uint32_t slots_held(const struct sched *sc, uint8_t tier)
{
	uint32_t n = 0;
	for (int i = 0; i <= tier; i++)
		n += sc->tiers[i].n_slots;
	return n;
}

/* That s may hope for: where floors hold it up, none before another one ends. */
static uint32_t slots_for(const struct sched *sc, const struct sched_seq *s, const struct cost *cost)
{
	struct sched_floor f;
	const uint8_t tier = s->queue->tier;
	uint32_t slots = sched_slots(sc), held = slots_held(sc, tier);
	if (tier == 0 || s->started_index != 0 || held == 0)
		return slots;
	sched_floor_look(sc, &f);
	const bool lets = sched_floor_lets(&f, &sc->cfg, cost, tier, s->width, s->n_past + s->n_left);
	return lets || slots < held ? slots : held;
}

/* Until s has its first token, with these of its own tenant before it. */
static double wait_ns(const struct sched *sc, const struct sched_seq *s, const struct cost *cost,
		      const struct beside *b, double answer_ns, const struct ahead *own)
{
	enum { LOOK = 512 };
	const struct sched_queue *q = s->queue;
	double rows = rows_left(s);
	struct others others = {.s = s, .own_rows = rows + (double)own->n_rows};
	heap_walk(&sc->tiers[q->tier].queues, LOOK, count_other, &others);
	double before = (double)own->n_rows + others.n_rows, positions = (double)own->n_positions + others.n_positions;
	uint32_t n_ahead = own->n_waiting + others.n_waiting;
	for (int i = 0; i < q->tier; i++) {
		before += (double)sc->tiers[i].n_rows;
		positions += (double)sc->tiers[i].n_positions;
		n_ahead += sc->tiers[i].n_waiting;
	}
	/* With more sequences than slots, answers must end first. Prompts ahead are computed meanwhile; the mean answer
	 * time includes that. */
	uint32_t slots = slots_for(sc, s, cost), wanted = slots_held(sc, q->tier) + n_ahead + s->width;
	double until_slot = wanted > slots ? answer_ns * (wanted - slots) / slots : 0;
	double until_turn = prompts_ns(cost, b, before, positions);
	return (until_slot > until_turn ? until_slot : until_turn) +
	       prompts_ns(cost, b, rows, (double)positions_left(s));
}

double sched_predict_ns(const struct sched *sc, const struct sched_seq *s, const struct cost *cost, double answer_ns,
			uint32_t *position)
{
	enum { LOOK = 512 };
	const struct sched_queue *q = s->queue;
	struct ahead shorter = {.of = s, .turn_ns = turn_of(sc, s)};
	heap_walk(&q->by_turn, LOOK, count_ahead, &shorter);
	/* Decoding sequences share the steps. */
	struct beside b = {.per_step = sched_step_rows(sc, q, cost, 0, s->n_past)};
	for (uint32_t i = 0; i < sc->n_started; i++) {
		const struct sched_seq *o = sc->started[i];
		if (o->prefilling || !o->credit)
			continue;
		b.n_decode += o->width;
		b.reads += (double)o->width * o->n_past;
	}
	if (b.n_decode > 0)
		b.per_step = sched_chunk_rows(&sc->cfg, cost, b.n_decode, s->n_past);
	double ns = wait_ns(sc, s, cost, &b, answer_ns, &shorter);
	/* A step is in progress; on average half of it remains. */
	if (b.n_decode > 0)
		ns += cost_rows_ns(cost, b.n_decode) / 2;
	else if (sc->n_queued > s->by_turn.in)
		ns += cost_rows_ns(cost, b.per_step) / 2;
	*position = 0;
	for (int i = 0; i <= q->tier; i++)
		*position += sc->tiers[i].n_waiting;
	*position -= s->started_index == 0;
	return ns;
}

void sched_load(const struct sched *sc, const struct sched_tenants *tenants, const struct cost *cost,
		const double *answer_ns, uint32_t n_rows, struct proto_load *out)
{
	uint32_t slots, held, position;
	*out = (struct proto_load){0};
	struct sched_tenant guest = {.share = sched_tenants_least(tenants), .weight = SCHED_WEIGHT};
	for (int i = 0; i < PROTO_PRIORITIES; i++) {
		struct sched_queue queue = {.tenant = &guest, .tier = tier_of((uint8_t)i), .weight = SCHED_WEIGHT};
		struct sched_seq seq = {.queue = &queue,
					.tenant = &guest,
					.priority = (uint8_t)i,
					.n_left = n_rows,
					.width = 1,
					.prefilling = true,
					.credit = true};
		heap_init(&queue.by_turn, earlier_turn);
		double us = sched_predict_ns(sc, &seq, cost, answer_ns[queue.tier], &position) / 1e3;
		slots = slots_for(sc, &seq, cost);
		held = slots_held(sc, queue.tier);
		out->of[i].places_free = slots > held ? slots - held : 0;
		out->of[i].us_per_place = (uint32_t)(answer_ns[queue.tier] / 1e3 / slots);
		out->of[i].waiting = sc->tiers[queue.tier].n_waiting;
		out->of[i].wait_us = us < (double)UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	}
}

/* ---- demand ---- */

static void add_demand(struct sched_demand *d, uint8_t tier, uint32_t n)
{
	d->load += n << (SCHED_TIERS - 1 - tier);
	d->best_tier = tier < d->best_tier ? tier : d->best_tier;
}

void sched_demand(const struct sched *sc, uint64_t now_ns, struct sched_demand *out)
{
	uint32_t n_prompts[SCHED_TIERS] = {0};
	*out = (struct sched_demand){.best_tier = SCHED_TIERS, .best_prompt = SCHED_TIERS};
	for (uint32_t i = 0; i < sc->n_started; i++) {
		const struct sched_seq *s = sc->started[i];
		if (!s->credit || s->blocked || (!s->prefilling && s->due_ns > now_ns))
			continue;
		add_demand(out, s->queue->tier, s->width);
		n_prompts[s->queue->tier] += s->prefilling;
	}
	/* Of sequences that have not started, one per tier counts: more would not start sooner. */
	for (int i = 0; i < SCHED_TIERS; i++) {
		if (sc->tiers[i].queues.n == 0 || sc->holds)
			continue;
		if (n_prompts[i] == 0)
			add_demand(out, (uint8_t)i, 1);
		out->best_prompt = i < out->best_prompt ? (uint8_t)i : out->best_prompt;
	}
}

/* ---- checking ---- */

void sched_validate(const struct sched *sc)
{
	uint64_t rows = 0, positions = 0;
	uint32_t n_queued = 0, n_slots = 0;
	for (size_t i = 0; i < sc->queues.n_slots; i++) {
		for (const struct idmap_node *it = sc->queues.slots[i]; it != NULL; it = it->next) {
			const struct sched_queue *q = idmap_entry(it, struct sched_queue, node);
			uint64_t q_rows = 0;
			uint32_t n = 0;
			list_each(at, &q->by_age) {
				const struct sched_seq *s = list_entry(at, struct sched_seq, by_age);
				BUG_IF(s->queue != q || !s->by_turn.in || !s->prefilling || !s->credit || s->blocked,
				       "scheduler: a sequence is in the wrong queue");
				q_rows += s->rows;
				positions += s->positions;
				n++;
			}
			BUG_IF(n != q->by_turn.n || q_rows != q->n_rows || q->by_share.in != (n > 0),
			       "scheduler: a queue's books are wrong");
			rows += q_rows;
			n_queued += n;
			n_slots += q->n_slots;
		}
	}
	uint64_t tier_rows = 0, tier_positions = 0;
	for (int i = 0; i < SCHED_TIERS; i++) {
		tier_rows += sc->tiers[i].n_rows;
		tier_positions += sc->tiers[i].n_positions;
	}
	BUG_IF(rows != tier_rows || positions != tier_positions || n_queued != sc->n_queued || n_slots != sc->n_slots ||
		   n_slots > sc->cfg.max_sequences,
	       "scheduler: the tiers' books are wrong");
	for (uint32_t i = 0; i < sc->n_started; i++)
		BUG_IF(sc->started[i]->started_index != i + 1 || !sc->started[i]->started,
		       "scheduler: the started ones are wrong");
}
