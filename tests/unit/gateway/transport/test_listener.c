/* SPDX-License-Identifier: Apache-2.0
 *
 * Listeners of every kind: several at once, IPv6, unix sockets with what may lie in their place, PROXY
 * headers whole, in pieces, wrong and missing, and whose the requests then are.
 */
#include "tests/support/tls_client.h"

#include <sys/stat.h>
#include <sys/un.h>

#include "base/fault.h"
#include "gateway/transport/conn.h"
#include "gateway/transport/forwarded.h"
#include "gateway/transport/listener.h"
#include "gateway/transport/unix_listen.h"
#include "tests/support/make_cert.h"

static struct rig rig;
static struct made_cert cert;
static char dir[64], path[108];
static struct gw_listener_config one;
static char nothing[] = "", mode[] = "0660";
static char *loopback[] = {(char[]){"127.0.0.0/8"}};
static char *private[] = {(char[]){"10.0.0.0/8"}};
static char *both[] = {(char[]){"127.0.0.0/8"}, (char[]){"10.0.0.0/8"}};

static const char request[] = "GET /small HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/sluice-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/s", dir);
	rig_config(&rig);
	rig.cfg.http.off = true;
	one = (struct gw_listener_config){.name = mode, .unix_path = nothing, .unix_mode = mode};
	one.address = rig.cfg.http;
	one.address.off = false;
	rig.cfg.listeners = (struct conf_list){&one, 1};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fault_disarm_all();
	unlink(path);
	rmdir(dir);
	return 0;
}

static int teardown_rig(void **state)
{
	rig_stop(&rig);
	return teardown(state);
}

/* Sends, and reads to the end. */
static void exchange(int fd, const void *data, size_t n, struct sl_buf *in)
{
	buf_init(in, 1 << 20);
	rig_send(&rig, fd, data, n);
	rig_read_end(&rig, fd, in);
	assert_int_equal(buf_append(in, "", 1), 0);
	close(fd);
}

static bool is_answered(int fd, const void *data, size_t n)
{
	struct sl_buf in;
	exchange(fd, data, n, &in);
	bool ok = strncmp((const char *)buf_data(&in), "HTTP/1.1 200 ", 13) == 0;
	buf_dispose(&in);
	return ok;
}

static const char *last_peer(void) { return rig.ex[rig.n_requests - 1]->peer; }

/* ---- unix sockets ---- */

static int connect_unix(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	strcpy(sa.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	return fd;
}

static void a_unix_socket_serves(void **state)
{
	(void)state;
	struct stat st;
	one.unix_path = path;
	char other[] = "0620";
	one.unix_mode = other;
	rig_start(&rig);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0620);
	assert_int_equal(transport_port(rig.tr, false), 0);
	assert_true(is_answered(connect_unix(), request, strlen(request)));
	assert_string_equal(last_peer(), "");
	listeners_close(rig.tr);
	assert_int_not_equal(stat(path, &st), 0);
}

static void threads_share_a_unix_socket(void **state)
{
	(void)state;
	struct sl_err err = {0};
	struct stat st;
	int a = unix_listen_open(path, 0600, -1, &err), b = unix_listen_open(path, 0600, -1, &err);
	assert_true(a >= 0 && b >= 0);
	close(a);
	unix_listen_release(path, false);
	int c = connect_unix();
	int d = accept4(b, NULL, NULL, SOCK_CLOEXEC);
	assert_true(d >= 0);
	close(c);
	close(d);
	close(b);
	unix_listen_release(path, false);
	assert_int_not_equal(lstat(path, &st), 0);
}

