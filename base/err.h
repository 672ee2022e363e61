/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors. Functions that can fail return 0 or one of the negative codes below; results go out through pointers (the
 * last one named out). Where a person reads the reason, the function also takes a struct sl_err and writes one line
 * into it.
 *
 * Three kinds (they never mix): faults of peers, files and stores are returned; exhaustion is returned as SL_ENOMEM or
 * SL_ELIMIT and becomes a queue, a pre-emption or a 429/503; a broken invariant calls BUG() in every build.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

enum sl_code {
	SL_OK = 0,
	SL_ENOMEM = -1,       /* allocation failed */
	SL_EINVAL = -2,       /* the caller's or the peer's input is malformed */
	SL_EIO = -3,          /* the system refused: file, socket, device */
	SL_EAGAIN = -4,       /* nothing now; try again when notified */
	SL_ELIMIT = -5,       /* a configured bound would be exceeded */
	SL_EPROTO = -6,       /* the peer broke the protocol */
	SL_ENOTFOUND = -7,    /* no such thing */
	SL_EUNSUPPORTED = -8, /* well-formed, but not built (yet): named in the message */
	SL_ETIMEOUT = -9,     /* a deadline passed */
	SL_ECLOSED = -10,     /* the peer has closed */
	SL_ERANGE = -11,      /* a number outside its range */
};

/* One line for a person. text is always terminated; code is 0 while nothing went wrong. */
struct sl_err {
	int code;
	char text[512];
};

/* The code's short name ("no memory"), for logs. Never NULL. */
const char *sl_code_name(int code);

/* Fills err (which may be NULL) and returns code, so that a failing function can end with
 * `return sl_errf(err, SL_EINVAL, "%s: …", path);`. */
int sl_errf(struct sl_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
/* The analyzer sees one file at a time: this shows it that the result is the given code. */
#define sl_errf(err, code, ...)                       \
	({                                            \
		int code_ = (code);                   \
		(sl_errf)((err), code_, __VA_ARGS__); \
		code_;                                \
	})
#endif

/* A broken invariant: prints file, line and the message, dumps what base/log has registered,
 * and aborts. Never compiled out. */
#define BUG(...) sl_bug(__FILE__, __LINE__, __VA_ARGS__)
#define BUG_IF(cond, ...)                          \
	do {                                       \
		if (__builtin_expect(!!(cond), 0)) \
			BUG(__VA_ARGS__);          \
	} while (0)
void sl_bug(const char *file, int line, const char *fmt, ...) __attribute__((noreturn, format(printf, 3, 4)));

#endif
