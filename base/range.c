/* SPDX-License-Identifier: Apache-2.0 */
#include "base/range.h"

#include <math.h>
#include <stdio.h>

const char *range_text(const char *lo, bool above, const char *hi, char *out, size_t room)
{
	if (lo != NULL && hi != NULL)
		snprintf(out, room, above ? "above %s and at most %s" : "between %s and %s", lo, hi);
	else if (lo != NULL)
		snprintf(out, room, above ? "above %s" : "at least %s", lo);
	else if (hi != NULL)
		snprintf(out, room, "at most %s", hi);
	else
		snprintf(out, room, "a number");
	return out;
}

const char *range_of(double lo, bool above, double hi, char *out, size_t room)
{
	char bounds[2][32];
	snprintf(bounds[0], sizeof bounds[0], "%.10g", lo);
	snprintf(bounds[1], sizeof bounds[1], "%.10g", hi);
	return range_text(isinf(lo) ? NULL : bounds[0], above, isinf(hi) ? NULL : bounds[1], out, room);
}
