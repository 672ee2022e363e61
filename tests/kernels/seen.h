/* SPDX-License-Identifier: Apache-2.0
 *
 * What was found in these very bytes is found in them again: a digest of files and of the program that looks at them,
 * and a folder with an empty file for each digest (SLUICE_TEST_SEEN, which `make test` sets; without it nothing is
 * remembered).
 */
#ifndef TESTS_KERNELS_SEEN_H
#define TESTS_KERNELS_SEEN_H

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* A file's bytes, *n of them, for the caller to free. */
static inline unsigned char *seen_read(const char *path, size_t *n)
{
	struct stat st;
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fstat(fileno(f), &st), 0);
	*n = (size_t)st.st_size;
	unsigned char *bytes = malloc(*n + 1);
	assert_true(bytes != NULL && fread(bytes, 1, *n, f) == *n);
	fclose(f);
	return bytes;
}

static inline void seen_file(XXH3_state_t *x, const char *path)
{
	size_t n;
	unsigned char *bytes = seen_read(path, &n);
	XXH3_128bits_update(x, &n, sizeof n);
	XXH3_128bits_update(x, bytes, n);
	free(bytes);
}

/* What of this program is loaded, without what debugging information changes in it: the number of the build, and where
 * the file's sections begin. Two folders' programs of the same sources are the same here. */
static inline void seen_program(XXH3_state_t *x)
{
	size_t n;
	unsigned char *bytes = seen_read("/proc/self/exe", &n);
	Elf64_Ehdr e;
	assert_true(n >= sizeof e);
	memcpy(&e, bytes, sizeof e);
	assert_true(e.e_ident[EI_CLASS] == ELFCLASS64 && e.e_phentsize == sizeof(Elf64_Phdr) &&
		    e.e_phoff + (size_t)e.e_phnum * sizeof(Elf64_Phdr) <= n);
	memset(bytes, 0, sizeof e);
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < e.e_phnum; i++) {
			Elf64_Phdr p;
			memcpy(&p, bytes + e.e_phoff + (size_t)i * sizeof p, sizeof p);
			assert_true(p.p_offset <= n && p.p_filesz <= n - p.p_offset);
			if (pass == 0 && p.p_type == PT_NOTE)
				memset(bytes + p.p_offset, 0, p.p_filesz);
			else if (pass == 1 && p.p_type == PT_LOAD)
				XXH3_128bits_update(x, bytes + p.p_offset, p.p_filesz);
		}
	free(bytes);
}

/* The digest's file in the folder, or "" where nothing is remembered. */
static inline void seen_path(const XXH3_state_t *x, char *path, size_t size)
{
	const char *folder = getenv("SLUICE_TEST_SEEN");
	XXH128_hash_t h = XXH3_128bits_digest(x);
	path[0] = '\0';
	if (folder != NULL && folder[0] != '\0')
		snprintf(path, size, "%s/%016llx%016llx", folder, (unsigned long long)h.high64,
			 (unsigned long long)h.low64);
}

/* Whether it is there, which makes it fresh. */
static inline int seen_before(const char *path) { return path[0] != '\0' && utimensat(AT_FDCWD, path, NULL, 0) == 0; }

static inline void seen_keep(const char *path)
{
	int fd = path[0] != '\0' ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644) : -1;
	if (fd >= 0)
		close(fd);
}

#endif
