"""Trains a head that drafts for one of the two models, which stays as it is.

    python3 head.py --base demo-large.gguf --corpus work/corpus-large-1.jsonl work/corpus-large-3.jsonl \
        --tokens 900000 --out demo-large-head.gguf
    python3 head.py --check demo-large-head.gguf --corpus work/corpus-large-1.jsonl

Multi-token prediction as DeepSeek-V3 has it (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, 2.2): one more layer
reads what the last layer left at a position and the embedding of the token after it, and the model's own output matrix
makes of its result the token after that.  The same layer goes on from its own result, so it is trained a few steps
deep, each on the results of the one before.  It learns what the model would say, not what the corpus says, where the
assistant speaks.  It starts as the model's last layer.

The file has the layer's tensors alone, under the names that model files give them (blk.N.nextn.*), beside the keys that
say whose head it is.
"""

import argparse
import json
import os
import random

import numpy as np
import torch
import torch.nn.functional as F

import gguf
from export import load, metadata
from gguf import U32
from model import rms_norm, rope_table, rotate
from tokenizer import Tokenizer
from train import Muon, batches, encode_document, fit, tensors_of, training_options

MAX_BYTES = 1_100_000
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
LEAST_WINDOW, MOST_WINDOW = 24, 192     # the engine gives the head the last rows of a prompt only


def head_shapes(c):
    """Tensor name -> shape, in the order of the file."""
    b, kv = f"blk.{c.n_layers}.", c.n_kv_heads * c.head_dim
    return {b + "attn_norm.weight": (c.dim,), b + "attn_q.weight": (c.dim, c.dim), b + "attn_k.weight": (kv, c.dim),
            b + "attn_v.weight": (kv, c.dim), b + "attn_output.weight": (c.dim, c.dim), b + "ffn_norm.weight": (c.dim,),
            b + "ffn_gate.weight": (c.ffn, c.dim), b + "ffn_up.weight": (c.ffn, c.dim), b + "ffn_down.weight": (c.dim, c.ffn),
            b + "nextn.eh_proj.weight": (c.dim, 2 * c.dim), b + "nextn.enorm.weight": (c.dim,),
            b + "nextn.hnorm.weight": (c.dim,), b + "nextn.shared_head_norm.weight": (c.dim,)}


class Head:
    def __init__(self, base):
        self.base, self.c, self.half = base, base.c, False
        self.prefix, last = f"blk.{self.c.n_layers}.", f"blk.{self.c.n_layers - 1}."
        self.w = {}
        for name, shape in head_shapes(self.c).items():
            what = name.removeprefix(self.prefix)
            if what == "nextn.eh_proj.weight":     # the model's own stream at first, and a little of the embedding
                w = torch.cat((torch.eye(self.c.dim) * 0.1, torch.eye(self.c.dim)), 1)
            elif what == "nextn.shared_head_norm.weight":
                w = base.weight("output_norm.weight").clone()
            elif what.startswith("nextn."):
                w = torch.ones(shape)
            else:
                w = base.weight(last + what).clone()
            assert tuple(w.shape) == shape, name
            self.w[name] = w.detach().clone().requires_grad_(True)

    def weight(self, what):
        return self.w[self.prefix + what + ".weight"]

    def linear(self, x, what):
        w = self.weight(what)
        return F.linear(x.bfloat16(), w.bfloat16()) if self.half else F.linear(x, w)

    def step(self, hidden, embedded, turn, mask, deep):
        """The next hidden rows [b, n, dim].  deep: (k, v) of the steps so far, the first of all rows; extended."""
        c, (b, n, _) = self.c, hidden.shape
        e = rms_norm(embedded, self.weight("nextn.enorm"), c.eps)
        h = rms_norm(hidden, self.weight("nextn.hnorm"), c.eps)
        x = self.linear(torch.cat((e, h), -1), "nextn.eh_proj").float()
        h = rms_norm(x, self.weight("attn_norm"), c.eps)
        split = lambda y, heads: y.view(b, n, heads, c.head_dim).transpose(1, 2)
        q, k, v = (split(self.linear(h, w), m) for w, m in (("attn_q", c.n_heads), ("attn_k", c.n_kv_heads), ("attn_v", c.n_kv_heads)))
        q, k = rotate(q, *turn) * c.head_dim ** -0.5, rotate(k, *turn)
        group = c.n_heads // c.n_kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        deep.append((k, v))
        depth = len(deep)
        # Rows of the first step up to depth - 1 positions back, then one row of each step since, the last its own.
        own = [tuple(F.pad(t, (0, 0, depth - m, 0))[:, :, :n] for t in deep[m - 1]) for m in range(2, depth + 1)]
        s = [q @ deep[0][0].transpose(2, 3) + mask] + [(q * k).sum(-1, keepdim=True) for k, _ in own]
        a = torch.cat(s, -1).softmax(-1)
        y = a[..., :n] @ deep[0][1]
        for i, (_, v) in enumerate(own):
            y = y + a[..., n + i:n + i + 1] * v
        x = x + self.linear(y.transpose(1, 2).reshape(b, n, c.dim), "attn_output")
        h = rms_norm(x, self.weight("ffn_norm"), c.eps)
        gate = self.linear(h, "ffn_gate")
        x = x + self.linear(gate * torch.sigmoid(gate) * self.linear(h, "ffn_up"), "ffn_down")
        return rms_norm(x, self.weight("nextn.shared_head_norm"), c.eps)


