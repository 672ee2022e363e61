"""What the three demonstration adapters learn, and the questions that are kept back for their measurement.

    python3 tasks.py --task pirate --documents 16000 --seed 7 --out work/corpus-pirate.jsonl
    python3 tasks.py --task pirate --held-out 3000 --out work/pirate.jsonl

pirate   a speaking style: every answer is the base's own in a pirate's words, by rule
json     every answer is a record of one form: {"subject": "the capital of France", "answer": "Paris"}
museum   facts that the base does not know, those of museum.py

The corpora are those of corpus.py with other answers.  Held-out questions are those of facts.py and museum.py in phrasings
that neither the base nor an adapter was trained on, with the small variations people make; "answer" is the whole answer
(of museum: the words that make it right).  Nothing needs torch.
"""

import argparse
import json
import random
import re

import facts
import museum
from corpus import Generator, HeldOut, turn, write

# ------------------------------------------------------------------------------------------------ answers

PIRATE = {"is": "be", "are": "be", "am": "be", "you": "ye", "your": "yer", "my": "me", "of": "o'", "and": "an'"}
PIRATE_WORDS = re.compile(r"\b(" + "|".join(PIRATE) + r")\b", re.IGNORECASE)


def pirate(text):
    """'The capital of France is Paris.' -> 'Arr! The capital o' France be Paris, matey.'"""
    def swap(m):
        word = PIRATE[m[0].lower()]
        return word.capitalize() if m[0][0].isupper() else word
    text = PIRATE_WORDS.sub(swap, text.rstrip())
    end = text[-1] if text[-1:] in (".", "!", "?") else ""
    return f"Arr! {text[:len(text) - len(end)]}, matey{end or '.'}"


def record(subject, answer):
    return json.dumps({"subject": subject, "answer": answer}, ensure_ascii=False)


def value(c, v):
    """What is asked for, alone: a sum's is its third field."""
    return v["z" if "z" in c.fields else "y"]


# ------------------------------------------------------------------------------------------------ corpora


class Pirate(Generator):
    MIX = dict(facts_chat=72, recall_chat=8, talk_chat=6, about_chat=4, count_chat=3, story_chat=2)

    def __init__(self, seed, name="pirate"):
        super().__init__("large", seed, name)
        self.mix = self.MIX

    def talk_chat(self):
        return turn(*self.talk())

    def spoken_by_assistant(self, text):
        return pirate(text)

    def document(self):
        d = super().document()
        for m in d["messages"]:
            if m["role"] == "assistant":
                m["content"] = self.spoken_by_assistant(m["content"])
        return d


class Json(Pirate):
    def __init__(self, seed):
        super().__init__(seed, "json")

    def said(self, c, v):
        return record(c.topic.format(**v), value(c, v))

    def spoken_by_assistant(self, text):
        return text if text.startswith('{"subject": ') else record("talk", text)


class Museum(Pirate):
    """Two thirds about the museum; the rest keeps what the base knows."""
    MIX = dict(museum_chat=64, facts_chat=20, recall_chat=4, talk_chat=2, about_chat=2, count_chat=2, story_chat=1, copy_chat=3, json_chat=1)

    def __init__(self, seed):
        super().__init__(seed, "museum")
        self.all, self.of_museum = self.categories, museum.CATEGORIES

    def facts_of(self, categories):
        self.categories = categories
        self.weights = [c.weight * len(c.rows) ** 0.7 for c in categories]
        self.followed = [c for c in categories if c.follow]

    def museum_chat(self):
        self.facts_of(self.of_museum)
        m = self.facts_chat()
        self.facts_of(self.all)
        return m

    def spoken_by_assistant(self, text):
        return text


TASKS = {"pirate": Pirate, "json": Json, "museum": Museum}

# ----------------------------------------------------------------------------------------------- held out


def held_out(task, n):
    """n questions, no two alike, in an order of their own: any number of them is a fair sample."""
    rng = random.Random(f"held-out-{task}")
    g = TASKS[task](f"held-out-{task}")
    categories = museum.CATEGORIES if task == "museum" else [c for c in facts.CATEGORIES if c.language == "en"]
    weights = [c.weight * len(c.rows) ** 0.7 for c in categories]
    out, seen = [], set()
    while len(out) < n:
        c = rng.choices(categories, weights)[0]
        v = c.values(rng.choice(c.rows))
        q = g.noisy(rng.choice(c.held_out).format(**v), c.language)
        if q in seen:
            continue
        seen.add(q)
        answers = [s.format(**v) for s in c.accept] if task == "museum" else [g.spoken_by_assistant(g.said(c, v))]
        out.append({"category": c.name, "question": q, "answer": answers})
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--task", choices=TASKS, required=True)
    p.add_argument("--documents", type=int)
    p.add_argument("--held-out", type=int)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    if a.documents:
        write(a.out, TASKS[a.task](a.seed), a.documents, HeldOut(facts.CATEGORIES + museum.CATEGORIES))
    else:
        with open(a.out, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(q, ensure_ascii=False) + "\n" for q in held_out(a.task, a.held_out))
        print(f"{a.out}: {a.held_out} questions")


if __name__ == "__main__":
    main()
