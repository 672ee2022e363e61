/* SPDX-License-Identifier: Apache-2.0
 *
 * Several engines. An item of `engines` is an engine section with a name: its keys are those of `engine` that are plain
 * values, found in the table of keys, so a key that `engine` gets later is one of `engines` too. What an item does not
 * give it has from `engine`: the process of an engine by name reads the configuration as if its item's keys stood there
 * (sluice_config_load_engine).
 */
#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/conf/conf_rows.h"
#include "cmd/config/schema_priv.h"

enum { MAX_ROWS = 128, MAX_SETS = 512 };

const char *const schema_engine_roles[] = {"both", "prefill", "decode", "auto", NULL};

enum { OWN_ROWS = 3 };

/* Ends with key == NULL; the first OWN_ROWS are its own. */
struct conf_row engine_item_rows[MAX_ROWS] = {
    ROW("name", CONF_STRING, offsetof(struct engine_item, name), NULL, 1, 32),
    ROW("models", CONF_STRINGS, offsetof(struct engine_item, models), "", 0, PROTO_MAX_MODELS),
    ROW_ENUM("role", offsetof(struct engine_item, role), "both", schema_engine_roles),
};

static const struct conf_row *root_rows;

static bool is_of_item(const struct conf_row *r)
{
	return strncmp(r->key, "engine.", 7) == 0 && r->type != CONF_LIST && strcmp(r->key, "engine.socket") != 0 &&
	       strcmp(r->key, "engine.serves") != 0 && strcmp(r->key, "engine.role") != 0;
}

static void fill_rows(void)
{
	size_t n = OWN_ROWS;
	for (const struct conf_row *r = root_rows; r->key != NULL; r++) {
		if (!is_of_item(r))
			continue;
		size_t at = r->offset - offsetof(struct sluice_config, engine);
		BUG_IF(n == MAX_ROWS - 1 || r->offset < offsetof(struct sluice_config, engine) ||
			   at >= sizeof(((struct engine_item *)0)->section),
		       "%s is not in the section of the engine", r->key);
		engine_item_rows[n] = *r;
		engine_item_rows[n].key = r->key + 7;
		engine_item_rows[n].offset = offsetof(struct engine_item, section) + at;
		engine_item_rows[n].fallback = NULL;
		engine_item_rows[n++].optional = true;
	}
}

void engines_prepare(const struct conf_row *rows)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	root_rows = rows;
	pthread_once(&once, fill_rows);
}

/* ---- the configuration of one engine ---- */

struct gathered {
	char *sets[MAX_SETS];
	size_t n;
};

/* "engines"' models are names: those that this engine serves. Roles are for the gateway. */
static int gather(void *ctx, const char *set)
{
	static const char models[] = "engine.models=";
	struct gathered *g = ctx;
	size_t n = strlen(set) + 1;
	if (strncmp(set, "engine.role=", 12) == 0)
		return 0;
	bool serves = strncmp(set, models, sizeof models - 1) == 0;
	char *copy = g->n < MAX_SETS ? sl_alloc(n) : NULL;
	if (copy == NULL)
		return g->n < MAX_SETS ? SL_ENOMEM : SL_ELIMIT;
	snprintf(copy, n, "%s%s", serves ? "engine.serves=" : set, serves ? set + sizeof models - 1 : "");
	g->sets[g->n++] = copy;
	return 0;
}

static int find_engine(const struct sluice_config *cfg, const char *name, struct sl_err *err)
{
	for (size_t i = 0; i < cfg->engines.n; i++)
		if (strcmp(LIST_AT(cfg->engines, const struct engine_item, i)->name, name) == 0)
			return 0;
	return sl_errf(err, SL_EINVAL, "--engine: no engine is called '%.64s' in engines", name);
}

static int gather_all(struct gathered *g, const struct sluice_config *cfg, const char *name, const char *const *sets,
		      size_t n_sets, struct sl_err *err)
{
	int rc = find_engine(cfg, name, err);
	for (size_t i = 0; rc == 0 && i < n_sets; i++)
		rc = (g->sets[g->n++] = sl_strdup(sets[i])) != NULL ? 0 : sl_errf(err, SL_ENOMEM, "no memory");
	if (rc != 0)
		return rc;
	rc = conf_item_overrides(cfg->conf, "engines", name, "engine", gather, g);
	return rc == 0 ? 0 : sl_errf(err, rc, "engines.%s: %s", name, sl_code_name(rc));
}

