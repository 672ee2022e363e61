/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/doctor/remedies.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *name, *mark; /* mark: what a field of its responses has, in any case */
	const char *lines[WAY_N_FAULTS];
} proxies[N_PROXIES] = {
    /* HAProxy does not name itself, so its lines serve where the proxy is unknown. */
    [PROXY_UNKNOWN] =
	{"the proxy",
	 NULL,
	 {
	     [WAY_UPSTREAM] = "the proxy's upstream: the address of gateway.http; and start Sluice there",
	     [WAY_STRIPS_KEY] = "pass Authorization on unchanged (HAProxy: no `http-request del-header Authorization`)",
	     [WAY_BUFFERS] = "switch buffering of responses off (HAProxy: option http-no-delay)",
	     [WAY_COMPRESSES] = "do not compress text/event-stream (HAProxy: `compression type` without it)",
	     [WAY_RETYPES] = "pass Content-Type on unchanged",
	     [WAY_TIMES_OUT] = "let responses be silent for longer (HAProxy: timeout server 1h)",
	     [WAY_NO_ADDRESS] = "send X-Forwarded-For (HAProxy: option forwardfor)",
	     [WAY_NO_HTTP2] = "offer h2 by ALPN (HAProxy: bind :443 ssl crt FILE alpn h2,http/1.1)",
	     [WAY_HTTP10] = "use HTTP/1.1 towards Sluice",
	     [WAY_KEEPS] = "close the upstream connection when the client leaves (HAProxy: option abortonclose)",
	     [WAY_REFUSES] = "accept bodies of 1 MiB",
	 }},
    [PROXY_NGINX] = {"nginx",
		     "nginx",
		     {
			 [WAY_UPSTREAM] =
			     "proxy_pass http://127.0.0.1:8080;  # the address of gateway.http; and start Sluice there",
			 [WAY_STRIPS_KEY] = "proxy_set_header Authorization $http_authorization;",
			 [WAY_BUFFERS] = "proxy_buffering off;  # and no `proxy_ignore_headers X-Accel-Buffering`",
			 [WAY_COMPRESSES] = "gzip off;  # or gzip_types without text/event-stream",
			 [WAY_RETYPES] = "proxy_hide_header and add_header without Content-Type",
			 [WAY_TIMES_OUT] = "proxy_read_timeout 1h;",
			 [WAY_NO_ADDRESS] = "proxy_set_header X-Forwarded-For $remote_addr;",
			 [WAY_NO_HTTP2] = "listen 443 ssl http2;  # since 1.25: http2 on;",
			 [WAY_HTTP10] = "proxy_http_version 1.1;  # with proxy_set_header Connection \"\";",
			 [WAY_KEEPS] = "proxy_ignore_client_abort off;",
			 [WAY_REFUSES] = "client_max_body_size 1m;",
		     }},
    [PROXY_HAPROXY] = {"HAProxy",
		       "haproxy",
		       {
			   [WAY_UPSTREAM] =
			       "server sluice 127.0.0.1:8080  # the address of gateway.http; and start Sluice there",
			   [WAY_STRIPS_KEY] = "without `http-request del-header Authorization`",
			   [WAY_BUFFERS] = "option http-no-delay",
			   [WAY_COMPRESSES] = "compression type application/json  # without text/event-stream",
			   [WAY_RETYPES] = "without `http-response set-header Content-Type`",
			   [WAY_TIMES_OUT] = "timeout server 1h",
			   [WAY_NO_ADDRESS] = "option forwardfor",
			   [WAY_NO_HTTP2] = "bind :443 ssl crt FILE alpn h2,http/1.1",
			   [WAY_KEEPS] = "option abortonclose",
			   [WAY_REFUSES] = "without `http-request deny` for bodies below 1 MiB",
		       }},
    [PROXY_CADDY] = {"Caddy",
		     "caddy",
		     {
			 [WAY_UPSTREAM] =
			     "reverse_proxy 127.0.0.1:8080  # the address of gateway.http; and start Sluice there",
			 [WAY_STRIPS_KEY] = "without `header_up -Authorization`",
			 [WAY_BUFFERS] = "without `buffer_responses` or `response_buffers`",
			 [WAY_COMPRESSES] = "header Content-Type application/json*  # in `match` of `encode`",
			 [WAY_RETYPES] = "without `header Content-Type`",
			 [WAY_TIMES_OUT] = "read_timeout 1h  # in `transport http` of reverse_proxy",
			 [WAY_NO_ADDRESS] = "without `header_up -X-Forwarded-For`",
			 [WAY_NO_HTTP2] = "protocols h1 h2 h3  # in `servers` of the global options",
			 [WAY_KEEPS] = "without `flush_interval -1`",
			 [WAY_REFUSES] = "max_size 1MiB  # in `request_body`",
		     }},
    [PROXY_H2O] = {"h2o",
		   "h2o",
		   {
		       [WAY_UPSTREAM] =
			   "proxy.reverse.url: http://127.0.0.1:8080/  # gateway.http; and start Sluice there",
		       [WAY_STRIPS_KEY] = "without `proxy.header.unset: Authorization`",
		       [WAY_COMPRESSES] = "compress: OFF",
		       [WAY_RETYPES] = "without `header.set: Content-Type`",
		       [WAY_TIMES_OUT] = "proxy.timeout.io: 3600000",
		       [WAY_NO_ADDRESS] = "proxy.emit-x-forwarded-headers: ON",
		       [WAY_REFUSES] = "limit-request-body: 1048576",
		   }},
    [PROXY_APACHE] =
	{"Apache",
	 "apache",
	 {
	     [WAY_UPSTREAM] =
		 "ProxyPass / http://127.0.0.1:8080/  # the address of gateway.http; and start Sluice there",
	     [WAY_STRIPS_KEY] = "without `RequestHeader unset Authorization`",
	     [WAY_BUFFERS] = "ProxyPass / http://127.0.0.1:8080/ flushpackets=on",
	     [WAY_COMPRESSES] = "SetEnvIf Request_URI ^/v1/ no-gzip",
	     [WAY_RETYPES] = "without `Header set Content-Type` and `ForceType`",
	     [WAY_TIMES_OUT] = "ProxyTimeout 3600",
	     [WAY_NO_ADDRESS] = "ProxyAddHeaders On",
	     [WAY_NO_HTTP2] = "Protocols h2 http/1.1",
	     [WAY_HTTP10] = "without `SetEnv force-proxy-request-1.0`",
	     [WAY_REFUSES] = "LimitRequestBody 1048576",
	 }},
};

enum proxy proxy_of(const char *server, const char *via)
{
	for (int p = PROXY_UNKNOWN + 1; p < N_PROXIES; p++)
		if (strcasestr(server, proxies[p].mark) != NULL || strcasestr(via, proxies[p].mark) != NULL)
			return (enum proxy)p;
	return PROXY_UNKNOWN;
}

const char *proxy_name(enum proxy p) { return proxies[p].name; }

const char *remedy_of(enum proxy p, enum way_fault f)
{
	const char *line = proxies[p].lines[f];
	return line != NULL ? line : proxies[PROXY_UNKNOWN].lines[f];
}
