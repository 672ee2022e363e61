/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/load/sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sweep_init(struct sweep *s, double least_share, double close)
{
	*s = (struct sweep){.least_share = least_share, .close = close};
}

double sweep_next(const struct sweep *s, double begin)
{
	if (s->n_points == SWEEP_MAX_POINTS)
		return 0;
	if (s->n_points == 0)
		return begin;
	if (s->failed == 0)
		return 2 * s->passed <= SWEEP_MOST_RATE ? 2 * s->passed : 0;
	if (s->passed == 0)
		return s->failed / 2 >= begin / 4096 ? s->failed / 2 : 0;
	return s->failed / s->passed <= 1 + s->close ? 0 : sqrt(s->failed * s->passed);
}

void sweep_add(struct sweep *s, const struct sweep_point *p)
{
	s->points[s->n_points++] = *p;
	if (p->share >= s->least_share)
		s->passed = p->rate > s->passed ? p->rate : s->passed;
	else
		s->failed = s->failed == 0 || p->rate < s->failed ? p->rate : s->failed;
}

/* ---- the picture ---- */

enum { WIDTH = 720, LEFT = 70, RIGHT = 20, PANEL = 190, TOP = 50, GAP = 60, HEIGHT = TOP + 2 * PANEL + GAP + 50 };

struct axis {
	double lo, hi; /* logarithms for rates and times */
};

static double x_of(const struct axis *a, double v)
{
	double t = a->hi > a->lo ? (v - a->lo) / (a->hi - a->lo) : 0.5;
	return LEFT + t * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct axis *a, double v, int top)
{
	double t = a->hi > a->lo ? (v - a->lo) / (a->hi - a->lo) : 0.5;
	return top + PANEL - t * PANEL;
}

static int by_rate(const void *a, const void *b)
{
	double x = ((const struct sweep_point *)a)->rate, y = ((const struct sweep_point *)b)->rate;
	return x < y ? -1 : x > y;
}

struct series {
	const char *name, *color;
	double (*of)(const struct sweep_point *p);
	bool log;
};

static double share_of(const struct sweep_point *p) { return p->share; }
static double ttft_p50(const struct sweep_point *p) { return p->ttft_p50_ms; }
static double ttft_p99(const struct sweep_point *p) { return p->ttft_p99_ms; }
static double tpot_p50(const struct sweep_point *p) { return p->tpot_p50_ms; }
static double tpot_p99(const struct sweep_point *p) { return p->tpot_p99_ms; }

static const struct series upper[] = {{"share within the targets", "#1b7837", share_of, false}};
static const struct series lower[] = {{"first token p50", "#92c5de", ttft_p50, true},
				      {"first token p99", "#0571b0", ttft_p99, true},
				      {"per token p50", "#f4a582", tpot_p50, true},
				      {"per token p99", "#ca0020", tpot_p99, true}};
enum { N_LOWER = sizeof lower / sizeof *lower };

static double value(const struct series *s, const struct sweep_point *p)
{
	double v = s->of(p);
	return s->log ? log10(v) : v;
}

static int draw_series(struct sl_buf *out, const struct series *s, int i, const struct sweep *w, const struct axis *x,
		       const struct axis *y, int top)
{
	int rc = buf_printf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", s->color);
	for (int k = 0; k < w->n_points && rc == 0; k++)
		if (!s->log || s->of(&w->points[k]) > 0)
			rc = buf_printf(out, "%.1f,%.1f ", x_of(x, log10(w->points[k].rate)),
					y_of(y, value(s, &w->points[k]), top));
	if (rc == 0)
		rc = buf_printf(out, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\" font-size=\"12\">%s</text>\n",
				LEFT + 8 + i * 150, top - 6, s->color, s->name);
	return rc;
}

