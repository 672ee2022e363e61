/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/planner/planner.h"

#include <math.h>

/* Over which averages are made. */
static const double demand_s = 5, lasting_s = 12, verdict_s = 10, decodes_s = 10, steps_s = 20, lines_s = 60;
static const double believed_rows = 2000; /* squares of rows: the weight of the first belief */
enum { CONFIRMED = 2, BACKLOG = 2 };
static const double seldom = 0.05; /* long prompts per second: fewer need no engine */

static bool takes_part(const struct planner_engine *e) { return e->up && !(e->fixed && e->role == GW_ENGINE_BOTH); }
static bool computes(const struct planner_engine *e) { return e->role == GW_ENGINE_PREFILL; }

/* ---- what the figures tell ---- */

/* The part of a new value in an average over `over` seconds. */
static double part_of(double dt_s, double over) { return 1 - exp(-dt_s / over); }

static void average(double *to, double value, double part) { *to += part * (value - *to); }

/* Of a counter that begins anew with its engine. */
static double grown(uint64_t now, uint64_t before) { return now > before ? (double)(now - before) : 0; }

static void learn_demand(struct planner *p, const struct planner_traffic *now, double dt_s)
{
	const struct planner_traffic *was = &p->last.traffic;
	double part = part_of(dt_s, demand_s);
	average(&p->n_long, grown(now->n_long, was->n_long) / dt_s, part);
	average(&p->long_rate, grown(now->long_tokens, was->long_tokens) / dt_s, part);
	average(&p->lasting_rate, grown(now->long_tokens, was->long_tokens) / dt_s, part_of(dt_s, lasting_s));
	average(&p->short_rate, grown(now->short_tokens, was->short_tokens) / dt_s, part);
}

static void learn_verdicts(struct planner *p, const struct planner_traffic *now, double dt_s)
{
	const struct planner_traffic *was = &p->last.traffic;
	double n = grown(now->n_first, was->n_first), m = grown(now->n_paced, was->n_paced);
	double part = part_of(dt_s, verdict_s);
	average(&p->first_late, n > 0 ? grown(now->n_late, was->n_late) / n : 0, part);
	average(&p->slow, m > 0 ? grown(now->n_slow, was->n_slow) / m : 0, part);
}

static uint32_t queue_of(const struct planner_engine *e) { return e->running + e->waiting; }

/* Does it still make answers that it began under another role? A prompt alone has one token at most. */
static bool ends_answers(const struct planner_engine *e, const struct planner_engine *was)
{
	return grown(e->decode_tokens, was->decode_tokens) > 0.02 * grown(e->prefill_tokens, was->prefill_tokens);
}

/* What a token takes where several prompts waited all the time: attention and all. */
static void learn_prompts(struct planner *p, const struct planner_view *v, double dt_s)
{
	for (int i = 0; i < v->n_engines && i < p->last.n_engines; i++) {
		const struct planner_engine *e = &v->engines[i], *was = &p->last.engines[i];
		double tokens = grown(e->prefill_tokens, was->prefill_tokens);
		if (!takes_part(e) || !computes(e) || !computes(was) || e->waiting < BACKLOG ||
		    was->waiting < BACKLOG || tokens == 0 || ends_answers(e, was))
			continue;
		p->token_us = fmax(p->token_us, e->prefill_token_us);
		average(&p->token_us, dt_s * 1e6 / tokens, part_of(dt_s, steps_s));
	}
}

static void learn_decodes(struct planner *p, const struct planner_view *v, double dt_s)
{
	double tokens = 0;
	for (int i = 0; i < v->n_engines && i < p->last.n_engines; i++)
		if (takes_part(&v->engines[i]))
			tokens += grown(v->engines[i].decode_tokens, p->last.engines[i].decode_tokens);
	average(&p->decode_rate, tokens / dt_s, part_of(dt_s, decodes_s));
}

/* Where computing hides behind reading weights, one more row takes next to nothing; where not, what a prompt's token
 * takes, which is believed until steps of different rows tell otherwise. */
static void learn_steps(struct planner *p, const struct planner_view *v, double dt_s)
{
	struct planner_steps *s = &p->steps;
	const double keep = 1 - part_of(dt_s, lines_s);
	s->n *= keep, s->rows *= keep, s->us *= keep, s->rows_rows *= keep, s->rows_us *= keep;
	for (int i = 0; i < v->n_engines; i++) {
		const struct planner_engine *e = &v->engines[i];
		if (!takes_part(e) || computes(e) || e->running == 0 || e->decode_step_us == 0)
			continue;
		s->n += 1;
		s->rows += e->running;
		s->us += e->decode_step_us;
		s->rows_rows += (double)e->running * e->running;
		s->rows_us += e->running * e->decode_step_us;
	}
}

