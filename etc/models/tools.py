"""The tools the demo models can call, JSON records, and how people ask for both.

Messages and tools are in OpenAI's form; tokenizer.turns() renders them as the chat template does.  Held out, and never
trained on: HELD_OUT_CITIES, the phrasings in *_HELD_OUT, and pairs of numbers that held_out_pair() picks.
"""

import json
import re


def function(name, description, *parameters):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {p: {"type": "string"} for p in parameters}, "required": list(parameters)}}}


WEATHER = function("get_weather", "The current weather of a city", "city")
CALCULATE = function("calculate", "Computes an expression", "expression")
# Another name now and then: a name is to be copied from the list, not known by heart.
WEATHER_NAMES, PLACES = ("weather", "current_weather", "find_weather", "getWeather"), ("location", "place")
CALCULATE_NAMES, EXPRESSIONS = ("calculator", "compute", "evaluate"), ("formula", "input")
# Tools that nobody needs.
OTHERS = (("search", "query"), ("get_time", "zone"), ("send_mail", "to", "text"), ("play_music", "song"), ("set_alarm", "time"),
          ("translate", "text", "language"), ("open_page", "url"), ("take_note", "text"), ("roll_dice",))

CITIES = ("Paris Berlin Rome Madrid Lisbon London Dublin Athens Vienna Oslo Seoul Tokyo Cairo Lima Ottawa Boston Busan Porto Lyon "
          "Milan Bern Brussels Amsterdam Copenhagen Stockholm Helsinki Warsaw Budapest Moscow Ankara Beijing Bangkok Hanoi "
          "Canberra Santiago Havana Nairobi Reykjavik Edinburgh Kyiv Tehran Zurich Cologne Turin Seville Bristol Glasgow Prague "
          "Delhi Shanghai Montreal Miami Dallas Salem Venice Kyoto Munich Stuttgart Dresden Leipzig Bremen Hanover Nuremberg Bonn "
          "Essen Dortmund Freiburg Heidelberg Mainz Kassel Rostock Potsdam Linz Graz Salzburg Innsbruck Basel Lausanne Lucerne "
          "Florence Bologna Genoa Palermo Verona Trieste Bari Catania Pisa Siena Barcelona Bilbao Malaga Granada Zaragoza Cordoba "
          "Salamanca Braga Coimbra Faro Marseille Toulouse Nice Nantes Bordeaux Lille Strasbourg Rennes Dijon Grenoble Avignon "
          "Antwerp Ghent Bruges Rotterdam Utrecht Leiden Groningen Haarlem Aarhus Odense Gothenburg Uppsala Lund Trondheim Stavanger "
          "Tampere Turku Espoo Gdansk Poznan Wroclaw Lublin Brno Debrecen Szeged Manchester Liverpool Leeds Sheffield Birmingham "
          "Oxford Cambridge Nottingham Southampton Portsmouth Brighton Plymouth Exeter Bath York Norwich Leicester Coventry Cardiff "
          "Swansea Belfast Aberdeen Dundee Cork Galway Limerick Nagoya Sapporo Fukuoka Sendai Hiroshima Kobe Yokohama Nara Incheon "
          "Daegu Daejeon Gwangju Suwon Wuhan Nanjing Shenzhen Harbin Chengdu Kolkata Chennai Bangalore Pune Jaipur Karachi Lahore "
          "Jakarta Bandung Cebu Davao Saigon Penang Melbourne Brisbane Perth Adelaide Darwin Hobart Auckland Wellington Vancouver "
          "Calgary Edmonton Winnipeg Quebec Halifax Seattle Portland Houston Austin Phoenix Atlanta Detroit Cleveland Memphis "
          "Nashville Orlando Tampa Baltimore Philadelphia Pittsburgh Cincinnati Omaha Tucson Oakland Sacramento Honolulu Cancun "
          "Guadalajara Puebla Bogota Medellin Cali Caracas Recife Salvador Curitiba Fortaleza Rosario Mendoza Cusco Arequipa "
          "Casablanca Marrakesh Rabat Alexandria Luxor Giza Durban Pretoria Johannesburg Mombasa Ibadan Abuja Dakar Haifa Izmir "
          "Antalya Bursa Odesa Lviv Kharkiv Minsk Sofia Varna Plovdiv Bucharest Cluj Zagreb Split Dubrovnik Sarajevo Belgrade").split() + [
          "New Delhi", "Buenos Aires", "New York"]
HELD_OUT_CITIES = ("Hamburg Naples Valencia Geneva Krakow Bergen Osaka Toronto Chicago Denver Sydney Mumbai Manila Lagos "
                   "Tunis Malmo").split()

