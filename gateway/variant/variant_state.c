/* SPDX-License-Identifier: Apache-2.0
 *
 * States are in one list, which a lock guards; each has a lock of its own for what changes. The locks are never held
 * together but for the list's around the look-up.
 */
#define LOG_SUBSYSTEM LOG_ADMIN

#include "gateway/variant/variant_state.h"

#include <pthread.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metrics.h"
#include "gateway/variant/variant_past.h"

/* So long after it was made, the store that has not told counts as one that knows nothing. */
enum { KNOWN_MS = 3000 };

/* What an administrator has changed here, until the store has it. */
enum order { ORDER_STATE = 1, ORDER_WEIGHT = 2 };

struct variant_state {
	struct list node;
	unsigned refs; /* under the list's lock */
	uint64_t key;
	char of[VARIANT_NAME_BYTES], name[VARIANT_NAME_BYTES];
	struct variant_past *past; /* counted */
	pthread_mutex_t lock;      /* of what follows */
	struct variant_word word;
	unsigned ordered, asking; /* by an administrator here: bits of enum order; those that are on their way */
	struct trial trial;
	struct trial_sums total, sent;
	int64_t batch; /* the number of what is sent */
	bool unsure;   /* the store may have taken it */
	bool sending, told;
	bool logged; /* its rollback, of this generation */
	bool begun;  /* the variant has answered here, or at another gateway: word.past stays as it is */
	uint64_t made_ns;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list all = {&all, &all};

COUNTER(rollbacks, "sluice_variant_rollbacks_total", "Variants of models that this gateway has rolled back");

/* ---- life ---- */

static struct variant_state *find(uint64_t key)
{
	list_each(it, &all) {
		struct variant_state *s = list_entry(it, struct variant_state, node);
		if (s->key == key)
			return s;
	}
	return NULL;
}

static struct variant_state *create(uint64_t key, const char *of, const char *name, struct variant_past *past)
{
	struct variant_state *s = sl_zalloc(sizeof *s);
	if (s == NULL)
		return NULL;
	s->key = key;
	s->past = variant_past_ref(past);
	s->word.weight = VARIANT_NO_WEIGHT;
	s->made_ns = clock_now_ns();
	snprintf(s->of, sizeof s->of, "%s", of);
	snprintf(s->name, sizeof s->name, "%s", name);
	pthread_mutex_init(&s->lock, NULL);
	list_push_back(&all, &s->node);
	return s;
}

struct variant_state *variant_state_get(uint64_t key, const char *of, const char *name, struct variant_past *past)
{
	pthread_mutex_lock(&list_lock);
	struct variant_state *s = find(key);
	if (s == NULL)
		s = create(key, of, name, past);
	if (s != NULL)
		s->refs++;
	pthread_mutex_unlock(&list_lock);
	return s;
}

void variant_state_unref(struct variant_state *s)
{
	if (s == NULL)
		return;
	pthread_mutex_lock(&list_lock);
	const bool last = --s->refs == 0;
	if (last)
		list_remove(&s->node);
	pthread_mutex_unlock(&list_lock);
	if (!last)
		return;
	variant_past_unref(s->past);
	pthread_mutex_destroy(&s->lock);
	sl_free(s);
}

size_t variant_states_list(struct variant_state **out, size_t room)
{
	size_t n = 0;
	pthread_mutex_lock(&list_lock);
	list_each(it, &all) {
		if (n == room)
			break;
		out[n] = list_entry(it, struct variant_state, node);
		out[n++]->refs++;
	}
	pthread_mutex_unlock(&list_lock);
	return n;
}

const char *variant_state_of(const struct variant_state *s) { return s->of; }
const char *variant_state_name(const struct variant_state *s) { return s->name; }
uint64_t variant_state_key(const struct variant_state *s) { return s->key; }

/* ---- evidence; under the lock ---- */

static void add(struct trial_sums *to, const struct trial_sums *n)
{
	for (int i = 0; i < TRIAL_SUMS; i++)
		to->of[i] += n->of[i];
}

static struct trial_sums evidence_of(const struct variant_state *s)
{
	struct trial_sums sums = s->total;
	add(&sums, &s->sent);
	add(&sums, &s->trial.sums);
	return sums;
}

static bool is_rolled(const struct variant_state *s) { return s->word.rolled != TRIAL_ALIKE || s->word.by_hand; }

static bool is_known(const struct variant_state *s)
{
	return s->told || clock_now_ns() - s->made_ns >= KNOWN_MS * NS_PER_MS;
}

static void log_rollback(const struct variant_state *s, const struct trial_sums *sums)
{
	const int64_t *n = &sums->of[TRIAL_ANSWERS], *failed = &sums->of[TRIAL_FAILURES],
		      *left = &sums->of[TRIAL_DEPARTURES];
	const char *cause = trial_cause_name(s->word.rolled);
	const struct log_field fields[] = {{.name = "action", .text = "rollback"},
					   {.name = "model", .text = s->of},
					   {.name = "variant", .text = s->name},
					   {.name = "cause", .text = cause},
					   {.name = "answers", .number = (double)n[TRIAL_VARIANT]}};
	log_fields(LOG_WARN, fields, sizeof fields / sizeof *fields,
		   "variant %s of %s is rolled back for worse %s: %lld answers, %lld failed, %lld left; base %lld, "
		   "%lld failed, %lld left",
		   s->name, s->of, cause, (long long)n[TRIAL_VARIANT], (long long)failed[TRIAL_VARIANT],
		   (long long)left[TRIAL_VARIANT], (long long)n[TRIAL_BASE], (long long)failed[TRIAL_BASE],
		   (long long)left[TRIAL_BASE]);
}

/* before: as in trial_judge; INT64_MAX: the look is not to be taken. */
static void judge(struct variant_state *s, int64_t before)
{
	if (is_rolled(s))
		return;
	const struct trial_sums sums = evidence_of(s);
	s->word.rolled = trial_judge(&sums, s->word.past, before);
	if (s->word.rolled == TRIAL_ALIKE)
		return;
	metric_add(&rollbacks, 1);
	if (!s->logged)
		log_rollback(s, &sums);
	s->logged = true;
}

void variant_state_take(struct variant_state *s, enum trial_arm arm, const struct trial_answer *a)
{
	pthread_mutex_lock(&s->lock);
	if (arm == TRIAL_VARIANT && !s->begun) {
		s->word.past = variant_past_view(s->past);
		s->begun = true;
	}
	trial_take(&s->trial, arm, a);
	/* The look belongs to the store's sums, so that all gateways together take it once. */
	judge(s, INT64_MAX);
	pthread_mutex_unlock(&s->lock);
}

struct variant_view variant_state_view(struct variant_state *s)
{
	struct variant_view v = {.evidence = {0}};
	pthread_mutex_lock(&s->lock);
	v.word = s->word;
	v.sums = evidence_of(s);
	v.known = is_known(s);
	pthread_mutex_unlock(&s->lock);
	for (int c = TRIAL_FAILS; c < TRIAL_CAUSES; c++)
		v.evidence[c] = trial_log_evidence(&v.sums, (enum trial_cause)c) / trial_log_bound((enum trial_cause)c);
	return v;
}

double variant_state_weight(struct variant_state *s, double configured)
{
	pthread_mutex_lock(&s->lock);
	const bool may = !is_rolled(s) && is_known(s);
	const int64_t own = s->word.weight;
	pthread_mutex_unlock(&s->lock);
	return !may ? 0 : own != VARIANT_NO_WEIGHT ? (double)own / 1000 : configured;
}

/* ---- administrators ---- */

static void begin_again(struct variant_state *s)
{
	s->trial = (struct trial){.n_window = 0};
	s->total = s->sent = (struct trial_sums){{0}};
	s->unsure = s->logged = s->begun = false;
}

/* A change during an exchange is not part of it. */
static void order(struct variant_state *s, enum order what)
{
	s->ordered |= what;
	s->asking &= ~(unsigned)what;
}

void variant_state_roll_back(struct variant_state *s)
{
	pthread_mutex_lock(&s->lock);
	s->word.by_hand = true;
	order(s, ORDER_STATE);
	pthread_mutex_unlock(&s->lock);
}

void variant_state_restore(struct variant_state *s)
{
	pthread_mutex_lock(&s->lock);
	begin_again(s);
	s->word.generation++;
	s->word.rolled = TRIAL_ALIKE;
	s->word.by_hand = false;
	order(s, ORDER_STATE);
	pthread_mutex_unlock(&s->lock);
}

void variant_state_set_weight(struct variant_state *s, int64_t weight)
{
	pthread_mutex_lock(&s->lock);
	s->word.generation++;
	s->word.weight = weight;
	begin_again(s);
	order(s, ORDER_WEIGHT);
	pthread_mutex_unlock(&s->lock);
}

/* ---- the store ---- */

static void fill_batch(struct variant_state *s)
{
	s->sent = s->trial.sums;
	s->trial.sums = (struct trial_sums){{0}};
	s->batch++;
}

bool variant_state_send(struct variant_state *s, struct variant_word *word, struct trial_sums *sums, int64_t *batch)
{
	pthread_mutex_lock(&s->lock);
	const bool may = !s->sending;
	if (may) {
		if (!s->unsure)
			fill_batch(s);
		s->sending = s->unsure = true;
		s->asking = s->ordered;
		if (!s->begun)
			s->word.past = variant_past_view(s->past);
		*word = s->word;
		*sums = s->sent;
		*batch = s->batch;
	}
	pthread_mutex_unlock(&s->lock);
	return may;
}

/* The store has a later generation than this process knew of, as after an outage: what an administrator has changed
 * here is changed in that one, too. */
static void order_again(struct variant_state *s, const struct variant_word *word)
{
	const struct variant_word own = s->word;
	s->word = *word;
	s->word.generation++;
	if ((s->ordered & ORDER_WEIGHT) != 0)
		s->word.weight = own.weight;
	if ((s->ordered & ORDER_STATE) != 0) {
		s->word.rolled = own.rolled;
		s->word.by_hand = own.by_hand;
	}
}

/* What another gateway decided counts here, too: it has logged it. */
static void adopt(struct variant_state *s, const struct variant_word *word)
{
	if (word->generation < s->word.generation)
		return; /* an administrator has spoken here meanwhile */
	if (word->generation > s->word.generation) {
		begin_again(s);
		if (s->ordered != 0) {
			order_again(s, word);
			return;
		}
		s->word = *word;
	}
	s->ordered &= ~s->asking;
	s->word.weight = word->weight;
	if (!is_rolled(s)) {
		s->word.rolled = word->rolled;
		s->word.by_hand = word->by_hand;
		s->logged = is_rolled(s);
	}
}

void variant_state_told(struct variant_state *s, const struct variant_word *word, const struct trial_sums *sums,
			int64_t before)
{
	pthread_mutex_lock(&s->lock);
	s->sending = false;
	if (word != NULL) {
		adopt(s, word);
		s->told = true;
		s->unsure = false;
		if (word->generation == s->word.generation) {
			s->sent = (struct trial_sums){{0}};
			s->total = *sums;
			if (sums->of[TRIAL_ANSWERS + TRIAL_VARIANT] > 0) {
				s->word.past = word->past;
				s->begun = true;
			}
			judge(s, before);
		}
	}
	pthread_mutex_unlock(&s->lock);
}
