"""The models in PyTorch, run eagerly, and what PyTorch offers to save their memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch._functorch import config as functorch
from torch.utils.checkpoint import checkpoint

from benchmarks.peers.models import Model
from benchmarks.peers.step import Step

BUDGET = 0.1
"""Part of what a compiled step would save that it may save: 0 is none, 1 all."""


def _checkpointed(step: Callable) -> Callable:
    """An iteration that keeps what it is given alone; no model draws random numbers."""
    return lambda *given: checkpoint(step, *given, use_reentrant=False, preserve_rng_state=False)


VARIANTS: dict[str, Callable[[Callable], Callable]] = {
    "plain": lambda step: step,
    "checkpoint": _checkpointed,
    "memory budget": lambda step: step,
}
"""What wraps an iteration or a block."""

# --- models: (wrap, weights, inputs) -> loss


def _lstm(i, f, g, o, c):
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def nmt(wrap, w, source, target):
    """As `models.nmt.model.Translator.loss`."""

    def gates_of(gates, c):
        i, j, f, o = gates.chunk(4, -1)
        return _lstm(i, f + 1.0, j, o, c)

    def encode(x, here, h, c):
        gates = torch.cat([x, h], -1) @ w["encoder_kernel"] + w["encoder_bias"]
        new_h, new_c = gates_of(gates, c)
        return torch.where(here, new_h, h), torch.where(here, new_c, c)

    step = wrap(encode)
    h = c = torch.zeros(len(source), w["key_kernel"].shape[0])
    outputs = []
    for x, here in zip(w["source_embedding"][source.T], (source != 0).T[..., None], strict=True):
        h, c = step(x, here, h, c)
        outputs.append(h)
    memory = torch.stack(outputs, 1)
    keys = memory @ w["key_kernel"]
    penalty = torch.where(source != 0, 0.0, -1e9)
    vector = w["attention_vector"][:, 0]

    def decode(x, h, c):
        query = (h @ w["query_kernel"])[:, None, :]
        scores = (vector * torch.tanh(keys + query)).sum(-1)
        shares = torch.softmax(scores + penalty, -1)
        context = (shares[:, :, None] * memory).sum(1)
        gates = torch.cat([x, context, h], -1) @ w["decoder_kernel"] + w["decoder_bias"]
        return gates_of(gates, c)

    step, outputs = wrap(decode), []
    for x in w["target_embedding"][target[:, :-1].T]:
        h, c = step(x, h, c)
        outputs.append(h)
    labels = target[:, 1:].T
    logits = torch.stack(outputs) @ w["projection"] + w["projection_bias"]
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none"
    )
    real = (labels.flatten() != 0).to(losses.dtype)
    return (losses * real).sum() / real.sum().clamp(min=1.0)


def lstm(wrap, w, x):
    """As `hand_lstm` of `benchmarks.recurrent`."""

    def cell(x, h, c):
        gates = x @ w["kernel"] + h @ w["recurrent"] + w["bias"]
        return _lstm(*gates.chunk(4, -1), c)

    step = wrap(cell)
    h = c = torch.zeros(x.shape[1], len(w["recurrent"]))
    for one in x:
        h, c = step(one, h, c)
    return h.square().mean()


def recurrent_dropout(wrap, w, x, masks):
    """Two layers, a loop each."""
    for layer, mask in enumerate(masks):

        def cell(x, h, c, layer=layer, mask=mask):
            product = x @ w[f"kernel_{layer}"] + (h * mask) @ w[f"recurrent_{layer}"]
            return _lstm(*(product + w[f"bias_{layer}"]).chunk(4, -1), c)

        step, outputs = wrap(cell), []
        h = c = torch.zeros_like(mask)
        for one in x:
            h, c = step(one, h, c)
            outputs.append(h)
        x = torch.stack(outputs)
    return x.square().mean()


def language_model(wrap, w, tokens, labels):
    """As `language_model_smoothed` of `benchmarks.whole_step`."""

    def cell(x, h):
        update, reset, new = (x @ w["kernel"] + w["bias"]).chunk(3, 1)
        update_h, reset_h, new_h = (h @ w["recurrent"]).chunk(3, 1)
        gate = torch.sigmoid(update + update_h)
        return gate * h + (1 - gate) * torch.tanh(new + torch.sigmoid(reset + reset_h) * new_h)

    step, states = wrap(cell), []
    h = torch.zeros(tokens.shape[1], len(w["recurrent"]))
    for x in w["table"][tokens]:
        h = step(x, h)
        states.append(h)
    logits = torch.cat(states) @ w["table"].T + w["words_bias"]
    logs = torch.log_softmax(logits, -1)
    picked = logs.gather(1, labels.flatten()[:, None])[:, 0]
    return -(0.9 * picked + 0.1 * logs.mean(1)).mean()


def transformer(wrap, w, x):
    """As `small_transformer` of `benchmarks.whole_step`."""
    (batch, length, width), heads = x.shape, 8

    def norm(x):
        variance, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
        return (x - mean) * torch.rsqrt(variance + 1e-6)

    def block(x, qkv, out, grow, shrink):
        split = (norm(x) @ qkv).reshape(batch, length, 3, heads, width // heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) / (width // heads) ** 0.5, -1)
        x = x + (scores @ v).transpose(1, 2).reshape(batch, length, width) @ out
        return x + torch.nn.functional.gelu(norm(x) @ grow) @ shrink

    wrapped = wrap(block)
    for weights in zip(w["qkv"], w["out"], w["grow"], w["shrink"], strict=True):
        x = wrapped(x, *weights)
    return x.square().mean()


LOSSES = {one.__name__: one for one in (nmt, lstm, recurrent_dropout, language_model, transformer)}


def make_step(model: Model, variant: str) -> Step:
    """The step of a model in one of `VARIANTS`."""
    wrap, of_model = VARIANTS[variant], LOSSES[model.kind]
    weights = {
        name: [torch.tensor(one, requires_grad=True) for one in value]
        if model.kind == "transformer"
        else torch.tensor(value, requires_grad=True)
        for name, value in model.weights.items()
    }
    leaves, tree = torch.utils._pytree.tree_flatten(weights)
    inputs = [torch.tensor(value) for value in model.inputs.values()]
    inputs = [one.long() if one.dtype == torch.int32 else one for one in inputs]

    def loss(w, *inputs):
        return of_model(wrap, w, *inputs)

    if variant == "memory budget":
        functorch.activation_memory_budget = BUDGET
        # The partitioner that keeps the budget, without Inductor's kernels: each loop is unrolled.
        loss = torch.compile(loss, backend="aot_eager_decomp_partition", dynamic=False)

    def call():
        value = loss(weights, *inputs)
        return value.detach(), torch.autograd.grad(value, leaves)

    def arrays(results):
        value, gradients = results
        named = torch.utils._pytree.tree_unflatten(list(gradients), tree)
        return {"loss": value.numpy(), **{name: _array(one) for name, one in named.items()}}

    return Step(call, arrays, lambda: _allocated(call))


def _array(gradient: torch.Tensor | list[torch.Tensor]) -> np.ndarray:
    return np.stack(gradient) if isinstance(gradient, list) else gradient.numpy()


def _allocated(call: Callable) -> int | None:
    """The peak of what the profiler saw allocated and freed in one step."""
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profiler:
        results = call()
    del results
    events = profiler.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    in_time = (size for _, size in sorted(changes, key=lambda change: change[0]))
    return max(itertools.accumulate(in_time), default=None)
