#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh [--check] GROUP…: are the tools and libraries of these groups (build, tests, lint) here?
#
# Silent and fast when they are. Otherwise names what is missing and, on Debian and its relatives,
# installs it: asks once on a terminal, does not ask with YES=1, and without either prints the
# command and stops. --check never installs.
set -u -o pipefail
PATH=$PATH:/usr/sbin # where some packages put what only root needs
cd "$(dirname "$0")/.." || exit 1

# group, how to see that it is there (c: a command, p: a pkg-config module), Debian package
needed='
build c gcc gcc
build c make make
build c ar binutils
build c pkg-config pkg-config
build p libevent libevent-dev
build p libevent_pthreads libevent-dev
build p hiredis libhiredis-dev
build p libnghttp2 libnghttp2-dev
build p libssl libssl-dev
build p libcrypto libssl-dev
build p jansson libjansson-dev
build p yaml-0.1 libyaml-dev
build p libpcre2-8 libpcre2-dev
build p libxxhash libxxhash-dev
build p libutf8proc libutf8proc-dev
build p libseccomp libseccomp-dev
build p lua5.1 liblua5.1-0-dev
build p libcurl libcurl4-openssl-dev
tests p cmocka libcmocka-dev
build c curl curl
tests c g++ g++
tests c redis-server redis-server
tests c node nodejs
tests c npm npm
tests c ccache ccache
tests c chromium-headless-shell chromium-headless-shell
tests c nginx nginx
tests c haproxy haproxy
lint c clang clang
lint c clang-format clang-format
lint c clang-tidy clang-tidy
lint c codespell codespell
lint c cppcheck cppcheck
lint c shellcheck shellcheck
'

# Fills $missing (what, for a person) and $packages.
find_missing() {
	local group kind name package modules=()
	missing=() packages=()
	while read -r group kind name package; do
		[[ " ${groups[*]} " == *" $group "* ]] || continue
		if [ "$kind" = c ]; then
			command -v "$name" >/dev/null || { missing+=("$name"); packages+=("$package"); }
		else
			modules+=("$name $package")
		fi
	done <<<"$needed"
	[ ${#modules[@]} -gt 0 ] || return 0
	# One call for all; one for each only when something is missing.
	command -v pkg-config >/dev/null && pkg-config --exists "${modules[@]%% *}" && return 0
	local m
	for m in "${modules[@]}"; do
		pkg-config --exists "${m%% *}" 2>/dev/null && continue
		missing+=("${m%% *}")
		packages+=("${m#* }")
	done
}

check_only=
[ "${1-}" = --check ] && { check_only=1; shift; }
groups=("$@")
find_missing
[ ${#missing[@]} -eq 0 ] && exit 0

mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
command=("${as_root[@]}" apt-get install --no-install-recommends -y "${packages[@]}")
{
	echo "Missing: ${missing[*]}"
	echo "Debian packages: ${packages[*]}"
} >&2
if ! command -v apt-get >/dev/null; then
	echo "There is no apt-get here: please install them with this system's own tool." >&2
	exit 1
fi
if [ -n "$check_only" ] || { [ "${YES-}" != 1 ] && ! [ -t 0 ]; }; then
	echo "Install them: ${command[*]}" >&2
	[ -n "$check_only" ] || echo "(or run again with YES=1)" >&2
	exit 1
fi
if [ "${YES-}" != 1 ]; then
	read -r -p "Install them now? [Y/n] " answer
	case $answer in
	'' | y | Y | yes) ;;
	*) exit 1 ;;
	esac
fi
if [ ${#as_root[@]} -gt 0 ] && ! command -v sudo >/dev/null; then
	echo "Neither root nor sudo: please run as root: ${command[*]:1}" >&2
	exit 1
fi

# Packages must not start services here; what was there before is put back whatever happens.
policy=/usr/sbin/policy-rc.d
made_policy=
remove_policy() {
	[ -n "$made_policy" ] && "${as_root[@]}" rm -f "$policy"
	made_policy=
}
trap remove_policy EXIT
trap 'exit 130' INT TERM
if [ ! -e "$policy" ]; then
	made_policy=1
	printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null &&
		"${as_root[@]}" chmod 755 "$policy"
fi
quiet=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y
	-o Dpkg::Use-Pty=0 --no-install-recommends install "${packages[@]}")
"${quiet[@]}" </dev/null || {
	"${as_root[@]}" apt-get -q update </dev/null && "${quiet[@]}" </dev/null
} || { echo "Installing failed." >&2; exit 1; }
remove_policy
hash -r
find_missing
[ ${#missing[@]} -eq 0 ] || { echo "Still missing: ${missing[*]}" >&2; exit 1; }
