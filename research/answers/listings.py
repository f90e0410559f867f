"""Made-up job listings, short and careless as people write them, with their gold entities. Pure: a draw in, texts out.

What an abbreviation stands for is not always clear ("dev" is a developer, and for managers development), and some of
the letters are wrong: neither model can be right everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from research.answers.queries import Query, with_typos

FIELDS = ("title", "company", "city", "salary", "contract", "start")
PROMPT = "Job: {text}\nOutput:"
_PRESENT = {"title": 0.8, "company": 0.55, "city": 0.6, "salary": 0.5, "contract": 0.45, "start": 0.4}
_TYPOS = 0.006


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_LEVELS = {"Junior": ("jr", "junior", "jun"), "Senior": ("sr", "senior", "sen"), "Lead": ("lead", "head", "ld")}
_ROLES = {
    "Software Developer": ("software dev", "developer", "programmer", "dev"),
    "Development Manager": ("development manager", "dev manager", "mgr dev"),
    "Data Analyst": ("data analyst", "analyst data", "analyst"),
    "Data Engineer": ("data engineer", "data eng", "pipeline engineer"),
    "Business Analyst": ("business analyst", "ba", "analyst business"),
    "Site Engineer": ("site engineer", "site eng", "engineer on site"),
    "Nurse": ("nurse", "rn", "ward nurse"),
    "Care Assistant": ("care assistant", "carer", "care asst"),
    "Sales Manager": ("sales manager", "sales mgr", "head of sales"),
    "Sales Assistant": ("sales assistant", "shop assistant", "sales asst"),
    "Account Manager": ("account manager", "acct mgr", "key account"),
    "Accountant": ("accountant", "acct", "bookkeeper"),
    "Baker": ("baker", "bakery hand", "bread baker"),
    "Chef": ("chef", "cook", "kitchen chef"),
    "Waiter": ("waiter", "waitress", "table service"),
    "Electrician": ("electrician", "sparky", "elec fitter"),
    "Electrical Engineer": ("electrical engineer", "elec eng", "ee"),
    "Plumber": ("plumber", "pipe fitter", "plumbing"),
    "Truck Driver": ("truck driver", "hgv driver", "driver truck"),
    "Delivery Driver": ("delivery driver", "van driver", "courier"),
    "Warehouse Worker": ("warehouse worker", "picker", "warehouse"),
    "Teacher": ("teacher", "school teacher", "tutor"),
    "Office Manager": ("office manager", "office mgr", "office admin"),
    "Product Manager": ("product manager", "pm", "product mgr"),
    "Project Manager": ("project manager", "pm", "project mgr"),
    "Web Designer": ("web designer", "ui designer", "designer web"),
}
_FIRST = _words(
    "Nordwind Halden Brightwater Copper Kestrel Marlow Ostfeld Silverline Tamsin Union Vesta Wolder Amber Birchwood "
    "Castell Dunmore Elmgate Fairholm Greyfriar Harbour"
)
_SECOND = _words("Logistics Foods Systems Care Partners Motors Energy Retail Studios Works Clinics Labs")
_CITIES = {
    city: (city.lower(), city.lower(), short)
    for city, short in {
        "Hamburg": "ham", "Hamm": "ham", "Berlin": "bln", "Bern": "ber", "Bergen": "ber", "Munich": "muc",
        "Cologne": "cgn", "Leeds": "lds", "London": "ldn", "Leicester": "lei", "Leipzig": "lei", "Lyon": "lyn",
        "Paris": "par", "Porto": "por", "Portsmouth": "por", "Vienna": "vie", "Zurich": "zrh", "Geneva": "gen",
        "Genoa": "gen", "Dublin": "dub", "Cork": "crk", "Madrid": "mad", "Malaga": "mal", "Malmo": "mal",
        "Oslo": "osl", "Turin": "tur", "Turku": "tur", "Rome": "rom", "Rotterdam": "rot", "Utrecht": "utr",
        "Ghent": "gnt", "Bruges": "brg", "Prague": "prg", "Brno": "brn", "Gdansk": "gdn", "Krakow": "krk",
    }.items()
}  # fmt: skip
_CONTRACTS = {
    "permanent": ("permanent", "perm", "unlimited"),
    "temporary": ("temporary", "temp", "fixed term", "6 months"),
    "freelance": ("freelance", "contractor", "self employed"),
    "internship": ("internship", "intern", "placement"),
    "part-time": ("part time", "pt", "20h a week"),
}
_MONTHS = _words("January February March April May June July August September October November December")
_PHRASES = (
    "join our team", "we are hiring", "apply now", "great benefits", "family run", "good pay", "training given",
    "no weekends", "own car helpful", "friendly crew", "urgent", "new opening", "central location",
    "career changers ok",
)  # fmt: skip
_NEW_CITIES = _words("Aarhus Bilbao Cardiff Dresden Exeter Florence Graz Innsbruck Lille Nantes Poznan Seville")
_NEW_FIRST = _words("Quillon Ravensby Sandhurst Thornbury Ulverton Wexcombe Yarrow Zellmer Ironbridge Jessop")


def listing(draw: random.Random, *, cities: bool = False, companies: bool = False) -> Query:
    """Draw one listing; with cities or companies that no model was trained on."""
    gold: dict[str, str | None] = dict.fromkeys(FIELDS)
    said = []
    for field in FIELDS:
        if draw.random() < _PRESENT[field]:
            gold[field], words = _DRAWN[field](draw)
            if field == "city" and cities:
                gold[field] = draw.choice(_NEW_CITIES)
                words = gold[field].lower()
            if field == "company" and companies:
                gold[field] = f"{draw.choice(_NEW_FIRST)} {draw.choice(_SECOND)}"
                words = gold[field].lower()
            said.append(words)
    if draw.random() < 0.35 or not said:
        said.append(draw.choice(_PHRASES))
    if draw.random() < 0.5:
        draw.shuffle(said)
    text = draw.choice((" ", ", ", " ", " - ")).join(said)
    return Query(with_typos(text, _TYPOS, draw), gold)


def _title(draw: random.Random) -> tuple[str, str]:
    role, words = _one_of(_ROLES, draw)
    if draw.random() < 0.6:
        return role, words
    level, short = _one_of(_LEVELS, draw)
    return f"{level} {role}", f"{short} {words}"


def _company(draw: random.Random) -> tuple[str, str]:
    first, second = draw.choice(_FIRST), draw.choice(_SECOND)
    short = f"{first} {second[:3]}" if draw.random() < 0.25 else f"{first} {second}"
    return f"{first} {second}", draw.choice(("", "", "at ")) + (short if draw.random() < 0.3 else short.lower())


def _salary(draw: random.Random) -> tuple[str, str]:
    if draw.random() < 0.7:
        thousands = draw.randint(22, 95)
        return f"{thousands}000", draw.choice(
            (f"{thousands}k", f"{thousands}.000", f"eur {thousands}k", f"{thousands}")
        )
    hourly = draw.randint(12, 48)
    return f"{hourly} per hour", draw.choice((f"{hourly}/h", f"{hourly} ph", f"{hourly} an hour", f"{hourly}"))


def _start(draw: random.Random) -> tuple[str, str]:
    if draw.random() < 0.25:
        return "immediately", draw.choice(("asap", "now", "start now", "immediate start"))
    month = draw.choice(_MONTHS)
    return month, draw.choice((f"from {month[:3]}", f"start {month}", month[:3], f"1 {month[:3]}")).lower()


def _one_of(names: Mapping[str, tuple[str, ...]], draw: random.Random) -> tuple[str, str]:
    name = draw.choice(list(names))
    return name, draw.choice(names[name])


_DRAWN = {
    "title": _title,
    "company": _company,
    "city": lambda draw: _one_of(_CITIES, draw),
    "salary": _salary,
    "contract": lambda draw: _one_of(_CONTRACTS, draw),
    "start": _start,
}


def listings(count: int, seed: int, **new: bool) -> list[Query]:
    """Draw so many listings; ``base`` is their place, but with new names."""
    draw = random.Random(f"listings {seed}")
    return [listing(draw, **new)._replace(base=-1 if new else place) for place in range(count)]
