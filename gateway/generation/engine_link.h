/* SPDX-License-Identifier: Apache-2.0
 *
 * A gateway thread's link to its engines: a connection to each process (engine_conn.h), and one list of models over all
 * of them. A model's name is in the list once; the engines that have it are its candidates, and each SUBMIT and COUNT
 * goes to one of them (routing.h). A sequence's identifier says on which connection it is, so callers need not know: to
 * them the engines are one. When a connection ends, the sequences on it, and no others, get a `lost` event at once; a
 * listener may submit again in the call, to another engine. The link knows no HTTP and no generations: it has
 * sequences, each with a listener.
 *
 * Engines with the same name of a model must have the same model: one whose tokenizer differs from that of an engine
 * before it is no candidate, and is logged.
 */
#ifndef GATEWAY_ENGINE_LINK_H
#define GATEWAY_ENGINE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "gateway/generation/hedge.h"
#include "gateway/generation/link_model.h"
#include "gateway/generation/routing.h"

struct engine_link;
struct gw_thread;

enum { ENGINE_LINK_MAX = GW_MAX_ENGINES };
#define ENGINE_LINK_FIRST "engine" /* the first one's name */

int engine_link_create(struct gw_thread *t, const char *socket_path, struct engine_link **out, struct sl_err *err);
/* One more engine, before the loop runs again. SL_ELIMIT: there are ENGINE_LINK_MAX. */
int engine_link_add(struct engine_link *l, const char *name, const char *socket_path, struct sl_err *err);
/* enum gw_engine_role; at first all have GW_ENGINE_BOTH. One of role prefill gets a request only if no other engine can
 * serve it; what one of role auto is, role_planner.h says. Before the loop runs. */
void engine_link_set_role(struct engine_link *l, int engine, int role);
/* Every sequence gets on_lost first. */
void engine_link_destroy(struct engine_link *l);

/* The list begins with these names, whichever engine comes first; those that none has yet are not shown. Before the
 * loop runs. */
void engine_link_expect(struct engine_link *l, const char *const *names, int n);
/* The engines, in the order of the configuration. */
int engine_link_n_engines(const struct engine_link *l);
const char *engine_link_name(const struct engine_link *l, int engine);
bool engine_link_engine_up(const struct engine_link *l, int engine);

/* An engine can serve a request for it now. */
bool engine_link_serves(const struct engine_link *l, int model);
/* To an engine at least. */
bool engine_link_up(const struct engine_link *l);
/* How long the first connection waits before it connects again, once it has ended. */
unsigned engine_link_backoff_ms(const struct engine_link *l);
/* Of the engines that it is or was connected to: changes with every start of one. 0: none yet. */
uint64_t engine_link_epoch(const struct engine_link *l);
/* Models as last announced; kept while all their engines are down (state then reads LOADING). READY: an engine can
 * serve it. Some indexes may have no name: nobody has that model any more, or not yet. */
int engine_link_n_models(const struct engine_link *l);
const struct link_model *engine_link_model(const struct engine_link *l, int index);
/* By its name; or an adapter, which is BASE:NAME, by its own NAME if no other has it. -1: none. */
int engine_link_find_model(const struct engine_link *l, const char *name);
/* An adapter's base; NULL: m is none. */
const struct link_model *engine_link_parent(const struct engine_link *l, const struct link_model *m);
/* Added up over the engines; averages and the device are the first one's. */
const struct proto_stats *engine_link_stats(const struct engine_link *l);
/* The last ones of a model, added up; zeros while the link is down. */
const struct proto_figures *engine_link_figures(const struct engine_link *l, int model);
/* False: so many requests for it fail on the engines that get its requests that none of them gets one more now.
 * *retry_ms: when one would. */
bool engine_link_admits(const struct engine_link *l, int model, uint64_t *retry_ms);
/* Until the first token of a request that came now, as the model's engines last reported (LOAD) and with what was
 * submitted here since; of the engine where that is soonest. 0 too when nothing is known. */
uint64_t engine_link_wait_ms(const struct engine_link *l, int model, uint8_t priority);
/* An engine that has it reported nothing running or waiting in its last LOAD, and got nothing since. */
bool engine_link_idle(const struct engine_link *l, int model);
/* While none is free for this priority: in so many microseconds a place becomes free, on the average. */
uint64_t engine_link_place_us(const struct engine_link *l, int model, uint8_t priority);
/* on_load is called with each LOAD of a model: the best of its engines' figures, by priority. */
void engine_link_on_load(struct engine_link *l, void (*on_load)(void *ctx, const struct proto_load *m), void *ctx);
/* on_state is called when a connection has gone down and when a model's state was reported. */
void engine_link_on_state(struct engine_link *l, void (*on_state)(void *ctx), void *ctx);

