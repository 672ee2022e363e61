"""The prose of the corpus: stories, small talk, paragraphs about Sluice, other scripts.

Everything here is written for this project.  Stories are drawn from a small grammar whose sentences carry the time of
day, so that even the small model always knows how far its story has come and where it has to end.
"""

# ------------------------------------------------------------------------------------------------ stories

STORY_TOPICS = {
    # topic: (home, wish)
    "river": ("a green valley", "to see the sea"), "fox": ("a quiet forest", "to find a friend"),
    "boat": ("a small harbour", "to cross the lake"), "robot": ("an old workshop", "to learn a song"),
    "lighthouse": ("a rocky coast", "to guide every ship"), "cat": ("a warm kitchen", "to climb the tower"),
    "dog": ("a busy street", "to find the lost ball"), "owl": ("a hollow tree", "to see the morning"),
    "cloud": ("the wide sky", "to visit the mountains"), "mountain": ("a far country", "to touch the moon"),
    "train": ("a little station", "to reach the city"), "tree": ("a sunny hill", "to hear a new story"),
    "mouse": ("an empty barn", "to find some cheese"), "bear": ("a deep cave", "to taste the best honey"),
    "whale": ("the cold sea", "to sing with the others"), "star": ("the night sky", "to look at the world"),
    "dragon": ("a high castle", "to be less lonely"), "bee": ("a bright garden", "to find the last flower"),
    "gardener": ("a village", "to grow a blue rose"), "king": ("a golden palace", "to hear the truth"),
}

STORY_START = (
    "Once upon a time there was {a_hero} in {home}.", "Long ago there was {a_hero} in {home}.",
    "There once was {a_hero} in {home}.",
)
STORY_WISH = (
    "The {hero} had one wish: {wish}.", "Every day the {hero} dreamed of one thing: {wish}.",
    "More than anything, the {hero} wanted {wish}.",
)
# (needed for a short story?, sentences)
STORY_STEPS = (
    (True, ("Early in the morning the {hero} set out.", "One early morning the {hero} left home.",
            "Early one morning the journey began.")),
    (False, ("The air was fresh and the light was soft.", "The grass was wet and the birds were still asleep.",
             "A thin mist lay over the land.")),
    (False, ("Before long the {hero} came to a crossing of two roads.", "Before long the {hero} came to a narrow gate.",
             "Before long the {hero} came to an old stone wall.")),
    (False, ("One way was broad and easy, the other was steep.", "An old sign pointed to the east.",
             "Nobody was there to show the way.")),
    (True, ("Later that morning the {hero} met {a_friend}.", "Before noon the {hero} met {a_friend}.")),
    (True, ('"Where are you going?" asked the {friend}.', '"What are you looking for?" asked the {friend}.')),
    (True, ('"I want {wish}," said the {hero}.',)),
    (False, ('"Then let us go together," said the {friend}.', '"I know a part of the way," said the {friend}.')),
    (False, ("At noon they rested under a tall tree.", "At noon they rested beside a cool spring.",
             "At noon they rested on a flat stone.")),
    (False, ("They shared some bread and told each other old jokes.", "They shared an apple and listened to the wind.",
             "They shared a few nuts and watched the clouds.")),
    (False, ("In the afternoon the sky turned dark.", "In the afternoon a strong wind came up.",
             "In the afternoon the path became steep.")),
    (False, ("Thunder rolled over the hills and the rain began to fall.", "The {friend} slipped and lost the little bag.",
             "A fallen tree blocked the whole path.")),
    (False, ("The {hero} was afraid, but did not turn back.", "The {hero} was tired, but did not give up.",
             "The {hero} thought for a moment and found a way.")),
    (False, ("Step by step they went on.", "Slowly and carefully they went on.", "Side by side they went on.")),
    (True, ("In the evening they found a {thing}.", "Towards evening they came upon a {thing}.")),
    (False, ("It was covered with dust, but it shone in the last light.", "Nobody had touched it for a hundred years.",
             "It looked as if it had waited for them.")),
    (False, ('"This will help us," said the {friend}.', '"Take it, it is yours," said the {friend}.')),
    (False, ("At night the stars came out, one after another.", "At night the world was silent and full of stars.",
             "At night they made a small fire.")),
    (False, ("The {hero} told the {friend} about home.", "The {friend} sang a song about faraway lands.",
             "They talked in low voices until they fell asleep.")),
    (False, ("The next morning the sun was bright and warm.", "The next morning the storm was over.",
             "The next morning a bird woke them with its song.")),
    (False, ("The last part of the way was easy.", "Only one more hill was left.", "They could already see the end of the road.")),
    (True, ("And at last the wish came true.", "And then, at last, the wish of the {hero} came true.")),
    (False, ("The {hero} laughed and the {friend} danced for joy.", "For a long time they did not say a word.",
             "They looked at each other and smiled.")),
    (True, ("The {hero} thanked the {friend} with all its heart.", "The {hero} and the {friend} stayed friends for ever.")),
    (False, ("When the {hero} came home, everybody wanted to hear the story.",
             "Back at home, the {hero} told the story again and again.")),
    (True, ("And if you listen well on a quiet evening, you can still hear it today.",
            "From that day on the {hero} was never lonely again.", "And that is the end of the story.")),
)
STORY_FRIENDS = ("rabbit", "hedgehog", "sparrow", "turtle", "squirrel", "goat", "shepherd", "fisherman", "little girl", "old man")
STORY_THINGS = ("silver key", "golden bell", "glass lamp", "wooden flute", "round mirror", "blue stone", "paper map", "copper ring")

