"""The gradient of a call, taken from a rewritten pair of functions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.eager import backprop_util as _backprop_util
from tensorflow.python.eager.polymorphic_function import concrete_function as _concrete_function
from tensorflow.python.ops import gradients_util as _gradients_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops

from rnnmem.tf.private.lines import tell_lines_of
from rnnmem.tf.private.vectorisation import is_vectorised_or_differentiated_again, vectorise_call


def with_gradient(concrete: Any, rewrite: Any, accept: Any, leave: Any) -> Any:
    """The same function, whose gradient comes from a rewritten pair of graphs.

    TensorFlow differentiates a call of a function inside a graph by a pair of functions that it
    makes on demand: a forward one that also returns intermediates, and a backward one.

    Args:
      concrete: a ConcreteFunction; an eager tape gets the pair of graphs of it that was rewritten.
      rewrite: called once with TensorFlow's ``(forward FuncGraph, backward FuncGraph)``; returns
        such a pair to use instead, or None to use the one given.
      accept: called with TensorFlow's graphs, the functions that it made of them, and those of the
        rewritten pair; returns True where these may run instead, else another pair of graphs to
        try, or None to use TensorFlow's.
      leave: called with the inputs of a call inside a graph, TensorFlow's pair of functions and
        the rewritten one; returns whether TensorFlow's differentiates this call.
    """
    made = _concrete_function.ConcreteFunction(concrete._inference_function)
    made._arg_keywords = concrete._arg_keywords
    made._num_positional_args = concrete._num_positional_args
    made._delayed_rewrite_functions = _RewrittenGradient(concrete, rewrite, accept, leave)
    # An eager tape asks for no other pair, as long as no forward accumulator watches.
    for one in (made, concrete):
        one._first_order_tape_functions.setdefault((False, ()), _PairForTape(one))
    return made


def differentiate_as(concrete: Any, original: Any) -> Any:
    """Has a call of the function inside a graph differentiated as one of ``original`` would be.

    Args:
      concrete: a ConcreteFunction that computes the same from the same inputs; edited in place.
      original: a ConcreteFunction.
    """
    maker = copy.copy(original._delayed_rewrite_functions)
    maker._inference_function = concrete._inference_function
    maker._gradient_name = None
    concrete._delayed_rewrite_functions = maker
    return concrete


class _RewrittenGradient(_concrete_function._DelayedRewriteGradientFunctions):
    """TensorFlow's maker of forward and backward functions, with a rewrite behind it."""

    def __init__(self, concrete, rewrite, accept, leave):
        self.__dict__.update(concrete._delayed_rewrite_functions.__dict__)
        self._cached_function_pairs = {}
        self._gradient_name = None
        self._original = concrete._delayed_rewrite_functions
        self._rewrite = rewrite
        self._accept = accept
        self._leave = leave

    def _construct_forward_backward(self, num_doutputs):
        if num_doutputs != self._num_inference_outputs:
            return super()._construct_forward_backward(num_doutputs)
        pair = self._original.forward_backward(num_doutputs)
        graphs = self._rewrite(self._original._func_graph, pair[1].graph)
        if graphs is None:
            return pair
        originals = self._original._func_graph, pair[1].graph
        while graphs is not None:
            self._func_graph, backward = graphs
            made = _concrete_function._create_forward_backward_with_graph(
                self._attrs, self._func_graph, backward
            )
            graphs = self._accept(originals, pair, made)
            if graphs is True:
                for one in (made[0], made[1]._inference_function):
                    tell_lines_of(one, *originals)
                return made
        self._func_graph = originals[0]
        return pair

    def _rewrite_forward_and_call_backward(self, op, *doutputs):
        if self._is_left_to_tensorflow(op):
            return self._original._rewrite_forward_and_call_backward(op, *doutputs)
        # Once differentiated, a call has more outputs; nobody's gradient comes through those.
        count = self._num_inference_outputs
        forward, _ = self.forward_backward(count)
        again = len(op.outputs) <= len(forward.function_type.flat_outputs)
        if again and all(gradient is None for gradient in doutputs[count:]):
            doutputs = doutputs[:count]
        gradients = super()._rewrite_forward_and_call_backward(op, *doutputs)
        for gradient in gradients or ():
            vectorise_call(gradient)
        return gradients

    def _is_left_to_tensorflow(self, op):
        """Whether TensorFlow's own pair differentiates a call; one that has a pair keeps it."""
        called = op.get_attr("f").name
        if called in _forward_names(self):
            return False
        if called in _forward_names(self._original):
            return True
        if is_vectorised_or_differentiated_again(op.graph):
            return True
        count = self._num_inference_outputs
        own, made = self._original.forward_backward(count), self.forward_backward(count)
        return made is not own and self._leave(list(op.inputs), own, made)


