/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads weights files when a scorer is created, and writes them after training. The only file I/O in this folder.
 */
#include "base/file.h"
#include "base/out_file.h"
#include "cascade/weights.h"

enum { FILE_MOST = 8 << 20 };

int casc_weights_read(const char *path, struct casc_weights **out, struct sl_err *err)
{
	struct sl_buf bytes;
	struct sl_err why = {0};
	int rc = file_read(path, FILE_MOST, &bytes, &why);
	if (rc != 0)
		rc = sl_errf(err, rc == SL_ENOTFOUND ? SL_EIO : rc, "%s: %s", path, why.text);
	else
		rc = casc_weights_decode(bytes.len > 0 ? buf_data(&bytes) : (const uint8_t *)"", bytes.len, path, out,
					 err);
	buf_dispose(&bytes);
	return rc;
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
		if (file_write(o.fd, buf_data(&b), b.len) == 0) {
			rc = out_file_finish(&o, err);
		} else {
			rc = sl_errf(err, SL_EIO, "%s: %m", path);
			out_file_abort(&o);
		}
	}
	buf_dispose(&b);
	return rc;
}
