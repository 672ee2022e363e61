#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh install|uninstall BUILD: what `make install` and `make uninstall` do, with DESTDIR, PREFIX, SYSCONFDIR,
# STATEDIR and CUDA_SO (the CUDA backend, if it was built) from the environment. One list has all files, so uninstall removes what install made and nothing else. An
# existing configuration is never overwritten, nor removed.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
action=${1-} build=${2-build}
dest=${DESTDIR-} prefix=${PREFIX:-/usr/local}
case $prefix in
/usr | /usr/local) etc=/etc var=/var ;;
*) etc=$prefix/etc var=$prefix/var ;;
esac
etc=${SYSCONFDIR:-$etc} state=${STATEDIR:-$var/lib/sluice}
config=$etc/sluice/sluice.yaml
share=$prefix/share
made=$build/install # what is generated

# MODE SOURCE DESTINATION
list() {
	local doc adapter
	echo "755 $build/sluice $prefix/bin/sluice"
	echo "755 $build/sluice-bench $prefix/bin/sluice-bench"
	[ -z "${CUDA_SO-}" ] || echo "644 $CUDA_SO $prefix/lib/sluice/libsluice-cuda.so"
	echo "644 etc/models/demo-small.gguf $share/sluice/models/demo-small.gguf"
	echo "644 etc/models/demo-large.gguf $share/sluice/models/demo-large.gguf"
	echo "644 etc/models/demo-large-head.gguf $share/sluice/models/demo-large-head.gguf"
	for adapter in pirate json museum; do
		echo "644 etc/models/demo-large-$adapter.gguf $share/sluice/models/demo-large-$adapter.gguf"
	done
	echo "644 $made/sluice.yaml $share/sluice/sluice.yaml"
	echo "644 $made/sluice.1 $share/man/man1/sluice.1"
	echo "644 $made/sluice.yaml.5 $share/man/man5/sluice.yaml.5"
	echo "644 $made/sluice.bash $share/bash-completion/completions/sluice"
	echo "644 $made/_sluice $share/zsh/site-functions/_sluice"
	echo "644 $made/sluice.fish $share/fish/vendor_completions.d/sluice.fish"
	echo "644 $made/sluice.service $prefix/lib/systemd/system/sluice.service"
	echo "644 $made/sluice.socket $prefix/lib/systemd/system/sluice.socket"
	echo "644 $made/sluice-refit.service $prefix/lib/systemd/system/sluice-refit.service"
	echo "644 etc/systemd/sluice-refit.timer $prefix/lib/systemd/system/sluice-refit.timer"
	echo "644 etc/systemd/sysusers.conf $prefix/lib/sysusers.d/sluice.conf"
	for doc in README.md README.ko.md etc/api.md etc/cascade.md etc/client.md etc/metrics.md etc/operate.md etc/proxies.md \
		etc/quickstart.md etc/systemd/gpu.conf etc/prometheus/sluice.rules.yml etc/grafana/sluice.json LICENSE; do
		echo "644 $doc $share/doc/sluice/${doc##*/}"
	done
}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

# fill FILE: a template with this installation's paths.
fill() {
	sed -e "s|@BIN@|$prefix/bin|g" -e "s|@CONFIG@|$config|g" -e "s|@ETC@|$etc|g" -e "s|@STATE@|$state|g" "$1" >"$made/${1##*/}"
}

generate() {
	export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
	mkdir -p "$made" || exit 1
	etc/package/config.sh "$share/sluice" "$state" >"$made/sluice.yaml" || exit 1
	fill etc/systemd/sluice.service && fill etc/systemd/sluice.socket && fill etc/systemd/sluice-refit.service || exit 1
	"$build/sluice" docs man >"$made/sluice.1" || exit 1
	"$build/sluice" docs man-config "$made/sluice.yaml" >"$made/sluice.yaml.5" || exit 1
	"$build/sluice" docs bash >"$made/sluice.bash" || exit 1
	"$build/sluice" docs zsh >"$made/_sluice" || exit 1
	"$build/sluice" docs fish >"$made/sluice.fish" || exit 1
}

install_all() {
	local mode from to
	generate
	while read -r mode from to; do
		install -D -m "$mode" "$from" "$dest$to" || fail "can't install $dest$to"
	done < <(list)
	if [ -e "$dest$config" ]; then
		cmp -s "$made/sluice.yaml" "$dest$config" ||
			echo "kept: $dest$config (the new one is $dest$share/sluice/sluice.yaml)"
	else
		install -D -m 644 "$made/sluice.yaml" "$dest$config" || fail "can't install $dest$config"
	fi
	echo "installed: $dest$prefix/bin/sluice, $dest$config"
	[ -n "$dest" ] || echo "as a service: systemd-sysusers && systemctl daemon-reload && systemctl enable --now sluice"
}

# Folders that install may have made, the innermost first; only empty ones go.
folders() {
	list | while read -r _ _ to; do
		while to=${to%/*} && [ -n "$to" ] && [ "$to" != "$prefix" ]; do
			case $to in "$prefix"/*) echo "$to" ;; esac
		done
	done | sort -ru
}

uninstall_all() {
	local to folder
	while read -r _ _ to; do
		rm -f "$dest$to" || fail "can't remove $dest$to"
	done < <(list; echo "755 x $prefix/lib/sluice/libsluice-cuda.so")
	while read -r folder; do
		rmdir "$dest$folder" 2>/dev/null
	done < <(folders)
	echo "removed: $dest$prefix/bin/sluice and what belongs to it. Left, if they exist:"
	echo "  $dest$etc/sluice: the configuration"
	echo "  $dest$state: the state folder, with keys, certificates, stored responses and models"
	echo "  the account sluice, and the service's journal (journalctl -u sluice)"
}

case $action in
install) install_all ;;
uninstall) uninstall_all ;;
list) list ;;
*) sed -n '4,6p' "$0" >&2; exit 64 ;;
esac
