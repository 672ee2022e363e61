/* SPDX-License-Identifier: Apache-2.0
 *
 * The cascade's decisions: which of two models answers a request, when the small one's answer is
 * shown, and when the large one takes over. Pure: no I/O, no clock (times are arguments, milliseconds
 * of any clock that only goes forward), no allocation but in casc_scorer_create. The caller carries
 * the actions out and reports their results as events.
 *
 *   request → casc_score ────────────── how hard it looks, from 0 to 1; or a model that a rule names
 *           → casc_load_decide ──────── is its tier sent to the small model now
 *           → casc_step(CASC_START) ─── a plan: small, large, race, or small and watch
 *   events  → casc_step ─────────────── actions, in the order in which they are to be done
 *
 * Everything that a decision depends on is in plain structs without pointers (struct casc, struct
 * casc_budget, struct casc_event), so that it can be written down and decided again: casc_record.
 *
 * Token counts are of each model's own output. One answer is: tokens of the small model, then tokens
 * of the large one; either part may be empty, and there is at most one switch. Nothing shown is ever
 * taken back.
 */
#ifndef CASCADE_CASCADE_H
#define CASCADE_CASCADE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/conf/conf.h"
#include "base/err.h"

/* ---- features of a request ---- */

enum casc_role { CASC_SYSTEM, CASC_USER, CASC_ASSISTANT, CASC_TOOL };

struct casc_message {
	enum casc_role role;
	const char *text; /* UTF-8; anything else is bytes that mean nothing */
	size_t n;
};

struct casc_ask {
	const struct casc_message *messages; /* borrowed */
	size_t n_messages;
	uint32_t n_tools;
	uint32_t max_tokens; /* requested; 0: none */
};

/* What is looked at, each scaled to about 0..1. The order is that of weights files: append only. */
enum casc_feature {
	CASC_F_LENGTH,    /* log2 of the last user message's bytes */
	CASC_F_CONTEXT,   /* log2 of all messages' bytes */
	CASC_F_SYSTEM,    /* log2 of the system messages' bytes */
	CASC_F_TURNS,     /* messages of users */
	CASC_F_QUESTIONS, /* question marks */
	CASC_F_ASKS,      /* question words */
	CASC_F_EXPLAIN,   /* cues, in English and Korean, from here … */
	CASC_F_ANALYSE,
	CASC_F_COMPARE,
	CASC_F_WRITE,
	CASC_F_CODE,
	CASC_F_MATHS,
	CASC_F_REASON,
	CASC_F_SIMPLE,  /* … to here: greetings, thanks, lookups */
	CASC_F_FENCES,  /* code fences */
	CASC_F_SYMBOLS, /* characters that code and formulas have */
	CASC_F_NUMBERS, /* runs of digits */
	CASC_F_LINES,   /* lines of the last user message */
	CASC_F_TOOLS,   /* tools offered */
	CASC_F_ASKED,   /* log2 of max_tokens */
	CASC_N_FEATURES,
};

/* Of the last user message only its first and last CASC_WINDOW bytes are read for words, so that the
 * time is bounded whatever its length. */
enum { CASC_WINDOW = 2048, CASC_MAX_GRAMS = 1024 };

struct casc_features {
	float dense[CASC_N_FEATURES];
	uint32_t n_grams;
	uint32_t grams[CASC_MAX_GRAMS]; /* hashes of words, pairs of words, pairs of CJK characters */
};

void casc_features(const struct casc_ask *ask, struct casc_features *out);
/* "length", …; NULL outside. */
const char *casc_feature_name(int feature);
/* -1 when there is none of that name. */
int casc_feature_find(const char *name);

/* ---- configuration ---- */

/* cascade.cues: */
struct casc_cue_setting {
	char *name; /* of a feature, or "bias" */
	double weight;
};

/* cascade.rules: what the last user message must hold. */
struct casc_rule_setting {
	char *name;
	struct conf_strings contains; /* one of them, whatever the case of ASCII letters; none: any text */
	int64_t min_bytes, max_bytes; /* 0: no bound */
	char *model;                  /* "small", "large", a model's name; "": only weighs */
	double weight;                /* added before the score becomes a probability */
};

enum casc_mode { CASC_MODE_AUTO, CASC_MODE_SMALL, CASC_MODE_LARGE };
enum casc_disagree { CASC_CONTINUE, CASC_TELL_IT };

