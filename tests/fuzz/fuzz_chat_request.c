/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of chat requests: an accepted one gives a submit that the protocol takes, a refused one a
 * message of valid UTF-8.
 */
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "gateway/chat_request.h"
#include "tests/fuzz/fuzz.h"

static const char *const seeds[] = {
	"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
	"{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"\\ud83d\\ude00\"}]}],"
	"\"stream\":true,\"stream_options\":{\"include_usage\":true},\"stop\":[\"a\",\"b\"],\"seed\":-1,\"top_p\":0.5,"
	"\"temperature\":1e-1,\"max_tokens\":3,\"n\":1,\"logit_bias\":{},\"tools\":[]}",
	"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}],\"stop\":null}",
};

size_t fuzz_seed(size_t i, uint8_t *out, size_t max)
{
	if (i >= sizeof seeds / sizeof *seeds || strlen(seeds[i]) > max)
		return 0;
	memcpy(out, seeds[i], strlen(seeds[i]));
	return strlen(seeds[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const struct request_limits limits = {.messages = 16, .json_depth = 16};
	struct chat_request r;
	struct request_error e;
	int rc = chat_request_parse(data, n, &limits, &r, &e);
	if (rc != 0) {
		FUZZ_REQUIRE(rc == SL_EINVAL);
		FUZZ_REQUIRE(e.message[0] != '\0' && utf8_valid(e.message, strlen(e.message)));
		FUZZ_REQUIRE(utf8_valid(e.param, strlen(e.param)));
		return 0;
	}
	FUZZ_REQUIRE(utf8_valid(r.c.submit.prompt.at, r.c.submit.prompt.n));
	struct sl_buf frame;
	buf_init(&frame, PROTO_MAX_PAYLOAD + 64);
	request_limit_tokens(&r.c, 1);
	FUZZ_REQUIRE(proto_put_submit(&frame, 1, &r.c.submit) == 0);
	buf_dispose(&frame);
	chat_request_dispose(&r);
	return 0;
}
