/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: the cascade's decisions. Which of two models answers a request, when is the small model's answer shown, and
 * when does the large model take over? Pure: no I/O, no clock (times are arguments, in milliseconds of any monotonic
 * clock), no allocation except in casc_scorer_create. The caller performs the actions and reports their results as
 * events.
 *
 *   request   casc_score ────────────── how difficult it looks, 0 to 1, or the model that a rule names
 *             casc_load_decide ──────── whether its tier is degraded to the small model now
 *             casc_step(CASC_START) ─── the plan: small, large, check (small, watched) or race (both)
 *   events    casc_step ─────────────── actions, to be performed in order (states and transitions: decide.c)
 *
 * A decision's inputs are structs without pointers, so it can be recorded and replayed (casc_record).
 *
 * Token counts are of each model's own output. An answer is tokens of the small model followed by tokens of the large
 * one. Either may be empty. There is at most one switch, and shown tokens are never withdrawn.
 *
 * Thread: any; each struct belongs to one thread at a time. Callers: gateway/cascade, cmd.
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
	const char *text; /* UTF-8; invalid bytes are harmless */
	size_t n;
};

struct casc_ask {
	const struct casc_message *messages; /* borrowed */
	size_t n_messages;
	uint32_t n_tools;
	uint32_t max_tokens; /* requested; 0: not given */
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
struct casc_reference; /* cascade/weights.h */
enum casc_disagree { CASC_CONTINUE, CASC_TELL_IT };

/* cascade.tiers: */
struct casc_tier_setting {
	char *name;
	int mode; /* enum casc_mode */
	/* Scores: below easy the small model alone, from race on both, from hard on the large model alone. */
	double easy, race, hard;
	int thresholds; /* 1: easy and hard are those of the weights, where these have some */
	/* Confidence: from sure on the answer is shown at once; below low it is not shown; below drop the large model
	 * takes over a shown answer. */
	double sure, low, drop;
	uint64_t target_ttft_ms; /* degrades the tier if the large model's predicted TTFT is above it; 0: never */
	bool tell_degraded;      /* notifies clients that asked for it */
	int disagree;            /* enum casc_disagree */
	double share;            /* of the tier's requests of the last minute, the share that may be escalated */
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

/* Rows of the lists for the configuration schema; each ends with key == NULL. */
extern const struct conf_row casc_cue_rows[], casc_rule_rows[], casc_tier_rows[];
/* Checks what rows cannot express. key: buffer for the wrong key, relative to "cascade.". 0, or SL_EINVAL with *err. */
int casc_settings_check(const struct casc_settings *s, char *key, size_t key_size, struct sl_err *err);

/* ---- score ---- */

struct casc_scorer; /* cues, rules and weights; immutable, any thread */

/* Copies what it needs from s; reads the weights file. 0 or a code with *err. */
int casc_scorer_create(const struct casc_settings *s, struct casc_scorer **out, struct sl_err *err);
void casc_scorer_destroy(struct casc_scorer *s);

struct casc_score {
	float plain;       /* without rules */
	float score;       /* probability that the small model's answer is not good enough */
	int rule;          /* the first rule that names a model, or -1 */
	const char *model; /* the model it names (borrowed from the scorer), or NULL */
};

/* What its weights were fitted to; NULL: that is not known. */
const struct casc_reference *casc_scorer_reference(const struct casc_scorer *s);
void casc_score(const struct casc_scorer *s, const struct casc_ask *ask, struct casc_score *out);

/* ---- drift: have the requests changed since the weights were fitted? ---- */

enum { CASC_DRIFT_BINS = 10, CASC_DRIFT_MEMORY = 2000, CASC_DRIFT_LEAST = 300 };

/* Shares of recent scores in equal parts of 0..1, where each request counts 1/CASC_DRIFT_MEMORY less than the next.
 * Initially zeroed. */
struct casc_drift {
	double weight[CASC_DRIFT_BINS];
	uint64_t n;
};

void casc_drift_add(struct casc_drift *d, float plain_score);
/* The population stability index against the reference, sum of (p - q) ln(p / q): below 0.1 nothing has changed, above
 * 0.25 much has (Siddiqi, "Credit Risk Scorecards", 2006). 0 below CASC_DRIFT_LEAST requests. */
double casc_drift_index(const struct casc_drift *d, const struct casc_reference *ref);

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
	bool better_degraded;                  /* a tier of higher priority is degraded, so this one is, too */
};

/* Updates the state with the prediction. True: this request uses the small model only. */
bool casc_load_decide(struct casc_load *l, const struct casc_load_policy *p, const struct casc_load_in *in);
/* Is the tier degraded? For better_degraded of tiers of lower priority, and for a gauge. */
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
/* If the tier's thresholds are fitted ones: easy and hard as they pay by ref; NULL: as they are. race stays between. */
void casc_policy_fit(const struct casc_settings *s, const char *tier, const struct casc_reference *ref,
		     struct casc_policy *out);

enum casc_model { CASC_NEITHER, CASC_SMALL, CASC_LARGE };

struct casc_plan_in {
	float score;
	uint8_t forced;                      /* enum casc_model: what a rule or the request names */
	bool can_small, can_large;           /* ready, allowed for the tier, the prompt fits */
	bool can_watch;                      /* one plain choice: it has log-probabilities and can be held */
	bool can_verify;                     /* same tokenizer: the large model can verify the small model's tokens */
	bool degraded;                       /* casc_load_decide's answer */
	bool wants_to_know;                  /* its client asked for a notice of degradation */
	uint32_t prompt_small, prompt_large; /* tokens, for costs */
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
	CASC_TIMER,    /* casc_due has passed; before that, no effect */
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
	CASC_DO_HOLD,        /* the small model's tokens are held from here on */
	CASC_DO_RELEASE,     /* the next n tokens of `model` are shown */
	CASC_DO_ESCALATE,    /* start the large model after the prompt and the small model's first `keep` tokens, which
				are shown. The small model's n tokens are a draft. The large model continues after the
				longest prefix of it that it accepts, at least after keep. n is 0: tokens can't be
				compared; it continues after the text of keep */
	CASC_DO_PAUSE_SMALL, /* no more credit; it may resume */
	CASC_DO_RESUME_SMALL,
	CASC_DO_CANCEL_SMALL,
	CASC_DO_CANCEL_LARGE,
	CASC_DO_TELL, /* n: enum casc_tell; keep: at which token */
	CASC_DO_END,  /* n: enum casc_end. The last action */
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
	CASC_HELD,   /* the small model, not shown yet */
	CASC_SHOWN,  /* the small model, shown and watched */
	CASC_RACING, /* both models, nothing shown yet */
	CASC_SWITCH, /* the large model is to take over */
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
	uint8_t escalated;        /* enum casc_reason */
	uint8_t held_by;          /* enum casc_held_by: what ended the small model's hold */
	uint32_t held;            /* the small model's tokens at that time */
	bool can_small, can_large, can_verify;
	bool refused;   /* the budget did not allow an escalation */
	bool disagreed; /* the large model did not accept all shown tokens */
	uint32_t offered, accepted;
	uint32_t given;                  /* tokens of the small model that the large one computed: draft or context */
	uint32_t lost_prompt, lost_made; /* of the large model's first run, which lost a race, if there is a second */
	uint64_t due_ms;                 /* 0: none */
	struct casc_run small, large;
	struct casc_conf conf;
};
/* What ended the hold: confidence (sure, low), hold_tokens, hold_ms, the end of the answer, the large model's first
 * token, a failure. */
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
/* Handles one event. 0, or SL_EPROTO if it is impossible in this state: nothing has changed, out is empty, and the
 * caller treats the event's run as failed. budget: the tier's. A cancelled run may still report tokens and its end,
 * even after CASC_DO_END: they are only counted. It must not report after another run of the same model has started
 * (ESCALATE after the large model lost a race). */
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

/* ---- repeating a request (again.c) ---- */

/* What tokens alone do not determine. Facts are only added. */
enum casc_fact {
	CASC_PAST_LARGE_WON = 1,  /* a race: the small model need not start again */
	CASC_PAST_SMALL_WON = 2,  /* a race: the first large run need not start again */
	CASC_PAST_LARGE_LOST = 4, /* it failed or was late, so it must fail at once; after SMALL_WON, the second run */
	CASC_PAST_REFUSED = 8,    /* the budget did not allow an escalation */
	CASC_PAST_SMALL_FAILED = 16, /* it must fail again after `failed` tokens; not after LARGE_WON */
	CASC_PAST_HOLD_TIMED = 32,   /* hold_ms ended the hold after `held` tokens */
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

/* Call it right after the plan. */
void casc_past_begin(struct casc_past *p, const struct casc *c);
/* Call it after each step. True: facts were added; tokens shown by this step must not be sent before p is stored. */
bool casc_past_note(struct casc_past *p, const struct casc *c);
/* Validates a stored struct. */
bool casc_past_is_sound(const struct casc_past *p);
/* Replaces CASC_START. With the same tokens, and with models that fail or are omitted as the facts require, casc_step
 * shows the same tokens of the same models. After them it decides anew, without clocks and budgets. SL_EINVAL: p is
 * invalid. */
int casc_start_again(struct casc *c, const struct casc_past *p, uint64_t now_ms, struct casc_actions *out);

/* ---- costs ---- */

/* Rows that a model computed. made = shown + wasted, for each model. */
struct casc_cost {
	uint64_t requests, escalations, races, refused;
	uint64_t small_only; /* requests that the large model did not work on */
	uint64_t small_prompt, small_made, small_shown, small_wasted;
	uint64_t large_prompt, large_made, large_shown, large_wasted;
	uint64_t large_given;       /* the small model's tokens that it computed: drafts and context */
	uint64_t offered, accepted; /* draft tokens */
	uint64_t always_large;      /* rows that the large model alone would have computed */
};

/* Adds a request's cost. Call it once, at the end. */
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
/* Do these actions contain a decision, and not only released tokens? */
bool casc_actions_decide(const struct casc_actions *a);
/* Replays the decision. 0: same result; SL_EINVAL: another result; SL_EUNSUPPORTED: another version's record. */
int casc_replay(const struct casc_record *r);

#endif