/* cascade.tiers: */
struct casc_tier_setting {
	char *name;
	int mode;                /* enum casc_mode */
	double easy, race, hard; /* scores: below easy the small one alone; from race on both; from hard
				    on the large one alone */
	double sure, low, drop;  /* confidence: at least sure is shown at once; below low is not shown;
				    below drop, once shown, the large one takes over */
	uint64_t target_ttft_ms; /* the large one's predicted TTFT above which the tier is degraded; 0: never */
	bool tell_degraded;      /* requests that opted in are notified */
	int disagree;            /* enum casc_disagree */
	double share;            /* of the tier's requests of the last minute that may be escalated */
};

struct casc_settings {
	char *weights; /* file; "": none */
	struct conf_list cues, rules, tiers;
	int64_t hold_tokens, hold_min;
	uint64_t hold_ms;
	int64_t window;
	double smooth;
	double w_mean, w_min, w_entropy, w_margin;
	uint64_t takeover_ms;
	int64_t floor;
	double small_cost;
	double leave_ratio;
	uint64_t enter_ms, leave_ms, recover_ms;
	bool fallback;
};

/* Rows of the lists, for the schema's table: ends with key == NULL. */
extern const struct conf_row casc_cue_rows[], casc_rule_rows[], casc_tier_rows[];
/* Checks beyond the rows. key: room for the key at fault, below "cascade.". 0 or SL_EINVAL with *err. */
int casc_settings_check(const struct casc_settings *s, char *key, size_t key_size, struct sl_err *err);

/* ---- score ---- */

struct casc_scorer; /* cues, rules and weights; immutable, so threads may share it */

/* Copies what it needs from s; reads the weights file. 0 or a code with *err. */
int casc_scorer_create(const struct casc_settings *s, struct casc_scorer **out, struct sl_err *err);
void casc_scorer_destroy(struct casc_scorer *s);

struct casc_score {
	float score;       /* how likely the small model's answer will not do */
	int rule;          /* the first rule that names a model, or -1 */
	const char *model; /* what it names (borrowed from the scorer), or NULL */
};

void casc_score(const struct casc_scorer *s, const struct casc_ask *ask, struct casc_score *out);

/* ---- confidence of the small model, token by token ---- */

enum { CASC_TOP = 8, CASC_MAX_WINDOW = 32 };

/* Log-probabilities are natural and of the model's own distribution, before temperature. */
struct casc_token {
	float logprob;
	uint8_t n_top;       /* 0: entropy and margin are left out */
	float top[CASC_TOP]; /* the most likely tokens', in falling order */
};

struct casc_conf_policy {
	float w_mean, w_min, w_entropy, w_margin; /* shares of what the confidence is made of */
	float smooth;                             /* weight of the newest token in the means, 0..1 */
	uint8_t window;                           /* tokens of the minimum, 1..CASC_MAX_WINDOW */
};

struct casc_conf {
	uint32_t n; /* tokens seen */
	float mean; /* of log-probabilities, smoothed */
	float entropy, margin;
	uint32_t n_with_top;
	float recent[CASC_MAX_WINDOW];
};

/* 0, or SL_EPROTO when a number is none or above 0, or the list is not in falling order; then
 * nothing has changed. */
int casc_conf_add(struct casc_conf *c, const struct casc_conf_policy *p, const struct casc_token *t);
/* 0..1; 0 before the first token. */
float casc_conf_value(const struct casc_conf *c, const struct casc_conf_policy *p);

/* ---- load ---- */

struct casc_load_policy {
	uint64_t target_ms;  /* 0: never degraded */
	float leave_ratio;   /* it recovers below target × this … */
	uint32_t enter_ms;   /* above the target for that long */
	uint32_t leave_ms;   /* … for that long */
	uint32_t recover_ms; /* then the share of requests that may use the large model grows over it */
};

/* Of one tier; zeroed to begin with. */
struct casc_load {
	uint8_t state;     /* enum casc_load_state */
	uint64_t since_ms; /* of the state, or of what may end it */
	float due;         /* while recovering: requests owed to the large model */
};
enum casc_load_state { CASC_NORMAL, CASC_RISING, CASC_DEGRADED, CASC_FALLING, CASC_RECOVERING };

