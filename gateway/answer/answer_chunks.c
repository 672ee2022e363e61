/* SPDX-License-Identifier: Apache-2.0
 *
 * What chat and completions have alike: text, a choice's end, usage, [DONE], errors, and the whole as one object.
 */
#include <string.h>

#include "base/json/json_out.h"
#include "gateway/answer/answer.h"

int answer_chunk_text(struct answer *a, struct sl_buf *out, unsigned index, const char *text, size_t n,
		      int (*logprobs_of)(const struct answer_choice *c, struct sl_buf *out))
{
	const struct sl_buf *list = NULL;
	struct sl_buf more;
	int rc = 0;
	if (!a->out.wants_logprobs && !a->out.token_ids)
		return sse_content(&a->out.sse, out, index, text, n, NULL);
	buf_init(&more, ANSWER_MAX_EXTRAS);
	if (a->out.wants_logprobs) {
		buf_clear(&a->app->list, SIZE_MAX);
		list = &a->app->list;
		rc = logprobs_of(&a->choices[index], &a->app->list);
	}
	if (rc == 0)
		rc = answer_put_extras(a, &a->choices[index], false, &more);
	if (rc == 0)
		rc = sse_content_more(&a->out.sse, out, index, text, n, list, &more);
	buf_dispose(&more);
	return rc;
}

int answer_chunk_close(struct answer *a, struct sl_buf *out, unsigned index, const char *reason)
{
	const struct sse_about about = answer_about(a, index);
	struct sl_buf more;
	buf_init(&more, ANSWER_MAX_EXTRAS);
	int rc = a->choices[index].stop != 0 ? answer_put_extras(a, &a->choices[index], true, &more) : 0;
	if (rc == 0)
		rc = sse_finish(&a->out.sse, out, index, reason, &about, &more);
	buf_dispose(&more);
	return rc;
}

int answer_chunk_end(struct answer *a, struct sl_buf *out)
{
	struct sse_usage u = answer_usage(a);
	int rc = a->out.include_usage ? sse_usage_event(&a->out.sse, out, &u) : 0;
	return rc == 0 ? sse_done(out) : rc;
}

int answer_chunk_error(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message)
{
	(void)a;
	return sse_error(out, e, message);
}

int answer_chunk_whole(struct answer *a, struct sl_buf *out, const char *object,
		       int (*put_choice)(struct answer *a, struct sl_buf *out, unsigned index))
{
	const struct sse_about about = answer_about(a, ANSWER_ALL);
	struct sse_usage u = answer_usage(a);
	int rc = buf_append_str(out, "{\"id\":\"");
	if (rc == 0)
		rc = buf_append_str(out, a->id);
	if (rc == 0)
		rc = buf_append_str(out, "\",\"object\":\"");
	if (rc == 0)
		rc = buf_append_str(out, object);
	if (rc == 0)
		rc = buf_append_str(out, "\",\"created\":");
	if (rc == 0)
		rc = buf_append_uint(out, (uint64_t)a->created);
	if (rc == 0)
		rc = buf_append_str(out, ",\"model\":");
	if (rc == 0)
		rc = json_out_string(out, a->model, strlen(a->model));
	if (rc == 0)
		rc = buf_append_str(out, ",\"system_fingerprint\":null,\"choices\":[");
	for (unsigned i = 0; rc == 0 && i < answer_n_choices(a); i++)
		rc = put_choice(a, out, i);
	if (rc == 0)
		rc = buf_append_str(out, "],\"usage\":");
	if (rc == 0)
		rc = usage_print(out, &u);
	if (rc == 0 && a->format == &answer_chat)
		rc = answer_put_prompt(a, &a->runs[0], out);
	if (rc == 0)
		rc = sse_about_print(out, &about);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}
