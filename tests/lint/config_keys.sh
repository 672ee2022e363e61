#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# etc/sluice.yaml documents every key: each key that `sluice config show` prints follows a comment there, directly or after
# other keys of that comment. The first item of a list documents its items.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
empty=$(mktemp)
trap 'rm -f "$empty"' EXIT
missing=$(comm -23 \
	<(build/sluice config show -c "$empty" | sed -n 's/^\([a-z][a-z0-9_.]*\): .*/\1/p' | sort -u) \
	<(awk '
		/^ *#/ { documented = 1; next }
		/^ *$/ { documented = 0; next }
		match($0, /^ *[a-z0-9_]+:/) {
			indent = match($0, /[^ ]/) - 1
			key = $1
			sub(/:.*/, "", key)
			depth = indent / 2
			path[depth] = depth > 0 ? path[depth - 1] "." key : key
			if (documented) print path[depth]
		}' etc/sluice.yaml | sort -u))
[ -z "$missing" ] || { printf 'etc/sluice.yaml does not document %s\n' $missing; exit 1; }
