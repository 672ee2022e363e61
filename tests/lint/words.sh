#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Rejects notes to self, machine-specific paths and files without a licence line.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
bad=0
mapfile -t files < <(git ls-files -co --exclude-standard |
	grep -vE '(^|/)node_modules/|\.(gguf|png|svg|ico)$|package-lock\.json$|^LICENSE$|^tests/lint/words\.sh$')
if grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${files[@]}"; then
	echo "^ notes to self"
	bad=1
fi
if grep -nE '(^|[^A-Za-z0-9._/~-])/(home|work|Users|root)/[A-Za-z0-9._-]' "${files[@]}"; then
	echo "^ paths of one machine"
	bad=1
fi
if grep -nIE '<<<<<<< |>>>>>>> ' "${files[@]}"; then
	echo "^ left by a merge"
	bad=1
fi
for f in "${files[@]}"; do
	case $f in
	*.c | *.h | *.sh | *.cu)
		head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || {
			echo "$f: no licence line at its top"
			bad=1
		}
		;;
	esac
done
exit $bad
