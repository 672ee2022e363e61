#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# For scripts that try things in a fresh Debian. They set $root (its folder), $suite, $mirror ("": this machine's) and $place
# (where commands run in it), and have a function fail.
# shellcheck disable=SC2154

# What apt's sources have of the suite, in the given format.
apt_targets() {
	apt-get indextargets --format "\$(RELEASE) $1" 'Identifier: Packages' 2>/dev/null
}

host_mirror() {
	apt_targets "\$(REPO_URI)" | awk -v s="$suite" '$1 == s { print $2; exit }'
}

# The files that name the suite or a part of it (bookworm-updates).
host_sources() {
	apt_targets "\$(SOURCESENTRY)" | awk -v s="$suite" '$1 ~ "^" s "(-|$)" { sub(/:[0-9]+$/, "", $2); print $2 }' | sort -u
}

# bring FILE…: copies those that exist to the same path in the root; links become files. What is there goes first: it may be
# a link, which from out here names a file of this machine.
bring() {
	local f
	for f in "$@"; do
		[ -e "$f" ] || continue
		mkdir -p "$root$(dirname "$f")"
		rm -rf "${root:?}$f"
		cp -rLT "$f" "$root$f" || fail "$f can't be copied"
	done
}

bring_apt() {
	local sources keyrings
	if [ -z "$mirror" ]; then
		mapfile -t sources < <(host_sources)
		mapfile -t keyrings < <(grep -ohE '/[^] ]+\.(gpg|asc|pgp)' "${sources[@]}" | sort -u)
		rm -f "$root/etc/apt/sources.list"
		bring "${sources[@]}" "${keyrings[@]}" /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d
	fi
	bring /etc/apt/auth.conf /etc/apt/auth.conf.d
	apt-config dump | grep -E '^Acquire::(http|https|Check-|Retries)' >"$root/etc/apt/apt.conf.d/99host"
	printf 'Package: *\nPin: release o=Debian\nPin-Priority: 900\n' >"$root/etc/apt/preferences.d/debian"
}

# in_root COMMAND: has nothing of this environment but the way to the network.
in_root() {
	local name pass=() direct=${no_proxy-${NO_PROXY-}}
	direct=${direct:+$direct,}localhost,127.0.0.1,::1
	for name in http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; do
		[ -z "${!name-}" ] || pass+=("$name=${!name}")
	done
	exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin ${pass[@]+"${pass[@]}"} \
		no_proxy="$direct" NO_PROXY="$direct" /bin/sh -c "cd ${place:-/} && $1"
}
