/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice keys`: creates and revokes keys while gateways run. Keys are stored in Redis under their SHA-256; the key
 * itself is printed once and not stored.
 *
 * Keys may share a name: rotating adds a key of that name and lets the older ones expire, revoking revokes all of them.
 * Limits and responses stay with the tenant.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/peer.h"
#include "cmd/config/cmd.h"
#include "cmd/state/private_redis.h"
#include "gateway/auth/auth.h"
#include "gateway/auth/cors.h"
#include "gateway/auth/key_registry.h"

enum { ID_SHOWN = 12, ID_LEAST = 8, MAX_REST = 64 };
#define GRACE_S INT64_C(86400)
#define LONGEST_S (INT64_C(3650) * 86400)

static const char usage[] =
    "usage: sluice keys create NAME --tier TIER [--tenant TENANT] [--expires TIME] [--origin ORIGIN]...\n"
    "       sluice keys list [--json]\n"
    "       sluice keys rotate NAME [--grace TIME]\n"
    "       sluice keys revoke NAME|ID\n"
    "\n"
    "  --tier TIER      one of gateway.tiers, or admin\n"
    "  --tenant TENANT  the owner of limits and stored responses; keys may share one (NAME)\n"
    "  --expires TIME   the key's lifetime: 12h, 30d (never)\n"
    "  --origin ORIGIN  a web origin that may use the key; may be repeated (any)\n"
    "  --grace TIME     how long older keys stay valid (24h)\n"
    "  --json           print one JSON array\n"
    "  -c FILE, --set KEY=VALUE, --state DIR   as for the other commands\n";

struct arguments {
	const char *name, *tier, *tenant;
	int64_t expires_s, grace_s;
	char origins[IDENTITY_ORIGINS_MAX + 1];
	bool json;
};

/* A number and s, m, h or d. */
static bool parse_time(const char *text, int64_t *out)
{
	char *end;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	int64_t unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
	if (errno != 0 || end == text || unit == 0 || end[1] != '\0' || n < 0 || n > LONGEST_S / unit)
		return false;
	*out = n * unit;
	return true;
}

static bool add_origin(struct arguments *a, const char *origin)
{
	size_t n = strlen(a->origins);
	int len = snprintf(a->origins + n, sizeof a->origins - n, "%s%s", n > 0 ? " " : "", origin);
	return cors_is_origin(origin) && len > 0 && (size_t)len < sizeof a->origins - n;
}

static int bad_value(const char *option, const char *value)
{
	fprintf(stderr, "sluice keys: --%s: invalid value '%.100s'\n", option, value);
	return CMD_EXIT_USAGE;
}

static int take_option(struct arguments *a, const char *name, const char *value)
{
	if (strcmp(name, "tier") == 0)
		a->tier = value;
	else if (strcmp(name, "tenant") == 0)
		a->tenant = value;
	else if (strcmp(name, "expires") == 0)
		return parse_time(value, &a->expires_s) && a->expires_s > 0 ? 0 : bad_value(name, value);
	else if (strcmp(name, "grace") == 0)
		return parse_time(value, &a->grace_s) ? 0 : bad_value(name, value);
	else if (strcmp(name, "origin") == 0)
		return add_origin(a, value) ? 0 : bad_value(name, value);
	else
		return -1;
	return 0;
}

/* Takes this command's options out of argv; the rest are those of every subcommand. */
static int take_options(struct arguments *a, int argc, char **argv, int *n_rest, char **rest)
{
	*n_rest = 0;
	for (int i = 0; i < argc; i++) {
		char name[16] = "";
		const char *is = strchr(argv[i], '=');
		int rc = -1;
		if (strcmp(argv[i], "--json") == 0) {
			a->json = true;
			continue;
		}
		if (strncmp(argv[i], "--", 2) == 0)
			snprintf(name, sizeof name, "%.*s", is != NULL ? (int)(is - argv[i] - 2) : 15, argv[i] + 2);
		if (is != NULL)
			rc = take_option(a, name, is + 1);
		else if (i + 1 < argc && (rc = take_option(a, name, argv[i + 1])) >= 0)
			i++;
		if (rc > 0)
			return rc;
		if (rc == 0)
			continue;
		if (*n_rest == MAX_REST) {
			fputs(usage, stderr);
			return CMD_EXIT_USAGE;
		}
		rest[(*n_rest)++] = argv[i];
	}
	rest[*n_rest] = NULL;
	return 0;
}

/* ---- the actions: 0, or SL_* with err ---- */

static int add_key(struct key_registry *s, struct identity *id, struct sl_err *err)
{
	char key[KEY_REGISTRY_KEY_BYTES];
	int rc = key_registry_make(s, id, key, err);
	if (rc == 0)
		printf("%s\n", key);
	explicit_bzero(key, sizeof key);
	return rc;
}

static int check_room(const struct key_registry *s, size_t n, struct sl_err *err)
{
	return n < key_registry_room(s)
		   ? 0
		   : sl_errf(err, SL_ELIMIT, "the store holds %zu keys: cache.keys_per_tenant allows no more", n);
}

static int create(struct key_registry *s, const struct sluice_config *cfg, const struct arguments *a,
		  const struct stored_key *all, size_t n, struct sl_err *err)
{
	struct identity id = {0};
	const char *tenant = a->tenant != NULL ? a->tenant : a->name;
	int rc = check_room(s, n, err);
	if (rc != 0)
		return rc;
	if (a->tier == NULL)
		return sl_errf(err, SL_EINVAL, "--tier is needed");
	if (auth_tier(&cfg->gateway, a->tier) == NULL && strcmp(a->tier, "admin") != 0)
		return sl_errf(err, SL_EINVAL, "--tier: gateway.tiers has no tier '%.64s'", a->tier);
	if (!identity_name_ok(a->tier) || !identity_name_ok(tenant))
		return sl_errf(err, SL_EINVAL, "--tier and --tenant are made of letters, digits and . _ -");
	for (size_t i = 0; i < n; i++)
		if (strcmp(all[i].identity.name, a->name) == 0 && identity_valid(&all[i].identity, clock_unix_s()))
			return sl_errf(err, SL_EINVAL, "%s: this key exists; rotate it, or revoke it first", a->name);
	snprintf(id.name, sizeof id.name, "%s", a->name);
	snprintf(id.tier, sizeof id.tier, "%s", a->tier);
	snprintf(id.tenant, sizeof id.tenant, "%s", tenant);
	memcpy(id.origins, a->origins, sizeof id.origins);
	id.expires_s = a->expires_s > 0 ? clock_unix_s() + a->expires_s : 0;
	return add_key(s, &id, err);
}

static int rotate(struct key_registry *s, const struct arguments *a, struct stored_key *all, size_t n,
		  struct sl_err *err)
{
	const struct stored_key *newest = NULL;
	int64_t now = clock_unix_s();
	for (size_t i = 0; i < n; i++)
		if (strcmp(all[i].identity.name, a->name) == 0 && identity_valid(&all[i].identity, now))
			newest = &all[i];
	if (newest == NULL)
		return sl_errf(err, SL_ENOTFOUND, "%s: no such key", a->name);
	struct identity id = newest->identity;
	int64_t life_s = id.expires_s > 0 ? id.expires_s - id.created_s : 0;
	id.expires_s = life_s > 0 ? now + life_s : 0;
	int rc = check_room(s, n, err);
	if (rc == 0)
		rc = add_key(s, &id, err);
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct identity *old = &all[i].identity;
		if (strcmp(old->name, a->name) != 0 || !identity_valid(old, now))
			continue;
		if (old->expires_s == 0 || old->expires_s > now + a->grace_s)
			old->expires_s = now + a->grace_s;
		if (a->grace_s == 0)
			old->revoked_s = now;
		rc = key_registry_change(s, &all[i], err);
	}
	return rc;
}

static int revoke(struct key_registry *s, const struct arguments *a, struct stored_key *all, size_t n,
		  struct sl_err *err)
{
	size_t n_revoked = 0, len = strlen(a->name);
	for (size_t i = 0; i < n; i++) {
		struct identity *id = &all[i].identity;
		bool by_id = len >= ID_LEAST && strncmp(all[i].id, a->name, len) == 0;
		if (id->revoked_s != 0 || (!by_id && strcmp(id->name, a->name) != 0))
			continue;
		id->revoked_s = clock_unix_s();
		int rc = key_registry_change(s, &all[i], err);
		if (rc != 0)
			return rc;
		n_revoked++;
	}
	if (n_revoked == 0)
		return sl_errf(err, SL_ENOTFOUND, "%s: no such key", a->name);
	printf("%zu revoked\n", n_revoked);
	return 0;
}

static void print_time(int64_t s, char *out, size_t size)
{
	time_t t = (time_t)s;
	struct tm tm;
	if (s == 0 || gmtime_r(&t, &tm) == NULL || strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		snprintf(out, size, "never");
}

static const char *state_of(const struct identity *id)
{
	return id->revoked_s != 0 ? "revoked" : identity_valid(id, clock_unix_s()) ? "valid" : "expired";
}

static int list_json(const struct stored_key *all, size_t n)
{
	struct sl_buf out;
	buf_init(&out, 64 << 20);
	int rc = buf_append_str(&out, "[");
	for (size_t i = 0; rc == 0 && i < n; i++) {
		rc = buf_printf(&out, "%s\n{\"id\":\"%.*s\",\"state\":\"%s\",", i > 0 ? "," : "", ID_SHOWN, all[i].id,
				state_of(&all[i].identity));
		size_t at = out.len;
		if (rc == 0)
			rc = identity_print(&out, &all[i].identity);
		if (rc == 0) /* one object of both */
			memmove(buf_data(&out) + at, buf_data(&out) + at + 1, --out.len - at);
	}
	if (rc == 0)
		rc = buf_append_str(&out, n > 0 ? "\n]\n" : "]\n");
	if (rc == 0)
		fwrite(buf_data(&out), 1, out.len, stdout);
	buf_dispose(&out);
	return rc;
}

static int list(const struct arguments *a, const struct stored_key *all, size_t n, struct sl_err *err)
{
	if (a->json) {
		int rc = list_json(all, n);
		return rc == 0 ? 0 : sl_errf(err, rc, "the list: %s", sl_code_name(rc));
	}
	printf("%-12s  %-20s %-10s %-20s %-15s %-20s  %-20s  %s\n", "ID", "NAME", "TIER", "TENANT", "KEY", "CREATED",
	       "EXPIRES", "STATE");
	for (size_t i = 0; i < n; i++) {
		const struct identity *id = &all[i].identity;
		char created[32], expires[32];
		print_time(id->created_s, created, sizeof created);
		print_time(id->expires_s, expires, sizeof expires);
		printf("%.*s  %-20s %-10s %-20s %-15s %-20s  %-20s  %s\n", ID_SHOWN, all[i].id, id->name, id->tier,
		       id->tenant, id->start, created, expires, state_of(id));
	}
	return 0;
}

/* The configured Redis, or the one that `sluice serve` starts. */
static int open_store(const struct sluice_config *cfg, struct key_registry **out, struct sl_err *err)
{
	struct gw_store_settings s = cfg->gateway.store;
	struct private_redis own;
	if (s.address[0] == '\0' && s.kind != GW_STORE_MEMORY && private_redis_find(&own, cfg->state, s.server_memory))
		s.address = own.address;
	/* The private Redis runs as the owner of the state folder. */
	struct stat st;
	s.own_server = s.address == own.address || s.own_server;
	if (stat(cfg->state, &st) == 0)
		peer_trust(st.st_uid);
	return key_registry_open(&s, out, err);
}

static int act(const char *what, const struct sluice_config *cfg, const struct arguments *a, struct sl_err *err)
{
	struct key_registry *s;
	struct stored_key *all = NULL;
	size_t n = 0;
	int rc = open_store(cfg, &s, err);
	if (rc != 0)
		return rc;
	rc = key_registry_list(s, &all, &n, err);
	if (rc != 0)
		;
	else if (strcmp(what, "create") == 0)
		rc = create(s, cfg, a, all, n, err);
	else if (strcmp(what, "rotate") == 0)
		rc = rotate(s, a, all, n, err);
	else if (strcmp(what, "revoke") == 0)
		rc = revoke(s, a, all, n, err);
	else
		rc = list(a, all, n, err);
	sl_free(all);
	key_registry_close(s);
	return rc;
}

static bool is_action(const char *what)
{
	static const char *const actions[] = {"create", "list", "rotate", "revoke"};
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (strcmp(actions[i], what) == 0)
			return true;
	return false;
}

int cmd_keys(int argc, char **argv)
{
	struct arguments a = {.grace_s = GRACE_S};
	struct cmd_options o;
	struct sluice_config cfg;
	struct sl_err err = {0};
	char *rest[MAX_REST + 1];
	int n_rest;
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc < 2 || !is_action(argv[1])) {
		fputs(usage, stderr);
		return CMD_EXIT_USAGE;
	}
	const char *what = argv[1];
	argv[1] = argv[0];
	int rc = take_options(&a, argc - 1, argv + 1, &n_rest, rest);
	if (rc == 0)
		rc = cmd_options_parse(&o, n_rest, rest, true, "keys of the store; see `sluice keys --help`");
	if (rc != 0)
		return rc;
	bool wants_name = strcmp(what, "list") != 0;
	a.name = o.word;
	if (wants_name != (a.name != NULL) || (wants_name && !identity_name_ok(a.name))) {
		fprintf(stderr, "sluice keys %s: %s\n", what,
			wants_name ? "a NAME of letters, digits and . _ - is wanted" : "takes no NAME");
		return CMD_EXIT_USAGE;
	}
	rc = cmd_load(&o, "keys", &cfg);
	if (rc != 0)
		return rc;
	log_set_level(LOG_WARN);
	rc = act(what, &cfg, &a, &err);
	if (rc != 0)
		fprintf(stderr, "sluice keys %s: %s\n", what, err.text);
	sluice_config_free(&cfg);
	return rc == 0 ? 0 : rc == SL_EINVAL ? CMD_EXIT_USAGE : 1;
}
