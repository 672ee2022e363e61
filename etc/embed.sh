#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes a C file that embeds the files given: etc/embed.sh OUT.c FILE...
set -eu
out=$1
shift
{
	echo '#include "gateway/api/www.h"'
	i=0
	for f in "$@"; do
		size=$(wc -c <"$f")
		printf '__asm__(".section .rodata\\n.global www_bytes_%d\\nwww_bytes_%d:\\n.incbin \\"%s\\"\\n.byte 0\\n.previous\\n");\n' "$i" "$i" "$f"
		printf 'extern const unsigned char www_bytes_%d[%d];\n' "$i" "$((size + 1))"
		i=$((i + 1))
	done
	echo 'const struct www_file www_files[] = {'
	i=0
	for f in "$@"; do
		case $f in
		*.html) type='text/html; charset=utf-8' ;;
		*.js) type='text/javascript; charset=utf-8' ;;
		*.css) type='text/css; charset=utf-8' ;;
		*.json) type='application/json' ;;
		*.ts | *.txt) type='text/plain; charset=utf-8' ;;
		*.svg) type='image/svg+xml' ;;
		*) echo "$f: no content type for this ending" >&2; exit 1 ;;
		esac
		name=${f#gateway/www/}
		[ "$name" != "$f" ] || name=$(basename "$f")
		tag=$(sha256sum "$f" | cut -c1-16)
		printf '    {"%s", "%s", "\\"%s\\"", www_bytes_%d, %d},\n' "$name" "$type" "$tag" "$i" "$(wc -c <"$f")"
		i=$((i + 1))
	done
	echo '    {0},'
	echo '};'
} >"$out.tmp"
mv "$out.tmp" "$out"
