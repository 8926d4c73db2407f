import pytest

from models.nmt.model import ModelConfig, Translator
from models.nmt.trained import Trained
from models.nmt.vocabulary import Vocabulary


@pytest.fixture
def model(tmp_path):
    vocabulary = Vocabulary.of([["a", "b"]])
    sizes = ModelConfig(len(vocabulary), len(vocabulary), units=4, embedding=4)
    Trained(Translator(sizes), vocabulary, vocabulary).save(tmp_path / "model")
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
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--model=nowhere"], "nowhere: no trained model here, config.json is missing"),
        (["--input=nowhere.en"], "nowhere.en: there is no such file"),
        (["--input={folder}/latin"], "latin, line 2: not UTF-8"),
    ],
)
def test_what_cannot_be_translated_is_said_in_one_line(run, model, flags, complaint):
    (model / "latin").write_bytes("a\n\u00fc\n".encode("latin-1"))
    done = run("translate", f"--model={model}", *(flag.format(folder=model) for flag in flags))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("translate: ")
    assert complaint in last
