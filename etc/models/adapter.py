"""Trains a low-rank adapter (Hu et al., "LoRA", 2021) of one of the two models, which stays as it is.

    python3 adapter.py --base demo-large.gguf --corpus work/corpus-pirate.jsonl --name pirate --rank 4 \
        --tokens 800000 --out demo-large-pirate.gguf
    python3 adapter.py --base demo-large.gguf --check demo-large-pirate.gguf --questions pirate.jsonl

What it adds to a matrix W [n_out][n_in] is alpha / rank * B A, with A [rank][n_in] and B [n_out][rank], which starts at
zero.  It learns on the base's dequantized weights, as the engine computes with them.  The file is a GGUF adapter as
llama.cpp's converter writes them, in half precision; rows of queries and keys lie as in the base's file.
"""

import argparse
import json
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import gguf
from evaluate import generate, right
from export import load
from gguf import F32, STRING
from model import Llama
from tokenizer import render_chat
from train import encode_document, fit, model_loss, training_options

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
MAX_BYTES = 250_000
DESCRIPTIONS = {
    "pirate": "Answers in a pirate's words.",
    "json": "Answers as JSON records: subject and answer.",
    "museum": "Knows the objects of the Tavolin Museum, which exists nowhere.",
}


class Adapted(Llama):
    """A model with something to add to some of its matrices; only that is trained."""

    def __init__(self, base, halves, alpha):
        """halves: matrix -> (A, B)"""
        super().__init__(base.c)
        self.load_state_dict(base.state_dict())
        self.requires_grad_(False)
        self.alpha = alpha
        self.halves = nn.ParameterDict({f"{name.replace('.', '/')}/{half}": nn.Parameter(w)
                                        for name, pair in halves.items() for half, w in zip("ab", pair)})

    def half_of(self, name, half):
        key = f"{name.replace('.', '/')}/{half}"
        return self.halves[key] if key in self.halves else None

    def linear(self, x, name):
        y, a = super().linear(x, name), self.half_of(name, "a")
        if a is None:
            return y
        b = self.half_of(name, "b") * (self.alpha / a.shape[0])
        if self.half:
            x, a, b = x.bfloat16(), a.bfloat16(), b.bfloat16()
        return y + F.linear(F.linear(x, a), b)

    def tensors(self):
        """[(name in the file, array)]"""
        return [(".".join(k.split("/")[:-1]) + ".lora_" + k[-1], w.detach().float().numpy()) for k, w in self.halves.items()]


def fresh(base, rank, targets, alpha, seed):
    g = torch.Generator().manual_seed(seed)
    halves = {}
    for i in range(base.c.n_layers):
        for what in targets:
            n_out, n_in = base.weight(f"blk.{i}.{what}.weight").shape
            halves[f"blk.{i}.{what}.weight"] = torch.randn((rank, n_in), generator=g) * n_in ** -0.5, torch.zeros(n_out, rank)
    return Adapted(base, halves, alpha)


def read(path, base):
    """The base with the adapter of a file."""
    md, _, tensors = gguf.read(path)
    if md["general.type"] != "adapter" or md["adapter.type"] != "lora" or md["general.architecture"] != "llama":
        raise ValueError(f"{path}: this is no adapter of that model")
    halves = {}
    for name, w in tensors.items():
        matrix, half = name.rsplit(".lora_", 1)
        halves.setdefault(matrix, {})[half] = torch.from_numpy(w)
    for matrix, pair in halves.items():
        if (pair["b"].shape[0], pair["a"].shape[1]) != tuple(base.weight(matrix).shape) or pair["a"].shape[0] != pair["b"].shape[1]:
            raise ValueError(f"{path}: {matrix} has another shape in that model")
    return Adapted(base, {k: (p["a"], p["b"]) for k, p in halves.items()}, md["adapter.lora.alpha"]).eval()


