// SPDX-License-Identifier: Apache-2.0
// Static probes (base/probes.h): the executable names each event of the flight recorder with its five values, where it was built
// with <sys/sdt.h>; and gdb, where it is there, stops at them in a process that runs.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT, SLUICE } from './harness.mjs';

const kinds = [...readFileSync(`${ROOT}/base/flight.c`, 'utf8').matchAll(/\[FLIGHT_\w+\] = \{"(\w+)", \{/g)].map((m) => m[1]).filter((k) => k !== 'none');
const notes = execFileSync('readelf', ['-n', '--wide', SLUICE], { encoding: 'utf8', maxBuffer: 1 << 26 });
const probes = [...notes.matchAll(/Provider: sluice\s+Name: (\w+)\s+Location: (0x[0-9a-f]+).*\s+Arguments: (.*)/g)].map((m) => ({ name: m[1], args: m[3].trim().split(/\s+/) }));
const none = probes.length === 0 && 'built without <sys/sdt.h> (package systemtap-sdt-dev)';

test('each kind of event has its probe, with five values', { skip: none }, () => {
  assert.ok(kinds.length >= 12, kinds.join());
  for (const kind of kinds) {
    const own = probes.filter((p) => p.name === kind);
    assert.ok(own.length > 0, kind);
    // One for each place that notes it: other kinds' are not left in there.
    assert.ok(own.length < 60, `${kind}: ${own.length}`);
    for (const p of own) assert.equal(p.args.length, 5, `${kind}: ${p.args}`);
  }
  for (const p of probes) assert.ok(kinds.includes(p.name), p.name);
});

const NO_GDB = none || (spawnSync('gdb', ['--version']).error ? 'gdb is not installed' : false);

test('a debugger finds them by name', { skip: NO_GDB }, () => {
  const said = execFileSync('gdb', ['-batch', '-nx', '-ex', 'info probes all sluice', SLUICE], { encoding: 'utf8' });
  for (const kind of kinds) assert.match(said, new RegExp(`sluice\\s+${kind}\\s+0x`), kind);
});