static double decode_us(const struct planner_steps *s, double row_us)
{
	if (s->n <= 0)
		return row_us;
	double variance = s->rows_rows - s->rows * s->rows / s->n, covariance = s->rows_us - s->rows * s->us / s->n;
	double slope = (covariance + believed_rows * row_us) / (variance + believed_rows);
	return fmin(fmax(slope, 0), row_us);
}

/* Returns the seconds since the last period. */
static double learn(struct planner *p, const struct planner_view *v)
{
	double dt_s = p->begun && v->now_ns > p->last.now_ns ? (double)(v->now_ns - p->last.now_ns) / 1e9 : 0;
	if (dt_s > 0) {
		learn_demand(p, &v->traffic, dt_s);
		learn_verdicts(p, &v->traffic, dt_s);
		learn_prompts(p, v, dt_s);
		learn_decodes(p, v, dt_s);
		learn_steps(p, v, dt_s);
	}
	p->last = *v;
	p->begun = true;
	return dt_s;
}

struct sums {
	int n_prefill, n_decode;
	double token_us, n_token, step_us, n_step;
};

static void add_engine(const struct planner_engine *e, struct planner_load *l, struct sums *s)
{
	l->n++;
	if (e->prefill_token_us > 0) {
		s->token_us += e->prefill_token_us;
		s->n_token++;
	}
	if (computes(e)) {
		s->n_prefill++;
		l->backlog += e->waiting;
		return;
	}
	s->n_decode++;
	l->rows += e->running;
	l->waits += e->waiting > e->awaiting ? e->waiting - e->awaiting : 0;
	l->kv += e->kv_used;
	if (e->decode_step_us > 0 && e->running > 0) {
		s->step_us += e->decode_step_us;
		s->n_step++;
	}
}

/* What a step takes beside its rows. Figures of steps lag behind those of sequences, so this is averaged. */
static double learn_fixed(struct planner *p, double step_us, double rows_us, double dt_s)
{
	double us = fmax(step_us - rows_us, 0);
	if (step_us > 0)
		average(&p->fixed_us, us, p->fixed_us == 0 ? 1 : part_of(dt_s, steps_s));
	return p->fixed_us;
}

/* Returns the engines of role prefill. Computing a row costs what a prompt's token does. */
static int sum_up(struct planner *p, const struct planner_view *v, double dt_s, struct planner_load *l)
{
	struct sums s = {0};
	*l = (struct planner_load){.long_rate = fmax(p->long_rate, p->lasting_rate),
				   .short_rate = p->short_rate,
				   .decode_rate = p->decode_rate,
				   .long_mean = p->n_long > seldom ? p->long_rate / p->n_long : 0,
				   .ttft_us = v->traffic.ttft_us,
				   .tpot_us = v->traffic.tpot_us};
	for (int i = 0; i < v->n_engines; i++)
		if (takes_part(&v->engines[i]))
			add_engine(&v->engines[i], l, &s);
	l->row_us = s.n_token > 0 ? s.token_us / s.n_token : 0;
	l->prompt_us = fmax(p->token_us, l->row_us);
	l->decode_us = decode_us(&p->steps, l->row_us);
	double rows = s.n_decode > 0 ? l->rows / s.n_decode : 0;
	l->fixed_us = learn_fixed(p, s.n_step > 0 ? s.step_us / s.n_step : 0, l->decode_us * rows, dt_s);
	return s.n_prefill;
}

/* ---- the decision ---- */

/* The number with the least pressure; of equals the nearest to the one now. */
static int best_number(const struct planner_load *l, int least, int most, int now)
{
	int best = now < least ? least : now > most ? most : now;
	struct planner_pressure its = planner_predict(l, best);
	for (int distance = 1; distance <= l->n; distance++)
		for (int side = -1; side <= 1; side += 2) {
			int n = now + side * distance;
			if (n < least || n > most)
				continue;
			struct planner_pressure other = planner_predict(l, n);
			if (planner_most(&other) < planner_most(&its)) {
				best = n;
				its = other;
			}
		}
	return best;
}

static bool rests(const struct planner *p, const struct planner_view *v, int i, uint64_t dwell_ns)
{
	return p->since_ns[i] != 0 && v->now_ns < p->since_ns[i] + dwell_ns;
}

/* The one with the least work among those that may change to or from role prefill; -1: none. */
static int idlest(const struct planner *p, const struct planner_view *v, bool to_prefill, uint64_t dwell_ns)
{
	int best = -1;
	for (int i = 0; i < v->n_engines; i++) {
		const struct planner_engine *e = &v->engines[i];
		if (e->fixed || !e->up || computes(e) == to_prefill || rests(p, v, i, dwell_ns))
			continue;
		if (best < 0 || queue_of(e) < queue_of(&v->engines[best]))
			best = i;
	}
	return best;
}

