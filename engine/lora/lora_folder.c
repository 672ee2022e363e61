/* SPDX-License-Identifier: Apache-2.0
 *
 * Which paths may be loaded, and what is in watched folders. Symbolic links are followed and then checked: they may
 * point to anything below the folder, and to nothing else.
 *
 * A watched folder is looked at from time to time, which also works where the system reports no changes (network file
 * systems, bind mounts). What is there is loaded once two looks in a row found the same files with the same sizes and
 * times, so files that are being copied are left alone.
 */
#include "engine/lora/lora_priv.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

/* Those that an adapter's folder may have and that are read. */
static const char *const read_files[] = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin",
					 "tokenizer.json",      "tokenizer_config.json",     "added_tokens.json",
					 "chat_template.jinja", "chat_template.json"};
enum { N_READ = sizeof read_files / sizeof *read_files, MAX_SEEN = 1024 };

bool lora_name_ok(const char *name)
{
	if (name[0] == '\0')
		return false;
	for (const char *p = name; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && strchr("._/-", *p) == NULL)
			return false;
	return true;
}

/* ---- paths ---- */

static bool is_below(const char *folder, const char *path)
{
	size_t n = strlen(folder);
	return strncmp(folder, path, n) == 0 && path[n] == '/' && path[n + 1] != '\0';
}

static bool goes_up(const char *path)
{
	for (const char *p = path; *p != '\0'; p += strcspn(p, "/"), p += *p == '/')
		if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
			return true;
	return false;
}

/* The folder's canonical path, as it is now; NULL: there is none. */
static const char *real_folder(struct lora_folder_state *f)
{
	char real[PATH_MAX];
	if (realpath(f->path, real) == NULL)
		return NULL;
	if (f->real == NULL || strcmp(f->real, real) != 0) {
		sl_free(f->real);
		f->real = sl_strdup(real);
	}
	return f->real;
}

/* 1: it is in this folder; 0: it is not; or an error. */
static int try_folder(struct lora_folder_state *f, const char *path, char *out, size_t size, struct sl_err *err)
{
	char whole[PATH_MAX], real[PATH_MAX];
	const char *folder = real_folder(f);
	bool absolute = path[0] == '/';
	if (folder == NULL || (absolute && !is_below(f->path, path) && !is_below(folder, path)))
		return 0;
	int n = snprintf(whole, sizeof whole, "%s%s%s", absolute ? "" : folder, absolute ? "" : "/", path);
	if (n < 0 || (size_t)n >= sizeof whole)
		return sl_errf(err, SL_EINVAL, "lora_path is too long");
	if (realpath(whole, real) == NULL)
		return absolute || errno != ENOENT ? sl_errf(err, SL_ENOTFOUND, "lora_path: %s", strerror(errno)) : 0;
	if (!is_below(folder, real))
		return sl_errf(err, SL_EINVAL, "lora_path leads out of the folder of adapters");
	if ((size_t)snprintf(out, size, "%s", real) >= size)
		return sl_errf(err, SL_EINVAL, "lora_path is too long");
	return 1;
}

int lora_path(struct lora *l, const char *path, int *folder, char *out, size_t size, struct sl_err *err)
{
	if (path[0] == '\0' || goes_up(path))
		return sl_errf(err, SL_EINVAL, "lora_path has no name, or a '..'");
	if (l->n_folders == 0)
		return sl_errf(err, SL_EUNSUPPORTED, "no folder of adapters is configured (engine.adapter_folders)");
	for (int i = 0; i < l->n_folders; i++) {
		int rc = try_folder(&l->folders[i], path, out, size, err);
		if (rc == 0)
			continue;
		*folder = i;
		return rc == 1 ? 0 : rc;
	}
	return path[0] == '/' ? sl_errf(err, SL_EUNSUPPORTED, "lora_path is in no folder of engine.adapter_folders")
			      : sl_errf(err, SL_ENOTFOUND, "lora_path: no folder of engine.adapter_folders has it");
}

int lora_check_inside(const struct lora *l, int folder, const char *path, struct sl_err *err)
{
	char file[PATH_MAX + 64], real[PATH_MAX];
	for (int i = 0; i < N_READ; i++) {
		snprintf(file, sizeof file, "%s/%s", path, read_files[i]);
		if (realpath(file, real) != NULL && !is_below(l->folders[folder].real, real))
			return sl_errf(err, SL_EINVAL, "%s leads out of the folder of adapters", read_files[i]);
	}
	return 0;
}

/* ---- watched folders ---- */

static uint64_t print_of_file(const char *path, uint64_t seed)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return XXH3_64bits_withSeed("-", 1, seed);
	const uint64_t what[] = {(uint64_t)st.st_ino,         (uint64_t)st.st_size,
				 (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
				 (uint64_t)st.st_ctim.tv_sec, (uint64_t)st.st_ctim.tv_nsec};
	return XXH3_64bits_withSeed(what, sizeof what, seed);
}

