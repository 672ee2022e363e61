# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Where checks keep what they found clean: ${XDG_CACHE_HOME:-~/.cache}/sluice/NAME, by content, so that a fresh clone finds it.
# What was not used for 30 days is removed.

# lint_cache NAME: its folder, made; where the user's can't be written, one of the build folder.
lint_cache() {
	local folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/sluice/$1
	mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || { folder=$PWD/build/lint/$1 && mkdir -p "$folder"; }
	find "$folder" -type f -mtime +30 -delete
	echo "$folder"
}
