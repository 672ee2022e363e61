/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of the model "auto": which models they may use, how they are submitted, and what clients learn of the choice.
 * Included by answer.h.
 */
#ifndef GATEWAY_ANSWER_CASCADE_H
#define GATEWAY_ANSWER_CASCADE_H

#include <limits.h>
#include <stdbool.h>

#include "gateway/cascade/cascade_run.h"

struct answer;
struct answer_run;
struct answer_spec;
struct exchange;
struct gw_app;
struct gw_snapshot;
struct gw_tier_config;
struct sse_about;

/* What requests call it. */
extern const char answer_auto_name[];
/* What a spec's model is, instead of an index. */
enum { ANSWER_AUTO = PROTO_MAX_MODELS };
/* Instead of a choice's index: all of them. */
#define ANSWER_ALL UINT_MAX

/* The models of the roles small and large, as the tier may use them now. False: there is no such pair, or not for
 * this tier. */
bool answer_auto_find(const struct gw_app *app, const struct gw_snapshot *now, const struct gw_tier_config *tier,
		      struct cascade_models *out);
/* Of ANSWER_AUTO the model with the larger context, of those that x may use; any other is itself. */
int answer_longest_model(const struct exchange *x, int model);
/* The model that is probably asked first. */
int answer_auto_model(const struct gw_app *app, const struct gw_snapshot *now, const struct gw_tier_config *tier);
/* a is of the model "auto". */
void answer_auto_init(struct answer *a);
/* gen_start's part for run. SL_ENOTFOUND: none of its models can answer now. */
int answer_auto_submit(struct answer *a, struct answer_run *run, struct submit_frame *frame,
		       const struct proto_submit *s);
/* The engine has reported how long newcomers wait. */
void answer_auto_load(const struct gw_app *app);
/* Metadata sent with the end of choice `index`, over all prompts; of the whole answer (ANSWER_ALL): the first one's
 * and, where there are several, a list of each one's. Texts are the answer's, until the next call. */
void answer_auto_about(struct answer *a, unsigned index, struct sse_about *out);
/* For the access log and the record, at its end: written into line, which is returned; "": it is no cascade. */
const char *answer_auto_line(const struct answer *a, char *line, size_t room);

#endif
