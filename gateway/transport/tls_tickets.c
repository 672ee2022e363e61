/* SPDX-License-Identifier: Apache-2.0
 *
 * A ticket is the session itself, encrypted and authenticated with a key that never leaves the process (RFC 5077
 * section 4, RFC 8446 4.6.1). No state is kept per client, and any thread can resume a session of another thread. Two
 * keys are valid at a time: the current one encrypts and decrypts tickets; the previous one only decrypts them, and its
 * tickets are renewed when they are used. A dropped key is erased, so an attacker who later controls the process can't
 * decrypt recorded connections.
 *
 * Rotation is lazy: it happens at the first use after the interval. No timer is needed. The lock is taken once a
 * handshake, to copy 80 bytes.
 *
 * Thread: any.
 */
#include "gateway/transport/tls_tickets.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

enum { NAME_BYTES = 16, KEY_BYTES = 32, IV_BYTES = 16 };

struct ticket_key {
	bool live;
	uint8_t name[NAME_BYTES], cipher[KEY_BYTES], mac[KEY_BYTES];
};

static struct {
	pthread_mutex_t lock;
	struct ticket_key current, previous;
	uint64_t made_ns; /* when `current` was made */
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_uint_least64_t rotation_ns;

static bool make_key(struct ticket_key *k)
{
	k->live = RAND_bytes(k->name, NAME_BYTES) == 1 && RAND_priv_bytes(k->cipher, KEY_BYTES) == 1 &&
		  RAND_priv_bytes(k->mac, KEY_BYTES) == 1;
	return k->live;
}

/* Under the lock. Rotates the keys if it is time. False: no random bytes for a key. */
static bool keep_fresh(uint64_t now)
{
	uint64_t every = atomic_load_explicit(&rotation_ns, memory_order_relaxed);
	uint64_t age = now - ring.made_ns;
	if (ring.current.live && age < every)
		return true;
	OPENSSL_cleanse(&ring.previous, sizeof ring.previous);
	if (ring.current.live && age < 2 * every)
		ring.previous = ring.current;
	OPENSSL_cleanse(&ring.current, sizeof ring.current);
	ring.made_ns = now;
	return make_key(&ring.current);
}

/* Copies the key that encrypts tickets. */
static bool take_current(struct ticket_key *out)
{
	pthread_mutex_lock(&ring.lock);
	bool ok = keep_fresh(clock_now_ns());
	*out = ring.current;
	pthread_mutex_unlock(&ring.lock);
	return ok;
}

/* Copies the key with that name. *old: it is the previous one. */
static bool find(const uint8_t *name, struct ticket_key *out, bool *old)
{
	bool found = false;
	pthread_mutex_lock(&ring.lock);
	if (keep_fresh(clock_now_ns())) {
		const struct ticket_key *both[] = {&ring.current, &ring.previous};
		for (int i = 0; i < 2 && !found; i++) {
			if (both[i]->live && memcmp(both[i]->name, name, NAME_BYTES) == 0) {
				*out = *both[i];
				*old = i > 0;
				found = true;
			}
		}
	}
	pthread_mutex_unlock(&ring.lock);
	return found;
}

static bool use_mac(EVP_MAC_CTX *mac, struct ticket_key *k)
{
	char sha256[] = "SHA256";
	const OSSL_PARAM params[] = {
	    OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, k->mac, KEY_BYTES),
	    OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
	    OSSL_PARAM_construct_end(),
	};
	return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* As SSL_CTX_set_tlsext_ticket_key_evp_cb requires: 1 to continue, 2 to renew, 0 for an unknown key (full handshake),
 * negative for an error. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac,
		     int making)
{
	(void)ssl;
	struct ticket_key k;
	bool old = false;
	int rc = -1;
	if (making) {
		if (!take_current(&k))
			return 0; /* a connection without a ticket */
		memcpy(name, k.name, NAME_BYTES);
		if (RAND_bytes(iv, IV_BYTES) == 1 &&
		    EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, k.cipher, iv) == 1 && use_mac(mac, &k))
			rc = 1;
	} else {
		if (!find(name, &k, &old))
			return 0;
		if (use_mac(mac, &k) && EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, k.cipher, iv) == 1)
			rc = old ? 2 : 1;
	}
	OPENSSL_cleanse(&k, sizeof k);
	return rc;
}

int tls_tickets_enable(SSL_CTX *ctx, uint64_t rotation_ms)
{
	atomic_store_explicit(&rotation_ns, rotation_ms * NS_PER_MS, memory_order_relaxed);
	SSL_CTX_set_timeout(ctx, (long)(rotation_ms / 1000 > 0 ? rotation_ms / 1000 : 1));
	if (SSL_CTX_set_num_tickets(ctx, 1) != 1)
		return SL_EIO;
	return SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket) == 1 ? 0 : SL_EIO;
}

void tls_tickets_forget(void)
{
	pthread_mutex_lock(&ring.lock);
	OPENSSL_cleanse(&ring.current, sizeof ring.current);
	OPENSSL_cleanse(&ring.previous, sizeof ring.previous);
	pthread_mutex_unlock(&ring.lock);
}
