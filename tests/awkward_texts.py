"""Texts that break speech synthesisers: each must end in speech or in a clear error."""

from __future__ import annotations

UNSPOKEN: dict[tuple[str, str], str] = {
    ("🙂", "en"): "🙂",
    ("I am happy 🙂🎉 today 👩‍👩‍👧‍👦!", "en"): "🙂🎉👩👧👦",
    ("\ufeffinvisible\u200b \u202ereversed\u202c marks\u0000", "en"): "\u0000",
    ("a^b|c ™ ∴ ‰ ₿ ❤\ufe0f 1\ufe0f\u20e3 \u0301", "en"): "^|™‰₿❤",
    ("private \ue000 and new \U0001fae9 here", "en"): "\ue000\U0001fae9",
    ("آیا ۵ ≥ ۳ و ⅞ و ₪۵۰ درست است؟ ∞ √", "fa"): "∞√",
}
"""(text, language) to the signs of the text that nothing reads."""

AWKWARD: tuple[tuple[str, str], ...] = (
    ("a", "en"),
    ("I", "en"),
    ("7", "en"),
    ("?", "en"),
    ("...", "en"),
    ("!?!?!?,,,;;;---", "en"),
    ("   ", "en"),
    ("\n\n\t", "en"),
    ("ສະບາຍດີ", "en"),
    ("გამარჯობა მეგობარო", "en"),
    ("ᚠᚢᚦᚨᚱᚲ", "en"),
    ("من یک laptop جدید خریدم و password آن را فراموش کردم.", "fa"),
    ("Please say سلام to my friend from تهران, thank you.", "en"),
    ("قیمت ۱۲٬۵۰۰ تومان است؛ ساعت ۷:۳۰ بیا!", "fa"),
    ("http://example.com/a?b=c&d=%20#e", "en"),
    ("write to someone@example.com, ok?", "en"),
    ("3.14159265358979323846264338327950288419716939937510", "en"),
    ("99999999999999999999999999999999", "en"),
    ("-5 °C, 1/2 cup, 50% off, $3.50 & £2", "en"),
    ("a" * 600, "en"),
    ("supercalifragilisticexpialidocious " * 12, "en"),
    ("yes yes yes yes yes yes yes yes yes yes yes yes yes yes yes yes yes yes", "en"),
    ("ha ha ha ha. ha ha ha ha. ha ha ha ha.", "en"),
    ("STOP SHOUTING AT ME, PLEASE!!!", "en"),
    ("[STOP] [en] <script>alert(1)</script> {x}", "en"),
    ("e\u0301\u0301\u0301\u0301 Z͑ͫ̓ͪ̂ͫ̽a̴l̶g̷o̸", "en"),
    ("Dr. Smith vs. Mr. Jones et al., e.g. on p. 5, i.e. there.", "en"),
    ("3>2, 5 ≥ 3, ⅞ inch, 2½ cups, step ①② for ₪50 at 5 ℃", "en"),
    ("LG전자 and Tシャツ and bგd", "en"),
    ("今天天气很好。Let us go. お元気ですか。", "en"),
    (" ".join(f"This is sentence number {number} of a long text." for number in range(111))[:5000], "en"),
    *UNSPOKEN,
)
"""(text, language); every sign is spoken but for those that `UNSPOKEN` names."""
