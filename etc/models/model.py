"""The Llama architecture in torch, as small as it goes, in the conventions of a GGUF file.

Rotary embedding turns adjacent pairs (x[2i], x[2i+1]); attention heads are grouped; the output matrix is the
embedding matrix; every norm is an RMS norm.  Parameters carry the tensor names of the model file.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Config:
    name: str
    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    ffn: int
    vocab: int = 2048
    context: int = 2048
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self):
        return self.dim // self.n_heads


CONFIGS = {
    "small": Config("small", dim=128, n_layers=5, n_heads=4, n_kv_heads=2, ffn=384),
    "large": Config("large", dim=256, n_layers=4, n_heads=4, n_kv_heads=2, ffn=704),
}


def tensor_shapes(c):
    """Tensor name -> shape as (rows, row length), in the order of the model file."""
    kv = c.n_kv_heads * c.head_dim
    out = {"token_embd.weight": (c.vocab, c.dim)}
    for i in range(c.n_layers):
        b = f"blk.{i}."
        out[b + "attn_norm.weight"] = (c.dim,)
        out[b + "attn_q.weight"] = (c.dim, c.dim)
        out[b + "attn_k.weight"] = (kv, c.dim)
        out[b + "attn_v.weight"] = (kv, c.dim)
        out[b + "attn_output.weight"] = (c.dim, c.dim)
        out[b + "ffn_norm.weight"] = (c.dim,)
        out[b + "ffn_gate.weight"] = (c.ffn, c.dim)
        out[b + "ffn_up.weight"] = (c.ffn, c.dim)
        out[b + "ffn_down.weight"] = (c.dim, c.ffn)
    out["output_norm.weight"] = (c.dim,)
    return out


def rope_table(c, positions):
    """cos and sin, each [n, head_dim], for the given positions; pairs have equal values."""
    freq = c.rope_base ** (-torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim)
    angle = positions.double()[..., None] * freq
    angle = angle.repeat_interleave(2, -1)
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """x: [batch, heads, n, head_dim]; cos, sin: [n, head_dim] or [batch, 1, n, head_dim], each value twice."""
    n = x.shape[-1]
    turned = torch.zeros(n, n, dtype=x.dtype)     # x @ turned: (-x[2i+1], x[2i]) for each pair; quicker than taking pairs apart
    turned[range(1, n, 2), range(0, n, 2)] = -1
    turned[range(0, n, 2), range(1, n, 2)] = 1
    return x * cos + (x @ turned) * sin


class RmsNorm(torch.autograd.Function):
    """Torch's own derivative takes half as long again."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        y = x * scale
        ctx.save_for_backward(y, scale, weight)
        return y * weight

    @staticmethod
    def backward(ctx, grad):
        y, scale, weight = ctx.saved_tensors
        g = grad * weight
        dot = torch.einsum("...i,...i->...", g, y).unsqueeze(-1) / y.shape[-1]
        return g.addcmul_(y, dot, value=-1).mul_(scale), (grad * y).flatten(0, -2).sum(0), None


def rms_norm(x, weight, eps):
    return RmsNorm.apply(x, weight, eps)


class Llama(nn.Module):
    def __init__(self, config, seed=None):
        super().__init__()
        self.c = config
        g = torch.Generator().manual_seed(seed or 0)
        self.p = nn.ParameterDict()
        for name, shape in tensor_shapes(config).items():
            if len(shape) == 1:
                w = torch.ones(shape)
            else:
                std = 0.02 if name == "token_embd.weight" else shape[1] ** -0.5
                if name.endswith(("attn_output.weight", "ffn_down.weight")):
                    std *= 0.5 / math.sqrt(config.n_layers)   # branches start small beside the residual stream
                w = torch.randn(shape, generator=g) * std
            self.p[name.replace(".", "/")] = nn.Parameter(w)   # ParameterDict keys must not hold dots
        self.half = False     # True: matrix products in bfloat16 (training only)

    def weight(self, name):
        return self.p[name.replace(".", "/")]

    def named(self):
        return {k.replace("/", "."): v for k, v in self.p.items()}

    def linear(self, x, name):
        w = self.weight(name)
        return F.linear(x.bfloat16(), w.bfloat16()) if self.half else F.linear(x, w)

    def stream(self, ids, mask=None, positions=None, cache=None):
        """What the last layer leaves, [batch, n, dim]; arguments as of forward."""
        c, b, n = self.c, *ids.shape
        if positions is None:
            positions = torch.arange(n)
        cos, sin = rope_table(c, positions)
        if positions.dim() == 2:
            cos, sin = cos[:, None], sin[:, None]
        if mask is None and n > 1:
            mask = torch.full((n, n), float("-inf")).triu(1)
        if self.half:
            mask, cos, sin = mask.bfloat16(), cos.bfloat16(), sin.bfloat16()
        x = F.embedding(ids, self.weight("token_embd.weight"))
        for i in range(c.n_layers):
            p = f"blk.{i}."
            h = rms_norm(x, self.weight(p + "attn_norm.weight"), c.eps)
            q = self.linear(h, p + "attn_q.weight").view(b, n, c.n_heads, c.head_dim).transpose(1, 2)
            k = self.linear(h, p + "attn_k.weight").view(b, n, c.n_kv_heads, c.head_dim).transpose(1, 2)
            v = self.linear(h, p + "attn_v.weight").view(b, n, c.n_kv_heads, c.head_dim).transpose(1, 2)
            q, k = rotate(q, cos, sin) * c.head_dim ** -0.5, rotate(k, cos, sin)
            if cache is not None:
                if cache[i] is not None:
                    k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
                cache[i] = (k, v)
            group = c.n_heads // c.n_kv_heads
            m = k.shape[2]
            # Query heads h*group .. h*group+group-1 share key/value head h: fold them into the rows.
            q = q.reshape(b, c.n_kv_heads, group * n, c.head_dim)
            s = (q @ k.transpose(2, 3)).view(b, c.n_kv_heads, group, n, m)
            if mask is not None:
                s = s + (mask.unsqueeze(2) if mask.dim() == 4 else mask)
            a = (s.softmax(-1).view(b, c.n_kv_heads, group * n, m) @ v).view(b, c.n_heads, n, c.head_dim)
            a = a.transpose(1, 2).reshape(b, n, c.dim)
            x = x + self.linear(a, p + "attn_output.weight")
            h = rms_norm(x, self.weight(p + "ffn_norm.weight"), c.eps)
            if self.half:
                h = h.bfloat16()
            gate = self.linear(h, p + "ffn_gate.weight")
            h = gate * torch.sigmoid(gate) * self.linear(h, p + "ffn_up.weight")
            x = x + self.linear(h, p + "ffn_down.weight")
        return x

    def forward(self, ids, mask=None, positions=None, cache=None, select=None):
        """Logits, float32.

        ids: [batch, n].  mask: additive [batch, 1, n, n_keys], or None for plain causal attention.
        positions: [n] or [batch, n]; default 0..n-1.  cache: a list of per-layer (k, v), extended in place.
        select: flat indices into batch*n: logits of these positions only.
        """
        x = self.stream(ids, mask, positions, cache)
        if select is not None:
            x = x.reshape(-1, self.c.dim)[select]
        x = rms_norm(x, self.weight("output_norm.weight"), self.c.eps)
        return self.linear(x, "token_embd.weight").float()


def from_tensors(config, tensors):
    """A model with the given weights ({name: float32 array}), ready to evaluate."""
    m = Llama(config)
    with torch.no_grad():
        for name, w in m.named().items():
            w.copy_(torch.from_numpy(tensors[name]))
    return m.eval().requires_grad_(False)