static void only_a_stale_socket_is_replaced(void **state)
{
	(void)state;
	struct sl_err err = {0};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	strcpy(sa.sun_path, path);
	/* A socket that its process has left. */
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	assert_int_equal(listen(fd, 1), 0);
	/* While somebody listens it is his. */
	assert_int_equal(unix_listen_check(path, &err), SL_EIO);
	assert_non_null(strstr(err.text, path));
	assert_int_equal(unix_listen_open(path, 0600, -1, &err), SL_EIO);
	close(fd);
	assert_int_equal(unix_listen_check(path, &err), 0);
	int own = unix_listen_open(path, 0600, -1, &err);
	assert_true(own >= 0);
	/* Somebody else's is not removed at the end. */
	assert_int_equal(unlink(path), 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	close(own);
	unix_listen_release(path, false);
	struct stat st;
	assert_int_equal(lstat(path, &st), 0);
	close(fd);
	unlink(path);
	/* A file is not touched, nor what a link points to. */
	FILE *f = fopen(path, "w");
	fclose(f);
	assert_int_equal(unix_listen_check(path, &err), SL_EIO);
	assert_int_equal(unix_listen_open(path, 0600, -1, &err), SL_EIO);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	unlink(path);
	assert_int_equal(symlink("/nonexistent/x", path), 0);
	assert_int_equal(unix_listen_open(path, 0600, -1, &err), SL_EIO);
	assert_int_equal(lstat(path, &st), 0);
	unlink(path);
	assert_int_equal(unix_listen_open("/nonexistent/sluice/s", 0600, -1, &err), SL_EIO);
	char longest[200];
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	assert_int_equal(unix_listen_open(longest, 0600, -1, &err), SL_EINVAL);
}

static void permissions_are_octal(void **state)
{
	(void)state;
	mode_t m;
	assert_true(unix_mode_parse("0660", &m) && m == 0660);
	assert_true(unix_mode_parse("600", &m) && m == 0600);
	static const char *const wrong[] = {"", "0888", "rw", "01777", "7777", " 660", "+66", "00660", "66 "};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(unix_mode_parse(wrong[i], &m));
}

/* ---- addresses ---- */

static int connect6(uint16_t port)
{
	struct sockaddr_in6 sa = {
	    .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	return fd;
}

static bool has_ipv6(void)
{
	struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0;
	if (fd >= 0)
		close(fd);
	return ok;
}

static void several_listeners_serve(void **state)
{
	(void)state;
	struct gw_listener_config three[3] = {one, one, one};
	if (!has_ipv6()) {
		rig_start(&rig);
		skip();
	}
	strcpy(three[1].address.text, "[::1]:0");
	strcpy(three[1].address.host, "::1");
	three[2].unix_path = path;
	rig.cfg.listeners = (struct conf_list){three, 3};
	rig_start(&rig);
	uint16_t ports[3];
	int n = 0;
	list_each(it, &rig.tr->listeners)
		ports[n++] = list_entry(it, struct listener, node)->port;
	assert_int_equal(n, 3);
	assert_true(is_answered(rig_connect(&rig), request, strlen(request)));
	assert_string_equal(last_peer(), "127.0.0.1");
	assert_true(is_answered(connect6(ports[1]), request, strlen(request)));
	assert_string_equal(last_peer(), "::1");
	assert_true(is_answered(connect_unix(), request, strlen(request)));
	assert_int_equal(ports[2], 0);
}

/* A peer that vanishes is noticed by the kernel: what the listener has, connections have too. */
static void vanished_peers_are_noticed(void **state)
{
	(void)state;
	rig.cfg.limits.stall_ms = 8000;
	rig_start(&rig);
	int fd = rig_connect(&rig);
	RIG_UNTIL(&rig, rig.tr->n_conns == 1);
	int server = list_entry(rig.tr->conns.next, struct conn, node)->fd, on = 0, idle = 0;
	unsigned ms = 0;
	socklen_t n = sizeof on;
	assert_int_equal(getsockopt(server, SOL_SOCKET, SO_KEEPALIVE, &on, &n), 0);
	assert_int_equal(getsockopt(server, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &n), 0);
	assert_int_equal(getsockopt(server, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &n), 0);
	assert_int_equal(on, 1);
	assert_int_equal(idle, 2);
	assert_int_equal(ms, 8000);
	close(fd);
}

/* The system's patience with a peer that takes nothing ends before ours: that is no peer that left. */
static void the_system_gives_up_first(void **state)
{
	static const char get[] = "GET /big?100000000 HTTP/1.1\r\nhost: x\r\n\r\n";
	unsigned ms = 1;
	(void)state;
	rig_start(&rig);
	int fd = rig_connect_to(&rig, false, 4096);
	rig_send(&rig, fd, get, sizeof get - 1);
	RIG_UNTIL(&rig, rig.pulled > 0);
	int server = list_entry(rig.tr->conns.next, struct conn, node)->fd;
	assert_int_equal(setsockopt(server, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms), 0);
	RIG_UNTIL(&rig, rig.n_closed == 1);
	assert_int_equal(rig.closed[HTTP_CLOSE_TIMEOUT], 1);
	RIG_UNTIL(&rig, rig.tr->n_conns == 0);
	close(fd);
}

/* ---- PROXY ---- */

static void with_proxy(void)
{
	one.proxy = true;
	rig.cfg.trusted_proxies = (struct conf_strings){loopback, 1};
	rig_start(&rig);
}

static const uint8_t v2[] = "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\2\7\xc6\x33\x64\1\xdc\4\1\xbb";
static const uint8_t v2_local[] = "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

static void proxy_headers_name_the_client(void **state)
{
	(void)state;
	static const struct {
		const void *head;
		size_t n;
		const char *peer;
	} cases[] = {
#define TEXT(s) s, sizeof(s) - 1
	    {TEXT("PROXY TCP4 192.0.2.9 198.51.100.1 56324 443\r\n"), "192.0.2.9"},
	    {TEXT("PROXY TCP6 2001:db8::7 ::1 1 65535\r\n"), "2001:db8::7"},
	    {TEXT("PROXY UNKNOWN\r\n"), "127.0.0.1"},
	    {v2, sizeof v2 - 1, "192.0.2.7"},
	    {v2_local, sizeof v2_local - 1, "127.0.0.1"},
	};
	with_proxy();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char all[256];
		memcpy(all, cases[i].head, cases[i].n);
		strcpy(all + cases[i].n, request);
		size_t n = cases[i].n + strlen(request);
		assert_true(is_answered(rig_connect(&rig), all, n));
		assert_string_equal(last_peer(), cases[i].peer);
		/* Byte by byte it is the same. */
		int fd = rig_connect(&rig);
		for (size_t k = 0; k < n; k++) {
			assert_true(rig_send(&rig, fd, all + k, 1));
			rig_turn(&rig);
		}
		assert_true(is_answered(fd, "", 0));
		assert_string_equal(last_peer(), cases[i].peer);
	}
}

static void what_is_no_header_is_closed(void **state)
{
	(void)state;
	char longest[4096];
	memset(longest, 'x', sizeof longest);
	memcpy(longest, "\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", 16);
	struct {
		const char *text;
		size_t n;
	} wrong[] = {
	    {request, strlen(request)},
	    {TEXT("PROXY TCP4 192.0.2.9 198.51.100.1 56324 443\n")},
	    {TEXT("PROXY TCP4 192.0.2.999 198.51.100.1 56324 443\r\n")},
	    {TEXT("PROXY TCP4 192.0.2.9 198.51.100.1 056324 443\r\nGET / HTTP/1.1\r\n")},
	    {TEXT("\x16\x03\x01\x02\x00\x01")},
	    {longest, sizeof longest},
	};
	with_proxy();
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct sl_buf in;
		exchange(rig_connect(&rig), wrong[i].text, wrong[i].n, &in);
		assert_int_equal(in.len, 1); /* the test's own end of text */
		buf_dispose(&in);
	}
	assert_int_equal(rig.n_requests, 0);
	assert_true(transport_empty(rig.tr));
}