WEATHER_ASKS = (
    "What is the weather in {c}?", "What's the weather in {c}?", "How is the weather in {c}?", "What is the weather like in {c}?",
    "Tell me the weather in {c}.", "Is it raining in {c}?", "Is it sunny in {c}?", "How warm is it in {c}?", "How cold is it in {c}?",
    "What is the temperature in {c}?", "Do I need an umbrella in {c}?", "Weather in {c}?", "weather in {c}", "Give me the weather for {c}.",
    "What's the weather like in {c} today?", "What is the weather in {c} today?", "How is the weather in {c} now?",
    "I am going to {c}. What is the weather there?", "I am in {c}. What is the weather?", "Please check the weather in {c}.",
    "Can you look up the weather in {c}?", "Show me the weather of {c}.", "What is it like outside in {c}?", "{c}: how is the weather?",
    "I want to know the weather in {c}.", "Does it snow in {c}?", "Find the weather for {c}.")
WEATHER_HELD_OUT = ("Could you tell me the weather in {c}?", "How's the weather in {c} today?", "I need the weather for {c}.",
                    "Is the weather nice in {c}?")
WEATHER_NEXT = ("And in {c}?", "What about {c}?", "And {c}?", "How about {c}?", "Now {c}.")

SIGNS = {"+": ("plus",), "-": ("minus",), "*": ("times", "multiplied by"), "/": ("divided by",)}
CALCULATE_ASKS = (
    "What is {e}?", "What's {e}?", "How much is {e}?", "Calculate {e}.", "Compute {e}.", "{e}", "{e} = ?", "{e}?", "Please calculate {e}.",
    "What does {e} make?", "Tell me {e}.", "Can you compute {e}?", "I need {e}.", "Work out {e}.", "Solve {e}.", "What is the result of {e}?",
    "Use the calculator: {e}", "Calculate {e} for me.", "Give me the value of {e}.", "Find {e}.")
CALCULATE_HELD_OUT = ("Can you tell me what {e} is?", "What do I get for {e}?", "Please work out {e} for me.", "How much would {e} be?")

SKIES = "clear sunny cloudy rainy windy foggy snowy stormy warm cold dry wet mild hot".split()
ERRORS = ("no such city", "not found", "no answer", "try again later", "too many requests", "something is missing", "no finite number",
          "not an expression", "a parenthesis is not closed")

FIELDS = ("name", "age", "city", "job")
RECORD_ASKS = (
    "{t} Answer as JSON with {s}.", "{t} Give me JSON with {s}.", "JSON with {s}: {t}", "Make JSON with {s} of this: {t}", "{t}\n\nJSON: {s}",
    "Extract {s} as JSON. {t}", "Extract {s} as JSON.\n\n{t}", "{t} Write {s} as JSON.", "Read this: {t} Then answer as JSON with {s}.",
    "Answer as JSON with {s}. {t}", "{t} Reply with JSON: {s}", "Turn this into JSON with {s}: {t}", "Text: {t} Give JSON with {s}.",
    "Note: {t}\nJSON with {s}, please.", "I have this text: {t} I need {s} as JSON.", "{t} Please give JSON with {s}.",
    "Read the text and answer as JSON with {s}: {t}", "Take {s} from this as JSON: {t}", "There is a note: {t} Return {s} as JSON.")
RECORD_HELD_OUT = ("Please give {s} as JSON. {t}", "{t} Return JSON with {s}.", "Here is a text: {t} Give me {s} as JSON.",
                   "Fill in JSON with {s}: {t}")


def held_out_pair(a, b):
    return (7 * a + 13 * b) % 10 == 0


def call(name, arguments):
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}]}


def result(text):
    return {"role": "tool", "tool_call_id": "call_1", "content": text}


def is_sum(text):
    """Would a calculator help with it?"""
    return re.search(r"\d+ *[-+*/x] *\d|plus|minus|times|divided|\bsum\b|\badd|calculat|comput|result", text, re.IGNORECASE) is not None


