/* SPDX-License-Identifier: Apache-2.0
 *
 * Tenants whose texts the engine is to erase. The frame has no answer, so a link remembers each for a while and sends
 * it again to an engine that starts meanwhile. What an engine was not told when this process ends is not erased.
 */
#include "base/clock.h"
#include "base/log.h"
#include "gateway/generation/engine_conn_priv.h"

enum { ERASE_SURE_S = 60 /* an engine that lives so long after a frame has done what it asks */ };

static void send_erase(struct engine_conn *l, struct link_erase *k)
{
	if (proto_put_erase(&l->out, &(struct proto_erase){.tenant = k->tenant}) != 0)
		l->overrun = true;
	k->sent_ns = clock_now_ns();
	link_flush_soon(l);
}

static void drop_old_erases(struct engine_conn *l)
{
	uint64_t now = clock_now_ns();
	int kept = 0;
	for (int i = 0; i < l->n_erases; i++)
		if (l->erases[i].sent_ns == 0 || now - l->erases[i].sent_ns < ERASE_SURE_S * NS_PER_S)
			l->erases[kept++] = l->erases[i];
	l->n_erases = kept;
}

void link_send_erases(struct engine_conn *l)
{
	drop_old_erases(l);
	for (int i = 0; i < l->n_erases; i++)
		send_erase(l, &l->erases[i]);
}

void engine_conn_erase(struct engine_conn *l, uint64_t tenant)
{
	int i = 0;
	drop_old_erases(l);
	while (i < l->n_erases && l->erases[i].tenant != tenant)
		i++;
	if (i == LINK_MAX_ERASES) {
		log_error("engine link: too many tenants' texts are to be erased from the engine's disk; one is not");
		return;
	}
	l->n_erases += i == l->n_erases;
	l->erases[i] = (struct link_erase){.tenant = tenant};
	if (l->state == LINK_UP)
		send_erase(l, &l->erases[i]);
}
