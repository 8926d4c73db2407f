import gzip
from pathlib import Path

import numpy as np
import pytest

from models.nmt import data
from models.nmt.corpus import Pair, generate
from models.nmt.vocabulary import END, PAD, START, Vocabulary

MULTI30K = Path(__file__).resolve().parents[3] / "shared" / "data" / "multi30k"


@pytest.fixture
def files(tmp_path):
    """Writes a source and a target file; returns their paths."""

    def write(source, target):
        paths = tmp_path / "source", tmp_path / "target"
        for path, content in zip(paths, (source, target), strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return paths

    return write


def test_lines_become_pairs_of_words(files):
    assert data.read_pairs(*files("a b\nc\n", "A\nB  C")) == [
        Pair(("a", "b"), ("A",)),
        Pair(("c",), ("B", "C")),
    ]


def test_a_gzipped_file_reads_as_the_plain_one(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress("a ü\nb\n".encode()))
    assert data.read_lines(path) == ["a ü", "b"]


def test_windows_line_ends_byte_order_marks_and_odd_separators_shift_nothing(files):
    source, _ = files(b"\xef\xbb\xbfa\r\nb\xe2\x80\xa8c\x0cd\r\n", "x")
    assert data.read_lines(source) == ["a", "b\u2028c\x0cd"]


def test_tokenizing_splits_punctuation_and_keeps_words_whole():
    assert data.split("Größe, man's 3.", tokenize=True) == ("Größe", ",", "man", "'", "s", "3", ".")
    assert data.split("Größe, man's") == ("Größe,", "man's")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such file"):
        data.read_lines(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["", "\n\n", " \n"])
def test_an_empty_file_is_named(files, content):
    source, target = files("a\n", content)
    with pytest.raises(ValueError, match="target: the file is empty"):
        data.read_pairs(source, target)


def test_a_line_that_is_not_utf8_is_named(files):
    source, _ = files(b"a\nb \xff c\n", "x")
    with pytest.raises(ValueError, match="source, line 2: not UTF-8 .byte 3 of the line"):
        data.read_lines(source)


@pytest.mark.parametrize("content", [b"plain text", gzip.compress(b"a\nb\n" * 99, mtime=0)[:-20]])
def test_a_damaged_gzip_file_is_named(tmp_path, content):
    path = tmp_path / "text.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="text.gz: not a sound gzip file"):
        data.read_lines(path)


def test_unequal_line_counts_name_both_files(files):
    with pytest.raises(ValueError, match="source has 2 lines and .*target has 3"):
        data.read_pairs(*files("a\nb\n", "a\nb\nc\n"))


def test_pairs_with_an_empty_or_too_long_side_are_left_out(files):
    paths = files("a\n\nc d e\nf\n", "a\nb\nc\nf\n")
    assert [p.source for p in data.read_pairs(*paths, max_length=2)] == [("a",), ("f",)]


def test_no_pair_left_is_an_error(files):
    with pytest.raises(ValueError, match="none of 2 pairs has 1 to 3 words"):
        data.read_pairs(*files("a b c d\n\n", "a\nb\n"), max_length=3)


def make(pairs, batch=4, **options):
    vocabularies = [Vocabulary.of(pair[side] for pair in pairs) for side in (0, 1)]
    return data.batches(pairs, *vocabularies, batch, **options), vocabularies


def read_back(batches, vocabularies):
    """The pairs of all batches."""
    return [
        Pair(*(tuple(v.decode(ids)) for v, ids in zip(vocabularies, row, strict=True)))
        for source, target in batches
        for row in zip(source.numpy(), target.numpy(), strict=True)
    ]


def test_evaluation_sees_every_pair_once():
    pairs = generate(train=50, validation=1, heldout=1).train
    batches, vocabularies = make(pairs)
    assert sorted(read_back(batches, vocabularies)) == sorted(pairs)


def test_a_batch_holds_like_lengths_padded_to_the_width_of_their_bucket():
    pairs = generate(train=80, validation=1, heldout=1).train
    for source, target in make(pairs)[0]:
        width = source.shape[1]
        assert width == target.shape[1]
        assert width % data.BUCKET_WIDTH == 0
        lengths = [np.count_nonzero(side != PAD, axis=1) for side in (source, target)]
        assert np.all(np.maximum(*lengths) > width - data.BUCKET_WIDTH)
        for ids, length in zip((source.numpy(), target.numpy()), lengths, strict=True):
            assert np.all(ids[np.arange(len(ids)), length - 1] == END)
        assert np.all(target.numpy()[:, 0] == START)


def test_training_goes_on_for_ever_in_full_batches_and_a_new_order():
    pairs = generate(train=30, validation=1, heldout=1).train
    batches, vocabularies = make(pairs, seed=1)
    epochs = list(batches.take(40))
    assert all(source.shape[0] == 4 for source, _ in epochs)
    seen = read_back(epochs, vocabularies)
    assert set(seen) == set(pairs)
    assert seen[:30] != seen[30:60]


def test_a_seed_fixes_the_order_and_another_changes_it():
    pairs = generate(train=60, validation=1, heldout=1).train
    first, again, other = (read_back(*_take(pairs, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def _take(pairs, seed):
    batches, vocabularies = make(pairs, seed=seed)
    return batches.take(5), vocabularies


def test_nothing_to_batch_is_refused():
    vocabulary = Vocabulary.of([["a"]])
    with pytest.raises(ValueError, match="pairs is empty"):
        data.batches([], vocabulary, vocabulary, 4)
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        data.batches([Pair(("a",), ("a",))], vocabulary, vocabulary, 0)


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="no Multi30k text beside the checkout")
def test_real_text_is_read_whole_and_batched():
    pairs = data.read_pairs(MULTI30K / "val.en.gz", MULTI30K / "val.de.gz", tokenize=True)
    assert len(pairs) == len(data.read_lines(MULTI30K / "val.de.gz")) > 1000
    batches, _ = make(pairs, batch=64)
    assert sum(source.shape[0] for source, _ in batches) == len(pairs)