struct casc_load_in {
	uint64_t now_ms;
	uint32_t ttft_small_ms, ttft_large_ms; /* predicted for this request */
	bool better_degraded;                  /* a tier that is served before this one is degraded: so is this one */
};

/* Takes the prediction into account; true: this request is to do with the small model alone. */
bool casc_load_decide(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in);
/* Is the tier degraded (for better_degraded of the tiers served after it, and for a gauge)? */
bool casc_load_degraded(const struct casc_load *l);

/* ---- budget of escalations (races count) ---- */

enum { CASC_SLOTS = 6, CASC_SLOT_MS = 10000 };

/* Of one tier: the last minute in slots; zeroed to begin with. */
struct casc_budget {
	uint64_t slot; /* number of the newest one */
	uint32_t requests[CASC_SLOTS], escalations[CASC_SLOTS];
};

/* ---- the decision ---- */

/* What a tier's requests get. Without pointers; a request keeps a copy. */
struct casc_policy {
	uint8_t mode;     /* enum casc_mode */
	uint8_t disagree; /* enum casc_disagree */
	bool fallback;    /* a model that fails before anything was shown is replaced by the other one */
	bool tell_degraded;
	float easy, race, hard;
	float sure, low, drop;
	uint16_t hold_tokens, hold_min; /* nothing is decided before hold_min tokens, all at hold_tokens */
	uint32_t hold_ms;               /* from the first token held */
	uint32_t takeover_ms;           /* the longest wait for the large model after an escalation */
	float share;
	uint32_t floor; /* escalations per minute that are always allowed */
	struct casc_conf_policy conf;
	struct casc_load_policy load;
};

/* Of the tier of that name; of one that is not listed the defaults. */
void casc_policy_make(const struct casc_settings *s, const char *tier, struct casc_policy *out);

enum casc_model { CASC_NEITHER, CASC_SMALL, CASC_LARGE };

struct casc_plan_in {
	float score;
	uint8_t forced;                      /* enum casc_model: a rule or the request names it */
	bool can_small, can_large;           /* ready, allowed for the tier, the prompt fits */
	bool can_watch;                      /* one plain choice: log-probabilities and hold-back are possible */
	bool can_verify;                     /* one tokenizer: the large model can check the small one's tokens */
	bool degraded;                       /* casc_load_decide's answer */
	bool wants_to_know;                  /* opted in to notification of a degradation */
	uint32_t prompt_small, prompt_large; /* tokens, for the costs */
};

enum casc_plan { CASC_PLAN_NONE, CASC_PLAN_SMALL, CASC_PLAN_LARGE, CASC_PLAN_CHECK, CASC_PLAN_RACE };
enum casc_why {
	CASC_WHY_NO_MODEL,
	CASC_WHY_ONLY, /* the other one can't */
	CASC_WHY_FORCED,
	CASC_WHY_TIER,
	CASC_WHY_LOAD,
	CASC_WHY_EASY,
	CASC_WHY_MIDDLE,
	CASC_WHY_LIKELY_HARD,
	CASC_WHY_HARD,
	CASC_WHY_BUDGET,
	CASC_N_WHYS,
};

enum casc_event_kind {
	CASC_START,       /* plan */
	CASC_SMALL_TOKEN, /* token */
	CASC_LARGE_TOKEN, /* written by the large model: after an escalation those behind what it kept */
	CASC_SMALL_DONE,
	CASC_LARGE_DONE,
	CASC_SMALL_FAILED,
	CASC_LARGE_FAILED,
	CASC_VERIFIED, /* n: of the tokens offered, so many from the first on are as the large one's */
	CASC_TIMER,    /* casc_due has come; at other times it does nothing */
	CASC_CLIENT_GONE,
	CASC_N_EVENTS,
};

struct casc_event {
	uint8_t kind; /* enum casc_event_kind */
	uint64_t now_ms;
	uint32_t n;
	struct casc_token token;
	struct casc_plan_in plan;
};

