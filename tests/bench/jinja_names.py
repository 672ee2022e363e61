# SPDX-License-Identifier: Apache-2.0
#
# jinja_names.py FILE…: for each filter, test, global and method of engine/jinja, the number of FILEs (chat templates, or
# sources with templates in them) that use it and the lines of its function. From the repository's root.
import collections, glob, re, sys

KINDS = {"jinja_filters": "filter", "jinja_list_filters": "filter", "jinja_tests": "test", "jinja_globals": "global",
         "jinja_methods": "method", "jinja_string_methods": "method"}
sources = "".join(open(f).read() for f in sorted(glob.glob("engine/jinja/*.c")))
lines = {m[1]: m[0].count("\n") for m in re.finditer(r"^[a-z][^;{}\n]*?\b(\w+)\([^;{}]*\)\n\{\n.*?^\}\n", sources, re.S | re.M)}
uses, cost = collections.Counter(), {}
for m in re.finditer(r"const struct jfunction (\w+)\[\] = \{(.*?)\n\};", sources, re.S):
    for name, function in re.findall(r'\{"([^"]+)", "[^"]*", \d+, (\w+)', m[2]):
        cost[KINDS[m[1]], name] = (function, lines.get(function, 0))

for path in sys.argv[1:]:
    code = " ".join(re.findall(r"\{[%{](.*?)[%}]\}", open(path).read(), re.S))
    plain = re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", "''", code)
    found = {("filter", x) for x in re.findall(r"\|\s*(\w+)", plain)}
    found |= {("test", x) for x in re.findall(r"\bis\s+(?:not\s+)?(\w+)", plain)}
    found |= {("test", x) for x in re.findall(r"(?:select|reject)attr\(\s*'\w*'\s*,\s*'([^']+)'", code)}
    found |= {("method", x) for x in re.findall(r"\.(\w+)\s*\(", plain)}
    found |= {("global", x) for x in re.findall(r"(?<![\w.])(\w+)\s*\(", plain)}
    uses.update(k for k in found if k in cost)

print("| kind | used by (files) | used by none: lines |\n| --- | --- | --- |")
for kind in ("filter", "test", "global", "method"):
    of = sorted(n for k, n in cost if k == kind)
    used = ", ".join(f"`{n}` {uses[kind, n]}" for n in of if uses[kind, n])
    unused = ", ".join(f"`{n}` {cost[kind, n][1]}" for n in of if not uses[kind, n])
    print(f"| {kind} | {used} | {unused} |")
unused = {f: n for k, (f, n) in cost.items() if not uses[k]}
for k, (f, n) in cost.items():
    if uses[k]:
        unused.pop(f, None)
print(f"\n{len(cost)} names, {len(uses)} used; functions behind unused names only: {len(unused)}, {sum(unused.values())} lines")
