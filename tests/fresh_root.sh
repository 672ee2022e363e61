#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fresh_root.sh [FOLDER [MIRROR]]: makes a fresh Debian 12 in FOLDER (empty or not there yet), clones the committed HEAD of
# this checkout into it and runs the two commands of the README there: `YES=1 make run`, which gets the README's question,
# and `YES=1 make test`. Prints how each ended; exit status 0 when both passed. Needs root, debootstrap, 6 GB and, on two
# cores, half an hour. Without FOLDER the root is a temporary one, removed when both passed; otherwise it stays for a
# closer look, with the logs FOLDER/*.log. MIRROR is a mirror of Debian; by default the one of this machine's own apt.
#
# What this machine needs to reach the network comes along: apt's sources and credentials, certificates, npm's settings,
# proxy variables. Packages come from Debian itself even where apt has other sources.
#
# Everything runs in namespaces of its own: mounts are never seen outside, and they end with the script, however it ends,
# as does every process that the commands leave behind.
set -u -o pipefail

suite=bookworm
place=/srv/sluice # of the clone
question='What is the capital of France?'
ready_limit=1800 # seconds: packages, the build, the models
test_limit=7200

here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support/debian_root.sh"

fail() {
	echo "fresh_root.sh: $*" >&2
	exit 1
}

# ---- making the root ----

# npm's settings of this machine, then those of this user, as root's.
bring_npm() {
	local name file
	command -v npm >/dev/null || return 0
	for name in globalconfig userconfig; do
		file=$(npm config get "$name" 2>/dev/null)
		[ ! -f "$file" ] || cat "$file" >>"$root/root/.npmrc"
	done
	bring "$(npm config get cafile 2>/dev/null)"
}

make_root() {
	local from=${mirror:-$(host_mirror)} log=$root/debian.log
	[ -n "$from" ] || fail "this machine's apt has no mirror of $suite: name one (fresh_root.sh FOLDER MIRROR)"
	echo "debootstrap $suite"
	debootstrap --variant=minbase --include=git,make,ca-certificates "$suite" "$root" "$from" >"$log" 2>&1 || {
		tail -n 20 "$log" >&2
		fail "debootstrap failed"
	}
	bring_apt
	bring_npm
	bring /etc/ssl/certs /etc/resolv.conf /etc/hosts
	git clone -q --no-hardlinks "$checkout" "$root$place" || fail "this checkout can't be cloned"
	echo "  cloned $(git -C "$root$place" log -1 --format='%h, %s')"
	[ -z "$(git -C "$checkout" status --porcelain)" ] || echo "  without the uncommitted changes of this checkout"
}

# ---- running in it ----

# wait_while PID SECONDS COMMAND…: as long as the process lives and the command fails; then, whether it succeeded.
wait_while() {
	local pid=$1 until=$((SECONDS + $2))
	shift 2
	until "$@"; do
		kill -0 "$pid" 2>/dev/null && [ "$SECONDS" -lt "$until" ] || return 1
		sleep 1
	done
}

has_ended() { ! kill -0 "$1" 2>/dev/null; }

# The curl line that `make run` prints, with the README's question.
ask() {
	local line answer
	line=$(grep '^curl ' "$1" | tail -n 1)
	answer=$(in_root "${line/Hello!/$question} -sS --fail -m 60") || fail "make run: no answer: $answer"
	# A few tokens an event: what they say.
	answer=$(grep -o '"content":"[^"]*"' <<<"$answer" | sed 's/^"content":"//; s/"$//' | tr -d '\n')
	echo "  $question $answer"
	[[ $answer == *Paris* ]] || fail "make run: a wrong answer"
}

try_run() {
	local log=$root/run.log began=$SECONDS pid
	echo "YES=1 make run"
	set -m # a process group of its own, for the interrupt
	in_root 'YES=1 exec make run' >"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	wait_while "$pid" "$ready_limit" grep -qx ready "$log" || {
		tail -n 40 "$log" >&2
		fail "make run: not ready after $((SECONDS - began)) s"
	}
	echo "  ready after $((SECONDS - began)) s"
	ask "$log"
	kill -INT -- "-$pid"
	wait_while $$ 300 has_ended "$pid" || fail "make run: goes on after an interrupt"
	tail -n 3 "$log" | sed 's/^/  /'
}

try_test() {
	local log=$root/test.log began=$SECONDS rc
	echo "YES=1 make test"
	(in_root "YES=1 timeout -k 60 $test_limit make test") >"$log" 2>&1 </dev/null
	rc=$?
	grep -E '^  (FAIL|again) |^ +skipped: ' "$log"
	tail -n 3 "$log" | sed 's/^/  /'
	echo "  exit status $rc after $((SECONDS - began)) s"
	[ "$rc" -eq 0 ] && tail -n 1 "$log" | grep -qE '^[1-9][0-9]* passed, 0 failed(, [0-9]+ skipped)?$'
}

inside() {
	make_root
	{ mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev"; } || fail "mounting failed"
	# Updates and security too: debootstrap knows the release alone.
	(in_root 'apt-get -q update') >>"$root/debian.log" 2>&1 || fail "apt-get update fails, see $root/debian.log"
	try_run
	try_test
}

# ---- outside ----

checkout=$(cd "$(dirname "$0")/.." && pwd) || exit 1
if [ "${1-}" = --inside ]; then
	root=$2 mirror=$3
	inside
	exit
fi

[ $# -le 2 ] && [[ ${1-} != -* ]] || { sed -n '4,8p' "$0"; exit 2; }
[ "$(id -u)" -eq 0 ] || fail "must be run as root"
PATH=$PATH:/usr/sbin:/sbin
for tool in debootstrap apt-get git unshare chroot; do
	command -v "$tool" >/dev/null || fail "$tool is missing (apt-get install $tool)"
done

made=
if [ $# -gt 0 ]; then
	mkdir -p "$1" && root=$(cd "$1" && pwd) || exit 1
	[ -z "$(ls -A "$root")" ] || fail "$root is not empty"
else
	root=$(mktemp -d -p /var/tmp fresh_root.XXXXXX) || exit 1
	made=1
fi
chmod 755 "$root"

set -m # its interrupts are not ignored, and come from here
unshare --mount --pid --fork --kill-child --propagation private "$0" --inside "$root" "${2-}" &
pid=$!
trap 'kill -KILL "$pid" 2>/dev/null; echo "the root stays in $root" >&2; exit 130' INT TERM HUP
wait "$pid"
rc=$?
if [ -n "$made" ] && [ "$rc" -eq 0 ] && ! grep -qF " $root/" /proc/mounts; then
	rm -rf --one-file-system "$root"
else
	echo "the root stays in $root"
fi
exit "$rc"
