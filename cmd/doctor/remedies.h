/* SPDX-License-Identifier: Apache-2.0
 *
 * What proxies do to a stream, and the line of each proxy's configuration that mends it (etc/proxies.md has whole
 * configurations).
 */
#ifndef CMD_DOCTOR_REMEDIES_H
#define CMD_DOCTOR_REMEDIES_H

enum way_fault {
	WAY_UPSTREAM,   /* the proxy does not reach Sluice */
	WAY_STRIPS_KEY, /* Authorization does not arrive */
	WAY_BUFFERS,    /* events arrive together */
	WAY_COMPRESSES, /* an event stream with Content-Encoding */
	WAY_RETYPES,    /* an event stream of another content type */
	WAY_TIMES_OUT,  /* a quiet stream is closed */
	WAY_NO_ADDRESS, /* no field has the client's address */
	WAY_NO_HTTP2,   /* https without HTTP/2 */
	WAY_HTTP10,     /* Sluice is reached by HTTP/1.0 */
	WAY_KEEPS,      /* a client's disconnect is not passed on */
	WAY_REFUSES,    /* bodies that Sluice would accept */
	WAY_N_FAULTS,
};

enum proxy { PROXY_UNKNOWN, PROXY_NGINX, PROXY_HAPROXY, PROXY_CADDY, PROXY_H2O, PROXY_APACHE, N_PROXIES };

/* By the fields Server and Via of a response; either may be "". */
enum proxy proxy_of(const char *server, const char *via);
const char *proxy_name(enum proxy p);
/* The line to change. Never NULL. */
const char *remedy_of(enum proxy p, enum way_fault f);

#endif