enum casc_action_kind {
	CASC_DO_START_SMALL, /* where the plan is CHECK or RACE with log-probabilities and CASC_TOP likeliest */
	CASC_DO_START_LARGE,
	CASC_DO_HOLD,        /* tokens of the small model are not shown from here on */
	CASC_DO_RELEASE,     /* the next n tokens of `model` are shown */
	CASC_DO_ESCALATE,    /* start the large model behind prompt + keep tokens of the small one, which have
				been sent; n tokens of the small one in all are a draft, checked from the
				first on. It continues behind the longest agreed prefix, or behind keep. When
				n is 0, tokens can't be compared: it continues behind the text of keep */
	CASC_DO_PAUSE_SMALL, /* no more credit; it may have to continue */
	CASC_DO_RESUME_SMALL,
	CASC_DO_CANCEL_SMALL,
	CASC_DO_CANCEL_LARGE,
	CASC_DO_TELL, /* n: enum casc_tell; keep: at which token */
	CASC_DO_END,  /* n: enum casc_end. The last one */
	CASC_N_ACTIONS,
};
enum casc_tell { CASC_TELL_DEGRADED, CASC_TELL_DISAGREES };
enum casc_end { CASC_END_DONE, CASC_END_FAILED, CASC_END_GONE, CASC_END_NO_MODEL };

struct casc_action {
	uint8_t kind;  /* enum casc_action_kind */
	uint8_t model; /* enum casc_model, of a RELEASE */
	uint32_t n, keep;
};

enum { CASC_MAX_ACTIONS = 6 };
struct casc_actions {
	uint32_t n;
	struct casc_action at[CASC_MAX_ACTIONS];
};

enum casc_phase {
	CASC_NEW,
	CASC_ONE,    /* one model, shown as it comes */
	CASC_HELD,   /* the small one, not yet shown */
	CASC_SHOWN,  /* the small one, shown and watched */
	CASC_RACING, /* both; nothing shown */
	CASC_SWITCH, /* the large one has been asked to take over */
	CASC_TAKEN,  /* the large one, shown as it comes */
	CASC_OVER,
	CASC_N_PHASES,
};
enum casc_run_state {
	CASC_RUN_NONE,
	CASC_RUN_ON,
	CASC_RUN_PAUSED,
	CASC_RUN_DONE,
	CASC_RUN_FAILED,
	CASC_RUN_CANCELLED,
};

struct casc_run {
	uint8_t state; /* enum casc_run_state */
	uint32_t prompt, made, shown;
};

/* One request. Zeroed to begin with but for policy; only casc_step writes it. */
struct casc {
	struct casc_policy policy;
	uint8_t phase, plan, why; /* enum casc_phase, casc_plan, casc_why */
	uint8_t escalated;        /* enum casc_reason, 0: not */
	uint8_t held_by;          /* enum casc_held_by: what has ended the small model's hold, once it has */
	uint32_t held;            /* tokens of it by then */
	bool can_small, can_large, can_verify;
	bool refused;   /* the budget did not allow an escalation */
	bool disagreed; /* shown text is not what the large model would have written */
	uint32_t offered, accepted;
	uint32_t given;                  /* tokens of the small model that the large one computed: draft or context */
	uint32_t lost_prompt, lost_made; /* of a large run that lost a race, when there is a second one */
	uint64_t due_ms;                 /* 0: none */
	struct casc_run small, large;
	struct casc_conf conf;
};
/* At least sure; below low; hold_tokens; hold_ms; its answer's end; the large model was there first; it failed. */
enum casc_held_by {
	CASC_NOT_HELD,
	CASC_HELD_SURE,
	CASC_HELD_LOW,
	CASC_HELD_TOKENS,
	CASC_HELD_TIME,
	CASC_HELD_END,
	CASC_HELD_LARGE,
	CASC_HELD_FAILED,
	CASC_N_HELD_BY,
};
enum casc_reason { CASC_NOT_ESCALATED, CASC_FOR_HELD, CASC_FOR_SHOWN, CASC_FOR_RACE, CASC_FOR_FAILURE };

void casc_init(struct casc *c, const struct casc_policy *policy);
/* Takes one event. 0, or SL_EPROTO when it can't come now (its run is to be treated as failed); then
 * nothing has changed and out is empty. budget: the tier's. A cancelled run may still report tokens and
 * its end, also after CASC_DO_END: they are counted, without effect; but not once another run of that
 * model has been started (a race lost by the large one, then ESCALATE). */
int casc_step(struct casc *c, struct casc_budget *budget, const struct casc_event *e, struct casc_actions *out);
/* When CASC_TIMER is wanted; 0: not. */
uint64_t casc_due(const struct casc *c);
/* What must hold between any two events; BUG otherwise. */
void casc_check(const struct casc *c);