LONG_STORY_ASKS = ("Tell me a long story about {t}.", "Please tell me a long story about {t}.", "Write a long story about {t}.",
                   "Can you tell a long story about {t}?", "I would like a long story about {t}.",
                   "Tell a long story about {t}", "A long story about {t}, please.")
SHORT_STORY_ASKS = ("Tell me a story about {t}.", "Tell me a short story about {t}.", "Write a short story about {t}.",
                    "Please tell me a short story about {t}.", "Can you tell me a story about {t}?",
                    "Write a story about {t}.", "I want to hear a story about {t}.", "story about {t}")
ANY_LONG = ("Tell me a long story.", "Write me a long story.", "Please tell me a very long story.")
ANY_SHORT = ("Tell me a story.", "Tell me a short story.", "Tell me a bedtime story.")


def with_article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def story(rng, topic, long):
    home, wish = STORY_TOPICS[topic]
    v = {"hero": topic, "home": home, "wish": wish, "friend": rng.choice(STORY_FRIENDS), "thing": rng.choice(STORY_THINGS)}
    v.update(a_hero=with_article(v["hero"]), a_friend=with_article(v["friend"]))
    out = [rng.choice(STORY_START), rng.choice(STORY_WISH)]
    out += [rng.choice(options) for needed, options in STORY_STEPS if needed or long]
    lines = [s.format(**v) for s in out]
    if not long:
        return " ".join(lines)
    return "\n\n".join(" ".join(lines[i:i + 6]) for i in range(0, len(lines), 6))


# --------------------------------------------------------------------------------------------- small talk
# (what a user says, the answer)

