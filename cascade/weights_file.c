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
#include "base/out_file.h"
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

static int write_all(int fd, const uint8_t *at, size_t n)
{
	while (n > 0) {
		ssize_t wrote = write(fd, at, n);
		if (wrote < 0 && errno != EINTR)
			return SL_EIO;
		at += wrote > 0 ? wrote : 0;
		n -= wrote > 0 ? (size_t)wrote : 0;
	}
	return 0;
}

int casc_weights_write(const struct casc_weights *w, const char *path, bool replace, struct sl_err *err)
{
	struct out_file o;
	struct sl_buf b;
	buf_init(&b, FILE_MOST);
	int rc = casc_weights_encode(w, &b);
	if (rc != 0)
		sl_errf(err, rc, "%s: %s", path, sl_code_name(rc));
	else if ((rc = out_file_open(path, replace, &o, err)) == 0) {
		if (write_all(o.fd, buf_data(&b), b.len) == 0) {
			rc = out_file_finish(&o, err);
		} else {
			rc = sl_errf(err, SL_EIO, "%s: %m", path);
			out_file_abort(&o);
		}
	}
	buf_dispose(&b);
	return rc;
}