static void only_trusted_peers_may_say(void **state)
{
	(void)state;
	one.proxy = true;
	rig.cfg.trusted_proxies = (struct conf_strings){private, 1};
	rig_start(&rig);
	struct sl_buf in;
	exchange(rig_connect(&rig), TEXT("PROXY TCP4 192.0.2.9 198.51.100.1 56324 443\r\n"), &in);
	assert_int_equal(in.len, 1);
	buf_dispose(&in);
	assert_int_equal(rig.n_requests, 0);
}

static void a_header_has_a_deadline(void **state)
{
	(void)state;
	uint64_t now = clock_now_ns();
	struct sl_buf in;
	clock_fake(&now);
	with_proxy();
	int fd = rig_connect(&rig);
	rig_send(&rig, fd, TEXT("PROXY TCP4 192.0"));
	RIG_UNTIL(&rig, rig.tr->n_conns == 1);
	now += (rig.cfg.limits.header_ms + 1) * NS_PER_MS;
	buf_init(&in, 1 << 20);
	rig_read_end(&rig, fd, &in);
	assert_int_equal(in.len, 0);
	buf_dispose(&in);
	close(fd);
}

static void tls_comes_behind_the_header(void **state)
{
	(void)state;
	struct client c;
	made_cert_create(&cert, dir, "cert", "DNS:localhost", NULL);
	one.tls = true;
	rig.cfg.cert_file = cert.cert_file;
	rig.cfg.key_file = cert.key_file;
	with_proxy();
	for (size_t step = 1; step < 100000; step = step * 50000) {
		client_open(&rig, cert.cert_file, &c, NULL, 0, TLS1_3_VERSION);
		assert_true(BIO_write(c.out, v2, sizeof v2 - 1) == (int)sizeof v2 - 1);
		assert_true(client_handshake(&c, step));
		client_ask(&c, request, step);
		assert_non_null(strstr((const char *)buf_data(&c.text), "hello"));
		assert_string_equal(last_peer(), "192.0.2.7");
		client_close(&c);
	}
	made_cert_dispose(&cert);
}

