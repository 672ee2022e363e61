#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# libraries.sh PROGRAM: prints the Debian packages of the libraries that it is linked to.
set -u -o pipefail
ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | while read -r file; do
	# dpkg may know a file of /lib as one of /usr/lib, or the other way round.
	dpkg -S "$(readlink -f "$file")" 2>/dev/null || dpkg -S "$file" 2>/dev/null || dpkg -S "/usr$file" 2>/dev/null || {
		echo "libraries.sh: $file belongs to no package" >&2
		exit 1
	}
done | sed 's/:.*//' | sort -u
