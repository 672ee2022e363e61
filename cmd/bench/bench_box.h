/* SPDX-License-Identifier: Apache-2.0
 *
 * A server for a measurement: an engine and a gateway of this executable in a folder of their own, cleartext
 * HTTP/2 on a free port of 127.0.0.1. Everything ends and is removed with the measurement.
 */
#ifndef CMD_BENCH_BOX_H
#define CMD_BENCH_BOX_H

#include "cmd/bench/bench_child.h"
#include "cmd/load/load_client.h"

enum { BOX_PATH = 600 };

struct bench_box {
	char dir[BOX_PATH], config[BOX_PATH + 64], log[BOX_PATH + 64], socket[BOX_PATH + 64];
	struct bench_child engine, gateway;
	struct load_target target;
};

int bench_box_open(struct bench_box *b, struct sl_err *err);
/* engine, gateway: YAML in these two mappings, each line indented by two spaces. Returns when a model is
 * ready. echo: without models. May be called again after bench_box_stop. */
int bench_box_start(struct bench_box *b, const char *engine, const char *gateway, bool echo, struct sl_err *err);
void bench_box_stop(struct bench_box *b);
void bench_box_close(struct bench_box *b);
/* "      sha256: …" of a key, as gateway.keys want it. */
void bench_box_hash(const char *key, char out[65]);

#endif
