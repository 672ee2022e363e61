#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# package.sh [-b FOLDER] [DEB]: makes the package (`make deb`) unless one is given, checks it with lintian, installs it in a fresh
# Debian 12 with `apt install`, boots that with systemd, and uses the service: the README's question without a key and
# with one that `sluice keys` made, reload, upgrade, restart through sluice.socket, sandbox and exposure. Then it purges
# the package and compares what is left with what the package names. Exit status 0: all as it should be.
#
# Needs root, debootstrap, systemd-container, lintian and a network for apt; takes some minutes. The booted system has a
# network of its own. -b FOLDER: a minimal Debian to copy instead of calling debootstrap.
set -u -o pipefail

# shellcheck disable=SC2034 # of debian_root.sh
suite=bookworm mirror='' place=/
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support/debian_root.sh"
checkout=${here%/*}
question='{"model":"default","temperature":0,"messages":[{"role":"user","content":"What is the capital of France?"}]}'
leader='' bad=0

fail() {
	echo "package.sh: $*" >&2
	exit 1
}

# check NAME COMMAND…: the command succeeds.
check() {
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then
		echo "  ok    $name"
	else
		echo "  FAIL  $name"
		tail -n 30 <<<"$said" | sed 's/^/        /'
		bad=1
	fi
}

# until_ok SECONDS COMMAND…
until_ok() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || { "$@"; return 1; }
		sleep 0.5
	done
}

# ---- before the boot ----

make_root() {
	local log=$root/debian.log
	if [ -n "$base" ]; then
		echo "copying $base"
		cp -a "$base/." "$root/" || fail "can't copy $base"
	else
		echo "debootstrap $suite"
		mkdir -p "$root"
		debootstrap --variant=minbase "$suite" "$root" "$(host_mirror)" >"$log" 2>&1 || fail "debootstrap failed: $log"
	fi
	bring_apt
	bring /etc/ssl/certs /etc/resolv.conf /etc/hosts
	cp "$deb" "$root/tmp/sluice.deb" && cp "$deb" "$root/var/cache/sluice.deb" || fail "can't copy $deb"
	{ mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev"; } || fail "mounting failed"
	(in_root 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends systemd systemd-sysv dbus curl procps') \
		>>"$log" 2>&1 || { tail "$log"; fail "apt-get fails: $log"; }
	echo "apt install ./sluice.deb"
	(in_root 'DEBIAN_FRONTEND=noninteractive apt -q -y install /tmp/sluice.deb') >"$root/install.log" 2>&1 || {
		tail -n 20 "$root/install.log"
		fail "apt install fails"
	}
	umount -R "$root/dev" "$root/sys" "$root/proc"
}

# ---- booted ----

boot() {
	SYSTEMD_NSPAWN_LOCK=0 systemd-nspawn -q -D "$root" --register=no --keep-unit --private-network --link-journal=no -b \
		>"$root/boot.log" 2>&1 </dev/null &
	nspawn=$!
	until_ok 30 pgrep -P "$nspawn" || fail "no boot: $(tail -n 5 "$root/boot.log")"
	leader=$(pgrep -P "$nspawn" | head -n 1)
	until_ok 60 on systemctl list-units || fail "no systemd: $(tail -n 5 "$root/boot.log")"
	echo "booted: $(on systemctl --version | head -n 1)"
}

# on COMMAND…: in the booted system.
on() { nsenter -t "$leader" -m -u -i -n -p -r -w -- "$@"; }
sh_on() { on sh -c "$1"; }

is_serving() { on curl -sS --fail -m 5 -o /dev/null http://localhost:8080/ready; }
ask() { on curl -sS --fail -m 60 http://localhost:8080/v1/chat/completions "$@" -H 'Content-Type: application/json' -d "$question" | grep -o Paris; }
ask_with_key() {
	local key
	key=$(on sluice keys create tester --tier paid) || return 1
	[[ $key == sk-sluice-* ]] && ask -H "Authorization: Bearer $key" && on sluice keys revoke tester
}
main_pid() { on systemctl show -P MainPID sluice; }
reloads() {
	local pid
	pid=$(main_pid)
	on systemctl reload sluice && is_serving && [ "$(main_pid)" = "$pid" ]
}
upgraded() { sh_on 'journalctl -u sluice | grep "upgrade: gateway is process"'; }
upgrades() {
	local pid
	pid=$(main_pid)
	on systemctl kill --kill-whom=main -s SIGUSR2 sluice && until_ok 60 upgraded && ask && [ "$(main_pid)" = "$pid" ]
}
by_socket() {
	# The first request starts the service; 503 while the model loads.
	on systemctl stop sluice && on systemctl start sluice.socket && until_ok 60 ask &&
		on systemctl restart sluice && until_ok 60 ask && sh_on 'journalctl -u sluice | grep "1 inherited sockets"' &&
		on systemctl stop sluice.socket sluice
}
is_confined() {
	sh_on 'journalctl -u sluice | grep "confined: uid [1-9].*no new privileges, seccomp"' &&
		sh_on 'for p in $(pgrep -u sluice); do
			grep -qx "CapEff:.0000000000000000" /proc/$p/status && grep -qx "NoNewPrivs:.1" /proc/$p/status &&
				grep -qx "Seccomp:.2" /proc/$p/status || { cat /proc/$p/status; exit 1; }; done'
}
# A watchdog that is not fed would have ended it; systemd shows when it last was.
is_watched() { [ "$(on systemctl show -P WatchdogTimestampMonotonic sluice)" -gt 0 ] && [ "$(on systemctl show -P NRestarts sluice)" = 0 ]; }
# The configuration was changed, and dpkg must not ask.
reinstalls() {
	sh_on 'echo "# mine" >>/etc/sluice/sluice.yaml && systemctl start sluice && dpkg -i /var/cache/sluice.deb' && until_ok 60 is_serving &&
		sh_on 'tail -n 1 /etc/sluice/sluice.yaml | grep -x "# mine"' && until_ok 60 ask
}
exposure() { on systemd-analyze security --no-pager --threshold=20 sluice.service; }
docs() { sh_on 'test -e /usr/share/man/man1/sluice.1.gz -o -e /usr/share/man/man5/sluice.yaml.5.gz -o -e /etc/dpkg/dpkg.cfg.d/docker' && on sluice config check -c /etc/sluice/sluice.yaml; }
doctor() { on sluice doctor; }
no_denials() { ! sh_on 'journalctl -u sluice | grep -E "SIGSYS|signal 31|Operation not permitted|core-dump"'; }

use() {
	check 'the service starts at boot' until_ok 120 is_serving
	check "the README's question, without a key" ask
	check 'a key of sluice keys' ask_with_key
	check 'reload' reloads
	check 'upgrade' upgrades
	check 'confined' is_confined
	check 'watchdog' is_watched
	check 'sluice.socket starts it, and a restart' by_socket
	check 'a second installation keeps the configuration' reinstalls
	check 'exposure at most 2.0' exposure
	check 'configuration and manual pages' docs
	check 'nothing was denied' no_denials
	on sluice --help | grep -q '^ *doctor' && on systemctl start sluice && until_ok 60 is_serving && check 'doctor' doctor
	on systemctl show -P StatusText sluice
}

# All that is named after it, anywhere but in what apt itself keeps.
traces() {
	sh_on 'find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /run -o -path /var/log \) -prune -o -name "*sluice*" -print; getent passwd sluice >/dev/null && echo account' |
		grep -vE '^/(var/lib/apt|var/cache|root|(boot|install|debian)\.log)' | sort
}
purged() {
	on systemctl start sluice && until_ok 60 is_serving || return 1
	sh_on 'DEBIAN_FRONTEND=noninteractive apt-get -q -y purge sluice' >"$root/purge.log" 2>&1 || { cat "$root/purge.log"; return 1; }
	local left
	left=$(traces)
	echo "$left"
	grep -F 'left are /var/lib/sluice' "$root/purge.log" && [ "$left" = "$(printf '/var/lib/sluice\naccount')" ] &&
		! on systemctl is-active sluice && ! sh_on 'pgrep -u sluice'
}

inside() {
	make_root
	boot
	use
	check 'purge leaves only what it names' purged
	on systemctl poweroff --force >/dev/null 2>&1
	exit "$bad"
}

# ---- outside ----

if [ "${1-}" = --inside ]; then
	root=$2 deb=$3 base=$4
	inside
fi
base=
[ "${1-}" != -b ] || { base=$2; shift 2; }
[ $# -le 1 ] && [[ ${1-} != -* ]] || { sed -n '4,8p' "$0"; exit 2; }
[ "$(id -u)" -eq 0 ] || fail "must be run as root"
PATH=$PATH:/usr/sbin:/sbin
for tool in debootstrap systemd-nspawn lintian nsenter dpkg-shlibdeps; do
	command -v "$tool" >/dev/null || fail "$tool is missing (apt-get install debootstrap systemd-container lintian dpkg-dev)"
done
[ $# -gt 0 ] || make -C "$checkout" deb || fail "make deb fails"
deb=$(readlink -f "${1:-$(ls "$checkout"/build/deb/sluice_*.deb)}") || exit 1
check 'lintian: no error, no warning' lintian --fail-on error,warning "$deb"
root=$(mktemp -d -p /var/tmp sluice-package.XXXXXX) || exit 1
chmod 755 "$root"
unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$0" --inside "$root" "$deb" "$base"
rc=$?
if [ "$rc" -eq 0 ] && ! grep -qF " $root/" /proc/mounts; then
	rm -rf --one-file-system "$root"
else
	echo "the root stays in $root"
fi
[ "$rc" -eq 0 ] && [ "$bad" -eq 0 ]
