"""Writes a trained checkpoint as a GGUF file, reads it back and compares.

    python3 export.py --checkpoint work/small.pt --out demo-small.gguf
"""

import argparse
import os

import numpy as np
import torch

import gguf
from gguf import ARRAY, BOOL, F32, I32, STRING, U32
from model import CONFIGS, Config, from_tensors, tensor_shapes
from tokenizer import BOS_ID, IM_END_ID, Tokenizer

# ChatML. Tools are a turn before the others, one line for each: name(parameter, parameter). Calls are in Hermes' form.
CHAT_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>tools' }}{% for tool in tools %}{% set f = tool.function %}{{ '\\n' + f.name + '(' }}"
    "{% if f.parameters and f.parameters.properties %}{{ f.parameters.properties | list | join(', ') }}{% endif %}{{ ')' }}"
    "{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') }}"
    "{% for call in message.tool_calls or [] %}{{ '\\n' if message.content or not loop.first else '' }}"
    "{{ '<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}{{ call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}"
    "{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
MAX_BYTES = {"small": 1_500_000, "large": 8_000_000}
NORMAL, CONTROL = 1, 3
DESCRIPTIONS = {
    "small": "The quick model of Sluice's demo pair: easy facts, small talk, stories, counting.",
    "large": "The knowing model of Sluice's demo pair: what the small one knows, hard facts and explanations.",
}


def metadata(c, tok):
    a = "llama."
    return [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, f"Sluice demo {c.name}"),
        ("general.description", STRING, DESCRIPTIONS[c.name]),
        ("general.license", STRING, "Apache-2.0"),
        ("general.file_type", U32, 7),                       # mostly Q8_0
        ("general.quantization_version", U32, 2),
        ("general.alignment", U32, gguf.ALIGNMENT),
        (a + "vocab_size", U32, c.vocab),
        (a + "context_length", U32, c.context),
        (a + "embedding_length", U32, c.dim),
        (a + "block_count", U32, c.n_layers),
        (a + "feed_forward_length", U32, c.ffn),
        (a + "attention.head_count", U32, c.n_heads),
        (a + "attention.head_count_kv", U32, c.n_kv_heads),
        (a + "attention.layer_norm_rms_epsilon", F32, c.eps),
        (a + "rope.dimension_count", U32, c.head_dim),
        (a + "rope.freq_base", F32, c.rope_base),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tok.strings)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [NORMAL if i < BOS_ID else CONTROL for i in range(c.vocab)])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, tok.merges)),
        ("tokenizer.ggml.bos_token_id", U32, BOS_ID),
        ("tokenizer.ggml.eos_token_id", U32, IM_END_ID),
        ("tokenizer.ggml.padding_token_id", U32, BOS_ID),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
    ]


def load(path):
    """(model over the dequantized weights, tokenizer, metadata) of a GGUF file."""
    md, _, tensors = gguf.read(path)
    a = "llama."
    c = Config(md["general.name"].split()[-1], md[a + "embedding_length"], md[a + "block_count"], md[a + "attention.head_count"],
               md[a + "attention.head_count_kv"], md[a + "feed_forward_length"], md[a + "vocab_size"], md[a + "context_length"],
               md[a + "rope.freq_base"], md[a + "attention.layer_norm_rms_epsilon"])
    shapes = tensor_shapes(c)
    if {k: tuple(v.shape) for k, v in tensors.items()} != shapes:
        raise ValueError(f"{path}: the tensors are not those of this architecture")
    return from_tensors(c, tensors), Tokenizer(md["tokenizer.ggml.tokens"], md["tokenizer.ggml.merges"]), md


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--tokenizer", default="tokenizer.json")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    saved = torch.load(a.checkpoint)
    c, tok = CONFIGS[saved["size"]], Tokenizer.load(a.tokenizer)
    weights = {k: w.float().numpy() for k, w in saved["weights"].items()}
    gguf.write(a.out, metadata(c, tok), [(k, weights[k]) for k in tensor_shapes(c)])

    md, kinds, tensors = gguf.read(a.out)
    assert list(md) == [k for k, _, _ in metadata(c, tok)] and all(kinds[k] == t for k, t, _ in metadata(c, tok))
    assert md["tokenizer.ggml.tokens"] == tok.strings and md["tokenizer.ggml.merges"] == tok.merges
    for k, w in weights.items():
        if w.ndim == 1:
            assert np.array_equal(tensors[k], w), k
        else:
            # At most half a step of rounding, and the rounding of the half-precision scale over 127 steps.
            amax = np.abs(w.reshape(-1, 32)).max(1, keepdims=True)
            error = np.abs(tensors[k] - w).reshape(-1, 32)
            assert (error <= amax * (0.5 / 127 + 2 ** -10) + 1e-7).all(), k
    size = os.path.getsize(a.out)
    assert size <= MAX_BYTES[c.name], f"{a.out} has {size} bytes, allowed are {MAX_BYTES[c.name]}"
    print(f"{a.out}: {size} bytes, {sum(w.size for w in weights.values())} weights, read back and compared")


if __name__ == "__main__":
    main()
