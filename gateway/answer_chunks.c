/* SPDX-License-Identifier: Apache-2.0
 *
 * The events that chat and completions have alike: text, a choice's end, usage, [DONE], errors.
 */
#include "gateway/answer.h"

int answer_chunk_text(struct answer *a, struct sl_buf *out, unsigned index, const char *text, size_t n,
		      int (*logprobs_of)(const struct answer_choice *c, struct sl_buf *out))
{
	if (!a->wants_logprobs)
		return sse_content(&a->sse, out, index, text, n, NULL);
	buf_clear(&a->app->list, SIZE_MAX);
	int rc = logprobs_of(&a->choices[index], &a->app->list);
	return rc == 0 ? sse_content(&a->sse, out, index, text, n, &a->app->list) : rc;
}

int answer_chunk_close(struct answer *a, struct sl_buf *out, unsigned index, const char *reason)
{
	const struct sse_about about = answer_about(a, index);
	return sse_finish(&a->sse, out, index, reason, &about);
}

int answer_chunk_end(struct answer *a, struct sl_buf *out)
{
	struct sse_usage u = answer_usage(a);
	int rc = a->include_usage ? sse_usage_event(&a->sse, out, &u) : 0;
	return rc == 0 ? sse_done(out) : rc;
}

int answer_chunk_error(struct answer *a, struct sl_buf *out, const struct api_error *e, const char *message)
{
	(void)a;
	return sse_error(out, e, message);
}
