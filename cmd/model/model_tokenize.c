/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model tokenize`: text to ids and back. FILE is a GGUF file, a tokenizer.json, a SentencePiece model (.model),
 * or a folder with one of the latter two (and what is beside it). With --lines each line of standard input is one JSON
 * value, so thousands of texts can be compared in one run.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/json/json_out.h"
#include "cmd/config/cmd.h"
#include "cmd/model/model.h"
#include "engine/file/gguf.h"
#include "engine/token/tokenizer.h"
#include "gateway/cleanse/cleanse.h"

enum { MAX_TOKENIZER_JSON = 256 << 20, MAX_PATH = 4096 };

/* Empty where there is no such file. */
static int read_if_there(const char *path, struct sl_buf *out, struct sl_err *err)
{
	int rc = model_read(path, MAX_TOKENIZER_JSON, out, err);
	return rc == SL_ENOTFOUND ? 0 : rc;
}

static int open_json(const char *path, const char *config, struct tokenizer **out, struct sl_err *err)
{
	struct sl_buf json, settings;
	buf_init(&settings, 0);
	int rc = model_read(path, MAX_TOKENIZER_JSON, &json, err);
	if (rc == 0 && config != NULL)
		rc = read_if_there(config, &settings, err);
	if (rc == 0)
		rc = tokenizer_create_json((const char *)buf_data(&json), json.len, (const char *)buf_data(&settings),
					   settings.len, out, err);
	buf_dispose(&json);
	buf_dispose(&settings);
	return rc;
}

static int read_beside(const char *folder, const char *name, struct sl_buf *out, struct sl_err *err)
{
	char path[MAX_PATH];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return read_if_there(path, out, err);
}

static struct proto_str text_of(const struct sl_buf *b)
{
	return (struct proto_str){(const char *)buf_data(b), b->len};
}

/* folder: where added_tokens.json and tokenizer_config.json are; NULL: nowhere. */
static int open_spm(const char *path, const char *folder, struct tokenizer **out, struct sl_err *err)
{
	struct sl_buf model, added, config;
	buf_init(&added, 0);
	buf_init(&config, 0);
	int rc = model_read(path, MAX_TOKENIZER_JSON, &model, err);
	if (rc == 0 && folder != NULL)
		rc = read_beside(folder, "added_tokens.json", &added, err);
	if (rc == 0 && folder != NULL)
		rc = read_beside(folder, "tokenizer_config.json", &config, err);
	if (rc == 0)
		rc = tokenizer_create_spm(text_of(&model), text_of(&added), text_of(&config), out, err);
	buf_dispose(&model);
	buf_dispose(&added);
	buf_dispose(&config);
	return rc;
}

static int open_tokenizer(const char *path, struct tokenizer **out, struct sl_err *err)
{
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		char json[MAX_PATH], config[MAX_PATH], model[MAX_PATH];
		snprintf(json, sizeof json, "%s/tokenizer.json", path);
		snprintf(config, sizeof config, "%s/tokenizer_config.json", path);
		snprintf(model, sizeof model, "%s/tokenizer.model", path);
		return stat(json, &st) != 0 && stat(model, &st) == 0 ? open_spm(model, path, out, err)
								     : open_json(json, config, out, err);
	}
	if (model_ends_with(path, ".model"))
		return open_spm(path, NULL, out, err);
	if (model_ends_with(path, ".json"))
		return open_json(path, NULL, out, err);
	struct gguf *g;
	int rc = gguf_open(path, &g, err);
	if (rc != 0)
		return rc;
	rc = tokenizer_create(g, out, err);
	gguf_close(g);
	return rc;
}

struct how {
	bool decoding, by_line, trusted;
	enum cleanse_level cleanse;
};

static int encode_as_is(const struct tokenizer *t, const char *text, size_t n, bool trusted)
{
	struct tok_ids ids = {0};
	uint8_t *trust = trusted && n > 0 ? malloc(n) : NULL;
	if (trust != NULL)
		memset(trust, 1, n);
	int rc = trusted && n > 0 && trust == NULL ? SL_ENOMEM : tokenizer_encode(t, text, n, trust, &ids);
	if (rc == 0) {
		putchar('[');
		for (size_t i = 0; i < ids.n; i++)
			printf(i > 0 ? ",%d" : "%d", (int)ids.ids[i]);
		puts("]");
	}
	free(trust);
	tok_ids_dispose(&ids);
	return rc == 0 ? 0 : model_complain(1, "%s", sl_code_name(rc));
}

static int encode(const struct tokenizer *t, const char *text, size_t n, const struct how *how)
{
	struct sl_buf clean;
	if (how->cleanse == CLEANSE_OFF)
		return encode_as_is(t, text, n, how->trusted);
	buf_init(&clean, SIZE_MAX);
	int rc = cleanse(how->cleanse, text, n, &clean, NULL);
	rc = rc == 0 ? encode_as_is(t, clean.len > 0 ? (const char *)buf_data(&clean) : "", clean.len, how->trusted)
		     : model_complain(1, "%s", sl_code_name(rc));
	buf_dispose(&clean);
	return rc;
}

static int decode(const struct tokenizer *t, const json_t *ids, struct sl_buf *out)
{
	if (!json_is_array(ids))
		return model_complain(1, "standard input is not a JSON array");
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const json_t *id = json_array_get(ids, i);
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= tokenizer_n_vocab(t))
			return model_complain(1, "item %zu is not an id from 0 to %d", i, tokenizer_n_vocab(t) - 1);
		struct proto_str s = tokenizer_bytes(t, (int32_t)json_integer_value(id));
		/* Encoding prefixed the text with a space. */
		size_t skip = i == 0 && s.n > 0 && s.at[0] == ' ' && tokenizer_strips_space(t);
		if (buf_append(out, s.at + skip, s.n - skip) != 0)
			return model_complain(1, "out of memory");
	}
	return 0;
}

static int decode_all(const struct tokenizer *t, const struct sl_buf *in)
{
	struct sl_buf out;
	buf_init(&out, SIZE_MAX / 2);
	json_t *ids = json_loadb((const char *)buf_data(in), in->len, 0, NULL);
	int rc = decode(t, ids, &out);
	if (rc == 0 && out.len > 0)
		fwrite(buf_data(&out), 1, out.len, stdout);
	json_decref(ids);
	buf_dispose(&out);
	return rc;
}

static int one_line(const struct tokenizer *t, const json_t *v, const struct how *how, size_t n)
{
	if (!how->decoding && !json_is_string(v))
		return model_complain(1, "line %zu is not a JSON string", n);
	if (!how->decoding)
		return encode(t, json_string_value(v), json_string_length(v), how);
	struct sl_buf out, json;
	buf_init(&out, SIZE_MAX / 2);
	buf_init(&json, SIZE_MAX / 2);
	int rc = decode(t, v, &out);
	if (rc == 0 && json_out_string(&json, (const char *)buf_data(&out), out.len) != 0)
		rc = model_complain(1, "out of memory");
	if (rc == 0) {
		fwrite(buf_data(&json), 1, json.len, stdout);
		putchar('\n');
	}
	buf_dispose(&out);
	buf_dispose(&json);
	return rc;
}

static int lines(const struct tokenizer *t, const struct sl_buf *in, const struct how *how)
{
	const char *at = (const char *)buf_data(in), *end = at + in->len;
	int rc = 0;
	for (size_t n = 1; at != NULL && at < end && rc == 0; n++) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((nl != NULL ? nl : end) - at);
		json_t *v = json_loadb(at, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		rc = one_line(t, v, how, n);
		json_decref(v);
		at += len + 1;
	}
	return rc;
}

int model_tokenize(int argc, char **argv)
{
	static const char *const levels[] = {"off", "light", "full"};
	struct how how = {0};
	const char *level = "off";
	bool json; /* accepted and ignored: output is always JSON */
	const struct model_option options[] = {{"--decode", OPTION_FLAG, &how.decoding, 0, 0, NULL},
					       {"--lines", OPTION_FLAG, &how.by_line, 0, 0, NULL},
					       {"--trusted", OPTION_FLAG, &how.trusted, 0, 0, NULL},
					       {"--cleanse", OPTION_TEXT, &level, 0, 0, NULL},
					       {"--json", OPTION_FLAG, &json, 0, 0, NULL}};
	int rc = model_options(options, sizeof options / sizeof *options, argc, argv, 3, NULL, 0);
	if (rc != 0)
		return rc;
	while (how.cleanse <= CLEANSE_FULL && strcmp(level, levels[how.cleanse]) != 0)
		how.cleanse++;
	if (how.cleanse > CLEANSE_FULL)
		return model_complain(CMD_EXIT_USAGE, "--cleanse: off, light or full");
	struct sl_err err = {0};
	struct tokenizer *t;
	struct sl_buf in;
	if (open_tokenizer(argv[2], &t, &err) != 0)
		return model_complain(1, "%s", err.text);
	rc = model_read(NULL, MODEL_MAX_INPUT, &in, &err);
	if (rc != 0)
		model_complain(1, "%s", err.text);
	if (rc == 0 && how.by_line)
		rc = lines(t, &in, &how);
	else if (rc == 0 && how.decoding)
		rc = decode_all(t, &in);
	else if (rc == 0)
		rc = encode(t, (const char *)buf_data(&in), in.len, &how);
	buf_dispose(&in);
	tokenizer_destroy(t);
	return rc != 0 ? 1 : model_finish_output();
}