/* Lines at powers of ten, and at 1, 2 and 5 of each if there are few. */
static int draw_decades(struct sl_buf *out, const struct axis *a, bool along_x, int top, const char *unit)
{
	static const double fine[] = {1, 2, 5};
	int rc = 0, step = a->hi - a->lo > 2.5 ? 3 : 1;
	for (double d = floor(a->lo); d <= a->hi && rc == 0; d++)
		for (int i = 0; i < 3 && rc == 0; i += step) {
			double at = d + log10(fine[i]);
			if (at < a->lo || at > a->hi)
				continue;
			rc = along_x ? buf_printf(out,
						  "<text x=\"%.1f\" y=\"%d\" font-size=\"11\" "
						  "text-anchor=\"middle\">%g%s</text>\n",
						  x_of(a, at), top + PANEL + 16, pow(10, at), unit)
				     : buf_printf(out,
						  "<text x=\"%d\" y=\"%.1f\" font-size=\"11\" "
						  "text-anchor=\"end\">%g%s</text>\n",
						  LEFT - 6, y_of(a, at, top) + 4, pow(10, at), unit);
		}
	return rc;
}

static int draw_frame(struct sl_buf *out, int top)
{
	return buf_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#999\"/>\n",
			  LEFT, top, WIDTH - LEFT - RIGHT, PANEL);
}

static void widen(struct axis *a, double v)
{
	a->lo = v < a->lo ? v : a->lo;
	a->hi = v > a->hi ? v : a->hi;
}

static void ranges(const struct sweep *s, struct axis *x, struct axis *times)
{
	*x = *times = (struct axis){HUGE_VAL, -HUGE_VAL};
	for (int k = 0; k < s->n_points; k++) {
		widen(x, log10(s->points[k].rate));
		for (int i = 0; i < N_LOWER; i++)
			if (lower[i].of(&s->points[k]) > 0)
				widen(times, value(&lower[i], &s->points[k]));
	}
	if (times->lo > times->hi)
		*times = (struct axis){0, 1};
}

static int draw_shares(struct sl_buf *out, const struct sweep *s, const struct axis *x)
{
	static const double ticks[] = {0, 0.5, 1};
	const struct axis y = {0, 1};
	int rc = draw_frame(out, TOP);
	for (size_t i = 0; i < sizeof ticks / sizeof *ticks && rc == 0; i++)
		rc = buf_printf(out, "<text x=\"%d\" y=\"%.1f\" font-size=\"11\" text-anchor=\"end\">%.0f %%</text>\n",
				LEFT - 6, y_of(&y, ticks[i], TOP) + 4, 100 * ticks[i]);
	if (rc == 0)
		rc = buf_printf(out,
				"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#999\" "
				"stroke-dasharray=\"4 4\"/>\n",
				LEFT, WIDTH - RIGHT, y_of(&y, s->least_share, TOP), y_of(&y, s->least_share, TOP));
	return rc == 0 ? draw_series(out, &upper[0], 0, s, x, &y, TOP) : rc;
}

static int draw_times(struct sl_buf *out, const struct sweep *s, const struct axis *x, const struct axis *y)
{
	const int top = TOP + PANEL + GAP;
	int rc = draw_frame(out, top);
	for (int i = 0; i < N_LOWER && rc == 0; i++)
		rc = draw_series(out, &lower[i], i, s, x, y, top);
	if (rc == 0)
		rc = draw_decades(out, y, false, top, " ms");
	return rc == 0 ? draw_decades(out, x, true, top, "/s") : rc;
}

int sweep_plot(const struct sweep *s, const char *title, struct sl_buf *out)
{
	struct sweep sorted = *s;
	struct axis x, times;
	qsort(sorted.points, (size_t)sorted.n_points, sizeof *sorted.points, by_rate);
	ranges(&sorted, &x, &times);
	int rc = buf_printf(out,
			    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
			    "font-family=\"sans-serif\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
			    "<text x=\"%d\" y=\"22\" font-size=\"15\">",
			    WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
	for (const char *c = title; *c != '\0' && rc == 0; c++)
		rc = *c == '<'   ? buf_append_str(out, "&lt;")
		     : *c == '&' ? buf_append_str(out, "&amp;")
				 : buf_append(out, c, 1);
	if (rc == 0)
		rc = buf_append_str(out, "</text>\n");
	if (rc == 0)
		rc = draw_shares(out, &sorted, &x);
	if (rc == 0)
		rc = draw_times(out, &sorted, &x, &times);
	if (rc == 0)
		rc = buf_printf(out,
				"<text x=\"%d\" y=\"%d\" font-size=\"12\" text-anchor=\"middle\">requests per "
				"second</text>\n</svg>\n",
				(LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12);
	return rc;
}
