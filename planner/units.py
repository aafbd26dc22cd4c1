"""Units: bytes and seconds inside; GiB only where a person reads."""

KiB = 1024
MiB = 1024**2
GiB = 1024**3

# What separates thousands and decimals in the languages of the workbook.
_SEPARATORS = {"en": (",", "."), "tr": (".", ",")}


def format_number(value: float, decimals: int = 0, *, language: str = "en") -> str:
    """`1234.5` as a person reads it: `1,234.5` in English, `1.234,5` in Turkish."""
    thousands, point = _SEPARATORS[language]
    text = f"{value:,.{decimals}f}"
    return text.translate(str.maketrans(",.", thousands + point))


def format_gib(num_bytes: float, *, language: str = "en") -> str:
    """Bytes as GiB (2^30); as MiB, or KiB, where that would show less than 0.1."""
    for unit, name in ((GiB, "GiB"), (MiB, "MiB")):
        size = num_bytes / unit
        if abs(size) >= 0.1:
            return f"{format_number(size, 1 if unit == GiB or abs(size) < 10 else 0, language=language)} {name}"
    return f"{format_number(num_bytes / KiB, language=language)} KiB"


def format_count(value: float, *, language: str = "en") -> str:
    """A count of parameters as `6.74 B`, `40.0 M` or `512` (Turkish writes Mr for milyar, Mn for milyon)."""
    billion, million = ("B", "M") if language == "en" else ("Mr", "Mn")
    if abs(value) >= 1e9:
        return f"{format_number(value / 1e9, 2, language=language)} {billion}"
    if abs(value) >= 1e6:
        return f"{format_number(value / 1e6, 1, language=language)} {million}"
    return format_number(value, language=language)


def format_share(share: float, *, language: str = "en") -> str:
    """A difference as a share: `+1.2 %` in English, `+%1,2` in Turkish."""
    percent = round(100 * share, 1)
    sign = "+" if percent > 0 else "-" if percent < 0 else ""
    number = format_number(abs(percent), 1, language=language)
    return f"{sign}{number} %" if language == "en" else f"{sign}%{number}"


def format_percent(share: float, decimals: int = 0, *, language: str = "en") -> str:
    """A share as `30 %` in English, `%30` in Turkish."""
    number = format_number(100 * share, decimals, language=language)
    return f"{number} %" if language == "en" else f"%{number}"


def format_duration(seconds: float, *, language: str = "en") -> str:
    """Seconds as `45 s`, `12 min`, `3.4 h` or `2.1 days`; `–` where there is no end."""
    if not seconds < 1e12:
        return "–"
    minute, hour, day = ("min", "h", "days") if language == "en" else ("dk", "sa", "gün")
    second = "s" if language == "en" else "sn"
    for size, name, decimals in ((86400, day, 1), (3600, hour, 1), (60, minute, 0)):
        if seconds >= 2 * size or (size == 3600 and seconds >= size):
            return f"{format_number(seconds / size, decimals, language=language)} {name}"
    decimals = 0 if seconds >= 10 or not seconds else 1 if seconds >= 1 else 2
    return f"{format_number(seconds, decimals, language=language)} {second}"


def format_usd(usd: float, *, language: str = "en") -> str:
    """US dollars: `$12.30` in English, `12,30 $` in Turkish; whole dollars from a thousand on, `–` where there is no price."""
    if not usd < 1e12:
        return "–"
    number = format_number(usd, 0 if usd >= 1000 else 2, language=language)
    return f"${number}" if language == "en" else f"{number} $"
