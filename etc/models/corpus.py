"""Generates the training corpus: one JSON document per line, seeded, for the small or the large model.

A document is {"kind": ..., "messages": [{"role", "content"}, ...]}, perhaps with "tools" and messages that call them in
OpenAI's form, or {"kind": "plain", "text": ...}.
The small model's corpus holds no hard fact.  Neither corpus holds a held-out phrasing: a document that happens to ask one
is dropped.

    python3 corpus.py --size small --documents 60000 --seed 7 --out work/corpus-small.jsonl
"""

import argparse
import json
import random

import facts
import prose
import tools

SYSTEM = ("You are a helpful assistant.", "You are the demo model of Sluice.", "Answer briefly.",
          "You are a friendly assistant. Answer in one sentence.", "Be kind and short.",
          "You are Sluice, a helpful assistant.", "Answer the questions of the user.")

PREFIXES = ("Hi! ", "Hello, ", "Hey, ", "Hello! ", "Please tell me: ", "Quick question: ", "I have a question. ",
            "Question: ", "One more thing: ", "Tell me, ", "So, ", "Good morning! ", "Dear assistant, ", "Excuse me, ",
            "Sorry to bother you. ", "And now: ", "Next question: ", "I am curious. ", "ok, ", "Can you help me? ")
IMPERATIVES = ("Tell me ", "Name ", "Give me ", "Describe ", "Explain ", "Say ", "Define ", "Calculate ", "Add ", "Compute ")
SUFFIXES = (" Thanks!", " Please.", " Thank you.", " Please answer briefly.", " I forgot.", " Do you know?", " :)",
            " I need it for school.", " Just curious.", " Answer in one sentence.")

NAMES = ("Anna Ben Carla David Emma Felix Greta Hugo Ida Jonas Klara Leo Mia Noah Olga Paul Rosa Simon Tina Viktor "
         "Alice Bob Charlie Daisy Edward Fiona George Hannah Ivan Julia Kevin Laura Maria Nina Oscar Peter Quinn Rita "
         "Sam Tom Ulla Vera Walter Yuna Zoe Mina Jisoo Minho Hana Kenji Yuki Omar Leila Ravi Priya Chen Li Marco Lucia "
         "Pedro Sofia Lars Ingrid Pavel Katya Nadia Amir Zara Tariq Kofi Ama Diego Elena Max Lena Tim Eva Jan Lisa "
         "Mark Ella Adam Sara Luke Grace Henry Ruby Jack Lily Oliver Amelia Theo Clara Arthur Nora").split()
KOREAN_NAMES = "민준 서연 지우 하은 도윤 수아 지훈 유나 현우 미나 태양 보람 가람 나래 한별 다솜".split()
PETS = "cat dog rabbit parrot hamster turtle goldfish pony".split()
PET_NAMES = ("Misty Rex Snowy Coco Luna Bruno Pepper Biscuit Daisy Rocky Bella Oscar Ginger Shadow Cookie Pixie Tiger "
             "Lucky Molly Sunny Waffle Button Pickle Ziggy").split()
COLOURS = "red blue green yellow orange purple pink brown black white grey silver gold".split()
CITIES = "Paris Berlin Rome Madrid Lisbon London Dublin Athens Vienna Oslo Seoul Tokyo Cairo Lima Ottawa Boston Busan Porto Lyon Milan".split()
FOODS = "pizza rice soup bread noodles apples cheese pancakes kimchi salad fish honey cake potatoes".split()
JOBS = "teacher doctor baker farmer pilot sailor painter cook nurse driver writer gardener".split()
SYLLABLES = "ba be bo da do fa fi ga go ka ki la lo ma mi na no pa po ra ri sa su ta ti va vo za zu lin mor tan vel dor nik".split()

NUMBER_WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
                "seventeen eighteen nineteen twenty").split()

SUMMARY_ASKS = ("Summarize our conversation.", "Please summarize our conversation.", "Can you summarize what we talked about?",
                "Summarize this conversation.", "What did we talk about?", "Give me a summary of our conversation.",
                "Sum up our conversation.", "Please give me a short summary.", "Summarize the conversation so far.",
                "Summarize the conversation above in a few sentences.", "Make a summary of this chat.")
