"""What users look like whom nobody made: a stranger who asks for salts learns nothing of who exists."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.scram_credentials import MECHANISMS, SCRAM_SHA_256, SCRAM_SHA_512, random_text
from headrace.security import scram_fakes
from headrace.security.scram_fakes import (
    DEFAULT_FORM,
    FORMS_MAX,
    SALT_BYTES_MAX,
    TOKEN_FORM,
    FakeCredentials,
    Form,
    form_of,
)
from headrace.wire.messages.metadata_records import UserScramCredentialRecord

SECRET = b"s" * 16
NAMES = [f"name-{number}" for number in range(2000)]
Users = dict[tuple[str, int], UserScramCredentialRecord]


def users(*forms: Form, code: int = 1, first: int = 0) -> Users:
    """A user of each form."""
    chance = random.Random(first)
    made = {}
    for number, form in enumerate(forms, first):
        salt = chance.randbytes(form.salt_bytes) if form.salt_bytes else random_text(chance.randbytes).encode()
        record = UserScramCredentialRecord(name=f"user-{number}", mechanism=code, salt=salt, iterations=form.iterations)
        made[record.name, code] = record
    return made


FORMS = st.builds(
    Form, st.sampled_from([4096, 5000, 8192, 16_384]), st.sampled_from([0, 1, 16, 32, 64, SALT_BYTES_MAX])
)
SOME_USERS = st.lists(FORMS, max_size=30).map(lambda forms: users(*forms))


def form_in(fakes: FakeCredentials, name: str) -> Form:
    made = fakes.of(SCRAM_SHA_256, name)
    return form_of(made.salt, made.iterations)


@given(SOME_USERS, st.text(max_size=40), st.sampled_from(list(MECHANISMS.values())), st.randoms())
def test_every_node_says_the_same(made: Users, name: str, mechanism: object, chance: random.Random) -> None:
    """In whatever order a snapshot gives the users to a node."""
    assert mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
    shuffled = list(made.items())
    chance.shuffle(shuffled)
    one, other = FakeCredentials(SECRET, made), FakeCredentials(SECRET, dict(shuffled))
    name = name.encode("utf-8", "replace").decode()
    for mechanism in MECHANISMS.values():
        assert one.of(mechanism, name) == other.of(mechanism, name)
        assert one.of_token(mechanism, name) == other.of_token(mechanism, name)


@given(SOME_USERS, st.text("ab,=\x01", max_size=10))
def test_it_looks_like_one_of_the_users(made: Users, name: str) -> None:
    expected = {form_of(each.salt, each.iterations) for each in made.values()} or {DEFAULT_FORM}
    assert form_in(FakeCredentials(SECRET, made), name) in expected
    # The other mechanism has no users.
    other = FakeCredentials(SECRET, made).of(SCRAM_SHA_512, name)
    assert form_of(other.salt, other.iterations) == DEFAULT_FORM


def test_names_mechanisms_kinds_and_clusters_have_nothing_in_common() -> None:
    made = [
        (credential.salt, credential.stored_key, credential.server_key)
        for secret in (SECRET, b"t" * 16)
        for fakes in [FakeCredentials(secret, {})]
        for mechanism in MECHANISMS.values()
        for name in ("a", "b")
        for credential in (fakes.of(mechanism, name), fakes.of_token(mechanism, name))
    ]
    assert len({part for each in made for part in each}) == 3 * len(made)


def test_forms_are_drawn_in_proportion() -> None:
    usual, strong, librdkafka = Form(4096, 0), Form(8192, 0), Form(8192, 64)
    fakes = FakeCredentials(SECRET, users(*[usual] * 6, *[strong] * 3, librdkafka))
    drawn = Counter(form_in(fakes, name) for name in NAMES)
    assert set(drawn) == {usual, strong, librdkafka}
    assert 0.55 < drawn[usual] / len(NAMES) < 0.65
    assert 0.25 < drawn[strong] / len(NAMES) < 0.35
    assert 0.07 < drawn[librdkafka] / len(NAMES) < 0.13


def test_another_user_changes_few_names_and_none_where_all_are_alike() -> None:
    usual, strong = Form(4096, 0), Form(8192, 0)
    before = FakeCredentials(SECRET, users(*[usual] * 50))
    after = FakeCredentials(SECRET, users(*[usual] * 51))
    assert all(before.of(SCRAM_SHA_256, name) == after.of(SCRAM_SHA_256, name) for name in NAMES)
    mixed = FakeCredentials(SECRET, users(*[usual] * 50, strong))
    changed = [name for name in NAMES if before.of(SCRAM_SHA_256, name) != mixed.of(SCRAM_SHA_256, name)]
    assert 0 < len(changed) < len(NAMES) * 3 / 51
    assert {form_in(mixed, name) for name in changed} == {strong}


def test_whoever_has_too_few_iterations_is_no_model() -> None:
    """A server takes such a user for nobody."""
    assert form_in(FakeCredentials(SECRET, users(Form(4095, 0), Form(4095, 64))), "a") == DEFAULT_FORM


def test_the_forms_of_ten_thousand_users_cost_a_login_little() -> None:
    made = users(*[Form(4096 + number, 0) for number in range(10_000)], *[Form(4096, 64)] * 2, Form(4096, 10**6))
    fakes = FakeCredentials(SECRET, made)
    assert len(fakes._forms[1]) == FORMS_MAX and fakes._forms[1][0] == (Form(4096, 64), 2)
    assert len(FakeCredentials(SECRET, users(Form(4096, 10**6))).of(SCRAM_SHA_256, "a").salt) == SALT_BYTES_MAX


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda each: each.name)
def test_a_token_that_is_none_looks_like_one(mechanism: object) -> None:
    assert mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
    made = FakeCredentials(SECRET, users(Form(8192, 0))).of_token(mechanism, "id")
    assert form_of(made.salt, made.iterations) == TOKEN_FORM


@given(st.binary(min_size=17, max_size=17))
def test_salts_of_kafkas_tools_are_one_form(drawn: bytes) -> None:
    salt = random_text(lambda _: drawn).encode()
    expected = 0 if len(salt) >= 22 else len(salt)
    assert form_of(salt, 4096) == Form(4096, expected)
    for other in (salt.upper(), b"-" + salt[1:], b"0" * 27):
        assert other == salt or form_of(other, 4096) == Form(4096, len(other))


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1, 2]), FORMS), max_size=20), max_size=5))
def test_who_follows_knows_what_a_new_one_knows(steps: list[list[tuple[int, int, Form]]]) -> None:
    fakes, now = FakeCredentials(SECRET, {}), Users()
    for number, step in enumerate(steps):
        then = Users()
        for user, code, form in step:
            ((key, record),) = users(form, code=code, first=user).items()
            # who has the same credential as before has the same record
            then[key] = now[key] if now.get(key) == record else record
        secret, now = f"secret {number}".encode(), then
        fakes.follow(secret, now)
        new = FakeCredentials(secret, now)
        for mechanism in MECHANISMS.values():
            for name in NAMES[:20]:
                assert fakes.of(mechanism, name) == new.of(mechanism, name)


def test_records_that_stay_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bytes] = []

    def look(salt: bytes, iterations: int) -> Form:
        looked.append(salt)
        return form_of(salt, iterations)

    monkeypatch.setattr(scram_fakes, "form_of", look)
    many = users(*[Form(8192, 0)] * 1000)
    fakes = FakeCredentials(SECRET, many)
    assert len(looked) == 1000
    fakes.follow(SECRET, {**many, **users(Form(4096, 32), first=500), **users(Form(4096, 0), first=1000)})
    assert len(looked) == 1003
    fakes.follow(b"other" * 5, dict(many))
    assert len(looked) == 1006
