/* SPDX-License-Identifier: Apache-2.0
 *
 * A reload loads the configuration, compares it with the running one, and loads it again with overrides for the keys
 * that must not change while processes run. Two complete loads instead of copying values: the result has passed every
 * check between keys, and reports correctly where each value came from.
 */
#include "cmd/serve/reload.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/conf/conf.h"

struct kept {
	const struct sluice_config *now;
	enum reload_kept which;
	bool log;
	struct reload_pins pins;
	size_t room; /* for pins */
};

void reload_pins_dispose(struct reload_pins *p)
{
	for (size_t i = 0; i < p->n; i++)
		sl_free(p->sets[i]);
	sl_free(p->sets);
	*p = (struct reload_pins){.sets = NULL};
}

void reload_config_free(void *config)
{
	if (config == NULL)
		return;
	sluice_config_free(config);
	sl_free(config);
}

static int add_pin(void *ctx, const char *set)
{
	struct kept *k = ctx;
	if (k->pins.n == k->room)
		return SL_ELIMIT;
	char *copy = sl_strdup(set);
	if (copy == NULL)
		return SL_ENOMEM;
	k->pins.sets[k->pins.n++] = copy;
	return 0;
}

static int on_difference(void *ctx, const char *key)
{
	struct kept *k = ctx;
	enum restart_need need = sluice_config_restart(key);
	if ((k->which >> need & 1) == 0)
		return 0;
	if (k->log)
		log_warn("%s has changed: that needs %s, the old value stays", key,
			 need == RESTART_ALL      ? "a restart"
			 : need == RESTART_ENGINE ? "a reload (SIGHUP) or a restart"
						  : "an upgrade (SIGUSR2) or a restart");
	return conf_overrides(k->now->conf, key, add_pin, k);
}

static int load(const struct cmd_options *o, const struct reload_pins *pins, struct sluice_config **out,
		struct sl_err *err)
{
	const char *sets[CMD_MAX_SETS];
	size_t n = 0;
	for (size_t i = 0; i < o->n_sets; i++)
		sets[n++] = o->sets[i];
	for (size_t i = 0; i < pins->n; i++)
		sets[n++] = pins->sets[i];
	struct sluice_config *cfg = sl_zalloc(sizeof *cfg);
	if (cfg == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the configuration");
	int rc = sluice_config_load(cfg, o->path, sets, n, err);
	if (rc != 0) {
		sl_free(cfg);
		return rc;
	}
	*out = cfg;
	return 0;
}

static int on_engine_key(void *ctx, const char *key)
{
	bool *touches = ctx;
	*touches = *touches || sluice_config_restart(key) == RESTART_ENGINE;
	return 0;
}

bool reload_touches_engines(const struct sluice_config *a, const struct sluice_config *b)
{
	bool touches = false;
	return conf_compare(a->conf, b->conf, on_engine_key, &touches) == 0 && touches;
}

static uint64_t mix_file(uint64_t digest, const struct stat *st)
{
	const uint64_t what[] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
				 (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec};
	return XXH3_64bits_withSeed(what, sizeof what, digest);
}

/* The order in which a folder lists its files does not count. */
static uint64_t mix_folder(uint64_t digest, const char *path)
{
	uint64_t sum = 0;
	DIR *d = opendir(path);
	for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
		struct stat st;
		if (e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
			sum += mix_file(XXH3_64bits(e->d_name, strlen(e->d_name)), &st);
	}
	if (d != NULL)
		closedir(d);
	return XXH3_64bits_withSeed(&sum, sizeof sum, digest);
}

static uint64_t mix_path(uint64_t digest, const char *path)
{
	struct stat st;
	if (path[0] == '\0' || stat(path, &st) != 0)
		return digest;
	return S_ISDIR(st.st_mode) ? mix_folder(digest, path) : mix_file(digest, &st);
}

uint64_t reload_model_files(const struct sluice_config *cfg)
{
	uint64_t digest = 0;
	const struct model_settings *models = cfg->engine.models.items;
	for (size_t i = 0; i < cfg->engine.models.n; i++)
		digest = mix_path(mix_path(digest, models[i].path), models[i].head);
	return digest;
}

int reload_config_first(const struct cmd_options *o, const char *name, struct sluice_config **out)
{
	struct sluice_config *cfg = sl_zalloc(sizeof *cfg);
	if (cfg == NULL) {
		log_error("no memory");
		return 1;
	}
	int rc = cmd_load(o, name, cfg);
	if (rc != 0) {
		sl_free(cfg);
		return rc;
	}
	*out = cfg;
	return 0;
}

int reload_config(const struct cmd_options *o, const struct sluice_config *now, enum reload_kept kept, bool log,
		  struct reload_pins *pins, struct sluice_config **out, struct sl_err *err)
{
	struct sluice_config *fresh = NULL, *mixed = NULL;
	/* serve.c needs one more override. */
	size_t room = o->n_sets + 1 < CMD_MAX_SETS ? CMD_MAX_SETS - 1 - o->n_sets : 0;
	struct kept k = {.now = now, .which = kept, .log = log, .room = room};
	k.pins.sets = sl_zalloc_n(CMD_MAX_SETS, sizeof *k.pins.sets);
	if (k.pins.sets == NULL)
		return sl_errf(err, SL_ENOMEM, "no memory for the configuration");
	int rc = load(o, &k.pins, &fresh, err);
	if (rc == 0) {
		rc = conf_compare(now->conf, fresh->conf, on_difference, &k);
		if (rc != 0)
			sl_errf(err, rc, "too many changed keys need a restart");
	}
	if (rc == 0 && k.pins.n > 0)
		rc = load(o, &k.pins, &mixed, err);
	if (rc == 0)
		*out = mixed != NULL ? mixed : fresh;
	if (rc != 0 || mixed != NULL)
		reload_config_free(fresh);
	if (rc == 0 && pins != NULL) {
		reload_pins_dispose(pins);
		*pins = k.pins;
	} else {
		reload_pins_dispose(&k.pins);
	}
	return rc;
}