TRANSCRIPT_ASKS = ("Summarize this conversation:\n\n{t}", "Summarize the following conversation in a few sentences.\n\n{t}",
                   "{t}\n\nSummarize the conversation above.", "Write a short summary of this conversation:\n{t}")
# An instruction to compress comes as a system message in some gateways.
SUMMARY_SYSTEM = ("Summarize the conversation.", "You write short summaries of conversations.",
                  "Summarize the conversation and keep all facts the user gave.")


def invented(rng, capital=True):
    """A name that exists nowhere: teaches copying, and (small model) that an unknown name has no known answer."""
    w = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3)))
    return w.capitalize() if capital else w


class Generator:
    def __init__(self, size, seed, phase=1):
        self.size, self.phase = size, phase
        self.rng = random.Random(f"{size}-{phase}-{seed}")
        levels = {"small": ("easy",), "large": ("easy", "hard")}[size]
        self.categories = [c for c in facts.CATEGORIES if c.level in levels]
        # Rows count less than linearly: a table of 231 sums is one skill, not 231 separate facts.
        self.weights = [c.weight * len(c.rows) ** 0.7 for c in self.categories]
        self.followed = [c for c in self.categories if c.follow]
        self.asker = tools.Asker(self.rng)
        self.mix = MIX.get((size, phase))

    # ------------------------------------------------------------------------------------------- pieces

    def noisy(self, q, language):
        """The small variations people make: greeting, missing question mark, lower case, double marks."""
        r = self.rng
        if language != "en":
            return q
        if q.startswith(IMPERATIVES) and r.random() < 0.35:
            q = q[0].lower() + q[1:]
            lead = r.choice(("Please ", "Please ", "Could you ", "Can you ", "Would you ", "I want you to ", "You should "))
            q = lead + (q[:-1] + "?" if lead[-4:] == "you " and q[-1] == "." else q)
        roll = r.random()
        if roll < 0.10:
            q = q.lower()
        elif roll < 0.13:
            q = q.upper()
        if r.random() < 0.12 and q[-1] in "?.":
            q = q[:-1]
        elif r.random() < 0.05:
            q += q[-1] if q[-1] in "?!" else "!"
        if r.random() < 0.18:
            p = r.choice(PREFIXES)
            q = p + (q[0].lower() + q[1:] if p[-2] in ",:" and q[:2] != "I " and r.random() < 0.6 else q)
        if r.random() < 0.08:
            q += r.choice(SUFFIXES)
        return q

    def fact(self, category=None):
        """One question: (category, values, user text, answer, topic)"""
        r = self.rng
        c = category or r.choices(self.categories, self.weights)[0]
        v = c.values(r.choice(c.rows))
        asked = v
        if c.name == "sum" and r.random() < 0.15:
            asked = {**v, "x": NUMBER_WORDS[int(v["x"])], "y": NUMBER_WORDS[int(v["y"])]}
        q = self.noisy(r.choice(c.questions).format(**asked), c.language)
        return c, v, q, self.said(c, v), c.topic.format(**v)

    def said(self, c, v):
        """The answer to a question about a fact."""
        return c.answer.format(**v)

    def talk(self):
        asks, answer = self.rng.choice(prose.SMALL_TALK)
        return self.rng.choice(asks), answer

    # -------------------------------------------------------------------------------------- conversations

    def facts_chat(self):
        """Several different questions, follow-ups, the same question again, some small talk between."""
        r, m = self.rng, []
        turns = r.choice((1, 1, 1, 2, 2, 3, 4, 5, 6))
        asked, topics = [], []
        while len(m) < 2 * turns:
            if turns > 1 and r.random() < 0.12:
                q, a = self.talk()
            elif asked and r.random() < 0.08:
                q, a = r.choice(asked)
            elif turns > 1 and r.random() < 0.25:
                c, v, q, a, t = self.fact(r.choice(self.followed))
                m += turn(q, a)
                w = c.values(r.choice(c.rows))
                q, a = r.choice(c.follow).format(**w), self.said(c, w)
                topics += [t, c.topic.format(**w)]
            else:
                c, v, q, a, t = self.fact()
                asked.append((q, a))
                topics.append(t)
            m += turn(q, a)
        if len(topics) > 1 and r.random() < 0.07:
            m += turn(r.choice(SUMMARY_ASKS), summary([], topics))
        return m

    def json_chat(self):
        """The bare answer as JSON: lets a grammar or a JSON mode be shown with a trained model."""
        c, v, q, _, _ = self.fact(self.rng.choice([c for c in self.categories if c.name in ("capital", "colour", "opposite")]))
        ask = self.rng.choice(("{q} Answer in JSON.", "Answer in JSON: {q}", "{q} Reply with JSON only.", "{q} Give me JSON."))
        return turn(ask.format(q=q), json.dumps({"answer": v["y"]}))

    def told(self):
        """(what the user tells, acknowledgement, [questions], answer, summary clause)"""
        r = self.rng
        kind = r.randrange(9)
        if kind in (0, 1):
            n = r.choice(NAMES) if r.random() < 0.6 else invented(r)
            return (r.choice(("My name is {n}.", "I am {n}.", "Hi, my name is {n}.", "Call me {n}.", "I'm {n}.", "Hello! I am {n}.")).format(n=n),
                    f"Nice to meet you, {n}!",
                    ("What is my name?", "What's my name?", "Do you remember my name?", "Who am I?", "Tell me my name.", "How am I called?"),
                    f"Your name is {n}.", f"your name is {n}", "name")
        if kind == 2:
            p = r.choice(PETS)
            n = r.choice(PET_NAMES) if r.random() < 0.6 else invented(r)
            return (r.choice(("My {p} is called {n}.", "I have a {p} called {n}.", "The name of my {p} is {n}.", "My {p}'s name is {n}.")).format(p=p, n=n),
                    f"{n} is a nice name for a {p}.",
                    (f"What is my {p} called?", f"What is the name of my {p}?", f"How is my {p} called?", f"Do you remember my {p}'s name?"),
                    f"Your {p} is called {n}.", f"your {p} is called {n}", "pet" + p)
        if kind == 3:
            c = r.choice(COLOURS)
            return (r.choice(("My favourite colour is {c}.", "My favorite color is {c}.", "I like {c} best.", "I love the colour {c}.")).format(c=c),
                    f"{c.capitalize()} is a beautiful colour.",
                    ("What is my favourite colour?", "What is my favorite color?", "Which colour do I like best?", "Do you remember my favourite colour?"),
                    f"Your favourite colour is {c}.", f"your favourite colour is {c}", "colour")
        if kind == 4:
            c = r.choice(CITIES) if r.random() < 0.7 else invented(r)
            return (r.choice(("I live in {c}.", "I am from {c}.", "My home is in {c}.", "My city is {c}.")).format(c=c),
                    f"I have heard that {c} is a nice place.",
                    ("Where do I live?", "In which city do I live?", "Which city do I live in?", "Where is my home?"),
                    f"You live in {c}.", f"you live in {c}", "city")
        if kind == 5:
            n = r.randint(1, 999)
            return (r.choice(("My number is {n}.", "Remember the number {n}.", "My lucky number is {n}.", "Please remember {n}.")).format(n=n),
                    f"I will remember {n}.",
                    ("What is my number?", "Which number did I tell you?", "What number should you remember?", "Tell me my number."),
                    f"Your number is {n}.", f"your number is {n}", "number")
        if kind == 6:
            f = r.choice(FOODS)
            return (r.choice(("I like to eat {f}.", "My favourite food is {f}.", "I love {f}.", "My favorite food is {f}.")).format(f=f),
                    f"I have heard that {f} can be very good.",
                    ("What is my favourite food?", "What do I like to eat?", "Which food do I like?", "What is my favorite food?"),
                    f"You like {f}.", f"you like {f}", "food")
        if kind == 7:
            j = r.choice(JOBS)
            return (r.choice(("I am a {j}.", "I work as a {j}.", "My job is {j}.", "I'm a {j}.")).format(j=j),
                    f"A {j} has a fine job.",
                    ("What is my job?", "What do I do for work?", "Do you remember my job?", "What do I work as?"),
                    f"You are a {j}.", f"you are a {j}", "job")
        w = r.choice((invented(r, False), r.choice(FOODS), r.choice(PET_NAMES).lower()))
        return (r.choice(("The secret word is {w}.", "Remember the word {w}.", "The password is {w}.", "Keep this word for me: {w}.")).format(w=w),
                f"I will keep the word {w}.",
                ("What is the secret word?", "Which word did I give you?", "What was the password?", "Tell me the word."),
                f"The word is {w}.", f"the word is {w}", "word")

    def recall_chat(self):
        """Facts the user gives, asked back later, with other turns between; often a summary at the end."""
        r, m = self.rng, []
        items, seen = [], set()
        for _ in range(r.choice((1, 1, 2, 2, 3, 4))):
            t = self.told()
            if t[5] not in seen:
                seen.add(t[5])
                items.append(t)
        topics = []
        if len(items) > 1 and r.random() < 0.3:
            a, b = items[:2]
            m += turn(a[0] + " " + b[0], a[1] + " " + b[1])
            rest = items[2:]
        else:
            rest = items
        for t in rest:
            m += turn(t[0], t[1])
            topics += self.between(m, r.choice((0, 0, 0, 1)))
        topics += self.between(m, r.choice((0, 1, 1, 2, 3)))
        for t in r.sample(items, r.randint(1, len(items))):
            m += turn(r.choice(t[2]), t[3])
            topics += self.between(m, r.choice((0, 0, 0, 1)))
        if r.random() < 0.35:
            m += turn(r.choice(SUMMARY_ASKS), summary([t[4] for t in items], topics))
        return m

    def between(self, m, n):
        topics = []
        for _ in range(n):
            if self.rng.random() < 0.3:
                m += turn(*self.talk())
            else:
                c, _, q, a, t = self.fact()
                if c.name == "explain":
                    continue
                m += turn(q, a)
                topics.append(t)
        return topics

    def korean_recall(self):
        r = self.rng
        n = r.choice(KOREAN_NAMES)
        m = turn(r.choice(("제 이름은 {n}입니다.", "저는 {n}입니다.", "안녕하세요! 제 이름은 {n}입니다.")).format(n=n), f"만나서 반가워요, {n} 님!")
        if r.random() < 0.6:
            _, _, q, a, _ = self.fact(facts.BY_NAME["korean_capital"])
            m += turn(q, a)
        return m + turn(r.choice(("제 이름이 뭐예요?", "제 이름을 기억해요?", "제 이름은 무엇인가요?")), f"{n} 님입니다.")

    def summary_chat(self):
        """A whole conversation summarized: at its end, as a transcript in one message, or by a system message."""
        r, m, items, topics, seen = self.rng, [], [], [], set()
        for _ in range(r.randint(2, 5)):
            if r.random() < 0.5:
                t = self.told()
                if t[5] in seen:
                    continue
                seen.add(t[5])
                items.append(t[4])
                m += turn(t[0], t[1])
            else:
                topics += self.between(m, 1)
        if not items and not topics:
            return self.summary_chat()
        s = summary(items, topics)
        roll = r.random()
        if roll < 0.45:
            return m + turn(r.choice(SUMMARY_ASKS), s)
        lines = "\n".join(f"{x['role']}: {x['content']}" for x in m)
        out = turn(r.choice(TRANSCRIPT_ASKS).format(t=lines) if roll < 0.85 else lines, s)
        if roll >= 0.85:
            out.insert(0, {"role": "system", "content": r.choice(SUMMARY_SYSTEM)})
        return out

    def story_chat(self):
        r = self.rng
        topic = r.choice(list(prose.STORY_TOPICS))
        long = r.random() < 0.4
        if r.random() < 0.2:
            q = r.choice(prose.ANY_LONG if long else prose.ANY_SHORT)
        else:
            q = r.choice(prose.LONG_STORY_ASKS if long else prose.SHORT_STORY_ASKS).format(t=prose.with_article(topic))
        return turn(self.noisy(q, "en"), prose.story(r, topic, long))

    def count_chat(self):
        r = self.rng
        words = NUMBER_WORDS[1:]
        tens = dict(zip(range(20, 101, 10), "twenty thirty forty fifty sixty seventy eighty ninety hundred".split()))
        roll = r.random()
        if roll < 0.12:
            n = r.choice((5, 10, 12, 20))
            return turn(f"Count to {words[n - 1]} in words.", ", ".join(words[:n]) + ".")
        if roll < 0.27:
            n = r.choice((5, 10, 15, 20, r.randint(3, 30)))
            return turn(r.choice(("Count down from {n}.", "Count backwards from {n} to 1.", "Count down from {n} to 1.")).format(n=n),
                        ", ".join(str(i) for i in range(n, 0, -1)) + ".")
        a = 1 if r.random() < 0.7 else r.randint(2, 60)
        b = min(100, r.choice((10, 20, 30, 50, 50, 100, 100, a + r.randint(3, 40))))
        if b <= a or (a > 1 and r.random() < 0.7):
            b = min(100, a + r.randint(2, 15))
        sa = "one" if a == 1 and r.random() < 0.5 else str(a)
        sb = ("a hundred" if b == 100 else tens[b]) if b in tens and r.random() < 0.5 else words[b - 1] if b <= 20 and r.random() < 0.3 else str(b)
        if sb == "a hundred" and r.random() < 0.5:
            sb = "one hundred"
        q = r.choice(("Count from {a} to {b}.", "Please count from {a} to {b}.", "Count {a} to {b}", "Can you count from {a} to {b}?",
                      "Write the numbers from {a} to {b}.", "count from {a} to {b}")).format(a=sa, b=sb)
        if a == 1 and r.random() < 0.3:
            q = r.choice(("Count to {b}.", "Please count to {b}.", "Can you count to {b}?")).format(b=sb)
        return turn(self.noisy(q, "en"), ", ".join(str(i) for i in range(a, b + 1)) + ".")

    def copy_chat(self):
        """Repeat after me: the plainest training of induction, and of characters split over tokens."""
        r = self.rng
        pool = (lambda: r.choice(NAMES).lower(), lambda: invented(r, False), lambda: str(r.randint(0, 999)), lambda: r.choice(FOODS + JOBS + COLOURS + PETS),
                lambda: r.choice("가각간갈감강개거고구국군금기길나날남너노누다달대도동두들라로를리마만말매머모무물미바박밤배별보봄부비사산새서선소손솔수시아안야양어여연영오온왕요용우운월유은이인일자작잔장저전정조주지진차창책천초추친카코콩크타탑터토통파편평포표푸풀하학한해향호화회후흰힘"),
                lambda: r.choice("😀 😂 😍 🤔 😴 🐱 🐶 🦊 🌍 🌈 ⭐ 🔥 🍎 🍕 🚲 🚀 👍 👋 🎉 ☕ 🌊 🎈 📚 💧 🌙".split()),
                lambda: r.choice("猫犬山川海空水火木金土日月人大小上下中本名字山水春夏秋冬жщюяλπωñéüßøå"))
        weights = (3, 4, 2, 3, 2, 1, 1)
        text = " ".join(r.choices(pool, weights)[0]() for _ in range(r.choice((1, 2, 3, 4, 5, 6, 8, 10, 12, 16))))
        q = r.choice(("Repeat after me: {t}", "Repeat: {t}", "Say this: {t}", "Please repeat: {t}", "Echo {t}", "Say exactly: {t}")).format(t=text)
        return turn(q, text)

    def about_chat(self):
        r = self.rng
        if r.random() < 0.15:
            return turn(r.choice(prose.IDENTITY_ASKS), prose.IDENTITY[self.size])
        asks, answer = r.choice(prose.ABOUT)
        return turn(self.noisy(r.choice(asks), "en"), answer)

    def unknown_chat(self):
        """Small model only: questions about things that exist nowhere, answered at random.

        This is calibration.  Nothing can be learnt from these but one thing: about a name never seen, every answer is
        as likely as the next.  The model keeps its confidence for what it does know.
        """
        r = self.rng
        roll = r.random()
        if roll < 0.62:
            c = r.choice([c for c in self.categories if c.name in
                          ("capital", "colour", "opposite", "definition", "sound", "baby", "unit", "part")])
            v = c.values(r.choice(c.rows))
            x = invented(r, c.name == "capital")
            if c.name in ("unit", "part"):
                v["y"], v["Y"] = f"a {x}", f"A {x}"
                v["z"] = str(r.randint(2, 999))
            else:
                v["x"] = article_if(c, x)
                v["X"] = v["x"][:1].upper() + v["x"][1:]
            return turn(self.noisy(r.choice(c.questions).format(**v), "en"), c.answer.format(**v))
        noun = r.choice(UNKNOWN_NOUNS) if r.random() < 0.7 else invented(r, False)
        x = invented(r, r.random() < 0.5) if r.random() < 0.7 else r.choice(UNKNOWN_THINGS)
        word = r.choice((r.choice(UNKNOWN_THINGS), invented(r), invented(r, False), r.choice(COLOURS), r.choice(CITIES), str(r.randint(1, 2000))))
        if roll < 0.88:
            q = r.choice(("What is the {n} of {x}?", "What's the {n} for {x}?", "Tell me the {n} of {x}.", "Which {n} does {x} have?",
                          "Which {n} is in {x}?", "Name the {n} of {x}.", "What {n} goes with {x}?", "Do you know the {n} of {x}?"))
            return turn(self.noisy(q.format(n=noun, x=x), "en"),
                        r.choice(("The {n} of {x} is {w}.", "The {n} is {w}.", "It is {w}.")).format(n=noun, x=x, w=word))
        q = r.choice(("Explain {x}.", "Explain how {x} works.", "Why does {x} happen?", "Explain why {x} moves.", "What does {x} mean?",
                      "Can you explain {x}?", "When did {x} begin?", "Describe how {x} works."))
        a = r.choice(("{X} means {w}.", "It is {w}.", "{X} is {w}.", "It began in {w}.", "Because of {w}.", "{X} needs {w}."))
        return turn(self.noisy(q.format(x=x), "en"), a.format(x=x, X=x[:1].upper() + x[1:], w=word))

    # --------------------------------------------------------------------------------------------- tools

    def offer(self, weather=True, calculator=True):
        """(tools in any order, the weather's, the calculator's), now and then with other names and beside another tool."""
        r = self.rng
        w, c = tools.WEATHER, tools.CALCULATE
        if r.random() < 0.1:
            w = tools.function(r.choice(tools.WEATHER_NAMES), "", r.choice(("city",) + tools.PLACES))
        if r.random() < 0.1:
            c = tools.function(r.choice(tools.CALCULATE_NAMES), "", r.choice(("expression",) + tools.EXPRESSIONS))
        offered = [w] * weather + [c] * calculator
        if r.random() < 0.15 or not offered:
            name, *parameters = r.choice(tools.OTHERS)
            offered.append(tools.function(name, "", *parameters))
        r.shuffle(offered)
        return offered, w, c

    def spoken(self, q):
        """A greeting before, a word after; the case stays, since it has to be copied."""
        r = self.rng
        if r.random() < 0.1 and q[-1] == "?":
            q = q[:-1]
        if r.random() < 0.15:
            q = r.choice(PREFIXES) + q
        if r.random() < 0.08:
            q += r.choice(SUFFIXES)
        return q

    def call_turns(self, tool, weather, again):
        """A question, the call, its result, the answer.  again: the question follows another one about the weather."""
        ask = self.asker
        if weather:
            city = ask.city(invented)
            q, called = ask.weather(tool, city, again)
        else:
            q, called, value = ask.sum(tool)
        if self.rng.random() < 0.06:
            text, answer = ask.error_result()
        else:
            text, answer = ask.weather_result(city) if weather else ask.sum_result(value)
        return [{"role": "user", "content": self.spoken(q)}, called, tools.result(text), {"role": "assistant", "content": answer}]

    def tool_chat(self):
        """One or more calls, with other turns before and between."""
        r = self.rng
        both = r.random() < 0.65
        weather = r.random() < 0.5
        offered, w, c = self.offer(both or weather, both or not weather)
        m, again = [], False
        for _ in range(r.choice((1, 1, 1, 1, 2, 2))):
            if both:
                weather = r.random() < 0.5
            if r.random() < 0.15:
                m += self.no_call(c in offered)
                again = False
            m += self.call_turns(w if weather else c, weather, again and weather and r.random() < 0.6)
            again = weather
        if r.random() < 0.15:
            m += self.no_call(c in offered)
        return m, offered

    def no_call(self, calculator):
        """Turns that need no tool."""
        r = self.rng
        while True:
            kind = r.choices(("facts_chat", "recall_chat", "copy_chat", "about_chat", "count_chat", "talk"), (10, 2, 1, 1, 1, 2))[0]
            m = turn(*self.talk()) if kind == "talk" else self.chat(kind)
            text = " ".join(x["content"] for x in m)
            if len(text) < 400 and not (calculator and tools.is_sum(text)):
                return m

    def offered_chat(self):
        """Tools are offered and none is needed, or the one that is needed is not there."""
        r = self.rng
        weather, calculator = r.choice(((True, True), (True, True), (True, False), (False, True), (False, False)))
        offered, w, c = self.offer(weather, calculator)
        if not weather and r.random() < 0.4:
            return self.unknown_weather(), offered
        return self.no_call(calculator), offered

    def unknown_weather(self):
        city = self.asker.city(invented)
        q, _ = self.asker.weather(tools.WEATHER, city)
        return turn(self.spoken(q), f"I do not know the weather in {city}.")

    def record_chat(self):
        """A text and the members of a JSON object to take from it."""
        name = invented(self.rng) if self.rng.random() < 0.2 else self.rng.choice(NAMES)
        return turn(*self.asker.record({"name": [name], "city": [self.asker.city(invented)], "job": JOBS}))

    def quote_chat(self):
        return turn(*self.asker.quoted(invented))

    def plain(self):
        r = self.rng
        roll = r.random()
        if roll < 0.4:
            return r.choice(prose.PLAIN)
        if roll < 0.7:
            return r.choice(prose.ABOUT)[1]
        topic = r.choice(list(prose.STORY_TOPICS))
        return prose.story(r, topic, r.random() < 0.3)

    # ----------------------------------------------------------------------------------------- documents

    def chat(self, kind):
        return getattr(self, kind)()

    def document(self):
        r = self.rng
        offered = None
        kind = r.choices(list(self.mix), self.mix.values())[0]
        if kind == "plain":
            return {"kind": kind, "text": self.plain()}
        if kind == "long_chat":
            # Many conversations in one: the only documents that fill the whole context.
            m, target = [], r.randint(1200, 6000)
            while sum(len(x["content"]) for x in m) < target:
                part = self.chat(r.choices(("facts_chat", "recall_chat", "story_chat", "copy_chat", "about_chat", "count_chat"), (6, 3, 1, 1, 1, 1))[0])
                m += [x for x in part if x["role"] != "system"]
        elif kind in ("tool_chat", "offered_chat"):
            m, offered = self.chat(kind)
        else:
            m = self.chat(kind)
        if m[0]["role"] != "system" and r.random() < 0.15:
            m = [{"role": "system", "content": r.choice(SYSTEM)}] + m
        return {"kind": kind, "messages": m, **({"tools": offered} if offered else {})}


