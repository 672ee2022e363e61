// SPDX-License-Identifier: Apache-2.0
// The kit for a machine with a device: what it says where there is none, and that its parts run and its table has every row,
// on the emulation and shapes that say nothing about speed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import test from 'node:test';
import { SLUICE } from './harness.mjs';

const built = dirname(resolve(SLUICE));
const script = (name, args, env = {}) => {
  const r = spawnSync(name, args, { encoding: 'utf8', timeout: 400000, env: { ...process.env, ...env } });
  return { status: r.status, lines: r.stdout.trimEnd().split('\n'), text: r.stdout, err: r.stderr };
};
// A folder as make leaves it, without a backend for a device.
const withoutDevice = () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-gpu-'));
  for (const name of ['sluice-bench', 'libsluice-cuda-emulated.so', 'tests'])
    symlinkSync(join(built, name), join(folder, name));
  return folder;
};

// What the table says: its rows by how they begin.
const table = (text) => {
  const lines = text.split('\n').filter((l) => l.startsWith('| ') && !l.startsWith('| what'));
  const rows = lines.map((l) => l.slice(2, -2).split(' | '));
  return { rows, of: (start) => rows.find((c) => c[0].startsWith(start)) ?? assert.fail(`no row: ${start}\n${text}`) };
};
const kit = join(built, 'tests', 'gpu', 'kit');

test('without a device one line says so, and the exit status is 77', { skip: existsSync('/dev/nvidia0') }, () => {
  const folder = withoutDevice();
  for (const where of existsSync(join(built, 'libsluice-cuda.so')) ? [built, folder] : [folder]) {
    const r = script(kit, [where]);
    assert.equal(r.status, 77, r.text + r.err);
    assert.equal(r.lines.length, 1, r.text);
    assert.match(r.lines[0], /^no device: /);
  }
  rmSync(folder, { recursive: true });
});

test('a dry run: every part runs, and the table has a row for every demand', () => {
  const folder = withoutDevice();
  const r = script(kit, ['--dry', folder]);
  assert.equal(r.status, 0, r.text + r.err);
  assert.match(r.lines[0], /emulated/);
  const { rows, of } = table(r.text);
  assert.ok(rows.every((c) => c.length === 7), r.text);
  assert.match(of('test_graphs')[3], /^[1-9]\d* passed, 0 failed$/);
  const ran = ['copy, read', 'product of 8192³, bf16', 'product of 8192³, weights in fp8', '8B bf16 decode, one',
    '8B bf16 decode, batch 8', '1B bf16 decode, one', '8B fp8 decode, one', '8B int4 decode, one', '8B Q4_0 decode, one',
    'fp8 decode, one sequence, against', 'int4 decode, groups of 128, one sequence, against',
    'products of an 8B layer, BF16, rows: 1', 'products of an 8B layer, fp8, rows: 8', 'products of an 8B layer, Q4_K, rows: 8',
    'decode attention', 'prompt of 2K, 8B bf16', 'prompt of 8K, 8B bf16', 'norm of 512', 'sum and norm', 'gate of 512',
    'an adapter of rank 16, 8B, one', '8 adapters of rank 16, 8B, batch 8', '8 adapters of rank 16, 1B, batch 8',
    'prompt of 2K with an adapter, 8B', 'gap of a step, 8B bf16, one', 'decodes that ran as a graph, 8B', 'sampling',
    'prompt of 2K + 100', 'verifying 5', 'upload of weights', 'opening the device', 'first product', 'first step'];
  for (const start of ran) assert.notEqual(of(start)[6], 'not run', `${start}: ${r.text}`);
  for (const start of ['8B bf16 decode, batch 64', '8B bf16 decode, batch 256', 'attention of a prompt of 4K, against',
    '8 adapters of rank 16, 8B, batch 64']) assert.equal(of(start)[6], 'not run', start);
  assert.deepEqual(of('8B bf16 decode, one').slice(4, 6), ['≥ 70.0 %', '≥ 80.0 %']);
  assert.deepEqual(of('verifying 5').slice(4, 6), ['≤ 1.15 ×', '≤ 1.08 ×']);
  assert.match(readFileSync(join(folder, 'kit-out', 'copy.txt'), 'utf8'), /^copy [0-9.e-]+ [0-9.e+]+ 0$/m);
  rmSync(folder, { recursive: true });
});

test('a part that fails, or takes too long, is a row, and the others run', () => {
  const folder = withoutDevice();
  rmSync(join(folder, 'sluice-bench'));
  const program = '#!/bin/sh\ncase $2 in copy) echo "copy 1 4e12 0" ;; rows) echo "no rows" >&2; exit 3 ;; *) sleep 60 ;; esac\n';
  writeFileSync(join(folder, 'sluice-bench'), program, { mode: 0o755 });
  const r = script(kit, ['--dry', '--seconds', '10', '--only', 'copy,rows,sample,8b-bf16', folder]);
  assert.equal(r.status, 1, r.text + r.err);
  const { rows, of } = table(r.text);
  assert.deepEqual(rows.slice(0, 4).map((c) => c[6]), ['FAILED', 'FAILED', 'FAILED', 'not run']);
  assert.equal(of('rows')[1], 'exit status 3: no rows');
  assert.match(of('sample')[1], /^took more than \d+ s$/);
  assert.equal(of('8b-bf16')[1], 'no time left');
  assert.equal(of('copy, read')[3], '4.000 TB/s');
  rmSync(folder, { recursive: true });
});