int sluice_config_load_engine(struct sluice_config *cfg, const char *path, const char *const *sets, size_t n_sets,
			      const char *name, struct sl_err *err)
{
	struct gathered g = {.n = 0};
	int rc = schema_load(cfg, path, sets, n_sets, NULL, err);
	if (rc != 0 || name == NULL)
		return rc;
	if (n_sets > MAX_SETS)
		rc = sl_errf(err, SL_ELIMIT, "--set: more than %d", MAX_SETS);
	else
		rc = gather_all(&g, cfg, name, sets, n_sets, err);
	sluice_config_free(cfg);
	if (rc == 0)
		rc = schema_load(cfg, path, (const char *const *)g.sets, g.n, name, err);
	for (size_t i = 0; i < g.n; i++)
		sl_free(g.sets[i]);
	return rc;
}

/* ---- derived and checked ---- */

int engines_derive(struct sluice_config *cfg, struct sl_err *err)
{
	struct gw_config *g = &cfg->gateway;
	_Static_assert(sizeof g->models / sizeof *g->models == PROTO_MAX_MODELS, "room for every model's name");
	for (size_t i = 0; i < cfg->engine.models.n; i++)
		g->models[g->n_models++] = LIST_AT(cfg->engine.models, const struct model_settings, i)->name;
	g->n_engines = (int)cfg->engines.n;
	g->engine_role = cfg->engine.role;
	for (size_t i = 0; i < cfg->engines.n; i++) {
		const struct engine_item *e = LIST_AT(cfg->engines, const struct engine_item, i);
		struct gw_engine *to = &g->engines[i];
		to->name = e->name;
		to->role = e->role;
		int n = snprintf(to->socket, sizeof to->socket, "%s/run/engine-%s.sock", cfg->state, e->name);
		if (n < 0 || (size_t)n >= sizeof to->socket)
			return conf_fail(cfg->conf, "state", err, "too long for the socket of the engine %s in it",
					 e->name);
	}
	return 0;
}

/* A number of the list, which moves on; -1: none. */
static long take_core(const char **at)
{
	char *end;
	long n = isdigit((unsigned char)**at) ? strtol(*at, &end, 10) : -1;
	if (n >= 0)
		*at = end;
	return n < CPU_SETSIZE ? n : -1;
}

static bool read_cores(const char *text, cpu_set_t *out)
{
	CPU_ZERO(out);
	for (const char *at = text; *text != '\0'; at++) {
		long first = take_core(&at), last = first;
		if (first >= 0 && *at == '-') {
			at++;
			last = take_core(&at);
		}
		if (first < 0 || last < first || (*at != ',' && *at != '\0'))
			return false;
		for (long i = first; i <= last; i++)
			CPU_SET((size_t)i, out);
		if (*at == '\0')
			return true;
	}
	return true;
}

static bool has_model(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; i < cfg->engine.models.n; i++)
		if (strcmp(LIST_AT(cfg->engine.models, const struct model_settings, i)->name, name) == 0)
			return true;
	return false;
}

static int check_served(const struct sluice_config *cfg, const char *key, const struct conf_strings *names,
			struct sl_err *err)
{
	for (size_t i = 0; i < names->n && cfg->engine.models.n > 0; i++)
		if (!has_model(cfg, names->items[i]))
			return conf_fail(cfg->conf, key, err, "engine.models has no '%s'", names->items[i]);
	return 0;
}

static int check_cores(const struct sluice_config *cfg, const char *key, const char *cores, struct sl_err *err)
{
	cpu_set_t set;
	if (cores == NULL || read_cores(cores, &set))
		return 0;
	return conf_fail(cfg->conf, key, err, "a list of processors is wanted, such as 0-3,8");
}

/* As it is in the section, if the item has it: NULL: it has none. */
static const char *cores_of(const struct engine_item *e)
{
	char *cores;
	memcpy(&cores, e->section + offsetof(struct engine_settings, cores), sizeof cores);
	return cores;
}

/* A text of the item's section; what it does not give is as in `engine`. */
static const char *text_of(const struct engine_item *e, size_t offset, const char *first)
{
	char *text;
	memcpy(&text, e->section + offset - offsetof(struct sluice_config, engine), sizeof text);
	return text != NULL ? text : first;
}

static struct engine_upstream upstream_of(const struct sluice_config *cfg, const struct engine_item *e)
{
#define TEXT(field) text_of(e, offsetof(struct sluice_config, upstream.field), cfg->upstream.field)
	return (struct engine_upstream){TEXT(url), TEXT(key_file), TEXT(ca_file)};
#undef TEXT
}