def back(t, by):
    """t[:, i] becomes t[:, i - by]; what comes from nowhere is zero."""
    return t if by == 0 else F.pad(t, (0, 0) * (t.dim() - 2) + (by, 0))[:, :t.shape[1]]


def losses(head, ids, targets, positions, mask, window, depth):
    """[(loss of a step, how many of its rows agree with the model, rows)]"""
    base, n = head.base, ids.shape[1]
    half = base.half
    with torch.no_grad():
        hidden = rms_norm(base.stream(ids, mask, positions), base.weight("output_norm.weight"), base.c.eps)
        said = base.linear(hidden, "token_embd.weight").float()
        embedded = F.embedding(ids, base.weight("token_embd.weight"))
    after = torch.cat((embedded[:, 1:], embedded[:, :1]), 1)
    cos, sin = rope_table(base.c, positions)
    turn = (cos[:, None], sin[:, None])
    if half:
        turn = tuple(t.bfloat16() for t in turn)
    apart = torch.arange(n)[:, None] - torch.arange(n)
    wanted = torch.cat((targets[:, 1:], torch.full_like(targets[:, :1], -1)), 1)    # of the token that a row drafts
    table = base.weight("token_embd.weight")
    deep, out, h = [], [], hidden
    for d in range(1, depth + 1):
        far = (apart < d - 1) | (apart >= window)
        m = mask.masked_fill(far, -1e9)
        h = head.step(back(h, 1) if d > 1 else h, after, turn, m.bfloat16() if half else m, deep)
        rows = (wanted.view(-1) >= 0) & (positions.view(-1) >= d - 1)
        rows = rows.nonzero().squeeze(1)
        teacher = said.view(-1, said.shape[-1])[(rows + 1).clamp(max=rows.new_tensor(ids.numel() - 1))]
        x = h.reshape(-1, base.c.dim)[rows]
        logits = (F.linear(x.bfloat16(), table.bfloat16()) if half else F.linear(x, table)).float()
        loss = F.kl_div(logits.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")
        out.append((loss, (logits.argmax(-1) == teacher.argmax(-1)).sum().item(), len(rows)))
    return out


def head_metadata(c, tok):
    """Whose head it is: the keys of the model's shape, with one layer more, which drafts."""
    kept = [(k, t, v) for k, t, v in metadata(c, tok) if not k.startswith("tokenizer.")]
    new = {"general.name": f"Sluice demo {c.name} head", "llama.block_count": c.n_layers + 1,
           "general.description": f"Drafts for the {c.name} model of Sluice's demo pair."}
    return [(k, t, new.get(k, v)) for k, t, v in kept] + [("llama.nextn_predict_layers", U32, 1)]


def read_head(path, base):
    """The head of a file, which must be one of base."""
    md, _, tensors = gguf.read(path)
    head = Head(base)
    if {k: tuple(v.shape) for k, v in tensors.items()} != head_shapes(base.c) or md["llama.nextn_predict_layers"] != 1:
        raise ValueError(f"{path}: this is no head of that model")
    head.w = {k: torch.from_numpy(v) for k, v in tensors.items()}
    return head


def check(head, tok, documents, depth, batch):
    """Prints how often each step of the head agrees with the model."""
    agree, all_rows = [0] * depth, [0] * depth
    with torch.no_grad():
        for n, rows in batches(documents, batch, random.Random(1)):
            for d, (_, right, count) in enumerate(losses(head, *tensors_of(documents, n, rows), MOST_WINDOW, depth)):
                agree[d] += right
                all_rows[d] += count
    print("agreement by depth: " + ", ".join(f"{a / max(1, b):.3f}" for a, b in zip(agree, all_rows)))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--base", default="demo-large.gguf")
    p.add_argument("--corpus", nargs="+", required=True)
    p.add_argument("--out")
    p.add_argument("--check", help="a head to measure instead")
    p.add_argument("--depth", type=int, default=3, help="steps, all but the first on its own results")
    p.add_argument("--longest", type=int, default=256, help="tokens of a document; the rest is cut off")
    p.add_argument("--lr", type=float, default=0.015, help="of the matrices (Muon)")
    p.add_argument("--norm-lr", type=float, default=0.002)
    training_options(p, tokens=900_000)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    rng = random.Random(a.seed)
    base, tok, _ = load(a.base)
    documents = [encode_document(tok, json.loads(line)) for path in a.corpus for line in open(path, encoding="utf-8")]
    documents = [(ids[:a.longest], wanted[:a.longest]) for ids, wanted in documents]
    if a.check:
        check(read_head(a.check, base), tok, documents, a.depth, a.batch)
        return
    base.half = a.precision == "bf16"
    head = Head(base)
    head.half = base.half
    matrices = [w for w in head.w.values() if w.dim() == 2]
    norms = [w for w in head.w.values() if w.dim() == 1]
    muon = Muon(matrices, head.half)
    adam = torch.optim.AdamW(norms, lr=a.norm_lr, betas=(0.9, 0.97), weight_decay=0.0)

    def loss_of(ids, targets, positions, mask):
        if (targets >= 0).sum() < 2:
            return None
        made = losses(head, ids, targets, positions, mask, rng.randint(LEAST_WINDOW, MOST_WINDOW), a.depth)
        agree = " ".join(f"{right / max(1, count):.3f}" for _, right, count in made)
        return sum(l * 0.8 ** d for d, (l, _, count) in enumerate(made) if count > 0), " agree " + agree

    def step(scale):
        muon.step(a.lr * scale)
        for group in adam.param_groups:
            group["lr"] = a.norm_lr * scale
        adam.step()

    weights = lambda: {k: w.detach().float().numpy() for k, w in head.w.items()}
    save = lambda: gguf.write(a.out, head_metadata(base.c, tok), [(k, weights()[k]) for k in head_shapes(base.c)])
    fit(documents, a, rng, loss_of, list(head.w.values()), step, save)
    size = os.path.getsize(a.out)
    assert size <= MAX_BYTES, f"{a.out} has {size} bytes, allowed are {MAX_BYTES}"
    assert all(np.abs(read_head(a.out, base).w[k].numpy() - w).max() < 0.05 for k, w in weights().items())
    print(f"{a.out}: {size} bytes, {sum(w.size for w in weights().values())} weights, read back", flush=True)


if __name__ == "__main__":
    main()
