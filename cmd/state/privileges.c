/* SPDX-License-Identifier: Apache-2.0
 *
 * capabilities(7), credentials(7). Two system calls are made directly instead of through libcap.
 *
 * The order of a drop: the bounding set needs CAP_SETPCAP and the groups CAP_SETGID, so both come before the user. A
 * user other than root loses its capabilities with setresuid; root (user namespaces with one user, supervisor.user:
 * root) only with capset.
 */
#include "cmd/state/privileges.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

/* The highest uid below `nobody` that neither Debian nor systemd assigns; images without accounts use it too. */
enum { FALLBACK_ID = 65532, LAST_CAP = 63 };
#define USUAL_ACCOUNT "sluice"

/* The supervisor reads certificates and models that only root may read, opens sockets in folders of others and ports
 * below 1024 (for the gateway), changes the state folder's owner, and starts and ends processes of other users. */
static const int kept[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER,          CAP_KILL,
			   CAP_SETGID, CAP_SETUID,       CAP_SETPCAP,         CAP_NET_BIND_SERVICE};

/* ---- users ---- */

static bool parse_id(const char *text, char **end, unsigned long *out)
{
	errno = 0;
	*out = strtoul(text, end, 10);
	return errno == 0 && *end != text && text[0] >= '0' && text[0] <= '9' && *out < UINT32_MAX;
}

int privileges_user_parse(const char *text, struct run_user *out)
{
	unsigned long uid, gid;
	char *end;
	if (!parse_id(text, &end, &uid))
		return SL_EINVAL;
	gid = uid;
	if (*end == ':' && !parse_id(end + 1, &end, &gid))
		return SL_EINVAL;
	*out = (struct run_user){.change = uid != 0, .uid = (uid_t)uid, .gid = (gid_t)gid};
	return *end == '\0' ? 0 : SL_EINVAL;
}

void privileges_user_put(const struct run_user *u, char *out, size_t size)
{
	snprintf(out, size, "%u:%u", (unsigned)u->uid, (unsigned)u->gid);
}

static bool find_account(const char *name, struct run_user *out)
{
	const struct passwd *p = getpwnam(name);
	if (p != NULL)
		*out = (struct run_user){.change = p->pw_uid != 0, .uid = p->pw_uid, .gid = p->pw_gid};
	return p != NULL;
}

/* Can this process become u? It may lack the rights, or a user namespace the user. */
static int try_user(const struct run_user *u)
{
	int e = 0;
	if (setegid(u->gid) != 0 || seteuid(u->uid) != 0)
		e = errno;
	if (seteuid(0) != 0 || setegid(0) != 0)
		BUG("can't become root again: %s", strerror(errno));
	return e;
}

int privileges_user(const char *configured, struct run_user *out, struct sl_err *err)
{
	*out = (struct run_user){.uid = geteuid(), .gid = getegid()};
	if (out->uid != 0)
		return 0;
	if (configured[0] == '\0') {
		if (!find_account(USUAL_ACCOUNT, out))
			*out = (struct run_user){.change = true, .uid = FALLBACK_ID, .gid = FALLBACK_ID};
	} else if (privileges_user_parse(configured, out) != 0 && !find_account(configured, out)) {
		return sl_errf(err, SL_EINVAL, "supervisor.user: there is no user '%.60s' (a name, UID or UID:GID)",
			       configured);
	}
	if (!out->change) {
		log_warn("supervisor.user is root: the engine and the gateway run as root, without capabilities");
		return 0;
	}
	int e = try_user(out);
	if (e == 0)
		return 0;
	if (configured[0] != '\0')
		return sl_errf(err, SL_EIO, "supervisor.user: this process may not become uid %u: %s",
			       (unsigned)out->uid, strerror(e));
	log_warn("this process may not become uid %u (%s): the engine and the gateway stay root, without capabilities",
		 (unsigned)out->uid, strerror(e));
	*out = (struct run_user){.uid = 0, .gid = getegid()};
	return 0;
}

/* ---- capabilities ---- */

static int set_capabilities(uint64_t these)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	/* A service manager that has dropped them already may refuse the call. */
	if (these == 0 && syscall(SYS_capget, &head, data) == 0 && (data[0].permitted | data[1].permitted) == 0)
		return 0;
	for (int i = 0; i < 2; i++)
		data[i] = (struct __user_cap_data_struct){.effective = (uint32_t)(these >> 32 * i),
							  .permitted = (uint32_t)(these >> 32 * i)};
	return syscall(SYS_capset, &head, data) == 0 ? 0 : -errno;
}

static uint64_t permitted(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	if (syscall(SYS_capget, &head, data) != 0)
		return 0;
	return data[0].permitted | (uint64_t)data[1].permitted << 32;
}

/* Reduces the bounding set, so that no exec regains other capabilities. Without CAP_SETPCAP there are none to regain.
 */
static void bound(uint64_t these)
{
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (int cap = 0; cap <= LAST_CAP; cap++)
		if ((these >> cap & 1) == 0 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

void privileges_keep_few(void)
{
	uint64_t few = 0;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (geteuid() != 0)
		return;
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		few |= UINT64_C(1) << kept[i];
	(void)setgroups(0, NULL); /* fails if root lacks the right, harmlessly */
	bound(few);
	if (set_capabilities(few & permitted()) != 0)
		log_warn("can't drop capabilities: %s", strerror(errno));
}

void privileges_as_user(const struct run_user *u)
{
	if (u->change && (setegid(u->gid) != 0 || seteuid(u->uid) != 0))
		BUG("can't become uid %u: %s", (unsigned)u->uid, strerror(errno));
}

void privileges_as_before(const struct run_user *u)
{
	if (u->change && (seteuid(0) != 0 || setegid(0) != 0))
		BUG("can't become root again: %s", strerror(errno));
}

int privileges_drop(const struct run_user *u)
{
	bound(0);
	if (u->change && (setgroups(0, NULL) != 0 || setresgid(u->gid, u->gid, u->gid) != 0 ||
			  setresuid(u->uid, u->uid, u->uid) != 0))
		return -errno;
	int rc = set_capabilities(0);
	if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		rc = -errno;
	if (rc == 0 && u->change && (geteuid() != u->uid || setuid(0) == 0))
		rc = -EPERM;
	return rc;
}
