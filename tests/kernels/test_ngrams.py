"""Hashes of n-grams."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from consilience.files.ngram_model import Reading, pack
from consilience.kernels.ngrams import drop_ngrams, hash_ngrams, take_texts

WORDS = st.text(st.sampled_from("ab cé漢 \n1_,𝄞𐐷\x00\ud800"), max_size=30)


def bucket(ngram: str, n_buckets: int) -> int:
    """The hash with Python's own whole numbers."""
    h = 14695981039346656037
    for character in ngram:
        h = ((h ^ ord(character)) * 1099511628211) % 2**64
    g = ((h ^ (h >> 29)) * 0xBF58476D1CE4E5B9) % 2**64
    return ((g >> 32) * n_buckets) >> 32


def ngrams(text: str, lo: int, hi: int) -> list[str]:
    """All n-grams of words with a space at both ends, by their first character, then by length."""
    words = text.split(" ")[1:-1]
    return [
        word[s : s + length]
        for word in (f" {w} " for w in words)
        for s in range(len(word) - 1)
        for length in range(lo, hi + 1)
        if s + length <= len(word) and word[s : s + length] != " "
    ]


def read(texts: list[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    codes, bounds = pack(texts, Reading((1, 5), lowercase=True, max_chars=1000))
    joined = "".join(map(chr, codes))
    return codes, bounds, [joined[a:b] for a, b in pairwise(bounds)]


@given(st.lists(WORDS, max_size=6), st.integers(1, 4), st.integers(0, 4), st.integers(1, 5000))
@settings(max_examples=150, deadline=None)
def test_the_buckets_are_those_of_plain_python(texts, lo, more, n_buckets):
    codes, bounds, read_as = read(texts)
    ids, ends = hash_ngrams(codes, bounds, lo, lo + more, n_buckets)
    assert ids.dtype == np.int32
    assert len(ends) == len(texts) + 1
    for i, text in enumerate(read_as):
        expected = [bucket(ngram, n_buckets) for ngram in ngrams(text, lo, lo + more)]
        assert ids[ends[i] : ends[i + 1]].tolist() == expected


def test_the_ngrams_are_those_of_scikit_learn():
    texts = ["the cat sat surely", "a", "", "żółw 漢字 naïve"]
    codes, bounds, _ = read(texts)
    ids, ends = hash_ngrams(codes, bounds, 1, 5, 2**31)
    analyse = CountVectorizer(analyzer="char_wb", ngram_range=(1, 5)).build_analyzer()
    for i, text in enumerate(texts):
        expected = [bucket(ngram, 2**31) for ngram in analyse(text) if ngram != " "]
        assert sorted(ids[ends[i] : ends[i + 1]].tolist()) == sorted(expected)


def test_the_hash_never_changes_since_saved_models_depend_on_it():
    codes, bounds, _ = read(["é𐐷"])
    ids, _ = hash_ngrams(codes, bounds, 1, 4, 2**18)
    assert ids.tolist() == [196515, 100962, 229915, 133472, 137439, 169206, 190405, 122308]


@given(st.lists(WORDS, min_size=1, max_size=6), st.data())
@settings(deadline=None)
def test_taken_texts_are_the_texts_taken(texts, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=8)), dtype=np.intp)
    codes, bounds, _ = read(texts)
    taken, ends = take_texts(codes, bounds, rows)
    expected, expected_ends, _ = read([texts[row] for row in rows])
    assert taken.tolist() == expected.tolist()
    assert ends.tolist() == expected_ends.tolist()


def test_dropped_ngrams_leave_the_others_with_their_texts():
    ids, bounds = np.array([5, 6, 7, 8], dtype=np.int32), np.array([0, 1, 1, 4])
    kept, ends = drop_ngrams(ids, bounds, np.array([False, True, False, True]))
    assert kept.tolist() == [6, 8]
    assert ends.tolist() == [0, 0, 0, 2]