class _PairForTape(_concrete_function._FirstOrderTapeGradientFunctions):
    """The pair for an eager call under a tape; that for calls inside graphs, once there is one.

    TensorFlow would differentiate the same graph again, and what its loops save for the first pair
    is then a result, with zeros for its gradient. The pair is called as TensorFlow calls its own:
    through another function the arguments of loops would have other names, and sums that add them
    up another order.
    """

    def __init__(self, concrete):
        maker = concrete._delayed_rewrite_functions
        super().__init__(
            concrete.graph,
            concrete._attrs,
            concrete._garbage_collector,
            forwardprop_input_indices=(),
            delayed_rewrite_functions=maker,
            need_gradients_for_jvps=False,
        )
        # A gradient that was taken of the function before may have added to what its graph returns.
        count = maker._num_inference_outputs
        results = concrete.graph.outputs[:count]
        self._num_outputs = self._num_inference_outputs = count
        self._num_trainable_inference_outputs = len(
            [one for one in results if _backprop_util.IsTrainable(one)]
        )

    def _forward_and_backward_functions(self, inference_args, input_tangents):
        maker: Any = self._delayed_rewrite_functions
        count = self._num_inference_outputs
        known = getattr(maker, "_original", maker)._cached_function_pairs
        if count not in known:  # one for a graph would run what no gradient depends on
            made = super()._forward_and_backward_functions(inference_args, input_tangents)
            known[count] = made[0], made[2]
        forward, backward = maker.forward_backward(count)
        return forward, maker._func_graph, backward, None, 0

    def _wrap_backward_function(self, forward_graph, backward, outputs):
        run, recorded = super()._wrap_backward_function(forward_graph, backward, outputs)

        def run_or_vectorise(*gradients):
            found = run(*gradients)
            for one in () if tf.executing_eagerly() else found or ():
                vectorise_call(one)
            return found

        return run_or_vectorise, recorded


def differentiated_caller(concrete: Any, pair: Any, count: int, specs: Sequence[Any]) -> Any:
    """A ConcreteFunction that calls a pair as TensorFlow does where it differentiates a call.

    Args:
      concrete: the function that is called.
      pair: a forward and a backward function for it.
      count: how many results it has; the rest of what the forward one returns is for the other.
      specs: types of its arguments.
    """
    forward, backward = pair

    def call(*given):
        results = forward.call_flat(*given, *concrete.captured_inputs)
        place = {id(one): number for number, one in enumerate(forward.graph.outputs)}
        inputs = [*given, *concrete.captured_inputs]
        known = {id(one): value for one, value in zip(forward.graph.inputs, inputs, strict=True)}
        read = [
            results[place[id(one)]] if id(one) in place else known.get(id(one), one)
            for one in backward.captured_inputs
        ]
        upstream = [one + one for one in results[:count] if _backprop_util.IsTrainable(one)]
        found = backward._call_flat(upstream, read)
        return [*results[:count], *(one for one in tf.nest.flatten(found) if one is not None)]

    return tf.function(call, autograph=False).get_concrete_function(*specs)


def _forward_names(maker: Any) -> set[str]:
    pairs = maker._cached_function_pairs.values()
    return {tf.compat.as_str(forward.name) for forward, _ in pairs}


def a_tape_is_active() -> bool:
    """Whether some gradient tape of this thread may be recording."""
    return not _pywrap_tfe.TFE_Py_TapeSetIsEmpty()


def higher_gradients_are_possible(concrete: Any, tensors: list[tf.Tensor]) -> bool:
    """Whether several tapes, or a persistent one, will record a call with these arguments."""
    for variable in concrete.graph.variables:
        _resource_variable_ops.variable_accessed(variable)  # as the call itself will
    tensors = [*tensors, *concrete.captured_inputs]
    kinds = _gradients_util.PossibleTapeGradientTypes(tensors)
    return kinds == _gradients_util.POSSIBLE_GRADIENT_TYPES_HIGHER_ORDER


def force_gradient(concrete: Any) -> None:
    """Makes TensorFlow build the function's gradient now."""
    concrete._delayed_rewrite_functions.forward_backward()
