#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# spelling.sh: codespell over prose and code. spelling.txt lists accepted words; models' vocabularies, vendored
# files and the cleanser's cases are left out, since their words are in other languages or cut.
set -u -o pipefail
cd "$(dirname "$0")/../.." || exit 1
git ls-files -co --exclude-standard |
	grep -vE '(^|/)node_modules/|^etc/models/|^gateway/www/vendor/|/cleanse_cases/|\.(gguf|png|svg|ico|jinja)$|package-lock\.json$|^LICENSE$|^tests/lint/spelling\.txt$' |
	while read -r f; do [ -e "$f" ] && echo "$f"; done | xargs codespell --ignore-words tests/lint/spelling.txt
