#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# container.sh [-b FOLDER] [-o BUILD]: tries etc/container/Dockerfile without a container engine. It carries out the file's
# steps in copies of a fresh Debian (FROM, RUN, COPY, USER, WORKDIR, CMD, HEALTHCHECK), starts the last stage in namespaces of
# its own, and asks the README's question. -b: a minimal Debian to copy instead of calling debootstrap. -o: the objects of
# an earlier build of the same sources, to save the compilation. Needs root, debootstrap and a network for apt.
set -u -o pipefail

# shellcheck disable=SC2034 # of debian_root.sh
suite=bookworm mirror=''
here=$(cd "$(dirname "$0")" && pwd) || exit 1
. "$here/support/debian_root.sh"
checkout=${here%/*}
question='{"model":"default","temperature":0,"messages":[{"role":"user","content":"What is the capital of France?"}]}'

fail() {
	echo "container.sh: $*" >&2
	exit 1
}

# ---- the steps ----

declare -A stages=()
[ "${1-}" = --serve ] || root='' place=/ user='' command='' health=''

from() { # IMAGE [AS NAME]
	case $1 in debian:bookworm*) ;; *) fail "FROM $1: only Debian 12 is known" ;; esac
	root=$top/stage${#stages[@]} place=/ user='' command='' health=''
	stages[${3:-last}]=$root
	cp -a "$base" "$root" || fail "can't copy $base"
	bring_apt
	bring /etc/ssl/certs /etc/resolv.conf /etc/hosts
	{ mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev"; } || fail "mounting failed"
}

run() {
	(in_root "export DEBIAN_FRONTEND=noninteractive; $1") >>"$top/run.log" 2>&1 || {
		tail -n 20 "$top/run.log"
		fail "RUN $1"
	}
}

copy() {
	if [[ $1 == --from=* ]]; then
		cp -a "${stages[${1#--from=}]}$2/." "$root$3" || fail "COPY $*"
		return
	fi
	[ "$1" = . ] || fail "COPY $1: only the whole folder is known"
	mkdir -p "$root$2"
	(cd "$checkout" && git ls-files -z -co --exclude-standard | xargs -0 ls -d 2>/dev/null | grep -v node_modules | tr '\n' '\0' |
		xargs -0 cp -a --parents -t "$root$2") || fail "COPY $*"
	[ -z "$objects" ] || cp -a "$objects" "$root$2/build" || fail "can't copy $objects"
}

# A JSON array of plain words, as words.
words() { tr -d '[]",' <<<"$1"; }

step() {
	local what=$1 rest=$2
	echo "$what ${rest:0:100}"
	# shellcheck disable=SC2086 # words
	case $what in
	FROM) from $rest ;;
	RUN) run "$rest" ;;
	COPY) copy $rest ;;
	USER) user=$rest ;;
	WORKDIR) place=$rest && mkdir -p "$root$rest" ;;
	CMD) command=$(words "$rest") ;;
	HEALTHCHECK) health=$(words "${rest#*CMD }") ;;
	VOLUME | EXPOSE | STOPSIGNAL) ;;
	*) fail "$what is not known" ;;
	esac
}

build() {
	local what rest
	while read -r what rest; do
		[ -z "$what" ] || step "$what" "$rest"
	done < <(sed -e '/^#/d' -e ':a' -e '/\\$/{N;s/\\\n[[:space:]]*//;ba}' "$checkout/etc/container/Dockerfile")
}

# ---- using it ----

serve() {
	local pid answer end=$((SECONDS + 120))
	ip link set lo up || fail "no network"
	# A container engine gives no more than this, and no terminal.
	# shellcheck disable=SC2086 # words
	(cd / && exec chroot --userspec="$user:$user" "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$place" \
		sh -c "cd $place && exec $command") >"$top/serve.log" 2>&1 </dev/null &
	pid=$!
	until chroot --userspec="$user:$user" "$root" sh -c "$health" 2>/dev/null; do
		[ "$SECONDS" -lt "$end" ] && kill -0 "$pid" || { tail "$top/serve.log"; fail "not healthy"; }
		sleep 0.5
	done
	echo "healthy, as uid $(id -u "$(ps -o user= -p "$pid")" 2>/dev/null || ps -o uid= -p "$pid")"
	answer=$(curl -sS --fail -m 60 http://localhost:8080/v1/chat/completions -H 'Content-Type: application/json' -d "$question")
	grep -o '"content":"[^"]*Paris[^"]*"' <<<"$answer" || fail "a wrong answer: $answer"
	kill -TERM "$pid"
	wait "$pid" || fail "ends with $?: $(tail "$top/serve.log")"
	echo "stopped by SIGTERM, exit status 0"
}

if [ "${1-}" = --inside ]; then
	top=$2 base=$3 objects=$4
	build
	export top root place user command health
	# The service gets a network of its own; apt needed this machine's.
	exec unshare --net "$0" --serve
fi
if [ "${1-}" = --serve ]; then
	serve
	exit
fi
base='' objects=''
while [ $# -gt 1 ]; do
	case $1 in
	-b) base=$2 ;;
	-o) objects=$(readlink -f "$2") ;;
	*) break ;;
	esac
	shift 2
done
[ $# -eq 0 ] || { sed -n '4,8p' "$0"; exit 2; }
[ "$(id -u)" -eq 0 ] || fail "must be run as root"
PATH=$PATH:/usr/sbin:/sbin
top=$(mktemp -d -p /var/tmp sluice-container.XXXXXX) || exit 1
chmod 755 "$top"
if [ -z "$base" ]; then
	base=$top/base
	debootstrap --variant=minbase "$suite" "$base" "$(host_mirror)" >"$top/debian.log" 2>&1 || fail "debootstrap failed"
fi
unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$0" --inside "$top" "$base" "$objects"
rc=$?
[ "$rc" -ne 0 ] || rm -rf --one-file-system "$top"
[ "$rc" -eq 0 ] || echo "the stages stay in $top"
exit "$rc"
