"""Small per-language tables of the normaliser: symbols, abbreviations, ordinals, currencies, ranges.

Everything here is lower case, as the text is when the tables are applied. `numbers` knows how to count; this module
knows only words.
"""
# ruff: noqa: E501

from __future__ import annotations

SYMBOLS: dict[str, dict[str, str]] = {
    "en": {
        "&": "and", "@": "at", "%": "percent", "#": "number", "°": "degrees", "+": "plus", "=": "equals",
        "<": "less than", ">": "greater than", "≤": "less than or equal to", "≥": "greater than or equal to",
        "≠": "not equal to", "×": "times", "÷": "divided by", "±": "plus or minus",
    },
    "es": {"&": "y", "@": "arroba", "%": "por ciento", "#": "número", "°": "grados", "+": "más", "=": "igual a"},
    "fr": {"&": "et", "@": "arobase", "%": "pour cent", "#": "numéro", "°": "degrés", "+": "plus", "=": "égale"},
    "de": {"&": "und", "@": "at", "%": "prozent", "#": "nummer", "°": "grad", "+": "plus", "=": "gleich"},
    "it": {"&": "e", "@": "chiocciola", "%": "per cento", "#": "numero", "°": "gradi", "+": "più", "=": "uguale a"},
    "pt": {"&": "e", "@": "arroba", "%": "por cento", "#": "número", "°": "graus", "+": "mais", "=": "igual a"},
    "pl": {"&": "i", "@": "małpa", "%": "procent", "#": "numer", "°": "stopni", "+": "plus", "=": "równa się"},
    "tr": {"&": "ve", "@": "et", "%": "yüzde", "#": "numara", "°": "derece", "+": "artı", "=": "eşittir"},
    "ru": {
        "&": "и",
        "@": "собака",
        "%": "процентов",
        "#": "номер",
        "№": "номер",
        "°": "градусов",
        "+": "плюс",
        "=": "равно",
    },
    "nl": {
        "&": "en",
        "@": "apenstaartje",
        "%": "procent",
        "#": "nummer",
        "°": "graden",
        "+": "plus",
        "=": "is gelijk aan",
    },
    "cs": {"&": "a", "@": "zavináč", "%": "procent", "#": "číslo", "°": "stupňů", "+": "plus", "=": "rovná se"},
    "ar": {"&": "و", "@": "آت", "%": "بالمئة", "٪": "بالمئة", "#": "رقم", "°": "درجة", "+": "زائد", "=": "يساوي"},
    "zh-cn": {"&": "和", "@": "艾特", "%": "百分之", "#": "号", "°": "度", "+": "加", "=": "等于"},
    "hu": {"&": "és", "@": "kukac", "%": "százalék", "#": "szám", "°": "fok", "+": "plusz", "=": "egyenlő"},
    "ko": {"&": "그리고", "@": "골뱅이", "%": "퍼센트", "#": "번호", "°": "도", "+": "더하기", "=": "는"},
    "ja": {"&": "と", "@": "アット", "%": "パーセント", "#": "番号", "°": "度", "+": "足す", "=": "イコール"},
    "hi": {"&": "और", "@": "ऐट", "%": "प्रतिशत", "#": "संख्या", "°": "डिग्री", "+": "जमा", "=": "बराबर"},
    "fa": {
        "&": "و", "@": "ات", "%": "درصد", "٪": "درصد", "#": "شماره", "°": "درجه", "+": "به‌علاوه", "=": "مساوی",
        "<": "کوچک‌تر از", ">": "بزرگ‌تر از", "≤": "کوچک‌تر یا مساوی", "≥": "بزرگ‌تر یا مساوی",
        "≠": "نامساوی", "×": "ضربدر", "÷": "تقسیم بر", "±": "مثبت یا منفی",
    },
}  # fmt: skip

PERCENT_FIRST = frozenset({"tr", "zh-cn"})
"""Languages that say the word for percent before the number."""