/* Of all files that are read; 0: this is no adapter. */
static uint64_t print_of(const char *path, bool is_folder)
{
	char file[PATH_MAX + 64];
	struct stat st;
	uint64_t print = 1;
	if (!is_folder)
		return print_of_file(path, print) | 1;
	snprintf(file, sizeof file, "%s/adapter_config.json", path);
	if (stat(file, &st) != 0)
		return 0;
	for (int i = 0; i < N_READ; i++) {
		snprintf(file, sizeof file, "%s/%s", path, read_files[i]);
		print = print_of_file(file, print);
	}
	return print | 1;
}

/* What one look found: names with prints, of which the next look needs the latter. */
struct seen {
	char name[PROTO_MAX_NAME + 1], path[PROTO_MAX_PATH + 1];
	uint64_t print;
};

/* false: it is no adapter's. */
static bool see(struct lora_folder_state *f, const char *file, struct seen *out)
{
	struct stat st;
	size_t n = strlen(file), most;
	if (file[0] == '.' || snprintf(out->path, sizeof out->path, "%s/%s", f->real, file) >= (int)sizeof out->path ||
	    stat(out->path, &st) != 0)
		return false;
	bool folder = S_ISDIR(st.st_mode);
	if (!folder && (!S_ISREG(st.st_mode) || !text_ends(file, ".gguf")))
		return false;
	n -= folder ? 0 : 5;
	most = sizeof out->name - strlen(f->base) - 1;
	if (n == 0 || n >= most)
		return false;
	snprintf(out->name, sizeof out->name, "%s:%.*s", f->base, (int)n, file);
	out->print = print_of(out->path, folder);
	return out->print != 0 && lora_name_ok(out->name + strlen(f->base) + 1);
}

static size_t list_folder(struct lora_folder_state *f, struct seen *all)
{
	size_t n = 0;
	DIR *d = real_folder(f) != NULL ? opendir(f->real) : NULL;
	struct dirent *it;
	while (d != NULL && n < MAX_SEEN && (it = readdir(d)) != NULL)
		n += see(f, it->d_name, &all[n]);
	if (d != NULL)
		closedir(d);
	return n;
}

/* What the last look found, to tell what is still being written. */
static bool is_settled(struct lora *l, int entry, uint64_t print)
{
	bool same = l->entries[entry].seen == print;
	l->entries[entry].seen = print;
	return same;
}

static void load_seen(struct lora *l, int folder, const struct seen *s)
{
	struct sl_err err = {0};
	const struct lora_folder_state *f = &l->folders[folder];
	char real[PATH_MAX];
	int entry;
	pthread_mutex_lock(&l->lock);
	int rc = lora_entry_for(l, s->name, clock_now_ns(), &entry);
	struct lora_entry *e = rc == 0 ? &l->entries[entry] : NULL;
	bool ours = e != NULL && (e->state == LORA_FREE || e->folder == folder);
	if (ours && e->state == LORA_FREE) {
		e->model = f->model;
		e->folder = folder;
		e->state = LORA_LOADING;
		e->print = e->seen = 0;
	}
	bool due = ours && is_settled(l, entry, s->print) && e->print != s->print;
	if (due)
		e->print = s->print;
	pthread_mutex_unlock(&l->lock);
	if (!due)
		return;
	if (realpath(s->path, real) == NULL || !is_below(f->real, real))
		log_error("adapter %s: %s leads out of its folder", s->name, s->path);
	else if (lora_check_inside(l, folder, s->path, &err) != 0)
		log_error("adapter %s: %s", s->name, err.text);
	else
		(void)lora_renew(l, entry, s->path, &err);
}

/* Entries of the folder that are not there any more. */
static void drop_unseen(struct lora *l, int folder, const struct seen *all, size_t n)
{
	for (int i = 0; i < lora_n(l); i++) {
		const struct lora_entry *e = &l->entries[i];
		pthread_mutex_lock(&l->lock);
		bool there = e->folder != folder || e->state == LORA_FREE;
		pthread_mutex_unlock(&l->lock);
		for (size_t k = 0; k < n && !there; k++)
			there = strcmp(e->name, all[k].name) == 0;
		if (!there)
			lora_drop(l, i);
	}
}

void lora_watch(struct lora *l)
{
	struct seen *all = sl_zalloc_n(MAX_SEEN, sizeof *all);
	for (int i = 0; i < l->n_folders && all != NULL; i++) {
		struct lora_folder_state *f = &l->folders[i];
		if (!f->watched || lora_model(l, f->model) == NULL)
			continue;
		size_t n = list_folder(f, all);
		drop_unseen(l, i, all, n);
		for (size_t k = 0; k < n; k++)
			load_seen(l, i, &all[k]);
	}
	sl_free(all);
}
