import numpy as np
import pytest
import tensorflow as tf

from models.nmt.codec import Words
from models.nmt.export import export
from models.nmt.search import beam
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.trained import Trained
from models.nmt.vocabulary import END, PAD, Vocabulary


@pytest.fixture
def folder(tmp_path):
    words = Words(Vocabulary.of([["a", "b", "c"]]))
    model = Seq2Seq(Seq2SeqConfig(len(words), len(words), units=8, embedding=4))
    Trained(model, words, words).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_the_saved_model_takes_ids_and_gives_those_of_the_beam_search(folder, tmp_path):
    plans = export(folder, tmp_path / "saved", beams=3, length_penalty=0.5)
    assert list(plans) == ["serving_default"]
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    for rows in ([[4, 5, END], [6, END, PAD]], [[4, 5, 6, 4, END]]):
        found = serve(source=tf.constant(rows))
        room = tf.constant(2 * len(rows[0]) + 10)
        expected = beam(Trained.load(folder).model, tf.constant(rows), room, 3, 0.5)
        np.testing.assert_array_equal(found["tokens"], expected.tokens)
        np.testing.assert_allclose(found["scores"], expected.scores, rtol=1e-5)
        assert np.all(np.diff(found["scores"].numpy(), axis=1) <= 0)
    assert sorted(p.name for p in (tmp_path / "saved" / "assets").iterdir()) == [
        "source.vocabulary",
        "target.vocabulary",
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "saved"]


@pytest.mark.slow
def test_what_cannot_be_exported_is_said_in_one_line(run, folder, tmp_path):
    done = run("export", "--model=nowhere", f"--target={tmp_path / 'saved'}")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("export: nowhere: no trained model here")
