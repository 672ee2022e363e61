"""Trains one of the two models on its corpus.

    python3 train.py --size small --corpus work/corpus-small.jsonl --tokens 5000000 --out work/small.pt

Short documents are packed into rows; a mask keeps each document to itself, and since the rotary embedding is relative,
a document in the middle of a row is exactly what it would be at position 0.  The loss counts what the assistant says
(and all of a plain text).  Matrices are trained with Muon (orthogonalised momentum), which needs about half the tokens
AdamW does here; embeddings and norms with AdamW.  The learning rate falls to zero at --tokens.
"""

import argparse
import json
import math
import os
import random
import time

import torch
import torch.nn.functional as F

import gguf
from model import CONFIGS, Llama
from tokenizer import BOS_ID, IM_END_ID, IM_START_ID, Tokenizer, turns

ROW_LENGTHS = (128, 256, 512, 1024, 2048)


def encode_document(tok, d):
    """(ids, wanted): wanted[i] says whether predicting ids[i] counts."""
    if "text" in d:
        ids = tok.encode(d["text"]) + [BOS_ID]
        return ids, [True] * len(ids)
    ids, wanted = [], []
    def add(part, count):
        ids.extend(part)
        wanted.extend([count] * len(part))
    for role, text in turns(d["messages"], d.get("tools")):
        add([IM_START_ID] + tok.encode(role) + tok.encode("\n"), False)
        add(tok.encode(text) + [IM_END_ID], role == "assistant")
        add(tok.encode("\n"), False)
    return ids, wanted


def pack(documents, order):
    """Rows of one length each, filled with whole documents: {row length: [[document index, ...], ...]}"""
    rows, open_rows = {n: [] for n in ROW_LENGTHS}, {n: [] for n in ROW_LENGTHS}
    for i in order:
        size = min(len(documents[i][0]), ROW_LENGTHS[-1])
        # Best fit among the rows still open, longer ones first: they are scarce and their space is dear.
        best = None
        for n in ROW_LENGTHS:
            for r in open_rows[n]:
                room = n - r[0]
                if room >= size and (best is None or room < best[0]):
                    best = (room, n, r)
        if best is None:
            n = next(n for n in ROW_LENGTHS if n >= size)
            r = [0, []]
            open_rows[n].append(r)
            rows[n].append(r[1])
            best = (n, n, r)
        _, n, r = best
        r[0] += size
        r[1].append(i)
        if n - r[0] < 16 or len(open_rows[n]) > 24:
            full = max(open_rows[n], key=lambda x: x[0])
            open_rows[n].remove(full)
    return rows


def batches(documents, tokens_per_batch, rng, portion=16384):
    """Yields lists of rows of one length, about tokens_per_batch tokens each, shuffled over all lengths.

    Packs a portion of the documents at a time, so that training starts at once.
    """
    order = list(range(len(documents)))
    rng.shuffle(order)
    for start in range(0, len(order), portion):
        out = []
        for n, rows in pack(documents, order[start:start + portion]).items():
            rng.shuffle(rows)
            step = max(1, tokens_per_batch // n)
            out += [(n, rows[i:i + step]) for i in range(0, len(rows), step)]
        rng.shuffle(out)
        yield from out


def tensors_of(documents, n, rows):
    """ids, targets (-1: does not count), positions, mask of one batch."""
    b = len(rows)
    ids = torch.full((b, n), BOS_ID)
    targets = torch.full((b, n), -1)
    owner = torch.full((b, n), -1)
    positions = torch.zeros((b, n), dtype=torch.long)
    for y, row in enumerate(rows):
        at = 0
        for k, i in enumerate(row):
            d, wanted = documents[i]
            d, wanted = d[:n - at], wanted[:n - at]
            m = len(d)
            t = torch.tensor(d)
            ids[y, at:at + m] = t
            targets[y, at:at + m - 1] = torch.where(torch.tensor(wanted[1:]), t[1:], torch.tensor(-1))
            owner[y, at:at + m] = k
            positions[y, at:at + m] = torch.arange(m)
            at += m
    same = owner[:, :, None] == owner[:, None, :]
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    mask = torch.zeros(b, 1, n, n).masked_fill_(~(same & causal)[:, None], -1e9)
    return ids, targets, positions, mask


class Muon:
    """Momentum whose matrix is brought near the closest orthogonal one by a few Newton-Schulz steps."""

    def __init__(self, params, half, momentum=0.95, decay=0.02):
        self.params, self.half, self.momentum, self.decay = params, half, momentum, decay
        self.buffers = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self, lr):
        for p, m in zip(self.params, self.buffers):
            m.lerp_(p.grad, 1 - self.momentum)
            u = orthogonalise(p.grad.lerp(m, self.momentum), self.half)
            p.mul_(1 - lr * self.decay).add_(u, alpha=-lr * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def orthogonalise(g, half, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315     # the quintic of the Muon paper: fast near zero, bounded near one
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (x.norm() + 1e-7)
    if half:
        x = x.bfloat16()
    for _ in range(steps):
        y = x @ x.T
        x = a * x + (b * y + c * (y @ y)) @ x
    x = x.float()
    return x.T if g.shape[0] > g.shape[1] else x


def schedule(progress, warmup):
    """Share of the full learning rate: up in a line, down in half a cosine."""
    if progress < warmup:
        return progress / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1, (progress - warmup) / (1 - warmup))))


