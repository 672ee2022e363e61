/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes from a gateway into the engine's link. The first byte of the input cuts the rest into
 * pieces, so that frames arrive in every way; behind the link stands a backend that answers each
 * request at once, later or never, chosen by its identifier. A HELLO is sent first by two inputs
 * of three, because a fuzzer hardly finds one.
 */
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "engine/core/link.h"
#include "tests/fuzz/fuzz.h"

static struct link_hub hub;
static uint64_t held[64]; /* requests not answered yet */
static size_t n_held;
static size_t n_credits;

static void tell_done(uint64_t id, uint8_t finish)
{
	struct eng_event ev = {.kind = ENG_DONE, .id = id, .u.done = {.finish = finish}};
	hub_post(&hub, &ev);
}

static int fz_submit(void *be, uint64_t id, const struct proto_submit *req)
{
	(void)be;
	/* Every byte that the request points at must be there. */
	size_t sum = 0;
	for (size_t i = 0; i < req->prompt.n; i++)
		sum += (uint8_t)req->prompt.at[i];
	for (int i = 0; i < req->n_stops; i++)
		sum += (uint8_t)req->stops[i].at[req->stops[i].n - 1];
	for (uint16_t i = 0; i < req->n_given; i++)
		sum += proto_given_at(req, i);
	if (sum % 5 == 0)
		return SL_ELIMIT;
	struct eng_event ev = {.kind = ENG_QUEUED, .id = id};
	hub_post(&hub, &ev);
	if (req->n_given > 0) {
		ev = (struct eng_event){.kind = ENG_VERIFIED,
					.id = id,
					.u.verified = {.n_agreed = req->n_keep / 2u, .n_used = req->n_keep}};
		hub_post(&hub, &ev);
	}
	if (sum % 3 == 0 || n_held == sizeof held / sizeof *held)
		tell_done(id, PROTO_FINISH_STOP);
	else
		held[n_held++] = id;
	return 0;
}

static int fz_count(void *be, uint64_t id, const struct proto_count *req)
{
	(void)be;
	struct eng_event ev = {.kind = ENG_COUNTED, .id = id, .u.counted = {.n_tokens = (uint32_t)req->prompt.n}};
	hub_post(&hub, &ev);
	return 0;
}

static void fz_credit(void *be, uint64_t id, uint32_t n_tokens)
{
	(void)be;
	(void)id;
	n_credits += n_tokens;
}

static void fz_cancel(void *be, uint64_t id)
{
	(void)be;
	for (size_t i = 0; i < n_held; i++) {
		if (held[i] == id) {
			held[i] = held[--n_held];
			tell_done(id, PROTO_FINISH_CANCELLED);
			return;
		}
	}
}

static void fz_stats(void *be, struct proto_stats *out)
{
	(void)be;
	*out = (struct proto_stats){.running = 1};
}

static bool fz_load(void *be, int index, struct proto_load *out)
{
	(void)be;
	*out = (struct proto_load){.model = (uint16_t)index, .of = {{.us_per_place = 1}}};
	return true;
}

static int fz_n_models(void *be)
{
	(void)be;
	return 1;
}

static void fz_model_info(void *be, int index, struct proto_model *out)
{
	(void)be;
	*out =
	    (struct proto_model){.index = (uint16_t)index, .name = {.at = "m", .n = 1}, .reason = {.at = "", .n = 0}};
}

static const struct eng_backend backend = {
    .submit = fz_submit,
    .count = fz_count,
    .credit = fz_credit,
    .cancel = fz_cancel,
    .stats = fz_stats,
    .load = fz_load,
    .n_models = fz_n_models,
    .model_info = fz_model_info,
};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	struct sl_buf b;
	struct proto_submit req = {PROTO_SUBMIT_OFF,
				   .prompt_kind = PROTO_PROMPT_TEXT,
				   .top_p = 1,
				   .max_tokens = 9,
				   .n_stops = 2,
				   .stops = {{.at = "ab", .n = 2}, {.at = "c", .n = 1}},
				   .prompt = {.at = "hello there", .n = i}};
	struct proto_count count = {.prompt_kind = PROTO_PROMPT_TEXT, .prompt = {.at = "count", .n = 5}};
	struct proto_credit credit = {.n_tokens = 5};
	if (i >= 12)
		return 0;
	buf_init(&b, max);
	int rc = buf_append(&b, &(uint8_t){(uint8_t)(i * 25)}, 1);
	for (uint64_t id = 1; id <= i && rc == 0; id++) {
		req.n_given = (uint16_t)(id % 3);
		req.n_keep = req.n_given / 2;
		req.given = (const uint32_t[]){7, 70000};
		rc = proto_put_submit(&b, id, &req);
		if (rc == 0 && id % 2 == 0)
			rc = proto_put_credit(&b, id, &credit);
		if (rc == 0 && id % 3 == 0)
			rc = proto_put_cancel(&b, id - 1);
	}
	if (rc == 0)
		rc = proto_put_count(&b, 77, &count);
	if (rc == 0)
		rc = proto_put_ping(&b, 3);
	size_t n = rc == 0 ? b.len : 0;
	if (n > 0)
		memcpy(out, buf_data(&b), n);
	buf_dispose(&b);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct eng_link *l;
	if (size < 1)
		return 0;
	log_init("fuzz", LOG_ERROR);
	if (hub_init(&hub, 1) != 0)
		return 0;
	hub_attach(&hub, &backend, NULL);
	if (link_create(&hub, &l) != 0) {
		hub_dispose(&hub);
		return 0;
	}
	if (data[0] % 3 != 0) {
		struct sl_buf hello;
		struct proto_hello h = {.version = PROTO_VERSION, .name = {.at = "", .n = 0}};
		buf_init(&hello, 4096);
		if (proto_put_hello(&hello, &h) == 0)
			link_feed(l, buf_data(&hello), hello.len);
		buf_dispose(&hello);
	}
	size_t piece = (size_t)data[0] * 7 + 1;
	for (size_t at = 1; at < size && !l->finished; at += piece) {
		link_feed(l, data + at, size - at < piece ? size - at : piece);
		hub_deliver(&hub);
		hub_send_stats(&hub);
	}
	/* Everything that came out are whole frames. */
	while (l->out.len > 0) {
		struct proto_head head;
		struct sl_err err;
		BUG_IF(l->out.len < PROTO_HEAD_BYTES, "half a head");
		BUG_IF(proto_head_read(buf_data(&l->out), &head, &err) != 0, "%s", err.text);
		BUG_IF(l->out.len < PROTO_HEAD_BYTES + head.length, "half a frame");
		buf_consume(&l->out, PROTO_HEAD_BYTES + head.length);
	}
	link_destroy(l);
	hub_deliver(&hub);
	BUG_IF(hub_n_live(&hub) != 0 || n_held != 0, "%zu requests are left", hub_n_live(&hub));
	hub_dispose(&hub);
	return 0;
}
