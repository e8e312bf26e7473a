"""Text of a log made safe to print: control characters of a terminal are shown, not sent."""

import unicodedata

# Pictures of the control characters below a space, and of the delete character.
_PICTURES = {code: 0x2400 + code for code in range(32)} | {127: "␡", 10: "⏎", 9: "⇥"}


def on_one_line(text: str) -> str:
    r"""The text with each control character as one that can be seen.

    >>> on_one_line("a\n\tb\x1b[2J")
    'a⏎⇥b␛[2J'
    """
    text = text.translate(_PICTURES)
    if text.isprintable():
        return text
    return "".join(each if not _is_control(each) else _escaped(each) for each in text)


def _is_control(character: str) -> bool:
    # Format characters turn the direction of the text around them; joiners of emoji do no harm.
    return unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and character != "\u200d"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