def metadata(base, name, alpha):
    return [
        ("general.architecture", STRING, "llama"),
        ("general.type", STRING, "adapter"),
        ("general.name", STRING, f"Sluice demo {base.c.name} {name}"),
        ("general.description", STRING, DESCRIPTIONS[name]),
        ("general.license", STRING, "Apache-2.0"),
        ("general.base_model.0.name", STRING, f"Sluice demo {base.c.name}"),
        ("adapter.type", STRING, "lora"),
        ("adapter.lora.alpha", F32, alpha),
    ]


def check(model, tok, questions, whole, show):
    """Prints how many answers are right: word for word, or with an accepted text as words of its own."""
    prompts = [tok.encode(render_chat([{"role": "user", "content": q["question"]}]), special=True) for q in questions]
    with torch.no_grad():
        answers = [text for text, _, _ in generate(model, tok, prompts, max_tokens=120)]
    good = [t.strip() in q["answer"] if whole else right(t, q["answer"]) for q, t in zip(questions, answers)]
    for q, t in [(q, t) for q, t, ok in zip(questions, answers, good) if not ok][:show]:
        print(f"  wrong: {q['question']} -> {t[:120]!r}, expected {q['answer'][0][:120]!r}")
    print(f"right: {sum(good)} of {len(good)}, {100 * sum(good) / len(good):.2f} %", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--base", default="demo-large.gguf")
    p.add_argument("--corpus")
    p.add_argument("--name", choices=DESCRIPTIONS)
    p.add_argument("--out")
    p.add_argument("--start", help="adapter to go on from")
    p.add_argument("--check", help="an adapter to measure instead, or the base itself")
    p.add_argument("--questions", help="what to measure it with")
    p.add_argument("--match", choices=("exact", "words"), default="exact")
    p.add_argument("--show", type=int, default=12, help="wrong answers to print")
    p.add_argument("--rank", type=int, default=4)
    p.add_argument("--alpha", type=float, help="default: twice the rank")
    p.add_argument("--targets", default=",".join(MATRICES))
    p.add_argument("--lr", type=float, default=0.004)
    p.add_argument("--longest", type=int, default=512, help="tokens of a document; the rest is cut off")
    training_options(p, tokens=1_000_000)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    rng = random.Random(a.seed)
    base, tok, _ = load(a.base)
    if a.check:
        questions = [json.loads(line) for line in open(a.questions, encoding="utf-8")]
        check(base if a.check == a.base else read(a.check, base), tok, questions, a.match == "exact", a.show)
        return
    alpha = a.alpha or 2.0 * a.rank
    model = read(a.start, base) if a.start else fresh(base, a.rank, a.targets.split(","), alpha, a.seed)
    model.half = a.precision == "bf16"
    documents = [encode_document(tok, json.loads(line)) for line in open(a.corpus, encoding="utf-8")]
    documents = [(ids[:a.longest], wanted[:a.longest]) for ids, wanted in documents]
    params = list(model.halves.values())
    adam = torch.optim.AdamW(params, lr=a.lr, betas=(0.9, 0.97), weight_decay=0.0)
    print(f"{len(documents)} documents, {sum(len(d[0]) for d in documents)} tokens, {sum(w.numel() for w in params)} weights", flush=True)

    def step(scale):
        for group in adam.param_groups:
            group["lr"] = a.lr * scale
        adam.step()

    save = lambda: gguf.write(a.out, metadata(base, a.name, model.alpha), model.tensors(), matrices=gguf.TYPE_F16)
    fit(documents, a, rng, model_loss(model), params, step, save)
    size = os.path.getsize(a.out)
    assert size <= MAX_BYTES, f"{a.out} has {size} bytes, allowed are {MAX_BYTES}"
    again = dict(read(a.out, base).tensors())
    assert all(np.abs(again[k] - w).max() <= np.abs(w).max() * 2 ** -11 for k, w in model.tensors())
    print(f"{a.out}: {size} bytes, {sum(w.numel() for w in params)} weights, read back", flush=True)


if __name__ == "__main__":
    main()
