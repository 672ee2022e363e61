#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# configure.sh FILE: makes an installed configuration one for a container. The gateway listens on every address of the
# container, in cleartext; which of them clients reach is decided outside.
set -u -o pipefail
file=$1
for line in 's|^  http: 127\.0\.0\.1:8080$|  http: "*:8080"|' 's|^  https: 127\.0\.0\.1:8443$|  https: "off"|'; do
	before=$(sha256sum <"$file")
	sed -i "$line" "$file" || exit 1
	[ "$before" != "$(sha256sum <"$file")" ] || { echo "configure.sh: $file: nothing to do for $line" >&2; exit 1; }
done