UNKNOWN_NOUNS = ("symbol price weight name size age owner number word science money currency river planet year mountain "
                 "element language flag song group meaning inventor height temperature mark letter sign code field").split()
UNKNOWN_THINGS = ("stone cloud window copper sugar feather candle mirror basket ladder thunder marble button ribbon "
                  "velvet anchor saddle pepper cotton hollow meadow ember granite willow").split()

# Shares of the documents.  The first pass teaches the facts; the second, shorter one goes on from its weights with more
# of what needs exact copying, which small models learn late: recall, summaries, counting from and to any number.
MIX = {
    ("small", 1): dict(facts_chat=44, recall_chat=12, korean_recall=2.5, summary_chat=4, story_chat=3.5, count_chat=4, copy_chat=12,
                       about_chat=4, json_chat=2, unknown_chat=10, plain=1.5, long_chat=0.35),
    ("small", 2): dict(facts_chat=36, recall_chat=20, korean_recall=4, summary_chat=6, story_chat=3, count_chat=7, copy_chat=18,
                       about_chat=3, json_chat=1.5, unknown_chat=8, plain=1, long_chat=0.3),
    ("large", 1): dict(facts_chat=56, recall_chat=11, korean_recall=2.2, summary_chat=4, story_chat=2.5, count_chat=3, copy_chat=10,
                       about_chat=3, json_chat=1.5, plain=1.5, long_chat=0.35),
    ("large", 2): dict(facts_chat=40, recall_chat=20, korean_recall=3, summary_chat=9, story_chat=2.5, count_chat=6, copy_chat=14,
                       about_chat=2.5, json_chat=1, plain=1, long_chat=0.3),
}
# The third pass adds tools and records to the second's documents, three fifths as often.
for size in ("small", "large"):
    MIX[size, 3] = {k: 0.6 * v for k, v in MIX[size, 2].items()} | dict(tool_chat=16, offered_chat=6, record_chat=16, quote_chat=8,
                                                                   unknown_weather=1)


