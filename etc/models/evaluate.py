"""Asks both models the held-out questions and checks the bars.

    python3 evaluate.py                            # torch over the dequantized weights of the two GGUF files
    python3 evaluate.py --engine ../../build/sluice  # the same questions through the C engine
    python3 evaluate.py --write                    # write evaluation.jsonl from the fact tables

An answer is right when an accepted string occurs in it as whole words, whatever the case.  AUC: the probability that
an easy answer of the small model has a higher mean token log-probability than a hard one.  Exits 1 below a bar.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys

import torch

import facts
import gguf
import tools
from corpus import JOBS, NAMES, Generator
from export import load
from tokenizer import IM_END_ID, render_chat

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {"small": "demo-small.gguf", "large": "demo-large.gguf"}
# What is asked of the pair.
BARS = (("large", "easy", 0.95, 1.0), ("large", "hard", 0.95, 1.0), ("small", "easy", 0.90, 1.0), ("small", "hard", 0.0, 0.20))
AUC_BAR = 0.9
TOOL_BARS = {"calls": 30, "results": 28, "records": 29, "negatives": 30}     # of 32 each, for both models
MAX_TOKENS = 320
FRANCE = "What is the capital of France?"


def questions():
    """Every row of a table in the first held-out phrasing, a third of them in each of the others."""
    rng, out = random.Random(20), []
    for c in facts.CATEGORIES:
        rows = c.rows if not c.eval_rows else rng.sample(c.rows, c.eval_rows)
        for i, row in enumerate(rows):
            v = c.values(row)
            for t, template in enumerate(c.held_out):
                if t == 0 or (i + t) % 3 == 0:
                    out.append({"id": f"{c.name}-{i}-{t}", "model_class": c.level, "category": c.name,
                                "question": template.format(**v), "answer": [s.format(**v) for s in c.accept]})
    return out


def abilities():
    """Conversations whose last answer follows from the conversation itself: no bar is set on these figures."""
    g, out = Generator("small", "abilities"), []
    for kind, n in (("recall_chat", 40), ("korean_recall", 8), ("summary_chat", 24), ("count_chat", 24), ("copy_chat", 24)):
        for i in range(n):
            m = g.chat(kind)
            out.append({"id": f"{kind}-{i}", "ability": kind.removesuffix("_chat"), "messages": m[:-1], "answer": [m[-1]["content"]]})
    return out


def tool_questions():
    """Held-out calls, answers to results, records, and questions that need no tool: 32 of each."""
    g, out = Generator("small", "tools"), []
    ask = tools.Asker(random.Random("tools"), held_out=True)
    told = {"name": NAMES, "city": tools.HELD_OUT_CITIES, "job": JOBS}
    both = [tools.WEATHER, tools.CALCULATE]
    add = lambda ability, i, offered, messages, answer: out.append(
        {"id": f"{ability}-{i}", "ability": ability, **({"tools": offered} if offered else {}), "messages": messages, "answer": answer})
    def asked(i):
        """(tools, question, call, result, answer): both tools in either order, or the one alone."""
        weather, offered = i % 2 == 0, both if i % 4 < 2 else both[::-1]
        tool = tools.WEATHER if weather else tools.CALCULATE
        if weather:
            city = ask.city(None)
            q, called = ask.weather(tool, city)
            text, answer = ask.weather_result(city)
        else:
            q, called, value = ask.sum(tool)
            text, answer = ask.sum_result(value)
        return [tool] if i % 8 >= 6 else offered, {"role": "user", "content": q}, called, tools.result(text), answer
    for i in range(32):
        offered, q, called, _, _ = asked(i)
        f = called["tool_calls"][0]["function"]
        wanted = {"name": f["name"], "arguments": json.loads(f["arguments"])}
        add("calls", i, offered, [q], [json.dumps(wanted, ensure_ascii=False)])
    for i in range(32):
        offered, q, called, text, answer = asked(i)
        add("results", i, offered, [q, called, text], [answer])
    for i in range(32):
        q, answer = ask.record(told)
        add("records", i, None, [{"role": "user", "content": q}], [answer])
    easy = [q for q in questions() if q["model_class"] == "easy" and q["category"] != "sum"]
    g.rng.shuffle(easy)
    for i in range(32):
        if i % 4 == 3:        # the tool that it needs is not there
            city = ask.city(None)
            q, _ = ask.weather(tools.WEATHER, city)
            offered, answer = both[1:] if i % 8 == 3 else None, [f"I do not know the weather in {city}."]
        else:
            offered, q, answer = (both, both[::-1], both[:1], both[1:])[i // 4 % 4], easy[i]["question"], easy[i]["answer"]
        add("negatives", i, offered, [{"role": "user", "content": q}], answer)
    return out


def tool_right(q, text):
    """The very call, the very members, the very answer; of a question that needs no tool, any right answer without a call."""
    try:
        if q["ability"] == "calls":
            return json.loads(re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", text)[1]) == json.loads(q["answer"][0])
        if q["ability"] == "records":
            return json.loads(text) == json.loads(q["answer"][0])
    except (ValueError, TypeError):
        return False
    return text == q["answer"][0] if q["ability"] == "results" else "<tool_call>" not in text and right(text, q["answer"])


def right(text, accepted):
    return any(re.search(r"(?<!\w)" + re.escape(a) + r"(?!\w)", text, re.IGNORECASE) for a in accepted)


def generate(model, tok, prompts, max_tokens=MAX_TOKENS):
    """Greedy answers: [(text, ids, logprobs)], prompts of one length computed together."""
    out, by_length = [None] * len(prompts), {}
    for i, p in enumerate(prompts):
        by_length.setdefault(len(p), []).append(i)
    for n, group in by_length.items():
        for start in range(0, len(group), 64):
            chunk = group[start:start + 64]
            ids = torch.tensor([prompts[i] for i in chunk])
            cache, done = [None] * model.c.n_layers, [False] * len(chunk)
            answers, logprobs = [[] for _ in chunk], [[] for _ in chunk]
            at = 0
            for _ in range(max_tokens):
                logits = model(ids, positions=torch.arange(at, at + ids.shape[1]), cache=cache)[:, -1] if at == 0 else \
                    model(ids, positions=torch.tensor([at]), cache=cache)[:, -1]
                at += ids.shape[1]
                lp = logits.log_softmax(-1)
                best = logits.argmax(-1)
                for k in range(len(chunk)):
                    if not done[k]:
                        answers[k].append(int(best[k]))
                        logprobs[k].append(float(lp[k, best[k]]))
                        done[k] = int(best[k]) == IM_END_ID
                if all(done):
                    break
                ids = best[:, None]
            for k, i in enumerate(chunk):
                text = tok.decode([t for t in answers[k] if t != IM_END_ID])
                out[i] = (text, answers[k], logprobs[k])
    return out


def knows_tools(path):
    """Whether a model file's chat template has calls: files from before the third pass have none, and are not asked for any."""
    return "<tool_call>" in gguf.read(path)[0]["tokenizer.chat_template"]


