import pytest

from models.nmt.codec import Words
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.trained import Trained
from models.nmt.vocabulary import Vocabulary


@pytest.fixture
def model(tmp_path):
    vocabulary = Vocabulary.of([["a", "b"]])
    words = Words(vocabulary)
    model = Seq2Seq(Seq2SeqConfig(len(words), len(words), units=4, embedding=4))
    Trained(model, words, words).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_each_line_becomes_a_line(run, model):
    done = run("translate", f"--model={model}", "--batch=1", text="a b\n\nb\nb a b")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[4] == ""


@pytest.mark.slow
def test_nothing_to_translate_is_nothing(run, model):
    done = run("translate", f"--model={model}", text="")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_n_best_scores_attention_and_bleu(run, model, tmp_path):
    reference = tmp_path / "reference"
    reference.write_text("a b\n\nb\n")
    done = run(
        "translate",
        f"--model={model}",
        "--beams=3",
        "--nbest=2",
        "--scores",
        f"--reference={reference}",
        f"--attention={tmp_path / 'pictures'}",
        text="a b\n\nb\n",
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert float(rows[0][1]) >= float(rows[1][1])
    assert "BLEU" in done.stderr and "nrefs:1|case:mixed" in done.stderr
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert [p.name for p in pictures] == ["00001.png", "00003.png"]
    assert pictures[0].read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_attention_as_text_and_a_line_that_is_too_long(run, model):
    done = run("translate", f"--model={model}", "--attention=text", text="a b\n" + "a " * 10_000)
    assert done.returncode == 0, done.stderr
    assert "</s> |" in done.stdout or "|" in done.stdout
    assert "line 2 has 10000 tokens: only its first 999 are translated" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--model=nowhere"], "nowhere: no trained model here, config.json is missing"),
        (["--input=nowhere.en"], "nowhere.en: there is no such file"),
        (["--input={folder}/latin"], "latin, line 2: not UTF-8"),
        (["--nbest=9"], "--nbest=9 is more than --beams=5 can give"),
    ],
)
def test_what_cannot_be_translated_is_said_in_one_line(run, model, flags, complaint):
    (model / "latin").write_bytes("a\n\u00fc\n".encode("latin-1"))
    done = run("translate", f"--model={model}", *(flag.format(folder=model) for flag in flags))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("translate: ")
    assert complaint in last
