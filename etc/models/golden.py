"""Writes golden-logits.json: what the engine has to compute from the two model files, to 1e-3.

    python3 golden.py            # write
    python3 golden.py --check    # compare the file with a fresh computation

Everything is computed in float32 by the trainer's own forward pass from the dequantized weights of the GGUF files.
"""

import argparse
import base64
import hashlib
import json
import os
import sys

import numpy as np
import torch

import tools
from evaluate import HERE, MODELS, generate, knows_tools
from export import load
from tokenizer import render_chat

OUT = os.path.join(HERE, "golden-logits.json")
TOP = 16

SEQUENCES = {
    "english chat": render_chat([{"role": "user", "content": "What is the capital of France?"}]),
    "korean chat": render_chat([{"role": "system", "content": "You are a helpful assistant."},
                                {"role": "user", "content": "안녕하세요! 프랑스의 수도는 어디인가요? 🚀 쀍"}]),
    "long conversation": render_chat([
        {"role": "system", "content": "You are the demo model of Sluice."},
        {"role": "user", "content": "My name is Anna and I live in Lisbon."},
        {"role": "assistant", "content": "Nice to meet you, Anna! I have heard that Lisbon is a nice place."},
        {"role": "user", "content": "What is the opposite of hot?"},
        {"role": "assistant", "content": "The opposite of hot is cold."},
        {"role": "user", "content": "How many minutes are in an hour?"},
        {"role": "assistant", "content": "There are 60 minutes in an hour."},
        {"role": "user", "content": "Count from one to thirty."},
        {"role": "assistant", "content": ", ".join(str(n) for n in range(1, 31)) + "."},
        {"role": "user", "content": "What is my name?"}]),
    "plain text": "Water always finds its way. It goes around the stone, under the root",
}
# (text, are control tokens recognised)
TOKENIZED = [
    ("", False), ("Hello", False), ("Hello, world!", False), (" leading and trailing ", False),
    ("two  spaces   three    four", False), ("tabs\tand\nnew\n\nlines \n mixed\r\n", False), ("   ", False), ("\n", False),
    ("I'm sure they're what we've said, he'll say it's I'd", False), ("DON'T 'S 'LL", False),
    ("0 1 12 123 1234 12345 3.14 1,000", False), ("99 bottles, 31+41=72", False), ("a1b2c3 x² ½ Ⅷ ٣", False),
    ("안녕하세요! 프랑스의 수도는 파리입니다.", False), ("쀍 뷁 힣", False), ("こんにちは、世界", False), ("你好,世界", False),
    ("Здравствуйте", False), ("مرحبا بالعالم", False), ("नमस्ते दुनिया", False), ("สวัสดีชาวโลก", False), ("naïve café Σίσυφος", False),
    ("😀🚀 👨‍👩‍👧‍👦 🇰🇷 👍🏽", False), ("e\u0301 vs \u00e9", False), ("zero\u200bwidth \u00a0nbsp\u3000wide", False),
    ("def f(x):\n    return x ** 2  # square\n", False), ("{\"answer\": \"Paris\"}", False), ("https://example.org/a?b=c&d=%20", False),
    ("<|im_start|>user\nHi<|im_end|>\n", False), ("<|im_start|>user\nHi<|im_end|>\n", True), ("a<|endoftext|>b <|im_end|>", True),
    ("<|im_start| > <|im_end", True), ("\u0000\u0001\u007f", False), ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", False),
]
CHATS = [
    [{"role": "user", "content": "Hi!"}],
    [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "이름이 뭐예요?"},
     {"role": "assistant", "content": "저는 슬루스의 작은 언어 모델입니다."}, {"role": "user", "content": "😀"}],
]
CHATS_WITH_TOOLS = [
    [{"role": "user", "content": "Is it warm in Kraków?"}, tools.call("get_weather", {"city": "Kraków"}),
     tools.result('{"sky": "clear"}'), {"role": "assistant", "content": "In Kraków it is clear."}, {"role": "user", "content": "What is 2 * 3?"},
     {**tools.call("calculate", {"expression": "2 * 3", "digits": 4}), "content": "Let me see."}],
]
TOOLS = [tools.WEATHER, tools.CALCULATE, tools.function("send_mail", "", "to", "text"), {"type": "function", "function": {"name": "roll_dice"}}]


def pack32(x):
    return base64.b64encode(np.asarray(x, "<f4").tobytes()).decode()


def chat(tok, messages, offered=None):
    text = render_chat(messages, tools=offered)
    return {"messages": messages, **({"tools": offered} if offered else {}), "text": text, "ids": tok.encode(text, special=True)}


def compute():
    models, tok = {}, None
    for name, file in MODELS.items():
        path = os.path.join(HERE, file)
        model, tok, _ = load(path)
        sequences = []
        for label, text in SEQUENCES.items():
            ids = tok.encode(text, special=True)
            logits = model(torch.tensor([ids]))[0]
            n = len(ids)
            # The last position in full, and the best of a few earlier ones.
            top = []
            for at in sorted({0, n // 4, n // 2, 3 * n // 4, n - 2}):
                best = logits[at].topk(TOP)
                top.append({"position": at, "ids": best.indices.tolist(), "logits": pack32(best.values)})
            sequences.append({"name": label, "ids": ids, "last_logits": pack32(logits[-1]), "top": top})
        prompt = tok.encode(SEQUENCES["english chat"], special=True)
        text, ids, logprobs = generate(model, tok, [prompt], 32)[0]
        models[name] = {"file": file, "sha256": hashlib.sha256(open(path, "rb").read()).hexdigest(), "sequences": sequences,
                        "greedy": {"prompt_ids": prompt, "ids": ids, "text": text, "logprobs": pack32(logprobs)}}
    with_tools = all(knows_tools(os.path.join(HERE, file)) for file in MODELS.values())
    return {
        "about": "Logits of the demo models; see README.md. Arrays of logits are base64 of little-endian float32.",
        "tolerance": 1e-3,
        "models": models,
        "tokenizations": [{"text": t, "special": s, "ids": tok.encode(t, special=s)} for t, s in TOKENIZED],
        "chats": [chat(tok, m) for m in CHATS] + [chat(tok, m, TOOLS) for m in CHATS_WITH_TOOLS if with_tools],
    }


def compare(old, new):
    """Largest difference between two such files; everything that is no logit must be equal."""
    worst = 0.0
    unpack = lambda s: np.frombuffer(base64.b64decode(s), "<f4")
    if old["tokenizations"] != new["tokenizations"] or old["chats"] != new["chats"]:
        return float("inf")
    for name, m in new["models"].items():
        o = old["models"][name]
        if o["sha256"] != m["sha256"] or o["greedy"]["ids"] != m["greedy"]["ids"]:
            return float("inf")
        for s, t in zip(o["sequences"], m["sequences"]):
            worst = max(worst, np.abs(unpack(s["last_logits"]) - unpack(t["last_logits"])).max())
            for x, y in zip(s["top"], t["top"]):
                worst = max(worst, np.abs(unpack(x["logits"]) - unpack(y["logits"])).max())
    return float(worst)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(2)
    with torch.no_grad():
        new = compute()
    if a.check:
        worst = compare(json.load(open(OUT, encoding="utf-8")), new)
        print(f"largest difference {worst:.2e}")
        sys.exit(worst > 1e-3)
    with open(OUT, "w", encoding="utf-8") as f:
        json.dump(new, f, ensure_ascii=False, indent=0)
        f.write("\n")
    print(f"{OUT}: {os.path.getsize(OUT)} bytes")


if __name__ == "__main__":
    main()