const char *casc_plan_name(int plan);
const char *casc_why_name(int why);
const char *casc_action_name(int action);
const char *casc_reason_name(int reason);
const char *casc_held_by_name(int held_by);

/* ---- the same request again (cascade/again.c) ---- */

/* What casc_step can't find again in the tokens. Facts only grow. */
enum casc_fact {
	CASC_PAST_LARGE_WON = 1,     /* a race: the small one need not be started again */
	CASC_PAST_SMALL_WON = 2,     /* a race: the large one that was started first need not be */
	CASC_PAST_LARGE_LOST = 4,    /* it failed, or was too late: it is to fail at once (the one that is asked to take
				   over,    after SMALL_WON) */
	CASC_PAST_REFUSED = 8,       /* by the budget */
	CASC_PAST_SMALL_FAILED = 16, /* it is to fail again, after `failed` tokens; not after LARGE_WON */
	CASC_PAST_HOLD_TIMED = 32,   /* a hold was ended by its time, after `held` tokens */
};

enum { CASC_PAST_VERSION = 1 };

/* Without pointers, so that it can be stored; another build's layout is known by its size and version. */
struct casc_past {
	uint32_t version;
	struct casc_policy policy;
	uint8_t plan, why;
	bool can_small, can_large, can_verify;
	uint8_t facts; /* enum casc_fact */
	uint32_t held, failed;
};

/* Of one that has just been planned. */
void casc_past_begin(struct casc_past *p, const struct casc *c);
/* After a step: true when it has become more. What is shown from that step on must not be seen before that is stored.
 */
bool casc_past_note(struct casc_past *p, const struct casc *c);
/* One that was read from somewhere. */
bool casc_past_is_sound(const struct casc_past *p);
/* Instead of CASC_START. With the same tokens, and models failing and left out as in the facts, casc_step shows the
 * same tokens of the same models; beyond them it decides anew, but for times and budgets. SL_EINVAL: unsound. */
int casc_start_again(struct casc *c, const struct casc_past *p, uint64_t now_ms, struct casc_actions *out);

/* ---- costs ---- */

/* Rows that a model computed. made = shown + wasted, for each model. */
struct casc_cost {
	uint64_t requests, escalations, races, refused;
	uint64_t small_only; /* requests of which the large model computed nothing */
	uint64_t small_prompt, small_made, small_shown, small_wasted;
	uint64_t large_prompt, large_made, large_shown, large_wasted;
	uint64_t large_given;       /* tokens of the small model that it computed: drafts and context */
	uint64_t offered, accepted; /* of the same */
	uint64_t always_large;      /* rows the large model would have computed alone */
};

/* Adds what a request has cost so far; call it once, at its end. */
void casc_cost_add(struct casc_cost *sum, const struct casc *c);
void casc_cost_merge(struct casc_cost *sum, const struct casc_cost *other);
/* Rows of the large model; in its rows also those of the small one, each at small_cost. */
uint64_t casc_cost_large(const struct casc_cost *c);
double casc_cost_total(const struct casc_cost *c, double small_cost);
/* 1 - total / always_large; 0 for nothing. */
double casc_cost_saved(const struct casc_cost *c, double small_cost);

/* ---- the log of decisions ---- */

/* One decision with all that it depended on. */
struct casc_record {
	uint32_t size; /* of this struct: another version's can't be replayed */
	bool of_load;
	union {
		struct {
			struct casc before;
			struct casc_budget budget;
			struct casc_event event;
			struct casc_actions actions;
		} step;
		struct {
			struct casc_load before;
			struct casc_load_policy policy;
			struct casc_load_in in;
			bool small_alone;
		} load;
	};
};

/* casc_step and casc_load_decide that also fill *r. */
int casc_step_recorded(struct casc *c, struct casc_budget *budget, const struct casc_event *e, struct casc_actions *out,
		       struct casc_record *r);
bool casc_load_decide_recorded(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in,
			       struct casc_record *r);
/* Is something decided in these actions, or is it only a token that passes? */
bool casc_actions_decide(const struct casc_actions *a);
/* Decides again. 0 when the result is the recorded one, SL_EINVAL when not, SL_EUNSUPPORTED for
 * another version's record. */
int casc_replay(const struct casc_record *r);

#endif
