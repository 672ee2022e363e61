/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation with fault points and checked products. Everything that can grow with input from
 * outside allocates here. NULL means exhaustion: the caller returns SL_ENOMEM.
 */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stddef.h>

void *sl_alloc(size_t bytes);                       /* not zeroed */
void *sl_zalloc(size_t bytes);                      /* zeroed */
void *sl_zalloc_n(size_t n, size_t each);           /* zeroed, n * each checked */
void *sl_realloc_n(void *p, size_t n, size_t each); /* p stays valid on NULL */
char *sl_strdup(const char *s);
char *sl_strndup(const char *s, size_t n); /* copies exactly n bytes and terminates */
void sl_free(void *p);

#endif
