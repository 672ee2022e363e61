# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The checks' cache of clean results: ${XDG_CACHE_HOME:-~/.cache}/sluice/NAME, keyed by content, so that a fresh clone can use
# it. Entries unused for 30 days are removed.

# lint_cache NAME: creates and prints its folder; in the build folder if the user's cache is not writable.
lint_cache() {
	local folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/sluice/$1
	mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || { folder=$PWD/build/lint/$1 && mkdir -p "$folder"; }
	find "$folder" -type f -mtime +30 -delete
	echo "$folder"
}