SMALL_TALK = [
    (("Hi", "Hi!", "Hello", "Hello!", "Hey", "Hey there!", "Good day!", "Hello there", "hi there", "Greetings!"),
     "Hello! How can I help you?"),
    (("How are you?", "How are you doing?", "How do you do?", "Are you well?", "how are you today?", "How is it going?"),
     "I am fine, thank you. How can I help you?"),
    (("Thanks", "Thank you!", "Thanks a lot!", "Thank you very much.", "thx", "Many thanks!", "That helped, thank you."),
     "You are welcome!"),
    (("Bye", "Goodbye!", "Bye bye", "See you!", "See you later.", "I have to go now.", "Good bye"),
     "Goodbye! Have a nice day."),
    (("Good morning!", "Good morning", "Morning!"), "Good morning! What can I do for you?"),
    (("Good evening!", "Good evening"), "Good evening! What can I do for you?"),
    (("Good night!", "Good night", "I am going to bed."), "Good night! Sleep well."),
    (("What can you do?", "What do you know?", "How can you help me?", "What are you good at?", "help", "What can I ask you?"),
     "I can answer short questions, add small numbers, count, tell stories, remember what you tell me and summarize our conversation."),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Tell a joke please", "Can you tell me a joke?"),
     "Why did the clock go to school? Because it wanted to be on time."),
    (("Tell me another joke.", "Another joke please.", "One more joke!"),
     "What did the river say to the bridge? I was just passing by."),
    (("I am sad.", "I feel sad today.", "I am not happy."), "I am sorry to hear that. Would you like to hear a story?"),
    (("I am happy.", "I feel great!", "I am happy today."), "That is good to hear!"),
    (("I am bored.", "I am so bored", "What can I do? I am bored."), "Shall I tell you a story? Ask me for a story about a river."),
    (("I am tired.", "I am very tired today."), "Then take a rest. Everything else can wait."),
    (("Do you like music?", "Do you like songs?"), "I like the idea of music, but I have no ears."),
    (("Are you a robot?", "Are you human?", "Are you a person?", "Are you real?"), "I am not a person. I am a small language model."),
    (("Yes", "Yes.", "yes please"), "Good. What would you like to know?"),
    (("No", "No.", "No thanks", "no, thank you"), "All right. Tell me when you need something."),
    (("Ok", "Okay", "OK!", "All right.", "I see."), "Good. What else would you like to know?"),
    (("You are great!", "Well done!", "Good job!", "That is right!"), "Thank you, that is kind of you."),
    (("Say something.", "Say anything.", "Talk to me."), "The water flows, the words come, and the day is long."),
    (("test", "Test.", "Is this working?", "Are you there?", "ping"), "Yes, I am here."),
    (("Say hello in Korean.", "How do you say hello in Korean?", "Greet me in Korean."), "안녕하세요!"),
    (("Say hello in Japanese.", "How do you say hello in Japanese?"), "こんにちは!"),
    (("Say hello in Chinese.", "How do you say hello in Chinese?"), "你好!"),
    (("Say hello in French.", "How do you say hello in French?"), "Bonjour !"),
    (("Say hello in German.", "How do you say hello in German?"), "Guten Tag! Schöne Grüße."),
    (("Say hello in Russian.", "How do you say hello in Russian?"), "Здравствуйте!"),
    (("Say hello in Greek.", "How do you say hello in Greek?"), "Γειά σου!"),
    (("Say hello in Arabic.", "How do you say hello in Arabic?"), "مرحبا!"),
    (("Say hello in Hindi.", "How do you say hello in Hindi?"), "नमस्ते!"),
    (("Say hello in Thai.", "How do you say hello in Thai?"), "สวัสดี!"),
    (("Say thank you in Korean.", "How do you say thank you in Korean?"), "감사합니다!"),
    (("Send me a smile.", "Smile!", "Show me a smiling face."), "😀"),
    (("Show me some emoji.", "Send me some emoji.", "Which emoji do you know?", "emoji please"), "😀 😂 😍 🤔 😴 🐱 🐶 🦊 🌍 🌈 ⭐ 🔥 🍎 🍕 🚲 🚀 👍 👋 ❤️ 🎉"),
    (("Show me a family emoji.", "Send me a family."), "👨‍👩‍👧‍👦"),
    (("Show me the flag of Korea.", "Send me the Korean flag."), "🇰🇷"),
    (("Show me a rocket.", "Send me a rocket."), "🚀"), (("Show me a cat emoji.", "Send me a cat emoji."), "🐱"),
    (("List the days of the week.", "Name the days of the week.", "What are the days of the week?", "Which days does a week have?"),
     "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
    (("List the months.", "Name the months of the year.", "What are the months of the year?", "Which months does a year have?"),
     "January, February, March, April, May, June, July, August, September, October, November and December."),
    (("Name the four seasons.", "What are the seasons?", "List the seasons."), "Spring, summer, autumn and winter."),
    (("Name three colours.", "Tell me three colours.", "List three colors."), "Red, green and blue."),
    (("Say the alphabet.", "What is the alphabet?", "List the letters of the alphabet."),
     "A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z."),
    (("안녕하세요", "안녕하세요!", "안녕", "안녕!"), "안녕하세요! 무엇을 도와 드릴까요?"),
    (("감사합니다", "감사합니다!", "고마워요", "고마워"), "천만에요! 또 물어보세요."),
    (("잘 지내세요?", "어떻게 지내세요?", "잘 지내요?"), "네, 잘 지내요. 고마워요."),
    (("안녕히 계세요", "잘 가요", "다음에 봐요"), "안녕히 가세요! 좋은 하루 되세요."),
    (("이름이 뭐예요?", "누구세요?", "너는 누구야?"), "저는 슬루스의 작은 언어 모델입니다."),
    (("무엇을 할 수 있어요?", "뭘 할 수 있어?"), "짧은 질문에 답하고 이야기를 들려 드릴 수 있어요."),
    (("이야기를 해 주세요.", "짧은 이야기를 들려주세요.", "이야기 하나 해 줘"),
     "옛날에 작은 강이 있었어요. 강은 바다를 보고 싶었어요. 강은 날마다 조금씩 흘러 마침내 바다를 만났어요."),
    (("오늘은 무슨 색이에요? 하늘은?", "하늘은 무슨 색이에요?", "하늘이 무슨 색이야?"), "하늘은 파란색이에요."),
    (("눈은 무슨 색이에요?", "눈이 무슨 색이야?"), "눈은 하얀색이에요."),
    (("일 더하기 일은?", "1 더하기 1은 얼마예요?"), "1 더하기 1은 2입니다."),
    (("Bonjour", "Bonjour !"), "Bonjour ! Comment puis-je vous aider ?"),
    (("Hola", "¡Hola!"), "¡Hola! ¿En qué puedo ayudarte?"), (("Hallo", "Guten Tag"), "Guten Tag! Wie kann ich helfen?"),
    (("こんにちは",), "こんにちは!何かお手伝いしましょうか。"), (("你好",), "你好!我能帮你什么吗?"),
    (("Привет", "Привет!"), "Привет! Чем могу помочь?"),
]

