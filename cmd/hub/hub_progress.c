/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/hub/hub_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { RATE_OVER_S = 5 };

void hub_progress_init(struct hub_progress *p) { *p = (struct hub_progress){.shows = isatty(STDERR_FILENO) == 1}; }

void hub_size_text(uint64_t bytes, char *out, size_t size)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	double v = (double)bytes;
	int u = 0;
	for (; v >= 999.5 && u < 4; u++)
		v /= 1000;
	snprintf(out, size, u == 0 || v >= 99.95 ? "%.0f %s" : "%.1f %s", v, units[u]);
}

/* Bytes per second over the last seconds; 0: not known yet. */
static double rate_of(struct hub_progress *p, uint64_t bytes, uint64_t now_ns)
{
	size_t newest = (p->n + HUB_RATE_POINTS - 1) % HUB_RATE_POINTS;
	if (p->n > 0 && bytes < p->points[newest].bytes)
		p->n = 0; /* it started over */
	p->points[p->n % HUB_RATE_POINTS].ns = now_ns;
	p->points[p->n % HUB_RATE_POINTS].bytes = bytes;
	p->n++;
	size_t oldest = p->n > HUB_RATE_POINTS ? p->n - HUB_RATE_POINTS : 0;
	while (oldest + 2 < p->n && now_ns - p->points[oldest % HUB_RATE_POINTS].ns > RATE_OVER_S * NS_PER_S)
		oldest++;
	uint64_t ns = now_ns - p->points[oldest % HUB_RATE_POINTS].ns;
	return ns > 0 ? (double)(bytes - p->points[oldest % HUB_RATE_POINTS].bytes) * 1e9 / (double)ns : 0;
}

static void time_text(double s, char *out, size_t size)
{
	unsigned long t = s < 8640000 ? (unsigned long)(s + 0.5) : 8640000;
	if (t >= 3600)
		snprintf(out, size, "%lu h %02lu min", t / 3600, t / 60 % 60);
	else if (t >= 60)
		snprintf(out, size, "%lu min %02lu s", t / 60, t % 60);
	else
		snprintf(out, size, "%lu s", t);
}

void hub_progress_line(struct hub_progress *p, const struct hub_note *n, uint64_t now_ns, char *out, size_t size)
{
	char done[32], total[32], rate[32], left[32];
	if (n->kind == HUB_NOTE_WAITING) {
		time_text((double)n->total / 1000, left, sizeof left);
		snprintf(out, size, "%.100s: again in %s", n->text, left);
		return;
	}
	uint64_t of = n->total > 0 ? n->total : 1, at = n->done < of ? n->done : of;
	double bytes_per_s = rate_of(p, at, now_ns);
	hub_size_text(at, done, sizeof done);
	hub_size_text(of, total, sizeof total);
	int k = snprintf(out, size, "%s%.40s  %s of %s  %.0f %%", n->kind == HUB_NOTE_CHECKING ? "checking " : "",
			 n->text, done, total, (double)at * 100 / (double)of);
	if (bytes_per_s < 1 || k < 0 || (size_t)k >= size)
		return;
	hub_size_text((uint64_t)bytes_per_s, rate, sizeof rate);
	time_text((double)(of - at) / bytes_per_s, left, sizeof left);
	snprintf(out + k, size - (size_t)k, "  %s/s  %s left", rate, left);
}

void hub_progress_show(struct hub_progress *p, const struct hub_note *n, uint64_t now_ns)
{
	char line[256];
	if (!p->shows)
		return;
	hub_progress_line(p, n, now_ns, line, sizeof line);
	fprintf(stderr, "\r\033[K%s", line);
	fflush(stderr);
	p->open = true;
}

void hub_progress_clear(struct hub_progress *p)
{
	if (p->open)
		fputs("\r\033[K", stderr);
	p->open = false;
}
