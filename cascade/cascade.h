/* SPDX-License-Identifier: Apache-2.0
 *
 * The cascade's decisions: which of two models answers a request, when the small one's answer is shown, and when the
 * large one takes over. Pure: no I/O, no clock (times are arguments, in milliseconds of any monotonic clock), no
 * allocation except in casc_scorer_create. The caller performs the actions and reports their results as events.
 *
 *   request → casc_score ────────────── how hard it looks, from 0 to 1; or a model that a rule names
 *           → casc_load_decide ──────── is its tier sent to the small model now
 *           → casc_step(CASC_START) ─── a plan: small, large, race, or small and watch
 *   events  → casc_step ─────────────── actions, in the order in which they are to be done
 *
 * All inputs of a decision are plain structs without pointers (struct casc, struct casc_budget, struct casc_event), so
 * a decision can be recorded and replayed: casc_record.
 *
 * Token counts are of each model's own output. An answer is tokens of the small model followed by tokens of the large
 * one. Either may be empty, and there is at most one switch. Shown tokens are never withdrawn. Any thread; each struct
 * belongs to one thread at a time. Callers: gateway/cascade, cmd.
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
	const char *text; /* UTF-8; other bytes have no meaning */
	size_t n;
};

struct casc_ask {
	const struct casc_message *messages; /* borrowed */
	size_t n_messages;
	uint32_t n_tools;
	uint32_t max_tokens; /* requested; 0: none */
};

/* The features, each scaled to about 0..1. Weights files use this order: append only. */
enum casc_feature {
	CASC_F_LENGTH,    /* log2 of the last user message's bytes */
	CASC_F_CONTEXT,   /* log2 of all messages' bytes */
	CASC_F_SYSTEM,    /* log2 of the system messages' bytes */
	CASC_F_TURNS,     /* number of user messages */
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
	CASC_F_SYMBOLS, /* characters typical of code and formulas */
	CASC_F_NUMBERS, /* runs of digits */
	CASC_F_LINES,   /* lines of the last user message */
	CASC_F_TOOLS,   /* tools offered */
	CASC_F_ASKED,   /* log2 of max_tokens */
	CASC_N_FEATURES,
};

/* Only the first and last CASC_WINDOW bytes of the last user message are read for words, which bounds the time. */
enum { CASC_WINDOW = 2048, CASC_MAX_GRAMS = 1024 };

struct casc_features {
	float dense[CASC_N_FEATURES];
	uint32_t n_grams;
	uint32_t grams[CASC_MAX_GRAMS]; /* hashes of words, pairs of words, pairs of CJK characters */
};

void casc_features(const struct casc_ask *ask, struct casc_features *out);
/* "length", …; NULL: no such feature. */
const char *casc_feature_name(int feature);
/* -1: no feature of that name. */
int casc_feature_find(const char *name);

/* ---- configuration ---- */

/* cascade.cues: */
struct casc_cue_setting {
	char *name; /* of a feature, or "bias" */
	double weight;
};

/* cascade.rules: conditions on the last user message. */
struct casc_rule_setting {
	char *name;
	struct conf_strings contains; /* any one of them, ignoring ASCII case; empty list: any text */
	int64_t min_bytes, max_bytes; /* 0: no bound */
	char *model;                  /* "small", "large", a model's name; "": only adds its weight */
	double weight;                /* added before the score becomes a probability */
};

enum casc_mode { CASC_MODE_AUTO, CASC_MODE_SMALL, CASC_MODE_LARGE };
enum casc_disagree { CASC_CONTINUE, CASC_TELL_IT };