def model_loss(model):
    """For fit: the loss of a model's own tokens."""
    def loss_of(ids, targets, positions, mask):
        flat = targets.view(-1)
        select = (flat >= 0).nonzero().squeeze(1)
        return None if len(select) == 0 else (F.cross_entropy(model(ids, mask, positions, select=select), flat[select]), "")
    return loss_of


def training_options(p, tokens):
    """What fit takes, and what every trainer has beside it."""
    p.add_argument("--tokenizer", default="tokenizer.json")
    p.add_argument("--tokens", type=int, default=tokens)
    p.add_argument("--batch", type=int, default=4096, help="tokens per step")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--precision", choices=("bf16", "f32"), default="bf16")
    p.add_argument("--minutes", type=float, default=math.inf, help="finish in this time, with fewer tokens if need be")
    p.add_argument("--save-every", type=float, default=240, help="seconds between checkpoints")


def fit(documents, a, rng, loss_of, params, step, save):
    """Trains until a.tokens were seen, or a.minutes have passed, and saves every a.save_every seconds and at the end.

    loss_of: of a batch's tensors, (loss, what to print beside it), or None where nothing counts.  step: takes one step of
    params by their gradients; its argument is the share of the full learning rate.
    """
    seen, steps, started, saved, shown, running = 0, 0, time.time(), time.time(), time.time(), None
    progress = lambda: max(seen / a.tokens, (time.time() - started) / 60 / a.minutes)
    while progress() < 1:
        for n, rows in batches(documents, a.batch, rng):
            found = loss_of(*tensors_of(documents, n, rows))
            if found is None:
                continue
            loss, beside = found
            for w in params:
                w.grad = None
            loss.backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            step(schedule(progress(), warmup=0.02))
            seen += sum(len(documents[i][0]) for row in rows for i in row)
            steps += 1
            value = loss.item()
            running = value if running is None else 0.98 * running + 0.02 * value
            now = time.time()
            if now - shown > 15:
                shown = now
                print(f"step {steps} tokens {seen} loss {running:.4f}{beside} {seen / (now - started):.0f} tokens/s "
                      f"left {(a.tokens - seen) * (now - started) / seen / 60:.1f} min", flush=True)
            if now - saved > a.save_every:
                saved = now
                save()
            if progress() >= 1:
                break
    save()
    print(f"done: step {steps} tokens {seen} loss {running:.4f} in {(time.time() - started) / 60:.1f} min", flush=True)


def weights_of(path):
    """The weights of a checkpoint, or those of a model file, dequantized."""
    if path.endswith(".gguf"):
        return {name: torch.from_numpy(w) for name, w in gguf.read(path)[2].items()}
    return torch.load(path)["weights"]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--size", choices=CONFIGS, required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--start", help="checkpoint or model file to go on from")
    p.add_argument("--lr", type=float, default=0.02, help="of the matrices (Muon)")
    p.add_argument("--embedding-lr", type=float, default=0.004)
    training_options(p, tokens=5_000_000)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    rng = random.Random(a.seed)
    tok = Tokenizer.load(a.tokenizer)
    t0 = time.time()
    documents = [encode_document(tok, json.loads(line)) for line in open(a.corpus, encoding="utf-8")]
    total = sum(len(d[0]) for d in documents)
    print(f"{len(documents)} documents, {total} tokens, {sum(sum(d[1]) for d in documents)} that count, read in {time.time() - t0:.0f} s", flush=True)

    model = Llama(CONFIGS[a.size], a.seed)
    if a.start:
        with torch.no_grad():
            for name, w in weights_of(a.start).items():
                model.weight(name).copy_(w)
    model.half = a.precision == "bf16"
    named = model.named()
    matrices = [w for k, w in named.items() if w.dim() == 2 and k != "token_embd.weight"]
    others = [w for k, w in named.items() if w.dim() == 1 or k == "token_embd.weight"]
    muon = Muon(matrices, model.half)
    adam = torch.optim.AdamW(others, lr=a.embedding_lr, betas=(0.9, 0.97), weight_decay=0.0)
    print(f"{sum(w.numel() for w in named.values())} parameters", flush=True)

    def save():
        torch.save({"size": a.size, "weights": {k: w.detach().clone() for k, w in named.items()}}, a.out + ".part")
        os.replace(a.out + ".part", a.out)

    def step(scale):
        muon.step(a.lr * scale)
        for group in adam.param_groups:
            group["lr"] = a.embedding_lr * scale
        adam.step()

    fit(documents, a, rng, model_loss(model), list(named.values()), step, save)


if __name__ == "__main__":
    main()
