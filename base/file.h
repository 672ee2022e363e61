/* SPDX-License-Identifier: Apache-2.0
 *
 * Files whose names come from outside: the configuration, certificates, keys, password files, weights. Opening never
 * blocks, even for a FIFO without a writer. Only regular files are read, up to a bound.
 *
 * An unprivileged process asks the broker (broker.h) for files that it may not open itself.
 *
 * *why gets the reason alone ("it is a FIFO"): callers add the file and, where a key names it, the key.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

/* A descriptor for reading (close-on-exec). SL_ENOTFOUND: there is no such file; SL_EINVAL: it is not a regular
 * one; SL_EIO. */
int file_open(const char *path, struct sl_err *why);
/* As stat(2); through the broker, only kind, size and identity are filled in. */
int file_stat(const char *path, struct stat *st);
/* Also refused: a symbolic link, another user's file, one that others may read. */
int file_open_private(const char *path, struct sl_err *why);
/* Makes path with these bytes, mode 0600, flushed. If another process makes it first, its file stays and this succeeds
 * too. 0, or SL_EIO with errno. */
int file_make_private(const char *path, const void *bytes, size_t n);
/* The folder of a path, terminated: "." for a bare name. */
void file_folder(const char *path, char *out, size_t size);
/* Appends the rest of fd to out. SL_ELIMIT: more than `most` bytes; SL_EIO, SL_ENOMEM. out's own bound may be lower and
 * means the same. */
int file_read_fd(int fd, size_t most, struct sl_buf *out, struct sl_err *why);
/* file_open and file_read_fd into an empty buffer, which the caller disposes of, after a failure too. */
int file_read(const char *path, size_t most, struct sl_buf *out, struct sl_err *why);
/* The beginning of root + path, a file of /proc or /sys, terminated: how many bytes, fewer than size; 0: it is empty or
 * can't be read. root: "" but for tests. */
size_t file_read_text(const char *root, const char *path, char *text, size_t size);
/* Writes all n bytes. 0, or SL_EIO with the reason in errno. */
int file_write(int fd, const void *p, size_t n);

#endif