ABBREVIATIONS: dict[str, dict[str, str]] = {
    "en": {
        "mr.": "mister", "mrs.": "missus", "ms.": "miz", "dr.": "doctor", "prof.": "professor", "st.": "saint",
        "jr.": "junior", "sr.": "senior", "vs.": "versus", "etc.": "et cetera", "e.g.": "for example",
        "i.e.": "that is", "no.": "number", "gen.": "general", "col.": "colonel", "capt.": "captain",
        "lt.": "lieutenant", "sgt.": "sergeant", "rev.": "reverend", "hon.": "honorable", "ltd.": "limited",
        "inc.": "incorporated", "co.": "company", "dept.": "department", "approx.": "approximately",
    },
    "es": {"sr.": "señor", "sra.": "señora", "srta.": "señorita", "dr.": "doctor", "dra.": "doctora", "ud.": "usted", "uds.": "ustedes", "etc.": "etcétera", "núm.": "número"},
    "fr": {"mme": "madame", "mlle": "mademoiselle", "m.": "monsieur", "dr": "docteur", "etc.": "et cetera", "st.": "saint"},
    "de": {"z.b.": "zum beispiel", "z. b.": "zum beispiel", "d.h.": "das heißt", "d. h.": "das heißt", "usw.": "und so weiter", "bzw.": "beziehungsweise", "dr.": "doktor", "hr.": "herr", "fr.": "frau", "nr.": "nummer", "str.": "straße", "ca.": "circa", "st.": "sankt", "prof.": "professor"},
    "it": {"sig.": "signor", "sig.ra": "signora", "dott.": "dottor", "dr.": "dottor", "prof.": "professor", "ecc.": "eccetera"},
    "pt": {"sr.": "senhor", "sra.": "senhora", "dr.": "doutor", "dra.": "doutora", "prof.": "professor", "etc.": "et cetera"},
    "pl": {"dr": "doktor", "np.": "na przykład", "itd.": "i tak dalej", "itp.": "i tym podobne", "ul.": "ulica", "prof.": "profesor", "tzn.": "to znaczy"},
    "tr": {"dr.": "doktor", "prof.": "profesör", "vb.": "ve benzeri", "örn.": "örneğin", "sn.": "sayın", "no.": "numara"},
    "ru": {"г-н": "господин", "г-жа": "госпожа", "д-р": "доктор", "т.е.": "то есть", "т. е.": "то есть", "и т.д.": "и так далее", "и т. д.": "и так далее", "ул.": "улица"},
    "nl": {"dhr.": "de heer", "mevr.": "mevrouw", "dr.": "dokter", "bijv.": "bijvoorbeeld", "enz.": "enzovoort", "nr.": "nummer", "o.a.": "onder andere"},
    "cs": {"dr.": "doktor", "ing.": "inženýr", "např.": "například", "atd.": "a tak dále", "tj.": "to jest", "č.": "číslo"},
    "ar": {"د.": "دكتور", "أ.": "أستاذ", "إلخ": "إلى آخره"},
    "zh-cn": {},
    "hu": {"dr.": "doktor", "pl.": "például", "stb.": "és a többi", "kb.": "körülbelül", "ún.": "úgynevezett"},
    "ko": {},
    "ja": {},
    "hi": {"डॉ.": "डॉक्टर", "श्री.": "श्री", "प्रो.": "प्रोफ़ेसर"},
    "fa": {"دکتر.": "دکتر", "ه.ش": "هجری شمسی", "ه.ق": "هجری قمری", "ق.م": "قبل از میلاد", "و غیره.": "و غیره", "ج.ا": "جمهوری اسلامی"},
}  # fmt: skip

