#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch makes of the shapes that `sluice bench gpu` measures, in the same lines: NAME SECONDS BYTES OPERATIONS.

A forward pass of an 8B Llama with random bf16 weights, written plainly: RMSNorm, products, rotary embedding left out (it is
small), scaled_dot_product_attention with grouped keys, SiLU. Decodes are run as a CUDA graph. Times are the median of events
on the device. What does not work is left out, with a line on standard error.
"""
import statistics
import sys

import torch
import torch.nn.functional as F

N, FF, HEADS, KV, DIM, LAYERS, VOCAB = 4096, 14336, 32, 8, 128, 32, 128256
dev, bf16 = "cuda", torch.bfloat16


def tell(name, seconds, n_bytes=0.0, ops=0.0):
    print(f"{name} {seconds:.6g} {n_bytes:.6g} {ops:.6g}", flush=True)


def timed(f, n=10):
    for _ in range(3):
        f()
    took = []
    for _ in range(n):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        f()
        b.record()
        b.synchronize()
        took.append(a.elapsed_time(b) / 1e3)
    return statistics.median(took)


def attend(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


class Layer:
    def __init__(self):
        def w(o, i):
            return torch.randn(o, i, device=dev, dtype=bf16) / i**0.5

        self.qkv, self.o = w((HEADS + 2 * KV) * DIM, N), w(N, HEADS * DIM)
        self.gate_up, self.down = w(2 * FF, N), w(N, FF)
        self.norms = torch.ones(2, N, device=dev, dtype=bf16)

    def __call__(self, x, past):
        """x [batch][rows][N]; past: keys and values [batch][KV][positions][DIM], or None for a prompt."""
        b, n, _ = x.shape
        h = F.rms_norm(x, (N,), self.norms[0])
        q, k, v = F.linear(h, self.qkv).view(b, n, HEADS + 2 * KV, DIM).transpose(1, 2).split([HEADS, KV, KV], 1)
        if past is not None:
            past[0][:, :, -1:], past[1][:, :, -1:] = k, v
            k, v = past
        a = attend(q, k, v, past is None).transpose(1, 2).reshape(b, n, HEADS * DIM)
        x = x + F.linear(a, self.o)
        gate, up = F.linear(F.rms_norm(x, (N,), self.norms[1]), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


def ceilings():
    a, b = (torch.randint(0, 255, (1 << 30,), device=dev, dtype=torch.uint8) for _ in range(2))
    tell("torch_copy", timed(lambda: b.copy_(a)), 2.0 * (1 << 30))
    x, y = (torch.randn(8192, 8192, device=dev, dtype=bf16) for _ in range(2))
    tell("torch_matrix_bf16", timed(lambda: x @ y), 0, 2.0 * 8192**3)


def attention():
    q = torch.randn(1, HEADS, 4096, DIM, device=dev, dtype=bf16)
    k, v = (torch.randn(1, KV, 4096, DIM, device=dev, dtype=bf16) for _ in range(2))
    tell("torch_attention_prompt", timed(lambda: attend(q, k, v, True)), 0, 2.0 * HEADS * DIM * 4096 * 4096)


def model():
    layers = [Layer() for _ in range(LAYERS)]
    head = torch.randn(VOCAB, N, device=dev, dtype=bf16) / 64

    def forward(x, pasts):
        for i, layer in enumerate(layers):
            x = layer(x, pasts[i] if pasts is not None else None)
        return F.linear(x[:, -1], head).argmax(-1)

    prompt = torch.randn(1, 2048, N, device=dev, dtype=bf16)
    tell("torch_prompt_bf16_2048", timed(lambda: forward(prompt, None), 5))
    for batch in (1, 64):
        x = torch.randn(batch, 1, N, device=dev, dtype=bf16)
        pasts = [tuple(torch.randn(batch, KV, 1024, DIM, device=dev, dtype=bf16) for _ in range(2)) for _ in layers]
        forward(x, pasts)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            forward(x, pasts)
        tell(f"torch_decode_bf16_{batch}", timed(graph.replay))
        del graph, pasts


def main():
    print(f"{torch.__version__}, {torch.cuda.get_device_name()}", file=sys.stderr)
    with torch.no_grad():
        for part in (ceilings, attention, model):
            try:
                part()
            except Exception as e:  # one part that this version can't do must not cost the others
                print(f"{part.__name__}: {e}", file=sys.stderr)
            torch.cuda.empty_cache()


main()
