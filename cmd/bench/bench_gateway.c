/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench gateway`: the gateway's processor time per event and per small response, the latency of an event, and
 * the memory of an open stream and of an idle connection.
 *
 * The gateway runs with one thread on a processor of its own; the echo engine, the client and the upstream of the
 * comparison share another. The cost is the gateway process's user and system time, which on a loopback includes the
 * receiver's TCP work. Each figure is the median of several windows. If nginx is installed, its windows alternate
 * with the gateway's, with the same client and an upstream that sends the same events, so that the ratio holds on a
 * machine whose speed varies.
 *
 * All files are in a folder that is removed at the end; every child dies with this process.
 */
#include "cmd/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/percentile.h"
#include "cache/cache.h"
#include "cmd/bench/bench_box.h"
#include "cmd/bench/bench_direct.h"
#include "cmd/bench/bench_folder.h"
#include "cmd/bench/bench_load.h"
#include "cmd/bench/bench_mock.h"
#include "cmd/config/cmd.h"

enum { GATEWAY_CPU = 0, CLIENT_CPU = 1, MAX_RUNS = 15, PATH_BYTES = 600 };

static const char bench_key[] = "sluice-bench-gateway-key";

enum kind { STREAMS, WHOLE, MEMORY };

struct load_case {
	const char *name, *what;
	enum kind kind;
	struct bench_load_shape shape;
	int step_ms, step_active; /* engine.echo.step and step_active */
	/* Targets; 0: none. */
	double cpu_us, nginx_ratio, p99_ms, added_p50_us;
};

static const struct load_case cases[] = {
    {"1000-5ms", "1,000 streams on 10 connections, steps of 5 ms", STREAMS, {10, 100, false}, 5, 0, 1.0, 0, 3, 0},
    {"1000-20ms", "1,000 streams on 10 connections, steps of 20 ms", STREAMS, {10, 100, false}, 20, 0, 1.5, 0, 3, 0},
    {"256-2ms", "256 streams on 4 connections, steps of 2 ms", STREAMS, {4, 64, false}, 2, 0, 1.0, 0.6, 0, 150},
    {"256-20ms", "256 streams on 4 connections, steps of 20 ms", STREAMS, {4, 64, false}, 20, 0, 2.5, 0.6, 0, 150},
    {"256-own", "256 streams on a connection each, steps of 20 ms", STREAMS, {256, 1, false}, 20, 0, 12, 1.0, 0, 0},
    {"json", "small JSON answers, 64 connections", WHOLE, {64, 1, true}, 0, 0, 16, 1.0, 0, 0},
    {"1000-on-100",
     "1,000 streams on 100 connections, all active in a step of 20 ms (to compare with the next)",
     STREAMS,
     {100, 10, false},
     20,
     0,
     0,
     0,
     0,
     0},
    {"10000-open",
     "10,000 open streams on 100 connections, 1,000 active in a step of 20 ms",
     STREAMS,
     {100, 100, false},
     20,
     1000,
     0,
     0,
     5,
     0},
    {"memory", "memory", MEMORY, {0, 0, false}, 20, 1000, 0, 0, 0, 0},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static const double stream_kb = 3, idle_kb = 45; /* targets */
enum { MEMORY_CONNS = 100, MEMORY_STREAMS = 100, IDLE_CONNS = 1000 };

struct figures {
	int n_runs;
	double cpu_us[MAX_RUNS], nginx_us[MAX_RUNS], p50_us[MAX_RUNS], p99_us[MAX_RUNS], rate[MAX_RUNS];
	double nginx_p50_us[MAX_RUNS];
	double direct_p50_us[MAX_RUNS]; /* at the engine's socket, in the same round, if with_direct */
	bool with_nginx, with_direct;
	double stream_kb, idle_kb;
};

struct bench {
	struct bench_box box;
	struct bench_child mock, nginx;
	struct load_target nginx_target;
	const char *nginx_path; /* NULL: no comparison */
	const char *more;       /* a file of further settings; NULL: none */
	double seconds;
	int runs;
};

/* ---- configurations ---- */

enum { MORE_BYTES = 4096 };

/* Of top-level keys that the configuration has not. */
static int read_more(const char *path, char out[MORE_BYTES], struct sl_err *err)
{
	out[0] = '\0';
	if (path == NULL)
		return 0;
	FILE *f = fopen(path, "r");
	if (f == NULL)
		return sl_errf(err, SL_EIO, "--more: cannot open %s", path);
	const size_t n = fread(out, 1, MORE_BYTES, f);
	fclose(f);
	if (n == MORE_BYTES)
		return sl_errf(err, SL_ELIMIT, "--more: %s has more than %d bytes", path, MORE_BYTES - 1);
	out[n] = '\0';
	return 0;
}

static int write_config(const struct bench *b, const struct load_case *c, uint16_t port, struct sl_err *err)
{
	char text[4096 + MORE_BYTES], more[MORE_BYTES], hex[65];
	int rc = read_more(b->more, more, err);
	if (rc != 0)
		return rc;
	cache_sha256_hex(bench_key, strlen(bench_key), hex);
	snprintf(text, sizeof text,
		 "state: %s/state\n"
		 "log:\n  level: error\n"
		 "engine:\n"
		 "  socket: %s\n"
		 "  echo:\n    enabled: true\n    rate: 0\n    ttft: 0\n    context: 1000000\n    stamp: %s\n"
		 "    step: %dms\n    step_active: %d\n"
		 "gateway:\n"
		 "  https: 127.0.0.1:%u\n  http: off\n  threads: 1\n"
		 "  tiers:\n    - name: bench\n      max_output: 1000000\n      concurrency: 100000\n"
		 "  keys:\n    - name: bench\n      sha256: %s\n      tier: bench\n"
		 "  limits:\n    connections: 20000\n%s",
		 b->box.dir, b->box.socket, c->kind == WHOLE ? "false" : "true", c->step_ms, c->step_active, port, hex,
		 more);
	return bench_folder_write(b->box.config, text, err);
}

static int write_nginx(const struct bench *b, uint16_t port, uint16_t upstream, struct sl_err *err)
{
	char text[4096], path[PATH_BYTES + 64];
	snprintf(text, sizeof text,
		 "daemon off;\nmaster_process off;\nworker_processes 1;\npid %s/nginx.pid;\n"
		 "worker_rlimit_nofile 20000;\nerror_log stderr error;\n"
		 "events { worker_connections 8192; }\n"
		 "http {\n  access_log off;\n"
		 "  upstream mock { server 127.0.0.1:%u; keepalive 128; keepalive_requests 1000000000; }\n"
		 "  server {\n    listen 127.0.0.1:%u ssl http2;\n"
		 "    ssl_certificate %s/state/tls/cert.pem;\n    ssl_certificate_key %s/state/tls/key.pem;\n"
		 "    keepalive_requests 1000000000;\n"
		 "    location / {\n      proxy_pass http://mock;\n      proxy_http_version 1.1;\n"
		 "      proxy_set_header Connection \"\";\n      proxy_buffering off;\n      proxy_read_timeout 1h;\n"
		 "    }\n  }\n}\n",
		 b->box.dir, upstream, port, b->box.dir, b->box.dir);
	snprintf(path, sizeof path, "%s/nginx.conf", b->box.dir);
	return bench_folder_write(path, text, err);
}

/* ---- children ---- */

static int target_of(uint16_t port, struct load_target *out, struct sl_err *err)
{
	char url[64];
	snprintf(url, sizeof url, "https://127.0.0.1:%u", port);
	return load_target_parse(url, out, err);
}

static int start_gateway(struct bench *b, const struct load_case *c, struct sl_err *err)
{
	static char config_flag[] = "-c", gateway[] = "gateway";
	uint16_t port = bench_free_port();
	char *gateway_argv[] = {(char *)bench_server(), gateway, config_flag, b->box.config, NULL};
	int rc = write_config(b, c, port, err);
	if (rc == 0)
		rc = bench_box_start_engine(&b->box, true, CLIENT_CPU, err);
	if (rc == 0)
		rc = bench_child_start(&b->box.gateway, gateway_argv, GATEWAY_CPU, b->box.log, err);
	if (rc == 0)
		rc = target_of(port, &b->box.target, err);
	if (rc == 0)
		rc = bench_child_await(&b->box.gateway, (struct sockaddr *)&b->box.target.addr,
				       b->box.target.addr_bytes, "gateway", b->box.log, err);
	return rc;
}

/* Call after start_gateway: nginx uses the gateway's certificate. */
static int start_nginx(struct bench *b, const struct load_case *c, struct sl_err *err)
{
	static char config_flag[] = "-c", prefix_flag[] = "-p";
	char config[PATH_BYTES + 64], program[PATH_BYTES];
	uint16_t upstream = 0, port = bench_free_port();
	struct bench_mock mock = {.listen_fd = bench_listen(&upstream), .step_ms = (unsigned)c->step_ms};
	if (mock.listen_fd < 0)
		return sl_errf(err, SL_EIO, "no free port for nginx's upstream");
	snprintf(config, sizeof config, "%s/nginx.conf", b->box.dir);
	snprintf(program, sizeof program, "%s", b->nginx_path);
	char *argv[] = {program, prefix_flag, b->box.dir, config_flag, config, NULL};
	int rc = bench_child_fork(&b->mock, bench_mock_run, &mock, CLIENT_CPU, err);
	close(mock.listen_fd);
	if (rc == 0)
		rc = write_nginx(b, port, upstream, err);
	if (rc == 0)
		rc = bench_child_start(&b->nginx, argv, GATEWAY_CPU, b->box.log, err);
	if (rc == 0)
		rc = target_of(port, &b->nginx_target, err);
	if (rc == 0)
		rc = bench_child_await(&b->nginx, (struct sockaddr *)&b->nginx_target.addr, b->nginx_target.addr_bytes,
				       "nginx", b->box.log, err);
	return rc;
}

static void stop_all(struct bench *b)
{
	bench_child_stop(&b->nginx);
	bench_child_stop(&b->mock);
	bench_box_stop(&b->box);
}

/* ---- measuring ---- */

struct window {
	double us_each, p50_us, p99_us, rate;
};

static int measure(const struct bench *b, const struct load_target *target, const struct bench_child *server,
		   const struct load_case *c, struct window *out, struct sl_err *err)
{
	struct bench_load *l;
	int rc = bench_load_open(target, &c->shape, bench_key, &l, err);
	if (rc != 0)
		return rc;
	/* Lets the effects of opening settle. */
	rc = bench_load_run(l, b->seconds / 4, err);
	bench_load_clear(l);
	uint64_t cpu = bench_child_cpu_ns(server), begin = clock_now_ns();
	if (rc == 0)
		rc = bench_load_run(l, b->seconds, err);
	cpu = bench_child_cpu_ns(server) - cpu;
	double seconds = (double)(clock_now_ns() - begin) / 1e9, n = (double)bench_load_n(l);
	const struct histogram *t = bench_load_times(l);
	*out = (struct window){.us_each = n > 0 ? (double)cpu / 1e3 / n : 0,
			       .p50_us = (double)histogram_percentile(t, 50) / 1e3,
			       .p99_us = (double)histogram_percentile(t, 99) / 1e3,
			       .rate = n / seconds};
	bench_load_close(l);
	if (rc == 0 && n == 0)
		rc = sl_errf(err, SL_ETIMEOUT, "no events arrived");
	return rc;
}

static int measure_direct(const struct bench *b, const struct load_case *c, double *p50_us, struct sl_err *err)
{
	static struct histogram h;
	/* The gateway's processor: so the reader is not on the engine's, as with a gateway, and the baseline includes
	 * waking another processor. */
	bench_pin(GATEWAY_CPU);
	int rc =
	    bench_direct(b->box.socket, (uint32_t)(c->shape.n_conns * c->shape.n_streams), b->seconds / 2, &h, err);
	bench_pin(CLIENT_CPU);
	*p50_us = (double)histogram_percentile(&h, 50) / 1e3;
	return rc;
}

static int run_load(struct bench *b, const struct load_case *c, struct figures *f, struct sl_err *err)
{
	f->with_direct = c->added_p50_us > 0;
	f->with_nginx = b->nginx_path != NULL && c->nginx_ratio > 0;
	int rc = start_gateway(b, c, err);
	if (rc == 0 && f->with_nginx)
		rc = start_nginx(b, c, err);
	for (int i = 0; i < b->runs && rc == 0; i++) {
		struct window w = {0}, nginx = {0};
		if (f->with_direct)
			rc = measure_direct(b, c, &f->direct_p50_us[i], err);
		if (rc == 0)
			rc = measure(b, &b->box.target, &b->box.gateway, c, &w, err);
		if (rc == 0 && f->with_nginx)
			rc = measure(b, &b->nginx_target, &b->nginx, c, &nginx, err);
		f->cpu_us[i] = w.us_each;
		f->p50_us[i] = w.p50_us;
		f->p99_us[i] = w.p99_us;
		f->rate[i] = w.rate;
		f->nginx_us[i] = nginx.us_each;
		f->nginx_p50_us[i] = nginx.p50_us;
		f->n_runs = i + 1;
	}
	stop_all(b);
	return rc;
}

/* The first few connections and streams grow shared memory, so the baseline has some of each. */
static int run_memory(struct bench *b, const struct load_case *c, struct figures *f, struct sl_err *err)
{
	const struct bench_load_shape few = {MEMORY_CONNS, 1, false}, many = {MEMORY_CONNS, MEMORY_STREAMS, false},
				      idle_few = {MEMORY_CONNS, 0, false}, idle_many = {IDLE_CONNS, 0, false};
	struct bench_load *l;
	int rc = start_gateway(b, c, err);
	if (rc == 0 && (rc = bench_load_open(&b->box.target, &idle_few, bench_key, &l, err)) == 0) {
		uint64_t before = bench_child_rss(&b->box.gateway);
		struct bench_load *more;
		if ((rc = bench_load_open(&b->box.target, &idle_many, bench_key, &more, err)) == 0) {
			rc = bench_load_run(more, b->seconds / 4, err);
			f->idle_kb = ((double)bench_child_rss(&b->box.gateway) - (double)before) / 1e3 / IDLE_CONNS;
			bench_load_close(more);
		}
		bench_load_close(l);
	}
	stop_all(b);
	if (rc == 0)
		rc = start_gateway(b, c, err);
	if (rc == 0 && (rc = bench_load_open(&b->box.target, &few, bench_key, &l, err)) == 0) {
		rc = bench_load_run(l, b->seconds / 4, err);
		uint64_t before = bench_child_rss(&b->box.gateway);
		bench_load_close(l);
		if (rc == 0 && (rc = bench_load_open(&b->box.target, &many, bench_key, &l, err)) == 0) {
			rc = bench_load_run(l, b->seconds, err);
			f->stream_kb = ((double)bench_child_rss(&b->box.gateway) - (double)before) / 1e3 /
				       (MEMORY_CONNS * (MEMORY_STREAMS - 1));
			bench_load_close(l);
		}
	}
	stop_all(b);
	return rc;
}

/* ---- results ---- */

static double median(const double *x, int n)
{
	double copy[MAX_RUNS];
	memcpy(copy, x, (size_t)n * sizeof *x);
	return percentile(copy, (size_t)n, 50);
}

/* The median of the ratios within rounds: other load on the machine changes between rounds. */
static double ratio_of(const struct figures *f)
{
	double r[MAX_RUNS];
	for (int i = 0; i < f->n_runs; i++)
		r[i] = f->cpu_us[i] / f->nginx_us[i];
	return percentile(r, (size_t)f->n_runs, 50);
}

static double added_us(const struct figures *f)
{
	double d[MAX_RUNS];
	for (int i = 0; i < f->n_runs; i++)
		d[i] = f->p50_us[i] - f->direct_p50_us[i];
	return percentile(d, (size_t)f->n_runs, 50);
}

/* Prints one figure with its target; counts missed targets. */
static void line(const char *what, double value, const char *unit, double target, int *missed)
{
	printf("  %-34s %8.2f %-3s", what, value, unit);
	if (target > 0) {
		bool ok = value <= target;
		printf("  at most %-5g %s", target, ok ? "ok" : "MISSED");
		*missed += !ok;
	}
	putchar('\n');
}

static void print_case(const struct load_case *c, const struct figures *f, int *missed)
{
	printf("%s\n", c->what);
	if (c->kind == MEMORY) {
		line("one open stream", f->stream_kb, "KB", stream_kb, missed);
		line("one idle TLS connection", f->idle_kb, "KB", idle_kb, missed);
		return;
	}
	int n = f->n_runs;
	double low = f->cpu_us[0], high = low, p50 = median(f->p50_us, n);
	for (int i = 1; i < n; i++) {
		low = fmin(low, f->cpu_us[i]);
		high = fmax(high, f->cpu_us[i]);
	}
	line(c->kind == WHOLE ? "CPU per answer" : "CPU per event", median(f->cpu_us, n), "µs", c->cpu_us, missed);
	printf("  %-34s %8.2f to %.2f µs; %.0f a second\n", "  lowest and highest window", low, high,
	       median(f->rate, n));
	if (f->with_nginx) {
		printf("  %-34s %8.2f µs\n", "  nginx", median(f->nginx_us, n));
		line("  ratio to nginx", ratio_of(f), "", c->nginx_ratio, missed);
	}
	line(c->kind == WHOLE ? "request to response, p50" : "step to client, p50", p50 / 1e3, "ms", 0, missed);
	line(c->kind == WHOLE ? "request to response, p99" : "step to client, p99", median(f->p99_us, n) / 1e3, "ms",
	     c->p99_ms, missed);
	if (f->with_nginx)
		printf("  %-34s %8.2f ms\n", "  nginx, p50", median(f->nginx_p50_us, n) / 1e3);
	if (f->with_direct) {
		printf("  %-34s %8.2f ms\n", "  the engine's own socket, p50", median(f->direct_p50_us, n) / 1e3);
		line("added over the engine's socket, p50", added_us(f), "µs", c->added_p50_us, missed);
	}
}

static void json_case(const struct load_case *c, const struct figures *f, bool first)
{
	printf("%s{\"load\":\"%s\"", first ? "" : ",", c->name);
	if (c->kind == MEMORY) {
		printf(",\"stream_bytes\":%.0f,\"idle_connection_bytes\":%.0f}", f->stream_kb * 1e3, f->idle_kb * 1e3);
		return;
	}
	int n = f->n_runs;
	printf(",\"windows\":%d,\"cpu_us\":%.4f,\"rate\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f", n, median(f->cpu_us, n),
	       median(f->rate, n), median(f->p50_us, n), median(f->p99_us, n));
	if (f->with_nginx)
		printf(",\"nginx_cpu_us\":%.4f,\"nginx_ratio\":%.4f", median(f->nginx_us, n), ratio_of(f));
	if (f->with_direct)
		printf(",\"direct_p50_us\":%.1f,\"added_p50_us\":%.1f", median(f->direct_p50_us, n), added_us(f));
	putchar('}');
}

/* ---- the command ---- */

static const char *find_nginx(void)
{
	static const char *const places[] = {"/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/local/nginx/sbin/nginx",
					     "/usr/bin/nginx"};
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

static void allow_descriptors(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

static int run_all(struct bench *b, const char *only, bool json, int *missed)
{
	int rc = 0, n = 0;
	struct sl_err err = {0};
	if (json)
		printf("{\"version\":1,\"loads\":[");
	for (int i = 0; i < N_CASES && rc == 0; i++) {
		const struct load_case *c = &cases[i];
		struct figures f = {0};
		if (only != NULL && strcmp(only, c->name) != 0)
			continue;
		rc = c->kind == MEMORY ? run_memory(b, c, &f, &err) : run_load(b, c, &f, &err);
		if (rc != 0) {
			fflush(stdout);
			bench_complain(1, "%s: %s", c->name, err.text);
		} else if (json) {
			json_case(c, &f, n == 0);
		} else {
			print_case(c, &f, missed);
		}
		fflush(stdout);
		n++;
	}
	if (json)
		printf("]}\n");
	if (n == 0)
		return bench_complain(CMD_EXIT_USAGE, "gateway: no load named %s", only);
	return rc == 0 ? 0 : 1;
}

int bench_gateway(int argc, char **argv)
{
	const char *only = NULL, *more = NULL;
	double runs = 0, seconds = 0;
	bool quick = false, json = false, no_nginx = false;
	const struct bench_option options[] = {
	    {"--load", NULL, &only, NULL, 0, 0},        {"--more", NULL, &more, NULL, 0, 0},
	    {"--runs", &runs, NULL, NULL, 1, MAX_RUNS}, {"--seconds", &seconds, NULL, NULL, 0.05, 600},
	    {"--quick", NULL, NULL, &quick, 0, 0},      {"--no-nginx", NULL, NULL, &no_nginx, 0, 0},
	    {"--json", NULL, NULL, &json, 0, 0},
	};
	int rc = bench_parse(argc, argv, options, sizeof options / sizeof *options, NULL);
	if (rc != 0)
		return rc;
	struct bench b = {.seconds = seconds > 0 ? seconds
				     : quick     ? 0.4
						 : 2,
			  .runs = runs > 0 ? (int)runs
				  : quick  ? 1
					   : 5};
	struct sl_err err = {0};
	int missed = 0;
	b.more = more;
	b.nginx_path = no_nginx ? NULL : find_nginx();
	allow_descriptors();
	if (bench_box_open(&b.box, &err) != 0)
		return bench_complain(1, "%s", err.text);
	if (!json) {
		bench_header();
		printf("one gateway thread over TLS; %d window%s of %g s each, medians%s%s\n", b.runs,
		       b.runs > 1 ? "s" : "", b.seconds,
		       bench_cpus() < 2 ? "; only one processor: the figures are unreliable" : "",
		       b.nginx_path == NULL ? "; no nginx to compare with" : "");
	}
	bench_pin(CLIENT_CPU);
	rc = run_all(&b, only, json, &missed);
	stop_all(&b);
	bench_box_close(&b.box);
	if (missed > 0)
		printf("%d figures missed their targets\n", missed);
	return rc;
}
