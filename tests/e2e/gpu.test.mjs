// SPDX-License-Identifier: Apache-2.0
// The scripts for a machine with a device: what they say where there is none, and that the measurement's parts run and its
// table has every row, on the emulation and shapes that say nothing about speed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import test from 'node:test';
import { SLUICE } from './harness.mjs';

const built = dirname(resolve(SLUICE));
const script = (name, args, env = {}) => {
  const r = spawnSync(name, args, { encoding: 'utf8', timeout: 200000, env: { ...process.env, ...env } });
  return { status: r.status, lines: r.stdout.trimEnd().split('\n'), text: r.stdout, err: r.stderr };
};
// A folder as make leaves it, without a backend for a device.
const withoutDevice = () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-gpu-'));
  for (const name of ['sluice', 'libsluice-cuda-emulated.so', 'tests']) symlinkSync(join(built, name), join(folder, name));
  return folder;
};

test('without a device one line says so, and the exit status is 77', { skip: existsSync('/dev/nvidia0') }, () => {
  const folder = withoutDevice();
  for (const name of ['tests/gpu/run.sh', 'tests/bench/gpu.sh'])
    for (const where of existsSync(join(built, 'libsluice-cuda.so')) ? [built, folder] : [folder]) {
      const r = script(name, [where]);
      assert.equal(r.status, 77, r.text + r.err);
      assert.equal(r.lines.length, 1, r.text);
      assert.match(r.lines[0], /^no device: /);
    }
  rmSync(folder, { recursive: true });
});

test('the tests of one suite, counted', () => {
  const folder = withoutDevice();
  const r = script('tests/gpu/run.sh', [folder, 'cuda-emulated'], { ONLY: 'test_graphs' });
  rmSync(folder, { recursive: true });
  assert.equal(r.status, 0, r.text + r.err);
  assert.match(r.lines[0], /emulated/);
  assert.match(r.lines.at(-1), /^[1-9]\d* passed, 0 failed$/);
});

test('every part of the measurement runs, and the table has a row for every demand', () => {
  const folder = withoutDevice();
  const r = script('tests/bench/gpu.sh', [folder, 'cuda-emulated'], { LIMIT: '150' });
  assert.equal(r.status, 0, r.text + r.err);
  assert.equal(r.err, '');
  const rows = r.lines.filter((l) => l.startsWith('| ') && !l.startsWith('| metric')).map((l) => l.slice(2, -2).split(' | '));
  assert.ok(rows.every((c) => c.length === 6), r.text);
  const of = (start) => rows.find((c) => c[0].startsWith(start)) ?? assert.fail(`no row: ${start}`);
  const ran = ['copy, read', 'product of 8192³, bf16', 'product of 8192³, weights in fp8', 'bf16 decode, one', 'bf16 decode, batch 8',
    'fp8 decode, one sequence, of', 'int4 decode, groups of 128, one sequence, of', 'fp8 decode, one sequence, against',
    'int4 decode, groups of 128, one sequence, against', 'Q4_0 decode, one sequence, of', 'prompt of 2K, int4',
    'products of a layer, BF16, rows: 1', 'products of a layer, fp8, rows: 8', 'products of a layer, Q4_K, rows: 8',
    'decode attention', 'prompt of 2K, bf16', 'prompt of 8K, bf16', 'gap', 'sampling', 'prompt of 2K + 100', 'verifying 5'];
  for (const start of ran) assert.notEqual(of(start)[5], 'not run', `${start}: ${r.text}`);
  for (const start of ['bf16 decode, batch 64', 'bf16 decode, batch 256', 'attention of a prompt', 'adapters', 'product of 8192³, bf16 by PyTorch'])
    assert.equal(of(start)[5], 'not run', start);
  assert.equal(of('bf16 decode, one')[4], '≥ 70 %');
  assert.equal(of('verifying 5')[4], '≤ 1.15 ×');
  assert.equal(of('gap')[4], '≤ 50.0 µs');
  assert.match(readFileSync(join(folder, 'gpu-bench', 'figures'), 'utf8'), /^copy [0-9.e-]+ [0-9.e+]+ 0$/m);
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
test('the table\'s arithmetic', () => {
  const figures = ['copy 1 4e12 0', 'matrix_bf16 1 0 8e14', 'decode_bf16_1 0.005 15e9 1e9', 'decode_bf16_256 0.02 1e9 4e12',
    'decode_fp8_1 0.004 1 1', 'gap_bf16 6e-5 0 0', 'sample_256 1e-4 0 0', 'verify_bf16_1 0.005 0 0', 'verify_bf16_5 0.0055 0 0'].join('\n');
  const r = spawnSync('awk', ['-v', 'backend=cuda', '-f', 'tests/bench/gpu_table.awk'], { input: `${figures}\n`, encoding: 'utf8' });
  const row = (start) => r.stdout.split('\n').find((l) => l.startsWith(`| ${start}`));
  assert.equal(row('bf16 decode, one sequence, of'), '| bf16 decode, one sequence, of its floor | 5.000 ms | 3.750 ms | 75.0 % | ≥ 70 % | PASS |');
  assert.equal(row('bf16 decode, batch 256'), '| bf16 decode, batch 256 at 1K | 20.000 ms | 5.000 ms | 25.0 % | ≥ 45 % | missed |');
  assert.match(row('fp8 decode, one sequence, against'), /\| 1\.25 × \| ≥ 1\.50 × \| missed \|$/);
  assert.match(row('gap'), /\| 60\.0 µs \| ≤ 50\.0 µs \| missed \|$/);
  assert.match(row('sampling'), /\| 100\.0 µs \| ≤ 150\.0 µs \| PASS \|$/);
  assert.match(row('verifying 5'), /\| 1\.10 × \| ≤ 1\.15 × \| PASS \|$/);
  assert.match(row('prompt of 2K, bf16'), /not run \|$/);
});
