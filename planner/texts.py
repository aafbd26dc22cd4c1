"""English and Turkish: the English sentence is the key, `planner/turkish` holds the other language."""

from planner.turkish import TURKISH

__all__ = ["LANGUAGES", "translated"]

LANGUAGES = ("en", "tr")


def translated(english: str, language: str) -> str:
    """A sentence or template in the language asked for; English where the language is English.

    tests/test_texts.py fails where a sentence that can be shown has no Turkish.
    """
    return english if language == "en" else TURKISH.get(english, english)
