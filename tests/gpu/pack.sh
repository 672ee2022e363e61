#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# pack.sh BUILD FILE…: `make gpu-kit`. BUILD/sluice-gpu-kit and its archive beside it: the kit and those files of BUILD,
# stripped, the libraries that they need besides the C library's, and what tests read of the repository.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
build=$1
shift
to=$build/sluice-gpu-kit
rm -rf "$to"
mkdir -p "$to/lib" "$to/etc/models" "$to/tests/bench"

# A test is a link to its folder's program, which is packed once.
for f; do
	mkdir -p "$(dirname "$to/$f")"
	if [ -L "$build/$f" ]; then
		ln -s "$(readlink "$build/$f")" "$to/$f"
		f=$(dirname "$f")/$(readlink "$build/$f")
	fi
	[ -e "$to/$f" ] || strip -o "$to/$f" "$build/$f"
done
strip -o "$to/kit" "$build/tests/gpu/kit"
cp etc/models/*.gguf etc/models/golden-logits.json "$to/etc/models"
cp tests/bench/gpu_peer.py "$to/tests/bench"
find "$to" -type f -perm -100 ! -name kit -exec ldd {} + | sed -nE 's/^.* => (\/[^ ]+) .*/\1/p' | sort -u |
	grep -Ev '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | xargs -r cp -Lt "$to/lib"
tar -C "$build" -cf "$to.tar" --owner=0 --group=0 sluice-gpu-kit
du -sh "$to.tar"
