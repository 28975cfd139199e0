"""More than two hundred strings that were harmful somewhere: tags, attributes, schemes, templates,
directions, invisible characters, sizes.
"""

from __future__ import annotations

from tests.web.security.hostile_texts import HOSTILE, MARK

__all__ = ["CORPUS", "HUGE"]

_EVENTS = (
    *("onload", "onerror", "onclick", "onfocus", "onblur", "oninput", "onchange", "onsubmit"),
    *("onmouseover", "onpointerdown", "onanimationend", "ontransitionend", "onwheel", "onpaste"),
    *("ontoggle", "onbeforetoggle", "onscrollend", "onkeydown", "ondrag", "oncopy", "onmessage"),
)
_TAGS = (
    *("img", "svg", "video", "audio", "iframe", "object", "embed", "body", "input", "details"),
    *("marquee", "math", "style", "link", "meta", "base", "form", "button", "template", "dialog"),
)
_SCHEMES = (
    *(
        "javascript:",
        "JaVaScRiPt:",
        "java\tscript:",
        "java\nscript:",
        " javascript:",
        "data:text/html,",
    ),
    *(
        "vbscript:",
        "blob:",
        "file:///etc/passwd#",
        "//evil.test/",
        "\\\\evil.test\\",
        "http:evil.test/",
    ),
    *("javascript&colon;", "javascript&#58;", "feed:javascript:", "view-source:"),
)
_HTMX = ("hx-get", "hx-post", "hx-on:click", "hx-vals", "hx-ext", "hx-swap-oob", "data-live-url")
_TEMPLATES = ("{{%s}}", "{%%%s%%}", "{#%s#}", "${%s}", "#{%s}", "<%%=%s%%>", "[[%s]]", "@(%s)")
_MARKS = (0x202A, 0x202B, 0x202C, 0x202D, 0x202E, 0x2066, 0x2067, 0x2068, 0x2069, 0x200E, 0x200F,
          0x061C, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x00AD, 0x180E, 0xFFF9, 0xFFFA, 0xFFFB,
          0xE0001, 0xE0041, 0x2028, 0x2029, 0x0085, 0x3164, 0x115F, 0xFFFC)  # fmt: skip
_CONTROLS = (*({*range(1, 32)} - {9, 10, 13}), 127, 128, 155, 159)

HUGE = [MARK + "A" * 200_000, MARK + "<b>" * 20_000, MARK + "\u202e" * 5_000, MARK + "\n" * 20_000]
"""For fields that may be so long."""

CORPUS: list[str] = [
    *HOSTILE,
    *(f"<x {event}=alert('{MARK}')>" for event in _EVENTS),
    *(f"\" {event}=\"alert('{MARK}')" for event in _EVENTS),
    *(f"<{tag} src=x href=x onerror=alert('{MARK}')>{MARK}</{tag}>" for tag in _TAGS),
    *(f"</{tag}><script>alert('{MARK}')</script>" for tag in _TAGS),
    *(f"{scheme}alert('{MARK}')" for scheme in _SCHEMES),
    *(f'" {name}="/{MARK}' for name in _HTMX),
    *(template.replace("%s", "7*7").replace("%%", "%") + MARK for template in _TEMPLATES),
    *(f"{MARK}{chr(code)}txt.exe" for code in _MARKS),
    *(f"{MARK}{chr(code)}[2J" for code in _CONTROLS),
]
