/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of weights: the only place of this folder that reads or writes one, when a scorer is made and
 * when a model has been fitted.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cascade/weights.h"

enum { FILE_MOST = 8 << 20 };

int casc_weights_read(const char *path, struct casc_weights **out, struct sl_err *err)
{
	struct stat st;
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *data = NULL;
	size_t n = 0;
	if (fd < 0 || fstat(fd, &st) != 0)
		rc = sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || st.st_size > FILE_MOST)
		rc = sl_errf(err, SL_EINVAL, "%s: is not a file of the cascade's weights", path);
	else if ((data = sl_alloc((size_t)st.st_size + 1)) == NULL)
		rc = sl_errf(err, SL_ENOMEM, "%s: no memory for it", path);
	while (rc == 0 && n < (size_t)st.st_size) {
		ssize_t got = read(fd, data + n, (size_t)st.st_size - n);
		if (got > 0)
			n += (size_t)got;
		else if (got == 0)
			break; /* shorter than it was a moment ago: the length check says so */
		else if (errno != EINTR)
			rc = sl_errf(err, SL_EIO, "%s: %s", path, strerror(errno));
	}
	if (rc == 0)
		rc = casc_weights_decode(data, n, path, out, err);
	sl_free(data);
	if (fd >= 0)
		close(fd);
	return rc;
}

int casc_weights_write(const struct casc_weights *w, const char *path, struct sl_err *err)
{
	char part[4200];
	struct sl_buf b;
	if ((size_t)snprintf(part, sizeof part, "%s.part", path) >= sizeof part)
		return sl_errf(err, SL_EINVAL, "%s: too long", path);
	buf_init(&b, FILE_MOST);
	int rc = casc_weights_encode(w, &b);
	if (rc != 0) {
		buf_dispose(&b);
		return sl_errf(err, rc, "%s: %s", path, sl_code_name(rc));
	}
	FILE *f = fopen(part, "we");
	bool good = f != NULL && fwrite(buf_data(&b), 1, b.len, f) == b.len && fflush(f) == 0 && fsync(fileno(f)) == 0;
	int why = errno;
	if (f != NULL && fclose(f) != 0)
		good = false;
	if (good && rename(part, path) != 0) {
		why = errno;
		good = false;
	}
	if (!good && f != NULL)
		unlink(part);
	buf_dispose(&b);
	return good ? 0 : sl_errf(err, SL_EIO, "%s: %s", path, strerror(why));
}
