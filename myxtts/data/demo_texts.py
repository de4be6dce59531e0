"""What the demo corpus says, and what it never says: sentences, digit strings and common words, English and Persian.

`draw_text` is a pure function of its random generator. The held-out texts are written by hand for evaluating a voice;
`is_held_out` is how the corpus keeps clear of them.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from wordfreq import top_n_list

from myxtts.errors import ConfigError
from myxtts.text.normalise import normalise

Kind = Literal["digits", "sentence", "words"]
DEMO_LANGUAGES = ("en", "fa")
# Sentences teach prosody, digits are short and easy to recognise, loose words bring every sound of the language.
_KINDS: tuple[tuple[Kind, float], ...] = (("sentence", 0.5), ("digits", 0.25), ("words", 0.25))


@dataclass(frozen=True)
class _Grammar:
    templates: tuple[str, ...]
    slots: dict[str, tuple[str, ...]]


def _slots(**lists: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(part.strip() for part in text.split(",")) for name, text in lists.items()}


_ENGLISH = _Grammar(
    templates=(
        "The {adj} {noun} {did} the {noun2} {where}.",
        "{name} {did} a {adj} {noun} {when}.",
        "Where is the {adj} {noun} that {name} {did}?",
        "I think the {noun} is {adj}, but the {noun2} is not.",
        "Please bring the {noun} and the {noun2} {when}.",
        "{name} and {name2} walked {where} {when}.",
        "Do you know why the {noun} was so {adj}?",
        "We never saw a {noun} as {adj} as this one.",
        "{when}, the {noun} {did} the {adj} {noun2}.",
        "It was a {adj} day, and {name} stayed {where}.",
        "Could you show me the {noun} {where}?",
        "There are {count} {adj} chairs {where}.",
        "{name} said, the {noun} costs {count} dollars.",
        "My {relative} {did} the {noun} {where}.",
        "What a {adj} {noun} this is!",
        "If the {noun} is {adj}, we will leave {when}.",
        "The {noun} on the left is {adj}; the {noun2} is mine.",
        "Her {relative} found {count} coins under the {noun}.",
        "No, {name} has not {done} the {noun} yet.",
        "They have {done} the {adj} {noun} {count} times.",
        "Every {noun} needs a {adj} {noun2}.",
        "Listen: the {noun} is {where}, not {where2}.",
    ),
    slots=_slots(
        adj="old, quiet, bright, heavy, gentle, narrow, yellow, frozen, strange, thick, clever, empty, purple, "
        "shallow, useful, wooden, huge, tiny, rough, golden, sharp, busy, warm, joyful, broken, measured, usual",
        noun="river, garden, kettle, judge, window, teacher, violin, bridge, oyster, ship, pillow, chair, machine, "
        "village, thumb, shadow, engine, orange, feather, jacket, mouth, field, treasure, balloon, cupboard, highway",
        noun2="box, lantern, hat, fish, cloud, letter, thread, boy, church, leaf, song, wall, zebra, voyage, cup, "
        "brush, mirror, road, vision, spoon, path, ring, jungle, coat, fountain",
        did="found, carried, painted, watched, followed, touched, moved, opened, forgot, measured, chose, pushed, "
        "washed, joined, covered, weighed, caught, sold",
        done="found, painted, opened, washed, moved, chosen, measured, sold, covered, caught",
        where="near the station, behind the house, in the kitchen, under the tree, by the sea, at the north gate, "
        "outside the theatre, over the hill, in the valley, beside the fire",
        where2="upstairs, in the yard, at school, on the roof, in town",
        when="this morning, after lunch, before sunrise, last Thursday, on Wednesday, at noon, in July, every evening, "
        "long ago, next week",
        name="Julia, Thomas, Amy, George, Nora, Victor, Beth, Hugo, Zoe, Paul, Joyce, Martin",
        name2="Edward, Lucy, Owen, Maya, Chad, Ruth, Felix, Yasmin",
        relative="brother, sister, uncle, mother, cousin, father",
        count="two, three, five, six, seven, nine, eleven, twelve, fifteen, twenty, forty, eighty",
    ),
)

_PERSIAN = _Grammar(
    templates=(
        "{name} {noun} {adj} را {where} {did}.",
        "{noun} {adj} {where} است.",
        "آیا {noun} {adj} را {where} دیدی؟",
        "{when} {name} و {name2} {where} رفتند.",
        "من فکر می‌کنم این {noun} خیلی {adj} است.",
        "لطفاً {noun} و {noun2} را {when} بیاور.",
        "چه {noun} {adj}ی!",
        "{relative} من {when} یک {noun} {adj} {did}.",
        "اگر {noun} {adj} باشد، ما {when} می‌رویم.",
        "{count} {noun} {where} بود.",
        "{name} گفت این {noun} {count} تومان است.",
        "کجا می‌توانم یک {noun} {adj} پیدا کنم؟",
        "نه، {name} هنوز {noun} را ندیده است.",
        "هر {noun} به یک {noun2} نیاز دارد.",
        "ما {when} {count} {noun2} از بازار خریدیم.",
        "{noun} سمت راست {adj} است، اما {noun2} نیست.",
    ),
    slots=_slots(
        adj="بزرگ, کوچک, قدیمی, زیبا, سفید, سیاه, سنگین, گرم, سرد, تازه, بلند, خالی, شیرین, روشن, ژرف, غمگین",
        noun="کتاب, خانه, درخت, باغ, ماشین, پنجره, رودخانه, قایق, گربه, چراغ, صندلی, دفتر, ستاره, پرنده, ژاکت, عکس",
        noun2="کلید, گل, نان, سیب, میز, قلم, فرش, ظرف, نامه, کفش, چتر, آینه",
        did="خرید, دید, فروخت, آورد, پیدا کرد, نوشت, گذاشت, شست",
        where="در حیاط, کنار دریا, پشت مدرسه, در آشپزخانه, روی کوه, نزدیک ایستگاه, زیر پل, در بازار",
        when="امروز صبح, دیشب, فردا, پیش از ظهر, جمعه گذشته, در تابستان, هر روز, سال بعد",
        name="مریم, علی, ژاله, رضا, پروانه, حسین, نگار, کاوه, شیرین, فرهاد",
        name2="سارا, محمد, لیلا, بهرام, زهرا, امید",
        relative="برادر, خواهر, مادر, پدر, عموی, دوست",
        count="دو, سه, چهار, پنج, شش, هفت, هشت, نه, ده, بیست, سی, صد",
    ),
)
_GRAMMARS = {"en": _ENGLISH, "fa": _PERSIAN}

_UNFIT = frozenset(
    [
        "fuck",
        "fucking",
        "fucked",
        "shit",
        "bitch",
        "ass",
        "sex",
        "sexual",
        "sexy",
        "porn",
        "nude",
        "dick",
        "cock",
        "pussy",
        "rape",
        "kill",
        "killed",
        "killing",
        "murder",
        "dead",
        "death",
        "die",
        "died",
        "nazi",
        "gay",
        "hell",
        "damn",
        "bullshit",
        "crap",
        "drug",
        "drugs",
        "gun",
        "guns",
        "terrorist",
        "suicide",
    ]
)
_UNFIT_PERSIAN = frozenset(
    ["سکس", "کشته", "مرگ", "قتل", "جنگ", "لعنتی", "گه", "کیر", "کس", "کون", "جنده", "اعدام", "ترور"]
)
_PERSIAN_WORD = re.compile("[آاأبپتثجچحخدذرزژسشصضطظعغفقکگلمنوهیئ]{3,}")
_ENGLISH_WORD = re.compile("[a-z]{2,}")

HELD_OUT_SENTENCES: dict[str, tuple[str, ...]] = {
    "en": (
        "The boat left the harbor at six in the evening.",
        "She keeps her green umbrella near the front door.",
        "A young farmer planted three rows of beans.",
        "Nobody knew the answer to the last question.",
        "Can you hear the train coming around the bend?",
        "Fresh bread smells better than anything else.",
        "The doctor asked him to drink more water.",
        "We watched the snow fall on the quiet street.",
        "His father built this table with his own hands.",
        "Turn right at the corner and go past the bank.",
        "The children laughed when the dog chased its tail.",
        "I would rather read a book than watch a film.",
        "The museum opens at ten and closes at five.",
        "Please write your name at the top of the page.",
        "A cold wind blew through the open window.",
        "They sang an old song about the open sea.",
        "My grandmother makes the best apple pie in town.",
        "The phone rang twice and then it stopped.",
        "Why did you put sugar in the soup?",
        "He lost his wallet on the way to work.",
        "The stars are brighter far from the city.",
        "It takes an hour to drive to the airport.",
        "The baker wakes up long before the sun.",
        "Our neighbor plays the piano every Sunday.",
        "The red car stopped just in time.",
        "Do not touch the stove while it is hot.",
        "The library has more than forty thousand books.",
        "A small bird sat on the edge of the well.",
        "She answered the letter the very same day.",
        "The coffee was too strong for my taste.",
        "Heavy rain flooded the lower part of town.",
        "He speaks four languages and reads two more.",
        "The queen wore a long blue dress.",
        "We need a bigger room for the party.",
        "The mountain looks close, but it is far away.",
        "Have you ever eaten food that spicy?",
        "The king gave the poor man a bag of gold.",
        "Her voice was soft, yet everyone could hear it.",
        "The train from the south is ten minutes late.",
        "Put the milk back in the fridge, please.",
        "A good friend tells you the truth.",
        "The lamp in the hall does not work.",
        "They moved to a small house by the lake.",
        "He cut the paper into thin white strips.",
        "The market is full of people on Friday.",
        "I forgot to lock the back door again.",
        "The horse jumped over the low fence.",
        "What time does the next bus arrive?",
        "The soldier walked home in the dark.",
        "Three men pulled the heavy cart up the hill.",
        "The picture on the wall hangs too low.",
        "She bought a pair of black leather shoes.",
        "The water in the bay is clear and cold.",
        "You should take a coat with you tonight.",
        "The class begins when the bell rings.",
        "An honest answer is better than a clever one.",
        "The old clock in the tower strikes eight.",
        "Rice grows well in warm and wet places.",
        "The boy hid the ball behind his back.",
        "We shared the last piece of cake.",
        "The road ahead is closed because of the flood.",
        "My sister works at a hospital in the city.",
        "He opened the box and found it empty.",
        "The sheep slept under the tall oak tree.",
        "Is there a cheaper way to travel north?",
        "The story ends on a happy note.",
        "A thick fog covered the whole valley.",
        "The cook added salt, pepper, and a little oil.",
        "They will finish the bridge before the winter.",
        "The moon rose slowly over the hills.",
    ),
    "fa": (
        "هوا امروز آفتابی و بسیار دلپذیر است.",
        "من هر شب پیش از خواب شعر می‌خوانم.",
        "قطار ساعت هفت از تهران حرکت می‌کند.",
        "آن‌ها در یک روستای کوچک زندگی می‌کنند.",
        "چای داغ را روی سینی گذاشتم.",
        "کودکان در کوچه بازی می‌کردند.",
        "پزشک گفت باید بیشتر آب بنوشی.",
        "این خیابان به میدان اصلی می‌رسد.",
        "مادربزرگم قصه‌های زیادی بلد است.",
        "باران تمام شب روی بام می‌بارید.",
        "آیا تا به حال به اصفهان رفته‌ای؟",
        "او زبان فرانسه را خوب حرف می‌زند.",
        "ماه پشت ابرها پنهان شده بود.",
        "برای شام برنج و ماهی پختیم.",
        "کلاس درس ساعت هشت شروع می‌شود.",
        "پدرم روزنامه را روی مبل جا گذاشت.",
        "صدای ساز از پنجره به گوش می‌رسید.",
        "این راه خیلی طولانی و سخت است.",
        "لطفاً در را آرام ببند.",
        "دانشجویان منتظر استاد بودند.",
        "زمستان امسال برف زیادی آمد.",
        "او لبخند زد و چیزی نگفت.",
        "ما تعطیلات را در شمال گذراندیم.",
        "نامه‌ات دیروز به دستم رسید.",
        "اسب سفید از روی دیوار پرید.",
        "کشاورز زمین خود را آب داد.",
        "چرا این‌قدر دیر آمدی؟",
        "پرتقال‌ها را در سبد بریز.",
        "آسمان کویر پر از ستاره است.",
        "دوستم در بیمارستان کار می‌کند.",
    ),
}
HELD_OUT_DIGITS: tuple[str, ...] = (
    "4 8 1 5", "7 0 2 9", "3 6 6 1", "9 5 0 4", "2 2 7 8", "6 1 9 3 0", "8 4 4 2 7", "5 9 3 1 6", "0 7 5 8 2",
    "1 3 9 0 4", "4 2 6 8 5 7", "9 9 1 0 3 6", "7 5 8 2 4 0", "3 1 4 6 9 2", "6 0 5 7 7 1", "8 3 0 9 5 4 2",
    "2 7 1 8 2 8 1", "5 4 9 6 0 3 8", "1 6 8 0 3 3 9", "9 2 4 7 5 1 6",
)  # fmt: skip
_PERSIAN_DIGITS = str.maketrans("0123456789", "۰۱۲۳۴۵۶۷۸۹")


def heldout_texts(language: str, kind: Literal["sentence", "digits"] = "sentence") -> tuple[str, ...]:
    """Texts to evaluate with; no demo corpus contains them."""
    _check_language(language)
    if kind == "digits":
        return tuple(_written_digits(text, language) for text in HELD_OUT_DIGITS)
    return HELD_OUT_SENTENCES[language]


@lru_cache(maxsize=4)
def _held_out_forms(language: str) -> tuple[str, ...]:
    texts = (*heldout_texts(language), *heldout_texts(language, "digits"))
    return tuple(_bare(normalise(text, language)) for text in texts)


def _bare(normalised: str) -> str:
    return " ".join(re.sub(r"[^\w\s\u200c]", " ", normalised).split())


def is_held_out(normalised: str, language: str) -> bool:
    """Whether a text is a held-out one, or holds one inside."""
    bare = f" {_bare(normalised)} "
    return any(f" {form} " in bare for form in _held_out_forms(language))


def draw_text(rng: random.Random, language: str) -> tuple[Kind, str]:
    """A text that is not held out, as a person would write it."""
    _check_language(language)
    kinds, weights = zip(*_KINDS, strict=True)
    while True:
        kind: Kind = rng.choices(kinds, weights)[0]
        text = _DRAWN[kind](rng, language)
        if not is_held_out(normalise(text, language), language):
            return kind, text


def _draw_sentence(rng: random.Random, language: str) -> str:
    grammar = _GRAMMARS[language]
    filled = {name: rng.choice(words) for name, words in grammar.slots.items()}
    text = rng.choice(grammar.templates).format(**filled)
    text = re.sub(r"\b([Aa]) (?=[aeio]|u(?!s))", r"\1n ", text) if language == "en" else text
    return text[0].upper() + text[1:]


def _draw_digits(rng: random.Random, language: str) -> str:
    return _written_digits(" ".join(str(rng.randrange(10)) for _ in range(rng.randint(3, 8))), language)


def _draw_words(rng: random.Random, language: str) -> str:
    return " ".join(rng.sample(common_words(language), rng.randint(4, 8)))


_DRAWN = {"sentence": _draw_sentence, "digits": _draw_digits, "words": _draw_words}


def _written_digits(text: str, language: str) -> str:
    return text.translate(_PERSIAN_DIGITS) if language == "fa" else text


@lru_cache(maxsize=4)
def common_words(language: str) -> tuple[str, ...]:
    """Everyday words of a language, by frequency, without those that a demo should not say."""
    _check_language(language)
    word = _PERSIAN_WORD if language == "fa" else _ENGLISH_WORD
    unfit = _UNFIT_PERSIAN if language == "fa" else _UNFIT
    return tuple(w for w in top_n_list(language, 2500) if word.fullmatch(w) and w not in unfit)


def _check_language(language: str) -> None:
    if language not in DEMO_LANGUAGES:
        raise ConfigError(
            f"the demo corpus does not speak {language!r}", hint=f"choose from: {', '.join(DEMO_LANGUAGES)}"
        )
