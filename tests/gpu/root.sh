#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# root.sh [BUILD]: whether the archive of `make gpu-kit` starts where nothing is installed but the C library. By hand, as root: a
# folder with Debian's package libc6 and nothing else is the root in which the archive's kit runs, first as it is (there is no
# device, and it says so), then dry, with the emulation put beside it, so that every program starts.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT
(cd "$root" && apt-get download libc6 >/dev/null 2>&1 && dpkg -x libc6_*.deb . && rm -- *.deb)
tar -C "$root" -xf "$build/sluice-gpu-kit.tar"
mkdir "$root/proc"
mount --bind /proc "$root/proc"

if chroot "$root" /sluice-gpu-kit/kit; then
	echo "root.sh: the kit passed without a device" >&2
	exit 1
else
	rc=$?
	[ "$rc" -eq 77 ] || [ -e /dev/nvidia0 ] || exit "$rc"
fi
cp "$build/libsluice-cuda-emulated.so" "$root/sluice-gpu-kit"
chroot "$root" /sluice-gpu-kit/kit --dry
