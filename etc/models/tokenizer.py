"""Byte-level BPE, the GPT-2 way: trainer, encoder, decoder.

    python3 tokenizer.py --corpus work/corpus-small.jsonl work/corpus-large.jsonl --out tokenizer.json

2,048 tokens: 256 bytes, the merges, and three control tokens at the end.  Token i < 256 is byte i.
"""

import argparse
import collections
import functools
import heapq
import json
import re
import sys
import unicodedata

VOCAB_SIZE = 2048
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS_ID, IM_START_ID, IM_END_ID = range(VOCAB_SIZE - len(CONTROL), VOCAB_SIZE)
SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@functools.cache
def byte_to_char():
    """GPT-2's printable stand-in for each byte, used by the token strings in the model file."""
    keep = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    table, spare = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + spare)
            spare += 1
    return table


@functools.cache
def char_to_byte():
    return {c: b for b, c in byte_to_char().items()}


@functools.cache
def pre_tokenizer():
    """The GPT-2 pattern.  Python's `re` has no \\p{L}: its ranges are spelled out from the Unicode tables."""
    def ranges(letter):
        out, start = [], None
        for cp in range(sys.maxunicode + 2):
            inside = cp <= sys.maxunicode and not 0xd800 <= cp < 0xe000 and unicodedata.category(chr(cp))[0] == letter
            if inside and start is None:
                start = cp
            elif not inside and start is not None:
                out.append(f"\\U{start:08x}-\\U{cp - 1:08x}")
                start = None
        return "".join(out)
    L, N, S = ranges("L"), ranges("N"), SPACE
    return re.compile(f"'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+| ?[^{S}{L}{N}]+|[{S}]+(?![^{S}])|[{S}]+")


def split_words(text):
    return pre_tokenizer().findall(text)


# -------------------------------------------------------------------------------------------------- training


def train(counts, n_merges):
    """counts: {word as bytes: weight}.  Returns merges as pairs of byte strings; ties go to the smaller pair."""
    words = [[bytes([b]) for b in w] for w in counts]
    weights = list(counts.values())
    pair_weight, pair_words = collections.Counter(), collections.defaultdict(set)
    for i, w in enumerate(words):
        for p in zip(w, w[1:]):
            pair_weight[p] += weights[i]
            pair_words[p].add(i)
    heap = [(-n, p) for p, n in pair_weight.items()]
    heapq.heapify(heap)
    merges = []
    while heap and len(merges) < n_merges:
        n, pair = heapq.heappop(heap)
        if pair_weight.get(pair, 0) != -n or n == 0:
            continue  # stale entry: a newer one with the right weight is in the heap, or the pair is gone
        merges.append(pair)
        changed = set()
        for i in list(pair_words[pair]):
            w = words[i]
            for p in zip(w, w[1:]):
                pair_weight[p] -= weights[i]
                pair_words[p].discard(i)
                changed.add(p)
            words[i] = w = merge(w, pair)
            for p in zip(w, w[1:]):
                pair_weight[p] += weights[i]
                pair_words[p].add(i)
                changed.add(p)
        for p in changed:
            if pair_weight[p] > 0:
                heapq.heappush(heap, (-pair_weight[p], p))
            else:
                pair_weight.pop(p, None)
    return merges


def merge(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and word[i] == pair[0] and word[i + 1] == pair[1]:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


def count_words(documents):
    """Word weights: the square root of the counts, so that the fact tables are not drowned by the phrasings.

    Words of other scripts and emoji count a quarter: the commonest become tokens, the others stay split inside
    their characters, which is what the tests of streaming whole characters need.
    """
    counts = collections.Counter()
    for d in documents:
        for text in ([d["text"]] if "text" in d else [m["content"] for m in d["messages"]]):
            counts.update(split_words(text))
    weights = {}
    for w in sorted(counts):
        n = counts[w] ** 0.5
        weights[w.encode()] = max(1, round(n if w.isascii() else n / 4))
    # Every number the models count or add with is one token, so that no digit of it can be mistaken alone.
    for n in range(101):
        weights[b" %d" % n] = max(weights.get(b" %d" % n, 0), 200)
        if n <= 20:
            weights[b"%d" % n] = max(weights.get(b"%d" % n, 0), 200)
    return weights


# -------------------------------------------------------------------------------------------- encode, decode


class Tokenizer:
    def __init__(self, tokens, merges):
        """tokens: strings in GPT-2's alphabet; merges: "left right" strings, best first."""
        self.strings, self.merges = tokens, merges
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.rank = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
        self.special = re.compile("(" + "|".join(re.escape(t) for t in CONTROL) + ")")
        self.cache = {}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            d = json.load(f)
        return cls(d["tokens"], d["merges"])

    def _word(self, word):
        found = self.cache.get(word)
        if found is None:
            parts = [byte_to_char()[b] for b in word.encode()]
            while len(parts) > 1:
                rank, at = min((self.rank.get(p, 1 << 30), i) for i, p in enumerate(zip(parts, parts[1:])))
                if rank == 1 << 30:
                    break
                pair = (parts[at], parts[at + 1])
                parts = merge(parts, pair)
            found = self.cache[word] = [self.ids[p] for p in parts]
        return found

    def encode(self, text, special=False):
        """special: control tokens written in the text become their ids; otherwise they are ordinary text."""
        out = []
        for part in self.special.split(text) if special else [text]:
            if special and part in CONTROL:
                out.append(self.ids[part])
            else:
                for w in split_words(part):
                    out += self._word(w)
        return out

    def token_bytes(self, i):
        return b"" if i >= BOS_ID else bytes(char_to_byte()[c] for c in self.strings[i])

    def decode(self, ids):
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", "replace")


def turns(messages, tools=None):
    """[(role, text)], as the template in the model file renders them.  Messages and tools are in OpenAI's form."""
    out = []
    if tools:
        functions = [t["function"] for t in tools]
        out.append(("tools", "\n".join(f"{f['name']}({', '.join(f.get('parameters', {}).get('properties', {}))})" for f in functions)))
    for m in messages:
        calls = [c["function"] for c in m.get("tool_calls", ())]
        texts = [m["content"]] if m.get("content") or not calls else []
        texts += [f'<tool_call>\n{{"name": "{f["name"]}", "arguments": {json.dumps(json.loads(f["arguments"]), ensure_ascii=False)}}}\n</tool_call>'
                  for f in calls]
        out.append((m["role"], "\n".join(texts)))
    return out


def render_chat(messages, generate=True, tools=None):
    """ChatML, the same text as the template in the model file gives."""
    s = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns(messages, tools))
    return s + ("<|im_start|>assistant\n" if generate else "")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--corpus", nargs="+", required=True)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    documents = [json.loads(line) for path in a.corpus for line in open(path, encoding="utf-8")]
    n_merges = VOCAB_SIZE - 256 - len(CONTROL)
    pairs = train(count_words(documents), n_merges)
    assert len(pairs) == n_merges, "the corpus has too few different words"
    text = lambda b: "".join(byte_to_char()[x] for x in b)
    tokens = [text(bytes([b])) for b in range(256)] + [text(l + r) for l, r in pairs] + list(CONTROL)
    assert len(set(tokens)) == VOCAB_SIZE
    with open(a.out, "w", encoding="utf-8") as f:
        json.dump({"tokens": tokens, "merges": [f"{text(l)} {text(r)}" for l, r in pairs]}, f, ensure_ascii=False)
    print(f"{a.out}: {len(tokens)} tokens")


if __name__ == "__main__":
    main()