/* cascade.tiers: */
struct casc_tier_setting {
	char *name;
	int mode; /* enum casc_mode */
	double easy, race,
	    hard; /* scores: below easy the small model alone; from race on both; from hard on the large model alone */
	double sure, low, drop;  /* confidence: from sure on the answer is shown at once; below low it is not shown;
				    below drop, a shown answer is taken over by the large model */
	uint64_t target_ttft_ms; /* the large one's predicted TTFT above which the tier is degraded; 0: never */
	bool tell_degraded;      /* requests that opted in are notified */
	int disagree;            /* enum casc_disagree */
	double share;            /* share of the tier's requests of the last minute that may be escalated */
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

/* Rows of the lists, for the schema's table; each ends with key == NULL. */
extern const struct conf_row casc_cue_rows[], casc_rule_rows[], casc_tier_rows[];
/* Checks what the rows can't. key: buffer for the wrong key, relative to "cascade.". 0 or SL_EINVAL with *err. */
int casc_settings_check(const struct casc_settings *s, char *key, size_t key_size, struct sl_err *err);

/* ---- score ---- */

struct casc_scorer; /* cues, rules and weights; immutable, so threads may share it */

/* Copies what it needs from s; reads the weights file. 0 or a code with *err. */
int casc_scorer_create(const struct casc_settings *s, struct casc_scorer **out, struct sl_err *err);
void casc_scorer_destroy(struct casc_scorer *s);

struct casc_score {
	float score;       /* probability that the small model's answer is not good enough */
	int rule;          /* the first rule that names a model, or -1 */
	const char *model; /* the model it names (borrowed from the scorer), or NULL */
};

void casc_score(const struct casc_scorer *s, const struct casc_ask *ask, struct casc_score *out);

/* ---- confidence of the small model, token by token ---- */

enum { CASC_TOP = 8, CASC_MAX_WINDOW = 32 };

/* Log-probabilities are natural and of the model's own distribution, before temperature. */
struct casc_token {
	float logprob;
	uint8_t n_top;       /* 0: entropy and margin are left out */
	float top[CASC_TOP]; /* of the most likely tokens, in descending order */
};

struct casc_conf_policy {
	float w_mean, w_min, w_entropy, w_margin; /* weights of the confidence's components */
	float smooth;                             /* weight of the newest token in the means, 0..1 */
	uint8_t window;                           /* tokens that the minimum covers, 1..CASC_MAX_WINDOW */
};

struct casc_conf {
	uint32_t n; /* tokens seen */
	float mean; /* of log-probabilities, smoothed */
	float entropy, margin;
	uint32_t n_with_top;
	float recent[CASC_MAX_WINDOW];
};

/* 0, or SL_EPROTO without a change: a number is not finite or above 0, or the list is not in descending order. */
int casc_conf_add(struct casc_conf *c, const struct casc_conf_policy *p, const struct casc_token *t);
/* 0..1; 0 before the first token. */
float casc_conf_value(const struct casc_conf *c, const struct casc_conf_policy *p);

/* ---- load ---- */

struct casc_load_policy {
	uint64_t target_ms;  /* 0: never degraded */
	float leave_ratio;   /* it recovers below target × this … */
	uint32_t enter_ms;   /* above the target for that long */
	uint32_t leave_ms;   /* … for that long */
	uint32_t recover_ms; /* then the large model's share of requests grows to all within this time */
};

/* Of one tier. Initially zeroed. */
struct casc_load {
	uint8_t state;     /* enum casc_load_state */
	uint64_t since_ms; /* start of the state */
	float due;         /* while recovering: requests owed to the large model */
};
enum casc_load_state { CASC_NORMAL, CASC_RISING, CASC_DEGRADED, CASC_FALLING, CASC_RECOVERING };

struct casc_load_in {
	uint64_t now_ms;
	uint32_t ttft_small_ms, ttft_large_ms; /* predicted for this request */
	bool better_degraded;                  /* a better tier is degraded, so this one is too */
};

/* Updates the state with the prediction. True: this request uses the small model only. */
bool casc_load_decide(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in);
/* Is the tier degraded (for better_degraded of the tiers served after it, and for a gauge)? */
bool casc_load_degraded(const struct casc_load *l);

/* ---- budget of escalations (races count) ---- */

enum { CASC_SLOTS = 6, CASC_SLOT_MS = 10000 };

/* Of one tier: the last minute in slots. Initially zeroed. */
struct casc_budget {
	uint64_t slot; /* number of the newest one */
	uint32_t requests[CASC_SLOTS], escalations[CASC_SLOTS];
};

/* ---- the decision ---- */

/* The settings of a tier's requests, without pointers; each request keeps a copy. */
struct casc_policy {
	uint8_t mode;     /* enum casc_mode */
	uint8_t disagree; /* enum casc_disagree */
	bool fallback;    /* the other model replaces one that fails before its first shown token */
	bool tell_degraded;
	float easy, race, hard;
	float sure, low, drop;
	uint16_t hold_tokens, hold_min; /* no decision before hold_min tokens; the decision is due at hold_tokens */
	uint32_t hold_ms;               /* from the first token held */
	uint32_t takeover_ms;           /* the longest wait for the large model after an escalation */
	float share;
	uint32_t floor; /* escalations per minute that are always allowed */
	struct casc_conf_policy conf;
	struct casc_load_policy load;
};

/* The policy of the tier of that name; of an unlisted tier the defaults. */
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
	CASC_WHY_ONLY, /* only one model can answer */
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
	CASC_LARGE_TOKEN, /* a token of the large model; after an escalation, those after the kept ones */
	CASC_SMALL_DONE,
	CASC_LARGE_DONE,
	CASC_SMALL_FAILED,
	CASC_LARGE_FAILED,
	CASC_VERIFIED, /* n: how many of the offered tokens, from the first on, match the large model's */
	CASC_TIMER,    /* casc_due has passed; earlier it has no effect */
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
	CASC_DO_START_SMALL, /* if the plan is CHECK or RACE, with log-probabilities and the CASC_TOP most likely */
	CASC_DO_START_LARGE,
	CASC_DO_HOLD,     /* from here on the small model's tokens are held back */
	CASC_DO_RELEASE,  /* the next n tokens of `model` are shown */
	CASC_DO_ESCALATE, /* start the large model after the prompt and the first `keep` tokens of the small one, which
			     have been sent. The small model's n tokens are a draft, verified from the first on. It
			     continues after the longest matching prefix, at least after keep. n is 0: tokens can't be
			     compared, and it continues after the text of keep */
	CASC_DO_PAUSE_SMALL, /* no more credit; it may resume */
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
	CASC_ONE,    /* one model, shown as it arrives */
	CASC_HELD,   /* the small one, not yet shown */
	CASC_SHOWN,  /* the small one, shown and watched */
	CASC_RACING, /* both; nothing shown */
	CASC_SWITCH, /* the large one has been asked to take over */
	CASC_TAKEN,  /* the large model, shown as it arrives */
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

/* One request. Initially zeroed except for policy; only casc_step writes it. */
struct casc {
	struct casc_policy policy;
	uint8_t phase, plan, why; /* enum casc_phase, casc_plan, casc_why */
	uint8_t escalated;        /* enum casc_reason, 0: not */
	uint8_t held_by;          /* enum casc_held_by: what ended the small model's hold */
	uint32_t held;            /* its tokens at that time */
	bool can_small, can_large, can_verify;
	bool refused;   /* the budget did not allow an escalation */
	bool disagreed; /* shown text is not what the large model would have written */
	uint32_t offered, accepted;
	uint32_t given;                  /* tokens of the small model that the large one computed: draft or context */
	uint32_t lost_prompt, lost_made; /* of a large run that lost a race, if there is a second run */
	uint64_t due_ms;                 /* 0: none */
	struct casc_run small, large;
	struct casc_conf conf;
};
/* Why the hold ended: confidence at least sure; below low; hold_tokens; hold_ms; the answer's end; the large model came
 * first; failure. */
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
/* Takes one event. 0, or SL_EPROTO if the event is impossible in this state: nothing has changed, out is empty, and the
 * caller treats the event's run as failed. budget: the tier's. A cancelled run may still report tokens and its end,
 * even after CASC_DO_END: they are counted and have no other effect. It must not report once another run of that model
 * has started (the large model lost a race, then ESCALATE). */
int casc_step(struct casc *c, struct casc_budget *budget, const struct casc_event *e, struct casc_actions *out);
/* When CASC_TIMER is due; 0: never. */
uint64_t casc_due(const struct casc *c);
/* Checks the invariants between two events; BUG otherwise. */
void casc_check(const struct casc *c);

const char *casc_plan_name(int plan);
const char *casc_why_name(int why);
const char *casc_action_name(int action);
const char *casc_reason_name(int reason);
const char *casc_held_by_name(int held_by);

/* ---- the same request again (cascade/again.c) ---- */

/* What the tokens alone don't determine. Facts are only ever added. */
enum casc_fact {
	CASC_PAST_LARGE_WON = 1,     /* a race: the small model need not start again */
	CASC_PAST_SMALL_WON = 2,     /* a race: the first large run need not start again */
	CASC_PAST_LARGE_LOST = 4,    /* it failed, or was too late: it is to fail at once (the one that is asked to take
				   over,    after SMALL_WON) */
	CASC_PAST_REFUSED = 8,       /* by the budget */
	CASC_PAST_SMALL_FAILED = 16, /* it is to fail again, after `failed` tokens; not after LARGE_WON */
	CASC_PAST_HOLD_TIMED = 32,   /* a hold was ended by its time, after `held` tokens */
};

enum { CASC_PAST_VERSION = 1 };

/* Without pointers, so that it can be stored. Size and version identify another build's layout. */
struct casc_past {
	uint32_t version;
	struct casc_policy policy;
	uint8_t plan, why;
	bool can_small, can_large, can_verify;
	uint8_t facts; /* enum casc_fact */
	uint32_t held, failed;
};

/* For a request that has just been planned. */
void casc_past_begin(struct casc_past *p, const struct casc *c);
/* After a step. True: facts were added, and tokens shown from this step on must not be sent before p is stored.
 */
bool casc_past_note(struct casc_past *p, const struct casc *c);
/* Validates a stored struct. */
bool casc_past_is_sound(const struct casc_past *p);
/* Replaces CASC_START. Given the same tokens, and models that fail or are left out as the facts say, casc_step shows
 * the same tokens of the same models; after them it decides anew, without times and budgets. SL_EINVAL: invalid. */
int casc_start_again(struct casc *c, const struct casc_past *p, uint64_t now_ms, struct casc_actions *out);

/* ---- costs ---- */

/* Rows that a model computed. made = shown + wasted, for each model. */
struct casc_cost {
	uint64_t requests, escalations, races, refused;
	uint64_t small_only; /* requests without work for the large model */
	uint64_t small_prompt, small_made, small_shown, small_wasted;
	uint64_t large_prompt, large_made, large_shown, large_wasted;
	uint64_t large_given;       /* the small model's tokens that it computed: drafts and context */
	uint64_t offered, accepted; /* of the same */
	uint64_t always_large;      /* rows the large model would have computed alone */
};

/* Adds a request's cost so far. Call it once, at the end. */
void casc_cost_add(struct casc_cost *sum, const struct casc *c);
void casc_cost_merge(struct casc_cost *sum, const struct casc_cost *other);
/* Rows of the large model plus the small model's rows, weighted by small_cost. */
uint64_t casc_cost_large(const struct casc_cost *c);
double casc_cost_total(const struct casc_cost *c, double small_cost);
/* 1 - total / always_large; 0 for nothing. */
double casc_cost_saved(const struct casc_cost *c, double small_cost);

/* ---- the log of decisions ---- */

/* One decision with all its inputs. */
struct casc_record {
	uint32_t size; /* sizeof this struct: another version's record can't be replayed */
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

/* casc_step and casc_load_decide that also record into *r. */
int casc_step_recorded(struct casc *c, struct casc_budget *budget, const struct casc_event *e, struct casc_actions *out,
		       struct casc_record *r);
bool casc_load_decide_recorded(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in,
			       struct casc_record *r);
/* Whether these actions contain a decision, not only a released token. */
bool casc_actions_decide(const struct casc_actions *a);
/* Replays the decision. 0: same result; SL_EINVAL: another result; SL_EUNSUPPORTED: another version's record. */
int casc_replay(const struct casc_record *r);

#endif
