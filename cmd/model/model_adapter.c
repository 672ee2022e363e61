/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model adapter`: describes a low-rank adapter, merges it into its base, writes a random one. engine/adapter
 * does the work.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/out_file.h"
#include "cmd/config/cmd.h"
#include "cmd/model/model.h"
#include "engine/adapter/adapter_make.h"
#include "engine/adapter/adapter_merge.h"

/* ---- inspect ---- */

/* Matrices of one target. */
struct spread {
	int n, least, most;
	float least_scale, most_scale;
};

static void count(struct spread *s, const struct adapter_matrix *m)
{
	if (m->rank == 0)
		return;
	s->least = s->n == 0 || m->rank < s->least ? m->rank : s->least;
	s->most = m->rank > s->most ? m->rank : s->most;
	s->least_scale = s->n == 0 || m->scale < s->least_scale ? m->scale : s->least_scale;
	s->most_scale = s->n == 0 || m->scale > s->most_scale ? m->scale : s->most_scale;
	s->n++;
}

static struct spread spread_of(const struct adapter *a, enum adapter_target t)
{
	struct spread s = {0};
	for (int i = 0; i < adapter_n_layers(a); i++) {
		count(&s, adapter_at(a, i, t));
		for (int e = 0; e < adapter_n_experts(a, i, t); e++)
			count(&s, adapter_expert(a, i, t, e));
	}
	return s;
}

static void print_text(const struct adapter *a)
{
	printf("form         %s\n", adapter_form(a));
	printf("base         %s\n", adapter_base_name(a)[0] != '\0' ? adapter_base_name(a) : "(not named)");
	printf("bytes        %llu\n", (unsigned long long)adapter_bytes(a));
	printf("layers       %d\n", adapter_n_layers(a));
	for (int t = 0; t < ADAPTER_TARGETS; t++) {
		struct spread s = spread_of(a, (enum adapter_target)t);
		if (s.n == 0)
			continue;
		printf("%-12s %d %s, rank %d", adapter_target_name((enum adapter_target)t), s.n,
		       s.n == 1 ? "matrix" : "matrices", s.least);
		if (s.most > s.least)
			printf(" to %d", s.most);
		printf(", scale %g", (double)s.least_scale);
		if (s.most_scale > s.least_scale)
			printf(" to %g", (double)s.most_scale);
		putchar('\n');
	}
}

/* Layer and expert -1: it has none. */
static void append(json_t *list, const struct adapter_matrix *m, int layer, int expert)
{
	if (m->rank == 0)
		return;
	json_t *o = json_pack("{s:i, s:f, s:i, s:i}", "rank", m->rank, "scale", (double)m->scale, "inputs", m->n_in,
			      "outputs", m->n_out);
	if (layer >= 0)
		json_object_set_new(o, "layer", json_integer(layer));
	if (expert >= 0)
		json_object_set_new(o, "expert", json_integer(expert));
	json_array_append_new(list, o);
}

static int print_json(const struct adapter *a)
{
	json_t *targets = json_object();
	for (int t = 0; t < ADAPTER_TARGETS; t++) {
		json_t *list = json_array();
		enum adapter_target of = (enum adapter_target)t;
		for (int i = 0; i < adapter_n_layers(a); i++) {
			append(list, adapter_at(a, i, of), adapter_is_of_a_layer(of) ? i : -1, -1);
			for (int e = 0; e < adapter_n_experts(a, i, of); e++)
				append(list, adapter_expert(a, i, of, e), i, e);
		}
		json_object_set_new(targets, adapter_target_name((enum adapter_target)t), list);
	}
	json_t *base = json_string(adapter_base_name(a));
	json_t *o =
	    json_pack("{s:s, s:I, s:i, s:o, s:o}", "form", adapter_form(a), "bytes", (json_int_t)adapter_bytes(a),
		      "layers", adapter_n_layers(a), "base", base != NULL ? base : json_string(""), "targets", targets);
	return model_print_json(o);
}

static int inspect(int argc, char **argv)
{
	const char *path = NULL, *base = NULL;
	bool json = false;
	struct adapter *a;
	struct sl_err err = {0};
	const struct model_option options[] = {{"--json", OPTION_FLAG, &json, 0, 0, NULL},
					       {"--base", OPTION_TEXT, &base, 0, 0, NULL}};
	int rc = model_options(options, sizeof options / sizeof *options, argc, argv, 3, &path, 1);
	if (rc != 0)
		return rc;
	if (path == NULL)
		return model_complain(CMD_EXIT_USAGE, "adapter inspect needs an adapter");
	if (adapter_open_with(path, base, &a, &err) != 0)
		return model_complain(1, "%s", err.text);
	if (json)
		rc = print_json(a);
	else
		print_text(a);
	adapter_close(a);
	return rc != 0 ? rc : model_finish_output();
}

/* ---- merge ---- */

static int merge(int argc, char **argv)
{
	const char *paths[3] = {NULL}, *type = NULL;
	uint32_t threads = 0;
	struct quantize_how how = {0};
	struct sl_err err = {0};
	const struct model_option options[] = {{"--type", OPTION_TEXT, &type, 0, 0, NULL},
					       {"--force", OPTION_FLAG, &how.replace, 0, 0, NULL},
					       {"--threads", OPTION_U32, &threads, 0, 64, NULL}};
	int rc = model_options(options, sizeof options / sizeof *options, argc, argv, 3, paths, 3);
	if (rc != 0)
		return rc;
	if (paths[2] == NULL || type == NULL)
		return model_complain(CMD_EXIT_USAGE,
				      "adapter merge needs a model, an adapter, --type NAME and a file to write");
	if (weight_plan_parse(type, &how.plan, &err) != 0)
		return model_complain(CMD_EXIT_USAGE, "%s", err.text);
	how.n_threads = (int)threads;
	out_file_on_signals();
	if (adapter_merge(paths[0], paths[1], paths[2], &how, NULL, &err) != 0)
		return model_complain(1, "%s", err.text);
	printf("%s\n", paths[2]);
	return model_finish_output();
}

/* ---- make ---- */

/* "8", "8,q=4,down=32": a number for all targets, and others for some. */
static bool parse_each(const char *text, double least, double most, bool whole, double out[ADAPTER_TARGETS])
{
	bool first = true;
	for (const char *at = text; first || *at != '\0'; first = false) {
		int t = -1;
		for (int k = 0; k < ADAPTER_TARGETS; k++) {
			const char *name = adapter_target_name((enum adapter_target)k);
			if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == '=')
				t = k;
		}
		if (t >= 0)
			at += strlen(adapter_target_name((enum adapter_target)t)) + 1;
		char *end;
		double v = strtod(at, &end);
		if ((t < 0 && !first) || end == at || !(v >= least && v <= most) || (whole && v != (double)(int)v) ||
		    (*end != '\0' && *end != ','))
			return false;
		for (int k = 0; k < ADAPTER_TARGETS; k++)
			if (t < 0 || t == k)
				out[k] = v;
		at = *end == ',' ? end + 1 : end;
		if (*end == ',' && *at == '\0')
			return false;
	}
	return true;
}

/* "q,v,down" */
static bool parse_targets(const char *text, bool out[ADAPTER_TARGETS])
{
	for (const char *at = text; *at != '\0';) {
		size_t n = strcspn(at, ",");
		bool known = false;
		for (int k = 0; k < ADAPTER_TARGETS; k++) {
			const char *name = adapter_target_name((enum adapter_target)k);
			if (strlen(name) == n && strncmp(at, name, n) == 0)
				known = out[k] = true;
		}
		if (!known || at[n] == '\0')
			return known;
		at += n + 1;
	}
	return false;
}

static int make(int argc, char **argv)
{
	const char *paths[2] = {NULL}, *type = "f32", *rank = "8", *alpha = "16", *only = "q,k,v,o,gate,up,down";
	struct adapter_make m = {.seed = 1};
	struct sl_err err = {0};
	const struct model_option options[] = {
	    {"--type", OPTION_TEXT, &type, 0, 0, NULL},        {"--rank", OPTION_TEXT, &rank, 0, 0, NULL},
	    {"--alpha", OPTION_TEXT, &alpha, 0, 0, NULL},      {"--targets", OPTION_TEXT, &only, 0, 0, NULL},
	    {"--rslora", OPTION_FLAG, &m.by_root, 0, 0, NULL}, {"--seed", OPTION_U64, &m.seed, 0, 0, NULL},
	    {"--force", OPTION_FLAG, &m.replace, 0, 0, NULL}};
	double ranks[ADAPTER_TARGETS] = {0};
	bool on[ADAPTER_TARGETS] = {false};
	int rc = model_options(options, sizeof options / sizeof *options, argc, argv, 3, paths, 2);
	if (rc != 0)
		return rc;
	m.type = kn_type_from_name(type);
	if (paths[1] == NULL)
		return model_complain(CMD_EXIT_USAGE, "adapter make needs a model and an adapter to write");
	if (m.type != KN_F32 && m.type != KN_F16 && m.type != KN_BF16)
		return model_complain(CMD_EXIT_USAGE, "--type %s is none of f32, f16, bf16", type);
	if (!parse_each(rank, 1, ADAPTER_MAX_RANK, true, ranks))
		return model_complain(CMD_EXIT_USAGE, "--rank %s is not N[,TARGET=N…] of 1 to %d", rank,
				      ADAPTER_MAX_RANK);
	if (!parse_each(alpha, 1e-6, 1e6, false, m.alphas))
		return model_complain(CMD_EXIT_USAGE, "--alpha %s is not X[,TARGET=X…]", alpha);
	if (!parse_targets(only, on))
		return model_complain(
		    CMD_EXIT_USAGE,
		    "--targets %s is not a list of q, k, v, o, gate, up, down, shared_gate, shared_up, "
		    "shared_down, expert_gate, expert_up, expert_down, embed, head",
		    only);
	for (int t = 0; t < ADAPTER_TARGETS; t++)
		m.ranks[t] = on[t] ? (int)ranks[t] : 0;
	m.base = paths[0];
	m.out = paths[1];
	out_file_on_signals();
	if (adapter_make(&m, &err) != 0)
		return model_complain(1, "%s", err.text);
	printf("%s\n", m.out);
	return model_finish_output();
}

int model_adapter(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(int argc, char **argv);
	} actions[] = {{"inspect", inspect}, {"merge", merge}, {"make", make}};
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (strcmp(argv[2], actions[i].name) == 0)
			return actions[i].run(argc, argv);
	return model_complain(CMD_EXIT_USAGE, "adapter %.40s: not one of inspect, merge, make", argv[2]);
}