/* ---- prompts that are computed apart (hand_over.h) ---- */

/* Now: not GW_ENGINE_AUTO. */
int engine_link_role(const struct engine_link *l, int engine);
/* Its configured role is auto. */
bool engine_link_role_moves(const struct engine_link *l, int engine);
/* Of a sequence; -1: it has none. */
int engine_link_engine_of(const struct engine_link *l, uint64_t id);
/* The engine of role prefill with the fewest requests that can compute prompts of the model for others, and whose
 * errors do not limit it; -1: none. */
int engine_link_prefiller(const struct engine_link *l, int model);
/* Can this engine take pages of the model's prompts from others? */
bool engine_link_hands_over(const struct engine_link *l, int model, int engine);
size_t engine_link_n_active(const struct engine_link *l, int engine);
/* As engine_link_submit, to this engine. */
int engine_link_submit_at(struct engine_link *l, int engine, const struct proto_submit *req,
			  const struct link_listener *listener, void *ctx, uint64_t *id);
void engine_link_hand(struct engine_link *l, uint64_t id, const struct proto_hand *m);

/* ---- hedges (hedge.h) ---- */

struct hedging *engine_link_hedging(struct engine_link *l);
/* An engine that gets requests for the model, has nothing to do and is not this one; -1: none. */
int engine_link_idle_beside(const struct engine_link *l, int model, int engine);

/* Why the last sequence that was submitted went where it did. */
const struct route_choice *engine_link_choice(const struct engine_link *l);
/* Digests of prefixes that the engine has published. */
size_t engine_link_n_prefixes(const struct engine_link *l, int engine);
const struct proto_stats *engine_link_engine_stats(const struct engine_link *l, int engine);
/* Starts a sequence; *id is its identifier on this link. SL_ECLOSED when no engine that has the model is connected,
 * SL_ELIMIT when too much is waiting to be written. The listener and ctx are borrowed until the
 * sequence's end or engine_link_forget. */
int engine_link_submit(struct engine_link *l, const struct proto_submit *req, const struct link_listener *listener,
		       void *ctx, uint64_t *id);
/* Frames of it that come together with others are delivered together with those of the same lane (frame_order.h), and
 * behind each lane's its output goes out (gw_run_output). 0, and at first: of none. */
void engine_link_lane(struct engine_link *l, uint64_t id, uint32_t lane);
void engine_link_credit(struct engine_link *l, uint64_t id, uint32_t n_tokens);
/* How long a model on demand stays in memory without work (base/proto), on all its engines. Nothing while one is down,
 * or while too much waits to be written. */
void engine_link_keep(struct engine_link *l, const struct proto_keep *k);
/* The engine's log gets this process's levels; lost like keep. */
void engine_link_levels(struct engine_link *l);
/* What the engine stores of a tenant's texts is erased. Remembered while the link is down. */
void engine_link_erase(struct engine_link *l, uint64_t tenant);
/* Counts a prompt's tokens, whatever their number. counted is called once, from the loop: m NULL, the engine
 * has gone. SL_ECLOSED, SL_ELIMIT as above. */
int engine_link_count(struct engine_link *l, const struct proto_count *req,
		      void (*counted)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id);
/* Loads or unloads an adapter on all engines that are connected and have its base (adapter_asks.h); one that is not
 * has, when it comes back, what its configuration and its watched folders have. done and the errors are as counted and
 * those of a count, and engine_link_uncount serves for it, too. Models have changed when done is called. */
int engine_link_adapter(struct engine_link *l, const struct proto_adapter *req,
			void (*done)(void *ctx, const struct proto_counted *m), void *ctx, uint64_t *id);
/* counted will not come. Nothing when it has. */
void engine_link_uncount(struct engine_link *l, uint64_t id);
/* Cancels and forgets: no further call for it, also not on_done. */
void engine_link_forget(struct engine_link *l, uint64_t id);
/* Cancels; stopped is called once, when the engine has confirmed it or has gone. */
void engine_link_abandon(struct engine_link *l, uint64_t id, void (*stopped)(void *ctx), void *ctx);

#endif
