/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

const char *sl_code_name(int code)
{
	switch ((enum sl_code)code) {
	case SL_OK: return "ok";
	case SL_ENOMEM: return "no memory";
	case SL_EINVAL: return "invalid input";
	case SL_EIO: return "input/output error";
	case SL_EAGAIN: return "try again";
	case SL_ELIMIT: return "limit reached";
	case SL_EPROTO: return "protocol error";
	case SL_ENOTFOUND: return "not found";
	case SL_EUNSUPPORTED: return "unsupported";
	case SL_ETIMEOUT: return "timed out";
	case SL_ECLOSED: return "closed";
	case SL_ERANGE: return "out of range";
	}
	return "unknown error";
}

int(sl_errf)(struct sl_err *err, int code, const char *fmt, ...)
{
	if (err != NULL) {
		va_list ap;
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof err->text, fmt, ap);
		va_end(ap);
		/* Control characters from a file or a peer must not reach a terminal. */
		text_one_line(err->text, '?');
		err->code = code;
	}
	return code;
}

void sl_bug(const char *file, int line, const char *fmt, ...)
{
	va_list ap;
	fprintf(stderr, "BUG at %s:%d: ", file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fflush(stderr);
	abort();
}