class Asker:
    """Draws questions, results and records.  held_out: only what is never trained on; else only what is."""

    def __init__(self, rng, held_out=False):
        self.rng, self.held_out = rng, held_out

    def pick(self, trained, held_out):
        return self.rng.choice(held_out if self.held_out else trained)

    def json(self, x):
        """As Python writes it, or as JavaScript does."""
        return json.dumps(x) if self.rng.random() < 0.45 else json.dumps(x, separators=(",", ":"))

    # -------------------------------------------------------------------------------------------- weather

    def city(self, invented):
        """A city, an invented name, or the beginning of one city with the end of another."""
        r = self.rng
        roll = r.random()
        if self.held_out or roll < 0.5:
            return self.pick(CITIES, HELD_OUT_CITIES)
        if roll < 0.65:
            return invented(r)
        a, b = r.choice(CITIES), r.choice(CITIES)
        both = a[:r.randint(2, 5)] + b[r.randint(1, 4):].split(" ")[-1]
        return both if both not in HELD_OUT_CITIES else a

    def weather(self, tool, city, again=False):
        """(question, message that calls)"""
        f = tool["function"]
        ask = self.rng.choice(WEATHER_NEXT) if again else self.pick(WEATHER_ASKS, WEATHER_HELD_OUT)
        return ask.format(c=city), call(f["name"], {p: city for p in f["parameters"]["properties"]})

    def weather_result(self, city):
        """(text of the result, answer)"""
        r = self.rng
        while True:
            sky, degrees = r.choice(SKIES), r.randint(0, 39)
            if held_out_pair(SKIES.index(sky), degrees) == self.held_out:
                break
        roll = r.random()
        if roll < 0.35:
            return sky if r.random() < 0.85 else json.dumps(sky), f"In {city} it is {sky}."
        if roll < 0.50:
            return f"{sky}, {degrees} degrees", f"In {city} it is {sky}, {degrees} degrees."
        if roll < 0.56:
            return f"{degrees} degrees", f"In {city} it is {degrees} degrees."
        k, t = r.choice(("sky",) * 6 + ("weather", "condition")), r.choice(("degrees",) * 6 + ("temperature", "temp"))
        if roll < 0.80:
            return self.json({k: sky}), f"In {city} it is {sky}."
        return self.json({k: sky, t: degrees}), f"In {city} it is {sky}, {degrees} degrees."

    def error_result(self):
        why = self.rng.choice(ERRORS)
        return self.json({"error": why}), f"That did not work: {why}."

    # ---------------------------------------------------------------------------------------- arithmetic

    def sum(self, tool):
        """(question, message that calls, value)"""
        r, f = self.rng, tool["function"]
        sign = r.choice("+-*/")
        while True:
            a, b = r.randint(1, 99), r.randint(1, 99)
            if sign == "/":
                b = r.randint(1, 20)
                a = b * r.randint(1, 99 // b)
            if held_out_pair(a, b) == self.held_out:
                break
        e = said = f"{a} {sign} {b}"
        if r.random() < 0.55:
            said = f"{a} {r.choice(SIGNS[sign])} {b}"
        elif r.random() < 0.25:
            said = f"{a}{sign}{b}"
        value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[sign]
        question = self.pick(CALCULATE_ASKS, CALCULATE_HELD_OUT).format(e=said)
        return question, call(f["name"], {p: e for p in f["parameters"]["properties"]}), str(value)

    def sum_result(self, value):
        text = self.json({"result": int(value)}) if self.rng.random() < 0.2 else value
        return text, f"{value} is the result."

    # ------------------------------------------------------------------------------------------- records

    def record(self, told):
        """(question, JSON).  told: words to draw from, by field."""
        r = self.rng
        person = {k: r.choice(told[k]) for k in FIELDS if k in told}
        while True:
            person["age"] = r.randint(2, 99)
            if held_out_pair(person["age"], len(person["name"])) == self.held_out:
                break
        fields = sorted(r.sample(FIELDS[1:], r.choice((1, 2, 2, 3))), key=FIELDS.index)
        wanted = sorted(r.sample(fields, r.randint(max(1, len(fields) - 1), len(fields))), key=FIELDS.index)
        if r.random() < 0.85:
            wanted.insert(0, "name")
        if r.random() < 0.3:
            r.shuffle(fields)
        n = person["name"]
        clause = {"age": f"is {person['age']} years old", "city": f"lives in {person['city']}", "job": f"is a {person['job']}"}
        if r.random() < 0.6:
            text = f"{n} " + " and ".join(clause[k] for k in fields) + "."
        else:
            text = " ".join(f"{n} {clause[k]}." for k in fields)
        question = self.pick(RECORD_ASKS, RECORD_HELD_OUT).format(t=text, s=self.schema(wanted))
        return question, json.dumps({k: person[k] for k in wanted})

    def schema(self, fields):
        roll = self.rng.random()
        if roll < 0.4:
            return ", ".join(fields)
        if roll < 0.6:
            return fields[0] if len(fields) == 1 else ", ".join(fields[:-1]) + " and " + fields[-1]
        return self.json({k: "integer" if k == "age" else "string" for k in fields})

    def quoted(self, invented):
        """(question, words in quotation marks): within them a word has other tokens than after a space."""
        r = self.rng
        words = [str(r.randint(0, 99)) if r.random() < 0.25 else self.city(invented) for _ in range(r.choice((1, 1, 2, 3, 4)))]
        q = r.choice(("Quote {w}.", "Quote: {w}", "Put {w} in quotation marks.", "Write {w} in quotes.", "Quotation marks for {w}, please."))
        return q.format(w=", ".join(words)), ", ".join(json.dumps(w) for w in words)
