#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deb.sh BUILD: makes BUILD/deb/sluice_VERSION_ARCH.deb, and sluice-cuda_VERSION_ARCH.deb if the CUDA backend was built.
# It stages `make install PREFIX=/usr` and uses dpkg's own tools; the dependencies are those of the linked libraries.
# Needs dpkg-dev. Output is reproducible: files have the time of the last commit.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build}
umask 022

fail() {
	echo "deb.sh: $*" >&2
	exit 1
}

for tool in dpkg-shlibdeps dpkg-gencontrol dpkg-deb; do
	command -v "$tool" >/dev/null || fail "$tool is missing (apt-get install dpkg-dev)"
done
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
version=$(cat VERSION)-1local1
out=$build/deb tree=$build/deb/sluice cuda=$build/deb/sluice-cuda
rm -rf "$out"
mkdir -p "$tree/DEBIAN" "$out/debian" || exit 1
cp etc/package/debian/control "$out/debian/control" || exit 1

# ---- files ----

DESTDIR=$PWD/$tree PREFIX=/usr SYSCONFDIR=/etc STATEDIR=/var/lib/sluice etc/package/install.sh install "$build" >/dev/null ||
	fail "installing failed"
# Debian's places.
if [ -d "$tree/usr/share/zsh/site-functions" ]; then
	mv "$tree/usr/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions" || exit 1
fi
mkdir -p "$tree/lib/systemd" && mv "$tree/usr/lib/systemd/system" "$tree/lib/systemd/system" || exit 1
rmdir "$tree/usr/lib/systemd"
rm "$tree/usr/share/doc/sluice/LICENSE" || exit 1
changelog() {
	printf 'sluice (%s) unstable; urgency=medium\n\n  * Version %s. /usr/share/doc/sluice/NEWS.gz lists the changes.\n\n' \
		"$version" "$(cat VERSION)"
	printf ' -- Sluice developers <sluice@localhost>  %s\n' "$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" -R)"
}
changelog >"$out/debian/changelog"

# document PACKAGE-TREE: what every package has.
document() {
	local doc=$1/usr/share/doc/${1##*/}
	mkdir -p "$doc" || exit 1
	gzip -9n <"$out/debian/changelog" >"$doc/changelog.Debian.gz" || exit 1
	gzip -9n <CHANGELOG.md >"$doc/changelog.gz" || exit 1
	install -m 644 etc/package/debian/copyright "$doc/copyright" || exit 1
	mkdir -p "$1/usr/share/lintian/overrides" || exit 1
	sed "s/^PACKAGE:/${1##*/}:/" etc/package/debian/lintian-overrides >"$1/usr/share/lintian/overrides/${1##*/}"
}

strip --strip-unneeded -R .comment -R .note "$tree/usr/bin/sluice" "$tree/usr/bin/sluice-bench" || exit 1
gzip -9n "$tree"/usr/share/man/man?/* || exit 1
ln -s sluice.1.gz "$tree/usr/share/man/man1/sluice-bench.1.gz" || exit 1
document "$tree"
echo /etc/sluice/sluice.yaml >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do
	install -m 755 "etc/package/debian/$script" "$tree/DEBIAN/$script" || exit 1
done
if [ -e "$tree/usr/lib/sluice/libsluice-cuda.so" ]; then
	mkdir -p "$cuda/DEBIAN" "$cuda/usr/lib" && mv "$tree/usr/lib/sluice" "$cuda/usr/lib/" || exit 1
	strip --strip-unneeded "$cuda/usr/lib/sluice/libsluice-cuda.so" || exit 1
	document "$cuda"
fi

# ---- packages ----

# pack TREE BINARY…
pack() {
	local name=${1##*/} root=$1 subst=debian/${1##*/}.substvars
	shift
	(cd "$out" && dpkg-shlibdeps -T"$subst" "${@/#/$name/}") || fail "dpkg-shlibdeps fails for $name"
	(cd "$out" && dpkg-gencontrol -p"$name" -P"$name" -T"$subst" -n"${name}_${version}_$(dpkg --print-architecture).deb") ||
		fail "dpkg-gencontrol fails for $name"
	(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0r md5sum) >"$out/md5sums" || exit 1
	mv "$out/md5sums" "$root/DEBIAN/md5sums"
	find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null || fail "dpkg-deb fails for $name"
}

pack "$tree" usr/bin/sluice usr/bin/sluice-bench
[ ! -d "$cuda" ] || pack "$cuda" usr/lib/sluice/libsluice-cuda.so
ls -l "$out"/*.deb