/* Every allocation on the way fails once: a closed connection, nothing worse. */
static void faults_are_survived(void **state)
{
	(void)state;
	char all[256];
	memcpy(all, v2, sizeof v2 - 1);
	strcpy(all + sizeof v2 - 1, request);
	size_t n = sizeof v2 - 1 + strlen(request);
	bool passed = false;
	rig.cfg.limits.connections_per_address = rig.cfg.limits.streams_per_address = 10;
	with_proxy();
	for (int nth = 1; !passed && nth < 200; nth++) {
		int fd = rig_connect(&rig), asked = rig.n_requests;
		struct sl_buf in;
		uint8_t *room;
		buf_init(&in, 1 << 20);
		assert_int_equal(buf_reserve(&in, 1 << 19, &room), 0); /* the test's own does not fail */
		long before = fault_passes(FAULT_ALLOC);
		fault_arm(FAULT_ALLOC, nth, 1);
		rig_send(&rig, fd, all, 10);
		rig_turn(&rig);
		rig_send(&rig, fd, all + 10, n - 10);
		rig_read_end(&rig, fd, &in);
		passed = fault_passes(FAULT_ALLOC) - before < nth;
		fault_disarm_all();
		assert_true(!passed || (rig.n_requests > asked && in.len > 12));
		buf_dispose(&in);
		close(fd);
		RIG_UNTIL(&rig, transport_empty(rig.tr));
	}
	assert_true(passed);
}

/* ---- Forwarded ---- */

static void ask_with(const char *field, const char *peer, int status)
{
	char text[512], expect[32];
	struct sl_buf in;
	snprintf(text, sizeof text, "GET /small HTTP/1.1\r\nHost: h\r\n%sConnection: close\r\n\r\n", field);
	exchange(rig_connect(&rig), text, strlen(text), &in);
	snprintf(expect, sizeof expect, "HTTP/1.1 %d ", status);
	if (strncmp((const char *)buf_data(&in), expect, strlen(expect)) != 0)
		fail_msg("%s: %s", field, (const char *)buf_data(&in));
	buf_dispose(&in);
	if (status == 200)
		assert_string_equal(last_peer(), peer);
}

