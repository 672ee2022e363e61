/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { MAX_TEXT = 8192, MAX_PATH = 512 };

static bool has(const cpu_set_t *set, int cpu) { return CPU_ISSET((size_t)cpu, set); }

/* ---- sysfs ---- */

/* False too where it may be longer. */
static bool read_text(const char *root, const char *path, char text[MAX_TEXT])
{
	size_t n = file_read_text(root, path, text, MAX_TEXT);
	return n > 0 && n < MAX_TEXT - 1;
}

/* "0-3,8,10-11" as a set of numbers. False: it is none, or has larger ones. */
static bool read_list(const char *text, cpu_set_t *out)
{
	CPU_ZERO(out);
	for (const char *at = text; *at != '\0' && *at != '\n';) {
		char *end;
		unsigned long lo = strtoul(at, &end, 10), hi = lo;
		if (end == at)
			return false;
		if (*end == '-') {
			at = end + 1;
			hi = strtoul(at, &end, 10);
			if (end == at)
				return false;
		}
		if (hi < lo || hi >= CPU_SETSIZE || (*end != ',' && *end != '\0' && *end != '\n'))
			return false;
		for (unsigned long i = lo; i <= hi; i++)
			CPU_SET(i, out);
		at = end + (*end == ',');
	}
	return true;
}

/* Is it the first of its core's threads that the process may use? Unknown: yes. */
static bool is_first_of_core(const char *root, int cpu, const cpu_set_t *allowed)
{
	char path[MAX_PATH], text[MAX_TEXT];
	cpu_set_t siblings;
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
	if (!read_text(root, path, text) || !read_list(text, &siblings))
		return true;
	for (int i = 0; i < cpu; i++)
		if (has(&siblings, i) && has(allowed, i))
			return false;
	return true;
}

static void put_in_order(const char *root, const cpu_set_t *allowed, struct place_node *n)
{
	int k = 0;
	for (int first = 1; first >= 0; first--)
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (has(&n->cpus, cpu) && is_first_of_core(root, cpu, allowed) == (first == 1))
				n->order[k++] = cpu;
	n->n_cpus = k;
}

/* The nodes with processors that the process may use. False: unknown, or some of these are in none. */
static bool read_nodes(const char *root, const cpu_set_t *allowed, struct places *out)
{
	char path[MAX_PATH], text[MAX_TEXT];
	cpu_set_t online, seen;
	CPU_ZERO(&seen);
	if (!read_text(root, "/sys/devices/system/node/online", text) || !read_list(text, &online))
		return false;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		struct place_node *n = &out->nodes[out->n_nodes];
		if (!has(&online, i))
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", i);
		if (out->n_nodes == PLACES_NODES || !read_text(root, path, text) || !read_list(text, &n->cpus))
			return false;
		CPU_AND(&n->cpus, &n->cpus, allowed);
		if (CPU_COUNT(&n->cpus) == 0)
			continue;
		n->number = i;
		put_in_order(root, allowed, n);
		CPU_OR(&seen, &seen, &n->cpus);
		out->n_nodes++;
	}
	return CPU_EQUAL(&seen, allowed);
}

/* ---- placing ---- */

static int n_cpus_of(const struct places *p)
{
	int n = 0;
	for (int i = 0; i < p->n_nodes; i++)
		n += p->nodes[i].n_cpus;
	return n;
}

/* All into the node with most processors, if they fit. */
static bool place_together(struct places *p, int n_threads)
{
	int best = 0;
	for (int i = 1; i < p->n_nodes; i++)
		best = p->nodes[i].n_cpus > p->nodes[best].n_cpus ? i : best;
	if (n_threads > p->nodes[best].n_cpus)
		return false;
	p->nodes[0] = p->nodes[best];
	p->nodes[0].n_threads = n_threads;
	p->n_nodes = 1;
	return true;
}

/* By their processors: what rounding leaves goes where most are free. */
static void spread(struct places *p, int n_threads)
{
	const int all = n_cpus_of(p);
	int left = n_threads;
	for (int i = 0; i < p->n_nodes; i++) {
		p->nodes[i].n_threads = (int)((long)n_threads * p->nodes[i].n_cpus / all);
		left -= p->nodes[i].n_threads;
	}
	for (; left > 0; left--) {
		struct place_node *to = &p->nodes[0];
		for (int i = 1; i < p->n_nodes; i++)
			if (p->nodes[i].n_cpus - p->nodes[i].n_threads > to->n_cpus - to->n_threads)
				to = &p->nodes[i];
		to->n_threads++;
	}
}

static bool refuse(struct places *out, const char **why, const char *reason)
{
	out->n_nodes = 0;
	*why = reason;
	return false;
}

bool places_make(const char *root, const cpu_set_t *allowed, int n_threads, int how, struct places *out,
		 const char **why)
{
	memset(out, 0, sizeof *out);
	if (how == PLACES_OFF)
		return refuse(out, why, "switched off");
	if (!read_nodes(root, allowed, out))
		return refuse(out, why, "sysfs does not tell the nodes of all processors");
	if (how == PLACES_AUTO && out->n_nodes < 2)
		return refuse(out, why, "one node");
	out->single = how == PLACES_ON && n_threads <= n_cpus_of(out);
	if (!place_together(out, n_threads))
		spread(out, n_threads);
	return true;
}

void places_of(const struct places *p, int i, cpu_set_t *out)
{
	int k = 0;
	while (k + 1 < p->n_nodes && i >= p->nodes[k].n_threads)
		i -= p->nodes[k++].n_threads;
	const struct place_node *n = &p->nodes[k];
	*out = n->cpus;
	if (!p->single)
		return;
	CPU_ZERO(out);
	CPU_SET((size_t)n->order[i % n->n_cpus], out);
}

void places_print(const struct places *p, char *out, size_t room)
{
	size_t at = 0;
	out[0] = '\0';
	for (int i = 0; i < p->n_nodes && at < room; i++)
		at += (size_t)snprintf(out + at, room - at, "%s%d on node %d", i > 0 ? ", " : "", p->nodes[i].n_threads,
				       p->nodes[i].number);
}
