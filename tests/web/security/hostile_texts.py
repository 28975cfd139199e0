"""Strings that should have stayed text somewhere, and did not."""

from __future__ import annotations

__all__ = ["HOSTILE", "MARK"]

MARK = "xssmark"
_CALL = f"alert('{MARK}')"

_TAGS = [
    f"<script>{_CALL}</script>",
    f"</script><script>{_CALL}</script>",
    f"</title><script>{_CALL}</script>",
    f"</textarea><script>{_CALL}</script>",
    f"<img src=x onerror={_CALL}>",
    f"<svg onload={_CALL}>",
    f"<svg><script>{_CALL}</script></svg>",
    f"<body onload={_CALL}>",
    f"<iframe srcdoc='<script>{_CALL}</script>'>",
    f"<details open ontoggle={_CALL}>",
    f"<math><mtext><script>{_CALL}</script></mtext></math>",
    f"<a href='javascript:{_CALL}'>{MARK}</a>",
    f"<form action='javascript:{_CALL}'><button>{MARK}</button></form>",
    f"<meta http-equiv=refresh content='0;url=javascript:{_CALL}'>",
    f"<link rel=stylesheet href=data:text/css,{MARK}>",
    f"<style>@import '{MARK}'</style>",
    f"<base href='//{MARK}/'>",
    f"<object data='javascript:{_CALL}'>",
    f"<div hx-get='/{MARK}' hx-trigger='load'>",
    f"<div hx-on:htmx:load='{_CALL}'>",
    f"<div data-hx-get='/{MARK}'>",
    f"<template><script>{_CALL}</script></template>",
    f"<noscript><p title='</noscript><script>{_CALL}</script>'>",
    f"<!--<img src='--><img src=x onerror={_CALL}>",
    f"<![CDATA[<script>{_CALL}</script>]]>",
    f"<x/onpointerenter={_CALL}>",
    f"<scr<script>ipt>{_CALL}</script>",
    f"%3Cscript%3E{_CALL}%3C/script%3E",
    f"&lt;script&gt;{_CALL}&lt;/script&gt;",
    f"&#60;script&#62;{_CALL}&#60;/script&#62;",
    f"\\u003cscript\\u003e{_CALL}",
    f"\uff1cscript\uff1e{_CALL}",
]
_ATTRIBUTES = [
    f'" onmouseover="{_CALL}',
    f"' onmouseover='{_CALL}",
    f'" autofocus onfocus={_CALL} x="',
    f'"><img src=x onerror={_CALL}>',
    f"'><img src=x onerror={_CALL}>",
    f"` onmouseover=`{_CALL}",
    f'" style="background:url({MARK})',
    f'" hx-get="/{MARK}" hx-trigger="load',
    f'" data-dialog href="//{MARK}',
]
_EXPRESSIONS = [
    "{{ 7 * 7 }}" + MARK,
    "{% raw %}" + MARK,
    "{{ visit.admin }}" + MARK,
    "${7*7}" + MARK,
    "#{7*7}" + MARK,
    "<%= 7 * 7 %>" + MARK,
    f"javascript:{_CALL}",
    f"data:text/html,<script>{_CALL}</script>",
    f"vbscript:{MARK}",
    f"//{MARK}.test/x",
    f"'; DROP TABLE jobs; -- {MARK}",
    f"../../{MARK}",
]
_INVISIBLE = [
    f"{MARK}\u202egnp.exe",
    f"{MARK}\u2066\u2069",
    f"{MARK}\u200e\u200f",
    f"{MARK}\x1b[31mred\x1b[0m",
    f"{MARK}\x07\x08\x00"[:-1],
    f"{MARK}\x85\u2028\u2029",
    f"{MARK}\r\nset-cookie: x=1",
    f"{MARK}\u0430\u0440\u0440le",
    f"{MARK}" + "\u0301" * 50,
]

HOSTILE = [*_TAGS, *_ATTRIBUTES, *_EXPRESSIONS, *_INVISIBLE]
