#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# config.sh DATADIR STATEDIR: prints the configuration of an installation. It is etc/sluice.yaml with a few values of its
# own; each replacement must match exactly once, so the two files cannot drift apart.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
[ $# -eq 2 ] || { sed -n '4,5p' "$0" >&2; exit 64; }
data=$1 state=$2
text=$(cat etc/sluice.yaml) || exit 1

# put OLD NEW: lines or parts of one.
put() {
	text=$(OLD=$1 NEW=$2 awk 'BEGIN { RS = "\001"; old = ENVIRON["OLD"] } # the whole text is one record
		{
			at = index($0, old)
			rest = substr($0, at + length(old))
			if (!at || index(rest, old)) exit 1
			printf "%s%s%s", substr($0, 1, at - 1), ENVIRON["NEW"], rest
		}' <<<"$text") || {
		echo "config.sh: etc/sluice.yaml must have exactly once: $1" >&2
		exit 1
	}
}

put '`make run` uses this file, so
# it is a configuration for development: the lines marked (dev) differ from the defaults and are not for production.
' 'Lines
# marked (installed) differ from the defaults. After a change: systemctl reload sluice.
'
put $'\nstate: state\n' $'\n'"state: $state # (installed) default: state"$'\n'
put '# (dev) the demonstration pair of this repository; default: none' '# (installed) the demonstration pair; default: none'
put 'path: etc/models/demo-small.gguf' "path: $data/models/demo-small.gguf"
put 'path: etc/models/demo-large.gguf' "path: $data/models/demo-large.gguf"
put 'head: etc/models/demo-large-head.gguf' "head: $data/models/demo-large-head.gguf"
put '# (dev) the demonstration adapters of this repository; default: none' '# (installed) the demonstration adapters; default: none'
for adapter in pirate json museum; do
	put "path: etc/models/demo-large-$adapter.gguf" "path: $data/models/demo-large-$adapter.gguf"
done
put '  dev_keys: true # (dev) default: false' '  dev_keys: false'
put $'\n  anonymous: ""\n' $'\n  # (installed) Programs of this machine need no key. Make it "" before the server listens beyond this machine.\n  anonymous: free\n'
put '  cors_origins: ["http://localhost:*"] # (dev) default: none' '  cors_origins: []'
put '# (dev) These two; default: none.' '# (installed) These two; default: none.'
if grep -n '(dev)' <<<"$text" >&2; then
	echo "config.sh: etc/sluice.yaml has a line for development that an installation does not replace" >&2
	exit 1
fi
printf '%s\n' "$text"