test('operations and a model without a file, by the backend\'s name', () => {
  const ops = spawnSync(SLUICE, ['bench', 'ops', '--backend', 'cuda-emulated', '--tiny'], { encoding: 'utf8', timeout: 100000 });
  assert.equal(ops.status, 0, ops.stderr);
  assert.match(ops.stdout, /^product_INT4_8 [0-9.e-]+ [0-9.e+]+ [0-9.e+]+$/m);
  assert.match(ops.stdout, /^sample_256 /m);
  const model = (...args) => spawnSync(SLUICE, ['bench', 'model', ...args], { encoding: 'utf8', timeout: 100000 });
  const r = model('random:tiny-llama:int4', '--backend', 'cuda-emulated', '--tiny');
  assert.equal(r.status, 0, r.stderr);
  for (const name of ['decode_model_1', 'decode_model_8', 'prompt_model_2048', 'verify_model_5'])
    assert.match(r.stdout, new RegExp(`^${name} [0-9.e-]+ `, 'm'));
  for (const [args, status, words] of [[['random:tiny-llama:q9', '--backend', 'cuda-emulated', '--tiny'], 1, 'no type is named q9'],
    [['--backend', 'cuda-emulated'], 64, 'random:SHAPE:TYPE'], [['random:tiny-llama:bf16'], 1, 'makes no weights at random']]) {
    const bad = model(...args);
    assert.equal(bad.status, status, bad.stderr);
    assert.ok(bad.stderr.includes(words), bad.stderr);
  }
});

// Figures as a device might give them, through the table alone.
test('the table\'s arithmetic, and what fell short first', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-gpu-'));
  const path = join(folder, 'figures');
  writeFileSync(path, ['copy 1 4e12 0', 'matrix_bf16 1 0 8e14', 'decode_bf16_1 0.005 15e9 1e9', 'decode_bf16_256 0.02 1e9 4e12',
    'decode_fp8_1 0.004 1 1', 'gap_bf16_1 6e-5 0 0', 'sample_256 1e-4 0 0', 'verify_bf16_1 0.005 0 0', 'verify_bf16_5 0.0052 0 0',
    'hits_bf16 0 119 120', 'upload 0.5 1e10 0', 'some other line', 'unknown 1 1 1', ''].join('\n'));
  const r = script(kit, ['--figures', path]);
  assert.equal(r.status, 1, r.err);
  const { rows, of } = table(r.text);
  assert.deepEqual(of('8B bf16 decode, one').slice(1, 4), ['5.000 ms', '3.750 ms', '75.0 %']);
  assert.deepEqual(of('8B bf16 decode, one').slice(4), ['≥ 70.0 %', '≥ 80.0 %', 'as demanded']);
  assert.deepEqual(of('8B bf16 decode, batch 256').slice(1, 4), ['20.000 ms', '5.000 ms', '25.0 %']);
  assert.deepEqual(of('8B bf16 decode, batch 256').slice(4), ['≥ 45.0 %', '≥ 55.0 %', 'FELL SHORT']);
  assert.deepEqual(of('fp8 decode, one sequence, against').slice(3), ['1.25 ×', '≥ 1.50 ×', '≥ 1.70 ×', 'FELL SHORT']);
  assert.deepEqual(of('gap of a step, 8B bf16, one').slice(3), ['60.0 µs', '≤ 50.0 µs', '≤ 15.0 µs', 'FELL SHORT']);
  assert.deepEqual(of('sampling').slice(3), ['100.0 µs', '≤ 150.0 µs', '≤ 80.0 µs', 'as demanded']);
  assert.deepEqual(of('verifying 5').slice(3), ['1.04 ×', '≤ 1.15 ×', '≤ 1.08 ×', 'stretch']);
  assert.deepEqual(of('decodes that ran as a graph, 8B').slice(3), ['99.2 %', '≥ 99.0 %', '≥ 100.0 %', 'as demanded']);
  assert.equal(of('upload')[3], '0.020 TB/s');
  assert.equal(of('prompt of 2K, 8B bf16')[6], 'not run');
  const order = rows.map((c) => c[6]).filter((v, i, all) => v !== all[i - 1]);
  assert.deepEqual(order.slice(0, 2), ['FELL SHORT', 'not run']);
  assert.equal(rows[0][0], '8B bf16 decode, batch 256 at 1K'); // the furthest from its demand
  rmSync(folder, { recursive: true });
});
