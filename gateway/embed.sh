#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# embed.sh FOLDER OUT: writes the C file OUT with every file below FOLDER in it (declared in
# gateway/www.h). The assembler reads the bytes (.incbin), so nothing is translated and it is fast.
set -eu -o pipefail

folder=$1 out=$2
tmp=$out.tmp

content_type() {
	case $1 in
	*.html) echo 'text/html; charset=utf-8' ;;
	*.js) echo 'text/javascript; charset=utf-8' ;;
	*.css) echo 'text/css; charset=utf-8' ;;
	*.svg) echo 'image/svg+xml' ;;
	*.png) echo 'image/png' ;;
	*.json) echo 'application/json' ;;
	*.woff2) echo 'font/woff2' ;;
	*.txt) echo 'text/plain; charset=utf-8' ;;
	*)
		echo "embed.sh: $1: no content type is known for it" >&2
		exit 1
		;;
	esac
}

mapfile -t files < <(cd "$folder" && find . -type f -printf '%P\n' | LC_ALL=C sort)
{
	echo "/* Made by gateway/embed.sh from $folder. */"
	printf '%s\n' '#include "gateway/www.h"' ''
	printf '%s\n' '__asm__(".section .rodata\n"'
	for i in "${!files[@]}"; do
		printf '\t".balign 16\\n"\n\t"www_at_%s: .incbin \\"%s\\"\\n"\n' "$i" "$folder/${files[i]}"
	done
	printf '%s\n' '	".text\n");'
	for i in "${!files[@]}"; do
		printf 'extern const uint8_t www_at_%s[];\n' "$i"
	done
	echo
	echo 'const struct www_file www_files[] = {'
	for i in "${!files[@]}"; do
		path=/www/${files[i]}
		[ "${files[i]}" = index.html ] && path=/
		type=$(content_type "${files[i]}")
		sum=$(sha256sum "$folder/${files[i]}")
		size=$(stat -c %s "$folder/${files[i]}")
		printf '\t{"%s", "%s", "\\"%s\\"", www_at_%s, %s},\n' \
			"$path" "$type" "${sum:0:16}" "$i" "$size"
	done
	echo '};'
	echo "const size_t n_www_files = ${#files[@]};"
} >"$tmp"
mv "$tmp" "$out"
