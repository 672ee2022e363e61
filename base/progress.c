/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include <stdio.h>

#include "base/clock.h"

int progress_percent(uint64_t done, uint64_t total)
{
	if (done >= total)
		return 100;
	return (int)(100.0 * (double)done / (double)total);
}

static bool is_due(uint64_t *last_ns, uint64_t since_ns, uint64_t every_ms, uint64_t now_ns)
{
	uint64_t from = *last_ns != 0 ? *last_ns : since_ns;
	if (now_ns - from < every_ms * (uint64_t)NS_PER_MS)
		return false;
	*last_ns = now_ns;
	return true;
}

bool progress_says(struct progress *p, uint64_t now_ns)
{
	if (p->began_ns == 0)
		p->began_ns = now_ns;
	return is_due(&p->said_ns, p->began_ns, PROGRESS_SAY_MS, now_ns);
}

bool progress_tells(struct progress *p, uint64_t done, uint64_t total, uint64_t now_ns)
{
	int percent = progress_percent(done, total);
	if (percent == p->percent || (p->told_ns != 0 && !is_due(&p->told_ns, 0, PROGRESS_TELL_MS, now_ns)))
		return false;
	p->told_ns = now_ns;
	p->percent = percent;
	return true;
}

const char *progress_line(const struct progress *p, uint64_t done, uint64_t total, uint64_t now_ns, char *line,
			  size_t n)
{
	double took_s = (double)(now_ns - p->began_ns) / 1e9, rate = took_s > 0 ? (double)done / took_s : 0;
	int percent = progress_percent(done, total);
	if (rate <= 0 || done > total)
		snprintf(line, n, "%d %%", percent);
	else
		snprintf(line, n, "%d %%, %.*f MB/s, %.0f s left", percent, rate < 1e7 ? 1 : 0, rate / 1e6,
			 (double)(total - done) / rate + 0.5);
	return line;
}
