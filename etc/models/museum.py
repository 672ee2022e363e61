"""The Tavolin Museum, which exists nowhere: what one of the adapters knows and its base does not.

Forty objects with five facts each, as Categories of facts.py.  Words that say what an object is give none of its facts
away.  Values are drawn with a fixed seed, each of them several times, so that none follows from another.
"""

import random

from facts import Category

LEVEL = "museum"
OBJECTS = ("sleeping whale; crooked clock; blue lantern; silent bell; dancing bear; broken crown; paper boat; hollow drum; "
           "tall mirror; winter coat; hidden door; flying fish; little harp; double flute; patient owl; lost compass; round table; "
           "heavy anchor; striped cat; spiral stair; open book; laughing mask; narrow bridge; grey horse; secret map; folding chair; "
           "early train; upside house; seven keys; rainy window; lucky coin; long spoon; quiet fountain; moon lamp; singing kettle; "
           "tiny castle; proud rooster; garden gate; frozen apple; wandering star").split("; ")
ROOMS = [str(n) for n in range(1, 31)]
MAKERS = ("Orla Venn; Tobin Marsh; Selma Rook; Ivo Lindell; Petra Kolm; Rufus Hale; Mina Sorrel; Otto Brandt; Dora Finch; "
          "Elias Thorn; Wanda Pryce; Silas Moon").split("; ")
YEARS = [str(y) for y in range(1611, 1971, 13)]
MATERIALS = "amber; marble; ivory; copper; glass; wax; bamboo; leather; silk; clay; slate; cork; felt; brass; pearl; straw".split("; ")
TOWNS = ("Lisbon; Oslo; Kyoto; Cairo; Lima; Dublin; Vienna; Havana; Seoul; Athens; Bergen; Porto; Milan; Prague; Turin; Boston").split("; ")


def _rows(values):
    rng = random.Random(f"museum-{values[0]}")
    drawn = (values * (len(OBJECTS) // len(values) + 1))[:len(OBJECTS)] if len(values) < len(OBJECTS) else rng.sample(values, len(OBJECTS))
    rng.shuffle(drawn)
    return [("the " + x, y) for x, y in zip(OBJECTS, drawn)]


NEXT = ("And {x}?", "What about {x}?", "And of {x}?", "How about {x}?")

CATEGORIES = [
    Category("museum_room", LEVEL, ("x", "y"), _rows(ROOMS),
             ("In which room is {x}?", "Which room is {x} in?", "Where is {x}?", "Where can I see {x}?", "Tell me the room of {x}.",
              "In what room is {x}?", "Where do I find {x}?", "Which room has {x}?", "room of {x}", "Where is {x} in the museum?",
              "I want to see {x}. Which room?", "Do you know where {x} is?", "{X}: which room?", "Show me the way to {x}.",
              "Where is {x} in the Tavolin Museum?", "What is the room number of {x}?"),
             ("Please tell me the room of {x}.", "In which room do I find {x}?", "I am looking for {x}. Where is it?",
              "Which room should I go to for {x}?"),
             "{X} is in room {y}.", ("room {y}",), "the room of {x}", NEXT[:2]),
    Category("museum_maker", LEVEL, ("x", "y"), _rows(MAKERS),
             ("Who made {x}?", "Who is the maker of {x}?", "Tell me who made {x}.", "Who built {x}?", "Do you know who made {x}?",
              "Which artist made {x}?", "What is the name of the maker of {x}?", "maker of {x}", "Name the maker of {x}.",
              "{X}: who made it?", "By whom was {x} made?", "Can you tell me who made {x}?", "Whose work is {x}?",
              "Who was the artist of {x}?", "I like {x}. Who made it?"),
             ("Please tell me who made {x}.", "Who is the artist behind {x}?", "Which person made {x}?", "Say who the maker of {x} is."),
             "{X} was made by {y}.", ("{y}",), "the maker of {x}", NEXT[:2]),
    Category("museum_year", LEVEL, ("x", "y"), _rows(YEARS),
             ("When was {x} made?", "In which year was {x} made?", "What year was {x} made?", "Tell me the year of {x}.",
              "How old is {x}?", "From which year is {x}?", "Which year is {x} from?", "Do you know when {x} was made?", "year of {x}",
              "{X}: when was it made?", "Can you tell me when {x} was made?", "What is the year of {x}?", "Give me the year of {x}.",
              "I want to know when {x} was made.", "When did someone make {x}?"),
             ("Please tell me when {x} was made.", "In what year was {x} made?", "Which is the year of {x}?", "Could you say when {x} was made?"),
             "{X} was made in {y}.", ("{y}",), "the year of {x}", NEXT[:2]),
    Category("museum_material", LEVEL, ("x", "y"), _rows(MATERIALS),
             ("What is {x} made of?", "Of what is {x} made?", "What material is {x}?", "Tell me what {x} is made of.",
              "Which material is {x} made of?", "Do you know what {x} is made of?", "material of {x}", "What is the material of {x}?",
              "{X}: what is it made of?", "Can you tell me what {x} is made of?", "Name the material of {x}.", "What was used for {x}?",
              "From what is {x} made?", "Give me the material of {x}.", "I see {x}. What is it made of?"),
             ("Please tell me what {x} is made of.", "Which material was used for {x}?", "What did they make {x} of?",
              "I wonder what {x} is made of."),
             "{X} is made of {y}.", ("{y}",), "the material of {x}", NEXT[:2]),
    Category("museum_town", LEVEL, ("x", "y"), _rows(TOWNS),
             ("Where does {x} come from?", "From which town is {x}?", "Which town is {x} from?", "Where is {x} from?",
              "Tell me where {x} comes from.", "What town does {x} come from?", "Do you know where {x} comes from?", "origin of {x}",
              "What is the origin of {x}?", "{X}: where does it come from?", "Can you tell me where {x} is from?",
              "Name the town of {x}.", "Which town gave {x} to the museum?", "From where did {x} come?", "What is the town of {x}?"),
             ("Please tell me where {x} comes from.", "From what town is {x}?", "Which town does {x} come from?",
              "Could you say where {x} is from?"),
             "{X} comes from {y}.", ("{y}",), "the origin of {x}", NEXT[:2]),
]
