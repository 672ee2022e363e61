/* SPDX-License-Identifier: Apache-2.0
 *
 * A link to two engines, which the test plays.
 */
#ifndef TESTS_GATEWAY_LINK_PAIR_H
#define TESTS_GATEWAY_LINK_PAIR_H

#include "link_rig.h"

/* The second engine; its side of the rig that the helpers use is swapped in. */
struct other {
	char path[96];
	int listener, fd;
	struct sl_buf in;
};

static inline void swap(struct rig *r, struct other *o)
{
	int socket_ = r->listener, fd = r->fd;
	struct sl_buf in = r->in;
	r->listener = o->listener;
	r->fd = o->fd;
	r->in = o->in;
	o->listener = socket_;
	o->fd = fd;
	o->in = in;
}

static inline void add_other(struct rig *r, struct other *o)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct sl_err err;
	*o = (struct other){.fd = -1};
	snprintf(o->path, sizeof o->path, "%s/o", r->dir);
	snprintf(addr.sun_path, sizeof addr.sun_path, "%s", o->path);
	o->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(o->listener, (struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(o->listener, 4), 0);
	buf_init(&o->in, 16 << 20);
	assert_int_equal(engine_link_add(r->link, "b", o->path, &err), 0);
}

static inline void drop_other(struct other *o)
{
	buf_dispose(&o->in);
	if (o->fd >= 0)
		close(o->fd);
	close(o->listener);
	unlink(o->path);
}

struct told {
	const char *name;
	uint8_t state;
	uint64_t tokenizer;
	uint32_t n_ctx;
	uint8_t does;
};

/* The engine that the rig plays now comes up with these models. */
static inline void come_up_with(struct rig *r, int engine, const struct told *models, uint16_t n)
{
	struct sl_buf b;
	await_connection(r);
	expect(r, PROTO_HELLO);
	buf_init(&b, 65536);
	put_hello(&b, PROTO_VERSION, n);
	for (uint16_t i = 0; i < n; i++)
		assert_int_equal(
		    proto_put_model(&b, &(struct proto_model){.index = i,
							      .state = models[i].state,
							      .n_ctx = models[i].n_ctx,
							      .does = models[i].does,
							      .tokenizer = models[i].tokenizer,
							      .name = {models[i].name, strlen(models[i].name)},
							      .reason = {"", 0}}),
		    0);
	say(r, &b);
	TURN_UNTIL(r, engine_link_engine_up(r->link, engine) &&
			  (n == 0 || engine_link_find_model(r->link, models[n - 1].name) >= 0));
}

#endif
