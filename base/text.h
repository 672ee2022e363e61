/* SPDX-License-Identifier: Apache-2.0
 *
 * Small questions about text. Text from files and peers goes into messages of one line, so control characters are
 * rejected or replaced.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

bool text_ends(const char *s, const char *with);
/* ASCII control characters: below the space, and DEL. */
bool text_has_control(const char *s, size_t n);
/* Replaces each control character of s with `by`. */
void text_one_line(char *s, char by);

#endif