static void move(struct planner *p, struct planner_view *v, int i, int role, struct planner_decision *d)
{
	v->engines[i].role = role;
	d->moves[d->n_moves++] = (struct planner_move){i, role};
	p->since_ns[i] = v->now_ns;
}

static void move_to(struct planner *p, struct planner_view *v, uint64_t dwell_ns, struct planner_decision *d)
{
	for (int n = d->n_prefill; n != d->n_best; n += n < d->n_best ? 1 : -1) {
		const bool to_prefill = n < d->n_best;
		int i = idlest(p, v, to_prefill, dwell_ns);
		if (i < 0)
			return;
		move(p, v, i, to_prefill ? GW_ENGINE_PREFILL : GW_ENGINE_DECODE, d);
	}
}

/* Engines that decode are called so only beside one that computes prompts. That is no move that rests. */
static void name_others(struct planner_view *v, struct planner_decision *d)
{
	int role = GW_ENGINE_BOTH;
	for (int i = 0; i < v->n_engines; i++)
		if (takes_part(&v->engines[i]) && computes(&v->engines[i]))
			role = GW_ENGINE_DECODE;
	for (int k = 0; k < d->n_moves; k++)
		if (d->moves[k].role != GW_ENGINE_PREFILL)
			d->moves[k].role = v->engines[d->moves[k].engine].role = role;
	for (int i = 0; i < v->n_engines; i++) {
		struct planner_engine *e = &v->engines[i];
		if (e->fixed || computes(e) || e->role == role)
			continue;
		e->role = role;
		d->moves[d->n_moves++] = (struct planner_move){i, role};
	}
}

/* Is the best number so much better, and was it in the last periods? The way back takes as long as an engine keeps its
 * role: what moves have led to shows only once engines have ended what they had begun. */
static bool is_due(struct planner *p, const struct planner_decision *d, uint64_t now_ns, uint64_t dwell_ns)
{
	double now = planner_most(&d->now), best = planner_most(&d->best);
	bool missed = now >= 1 || p->first_late > PLANNER_LATE_SHARE || p->slow > PLANNER_LATE_SHARE;
	int direction = d->n_best > d->n_prefill ? 1 : d->n_best < d->n_prefill ? -1 : 0;
	if ((!missed && now < PLANNER_WATCH) || best > (missed ? PLANNER_MISSED_GAIN : PLANNER_GAIN) * now)
		direction = 0;
	p->n_in_a_row = direction != 0 && direction == p->direction ? p->n_in_a_row + 1 : direction != 0;
	p->direction = direction;
	if (direction == -p->moved && now_ns < p->moved_ns + dwell_ns)
		return false;
	return p->n_in_a_row >= CONFIRMED;
}

/* The least and the most engines of role prefill. */
static void bounds(const struct planner_view *v, int *least, int *most)
{
	int n = 0, n_decode = 0;
	*least = 0;
	for (int i = 0; i < v->n_engines; i++) {
		const struct planner_engine *e = &v->engines[i];
		if (!takes_part(e))
			continue;
		n++;
		*least += e->fixed && computes(e);
		n_decode += e->fixed && !computes(e);
	}
	*most = n - (n_decode > 0 ? n_decode : 1);
}

struct planner_decision planner_turn(struct planner *p, const struct planner_view *view, uint64_t dwell_ns)
{
	struct planner_view v = *view;
	struct planner_decision d = {.why = PLANNER_STAYS};
	struct planner_load l;
	int least, most;
	double dt_s = learn(p, &v);
	d.n_best = d.n_prefill = sum_up(p, &v, dt_s, &l);
	bounds(&v, &least, &most);
	if (most < least) /* none is up that could decode */
		return d;
	bool lost = d.n_prefill > most;
	d.n_best = best_number(&l, least, most, d.n_prefill);
	if (!lost)
		d.now = planner_predict(&l, d.n_prefill);
	d.best = planner_predict(&l, d.n_best);
	if (is_due(p, &d, v.now_ns, dwell_ns) || lost) {
		d.why = lost ? PLANNER_LOST : planner_worst(&d.now);
		move_to(p, &v, lost ? 0 : dwell_ns, &d);
		if (d.n_moves > 0) {
			p->moved = d.n_best > d.n_prefill ? 1 : -1;
			p->moved_ns = v.now_ns;
			p->n_in_a_row = 0;
		}
	}
	name_others(&v, &d);
	for (int i = 0; i < v.n_engines; i++)
		p->last.engines[i].role = v.engines[i].role;
	if (d.n_moves == 0)
		d.why = PLANNER_STAYS;
	return d;
}

const char *planner_why_name(enum planner_why why)
{
	static const char *const names[PLANNER_WHYS] = {"stays", "ttft", "tpot", "kv", "queue", "lost"};
	return names[why];
}