ORDINAL_ENDINGS: dict[str, str] = {
    "en": r"(?:st|nd|rd|th)\b",
    "es": r"(?:\.?[ºª]|er\b|ro\b|ra\b|do\b|da\b)",
    "fr": r"(?:er\b|re\b|ère\b|e\b|ème\b|eme\b)",
    "de": r"\.(?=\s+[^\W\d_])",
    "it": r"[ºª]",
    "pt": r"\.?[ºª]",
    "tr": r"(?:\.(?=\s+[^\W\d_])|['’]?(?:inci|ıncı|uncu|üncü|nci|ncı)\b)",
    "ru": r"-?(?:й|я|е|ая|ое|ый|ий|го|му|м)\b",
    "nl": r"(?:ste|de|e)\b",
    "cs": r"\.(?=\s+[^\W\d_])",
    "hu": r"\.(?=\s+[^\W\d_])",
    "ko": r"\s?번째",
    "ja": r"番目",
    "hi": r"(?:वाँ|वां|वीं|वें)",
    "fa": r"\s?\u200c?(?:اُم|ام)\b",
}
"""What follows the digits of an ordinal. Polish and Arabic write none that differs from other text."""

RANGE = {
    "en": "to", "es": "a", "fr": "à", "de": "bis", "it": "a", "pt": "a", "pl": "do", "tr": "ile", "ru": "до",
    "nl": "tot", "cs": "až", "ar": "إلى", "zh-cn": "到", "hu": "és", "ko": "에서", "ja": "から", "hi": "से", "fa": "تا",
}  # fmt: skip

CURRENCY_CODES = {
    "$": "USD",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "₽": "RUB",
    "₺": "TRY",
    "₹": "INR",
    "₩": "KRW",
    "﷼": "IRR",
    "؋": "AFN",
    "₪": "ILS",
    "₫": "VND",
    "₴": "UAH",
    "₦": "NGN",
    "₱": "PHP",
    "₸": "KZT",
    "₾": "GEL",
    "฿": "THB",
}
CURRENCIES: dict[str, dict[str, tuple[str, str]]] = {
    "en": {"$": ("dollar", "dollars"), "€": ("euro", "euros"), "£": ("pound", "pounds")},
    "es": {"$": ("dólar", "dólares"), "€": ("euro", "euros"), "£": ("libra", "libras")},
    "fr": {"$": ("dollar", "dollars"), "€": ("euro", "euros"), "£": ("livre", "livres")},
    "de": {"$": ("dollar", "dollar"), "€": ("euro", "euro"), "£": ("pfund", "pfund")},
    "it": {"$": ("dollaro", "dollari"), "€": ("euro", "euro"), "£": ("sterlina", "sterline")},
    "pt": {"$": ("dólar", "dólares"), "€": ("euro", "euros"), "£": ("libra", "libras")},
    "tr": {"$": ("dolar", "dolar"), "€": ("euro", "euro"), "£": ("sterlin", "sterlin")},
    "nl": {"$": ("dollar", "dollar"), "€": ("euro", "euro"), "£": ("pond", "pond")},
    "ar": {"$": ("دولار", "دولار"), "€": ("يورو", "يورو"), "£": ("جنيه", "جنيه")},
    "hu": {"$": ("dollár", "dollár"), "€": ("euró", "euró"), "£": ("font", "font")},
    "ko": {"$": ("달러", "달러"), "€": ("유로", "유로"), "£": ("파운드", "파운드")},
    "ja": {"$": ("ドル", "ドル"), "€": ("ユーロ", "ユーロ"), "£": ("ポンド", "ポンド")},
    "hi": {"$": ("डॉलर", "डॉलर"), "€": ("यूरो", "यूरो"), "£": ("पाउंड", "पाउंड")},
    "fa": {"$": ("دلار", "دلار"), "€": ("یورو", "یورو"), "£": ("پوند", "پوند"), "﷼": ("ریال", "ریال")},
}
"""Everyday names (one, many). Other pairs of language and currency take the formal name that Babel knows."""

CENTS = {"en": ("cent", "cents")}

JALALI_MONTHS = ("فروردین", "اردیبهشت", "خرداد", "تیر", "مرداد", "شهریور", "مهر", "آبان", "آذر", "دی", "بهمن", "اسفند")
