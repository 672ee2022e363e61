/* SPDX-License-Identifier: Apache-2.0
 *
 * Development keys: three random keys in a file of the state folder, mode 0600, created once. If two processes
 * create it at the same time, both use the first file (file_make_private).
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hex.h"
#include "gateway/auth/dev_keys.h"
#include "gateway/config/gw_config.h"

enum { PATH_BYTES = 4096, RANDOM_BYTES = 16, FILE_BYTES = 512 };

static const char *const names[GW_N_DEV_KEYS] = {"free", "paid", "admin"};

static int parse(const char *path, char *text, struct gw_dev_keys *out, struct sl_err *err)
{
	for (int i = 0; i < GW_N_DEV_KEYS; i++) {
		char start[16];
		int n = snprintf(start, sizeof start, "%s: ", names[i]);
		char *at = strstr(text, start);
		size_t len = at ? strcspn(at + n, "\n") : 0;
		if (at == NULL || (at != text && at[-1] != '\n') || len < 16 || len >= sizeof out->key[i])
			return sl_errf(err, SL_EINVAL,
				       "%s: the key \"%s\" is invalid; remove the file and restart to make new keys",
				       path, names[i]);
		memcpy(out->key[i], at + n, len);
		out->key[i][len] = '\0';
	}
	return 0;
}

/* SL_ENOTFOUND: no file. */
static int read_file(const char *path, struct gw_dev_keys *out, struct sl_err *err)
{
	char text[FILE_BYTES];
	struct sl_err why = {0};
	int fd = file_open_private(path, &why);
	if (fd < 0)
		return fd == SL_ENOTFOUND ? fd : sl_errf(err, fd, "%s: %s", path, why.text);
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n < 0)
		return sl_errf(err, SL_EIO, "%s: %m", path);
	text[n] = '\0';
	return parse(path, text, out, err);
}

static int write_file(const char *path, struct sl_err *err)
{
	char text[FILE_BYTES], digits[2 * RANDOM_BYTES + 1];
	size_t n = (size_t)snprintf(text, sizeof text,
				    "# Development keys. Never put keys into a configuration: only their SHA-256.\n");
	for (int i = 0; i < GW_N_DEV_KEYS; i++) {
		uint8_t random[RANDOM_BYTES];
		if (RAND_bytes(random, sizeof random) != 1)
			return sl_errf(err, SL_EIO, "cannot get random bytes for the development keys");
		hex_put(random, sizeof random, digits);
		n += (size_t)snprintf(text + n, sizeof text - n, "%s: sk-sluice-%s-%s\n", names[i], names[i], digits);
	}
	return file_make_private(path, text, n) == 0 ? 0 : sl_errf(err, SL_EIO, "%s: %m", path);
}

int gw_dev_keys_ensure(const char *state_dir, struct gw_dev_keys *out, struct sl_err *err)
{
	char path[PATH_BYTES];
	if ((size_t)snprintf(path, sizeof path, "%s/dev-keys.yaml", state_dir) >= sizeof path)
		return sl_errf(err, SL_EINVAL, "the path of the state folder is too long");
	if (mkdir(state_dir, 0700) != 0 && errno != EEXIST)
		return sl_errf(err, SL_EIO, "%s: %m", state_dir);
	int rc = read_file(path, out, err);
	if (rc != SL_ENOTFOUND)
		return rc;
	rc = write_file(path, err);
	return rc != 0 ? rc : read_file(path, out, err);
}
