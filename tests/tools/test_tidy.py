"""The project is tidy, and the tidy test sees what is not."""

from __future__ import annotations

import pytest

from tools import tidy


@pytest.mark.slow  # make check runs it by itself
def test_the_project_is_tidy() -> None:
    assert tidy.problems() == []


def test_a_long_file_a_long_function_and_a_missing_docstring_are_seen() -> None:
    body = "\n".join(f"    x = {number}" for number in range(tidy.FUNCTION_LINES_MAX + 1))
    assert list(tidy.check_python("a.py", f"def f():\n{body}\n")) == [
        "a.py: no docstring that says what lives here",
        "a.py:1: f has 72 lines, at most 70",
    ]
    assert list(tidy.check_python("a.py", '"""A."""\n' + "\n" * 700)) == ["a.py: 701 lines, at most 600"]


def test_names_that_say_nothing_are_seen() -> None:
    assert list(tidy.check_python("src/headrace/utils/disk.py", '"""A."""\n'))
    assert not list(tidy.check_python("src/headrace/log/disk.py", '"""A."""\n'))


def test_paths_of_one_machine_and_registries_are_seen() -> None:
    assert list(tidy.check_text("a.md", "see " + "/ho" + "me/someone/x")) == ["a.md:1: an absolute path of one machine"]
    assert list(tidy.check_text("a.md", "from " + "py" + "pi.org")) == ["a.md:1: an address of a package registry"]
    assert not list(tidy.check_text("a.md", "https://kafka.apache.org and the PyPI package x, src/work/x"))


def test_a_page_has_one_title() -> None:
    assert not list(tidy.check_markdown("a.md", "# A\n```\n# not one\n```\n## B\n"))
    assert list(tidy.check_markdown("a.md", "# A\n# B\n"))


def test_words_with_a_term_of_the_field_are_seen_in_names_comments_docstrings_and_pages() -> None:
    text = '"""Answers whoever asks."""\n\nx = "told"  # leads no more\n\n\n'
    text += 'def _wasTold(said_at):\n    """It\n\n    stands."""\n'
    found = [line.partition(": write")[0] for line in tidy.check_words("src/headrace/a.py", text)]
    assert found == [
        "src/headrace/a.py:1: 'whoever'",
        "src/headrace/a.py:3: 'no more'",
        "src/headrace/a.py:6: 'told'",
        "src/headrace/a.py:6: 'said'",
        "src/headrace/a.py:9: 'stands'",
    ]
    assert list(tidy.check_words("docs/a.md", "`told`\nstranger")) == [
        "docs/a.md:2: 'stranger': write unauthenticated client"
    ]


def test_words_are_free_in_printed_text_in_the_sense_of_fewer_and_outside_of_src_and_docs() -> None:
    assert not list(tidy.check_words("src/headrace/a.py", '"""No more than two, understood."""\nx = f("it is told")\n'))
    assert not list(tidy.check_words("tests/a.py", '"""Whoever."""\n'))
