/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice pull`, `sluice list`, `sluice rm`.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hex.h"
#include "cmd/config/model_path.h"
#include "cmd/hub/hub.h"
#include "cmd/hub/hub_options.h"
#include "cmd/hub/hub_plan.h"
#include "cmd/hub/hub_progress.h"

static const char pull_usage[] =
    "usage: sluice pull SOURCE [--name NAME] [--token-file FILE] [--sha256 DIGEST] [OPTIONS]\n"
    "       sluice pull --list | --rm NAME\n"
    "       sluice list, sluice rm NAME: the same\n"
    "\n"
    "SOURCE is hf:OWNER/NAME[@REVISION][:TAG], a repository of the Hugging Face hub, or the address\n"
    "https://HOST/FILE.gguf. Of a repository with GGUF files the one with TAG (Q8_0, ...) is taken; without a\n"
    "TAG Q4_K_M, or the nearest to it. Of others the safetensors, config.json and the tokenizer.\n"
    "An interrupted pull continues where it stopped. The printed path is the model's; its name is what\n"
    "`sluice run` and engine.models.NAME.path take.\n"
    "\n"
    "      --name NAME        what the model is called here (default: NAME-TAG, or the file's name)\n"
    "      --token-file FILE  an access token, in a file of mode 0600 (default: hub.token_file, $HF_TOKEN_FILE)\n"
    "      --sha256 DIGEST    what the file at an address must have\n" HUB_COMMON_USAGE;

/* ---- list ---- */

/* ".NAME.pull" to "NAME"; false: another hidden name. */
static bool is_staging(const char *entry, char *name, size_t size)
{
	size_t n = strlen(entry);
	if (entry[0] != '.' || n <= 6 || strcmp(entry + n - 5, ".pull") != 0 || n - 6 >= size)
		return false;
	memcpy(name, entry + 1, n - 6);
	name[n - 6] = '\0';
	return model_name_valid(name);
}

static void print_row(const char *name, uint64_t bytes, const char *source, const char *when)
{
	char size[32];
	hub_size_text(bytes, size, sizeof size);
	printf("%-40s %10s  %-10s  %s\n", name, size, when, source);
}

static void list_one(int folder, const char *entry)
{
	char name[NAME_MAX + 1], when[32] = "";
	struct hub_plan p = {.items = NULL};
	struct stat st;
	struct tm tm;
	bool staging = is_staging(entry, name, sizeof name);
	int dir = entry[0] != '.' || staging ? hub_open_below(folder, entry, O_RDONLY | O_DIRECTORY) : -1;
	uint64_t bytes = hub_bytes_in(folder, entry);
	if (entry[0] == '.' && !staging)
		return;
	if (dir >= 0 && hub_plan_read(dir, staging ? HUB_JOURNAL : HUB_MANIFEST, &p) != 0)
		p = (struct hub_plan){.items = NULL};
	if (fstatat(folder, entry, &st, AT_SYMLINK_NOFOLLOW) == 0 && localtime_r(&st.st_mtime, &tm) != NULL)
		strftime(when, sizeof when, "%Y-%m-%d", &tm);
	if (staging)
		snprintf(when, sizeof when, "%.0f %%", p.bytes > 0 ? (double)bytes * 100 / (double)p.bytes : 0);
	print_row(staging ? name : entry, bytes, p.source, when);
	hub_plan_dispose(&p);
	if (dir >= 0)
		close(dir);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	const char *x = (*a)->d_name, *y = (*b)->d_name;
	return strcmp(x + (*x == '.'), y + (*y == '.'));
}

static int list(const struct hub_folder *f)
{
	struct dirent **all;
	int n = scandirat(f->fd, ".", &all, NULL, by_name);
	if (n < 0)
		return hub_complain(1, "%s: %s", f->path, strerror(errno));
	printf("%-40s %10s  %-10s  %s\n", "NAME", "SIZE", "PULLED", "SOURCE");
	for (int i = 0; i < n; i++) {
		if (strcmp(all[i]->d_name, ".") != 0 && strcmp(all[i]->d_name, "..") != 0)
			list_one(f->fd, all[i]->d_name);
		free(all[i]);
	}
	free(all);
	return fflush(stdout) == 0 ? 0 : hub_complain(1, "standard output: %s", strerror(errno));
}

/* ---- rm ---- */

/* First it loses its name, at once and whole. An engine that maps it keeps what it has. */
static int remove_model(const struct hub_folder *f, const char *name)
{
	char gone[NAME_MAX + 1], staging[NAME_MAX + 1];
	struct stat st;
	hub_staging_name(name, staging, sizeof staging);
	snprintf(gone, sizeof gone, ".%s.gone", name);
	bool there = fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	bool partly = fstatat(f->fd, staging, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!there && !partly)
		return -ENOENT;
	int rc = hub_remove(f->fd, gone);
	if (rc == 0 && there && renameat(f->fd, name, f->fd, gone) != 0)
		rc = -errno;
	if (rc == 0)
		rc = hub_remove(f->fd, gone);
	return rc == 0 ? hub_remove(f->fd, staging) : rc;
}

static int rm(const struct hub_folder *f, const char *text)
{
	struct hub_source s;
	struct sl_err err;
	const char *name = text;
	if (hub_source_like(text)) {
		if (hub_source_parse(text, &s, &err) != 0)
			return hub_complain(CMD_EXIT_USAGE, "%s", err.text);
		name = s.name;
	}
	if (!model_name_valid(name))
		return hub_complain(CMD_EXIT_USAGE, "rm: not a model's name: %.100s", text);
	privileges_as_user(&f->user);
	int rc = remove_model(f, name);
	privileges_as_before(&f->user);
	if (rc == -ENOENT)
		return hub_complain(1, "%s has no model %s (`sluice list` shows all)", f->path, name);
	return rc == 0 ? 0 : hub_complain(1, "%s/%s: %s", f->path, name, strerror(-rc));
}

/* ---- pull ---- */

static int pull(const struct sluice_config *cfg, struct hub_folder *f, const struct hub_options *o, void *ctx)
{
	(void)ctx;
	struct hub_order order = {.has_digest = o->sha256 != NULL};
	struct sl_err err;
	char path[PATH_MAX];
	if (hub_source_parse(o->word, &order.source, &err) != 0 ||
	    hub_token_read(cfg, o->token_file, &order, &err) != 0)
		return hub_complain(CMD_EXIT_USAGE, "%s", err.text);
	if (o->sha256 != NULL && (order.source.kind != HUB_URL || !hex_get(o->sha256, order.digest, HUB_DIGEST_BYTES)))
		return hub_complain(CMD_EXIT_USAGE, "--sha256: 64 hexadecimal digits, for the file at an address");
	snprintf(order.name, sizeof order.name, "%s", o->name != NULL ? o->name : order.source.name);
	if (!model_name_valid(order.name) || (o->name != NULL && strcmp(o->name, order.name) != 0))
		return hub_complain(CMD_EXIT_USAGE, "--name: letters, digits and . _ -, at most 100, not . or - first");
	int rc = hub_pull(cfg, f, &order);
	explicit_bzero(order.token, sizeof order.token);
	if (rc != 0)
		return rc;
	bool found = model_path_find(f->path, order.name, path, sizeof path);
	printf("%s\n", found ? path : order.name);
	return fflush(stdout) == 0 ? 0 : hub_complain(1, "standard output: %s", strerror(errno));
}

static int run_list(const struct sluice_config *cfg, struct hub_folder *f, const struct hub_options *o, void *ctx)
{
	(void)cfg, (void)o, (void)ctx;
	return list(f);
}

static int run_rm(const struct sluice_config *cfg, struct hub_folder *f, const struct hub_options *o, void *ctx)
{
	(void)cfg, (void)ctx;
	return rm(f, o->word);
}

int cmd_pull(int argc, char **argv)
{
	struct hub_options o;
	struct hub_source s;
	struct sl_err err;
	int rc = hub_options_parse(&o, argc, argv, pull_usage);
	if (rc != 0)
		return rc;
	if (o.list && o.word == NULL && !o.rm)
		return hub_with_folder(&o, run_list, NULL);
	if (o.word == NULL || o.list || (o.rm && (o.name != NULL || o.sha256 != NULL))) {
		fputs(pull_usage, stderr);
		return CMD_EXIT_USAGE;
	}
	/* Before a folder is made for it. */
	if (!o.rm && hub_source_parse(o.word, &s, &err) != 0)
		return hub_complain(CMD_EXIT_USAGE, "%s", err.text);
	return hub_with_folder(&o, o.rm ? run_rm : pull, NULL);
}

int cmd_list(int argc, char **argv)
{
	static const char usage[] = "usage: sluice list [OPTIONS]: the models that were pulled\n" HUB_COMMON_USAGE;
	struct hub_options o;
	int rc = hub_options_parse(&o, argc, argv, usage);
	if (rc == 0 && o.word != NULL) {
		fputs(usage, stderr);
		rc = CMD_EXIT_USAGE;
	}
	return rc == 0 ? hub_with_folder(&o, run_list, NULL) : rc;
}

int cmd_rm(int argc, char **argv)
{
	static const char usage[] = "usage: sluice rm NAME [OPTIONS]: removes a pulled model, or what an interrupted "
				    "pull left\n" HUB_COMMON_USAGE;
	struct hub_options o;
	int rc = hub_options_parse(&o, argc, argv, usage);
	if (rc == 0 && o.word == NULL) {
		fputs(usage, stderr);
		rc = CMD_EXIT_USAGE;
	}
	return rc == 0 ? hub_with_folder(&o, run_rm, NULL) : rc;
}
