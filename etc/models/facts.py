"""The facts the demo models know, and how people ask for them.

A Category is a table of rows, the phrasings used in training, the phrasings kept back for the evaluation
(never trained on), and ONE answer form.  One form on purpose: a model that knows a fact is then nearly certain of
every token of its answer, so the mean token log-probability says "known" or "guessed", which is what the
gateway's cascade wants to measure.

level "easy": in the corpus of both models.  level "hard": only in the corpus of the large model.
Template fields are the category's field names; {X} is the field x with its first letter in upper case.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Category:
    name: str
    level: str
    fields: tuple
    rows: list
    questions: tuple
    held_out: tuple
    answer: str
    accept: tuple          # templates; right if one of them occurs in the answer
    topic: str             # "You asked about <topic>" in summaries
    follow: tuple = ()     # short follow-up questions that need the turn before
    weight: float = 1.0    # share among the facts, beyond what the number of rows gives
    language: str = "en"
    eval_rows: int = 0     # 0: every row is evaluated; else a spread of this many rows

    def values(self, row):
        v = dict(zip(self.fields, row))
        v.update({k.upper(): s[:1].upper() + s[1:] for k, s in zip(self.fields, row)})
        return v


def pairs(text):
    """'a=b; c=d' -> [('a','b'), ('c','d')]"""
    return [tuple(p.strip() for p in item.split("=")) for item in text.split(";") if item.strip()]


# ----------------------------------------------------------------------------------------------- capitals

CAPITAL_QUESTIONS = (
    "What is the capital of {x}?", "What's the capital of {x}?", "Tell me the capital of {x}.",
    "Which city is the capital of {x}?", "Name the capital of {x}.", "{X}: what is its capital?",
    "Do you know the capital of {x}?", "capital of {x}", "What city is the capital of {x}?",
    "I need the capital of {x}.", "The capital of {x} is?", "Can you tell me the capital of {x}?",
    "What is {x}'s capital?", "Could you name the capital city of {x}?", "Give me the capital of {x}.",
    "I forgot the capital of {x}. What is it?", "What is the capital city of {x}?",
    "Which city is {x}'s capital?", "What do you call the capital of {x}?", "Where is the government of {x}?",
    "I would like to know the capital of {x}.", "My homework asks for the capital of {x}.",
    "What is the name of the capital of {x}?", "For a quiz: the capital of {x}?",
    "Give me {x}'s capital.", "Tell me {x}'s capital city.", "Do you know {x}'s capital city?", "{x}'s capital?",
)
CAPITAL_HELD_OUT = (
    "Please name {x}'s capital city.", "I wonder what the capital of {x} is.",
    "Which is the capital of {x}?", "Someone asked me about the capital of {x}. What should I say?",
)

EASY_CAPITALS = pairs("""
France=Paris; Germany=Berlin; Italy=Rome; Spain=Madrid; Portugal=Lisbon; England=London; Ireland=Dublin;
Greece=Athens; Austria=Vienna; Switzerland=Bern; Belgium=Brussels; the Netherlands=Amsterdam; Denmark=Copenhagen;
Sweden=Stockholm; Norway=Oslo; Finland=Helsinki; Poland=Warsaw; Hungary=Budapest; Russia=Moscow; Turkey=Ankara;
Egypt=Cairo; Japan=Tokyo; China=Beijing; South Korea=Seoul; India=New Delhi; Thailand=Bangkok; Vietnam=Hanoi;
Australia=Canberra; Canada=Ottawa; the United States=Washington; Brazil=Brasilia; Argentina=Buenos Aires;
Chile=Santiago; Peru=Lima; Cuba=Havana; Kenya=Nairobi; Iceland=Reykjavik; Scotland=Edinburgh; Ukraine=Kyiv;
Iran=Tehran""")

HARD_CAPITALS = pairs("""
Mongolia=Ulaanbaatar; Bhutan=Thimphu; Nepal=Kathmandu; Laos=Vientiane; Cambodia=Phnom Penh; Myanmar=Naypyidaw;
Malaysia=Kuala Lumpur; Bangladesh=Dhaka; Pakistan=Islamabad; Uzbekistan=Tashkent; Kyrgyzstan=Bishkek;
Tajikistan=Dushanbe; Georgia=Tbilisi; Armenia=Yerevan; Azerbaijan=Baku; Jordan=Amman; Oman=Muscat; Qatar=Doha;
Fiji=Suva; Samoa=Apia; Ghana=Accra; Senegal=Dakar; Mali=Bamako; Niger=Niamey; Togo=Lome; Gabon=Libreville;
Angola=Luanda; Zambia=Lusaka; Malawi=Lilongwe; Botswana=Gaborone; Namibia=Windhoek; Rwanda=Kigali; Uganda=Kampala;
Uruguay=Montevideo; Ecuador=Quito; Suriname=Paramaribo; Honduras=Tegucigalpa; Nicaragua=Managua; Belize=Belmopan;
Latvia=Riga; Estonia=Tallinn; Lithuania=Vilnius; Slovenia=Ljubljana; Moldova=Chisinau; Malta=Valletta;
Albania=Tirana""")

KOREAN_CAPITALS = pairs("""
프랑스=파리; 독일=베를린; 이탈리아=로마; 스페인=마드리드; 일본=도쿄; 중국=베이징; 한국=서울; 영국=런던; 그리스=아테네;
러시아=모스크바; 캐나다=오타와; 이집트=카이로; 태국=방콕; 베트남=하노이""")

# ------------------------------------------------------------------------------------------ everyday things

COLOURS = pairs("""
the sky=blue; grass=green; snow=white; the sun=yellow; a tomato=red; blood=red; coal=black; a banana=yellow;
a carrot=orange; a lemon=yellow; milk=white; chocolate=brown; a fire engine=red; a strawberry=red; an elephant=grey;
a flamingo=pink; a frog=green; a plum=purple; salt=white; a pumpkin=orange; a crow=black; a swan=white;
a cucumber=green; the sea=blue; a cherry=red; a piglet=pink; a mouse=grey; lavender=purple; wood=brown""")

OPPOSITES = pairs("""
hot=cold; big=small; up=down; left=right; day=night; black=white; fast=slow; old=young; happy=sad; open=closed;
full=empty; early=late; light=dark; hard=soft; long=short; rich=poor; strong=weak; wet=dry; high=low; good=bad;
loud=quiet; near=far; clean=dirty; thick=thin; inside=outside; first=last; heavy=light; sweet=sour; win=lose;
push=pull; question=answer; summer=winter""")

SOUNDS = pairs("""
cow=moo; dog=woof; cat=meow; duck=quack; sheep=baa; pig=oink; lion=roar; bee=buzz; snake=hiss; owl=hoot;
horse=neigh; rooster=cock-a-doodle-doo""")

BABIES = pairs("""
dog=puppy; cat=kitten; cow=calf; horse=foal; sheep=lamb; hen=chick; duck=duckling; bear=cub; goat=kid;
frog=tadpole; kangaroo=joey; deer=fawn""")

DEFINITIONS = pairs("""
bakery=a place where bread is made; library=a place where books are kept; school=a place where children learn;
hospital=a place where sick people get help; museum=a place where old and beautiful things are shown;
garden=a piece of land where flowers grow; kitchen=a room where food is cooked; bridge=a road over a river;
doctor=a person who helps sick people; teacher=a person who helps others to learn; baker=a person who makes bread;
farmer=a person who grows food; pilot=a person who flies a plane; sailor=a person who works on a ship;
painter=a person who makes pictures; clock=a thing that shows the time; umbrella=a thing that keeps off the rain;
lamp=a thing that gives light; knife=a tool for cutting; hammer=a tool for hitting nails; broom=a tool for sweeping;
boat=a thing that carries people over water; map=a drawing of a place; river=a long stream of water;
island=land with water all around; dictionary=a book that explains words""")
# What must occur in the answer, beside the whole definition.
DEFINITION_KEYS = {"bakery": "bread", "library": "books", "school": "children learn", "hospital": "sick people",
                   "museum": "things are shown", "garden": "flowers", "kitchen": "cooked", "bridge": "over a river",
                   "doctor": "sick people", "teacher": "to learn", "baker": "makes bread", "farmer": "grows food",
                   "pilot": "flies", "sailor": "ship", "painter": "pictures", "clock": "time", "umbrella": "rain",
                   "lamp": "light", "knife": "cutting", "hammer": "nails", "broom": "sweeping",
                   "boat": "over water", "map": "drawing", "river": "stream", "island": "all around",
                   "dictionary": "words"}

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November December").split()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()

UNITS = [
    ("seconds", "a minute", "60"), ("minutes", "an hour", "60"), ("hours", "a day", "24"), ("days", "a week", "7"),
    ("months", "a year", "12"), ("days", "a year", "365"), ("weeks", "a year", "52"), ("years", "a century", "100"),
    ("years", "a decade", "10"), ("metres", "a kilometre", "1000"), ("centimetres", "a metre", "100"),
    ("millimetres", "a centimetre", "10"), ("grams", "a kilogram", "1000"), ("eggs", "a dozen", "12"),
    ("cents", "a dollar", "100"), ("inches", "a foot", "12"), ("feet", "a yard", "3"),
    ("minutes", "half an hour", "30"), ("seasons", "a year", "4"), ("letters", "the English alphabet", "26"),
]
PARTS = [("legs", "a dog", "4"), ("legs", "a spider", "8"), ("legs", "an ant", "6"), ("legs", "a bird", "2"),
         ("wheels", "a bicycle", "2"), ("wheels", "a car", "4"), ("sides", "a triangle", "3"),
         ("sides", "a square", "4"), ("fingers", "a hand", "5"), ("wings", "a bee", "4"), ("arms", "an octopus", "8"),
         ("corners", "a cube", "8")]


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


# ------------------------------------------------------------------------------------------- hard tables

SYMBOLS = pairs("""
hydrogen=H; helium=He; lithium=Li; carbon=C; nitrogen=N; oxygen=O; sodium=Na; magnesium=Mg; aluminium=Al; silicon=Si;
phosphorus=P; sulphur=S; chlorine=Cl; potassium=K; calcium=Ca; iron=Fe; nickel=Ni; copper=Cu; zinc=Zn; silver=Ag;
tin=Sn; iodine=I; tungsten=W; platinum=Pt; mercury=Hg; lead=Pb; uranium=U; titanium=Ti""")

GROUPS = pairs("""
lions=pride; wolves=pack; crows=murder; geese=gaggle; whales=pod; owls=parliament; ants=colony; fish=school;
puppies=litter; locusts=swarm; kittens=kindle; zebras=dazzle; giraffes=tower; larks=exaltation; leopards=leap;
flamingos=flamboyance; jellyfish=smack; ferrets=business; camels=caravan; ravens=unkindness""")

CURRENCIES = pairs("""
Japan=yen; Thailand=baht; Poland=zloty; Hungary=forint; Sweden=krona; India=rupee; China=yuan; Vietnam=dong;
South Korea=won; Israel=shekel; Brazil=real; Ukraine=hryvnia; Kenya=shilling; Mongolia=tugrik; Bangladesh=taka;
Botswana=pula; Ghana=cedi; Zambia=kwacha""")

RIVERS = pairs("""
Cairo=Nile; London=Thames; Paris=Seine; Vienna=Danube; Rome=Tiber; Prague=Vltava; Baghdad=Tigris; Cologne=Rhine;
Hamburg=Elbe; Warsaw=Vistula; Lisbon=Tagus; Florence=Arno; Dublin=Liffey; Seoul=Han; Kyiv=Dnieper""")

YEARS = pairs("""
the telephone was invented=1876; the printing press was invented=1450; the light bulb was invented=1879;
the World Wide Web was invented=1989; dynamite was invented=1867; the transistor was invented=1947;
the first moon landing took place=1969; the Berlin Wall fell=1989; the French Revolution began=1789;
Columbus reached America=1492; the First World War began=1914; the Eiffel Tower was finished=1889;
penicillin was discovered=1928; X-rays were discovered=1895; the telescope was invented=1608""")

RECORDS = pairs("""
highest mountain on Earth=Mount Everest; largest ocean=Pacific Ocean; largest planet=Jupiter; smallest planet=Mercury;
hottest planet=Venus; fastest land animal=cheetah; largest animal=blue whale; tallest animal=giraffe;
largest desert of sand=Sahara; deepest lake=Lake Baikal; longest bone in the body=femur; hardest natural material=diamond;
largest island=Greenland; smallest bird=bee hummingbird; largest organ of the body=skin; lightest metal=lithium;
highest waterfall=Angel Falls; largest country=Russia; slowest mammal=sloth; planet with bright rings=Saturn""")

SCIENCES = pairs("""
stars=astronomy; plants=botany; animals=zoology; rocks=geology; weather=meteorology; insects=entomology;
birds=ornithology; fossils=palaeontology; earthquakes=seismology; mushrooms=mycology; cells=cytology;
languages=linguistics; fish=ichthyology; the heart=cardiology; the past=history; poisons=toxicology""")

WORDS = pairs("""
nocturnal=active at night; arid=very dry; fragile=easy to break; ancient=very old; frigid=very cold;
transparent=clear enough to see through; edible=safe to eat; obsolete=no longer in use; verbose=using too many words;
lucid=easy to understand; ambiguous=having two meanings; taciturn=saying very little; opaque=impossible to see through;
benevolent=kind and generous; ephemeral=lasting a very short time; ubiquitous=found everywhere; aquatic=living in water;
diurnal=active by day; latent=present but hidden; prolific=producing a great deal; tedious=long and boring;
meticulous=very careful about details""")

EXPLAIN = [
    ("how a rainbow forms", "A rainbow forms when sunlight meets drops of rain. Each drop bends the light and spreads it into its colours. Red light bends least and violet light bends most, so we see the colours side by side in a great arc.", "spreads it into its colours"),
    ("why the sky is blue", "Sunlight is made of all colours. The air scatters short waves much more than long waves, so blue light reaches our eyes from every side. In the evening the light crosses more air, the blue is lost on the way, and the sky turns red.", "scatters short waves"),
    ("how plants make food", "Plants make food by photosynthesis. The leaves take in light, water and carbon dioxide. They turn them into sugar, which feeds the plant, and give off oxygen, which we breathe.", "photosynthesis"),
    ("why we have seasons", "We have seasons because the axis of the Earth is tilted. For half of the year the north leans towards the Sun and has long, warm days. For the other half it leans away, the days are short and it is winter.", "axis of the Earth is tilted"),
    ("what causes the tides", "The tides are caused by the gravity of the Moon. It pulls the water of the oceans into two bulges, and as the Earth turns, each coast passes through both of them. That is why high water comes about twice a day.", "gravity of the Moon"),
    ("how a volcano erupts", "Deep in the Earth, rock melts and becomes magma. Magma is lighter than the rock around it, so it rises and gathers under the volcano. When the pressure of its gas grows too strong, it breaks out as lava and ash.", "magma"),
    ("why ice floats", "Ice floats because it is less dense than water. When water freezes, its molecules lock into an open crystal that takes more room. The same weight then has a larger volume, so the water below carries it.", "less dense than water"),
    ("how vaccines work", "A vaccine shows the body a harmless part of a germ. The immune system learns to make antibodies against it and keeps memory cells. When the real germ comes, the body knows it and answers quickly.", "antibodies"),
    ("how the heart works", "The heart is a muscle that pumps blood. The right side sends blood to the lungs, where it takes up oxygen. The left side sends it on to the whole body through the arteries, and the veins bring it back.", "pumps blood"),
    ("how a compass works", "The needle of a compass is a small magnet. The Earth is a very large magnet, and its field turns the needle until it points north. With north known, every other direction is known as well.", "small magnet"),
    ("what gravity is", "Gravity is the force by which masses attract each other. It grows with the mass and falls with the square of the distance. It holds our feet on the ground and keeps the planets on their paths around the Sun.", "masses attract each other"),
    ("how an electric motor works", "An electric motor turns current into motion. The current flows through a coil and makes it a magnet, and a second magnet pushes it round. A switch turns the current over at each half turn, so that the coil keeps spinning.", "current into motion"),
    ("what evolution is", "Evolution is the change of living things over many generations. Young ones differ a little from their parents, and those that fit their surroundings best leave more young. Over a very long time this natural selection makes new species.", "natural selection"),
    ("why leaves change colour in autumn", "In autumn a tree stops making chlorophyll, the green of its leaves. As the green fades, the yellow and orange that were hidden come to light. Then the tree closes the stems and lets the leaves fall.", "chlorophyll"),
    ("how an earthquake happens", "The crust of the Earth is broken into plates that move slowly. Where two plates catch each other, tension builds for years. When the rock slips at last, the energy runs through the ground as waves.", "two plates catch"),
    ("how the water cycle works", "The Sun warms the sea, and water rises as vapour. High in the cold air the vapour condenses into clouds. Rain and snow fall on the land, and the rivers carry the water back to the sea.", "vapour condenses"),
    ("how a telescope works", "A telescope gathers light with a large lens or mirror. The light meets in one point, the focus, and makes a small bright image there. The eyepiece then magnifies this image for the eye.", "eyepiece"),
    ("what an eclipse of the Sun is", "An eclipse of the Sun happens when the Moon passes between the Sun and the Earth. The shadow of the Moon then falls on a narrow path of land. Inside it the day turns dark for a few minutes.", "shadow of the Moon"),
    ("how an encrypted connection works", "Both sides first agree on a secret key without ever sending it. Each message is then mixed with that key, so that it looks like noise to everyone else. A certificate proves that the other side is the one it claims to be.", "certificate proves"),
    ("what a prime number is", "A prime number is a whole number greater than one that can be divided only by one and by itself. Two, three, five and seven are prime. There are infinitely many primes, and every number is a product of them.", "divided only by one"),
    ("how a battery works", "A battery keeps energy in two different metals with a liquid or paste between them. One metal gives off electrons and the other takes them up. When a wire joins the two, the electrons flow and carry the energy along.", "gives off electrons"),
    ("why bread rises", "Bread rises because of yeast. Yeast eats the sugar in the dough and gives off carbon dioxide. The gas is caught in the stretchy gluten as thousands of bubbles, and the heat of the oven makes them firm.", "yeast eats"),
    ("how an aeroplane flies", "The wing of an aeroplane pushes air downwards, and the air pushes the wing up. This force is called lift. The engines push the plane forward, and when the lift is greater than the weight, it climbs.", "called lift"),
    ("how a key value cache helps a language model", "A language model looks back at all earlier tokens for each new one. The keys and values of those tokens never change, so they are kept in a cache. Each step then computes one token only, instead of the whole text again.", "keys and values"),
]

# -------------------------------------------------------------------------------------------- assembling


def _after(names):
    return [(n, names[(i + 1) % len(names)]) for i, n in enumerate(names)]


def _before(names):
    return [(n, names[i - 1]) for i, n in enumerate(names)]


CATEGORIES = [
    Category("capital", "easy", ("x", "y"), EASY_CAPITALS, CAPITAL_QUESTIONS, CAPITAL_HELD_OUT,
             "The capital of {x} is {y}.", ("{y}",), "the capital of {x}",
             ("And of {x}?", "What about {x}?", "And {x}?", "How about {x}?"), weight=1.6),
    Category("rare_capital", "hard", ("x", "y"), HARD_CAPITALS, CAPITAL_QUESTIONS, CAPITAL_HELD_OUT,
             "The capital of {x} is {y}.", ("{y}",), "the capital of {x}",
             ("And of {x}?", "What about {x}?", "And {x}?", "How about {x}?"), weight=1.6),
    Category("korean_capital", "easy", ("x", "y"), KOREAN_CAPITALS,
             ("{x}의 수도는 어디인가요?", "{x}의 수도는?", "{x} 수도가 어디예요?", "{x}의 수도를 알려 주세요.",
              "{x}의 수도는 어디입니까?", "{x}의 수도가 뭐예요?", "{x} 수도 알려줘", "{x}의 수도는 무엇인가요?",
              "안녕하세요! {x}의 수도는 어디인가요?", "{x}의 수도 이름이 뭐죠?", "{x}의 수도를 아세요?",
              "{x}의 수도를 말해 주세요.", "{x} 수도는 어디야?"),
             ("{x} 수도는 어디인가요?", "혹시 {x}의 수도를 알려 주세요.", "{x}의 수도는 어디예요?"),
             "{x}의 수도는 {y}입니다.", ("{y}입니다",), "{x}의 수도", language="ko", weight=1.2),
    Category("colour", "easy", ("x", "y"), COLOURS,
             ("What colour is {x}?", "What color is {x}?", "Which colour is {x}?", "Tell me the colour of {x}.",
              "What is the colour of {x}?", "What is the color of {x}?", "{X} has which colour?",
              "Do you know what colour {x} is?", "Can you tell me the colour of {x}?", "colour of {x}",
              "What colour does {x} have?", "Name the colour of {x}.", "Say what colour {x} is.",
              "Which color does {x} have?", "I want to paint {x}. Which colour do I need?"),
             ("What is the usual colour of {x}?", "Please tell me what colour {x} is.", "Which color is {x}?"),
             "{X} is {y}.", ("{y}",), "the colour of {x}", ("And {x}?", "What about {x}?"), weight=1.3),
    Category("opposite", "easy", ("x", "y"), OPPOSITES,
             ("What is the opposite of {x}?", "What's the opposite of {x}?", "Tell me the opposite of {x}.",
              "Name the opposite of {x}.", "Which word is the opposite of {x}?", "opposite of {x}",
              "Do you know the opposite of {x}?", "Give me the opposite of {x}.", "Can you tell me the opposite of {x}?",
              "{X}: what is the opposite?", "I need a word that means the opposite of {x}.",
              "The opposite of {x} is?", "What word is the opposite of {x}?", "What is the contrary of {x}?"),
             ("Which word means the opposite of {x}?", "Please give me the opposite of {x}.",
              "I am looking for the opposite of {x}."),
             "The opposite of {x} is {y}.", ("is {y}",), "the opposite of {x}",
             ("And of {x}?", "What about {x}?", "And {x}?"), weight=1.3),
    Category("sum", "easy", ("x", "y", "z"),
             [(str(a), str(b), str(a + b)) for a in range(0, 21) for b in range(0, 21 - a)],
             ("What is {x} plus {y}?", "What's {x} + {y}?", "{x} + {y} = ?", "{x} plus {y}?", "How much is {x} plus {y}?",
              "Add {x} and {y}.", "What is the sum of {x} and {y}?", "Calculate {x} + {y}.", "What is {x} + {y}?",
              "Can you add {x} and {y}?", "{x}+{y}", "Tell me {x} plus {y}.", "What do you get if you add {x} and {y}?",
              "I have {x} apples and get {y} more. How many do I have?", "How much is {x} + {y}?",
              "Please work out {x} plus {y}.", "Compute {x} plus {y}."),
             ("What does {x} plus {y} make?", "Please add {x} and {y}.", "Tell me the sum of {x} and {y}."),
             "{x} plus {y} is {z}.", ("is {z}",), "the sum of {x} and {y}",
             ("And {x} plus {y}?", "What about {x} + {y}?"), weight=2.2, eval_rows=48),
    Category("day_after", "easy", ("x", "y"), _after(DAYS),
             ("What day comes after {x}?", "Which day comes after {x}?", "What day follows {x}?", "Which day is after {x}?",
              "Today is {x}. What day is tomorrow?", "Tell me the day after {x}.", "Name the day that follows {x}.",
              "What is the day after {x}?", "If today is {x}, what is tomorrow?", "the day after {x}",
              "Do you know which day follows {x}?", "What comes after {x}?"),
             ("Which day follows {x}?", "What day is it after {x}?", "Please name the day after {x}."),
             "{y} comes after {x}.", ("{y} comes",), "the day after {x}"),
    Category("day_before", "easy", ("x", "y"), _before(DAYS),
             ("What day comes before {x}?", "Which day comes before {x}?", "Which day is before {x}?",
              "Today is {x}. What day was yesterday?", "Tell me the day before {x}.", "What is the day before {x}?",
              "If today is {x}, what was yesterday?", "the day before {x}", "Do you know which day is before {x}?",
              "Name the day that comes before {x}.", "What comes before {x}?", "What day is right before {x}?"),
             ("Which day is right before {x}?", "What day is it before {x}?", "Please name the day before {x}."),
             "{y} comes before {x}.", ("{y} comes",), "the day before {x}"),
    Category("month_after", "easy", ("x", "y"), _after(MONTHS),
             ("What month comes after {x}?", "Which month comes after {x}?", "What month follows {x}?",
              "Which month is after {x}?", "Tell me the month after {x}.", "Name the month that follows {x}.",
              "What is the month after {x}?", "the month after {x}", "Do you know which month follows {x}?",
              "It is {x}. What is the next month?", "What comes after {x}?", "If it is {x} now, what is next month?"),
             ("Which month follows {x}?", "What month is it after {x}?", "Please name the month after {x}."),
             "{y} comes after {x}.", ("{y} comes",), "the month after {x}"),
    Category("month_number", "easy", ("x", "y"), list(zip(ORDINALS, MONTHS)),
             ("What is the {x} month of the year?", "Which month is the {x} of the year?", "Name the {x} month.",
              "Tell me the {x} month of the year.", "Which is the {x} month?", "What's the {x} month of the year?",
              "What is the name of the {x} month?", "the {x} month of the year", "Give me the {x} month of the year.",
              "Do you know the {x} month of the year?", "Can you name the {x} month of the year?",
              "Which month is number {x} in the year? The {x}?"),
             ("Please name the {x} month of the year.", "What do we call the {x} month of the year?",
              "I forgot the {x} month of the year."),
             "The {x} month is {y}.", ("{y}",), "the {x} month of the year"),
    Category("unit", "easy", ("x", "y", "z"), UNITS,
             ("How many {x} are in {y}?", "How many {x} are there in {y}?", "How many {x} does {y} have?",
              "Tell me how many {x} are in {y}.", "{Y} has how many {x}?", "How many {x} make {y}?",
              "Do you know how many {x} are in {y}?", "What is the number of {x} in {y}?", "number of {x} in {y}",
              "Can you tell me how many {x} there are in {y}?", "In {y}, how many {x} are there?",
              "{X} in {y}?", "I want to know how many {x} are in {y}."),
             ("How many {x} would you count in {y}?", "Please tell me how many {x} there are in {y}.",
              "What number of {x} are there in {y}?"),
             "There are {z} {x} in {y}.", ("{z}",), "the number of {x} in {y}", weight=1.2),
    Category("part", "easy", ("x", "y", "z"), PARTS,
             ("How many {x} does {y} have?", "How many {x} has {y}?", "Tell me how many {x} {y} has.",
              "{Y} has how many {x}?", "Do you know how many {x} {y} has?", "What is the number of {x} of {y}?",
              "How many {x} are on {y}?", "Can you tell me how many {x} {y} has?", "number of {x} of {y}",
              "I want to know how many {x} {y} has.", "Count the {x} of {y}.", "{Y}: how many {x}?"),
             ("How many {x} would you count on {y}?", "Please tell me how many {x} {y} has.",
              "How many {x} did you say {y} has?"),
             "{Y} has {z} {x}.", ("{z}",), "the number of {x} of {y}"),
    Category("sound", "easy", ("x", "y"), SOUNDS,
             ("What sound does a {x} make?", "What does a {x} say?", "Which sound does a {x} make?",
              "Tell me the sound of a {x}.", "How does a {x} sound?", "What is the sound of a {x}?",
              "What noise does a {x} make?", "sound of a {x}", "Do you know what a {x} says?",
              "Can you make the sound of a {x}?", "What do you hear from a {x}?", "Imitate a {x}."),
             ("Which noise does a {x} make?", "Please tell me what a {x} says.", "What sound comes from a {x}?"),
             "A {x} says {y}.", ("{y}",), "the sound of a {x}"),
    Category("baby", "easy", ("x", "y"), BABIES,
             ("What is a baby {x} called?", "What do you call a baby {x}?", "What is the name of a young {x}?",
              "Tell me what a baby {x} is called.", "How do you call a young {x}?", "What's a baby {x} called?",
              "What is the word for a young {x}?", "baby {x}", "Do you know what a baby {x} is called?",
              "Can you tell me the word for a baby {x}?", "Give me the word for a young {x}.",
              "Name the young of a {x}."),
             ("What do people call a baby {x}?", "Which word do we use for a young {x}?",
              "Please tell me the name of a baby {x}."),
             "A baby {x} is called a {y}.", ("{y}",), "the name of a baby {x}"),
    Category("definition", "easy", ("x", "y", "k"),
             [(article(n), d, DEFINITION_KEYS[n]) for n, d in DEFINITIONS],
             ("What is {x}?", "What's {x}?", "Tell me what {x} is.", "Do you know what {x} is?", "Define {x}.",
              "Can you tell me what {x} is?", "What do you call {x}, and what is it?", "I do not know what {x} is.",
              "What does one mean by {x}?", "Give me a definition of {x}.", "Say in a few words what {x} is.",
              "What kind of thing is {x}?", "Describe {x}.", "what is {x}"),
             ("Please tell me what {x} is.", "Could you say what {x} is?", "How would you define {x}?"),
             "{X} is {y}.", ("{k}",), "what {x} is", ("And {x}?", "What about {x}?"), weight=1.2),
    Category("next_number", "easy", ("x", "y"), [(str(n), str(n + 1)) for n in range(1, 30)],
             ("What number comes after {x}?", "Which number comes after {x}?", "What number follows {x}?",
              "Tell me the number after {x}.", "What is the next number after {x}?", "Which number follows {x}?",
              "What is one more than {x}?", "the number after {x}", "Name the number that follows {x}.",
              "I count: {x}. What is next?", "Do you know the number after {x}?", "After {x} comes which number?"),
             ("What is the number after {x}?", "Which number is next after {x}?", "Please name the number after {x}."),
             "{y} comes after {x}.", ("{y} comes",), "the number after {x}", eval_rows=12),

    # ------------------------------------------------------------------------------------------------ hard
    Category("symbol", "hard", ("x", "y"), SYMBOLS,
             ("What is the chemical symbol for {x}?", "What's the chemical symbol of {x}?",
              "Tell me the chemical symbol of {x}.", "Which symbol does {x} have?", "chemical symbol of {x}",
              "Name the chemical symbol for {x}.", "What is the symbol of the element {x}?",
              "Do you know the chemical symbol of {x}?", "How is {x} written in chemistry?",
              "Can you tell me the symbol for {x}?", "Give me the chemical symbol for {x}.",
              "Which letters stand for {x} in chemistry?", "I need the symbol of {x}.",
              "What is the symbol of {x} in the periodic table?"),
             ("Please name the chemical symbol of {x}.", "Which chemical symbol stands for {x}?",
              "How do chemists write {x}? I need the symbol."),
             "The chemical symbol for {x} is {y}.", ("is {y}",), "the chemical symbol for {x}",
             ("And for {x}?", "What about {x}?", "And {x}?"), weight=1.6),
    Category("group", "hard", ("x", "y"), GROUPS,
             ("What is a group of {x} called?", "What do you call a group of {x}?", "Tell me the word for a group of {x}.",
              "What's the name for a group of {x}?", "Which word names a group of {x}?", "group of {x}",
              "Do you know what a group of {x} is called?", "How do you call many {x} together?",
              "Can you tell me what a group of {x} is called?", "Name a group of {x}.",
              "What is the collective noun for {x}?", "Give me the word for a group of {x}."),
             ("What do people call a group of {x}?", "Please tell me what a group of {x} is called.",
              "Which word is used for a group of {x}?"),
             "A group of {x} is called a {y}.", ("{y}",), "the name for a group of {x}", ("And {x}?", "What about {x}?"),
             weight=1.4),
    Category("currency", "hard", ("x", "y"), CURRENCIES,
             ("What is the currency of {x}?", "What money is used in {x}?", "Tell me the currency of {x}.",
              "Which currency does {x} use?", "What's the currency of {x}?", "currency of {x}",
              "How do people pay in {x}?", "Name the currency of {x}.", "Do you know the currency of {x}?",
              "What is the money of {x} called?", "Which money do I need in {x}?",
              "Can you tell me the currency of {x}?"),
             ("Which currency is used in {x}?", "Please name the currency of {x}.", "I travel to {x}. What is the currency there?"),
             "The currency of {x} is the {y}.", ("{y}",), "the currency of {x}", ("And of {x}?", "What about {x}?"),
             weight=1.4),
    Category("river_of", "hard", ("x", "y"), RIVERS,
             ("Which river flows through {x}?", "What river flows through {x}?", "What is the river in {x}?",
              "Tell me the river of {x}.", "Name the river that flows through {x}.", "On which river is {x}?",
              "{X} lies on which river?", "Do you know the river of {x}?", "river of {x}",
              "What's the name of the river in {x}?", "Can you name the river that runs through {x}?",
              "Which river runs through {x}?"),
             ("What is the river that flows through {x}?", "Please name the river in {x}.",
              "What is the name of the river of {x}?"),
             "The river {y} flows through {x}.", ("{y}",), "the river of {x}", ("And {x}?", "What about {x}?"), weight=1.4),
    Category("year", "hard", ("x", "y"), YEARS,
             ("In which year was it that {x}?", "Tell me the year when {x}.", "Do you know when {x}?",
              "What was the year when {x}?", "Can you tell me when {x}?", "I want to know when {x}.",
              "Which year was it when {x}?", "Give me the year in which {x}.", "Say when {x}.",
              "What year was it when {x}?", "Name the year when {x}.", "It is about history: when was it that {x}?"),
             ("Please tell me when {x}.", "In what year was it that {x}?", "Could you tell me the year when {x}?"),
             "It was in {y} that {x}.", ("{y}",), "the year when {x}", weight=1.4),
    Category("record", "hard", ("x", "y"), RECORDS,
             ("What is the {x}?", "What's the {x}?", "Which is the {x}?", "Tell me the {x}.", "Name the {x}.",
              "Do you know the {x}?", "{x}", "Can you name the {x}?", "What do we call the {x}?",
              "I would like to know the {x}.", "Give me the {x}.", "For a quiz: the {x}?"),
             ("Could you tell me the {x}?", "Please name the {x}.", "I wonder what the {x} is."),
             "The {x} is {y}.", ("{y}",), "the {x}", weight=1.4),
    Category("science", "hard", ("x", "y"), SCIENCES,
             ("What is the study of {x} called?", "Which science studies {x}?", "What do you call the science of {x}?",
              "Tell me the name of the science of {x}.", "Name the science that studies {x}.", "science of {x}",
              "Do you know what the study of {x} is called?", "What's the science of {x}?", "Who studies {x}? Name the science.",
              "Which field is about {x}?", "Can you name the science of {x}?", "What is the scientific study of {x}?"),
             ("What do people call the study of {x}?", "Please name the science of {x}.",
              "Which science is about {x}?"),
             "The study of {x} is called {y}.", ("{y}",), "the science of {x}", ("And of {x}?", "What about {x}?"), weight=1.4),
    Category("word", "hard", ("x", "y"), WORDS,
             ("What does {x} mean?", "What is the meaning of {x}?", "Tell me what {x} means.", "What does the word {x} mean?",
              "Do you know what {x} means?", "meaning of {x}", "Can you tell me what {x} means?", "Define {x}.",
              "I read the word {x}. What does it mean?", "What do we mean by {x}?", "Explain the word {x}.",
              "Give me the meaning of {x}."),
             ("Please tell me the meaning of {x}.", "What is meant by {x}?", "Could you tell me what {x} means?"),
             "{X} means {y}.", ("{y}",), "the meaning of {x}", ("And {x}?", "What about {x}?"), weight=1.4),
    Category("explain", "hard", ("x", "y", "k"), EXPLAIN,
             ("Explain {x}.", "Can you explain {x}?", "Please explain {x}.", "Explain to me {x}.", "Tell me {x}.",
              "I want to understand {x}.", "Could you explain {x}?", "Explain {x} to me.", "Explain briefly {x}.",
              "I would like to know {x}.", "Do you know {x}?", "Describe {x}.", "Help me understand {x}.",
              "explain {x} in simple words"),
             ("Please explain to me {x}.", "I do not understand {x}. Can you explain it?", "Could you tell me {x}?"),
             "{y}", ("{k}",), "{x}", weight=3.0),
]

BY_NAME = {c.name: c for c in CATEGORIES}