static void trusted_proxies_name_the_client(void **state)
{
	(void)state;
	rig.cfg.trusted_proxies = (struct conf_strings){both, 2};
	rig.cfg.forwarded = FORWARDED_X_FORWARDED_FOR;
	rig_start(&rig);
	ask_with("X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.1.1.1\r\n", "192.0.2.1", 200);
	ask_with("X-Forwarded-For: nonsense\r\n", "127.0.0.1", 200);
	ask_with("", "127.0.0.1", 200);
	ask_with("Forwarded: for=192.0.2.1\r\n", "127.0.0.1", 200);
	rig.cfg.forwarded = FORWARDED_RFC7239;
	ask_with("Forwarded: for=6.6.6.6, for=\"[2001:db8::1]:444\"\r\n", "2001:db8::1", 200);
	ask_with("X-Forwarded-For: 192.0.2.1\r\n", "127.0.0.1", 200);
	int before = rig.n_requests;
	ask_with("Forwarded: for=\"192.0.2.1\r\n", "", 400);
	assert_int_equal(rig.n_requests, before);
}

static void others_are_not_believed(void **state)
{
	(void)state;
	rig.cfg.trusted_proxies = (struct conf_strings){private, 1};
	rig.cfg.forwarded = FORWARDED_X_FORWARDED_FOR;
	rig_start(&rig);
	ask_with("X-Forwarded-For: 192.0.2.1\r\n", "127.0.0.1", 200);
	rig.cfg.forwarded = FORWARDED_RFC7239;
	ask_with("Forwarded: for=\"192.0.2.1\r\n", "127.0.0.1", 200);
}

/* What another process has bound is taken as it is; which of the two removes it is said by the caller. */
static void a_given_unix_socket(void **state)
{
	(void)state;
	char given_path[] = "/tmp/sluice-given-XXXXXX";
	struct sl_err err = {0};
	struct sockaddr_un sa;
	struct stat before, st;
	assert_non_null(mkdtemp(given_path));
	char file[64];
	snprintf(file, sizeof file, "%s/s", given_path);
	assert_true(unix_address(file, &sa));
	int theirs = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(theirs, (struct sockaddr *)&sa, sizeof sa), 0);
	assert_int_equal(listen(theirs, 5), 0);
	assert_int_equal(lstat(file, &before), 0);
	for (int stays = 1; stays >= 0; stays--) {
		assert_int_equal(unix_listen_open(file, 0600, -1, &err), SL_EIO); /* in use */
		int a = unix_listen_open(file, 0640, dup(theirs), &err);
		int b = unix_listen_open(file, 0640, dup(theirs), &err);
		assert_true(a >= 0 && b >= 0);
		assert_int_equal(lstat(file, &st), 0);
		assert_int_equal(st.st_ino, before.st_ino);
		assert_int_equal(st.st_mode & 0777, 0640);
		close(a);
		close(b);
		unix_listen_release(file, stays);
		assert_int_equal(lstat(file, &st), 0); /* one is left */
		unix_listen_release(file, stays);
		assert_int_equal(lstat(file, &st), stays ? 0 : -1);
	}
	close(theirs);
	rmdir(given_path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define R(f) cmocka_unit_test_setup_teardown(f, setup, teardown_rig)
	    R(a_unix_socket_serves),        T(threads_share_a_unix_socket), T(only_a_stale_socket_is_replaced),
	    T(permissions_are_octal),       T(a_given_unix_socket),         R(several_listeners_serve),
	    R(vanished_peers_are_noticed),  R(the_system_gives_up_first),   R(proxy_headers_name_the_client),
	    R(what_is_no_header_is_closed), R(only_trusted_peers_may_say),  R(a_header_has_a_deadline),
	    R(tls_comes_behind_the_header), R(faults_are_survived),         R(trusted_proxies_name_the_client),
	    R(others_are_not_believed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
