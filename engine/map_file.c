/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/map_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int map_file_open(const char *path, struct map_file *out, struct sl_err *err)
{
	struct stat st;
	*out = (struct map_file){0};
	/* Not blocking: the path may name a pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return sl_errf(err, SL_EIO, "%s: %m", path);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return sl_errf(err, SL_EIO, "%s: not a regular file", path);
	}
	size_t bytes = (size_t)st.st_size;
	void *map = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	int rc = 0;
	if (bytes == 0)
		rc = sl_errf(err, SL_EINVAL, "%s: empty file", path);
	else if (map == MAP_FAILED)
		rc = sl_errf(err, SL_EIO, "%s: can't be mapped: %m", path);
	else
		*out = (struct map_file){.at = map, .bytes = bytes};
	close(fd);
	return rc;
}

void map_file_close(struct map_file *m)
{
	if (m->at != NULL)
		munmap((void *)(uintptr_t)m->at, m->bytes);
	*m = (struct map_file){0};
}