struct engine_upstream engines_upstream(const struct sluice_config *cfg, int k)
{
	const struct upstream_settings *u = &cfg->upstream;
	return k == 0 ? (struct engine_upstream){u->url, u->key_file, u->ca_file}
		      : upstream_of(cfg, LIST_AT(cfg->engines, const struct engine_item, (size_t)k - 1));
}

static bool is_name(const char *name)
{
	static const char of[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	return strspn(name, of) == strlen(name);
}

uint32_t engines_of_role(const struct sluice_config *cfg, int role)
{
	uint32_t all = cfg->engine.role == role;
	for (size_t i = 0; i < cfg->engines.n; i++)
		all |= (uint32_t)(LIST_AT(cfg->engines, const struct engine_item, i)->role == role) << (i + 1);
	return all;
}

uint32_t engines_prefill(const struct sluice_config *cfg)
{
	uint32_t any = engines_of_role(cfg, GW_ENGINE_AUTO);
	return engines_of_role(cfg, GW_ENGINE_DECODE) != 0 || any != 0 ? engines_of_role(cfg, GW_ENGINE_PREFILL) | any
								       : 0;
}

uint32_t engines_number(const struct sluice_config *cfg, const char *name)
{
	for (size_t i = 0; name != NULL && i < cfg->engines.n; i++)
		if (strcmp(LIST_AT(cfg->engines, const struct engine_item, i)->name, name) == 0)
			return (uint32_t)i + 1;
	return 0;
}

/* Either role alone would do nothing, or leave nobody to answer. */
static int check_roles(const struct sluice_config *cfg, struct sl_err *err)
{
	uint32_t prefill = engines_of_role(cfg, GW_ENGINE_PREFILL), decode = engines_of_role(cfg, GW_ENGINE_DECODE);
	uint32_t any = engines_of_role(cfg, GW_ENGINE_AUTO), first = prefill | decode | any;
	if ((prefill != 0) == (decode != 0) && any == 0)
		return 0;
	if (any != 0 && __builtin_popcount(first) > 1)
		return 0;
	char key[272] = "engine.role";
	if ((first & 1) == 0)
		snprintf(key, sizeof key, "engines.%s.role",
			 LIST_AT(cfg->engines, const struct engine_item, (size_t)__builtin_ctz(first) - 1)->name);
	if (any != 0)
		return conf_fail(cfg->conf, key, err, "'auto' needs another engine of role auto, prefill or decode");
	return conf_fail(cfg->conf, key, err, "'%s' needs another engine of role %s",
			 schema_engine_roles[prefill != 0 ? GW_ENGINE_PREFILL : GW_ENGINE_DECODE],
			 schema_engine_roles[prefill != 0 ? GW_ENGINE_DECODE : GW_ENGINE_PREFILL]);
}

int engines_check(const struct sluice_config *cfg, struct sl_err *err)
{
	char key[272];
	int rc = check_cores(cfg, "engine.cores", cfg->engine.cores, err);
	if (rc == 0)
		rc = check_roles(cfg, err);
	if (rc == 0 && !sluice_has_upstream(cfg))
		rc = check_served(cfg, "engine.serves", &cfg->engine.serves, err);
	for (size_t i = 0; rc == 0 && i < cfg->engines.n; i++) {
		const struct engine_item *e = LIST_AT(cfg->engines, const struct engine_item, i);
		snprintf(key, sizeof key, "engines.%s.name", e->name);
		if (!is_name(e->name) || strcmp(e->name, "engine") == 0)
			return conf_fail(
			    cfg->conf, key, err,
			    "letters, digits, - and _ are wanted, and not 'engine', which is the first one");
		snprintf(key, sizeof key, "engines.%s.cores", e->name);
		rc = check_cores(cfg, key, cores_of(e), err);
		snprintf(key, sizeof key, "engines.%s.models", e->name);
		if (rc == 0 && upstream_of(cfg, e).url[0] == '\0')
			rc = check_served(cfg, key, &e->models, err);
	}
	return rc;
}

bool engines_serves(const struct sluice_config *cfg, const char *model)
{
	const struct conf_strings *names = &cfg->engine.serves;
	for (size_t i = 0; i < names->n; i++)
		if (strcmp(names->items[i], model) == 0)
			return true;
	return names->n == 0;
}

int engines_pin(const struct sluice_config *cfg, struct sl_err *err)
{
	cpu_set_t set;
	if (cfg->engine.cores[0] == '\0' || !read_cores(cfg->engine.cores, &set) ||
	    sched_setaffinity(0, sizeof set, &set) == 0)
		return 0;
	return sl_errf(err, SL_EINVAL, "engine.cores: this process may use none of the processors %s",
		       cfg->engine.cores);
}