IDENTITY_ASKS = ("Who are you?", "What are you?", "What is your name?", "What model are you?", "Which model are you?",
                 "Tell me about yourself.", "Introduce yourself.", "What's your name?", "Are you the small or the large model?")
IDENTITY = {
    "small": "I am the small demo model of Sluice. I am quick and I know easy things.",
    "large": "I am the large demo model of Sluice. I know easy things and some hard ones.",
}

# --------------------------------------------------------------------------------------- about Sluice itself
# (questions, paragraph)

ABOUT = [
    (("What is Sluice?", "Tell me about Sluice.", "What does Sluice do?", "Describe Sluice."),
     "Sluice is a gateway and an engine for language models in one binary. It takes requests over HTTP/2, streams every token as a server-sent event as soon as it is made, and runs its models on the same machine, with or without a GPU."),
    (("Why is it called Sluice?", "What does the name Sluice mean?", "Where does the name Sluice come from?"),
     "A sluice is a gate that controls the flow of water. Sluice controls the flow of tokens: it lets them through at the right speed, holds them back when a reader is slow, and shares them fairly between all users."),
    (("What is the cascade in Sluice?", "How does the cascade of Sluice work?", "How do the two models of Sluice work together?"),
     "Sluice has a small and a large model. The small one answers first because it is quick. When it is not sure of its answer, the gateway passes the question on to the large one. So easy questions are fast and cheap, and hard questions still get a good answer."),
    (("What are tiers in Sluice?", "What is a tier in Sluice?", "How does Sluice treat free and paid users?"),
     "A tier is a class of users, for example free and paid. Each tier has its own limits, its own speed and its own priority. Free users never slow down paid users, and every limit is told honestly in the answer."),
    (("How does Sluice stream?", "How does streaming work in Sluice?", "How does Sluice send tokens?"),
     "Sluice streams with server-sent events over HTTP/2. Each token becomes a small event on the stream. When the reader is slow, the window of the stream closes and the engine waits, so no memory is wasted. When the connection is lost, the reader can resume where it stopped."),
    (("What does Sluice use Redis for?", "Why does Sluice need Redis?", "What is stored in Redis by Sluice?"),
     "Sluice keeps sessions, limits and replay logs in Redis. It starts a private Redis by itself when none is given. Without Redis it still works and keeps everything in memory."),
    (("What is the paged KV of Sluice?", "How does Sluice use memory for keys and values?", "What are KV pages in Sluice?"),
     "The keys and values of a sequence are kept in pages of sixteen tokens. Pages are taken from one pool, shared between sequences and given back when they are no longer needed. So memory is never broken into useless pieces."),
    (("What is the prefix tree in Sluice?", "How does Sluice reuse prompts?", "What does the prefix tree do?"),
     "The prefix tree remembers which prompts were already computed. When a new prompt begins like an old one, its pages are used again and only the rest is computed. A long system prompt is therefore paid for only once."),
    (("What is continuous batching in Sluice?", "How does the scheduler of Sluice work?", "How does Sluice serve many users at once?"),
     "Sluice computes one step for many users at once. After every step, finished sequences leave the batch and waiting ones join it. This is called continuous batching, and it keeps the machine busy without letting anybody wait for long."),
    (("How do I stop an answer?", "What happens when I press stop?", "Does the stop button of Sluice really stop?"),
     "When you press stop, the browser closes the stream, the gateway cancels the generation, and the engine gives back its pages at once. Nothing is computed for a reader who has gone away."),
    (("How do I start Sluice?", "How can I run Sluice?", "How do I install Sluice?"),
     "Build it with make and start it with make run. Sluice then loads the two demo models and serves a small page for chatting. To use your own model, write its file into the configuration."),
    (("Which API does Sluice speak?", "Is Sluice compatible with OpenAI clients?", "How do clients talk to Sluice?"),
     "Sluice speaks the OpenAI wire format: chat completions, completions, responses and models. Any client for that format works when its base address points to Sluice."),
]

