/* SPDX-License-Identifier: Apache-2.0
 *
 * Models as Ollama's API describes them, as far as the gateway knows them. The files belong to the engine, so the size
 * is 0 and the digest is that of the name.
 */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/json/json_out.h"
#include "base/parts/parts_format.h"
#include "gateway/dialect/dialect.h"

static const int64_t far_s = INT64_C(100) * 365 * 86400; /* models stay */

const char *ollama_model_name(const struct engine_link *l, const char *name, char room[PROTO_MAX_NAME + 1])
{
	static const char tag[] = ":latest";
	size_t n = strlen(name), n_tag = sizeof tag - 1;
	if (n <= n_tag || n - n_tag > PROTO_MAX_NAME || strcmp(name + n - n_tag, tag) != 0 ||
	    engine_link_find_model(l, name) >= 0)
		return name;
	memcpy(room, name, n - n_tag);
	room[n - n_tag] = '\0';
	return room;
}

/* "7.6B" */
static int put_parameters(struct sl_buf *out, uint64_t n)
{
	if (n >= 1000000000)
		return buf_printf(out, "\"%.1fB\"", (double)n / 1e9);
	return n >= 1000000 ? buf_printf(out, "\"%.1fM\"", (double)n / 1e6)
			    : buf_printf(out, "\"%lluK\"", (unsigned long long)n / 1000);
}

static int put_details(struct sl_buf *out, const struct link_model *m)
{
	int rc =
	    buf_append_str(out, "\"details\":{\"parent_model\":\"\",\"format\":\"\",\"family\":\"\",\"families\":[],"
				"\"parameter_size\":");
	if (rc == 0)
		rc = put_parameters(out, m->n_params);
	return rc == 0 ? buf_append_str(out, ",\"quantization_level\":\"\"}") : rc;
}

int ollama_put_model(struct sl_buf *out, const struct link_model *m, int64_t created_s, bool running)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];
	char hex[2 * sizeof digest + 1], at[DIALECT_TIME_BYTES];
	SHA256((const uint8_t *)m->name, strlen(m->name), digest);
	hex_put(digest, sizeof digest, hex);
	dialect_time(running ? created_s + far_s : created_s, 0, at);
	int rc = buf_append_str(out, "{\"name\":");
	if (rc == 0)
		rc = json_out_string(out, m->name, strlen(m->name));
	if (rc == 0)
		rc = buf_append_str(out, ",\"model\":");
	if (rc == 0)
		rc = json_out_string(out, m->name, strlen(m->name));
	if (rc == 0)
		rc = buf_printf(out, ",\"%s\":\"%s\",\"size\":0,%s\"digest\":\"%s\",",
				running ? "expires_at" : "modified_at", at, running ? "\"size_vram\":0," : "", hex);
	if (rc == 0 && running)
		rc = buf_printf(out, "\"context_length\":%u,", m->n_ctx);
	if (rc == 0)
		rc = put_details(out, m);
	return rc == 0 ? buf_append_str(out, "}") : rc;
}

static int put_capabilities(struct sl_buf *out, const struct link_model *m)
{
	bool generates = (m->does & PROTO_DOES_GENERATE) != 0;
	const struct {
		const char *name;
		bool has;
	} all[] = {
	    {"completion", generates},
	    {"tools", generates && m->parts.format != PARTS_PLAIN},
	    {"thinking", generates && (m->parts.reasoning != PARTS_REASONING_NONE || m->parts.format == PARTS_HARMONY)},
	    {"embedding", (m->does & PROTO_DOES_EMBED) != 0}};
	int n = 0, rc = buf_append_str(out, "\"capabilities\":[");
	for (size_t i = 0; i < sizeof all / sizeof *all && rc == 0; i++)
		if (all[i].has)
			rc = buf_printf(out, "%s\"%s\"", n++ > 0 ? "," : "", all[i].name);
	return rc == 0 ? buf_append_str(out, "]") : rc;
}

int ollama_put_show(struct sl_buf *out, const struct link_model *m, int64_t created_s)
{
	char at[DIALECT_TIME_BYTES];
	dialect_time(created_s, 0, at);
	int rc = buf_append_str(out, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\",");
	if (rc == 0)
		rc = put_details(out, m);
	if (rc == 0)
		rc = buf_printf(out,
				",\"model_info\":{\"general.architecture\":\"sluice\",\"general.parameter_count\":%llu,"
				"\"sluice.context_length\":%u,\"sluice.embedding_length\":%u},",
				(unsigned long long)m->n_params, m->n_ctx, m->n_embd);
	if (rc == 0)
		rc = put_capabilities(out, m);
	return rc == 0 ? buf_printf(out, ",\"modified_at\":\"%s\"}", at) : rc;
}
