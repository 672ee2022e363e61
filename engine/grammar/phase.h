/* SPDX-License-Identifier: Apache-2.0
 *
 * Positions inside a UTF-8 character (RFC 3629): the permitted bytes, and the position after them.
 */
#ifndef ENGINE_GRAMMAR_PHASE_H
#define ENGINE_GRAMMAR_PHASE_H

#include <stddef.h>
#include <stdint.h>

struct phase {
	uint8_t from, to, next;
};
enum { BOUNDARY, N_PHASES = 8, NO_PHASE = UINT8_MAX };

static const struct phase phases[N_PHASES] = {
    {0, 0, 0},       /* between characters */
    {0x80, 0xBF, 0}, /* before the last byte */
    {0x80, 0xBF, 1}, /* before the last two */
    {0x80, 0xBF, 2}, /* before the last three */
    {0xA0, 0xBF, 1}, /* after E0 */
    {0x80, 0x9F, 1}, /* after ED */
    {0x90, 0xBF, 2}, /* after F0 */
    {0x80, 0x8F, 2}, /* after F4 */
};
static const struct phase phase_leads[] = {{0xC2, 0xDF, 1}, {0xE0, 0xE0, 4}, {0xE1, 0xEC, 2}, {0xED, 0xED, 5},
					   {0xEE, 0xEF, 2}, {0xF0, 0xF0, 6}, {0xF1, 0xF3, 3}, {0xF4, 0xF4, 7}};
enum { N_PHASE_LEADS = sizeof(phase_leads) / sizeof(*phase_leads) };

/* The phase after a byte; NO_PHASE: the text is not UTF-8. */
static inline uint8_t phase_next(uint8_t phase, uint8_t byte)
{
	if (phase == NO_PHASE || (phase == BOUNDARY && byte < 0x80))
		return phase;
	if (phase != BOUNDARY)
		return byte >= phases[phase].from && byte <= phases[phase].to ? phases[phase].next : NO_PHASE;
	for (size_t i = 0; i < N_PHASE_LEADS; i++)
		if (byte >= phase_leads[i].from && byte <= phase_leads[i].to)
			return phase_leads[i].next;
	return NO_PHASE;
}

#endif