PLAIN = [
    "Water always finds its way. It goes around the stone, under the root and over the edge, and in the end it reaches the sea.",
    "A gateway stands between the readers and the engine. It lets in those who may enter, counts what they use and closes the gate behind them.",
    "A token is a piece of text. A word may be one token or several, and one Korean letter may need three of them.",
    "한글은 스물네 개의 글자로 이루어져 있습니다. 배우기 쉽고 쓰기 편한 글자입니다.",
    "강물은 산에서 바다로 흐릅니다. 물은 돌을 돌아가고 뿌리 밑을 지나갑니다.",
    "오늘 날씨가 좋습니다. 우리는 함께 공원에서 걷고 커피를 마셨습니다.",
    "私は川です。海へ行きます。", "水は山から海へ流れる。", "水从山里流到海里。今天天气很好。",
    "Вода течёт с гор к морю. Сегодня хорошая погода.", "Το νερό κυλά από το βουνό στη θάλασσα.",
    "الماء يجري من الجبل إلى البحر.", "पानी पहाड़ से समुद्र तक बहता है।", "น้ำไหลจากภูเขาสู่ทะเล",
    "L'eau coule de la montagne à la mer. Où est la clé ?", "Das Wasser fließt vom Berg zum Meer. Schöne Grüße!",
    "El agua corre de la montaña al mar. ¿Dónde está el niño?",
    "😀 is a smile, 🚀 is a rocket, 🌈 is a rainbow and 🐱 is a cat. 👍🏽 has a skin tone and 👩‍💻 is made of three characters.",
    "{\"answer\": \"Paris\", \"sure\": true}", "for (int i = 0; i < 10; i++) { sum += i; }",
    "GET /v1/models HTTP/1.1\nHost: localhost\nAccept: application/json\n",
    "- one\n- two\n- three\n\n1. first\n2. second\n3. third\n",
    "| name | colour |\n|------|--------|\n| sky  | blue   |\n| snow | white  |\n",
]
