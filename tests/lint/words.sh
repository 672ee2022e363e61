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
unlicensed=$(printf '%s\n' "${files[@]}" | grep -E '\.(c|h|sh|cu)$' | xargs awk '
	FNR == 1 { if (NR > 1 && !found) print file; file = FILENAME; found = 0 }
	/SPDX-License-Identifier: Apache-2\.0/ { found = 1 }
	FNR == 3 { if (!found) print file; found = 1; nextfile }
	END { if (!found) print file }')
if [ -n "$unlicensed" ]; then
	echo "$unlicensed"
	echo "^ no licence line at the top"
	bad=1
fi
exit $bad
