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

n=0
for folder in base kernels engine cache cascade gateway cmd; do
	may=" $folder $(allowed $folder) "
	[ -d "build/$folder" ] || continue
	while read -r dep; do
		src=${dep#build/}
		src=${src%.d}.c
		[ -e "$src" ] || continue
		n=$((n + 1))
		for header in $(sed -e 's/\\$//' -e 's/^[^ ]*://' "$dep"); do
			header=${header#build/}
			case $header in
			/*) continue ;; # a library's
			*/*.h) ;;
			*) continue ;;
			esac
			[[ $may == *" ${header%%/*} "* ]] || say "$src must not include $header"
		done
	done < <(find "build/$folder" -name '*.d')
done
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
