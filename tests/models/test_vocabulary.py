import pytest

from models.nmt.vocabulary import CONTROL, END, PAD, START, UNKNOWN, Vocabulary

SENTENCES = [["b", "a", "b"], ["c", "b", "a"]]


def test_frequent_words_come_first_and_ties_follow_the_alphabet():
    assert Vocabulary.of(SENTENCES).words == (*CONTROL, "b", "a", "c")
    assert Vocabulary.of([["z", "y"]]).words == (*CONTROL, "y", "z")


def test_a_size_keeps_the_most_frequent_words():
    vocabulary = Vocabulary.of(SENTENCES, size=5)
    assert len(vocabulary) == 5
    assert vocabulary.encode(["b", "a"]) == [4, UNKNOWN, END]


def test_a_size_without_room_for_a_word_is_refused():
    with pytest.raises(ValueError, match="size must be above 4.*got 4"):
        Vocabulary.of(SENTENCES, size=4)


def test_words_survive_encoding_and_nothing_follows_the_end():
    vocabulary = Vocabulary.of(SENTENCES)
    ids = [START, *vocabulary.encode(["a", "c"]), PAD, 4]
    assert vocabulary.decode(ids) == ["a", "c"]


def test_control_tokens_in_a_text_do_not_come_twice():
    assert Vocabulary.of([["<s>", "a", "<unk>"]]).words == (*CONTROL, "a")


def test_a_saved_vocabulary_is_the_same_when_loaded(tmp_path):
    path = tmp_path / "words"
    vocabulary = Vocabulary.of([["über", "ß", "a", "日本"]])
    vocabulary.save(path)
    assert Vocabulary.load(path).words == vocabulary.words


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "begins with the control tokens.*nothing"),
        (b"a\nb\n", "begins with the control tokens <pad> <s> </s> <unk>, this one with a b"),
        (b"<pad>\n<s>\n</s>\n<unk>\na\na\n", "'a' comes twice"),
        (b"<pad>\n<s>\n</s>\n<unk>\n\xff\n", "line 5: not UTF-8"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_named(tmp_path, content, complaint):
    path = tmp_path / "words"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint) as error:
        Vocabulary.load(path)
    assert str(path) in str(error.value)
