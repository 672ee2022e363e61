/* SPDX-License-Identifier: Apache-2.0
 *
 * The state folder and certificates.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "cmd/doctor/doctor.h"
#include "gateway/transport/cert_facts.h"
#include "gateway/transport/tls_context.h"

enum {
	SOON_DAYS = 14,
	DISK_LOW_MIB = 100,
};

/* ---- the state folder ---- */

static void bad_folder(struct report *r, const char *path, const char *why)
{
	report_add(r, REPORT_FAIL, "state", "%s: %s", path, why);
	report_change(r, "state: a folder of the server's user (or --state DIR)");
}

/* The nearest folder above that exists: it would be made there. */
static void check_missing(struct report *r, const char *path)
{
	char above[PATH_MAX];
	struct stat st;
	file_folder(path, above, sizeof above);
	if (stat(above, &st) != 0)
		bad_folder(r, path, "does not exist, nor does the folder above it");
	else if (access(above, W_OK | X_OK) != 0)
		bad_folder(r, path, "does not exist, and cannot be created: the folder above it is not writable");
	else
		report_add(r, REPORT_OK, "state", "%s does not exist yet and can be created", path);
}

static void check_space(struct report *r, const char *path)
{
	struct statvfs v;
	if (statvfs(path, &v) != 0)
		return;
	uint64_t mib = (uint64_t)v.f_bavail * v.f_frsize >> 20;
	if (mib >= DISK_LOW_MIB && (v.f_files == 0 || v.f_favail > 0)) {
		report_add(r, REPORT_OK, "state", "%s is writable, %" PRIu64 " MiB are free", path, mib);
		return;
	}
	report_add(r, REPORT_FAIL, "state", "%s: its disk is full (%" PRIu64 " MiB, %" PRIu64 " files free)", path, mib,
		   (uint64_t)v.f_favail);
	report_change(r, "state: a folder on another disk, or free this one");
}

void check_state(struct report *r, const struct sluice_config *cfg)
{
	struct stat st;
	const char *path = cfg->state;
	if (stat(path, &st) != 0 && errno == ENOENT) {
		check_missing(r, path);
	} else if (stat(path, &st) != 0) {
		bad_folder(r, path, strerror(errno));
	} else if (!S_ISDIR(st.st_mode)) {
		bad_folder(r, path, "is not a folder");
	} else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
		report_add(r, REPORT_FAIL, "state", "%s: other users may write to it (mode %04o)", path,
			   (unsigned)st.st_mode & 07777);
		report_change(r, "chmod go-w %s", path);
	} else if (access(path, W_OK | X_OK) != 0) {
		bad_folder(r, path, "is not writable for this user");
	} else {
		check_space(r, path);
	}
}

/* ---- keys and values on disk ---- */

static void bad_kv_folder(struct report *r, const char *path, const char *why)
{
	report_add(r, REPORT_FAIL, "kv_disk", "%s: %s", path, why);
	report_change(r, "engine.kv_disk.folder: a folder of the engine's user, mode 0700 (or \"\")");
}

static void check_kv_space(struct report *r, const char *path, uint64_t most)
{
	struct statvfs v;
	if (statvfs(path, &v) != 0)
		return;
	uint64_t left = (uint64_t)v.f_bavail * v.f_frsize;
	report_add(r, left < most ? REPORT_WARN : REPORT_OK, "kv_disk",
		   "%s: %" PRIu64 " MiB are free, engine.kv_disk.bytes allows %" PRIu64 " MiB", path, left >> 20,
		   most >> 20);
	if (left < most)
		report_change(r, "engine.kv_disk.bytes: less, unless that much is stored already");
}

void check_kv_disk(struct report *r, const struct sluice_config *cfg)
{
	struct stat st;
	const char *path = cfg->engine.kv_disk;
	uint64_t most = cfg->engine.kv_disk_bytes;
	if (most == 0)
		return;
	if (stat(path, &st) != 0 && errno == ENOENT) {
		if (strcmp(path, cfg->default_kv) == 0)
			check_kv_space(r, cfg->state, most); /* made at the start */
		else
			bad_kv_folder(r, path, "does not exist");
	} else if (stat(path, &st) != 0) {
		bad_kv_folder(r, path, strerror(errno));
	} else if (!S_ISDIR(st.st_mode)) {
		bad_kv_folder(r, path, "is not a folder");
	} else if ((st.st_mode & 077) != 0) {
		report_add(r, REPORT_FAIL, "kv_disk", "%s: other users may read or write it (mode %04o)", path,
			   (unsigned)st.st_mode & 07777);
		report_change(r, "chmod 700 %s", path);
	} else {
		check_kv_space(r, path, most);
	}
}

/* ---- certificates ---- */

static void check_one(struct report *r, const char *key, const char *path)
{
	struct cert_facts c;
	struct sl_err why = {0};
	if (cert_facts_read(path, &c, &why) != 0) {
		report_add(r, REPORT_FAIL, "certificate", "%s: %s", path, why.text);
		report_change(r, "%s: the path of a PEM file", key);
	} else if (c.days_left < 0) {
		report_add(r, REPORT_FAIL, "certificate", "%s expired on %s", path, c.end);
		report_change(r, "%s: a valid certificate, then SIGHUP to `sluice serve`", key);
	} else if (c.is_early) {
		report_add(r, REPORT_FAIL, "certificate", "%s is not valid yet; or the clock of this machine is wrong",
			   path);
		report_change(r, "%s: a valid certificate", key);
	} else if (c.days_left < SOON_DAYS) {
		report_add(r, REPORT_WARN, "certificate", "%s expires on %s, in %d days", path, c.end, c.days_left);
		report_change(r, "%s: a newer certificate, then SIGHUP to `sluice serve`", key);
	} else {
		report_add(r, REPORT_OK, "certificate", "%s for %s until %s", path,
			   c.names[0] != '\0' ? c.names : "no name", c.end);
	}
}

void check_certificates(struct report *r, const struct sluice_config *cfg)
{
	const struct gw_config *g = &cfg->gateway;
	const struct gw_cert_config *more = g->certificates.items;
	struct tls_context *tls = NULL;
	struct sl_err err = {0};
	char key[128];
	if (!gateway_serves_tls(g)) {
		report_add(r, REPORT_OK, "certificate", "none is needed: no listener uses TLS");
		return;
	}
	if (gateway_wants_dev_cert(g)) {
		report_add(r, REPORT_OK, "certificate",
			   "gateway.cert names none: https uses one for development, which clients must be given");
		return;
	}
	if (tls_context_create(g, &tls, &err) != 0) {
		report_add(r, REPORT_FAIL, "certificate", "%s", err.text);
		report_change(r, "gateway.cert and gateway.key: a certificate and its key");
	}
	tls_context_unref(tls);
	check_one(r, "gateway.cert", g->cert_file);
	for (size_t i = 0; i < g->certificates.n; i++) {
		snprintf(key, sizeof key, "gateway.certificates.%s.cert", more[i].name);
		check_one(r, key, more[i].cert_file);
	}
}