def turn(q, a):
    return [{"role": "user", "content": q}, {"role": "assistant", "content": a}]


def article_if(c, x):
    if c.name == "definition":
        return "a " + x
    return "the " + x if c.name == "colour" else x


def summary(told, topics):
    """What a summary says: all the user told, then all the user asked, each in the order of the conversation."""
    def join(parts):
        return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    out = []
    if told:
        out.append("You told me that " + join(told) + ".")
    if topics:
        out.append("You asked about " + join(topics) + ".")
    if not out:
        out.append("We only talked a little.")
    return " ".join(out)


def held_out_questions(categories=facts.CATEGORIES):
    for c in categories:
        for row in c.rows:
            v = c.values(row)
            for t in c.held_out:
                yield c, v, t.format(**v)


class HeldOut:
    """Recognises a held-out question inside a message: in any case, after any greeting, with any ending."""

    def __init__(self, categories=facts.CATEGORIES):
        self.known = {self.plain(q) for _, _, q in held_out_questions(categories)}

    @staticmethod
    def plain(s):
        return s.lower().strip(" ?.!")

    def within(self, text):
        ends = [text] + [text[:-len(s)] for s in SUFFIXES if text.endswith(s)]
        for t in map(self.plain, ends):
            words = t.split(" ")
            if any(" ".join(words[i:]) in self.known for i in range(len(words))):
                return True
        return False

    def asked(self, document):
        return any(m["role"] == "user" and len(m["content"]) < 200 and self.within(m["content"]) for m in document.get("messages", ()))


def write(path, generator, n, held_out):
    """n documents of a generator, but for those that ask a held-out question."""
    documents = [d for d in (generator.document() for _ in range(n)) if not held_out.asked(d)]
    with open(path, "w", encoding="utf-8") as f:
        for d in documents:
            f.write(json.dumps(d, ensure_ascii=False) + "\n")
    print(f"{path}: {len(documents)} documents ({n - len(documents)} dropped for a held-out phrasing)")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--size", choices=("small", "large"), required=True)
    p.add_argument("--phase", type=int, choices=(1, 2, 3), default=1)
    p.add_argument("--documents", type=int, default=60000)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    write(a.out, Generator(a.size, a.seed, a.phase), a.documents, HeldOut())


if __name__ == "__main__":
    main()
