#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# rooms.sh [ROOT]: checks the table of rooms in ROOT/ARCHITECTURE.md against the sources and a full build. A row is
#
#   | `gateway/answer` | 24 | what it is | rooms of gateway/ that it may use |
#
# and rows are ordered from top to bottom. Every source belongs to a room, of at most 25 .c files; includes and calls go only to
# the rooms named in the row, or to lower rooms of another folder (arrows.sh says which folders); and no header that the
# compiler read, direct or not, is of a room further up. Since all of them point down the table, no circle of calls spans two rooms.
set -u -o pipefail
cd "${1:-$(dirname "$0")/../..}" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folders=()
for d in base kernels engine cache cascade gateway cmd; do [ -d "$d" ] && folders+=("$d"); done

# ROOM FILES USES…, in the table's order
sed -n 's/^| `\([a-z/]*\)` | \([0-9]*\) | [^|]* | \([^|]*\) |$/\1 \2 \3/p' ARCHITECTURE.md >"$work/table"
find "${folders[@]}" -name '*.c' -o -name '*.h' -o -name '*.cu' | sort >"$work/files"

# FROM TO HOW: direct includes, calls, and headers that came with others
grep -rE '^[[:space:]]*#[[:space:]]*include "' "${folders[@]}" --include='*.c' --include='*.h' --include='*.cu' |
	sed -n 's/^\([^:]*\):.*"\([^"]*\)".*/\1 \2 includes/p' >"$work/uses"
mapfile -t built < <(find "${folders[@]/#/build/}" -name '*.[do]' 2>/dev/null | while read -r f; do
	src=${f#build/}
	[ ! -e "${src%.?}.c" ] || echo "$f"
done)
printf '%s\n' "${built[@]}" | grep '\.d$' | xargs -r awk '
	FNR == 1 { src = FILENAME; sub(/^build\//, "", src); sub(/\.d$/, ".c", src) }
	{ for (i = 1; i <= NF; i++) if ($i ~ /\.h$/) print src, $i, "reads" }' >>"$work/uses"
printf '%s\n' "${built[@]}" | grep '\.o$' | xargs -r nm -A | sed 's|^build/\([^:]*\)\.o:|\1.c |' | awk '
	$3 ~ /^[TDBRVWC]$/ { print "has", $1, $4 }
	NF == 4 && $3 !~ /^[TDBRVWC]$/ { next }
	$2 == "U" { print "wants", $1, $3 }' >"$work/symbols"
awk '$1 == "has" { at[$3] = $2; next } { wants[n++] = $2 " " $3 }
	END { for (i = 0; i < n; i++) { split(wants[i], w, " "); if (w[2] in at && at[w[2]] != w[1]) print w[1], at[w[2]], "calls", w[2] } }' \
	"$work/symbols" | sort -u >>"$work/uses"

awk '
function room(path) { sub(/\/[^\/]*$/, "", path); return path }
function top(path) { sub(/\/.*/, "", path); return path }
function say(text) { if (!(text in said)) print text; said[text] = 1; bad = 1 }
FILENAME ~ /table$/ {
	rank[$1] = ++rooms; want[$1] = $2
	for (i = 3; i <= NF; i++) if ($i != "–") may[$1, $i == top($1) ? $i : top($1) "/" $i] = 1
	next
}
FILENAME ~ /files$/ {
	if (!(room($1) in rank)) say($1 " lies in no room of the table")
	else if ($1 !~ /\.h$/) have[room($1)]++
	if ($1 ~ /\.c$/) c[room($1)]++
	next
}
{
	a = room($1); b = room($2); how = $3 == "calls" ? "calls " $4 " of" : $3
	if (a == b || !(a in rank) || !(b in rank)) next
	n[$3]++
	if (rank[b] < rank[a]) say($1 " " how " " $2 ": " b " is above " a)
	else if ($3 != "reads" && top(a) == top(b) && !((a, b) in may)) say($1 " " how " " $2 ": the row of " a " does not name " b)
	used[a, b] = used[a, b] || $3 != "reads"
}
END {
	for (r in rank) {
		if (have[r] + 0 != want[r]) say(r " has " have[r] + 0 " sources, its row says " want[r])
		if (c[r] > 25) say(r " has more than 25 .c files")
	}
	for (pair in may) {
		split(pair, p, SUBSEP)
		if (!(p[2] in rank)) say("the row of " p[1] " names " p[2] ", which is no room")
		else if (!used[pair]) say("the row of " p[1] " names " p[2] ", which it does not use")
	}
	if (!rooms) say("ARCHITECTURE.md has no table of rooms")
	if (!n["calls"] || !n["reads"]) say("no objects: make build first")
	if (!bad) printf "%d rooms: %d includes, %d calls, none points up\n", rooms, n["includes"], n["calls"]
	exit bad
}' "$work/table" "$work/files" "$work/uses"
