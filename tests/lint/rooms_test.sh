#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests rooms.sh: a small tree that matches its table passes, and each planted violation fails with its reason.
set -u -o pipefail
rooms=$(cd "$(dirname "$0")" && pwd)/rooms.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

row() { printf '| `%s` | %s | text | %s |\n' "$@"; }

tree() {
	rm -rf "$work/t"
	mkdir -p "$work/t/base/above" "$work/t/base/below" && cd "$work/t" || exit 1
	{
		row base/above 1 below
		row base/below 1 –
	} >ARCHITECTURE.md
	echo 'int below(void);' >base/below/below.h
	echo 'int above(void);' >base/above/above.h
	printf '#include "base/below/below.h"\nint below(void) { return 1; }\n' >base/below/below.c
	printf '#include "base/above/above.h"\n#include "base/below/below.h"\nint above(void) { return below(); }\n' >base/above/above.c
}

compile() {
	local f
	for f in base/*/*.c; do
		mkdir -p "build/${f%/*}"
		${CC:-cc} -I. -MMD -MP -c -o "build/${f%.c}.o" "$f" || exit 1
	done
}

# passes NAME / fails NAME REASON
passes() {
	compile
	"$rooms" . >out 2>&1 && return
	echo "$1: refused"
	cat out
	bad=1
}
fails() {
	compile
	if "$rooms" . >out 2>&1 || ! grep -q "$2" out; then
		echo "$1: not found"
		cat out
		bad=1
	fi
}

tree
passes 'as the table says'

tree
sed -i '1i #include "base/above/above.h"' base/below/below.c
fails 'an include that points up' 'below.c includes base/above/above.h: base/above is above base/below'

tree
sed -i '1i #include "base/above/above.h"' base/below/below.h
fails 'an include that points up, seen through a header' 'above.c reads\|below.c reads base/above/above.h: base/above is above'

tree
echo 'int above(void); int circle(void) { return above(); }' >>base/below/below.c
fails 'a circle of calls that no include shows' 'below.c calls above of base/above/above.c: base/above is above'

tree
mkdir base/beside && echo 'int beside;' >base/beside/beside.c
row base/beside 1 – >>ARCHITECTURE.md
passes 'one more room'
echo 'extern int beside; int use(void) { return beside; }' >>base/above/above.c
fails 'a use that the row does not name' 'the row of base/above does not name base/beside'

tree
mkdir base/new && echo 'int new;' >base/new/new.c
fails 'a folder that is no room' 'base/new/new.c lies in no room'

tree
echo 'int more;' >base/below/more.c
fails 'a count that is not true' 'base/below has 2 sources, its row says 1'

tree
for i in $(seq 25); do echo "int more$i;" >"base/below/more$i.c"; done
sed -i 's/below` | 1/below` | 26/' ARCHITECTURE.md
fails 'a room that is too full' 'base/below has more than 25'

tree
sed -i 's/| – |/| above |/' ARCHITECTURE.md
fails 'a row that names what is not used' 'which it does not use'

exit $bad
