"""Text that a terminal would obey, hide or choke on, if anybody let it through."""

from hypothesis import strategies as st

MARKER = "hostile"

SEQUENCES = (
    "\x1b[2J\x1b[H",
    "\x1b]0;owned\x07",
    "\x1b]52;c;b3duZWQ=\x07",
    "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "\x1bP+q544e\x1b\\",
    "\x1b[6n",
    "\x1b[5;77;1m",
    "\x1b[?1049l",
    "\x1bc",
    "\x9b31m\x9d0;owned\x9c",
    "\x90q\x9c",
    "\x00\x01\x07\x08\x0b\x0c\x0e\x0f\x7f",
    "\r\nsecond line\n\nfourth\ttabbed",
    "\u202egnp.exe\u202c \u2066isolated\u2069",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad",
    "\ue000\U000f0000\ufdd0\uffff",
    "e\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309" * 8,
    "表示幅の広い文字列" * 20,
    "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪" * 20,
    "[/nope][bold red]markup[/] [@click=app.quit()]quit[/] [$accent]",
    ":smile: {run_id} %s %(x)s $HOME `id` \\x1b[2J",
    "\u2028\u2029\x85",
    "ﷺ" * 50,
    "<script>alert(1)</script>&lt;",
    "--upload-pack=touch /tmp/owned",
    "x" * 1_000_000,
    "\n" * 5_000,
    "",
    " ",
)

texts = st.one_of(
    st.sampled_from(SEQUENCES),
    st.text(max_size=60),
    st.lists(st.sampled_from(SEQUENCES[:25]), min_size=2, max_size=4).map("".join),
    st.text(
        alphabet=st.characters(categories=["Cc", "Cf", "Co", "Zl", "Zp", "Mn", "Me", "Cn"]), min_size=1, max_size=60
    ),
)
"""Foreign text, the worst of it often."""
