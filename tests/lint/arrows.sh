#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks which folder may include which, from the dependency files of a full build. Each .d names an
# object's source and every header it reads, directly or not. The compiler omits system headers (-MMD),
# so the rules about libraries use the sources' own includes.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
bad=0
say() {
	echo "$1"
	bad=1
}

# folder: folders its files may include from (beside itself)
allowed() {
	case $1 in
	base) echo "" ;;
	kernels) echo "base" ;;
	engine) echo "base kernels" ;;
	cache | cascade) echo "base" ;;
	gateway) echo "base cache cascade" ;;
	cmd) echo "base kernels engine cache cascade gateway" ;;
	*) return 1 ;;
	esac
}

# One awk reads all of them: a process for each takes seconds.
read_deps() {
	local folder
	for folder in base kernels engine cache cascade gateway cmd; do
		[ -d "build/$folder" ] || continue
		find "build/$folder" -name '*.d' | sed -E 's|^build/(.*)\.d$|\1.c|' | while read -r src; do [ -e "$src" ] && echo "build/${src%.c}.d"; done |
			xargs -r awk -v may=" $folder $(allowed $folder) " '
				FNR == 1 { n++; src = FILENAME; sub(/^build\//, "", src); sub(/\.d$/, ".c", src); target = 1 }
				{
					for (i = 1; i <= NF; i++) {
						if (target) { # up to the colon, in whichever line it is
							if ($i ~ /:$/) target = 0
							continue
						}
						header = $i
						sub(/^build\//, "", header)
						if (header ~ /^\// || header !~ /\/.*\.h$/) continue # of a library, or no header
						top = header
						sub(/\/.*/, "", top)
						if (index(may, " " top " ") == 0) print "bad", src " must not include " header
					}
				}
				END { print "read", n }'
	done
}
n=0
while read -r what rest; do
	if [ "$what" = read ]; then n=$((n + rest)); else say "$rest"; fi
done < <(read_deps)
[ "$n" -gt 0 ] || say "no dependency files: make build first"

# only PATTERN-OF-INCLUDE ALLOWED-FILES WHY
only() {
	local f
	while read -r f; do
		[[ $f =~ $2 ]] || say "$f: $3"
	done < <(grep -rlE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$1" \
		--include='*.c' --include='*.h' --include='*.cu' base kernels engine cache cascade gateway cmd 2>/dev/null)
}
only 'nghttp2' '^gateway/transport/h2[^/]*\.[ch]$|^cmd/load/load_client\.c$' 'only gateway/transport/h2* and the load client may include nghttp2'
only 'hiredis' '^cache/redis[^/]*$' 'only cache/redis* may include hiredis'
only '(lua|lauxlib|lualib)\.h' '^cache/mem_lua\.c$' 'only cache/mem_lua.c may include Lua'
only 'seccomp\.h' '^cmd/confine/sandbox_calls\.c$' 'only cmd/confine/sandbox_calls.c may include libseccomp'
only 'yaml\.h' '^base/conf/conf_yaml\.c$' 'only base/conf/conf_yaml.c may include libyaml'
only 'openssl' '^gateway/|^cache/key\.c$|^cmd/load/load_client\.c$|^cmd/hub/hub_digest\.c$' 'only gateway/, cache/key.c, the load client and the digests of downloads may include OpenSSL'
only 'jansson' '^(gateway|engine|cmd)/' 'base, kernels, cache and cascade read no JSON'
only 'event2' '^gateway/|^cache/(client|redis)|^engine/(core/(server|link|serve)|echo/|remote/)|^cmd/(load/load_client|bench/bench_store)\.c$' 'only the gateway, the store'"'"'s clients, the engine'"'"'s socket side and two measurements may include libevent'
only 'event2/http' '^gateway/observe/tracer\.c$' 'only gateway/observe/tracer.c, a client, may include libevent'"'"'s HTTP'
only 'cuda' '^kernels/cuda/' 'CUDA stays in kernels/cuda'
[ "$bad" -eq 0 ] && echo "$n sources follow the arrows"
exit $bad