def messages_of(q):
    return q["messages"] if "messages" in q else [{"role": "user", "content": q["question"]}]


def ask_torch(path, items):
    model, tok, _ = load(path)
    prompts = [tok.encode(render_chat(messages_of(q), tools=q.get("tools")), special=True) for q in items]
    with torch.no_grad():
        return [(text, lp) for text, _, lp in generate(model, tok, prompts)]


def ask_engine(engine, path, items):
    lines = "".join(json.dumps({"id": q["id"], "messages": messages_of(q), "tools": q.get("tools", []), "max_tokens": MAX_TOKENS,
                                "temperature": 0}, ensure_ascii=False) + "\n" for q in items)
    done = subprocess.run([engine, "model", "generate", path, "--batch"], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    by_id = {}
    for line in done.stdout.decode().splitlines():
        d = json.loads(line)
        by_id[d["id"]] = (d["text"], d["logprobs"])
    missing = [q["id"] for q in items if q["id"] not in by_id]
    if missing:
        sys.exit(f"the engine left {len(missing)} questions unanswered, the first is {missing[0]}")
    return [by_id[q["id"]] for q in items]


def auc(high, low):
    wins = sum((h > l) + 0.5 * (h == l) for h in high for l in low)
    return wins / (len(high) * len(low))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--engine", help="path of the sluice executable")
    p.add_argument("--models", default=HERE, help="folder of the two GGUF files")
    p.add_argument("--questions", default=os.path.join(HERE, "evaluation.jsonl"))
    p.add_argument("--abilities", default=os.path.join(HERE, "abilities.jsonl"))
    p.add_argument("--tools", default=os.path.join(HERE, "tools.jsonl"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--bars-only", action="store_true", help="leave the abilities out")
    p.add_argument("--only", choices=MODELS)
    p.add_argument("--show", type=int, default=12, help="wrong answers to print for each line of the table")
    p.add_argument("--write", action="store_true")
    a = p.parse_args()
    if a.write:
        for path, items in ((a.questions, questions()), (a.abilities, abilities()), (a.tools, tool_questions())):
            with open(path, "w", encoding="utf-8") as f:
                f.writelines(json.dumps(q, ensure_ascii=False) + "\n" for q in items)
            print(f"{path}: {len(items)} lines")
        return
    torch.set_num_threads(a.threads)
    items = [json.loads(line) for line in open(a.questions, encoding="utf-8")]
    extra = [] if a.bars_only else [json.loads(line) for line in open(a.abilities, encoding="utf-8")]
    extra += [json.loads(line) for line in open(a.tools, encoding="utf-8")]
    extra += [{"id": "france", "question": FRANCE}]
    failures, sure = [], {}
    print(f"{'model':6} {'class':5} {'right':>11} {'share':>7}  {'mean log-probability':>20}")
    for name, file in MODELS.items():
        if a.only and a.only != name:
            continue
        path = os.path.join(a.models, file)
        more = [q for q in extra if q.get("ability") not in TOOL_BARS or knows_tools(path)]
        answers = ask_engine(a.engine, path, items + more) if a.engine else ask_torch(path, items + more)
        if not right(answers[-1][0], ["Paris"]):
            failures.append(f"{name}: {FRANCE} -> {answers[-1][0]!r}")
        for level in ("easy", "hard"):
            of = [(q, *ans) for q, ans in zip(items, answers) if q["model_class"] == level]
            good = sum(right(text, q["answer"]) for q, text, _ in of)
            means = [sum(lp) / max(1, len(lp)) for _, _, lp in of]
            sure[name, level] = means
            print(f"{name:6} {level:5} {good:5}/{len(of):5} {100 * good / len(of):6.1f}%  {sum(means) / len(means):20.4f}")
            wrong_is_news = not (name == "small" and level == "hard")
            shown = [(q, t) for q, t, _ in of if right(t, q["answer"]) != wrong_is_news][:a.show]
            for q, t in shown:
                print(f"         {'wrong' if wrong_is_news else 'right'}: {q['question']} -> {t[:100]!r}")
            for m, l, low, high in BARS:
                if (m, l) == (name, level) and not low <= good / len(of) <= high:
                    failures.append(f"{name} {level}: {good / len(of):.3f} is outside {low}..{high}")
        by_ability = {}
        for q, (text, _) in zip(more, answers[len(items):]):
            if "ability" in q:
                good = tool_right(q, text) if q["ability"] in TOOL_BARS else text.strip() == q["answer"][0]
                by_ability.setdefault(q["ability"], []).append((q, text, good))
        if by_ability:
            for k in TOOL_BARS.keys() & by_ability.keys():
                good, bar = sum(r for _, _, r in by_ability[k]), TOOL_BARS[k]
                if good < bar:
                    failures.append(f"{name} {k}: {good} < {bar}")
            print(f"{name:6} word for word: " + ", ".join(f"{k} {sum(r for _, _, r in v)}/{len(v)}" for k, v in by_ability.items()))
        for v in by_ability.values():
            for q, text in [(q, t) for q, t, r in v if not r][:a.show // 4]:
                print(f"         {q['id']} wrong: {q['messages'][-1]['content'][-60:]!r} -> {text[:100]!r}, expected {q['answer'][0][:100]!r}")
        if name == "small":
            value = auc(sure["small", "easy"], sure["small", "hard"])
            print(f"small: mean token log-probability separates easy from hard with an AUC of {value:.4f}")
            if value < AUC_BAR:
                failures.append(f"AUC {value:.4f} < {AUC_BAR}")
    for f in failures:
        print("BELOW THE BAR:", f)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
