"""Neural machine translation with attention: corpus, data, model, training, translation, benchmark.

The model is ordinary TensorFlow and knows nothing of rnnmem; only the train step is decorated.
"""
