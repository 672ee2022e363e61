// SPDX-License-Identifier: Apache-2.0
// The code for devices: each architecture that it was built for is there, and no kernel uses local memory.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import test from 'node:test';
import { entries, kernels, spilled } from '../bench/cubins.mjs';
import { SLUICE } from './harness.mjs';

const built = dirname(resolve(SLUICE)), so = join(built, 'libsluice-cuda.so'), flags = join(built, 'cuda.flags');
const line = existsSync(flags) ? readFileSync(flags, 'utf8') : '', nvcc = line.split(' ')[0];
const absent = !(existsSync(so) && existsSync(nvcc)) && 'no CUDA toolkit: libsluice-cuda.so was not built';

// `make test` compiles without them where there is no device.
const quick = !/ -O3 /.test(line) && 'compiled without the optimisations that a device is worth: its registers say nothing';

const named = (kind) => [...line.matchAll(new RegExp(`code=${kind}_(\\d+)`, 'g'))].map((m) => Number(m[1]));
const archs = (all, kind) => [...new Set(all.filter((e) => e.kind === kind).map((e) => e.arch))].sort((a, b) => a - b);

test('what is shipped has code for each architecture, and no kernel spills', { skip: absent || quick }, () => {
  const all = [...entries(readFileSync(so))].filter((e) => e.arch >= 80);
  assert.deepEqual(archs(all, 'code'), named('sm'));
  assert.deepEqual(archs(all, 'ptx'), named('compute'));
  const found = all.filter((e) => e.kind === 'code').flatMap((e) => kernels(e.bytes).map((k) => ({ ...k, arch: e.arch })));
  assert.ok(found.length > 100, `${found.length} kernels`);
  assert.deepEqual(found.filter(spilled).map((k) => `${k.arch}: ${k.name}: ${k.frame} bytes`), []);
});

// What the case above looks for is found where it is.
test('a kernel that spills, and one with an array that it indexes, are found', { skip: absent }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-spills-'));
  const cubin = join(folder, 'some.cubin'), source = join(folder, 'some.cu');
  writeFileSync(source, `
extern "C" __global__ void clean(float *x) { x[threadIdx.x] *= 2; }
extern "C" __global__ void frame(float *x, const int *at)
{
	float some[32];
	for (int i = 0; i < 32; i++)
		some[at[i]] = x[i];
	x[threadIdx.x] = some[at[threadIdx.x]];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spill(float *x)
{
	float some[64];
	#pragma unroll
	for (int i = 0; i < 64; i++)
		some[i] = x[i * 1024 + threadIdx.x];
	__syncthreads();
	#pragma unroll
	for (int i = 0; i < 64; i++)
		x[i * 1024 + threadIdx.x] = some[i] * some[63 - i] + some[i * 7 % 64];
}
`);
  const r = spawnSync(nvcc, ['-O3', '-arch=sm_80', '-cubin', '-o', cubin, source], { encoding: 'utf8' });
  assert.equal(r.status, 0, r.stderr);
  const found = kernels(readFileSync(cubin));
  rmSync(folder, { recursive: true });
  assert.deepEqual(found.filter(spilled).map((k) => k.name).sort(), ['frame', 'spill']);
  assert.deepEqual(found.filter((k) => !spilled(k)).map((k) => k.name), ['clean']);
});
